"""Privacy by one draw from a posterior, done right and done wrong; a model of the mistake.

n people answer yes or no, and one draw of theta ~ Beta(alpha + yes, beta + no) is published. If one
answer changes, the densities' ratio is (1 - theta)/theta or its inverse times a constant: without
bounds near 0 and 1, so the draw isn't private. Zhang, Rubinstein & Dimitrakakis (2016) keep theta
in [omega, 1 - omega]. That helps if the *law* is truncated to the interval, which bounds the ratio.
Clamping a draw of the untruncated law into the interval is post-processing of something that isn't
private: all the mass beyond omega ends up on omega, with its ratio as it was.

**Claim** of the truncated law. With f(theta) = theta^(a-1) (1-theta)^(b-1) / Z(a, b) on
[omega, 1 - omega], replacing a no by a yes multiplies the density by c theta / (1 - theta),
c = Z(a, b) / Z(a+1, b-1) for a, b before. theta / (1 - theta) lies between r⁻¹ and r,
r = (1 - omega)/omega, and 1/c is its mean under f, so that it lies there too. Therefore
|log ratio| <= |log c| + log r, and for the two answers of a single person under a symmetric prior
c = 1: epsilon = log r exactly.

References
----------
Zhang, Rubinstein & Dimitrakakis (2016), On the differential privacy of Bayesian inference, AAAI,
arXiv:1512.06992.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PosteriorSampling:
    """One draw of theta given one person's answer, under a Beta(alpha, alpha) prior.

    Floating-point noise: for the lab only.

    Parameters
    ----------
    alpha, omega : float
    clamped : bool
        The mistake.
    """

    alpha: float = 0.5
    omega: float = 0.1
    clamped: bool = False

    @property
    def epsilon(self) -> float:
        """What the truncated law has, exactly."""
        return math.log((1 - self.omega) / self.omega)

    def runs(self, ones: int, rng: np.random.Generator) -> Callable[[int], Array]:
        """Draws for an audit, shape (trials, 1), given a yes (1) or a no (0)."""
        a, b = self.alpha + ones, self.alpha + 1 - ones
        low, high = self.omega, 1 - self.omega

        def run(trials: int) -> Array:
            if self.clamped:
                return np.clip(rng.beta(a, b, (trials, 1)), low, high)
            between = rng.uniform(betainc(a, b, low), betainc(a, b, high), (trials, 1))
            return np.asarray(np.clip(betaincinv(a, b, between), low, high))

        return run
