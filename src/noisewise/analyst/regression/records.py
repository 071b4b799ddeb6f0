"""The regression, record by record, as a NumPyro model with latent rows, and what was released.

Of every holder all rows (x_i, y_i) are latent: theta, sigma2 and the covariates' law by their
priors, y by the regression, and the released values by the noise on the rows' sums. Everything is
written as a transformation of independent standard variables, because noise usually leaves single
records close to their prior: NUTS then moves nearly freely. The functions here are building blocks
for models of your own, too; call them inside a NumPyro model.

A law of the covariates is any function of (n, k) that draws with ``numpyro.sample`` and returns x
of shape (n, k) on unit scale, with the rows of all holders one after another. It must be
continuous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from noisewise.analyst.regression.numpyro_release import gram, released_entries, require_numpyro
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import CovariatePrior, NIGPrior, NIWPrior, RegressionPrior
from noisewise.core.errors import RequestError

Array = Any
Covariates = Callable[[int, int], Array]


# --- laws of the covariates -----------------------------------------------------------------------


def normal(prior: CovariatePrior) -> Covariates:
    """x ~ N(mu, T) with (mu, T) unknown: the law that the `exact` method assumes."""

    def law(n: int, k: int) -> Array:
        import jax.numpy as jnp
        import numpyro
        import numpyro.distributions as dist
        from jax.scipy.linalg import solve_triangular

        if prior.k != k:
            raise RequestError(f"covariates: the prior is for {prior.k}, but the model has {k}")
        if k == 0:
            return jnp.zeros((n, 0))
        if isinstance(prior, NIWPrior):
            root = jnp.linalg.cholesky(jnp.asarray(prior.Psi))
        else:
            rate = jnp.asarray(prior.rate)
            psi = numpyro.sample("covariate_psi", dist.Gamma(prior.shape, rate).to_event(1))
            root = jnp.diag(jnp.sqrt(psi))
        # Bartlett: BB' ~ W(nu, I), so T = MM' ~ IW(nu, Psi) for M = Psi^(1/2) B'⁻¹.
        degrees = prior.nu - np.arange(k)
        squares = numpyro.sample("covariate_squares", dist.Chi2(degrees).to_event(1))
        B = jnp.diag(jnp.sqrt(squares))
        if k > 1:
            below = np.tril_indices(k, -1)
            B = B.at[below].set(_standard("covariate_below", len(below[0])))
        M = root @ solve_triangular(B, jnp.eye(k), lower=True).T
        centre = _standard("covariate_centre", k) / np.sqrt(prior.lam)
        return jnp.asarray(prior.m) + (centre + _standard("covariate_records", n, k)) @ M.T

    return law


def uniform(n: int, k: int) -> Array:
    """x uniform on [-1, 1], independently."""
    from jax.scipy.special import erf

    return erf(_standard("covariate_records", n, k) / np.sqrt(2.0))


def truncated_normal(n: int, k: int) -> Array:
    """x_j ~ N(loc_j, scale_j²) within [-1, 1]; loc_j ~ U(-1, 1), scale_j half-normal."""
    import numpyro
    import numpyro.distributions as dist

    loc = numpyro.sample("covariate_loc", dist.Uniform(-1.0, 1.0).expand([k]).to_event(1))
    scale = numpyro.sample("covariate_scale", dist.HalfNormal(1.0).expand([k]).to_event(1))
    law = dist.TruncatedNormal(loc, scale, low=-1.0, high=1.0).expand([n, k]).to_event(2)
    return numpyro.sample("covariate_records", law)


def beta(n: int, k: int) -> Array:
    """(x_j + 1) / 2 ~ Beta(a_j, b_j), independently; a_j and b_j ~ Gamma(2, 1)."""
    import numpyro
    import numpyro.distributions as dist

    a = numpyro.sample("covariate_a", dist.Gamma(2.0, 1.0).expand([k]).to_event(1))
    b = numpyro.sample("covariate_b", dist.Gamma(2.0, 1.0).expand([k]).to_event(1))
    law = dist.Beta(a, b).expand([n, k]).to_event(2)
    return 2.0 * numpyro.sample("covariate_records", law) - 1.0


# --- regression -----------------------------------------------------------------------------------


def regression(prior: RegressionPrior) -> tuple[Array, Array]:
    """Draw theta (d,) and sigma2 from their prior; sites "theta" and "sigma2"."""
    numpyro = require_numpyro()
    import jax.numpy as jnp
    import numpyro.distributions as dist

    sigma2 = numpyro.sample("sigma2", dist.InverseGamma(prior.a0, prior.b0))
    if isinstance(prior, NIGPrior):
        covariance, spread = np.linalg.inv(prior.Lam0), jnp.sqrt(sigma2)
    else:
        covariance, spread = prior.V0, jnp.ones(())
    root = jnp.asarray(np.linalg.cholesky(covariance))
    theta = jnp.asarray(prior.mu0) + spread * (root @ _standard("theta_standard", prior.k + 1))
    return numpyro.deterministic("theta", theta), sigma2


def targets(x: Array, theta: Array, sigma2: Array) -> Array:
    """Draw y (n,) given covariates (n, k)."""
    import jax.numpy as jnp

    errors = _standard("errors", x.shape[0])
    return theta[0] + x @ theta[1:] + jnp.sqrt(sigma2) * errors


def _standard(name: str, *shape: int) -> Array:
    """Draw independent standard normal variables."""
    import numpyro
    import numpyro.distributions as dist

    return numpyro.sample(name, dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))


# --- the model of latent records and released values ----------------------------------------------


def build_model(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariatePrior | Covariates,
    *,
    clip: bool,
    rounding: float,
) -> Callable[[], None]:
    """The NumPyro model of latent records and released values.

    Parameters
    ----------
    observations : sequence of Observation
    prior : NIGPrior or NormalInverseGammaIndependent
    covariates : NIWPrior, HierarchicalNIWPrior, HuangWandPrior or callable
    clip : bool
        Whether the rows were clipped to [-1, 1] before they were summed.
    rounding : float
        Of `noise_log_density`.
    """
    if not callable(covariates) and not isinstance(covariates, CovariatePrior):
        raise RequestError(
            "covariates: expected an NIWPrior, a HierarchicalNIWPrior, a HuangWandPrior or a "
            f"function of (n, k); got {type(covariates).__name__}"
        )
    law = normal(covariates) if isinstance(covariates, CovariatePrior) else covariates
    sizes = [observation.n for observation in observations]
    n, k = sum(sizes), observations[0].k

    def model() -> None:
        import jax.numpy as jnp
        import numpyro

        theta, sigma2 = regression(prior)
        x = law(n, k)
        if np.shape(x) != (n, k):
            raise RequestError(
                f"covariates: the function must return x of shape (n, k) = {(n, k)}, the rows of "
                f"all holders; got {np.shape(x)}"
            )
        rows = jnp.column_stack([x, targets(x, theta, sigma2)])
        numpyro.deterministic("statistics", gram(rows))
        summed = jnp.clip(rows, -1.0, 1.0) if clip else rows
        ends = np.cumsum(sizes)
        for j, observation in enumerate(observations):
            A = gram(summed[ends[j] - sizes[j] : ends[j]])
            numpyro.factor(f"release_{j + 1}", noise_log_density(observation, A, rounding))

    return model


def noise_log_density(observation: Observation, A: Array, rounding: float) -> Array:
    """Log density of the released values given A, up to a constant.

    The value is exact. The derivative of Laplace noise is that of a Huber potential, whose kink is
    rounded off over `rounding` noise scales: leapfrog steps keep volume and reverse under any
    force, so NUTS has the right target all the same.
    """
    import jax
    import jax.numpy as jnp

    entries = released_entries(observation)
    residual = (A[entries] - observation.values[entries]) / observation.scale[entries]
    if observation.family == "gaussian":
        return -0.5 * (residual**2).sum()

    @jax.custom_jvp
    def distance(r: Array) -> Array:
        return jnp.abs(r)

    @distance.defjvp
    def _force(primals: Any, tangents: Any) -> Any:
        return jnp.abs(primals[0]), jnp.clip(primals[0] / rounding, -1.0, 1.0) * tangents[0]

    return -distance(residual).sum()


def check_model(model: Callable[[], None]) -> None:
    """Trace the model once: shapes are checked on the way, and NUTS needs continuous sites."""
    import jax
    from numpyro import handlers

    def discrete(key: Array) -> None:
        for name, site in handlers.trace(handlers.seed(model, key)).get_trace().items():
            if site["type"] == "sample" and not site["is_observed"] and site["fn"].is_discrete:
                raise RequestError(
                    f"covariates: the site {name!r} is discrete, and NUTS moves continuous "
                    "variables only; use a continuous law with the same mean and variance"
                )

    jax.eval_shape(discrete, jax.random.PRNGKey(0))
