"""Coverage of credible intervals of network tables: the study's parts, and what it found."""

from __future__ import annotations

import numpy as np
from scipy import stats

from noisewise.analyst.network.layout import Layout
from studies.zhang2016 import coverage

from .test_zhang2016 import committed


def test_simulated_counts_are_those_of_the_network():
    network = coverage.networks()["three parents"]
    rng = np.random.default_rng(13)
    tables = coverage.draw_tables(rng, network)
    n = 200_000
    counts = coverage.count_records(rng, network, tables, n)
    joint = np.einsum("a,b,c,abcd->abcd", *(tables[name] for name in "abcd"))
    assert all(counts[node].sum() == n for node in network.nodes)
    expected = joint.ravel() * n
    assert stats.chisquare(counts["d"].ravel(), expected).pvalue > 1e-4
    swapped = np.swapaxes(joint, 0, 1).ravel() * n  # negative control
    assert stats.chisquare(counts["d"].ravel(), swapped).pvalue < 1e-10


def test_the_judge_knows_calibrated_draws_from_others():
    network = coverage.networks()["chain"]
    rng = np.random.default_rng(14)
    layout = Layout(network)
    right, narrow = [], []
    for _ in range(200):
        truth = coverage.draw_tables(rng, network)
        many = [coverage.draw_tables(rng, network) for _ in range(39)]
        draws = np.array(
            [
                np.concatenate([layout.inward(i, t[v]) for i, v in enumerate(layout.nodes)])
                for t in many
            ]
        )
        right.append(coverage.judge(rng, network, draws, truth).covered)
        middle = draws.mean(axis=0)
        narrow.append(coverage.judge(rng, network, middle + (draws - middle) / 2, truth).covered)
    error = np.std(right) / 200**0.5
    assert abs(np.mean(right) - 0.9) < 4 * error
    assert np.mean(narrow) < 0.9 - 10 * error


def test_coverage_quick(tmp_path):
    methods = ["plugin", "per_table"]
    outcome = coverage.trial("chain", coverage.networks()["chain"], 50, 1.0, 0, methods)
    assert set(outcome) == {"plugin", "per_table"}
    assert outcome["per_table"].width > outcome["plugin"].width
    rows = [
        coverage.summarise("chain", 50, 1.0, method, [outcome[method]] * 2) for method in outcome
    ]
    coverage.draw(rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
    assert "| chain | 50 | 1 |" in coverage.markdown(rows)


def test_what_the_committed_coverage_shows():
    """`joint` within two points of nominal everywhere, `per_table` in three; plug-in far off."""
    rows = committed("zhang2016-coverage.csv")
    assert len(rows) == 27 * len(coverage.METHODS)
    assert {row["trials"] for row in rows} == {coverage.TRIALS}
    for method, most in (("per_table", 0.03), ("joint", 0.02), ("joint, fourier", 0.02)):
        away = [row["coverage"] - 0.9 for row in rows if row["method"] == method]
        assert np.abs(away).max() < most, method
        assert abs(np.mean(away)) < 0.01
    low = [r for r in rows if r["method"] == "plugin" and r["epsilon"] <= 1 and r["n"] <= 1000]
    assert max(row["coverage"] for row in low) < 0.75
