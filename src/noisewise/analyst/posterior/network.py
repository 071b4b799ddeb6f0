"""The posterior of a network's conditional tables, and questions to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.arguments import probability, seed_or_none, whole_number
from noisewise.analyst.network.layout import Floats, Layout
from noisewise.analyst.posterior.numbers import Summary, row_of
from noisewise.core.errors import RequestError
from noisewise.core.network import Network

if TYPE_CHECKING:
    import arviz as az

    from noisewise.analyst.network.classify import Classification
    from noisewise.analyst.network.queries import Answer

MAX_SYNTHETIC = 100_000_000


@dataclass(frozen=True)
class NetworkFit:
    """How a posterior came about.

    Parameters
    ----------
    method : {"joint", "exact", "plugin"}
    algorithm : str
        How the method was carried out, and where it is approximate.
    reason : str
        Why this method.
    noise_aware : bool
        Whether the posterior accounts for the privacy noise.
    mechanisms : tuple of str
        The mechanism behind each Release.
    n : tuple of int or None
        Rows behind each Release; None where the number is private.
    claims, digests : tuple of str
        Of each Release.
    warnings : tuple of str
        What a reader must know before trusting the numbers, in plain words.
    datasets, units : tuple of str
        Of each Release: the data set, and who is protected (`Schema.unit`).
    noise_scales : tuple of float
        Scale of the discrete Laplace noise of each Release; empty for draws of tables.
    concentration : tuple of float
        The smallest and the largest concentration of the prior; empty where it is the holder's.
    """

    method: str
    algorithm: str
    reason: str
    noise_aware: bool
    mechanisms: tuple[str, ...] = ()
    n: tuple[int | None, ...] = ()
    claims: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    noise_scales: tuple[float, ...] = ()
    concentration: tuple[float, ...] = ()


@dataclass(frozen=True)
class Table:
    """A conditional table: arrays of `network.shape(node)`, the node's own levels last."""

    mean: Floats
    sd: Floats
    lower: Floats
    upper: Floats
    level: float


@dataclass(frozen=True, eq=False)
class NetworkPosterior:
    """Draws of all conditional tables.

    Parameters
    ----------
    network : Network
    theta : array, shape (chains, draws, cells)
        Cells of all tables in the order of `Layout`; use `draws` to get a node's table.
    info : NetworkFit
    given_counts : array, shape (chains, draws, cells), optional
        E[theta | true counts] at each draw: its variance is the part that privacy caused.
    plugin : array, shape (cells,), optional
        Concentrations of the plug-in posterior of the same Releases, for comparison.
    sampler : mapping of str to float
    """

    network: Network
    theta: Floats
    info: NetworkFit
    given_counts: Floats | None = None
    plugin: Floats | None = None
    sampler: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def layout(self) -> Layout:
        """Where the tables are in `theta`."""
        return Layout(self.network)

    @cached_property
    def flat(self) -> Floats:
        """All draws of all chains, shape (draws, cells)."""
        return self.theta.reshape(-1, self.theta.shape[-1])

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes, in the schema's order."""
        return self.network.nodes

    # --- tables ----------------------------------------------------------------------------------

    def draws(self, node: str) -> Floats:
        """Draws of a node's table, shape (chains, draws, *network.shape(node))."""
        i = self._number(node)
        return self.layout.outward(i, self.theta[..., self.layout.part(i)])

    def table(self, node: str, level: float = 0.9) -> Table:
        """Mean, sd and central credible interval of every entry of a node's table."""
        level = probability("level", level)
        draws = self.draws(node)
        draws = draws.reshape(-1, *draws.shape[2:])
        lower, upper = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        sd = draws.std(axis=0, ddof=1) if len(draws) > 1 else np.full(lower.shape, np.nan)
        return Table(draws.mean(axis=0), sd, lower, upper, level)

    def plugin_table(self, node: str, level: float = 0.9) -> Table:
        """The same from the plug-in posterior, which ignores the privacy noise."""
        from scipy.stats import beta

        level = probability("level", level)
        if self.plugin is None:
            raise RequestError("plugin_table: the Release holds draws of tables, not counts")
        i = self._number(node)
        a = self.plugin[self.layout.part(i)].reshape(-1, int(self.layout.arity[i]))
        total = np.broadcast_to(a.sum(axis=1, keepdims=True), a.shape)
        law = beta(a, total - a)
        found = (law.mean(), law.std(), law.ppf((1 - level) / 2), law.ppf((1 + level) / 2))
        arrays = [self.layout.outward(i, np.asarray(x).reshape(-1)) for x in found]
        return Table(arrays[0], arrays[1], arrays[2], arrays[3], level)

    def privacy_share(self, node: str) -> Floats:
        """For every entry, the share of its posterior variance that privacy noise caused."""
        if self.given_counts is None:
            raise RequestError(
                f"privacy_share: method {self.info.method!r} does not model the noise, so it "
                "cannot tell what privacy cost; use method='joint'"
            )
        i = self._number(node)
        part = self.layout.part(i)
        hidden = self.given_counts[..., part].reshape(-1, part.stop - part.start).var(axis=0)
        total = np.maximum(self.flat[:, part].var(axis=0), 1e-300)
        return self.layout.outward(i, np.minimum(hidden / total, 1.0))

    def cell_name(self, cell: int) -> str:
        """A table's cell in words, such as ``"cough=yes | smoker=no"``."""
        i = int(np.searchsorted(self.layout.offsets, cell, side="right")) - 1
        family = self.layout.families[i]
        place = np.unravel_index(cell - self.layout.part(i).start, self.layout.shape(family))
        words = [
            f"{self.layout.nodes[j]}={self.network.levels(self.layout.nodes[j])[k]}"
            for j, k in zip(family, place, strict=True)
        ]
        return words[-1] + (f" | {', '.join(words[:-1])}" if len(words) > 1 else "")

    def summary(self, nodes: Sequence[str] | None = None, level: float = 0.9) -> Summary:
        """Mean, sd, central credible interval, R-hat and effective draws of every probability."""
        level = probability("level", level)
        rows = {}
        for node in self.nodes if nodes is None else nodes:
            part = self.layout.part(self._number(node))
            for cell in range(part.start, part.stop):
                rows[self.cell_name(cell)] = row_of(self.theta[:, :, cell], level)
        return Summary(rows, level)

    # --- questions -------------------------------------------------------------------------------

    def marginal(
        self,
        names: str | Sequence[str],
        given: Mapping[str, Any] | None = None,
        level: float = 0.9,
        seed: int | None = 0,
    ) -> Answer:
        """The joint distribution of some nodes, given levels of others, with its uncertainty.

        Parameters
        ----------
        names : str or sequence of str
        given : mapping of str to level, optional
        level : float
            Of the credible intervals.
        seed : int, optional
            Only used where exact summation is too large and rows are simulated.

        Returns
        -------
        Answer
            `mean`, `sd`, `lower`, `upper` are arrays with one axis a node; `draws` has the draws.
        """
        from noisewise.analyst.network.queries import ask, evidence_codes

        wanted = [names] if isinstance(names, str) else list(names)
        numbers = [self._number(name) for name in wanted]
        if len(set(numbers)) != len(numbers) or not numbers:
            raise RequestError(f"names: expected different nodes, got {wanted!r}")
        evidence = evidence_codes(self.layout, given or {}, taken=wanted)
        level, seed = probability("level", level), seed_or_none(seed)
        return ask(self.layout, self.flat, numbers, evidence, level, seed)

    def prob(
        self,
        event: Mapping[str, Any],
        given: Mapping[str, Any] | None = None,
        level: float = 0.9,
        seed: int | None = 0,
    ) -> Answer:
        """The probability that nodes have the levels in `event`, given others.

        Example: ``posterior.prob({"cough": "yes"}, given={"smoker": "no"})``. The result's `mean`,
        `sd`, `lower` and `upper` are numbers.
        """
        from noisewise.analyst.network.queries import evidence_codes

        if not isinstance(event, Mapping) or not event:
            raise RequestError('event: expected nodes with their levels, such as {"cough": "yes"}')
        codes = evidence_codes(self.layout, event, taken=(), where="event")
        answer = self.marginal(list(event), given, level, seed)
        return answer.at(tuple(codes[self.layout.number[name]] for name in event))

    def predict(self, target: str, new: Any, level: float = 0.9) -> Classification:
        """Classify new rows: probabilities of the target's levels, with their uncertainty.

        Parameters
        ----------
        target : str
            Any node.
        new : mapping or data frame
            Columns of levels. Nodes that are absent, or None in some rows, are summed out.
        level : float
            Of the intervals of the probabilities.
        """
        from noisewise.analyst.network.classify import classify, codes_of_rows

        number = self._number(target)
        codes = codes_of_rows(self.layout, new, skip=target)
        return classify(self.layout, self.flat, number, codes, probability("level", level))

    def synthetic(self, rows: int, seed: int | None = None) -> dict[str, NDArray[np.str_]]:
        """Synthetic rows: each from the network of a posterior draw taken at random.

        They carry the posterior's uncertainty and cost no privacy, because they are computed from
        Releases alone. They are no substitute for intervals: analysed as if they were data, they
        look more certain than they are.
        """
        from noisewise.analyst.network.queries import synthetic_codes

        rows = whole_number("rows", rows, 1, MAX_SYNTHETIC)
        codes = synthetic_codes(self.layout, self.flat, rows, seed_or_none(seed))
        return {
            name: np.array(self.network.levels(name))[codes[:, self.layout.number[name]]]
            for name in self.nodes
        }

    def _number(self, node: str) -> int:
        if node not in self.layout.number:
            raise RequestError(
                f"{node!r} is not a node; the nodes are {', '.join(self.nodes[:20])}"
            )
        return self.layout.number[node]

    # --- other programs --------------------------------------------------------------------------

    def to_arviz(self) -> az.InferenceData:
        """The draws as an ArviZ container: one variable a node, with levels as coordinates."""
        from noisewise.analyst.posterior.network_file import to_arviz

        return to_arviz(self)

    def to_pgmpy(self, draw: int | None = None) -> Any:
        """A pgmpy network with the posterior mean tables, or those of one draw."""
        from noisewise.analyst.network.export import to_pgmpy

        return to_pgmpy(self, draw)

    def save(self, path: str | Path) -> None:
        """Write a netCDF file that `load_network_posterior` and ArviZ read."""
        from noisewise.analyst.posterior.network_file import save

        save(self, path)

    def report(self, path: str | Path, *, level: float = 0.95, title: str | None = None) -> None:
        """Write one self-contained HTML page; see `noisewise.analyst.report`."""
        from noisewise.analyst.report import write_report

        write_report(self, path, level=level, title=title)
