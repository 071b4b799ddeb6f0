"""The size of a Release is bounded before anything is drawn: no draw can make it unreadable."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from noisewise.core import document
from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.engines import open_source
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.draws import make_regression_sample_request
from noisewise.holder.requests.network import make_network_request
from noisewise.holder.requests.regression import make_request
from noisewise.holder.requests.summary import make_summary_request

SCHEMA = Schema(
    "Größe",
    {
        "ä": Number(0, 1),
        "x": Number(0, 1),
        "y": Number(-1, 1),
        "a": Category(("é", "n"), "n"),
        "b": Category(tuple("uvw"), "u"),
    },
    neighbours="add_remove_one",
)
PUBLIC = Schema(SCHEMA.dataset, SCHEMA.columns)
GRAPH = {"a": [], "b": ["a"]}
REGRESSION = {"target": "y", "features": ["ä", "x", "b"]}

REQUESTS = {
    "laplace": make_request(SCHEMA, **REGRESSION, epsilon="1e-5"),
    "gaussian": make_request(PUBLIC, **REGRESSION, epsilon=1, delta="1e-6", rounds=1, label="ß"),
    "further statistics": make_request(
        PUBLIC, **REGRESSION, epsilon=1, fourth_moments="0.2", smallest_eigenvalue="0.2"
    ),
    "sign": make_summary_request(PUBLIC, **REGRESSION, epsilon=1, blocks=5, questions=["ä < 0"]),
    "location_scale": make_summary_request(
        SCHEMA, **REGRESSION, epsilon=50, blocks=90, coefficients=["ä", "x"]
    ),
    "draws": make_regression_sample_request(SCHEMA, **REGRESSION, noise_sd=1, epsilon=1, draws=7),
    "one draw": make_regression_sample_request(PUBLIC, **REGRESSION, noise_sd=1, epsilon=1),
    "counts": make_network_request(SCHEMA, network=GRAPH, epsilon="1e-6"),
    "public counts": make_network_request(PUBLIC, network=GRAPH, epsilon=1),
    "parities": make_network_request(SCHEMA, network=GRAPH, epsilon=1, mechanism="fourier"),
    "tables": make_network_request(
        PUBLIC, network=GRAPH, epsilon=1, mechanism="posterior_sample", draws=20
    ),
    "map": make_network_request(PUBLIC, network=GRAPH, epsilon=1, mechanism="map", kind="grid"),
    "tempered": make_network_request(
        SCHEMA, network=GRAPH, epsilon=1, mechanism="map", kind="tempered"
    ),
}


def rows(n=200):
    rng = np.random.default_rng(3)
    numbers = {name: rng.uniform(-1, 1, n) for name in ("ä", "x", "y")}
    return {**numbers, "a": rng.choice(["é", "n"], n), "b": rng.choice(list("uvw"), n)}


@pytest.mark.parametrize("name", REQUESTS)
def test_no_text_is_longer_than_the_bound_and_the_bound_is_not_idle(name):
    request = REQUESTS[name]
    sums = open_source(rows()).sums(request.plan())
    for _ in range(5):
        text = request.release(sums.n, sums).to_text()
        assert len(text.encode()) <= request.longest()
        assert request.longest() < 1.5 * len(text.encode())


def test_the_bound_is_reached_by_the_longest_integers(monkeypatch):
    request = REQUESTS["laplace"]
    monkeypatch.setattr(
        "noisewise.holder.mechanisms.laplace.LaplaceMechanism.add_noise",
        lambda self, sums: tuple(-(2**63) for _ in sums),
    )
    values = {"second_moments": (0,) * len(request.statistics[0].entries)}
    text = request.release(5, type("Sums", (), {"n": 5, "values": values})).to_text()
    assert len(text.encode()) == request.longest()


def test_a_network_whose_draws_might_not_be_readable_is_refused_for_free(tmp_path):
    levels = tuple("0123456789")
    schema = Schema("people", {name: Category(levels, "0") for name in "abc"})
    words = {"network": {"a": [], "b": ["a"], "c": ["a", "b"]}, "mechanism": "posterior_sample"}
    request = make_network_request(schema, **words, draws=5000, epsilon=50)
    rng = np.random.default_rng(2)
    data = {name: rng.choice(levels, 50) for name in "abc"}
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.set_cap("people", Fraction(100), Fraction(0))
        with pytest.raises(RequestError, match="fewer draws"):
            publish(request, data, ledger=ledger)
        assert ledger.accounts()[0].spent_epsilon == 0
        fewer = make_network_request(schema, **words, draws=20, epsilon=50)
        assert fewer.longest() < document.MAX_BYTES
        published = publish(fewer, data, ledger=ledger).release
        assert len(published.to_text()) <= fewer.longest()
