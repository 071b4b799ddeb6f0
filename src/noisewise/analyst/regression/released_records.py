"""Latent records and what was released of them, as a NumPyro model for the `individual` method.

Of every holder all rows (x_i, y_i) are latent: theta, sigma2 and the covariates' law by their
priors (`records`), y by the regression, and the released values by the noise on the rows' sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.numpyro_release import gram, released_entries
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import CovariatePrior, NIGPrior, RegressionPrior
from noisewise.analyst.regression.records import Covariates, normal, regression, targets
from noisewise.core.errors import RequestError

Array = Any


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
    law = _law(covariates)
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


def _law(covariates: CovariatePrior | Covariates) -> Covariates:
    if isinstance(covariates, CovariatePrior):
        return normal(covariates)
    if not callable(covariates):
        raise RequestError(
            "covariates: expected an NIWPrior, a HierarchicalNIWPrior, a HuangWandPrior or a "
            f"function of (n, k); got {type(covariates).__name__}"
        )
    return covariates


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


def conditional_mean(
    prior: RegressionPrior, statistics: FloatArray, sigma2: FloatArray
) -> FloatArray:
    """E[theta | latent records] at each draw, and given sigma2 if that is a priori independent."""
    if isinstance(prior, NIGPrior):
        precision, weight = prior.Lam0, np.ones_like(sigma2)
    else:
        precision, weight = np.asarray(np.linalg.inv(prior.V0), dtype=np.float64), 1.0 / sigma2
    S = precision + weight[..., None, None] * statistics[..., :-1, :-1]
    z = precision @ prior.mu0 + weight[..., None] * statistics[..., :-1, -1]
    return np.asarray(np.linalg.solve(S, z[..., None])[..., 0], dtype=np.float64)


def caveats(observations: Sequence[Observation]) -> tuple[str, ...]:
    """What the model leaves out, in plain words; empty when nothing."""
    upper = [observation.scale[np.triu_indices(observation.k + 2)] for observation in observations]
    if all((scale == 0).sum() == 1 for scale in upper):  # n alone
        return ()
    return (
        "individual does not use that some statistics are known exactly (two levels of a category "
        "exclude each other), and treats indicators as continuous: intervals may be wider than "
        "those of exact.",
    )
