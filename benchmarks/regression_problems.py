"""Releases to time samplers on: clipped normal rows, summed, with the noise a holder would add."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers.moments import FourthMomentObservation, fourth_monomials
from noisewise.core.calibration import gaussian_noise_multiplier

ROWS = 10_000
DELTA = Fraction(1, 1_000_000)


@dataclass(frozen=True)
class Problem:
    """One release of d design columns (the intercept is one), and its priors' size."""

    d: int
    epsilon: float
    mechanism: str  # laplace, or gaussian in the isometric layout

    @property
    def k(self) -> int:
        return self.d - 1

    def rows(self) -> np.ndarray:
        rng = np.random.default_rng([12, self.d])
        x = np.clip(rng.normal(0, 0.4, (ROWS, self.k)), -1, 1)
        slope = 0.4 / np.sqrt(max(self.k, 1))
        y = np.clip(0.2 + slope * x.sum(axis=1) + rng.normal(0, 0.25, ROWS), -1, 1)
        return np.column_stack([np.ones(ROWS), x, y])

    def noise_scales(self) -> np.ndarray:
        """L1 sensitivity of the box / epsilon, or the Gaussian scale for its L2 sensitivity."""
        p = self.k + 1
        if self.mechanism == "laplace":
            sensitivity = p * (p + 1) / 2 + p + p / (2 * (p + 1))
            scale = np.full((p + 1, p + 1), sensitivity / self.epsilon)
        else:
            multiplier = gaussian_noise_multiplier(Fraction(str(self.epsilon)), DELTA)
            sd = multiplier * np.sqrt(2) * (p + 1)
            scale = np.where(np.eye(p + 1, dtype=bool), sd, sd / np.sqrt(2))
        scale[0, 0] = 0.0
        return scale

    def observation(self) -> Observation:
        rng = np.random.default_rng([13, self.d])
        w, scale = self.rows(), self.noise_scales()
        draw = rng.laplace if self.mechanism == "laplace" else rng.normal
        noisy = np.triu(w.T @ w) + np.triu(draw(0, 1, scale.shape) * scale)
        noisy += np.triu(noisy, 1).T
        return Observation(ROWS, noisy, scale, self.mechanism)

    def fourth_moments(self) -> FourthMomentObservation:
        """Sums of all monomials of degree one to four of the covariates, with as much noise."""
        rng = np.random.default_rng([14, self.d])
        w = self.rows()[:, :-1]
        monomials = fourth_monomials(self.k)
        sums = np.array([w[:, list(m)].prod(axis=1).sum() for m in monomials])
        scale = float(len(monomials)) / self.epsilon
        draw = rng.laplace if self.mechanism == "laplace" else rng.normal
        return FourthMomentObservation(
            n=ROWS, k=self.k, values=sums + draw(0, scale, sums.size), scale=scale,
            family=self.mechanism,
        )  # fmt: skip
