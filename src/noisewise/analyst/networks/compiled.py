"""The compiler of networks, whose kernels draw the random numbers of the Gibbs samplers."""

from noisewise._compiled import Family

_family = Family(__file__, "*_kernels.py", "../random_numbers.py")
compiled = _family.to_the_letter
inlined = _family.inlined
