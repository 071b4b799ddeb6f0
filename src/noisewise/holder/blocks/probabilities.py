"""A block's posterior probability that a coefficient is below a number, for all blocks at once."""

from __future__ import annotations

import numpy as np

from noisewise.holder.blocks.regressions import Fits
from noisewise.holder.plan import Floats


def standardised(fits: Fits, coefficient: int, threshold: float) -> Floats:
    """z = (b - m)/√v for every block; a posterior without width gives ±∞, or 0 at b itself."""
    distance = threshold - fits.mean[:, coefficient]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        z = distance / np.sqrt(fits.variance[:, coefficient])
    exact: Floats = np.where(distance == 0, 0.0, z)
    return exact


def probabilities(fits: Fits, coefficient: int, threshold: float) -> Floats:
    """p = T_ν(z) for every block."""
    from scipy.special import stdtr

    p: Floats = stdtr(fits.freedom, standardised(fits, coefficient, threshold))
    return p


def normal_scores(fits: Fits, coefficient: int, threshold: float) -> Floats:
    """Φ⁻¹(T_ν(z)) for every block, from the lower tail, where doubles are dense."""
    from scipy.special import ndtri, stdtr

    z = standardised(fits, coefficient, threshold)
    size = -ndtri(stdtr(fits.freedom, -np.abs(z)))
    scores: Floats = np.copysign(size, z)
    return scores
