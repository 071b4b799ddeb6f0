"""What the compiled functions of the Gibbs samplers are given: observations and scratch space."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray, IntArray

# How a holder's equations are solved (`gibbs_solvers`).
DENSE, EIGEN, CG_JACOBI, CG_EIGEN = 0, 1, 2, 3


class Holders(NamedTuple):
    """The observations, in the form the compiled functions take."""

    n: FloatArray  # (J,)
    laplace: NDArray[np.bool_]  # (J,)
    values: FloatArray  # (J, P, P)
    scale: FloatArray  # (J, P, P), 0: known, inf: not released
    mode: IntArray  # (J,)
    observed: IntArray  # (J, q), positions of the released entries among the unique ones
    n_observed: IntArray  # (J,)
    complete: NDArray[np.bool_]  # (J,), every entry released
    isometric: FloatArray  # (J,), noise variance in the isometric layout, where mode is EIGEN
    rows: IntArray  # (q,), row of each unique entry
    columns: IntArray  # (q,)


class Fixed(NamedTuple):
    """Covariate moments that do not change, for `gibbs_prior` and `gibbs_noisy`."""

    eta: FloatArray  # (d, d)
    xi: FloatArray  # (qv, qv)
    root: FloatArray  # (qv, qv), root root' = xi
    eta_root: FloatArray  # (d, d), lower triangular root of eta
    positions_v: IntArray  # (d, d)
    positions_w: IntArray  # (P, P)


class Work(NamedTuple):
    """Scratch space of one thread."""

    rng: NDArray[np.uint64]  # (4,)
    counts: IntArray  # (3,), the iteration's Info
    F: FloatArray  # (P, P), lower triangular, FF' = G
    G: FloatArray  # (P, P), E[ww']
    m: FloatArray  # (P,), E[w]
    squares: FloatArray  # (6, P, P)
    vectors: FloatArray  # (2, P)
    C: FloatArray  # (q, q), covariance of the released entries, then its factor
    covariance: FloatArray  # (q, q), Cov[ww'] with fixed covariate moments
    once: FloatArray  # (qv, d)
    x: FloatArray  # (q,)
    g: FloatArray  # (q,)


class Large(NamedTuple):
    """Scratch space of one thread for the solvers of large problems.

    Small problems are given None instead. The compiled functions then have no trace of these
    solvers, which cuts the time of compilation by half.
    """

    V: FloatArray  # (P, P), eigenvectors of G in rows
    values: FloatArray  # (P,), eigenvalues of G
    squares: FloatArray  # (7, P, P)
    vectors: FloatArray  # (4, P)


def workspace(holders: Holders, *, normal: bool = True) -> tuple[Work, Large | None]:
    """Scratch space for one thread."""
    P = holders.values.shape[1]
    q, qv = holders.rows.size, P * (P - 1) // 2 - 1
    dense = holders.n_observed[holders.mode == DENSE].max(initial=0)
    work = Work(
        rng=np.zeros(4, dtype=np.uint64),
        counts=np.zeros(3, dtype=np.int64),
        F=np.zeros((P, P)),
        G=np.zeros((P, P)),
        m=np.zeros(P),
        squares=np.zeros((6, P, P)),
        vectors=np.zeros((2, P)),
        C=np.zeros((dense, dense)),
        covariance=np.zeros((0, 0) if normal else (q, q)),
        once=np.zeros((0, 0) if normal else (qv, P - 1)),
        x=np.zeros(q),
        g=np.zeros(max(q, P)),
    )
    if (holders.mode == DENSE).all():
        return work, None
    return work, Large(
        V=np.zeros((P, P)),
        values=np.zeros(P),
        squares=np.zeros((7, P, P)),
        vectors=np.zeros((4, P)),
    )
