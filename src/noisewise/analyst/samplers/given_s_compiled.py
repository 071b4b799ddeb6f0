"""The compiler of `normal_x` and `fixed_s`, which call functions of the Gibbs samplers."""

from noisewise._compiled import Family

_family = Family(
    __file__,
    "given_s*.py",
    "normal_x*.py",
    "fixed_s*.py",
    "gibbs*.py",
    "../models/moments*.py",
    "../models/triangular.py",
)
compiled = _family.uncounted
compiled_to_the_letter = _family.to_the_letter
