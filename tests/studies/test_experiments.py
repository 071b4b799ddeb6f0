"""Experiments beyond ranks of parameters: real data, broken assumptions, the harness itself."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from joblib import register_parallel_backend
from joblib._parallel_backends import ThreadingBackend
from typer.testing import CliRunner

from noisewise.core.errors import RequestError
from studies.__main__ import app
from studies.bs2019 import fig4 as bs2019_fig4
from studies.calibration import beyond as calibration_beyond
from studies.calibration import power as calibration_power
from studies.calibration.beyond import BeyondRegression
from studies.calibration.trial import run_trial
from studies.experiments import DataAbsentError
from studies.report import Options, Report
from studies.tables import markdown_table, read_table
from studies.trials import check_backend, in_parallel

DOCS = Path(__file__).parents[2] / "docs"


def invoke(*words):
    return CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)


# --- figure 4 of Bernstein & Sheldon --------------------------------------------------------------


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Stands in for the real file, which the project doesn't hold."""
    rng = np.random.default_rng(1)
    wine = rng.integers(2, 32, 46)
    rows = np.column_stack([wine, rng.integers(26, 98, 46), 20 + 3 * wine + rng.normal(0, 9, 46)])
    folder = tmp_path / "data"
    folder.mkdir()
    header = "wine,liquor,cirrhosis"
    np.savetxt(folder / "cirrhosis.csv", rows, "%.1f", ",", header=header, comments="")
    monkeypatch.setenv("NOISEWISE_LAB_DATA", str(folder))
    bs2019_fig4.unit_rows.cache_clear()
    yield folder
    bs2019_fig4.unit_rows.cache_clear()


def test_figure_4_by_one_command(data, tmp_path):
    words = ["run", "bs2019-fig4", "--quick", "--trials", 3, "--out", tmp_path / "out"]
    shown = invoke(*words)
    assert shown.exit_code == 0, shown.output
    rows = read_table(tmp_path / "out" / "bs2019-fig4.csv")
    assert len(rows) == 3 * 4
    assert not any(row["failed"] for row in rows)
    assert {row["method"] for row in rows} == {"non_private", "naive", "exact", "gibbs_noisy"}
    assert all(0 <= row["coverage_50"] <= row["coverage_90"] <= 1 for row in rows)
    assert (tmp_path / "out" / "bs2019-fig4.png").stat().st_size > 10_000
    assert "| epsilon | non_private |" in (tmp_path / "out" / "bs2019-fig4.md").read_text()


def test_splits_are_36_and_10_within_bounds_and_differ(data):
    model = bs2019_fig4.Cirrhosis(1.0)
    splits = [model.simulate(np.random.default_rng(seed)) for seed in (1, 2)]
    rows = bs2019_fig4.unit_rows()
    assert np.abs(rows).max() == 1
    for split in splits:
        assert split.truth.shape == split.x.shape == (10,)
        assert split.A[0, 0] == 36
        # Together they are all rows.
        assert split.A[1, 2] + split.x @ split.truth == pytest.approx(rows[:, 0] @ rows[:, 1])
    assert not np.array_equal(splits[0].truth, splits[1].truth)


def test_the_papers_prior_is_brought_to_unit_scale(data):
    """y = a + bx on [0, 1] is y' = (2a + b - 1) + bx' on [-1, 1]: slope 1 and intercept 0 stay."""
    prior = bs2019_fig4.Cirrhosis(1.0).prior
    assert prior.mu0 == pytest.approx([0, 1])
    assert prior.b0 == pytest.approx(4 * 0.5)
    V = np.linalg.inv(prior.Lam0)
    # In units of sigma'² = 4 sigma²: var(2a + b) = 4·4 + 4 sigma², over 4.
    assert V[0, 0] == pytest.approx((16 + 4) / 4)
    assert V[1, 1] == pytest.approx(1)


def test_predictive_coverage_is_right_for_a_right_method(data):
    """Cells are calibrated if test points follow the model: rows simulated from the prior."""
    cell = bs2019_fig4.cells(True)[0]
    method = bs2019_fig4.Predictive(bs2019_fig4.Sampler("non_private", draws=100))
    rng = np.random.default_rng(3)
    model, inside = cell.model, []
    for seed in range(150):
        sigma2 = model.prior.b0 / rng.standard_gamma(model.prior.a0)
        root = np.linalg.cholesky(np.linalg.inv(model.prior.Lam0))
        theta = model.prior.mu0 + np.sqrt(sigma2) * root @ rng.standard_normal(2)
        x = rng.uniform(-1, 1, 46)
        y = theta[0] + theta[1] * x + np.sqrt(sigma2) * rng.standard_normal(46)
        w = np.column_stack([np.ones(36), x[:36], y[:36]])
        case = bs2019_fig4.Split(y[36:], x[36:], w.T @ w, None, None, None)
        draws = method.sample(model, case, seed)[0]
        share = (draws < case.truth).mean(axis=0)
        inside.append(np.abs(share - 0.5) < 0.25)
    error = np.mean(inside, axis=1).std() / 150**0.5
    assert np.mean(inside) == pytest.approx(0.5, abs=4 * error + 0.01)


def test_without_data_the_reason_is_given(tmp_path, monkeypatch):
    monkeypatch.setenv("NOISEWISE_LAB_DATA", str(tmp_path))
    bs2019_fig4.unit_rows.cache_clear()
    with pytest.raises(DataAbsentError, match=r"needs cirrhosis.csv.*NOISEWISE_LAB_DATA"):
        invoke("run", "bs2019-fig4", "--quick", "--out", tmp_path)
    (tmp_path / "cirrhosis.csv").write_text("wine,liquor,cirrhosis\n1,2,3\n4,5,6\n")
    with pytest.raises(RequestError, match="46 rows"):
        invoke("run", "bs2019-fig4", "--quick", "--out", tmp_path)


def test_the_documented_figure_4_is_the_committed_one():
    rows = read_table(DOCS / "results" / "bs2019-fig4.csv")
    assert {row["splits"] for row in rows} == {100}
    assert bs2019_fig4.readable(rows) in (DOCS / "studies.md").read_text("utf-8")


# --- broken assumptions ---------------------------------------------------------------------------


def test_departures_are_what_they_say():
    given = calibration_beyond.given_model(4000, 1.0)
    models = calibration_beyond.departures(given)
    rng = np.random.default_rng(1)
    theta, sigma2 = np.array([0.1, 0.2, -0.2]), 0.04
    x = {name: model.rows(theta, sigma2, rng)[0] for name, model in models.items()}
    first = {name: (rows[:, 0] - rows[:, 0].mean()) / rows[:, 0].std() for name, rows in x.items()}
    assert np.abs(first["uniform"]).max() == pytest.approx(3**0.5, rel=0.05)
    assert len(np.unique(np.round(first["binary"], 9))) == 2
    skewness = {name: (z**3).mean() for name, z in first.items()}
    assert skewness["skewed"] > 1.5
    assert abs(skewness["uniform"]) < 0.2
    assert np.mean([x["small-covariates"].std() for _ in range(3)]) < 0.25
    described = [json.dumps(model.describe(), sort_keys=True) for model in models.values()]
    assert len(set(described)) == len(models)
    with pytest.raises(RequestError, match="law"):
        BeyondRegression(given, "x", law="cauchy")


def test_clipping_is_real():
    models = calibration_beyond.departures(calibration_beyond.given_model(2000, 1.0))
    clipped, free = models["clipped-much"], models["none"]
    for seed in range(3):
        A = clipped.simulate(np.random.default_rng(seed)).A
        assert (A.diagonal() <= 2000).all()
    sums = [free.simulate(np.random.default_rng(seed)).A[1, 1] for seed in range(3)]
    assert min(sums) > 0


def test_without_a_departure_it_is_the_plain_simulation():
    """Means of sums agree with those of `SimulatedRegression`, whose law is exact."""
    given = calibration_beyond.given_model(50, 1.0)
    plain = calibration_beyond.departures(given)["none"]
    rngs = [np.random.default_rng(seed) for seed in (1, 2)]
    sums = [
        np.array([model.simulate(rng).A[1:, 1:].ravel() for _ in range(1500)])
        for model, rng in zip((given, plain), rngs, strict=True)
    ]
    errors = np.sqrt(sum(s.var(axis=0) / len(s) for s in sums))
    assert (np.abs(sums[0].mean(axis=0) - sums[1].mean(axis=0)) < 5 * errors).all()


def test_cells_of_broken_assumptions_run():
    full, quick = calibration_beyond.cells(False), calibration_beyond.cells(True)
    assert len(full) == 14
    assert len({cell.name for cell in full + quick}) == 17
    assert len({cell.entropy for cell in full}) == 14
    record = run_trial(quick[-1], 0)
    assert all("u" in outcome for outcome in record["methods"].values())


def test_the_documented_departures_are_the_committed_ones():
    rows = read_table(DOCS / "results" / "calibration-beyond.csv")
    assert {row["cell"] for row in rows} == {cell.name for cell in calibration_beyond.cells(False)}
    assert markdown_table(rows) in (DOCS / "calibration.md").read_text("utf-8")


# --- size and power -------------------------------------------------------------------------------


def test_uniform_ranks_are_rejected_as_often_as_the_level_says():
    """And ranks that are off are rejected more often: 200 studies of 100 trials."""
    rng = np.random.default_rng(1)
    u = rng.uniform(size=(20_000, 1))
    found = calibration_power.rejections(u, 100)
    for test, level in (("ks_5", 0.05), ("ks_1", 0.01), ("band_5", 0.05)):
        share, _, studies = found[test]
        assert studies == 200
        # four standard errors of a binomial share; the band's own level is simulated
        assert abs(share - level) < 4 * (level * (1 - level) / 200) ** 0.5 + 0.01
    assert found["coverage_1"][0] < 0.05
    off = calibration_power.rejections(0.5 + 0.6 * (u - 0.5), 100)
    assert off["ks_5"][0] > 0.9


def test_distortions():
    draws = np.random.default_rng(2).normal(3.0, 2.0, (4000, 2))
    narrow = calibration_power.distorted(draws, "narrow by 20%")
    assert narrow.std(axis=0) == pytest.approx(0.8 * draws.std(axis=0))
    assert narrow.mean(axis=0) == pytest.approx(draws.mean(axis=0))
    moved = calibration_power.distorted(draws, "shifted by .25 sd")
    assert moved.mean(axis=0) - draws.mean(axis=0) == pytest.approx(0.25 * draws.std(axis=0))
    assert calibration_power.distorted(draws, "conjugate") is draws


def test_the_harness_accepts_the_conjugate_posterior_and_rejects_naive(tmp_path):
    calibration_power.write(tmp_path, Options(True, 500, "test"))
    rows = {
        (row["method"], row["trials"]): row
        for row in read_table(tmp_path / "calibration-power.csv")
    }
    assert rows["conjugate", 100]["ks_1"] <= 3 / 15  # of 15 tests; four at 1% have p = 1e-5
    assert rows["naive, much noise", 100]["ks_1"] == 1
    assert "| conjugate | 100 | 5 |" in (tmp_path / "calibration-power.md").read_text()


def test_the_committed_size_and_power():
    """Right methods are rejected at the level, naive ones always where noise is large."""
    rows = read_table(DOCS / "results" / "calibration-power.csv")
    for row in rows:
        if row["method"] == "conjugate":
            for test, level in (("ks_5", 0.05), ("ks_1", 0.01), ("band_5", 0.05)):
                error = (level * (1 - level) / row["studies"]) ** 0.5
                assert row[test] < level + 4 * error + 0.01
        if row["method"] == "naive, much noise":
            assert row["ks_1"] == 1
    assert calibration_power.markdown(rows) in (DOCS / "calibration.md").read_text("utf-8")


# --- many at a time -------------------------------------------------------------------------------


def square(x):
    return x * x


class StepByStep(ThreadingBackend):
    """Like Ray's: it can't hand out results one by one."""

    supports_return_generator = False
    supports_retrieve_callback = False


@pytest.mark.parametrize("backend", ["loky", "threading", "sequential", "steps"])
def test_results_come_in_order_from_any_backend(backend):
    register_parallel_backend("steps", StepByStep)
    seen = []
    results = in_parallel(
        square, range(11), n_jobs=2, backend=backend, report=lambda *at: seen.append(at)
    )
    assert list(results) == [x * x for x in range(11)]
    assert seen[0] == (1, 11)
    assert seen[-1] == (11, 11)


@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_clusters_that_are_not_installed_are_named(backend, package):
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    with pytest.raises(RequestError, match=f"{backend} is not installed"):
        check_backend(backend)


# --- all of them ----------------------------------------------------------------------------------


def test_all_runs_everything_and_leaves_out_what_has_no_data(tmp_path, monkeypatch):
    ran = []

    def write(out, options):
        ran.append(options)
        return []

    def absent(out, options):
        raise DataAbsentError("no such file")

    known = {
        "one": Report("one", "First.", write),
        "two": Report("two", "Second.", absent),
        "three": Report("three", "Third.", write),
    }
    monkeypatch.setattr("studies.__main__.experiments", lambda: known)
    shown = invoke(
        "run", "all", "--quick", "--jobs", 2, "--backend", "threading", "--out", tmp_path
    )
    assert shown.exit_code == 0
    assert "two: left out, no such file" in shown.stdout
    assert [options.command for options in ran] == [
        "python -m studies run one --quick",
        "python -m studies run three --quick",
    ]
    assert all((o.quick, o.n_jobs, o.backend) == (True, 2, "threading") for o in ran)
    assert "All in" in shown.stdout
