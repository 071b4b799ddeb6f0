"""The `exact` method: NUTS on the collapsed posterior, then conjugate draws.

Target: the posterior of (theta, sigma2, mu, T) given all released values, for any noise, number of
holders and n, with no approximation but Monte Carlo error (and, where n is private, that whole
numbers of rows are relaxed to reals; see `kernels`). NUTS explores the latent statistics
(`density`); given each of its draws the parameters are drawn exactly.

Two things make it fast where plain NUTS is slow:

- Coordinates in which noise-dominated directions are nearly standardised (`kernels`), and
  nearly independent where there are several holders (`pooling`).
- Laplace noise puts a kink into the log density at every released value, and a leapfrog step that
  crosses a kink errs by the first power of its length. The force that moves the trajectory is
  therefore that of a Huber potential, which rounds each kink off, while the energy that decides
  stays exact. Leapfrog steps keep volume and reverse under any force, so the target is unchanged.
  How far kinks are rounded off is in `nuts`.

The engine is nutpie (Rust), driven through the C interface that its PyMC backend uses: no Python
and no lock in the loop. Each chain has its own sampler, scratch space and seeds, so draws do not
depend on the number of cores.

References
----------
Hoffman & Gelman (2014), The No-U-Turn sampler, JMLR 15, 1593-1623; nutpie,
https://github.com/pymc-devs/nutpie.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise.analyst.chains import Progress, available_cores
from noisewise.analyst.convergence import effective_draws
from noisewise.analyst.regression.exact.c_callback import c_density, c_record, c_table
from noisewise.analyst.regression.exact.density import CollapsedPosterior
from noisewise.analyst.regression.exact.pooling import pooling, to_pooled
from noisewise.analyst.regression.exact.prior import SCALE_FREE
from noisewise.analyst.regression.nuts import NutsInfo, check_lengths, nutpie_engine, rounding
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import (
    CovariatePrior,
    RegressionPrior,
    ScaleFreeCovariates,
    ScaleFreePrior,
)
from noisewise.core.errors import ReleaseError

# nutpie's names for the fields of NutsInfo.
_STATISTICS = (
    "diverging",
    "depth",
    "n_steps",
    "step_size",
    "energy",
    "logp",
    "mean_tree_accept",
)
_POLL_SECONDS = 0.005
_START_TRIES = 100
# When draws are worth a second run (`sample_enough`), and how long that may be.
_WANTED = 0.1  # of the draws, effective ones: 400 of 4 x 1,000
_MOST_DIVERGING = 0.001  # of the draws
_FEWEST_JUDGED = 100  # draws of a chain from which effective ones are estimated
_LONGEST = 8  # times the first run
_FEW_COLUMNS = 6  # with more, steps are small and 0.8 of them are accepted without divergence
# With more, so are 0.7; at 0.6 chains stood still for 85 draws where noise hides everything. And
# then the distance from a trajectory's start doesn't fall once it has grown, because coordinates
# swing at all frequencies: it stays as it is, and a tree that isn't cut sees a turn only by chance,
# after many times the steps that it takes to forget the start.
_MANY_COLUMNS = 40
_SHORT_DEPTH = 5
_MOST_SECONDS = 60.0  # of the processor's time, roughly


class ExactState(NamedTuple):
    """Where one chain starts: coordinates of the latent statistics, and their log density."""

    x: FloatArray  # (ndim,)
    logp: float


class ExactDraws(NamedTuple):
    """Draws from the posterior, on unit scale."""

    theta: FloatArray  # (chains, draws, d)
    sigma2: FloatArray  # (chains, draws)
    conditional_mean: FloatArray  # (chains, draws, d), E[theta | latent statistics]
    # no draws if covariates were not asked for; a third axis over holders with laws of their own
    mu: FloatArray  # (chains, draws, [J,] k)
    T: FloatArray  # (chains, draws, [J,] k, k)
    x: FloatArray  # (chains, draws, ndim), for CollapsedPosterior.statistics
    info: NutsInfo


# --- init -----------------------------------------------------------------------------------------


class Density(Protocol):
    """What can be started: a log density with its gradient."""

    ndim: int

    def logp_and_gradient(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Return both at x."""
        ...


def init(posterior: Density, rng: np.random.Generator, apart: int = 0) -> ExactState:
    """Draw a starting point, dispersed around a possible version of the noisy statistics.

    The last `apart` coordinates are those of spreads between holders, and are 1 or more.
    """
    spread = 1.0
    for _ in range(_START_TRIES):
        x = spread * rng.standard_normal(posterior.ndim)
        x[posterior.ndim - apart :] = 1.0 + np.abs(x[posterior.ndim - apart :])
        logp, gradient = posterior.logp_and_gradient(x)
        if np.isfinite(logp) and np.isfinite(gradient).all():
            return ExactState(x, logp)
        spread *= 0.9
    raise ReleaseError(
        "no possible statistics were found near the released ones: they are far beyond what rows "
        "on unit scale can give, or entries that are known exactly contradict each other (a "
        "covariance beyond its variances). Ask the holder to check the Release"
    )


# --- kernel ---------------------------------------------------------------------------------------


def smoothing(posterior: CollapsedPosterior) -> float:
    """Distance at which Laplace kinks are rounded off in the force, in units of the scale."""
    arrays = posterior.arrays
    upper = np.triu(np.ones(arrays.values.shape[1:], dtype=np.bool_))
    kinks = int(((arrays.precision > 0) & upper & arrays.laplace[:, None, None]).sum())
    return rounding(kinks)


@dataclass(frozen=True)
class Kernel:
    """One chain, in the shape in which nutpie wants a compiled model.

    Raw addresses cross to the engine; `held` keeps alive what they point at.
    """

    held: tuple[Any, ...]
    table: NDArray[np.int64]
    start: FloatArray
    density: Any  # C functions
    record: Any
    coords: dict[str, Any] = field(default_factory=dict)
    reparameterized_names: None = None  # read by nutpie since 0.16.9

    @property
    def n_dim(self) -> int:
        """Number of coordinates."""
        return self.start.size

    @property
    def finished(self) -> int:
        """Number of draws done so far, warm-up included."""
        return int(self.table[-1])

    def _make_sampler(self, settings: Any, init_mean: Any, cores: int, *handed_on: Any) -> Any:
        _lib = nutpie_engine()._lib
        data = self.table.ctypes.data
        sizes: dict[str, int] = {}
        variables = _lib.PyVariable.new_variables(["x"], ["float64"], [(self.n_dim,)], sizes, {})
        density = _lib.LogpFunc(self.density.address, data, self)
        expand = _lib.ExpandFunc(self.n_dim, self.n_dim, self.record.address, data, self)
        model = _lib.PyMcModel(
            density, expand, variables, self.n_dim, sizes, {}, lambda _seed: self.start, None
        )
        return _lib.PySampler.from_pymc(settings, cores, model, *handed_on)


def build_kernel(posterior: CollapsedPosterior, state: ExactState) -> Kernel:
    """One chain of NUTS on the collapsed posterior that starts at `state`."""
    arrays = posterior.smoothed(smoothing(posterior))
    work, pooled, x = posterior.workspace(), pooling(arrays), np.zeros_like(state.x)
    table = c_table(arrays, work, pooled, x)
    held = arrays, work, pooled, x
    return Kernel(held, table, to_pooled(state.x, pooled), c_density(), c_record())


def run_chains(
    kernels: Sequence[Kernel],
    seeds: Sequence[int],
    settings: Mapping[str, Any],
    cores: int,
    progress: Progress | None,
) -> list[tuple[Any, int]]:
    """Run all chains, at most `cores` at a time, and return nutpie's raw traces in their order.

    Each with how many of its draws come after warm-up.
    """
    nutpie = nutpie_engine()
    total = len(kernels) * (settings["tune"] + settings["draws"])
    waiting = list(range(len(kernels)))
    running: dict[int, Any] = {}
    traces: list[Any] = [None] * len(kernels)
    try:
        while waiting or running:
            while waiting and len(running) < cores:
                chain = waiting.pop(0)
                running[chain] = nutpie.sample(
                    kernels[chain],
                    chains=1,
                    cores=1,
                    seed=seeds[chain],
                    blocking=False,
                    progress_bar=False,
                    return_raw_trace=True,
                    **settings,
                )
            time.sleep(_POLL_SECONDS)
            for chain in [c for c, sampler in running.items() if _is_finished(sampler)]:
                traces[chain] = _result(running.pop(chain))
            if progress is not None:
                progress(sum(kernel.finished for kernel in kernels), total)
    finally:
        for sampler in running.values():
            sampler.cancel()
    return [(trace, settings["draws"]) for trace in traces]


def _result(sampler: Any) -> Any:
    try:
        return sampler.wait()
    except RuntimeError as error:
        raise ReleaseError(
            "the sampler could not move from where it started. The released statistics may be "
            "impossible or contradict each other: ask the holders to check their Releases"
        ) from error


def _is_finished(sampler: Any) -> bool:
    try:
        return bool(sampler.is_finished)
    except TimeoutError:  # nutpie 0.16 raises it for "not yet"
        return False


# --- top-level call -------------------------------------------------------------------------------


def sample(
    observations: Sequence[Observation],
    prior: RegressionPrior | ScaleFreePrior,
    covariates: CovariatePrior | ScaleFreeCovariates,
    *,
    own_laws: bool = False,
    **settings: Any,
) -> ExactDraws:
    """Draw from the exact posterior given the observations of one or several holders.

    Parameters
    ----------
    observations : sequence of Observation
        One for each holder.
    prior : NIGPrior, NormalInverseGammaIndependent or ScaleFreePrior
        Prior of the regression.
    covariates : NIWPrior, HierarchicalNIWPrior, HuangWandPrior or ScaleFreeCovariates
        Prior of the covariates' law, which all holders share.
    own_laws : bool
        Whether each holder has a law of its own instead (`own_laws`).
    **settings
        Of `sample_posterior`.

    Raises
    ------
    RequestError
        If observations and priors do not fit together or a holder has too few rows.
    ReleaseError
        If entries known exactly contradict each other, or statistics are so extreme that double
        precision does not hold them. Draws that are returned are finite.
    """
    posterior = CollapsedPosterior(observations, prior, covariates, own_laws=own_laws)
    return sample_posterior(posterior, **settings)


def sample_posterior(
    posterior: CollapsedPosterior,
    *,
    chains: int = 4,
    draws: int = 1000,
    tune: int = 500,
    seed: int | None = None,
    cores: int | None = None,
    target_accept: float | None = None,
    max_depth: int | None = None,
    thin: int = 1,
    keep_covariates: bool = True,
    progress: Progress | None = None,
) -> ExactDraws:
    """Draw from a collapsed posterior.

    Parameters
    ----------
    posterior : CollapsedPosterior
        Of the latent statistics of all holders.
    chains, draws, tune : int
        Chains, and draws of each after and during warm-up.
    seed : int, optional
        The same seed gives the same draws, on any number of cores.
    cores : int, optional
        Chains that run at a time. Default: all cores that this process may use.
    target_accept : float, optional
        Of NUTS. Default: 0.9 with Gaussian noise and few columns under the scale-free prior, or
        with laws of their own, where 0.8 diverges now and then, and 0.8 otherwise; with Laplace
        noise more steps bring no more effective draws. With more than 40 columns 0.7.
    max_depth : int, optional
        Of NUTS. Default: 10, and 5 with more than 40 columns (`_MANY_COLUMNS`).
    thin : int
        Chains are so many times as long, and one of `thin` draws is kept.
    keep_covariates : bool
        Draw mu and T too; they take chains * draws * k² numbers.
    progress : callable, optional
        Called now and then with (draws done, draws in all), warm-up included.

    Returns
    -------
    ExactDraws
    """
    check_lengths(chains=chains, draws=draws, tune=tune, thin=thin)
    if target_accept is None:
        target_accept = _target_accept(posterior)
    if max_depth is None:
        max_depth = _SHORT_DEPTH if posterior.k > _MANY_COLUMNS else 10
    streams = [
        [np.random.default_rng(stream) for stream in chain.spawn(3)]
        for chain in np.random.SeedSequence(seed).spawn(chains)
    ]
    if posterior.ndim:
        kernels = [build_kernel(posterior, init(posterior, start)) for start, _, _ in streams]
        traces = run_chains(
            kernels,
            [int(engine.integers(2**63)) for _, engine, _ in streams],
            {
                "draws": draws * thin,
                "tune": tune,
                "target_accept": target_accept,
                "maxdepth": max_depth,
            },
            cores or available_cores(),
            progress,
        )
        x, info = collect(traces, thin)
    else:
        # Every statistic is public: nothing is latent, and the draws are independent.
        init(posterior, streams[0][0])
        x, info = _nothing_latent(chains, draws)
    parameters = [
        posterior.draw_parameters(rng, points, covariates=keep_covariates)
        for (_, _, rng), points in zip(streams, x, strict=True)
    ]
    theta, sigma2, mean, mu, T = (np.stack(values) for values in zip(*parameters, strict=True))
    if not all(np.isfinite(values).all() for values in (theta, sigma2, mean, mu, T)):
        raise ReleaseError(
            "the posterior reaches beyond the numbers that a computer can hold: the released "
            "statistics are far from anything that rows on unit scale can give. Ask the holder to "
            "check the Release"
        )
    return ExactDraws(theta, sigma2, mean, mu, T, x, info)


def sample_enough(posterior: CollapsedPosterior, **settings: Any) -> tuple[ExactDraws, str]:
    """`sample_posterior`, and once more where its draws depend too much on each other.

    The second run has smaller steps where the first diverged, and longer chains of which as many
    draws are kept, as far as the work is bounded. Both are decided by the first run alone, so the
    same seed gives the same draws.

    Returns
    -------
    draws : ExactDraws
    how : str
        What was done about the first run; empty if nothing.
    """
    drawn = sample_posterior(posterior, **settings)
    chains, draws = drawn.sigma2.shape
    if draws < _FEWEST_JUDGED or posterior.ndim == 0:
        return drawn, ""
    short = _WANTED * chains * draws / smallest_ess(drawn.theta, drawn.sigma2)
    diverged = float(drawn.info.diverging.mean())
    # About the nanoseconds of a gradient, by the size of the statistics.
    each = len(posterior.order) * (posterior.k + 12) ** 3
    work = 1e-9 * each * float(drawn.info.n_steps.sum())
    room = min(_LONGEST, int(_MOST_SECONDS / max(work, 1e-3)))
    thin = min(math.ceil(1.3 * short), room) if short > 1.0 else 1
    if room < 1 or (thin <= 1 and diverged <= _MOST_DIVERGING):
        return drawn, ""
    how = []
    if diverged > _MOST_DIVERGING:
        # Kinks of Laplace noise are crossed with an error that no step makes small enough for more.
        settings["target_accept"] = 0.93 if posterior.arrays.laplace.any() else 0.95
        how.append("steps were made smaller, because some had diverged")
    if thin > 1:
        settings["thin"] = thin
        how.append(f"chains were run {thin} times as long, because draws depended on each other")
    return sample_posterior(posterior, **settings), "; ".join(how)


def smallest_ess(theta: FloatArray, sigma2: FloatArray) -> float:
    """The fewest effective draws of any coefficient or of sigma2, in bulk or tails."""
    every = np.concatenate([theta, sigma2[..., None]], axis=-1)
    return min(effective_draws(one) for one in np.moveaxis(every, -1, 0))


def _target_accept(posterior: CollapsedPosterior) -> float:
    few = posterior.arrays.scalars[SCALE_FREE] > 0.0 and posterior.k <= _FEW_COLUMNS
    careful = (posterior.own_laws or few) and not posterior.arrays.laplace.any()
    if careful:
        return 0.9
    return 0.7 if posterior.k > _MANY_COLUMNS else 0.8


def collect(traces: Sequence[tuple[Any, int]], thin: int = 1) -> tuple[FloatArray, NutsInfo]:
    """Arrays of shape (chains, draws, ...) from what `run_chains` returns; one of `thin` draws.

    Warm-up comes first in traces. Data sets of ArviZ would take longer to make than a small
    posterior to draw.
    """
    from arro3.core import list_flatten  # what nutpie hands out

    positions, statistics = [], []
    for trace, draws in traces:
        (position,), (statistic,) = trace.get_arrow_trace()
        x = list_flatten(position.column("x")).to_numpy().reshape(position.num_rows, -1)
        kept = slice(len(x) - draws + thin - 1, None, thin)
        positions.append(x[kept])
        statistics.append([statistic.column(name).to_numpy()[kept] for name in _STATISTICS])
    diverging, depth, steps, *others = (np.stack(one) for one in zip(*statistics, strict=True))
    info = NutsInfo(diverging, depth.astype(np.int64), steps.astype(np.int64), *others)
    return np.stack(positions), info


def _nothing_latent(chains: int, draws: int) -> tuple[FloatArray, NutsInfo]:
    zeros = np.zeros((chains, draws))
    whole = zeros.astype(np.int64)
    return np.zeros((chains, draws, 0)), NutsInfo(
        zeros.astype(np.bool_), whole, whole, zeros, zeros, zeros, zeros + 1.0
    )
