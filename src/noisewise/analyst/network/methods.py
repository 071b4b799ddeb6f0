"""Ways to the posterior of a network's tables, by name, and which one `auto` takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from noisewise.analyst.common_cautions import first_few
from noisewise.analyst.network import plugin
from noisewise.analyst.network.entropy import is_acyclic
from noisewise.analyst.network.layout import Floats, Layout
from noisewise.analyst.network.observed import Observed, check_plausible, observe
from noisewise.core.errors import RequestError
from noisewise.core.kinds.network.release import NetworkRelease

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


def _run_plugin(job: Job) -> Drawn:
    if not job.releases[0].has_counts:
        return Drawn(plugin.released_draws(job.releases[0], job.layout)[None], None, (), "draws")
    counts = plugin.clamped_counts(job.releases, job.layout)
    rng = np.random.default_rng(job.seed)
    theta = plugin.draw(rng, counts, job.alpha, job.layout, (job.chains, job.draws))
    return Drawn(theta, None, (), "clamped counts")


def _run_exact(job: Job) -> Drawn:
    from noisewise.analyst.network.exact import sample

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


def _run_joint(job: Job) -> Drawn:
    from noisewise.analyst.network import counts, records
    from noisewise.analyst.network.regions import make_problem

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


METHODS: dict[str, Callable[[Job], Drawn]] = {
    "plugin": _run_plugin,
    "exact": _run_exact,
    "joint": _run_joint,
}
NAMES = ("auto", *METHODS)


def choose(method: str, mechanisms: Sequence[str], has_counts: bool) -> tuple[str, str]:
    """The method's name and why it was taken, for Releases by these mechanisms.

    `has_counts` says whether they hold noisy counts, not drawn tables.
    """
    if method not in NAMES:
        raise RequestError(f"method: {method!r} is unknown; use {', '.join(NAMES)}")
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
