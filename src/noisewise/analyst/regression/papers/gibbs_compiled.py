"""The compiler of the Gibbs samplers and their moments."""

from noisewise._compiled import Family

_family = Family(
    __file__, "moments*.py", "gibbs*.py", "../exact/triangular.py", "../../random_numbers.py"
)
compiled = _family.uncounted
compiled_to_the_letter = _family.to_the_letter
inlined = _family.inlined
expanded = _family.expanded
