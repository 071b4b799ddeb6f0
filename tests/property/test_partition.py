"""Parts by a column's levels: one row is in one part, and changes it as a release by itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics import l1_sensitivity
from noisewise.holder.engines import open_source
from noisewise.holder.partition import Partition
from noisewise.holder.requests.regression import make_request

COLUMNS = {
    "x": Number(0, 1),
    "kind": Category(("a", "b"), "a"),
    "y": Number(-1, 1),
    "region": Category(("north", "south", "east"), "north"),
}
WORDS = {"target": "y", "features": ["x", "kind"], "epsilon": 1}


def schema(**changes):
    words = {"neighbours": "add_remove_one", "fill": {"region": "south"}, **changes}
    return Schema("people", COLUMNS, **words)


def partition(made_of=None, **words):
    made_of = made_of or schema()
    return Partition(make_request(made_of, **{**WORDS, **words}), "region", made_of)


# Corners, the middle, and values beyond the bounds; a level that is not declared, and none.
ROWS = list(
    itertools.product([-5, 0.0, 0.5, 1.0], "ab", [-1.0, 0.25, 9], ["north", "south", "east", None])
)


def table(rows):
    names = list(COLUMNS)
    columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}
    kinds = {"x": float, "y": float, "kind": object, "region": object}
    return {name: np.array(columns.get(name, ()), dtype=kinds[name]) for name in names}


def parts_of(asked, rows):
    """Every level's exact sums, n included."""
    sums = open_source(table(rows)).sums(asked.plan())
    return [np.array([one.n, *one.values["second_moments"]], dtype=object) for one in sums]


def alone(asked, rows):
    """The sums of a release of these rows only, without any partition."""
    sums = open_source(table(rows)).sums(asked.request.plan())
    return np.array([sums.n, *sums.values["second_moments"]], dtype=object)


@pytest.fixture(scope="module")
def some():
    rng = np.random.default_rng(4)
    return [ROWS[k] for k in rng.integers(0, len(ROWS), 40)]


def test_a_row_changes_one_part_as_it_would_change_a_release_of_its_own(some):
    asked = partition()
    before = parts_of(asked, some)
    bound = l1_sensitivity(asked.request.statistics[0])
    largest = 0
    for row in ROWS:
        after = parts_of(asked, [*some, row])
        level = asked.levels.index(row[3] or "south")
        for k, (old, new) in enumerate(zip(before, after, strict=True)):
            change = new - old
            if k != level:
                assert not change.any()
            else:
                assert (change == alone(asked, [row])).all()
                largest = max(largest, int(np.abs(change[1:]).sum()))
                assert largest <= bound
    assert largest == bound  # a corner reaches it: nothing to spare, nothing too little


def test_the_parts_are_the_releases_of_their_rows(some):
    asked = partition()
    for level, part in zip(asked.levels, parts_of(asked, some), strict=True):
        mine = [row for row in some if (row[3] or "south") == level]
        assert (part == alone(asked, mine)).all()


def test_a_replaced_row_may_change_two_parts(some):
    """Why replace_one is refused: more than one part would have to pay."""
    asked = partition()
    before = parts_of(asked, some)
    north = next(k for k, row in enumerate(some) if row[3] == "north")
    moved = [*some]
    moved[north] = (*some[north][:3], "east")
    after = parts_of(asked, moved)
    changed = [bool((new - old).any()) for old, new in zip(before, after, strict=True)]
    assert changed == [True, False, True]
    for changes in ({"neighbours": "replace_one"}, {"max_rows_per_unit": 2}):
        with pytest.raises(RequestError, match="neighbours: add_remove_one"):
            partition(schema(**changes))


def test_every_other_partition_is_another_series():
    changes = [
        {},
        {"label": "2026-Q4"},
        {"epsilon": 2},
        {"features": ["x"]},
        {"mechanism": "gaussian", "delta": "1e-9", "rounds": 1},
    ]
    asked = [partition(**change) for change in changes]
    asked.append(partition(schema(fill={})))
    asked += [Partition(asked[0].request, "region", schema(), table="a")]
    asked += [Partition(asked[0].request, "region", schema(), query="SELECT 1")]
    assert len({one.series for one in asked}) == len(asked)
    assert partition().series == asked[0].series


@pytest.mark.parametrize(
    ("column", "words"), [("kind", "leave it out"), ("x", "category"), ("nothing", "category")]
)
def test_columns_that_make_no_parts(column, words):
    with pytest.raises(RequestError, match=words):
        Partition(make_request(schema(), **WORDS), column, schema())
