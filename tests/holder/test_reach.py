"""The rows as they counted: `within_reach` beside the sums that a Release in rounds is made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest

import noisewise as nw
from noisewise.core.errors import RequestError
from noisewise.core.kinds.rounds import is_number
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics.ball_moments import COUNT_ONE, PRODUCT_ONE
from noisewise.holder.engines.frame import FrameSource
from noisewise.holder.publish import publish
from noisewise.holder.reach import design_rows, within_reach
from noisewise.holder.requests.glm import make_glm_request
from noisewise.holder.requests.regression import make_request
from noisewise.holder.rows.rounds import BallPlan

from ..ledgers import ledger_for

ROWS = 6_000
COLUMNS = {
    "dose": Number(0, 400),
    "region": Category(("n", "s", "w"), "n"),
    "score": Number(-500, 500),
}


def table(seed=1, n=ROWS):
    """Long tails on one side, some values beyond the bounds."""
    rng = np.random.default_rng(seed)
    dose = np.exp(rng.normal(2.0, 1.2, n))
    region = rng.choice(["n", "s", "w"], p=[0.5, 0.3, 0.2], size=n)
    score = 0.8 * dose + 4.0 * (region == "s") + rng.standard_t(3, n) * 5
    return {"dose": dose, "region": region, "score": score}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    ledger = ledger_for(tmp_path_factory.mktemp("reach") / "l.db")
    request = make_request(
        Schema("people", COLUMNS),
        target="score",
        features=["dose", "region"],
        epsilon=1,
        delta="1e-6",
        rounds="auto",
    )
    return publish(request, table(), ledger=ledger).release


def on_unit_scale(release, rows):
    columns = release.design.columns
    return (rows.to_numpy() - [c.centre for c in columns]) / [c.half_width for c in columns]


def gram(release, rows):
    """Of u in the last round, of rows that need no shrinking any more."""
    M = release.rounds.last.shape.map(is_number(release.design))
    u = np.column_stack([np.ones(len(rows)), on_unit_scale(release, rows)]) @ M.T
    return u.T @ u


def exact_gram(release, given):
    sums = FrameSource(given).sums(BallPlan(release.design, release.rounds.last.shape))
    whole = (sums.inside + sums.outside) / PRODUCT_ONE
    return whole + np.triu(whole, 1).T, np.trace(sums.outside) / PRODUCT_ONE


def test_the_moved_rows_have_the_sums_of_the_last_round(release):
    """Up to the last round's grid of 2**-10, an error of at most 2**-11 an entry of a row."""
    summed, outside = exact_gram(release, table())
    assert outside > 0  # some rows were moved
    found = gram(release, within_reach(release, table()))
    sizes = np.sqrt(np.outer(np.diag(summed), np.diag(summed)))
    error = np.sqrt(ROWS * np.diag(summed)) * 2**-11  # Cauchy and Schwarz
    allowed = error[:, None] + error[None, :] + 1e-9 * sizes
    assert (np.abs(found - summed) <= allowed).all()
    # Negative control: rows that weren't moved have other sums.
    M = release.rounds.last.shape.map(is_number(release.design))
    u = np.column_stack([np.ones(ROWS), design_rows(release.design, table())]) @ M.T
    assert (np.abs(u.T @ u - summed) > 10 * allowed).any()


def test_near_rows_stay_and_far_rows_move_towards_the_centre(release):
    given = table()
    moved = within_reach(release, given)
    clipped = np.clip(given["dose"], 0, 400), np.clip(given["score"], -500, 500)
    away = np.abs(moved["dose"] - clipped[0]) > 1e-3
    assert 0 < away.mean() < 0.05
    np.testing.assert_allclose(moved["score"][~away], clipped[1][~away], atol=1e-3)
    transform = release.rounds.last.shape.transform.map()
    centre = np.linalg.solve(transform[1:, 1:], -transform[1:, 0])
    unit = on_unit_scale(release, moved)[:, [0, 3]]
    length = np.linalg.norm((unit - centre) @ transform[1:, 1:].T, axis=1)
    radius = release.rounds.last.shape.radius / 1024
    assert length.max() <= radius * (1 + 1e-6)
    np.testing.assert_allclose(length[away], radius, rtol=1e-6)
    np.testing.assert_array_equal(moved["region[s]"], 1.0 * (given["region"] == "s"))


def test_how_many_rows_were_moved_is_held_as_often_as_it_says(release):
    """By its law: fresh normal noise on true counts, many of them or none."""
    rng, tail = np.random.default_rng(7), release.rounds.tail
    _, index = release.rounds.fit(release.design, ROWS)
    for far in (0, 40, 400):
        counts = np.zeros(len(tail.values))
        counts[index] = far
        held = 0
        for _ in range(400):
            noisy = (counts * COUNT_ONE + tail.scale * rng.standard_normal(len(counts))).astype(int)
            changed = replace(release.rounds, tail=replace(tail, values=tuple(noisy.tolist())))
            low, high = changed.rows_beyond(release.design, ROWS)
            held += low <= far <= high
        # 400 tries at 95% or more: 360 or fewer have a chance of 1e-5.
        assert held > 360
        assert far == 0 or held < 400  # and it isn't needlessly wide


def test_every_kind_of_frame_gives_the_same_rows(release):
    found = within_reach(release, table())
    for frame in (pd.DataFrame(table()), pl.DataFrame(table())):
        pd.testing.assert_frame_equal(within_reach(release, frame), found)


def test_without_rounds_values_are_clipped_and_terms_computed(tmp_path):
    schema = Schema("people", {"dose": Number(0, 10), "score": Number(-5, 5)}, fill={"dose": 1.0})
    request = make_request(
        schema, target="score", features=["dose", "I(dose**2)"], epsilon=1, delta="1e-6", rounds=1
    )
    given = {"dose": [2.0, 30.0, float("nan")], "score": [-9.0, 1.0, 2.0]}
    published = publish(request, given, ledger=ledger_for(tmp_path / "l.db")).release
    found = within_reach(published, given)
    expected = [[2, 4, -5], [10, 100, 1], [1, 1, 2]]
    np.testing.assert_allclose(found.to_numpy(), expected, atol=1e-5)


def test_with_ids_there_is_one_row_a_person(release):
    given = table(n=900) | {"who": np.repeat(np.arange(300), 3)}
    schema = Schema("people", COLUMNS, unit_column="who")
    design = replace(release.design, schema=schema)
    moved = within_reach(replace_design(release, design), given)
    assert len(moved) == 300
    assert moved["region[s]"].isin([0, 1 / 3, 2 / 3, 1]).sum() < 300  # rounded down on a grid
    np.testing.assert_allclose(moved["region[s]"].sum(), np.mean(given["region"] == "s") * 300)


def replace_design(release, design):
    """The same last round for another design; the Release would not be read with it."""
    changed = object.__new__(type(release))
    changed.__dict__.update(release.__dict__, design=design)
    return changed


def test_other_releases_and_missing_columns_are_refused(release, tmp_path):
    schema = Schema("people", {"x": Number(0, 1), "y": Category(("no", "yes"), "no")})
    request = make_glm_request(schema, family="logistic", target="y", features=["x"], epsilon=1)
    rng = np.random.default_rng(1)
    given = {"x": rng.random(500), "y": rng.choice(["no", "yes"], 500)}
    logistic = publish(request, given, ledger=ledger_for(tmp_path / "l.db")).release
    with pytest.raises(RequestError, match="release: expected the Release of statistics"):
        within_reach(logistic, given)
    with pytest.raises(nw.NoisewiseError, match="score"):
        within_reach(release, {"dose": [1.0], "region": ["n"]})
