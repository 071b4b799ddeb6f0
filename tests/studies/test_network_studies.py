"""The studies of network priors and synthetic sets: their parts, and what was committed."""

from __future__ import annotations

import gzip

import numpy as np

from studies import network_priors, synthetic_sets

from .test_zhang2016 import committed

BIF = """network unknown {
}
variable a {
  type discrete [ 2 ] { yes, no };
}
variable b {
  type discrete [ 3 ] { low, mid, high };
}
probability ( a ) {
  table 0.2, 0.8;
}
probability ( b | a ) {
  (no) 0.1, 0.2, 0.7;
  (yes) 0.5, 0.25, 0.25;
}
"""


def test_networks_are_read_from_files(tmp_path, monkeypatch):
    (tmp_path / "small.bif.gz").write_bytes(gzip.compress(BIF.encode()))
    monkeypatch.setenv("NOISEWISE_LAB_DATA", str(tmp_path))
    network, tables = network_priors.read_bif(network_priors.find_file("small"))
    assert dict(network.parents) == {"a": (), "b": ("a",)}
    np.testing.assert_allclose(tables["b"], [[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]])
    rows = network_priors.expected_rows(network, tables, 1000)
    np.testing.assert_allclose(rows, [1000, 1000, 200, 200, 200, 800, 800, 800])


def test_the_truth_of_slopes_is_that_of_many_rows():
    rng = np.random.default_rng(1)
    network = synthetic_sets.graph(synthetic_sets.PARENTS)
    from studies.zhang2016.coverage import count_records

    counts = count_records(rng, network, synthetic_sets.TRUTH, 1_000_000)
    found, squared = synthetic_sets.analyse(counts["disease"].astype(float))
    away = np.abs(found - synthetic_sets.truth()) / np.sqrt(squared)
    assert away.max() < 5
    wrong = synthetic_sets.analyse(counts["disease"].transpose(1, 0, 2).astype(float))[0]
    assert np.abs(wrong - synthetic_sets.truth())[1:].min() / np.sqrt(squared[1:]).max() > 5


def test_what_the_committed_priors_show():
    """The learned prior holds its level where the old default held half of the entries."""
    rows = [row for row in committed("network-priors.csv") if row["records_in_row"] == "all"]
    for row in rows:
        if row["method"] == "learned":
            assert row["coverage"] > 0.85
    alarm = {row["method"]: row["coverage"] for row in rows if row["network"] == "ALARM"}
    assert alarm["dirichlet(1)"] < 0.65
    assert alarm["learned"] - alarm["dirichlet(1)"] > 0.25


def test_the_committed_bands_are_near_the_goal():
    """No band of row counts is clearly off, and flags leave most entries with many records."""
    bands = [row for row in committed("network-priors.csv") if row["records_in_row"] != "all"]
    learned = [row for row in bands if row["method"] == "learned"]
    assert not [row for row in learned if network_priors.verdict(row) in ("below", "above")]
    assert max(r["flagged"] for r in learned if r["records_in_row"] == "5000 or more") < 0.4
    control = [row for row in bands if row["method"] == "dirichlet(1)"]
    assert sum(network_priors.verdict(row) == "below" for row in control) > 10


def test_verdicts_know_what_trials_can_tell():
    row = {"unflagged": 50.0, "trials": 4, "coverage_unflagged": 0.9, "se_unflagged": 0.01}
    assert network_priors.verdict(row) == "yes"
    assert network_priors.verdict(row | {"coverage_unflagged": 0.8}) == "below"
    rough = {"coverage_unflagged": 0.95, "se_unflagged": 0.02}
    assert network_priors.verdict(row | rough) == "above, within two standard errors"
    assert network_priors.verdict(row | {"unflagged": 1.0}) == "flagged but for a few"
    lucky = {"unflagged": 10.0, "coverage_unflagged": 1.0, "se_unflagged": 0.0}
    assert network_priors.verdict(row | lucky) == "above, within two standard errors"
    assert network_priors.verdict(row | lucky | {"trials": 40}) == "above"


def test_what_the_committed_sets_show():
    rows = committed("synthetic-sets.csv")
    for row in rows:
        if row["graph"] == "right graph" and row["rule"] == "pooled":
            assert row["coverage"] > 0.9 - 3 * row["se"], row
    one = [r["coverage"] for r in rows if r["rule"] == "one set" and r["epsilon"] < 1]
    assert min(one) < 0.6
