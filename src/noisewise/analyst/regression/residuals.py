"""Wider intervals where published residuals say that errors differ in spread or have long tails.

The posterior takes errors for normal, of one spread. Then given the sums a coefficient vector
varies with covariance V = sigma2 A⁻¹, A = Σ xx'; and sigma2 with variance 2 sigma2² / n. Where a
Release has residuals (`core.rounds.residuals`), they say what both really are:

    W = A⁻¹ (Σ e² xx') A⁻¹,   (kappa - 1) sigma2² / n,   kappa = (Σ e⁴ / n) / (Σ e² / n)².

Draws get the difference as an independent normal step, W - V without its negative part in units of
V, and sigma2 a log-normal factor of variance (kappa - 3)₊ / n. So intervals only get wider: noise
on the residuals, and the tails that they have lost, never make them narrower. Holders' sums add up.
Of holders without residuals the rows are taken to be like the others'.

A residual is that of the Release's own regression. For another one, with other columns, nothing is
known, and draws stay as they are. Where noise is less than half of the variance it is said then
that errors are taken for normal, of one spread.

**Without residuals** second moments still tell of one thing. A target in [0, B] with mean m and
standard deviation s = c m has a skewness of c - 1/c or more (`rounds.skewness_warnings`), so with
c > 1 its errors can't be normal. Counts and amounts are like that. How long its tail is second
moments don't say. The gamma law of this mean and spread has kappa - 3 = 6c², and no law in [0, B]
has kappa above (B - m)² / s². sigma2 gets a factor of the smaller of the two; slopes stay as they
are. Of real targets with c > 1 the tails were longer than the gamma law's more often than not
(docs/calibration.md). m and s have noise: c is taken at its least within two standard deviations
of it, so that nothing is done where noise hides c. Rounds carry what far rows may have done, which
is more than this, and nothing is added to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from noisewise.analyst.regression.job import Draws
from noisewise.analyst.regression.observation import ModelColumns, Observation
from noisewise.core.kinds.regression import Release
from noisewise.core.rounds.residuals import estimated

_ASSUMED = (
    "errors are taken for normal, of one spread: residuals that could tell are published in rounds "
    "with very many rows, for the Release's own regression"
)
_SKEWED = (
    "{} is skewed, as its mean and spread within its bounds show, and errors with it: the interval "
    "of sigma2 is that of a law with a tail (kurtosis {:.0f} and not 3); slopes are as for normal "
    "errors"
)
_DOUBT = 2.0  # standard deviations of the noise


def with_residuals(
    drawn: Draws, releases: Sequence[Release], columns: ModelColumns, seed: int | None
) -> Draws:
    """Draws on unit scale, widened by what residuals say; as they are if there are none."""
    if drawn.holders is not None:
        return drawn
    size = len(columns.names)
    gram, excess = np.zeros((size, size)), np.zeros((size, size))
    variance = fourth = known = 0.0
    for release in releases:
        design, rounds = release.design, release.rounds
        if rounds is None or rounds.residuals is None:
            continue
        place = {name: i for i, name in enumerate(design.names)}
        kept = [place[name] for name in (*columns.names, columns.target)]
        if len(kept) != len(place) or kept[-1] != len(place) - 1:
            continue  # another regression
        last, n = rounds.last.observed(design), release.noisy_n
        own = estimated(last, n, n_is_public=release.n is not None)
        back = np.linalg.inv(last.map)
        meat = back @ rounds.residuals.matrix() @ back.T
        b = last.map.T @ rounds.residuals.unit_direction  # e = b·w
        square = float(b @ own @ b) / n
        y = b[-1] ** -2.0
        own, meat = own[np.ix_(kept, kept)], meat[np.ix_(kept, kept)]
        gram += own[:-1, :-1]
        excess += y * (meat - square * own)[:-1, :-1]
        variance += y * square * n
        fourth += float(b[kept] @ meat @ b[kept]) / square**2
        known += n
    if not known:
        return _with(drawn, _ASSUMED) if _noise_is_small(drawn) else drawn
    total = sum(release.noisy_n for release in releases)
    gram, excess = gram * (total / known), excess * (total / known)
    root = np.linalg.cholesky(variance / known * np.linalg.inv(gram))  # RR' = V
    inner = root.T @ excess @ root / (variance / known) ** 2  # R⁻¹ (W - V) R⁻ᵀ
    sizes, turn = np.linalg.eigh((inner + inner.T) / 2)
    step = root @ (turn * np.sqrt(np.maximum(sizes, 0.0)))
    rng = np.random.default_rng(None if seed is None else (seed, 0x5E51D))
    theta = drawn.theta + rng.standard_normal(drawn.theta.shape) @ step.T
    tail = np.sqrt(max(fourth / known - 3.0, 0.0) / total)
    sigma2 = drawn.sigma2 * np.exp(tail * rng.standard_normal(drawn.sigma2.shape))
    before, after = (x.reshape(-1, size).std(axis=0) for x in (drawn.theta, theta))
    most = float((after / before)[1:].max()) if size > 1 else float(after[0] / before[0])
    how = f"published residuals say how errors spread, which makes intervals up to {most:.2f} times"
    return _with(replace(drawn, theta=theta, sigma2=sigma2), f"{how} as wide")


def with_skewed_target(
    drawn: Draws, observations: Sequence[Observation], target: str, seed: int | None
) -> Draws:
    """Draws on unit scale, sigma2 widened where the target is skewed beyond doubt.

    `observations` are in the bounds' own coordinates.
    """
    total = sum(seen.n for seen in observations)
    excess = sum(seen.n * gamma_excess(seen) for seen in observations) / total
    if drawn.holders is not None or not excess > 0.0:
        return drawn
    rng = np.random.default_rng(None if seed is None else (seed, 0x5E3ED))
    factor = np.exp(np.sqrt(excess / total) * rng.standard_normal(drawn.sigma2.shape))
    return _with(replace(drawn, sigma2=drawn.sigma2 * factor), _SKEWED.format(target, 3.0 + excess))


def gamma_excess(seen: Observation) -> float:
    """Excess kurtosis of a skewed target if its law is a gamma law; 0 if it need not be skewed."""
    n, (total, square) = max(seen.n, 1), seen.values[-1, [0, -1]]
    doubt, doubt_square = _DOUBT * seen.sd[-1, [0, -1]] / n
    mean = total / n
    near, far = 1.0 - abs(mean) + doubt, 1.0 + abs(mean)
    variance = square / n - mean**2 - doubt_square
    if not variance > near**2:
        return 0.0
    return float(max(0.0, min(6.0 * variance / near**2, far**2 / variance - 3.0)))


def _with(drawn: Draws, how: str) -> Draws:
    return replace(drawn, how="; ".join(filter(None, (drawn.how, how))))


def _noise_is_small(drawn: Draws) -> bool:
    """Whether privacy noise is less than half of the variance, for the median coefficient."""
    if drawn.conditional_mean is None:
        return False
    hidden, all_of_it = (
        x.reshape(-1, x.shape[-1]).var(axis=0) for x in (drawn.conditional_mean, drawn.theta)
    )
    return bool(np.median(hidden / all_of_it) < 0.5)
