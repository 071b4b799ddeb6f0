"""The next term of the expansion: how the mean of a score bends away from a line.

At theta_T the score has the mean n (g(theta) - g(theta_T)) with g(theta) = E[u m(theta·u)] over the
rows; `sampler` takes J d for it, with d = theta - theta_T and J = n ∇g(theta_T). How g bends is not
released. But if rows were normal, with the centre and spread that the first Newton round shows, g
would be known (`core.rounds.newton`). So the mean is taken for J d~, with

    d~ = ∇g(theta_T)⁻¹ (g(theta) - g(theta_T)) ≈ A d + b,

the straight line that touches d~ at the posterior mode. Where the last round looked at the right
place, A = I and b = 0. For rows that are not normal a part of the bend is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.core.rounds.newton import RowLaw, Scored

_STEPS = 30
_DAMPED = 0.6
_LARGEST_STEP = 1.0
_STEADY = 0.02  # a share of the mean curvature: where nothing is known, d~ is d
_DIFFERENCE = 1e-2  # large beside the knots, whose means are rounded


class Line(NamedTuple):
    """d~ = A d + b."""

    A: FloatArray  # (p, p)
    b: FloatArray  # (p,)

    @classmethod
    def straight(cls, size: int) -> Line:
        """d~ = d."""
        return cls(np.eye(size), np.zeros(size))

    def about(self, last: Scored, J: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Precision and linear term of theta given the score and J: of N(S~; J d~, J + s² I)."""
        JA = J @ self.A
        weighted = np.linalg.solve(J + last.score_sd**2 * np.eye(len(J)), JA)
        precision = JA.T @ weighted
        precision = (precision + precision.T) / 2
        linear = weighted.T @ (last.score - J @ self.b) + precision @ last.theta
        return precision, linear


def lines(
    rounds: Sequence[tuple[Scored, RowLaw, FloatArray]],
    precision: FloatArray,
    linear: FloatArray,
) -> list[Line]:
    """The lines of all Releases at their common mode.

    Of each Release `rounds` has the last round, the law of its rows, and the (p, p) matrix that
    takes beta to theta; `precision` and `linear` are of the normal prior of beta.
    """
    found = [Line.straight(len(linear)) for _ in rounds]
    beta = None
    for _ in range(_STEPS):
        total, pull = precision, linear
        for line, (last, _, back) in zip(found, rounds, strict=True):
            own, towards = line.about(last, last.within_noise())
            total = total + back.T @ own @ back
            pull = pull + back.T @ towards
        mode = np.linalg.solve(total, pull)
        if beta is None:  # from where the first Release looked
            beta = np.linalg.solve(rounds[0][2], rounds[0][0].theta)
        step = _DAMPED * (mode - beta)
        size = max(float(np.linalg.norm(back @ step)) for _, _, back in rounds)
        beta = beta + step * min(1.0, _LARGEST_STEP / max(size, 1e-12))
        found = [_touching(law, last.theta, back @ beta) for last, law, back in rounds]
        if size < 1e-4:
            break
    return found


def _touching(law: RowLaw, at: FloatArray, theta: FloatArray) -> Line:
    first, value = _curvature(law, at), law.expected(theta)[1] - law.expected(at)[1]
    steady = _STEADY * float(np.trace(first)) / len(at) * np.eye(len(at))
    A = np.asarray(np.linalg.solve(first + steady, _curvature(law, theta) + steady))
    d = theta - at
    return Line(A, np.linalg.solve(first + steady, value + steady @ d) - A @ d)


def _curvature(law: RowLaw, theta: FloatArray) -> FloatArray:
    """∇g, by differences."""
    columns = []
    for unit in np.eye(len(theta)) * _DIFFERENCE:
        up, down = law.expected(theta + unit)[1], law.expected(theta - unit)[1]
        columns.append((up - down) / (2 * _DIFFERENCE))
    matrix = np.array(columns)
    return np.asarray((matrix + matrix.T) / 2)
