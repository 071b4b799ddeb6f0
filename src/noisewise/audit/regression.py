"""The challenge of a regression request: sums with independent noise of a known law.

Exact sums come from the holder's engine once; then noise is drawn, written into a Release's text
and read back, many times. So the likelihood ratio is known, and so is the noise of every run.
"""

from __future__ import annotations

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.audit.challenge import Challenge, Run, simulated, through_text
from noisewise.audit.noise import NoiseCheck, check_noise
from noisewise.audit.pairs import neighbours
from noisewise.audit.scores import likelihood_ratio
from noisewise.core.grid import STATISTIC_ONE
from noisewise.core.noise import DISCRETE_FAMILIES, Gaussian, Laplace
from noisewise.core.statistic import SecondMoments, SmallestEigenvalue
from noisewise.holder.engines import open_source
from noisewise.holder.request import Request
from noisewise.holder.statistics.smallest_eigenvalue import value as eigenvalue
from noisewise.holder.sums import Sums


def regression_challenge(request: Request) -> Challenge:
    """The worst pair that the schema allows, as far as climbing finds it."""
    pair = neighbours(request)
    first, second = (open_source(table).sums(request.plan(), None) for table in (pair.a, pair.b))
    exact = (exact_values(request, first), exact_values(request, second))
    laws = noise_laws(request)

    def check(a: FloatArray, b: FloatArray) -> NoiseCheck:
        return check_noise(np.concatenate([a - exact[0], b - exact[1]]), laws)

    return Challenge(
        request,
        pair,
        (_published(request, first), _published(request, second)),
        (likelihood_ratio(laws, *exact), None),
        check,
        simulated(exact, laws),
    )


def _published(request: Request, sums: Sums) -> Run:
    """Runs from exact sums on: noise, Release, text, Release; all its values on unit scale."""

    def run() -> list[float]:
        release = through_text(request, sums)
        return [value for part in release.measurements for value in part.unit_values()]

    return run


def exact_values(request: Request, sums: Sums) -> FloatArray:
    """What would be published without noise, on unit scale."""
    values: list[int] = []
    for statistic in request.statistics:
        if isinstance(statistic, SmallestEigenvalue):
            second = sums.values[SecondMoments.name]
            values.append(eigenvalue(statistic, sums.n, second))
        else:
            values += sums.values[statistic.name]
    return np.array([value / STATISTIC_ONE for value in values])


def noise_laws(request: Request) -> list[Laplace | Gaussian]:
    """The stated law of the noise on every published value, on unit scale."""
    laws: list[Laplace | Gaussian] = []
    for statistic, mechanism in zip(request.statistics, request.mechanisms, strict=True):
        family = DISCRETE_FAMILIES[mechanism.family]
        for entry in statistic.entries:
            off = isinstance(statistic, SecondMoments) and entry[0] != entry[1]
            scale = mechanism.off_diagonal_scale if off else mechanism.scale
            laws.append(family(scale).continuous())
    return laws
