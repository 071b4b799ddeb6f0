"""A peer: the plain model of the posterior in NumPyro."""

from __future__ import annotations

import numpy as np
from regression_problems import ROWS, Problem

from noisewise.analyst.regression.priors import NIGPrior, NIWPrior

CHAINS = 4


def plain_model(problem: Problem):
    """The model as one writes it down: parameters, then statistics given them, then the noise.

    Nothing is integrated out. The statistics have their exact laws: normal means, a Wishart
    scatter matrix, z | S normal, the residual sum of squares a gamma.
    """
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    d, n = problem.d, float(ROWS)
    prior, covariates = (
        NIGPrior.weakly_informative(problem.k),
        NIWPrior.weakly_informative(problem.k),
    )
    seen = problem.observation()
    noise = dist.Laplace if seen.family == "laplace" else dist.Normal
    rows, columns = (index[1:] for index in np.triu_indices(d + 1))

    def model() -> None:
        sigma2 = numpyro.sample("sigma2", dist.InverseGamma(prior.a0, prior.b0))
        theta = numpyro.sample(
            "theta",
            dist.MultivariateNormal(
                prior.mu0, covariance_matrix=sigma2 * np.linalg.inv(prior.Lam0)
            ),
        )
        precision = numpyro.sample(
            "L", dist.WishartCholesky(covariates.nu, scale_matrix=np.linalg.inv(covariates.Psi))
        )
        root = jnp.linalg.cholesky(jnp.linalg.inv(precision @ precision.T))
        mu = numpyro.sample(
            "mu", dist.MultivariateNormal(covariates.m, scale_tril=root / covariates.lam**0.5)
        )
        mean = numpyro.sample("mean", dist.MultivariateNormal(mu, scale_tril=root / n**0.5))
        factor = numpyro.sample("C", dist.WishartCholesky(n - 1, scale_tril=root / n**0.5))
        S = jnp.block(
            [
                [jnp.ones((1, 1)), mean[None]],
                [mean[:, None], factor @ factor.T + jnp.outer(mean, mean)],
            ]
        )
        z = numpyro.sample(
            "z", dist.MultivariateNormal(S @ theta, covariance_matrix=sigma2 * S / n)
        )
        residual = numpyro.sample("residual", dist.Gamma((n - d) / 2, n / (2 * sigma2)))
        u = residual + z @ jnp.linalg.solve(S, z)
        A = n * jnp.block([[S, z[:, None]], [z[None], u[None, None]]])
        numpyro.sample(
            "released",
            noise(A[rows, columns], seen.scale[rows, columns]),
            obs=seen.values[rows, columns],
        )

    return model


def sample_plain(problem: Problem, draws: int, seed: int):
    """NumPyro's NUTS on the plain model, four chains on all cores."""
    import numpyro

    numpyro.set_host_device_count(CHAINS)
    numpyro.enable_x64()
    import jax
    from numpyro.infer import MCMC, NUTS, init_to_median

    mcmc = MCMC(
        NUTS(plain_model(problem), init_strategy=init_to_median),
        num_warmup=draws,
        num_samples=draws,
        num_chains=CHAINS,
        chain_method="parallel",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(seed))
    drawn = mcmc.get_samples(group_by_chain=True)
    return np.asarray(drawn["theta"]), np.asarray(drawn["sigma2"])
