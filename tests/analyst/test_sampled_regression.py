"""Published draws of a regression: original units, warnings, and what `fit` refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest

import noisewise as nw
from noisewise.analyst.posterior.draws import DrawsPosterior
from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.requests.draws import make_regression_sample_request

from ..ledgers import ledger_for

SCHEMA = Schema(
    "people",
    {
        "age": Number(20, 80),
        "region": Category(("n", "s"), "n"),
        "income": Number(0, 100),
    },
)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    rng = np.random.default_rng(3)
    n = 40_000
    age, south = rng.uniform(20, 80, n), rng.random(n) < 0.5
    income = 20 + 0.5 * age + 8 * south + rng.normal(0, 10, n)
    table = {"age": age, "region": np.where(south, "s", "n"), "income": income}
    request = make_regression_sample_request(
        SCHEMA, target="income", features=["age", "region"], noise_sd=10, epsilon=5, draws=30
    )
    folder = tmp_path_factory.mktemp("sampled")
    return nw.publish(
        request, table, ledger=ledger_for(folder / "b.db"), out=folder / "s.json"
    ).release


def test_draws_are_in_original_units(release):
    read = nw.fit(release)
    assert isinstance(read, DrawsPosterior)
    assert read.names == ("intercept", "age", "region[s]")
    assert read.theta.shape == (30, 3)
    # Six standard errors of a mean of 30 draws, and the error of the data's own regression.
    spread = read.theta.std(axis=0, ddof=1) / np.sqrt(30)
    for name, truth, error in zip(read.names, (20, 0.5, 8), spread, strict=True):
        assert read.summary().rows[name].mean == pytest.approx(
            truth, abs=6 * error + 0.02 * abs(truth)
        )
    expected = read.predict({"age": [50.0], "region": ["s"]})
    assert expected.estimate == pytest.approx([53], abs=3)


def test_it_says_what_draws_cannot(release):
    read = nw.fit([release])
    assert "to the power" in str(read)
    assert "too few" not in str(read)
    assert json.loads(json.dumps(read.to_dict()))["coefficients"][1] == "age"


def test_one_draw_has_no_interval(tmp_path):
    request = make_regression_sample_request(
        SCHEMA, target="income", features=["age"], noise_sd=10, epsilon=1
    )
    table = {"age": [30.0, 60.0], "region": ["n", "s"], "income": [10.0, 20.0]}
    read = nw.fit(nw.publish(request, table, ledger=ledger_for(tmp_path / "b.db")).release)
    assert "1 draw: too few for an interval" in str(read)


def test_it_is_read_by_itself_and_as_it_is(release):
    with pytest.raises(RequestError, match="by itself"):
        nw.fit([release, release])
    with pytest.raises(RequestError, match="method: a Release of posterior draws is read as"):
        nw.fit(release, method="exact")
    with pytest.raises(RequestError, match="expected draws"):
        DrawsPosterior("sample.json")


def test_kinds_do_not_mix(release):
    from tests.releases import example_request, release_of

    with pytest.raises(RequestError, match="posterior draws and statistics of a regression"):
        nw.fit([release, release_of(example_request())])


def test_the_error_of_a_senseless_noise_names_it():
    with pytest.raises(RequestError, match=r"noise_sd: .* between 0\.05 and 50000"):
        make_regression_sample_request(
            SCHEMA, target="income", features=["age"], noise_sd=0, epsilon=1
        )
