"""The compiler of networks, whose kernels draw the random numbers of the Gibbs samplers."""

from noisewise._compiled import Family

_family = Family(__file__, "*_kernels.py", "../samplers/gibbs_random.py")
compiled = _family.to_the_letter
inlined = _family.inlined
