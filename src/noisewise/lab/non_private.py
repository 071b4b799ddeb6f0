"""The posterior that somebody who holds the rows would compute: the reference of every study.

It needs the exact Gram matrix, so it is no method of the analyst's. It lives in the lab.
"""

from __future__ import annotations

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.papers.conjugate import draw, update
from noisewise.analyst.regression.priors import NIGPrior


def gram(x: FloatArray, y: FloatArray) -> FloatArray:
    """A = Σ ww', w = (1, x, y), from rows x (n, k) and y (n,)."""
    w = np.column_stack([np.ones(len(y)), x, y])
    return np.asarray(w.T @ w, dtype=np.float64)


def sample(
    A: FloatArray, prior: NIGPrior, *, draws: int, seed: int | None
) -> tuple[FloatArray, FloatArray]:
    """Independent draws of theta (1, draws, d) and sigma2 (1, draws) given the exact sums.

    Parameters
    ----------
    A : array, shape (P, P)
        The exact Gram matrix of w = (1, x, y); ``A[0, 0]`` is the number of rows.
    prior : NIGPrior
    draws : int
    seed : int, optional
    """
    n = round(float(A[0, 0]))
    return draw(update(prior, A, n), np.random.default_rng(seed), (1, draws))
