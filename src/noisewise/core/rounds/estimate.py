"""What published rounds together say about the moments A = Σ ww' of w = (1, columns).

Round r observes the entries of M_r A M_r' with independent Gaussian noise, where M_r is its public
map. That M_r was chosen from earlier rounds makes no difference to the likelihood: given those
rounds it is known, so

    log p(U_1, …, U_T | A) = - Σ_r Σ_{a≤b} (U_r - M_r A M_r')²_ab / (2 var_r,ab) + constant,

up to clipping, which `tail` deals with. It is a Gaussian in the entries of A, and this is its mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noisewise.core.rounds.transform import Floats

_TOLERANCE = 1e-13
_MOST_STEPS = 2000


@dataclass(frozen=True)
class Observed:
    """One round, in units of 1.

    Parameters
    ----------
    map : (p, P) array
        M_r.
    values : (p, p) array
        U_r, symmetric.
    precision : (p, p) array
        1 / variance of the noise of each entry, symmetric; 0 where nothing was published.
    """

    map: Floats
    values: Floats
    precision: Floats


def least_squares(rounds: Sequence[Observed], base: Floats, n: float | None) -> Floats:
    """The most likely moments, in the coordinates of `base`.

    Parameters
    ----------
    rounds : sequence of Observed
    base : (P, P) array
        Takes w to the coordinates in which to solve and to answer: those of the last round, where
        the problem is well conditioned, because the last round observes it there directly.
    n : float or None
        The number of rows, if it is public; then it is the entry (0, 0).

    Returns
    -------
    (P, P) array
    """
    back = np.linalg.inv(base)
    maps = [one.map @ back for one in rounds]
    # An off-diagonal entry is in the matrix twice, each time with half of its weight.
    weights = [(one.precision + np.diag(np.diag(one.precision))) / 2 for one in rounds]
    start = np.zeros((len(base), len(base)))
    if n is not None:
        start[0, 0] = n

    def pulled(residuals: Sequence[Floats]) -> Floats:
        total = np.zeros_like(start)
        for to_round, weight, residual in zip(maps, weights, residuals, strict=True):
            total += to_round.T @ (weight * residual) @ to_round
        if n is not None:
            total[0, 0] = 0.0
        return total

    def curvature(moments: Floats) -> Floats:
        return pulled([m @ moments @ m.T for m in maps])

    # Conjugate gradients on matrices: P³ work a step, and no matrix of P² by P² entries.
    solution = start
    residual = pulled([one.values - m @ start @ m.T for one, m in zip(rounds, maps, strict=True)])
    direction, size = residual, float(np.sum(residual**2))
    enough = _TOLERANCE**2 * size
    for _ in range(_MOST_STEPS):
        if size <= enough:
            break
        bent = curvature(direction)
        along = float(np.sum(direction * bent))
        if along <= 0.0:  # rounding, or a direction that nothing was published about
            break
        step = size / along
        solution = solution + step * direction
        residual = residual - step * bent
        before, size = size, float(np.sum(residual**2))
        direction = residual + (size / before) * direction
    return solution


def mean_and_covariance(moments: Floats) -> tuple[Floats, Floats]:
    """Of the columns, from the moments of (1, columns)."""
    n = moments[0, 0]
    mean = moments[0, 1:] / n
    return mean, moments[1:, 1:] / n - np.outer(mean, mean)
