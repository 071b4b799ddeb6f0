"""The spread of residuals: what unequal or long-tailed errors do to intervals.

Second moments say what the errors' variance is, not whether it is the same for all rows. Intervals
take it for the same, and errors for normal. With many rows and little noise that is what decides
whether they hold. After the last round the regression is known, so a row's residual is a public
function of the row: e = a·u, with a public direction a (the coefficients, divided by the error's
standard deviation). Then

    M = Σ vv',   v = e u, shrunk into the ball |v| ≤ K,

is published for a small share of the budget. For x = (1, features), which is linear in u,
Σ e² xx' is a part of M in other coordinates, and A⁻¹ (Σ e² xx') A⁻¹ with A = Σ xx' is the variance
of least squares whatever the errors' spread is (White 1980). The direction a itself gives
a'Ma = Σ e⁴, from which follows the variance of the error variance.

**Privacy.** v is a function of one row and public integers, and |v| ≤ K. So M changes by no more
than any Gram matrix of rows in a ball does (`core.statistics.ball_moments` with N = K²).

**K.** The larger, the more noise. Where errors are normal, |v|² is about |u|² on average. K² is so
large that the noise on M, as a matrix, is a quarter of what M is for normal errors. If K² is less
than 16 times that average, much of a long tail would be cut off; then nothing is published, and
with so few rows the noise of the last round is most of the error anyway. What is cut off of longer
tails makes intervals too narrow, but never narrower than they are without residuals.

References
----------
White (1980), A heteroskedasticity-consistent covariance matrix estimator and a direct test for
    heteroskedasticity, doi:10.2307/1912934.
"""

from __future__ import annotations

import math

import numpy as np

from noisewise.core.rounds.estimate import Observed
from noisewise.core.rounds.transform import Floats

DIRECTION_BITS = 16
LARGEST_DIRECTION = 1 << 22  # in units of 2**-16: 64


def estimated(last: Observed, n: float, *, n_is_public: bool) -> Floats:
    """The Gram matrix Σ ww' of w = (1, columns) by the last round, positive definite.

    Eigenvalues that drown in the noise are raised to it.
    """
    gram = last.values.copy()
    if n_is_public:
        gram[0, 0] = n * last.map[0, 0] ** 2
    sizes, turn = np.linalg.eigh((gram + gram.T) / 2)
    noise = math.sqrt(len(gram) / last.precision[0, 1])
    back = np.linalg.inv(last.map)
    root = back @ (turn * np.sqrt(np.maximum(sizes, 0.5 * noise)))
    return np.asarray(root @ root.T)


def direction(last: Observed, n: float, *, n_is_public: bool) -> tuple[int, ...]:
    """The integers of a, for the regression of the last column of w on all others."""
    gram = estimated(last, n, n_is_public=n_is_public)
    theta = np.linalg.solve(gram[:-1, :-1], gram[:-1, -1])
    residual = np.append(-theta, 1.0)
    residual /= math.sqrt(residual @ gram @ residual / n)
    found = np.linalg.solve(last.map.T, residual) * 2.0**DIRECTION_BITS
    return tuple(int(x) for x in np.clip(np.rint(found), -LARGEST_DIRECTION, LARGEST_DIRECTION))
