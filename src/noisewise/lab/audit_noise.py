"""Whether the noise is what a Release says it is, where the exact sums are known.

On synthetic data the exact sums are known, so the noise itself can be looked at: a stricter test
than telling neighbours apart, though it can't see a sensitivity that is too small. If every sum has
independent noise of the stated law, then over N runs Σ|e|/b of Laplace noise is Gamma(N), and
Σe²/s² of Gaussian noise is chi-square with N degrees of freedom: exact lower tails say whether
there is less noise than stated. Noise that two sums share shows as correlation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincinv, ndtr

from ..core.noise import Gaussian, Laplace

Array = NDArray[np.float64]
FALSE_ALARMS = 1e-6  # chance that sound noise is called too small or shared, each


@dataclass(frozen=True)
class NoiseCheck:
    """What the noise of many runs looked like.

    Parameters
    ----------
    smallest, largest : float
        Over all published values, the observed scale over the stated one.
    correlation : float
        The largest in size between two of them.
    enough, independent : bool
        Whether nowhere there is less noise than stated, and no two values share any; both are
        wrongly denied with probability 1e-6.
    blind_above : float
        Noise above this share of the stated scale may escape notice.
    """

    smallest: float
    largest: float
    correlation: float
    enough: bool
    independent: bool
    blind_above: float

    @property
    def passed(self) -> bool:
        """Whether the noise is as stated."""
        return self.enough and self.independent


def check_noise(noise: Array, laws: Sequence[Laplace | Gaussian]) -> NoiseCheck:
    """Compare noise (runs, values) with the stated laws."""
    runs, values = noise.shape
    scaled = noise / np.array([law.scale for law in laws])
    if isinstance(laws[0], Laplace):
        degrees, power = float(runs), 1
    else:
        degrees, power = runs / 2, 2
    total = (np.abs(scaled) ** power).sum(axis=0) / power
    tail = gammainc(degrees, total)
    observed = (total / degrees) ** (1 / power)
    limit = gammaincinv(degrees, FALSE_ALARMS / values) / degrees
    largest_correlation = 0.0
    shared = False
    if values > 1:
        spread = scaled.std(axis=0)
        centred = (scaled - scaled.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        pairs = np.abs((centred.T @ centred / runs)[np.triu_indices(values, 1)])
        largest_correlation = float(pairs.max())
        z = np.arctanh(min(largest_correlation, 1 - 1e-15)) * max(runs - 3, 1) ** 0.5
        shared = bool(2 * ndtr(-z) * len(pairs) < FALSE_ALARMS)
    return NoiseCheck(
        float(observed.min()),
        float(observed.max()),
        largest_correlation,
        bool(tail.min() >= FALSE_ALARMS / values),
        not shared,
        float(limit ** (1 / power)),
    )
