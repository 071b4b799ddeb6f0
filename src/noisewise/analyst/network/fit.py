"""From network Releases to the posterior of all conditional tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise._progress import progress_bar
from noisewise.analyst import common_cautions as cautions
from noisewise.analyst.arguments import chains_and_draws, seed_or_none
from noisewise.analyst.common_cautions import first_few
from noisewise.analyst.convergence import effective_in_bulk
from noisewise.analyst.network import observed
from noisewise.analyst.network.layout import Floats, Layout
from noisewise.analyst.network.observed import Observed, clamped_counts
from noisewise.analyst.network.prior import (
    Concentrations,
    Learning,
    Prior,
    concentrations,
    draw_tables,
)
from noisewise.analyst.posterior.base import origins
from noisewise.analyst.posterior.network import FORMER_METHODS, NetworkFit, NetworkPosterior
from noisewise.core.errors import RequestError
from noisewise.core.kinds.network.graph import Network
from noisewise.core.kinds.network.release import LearnedCounts, NetworkRelease, TableDraws
from noisewise.core.noise import Gaussian

MAX_DRAWS = 100_000
MAX_NUMBERS = 1 << 27  # table cells times draws that are kept
MOVES_PER_CHAIN = 16_000_000
ROWS_PER_SWEEP = 10_000  # latent rows times tables up to which rows are simulated one by one


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
        Dirichlet concentrations: one number (1 is uniform), or a mapping from nodes to numbers or
        arrays of `network.shape`. By default, and for nodes that a mapping leaves out, they are
        learned from the Releases, see `noisewise.analyst.network.prior`; ``plugin`` takes 1.
    method : {"auto", "joint", "per_table", "plugin"}
        ``joint``: all nodes together, the noise modelled; families that share variables agree.
        ``per_table``: each node by itself, the noise modelled, by enumeration (its name was
        ``exact``, which is still understood). ``plugin``: what Zhang, Rubinstein & Dimitrakakis
        (2016) do, noisy counts as if they were true; intervals are too narrow. ``auto``: joint
        where there are counts, plugin for released draws of tables.
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
    believed = concentrations(prior, layout)
    chains, draws = _sizes(layout, chains, draws)
    name, reason = choose(method, [release.mechanism for release in given], given[0].has_counts)
    with progress_bar(f"Posterior by {name}", unit="steps", show=progress) as tell:
        job = Job(given, layout, believed, chains, draws, seed_or_none(seed), tell)
        drawn = METHODS[name](job)
    drawn.prior[1] -= drawn.prior[0] ** 2  # from mean squares to variances
    from_counts = given[0].has_counts
    stated = believed.alpha[~np.repeat(believed.learned, np.diff(layout.offsets))]
    info = NetworkFit(
        **origins(given),
        method=name,
        algorithm=drawn.algorithm,
        reason=reason,
        noise_aware=name != "plugin",
        mechanisms=tuple(release.mechanism for release in given),
        seed=seed_or_none(seed),
        noise_scales=tuple(release.noise.scale for release in given) if from_counts else (),
        gaussian=tuple(isinstance(r.noise, Gaussian) for r in given) if from_counts else (),
        concentration=(stated.min().item(), stated.max().item()) if stated.size else (),
        learned=bool(believed.learned.any()) and from_counts and name != "plugin",
    )
    posterior = NetworkPosterior(
        layout.network,
        drawn.theta,
        info,
        drawn.given_counts,
        believed.alpha + clamped_counts(given, layout) if from_counts else None,
        {"acceptance": drawn.acceptance} if name == "joint" else {},
        drawn.prior if from_counts else None,
    )
    found = (
        *(loop_warning(posterior, drawn.loops) if drawn.loops else ()),
        *method_warnings(posterior, given),
        *prior_warnings(posterior),
        *cautions.repetition_warnings((release.schema.dataset, release.n) for release in given),
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
    choose(method, [mechanism], has_counts)


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


# --- ways to the posterior, by name, and which one `auto` takes --------------------------------


class Loops(NamedTuple):
    """Nodes whose parents' joint table is approximated, and those for which it was left out."""

    approximated: list[str]
    free: list[str]


class Drawn(NamedTuple):
    """What a method returns."""

    theta: Floats
    given_counts: Floats | None
    prior: Floats  # `Learning.moments`, averaged
    algorithm: str
    acceptance: float = float("nan")
    loops: Loops | None = None


@dataclass(frozen=True)
class Job:
    """What a method gets."""

    releases: tuple[NetworkRelease, ...]
    layout: Layout
    prior: Concentrations
    chains: int
    draws: int
    seed: int | None
    tell: Callable[[int, int | None], None] | None

    def observed(self) -> list[Observed]:
        """The measurements of all holders."""
        found = [observed.observe(release, self.layout) for release in self.releases]
        for number, one in enumerate(found, 1):
            observed.check_plausible(one, self.layout, number)
        return found

    @property
    def simulation(self) -> dict[str, Any]:
        """Options of `per_table.sample` and `regions.sample`."""
        sizes = {"chains": self.chains, "draws": self.draws}
        return {**sizes, "seed": self.seed, "progress": self.tell}


def _run_plugin(job: Job) -> Drawn:
    """Noisy counts, clamped at zero, as if they were true; or tables as they were released.

    Zhang, Rubinstein & Dimitrakakis (2016), Algorithms 1 and 2. The privacy noise is ignored, so
    credible intervals are too narrow.
    """
    layout = job.layout
    learning = Learning(layout, Concentrations(job.prior.alpha, job.prior.learned & False))
    if not job.releases[0].has_counts:
        tables = observed.released_draws(job.releases[0], layout)[None]
        return Drawn(tables, None, learning.moments(np.zeros(layout.cells)), "draws")
    counts = clamped_counts(job.releases, layout)
    prior = learning.moments(counts)
    given = np.broadcast_to(job.prior.alpha + counts, (job.chains, job.draws, layout.cells))
    tables = draw_tables(np.random.default_rng(job.seed), given, layout)
    return Drawn(tables, None, prior, "clamped counts")


def _run_per_table(job: Job) -> Drawn:
    from noisewise.analyst.network.per_table import sample

    drawn = sample(job.layout, job.observed()[0], job.prior, **job.simulation)
    return Drawn(*drawn, "enumeration by row")


def _run_joint(job: Job) -> Drawn:
    from noisewise.analyst.network import counts, records
    from noisewise.analyst.network.regions import make_problem, sample

    holders = job.observed()
    rough = clamped_counts(job.releases, job.layout)
    problem = make_problem(job.layout, holders, job.prior, rough)
    entropy = problem.slopes.entropy
    tables = len(job.layout.nodes) + len(set(job.layout.parents))
    public = [holder.n for holder in holders if holder.n is not None]
    few = len(public) == len(holders) and sum(public) * tables <= ROWS_PER_SWEEP
    loops = None
    if few and not entropy.acyclic:
        chain, thin, what = records.chain, 10, "latent rows"
    else:
        chain, what = counts.chain, "latent counts"
        moves = problem.moves.times.sum() * len(holders)
        thin = int(np.clip(MOVES_PER_CHAIN // (moves * job.draws), 1, 10))
        if not entropy.acyclic:
            what += ", approximate in the loops"
            nodes = job.layout.nodes
            loops = Loops([nodes[i] for i in entropy.expected], [nodes[i] for i in entropy.free])
    warmup = 300 + job.draws * thin // 4
    drawn = sample(chain, problem, warmup=warmup, thin=thin, **job.simulation)
    return Drawn(drawn.theta, drawn.given_counts, drawn.prior, what, drawn.acceptance, loops)


METHODS = {"plugin": _run_plugin, "per_table": _run_per_table, "joint": _run_joint}
NAMES = ("auto", *METHODS)


def choose(method: str, mechanisms: Sequence[str], has_counts: bool) -> tuple[str, str]:
    """The method's name and why it was taken, for Releases by these mechanisms.

    `has_counts` says whether they hold noisy counts, not drawn tables.
    """
    former = method if method in FORMER_METHODS else None
    method = FORMER_METHODS.get(method, method)
    if method not in NAMES:
        raise RequestError(f"method: {method!r} is unknown; use {', '.join(NAMES)}")
    if not has_counts:
        if method in ("auto", "plugin"):
            return "plugin", "the Release holds draws of the tables, which are used as they are"
        raise RequestError(
            f"method: {method!r} models the noise on counts, and a Release by "
            f"{mechanisms[0]!r} holds drawn tables instead; use method='plugin'"
        )
    refused = {
        "learn": "takes one table a node, and a learned graph comes with several; use "
        "method='joint'",
        "fourier": "needs counts with noise of their own, and a fourier Release has parity counts; "
        "use method='joint'",
    }
    if len(mechanisms) > 1:
        refused = {mechanisms[0]: "takes one Release; use method='joint', which combines several"}
    if method == "per_table" and mechanisms[0] in refused:
        raise RequestError(f"method: 'per_table' {refused[mechanisms[0]]}")
    if method == "auto":
        return "joint", "models the privacy noise, and families that share variables agree"
    if former is not None:
        return method, f"chosen by the user under its former name, {former}"
    return method, "chosen by the user"


# --- what a reader must know before trusting the posterior -------------------------------------


LOOKED_AT = 40  # worst cells whose effective number of draws is computed


def split_rhat(draws: Floats) -> Floats:
    """R-hat of half chains for every cell, from draws of shape (chains, draws, cells)."""
    half = draws.shape[1] // 2
    parts = np.concatenate([draws[:, :half], draws[:, -half:]])
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rhat = np.sqrt((half - 1) / half + between / within)
    return np.asarray(np.where(within > 0, rhat, 1.0))


class Settled(NamedTuple):
    """How well the chains agree on some cells."""

    rhat: float  # the largest
    cell: int  # that has it
    ess: float  # the least effective draws of the worst cells
    many: int  # cells on which chains disagree


def settled(posterior: NetworkPosterior, cells: NDArray[np.bool_]) -> Settled | None:
    """Of those cells of all tables that are True; None where there are none."""
    numbers = np.flatnonzero(cells)
    if not numbers.size:
        return None
    rhat = split_rhat(posterior.theta[..., numbers])
    worst = numbers[np.argsort(rhat)[-LOOKED_AT:]]
    ess = min(effective_in_bulk(posterior.theta[:, :, cell]) for cell in worst)
    return Settled(float(rhat.max()), int(worst[-1]), ess, int((rhat > cautions.BAD_RHAT).sum()))


def convergence_warnings(posterior: NetworkPosterior) -> tuple[str, ...]:
    """What the chains say about themselves; empty when all is well.

    Probabilities that the prior decides are apart. There the posterior has often several modes
    (which level has most of a row that hardly anybody is in?), chains go slowly from one to the
    other, and readers know already that these intervals say little about the data.
    """
    if posterior.theta.shape[0] == 1:
        return (cautions.ONE_CHAIN,)
    warnings = []
    found = settled(posterior, ~posterior.decided)
    if found is not None and found.many:
        warnings.append(
            f"the chains disagree on {found.many} probabilities, most on "
            f"P({posterior.cell_name(found.cell)}) (R-hat {found.rhat:.3f}, should be below "
            f"{cautions.GOOD_RHAT}): run more draws before using them."
        )
    if found is not None and found.ess < cautions.ENOUGH_DRAWS:
        warnings.append(
            f"only about {found.ess:.0f} independent draws of some probabilities "
            f"({cautions.ENOUGH_DRAWS} are wanted): interval ends are rough; run more draws."
        )
    found = settled(posterior, posterior.decided)
    if found is not None and found.many:
        warnings.append(
            f"of the probabilities that the prior decides (marked *) the chains disagree on "
            f"{found.many} (R-hat up to {found.rhat:.2f}): their intervals are rough."
        )
    return tuple(warnings)


def method_warnings(
    posterior: NetworkPosterior, releases: Sequence[NetworkRelease]
) -> tuple[str, ...]:
    """What the method can't tell."""
    content = releases[0].content
    if isinstance(content, TableDraws):
        many = len(content.draws)
        power = f"{float(content.temper):.3g}"
        how = (
            f"from a likelihood raised to the power {power}"
            if content.law == "posterior"
            else f"by scores that count {power} times, from {content.points} values of a split"
        )
        return (
            f"these are the {many} set(s) of tables that were released, drawn {how}, with every "
            f"split at least {content.omega:.3g} away from 0 and 1. They show no more of the "
            "posterior than that: intervals are quantiles of these draws, the prior is the "
            "holder's, and what truncation and tempering changed cannot be undone.",
        )
    known = {
        "plugin": "the noisy counts were used as if they were true: the privacy noise is ignored, "
        "and intervals are too narrow. Use method='joint'.",
        "per_table": "each node was fitted by itself: what other families say about the same "
        "variables was not used. method='joint' uses it.",
    }
    if posterior.info.method in known:
        return (known[posterior.info.method],)
    if isinstance(content, LearnedCounts):
        return (
            f"the graph was learned from the rows, for {float(content.choice):.3g} of epsilon"
            f"{' (its steps added up)' if content.is_gaussian else ''}; "
            "arrows say what predicts what, not what causes what. Intervals are for the network "
            "with this graph: where columns without an arrow depend on each other in other ways "
            "than through it, no interval shows that.",
        )
    return ()


def loop_warning(posterior: NetworkPosterior, loops: Loops) -> tuple[str, ...]:
    """Where the joint counts of parents are approximated, and how much hangs on it."""
    approximated = [*loops.approximated, *loops.free]
    share = max(float(posterior.privacy_share(node).mean()) for node in approximated)
    text = (
        f"the families of this network form loops: for {first_few(approximated)} (of "
        f"{len(posterior.nodes)} nodes) the number of data sets behind given counts of the parents "
        "is approximated. The error vanishes as the noise does; the noise makes up to "
        f"{100 * share:.0f}% of the variance in these tables"
    )
    if loops.free:
        text += f"; loops above {first_few(loops.free)} are too wide to be followed"
    return (text + ".",)


def prior_warnings(posterior: NetworkPosterior) -> tuple[str, ...]:
    """How many probabilities the prior decides, and in which tables most."""
    if posterior.prior is None or not posterior.info.noise_aware:
        return ()
    decided = {node: int(posterior.prior_decides(node).sum()) for node in posterior.nodes}
    many, total = sum(decided.values()), posterior.layout.cells
    if not many:
        return ()
    most = sorted((node for node in decided if decided[node]), key=lambda node: -decided[node])
    which = [f"{node} ({decided[node]} of {posterior.network.cells(node)})" for node in most]
    return (
        f"the prior decides {many} of {total} probabilities (marked *): their rows have too few "
        "records under this noise, or they are too small to be told from 0. Most in "
        f"{first_few(which)}.",
    )
