"""benchmarks/accuracy.py: truths are what they say, Releases are counted right, peers estimate."""

from __future__ import annotations

import json

import numpy as np
import pytest

import noisewise as nw
from benchmarks.accuracy import Job, cells, load, missing, release, render, run_all, summarise
from benchmarks.accuracy_data import PROBLEMS, DataAbsentError, least_squares
from benchmarks.accuracy_peers import DPGD_SETTINGS, NoAnswerError, dp_gd, tukey_em
from noisewise.core.schema import Number

SIMULATED = [name for name, problem in PROBLEMS.items() if problem.slopes is not None]
REAL = [name for name, problem in PROBLEMS.items() if problem.slopes is None]
METHODS = ["one", "rounds", "adassp", "tukeyem", "dpgd"]


def unit_rows(n, seed=1):
    """Slopes 0.3 and -0.2, errors of sd 0.1, all within [-1, 1]."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2))
    return np.column_stack([x, 0.1 + x @ [0.3, -0.2] + 0.1 * rng.standard_normal(n)])


# --- the regressions ------------------------------------------------------------------------------


def test_least_squares_are_those_of_statsmodels():
    api = pytest.importorskip("statsmodels.api", reason="statsmodels is not installed")
    rows = unit_rows(50)
    fitted = api.OLS(rows[:, -1], api.add_constant(rows[:, :-1])).fit()
    slopes, se = least_squares(rows)
    assert slopes == pytest.approx(fitted.params[1:], rel=1e-9)
    assert se == pytest.approx(fitted.bse[1:], rel=1e-9)


@pytest.mark.parametrize("name", [name for name in SIMULATED if name != "n = 1e6"])
def test_simulated_rows_have_the_slopes_that_they_state(name):
    """Least squares on ten draws, each within the bounds; five standard errors."""
    problem = PROBLEMS[name]
    rng = np.random.default_rng(2)
    rows = np.concatenate([problem.matrix(problem.draw(rng)) for _ in range(10)])
    slopes, se = least_squares(rows)
    assert np.abs((slopes - problem.slopes) / se).max() < 5


@pytest.mark.parametrize("name", REAL)
def test_real_rows_are_within_their_bounds_but_for_few(name):
    problem = PROBLEMS[name]
    try:
        table = problem.draw(np.random.default_rng(1))
    except DataAbsentError as error:
        pytest.skip(str(error))
    assert list(table) == list(problem.columns)
    for column, kind in problem.columns.items():
        if isinstance(kind, Number):
            outside = (table[column] < kind.lower) | (table[column] > kind.upper)
            assert np.mean(outside) < 0.01
    rows = problem.matrix(table)
    low, high = problem.bounds.T
    assert np.all((low <= rows) & (rows <= high))
    assert np.isfinite(least_squares(rows)[1]).all()
    if problem.units is not None:
        assert np.unique(problem.units(), return_counts=True)[1].max() <= problem.rows_per_unit


def test_slopes_are_in_the_order_of_the_fit():
    problem = PROBLEMS["births"]
    try:
        table = problem.draw(np.random.default_rng(1))
    except DataAbsentError as error:
        pytest.skip(str(error))
    published = release(problem, table, "1", 1, 1)
    names = nw.ada_ssp(published).columns.names
    assert names == ("intercept", "mage", "medu", "nprenatal", "mbsmoke[smoker]")
    smokers = problem.matrix(table)[:, 3]
    assert smokers.sum() == (table["mbsmoke"] == "smoker").sum() > 0


# --- the run --------------------------------------------------------------------------------------


def test_two_releases_of_diabetes(tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn, which has the data, is not installed")
    path = tmp_path / "accuracy.jsonl"
    run_all(["diabetes"], ["1"], METHODS, 1, path, 1)
    first = load(path)
    assert len(first) == 4 + len(DPGD_SETTINGS)
    with path.open("a") as file:
        file.write('{"data": "diab')  # interrupted
    run_all(["diabetes"], ["1"], METHODS, 2, path, 1)
    records = load(path)
    assert records[: len(first)] == first
    assert len(records) == 2 * len(first)
    assert len({record["seed"] for record in records}) == len(records)
    for record in records:
        if record["method"] == "tukeyem":
            assert "NoAnswerError" in record["failed"]  # far too few rows
            continue
        assert len(record["error"]) == 3
        assert np.isfinite(record["error"]).all()
        assert record["sampling"] == [0, 0, 0]
        assert ("held" in record) == (record["method"] in ("one", "rounds"))
    intervals = [record for record in records if "held" in record]
    assert not any(record["in_rounds"] for record in intervals)  # 442 rows are too few
    for record in intervals:  # the median is in the interval
        missed = np.array(record["held"]) == 0
        assert np.all(missed | (np.abs(record["error"]) <= record["width"]))
    table = render(records)
    assert "| diabetes | 442 | " in table
    assert "no answer" in table
    assert not missing([Job("diabetes", "1", "one", "")], records, 2)


def record(method="one", error=(3.0, -4.0), **more):
    found = {"data": "normal", "epsilon": "1", "method": method, "setting": "", "n": 5}
    return {**found, "error": list(error), **more}


def test_a_cell_pools_slopes_and_releases():
    ours = {"held": [1, 0], "width": [1.0, 4.0], "in_rounds": True}
    ours |= {"held_all": [1, 1], "width_all": [2.0, 8.0]}
    quiet = {**ours, "held": [1, 1], "warnings": ["the prior decides on"]}
    failed = {key: value for key, value in record().items() if key != "error"} | {"failed": "why"}
    found = summarise([record(**ours, warnings=[]), record(error=(0, 5), **quiet), failed])
    assert (found.releases, found.failed) == (3, 1)
    assert found.rmse == pytest.approx(np.sqrt((9 + 16 + 25) / 4))
    assert found.median == 3.5
    assert found.coverage == 0.75
    assert found.width == pytest.approx(2)
    assert (found.in_rounds, found.coverage_all, found.unsure) == (1, 1, 0.5)
    assert found.wider == pytest.approx(2)


def test_the_best_setting_is_shown():
    bad, good = record("dpgd") | {"setting": "a"}, record("dpgd", (1, 1)) | {"setting": "b"}
    for some in ([bad, good], [good, bad]):
        assert cells(some)["normal", "1", "dpgd"].rmse == 1


def test_what_is_missing_takes_turns():
    a, b = Job("x", "1", "one", ""), Job("y", "1", "one", "")
    done = json.loads(json.dumps([a._asdict()]))
    assert missing([a, b], done, 2) == [b, a, b]


# --- peers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [0.05, 0.5])
def test_gradient_descent_with_next_to_no_noise_is_least_squares(clip):
    """Errors are symmetric, so that clipped gradients have the same root."""
    rows = unit_rows(2000)
    slopes, se = least_squares(rows)

    def off(steps):
        rng = np.random.default_rng(1)
        found = dp_gd(rows, 1, 1e6, 1e-6, f"{steps} steps, clip {clip}", rng)
        return np.abs((found - slopes) / se).max()

    assert off(500) < 5
    assert off(1) > 20


def test_noise_of_gradient_descent_grows_with_rows_per_person():
    """Twice the noise on every step; 60 runs tell an sd to a tenth."""
    rows = unit_rows(2000)

    def spread(K):
        rngs = map(np.random.default_rng, range(60))
        return np.std([dp_gd(rows, K, 1.0, 1e-6, DPGD_SETTINGS[0], rng) for rng in rngs], axis=0)

    assert np.all(spread(2) > 1.4 * spread(1))


def test_tukey_em_is_near_least_squares_or_says_nothing():
    """Its draws spread by the models' own spread over some tens of ranks: a few standard errors."""
    rows = unit_rows(20_000)
    slopes, se = least_squares(rows)
    found = [tukey_em(rows, None, 1.0, 1e-6, np.random.default_rng(seed)) for seed in range(8)]
    assert np.abs((np.array(found) - slopes) / se).max() < 12
    assert np.std(found, axis=0).min() > 0.05 * se.min()  # it is a draw, not the median
    with pytest.raises(NoAnswerError, match="test"):
        tukey_em(rows[:600], None, 1.0, 1e-6, np.random.default_rng(1))
    with pytest.raises(NoAnswerError, match="few"):
        tukey_em(rows[:10], None, 1.0, 1e-6, np.random.default_rng(1))
