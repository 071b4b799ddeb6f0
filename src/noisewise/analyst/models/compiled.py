"""The compiler of the collapsed posterior."""

from noisewise._compiled import Family

_family = Family(__file__, "triangular.py", "collapsed_*.py")
SOURCES = _family.digest
compiled = _family.fast
