"""The compiler of the collapsed posterior."""

from noisewise._compiled import Family

_family = Family(__file__, "*.py")
SOURCES = _family.digest
compiled = _family.fast
