"""Probabilities under a network, draw by draw: variable elimination, or weighted rows.

Nodes that neither are asked about or given nor have such descendants are dropped. The others are
summed out one by one, the cheapest first. Where a table on the way would be too large, rows are
simulated with the given nodes held fixed and weighted by the probability of what is given.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise._compiled import compiled_in_order, compiled_inline
from noisewise.analyst.network.layout import Floats, Integers, Layout, strides_of
from noisewise.core.errors import RequestError
from noisewise.core.schema import level_text

MAX_TABLE = 1 << 18  # cells of a table on the way, for one draw
BATCH = 1 << 23  # cells of such tables in memory
WEIGHTED_ROWS = 2000  # a draw, where summing is too large
MAX_ANSWER = 1 << 16
MAX_CHEAP = 1 << 12  # where a summation over a thousand draws takes no time to speak of


@dataclass(frozen=True, eq=False)
class Answer:
    """Probabilities with their posterior uncertainty.

    Parameters
    ----------
    mean, sd, lower, upper : array, one axis a node that was asked about (or numbers)
    level : float
    draws : array, shape (draws, ...)
        The probabilities under every posterior draw.
    simulated : bool
        Whether rows were simulated, which adds Monte Carlo error to every draw.
    """

    mean: Floats
    sd: Floats
    lower: Floats
    upper: Floats
    level: float
    draws: Floats
    simulated: bool = False

    def at(self, place: tuple[int, ...]) -> Answer:
        """One entry of it."""
        index: Any = (slice(None), *place)
        return _answer(self.draws[index], self.level, self.simulated)

    def __float__(self) -> float:
        return float(self.mean)

    def __str__(self) -> str:
        if self.mean.ndim:
            return f"mean {np.array2string(self.mean, precision=4)}"
        percent = f"{100 * self.level:g}%"
        return f"{self.mean:.4f} ({percent} interval {self.lower:.4f} to {self.upper:.4f})"


def _answer(draws: Floats, level: float, simulated: bool) -> Answer:
    ends = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    mean, sd, lower, upper = map(np.asarray, (draws.mean(axis=0), draws.std(axis=0), *ends))
    return Answer(mean, sd, lower, upper, level, draws, simulated)


def ask(
    layout: Layout,
    theta: Floats,
    wanted: Sequence[int],
    evidence: Mapping[int, int],
    level: float,
    seed: int | None,
) -> Answer:
    """P(wanted | evidence) under every draw; `theta` has shape (draws, cells)."""
    if layout.size(wanted) > MAX_ANSWER:
        raise RequestError(
            f"names: these nodes have {layout.size(wanted):,} joint levels; ask about fewer"
        )
    joint = joint_probabilities(layout, theta, wanted, evidence)
    simulated = joint is None
    if joint is None:
        joint = _weighted_rows(layout, theta, wanted, evidence, seed)
    total = joint.sum(axis=tuple(range(1, joint.ndim)), keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        draws = np.where(total > 0, joint / total, 1.0 / layout.size(wanted))
    return _answer(draws, level, simulated)


# --- elimination -----------------------------------------------------------------------------


def relevant(layout: Layout, nodes: set[int]) -> list[int]:
    """These nodes and their ancestors, by number."""
    needed = set(nodes)
    for i in range(len(layout.nodes) - 1, -1, -1):
        if i in needed:
            needed |= set(layout.parents[i])
    return sorted(needed)


def _order(layout: Layout, scopes: list[set[int]], hidden: set[int]) -> tuple[list[int], int]:
    """An elimination order, the cheapest first, and the size of the largest table on the way.

    It ends where a table is too large for anybody.
    """
    near: defaultdict[int, set[int]] = defaultdict(set)  # with which nodes one shares a table
    for scope in scopes:
        for v in scope:
            near[v] |= scope
    cost = {v: layout.size(near[v]) for v in sorted(hidden)}
    order, largest = [], 1
    while cost and largest <= MAX_TABLE:
        best = min(cost, key=cost.__getitem__)
        largest = max(largest, cost.pop(best))
        order.append(best)
        merged = near.pop(best) - {best}
        for v in merged:
            near[v] = (near[v] | merged) - {best}
            if v in cost:
                cost[v] = layout.size(near[v])
    return order, max(largest, layout.size(set().union(*near.values())))


class Summation:
    """How to sum everything out but some nodes, with the codes of others given.

    `largest` is what it costs: cells of the largest table on the way, for one draw.
    """

    def __init__(
        self, layout: Layout, wanted: Sequence[int], evidence: Mapping[int, int] | None = None
    ) -> None:
        self.layout, self.wanted, self.evidence = layout, list(wanted), dict(evidence or {})
        self._nodes = relevant(layout, {*wanted, *self.evidence})
        scopes = [set(layout.families[i]) - set(self.evidence) for i in self._nodes]
        hidden = set(self._nodes) - set(wanted) - set(self.evidence)
        self._order, self.largest = _order(layout, scopes, hidden)

    def of(self, theta: Floats) -> Floats:
        """P(wanted, evidence) under every draw of `theta`, one axis a wanted node."""
        layout = self.layout
        factors: list[tuple[list[int], Floats]] = []
        for i in self._nodes:
            family = layout.families[i]
            table = theta[:, layout.part(i)].reshape(-1, *layout.shape(family))
            place = tuple(self.evidence.get(j, slice(None)) for j in family)
            left = [j for j in family if j not in self.evidence]
            factors.append((left, table[(slice(None), *place)]))
        for v in self._order:
            used = [f for f in factors if v in f[0]]
            keep = sorted(set().union(*(f[0] for f in used)) - {v})
            factors = [f for f in factors if v not in f[0]] + [(keep, _product(used, keep))]
        return _product(factors, self.wanted)


def joint_probabilities(
    layout: Layout, theta: Floats, wanted: Sequence[int], evidence: Mapping[int, int]
) -> Floats | None:
    """P(wanted, evidence) under every draw, one axis a wanted node; None where it's too large."""
    summation = Summation(layout, wanted, evidence)
    if summation.largest > MAX_TABLE:
        return None
    batch = max(1, BATCH // max(summation.largest, layout.cells))
    parts = [summation.of(theta[k : k + batch]) for k in range(0, len(theta), batch)]
    return np.concatenate(parts)


def _product(factors: list[tuple[list[int], Floats]], keep: list[int]) -> Floats:
    """Multiply, and sum out what isn't kept. Axis 0 is the draw."""
    scope, table = factors[0]
    for k, (other, values) in enumerate(factors[1:], 2):
        union = keep if k == len(factors) else sorted({*scope, *other})
        table = _einsum(scope, table, other, values, union)
        scope = union
    if len(factors) == 1:
        table = _einsum(scope, table, [], np.ones(len(table)), keep)
    return table


def _einsum(a: list[int], x: Floats, b: list[int], y: Floats, out: list[int]) -> Floats:
    """`numpy.einsum` knows few letters, so nodes are renumbered for every call."""
    number = {v: k + 1 for k, v in enumerate(sorted({*a, *b}))}
    lists = [[0, *(number[v] for v in names)] for names in (a, b, out)]
    einsum: Any = np.einsum  # its stubs don't know lists of axes
    return np.asarray(einsum(x, lists[0], y, lists[1], lists[2]))


# --- rows ------------------------------------------------------------------------------------


def places(layout: Layout) -> tuple[NDArray[np.int64], ...]:
    """Start, width, nodes and strides of all families, and arities, for compiled code."""
    d = len(layout.nodes)
    most = max(len(family) for family in layout.families)
    nodes = np.zeros((d, most), dtype=np.int64)
    stride = np.zeros_like(nodes)
    for i, family in enumerate(layout.families):
        nodes[i, : len(family)] = family
        stride[i, : len(family)] = layout.strides[i]
    width = np.array([len(family) for family in layout.families], dtype=np.int64)
    return layout.offsets, width, nodes, stride, layout.arity


def _weighted_rows(
    layout: Layout,
    theta: Floats,
    wanted: Sequence[int],
    evidence: Mapping[int, int],
    seed: int | None,
) -> Floats:
    fixed = np.full(len(layout.nodes), -1, dtype=np.int64)
    for i, code in evidence.items():
        fixed[i] = code
    rng = np.random.default_rng(seed)
    shape = layout.shape(wanted)
    out = np.zeros((len(theta), layout.size(wanted)))
    asked = np.array(wanted, dtype=np.int64)
    steps = np.array(strides_of(shape), dtype=np.int64)
    weigh_rows(rng, theta, *places(layout), fixed, asked, steps, WEIGHTED_ROWS, out)
    return out.reshape(-1, *shape)


def synthetic_codes(
    layout: Layout, theta: Floats, rows: int, seed: int | np.random.SeedSequence | None
) -> Integers:
    """Codes of synthetic rows, shape (rows, nodes by number)."""
    rng = np.random.default_rng(seed)
    out = np.empty((rows, len(layout.nodes)), dtype=np.int64)
    synthetic_rows(rng, theta, *places(layout), out)
    return out


# --- compiled simulation of rows -------------------------------------------------------------


@compiled_inline
def draw_level(rng, theta, cell, arity):  # type: ignore[no-untyped-def]
    """A level, from the row of a table that begins at `cell`."""
    u = rng.random()
    level = 0
    while level < arity - 1:
        u -= theta[cell + level]
        if u < 0.0:
            break
        level += 1
    return level


@compiled_in_order
def synthetic_rows(rng, theta, start, width, nodes, stride, arity, out):  # type: ignore[no-untyped-def]
    """Rows, each from a draw taken at random; theta has shape (draws, cells)."""
    for r in range(out.shape[0]):
        tables = theta[int(rng.random() * theta.shape[0])]
        for i in range(out.shape[1]):
            cell = start[i]
            for j in range(width[i] - 1):
                cell += out[r, nodes[i, j]] * stride[i, j]
            out[r, i] = draw_level(rng, tables, cell, arity[i])


@compiled_in_order
def weigh_rows(  # type: ignore[no-untyped-def]
    rng, theta, start, width, nodes, stride, arity, fixed, wanted, steps, rows, out
):
    """Weighted frequencies of the wanted nodes' levels under every draw, given `fixed` levels."""
    d = width.size
    row = np.zeros(d, dtype=np.int64)
    for t in range(theta.shape[0]):
        for _ in range(rows):
            weight = 1.0
            for i in range(d):
                cell = start[i]
                for j in range(width[i] - 1):
                    cell += row[nodes[i, j]] * stride[i, j]
                if fixed[i] >= 0:
                    row[i] = fixed[i]
                    weight *= theta[t, cell + fixed[i]]
                else:
                    row[i] = draw_level(rng, theta[t], cell, arity[i])
            place = 0
            for j in range(wanted.size):
                place += row[wanted[j]] * steps[j]
            out[t, place] += weight / rows


# --- classification of new rows: any node given the others, with its uncertainty ---------------


MISSING = -1


@dataclass(frozen=True, eq=False)
class Classification:
    """Probabilities of the target's levels for new rows.

    Parameters
    ----------
    levels : tuple of str
    probability : array, shape (rows, levels)
        Of a new row's level: E[p(level, row)] / E[p(row)] over the posterior.
    sd, lower, upper : array, shape (rows, levels)
        Of p(level | row) over the posterior: how well the Release determines it.
    level : float
    target : str
    """

    levels: tuple[str, ...]
    probability: Floats
    sd: Floats
    lower: Floats
    upper: Floats
    level: float
    target: str

    @property
    def most_likely(self) -> NDArray[np.str_]:
        """The most likely level of every row."""
        return np.asarray(np.array(self.levels)[self.probability.argmax(axis=1)])

    def lines(self) -> list[list[str]]:
        """A head and one line a row, for a CSV file: the most likely level, and all of them."""
        parts = {"p": self.probability, "lower": self.lower, "upper": self.upper}
        head = [f"{part}({name})" for name in self.levels for part in parts]
        numbers = np.stack(list(parts.values()), axis=2).reshape(len(self.probability), -1)
        found = zip(self.most_likely.tolist(), numbers.tolist(), strict=True)
        return [[self.target, *head], *([b, *(f"{x:.6g}" for x in row)] for b, row in found)]


def blanket(layout: Layout, target: int) -> set[int]:
    """The nodes that decide about the target once they are known."""
    nodes = set(layout.parents[target])
    for family in layout.families:
        if target in family:
            nodes |= set(family)
    return nodes - {target}


def classify(
    layout: Layout, theta: Floats, target: int, codes: NDArray[np.int64], level: float
) -> Classification:
    """Probabilities for rows of codes, -1 where a value is missing; theta is (draws, cells)."""
    around = sorted(blanket(layout, target))
    complete = (codes[:, around] != MISSING).all() if around else True
    used = around if complete else [i for i in range(codes.shape[1]) if i != target]
    unique, back = np.unique(codes[:, used], axis=0, return_inverse=True)
    rows = np.full((len(unique), codes.shape[1]), MISSING, dtype=np.int64)
    rows[:, used] = unique
    r = int(layout.arity[target])
    found = [np.empty((len(rows), r)) for _ in range(4)]
    batch = max(1, BATCH // (len(theta) * r))
    for first in range(0, len(rows), batch):
        part = slice(first, first + batch)
        joint = (
            _from_blanket(layout, theta, target, rows[part])
            if complete
            else _by_elimination(layout, theta, target, rows[part])
        )
        total = joint.sum(axis=-1, keepdims=True)
        conditional = joint / total
        predictive = joint.mean(axis=0)
        found[0][part] = predictive / predictive.sum(axis=-1, keepdims=True)
        found[1][part] = conditional.std(axis=0)
        found[2][part], found[3][part] = np.quantile(
            conditional, [(1 - level) / 2, (1 + level) / 2], axis=0
        )
    back = back.reshape(-1)
    node = layout.nodes[target]
    predictive, sd, lower, upper = (x[back] for x in found)
    return Classification(layout.network.levels(node), predictive, sd, lower, upper, level, node)


def _from_blanket(layout: Layout, theta: Floats, target: int, rows: NDArray[np.int64]) -> Floats:
    """Up to a factor that doesn't depend on the target's level; shape (draws, rows, levels).

    Families without the target would weigh draws, not levels. They are left out: that is exact
    where their tables are independent of the blanket's (as they are given the counts), and their
    weights would leave few effective draws in a large network.
    """
    r = int(layout.arity[target])
    log_joint = np.zeros((len(theta), len(rows), r))
    log_theta = np.log(np.maximum(theta, 1e-300))
    for i, family in enumerate(layout.families):
        if target not in family:
            continue
        cell = np.full((len(rows), r), layout.part(i).start, dtype=np.int64)
        for j, stride in zip(family, layout.strides[i], strict=True):
            code = np.arange(r)[None, :] if j == target else rows[:, j][:, None]
            cell = cell + stride * code
        log_joint += log_theta[:, cell]
    # One shift a row for all draws keeps their relative weights.
    log_joint -= log_joint.max(axis=(0, 2), keepdims=True)
    return np.maximum(np.exp(log_joint), 1e-300)


def _by_elimination(layout: Layout, theta: Floats, target: int, rows: NDArray[np.int64]) -> Floats:
    out = np.empty((len(theta), len(rows), int(layout.arity[target])))
    for k, row in enumerate(rows):
        evidence = {i: int(code) for i, code in enumerate(row) if code != MISSING}
        joint = joint_probabilities(layout, theta, [target], evidence)
        if joint is None:
            raise RequestError(
                "new: the missing values of a row cannot be summed out exactly in this network; "
                "give more of its nodes, or ask `marginal`, which simulates where it must"
            )
        out[:, k] = joint
    return np.maximum(out, 1e-300)


def codes_of_rows(layout: Layout, new: Any, skip: str) -> NDArray[np.int64]:
    """Codes of rows, shape (rows, nodes by number); -1 where a value is missing.

    Columns that are no nodes are ignored, and so is the column `skip`.
    """
    names = list(new.columns) if hasattr(new, "columns") else list(new)
    known = [name for name in names if name in layout.number and name != skip]
    if not known:
        raise RequestError(
            "new: expected a mapping or data frame with a column for every node that is known; "
            f"the nodes are {', '.join(layout.network.nodes[:20])}"
        )
    columns = {name: _values(new[name]) for name in known}
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise RequestError("new: all columns must have the same length")
    codes = np.full((lengths.pop(), len(layout.nodes)), MISSING, dtype=np.int64)
    for name, values in columns.items():
        codes[:, layout.number[name]] = _column(layout, name, values)
    return codes


def _values(column: Any) -> list[Any]:
    listed = column.tolist() if hasattr(column, "tolist") else list(column)
    return listed if isinstance(listed, list) else [listed]


def _column(layout: Layout, name: str, values: list[Any]) -> list[int]:
    known: dict[Any, int | None] = {}
    codes = []
    for row, value in enumerate(values, 1):
        if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
            codes.append(MISSING)
            continue
        # 1, 1.0 and True are equal keys but different levels, hence the type.
        key = (type(value), value)
        if key not in known:
            known[key] = code_or_none(layout, name, value)
        code = known[key]
        if code is None:  # it's somebody's: name its place, not the value
            shown = ", ".join(layout.network.levels(name)[:10])
            raise RequestError(f"new: row {row} of {name!r} is none of its levels: {shown}")
        codes.append(code)
    return codes


# --- levels that a user gives, as codes ------------------------------------------------------


def evidence_codes(
    layout: Layout, given: Mapping[str, Any], taken: Sequence[str], where: str = "given"
) -> dict[int, int]:
    """Node numbers with the codes of their levels."""
    if not isinstance(given, Mapping):
        raise RequestError('given: expected nodes with their levels, such as {"smoker": "no"}')
    found = {}
    for name, level in given.items():
        number = layout.find(name, f"{where}: ")
        if name in taken:
            raise RequestError(f"given: {name!r} is asked about; it can't be given too")
        code = code_or_none(layout, name, level)
        if code is None:
            shown = ", ".join(layout.network.levels(name)[:10])
            raise RequestError(f"{name}: {str(level)[:40]!r} is not one of its levels: {shown}")
        found[number] = code
    return found


def code_or_none(layout: Layout, name: str, level: Any) -> int | None:
    """The code of a level, or None if it is not one of the node's."""
    levels = layout.network.levels(name)
    text = level_text(level.item() if isinstance(level, np.generic) else level)
    return levels.index(text) if text in levels else None
