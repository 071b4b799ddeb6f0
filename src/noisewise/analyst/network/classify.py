"""Classification of new rows: any node given the others, with the posterior's uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.network.layout import Floats, Layout
from noisewise.analyst.network.queries import code_or_none, joint_probabilities
from noisewise.core.errors import RequestError

BATCH = 1 << 23  # numbers in memory
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


# --- rows that a user gives, as codes --------------------------------------------------------


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
