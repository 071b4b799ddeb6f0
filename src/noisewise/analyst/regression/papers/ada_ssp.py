"""adaSSP: a ridge regression whose penalty adapts to the privacy noise. A point, no posterior.

Wang (2018) estimates theta = (Ŝ + λI)⁻¹ ẑ from noisy S = Σ vv' and z = Σ vy, v = (1, x), and takes
λ just large enough that noise cannot make Ŝ + λI singular: the noise's width, less what the data
themselves provide, their smallest eigenvalue. Alparslan, Yıldırım & Birbil (2023, appendix C.2)
add up holders: theta = (Σ Ŝ_j + I Σ λ_j)⁻¹ Σ ẑ_j.

It is fast and needs no prior, and it is the usual point of comparison. It says nothing about its
own error: for intervals use `noisewise.fit`.

**The penalty.** On unit scale, where every number is in [-1, 1], for each holder

    λ_j = max(0, width_j - lower_j),

where width_j bounds the noise, ‖Ŝ_j - S_j‖ ≤ width_j, and lower_j bounds the data, λ_min(S_j) ≥
lower_j; together with probability 1 - `failure` at least. Then Ŝ_j + λ_j I is positive
semidefinite: its smallest eigenvalue is at least λ_min(S_j) - width_j + λ_j, hence at least
λ_min(S_j) - lower_j ≥ 0. Like Wang we penalise all coefficients, the intercept too: with large λ
predictions shrink towards the middle of the target's bounds.

**Where lower_j comes from.** From a Release's measurement of the smallest eigenvalue and the law of
its noise; it serves any model whose covariates are among the Release's features, because a
principal submatrix has no smaller an eigenvalue (Cauchy). And, for free, from Ŝ_j itself:
λ_min(S_j) ≥ λ_min(Ŝ_j) - width_j. The larger counts, so a Release may lack the measurement.

References
----------
Wang (2018), Revisiting differentially private linear regression: optimal and adaptive prediction
    and estimation in unbounded domain, arXiv:1803.02596.
Alparslan, Yıldırım and Birbil (2023), Differentially private distributed Bayesian linear
    regression with MCMC, arXiv:2301.13778.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.common_cautions import first_few, repetition_warnings
from noisewise.analyst.regression.observation import (
    Family,
    ModelColumns,
    Observation,
    as_releases,
    observe,
    too_few_rows,
)
from noisewise.core.errors import RequestError
from noisewise.core.kinds.regression import Release
from noisewise.core.noise import Laplace
from noisewise.core.statistics import SmallestEigenvalue

Rule = Literal["noise", "paper"]
STATEMENT = "no uncertainty: not a posterior"
MISS = 1e-6  # chance that the simulation understates the quantile
LEAST_DRAWS, MOST_DRAWS = 1000, 20_000
MOST_SIMULATED = 64  # columns
_SEED = 20180207  # the noise is simulated, not observed: the same bound every time
_CHUNK_ENTRIES = 2_000_000


@dataclass(frozen=True)
class HolderPenalty:
    """How one holder's λ came about, on unit scale."""

    width: float  # bound on the operator norm of the noise in S
    lower: float  # lower bound on the smallest eigenvalue of S, at least 0
    # Whether the Release has a measurement of the eigenvalue that this model can use
    measured: bool

    @property
    def penalty(self) -> float:
        """The holder's λ."""
        return max(0.0, self.width - self.lower)


@dataclass(frozen=True)
class PointEstimate:
    """One number for each coefficient, in original units. No uncertainty: not a posterior."""

    columns: ModelColumns
    coefficients: dict[str, float]  # by name, the intercept first
    penalty: float  # λ = Σ λ_j on unit scale; it shrinks all coefficients there, the intercept too
    holders: tuple[HolderPenalty, ...]  # one for every Release
    rule: str  # noise or paper
    # What had to be added to Σ λ_j because Σ Ŝ_j + I Σ λ_j was not positive definite; 0 unless the
    # bounds failed, which happens with probability `failure` at most for each holder
    lifted: float = 0.0
    warnings: tuple[str, ...] = ()  # what is wrong with these Releases, in plain words
    statement = STATEMENT

    def predict(self, table: Any) -> FloatArray:
        """Expected target, in original units, for rows given as named columns."""
        theta = np.array([self.coefficients[name] for name in self.columns.names])
        return np.asarray(self.columns.design_matrix(table) @ theta, dtype=np.float64)

    def __str__(self) -> str:
        lines = [f"adaSSP point estimate of {self.columns.target} ({STATEMENT})"]
        width = max(len(name) for name in self.coefficients)
        lines += [f"  {name:<{width}}  {x:.6g}" for name, x in self.coefficients.items()]
        lines.append(
            f"lambda = {self.penalty:.6g} on unit scale, from {len(self.holders)} release(s); all "
            "coefficients are penalised, the intercept too."
        )
        return "\n".join(lines)


def ada_ssp(
    releases: Release | Sequence[Release],
    *,
    target: str | None = None,
    features: Sequence[str] | None = None,
    rule: Rule = "noise",
    failure: float = 0.05,
    names: Sequence[str] | None = None,
) -> PointEstimate:
    """Estimate the coefficients of a linear regression by adaSSP.

    Parameters
    ----------
    releases : Release or sequence of Release
        Best with ``smallest_eigenvalue``; see the module's notes.
    target, features : str and sequence of str, optional
        Any released columns; the Release's own by default.
    rule : {"noise", "paper"}
        Width and lower bound from the noise that the Releases really have, or by the formula of
        the papers, see `paper_penalty`.
    failure : float
        Probability, for each holder, that its bounds fail (the papers' rho).
    names : sequence of str, optional
        What warnings call each Release, such as the name of its file.
    """
    given = as_releases(releases)
    if rule not in ("noise", "paper"):
        raise RequestError(f"rule: {rule!r} is unknown; use noise or paper")
    number = isinstance(failure, int | float) and not isinstance(failure, bool)
    if not number or not 0.001 <= failure <= 0.5:
        raise RequestError(f"failure: expected a probability from 0.001 to 0.5, got {failure!r}")
    columns, observations = observe(given, target, features, names)
    d = len(columns.names)
    holders = [
        paper_penalty(release, columns, failure)
        if rule == "paper"
        else _noise_penalty(release, columns, observation, failure)
        for release, observation in zip(given, observations, strict=True)
    ]
    gram = np.sum([o.values for o in observations], axis=0)
    S, z = gram[:d, :d], gram[:d, d]
    penalty = sum(holder.penalty for holder in holders)
    # Where a bound failed, or leaves nothing to spare, the matrix may be indefinite or singular. An
    # estimate from it would be arbitrary; the whole width on top makes it a heavily shrunken one.
    smallest = float(np.linalg.eigvalsh(S)[0]) + penalty
    least = max(1e-9 * float(np.abs(S).max()), 1e-9)
    lifted = 0.0 if smallest >= least else sum(h.width for h in holders) + least - smallest
    theta = columns.theta_to_original(np.linalg.solve(S + (penalty + lifted) * np.eye(d), z))
    return PointEstimate(
        columns,
        {name: float(x) for name, x in zip(columns.names, theta, strict=True)},
        penalty + lifted,
        tuple(holders),
        rule,
        lifted,
        (
            *repetition_warnings(((r.schema.dataset, r.n) for r in given), names),
            *_few_rows(observations),
        ),
    )


def _few_rows(observations: Sequence[Observation]) -> tuple[str, ...]:
    """Holders that no posterior could be found for; here the penalty hides it."""
    columns = observations[0].k + 1
    few = [f"{name} has {seen.n} rows" for name, seen in too_few_rows(observations)]
    if not few:
        return ()
    return (
        f"{first_few(few)}, and there are {columns} columns besides the intercept: such a holder "
        "adds noise and a penalty, and next to nothing else. Choose fewer features, or leave it "
        "out.",
    )


def _noise_penalty(
    release: Release, columns: ModelColumns, observation: Observation, failure: float
) -> HolderPenalty:
    d = len(columns.names)
    S = observation.values[:d, :d]
    width = noise_width(observation.scale[:d, :d], observation.family, failure / 2)
    free = float(np.linalg.eigvalsh(S)[0]) - width
    measured = _eigenvalue(release, columns)
    if measured is None:
        return HolderPenalty(width, max(0.0, free), False)
    value, law = measured
    if isinstance(law, Laplace):  # P(noise > t) = exp(-t/b)/2
        reach = law.scale * max(0.0, math.log(1 / failure))
    else:
        from scipy.special import ndtri

        reach = law.scale * float(ndtri(1 - failure / 2))
    return HolderPenalty(width, max(0.0, free, value - reach), True)


def paper_penalty(release: Release, columns: ModelColumns, failure: float) -> HolderPenalty:
    """The formula of Wang (2018) as Alparslan et al. (2023, appendix C.2) restate it, corrected.

    σ = R²/(ε/3), width = σ √(d ln(6/δ) ln(2d²/ρ)), lower = max(λ̂_min - ln(6/δ) σ, 0), with R the
    largest norm of a row and λ̂_min the noisy eigenvalue. (C.2 subtracts ln(6/δ) σ v, v the noise:
    a misprint. One subtracts a bound on the noise, not more of it.)

    ε and δ are the Release's claim. The formula takes for granted that the budget is cut into three
    equal parts and that all noise has the standard deviation σ √ln(6/δ), which isn't how noisewise
    does it: neither bound is certified for the noise that the Release really has.
    """
    claim = release.claim
    if claim.epsilon is None or claim.delta == 0:
        raise RequestError(
            f"rule: the papers' formula needs a claim with epsilon and delta, this one is {claim}; "
            "use rule='noise'"
        )
    measured = _eigenvalue(release, columns)
    if measured is None:
        raise RequestError(
            "rule: the papers' formula needs the smallest eigenvalue of the model's features; "
            "release it with smallest_eigenvalue, or use rule='noise'"
        )
    d = len(columns.names)
    square = SmallestEigenvalue(release.design).largest_square(release.geometry)
    sigma = float(square * release.design.schema.max_rows_per_unit / (claim.epsilon / 3))
    level = math.log(6 / float(claim.delta))
    width = sigma * math.sqrt(d * level * math.log(2 * d**2 / failure))
    return HolderPenalty(width, max(0.0, measured[0] - level * sigma), True)


def _eigenvalue(release: Release, columns: ModelColumns) -> tuple[float, Any] | None:
    """The noisy eigenvalue and its noise law, if the model's covariates are the Release's own."""
    measurement = release.measurement(SmallestEigenvalue.name)
    if measurement is None or not set(columns.names) <= set(release.design.names[:-1]):
        return None
    return measurement.unit_values()[0], measurement.noise.continuous()


# --- how far noise can move a symmetric matrix ----------------------------------------------------


def noise_width(scale: FloatArray, family: Family, failure: float) -> float:
    """A w with P(‖E‖ > w) ≤ `failure`, E the symmetric noise with independent entries.

    The law of E is public, so its quantile can be simulated. The r-th smallest of N simulated norms
    is returned, r so large that it is below the true quantile with probability `MISS` at most: the
    number of norms below the quantile is binomial, whatever the law. A ridge that is too large is a
    bias, and `_closed_form` is 1.5 to 2.3 times larger: it serves matrices too large to simulate.

    `scale`, (d, d), is that of each entry, symmetric; 0 where there is no noise.
    """
    largest = float(scale.max())
    if largest == 0:
        return 0.0
    if len(scale) > MOST_SIMULATED:
        return _closed_form(scale, family, failure)
    # Holders often have the same noise up to its scale, and the norm is proportional to that.
    relative = np.ascontiguousarray(scale / largest)
    return largest * _simulated(relative.tobytes(), len(scale), family, failure)


def _closed_form(scale: FloatArray, family: Family, failure: float) -> float:
    """A bound for matrices of any size.

    Gaussian noise: P(‖E‖ > t) ≤ 2d exp(-t²/2v) with v the largest row sum of variances (Tropp
    2012, Theorem 4.1, where E is a sum of independent normals times fixed matrices A_k, and Σ A_k²
    is diagonal with the row sums).

    Laplace noise of scale b is normal given its variance 2b²W, W standard exponential and
    independent. A row's variances add up to at most 2b²Γ with b its largest scale and Γ a gamma
    variable with as many degrees as the row has noisy entries. Half of `failure` pays for v, by a
    union over the d rows, and half for the norm given v.

    References
    ----------
    Tropp (2012), User-friendly tail bounds for sums of random matrices,
        doi:10.1007/s10208-011-9099-z.
    """
    d = len(scale)
    if family == "gaussian":
        v = float((scale**2).sum(axis=1).max())
        return math.sqrt(2 * v * math.log(2 * d / failure))
    entries = np.count_nonzero(scale, axis=1)
    from scipy.special import gammainccinv

    gammas = gammainccinv(np.maximum(entries, 1), failure / (2 * d))
    v = float((2 * scale.max(axis=1) ** 2 * gammas).max())
    return math.sqrt(2 * v * math.log(4 * d / failure))


@lru_cache(maxsize=64)
def _simulated(scale: bytes, d: int, family: Family, failure: float) -> float:
    upper = np.triu(np.frombuffer(scale).reshape(d, d))
    draws = min(MOST_DRAWS, max(LEAST_DRAWS, 4_000_000 // d**2))
    draws = max(draws, math.ceil(-math.log(MISS) / failure) + 1)
    from scipy.special import bdtrc

    # P(at least r of the norms are below the quantile) for r = 1, 2, ...
    at_least = bdtrc(np.arange(draws), draws, 1 - failure)
    rank = int(np.flatnonzero(at_least <= MISS)[0])
    rng = np.random.default_rng(_SEED)
    norms = []
    chunk = max(1, _CHUNK_ENTRIES // d**2)
    for start in range(0, draws, chunk):
        shape = (min(chunk, draws - start), d, d)
        noise = rng.laplace(size=shape) if family == "laplace" else rng.standard_normal(shape)
        noise *= upper
        noise += np.triu(noise, 1).transpose(0, 2, 1)
        norms.append(np.abs(np.linalg.eigvalsh(noise)[:, [0, -1]]).max(axis=1))
    return float(np.sort(np.concatenate(norms))[rank])
