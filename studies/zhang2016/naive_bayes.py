"""Naive Bayes on binary features: data, counts, predictions, and the exact noise-aware posterior.

With d features and n records the joint posterior given noisy counts can be enumerated. Let k be the
true number of records with y = 1. Given k the features are independent of each other, so that

    P(k | released) ∝ P(k) f(released class count | k) Π_j W_j(k),

where W_j(k) adds up all counts of feature j that k allows. Nothing is approximated or sampled: this
is what `joint` samples for networks of any shape, and an oracle for it.

Arrays: a table is (..., d, 2, 2) with axes feature, class, level; predictions are for P(y = 1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from noisewise._arrays import FloatArray, IntArray
from studies.zhang2016.mechanisms import discrete_laplace


class Data(NamedTuple):
    """Records of a naive Bayes model."""

    y: IntArray  # (n,)
    x: IntArray  # (n, d)


class Counts(NamedTuple):
    """What the records say: the number with y = 1 and every feature's table.

    With noise on both counts of the class, `n` is their sum.
    """

    n: float
    ones: float  # of y
    tables: FloatArray  # (d, 2, 2)


class Tables(NamedTuple):
    """Probabilities: of y = 1, and of every feature's level 1 given the class."""

    pi: float
    theta: FloatArray  # (d, 2)


def simulate(rng: np.random.Generator, n: int, d: int) -> tuple[Data, Tables]:
    """Records of a model whose probabilities are uniform."""
    truth = Tables(float(rng.random()), rng.random((d, 2)))
    y = (rng.random(n) < truth.pi).astype(np.int64)
    x = (rng.random((n, d)) < truth.theta[:, y].T).astype(np.int64)
    return Data(y, x), truth


def count(data: Data) -> Counts:
    """Family counts."""
    cells = np.stack(
        [[((data.y == c)[:, None] & (data.x == v)).sum(axis=0) for v in (0, 1)] for c in (0, 1)]
    )
    return Counts(len(data.y), float(data.y.sum()), np.moveaxis(cells, -1, 0).astype(np.float64))


# ---------------------------------------------------------------------------------------------
# Predictions


def log_joint(tables: Tables, x: IntArray) -> FloatArray:
    """log P(y, x) for y = 0 and 1, shape (records, 2); -inf where a probability is zero."""
    with np.errstate(divide="ignore"):
        log_pi = np.log([1 - tables.pi, tables.pi])
        log_one, log_zero = np.log(tables.theta), np.log1p(-tables.theta)
    steps = np.where(x[:, :, None] == 1, log_one, log_zero)
    return np.asarray(log_pi + steps.sum(axis=1), dtype=np.float64)


def accuracy(scores: FloatArray, y: IntArray) -> float:
    """Share of records whose class has the higher score; a tie is half right."""
    right = np.take_along_axis(scores, y[:, None], 1)[:, 0]
    wrong = np.take_along_axis(scores, 1 - y[:, None], 1)[:, 0]
    return float(np.mean((right > wrong) + 0.5 * (right == wrong)))


def posterior_mean(counts: Counts, alpha: float = 1.0) -> Tables:
    """The predictive posterior of independent Beta posteriors: every probability at its mean."""
    ones = (counts.ones + alpha) / (counts.n + 2 * alpha)
    totals = counts.tables.sum(axis=-1)
    return Tables(float(ones), (counts.tables[..., 1] + alpha) / (totals + 2 * alpha))


# ---------------------------------------------------------------------------------------------
# The exact posterior given noisy counts


class Enumerated(NamedTuple):
    """The posterior of k, and the mean of every probability given k (uniform priors)."""

    log_weight: FloatArray  # (n + 1,), of k = 0..n, not normalised
    theta: FloatArray  # (n + 1, d, 2)

    def scores(self, x: IntArray) -> FloatArray:
        """log P(y, x | released) up to a constant, shape (records, 2): the exact predictive."""
        n = len(self.log_weight) - 1
        k = np.arange(n + 1)
        log_pi = np.log(np.stack([n - k + 1, k + 1], axis=1) / (n + 2))  # (n + 1, 2)
        log_one, log_zero = np.log(self.theta), np.log1p(-self.theta)
        steps = np.einsum("rj,kjc->rkc", x, log_one - log_zero) + log_zero.sum(axis=1)
        scores = special.logsumexp(steps + log_pi + self.log_weight[:, None], axis=1)
        return np.asarray(scores, dtype=np.float64)


def enumerate_counts(noisy: Counts, scale: float) -> Enumerated:
    """Given noisy counts of all features' cells and a noisy count of y = 1."""
    n = int(noisy.n)
    m, a = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")  # total and its ones
    possible = a <= m
    # (d, class, total, ones)
    away = np.abs(noisy.tables[..., 1, None, None] - a) + np.abs(
        noisy.tables[..., 0, None, None] - (m - a)
    )
    log_w = np.where(possible, -away / scale - np.log1p(m), -np.inf)
    total = special.logsumexp(log_w, axis=-1)  # (d, class, total)
    share = np.exp(log_w - total[..., None])
    mean = (share * (a + 1)).sum(axis=-1) / (np.arange(n + 1) + 2)
    k = np.arange(n + 1)
    log_weight = -np.abs(noisy.ones - k) / scale
    log_weight = log_weight + total[:, 1, k].sum(axis=0) + total[:, 0, n - k].sum(axis=0)
    theta = np.stack([mean[:, 0, n - k], mean[:, 1, k]], axis=-1)  # (d, n + 1, 2)
    return Enumerated(log_weight, np.moveaxis(theta, 0, 1))


class ParityCounts(NamedTuple):
    """Numbers of records with y = 1, with x_j = 1, and with y ≠ x_j."""

    n: float
    y: float
    x: FloatArray  # (d,)
    xy: FloatArray  # (d,)


def parities(counts: Counts) -> ParityCounts:
    """Parity counts of the family counts."""
    t = counts.tables
    return ParityCounts(counts.n, counts.ones, t[:, :, 1].sum(axis=1), t[:, 1, 0] + t[:, 0, 1])


def from_parities(odd: ParityCounts) -> Counts:
    """Family counts that parity counts imply; with noise they may be negative or not whole."""
    zero_one = (odd.x + odd.xy - odd.y) / 2  # y = 0, x = 1
    one_one = (odd.x + odd.y - odd.xy) / 2
    one_zero = (odd.y + odd.xy - odd.x) / 2
    zero_zero = odd.n - zero_one - one_one - one_zero
    tables = np.stack(
        [np.stack([zero_zero, zero_one], -1), np.stack([one_zero, one_one], -1)], axis=-2
    )
    return Counts(odd.n, odd.y, tables)


def with_increment(counts: Counts, increment: float) -> Counts:
    """The same amount on every cell of every feature; a class has two cells of each."""
    return Counts(counts.n + 4 * increment, counts.ones + 2 * increment, counts.tables + increment)


def noisy_parities(rng: np.random.Generator, exact: ParityCounts, scale: float) -> ParityCounts:
    """Parity counts with discrete Laplace noise; n is public under replacement."""
    d = len(exact.x)
    noise = discrete_laplace(rng, scale, 2 * d + 1)
    return ParityCounts(
        exact.n, exact.y + noise[0], exact.x + noise[1 : d + 1], exact.xy + noise[d + 1 :]
    )


def noisy_counts(rng: np.random.Generator, exact: Counts, scale: float) -> Counts:
    """Counts with discrete Laplace noise; of the class, one count is enough where n is public."""
    tables = exact.tables + discrete_laplace(rng, scale, exact.tables.shape)
    return Counts(exact.n, exact.ones + float(discrete_laplace(rng, scale, ())), tables)


def clamped(counts: Counts, n: float) -> Counts:
    """Noisy counts moved into [0, n], as the paper does before it plugs them in."""
    ones = float(np.clip(counts.ones, 0, n))
    zeros = float(np.clip(counts.n - counts.ones, 0, n))
    return Counts(zeros + ones, ones, np.clip(counts.tables, 0, n))


def enumerate_parities(noisy: ParityCounts, scale: float) -> Enumerated:
    """Given noisy parity counts: one feature's two classes are no longer independent given k."""
    n, d = int(noisy.n), len(noisy.x)
    log_weight = np.empty(n + 1)
    theta = np.empty((n + 1, d, 2))
    for k in range(n + 1):
        b, a = np.arange(n - k + 1)[:, None], np.arange(k + 1)  # x = 1 among y = 0, y = 1
        away = np.abs(noisy.x[:, None, None] - (a + b)) + np.abs(
            noisy.xy[:, None, None] - (k - a + b)
        )
        log_w = -away / scale
        total = special.logsumexp(log_w, axis=(1, 2))
        share = np.exp(log_w - total[:, None, None])
        prior = np.log(k + 1) + np.log(n - k + 1)
        log_weight[k] = total.sum() - d * prior - abs(noisy.y - k) / scale
        theta[k, :, 0] = ((share.sum(axis=2) * (b[:, 0] + 1)).sum(axis=1)) / (n - k + 2)
        theta[k, :, 1] = ((share.sum(axis=1) * (a + 1)).sum(axis=1)) / (k + 2)
    return Enumerated(log_weight, theta)
