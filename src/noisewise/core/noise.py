"""Noise families as densities: scale, variance, log density. Never a sampler.

A Release carries integers with discrete noise on a grid of step 2**-32. With scales of 2**28 grid
steps and more the discrete law and its continuous limit agree to within double precision, so
analysts work with the limit on unit scale: `continuous`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from noisewise.core.design import STATISTIC_ONE

Family = Literal["discrete_laplace", "discrete_gaussian"]


@dataclass(frozen=True)
class Laplace:
    """Density exp(-|x|/scale) / (2 scale)."""

    scale: float

    @property
    def variance(self) -> float:
        return 2 * self.scale**2

    def logpdf(self, x: Any) -> NDArray[np.float64]:
        z = np.abs(np.asarray(x, dtype=np.float64)) / self.scale
        return -z - math.log(2 * self.scale)


@dataclass(frozen=True)
class Gaussian:
    """Density exp(-x²/2scale²) / (scale √2π)."""

    scale: float

    @property
    def variance(self) -> float:
        return self.scale**2

    def logpdf(self, x: Any) -> NDArray[np.float64]:
        z = np.asarray(x, dtype=np.float64) / self.scale
        return -0.5 * z * z - math.log(self.scale * math.sqrt(2 * math.pi))


@dataclass(frozen=True)
class DiscreteLaplace:
    """Probability tanh(1/2s) exp(-|x|/s) of the integer x, where s is the scale."""

    scale: float

    @property
    def variance(self) -> float:
        """Variance in squared grid steps: 1 / (2 sinh²(1/2s))."""
        return 1 / (2 * math.sinh(0.5 / self.scale) ** 2)

    def logpmf(self, x: Any) -> NDArray[np.float64]:
        z = np.abs(np.asarray(x, dtype=np.float64)) / self.scale
        return -z + math.log(math.tanh(0.5 / self.scale))

    def continuous(self) -> Laplace:
        return Laplace(self.scale / STATISTIC_ONE)


@dataclass(frozen=True)
class DiscreteGaussian:
    """Probability proportional to exp(-x²/2s²) of the integer x, where s is the scale.

    Canonne, Kamath & Steinke (2020), "The Discrete Gaussian for Differential Privacy".
    """

    scale: int

    @property
    def variance(self) -> float:
        """Variance in squared grid steps; s² to within exp(-2π²s²)."""
        if self.scale >= 4:  # the correction is below 1e-130
            return float(self.scale) ** 2
        terms = range(-40 * self.scale, 40 * self.scale + 1)
        weights = {x: math.exp(-0.5 * (x / self.scale) ** 2) for x in terms}
        return math.fsum(x * x * w for x, w in weights.items()) / math.fsum(weights.values())

    def logpmf(self, x: Any) -> NDArray[np.float64]:
        """Log probability of the integers `x`.

        The normaliser is s√2π (1 + 2Σ exp(-2π²s²k²)) by Poisson summation.
        """
        s = float(self.scale)
        theta = 1 + 2 * math.fsum(math.exp(-2 * (math.pi * s * k) ** 2) for k in (1, 2, 3))
        z = np.asarray(x, dtype=np.float64) / s
        return -0.5 * z * z - math.log(s * math.sqrt(2 * math.pi) * theta)

    def continuous(self) -> Gaussian:
        return Gaussian(self.scale / STATISTIC_ONE)


DISCRETE_FAMILIES: dict[str, type[DiscreteLaplace] | type[DiscreteGaussian]] = {
    "discrete_laplace": DiscreteLaplace,
    "discrete_gaussian": DiscreteGaussian,
}
