"""What the samplers of the papers share: chains, starting points, conjugate laws, linear algebra.

A sampler is a compiled loop ``(rng, model, state, first, count) -> (state, trace)`` without other
effects; the *trace* is what each iteration gave. The steps of an iteration are compiled apart and
called by their addresses (`call_with`), because as one piece they would compile for minutes.
Conjugate laws are those given exact second moments A = Σ ww', w = (1, x, y); with noisy ones at
face value they are the `naive` method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from noisewise._arrays import FloatArray, Rng
from noisewise._compiled import compiled
from noisewise.analyst.chains import Progress, Report, check_counts, generators, run_chains
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import CovariatePrior, NIGPrior, NIWPrior, RegressionPrior
from noisewise.analyst.regression.triangular import cholesky, invert_triangle
from noisewise.core.errors import ReleaseError, RequestError

StateT = TypeVar("StateT", bound=tuple[Any, ...])
TraceT = TypeVar("TraceT", bound=tuple[Any, ...])

_BLOCK = 500  # iterations between two looks at whether to stop
_LARGEST_BLOCK = 1 << 20  # numbers of latent statistics in a block


# --- chains ---------------------------------------------------------------------------------------


def sample_chains(
    init: Callable[[Rng], StateT],
    run: Callable[[Rng, StateT, int, int], tuple[StateT, TraceT]],
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

    `init` makes a chain's first state from its generator, and ``run(rng, state, first, count)``
    does iterations first, ..., first + count - 1. Of `thin` iterations after warm-up the last is a
    draw. `keep` names fields of the trace of which only so many draws of each chain are kept,
    evenly spaced.
    """
    check_counts(chains=chains, draws=draws, tune=tune, thin=thin, cores=cores)
    length = tune + thin * draws
    keep = keep or {}

    def kept(name: str, field: Any, first: int) -> Any:
        """The rows of one field of a trace that are kept; they begin with iteration `first`."""
        since = np.arange(first, first + len(field)) - tune
        draw, wanted = since // thin, min(keep.get(name, draws), draws)
        every = draws // max(wanted, 1)
        chosen = (since >= 0) & (since % thin == thin - 1)
        return field[chosen & (draw % every == 0) & (draw // every < wanted)]

    def one_chain(chain: int, report: Report) -> list[TraceT]:
        rng = rngs[chain]
        state = init(rng)
        block = max(10, min(_BLOCK, _LARGEST_BLOCK // sum(np.size(field) for field in state)))
        pieces: list[Any] = []
        for first in range(0, length, block):
            state, trace = run(rng, state, first, min(block, length - first))
            fields = cast(Any, trace)._asdict().items()
            pieces.append(type(trace)(*(kept(name, field, first) for name, field in fields)))
            report(min(first + block, length))
        return pieces

    def joined(traces: Sequence[TraceT], how: Callable[[Any], FloatArray]) -> TraceT:
        return type(traces[0])(*(how(parts) for parts in zip(*traces, strict=True)))

    rngs = generators(seed, chains)
    done = run_chains(one_chain, chains=chains, length=length, cores=cores, progress=progress)
    return joined([joined(pieces, np.concatenate) for pieces in done], np.stack)


# --- where chains start ---------------------------------------------------------------------------


def rough_population(observations: Sequence[Observation]) -> FloatArray:
    """A possible E[ww'] near the released values: only for starting points and choices of solver.

    Entry by entry the precision-weighted mean of the released A_j / n_j and of a guess that suits
    columns in [-1, 1]; then the covariance of (x, y) is made positive definite.
    """
    P = observations[0].k + 2
    weight, total = np.full((P, P), 4.0), np.diag([4.0, *[4.0 * 0.3] * (P - 1)])
    for seen in observations:
        own = 1.0 / ((seen.sd / seen.n) ** 2 + 0.3 / seen.n)
        total = total + own * seen.values / seen.n
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
    observations: Sequence[Observation], rng: Rng
) -> tuple[FloatArray, FloatArray]:
    """Valid, dispersed latent A_j, and noise variances; each (J, P, P).

    Chains start from releases with fresh noise added, further apart than the posterior is wide.
    """
    shaken, sds = [], np.stack([np.where(np.isfinite(o.sd), o.sd, 0.0) for o in observations])
    for o, sd in zip(observations, sds, strict=True):
        noise = rng.laplace(size=o.values.shape) * math.sqrt(0.5)
        noise = np.triu(noise) + np.triu(noise, 1).T
        shaken.append(Observation(o.n, o.values + sd * noise, o.scale, o.family))
    G = rough_population(shaken)
    return np.stack([o.n * _with_known_entries(G, o) for o in observations]), sds**2


# --- compiled: linear algebra that may fail -------------------------------------------------------
# np.linalg in Numba raises for a matrix that is not positive definite, and leaks memory when it
# does. Here that is an everyday event: statistics drawn by the central limit theorem may be
# impossible.


@compiled
def factor(A: FloatArray) -> tuple[FloatArray, bool]:
    """Lower triangular L with LL' = A, and whether there is one."""
    L = np.zeros(A.shape)
    for a in range(A.shape[0]):
        L[a, : a + 1] = A[a, : a + 1]
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
    invert_triangle(L, L.shape[0], W)
    return W


@compiled
def bartlett(rng: Rng, degrees: float, step: float, k: int) -> FloatArray:
    """Lower triangular R: R_ii ~ chi(degrees + i step), standard normal below the diagonal."""
    R = np.zeros((k, k))
    for a in range(k):
        for b in range(a):
            R[a, b] = rng.standard_normal()
        R[a, a] = math.sqrt(rng.chisquare(degrees + a * step))
    return R


@compiled
def accepts(rng: Rng, log_ratio: float) -> bool:
    """Whether a proposal is accepted, by Metropolis and Hastings."""
    return math.log(1.0 - rng.random()) < log_ratio


# --- the regression given the statistics ----------------------------------------------------------


class Regression(NamedTuple):
    """A prior of (theta, sigma2), in the form the compiled functions take."""

    mu0: FloatArray  # (d,)
    precision: FloatArray  # (d, d), of theta; in units of 1 / sigma2 unless `independent`
    bordered: FloatArray  # (P, P), [[precision, precision mu0], [., mu0' precision mu0]]
    a0: float
    b0: float
    independent: bool  # theta and sigma2 a priori independent


def prepare_regression(prior: RegressionPrior, k: int) -> Regression:
    """Check the prior of the regression and put it into arrays."""
    if prior.k != k:
        raise RequestError(f"prior is for {prior.k} covariates, the statistics are for {k}")
    independent = not isinstance(prior, NIGPrior)
    precision: Any = prior.Lam0 if isinstance(prior, NIGPrior) else np.linalg.inv(prior.V0)
    bordered = np.empty((k + 2, k + 2))
    bordered[:-1, :-1] = precision
    bordered[:-1, -1] = bordered[-1, :-1] = precision @ prior.mu0
    bordered[-1, -1] = prior.mu0 @ precision @ prior.mu0
    mu0, precision = np.array(prior.mu0), np.array(precision)
    return Regression(mu0, precision, bordered, prior.a0, prior.b0, independent)


def conditional_mean(prior: Regression, total: FloatArray, sigma2: FloatArray) -> FloatArray:
    """E[theta | statistics], and sigma2 if the prior is independent, for any number of draws.

    total : (..., P, P), the statistics of all holders together; sigma2 : (...).
    """
    weight = 1.0 / sigma2[..., None, None] if prior.independent else 1.0
    B = prior.bordered + weight * total
    solved = np.linalg.solve(B[..., :-1, :-1], B[..., :-1, -1:])
    return np.asarray(solved[..., 0], dtype=np.float64)


def starting_regression(A: FloatArray, prior: Regression) -> tuple[FloatArray, float]:
    """Centre of theta and sigma2 given starting statistics (J, P, P)."""
    total = A.sum(axis=0)
    root = np.linalg.cholesky(total + prior.bordered)
    theta = np.linalg.solve(root[:-1, :-1].T, root[-1, :-1])
    return theta, float((prior.b0 + 0.5 * root[-1, -1] ** 2) / (prior.a0 + 0.5 * total[0, 0]))


@compiled
def draw_regression(
    rng: Rng, prior: Regression, total: FloatArray, theta: FloatArray, sigma2: float
) -> tuple[FloatArray, float]:
    """theta, sigma2 | the sum of all statistics; as they were if that cannot be factored.

    The factor of B = prior + A has all parameters of the conjugate law in it: its leading block is
    that of Lam_n, its last row (Lam_n^(1/2) mu_n)', and the square of its last entry is 2 b_n. With
    an independent prior these are two Gibbs steps, theta | sigma2 and sigma2 | theta.
    """
    d = prior.mu0.size
    B = prior.bordered + (total / sigma2 if prior.independent else total)
    if not prior.independent:
        B[d, d] += 2.0 * prior.b0
    L, proper = factor(B)
    if not proper:
        return theta, sigma2
    shape, spread = prior.a0 + 0.5 * total[0, 0], 1.0
    if not prior.independent:
        sigma2 = 0.5 * L[d, d] ** 2 / rng.standard_gamma(shape)
        spread = math.sqrt(sigma2)
    new = solve_upper(L[:d, :d], L[d, :d] + spread * rng.standard_normal(d))
    if prior.independent:
        squares = total[d, d] + new @ (total[:d, :d].copy() @ new - 2.0 * total[d, :d])
        sigma2 = (prior.b0 + 0.5 * max(squares, 0.0)) / rng.standard_gamma(shape)
    return new, sigma2


# --- the covariates given the statistics ----------------------------------------------------------


class Covariates(NamedTuple):
    """The prior of mu and T, in the form the compiled functions take."""

    m: FloatArray  # (k,)
    lam: float
    nu: float
    bordered: FloatArray  # (d, d), lam (1, m)(1, m)'
    shape: float  # of the gamma laws of Psi's diagonal
    rate: FloatArray  # (k,) their rates, or (0,) if Psi is fixed


def prepare_covariates(prior: CovariatePrior, k: int) -> Covariates:
    """Check the prior of the covariates and put it into arrays."""
    if prior.k != k:
        raise RequestError(f"covariates is for {prior.k} covariates, the statistics are for {k}")
    mean = np.concatenate([[1.0], prior.m])
    law = (0.0, np.zeros(0)) if isinstance(prior, NIWPrior) else (prior.shape, np.array(prior.rate))
    bordered = prior.lam * np.outer(mean, mean)
    return Covariates(np.array(prior.m), prior.lam, prior.nu, bordered, *law)


def starting_scale(covariates: CovariatePrior, variance: FloatArray) -> FloatArray:
    """Psi, (k, k): the prior's, or where that has it unknown one that expects `variance`, (k,)."""
    if isinstance(covariates, NIWPrior):
        return np.array(covariates.Psi)
    expected = max(covariates.nu - covariates.k - 1.0, 1.0)
    return np.diag(expected * np.maximum(variance, 1e-6))


@compiled
def draw_covariates(
    rng: Rng, prior: Covariates, total: FloatArray, mu: FloatArray, L: FloatArray, Psi: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """mu, the factor L of T, and Psi | the sum of all statistics; as they were if it has no factor.

    The factor of prior + A[:d, :d] has sqrt(lam_n) (1, m_n) in its first column and the factor C
    of Psi_n in the rest. With R lower triangular, R_ii ~ chi(nu_n - k + 1 + i) and normal below,
    R'R is Wishart(nu_n, I), so that L = C R⁻¹ is the lower triangular factor of an inverse Wishart
    T directly. Given T, psi_j ~ Gamma(shape + nu / 2, rate_j + (T⁻¹)_jj / 2).
    """
    k, n = mu.size, total[0, 0]
    E = prior.bordered + total[: k + 1, : k + 1]
    E[1:, 1:] += Psi
    C, proper = factor(E)
    if not proper:
        return mu, L, Psi
    R = bartlett(rng, prior.nu + n - k + 1.0, 1.0, k)
    L, mu = np.zeros((k, k)), np.zeros(k)
    normal = rng.standard_normal(k)
    for a in range(k):
        L[a] = solve_upper(R, C[a + 1, 1:])
        mu[a] = (C[a + 1, 0] + L[a] @ normal) / math.sqrt(prior.lam + n)
    if prior.rate.size > 0:
        K = inverse_lower(L)
        Psi = np.zeros((k, k))
        for b in range(k):
            rate = prior.rate[b] + 0.5 * np.sum(K[:, b] ** 2)
            Psi[b, b] = rng.standard_gamma(prior.shape + 0.5 * prior.nu) / rate
    return mu, L, Psi


# --- all draws at once, and the naive posterior ---------------------------------------------------


def draw_conjugate(
    prior: RegressionPrior, A: FloatArray, n: int, rng: Rng, size: tuple[int, ...]
) -> tuple[FloatArray, FloatArray]:
    """Independent draws of theta (..., d) and sigma2 (...) given A = Σ ww' over n rows.

    theta | sigma2 ~ N(mu_n, sigma2 Lam_n⁻¹), sigma2 ~ IG(a0 + n/2, b_n) with Lam_n = Lam0 + S,
    mu_n = Lam_n⁻¹(Lam0 mu0 + z) and b_n = b0 + (u + mu0'Lam0 mu0 - mu_n'Lam_n mu_n)/2, where S, z,
    u are the blocks of A. In place of an independent prior a conjugate one is taken, as wide at
    the error variance b0 / a0.
    """
    if isinstance(prior, NIGPrior):
        Lam0 = prior.Lam0
    else:
        Lam0 = np.asarray(prior.b0 / prior.a0 * np.linalg.inv(prior.V0), dtype=np.float64)
    shift = Lam0 @ prior.mu0 + A[:-1, -1]
    root = np.linalg.cholesky(Lam0 + A[:-1, :-1])
    mean = np.linalg.solve(root.T, np.linalg.solve(root, shift))
    b = prior.b0 + 0.5 * float(A[-1, -1] + prior.mu0 @ Lam0 @ prior.mu0 - mean @ shift)
    sigma2 = b / rng.standard_gamma(prior.a0 + n / 2, size)
    normal = rng.standard_normal((*size, mean.size))
    # root'⁻¹ normal has covariance Lam_n⁻¹.
    scaled = np.linalg.solve(root.T, normal.reshape(-1, mean.size).T).T.reshape(normal.shape)
    return mean + np.sqrt(sigma2)[..., None] * scaled, sigma2


def sample_naive(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    *,
    chains: int,
    draws: int,
    seed: int | None,
) -> tuple[FloatArray, FloatArray]:
    """Draws of theta (chains, draws, d) and sigma2 (chains, draws), the noise ignored.

    The negative control: the more noise, the narrower are intervals for what they claim.
    """
    # A floor, so that there is a posterior even if noise has drowned the data.
    A = sum(project_gram(seen.values, seen.n, floor=1e-6) for seen in observations)
    n = sum(seen.n for seen in observations)
    return draw_conjugate(prior, np.asarray(A), n, np.random.default_rng(seed), (chains, draws))


def project_gram(A: FloatArray, n: int, *, floor: float = 0.0) -> FloatArray:
    """A possible Gram matrix near the noisy one: n and the means kept, scatter made positive.

    The first column of A is that of the intercept. Eigenvalues of the scatter matrix below
    ``floor * n`` become that number, which with floor 0 is the nearest positive semi-definite
    matrix in the Frobenius norm (Higham 1988, Linear Algebra and its Applications 103,
    doi:10.1016/0024-3795(88)90223-6). It is the maximum likelihood estimate under Gaussian noise in
    the isometric layout only.
    """
    mean = A[0, 1:] / n
    eigenvalues, vectors = np.linalg.eigh(A[1:, 1:] - n * np.outer(mean, mean))
    scatter = (vectors * np.maximum(eigenvalues, floor * n)) @ vectors.T
    possible = np.array(A, dtype=np.float64)
    possible[0, 0] = n
    possible[1:, 1:] = scatter + n * np.outer(mean, mean)
    return 0.5 * (possible + possible.T)
