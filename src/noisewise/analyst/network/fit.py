"""From network Releases to the posterior of all conditional tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from noisewise._progress import progress_bar
from noisewise.analyst.arguments import chains_and_draws, seed_or_none
from noisewise.analyst.common_cautions import repetition_warnings
from noisewise.analyst.network import plugin
from noisewise.analyst.network.cautions import convergence_warnings, method_warnings
from noisewise.analyst.network.layout import Layout
from noisewise.analyst.network.methods import METHODS, Job, choose
from noisewise.analyst.network.prior import Prior, concentrations
from noisewise.analyst.posterior.network import NetworkFit, NetworkPosterior
from noisewise.core.errors import RequestError
from noisewise.core.network import Network
from noisewise.core.network_release import NetworkRelease

MAX_DRAWS = 100_000
MAX_NUMBERS = 1 << 27  # table cells times draws that are kept


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
    name, reason = choose(method, [release.mechanism for release in given], given[0].has_counts)
    with progress_bar(f"Posterior by {name}", unit="steps", show=progress) as tell:
        job = Job(given, layout, alpha, chains, draws, seed_or_none(seed), tell)
        drawn = METHODS[name](job)
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
