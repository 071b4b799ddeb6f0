"""Peers: the plain model of the posterior in NumPyro, and our density on other NUTS engines."""

from __future__ import annotations

import numpy as np
from regression_problems import ROWS, Problem

from noisewise.analyst.regression.exact.density import CollapsedPosterior
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


def collapsed_density(problem: Problem):
    """Our collapsed posterior of one holder in JAX, in the same coordinates, up to a constant."""
    import jax.numpy as jnp

    prior, covariates = (
        NIGPrior.weakly_informative(problem.k),
        NIWPrior.weakly_informative(problem.k),
    )
    seen = problem.observation()
    ours = CollapsedPosterior([seen], prior, covariates)
    P, d, n = problem.d + 1, problem.d, ROWS
    rows, columns = (index[1:] for index in np.tril_indices(P))
    polar = np.asarray(ours.arrays.polar[0])
    ratios = np.tri(P, k=-1, dtype=bool)
    ratios[:, 0] = False
    centre, scale = np.asarray(ours.arrays.centre), np.asarray(ours.arrays.scale)
    weight = np.tril(np.divide(1.0, seen.scale, where=seen.scale > 0, out=np.zeros((P, P))))
    one = np.concatenate([[1.0], covariates.m])
    E0 = covariates.lam * np.outer(one, one)
    E0[1:, 1:] += covariates.Psi
    B0 = np.zeros((P, P))
    B0[:-1, :-1] = prior.Lam0
    B0[-1, -1] = 2 * prior.b0

    def logp(x):
        q = centre + scale * x
        K = jnp.zeros((P, P)).at[rows, columns].set(q)
        log_diagonal = jnp.diagonal(K)
        length = 1 + jnp.sum(jnp.where(ratios, K, 0.0) ** 2, axis=1)
        log_diagonal = jnp.where(polar, log_diagonal - 0.5 * jnp.log(length), log_diagonal)
        unit = jnp.where(polar, jnp.exp(log_diagonal), 1.0)
        F = jnp.where(ratios, K * unit[:, None], K)
        F = F - jnp.diag(jnp.diagonal(F)) + jnp.diag(jnp.exp(log_diagonal).at[0].set(1.0))
        value = jnp.sum((n - jnp.arange(1, P)) * log_diagonal[1:])
        value += jnp.sum(jnp.where(polar, ratios.sum(axis=1) * log_diagonal, 0.0))
        A = n * F @ F.T
        residual = weight * (seen.values - A)
        value -= jnp.sum(jnp.abs(residual) if seen.family == "laplace" else 0.5 * residual**2)
        E = jnp.diagonal(jnp.linalg.cholesky(E0 + A[:d, :d]))
        B = jnp.diagonal(jnp.linalg.cholesky(B0 + A))
        value -= (covariates.nu + n) * jnp.sum(jnp.log(E)) + jnp.sum(jnp.log(B[:-1]))
        return value - (prior.a0 + n / 2) * jnp.log(0.5 * B[-1] ** 2)

    return ours, logp


def sample_collapsed(problem: Problem, draws: int, seed: int, engine: str):
    """Our density on another engine's NUTS, then our conjugate draws."""
    import numpyro

    numpyro.set_host_device_count(CHAINS)
    numpyro.enable_x64()
    import jax
    import jax.numpy as jnp

    ours, logp = collapsed_density(problem)
    starts = jnp.asarray(np.random.default_rng(seed).normal(size=(CHAINS, ours.ndim)))
    if engine == "numpyro":
        from numpyro.infer import MCMC, NUTS

        mcmc = MCMC(
            NUTS(potential_fn=lambda x: -logp(x)),
            num_warmup=500,
            num_samples=draws,
            num_chains=CHAINS,
            chain_method="parallel",
            progress_bar=False,
        )
        mcmc.run(jax.random.key(seed), init_params=starts)
        x = np.asarray(mcmc.get_samples(group_by_chain=True))
    else:
        import blackjax

        def chain(key, start):
            tuning, sampling = jax.random.split(key)
            adaptation = blackjax.window_adaptation(blackjax.nuts, logp)
            (state, parameters), _ = adaptation.run(tuning, start, 500)
            step = blackjax.nuts(logp, **parameters).step

            def move(state, key):
                state, _ = step(key, state)
                return state, state.position

            return jax.lax.scan(move, state, jax.random.split(sampling, draws))[1]

        x = np.asarray(jax.pmap(chain)(jax.random.split(jax.random.key(seed), CHAINS), starts))
    drawn = [
        ours.draw_parameters(np.random.default_rng([seed, c]), points, covariates=False)
        for c, points in enumerate(x)
    ]
    return np.stack([one[0] for one in drawn]), np.stack([one[1] for one in drawn])
