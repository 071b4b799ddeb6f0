"""The honesty battery: cells have the truths that they state, and shares are counted right."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from noisewise.analyst.regression.observation import observe
from noisewise.core.errors import RequestError
from studies.__main__ import app
from studies.experiments import DataAbsentError
from studies.honesty import cells, study
from studies.honesty.cells import CELLS, NAMES, REAL, RealCell, find_cell, random_cell
from studies.honesty.trial import (
    PRIORS,
    Fitted,
    Length,
    cell_trial,
    judge,
    kind_of,
    random_trial,
    request_of,
    simulate_release,
)
from studies.report import Options
from studies.tables import read_table

NARROW = "k1 sd.07 R.5 n3k e1 L"


def least_squares(A):
    """Intercept, slopes and mean squared residual of a Gram matrix."""
    theta = np.linalg.solve(A[:-1, :-1], A[:-1, -1])
    return np.append(theta, (A[-1, -1] - theta @ A[:-1, -1]) / A[0, 0])


# --- cells ----------------------------------------------------------------------------------------


def test_there_are_the_31_cells():
    assert len(NAMES) == len(set(NAMES)) == 31
    assert len(CELLS) == 24


@pytest.mark.parametrize("name", CELLS)
def test_rows_of_a_cell_have_the_moments_that_it_states(name):
    """Averages of 20 data sets, within five standard errors of averages of so many rows."""
    cell = find_cell(name)
    rng = np.random.default_rng(1)
    rows = 20 * cell.n
    A = sum(cell.gram(rng) for _ in range(20)) / rows
    assert A[0, 0] == pytest.approx(1)
    centred = A[1:, 1:] - np.outer(A[0, 1:], A[0, 1:])
    sd, error = np.sqrt(np.diag(centred)), 5 / np.sqrt(rows)
    assert sd[:-1] == pytest.approx(np.array(cell.sd), rel=error)
    assert sd[-1] == pytest.approx(cell.sd_y, rel=error)
    assert A[0, 1:-1] == pytest.approx(np.array(cell.mean), abs=error * max(cell.sd))
    assert A[0, -1] == pytest.approx(0.1, abs=error * cell.sd_y)
    correlations = (centred / np.outer(sd, sd))[:-1, :-1]
    assert correlations == pytest.approx(cell.correlations, abs=error)
    theta, sigma2 = cell.truth[:-1], cell.truth[-1]
    found = least_squares(A)
    reach = 5 * np.sqrt(sigma2 / rows * np.diag(np.linalg.inv(A[:-1, :-1])))
    assert (np.abs(found[:-1] - theta) < reach).all()
    assert found[-1] == pytest.approx(sigma2, rel=5 * np.sqrt(2 / rows))
    assert 1 - found[-1] / sd[-1] ** 2 == pytest.approx(cell.r_squared, abs=2 * error)


def test_random_configurations_follow_their_seed_and_cover_their_strata():
    first = [random_cell(7, number) for number in range(400)]
    assert first == [random_cell(7, number) for number in range(400)]
    assert first[:5] != [random_cell(8, number) for number in range(5)]
    for factor, values in cells.STRATA.items():
        assert {getattr(cell, factor) for cell in first} == set(values)
    sd = np.log(np.concatenate([cell.sd for cell in first]))
    uniform = stats.kstest(sd, stats.uniform(np.log(0.03), np.log(0.5 / 0.03)).cdf)
    assert uniform.pvalue > 1e-4
    assert all(cell.correlation == 0 for cell in first if cell.k == 1)
    for cell in first[:20]:
        b = cell.truth[1:-1] * cell.sd
        explained = b @ cell.correlations @ b
        assert explained == pytest.approx(cell.r_squared * cell.sd_y**2)
        assert cell.truth[-1] == pytest.approx((1 - cell.r_squared) * cell.sd_y**2)


@pytest.mark.parametrize("name", REAL)
def test_the_truth_of_real_data_is_the_regression_on_all_rows(name):
    try:
        cell = find_cell(name)
    except DataAbsentError as error:
        pytest.skip(str(error))
    assert np.abs(cell.rows).max() <= 1
    w = np.column_stack([np.ones(cell.n), cell.rows])
    assert cell.truth == pytest.approx(least_squares(w.T @ w), rel=1e-6, abs=1e-9)
    resampled = cell.gram(np.random.default_rng(0))
    assert resampled[0, 0] == cell.n
    assert not np.allclose(resampled, w.T @ w)


def test_data_that_are_not_there_are_left_out_with_a_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("NOISEWISE_LAB_DATA", str(tmp_path))
    for name in ("power", "bike", "cirrhosis"):
        with pytest.raises(DataAbsentError, match="NOISEWISE_LAB_DATA"):
            find_cell(name)
    settings = {"cells": "cirrhosis", "random": "0"}
    study.write(tmp_path, Options(True, 2, "test", settings=settings))
    assert "cirrhosis: left out" in (tmp_path / "honesty.md").read_text()


# --- one trial ------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_release_has_the_noise_that_it_states(noise):
    cell = RealCell("one row", np.array([[0.5, -0.25]]), noise=noise)
    A = np.array([[1, 0.5, -0.25], [0.5, 0.25, -0.125], [-0.25, -0.125, 0.0625]])
    rng = np.random.default_rng(2)
    releases = [simulate_release(cell, rng) for _ in range(400)]
    [seen] = observe(releases[:1])[1]
    assert seen.family == noise
    assert seen.values[0, 0] == 1
    upper = np.triu_indices(3)
    noises = np.array([(observe([r])[1][0].values - A)[upper][1:] for r in releases])
    scale = request_of(1, 1.0, noise).mechanisms[0].scale / 2**32
    assert seen.scale[upper][1:] == pytest.approx(np.full(5, scale))
    law = stats.laplace(scale=scale) if noise == "laplace" else stats.norm(scale=scale)
    other = stats.norm(scale=scale) if noise == "laplace" else stats.laplace(scale=scale)
    assert stats.kstest(noises.ravel(), law.cdf).pvalue > 1e-4
    assert stats.kstest(noises.ravel(), other.cdf).pvalue < 1e-4


def test_judging_counts_each_parameter_by_itself():
    draws = np.broadcast_to(np.linspace(0, 1, 1001)[None, :, None], (2, 1001, 3))
    record = judge(Fitted(draws, 123.4, 0.25, ()), np.array([0.5, 0.05, 0.99]))
    assert record["held95"] == [1, 1, 0]
    assert record["held80"] == [1, 0, 0]
    assert record["width95"] == pytest.approx([0.95] * 3)
    assert record["width80"] == pytest.approx([0.8] * 3)
    assert record["median"] == pytest.approx([0.5] * 3)
    assert (record["ess"], record["diverging"], record["alarms"]) == (123, 0.25, [])


def test_kinds_of_warnings_have_neither_numbers_nor_names():
    first = "only about 71 independent draws of 'x1' (400 are wanted): interval ends are rough"
    second = (
        "only about 308 independent draws of 'sigma2' (400 are wanted): interval ends are rough"
    )
    assert kind_of(first) == kind_of(second) == "only about independent draws"


def test_all_priors_are_given_the_same_release_and_a_failed_fit_is_recorded(monkeypatch):
    from noisewise.core.errors import ReleaseError
    from studies.honesty import trial

    seen = []

    def refuse(release, prior, length, seed):
        seen.append((release.digest, seed))
        raise ReleaseError("no")

    monkeypatch.setattr(trial, "fit", refuse)
    cell = find_cell(NARROW)
    records = [cell_trial(cell, prior, Length(1, 10), 3) for prior in PRIORS]
    assert len(set(seen)) == 1
    assert all(record["error"] == "ReleaseError: no" for record in records)
    assert study.shares(records)["slopes"].share == 0
    random_trial(5, "default", Length(1, 10), 3)
    random_trial(6, "default", Length(1, 10), 3)
    assert len(set(seen)) == 3


def test_the_former_default_misses_a_narrow_column_nearly_always():
    """The negative control: a narrow column, three thousand rows."""
    records = [cell_trial(find_cell(NARROW), "bounds", Length(2, 300), i) for i in range(8)]
    found = study.shares(records)
    assert found["slopes"].share <= 0.25
    assert study.fails(NARROW, found["slopes"], 8)
    wide = [
        cell_trial(find_cell("k2 sd.3 r0 R.3 n3k e1 L"), "bounds", Length(2, 300), i)
        for i in range(8)
    ]
    assert not study.fails("k2 sd.3 r0 R.3 n3k e1 L", study.shares(wide)["slopes"], 8)


# --- bookkeeping ----------------------------------------------------------------------------------


def record(trial, held, width=1.0, **more):
    size = len(held)
    return {
        "trial": trial,
        "truth": [0.0] * size,
        "held95": held,
        "held80": held,
        "width95": [width] * size,
        "ess": 100 * (trial + 1),
        "diverging": 0.0,
        "seconds": 1.0,
        "alarms": [],
        **more,
    }


def test_one_slope_has_the_exact_binomial_limit():
    """86 of 100 is the most that fails: beyond, 92% isn't excluded."""
    for hits, failing in ((86, True), (87, False)):
        found = study.held([[1]] * hits + [[0]] * (100 - hits))
        assert found.share == hits / 100
        assert stats.binom.cdf(hits, 100, found.upper) == pytest.approx(0.05)
        assert study.fails("a cell", found, 100) == failing
    assert study.held([[1]] * 5).upper == 1
    assert study.held([[0]] * 5).upper == pytest.approx(1 - 0.05 ** (1 / 5))


def test_slopes_of_one_release_count_by_what_they_add():
    """Slopes that go together are as many tries as Releases; independent ones as many as slopes."""
    together = study.held([[1] * 5] * 80 + [[0] * 5] * 20)
    assert together.upper == pytest.approx(study.held([[1]] * 80 + [[0]] * 20).upper, rel=0.01)
    apart = study.held((np.random.default_rng(0).uniform(size=(2000, 5)) < 0.8).tolist())
    assert apart.error == pytest.approx(np.sqrt(0.8 * 0.2 / 10_000), rel=0.1)
    assert apart.upper - apart.share == pytest.approx(1.645 * apart.error, rel=0.15)
    uneven = study.held([[1, 1, 1], [0]])
    assert uneven.share == 0.75


def test_shares_by_parameter():
    found = study.shares(
        [record(0, [1, 1, 0, 1]), record(1, [0, 1, 1, 1]), record(2, [1, 1, 0, 0])]
    )
    assert found["slopes"].share == pytest.approx(4 / 6)
    assert found["worst slope"].share == pytest.approx(1 / 3)
    assert found["intercept"].share == pytest.approx(2 / 3)
    assert found["sigma2"].share == pytest.approx(2 / 3)


def test_the_table_compares_with_the_narrowest_prior_that_passes_everywhere():
    good, bad = [1, 1, 1], [0, 0, 0]
    tried = {
        "one": {
            "default": [record(i, good, 3.0) for i in range(50)],
            "x5HW": [record(i, good, 2.0) for i in range(50)],
            "bounds": [record(i, good, 1.0) for i in range(50)],
        },
        "two": {
            "default": [record(i, good, 3.0) for i in range(50)],
            "x5HW": [record(i, good, 6.0) for i in range(50)],
            "bounds": [record(i, bad, 1.0) for i in range(49)]
            + [{"trial": 49, "truth": [0] * 3, "error": "no"}],
        },
        "randhie": {name: [record(i, [1, 1, 0]) for i in range(50)] for name in PRIORS},
    }
    rows = study.table(tried)
    at = {(row["cell"], row["prior"]): row for row in rows}
    assert study.passing_priors(rows) == ["default", "x5HW"]
    assert at["two", "bounds"]["fails"] == "slopes, worst slope, intercept, sigma2"
    assert at["two", "bounds"]["errors"] == 1
    assert at["randhie", "default"]["fails"] == "sigma2"
    assert at["one", "default"]["width_to_best"] == 1.5
    assert at["one", "bounds"]["width_to_best"] == 0.5
    assert at["one", "default"]["width_to_bounds"] == 3
    assert at["two", "default"]["width_to_best"] == 1
    assert at["one", "default"]["ess_median"] == 2550
    assert "**0 fails**" in study.markdown(rows)
    same = {"one": {name: [record(i, bad) for i in range(50)] for name in ("default", "bounds")}}
    assert study.passing_priors(study.table(same)) == []  # a simulated cell excuses nobody


def test_strata_of_random_configurations_are_judged_by_the_share_where_there_are_enough():
    def cell(k):
        return {**dict.fromkeys(cells.STRATA, 0), "k": k, "correlation": 0.0}

    records = [record(i, [1, i % 8 > 0, 1], cell=cell(1)) for i in range(80)]
    records += [record(80 + i, [1, 1, 1, 1], cell=cell(2)) for i in range(60)]
    records += [record(140 + i, [0, 0, 0, 0, 0], cell=cell(3)) for i in range(5)]
    rows = {row["cell"]: row for row in study.table({"random": {"default": records}})}
    assert rows["random: k = 1"]["slopes"] == 0.875
    assert rows["random: k = 1"]["fails"] == "slopes"
    assert rows["random: k = 2"]["fails"] == ""
    assert rows["random: k = 3"]["fails"] == ""  # five Releases are no stratum
    assert rows["random"]["slopes"] == pytest.approx((70 + 120) / 215, rel=1e-3)
    assert "slopes" in rows["random"]["fails"]
    assert rows["random: correlation = 0.0"]["releases"] == 65  # those with two slopes or more


def test_alarms_where_a_slope_was_missed_and_where_none_was():
    records = [record(i, [1, i % 2, 1], alarms=["a"] if i < 3 else []) for i in range(8)]
    [row] = study.alarm_rows({"one": {"default": records}})
    assert (row["missed"], row["shown_where_missed"]) == (4, 0.5)
    assert (row["held"], row["shown_where_held"]) == (4, 0.25)


# --- end to end -----------------------------------------------------------------------------------


def test_a_quick_run_goes_on_with_its_seed(tmp_path):
    def invoke(*words):
        command = ["run", "honesty", "--quick", "--out", str(tmp_path), *words]
        return CliRunner().invoke(app, command, catch_exceptions=False)

    small = ("--trials", "2", "--set", "random=2", "--set", "draws=60")
    shown = invoke(*small)
    assert shown.exit_code == 0
    seed = json.loads((tmp_path / "trials" / "honesty-seed.json").read_text())["seed"]
    assert f"seed {seed}" in shown.output
    facts = json.loads((tmp_path / "honesty.json").read_text())
    assert facts["command"].endswith("--trials 2 --set random=2 --set draws=60")
    rows = read_table(tmp_path / "honesty.csv")
    assert {row["cell"] for row in rows} >= {*study.QUICK_CELLS, "random"}
    assert {row["prior"] for row in rows} == {"default", "bounds"}
    before = (tmp_path / "honesty.csv").read_bytes()
    invoke(*small)
    assert (tmp_path / "honesty.csv").read_bytes() == before
    with pytest.raises(RequestError, match="never mixed"):
        invoke("--trials", "2", "--set", "draws=70")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["honesty", "--set", "draws"], "NAME=VALUE"),
        (["honesty", "--set", "draws=few"], "draws: expected a whole number"),
        (["honesty", "--set", "cells=none"], "cells: 'none' is unknown"),
        (["honesty", "--set", "priors=flat"], "priors: 'flat' is unknown"),
        (["honesty", "--set", "colour=red"], "has no setting 'colour'"),
        (["calibration", "--set", "draws=10"], "it has none"),
    ],
)
def test_settings_that_mean_nothing_are_refused(tmp_path, words, message):
    with pytest.raises(RequestError, match=message):
        CliRunner().invoke(
            app, ["run", *words, "--quick", "--out", str(tmp_path)], catch_exceptions=False
        )


def test_how_often_the_warning_of_the_prior_is_wrong():
    """Three slopes: another prior agrees, is twice as wide, and is far away."""
    own = {"width95": [0, 1.0, 1.0, 1.0, 0], "median": [0, 0.0, 0.0, 0.0, 0]}
    other = {"width95": [0, 1.1, 2.0, 1.0, 0], "median": [0, 0.1, 0.0, 0.5, 0], "pull": []}
    tried = {
        "random": {
            "default": [{**own, "pull": [0.5, 0.01, 0.2]}],
            "bounds": [other],
            "x5HW": [{**own, "pull": []}],
        }
    }
    assert study.prior_alarm(tried) == {"decides": 2, "missed": 1, "does_not": 1, "false": 1}
    assert study.prior_alarm({}) == {"decides": 0, "missed": 0, "does_not": 0, "false": 0}
