"""R2 of posteriors beside that of the regression on all rows, for every way to draw."""

from __future__ import annotations

import numpy as np
import pytest

import noisewise as nw
from tests.ledgers import ledger_for

N = 4000


def people(seed, shift=0.0):
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(45 + shift, 12, N), 18, 90)
    group = rng.choice(["a", "b", "c"], N, p=[0.5, 0.3, 0.2])
    score = 2 + 0.05 * age + (group == "b") - 0.5 * (group == "c") + rng.normal(0, 0.7, N)
    return {"age": age, "group": group, "score": np.clip(score, 0, 10)}


def r2_of_rows(*tables):
    """The share explained by least squares."""
    age, group, y = (
        np.concatenate([table[name] for table in tables]) for name in ("age", "group", "score")
    )
    X = np.column_stack([np.ones(len(y)), age, group == "b", group == "c"]).astype(float)
    fitted = X @ np.linalg.lstsq(X, y, rcond=None)[0]
    return fitted.var() / y.var()


def released(tables, tmp_path, **budget):
    columns = {
        "age": nw.Number(18, 90),
        "group": nw.Category(("a", "b", "c"), "a"),
        "score": nw.Number(0, 10),
    }
    paths = []
    for j, table in enumerate(tables):
        schema = nw.Schema(f"clinic{j}", columns)
        request = nw.make_request(schema, target="score", features=["age", "group"], **budget)
        paths.append(tmp_path / f"{j}.json")
        ledger = ledger_for(tmp_path / f"{j}.db", schema.dataset)
        nw.publish(request, table, ledger=ledger, out=paths[-1])
    return paths


CASES = {
    "exact": (1, {"epsilon": 8}, {"method": "exact"}),
    "rounds": (1, {"epsilon": 5, "delta": 1e-6, "rounds": 2}, {"method": "exact"}),
    "several": (2, {"epsilon": 8}, {"method": "exact_own_laws"}),
    "gibbs": (2, {"epsilon": 8}, {"method": "gibbs_update"}),
}


@pytest.mark.parametrize("case", CASES)
def test_r2_is_that_of_the_rows(case, tmp_path):
    """Within four posterior sds, which are small."""
    holders, budget, words = CASES[case]
    tables = [people(j, shift=8.0 * j) for j in range(holders)]
    paths = released(tables, tmp_path, **budget)
    posterior = nw.fit(paths, chains=2, draws=300, seed=1, **words)
    truth, row = r2_of_rows(*tables), posterior.summary().rows["R2"]
    assert row.spread < 0.04
    assert abs(row.median - truth) < 4 * row.spread
    assert posterior.prob("0 < R2 < 1") == 1
    np.testing.assert_allclose(posterior.draws("sigma") ** 2, posterior.draws("sigma2"))
    # A control: with twice the slope of age it is another one.
    other = [table | {"score": table["score"] + 0.05 * table["age"]} for table in tables]
    assert abs(row.median - r2_of_rows(*other)) > 4 * row.spread


@pytest.mark.parametrize("method", ["naive", "fixed_s_fast"])
def test_methods_without_draws_of_the_rows_leave_it_out(method, tmp_path):
    budget = {"epsilon": 8, "delta": 1e-6, "rounds": 1}
    [path] = released([people(0)], tmp_path, **budget)
    posterior = nw.fit(path, chains=2, draws=100, seed=1, method=method)
    assert posterior.r2 is None
    assert "R2" not in posterior.summary().rows
    with pytest.raises(nw.NoisewiseError, match="'R2' is neither a parameter"):
        posterior.prob("R2 > 0.5")
    posterior.save(tmp_path / "post.nc")
    assert nw.load_posterior(tmp_path / "post.nc").r2 is None
