"""Experiments of Alparslan, Yıldırım & Birbil (2023): protocols, sharing, determinism, smoke."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from noisewise.analyst.regression.papers.ada_ssp import ada_ssp as released_ada_ssp
from noisewise.core.calibration import gaussian_noise_multiplier
from noisewise.core.design import Box
from noisewise.core.errors import RequestError
from noisewise.core.schema import Number, Schema
from noisewise.core.statistics import SecondMoments
from noisewise.core.statistics.second_moments import l2_squared
from noisewise.holder.requests.regression import make_request
from studies import experiments
from studies.__main__ import experiments as experiments_by_name
from studies.alparslan2023 import calibration as federation
from studies.alparslan2023 import data, not_private, private, tables
from studies.alparslan2023 import figures as figs
from studies.alparslan2023.methods import QUICK, SAMPLED, Given, run
from studies.alparslan2023.tables import published
from studies.calibration.trial import run_trial
from studies.report import Options, mean_interval
from studies.tables import read_table

from ..analyst.test_ada_ssp import people, released


def stand_in(n=500, seed=1):
    """Rows that look like the power plant's, within its public bounds."""
    rng = np.random.default_rng(seed)
    bounds = np.array(list(data.POWER_PLANT.bounds.values()))
    unit = np.clip(rng.normal(0, 0.35, (n, 5)), -1, 1)
    unit[:, -1] = np.clip(0.5 * unit[:, 0] - 0.3 * unit[:, 1] + rng.normal(0, 0.1, n), -1, 1)
    return bounds.mean(axis=1) + unit * (bounds[:, 1] - bounds[:, 0]) / 2


@pytest.fixture
def folder(tmp_path, monkeypatch):
    np.savetxt(tmp_path / "power_plant_energy.csv", stand_in(), delimiter=",")
    monkeypatch.setenv(data.VARIABLE, str(tmp_path))
    return tmp_path


def test_the_papers_normalisation():
    rows = stand_in()
    x, y = not_private.normalise(rows)
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(x.std(axis=0, ddof=1), 1)
    assert y.mean() == pytest.approx(0, abs=1e-12)
    assert np.abs(y).max() == 1
    task = not_private.paper_task(rows)
    assert (len(task.y), len(task.y_test)) == (400, 100)
    np.testing.assert_array_equal(np.concatenate([task.y, task.y_test]), y)  # in the file's order


@pytest.mark.parametrize(("n", "expected"), [(9568, 7655), (17379, 13904)])
def test_training_rows_are_the_papers(n, expected):
    assert data.training_rows(n) == expected


@pytest.mark.parametrize(("n", "J"), [(1, 1), (7655, 1), (7655, 5), (13904, 10), (13, 13)])
def test_holders_have_all_rows_between_them(n, J):
    rows = np.arange(n)
    shares = [rows[s] for s in data.holder_slices(n, J)]
    assert len(shares) == J
    assert min(map(len, shares)) >= 1
    np.testing.assert_array_equal(np.concatenate(shares), rows)


def test_sums_of_holders_add_up_to_the_sums_of_all():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(103, 3)), rng.normal(size=103)
    whole = data.gram_matrices(x, y, 1)[0]
    np.testing.assert_allclose(sum(data.gram_matrices(x, y, 10)), whole)
    assert whole[0, 0] == 103
    with pytest.raises(RequestError, match="J"):
        data.holder_slices(3, 4)


def test_noise_is_symmetric_and_leaves_out_what_is_not_released():
    sd = np.full((4, 4), 2.0)
    sd[0, 0], sd[3, 3] = 0.0, np.inf
    values = data.with_noise(np.full((4, 4), 9.0), sd, np.random.default_rng(1))
    np.testing.assert_array_equal(values, values.T)
    assert (values[0, 0], values[3, 3]) == (9.0, 0.0)


@pytest.mark.parametrize("k", [1, 4, 14])
def test_the_private_protocol_has_the_projects_sensitivity(k):
    names = [f"x{j}" for j in range(k)]
    schema = Schema("stand-in", {name: Number(-1.0, 1.0) for name in (*names, "y")})
    request = make_request(schema, target="y", features=names, epsilon=1, delta=1e-6)
    multiplier = gaussian_noise_multiplier(Fraction(1), Fraction(1e-6))
    layout, scales = private.layout_and_scales(k, 1.0, 1e-6)
    statistic = SecondMoments(request.design)
    expected = multiplier * math.sqrt(l2_squared(statistic, Box(), layout))
    assert scales.diagonal == pytest.approx(expected, rel=1e-6)
    assert scales.diagonal >= expected * (1 - 1e-12)  # rounded towards privacy
    other = "upper" if layout == "isometric" else "isometric"
    assert l2_squared(statistic, Box(), layout) <= l2_squared(statistic, Box(), other)


def test_public_bounds_map_to_the_unit_scale_and_back():
    task = private.unit_task(data.POWER_PLANT, stand_in(), np.random.default_rng(2))
    assert np.abs(task.x).max() <= 1
    assert (len(task.y), len(task.y_test)) == (400, 100)
    w = np.column_stack([np.ones(400), task.x])
    theta = np.linalg.lstsq(w, task.y, rcond=None)[0]
    # An error of sd .1 on unit scale is one of 4 MW: the target's bounds are 80 MW apart.
    assert task.test_error(theta) == pytest.approx(16, rel=0.4)


def test_the_authors_multiplier_is_too_small_by_what_the_notes_say():
    for epsilon, share in (("1/10", 0.16), ("1", 0.40), ("10", 0.88)):
        right = not_private.noise_multiplier(Fraction(epsilon), Fraction(1, 10**5), "right")
        theirs = not_private.noise_multiplier(Fraction(epsilon), Fraction(1, 10**5), "theirs")
        assert theirs / right == pytest.approx(share, abs=0.01)
    with pytest.raises(RequestError, match="multiplier"):
        not_private.noise_multiplier(Fraction(1), Fraction(1, 7), "no")


def test_without_noise_the_papers_methods_find_the_regression_without_intercept():
    task = not_private.paper_task(stand_in(2000))
    grams = data.gram_matrices(task.x, task.y, 3)
    rng = np.random.default_rng(5)
    priors = not_private.paper_priors(np.eye(4), 38.0)
    given = Given(
        not_private.release(grams, 0.01, False, rng),
        not_private.release(grams, 0.01, True, rng),
        *priors,
        0.05,
    )
    best = np.linalg.lstsq(task.x, task.y, rcond=None)[0]
    for method in SAMPLED:
        if method == "normal_x":  # moves by small steps where there is next to no noise
            continue
        mean = run(method, given, QUICK, 1).mean
        assert abs(mean[0]) < 1e-3, method
        np.testing.assert_allclose(mean[1:], best, atol=0.01, err_msg=method)
    mechanism = not_private.Mechanism(1e-3, 1e-3, Fraction(1), Fraction(1, 100))
    np.testing.assert_allclose(not_private.paper_ada_ssp(grams, mechanism, rng), best, atol=0.01)


def test_our_ada_ssp_is_the_analysts():
    from noisewise.analyst.regression.observation import observe

    rng = np.random.default_rng(4)
    release = released(people(300), rng, epsilon=1, delta=1e-6, smallest_eigenvalue=None)
    estimate = released_ada_ssp(release)
    columns, observations = observe([release], None, None)
    ours = columns.theta_to_original(private.ada_ssp(observations))
    np.testing.assert_allclose(ours, list(estimate.coefficients.values()), rtol=1e-9)


def test_the_table_runs_on_what_there_is_and_says_what_is_missing(folder, capsys):
    paths = tables.EXPERIMENT.run(folder / "out", Options(True, 1, "test"))
    rows = read_table(paths[1])
    assert {row["data"] for row in rows} == {"PowerPlant"}
    assert {row["method"] for row in rows} == set(tables.METHODS)
    assert {row["protocol"] for row in rows} == set(tables.PROTOCOLS)
    assert {row["J"] for row in rows} == {1, 5, 10}
    assert all(0 < row["mse"] < 10 for row in rows)
    assert not any(row["failed"] for row in rows)
    assert data.VARIABLE in capsys.readouterr().out
    again = tables.EXPERIMENT.run(folder / "again", Options(True, 1, "test"))
    assert paths[1].read_bytes() == again[1].read_bytes()  # the same seeds, the same numbers
    assert read_table(paths[0]) == []  # facts about the run are no table


def test_without_data_nothing_is_run(tmp_path, monkeypatch):
    monkeypatch.setenv(data.VARIABLE, str(tmp_path / "nowhere"))
    paths = tables.EXPERIMENT.run(tmp_path, Options(True, None, "test"))
    assert len(read_table(paths[1])) == 2  # a note for each data set


def test_a_file_of_another_shape_is_refused(tmp_path, monkeypatch):
    np.savetxt(tmp_path / "power_plant_energy.csv", np.ones((3, 2)), delimiter=",")
    monkeypatch.setenv(data.VARIABLE, str(tmp_path))
    with pytest.raises(RequestError, match="5 columns"):
        data.load(data.POWER_PLANT)


def test_one_run_of_the_figures_is_determined_by_its_number():
    def rows():
        found = figs.one_run(2, 3000, 7, (Fraction(1),), QUICK)
        return [{k: v for k, v in row.items() if k != "seconds"} for row in found]

    first = rows()
    assert first == rows()
    summary = figs.summarise(first)
    assert {(row["prior"], row["J"]) for row in summary if row["method"] == "exact"} == {
        (prior, J) for prior in figs.PRIORS for J in figs.HOLDERS
    }
    assert not any(row["failed"] for row in summary)


def test_the_papers_kernel_has_mean_zero_for_equal_laws():
    rng = np.random.default_rng(8)
    values = [
        figs.mmd2_fixed(rng.normal(size=(60, 2)), rng.normal(size=(50, 2)), 0.5) for _ in range(200)
    ]
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(200)
    apart = figs.mmd2_fixed(rng.normal(size=(60, 2)), 2 + rng.normal(size=(50, 2)), 0.5)
    assert apart > 10 * np.std(values)


def test_a_trial_of_a_federation_is_reproducible_and_ranks_every_method():
    cell = federation.cells(True)[1]
    record, again = run_trial(cell, 3), run_trial(cell, 3)
    for name, outcome in record["methods"].items():
        assert outcome["u"] == again["methods"][name]["u"], name
        assert all(0 <= u <= 1 for u in outcome["u"])
    case = cell.model.simulate(np.random.default_rng(1))
    assert len(case.released) == 5
    assert case.A[0, 0] == 5 * 300


def test_experiments_are_known_by_name():
    known = experiments_by_name()
    assert {tables.NAME, figs.NAME, federation.NAME} <= set(known)
    with pytest.raises(RequestError, match="keeps no trials"):
        experiments.collect(known[tables.NAME], None, None)


def test_published_numbers_and_intervals():
    assert published("PowerPlant", 5, "ada_ssp") == (0.0235, 0.0234, 0.0236)
    assert published("PowerPlant", 5, "exact") is None
    interval = mean_interval([1.0, 2.0, 3.0])
    assert interval.mean == 2
    assert interval.high - 2 == pytest.approx(2.92 / math.sqrt(3), rel=1e-3)
