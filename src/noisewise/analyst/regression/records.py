"""The `individual` method: NUTS over every latent record (MCMC-Ind of Bernstein & Sheldon).

Target: the posterior of (theta, sigma2) given all released values, with the rows (x_i, y_i) of
every holder as latent variables. It costs time in proportion to the rows, and gives in return what
no method on summed statistics can: any continuous law of the covariates, and rows that were clipped
to their bounds before they were summed. With normal covariates `exact` has the same posterior,
faster.

The NumPyro model has theta, sigma2 and the covariates' law by their priors, y by the regression,
and the released values by the noise on the rows' sums, all written as a transformation of
independent standard variables, because noise usually leaves single records close to their prior:
NUTS then moves nearly freely. Its functions are building blocks for models of your own, too; call
them inside a NumPyro model. Laplace kinks are rounded off in the force and kept in the energy, as
in `exact`.

A law of the covariates is any function of (n, k) that draws with ``numpyro.sample`` and returns x
of shape (n, k) on unit scale, with the rows of all holders one after another. It must be
continuous.

References
----------
Bernstein & Sheldon (2019), Differentially private Bayesian linear regression, section 3.1; Hoffman
& Gelman (2014), The No-U-Turn sampler, JMLR 15, 1593-1623; NumPyro, Phan et al. (2019),
arXiv:1912.11554.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise.analyst.chains import Progress, Report, run_chains
from noisewise.analyst.regression import agreement
from noisewise.analyst.regression.job import Draws, Job, learnt_covariates, public_n
from noisewise.analyst.regression.numpyro_release import gram, released_entries, require_numpyro
from noisewise.analyst.regression.nuts import NutsInfo, check_lengths, rounding
from noisewise.analyst.regression.observation import Observation, common_k
from noisewise.analyst.regression.priors import CovariatePrior, NIGPrior, NIWPrior, RegressionPrior
from noisewise.core.errors import RequestError

Array = Any
Covariates = Callable[[int, int], Array]

MAX_RECORDS = 5000
_BLOCK = 50  # iterations between two reports of progress
# Before scales are known the steps are tiny; deep trees there cost more than they teach.
_WARM_UP_DEPTH = 7


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
    smoothing: float,
) -> Callable[[], None]:
    """The NumPyro model of latent records and released values.

    Parameters
    ----------
    observations : sequence of Observation
    prior : NIGPrior or NormalInverseGammaIndependent
    covariates : NIWPrior, HierarchicalNIWPrior, HuangWandPrior or callable
    clip : bool
        Whether the rows were clipped to [-1, 1] before they were summed.
    smoothing : float
        That of `noise_log_density`.
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
            numpyro.factor(f"release_{j + 1}", noise_log_density(observation, A, smoothing))

    return model


def noise_log_density(observation: Observation, A: Array, smoothing: float) -> Array:
    """Log density of the released values given A, up to a constant.

    The value is exact. The derivative of Laplace noise is that of a Huber potential, whose kink is
    rounded off over `smoothing` noise scales: leapfrog steps keep volume and reverse under any
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
        return jnp.abs(primals[0]), jnp.clip(primals[0] / smoothing, -1.0, 1.0) * tangents[0]

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


# --- NUTS -----------------------------------------------------------------------------------------


class IndividualDraws(NamedTuple):
    """Draws from the posterior, on unit scale."""

    theta: FloatArray  # (chains, draws, d)
    sigma2: FloatArray  # (chains, draws)
    conditional_mean: FloatArray  # (chains, draws, d), E[theta | latent records]
    statistics: FloatArray  # (chains, draws, P, P), of the latent records of all holders, unclipped
    info: NutsInfo


class _Chains:
    """One compiled block of NUTS iterations, run for each chain in a thread of its own.

    XLA lets go of Python's lock while it computes.
    """

    def __init__(self, model: Callable[[], None], tune: int, settings: dict[str, Any]) -> None:
        from numpyro.infer import NUTS

        self.tune = tune
        self.kernel = NUTS(model, **settings)

    def start(self, keys: Sequence[Array]) -> list[Array]:
        """Draw a starting point for each chain and compile the block."""
        import jax

        # Compiled as a whole, which takes a third of the time of compiling it piece by piece.
        init = jax.jit(lambda key: self.kernel.init(key, self.tune, None, (), {}))
        states = [init(key) for key in keys]
        if not all(np.isfinite(state.potential_energy) for state in states):
            raise RequestError(
                "covariates: no latent records of positive density were found to start from; check "
                "that the law has the support it declares"
            )
        constrain = self.kernel.postprocess_fn((), {})

        def step(state: Array, _: None) -> tuple[Array, Any]:
            state = self.kernel.sample(state, (), {})
            sites = constrain(state.z)
            return state, (
                sites["theta"],
                sites["sigma2"],
                sites["statistics"],
                state.diverging,
                state.num_steps,
                state.adapt_state.step_size,
                state.energy,
                -state.potential_energy,
                state.accept_prob,
            )

        block = jax.jit(lambda state: jax.lax.scan(step, state, None, length=_BLOCK))
        self.block = block.lower(states[0]).compile()
        return states

    def run(self, state: Array, length: int, report: Report) -> list[NDArray[Any]]:
        """All draws of one chain after warm-up; a few too many are thrown away."""
        import jax

        blocks: list[Any] = []
        with _double_precision():  # precision is a setting of the thread
            for first in range(0, length, _BLOCK):
                state, drawn = self.block(state)
                blocks.append(jax.device_get(drawn))
                report(min(first + _BLOCK, length))
        return [np.concatenate(part)[self.tune : length] for part in zip(*blocks, strict=True)]


def _double_precision() -> AbstractContextManager[None]:
    """64-bit numbers in this thread only; the program's own setting stays as it is."""
    import jax

    if hasattr(jax, "enable_x64"):
        return cast(AbstractContextManager[None], jax.enable_x64(True))
    old: Any = import_module("jax.experimental")  # JAX before 0.8
    return cast(AbstractContextManager[None], old.enable_x64())


def sample(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    covariates: CovariatePrior | Covariates,
    *,
    clip: bool = False,
    chains: int = 4,
    draws: int = 1000,
    tune: int = 1000,
    seed: int | None = None,
    cores: int | None = None,
    target_accept: float = 0.8,
    max_depth: int = 10,
    max_records: int = MAX_RECORDS,
    progress: Progress | None = None,
) -> IndividualDraws:
    """Draw from the posterior given the observations of one or several holders.

    Entries of observations that are public are not used, but for n. The law of the covariates,
    which all holders share, is normal with a prior, or a function of (n, k) called inside the
    NumPyro model (see `regression.records`, which also has `uniform`, `truncated_normal` and
    `beta`); n counts the rows of all holders, at most `max_records`. With `clip` the rows were
    clipped to [-1, 1] before they were summed, and the regression is about the rows as they were;
    for releases bounded by a box, not by a ball. Other arguments are those of
    `exact.sampler.sample_posterior`.
    """
    require_numpyro()
    check_lengths(chains=chains, draws=draws, tune=tune)
    check_records(observations, prior, max_records)
    import jax

    with _double_precision():
        kinks = sum(
            len(released_entries(seen)[0]) for seen in observations if seen.family == "laplace"
        )
        model = build_model(observations, prior, covariates, clip=clip, smoothing=rounding(kinks))
        seeds = np.random.SeedSequence(seed).generate_state(chains)
        check_model(model)
        depth = (min(_WARM_UP_DEPTH, max_depth), max_depth)
        engine = _Chains(
            model, tune, {"target_accept_prob": target_accept, "max_tree_depth": depth}
        )
        states = engine.start([jax.random.PRNGKey(int(number)) for number in seeds])
    length = tune + draws
    drawn = run_chains(
        lambda chain, report: engine.run(states[chain], length, report),
        chains=chains, length=length, cores=cores, progress=progress,
    )  # fmt: skip
    theta, sigma2, statistics, diverging, steps, *others = (
        np.stack(part) for part in zip(*drawn, strict=True)
    )
    steps = steps.astype(np.int64)
    tree_depth = np.ceil(np.log2(steps + 1)).astype(np.int64)
    from noisewise.analyst.regression.papers.shared import conditional_mean, prepare_regression

    return IndividualDraws(
        theta,
        sigma2,
        conditional_mean(prepare_regression(prior, prior.k), statistics, sigma2),
        statistics,
        NutsInfo(diverging, tree_depth, steps, *others),
    )


def check_records(
    observations: Sequence[Observation], prior: RegressionPrior, max_records: int
) -> None:
    """Refuse rows that are too many, or whose number is private."""
    k = common_k(observations)
    if prior.k != k:
        raise RequestError(f"prior: it is for {prior.k} covariates, but the model has {k}")
    if any(observation.n_is_private for observation in observations):
        raise RequestError(
            "individual keeps every row as a latent variable, and a holder's number of rows is "
            "private; use method exact"
        )
    records = sum(observation.n for observation in observations)
    if records > max_records:
        raise RequestError(
            f"individual keeps every row as a latent variable, and there are {records:,} rows; use "
            "method exact, whose cost does not depend on the rows, or wait and give a larger "
            f"max_records than {max_records:,}"
        )


def run_individual(job: Job) -> Draws:
    """Draw latent records along with the regression."""
    public_n(job, "individual")
    covariates = learnt_covariates(job, "individual")
    with job.watched() as options:
        drawn = sample(job.observations, job.prior, covariates, clip=job.clip, **options)
    # Coefficients of rows before clipping say nothing about sums of clipped ones.
    agrees: dict[str, Any] = {}
    if not job.clip:
        kept = agreement.kept_a_chain(job)
        some = (agreement.thinned(x, kept) for x in (drawn.theta, drawn.sigma2, drawn.statistics))
        agrees = agreement.given_statistics(job, *some)
    return Draws(
        drawn.theta,
        drawn.sigma2,
        drawn.conditional_mean,
        drawn.info._asdict(),
        **agrees,
        warnings=caveats(job.observations),
        predictor_variance=agreement.predictor_variance(drawn.statistics),
    )


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
