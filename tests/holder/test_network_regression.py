"""Posterior draws of a regression: the law, the request, the Release and the command."""

import copy
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from noisewise.cli.main import main
from noisewise.core.document import digest_of
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds import load_release, release_from_text
from noisewise.core.kinds.draws import RegressionSampleRelease
from noisewise.core.schema import Category, Number, Schema, Unbounded
from noisewise.holder.draws import LatticeGaussian
from noisewise.holder.engines import open_source
from noisewise.holder.publish import publish
from noisewise.holder.requests.draws import make_regression_sample_request

from ..ledgers import ledger_for

SCHEMA = Schema(
    "people",
    {
        "age": Number(18, 90),
        "region": Category(("north", "south", "west"), "north"),
        "income": Number(0, 1e5),
    },
)


def frame(rows=400, seed=1):
    rng = np.random.default_rng(seed)
    age = rng.uniform(18, 90, rows)
    region = rng.choice(["north", "south", "west"], rows)
    income = 2e4 + 600 * age + 5e3 * (region == "west") + rng.normal(0, 8e3, rows)
    return pd.DataFrame({"age": age, "region": region, "income": income})


def request(schema=SCHEMA, **words):
    given = {"target": "income", "features": ["age", "region"], "noise_sd": 8000, "epsilon": 2}
    return make_regression_sample_request(schema, **{**given, **words})


def untempered(**words):
    """A request whose posterior is not tempered, whatever that would cost."""
    made = request(**words)
    return made, replace(made.planned, law=replace(made.planned.law, temper=Fraction(1)))


def test_through_the_door_and_again_for_nothing(tmp_path):
    made = request(draws=3)
    out = tmp_path / "sample.json"
    first = publish(made, frame(), ledger=ledger_for(tmp_path / "budget.db"), out=out)
    again = publish(made, frame(seed=2), ledger=ledger_for(tmp_path / "budget.db"), out=out)
    assert again.repeated
    assert again.release == first.release == load_release(out)
    assert first.release.n == 400
    assert first.release.coefficients().shape == (3, 4)
    assert (np.linalg.norm(first.release.coefficients(), axis=1) <= 1).all()


def test_draws_follow_the_posterior():
    """Mean and covariance of many draws against the conjugate posterior, where no ball matters."""
    made, mechanism = untempered(largest_norm=30, prior_precision=200, draws=200)
    law = mechanism.law
    data = frame(60)
    draws = mechanism.draw(open_source(data).sums(made.plan(), None))
    draws = np.array(draws) * 30 / 2**32
    x = np.column_stack(
        [
            np.ones(60),
            (data["age"] - 54) / 36,
            data["region"] == "south",
            data["region"] == "west",
        ]
    ).astype(float)
    y = (np.clip(data["income"], 0, 1e5) - 5e4) / 5e4
    precision = x.T @ x / float(law.variance) + 200 * np.eye(4)
    mean = np.linalg.solve(precision, x.T @ y / float(law.variance))
    root = np.linalg.cholesky(precision)
    z = (draws - mean) @ root  # standard normal, if all is right
    assert np.abs(z.mean(axis=0)).max() < 5.5 / np.sqrt(200)
    assert np.abs(z.T @ z / 200 - np.eye(4)).max() < 5.5 * np.sqrt(2 / 200)
    # Negative control: the posterior without its prior is another one.
    flat = np.linalg.lstsq(x, y, rcond=None)[0]
    assert np.abs(((draws - flat) @ root).mean(axis=0)).max() > 5.5 / np.sqrt(200)


def test_truncated_draws_have_the_ball_as_their_support():
    """The data want coefficients of norm 0.58; in a ball of 0.3, radii follow the exact law."""
    made, mechanism = untempered(largest_norm="0.3", draws=150, prior_precision=0)
    sums = open_source(frame(10)).sums(made.plan(), None)
    sampler = mechanism.sampler(sums)
    assert isinstance(sampler, LatticeGaussian)
    draws = np.array(mechanism.draw(sums)) / 2**32
    radii = np.linalg.norm(draws, axis=1)
    assert radii.max() <= 1
    # Uniform points of the ball, weighted by the density, are the oracle.
    rng = np.random.default_rng(3)
    points = rng.normal(size=(200_000, 4))
    points *= (rng.uniform(size=200_000) ** 0.25 / np.linalg.norm(points, axis=1))[:, None]
    a = np.array(sampler.precision, dtype=float)
    logs = -0.5 * np.einsum("ni,ij,nj->n", points, a, points)
    logs += points @ np.array(sampler.linear, dtype=float)
    weights = np.exp(logs - logs.max())
    norms = np.linalg.norm(points, axis=1)
    expected = weights @ norms / weights.sum()
    spread = np.sqrt(weights @ (norms - expected) ** 2 / weights.sum())
    effective = weights.sum() ** 2 / (weights**2).sum()
    assert effective > 1000
    error = spread * np.sqrt(1 / 150 + 1 / effective)
    assert abs(radii.mean() - expected) < 5 * error
    assert abs(norms.mean() - expected) > 5 * error  # the prior alone would fail


def test_epsilon_and_temper_determine_each_other():
    wide = {"noise_sd": 50_000}
    full = request(epsilon=None, **wide)
    assert full.planned.law.temper == 1
    cost = full.claim.epsilon
    assert float(cost) == pytest.approx((1 + np.sqrt(3)) ** 2, abs=1e-6)
    half = request(epsilon=cost / 2, **wide)
    quarter = request(epsilon=cost / 2, draws=2, **wide)
    assert float(half.planned.law.temper) == pytest.approx(0.5, rel=1e-6)
    assert float(quarter.planned.law.temper) == pytest.approx(0.25, rel=1e-6)
    assert request(epsilon=2 * cost, **wide).planned.law.temper == 1
    for made in (full, half):
        made.verify()
        assert made.planned.law.cost(made.planned.draws) <= made.claim.epsilon
    # Nobody sharpens: variances on unit scale stay what they were.
    assert half.planned.law.variance == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"features": "age"}, "list of column names"),
        ({"features": ["age", "weight"]}, "weight"),
        ({"target": "region", "features": ["age"]}, "region"),
        ({"noise_sd": 0}, "noise_sd"),
        ({"noise_sd": -3}, "noise_sd"),
        ({"draws": 0}, "draws"),
        ({"radius": 1000}, "radius"),
        ({"largest_norm": 0}, "radius"),
        ({"epsilon": "1e-40"}, "out of range"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": None}, "untempered posterior would cost 291"),
        ({"label": "\n"}, "label"),
    ],
)
def test_bad_requests_are_named(words, message):
    with pytest.raises(RequestError, match=message):
        request(**words)


@pytest.mark.parametrize("name", ["age", "income"])
def test_columns_without_bounds_are_refused(name):
    with pytest.raises(RequestError, match=f"{name}.*no bounds.*release-summary"):
        request(Schema("people", {**SCHEMA.columns, name: Unbounded()}))


def test_private_n_stays_private(tmp_path):
    schema = Schema("people", SCHEMA.columns, neighbours="add_remove_one")
    made = request(schema)
    release = publish(made, frame(), ledger=ledger_for(tmp_path / "budget.db")).release
    assert release.n is None
    assert release_from_text(release.to_text()) == release
    temper = float(request().planned.law.temper)  # replacing is adding and removing
    assert float(made.planned.law.temper) == pytest.approx(2 * temper)


def _release():
    made = request()
    return made.release(400, open_source(frame()).sums(made.plan(), None))


def _with_digest(document):
    document = {key: value for key, value in document.items() if key != "digest"}
    return json.dumps({**document, "digest": digest_of(document)})


DAMAGE = {
    "extra key": lambda d: d.update(more=1),
    "outside": lambda d: d["draws"][0].__setitem__(0, 2**33),
    "corner": lambda d: d.update(draws=[[2**32, 2**32, 0, 0]]),
    "short": lambda d: d["draws"][0].pop(),
    "none": lambda d: d.update(draws=[]),
    "too many": lambda d: d["draws"].append(d["draws"][0]),
    "less tempered": lambda d: d["law"].update(temper="1"),
    "smaller variance": lambda d: d["law"].update(variance="0.0001"),
    "larger ball": lambda d: d["law"].update(radius="7"),
    "a number": lambda d: d["law"].update(radius=1),
    "geometry": lambda d: d["law"].update(geometry={"kind": "cube", "radius": 1.0}),
    "claim": lambda d: d["privacy"]["claim"].update(epsilon="1"),
    "n": lambda d: d.update(n=None),
    "text": lambda d: d.update(draws="abc"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_documents_are_refused(damage):
    document = copy.deepcopy(_release().document)
    RegressionSampleRelease.from_text(_with_digest(document))
    damage(document)
    with pytest.raises(ReleaseError):
        RegressionSampleRelease.from_text(_with_digest(document))


SCHEMA_TEXT = """\
dataset: people
columns:
  age: {type: number, lower: 18, upper: 90}
  region: {type: category, levels: [north, south, west], reference: north}
  income: {type: number, lower: 0, upper: 100000}
"""


def test_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame().to_parquet("people.parquet")
    (tmp_path / "schema.yaml").write_text(SCHEMA_TEXT)
    ledger_for(tmp_path / "budget.db")
    words = ["noisewise", "sample-regression", "--data", "people.parquet"]
    words += ["--schema", "schema.yaml", "--target", "income", "--features", "age,region"]
    words += ["--noise-sd", "8000", "--epsilon", "2", "--ledger", "budget.db"]
    monkeypatch.setattr("sys.argv", [*words, "--dry-run"])
    main_or_exit()
    assert "temper" in capsys.readouterr().out
    assert not (tmp_path / "sample.json").exists()
    monkeypatch.setattr("sys.argv", words)
    main_or_exit()
    assert "Published sample.json" in capsys.readouterr().out
    assert isinstance(load_release("sample.json"), RegressionSampleRelease)


def main_or_exit():
    try:
        main()
    except SystemExit as stop:
        assert not stop.code
