"""Rough guesses from the noisy statistics: units and starting points for a sampler.

They decide in which coordinates a sampler sees the collapsed posterior (`collapsed_kernels`), never
what that posterior is. Noisy statistics need not be possible ones; what comes out of here is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.observation import Observation
from noisewise.analyst.priors import (
    CovariatePrior,
    NIWPrior,
    NormalInverseGammaIndependent,
    RegressionPrior,
)

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class Coordinates(NamedTuple):
    """Order of the holders, form of their coordinates, centre and unit of each coordinate."""

    order: tuple[int, ...]
    relative: BoolArray  # (J,)
    polar: BoolArray  # (J, P)
    centre: FloatArray  # (ndim,)
    scale: FloatArray  # (ndim,)


def rough_coordinates(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariatePrior,
    *,
    force_relative: bool | None = None,
    force_polar: bool | None = None,
) -> Coordinates:
    """Choose coordinates, holders in the order reference first.

    Units are conditional standard deviations: of the noise, by Gauss and Newton, of the difference
    between holders by sampling, and of a vague prior.
    """
    k = covariates.k
    population = _rough_population(observations, covariates)
    sampling = _sampling_variance(population)
    # The reference is the holder that knows most about the population.
    uncertainty = [float(np.median((o.sd / o.n) ** 2 + sampling / o.n)) for o in observations]
    order = tuple(int(j) for j in np.argsort(uncertainty, kind="stable"))
    holders = [observations[j] for j in order]

    relative = np.array([_noise_to_sampling(h, sampling) > 1.0 for h in holders])
    if force_relative is not None:
        relative[:] = force_relative
    relative[0] = False

    R: FloatArray = np.linalg.cholesky(population).astype(np.float64)
    polar = np.zeros((len(holders), k + 2), dtype=np.bool_)
    centres, units = [], []
    for j, holder in enumerate(holders):
        if relative[j]:
            F: FloatArray = np.eye(k + 2)
            information = (1.0 + F) / (1.0 / holder.n + 1.0 / holders[0].n)
            information += (R**2).T @ _noise_information(holder, R)
        else:
            F = R
            if j > 0:
                own = _pool([holder], population, sampling / holder.n)
                F = np.linalg.cholesky(own).astype(np.float64)
            information = 4.0 + _noise_information(holder, F)
            if j == 0:
                for other, flag in zip(holders, relative, strict=True):
                    if flag:
                        information += _noise_information(other, F)
            else:
                # n times the sampling variance of F is that of its row from the column on.
                rows = np.tril(np.cumsum(R[:, ::-1] ** 2, axis=1)[:, ::-1])
                information += holder.n / np.maximum(rows, 1e-12)
            polar[j] = _is_polar(information, F) if force_polar is None else force_polar
            polar[j] &= holder.scale.diagonal() > 0
        centre, unit = _in_coordinates(F, information, polar[j])
        free = np.tril(holder.scale != 0)
        centres.append(centre[free])
        units.append(unit[free])
    if isinstance(prior, NormalInverseGammaIndependent):
        centres.append(np.array([2.0 * math.log(R[-1, -1])]))
        units.append(np.array([0.5]))
    if not isinstance(covariates, NIWPrior):
        # ln psi is counted from the log variances of the reference holder's columns.
        centres.append(np.full(k, math.log(max(covariates.nu - k - 1.0, 1.0))))
        units.append(np.full(k, math.sqrt(2.0 / (covariates.nu - k + 1.0))))
    return Coordinates(order, relative, polar, np.concatenate(centres), np.concatenate(units))


def _in_coordinates(
    F: FloatArray, information: FloatArray, polar: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Centre and unit of the coordinates of each entry of F."""
    diagonal = F.diagonal()
    length = np.sqrt((F[:, 1:] ** 2).sum(axis=1))
    centre, information = F.copy(), information.copy()
    log_information = information.diagonal() * diagonal**2 + 2.0
    np.fill_diagonal(centre, np.log(diagonal))
    np.fill_diagonal(information, log_information)
    for a in np.flatnonzero(polar):
        centre[a, 1:a] /= diagonal[a]
        information[a, 1:a] *= diagonal[a] ** 2
        centre[a, a] = math.log(length[a])
    return centre, 1.0 / np.sqrt(information)


def _is_polar(information: FloatArray, F: FloatArray) -> BoolArray:
    """Rows whose covariances are uncertain by more than their residual variance explains.

    There the length of the row is what the released sum of squares tells, and the prior rules the
    rest. The threshold is measured; with fewer than two covariances plain rows are better.
    """
    polar = np.zeros(len(F), dtype=np.bool_)
    for a in range(3, len(F)):
        polar[a] = np.sum(1.0 / information[a, 1:a]) > 2.0 * F[a, a] ** 2
    return polar


def _rough_population(
    observations: Sequence[Observation], covariates: CovariatePrior
) -> FloatArray:
    """A possible E[w w'] near all holders' A_j / n_j."""
    k = covariates.k
    guess = np.diag(np.full(k + 2, 0.3))
    guess[0, 0] = 1.0
    if isinstance(covariates, NIWPrior):
        guess[1:-1, 1:-1] = covariates.Psi / max(covariates.nu - k - 1.0, 1.0)
    vague = np.full_like(guess, 0.25)
    first = _pool(observations, guess, vague)
    # Once more, now with sampling variances that fit the data.
    return _pool(observations, first, vague)


def _pool(
    observations: Sequence[Observation], guess: FloatArray, guess_variance: FloatArray
) -> FloatArray:
    """Entry by entry, the precision-weighted mean of A_j / n_j and a guess; then repaired."""
    weight = 1.0 / guess_variance
    total = weight * guess
    sampling = _sampling_variance(guess)
    for observation in observations:
        own = 1.0 / ((observation.sd / observation.n) ** 2 + sampling / observation.n)
        total = total + own * observation.values / observation.n
        weight = weight + own
    return _repair(total / weight, 0.3 * float(np.sqrt(np.mean(1.0 / weight))))


def _repair(G: FloatArray, floor: float) -> FloatArray:
    """The nearest G with G_00 = 1 whose covariance has no eigenvalue below `floor`."""
    means = G[0, 1:]
    eigenvalues, vectors = np.linalg.eigh(G[1:, 1:] - np.outer(means, means))
    floor = max(floor, 1e-9 * float(eigenvalues[-1]), 1e-12)
    repaired = np.empty_like(G)
    repaired[0, 0] = 1.0
    repaired[0, 1:] = repaired[1:, 0] = means
    repaired[1:, 1:] = (vectors * np.maximum(eigenvalues, floor)) @ vectors.T
    repaired[1:, 1:] += np.outer(means, means)
    return repaired


def _sampling_variance(G: FloatArray) -> FloatArray:
    """Variance of w_a w_b for normal w with E[w w'] = G: G_aa G_bb + G_ab² - 2 m_a² m_b²."""
    m2 = G[0] ** 2
    diagonal = G.diagonal()
    return np.maximum(np.outer(diagonal, diagonal) + G**2 - 2.0 * np.outer(m2, m2), 1e-12)


def _noise_to_sampling(observation: Observation, sampling: FloatArray) -> float:
    """Median ratio of the noise to the sampling standard deviation of the sums."""
    ratio = observation.sd / np.sqrt(observation.n * sampling)
    return float(np.median(ratio[np.triu_indices_from(ratio)][1:]))


def _noise_information(observation: Observation, F: FloatArray) -> FloatArray:
    """Gauss-Newton information of each entry of F in the noise, the others held fixed."""
    weight = np.zeros_like(observation.sd)
    noisy = (observation.sd > 0) & np.isfinite(observation.sd)
    weight[noisy] = observation.n**2 / observation.sd[noisy] ** 2
    squares = F**2
    return weight @ squares + 3.0 * weight.diagonal()[:, None] * squares
