"""Logistic and Poisson regressions through the door: one charge, kept rounds, checked Releases."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from importlib import resources

import jsonschema
import numpy as np
import pandas as pd
import pytest

from noisewise.core.errors import DataError, ReleaseError, RequestError
from noisewise.core.kinds import release_from_text
from noisewise.core.kinds.glm import GlmRelease, noises
from noisewise.core.kinds.rounds import spent
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.glm import make_glm_request

JSON_SCHEMA = json.loads(
    resources.files("noisewise.core.kinds").joinpath("glm_release.schema.json").read_text("utf-8")
)


def people(n, rng, family="logistic"):
    x = rng.normal(40, 8, n)
    g = rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    eta = -0.4 + 0.08 * (x - 40) + 0.7 * (g == "b")
    if family == "logistic":
        y = np.where(rng.random(n) < 1 / (1 + np.exp(-eta)), "yes", "no")
    else:
        y = rng.poisson(np.exp(eta))
    return pd.DataFrame({"x": x, "g": g, "y": y})


def make_schema(family="logistic", **changes):
    target = Category(("no", "yes"), "no") if family == "logistic" else Number(0, 8)
    columns = {"x": Number(0, 120), "g": Category(("a", "b", "c"), "a"), "y": target}
    return Schema("people", columns, **changes)


def released(tmp_path, schema, data, *, features=("x", "g"), family="logistic", epsilon=1, **words):
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.set_cap(schema.dataset, epsilon=100, delta="1e-5")
        request = make_glm_request(
            schema, family=family, target="y", features=features, epsilon=epsilon, **words
        )
        return request, publish(request, data, ledger=ledger).release


@pytest.mark.parametrize(
    ("family", "neighbours", "features"),
    [
        ("logistic", "replace_one", ("x", "g")),
        ("logistic", "add_remove_one", ("x",)),
        ("poisson", "add_remove_one", ("x", "g")),
        ("poisson", "replace_one", ("g",)),
    ],
)
def test_a_release_is_read_back_and_spends_its_event(tmp_path, family, neighbours, features):
    rng = np.random.default_rng(1)
    schema = make_schema(family, neighbours=neighbours)
    request, release = released(
        tmp_path, schema, people(3000, rng, family), features=features, family=family
    )
    assert isinstance(release, GlmRelease)
    assert release_from_text(release.to_text()) == release
    jsonschema.validate(json.loads(release.to_text()), JSON_SCHEMA)
    assert len(release.to_text().encode()) <= request.longest()
    assert (release.n == 3000) == (neighbours == "replace_one")
    squares, slack = spent(noises(release.looks, release.newton))
    assert squares <= request.budget
    assert squares > Fraction(999, 1000) * request.budget  # nothing is left over
    assert slack <= request.event.slack
    assert bool(release.looks) == ("x" in features)


def test_the_last_round_is_near_the_truth(tmp_path):
    """A one-step estimate from a Release with little noise, against the maximum likelihood."""
    rng = np.random.default_rng(2)
    data = people(20_000, rng)
    _, release = released(tmp_path, make_schema(), data, epsilon=50)
    last = release.last
    theta = last.theta + np.linalg.solve(last.information, last.score)
    unit = np.column_stack(
        [np.ones(len(data)), (data.x - 60) / 60, data.g == "b", data.g == "c"]
    ).astype(float)
    y = (data.y == "yes").to_numpy(float)
    beta = np.zeros(4)
    for _ in range(20):
        p = 1 / (1 + np.exp(-unit @ beta))
        H = (unit.T * (p * (1 - p))) @ unit
        beta += np.linalg.solve(H, unit.T @ (y - p))
    found = release.shape.map([True, False, False]).T @ theta
    assert np.abs(found - beta) / np.sqrt(np.diag(np.linalg.inv(H))) == pytest.approx(0, abs=1.5)


def test_a_killed_run_goes_on_and_draws_nothing_again(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    schema, data = make_schema(), people(3000, rng)
    request = make_glm_request(schema, family="logistic", formula="y ~ x + g", epsilon=1)
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.set_cap("people", epsilon=3, delta="1e-5")
        drawn = []
        whole = type(request).draw

        def dies(self, kept, step, result):
            drawn.append(whole(self, kept, step, result))
            if len(drawn) == 2:
                raise KeyboardInterrupt
            return drawn[-1]

        monkeypatch.setattr(type(request), "draw", dies)
        with pytest.raises(KeyboardInterrupt):
            publish(request, data, ledger=ledger)
        monkeypatch.setattr(type(request), "draw", whole)
        release = publish(request, data, ledger=ledger).release
        again = publish(request, data, ledger=ledger)
    assert again.repeated
    assert again.release == release
    first = json.loads(drawn[0])
    kept = [one.to_json() for one in (*release.looks, *release.newton)]
    assert first.get("look", first.get("newton")) in kept


def test_a_missing_outcome_is_found_before_anything_is_drawn(tmp_path):
    """So that rows can be mended and the charge still used."""
    schema, data = make_schema(), people(3000, np.random.default_rng(5))
    request = make_glm_request(schema, family="logistic", formula="y ~ x", epsilon=1)
    with Ledger(tmp_path / "budget.db") as ledger:
        ledger.set_cap("people", epsilon=1, delta="1e-5")
        with pytest.raises(DataError, match="'y' has missing values"):
            publish(request, data.assign(y=data.y.where(data.index > 0)), ledger=ledger)
        assert publish(request, data[1:], ledger=ledger).release.n == 2999


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    data = people(3000, np.random.default_rng(4))
    return released(tmp_path_factory.mktemp("one"), make_schema(), data)[1]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda r: {"newton": (replace(r.newton[0], sensitivity=5), *r.newton[1:])}, "sensitivity"),
        (
            lambda r: {"newton": (replace(r.newton[0], information_scale=1 << 21), *r.newton[1:])},
            "too small beside",
        ),
        (lambda r: {"newton": r.newton * 2}, "Newton rounds"),
        (lambda r: {"looks": ()}, "looks"),
        (
            lambda r: {"newton": (*r.newton[:-1], replace(r.newton[-1], scale=1 << 22))},
            "too small for the privacy event",
        ),
        (lambda r: {"shape": replace(r.shape, weight=0)}, "categories"),
        (lambda r: {"shape": replace(r.shape, radius=r.shape.radius * 2)}, "sensitivity"),
    ],
)
def test_damaged_releases_are_refused(release, damage, message):
    with pytest.raises(ReleaseError, match=message):
        replace(release, **damage(release))


def test_requests_that_make_no_sense_are_refused():
    schema = make_schema()
    with pytest.raises(RequestError, match="family"):
        make_glm_request(schema, family="probit", formula="y ~ x", epsilon=1)
    with pytest.raises(RequestError, match="delta"):
        make_glm_request(schema, family="logistic", formula="y ~ x", epsilon=1, delta=0)
    with pytest.raises(RequestError, match="two levels"):
        make_glm_request(schema, family="logistic", formula="g ~ x", epsilon=1)
    averaged = Schema("people", dict(schema.columns), unit_column="id")
    with pytest.raises(RequestError, match="averaged"):
        make_glm_request(averaged, family="logistic", formula="y ~ x", epsilon=1)


def test_another_family_is_another_request():
    columns = {"x": Number(0, 1), "y": Number(0, 8), "z": Category(("a", "b"), "a")}
    schema = Schema("d", columns)
    one = make_glm_request(schema, family="poisson", formula="y ~ x", epsilon=1)
    other = make_glm_request(schema, family="logistic", formula="z ~ x", epsilon=1)
    assert one.key != other.key
    assert one.summary == "y ~ x, poisson, gaussian in rounds"
