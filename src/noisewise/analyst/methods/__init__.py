"""Ways to the posterior of a regression, by name.

`registry` lists them, with what each is and what is wrong with it, and chooses one; `job` is what
every method is given and gives back; `checks` refuses what a method can't do, and `one_release`
asks that of a Release by itself. The other files run the samplers, one file a family. They load a
sampler when it runs: some compile, some need NumPyro.
"""

from noisewise.analyst.methods.job import Draws, Job
from noisewise.analyst.methods.one_release import check_one_release
from noisewise.analyst.methods.registry import METHODS, Method, check_method, choose

__all__ = ["METHODS", "Draws", "Job", "Method", "check_method", "check_one_release", "choose"]
