"""Simulated linear regressions whose second moments are released with noise.

Parameters come from the prior, data from the model, noise from the mechanism: then the posterior
of every calibrated method is right on average over simulations. Two things are worth knowing:

- **Data are not clipped.** The noise is calibrated for rows in [-1, 1], as in Bernstein & Sheldon
  (2019), but normal rows leave that box, and clipping them would change the law that the posterior
  assumes. So these simulations say nothing about privacy and nothing about the effect of clipping.
- **The noise is continuous** and comes from a seeded generator. A Release has integer noise on a
  grid of step 2**-32, which agrees with it to double precision (`noisewise.core.noise`).

References
----------
Bernstein & Sheldon (2019), Differentially private Bayesian linear regression, NeurIPS, section
4.2, arXiv:1910.13153.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import Family, Observation
from noisewise.analyst.regression.papers.moments import FourthMomentObservation, fourth_monomials
from noisewise.analyst.regression.papers.shared import draw_conjugate
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior
from noisewise.core.design import STATISTIC_ONE
from noisewise.core.errors import RequestError
from noisewise.core.schema import Number, Schema
from noisewise.planning.truths import bartlett, draw_covariate_law


class Case(NamedTuple):
    """One simulated data set: what is true, what a holder knows, what was released."""

    truth: FloatArray  # (d + 1,), theta and sigma2
    A: FloatArray  # (P, P), the exact Gram matrix of w = (1, x, y)
    released: Observation  # A with noise, the whole budget
    released_halved: Observation | None  # A with noise, half of the budget
    fourth: FourthMomentObservation | None  # fourth moments of x, the other half


class NoiseScales(NamedTuple):
    """Noise scales on unit scale."""

    diagonal: float
    off_diagonal: float
    fourth: float | None


@dataclass(frozen=True, eq=False)
class SimulatedRegression:
    """A regression with normal covariates, priors and a mechanism: all that a trial needs.

    Parameters
    ----------
    prior : NIGPrior
        Of theta and sigma2, from which the truth is drawn.
    covariates : NIWPrior
        Of the covariates' mean and covariance.
    label : str
        What tables call this pair of priors.
    n : int
        Number of rows.
    epsilon : float
    delta : float, optional
        0 for Laplace noise, positive for Gaussian noise.
    layout : {"upper", "isometric"}
        Of Gaussian noise.
    rows : {"shared", "independent"}
        Whether all rows share one mean and covariance drawn from `covariates`, or each row has
        its own, so that rows are independent draws of a multivariate t law. The second is what
        Gibbs-SS-Prior assumes.
    fourth : bool
        Release fourth moments of the covariates too, in a second release that gives half of the
        same budget to them.
    """

    prior: NIGPrior
    covariates: NIWPrior
    label: str
    n: int
    epsilon: float
    delta: float = 0.0
    layout: Literal["upper", "isometric"] = "upper"
    rows: Literal["shared", "independent"] = "shared"
    fourth: bool = False

    def __post_init__(self) -> None:
        if self.prior.k != self.covariates.k:
            raise RequestError(
                f"covariates: it is for {self.covariates.k} covariates, prior for {self.prior.k}"
            )
        if self.n < 1:
            raise RequestError(f"n: expected at least one row, got {self.n}")

    @property
    def k(self) -> int:
        """Number of covariates."""
        return self.prior.k

    @property
    def family(self) -> Family:
        """The noise law."""
        return "gaussian" if self.delta > 0 else "laplace"

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the entries of `Case.truth`."""
        slopes = ("slope",) if self.k == 1 else tuple(f"slope_{j}" for j in range(1, self.k + 1))
        return ("intercept", *slopes, "sigma2")

    def factors(self) -> dict[str, Any]:
        """What varies from cell to cell of a study, for tables."""
        return {
            "d": self.k + 1,
            "n": self.n,
            "mechanism": self.family if not self.delta else f"gaussian_{self.layout}",
            "epsilon": self.epsilon,
            "delta": self.delta,
            "prior": self.label,
            "rows": self.rows,
        }

    def describe(self) -> dict[str, Any]:
        """Everything that decides the law of a simulation, as plain data."""
        prior, covariates = self.prior, self.covariates
        return {
            **self.factors(),
            "fourth": self.fourth,
            "nig": [prior.mu0.tolist(), prior.Lam0.tolist(), prior.a0, prior.b0],
            "niw": [covariates.m.tolist(), covariates.lam, covariates.Psi.tolist(), covariates.nu],
        }

    def simulate(self, rng: np.random.Generator) -> Case:
        """Parameters from the prior, statistics from the model, noise from the mechanism."""
        theta, sigma2 = draw_regression(self.prior, rng)
        if self.fourth or self.rows == "independent" or self.n <= self.k + 1:
            x = self._rows(rng)
            y = theta[0] + x @ theta[1:] + rng.normal(0.0, np.sqrt(sigma2), self.n)
            w = np.column_stack([np.ones(self.n), x, y])
            A = w.T @ w
        else:
            mu, T = draw_covariate_law(self.covariates, rng)
            A = draw_gram(rng, self.n, mu, T, theta, sigma2)
        scales = noise_scales(self.k, self.epsilon, self.delta, self.layout, False)
        released = self.release(A, scales, rng)
        halved, fourth = None, None
        if self.fourth:
            scales = noise_scales(self.k, self.epsilon, self.delta, self.layout, True)
            halved = self.release(A, scales, rng)
            fourth = self.release_fourth(x, scales, rng)
        return Case(np.append(theta, sigma2), A, released, halved, fourth)

    def _rows(self, rng: np.random.Generator) -> FloatArray:
        if self.rows == "shared":
            mu, T = draw_covariate_law(self.covariates, rng)
            return rng.multivariate_normal(mu, T, self.n)
        prior = self.covariates
        degrees = prior.nu - self.k + 1.0
        scale = prior.Psi * (prior.lam + 1.0) / (prior.lam * degrees)
        normal = rng.multivariate_normal(np.zeros(self.k), scale, self.n)
        return prior.m + normal / np.sqrt(rng.chisquare(degrees, (self.n, 1)) / degrees)

    def _noise(self, scale: Any, size: Any, rng: np.random.Generator) -> FloatArray:
        draw = rng.normal if self.family == "gaussian" else rng.laplace
        return np.asarray(draw(0.0, scale, size), dtype=np.float64)

    def release(self, A: FloatArray, scales: NoiseScales, rng: np.random.Generator) -> Observation:
        """A with noise of these scales."""
        scale = np.where(np.eye(len(A), dtype=bool), scales.diagonal, scales.off_diagonal)
        scale[0, 0] = 0.0
        noise = np.triu(self._noise(scale, A.shape, rng))
        return Observation(self.n, A + noise + np.triu(noise, 1).T, scale, self.family)

    def release_fourth(
        self, x: FloatArray, scales: NoiseScales, rng: np.random.Generator
    ) -> FourthMomentObservation:
        """Fourth moments of rows x, with noise."""
        assert scales.fourth is not None
        v = np.column_stack([np.ones(len(x)), x])
        sums = np.array(
            [v[:, quadruple].prod(axis=1).sum() for quadruple in fourth_monomials(self.k)]
        )
        noisy = sums + self._noise(scales.fourth, sums.shape, rng)
        return FourthMomentObservation(self.n, self.k, noisy, scales.fourth, self.family)


def draw_regression(prior: NIGPrior, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """Draw (theta, sigma2) from the prior."""
    sigma2 = float(prior.b0 / rng.standard_gamma(prior.a0))
    root = np.linalg.cholesky(prior.Lam0)
    normal = np.linalg.solve(root.T, rng.standard_normal(prior.k + 1))
    return prior.mu0 + np.sqrt(sigma2) * normal, sigma2


def draw_gram(
    rng: np.random.Generator,
    n: int,
    mu: FloatArray,
    T: FloatArray,
    theta: FloatArray,
    sigma2: float,
) -> FloatArray:
    """Draw A = Σ ww', w = (1, x, y), of n > d rows exactly, in O(d³) whatever n is.

    x̄ = mu + L_T g/√n and the scatter of x is L_T BB' L_T' with BB' ~ W(I, n - 1), so
    L₀ = [√n, 0; √n x̄, L_T B] has L₀L₀' = Σ vv', v = (1, x). Regression on v is a rotation of
    the errors: with r = L₀'theta + sigma e, Σ vy = L₀r and Σ y² = |r|² + sigma2 chi²(n - d).

    Parameters
    ----------
    rng : Generator
    n : int
        Rows, more than d = k + 1.
    mu, T : array, shapes (k,) and (k, k)
        Mean and covariance of the covariates.
    theta : array, shape (d,)
    sigma2 : float

    Returns
    -------
    array, shape (d + 1, d + 1)
    """
    k = len(mu)
    d = k + 1
    if n <= d:
        raise RequestError(f"n: more than {d} rows are needed for {k} covariates, got {n}")
    L_T = np.linalg.cholesky(T)
    L = np.zeros((d, d))
    L[0, 0] = np.sqrt(n)
    L[1:, 0] = np.sqrt(n) * mu + L_T @ rng.standard_normal(k)
    L[1:, 1:] = L_T @ bartlett(rng, n - 1, k)
    r = L.T @ theta + np.sqrt(sigma2) * rng.standard_normal(d)
    A = np.empty((d + 1, d + 1))
    A[:d, :d] = L @ L.T
    A[0, 0] = n
    A[:d, d] = A[d, :d] = L @ r
    A[d, d] = r @ r + sigma2 * rng.chisquare(n - d)
    return A


@lru_cache(maxsize=256)
def noise_scales(
    k: int, epsilon: float, delta: float, layout: Literal["upper", "isometric"], fourth: bool
) -> NoiseScales:
    """What a holder's request for k covariates in [-1, 1] would plan, on unit scale."""
    from noisewise.holder.requests.regression import make_request

    features = [f"x{j}" for j in range(1, k + 1)]
    schema = Schema("simulated", {name: Number(-1.0, 1.0) for name in (*features, "y")})
    request = make_request(
        schema,
        target="y",
        features=features,
        epsilon=epsilon,
        delta=delta or None,
        layout=layout if delta else None,
        fourth_moments=Fraction(1, 2) if fourth else None,
    )
    second = request.mechanisms[0]
    return NoiseScales(
        second.scale / STATISTIC_ONE,
        second.off_diagonal_scale / STATISTIC_ONE,
        request.mechanisms[1].scale / STATISTIC_ONE if fourth else None,
    )


# --- the posterior of somebody who holds the rows: the reference of every study -------------------


def gram(x: FloatArray, y: FloatArray) -> FloatArray:
    """A = Σ ww', w = (1, x, y), from rows x (n, k) and y (n,)."""
    w = np.column_stack([np.ones(len(y)), x, y])
    return np.asarray(w.T @ w, dtype=np.float64)


def sample_non_private(
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
    return draw_conjugate(prior, A, n, np.random.default_rng(seed), (1, draws))
