"""Scores and regions that tell two data sets apart, and what counts in regions are worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from noisewise._arrays import FloatArray

Counts = NDArray[np.int64]
Direction = Literal["a over b", "b over a"]
Goal = Callable[[FloatArray, FloatArray], FloatArray]

_MOST_THRESHOLDS = 400


class Region(NamedTuple):
    """Outputs with score >= threshold ("a over b") or score <= threshold ("b over a")."""

    gain: float  # what it would show if the runs that chose it were the held-out ones
    direction: Direction
    threshold: float

    def count(self, scores: FloatArray) -> int:
        """How many runs fell into it."""
        inside = (
            scores >= self.threshold if self.direction == "a over b" else scores <= self.threshold
        )
        return int(np.count_nonzero(inside))


def ratio(delta: float) -> Goal:
    """What a bound on epsilon looks at: (p_lower - delta) / p_upper."""

    def gain(p_lower: FloatArray, p_upper: FloatArray) -> FloatArray:
        excess = p_lower - delta
        return np.asarray(np.where(excess > 0, excess, np.finfo(float).tiny) / p_upper)

    return gain


def distance(p_lower: FloatArray, p_upper: FloatArray) -> FloatArray:
    """What a bound on mu looks at: standard deviations between two normal laws."""
    return np.asarray(ndtri(p_lower) - ndtri(p_upper), dtype=np.float64)


def choose_region(a: FloatArray, b: FloatArray, goal: Goal, alpha: float) -> Region:
    """The region whose bound would be best if these runs were the held-out ones.

    The bound is taken at a stricter level than the held-out runs are judged by. At the same level
    the best-looking region is often a small one that was lucky, and the audit loses power.

    Parameters
    ----------
    a, b : array, shape (runs,)
        Scores on both data sets.
    goal : callable
        From (p_lower, p_upper) to what is to be large.
    alpha : float
        Probability with which either bound on held-out runs may be wrong.
    """
    alpha /= 25
    levels = np.linspace(0, 1, _MOST_THRESHOLDS // 2)
    thresholds = np.unique([np.quantile(s, levels, method="nearest") for s in (a, b)])
    found = []
    sides: tuple[tuple[Direction, FloatArray, FloatArray, int], ...] = (
        ("a over b", a, b, 1),
        ("b over a", b, a, -1),
    )
    for direction, likelier, rarer, sign in sides:
        many = _reached(sign * likelier, sign * thresholds)
        few = _reached(sign * rarer, sign * thresholds)
        gain = goal(lower(many, len(likelier), alpha), upper(few, len(rarer), alpha))
        best = int(np.argmax(gain))
        found.append(Region(float(gain[best]), direction, float(thresholds[best])))
    return max(found)


def lower(hits: Counts, runs: int, alpha: float) -> FloatArray:
    """Clopper-Pearson lower bound of a probability, wrong with probability at most `alpha`."""
    bound = betaincinv(np.maximum(hits, 1), runs - hits + 1, alpha)
    return np.where(hits > 0, bound, 0.0)


def upper(hits: Counts, runs: int, alpha: float) -> FloatArray:
    """Clopper-Pearson upper bound of a probability, wrong with probability at most `alpha`."""
    bound = betaincinv(hits + 1, np.maximum(runs - hits, 1), 1 - alpha)
    return np.where(hits < runs, bound, 1.0)


def _reached(scores: FloatArray, thresholds: FloatArray) -> Counts:
    """How many scores are at least as large as each threshold."""
    return len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")


# --- scores: large where one data set is likelier than the other ----------------------------------


Score = Callable[[FloatArray], FloatArray]


class _Law(Protocol):
    """A noise law of `core.noise` on unit scale."""

    def logpdf(self, x: Any) -> FloatArray:
        """Log density."""


def likelihood_ratio(noise: _Law | Sequence[_Law], a: Any, b: Any) -> Score:
    """The best possible score (Neyman and Pearson) for sums with independent noise of known law.

    Parameters
    ----------
    noise : law, or one for each entry
        From `core.noise`, in the unit of the outputs.
    a, b : array_like (m,)
        The exact sums of both data sets.

    Returns
    -------
    callable
        log density under A minus log density under B.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    laws = list(noise) if isinstance(noise, Sequence) else [noise] * len(a)

    def score(outputs: FloatArray) -> FloatArray:
        terms = [
            law.logpdf(outputs[:, i] - a[i]) - law.logpdf(outputs[:, i] - b[i])
            for i, law in enumerate(laws)
        ]
        # Laplace ratios have atoms; without rounding, the last bit would split them at random.
        return np.asarray(np.round(np.sum(terms, axis=0), 9), dtype=np.float64)

    return score


def linear_discriminant(a: FloatArray, b: FloatArray) -> Score:
    """Fisher's linear discriminant of two samples, on the entries and on the entries clipped.

    An entry clipped to the interval between the two medians is, up to a factor, the log-likelihood
    ratio of Laplace noise; unclipped it's that of Gaussian noise. With both as inputs the
    discriminant comes close to the best score for either.

    Parameters
    ----------
    a, b : ndarray (k, m)

    Returns
    -------
    callable
    """
    middle_a, middle_b = np.median(a, axis=0), np.median(b, axis=0)
    low, high = np.minimum(middle_a, middle_b), np.maximum(middle_a, middle_b)
    # On a common scale, or the large entries would set the precision of the small ones.
    spread = np.std(np.vstack([a, b]), axis=0)
    spread[spread == 0] = 1.0

    def inputs(outputs: FloatArray) -> FloatArray:
        clipped = np.clip(outputs, low, high)
        return np.hstack([(outputs - low) / spread, (clipped - low) / spread])

    in_a, in_b = inputs(a), inputs(b)
    covariance = (np.cov(in_a.T) + np.cov(in_b.T)) / 2
    # A direction without any noise is the best of all: a tiny ridge keeps it, where a
    # pseudo-inverse would drop it.
    ridge = 1e-10 * np.eye(len(covariance))
    weights = np.linalg.solve(covariance + ridge, in_a.mean(axis=0) - in_b.mean(axis=0))

    def score(outputs: FloatArray) -> FloatArray:
        return np.asarray(inputs(outputs) @ weights, dtype=np.float64)

    return score
