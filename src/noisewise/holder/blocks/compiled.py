"""The compiler of block sums and regressions: to the letter.

The sums are exact, and the double-double arithmetic is wrong as soon as two of its operations are
fused or change places.
"""

from noisewise._compiled import Family

_family = Family(__file__, "kernel.py", "double_double.py", "regressions.py")
compiled = _family.to_the_letter
