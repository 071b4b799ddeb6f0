"""The `individual` method: NUTS over every latent record (MCMC-Ind of Bernstein & Sheldon).

Target: the posterior of (theta, sigma2) given all released values, with the rows (x_i, y_i) of
every holder as latent variables. It costs time in proportion to the rows, and gives in return what
no method on summed statistics can: any continuous law of the covariates, and rows that were clipped
to their bounds before they were summed. With normal covariates `exact` has the same posterior,
faster.

Laplace kinks are rounded off in the force and kept in the energy, as in `exact`.

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
from noisewise.analyst.regression.numpyro_release import released_entries, require_numpyro
from noisewise.analyst.regression.nuts import NutsInfo, check_lengths, rounding
from noisewise.analyst.regression.observation import Observation, common_k
from noisewise.analyst.regression.priors import CovariatePrior, RegressionPrior
from noisewise.analyst.regression.records import Covariates, build_model, check_model
from noisewise.core.errors import RequestError

Array = Any

MAX_RECORDS = 5000
_BLOCK = 50  # iterations between two reports of progress
# Before scales are known the steps are tiny; deep trees there cost more than they teach.
_WARM_UP_DEPTH = 7


class IndividualDraws(NamedTuple):
    """Draws from the posterior, on unit scale."""

    theta: FloatArray  # (chains, draws, d)
    sigma2: FloatArray  # (chains, draws)
    conditional_mean: FloatArray  # (chains, draws, d), E[theta | latent records]
    statistics: FloatArray  # (chains, draws, P, P), of the latent records of all holders, unclipped
    info: NutsInfo


# --- kernel ---------------------------------------------------------------------------------------


def smoothing(observations: Sequence[Observation]) -> float:
    """Distance at which Laplace kinks are rounded off in the force, in units of the scale."""
    kinks = sum(
        len(released_entries(observation)[0])
        for observation in observations
        if observation.family == "laplace"
    )
    return rounding(kinks)


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


# --- top-level call -------------------------------------------------------------------------------


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
        model = build_model(
            observations, prior, covariates, clip=clip, rounding=smoothing(observations)
        )
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


# --- for `fit(method="individual")` ---------------------------------------------------------------


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
