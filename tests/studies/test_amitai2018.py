"""The study of block summaries: its compiled blocks against NumPy, its methods, its tables."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from studies import experiments
from studies.__main__ import find
from studies.amitai2018 import calibration as amitai2018_calibration
from studies.amitai2018 import study as amitai2018
from studies.amitai2018.blocks import fit_all, fit_blocks
from studies.amitai2018.methods import (
    METHODS,
    REPAIRED,
    answers,
    flat_probabilities,
    location_and_scale,
    normal_score,
    prepare,
    private_median,
    recommended_blocks,
    sign_average,
    sign_noise,
    stouffer_clip,
    zellner_z,
)
from studies.tables import read_table


def rows_of(n, covariates=1, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, covariates))
    return np.column_stack([x, 1 + 2 * x[:, -1] + rng.standard_normal(n)])


def assignment(n, M, partition, seed):
    """SplitMix64 again, with Python's integers."""
    mask, out = (1 << 64) - 1, []
    for i in range(n):
        z = (seed + (partition * n + i + 1) * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        out.append((((z ^ (z >> 31)) >> 32) * M) >> 32)
    return np.array(out)


@pytest.mark.parametrize("covariates", [1, 3])
def test_blocks_are_fitted_as_by_least_squares(covariates):
    rows, sizes = rows_of(700, covariates), [4, 12, 5]  # blocks of 4 are unions of blocks of 12
    found = fit_blocks(rows, sizes, 2, seed=9)
    for M, fits in zip(sizes, found, strict=True):
        assert fits.blocks == M
        for k in range(2):
            block = assignment(len(rows), M, k, 9)
            for j in range(M):
                part = rows[block == j]
                X = np.column_stack([np.ones(len(part)), part[:, :-1]])
                beta, rss, _, _ = np.linalg.lstsq(X, part[:, -1], rcond=None)
                inverse = np.linalg.inv(X.T @ X)
                assert fits.n[k, j] == len(part)
                assert fits.estimate[k, j] == pytest.approx(beta[-1])
                assert fits.rss[k, j] == pytest.approx(rss[0])
                assert fits.d[k, j] == pytest.approx(inverse[-1, -1])
                assert fits.explained[k, j] == pytest.approx(((X @ beta) ** 2).sum())


def test_assignments_are_uniform_and_differ_between_partitions():
    rows = rows_of(5000)
    (fits,) = fit_blocks(rows, [20], 3, seed=4)
    for sizes in fits.n:
        assert sizes.sum() == 5000
        assert stats.chisquare(sizes).pvalue > 1e-4
    assert (fits.n[0] != fits.n[1]).any()


def test_blocks_without_a_regression_count_as_undecided():
    (fits,) = fit_blocks(rows_of(12), [10], 2, seed=1)
    assert np.isnan(fits.estimate).any()
    p = flat_probabilities(fits.first(), np.array([1.0, 2.0]))
    assert (p[:, np.isnan(fits.estimate[0])] == 0.5).all()
    average = sign_average(np.sort(fits.estimate, axis=None), np.array([-1e9, 1e9]))
    share = np.isfinite(fits.estimate).mean()
    np.testing.assert_allclose(average, [-share, share])


def test_posteriors_of_all_rows_agree_for_many_rows():
    fits, b = fit_all(rows_of(20_000)), np.array([1.99, 2.0, 2.01])
    flat = flat_probabilities(fits, b)[:, 0]
    np.testing.assert_allclose(stats.norm.cdf(zellner_z(fits, b)[:, 0]), flat, atol=0.02)


def test_normal_scores_of_students_t():
    t = np.linspace(-12, 12, 97)
    for nu, tolerance in ((3, 1e-4), (10, 1e-6), (28, 1e-7)):
        found = stats.norm.cdf(normal_score(t, np.full(t.shape, float(nu))))
        np.testing.assert_allclose(found, stats.t.cdf(t, nu), atol=tolerance)


def test_recommended_blocks():
    assert recommended_blocks(10_000, 1.0, 1) == 333
    assert recommended_blocks(1_000_000, 1.0, 1) == 1000
    assert recommended_blocks(1_000_000, 0.1, 1) == 33_333
    assert recommended_blocks(100_000, math.inf, 5) == 1000
    assert recommended_blocks(90_000, 0.1, 5) == 1000


def test_stouffers_clip_narrows_with_the_noise():
    clips = [stouffer_clip(1000, epsilon) for epsilon in (0.01, 0.1, 1.0, math.inf)]
    assert clips == sorted(clips)
    assert clips[0] < 0.5 < clips[-1]


def test_noise_on_signs_has_the_right_scale():
    rng = np.random.default_rng(5)
    scale, drawn = sign_noise(30, 0.5, 20_000, rng)
    assert scale == 120
    assert np.abs(drawn).mean() == pytest.approx(120, rel=4 / math.sqrt(20_000))
    wrong = np.abs(sign_noise(30, 1.0, 20_000, rng)[1]).mean()
    assert wrong != pytest.approx(120, rel=4 / math.sqrt(20_000))
    assert sign_noise(30, math.inf, 3, rng)[1].any() == 0


def test_private_medians_have_the_law_that_the_report_assumes():
    """The error in ranks is Laplace(2/ε) where the base law is flat."""
    rng = np.random.default_rng(6)
    M, epsilon, trials = 400, 1.0, 2000
    values = np.linspace(-1, 1, M)
    drawn = [private_median(values, 1, epsilon, (0.0, 50.0), rng) for _ in range(trials)]
    ranks = np.array(drawn) * M / 2
    assert stats.kstest(ranks, stats.laplace(scale=2 / epsilon).cdf).pvalue > 1e-3
    assert stats.kstest(ranks, stats.laplace(scale=1 / epsilon).cdf).pvalue < 1e-3
    exact = private_median(values, 1, math.inf, (0.0, 1.0), rng)
    assert exact == pytest.approx(0.0)


def test_medians_are_refused_where_the_base_law_would_show():
    (fits,) = fit_blocks(rows_of(5000), [100], 2, seed=3)
    blocks, rng = prepare(fits, np.array([2.0])), np.random.default_rng(1)
    assert location_and_scale(blocks, 1.0, rng) is None
    location, scale, _ = location_and_scale(blocks, 20.0, rng)
    assert location == pytest.approx(2, abs=0.1)
    assert scale == pytest.approx(1 / math.sqrt(5000), rel=0.4)


def test_every_method_finds_the_truth_without_noise():
    rows = rows_of(200_000, seed=8)
    b = 2 + np.array([-8.0, 8.0]) / math.sqrt(200_000)
    (fits,) = fit_blocks(rows, [50], 5, seed=8)
    found = answers(prepare(fits, b), b, math.inf, np.random.default_rng(1))
    assert tuple(sorted(found)) == tuple(sorted(METHODS))
    for name, p in found.items():
        assert p[0] < 0.05, name
        assert p[1] > 0.95, name


def test_what_the_printed_algorithms_spend():
    cell = amitai2018.Cell(100_000, 50, 0.1)
    assert amitai2018.privacy_spent("normal_printed", cell) == pytest.approx(10)
    assert amitai2018.privacy_spent("fisher_printed", cell) == pytest.approx(5)
    assert amitai2018.privacy_spent("sign", cell) == 0.1


@pytest.mark.long
def test_the_study_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(amitai2018, "SIZES", (10_000,))
    monkeypatch.setattr(amitai2018, "PARTITIONS", 10)
    paths = experiments.run(find("amitai2018"), tmp_path, quick=True, trials=30)
    assert [path.name for path in paths[1:3]] == ["amitai2018.csv", "amitai2018.md"]
    assert {path.suffix for path in paths[3:]} == {".png"}
    rows = read_table(paths[1])
    assert {row["method"] for row in rows} == set(METHODS)
    lost, asked = amitai2018.losses(rows)
    assert asked == 9
    assert not lost
    assert "NOT PRIVATE" in paths[2].read_text()
    by = {(r["epsilon"], r["M"], r["method"]): r["rmse"] for r in rows}
    assert by[1.0, 100, "fisher_printed"] != by[1.0, 100, "fisher_right_noise"]


def test_losses_are_found():
    """The negative control: a table in which `sign` loses somewhere."""
    rows = [
        {"n": 1, "M": M, "epsilon": 1.0, "method": method, "rmse": value}
        for M in (10, 50, 100)
        for method, value in [("sign", 0.2), *((name, 0.3) for name in REPAIRED)]
    ]
    assert amitai2018.losses(rows) == ([], 2)
    rows[-1]["rmse"] = 0.1
    assert amitai2018.losses(rows) == ([amitai2018.Cell(1, 100, 1.0)], 2)


def test_ranks_are_uniform_and_the_controls_are_not():
    kind = amitai2018_calibration.KINDS[1]  # heavy-tailed and heteroscedastic
    cell = amitai2018_calibration.Cell(kind, 6000, 0.2)
    rows = amitai2018_calibration.table(amitai2018_calibration.run_cells([cell], 300))
    by = {row["method"]: row for row in rows}
    assert by["sign"]["p_value"] > 1e-3
    assert abs(by["sign"]["coverage_90"] - 0.9) < 4 * by["sign"]["coverage_90_error"]
    control = by["sign" + amitai2018_calibration.CONTROL]
    assert control["coverage_90"] < 0.9 - 4 * control["coverage_90_error"]
    assert by["all_rows"]["coverage_90"] < 0.9 - 4 * control["coverage_90_error"]
    text = amitai2018_calibration.markdown(rows)
    assert "heavy-tailed" in text
    assert "**" in text
