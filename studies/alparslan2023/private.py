"""The private counterpart: public bounds, the sensitivity of noisewise, an intercept.

Columns are mapped from their public bounds to [-1, 1] and clipped there. Each holder releases all
second moments of (1, x, y) with Gaussian noise, calibrated by the holder's own code for replacing
one row, in the layout that has less noise. The noise is drawn as floating-point numbers, for speed:
a real Release has integer noise, which is the same law to double precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers.ada_ssp import noise_width
from studies.alparslan2023.data import DataSet, gram_matrices, training_rows, with_noise
from studies.regression import NoiseScales, noise_scales

LAYOUTS: tuple[Literal["upper", "isometric"], ...] = ("upper", "isometric")
FAILURE = 0.05


class UnitTask(NamedTuple):
    """Training rows on unit scale, test rows with the target in original units."""

    x: FloatArray  # (n, k)
    y: FloatArray  # (n,)
    x_test: FloatArray
    y_test: FloatArray
    centre: float  # of the target's bounds
    radius: float  # half of the target's bounds' width

    def test_error(self, theta: FloatArray) -> float:
        """Mean squared error of predictions for test rows, in original units squared."""
        predicted = self.centre + self.radius * (theta[0] + self.x_test @ theta[1:])
        return float(np.mean((self.y_test - predicted) ** 2))


def unit_task(data: DataSet, rows: FloatArray, rng: np.random.Generator) -> UnitTask:
    """A random 80/20 split of the rows, on unit scale by public bounds."""
    low, high = np.array(list(data.bounds.values())).T
    centre, radius = (low + high) / 2, (high - low) / 2
    order = rng.permutation(len(rows))
    unit = np.clip((rows[order] - centre) / radius, -1.0, 1.0)
    n = training_rows(len(rows))
    x, y = unit[:, :-1], unit[:, -1]
    return UnitTask(x[:n], y[:n], x[n:], rows[order][n:, -1], float(centre[-1]), float(radius[-1]))


def private_delta(n: int) -> float:
    """min(1e-6, 1/(10 n)): 1/n would allow a whole row to be published."""
    return min(1e-6, 1 / (10 * n))


def layout_and_scales(
    k: int, epsilon: float, delta: float
) -> tuple[Literal["upper", "isometric"], NoiseScales]:
    """The layout whose noise has the smaller variance, summed over the matrix."""
    entries = k + 2

    def total(layout: Literal["upper", "isometric"]) -> float:
        scales = noise_scales(k, epsilon, delta, layout, False)
        off = entries * (entries - 1) / 2
        return entries * scales.diagonal**2 + off * scales.off_diagonal**2

    best = min(LAYOUTS, key=total)
    return best, noise_scales(k, epsilon, delta, best, False)


def private_releases(
    x: FloatArray, y: FloatArray, J: int, epsilon: float, delta: float, rng: np.random.Generator
) -> list[Observation]:
    """What J holders with consecutive shares of the rows release."""
    _, scales = layout_and_scales(x.shape[1], epsilon, delta)
    observations = []
    for A in gram_matrices(x, y, J):
        scale = np.where(np.eye(len(A), dtype=bool), scales.diagonal, scales.off_diagonal)
        scale[0, 0] = 0.0
        values = with_noise(A, scale, rng)
        observations.append(Observation(round(float(A[0, 0])), values, scale, "gaussian"))
    return observations


def ada_ssp(observations: Sequence[Observation]) -> FloatArray:
    """`papers.ada_ssp`, rule "noise", of Releases without the smallest eigenvalue."""
    d = observations[0].k + 1
    S = np.sum([seen.values[:d, :d] for seen in observations], axis=0)
    z = np.sum([seen.values[:d, d] for seen in observations], axis=0)
    penalty, widths = 0.0, 0.0
    for seen in observations:
        width = noise_width(seen.scale[:d, :d], seen.family, FAILURE / 2)
        lower = max(0.0, float(np.linalg.eigvalsh(seen.values[:d, :d])[0]) - width)
        penalty += max(0.0, width - lower)
        widths += width
    smallest = float(np.linalg.eigvalsh(S)[0]) + penalty
    least = max(1e-9 * float(np.abs(S).max()), 1e-9)
    lifted = 0.0 if smallest >= least else widths + least - smallest
    return np.asarray(np.linalg.solve(S + (penalty + lifted) * np.eye(d), z), dtype=np.float64)
