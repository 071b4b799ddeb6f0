"""What the samplers of the papers share: chains, starting points, a little linear algebra.

A sampler is a compiled function ``(rng, model, state) -> (state, info)`` without other effects, and
a loop over it that keeps what each iteration gave (its *trace*). `sample_chains` runs such loops in
parallel threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from noisewise._arrays import FloatArray
from noisewise._compiled import compiled
from noisewise.analyst.chains import Progress, Report, check_counts, generators, run_chains
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.triangular import cholesky
from noisewise.core.errors import ReleaseError

StateT = TypeVar("StateT", bound=tuple[Any, ...])
TraceT = TypeVar("TraceT", bound=tuple[Any, ...])

_BLOCK = 500  # iterations between two looks at whether to stop
_LARGEST_BLOCK = 1 << 20  # numbers of latent statistics in a block


# --- chains ---------------------------------------------------------------------------------------


def sample_chains(
    init: Callable[[np.random.Generator], StateT],
    run: Callable[[np.random.Generator, StateT, int, int], tuple[StateT, TraceT]],
    *,
    chains: int,
    draws: int,
    tune: int,
    thin: int = 1,
    seed: int | None,
    cores: int | None,
    progress: Progress | None,
    keep: dict[str, int] | None = None,
) -> TraceT:
    """Run chains in parallel threads; the trace of their draws, fields (chains, draws, ...).

    Parameters
    ----------
    init : callable
        A chain's first state, from its generator.
    run : callable
        ``(rng, state, first, count) -> (state, trace)``: iterations first, ..., first + count - 1.
    chains, draws, tune, thin, seed, cores, progress
        As for the samplers. Of `thin` iterations after warm-up the last is a draw.
    keep : mapping of str to int, optional
        Fields of the trace of which only so many draws of each chain are kept, evenly spaced.
    """
    check_counts(chains=chains, draws=draws, tune=tune, thin=thin, cores=cores)
    length = tune + thin * draws
    keep = keep or {}

    def one_chain(chain: int, report: Report) -> Any:
        rng = rngs[chain]
        state = init(rng)
        size = sum(np.size(field) for field in state)
        block = max(10, min(_BLOCK, _LARGEST_BLOCK // max(size, 1)))
        pieces = []
        for first in range(0, length, block):
            count = min(block, length - first)
            state, trace = run(rng, state, first, count)
            since = np.arange(first, first + count) - tune
            rows = np.flatnonzero((since >= 0) & (since % thin == thin - 1))
            pieces.append(_chosen(trace, rows, since[rows] // thin))
            report(first + count)
        return [np.concatenate(parts) for parts in zip(*pieces, strict=True)], type(trace)

    def _chosen(trace: Any, rows: Any, numbers: Any) -> list[Any]:
        """The draws of a block, by field; of some fields only some."""
        found = []
        for name, field in zip(trace._fields, trace, strict=True):
            kept = keep.get(name, draws)
            some = rows
            if kept < draws:
                every = draws // max(kept, 1)
                some = rows[(numbers % every == 0) & (numbers // every < kept)]
            found.append(field[some])
        return found

    rngs = generators(seed, chains)
    done = run_chains(one_chain, chains=chains, length=length, cores=cores, progress=progress)
    make: Any = done[0][1]
    result: TraceT = make(*(np.stack(parts) for parts in zip(*(d[0] for d in done), strict=True)))
    return result


# --- where chains start ---------------------------------------------------------------------------


def rough_population(observations: Sequence[Observation]) -> FloatArray:
    """A possible E[ww'] near the released values: only for starting points and choices of solver.

    Entry by entry the precision-weighted mean of the released A_j / n_j and of a guess that suits
    columns in [-1, 1]; then the covariance of (x, y) is made positive definite.
    """
    P = observations[0].k + 2
    guess = np.diag(np.full(P, 0.3))
    guess[0, 0] = 1.0
    weight = np.full((P, P), 4.0)
    total = weight * guess
    for observation in observations:
        own = 1.0 / ((observation.sd / observation.n) ** 2 + 0.3 / observation.n)
        total = total + own * observation.values / observation.n
        weight = weight + own
    G: FloatArray = total / weight
    floor = 0.3 * float(np.sqrt(np.mean(1.0 / weight)))
    mean = G[0, 1:]
    values, vectors = np.linalg.eigh(G[1:, 1:] - np.outer(mean, mean))
    values = np.maximum(values, max(min(floor, 0.1), 1e-3 * float(values[-1]), 1e-9))
    G[0, 0] = 1.0
    G[0, 1:] = G[1:, 0] = mean
    G[1:, 1:] = (vectors * values) @ vectors.T + np.outer(mean, mean)
    return G


def _with_known_entries(G: FloatArray, observation: Observation) -> FloatArray:
    """G with the entries that are known exactly, moved towards a diagonal matrix if need be."""
    known = observation.scale == 0
    known[0, 0] = False
    if not known.any():
        return G
    diagonal = np.diag(np.diag(G))
    for step in np.linspace(0.0, 1.0, 11):
        mixed: FloatArray = (1 - step) * G + step * diagonal
        mixed[known] = observation.values[known] / observation.n
        if np.linalg.eigvalsh(mixed)[0] > 0:
            return mixed
    raise ReleaseError(
        "entries that are known exactly contradict each other: no possible statistics have them "
        "(a covariance beyond its variances)"
    )


def starting_statistics(
    observations: Sequence[Observation], rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Valid, dispersed latent A_j, and noise variances; each (J, P, P).

    Chains start from releases with fresh noise added to them, so that they start further apart
    than the posterior is wide.
    """
    shaken = []
    for o in observations:
        noise = rng.laplace(size=o.values.shape) * math.sqrt(0.5)
        noise = np.triu(noise) + np.triu(noise, 1).T
        sd = np.where(np.isfinite(o.sd), o.sd, 0.0)
        shaken.append(Observation(o.n, o.values + sd * noise, o.scale, o.family))
    G = rough_population(shaken)
    A = np.stack([o.n * _with_known_entries(G, o) for o in observations])
    omega2 = np.stack([np.where(np.isfinite(o.sd), o.sd, 0.0) ** 2 for o in observations])
    return A, omega2


# --- compiled: linear algebra that may fail -------------------------------------------------------
# np.linalg in Numba raises for a matrix that is not positive definite, and leaks memory when it
# does. Here that is an everyday event: statistics drawn by the central limit theorem may be
# impossible.


@compiled
def pooled(A: FloatArray) -> FloatArray:
    """The sum of all holders' statistics (J, P, P)."""
    total: FloatArray = A[0].copy()
    for j in range(1, A.shape[0]):
        total += A[j]
    return total


@compiled
def factor(A: FloatArray) -> tuple[FloatArray, bool]:
    """Lower triangular L with LL' = A, and whether there is one."""
    L = np.zeros(A.shape)
    for a in range(A.shape[0]):
        for b in range(a + 1):
            L[a, b] = A[a, b]
    return L, cholesky(L, A.shape[0])


@compiled
def solve_lower(L: FloatArray, b: FloatArray) -> FloatArray:
    """x with L x = b, L lower triangular."""
    x = b.copy()
    for i in range(x.size):
        total = x[i]
        for c in range(i):
            total -= L[i, c] * x[c]
        x[i] = total / L[i, i]
    return x


@compiled
def solve_upper(L: FloatArray, b: FloatArray) -> FloatArray:
    """x with L'x = b, L lower triangular."""
    x = b.copy()
    for i in range(x.size - 1, -1, -1):
        x[i] /= L[i, i]
        value = x[i]
        for c in range(i):
            x[c] -= L[i, c] * value
    return x


@compiled
def inverse_lower(L: FloatArray) -> FloatArray:
    """The inverse of a lower triangular matrix."""
    W = np.zeros(L.shape)
    for i in range(L.shape[0]):
        for c in range(i):
            for b in range(c + 1):
                W[i, b] -= L[i, c] * W[c, b]
        for b in range(i):
            W[i, b] /= L[i, i]
        W[i, i] = 1.0 / L[i, i]
    return W


# --- compiled: random numbers ---------------------------------------------------------------------


@compiled
def bartlett(rng: np.random.Generator, degrees: float, step: float, k: int) -> FloatArray:
    """Lower triangular R: R_ii ~ chi(degrees + i step), standard normal below the diagonal."""
    R = np.zeros((k, k))
    for a in range(k):
        for b in range(a):
            R[a, b] = rng.standard_normal()
        R[a, a] = math.sqrt(rng.chisquare(degrees + a * step))
    return R


@compiled
def laplace_variance(rng: np.random.Generator, q: float) -> float:
    """Draw t given |r| = q, where r | t ~ N(0, t) and t ~ Exponential(mean 2): r is Laplace(1).

    1/t is inverse Gaussian with mean 1/q and shape 1 (Bernstein & Sheldon 2019, Algorithm 1, line
    6). The two roots of Michael, Schucany & Haas (1976, doi:10.1080/00031305.1976.10479147) are
    written here for t itself, so that q = 0 and huge q need no care.
    """
    half = 0.5 * rng.standard_normal() ** 2
    t = q + half + math.sqrt(half * (2.0 * q + half))
    if rng.random() * (t + q) <= t:
        return t
    return q * q / t
