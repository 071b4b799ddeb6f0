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
from scipy.special import gammainc, gammaincinv, ndtr

from noisewise._arrays import FloatArray
from noisewise.core.noise import Gaussian, Laplace

FALSE_ALARMS = 1e-6  # chance that sound noise is called too small or shared, each
_MOST_COMPARED = 2000  # columns; all pairs of more would not fit memory


@dataclass(frozen=True)
class NoiseCheck:
    """What the noise of many runs looked like.

    Parameters
    ----------
    smallest, largest : float
        Over all published values, the observed scale over the stated one.
    correlation : float
        The largest in size between two of them, of the first 2,000.
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


def check_noise(noise: FloatArray, laws: Sequence[Laplace | Gaussian]) -> NoiseCheck:
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
    largest_correlation, shared = shared_randomness(scaled) if values > 1 else (0.0, False)
    return NoiseCheck(
        float(observed.min()),
        float(observed.max()),
        largest_correlation,
        bool(tail.min() >= FALSE_ALARMS / values),
        not shared,
        float(limit ** (1 / power)),
    )


def shared_randomness(numbers: FloatArray) -> tuple[float, bool]:
    """The largest correlation of two columns, and whether it is beyond chance."""
    numbers = numbers[:, :_MOST_COMPARED]
    runs, values = numbers.shape
    spread = numbers.std(axis=0)
    centred = (numbers - numbers.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    pairs = np.abs((centred.T @ centred / runs)[np.triu_indices(values, 1)])
    largest = float(pairs.max())
    z = np.arctanh(min(largest, 1 - 1e-15)) * max(runs - 3, 1) ** 0.5
    return largest, bool(2 * ndtr(-z) * len(pairs) < FALSE_ALARMS)


def spread_out(noise: FloatArray, scale: float, rng: np.random.Generator) -> FloatArray:
    """Make Laplace noise of discrete Laplace noise of the same scale.

    With a scale of few integers the two differ. P(|Z| ≥ k) = 2q^k/(1 + q) for k ≥ 1, q = e^(-1/s);
    a number drawn uniformly between P(|Z| > |z|) and P(|Z| ≥ |z|) is uniform over all, and -s times
    its logarithm is the size of Laplace noise. Noise of less than the stated scale stays that.
    """
    size = np.abs(noise)
    share = 2 / (1 + np.exp(-1 / scale))
    below = share * np.exp(-(size + 1) / scale)
    above = np.where(size == 0, 1.0, share * np.exp(-size / scale))
    uniform = np.maximum(below + (above - below) * rng.random(noise.shape), 1e-300)
    sign = np.where(size == 0, rng.choice([-1.0, 1.0], noise.shape), np.sign(noise))
    return np.asarray(-scale * np.log(uniform) * sign)
