"""From network Releases to the posterior of all conditional tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..._progress import progress_bar
from ...core.errors import RequestError
from ...core.network import Network
from ...core.network_release import NetworkRelease
from ..arguments import chains_and_draws, seed_or_none
from ..common_cautions import first_few, repetition_warnings
from . import plugin
from .cautions import convergence_warnings, method_warnings
from .entropy import is_acyclic
from .layout import Floats, Layout
from .observed import Observed, check_plausible, observe
from .posterior import NetworkFit, NetworkPosterior
from .prior import Prior, concentrations

METHODS = ("auto", "plugin", "exact", "joint")
MAX_DRAWS = 100_000
MAX_NUMBERS = 1 << 27  # table cells times draws that are kept
MOVES_PER_CHAIN = 24_000_000
ROWS_PER_SWEEP = 10_000  # latent rows times tables up to which rows are simulated one by one


class Drawn(NamedTuple):
    """What a method returns."""

    theta: Floats
    given_counts: Floats | None
    warnings: tuple[str, ...] = ()
    algorithm: str = ""
    acceptance: float = float("nan")


@dataclass(frozen=True)
class Job:
    """What a method gets."""

    releases: tuple[NetworkRelease, ...]
    layout: Layout
    alpha: Floats
    chains: int
    draws: int
    seed: int | None
    tell: Callable[[int, int | None], None] | None

    def observed(self) -> list[Observed]:
        """The measurements of all holders."""
        found = [observe(release, self.layout) for release in self.releases]
        for number, observed in enumerate(found, 1):
            check_plausible(observed, self.layout, number)
        return found


def fit_network(
    releases: NetworkRelease | Sequence[NetworkRelease],
    *,
    prior: Prior | None = None,
    method: str = "auto",
    chains: int = 4,
    draws: int = 1000,
    seed: int | None = None,
    progress: bool = False,
) -> NetworkPosterior:
    """Posterior of every conditional table of a network, given one or several Releases.

    Parameters
    ----------
    releases : NetworkRelease or sequence of them
        Of the same network. Several holders' tables are taken to be the same.
    prior : float or mapping, optional
        Dirichlet concentrations: one number, or a mapping from nodes to numbers or arrays of
        `network.shape`. Default 1, which is uniform.
    method : {"auto", "joint", "exact", "plugin"}
        ``joint``: all nodes together, the noise modelled; families that share variables agree.
        ``exact``: each node by itself, the noise modelled, by enumeration. ``plugin``: what Zhang,
        Rubinstein & Dimitrakakis (2016) do, noisy counts as if they were true; intervals are too
        narrow. ``auto``: joint where there are counts, plugin for released draws of tables.
    chains, draws : int
    seed : int, optional
        Makes the result reproducible. It has nothing to do with the privacy noise.
    progress : bool
        Show progress on the terminal.

    Returns
    -------
    NetworkPosterior
    """
    given = as_network_releases(releases)
    layout = Layout(given[0].network)
    alpha = concentrations(prior, layout)
    chains, draws = _sizes(layout, chains, draws)
    name, reason = _choose(method, [release.mechanism for release in given], given[0].has_counts)
    with progress_bar(f"Posterior by {name}", unit="steps", show=progress) as tell:
        job = Job(given, layout, alpha, chains, draws, seed_or_none(seed), tell)
        drawn = _RUN[name](job)
    from_counts = given[0].has_counts
    info = NetworkFit(
        method=name,
        algorithm=drawn.algorithm,
        reason=reason,
        noise_aware=name != "plugin",
        mechanisms=tuple(release.mechanism for release in given),
        n=tuple(release.n for release in given),
        claims=tuple(str(release.claim) for release in given),
        digests=tuple(release.digest for release in given),
        datasets=tuple(release.schema.dataset for release in given),
        units=tuple(release.schema.unit for release in given),
        noise_scales=tuple(release.noise.scale for release in given) if from_counts else (),
        concentration=(float(alpha.min()), float(alpha.max())) if from_counts else (),
    )
    posterior = NetworkPosterior(
        layout.network,
        drawn.theta,
        info,
        drawn.given_counts,
        alpha + plugin.clamped_counts(given, layout) if from_counts else None,
        {"acceptance": drawn.acceptance} if name == "joint" else {},
    )
    found = (
        *drawn.warnings,
        *method_warnings(posterior, given),
        *repetition_warnings((release.schema.dataset, release.n) for release in given),
        *(convergence_warnings(posterior) if name == "joint" else ()),
    )
    return replace(posterior, info=replace(info, warnings=found))


def check_fit(
    network: Network,
    mechanism: str,
    *,
    has_counts: bool,
    prior: Prior | None,
    method: str,
    chains: int,
    draws: int,
) -> None:
    """Refuse what `fit_network` would refuse of a Release that is not there yet.

    For those who publish and fit in one step: a word that is wrong must not cost anything.
    """
    layout = Layout(network)
    concentrations(prior, layout)
    _sizes(layout, chains, draws)
    _choose(method, [mechanism], has_counts)


def _sizes(layout: Layout, chains: int, draws: int) -> tuple[int, int]:
    chains, draws = chains_and_draws(chains, draws, MAX_DRAWS)
    if chains * draws * layout.cells > MAX_NUMBERS:
        raise RequestError(
            f"draws: {chains} chains of {draws} draws of {layout.cells:,} table cells do not fit "
            f"in memory; ask for {max(4, MAX_NUMBERS // (chains * layout.cells))} draws or fewer"
        )
    return chains, draws


def as_network_releases(releases: Any) -> tuple[NetworkRelease, ...]:
    """One or several Releases of the same network."""
    given = (releases,) if isinstance(releases, NetworkRelease) else tuple(releases)
    if not given or not all(isinstance(release, NetworkRelease) for release in given):
        raise RequestError(
            "releases: expected one or several network Releases; `load_release` reads a file"
        )
    first = given[0].network
    for number, release in enumerate(given[1:], 2):
        other = release.network
        same = dict(first.parents) == dict(other.parents) and all(
            first.levels(node) == other.levels(node) for node in first.nodes
        )
        if not same:
            raise RequestError(
                f"releases: number {number} is of another network or has other levels than the "
                "first; fit them apart"
            )
        if not (given[0].has_counts and release.has_counts):
            raise RequestError(
                "releases: tables that were drawn at random cannot be combined with others; fit "
                "that Release alone"
            )
    return given


def _choose(method: str, mechanisms: Sequence[str], has_counts: bool) -> tuple[str, str]:
    if method not in METHODS:
        raise RequestError(f"method: {method!r} is unknown; use {', '.join(METHODS)}")
    if not has_counts:
        if method in ("auto", "plugin"):
            return "plugin", "the Release holds draws of the tables, which are used as they are"
        raise RequestError(
            f"method: {method!r} models the noise on counts, and a Release by "
            f"{mechanisms[0]!r} holds drawn tables instead; use method='plugin'"
        )
    if method == "exact":
        if len(mechanisms) > 1:
            raise RequestError(
                "method: 'exact' takes one Release; use method='joint', which combines several"
            )
        if mechanisms[0] == "fourier":
            raise RequestError(
                "method: 'exact' needs counts with noise of their own, and a fourier Release has "
                "parity counts; use method='joint'"
            )
    if method == "auto":
        return "joint", "models the privacy noise, and families that share variables agree"
    return method, "chosen by the user"


def _plugin(job: Job) -> Drawn:
    if not job.releases[0].has_counts:
        return Drawn(plugin.released_draws(job.releases[0], job.layout)[None], None, (), "draws")
    counts = plugin.clamped_counts(job.releases, job.layout)
    rng = np.random.default_rng(job.seed)
    theta = plugin.draw(rng, counts, job.alpha, job.layout, (job.chains, job.draws))
    return Drawn(theta, None, (), "clamped counts")


def _exact(job: Job) -> Drawn:
    from .exact import sample

    theta, given = sample(
        job.layout,
        job.observed()[0],
        job.alpha,
        chains=job.chains,
        draws=job.draws,
        seed=job.seed,
        progress=job.tell,
    )
    return Drawn(theta, given, (), "enumeration by row")


def _joint(job: Job) -> Drawn:
    from . import counts, records
    from .problem import make_problem

    holders = job.observed()
    tables = len(job.layout.nodes) + len(set(job.layout.parents))
    public = [holder.n for holder in holders if holder.n is not None]
    few = len(public) == len(holders) and sum(public) * tables <= ROWS_PER_SWEEP
    if few and not is_acyclic(job.layout.families):
        sampler, thin, what = records.sample, 10, "latent rows"
    else:
        sampler, what = counts.sample, "latent counts"
        moves = make_problem(job.layout, holders, job.alpha).moves.times.sum()
        thin = int(np.clip(MOVES_PER_CHAIN // (moves * len(holders) * job.draws), 1, 10))
    drawn = sampler(
        job.layout,
        holders,
        job.alpha,
        plugin.clamped_counts(job.releases, job.layout),
        chains=job.chains,
        draws=job.draws,
        warmup=300 + job.draws * thin // 4,
        thin=thin,
        seed=job.seed,
        progress=job.tell,
    )
    warnings: tuple[str, ...] = ()
    if not drawn.exact:
        what += ", approximate in the loops"
        free = [job.layout.nodes[i] for i in drawn.free]
        warnings = (_loop_warning(free),)
    return Drawn(drawn.theta, drawn.given_counts, warnings, what, drawn.acceptance)


def _loop_warning(free: list[str]) -> str:
    text = (
        "the families of this network form loops, for which the number of data sets behind given "
        "counts is approximated (coverage of 90% intervals was measured to be within 2 points)"
    )
    if free:
        text += f"; loops above {first_few(free)} are too wide to be followed and were left out"
    return text + "."


_RUN: dict[str, Callable[[Job], Drawn]] = {"plugin": _plugin, "exact": _exact, "joint": _joint}
