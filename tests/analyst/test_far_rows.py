"""The second statement: intervals for all rows, where a Release has moved far ones within reach."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import noisewise as nw
from noisewise.analyst.posterior.base import ALL_ROWS, WITHIN_REACH
from noisewise.analyst.regression import far_rows
from noisewise.analyst.regression.far_rows import AGREEMENT, DEGREES, UNSEEN, steps_to_all_rows
from noisewise.analyst.regression.observation import choose_columns
from noisewise.analyst.regression.rounds import InRounds
from noisewise.core.errors import RequestError
from noisewise.core.schema import Number, Schema
from noisewise.core.statistics.ball_moments import COUNT_ONE, PRODUCT_ONE
from noisewise.holder.publish import publish
from noisewise.holder.reach import within_reach
from noisewise.holder.requests.regression import make_request

from ..ledgers import ledger_for

ROWS = 20_000
SCHEMA = Schema("people", {"a": Number(-60, 60), "b": Number(-60, 60), "y": Number(-400, 400)})


def table(seed=1, far=0, n=ROWS):
    """A line, and `far` rows a long way out that follow another one."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, n))
    y = 1.0 * a - 0.5 * b + rng.normal(size=n)
    if far:
        a[:far] = rng.uniform(8, 10, far)
        y[:far] = 0.5 * a[:far]
    return {"a": a, "b": b, "y": y}


def published(folder, given, **words):
    asked = {"epsilon": 1, "delta": "1e-6", "rounds": "auto", **words}
    request = make_request(SCHEMA, target="y", features=["a", "b"], **asked)
    return publish(request, given, ledger=ledger_for(folder / "l.db")).release


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return published(tmp_path_factory.mktemp("far"), table())


def with_counts(release, counts):
    tail = release.rounds.tail
    changed = replace(tail, values=tuple(int(count) * COUNT_ONE for count in counts))
    return replace(release, rounds=replace(release.rounds, tail=changed))


def steps(releases, draws=20_000, seed=3):
    columns, names = choose_columns(releases)
    last = InRounds.of(releases, columns, names)
    return steps_to_all_rows(releases, last.observations, last.maps, (1, draws), seed)[0]


def test_sums_in_the_last_coordinates_move_coefficients_as_they_should():
    """A⁻¹ h in coordinates w' = K w, by rows: the residual is the same but for its unit."""
    rng = np.random.default_rng(4)
    w = np.column_stack([np.ones(40), rng.normal(size=(40, 3))])
    K = np.tril(rng.normal(size=(4, 4))) + 3 * np.eye(4)
    K[0] = [1, 0, 0, 0]
    theta = rng.normal(size=3)
    e = w[:, 3] - w[:, :3] @ theta
    turned = w @ K.T
    inner = K[-1, -1] * e  # y' less what x' says of it, at the same coefficients
    h = turned[:, :3].T @ inner
    found = np.linalg.inv(K)[:-1, :-1] @ h / K[-1, -1]
    np.testing.assert_allclose(found, w[:, :3].T @ e)


def test_the_law_of_a_step(release):
    """Each coordinate's median size, by the formula, from the rows' own sums."""
    given = with_counts(release, [500, 300, 200, 100, 60, 30, 20, 10, *[0] * 14])
    columns, names = choose_columns([given])
    last = InRounds.of([given], columns, names)
    found = steps([given])
    x = np.column_stack([np.ones(ROWS), within_reach(given, table())[["a", "b"]] / 60])
    K = last.maps[0]
    inverse = np.linalg.inv(x.T @ x) @ np.linalg.inv(K)[:-1, :-1] / K[-1, -1]
    sd = np.linalg.norm(inverse * last.observations[0].scale[:-1, -1], axis=1)
    fit, index = given.rounds.fit(given.design, ROWS)
    noise = given.rounds.last.off_diagonal_scale / PRODUCT_ONE
    rng = np.random.default_rng(5)
    rho = fit.excess(index, rng.random(200_000)) / np.sqrt(3 * 5) / noise
    t = rng.standard_t(DEGREES, 200_000)
    expected = np.median(np.abs(np.hypot(AGREEMENT * rho, UNSEEN) * t))
    np.testing.assert_allclose(np.median(np.abs(found), axis=0), expected * sd, rtol=0.04)
    assert (np.abs(np.median(found, axis=0)) < 0.04 * expected * sd).all()


def test_more_far_rows_mean_wider_steps_and_none_mean_the_unseen_ones(release):
    many, few, none = (
        np.median(np.abs(steps([with_counts(release, counts)])), axis=0)
        for counts in (
            [9000 * 0.7**k for k in range(22)],
            [300 * 0.4**k for k in range(22)],
            [0] * 22,
        )
    )
    assert (many > 3 * few).all()
    assert (few > none).all()
    assert (none > 0).all()


def test_holders_share_what_their_far_rows_do(release, tmp_path):
    """Sums add up: two of the same size with as many far rows move a slope by less than one."""
    other = published(tmp_path, table(2), label="2")
    both = [with_counts(one, [3000 * 0.7**k for k in range(22)]) for one in (release, other)]
    alone, together = (np.median(np.abs(steps(given)), axis=0) for given in (both[:1], both))
    ratio = together / alone
    assert ((ratio > 0.4) & (ratio < 0.95)).all()


def test_singular_sums_of_a_forged_release_end_nothing(release):
    last = release.rounds.last
    forged = replace(last, values=(tuple(0 for _ in last.values[0]),))
    given = replace(release, rounds=replace(release.rounds, last=forged))
    assert np.isfinite(steps([given], draws=10)).all()


@pytest.mark.slow
def test_rows_on_another_line_are_within_the_second_statement_only(tmp_path):
    """300 rows of 20,000 are ten standard deviations out: the histogram shows that they are there.

    The interval within reach holds the regression of the moved rows, and the one for all rows that
    of all rows. The first doesn't hold the second: rows that were moved agree.
    """
    given = table(far=300)

    def slopes(rows):
        x = np.column_stack([np.ones(ROWS), rows["a"], rows["b"]])
        return np.linalg.lstsq(x, np.asarray(rows["y"]), rcond=None)[0][1]

    whole, held = slopes(given), {"reach": 0, "all": 0}
    reach_of = published(tmp_path, table())  # a ball that is too narrow for these rows
    for number in range(12):
        release = published(
            tmp_path, given, label=str(number), reach_of=reach_of, rounds=None, epsilon=3
        )
        posterior = nw.fit(release, seed=number, chains=2, draws=500)
        row, outer = posterior.summary().rows["a"], posterior.all_rows().rows["a"]
        held["reach"] += row.lower <= slopes(within_reach(release, given)) <= row.upper
        assert not row.lower <= whole <= row.upper
        held["all"] += outer.lower <= whole <= outer.upper
        assert (row.all_rows_lower, row.all_rows_upper) == (outer.lower, outer.upper)
    assert held["reach"] >= 11
    assert held["all"] >= 11


def test_the_estimand_has_a_name_and_is_said(release, tmp_path):
    posterior = nw.fit(release, seed=1, chains=2, draws=300)
    assert posterior.info.estimand == posterior.to_dict()["estimand"] == WITHIN_REACH
    (ends,) = posterior.to_dict()["beyond_reach"]
    assert 0 <= ends[0] <= ends[1] < ROWS
    said = posterior.describe()
    assert "all rows" in said
    assert "Within reach: This Release chose, from noisy looks" in said
    assert "robust" not in said
    posterior.save(tmp_path / "p.nc")
    read = nw.load_posterior(tmp_path / "p.nc")
    assert str(read.all_rows()) == str(posterior.all_rows())
    assert read.info == posterior.info
    posterior.report(tmp_path / "p.html")
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "Within reach" in page
    assert WITHIN_REACH in page


def test_without_rounds_all_rows_are_what_the_summary_says(tmp_path):
    posterior = nw.fit(published(tmp_path, table(n=500), rounds=1), seed=1, chains=2, draws=300)
    assert posterior.info.estimand == ALL_ROWS
    rows = posterior.summary().rows
    assert not posterior.summary().has_all_rows
    assert {name: rows[name] for name in ("intercept", "a", "b")} == dict(posterior.all_rows().rows)
    assert "Within reach" not in posterior.describe()


def test_older_posteriors_say_that_there_is_no_such_statement(release):
    posterior = nw.fit(release, seed=1, chains=2, draws=300)
    older = replace(posterior, theta_all_rows=None, info=replace(posterior.info, estimand=""))
    with pytest.raises(RequestError, match="fit its Releases again"):
        older.all_rows()
    varying = replace(posterior, theta_all_rows=None)
    with pytest.raises(RequestError, match="vary by holder"):
        varying.all_rows()
    assert not older.summary().has_all_rows


def test_draws_within_reach_do_not_depend_on_the_second_statement(release, monkeypatch):
    first = nw.fit(release, seed=1, chains=2, draws=300)
    monkeypatch.setattr(far_rows, "AGREEMENT", 5.0)
    second = nw.fit(release, seed=1, chains=2, draws=300)
    np.testing.assert_array_equal(first.theta, second.theta)
    assert (second.theta_all_rows.std() > first.theta_all_rows.std()).all()


# --- the same reach next year ---------------------------------------------------------------------


def test_next_year_has_the_same_reach_and_explores_nothing(release, tmp_path):
    release.to_text()
    request = make_request(
        SCHEMA, target="y", features=["a", "b"], epsilon=1, delta="1e-6", reach_of=release
    )
    again = publish(request, table(2), ledger=ledger_for(tmp_path / "l.db")).release
    assert again.rounds.explored == ()
    assert again.rounds.reach_of == release.digest
    ours, theirs = again.rounds.last, release.rounds.last
    assert (ours.shape.transform, ours.shape.radius) == (
        theirs.shape.transform,
        theirs.shape.radius,
    )
    assert ours.scale < theirs.scale  # what exploring would have cost
    assert nw.Release.from_text(again.to_text()) == again
    posterior = nw.fit(again, seed=1, chains=2, draws=300)
    row = posterior.summary().rows["a"]
    assert row.lower < 1 < row.upper
    assert f"took over, from {release.digest[:19]}" in posterior.describe()


def test_the_reach_of_other_numbers_is_refused(release, tmp_path):
    words = {"epsilon": 1, "delta": "1e-6"}
    with pytest.raises(RequestError, match="reach_of: that Release is about other numbers"):
        make_request(SCHEMA, target="y", features=["b", "a"], reach_of=release, **words)
    with pytest.raises(RequestError, match="takes the place of rounds"):
        make_request(SCHEMA, target="y", features=["a", "b"], reach_of=release, rounds=5, **words)
    plain = published(tmp_path, table(n=500), rounds=1)
    with pytest.raises(RequestError, match="not made in rounds"):
        make_request(SCHEMA, target="y", features=["a", "b"], reach_of=plain, **words)
    with pytest.raises(RequestError, match="reach_of: expected a Release or its file"):
        make_request(SCHEMA, target="y", features=["a", "b"], reach_of=3, **words)


def test_a_request_file_names_the_release_beside_it(release, tmp_path):
    folder = tmp_path / "asked"
    folder.mkdir()
    (folder / "last.json").write_text(release.to_text(), encoding="utf-8")
    nw.write_schema(SCHEMA, folder / "s.yaml")
    nw.write_request(
        folder / "r.yaml",
        schema=folder / "s.yaml",
        target="y",
        features=["a", "b"],
        epsilon=1,
        delta="1e-6",
        reach_of=str(folder / "last.json"),
    )
    assert "reach_of: last.json" in (folder / "r.yaml").read_text(encoding="utf-8")
    request = nw.read_request(folder / "r.yaml")
    assert request.reach_of == release
    assert request.to_json()["reach_of"] == release.digest
