"""The posterior of a network's conditional tables, and questions to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib import import_module
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.arguments import probability, seed_or_none, whole_number
from noisewise.analyst.network.layout import Floats, Layout, row_sums
from noisewise.analyst.posterior.base import Fit, FittedPosterior, rows_in_words, typed
from noisewise.analyst.posterior.file import Arrays, Groups, dataset, shaped
from noisewise.analyst.posterior.numbers import Summary, row_of
from noisewise.analyst.posterior.plots import AWARE, Interval
from noisewise.analyst.posterior.statements import statement_probability
from noisewise.core.document import MAX_SCALE
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds.network.graph import Network
from noisewise.core.schema import Schema

if TYPE_CHECKING:
    from noisewise.analyst.network.queries import Answer, Classification

MAX_SYNTHETIC = 100_000_000
MOST_ROWS = 40  # lines of margins, and of tables, that are shown on the screen
MARGIN_DRAWS = 1000  # from which margins are computed for the screen
PRIOR_DECIDES = 0.5  # share of the prior's variance that is left
HIDDEN = 2.0  # records that noise hides, in standard deviations of the noise on one count
MOST_CELLS = 80  # that fit into a picture
FORMER_METHODS = {"exact": "per_table"}  # what methods were called in earlier versions
_MOST_EDGES = 12
_PLUGIN = "plug-in (ignores the noise)"


@dataclass(frozen=True, kw_only=True)
class NetworkFit(Fit):
    """How the posterior of a network came about; see `Fit` for what all have."""

    algorithm: str  # how the method was carried out, and where it is approximate
    mechanisms: tuple[str, ...] = ()  # the mechanism behind each Release
    noise_scales: tuple[float, ...] = ()  # of each Release; empty for draws of tables
    # Whether that noise is Gaussian; empty, for no, in files of earlier versions
    gaussian: tuple[bool, ...] = ()
    # The smallest and the largest concentration of the prior; empty where it is the holder's
    concentration: tuple[float, ...] = ()
    # Whether concentrations were learned from the Releases; False in files of earlier versions
    learned: bool = False

    _EACH: ClassVar[tuple[str, ...]] = (*Fit._EACH, "mechanisms")
    _EACH_OR_NONE: ClassVar[tuple[str, ...]] = (*Fit._EACH_OR_NONE, "noise_scales", "gaussian")


@dataclass(frozen=True)
class Table:
    """A conditional table: arrays of `network.shape(node)`, the node's own levels last."""

    mean: Floats
    sd: Floats
    lower: Floats
    upper: Floats
    level: float


@dataclass(frozen=True, eq=False, repr=False)
class NetworkPosterior(FittedPosterior):
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
    prior : array, shape (3, cells), optional
        Mean and variance of every probability under the prior, a learned one included, and how many
        records its row is expected to have. None for draws of tables, and in files of earlier
        versions, some of which are without records.
    """

    kind, _what = "network", "a network"

    network: Network
    theta: Floats
    info: NetworkFit
    given_counts: Floats | None = None
    plugin: Floats | None = None
    sampler: Mapping[str, float] = field(default_factory=dict)
    prior: Floats | None = None

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
        i = self.layout.find(node)
        return self.layout.outward(i, self.theta[..., self.layout.part(i)])

    def table(self, node: str, level: float = 0.95) -> Table:
        """Mean, sd and central credible interval of every entry of a node's table."""
        level = probability("level", level)
        draws = self.draws(node)
        draws = draws.reshape(-1, *draws.shape[2:])
        lower, upper = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        sd = draws.std(axis=0, ddof=1) if len(draws) > 1 else np.full(lower.shape, np.nan)
        return Table(draws.mean(axis=0), sd, lower, upper, level)

    def plugin_table(self, node: str, level: float = 0.95) -> Table:
        """The same from the plug-in posterior, which ignores the privacy noise."""
        level = probability("level", level)
        if self.plugin is None:
            raise RequestError("plugin_table: the Release holds draws of tables, not counts")
        i = self.layout.find(node)
        law = self._plugin_law(self.layout.part(i))
        found = (law.mean(), law.std(), law.ppf((1 - level) / 2), law.ppf((1 + level) / 2))
        mean, sd, lower, upper = (self.layout.outward(i, np.asarray(x)) for x in found)
        return Table(mean, sd, lower, upper, level)

    def _plugin_law(self, cells: Any) -> Any:
        """Of some cells of all tables, under the plug-in posterior."""
        from scipy.stats import beta

        assert self.plugin is not None
        rest = row_sums(self.layout, self.plugin) - self.plugin
        return beta(self.plugin[cells], rest[cells])

    def privacy_share(self, node: str) -> Floats:
        """For every entry, the share of its posterior variance that privacy noise caused."""
        if self.given_counts is None:
            raise RequestError(
                f"privacy_share: method {self.info.method!r} does not model the noise, so it "
                "cannot tell what privacy cost; use method='joint'"
            )
        i = self.layout.find(node)
        part = self.layout.part(i)
        hidden = self.given_counts[..., part].reshape(-1, part.stop - part.start).var(axis=0)
        total = np.maximum(self.flat[:, part].var(axis=0), 1e-300)
        return self.layout.outward(i, np.minimum(hidden / total, 1.0))

    def prior_share(self, node: str) -> Floats:
        """For every entry, its posterior variance as a share of the prior's, at most 1.

        Near 1 the Releases say next to nothing about the entry: its interval is the prior's.
        """
        if self.prior is None:
            raise _without_prior("prior_share")
        i = self.layout.find(node)
        part = self.layout.part(i)
        share = self.flat[:, part].var(axis=0) / np.maximum(self.prior[1, part], 1e-300)
        return self.layout.outward(i, np.minimum(share, 1.0))

    def prior_decides(self, node: str) -> NDArray[np.bool_]:
        """For every entry whether the prior decides it.

        All entries of a row where more than half of the prior's variance of any of them is left,
        and every entry that has, with a probability of 95%, fewer records than two standard
        deviations of the noise on one count: the Releases can't tell it from 0, and how small it is
        the prior says. In a row with fewer records than that these are all of its entries.
        """
        i = self.layout.find(node)
        return self.layout.outward(i, self._prior_decides[self.layout.part(i)])

    @cached_property
    def _prior_decides(self) -> NDArray[np.bool_]:
        """The same for all cells, in the order of `theta`."""
        if self.prior is None:
            raise _without_prior("prior_decides")
        left = self.flat.var(axis=0) > PRIOR_DECIDES * self.prior[1]
        decided = row_sums(self.layout, left.astype(np.float64)) > 0
        if len(self.prior) > 2:
            scales = np.array(self.info.noise_scales)
            gaussian = np.array(self.info.gaussian or (False,) * len(scales))
            variance = float(np.sum(scales**2 * np.where(gaussian, 1, 2)))
            records = self.prior[2] * np.quantile(self.flat, 0.95, axis=0)
            decided |= records < HIDDEN * np.sqrt(variance)
        return np.asarray(decided)

    @property
    def decided(self) -> NDArray[np.bool_]:
        """`prior_decides` for all cells, in the order of `theta`; none where it isn't known."""
        if self.prior is None or not self.info.noise_aware:
            return np.zeros(self.layout.cells, dtype=np.bool_)
        return self._prior_decides

    def cell_name(self, cell: int) -> str:
        """A table's cell in words, such as ``"cough=yes | smoker=no"``."""
        i = int(np.searchsorted(self.layout.offsets, cell, side="right")) - 1
        family = self.layout.families[i]
        place = np.unravel_index(cell - self.layout.part(i).start, self.layout.shape(family))
        names = [self.layout.nodes[j] for j in family]
        words = [f"{n}={self.network.levels(n)[k]}" for n, k in zip(names, place, strict=True)]
        return words[-1] + (f" | {', '.join(words[:-1])}" if len(words) > 1 else "")

    @cached_property
    def _cell(self) -> dict[str, int]:
        """Where every probability is, by its name in `summary`."""
        return {self.cell_name(cell): cell for cell in range(self.layout.cells)}

    def _cells(self, node: str) -> range:
        part = self.layout.part(self.layout.find(node))
        return range(part.start, part.stop)

    def summary(self, level: float = 0.95, nodes: Sequence[str] | None = None) -> Summary:
        """Mean, sd, central credible interval, R-hat and effective draws of every probability."""
        level = probability("level", level)
        cells = [cell for node in nodes or self.nodes for cell in self._cells(node)]
        rows = {self.cell_name(cell): row_of(self.theta[:, :, cell], level) for cell in cells}
        return Summary(rows, level)

    def parameter_draws(self) -> dict[str, Floats]:
        """Draws of all table entries by name, each of shape (chains, draws)."""
        return {name: self.theta[:, :, cell] for name, cell in self._cell.items()}

    def _short_summary(self) -> Summary:
        """As many tables as fit on a screen."""
        return self.summary(nodes=self._first_nodes(MOST_ROWS) or [self.nodes[0]])

    # --- questions -------------------------------------------------------------------------------

    def marginal(
        self,
        names: str | Sequence[str],
        given: Mapping[str, Any] | None = None,
        level: float = 0.95,
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
        numbers = [self.layout.find(name) for name in wanted]
        if len(set(numbers)) != len(numbers) or not numbers:
            raise RequestError(f"names: expected different nodes, got {wanted!r}")
        evidence = evidence_codes(self.layout, given or {}, taken=wanted)
        level, seed = probability("level", level), seed_or_none(seed)
        return ask(self.layout, self.flat, numbers, evidence, level, seed)

    def prob(
        self,
        statement: str | Mapping[str, Any],
        given: Mapping[str, Any] | None = None,
        level: float = 0.95,
        seed: int | None = 0,
    ) -> Answer | float:
        """How probable an event is, or a statement about its probability.

        Parameters
        ----------
        statement : str or mapping
            ``"cough=yes | smoker=no"``, the same in ``"P(...)"``, or ``{"cough": "yes"}`` with
            `given` apart: the answer has `mean`, `sd`, `lower` and `upper`, since the probability
            itself is uncertain.
            ``"cough=yes | smoker=no > 0.5"``: how sure it is that this probability is above a half,
            a number. With events between backticks, a statement about several probabilities:
            ``"`cough=yes | smoker=yes` > 2 * `cough=yes | smoker=no`"``.
        given : mapping of str to level, optional
        level : float
        seed : int, optional
            Only used where exact summation is too large and rows are simulated.
        """
        if not isinstance(statement, str):
            return self._event(statement, given, level, seed)
        if given is not None:
            raise RequestError("given: the statement says itself what is given, after a |")
        if "`" in statement:
            return statement_probability(
                statement, (), lambda text: self._event(*_parsed(text), level, seed).draws, bool
            )
        event, condition = _parsed(statement)
        if self._knows(event) and self._knows(condition):
            return self._event(event, condition, level, seed)
        match = re.fullmatch(r"(.+?)\s*(<=|>=|<|>)\s*([-+.\deE]+)\s*", statement)
        if match is None:
            if any(name.startswith("P(") for name in event):
                raise _unreadable(statement)
            return self._event(event, condition, level, seed)
        draws = self._event(*_parsed(match[1]), level, seed).draws
        return statement_probability(f"p {match[2]} {match[3]}", ["p"], lambda _: draws)

    def _knows(self, levels: Mapping[str, str]) -> bool:
        return all(
            name in self.layout.number and level in self.network.levels(name)
            for name, level in levels.items()
        )

    def _event(self, event: Any, given: Any, level: float, seed: int | None) -> Answer:
        from noisewise.analyst.network.queries import evidence_codes

        if not isinstance(event, Mapping) or not event:
            raise RequestError('event: expected nodes with their levels, such as {"cough": "yes"}')
        codes = evidence_codes(self.layout, event, taken=(), where="event")
        answer = self.marginal(list(event), given, level, seed)
        return answer.at(tuple(codes[self.layout.number[name]] for name in event))

    def predict(
        self, new: Any, level: float = 0.95, *, seed: int | None = None, target: str | None = None
    ) -> Classification:
        """Classify new rows: probabilities of the target's levels, with their uncertainty.

        Parameters
        ----------
        new : mapping or data frame
            Columns of levels. Nodes that are absent, or None in some rows, are summed out.
        level : float
            Of the intervals of the probabilities.
        seed : int, optional
            Nothing is simulated here; every kind takes it.
        target : str
            Any node.
        """
        from noisewise.analyst.network.queries import classify, codes_of_rows

        if target is None:
            shown = ", ".join(self.nodes[:20])
            raise RequestError(f"target: name the node to classify, one of {shown}")
        number = self.layout.find(target)
        codes = codes_of_rows(self.layout, new, skip=target)
        return classify(self.layout, self.flat, number, codes, probability("level", level))

    def synthetic(self, rows: int, seed: int | None = None) -> dict[str, NDArray[np.str_]]:
        """Synthetic rows: each from the network of a posterior draw taken at random.

        They carry the posterior's uncertainty and cost no privacy, because they are computed from
        Releases alone. They are no substitute for intervals: analysed as if they were data, they
        look more certain than they are. `synthetic_sets` makes sets that can be analysed.
        """
        from noisewise.analyst.network.queries import synthetic_codes

        rows = whole_number("rows", rows, 1, MAX_SYNTHETIC)
        return self._named(synthetic_codes(self.layout, self.flat, rows, seed_or_none(seed)))

    def synthetic_sets(
        self, sets: int = 20, rows: int | None = None, seed: int | None = None
    ) -> Iterator[dict[str, NDArray[np.str_]]]:
        """Synthetic data sets, each from the network of one posterior draw.

        Analyse each of them in the same way, and let `noisewise.pool` combine the estimates and
        their variances: intervals then hold sampling error and privacy noise. No privacy is spent.

        Parameters
        ----------
        sets : int
        rows : int, optional
            Of each set. Default: as many as there were, where that is public.
        seed : int, optional
        """
        from noisewise.analyst.network.queries import synthetic_codes

        sets = whole_number("sets", sets, 2, len(self.flat))
        rows = whole_number("rows", self.rows_behind() if rows is None else rows, 1, MAX_SYNTHETIC)
        first, *streams = np.random.SeedSequence(seed_or_none(seed)).spawn(sets + 1)
        picked = np.random.default_rng(first).choice(len(self.flat), size=sets, replace=False)
        for draw, stream in zip(picked, streams, strict=True):
            yield self._named(synthetic_codes(self.layout, self.flat[draw][None], rows, stream))

    def rows_behind(self) -> int:
        """How many rows the Releases are of, where that is public."""
        if None in self.info.n:
            raise RequestError("rows: the number of rows is private; say how many a set shall have")
        return sum(n for n in self.info.n if n is not None)

    def unlinked(self, columns: Sequence[str]) -> list[tuple[str, str]]:
        """Pairs of these columns without an arrow between them."""
        for name in columns:
            self.layout.find(name)
        edges = {frozenset(edge) for edge in self.network.edges}
        return [pair for pair in combinations(columns, 2) if frozenset(pair) not in edges]

    def _named(self, codes: NDArray[np.int64]) -> dict[str, NDArray[np.str_]]:
        """Columns of levels, from codes of shape (rows, nodes by number)."""
        return {
            name: np.array(self.network.levels(name))[codes[:, self.layout.number[name]]]
            for name in self.nodes
        }

    # --- for people ------------------------------------------------------------------------------

    def describe(self, level: float = 0.95, nodes: Sequence[str] | None = None) -> str:
        """Where the tables come from, how common levels are, and tables as far as they fit.

        Parameters
        ----------
        level : float
        nodes : sequence of str, optional
            Whose margins and tables to show. Default: as many as fit on a screen.
        """
        info, edges = self.info, [f"{a}>{b}" for a, b in self.network.edges]
        shown = ", ".join(edges[:_MOST_EDGES]) + (" ..." if len(edges) > _MOST_EDGES else "")
        lines = [f"Network of {len(self.nodes)} nodes: {shown}"]
        lines.append(f"Method {info.method} ({info.algorithm}): {info.reason}")
        for n, claim, mechanism in zip(info.n, info.claims, info.mechanisms, strict=True):
            how = "with a learned graph" if mechanism == "learn" else f"by {mechanism}"
            lines.append(f"Release of {rows_in_words(n)} {how} at {claim}.")
        lines.extend(self._margin_lines(level, nodes))
        tables = self._first_nodes(MOST_ROWS) if nodes is None else list(nodes)
        cells = [cell for node in tables for cell in self._cells(node)]
        if cells:
            rows = {
                self.cell_name(c) + " *" * bool(self.decided[c]): row_of(self.theta[..., c], level)
                for c in cells[:MOST_ROWS]
            }
            lines.extend(["Tables:", str(Summary(rows, level))])
        if self.decided[cells[:MOST_ROWS]].any():
            lines.append("* The prior decides: too few records under this noise.")
        left = len(self.nodes) - len(tables)
        if len(cells) > MOST_ROWS:
            lines.append(f"... and {len(cells) - MOST_ROWS} more entries; --json shows all.")
        elif nodes is None and left:
            lines.append(
                f"Tables of {left} {'more ' if cells else ''}nodes: --node NAME shows one, --json "
                "all of them."
            )
        return "\n".join(lines)

    def _margin_lines(self, level: float, nodes: Sequence[str] | None) -> list[str]:
        """How common every level of these nodes is, or of as many as fit."""
        from noisewise.analyst.network.queries import MAX_CHEAP, Summation, ask

        wanted, used = [], 0
        for node in self.nodes if nodes is None else nodes:
            number = self.layout.find(node)
            used += self.network.arity(node)
            if used > MOST_ROWS:
                break
            if Summation(self.layout, [number]).largest <= MAX_CHEAP:
                wanted.append(number)
        if not wanted:
            return []
        some = self.flat[:: max(1, len(self.flat) // MARGIN_DRAWS)]
        rows: list[tuple[str, Any]] = []
        for i in wanted:
            answer, node = ask(self.layout, some, [i], {}, level, 0), self.layout.nodes[i]
            found = zip(answer.mean, answer.lower, answer.upper, strict=True)
            names = (f"{node}={name}" for name in self.network.levels(node))
            rows += zip(names, found, strict=True)
        width = max(9, *(len(name) for name, _ in rows))
        percent = f"{100 * level:g}%"
        lines = [f"{'':{width}} {'probability':>12} {percent + ' interval':^25}"]
        for name, numbers in rows:
            lines.append(" ".join([f"{name:{width}}", *(f"{x:>12.4f}" for x in numbers)]))
        left = (len(self.nodes) if nodes is None else len(nodes)) - len(wanted)
        if left:
            lines.append(f"... and {left} more nodes; --node NAME shows one.")
        return ["How common each level is:", *lines]

    def _first_nodes(self, most: int) -> list[str]:
        """As many nodes as have together at most so many table entries."""
        sizes = np.cumsum([self.network.cells(node) for node in self.nodes])
        return list(self.nodes[: int(np.searchsorted(sizes, most, side="right"))])

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """All tables with where they come from, as plain data."""
        info, tables = self.info, {}
        for node in self.nodes:
            found = vars(self.table(node, level))
            numbers = {name: found[name].tolist() for name in ("mean", "sd", "lower", "upper")}
            parents, levels = list(self.network.parents[node]), list(self.network.levels(node))
            tables[node] = {"parents": parents, "levels": levels, **numbers}
            if self.prior is not None:
                tables[node]["prior_share"] = self.prior_share(node).tolist()
        own = {"algorithm": info.algorithm, "prior_learned": info.learned}
        own["mechanisms"] = list(info.mechanisms)
        return {"tables": tables, "level": level, **self._origin(), **own}

    @property
    def heading(self) -> str:
        """How large it is, and at what privacy its data were published."""
        return f"Tables of a network of {len(self.nodes)} nodes{self.info.published_at}"

    @property
    def is_probability(self) -> bool:
        """Tables hold probabilities."""
        return True

    def shown(self, names: Sequence[str] | None = None) -> list[str]:
        """Entries of the tables of these nodes; by default of as many as fit."""
        nodes = self._first_nodes(MOST_CELLS) if names is None else list(names)
        found = [self.cell_name(cell) for node in nodes for cell in self._cells(node)]
        if not found or len(found) > MOST_CELLS:
            raise RequestError(
                f"names: a picture has at most {MOST_CELLS} table entries; name fewer nodes, of "
                f"{', '.join(self.nodes[:20])}"
            )
        return found

    def bars(self, name: str, level: float) -> dict[str, Interval]:
        """Intervals of one table entry, the plug-in posterior's first."""
        # Tables show means, as the plug-in posterior does.
        [(label, bar)] = super().bars(name, level).items()
        own = {label: bar._replace(centre=float(self.flat[:, self._cell[name]].mean()))}
        if self.plugin is None or not self.info.noise_aware:
            return own
        law = self._plugin_law(self._cell[name])
        low, high = law.ppf([(1 - level) / 2, (1 + level) / 2])
        return {_PLUGIN: Interval(float(low), float(law.mean()), float(high)), **own}

    def curves(self, name: str) -> dict[str, Floats]:
        """Draws of one table entry."""
        return {AWARE if self.info.noise_aware else _PLUGIN: self.flat[:, self._cell[name]]}

    # --- other programs and files ----------------------------------------------------------------

    def to_pgmpy(self, draw: int | None = None) -> Any:
        """A pgmpy network with the posterior mean tables, or those of one draw.

        The mean tables lose the uncertainty; to keep it, export several draws and use each.
        """
        try:
            discrete: Any = import_module("pgmpy.factors.discrete")
            models: Any = import_module("pgmpy.models")
        except ImportError:
            raise RequestError(
                "to_pgmpy: pgmpy is not installed; install it with 'pip install pgmpy'"
            ) from None
        network = self.network
        # The class got a new name in pgmpy 1.0.
        kind = getattr(models, "DiscreteBayesianNetwork", None) or models.BayesianNetwork
        model = kind()
        model.add_nodes_from(network.nodes)
        model.add_edges_from(network.edges)
        cells = self.flat.mean(axis=0)
        if draw is not None:
            cells = self.flat[whole_number("draw", draw, 0, len(self.flat) - 1)]
        for node in network.nodes:
            i, parents, arity = self.layout.number[node], network.parents[node], network.arity(node)
            values = self.layout.outward(i, cells[self.layout.part(i)]).reshape(-1, arity).T
            names = {name: list(network.levels(name)) for name in network.family(node)}
            given = [network.arity(name) for name in parents] or None
            cpd = discrete.TabularCPD(node, arity, values, list(parents) or None, given, names)
            model.add_cpds(cpd)
        model.check_model()
        return model

    def groups(self, *, auxiliary: bool = True) -> Groups:
        """The draws: one variable a node, with levels as coordinates.

        Without `auxiliary` there is nothing besides: no E[theta | counts], no plug-in posterior and
        no prior.
        """
        network = self.network
        # Names of dimensions may not be names of variables, and netCDF doesn't take every letter.
        table = {node: f"table_{k}" for k, node in enumerate(network.nodes)}
        axis = {node: f"level_{k}" for k, node in enumerate(network.nodes)}
        drawn = dataset(
            {table[node]: self.draws(node) for node in network.nodes},
            {axis[node]: list(network.levels(node)) for node in network.nodes},
            {table[node]: [axis[n] for n in network.family(node)] for node in network.nodes},
            labels={table[node]: node for node in network.nodes},
        )
        groups = Groups(posterior=drawn)
        for name, axes in (("given_counts", 0), ("plugin", 2), ("prior", 1)):
            values = getattr(self, name)
            if auxiliary and values is not None:
                groups[name] = dataset({name: values[(None,) * axes]})
        return groups

    def document(self) -> dict[str, Any]:
        """The network and how it was fitted."""
        return {
            "schema": self.network.schema.to_dict(),
            "parents": self.network.to_json(),
            "info": asdict(self.info),
            "sampler": dict(self.sampler),
        }

    @classmethod
    def from_groups(cls, data: Arrays, document: dict[str, Any]) -> NetworkPosterior:
        """Read back what `groups` and `document` gave."""
        network = Network.make(Schema.from_dict(document["schema"]), document["parents"])
        layout = Layout(network)
        parts = {}
        for k, node in enumerate(network.nodes):
            shape = (None, None, *network.shape(node))
            values = shaped(data["posterior"].get(f"table_{k}"), *shape)
            i = layout.number[node]
            axes = [0, 1, *(2 + a for a in layout.axes(i))]
            parts[i] = np.transpose(values, axes).reshape(*values.shape[:2], -1)
        theta = np.concatenate([parts[i] for i in range(len(layout.nodes))], axis=-1)
        info = NetworkFit.read(document["info"])
        if not all(1 / 512 <= scale <= MAX_SCALE for scale in info.noise_scales):
            raise ReleaseError("noise_scales: not as `fit` writes them; the file was edited")
        extra = {
            name: shaped(data[name].get(name), *shape, theta.shape[-1])
            for name, shape in (
                ("given_counts", theta.shape[:2]),
                ("plugin", (1, 1)),
                ("prior", (1, None)),
            )
            if name in data
        }
        return cls(
            network,
            theta,
            replace(info, method=FORMER_METHODS.get(info.method, info.method)),
            extra.get("given_counts"),
            extra["plugin"][0, 0] if "plugin" in extra else None,
            typed(document["sampler"], Mapping[str, float], "sampler"),
            extra["prior"][0] if "prior" in extra else None,
        )


def _parsed(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Levels of nodes before and after the bar of ``"cough=yes | smoker=no, region=south"``.

    It may stand in ``P(...)``.
    """
    inside = re.fullmatch(r"\s*P\s*\((.*)\)\s*", text)
    parts = (text if inside is None else inside[1]).split("|")
    found: list[dict[str, str]] = []
    for part in parts:
        pairs = [piece.partition("=") for piece in part.split(",")]
        names = [name.strip() for name, _, _ in pairs]
        complete = all(equals and name.strip() and level.strip() for name, equals, level in pairs)
        if len(parts) > 2 or not complete or len(set(names)) < len(names):
            raise _unreadable(text)
        found.append({name.strip(): level.strip() for name, _, level in pairs})
    return found[0], found[1] if len(found) > 1 else {}


def _without_prior(what: str) -> RequestError:
    return RequestError(
        f"{what}: this posterior does not carry its prior (it holds draws of tables, or an earlier "
        "version wrote it); fit the Release again"
    )


def _unreadable(text: str) -> RequestError:
    return RequestError(
        f"prob: {text!r} is not of the form 'P(cough=yes | smoker=no)', nor followed by '> 0.5'; "
        'names with a comma or a bar go in a mapping, {"cough": "yes"}'
    )
