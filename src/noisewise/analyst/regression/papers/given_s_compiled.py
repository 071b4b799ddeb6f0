"""The compiler of `normal_x` and `fixed_s`, which call functions of the Gibbs samplers."""

from noisewise._compiled import Family

_family = Family(
    __file__,
    "given_s*.py",
    "normal_x*.py",
    "fixed_s*.py",
    "gibbs*.py",
    "moments*.py",
    "../exact/triangular.py",
    "../../random_numbers.py",
)
compiled = _family.uncounted
compiled_to_the_letter = _family.to_the_letter
