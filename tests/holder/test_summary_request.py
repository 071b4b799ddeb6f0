"""Requests for block summaries: words, defaults, refusals, and the whole way to a Release."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noisewise.core.errors import BudgetError, DataError, NoisewiseError, RequestError
from noisewise.core.kinds import load_release
from noisewise.core.kinds.summary.mechanisms import (
    ClippedMean,
    Conjugate,
    Fisher,
    Flat,
    GPrior,
    LocationScale,
    Mean,
    Question,
    RescaledNormal,
    Sign,
    Stouffer,
    sensitivity_of,
)
from noisewise.core.kinds.summary.release import MedianNoise, SummaryRelease
from noisewise.core.privacy import Claim
from noisewise.core.schema import Category, Number, Schema, Unbounded
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.summary import make_summary_request, question_of

from ..ledgers import ledger_for

COLUMNS = {
    "x1": Unbounded(),
    "age": Number(18, 90),
    "region": Category(("north", "süd"), "north"),
    "y": Unbounded(10.0),
}


def schema(**changes):
    return Schema("people", COLUMNS, **changes)


def request(made_of=None, **changes):
    words = {"target": "y", "features": ["x1", "region"], "epsilon": 1, "rows": 50_000}
    words |= {"questions": ["x1 < 0"]} if "coefficients" not in changes else {}
    return make_summary_request(made_of or schema(), **{**words, **changes})


def people(n=6_000, seed=5):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    region = rng.choice(["north", "süd"], n)
    y = 10 + 2 * x - 3 * (region == "süd") + rng.standard_t(4, n)
    return {"x1": x, "age": rng.uniform(18, 90, n), "region": region, "y": y}


KINDS = {
    "mean": ({}, Mean),
    "mean of coefficients": ({"coefficients": ["x1", "region[süd]"]}, Mean),
    "sign": ({"mechanism": "sign"}, Sign),
    "stouffer": ({"mechanism": "stouffer"}, Stouffer),
    "rescaled_normal": ({"mechanism": "rescaled_normal"}, RescaledNormal),
    "fisher": ({"mechanism": "fisher"}, Fisher),
    "location_scale": (
        {"coefficients": ["x1", "region[süd]"], "mechanism": "location_scale"},
        LocationScale,
    ),
    "clipped_mean": (
        {"coefficients": ["x1"], "quantiles": [0.05, 0.95], "bounds": {"x1": (-9, 9)}},
        ClippedMean,
    ),
}


@pytest.mark.parametrize(("words", "kind"), KINDS.values(), ids=KINDS)
def test_words_become_a_mechanism_with_noise_that_keeps_the_claim(words, kind):
    asked = request(**words)
    assert isinstance(asked.mechanism, kind)
    assert asked.posterior == Flat()
    asked.verify()
    if kind is LocationScale:
        assert isinstance(asked.noise, MedianNoise)
        spent = 2 * (asked.noise.location_epsilon + asked.noise.scale_epsilon)
        assert spent == 1
    elif kind is Mean:
        medians, sums = asked.noise.medians, asked.noise.sums
        each = medians.location_epsilon + medians.scale_epsilon
        left = 1 - len(asked.mechanism.items) * each
        expected = sensitivity_of(asked.mechanism, asked.partitions, 1)
        assert sums.sensitivity == expected
        assert expected <= sums.scale * left <= 1.001 * expected
    else:
        expected = sensitivity_of(asked.mechanism, asked.partitions, 1)
        assert asked.noise.sensitivity == expected
        assert asked.noise.scale >= expected
    assert asked.event.epsilon == 1
    assert asked.plan().memory < 2**30


@pytest.mark.parametrize(
    ("given", "coefficient", "threshold"),
    [
        ("x1 < 0", "x1", 0.0),
        (" x1>=-2.5e3 ", "x1", -2500.0),
        ("region[süd] <= 1", "region[süd]", 1.0),
        ("a<b < 3", "a<b", 3.0),
        (("x1", 4), "x1", 4.0),
        (Question("x1", 1.0), "x1", 1.0),
    ],
)
def test_questions(given, coefficient, threshold):
    assert question_of(given) == Question(coefficient, threshold)


REFUSED = {
    "no epsilon": ({"epsilon": None}, "epsilon: not given"),
    "zero epsilon": ({"epsilon": 0}, "from 1e-09"),
    "tiny epsilon": ({"epsilon": "1e-30", "blocks": 100}, "1e-30 is out of range"),
    "features": ({"features": "x1"}, "expected a list"),
    "target": ({"target": "region", "features": ["x1"]}, "is a category"),
    "unknown feature": ({"features": ["z"]}, "not declared"),
    "no question": ({"questions": []}, "questions: none given"),
    "nonsense": ({"questions": ["x1 ~ 0"]}, "not a question"),
    "not a number": ({"questions": ["x1 < zero"]}, "not a number"),
    "infinite": ({"questions": ["x1 < inf"]}, "finite"),
    "a dict": ({"questions": [{"x1": 0}]}, "not a question"),
    "coefficient": ({"questions": ["y < 0"]}, "not one of the regression's: intercept, x1"),
    "twice": ({"questions": ["x1 < 0", "x1 > 0"], "mechanism": "sign"}, "twice"),
    "mechanism": ({"mechanism": "median"}, "unknown; there are mean"),
    "both": ({"questions": ["x1 < 0"], "coefficients": ["x1"]}, "answers all questions"),
    "mixed": ({"mechanism": "sign", "coefficients": ["x1"], "questions": ["x1 < 0"]}, "no use"),
    "unused": ({"clip": 1.0}, "no use for it"),
    "unused bounds": ({"bounds": {"x1": (0, 1)}}, "no use for it"),
    "no bounds": ({"coefficients": ["x1"], "quantiles": [0.5]}, "needs public bounds"),
    "bounds": ({"coefficients": ["x1"], "quantiles": [0.5], "bounds": {"x1": (1, 1)}}, "below"),
    "bounds of another": (
        {"coefficients": ["x1"], "quantiles": [0.5], "bounds": {"z": (0, 1)}},
        "not among the coefficients",
    ),
    "no quantiles": ({"mechanism": "clipped_mean", "coefficients": ["x1"]}, "quantiles: none"),
    "base": ({"coefficients": ["x1"], "bases": {"x1": (0, -1)}}, "positive"),
    "no coefficients": ({"mechanism": "location_scale", "questions": ()}, "coefficients: none"),
    "unknown coefficient": ({"coefficients": ["y"]}, "not one of the regression's"),
    "text": ({"coefficients": "x1"}, "expected a list"),
    "hopeless medians": ({"coefficients": ["x1"], "epsilon": "0.1"}, "too little for private"),
    "no rows": ({"rows": None}, "rows: not given"),
    "few rows": ({"rows": 50}, "too few"),
    "rows": ({"rows": -3}, "whole number"),
    "one block": ({"blocks": 1}, "blocks: expected a whole number from 2"),
    "many": ({"blocks": 2**20, "partitions": 30}, "more than 4,194,304 regressions"),
    "fractions": ({"partitions": 1.5}, "partitions: expected a whole number"),
    "label": ({"label": "a\nb"}, "printable"),
    "posterior": ({"posterior": Conjugate((0,), (1,), 1, 1)}, "3 coefficients"),
}


@pytest.mark.parametrize(("words", "reason"), REFUSED.values(), ids=REFUSED)
def test_refusals_name_the_argument_and_the_remedy(words, reason):
    with pytest.raises(RequestError, match=reason):
        request(**words)


def test_a_delta_is_refused():
    with pytest.raises(RequestError, match="purely private"):
        replace(request(), claim=Claim(1, Fraction("1e-6")))


def test_too_much_memory_is_refused():
    wide = Schema("d", {**{f"x{i}": Unbounded() for i in range(60)}, "y": Unbounded()})
    words = {"target": "y", "features": [f"x{i}" for i in range(60)], "epsilon": 1}
    with pytest.raises(RequestError, match="GB; use fewer"):
        make_summary_request(wide, **words, questions=["x1 < 0"], blocks=100_000, partitions=30)


def test_a_private_number_of_rows_decides_nothing():
    private = schema(neighbours="add_remove_one")
    with pytest.raises(RequestError, match="private under add_remove_one"):
        request(private)
    with pytest.raises(RequestError, match="and no rows"):
        request(private, blocks=100)
    asked = request(private, rows=None, blocks=100)
    assert asked.blocks == 100
    with pytest.raises(RequestError, match="needs a public number of rows"):
        request(private, rows=None, blocks=100, posterior=GPrior("n"))


def test_rows_of_a_unit_multiply_the_noise():
    one, four = request(blocks=100), request(schema(max_rows_per_unit=4), blocks=100)
    assert four.noise.sensitivity == 4 * one.noise.sensitivity
    assert four.kappa == pytest.approx(one.kappa / 4)


def test_questions_share_the_budget():
    asked = request(questions=["x1 < 0", "x1 < 1", "intercept < 0"], blocks=100)
    assert asked.noise.sensitivity == 3 * request(blocks=100).noise.sensitivity
    assert asked.entry_epsilon == Fraction(1, 3)


def test_warnings_before_anything_is_spent():
    assert request().warnings == ()
    assert "drown" in request(epsilon="0.05").warnings[0]
    assert "rows each" in request(blocks=5_000).warnings[0]


def test_the_identity_of_a_request():
    same = request()
    assert same.key == request().key
    assert same.key == replace(same, rows=None).key  # the rows are the table's, not the request's
    others = [
        request(label="again"),
        request(epsilon=2),
        request(questions=["intercept < 1"]),
        request(blocks=17),
        request(partitions=3),
        request(posterior=GPrior()),
        request(features=["x1"]),
        request(mechanism="fisher"),
        request(batch="2026-09"),
    ]
    assert len({same.key, *(other.key for other in others)}) == 1 + len(others)
    assert same.charge().request_key != same.charge(table="t").request_key


def test_the_audit_trail_says_what_was_asked():
    asked = request(questions=[f"x1 < {b}" for b in range(6)], mechanism="sign")
    assert asked.charge().summary == (
        "y ~ x1 + region, sign: x1 < 0, x1 < 1, x1 < 2, x1 < 3 and 2 more"
    )
    assert request(coefficients=["x1"]).charge().summary.endswith("mean: x1")


# ---------------------------------------------------------------------------------------------
# Through the door


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "budget.db") as opened:
        opened.set_cap("people", Fraction(4), Fraction(0))
        yield opened


def spent(ledger):
    return sum(account.spent_epsilon for account in ledger.accounts())


@pytest.mark.parametrize(("words", "kind"), KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
def test_publish(words, kind, neighbours, ledger, tmp_path):
    public = neighbours == "replace_one"
    made = request(
        schema(neighbours=neighbours), **words, rows=6_000 if public else None, blocks=600
    )
    out = tmp_path / "summary.json"
    published = publish(made, people(), ledger=ledger, out=out)
    release = published.release
    assert isinstance(release, SummaryRelease)
    assert load_release(out) == release
    assert release.n == (6_000 if public else None)
    assert isinstance(release.mechanism, kind)
    assert spent(ledger) == 1
    again = publish(made, people(), ledger=ledger)
    assert again.repeated
    assert again.release == release
    assert spent(ledger) == 1


def test_the_numbers_are_about_the_data(ledger):
    """β = 2, with a standard error of about 0.02: far below 1, far above 3."""
    words = {"questions": ["x1 < 1", "x1 < 3"], "mechanism": "sign"}
    asked = request(**words, epsilon=3, rows=6_000, blocks=200)
    release = publish(asked, people(), ledger=ledger).release
    assert release.mean(0) == pytest.approx(-1, abs=0.3)  # noise of scale 4 / (3 * 200)
    assert release.mean(1) == pytest.approx(1, abs=0.3)


def test_every_posterior_gets_through(ledger):
    for number, posterior in enumerate(
        (GPrior(), GPrior(100.0), Conjugate((0,) * 3, (1,) * 3, 1, 1))
    ):
        asked = request(
            posterior=posterior, epsilon="0.5", blocks=50, rows=6_000, label=str(number)
        )
        assert publish(asked, people(), ledger=ledger).release.posterior == posterior


def test_long_names_and_long_budgets_can_be_read_again(ledger):
    """Names of columns and levels have up to 200 characters each, exact fractions far more."""
    column, level = "c" * 200, "l" * 200
    made_of = Schema("people", {**COLUMNS, column: Category((level, "b"), "b")})
    data = {**people(), column: np.where(np.arange(6_000) % 2 == 0, level, "b")}
    words = {"features": ["x1", column], "rows": 6_000, "epsilon": "1." + "1" * 300}
    asked = {"questions": [f"{column}[{level}] < 0"]}, {"coefficients": [f"{column}[{level}]"]}
    for kind in asked:
        made = request(made_of, **{**words, **kind}, blocks=200)
        published = publish(made, data, ledger=ledger).release
        assert published.coefficients[-1] == f"{column}[{level}]"


def test_a_release_that_nobody_could_read_is_not_drawn_again(ledger, monkeypatch):
    """To discard a draw for what it is, and to draw again, would be another mechanism."""
    monkeypatch.setattr(SummaryRelease, "to_text", lambda self: "{}")
    for _ in range(2):
        with pytest.raises(NoisewiseError, match="not a noisewise Release"):
            publish(request(rows=6_000), people(), ledger=ledger)
    (account,) = ledger.accounts()
    assert [one.status for one in account.charges] == ["published"]


@pytest.mark.parametrize(
    "words",
    [
        {"mechanism": "stouffer", "epsilon": "1e-200"},
        {"mechanism": "stouffer", "epsilon": "1e-390"},
        {"mechanism": "sign", "epsilon": "1e-390"},
    ],
)
def test_a_budget_of_nearly_nothing_is_refused_in_words(words):
    with pytest.raises(RequestError, match="epsilon"):
        request(**words)


def test_units_that_are_worlds_apart_are_refused_in_words():
    made_of = Schema("people", {"x": Unbounded(1e200), "y": Unbounded(1e-200)})
    with pytest.raises(RequestError, match="base: scale"):
        request(made_of, features=["x"], coefficients=["x"])


def test_the_wrong_number_of_rows_costs_nothing(ledger):
    with pytest.raises(DataError, match="6,001 were declared and the data have 6,000"):
        publish(request(rows=6_001), people(), ledger=ledger)
    assert spent(ledger) == 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data | {"x1": np.full(6_000, np.nan)},
        lambda data: data | {"region": ["west"] * 6_000},
        lambda data: data | {"y": ["many"] * 6_000},
        lambda data: {name: column for name, column in data.items() if name != "x1"},
        lambda data: {name: column[:0] for name, column in data.items()},
    ],
    ids=["nan", "level", "text", "column", "no rows"],
)
def test_data_that_do_not_fit_keep_their_charge(spoil, ledger):
    asked, data = request(rows=None, blocks=10), spoil(people())
    with pytest.raises(DataError) as caught:
        publish(asked, data, ledger=ledger)
    assert "many" not in str(caught.value)
    known_without_rows = "x1" not in data or len(data["x1"]) == 0
    assert spent(ledger) == (0 if known_without_rows else asked.epsilon)
    publish(asked, people(), ledger=ledger)
    assert spent(ledger) == asked.epsilon


def test_the_budget_is_kept(ledger):
    with pytest.raises(BudgetError):
        publish(request(rows=6_000, epsilon=5), people(), ledger=ledger)


def test_a_regression_request_refuses_columns_without_bounds():
    from noisewise.holder.requests.regression import make_request

    with pytest.raises(NoisewiseError, match="bounds"):
        make_request(schema(), target="y", features=["x1"], epsilon=1)


@pytest.mark.filterwarnings("error")
def test_degenerate_blocks_publish_like_any_others(ledger):
    """Far too many blocks: most have no regression, and nobody can tell from a message."""
    data = people(40)
    data["x1"][:4], data["y"][4:6] = [np.inf, -np.inf, 1e300, 5e-324], [np.inf, -1e308]
    for number, (words, kind) in enumerate(KINDS.values()):
        asked = request(**words, rows=40, blocks=1_400, epsilon="0.4", label=str(number))
        assert isinstance(asked.mechanism, kind)
        release = publish(asked, data, ledger=ledger).release
        assert all(math.isfinite(value) for value in release.values)


def test_a_private_number_of_rows_may_be_zero(ledger):
    """Under add_remove_one an empty table is a neighbour of one with a row: it must publish."""
    empty = {name: column[:0] for name, column in people(5).items()}
    asked = request(schema(neighbours="add_remove_one"), rows=None, blocks=10)
    assert publish(asked, empty, ledger=ledger).release.n is None


def test_base_laws_have_the_scale_of_the_units():
    words = {"features": ["x1", "age", "region"], "coefficients": ["x1", "age", "region[süd]"]}
    asked = request(**words, blocks=1_000)
    assert isinstance(asked.mechanism, Mean)
    scales = [item.location.scale for item in asked.mechanism.items]
    assert scales == [10.0, 10.0 / 36, 10.0]
    assert [item.location.centre for item in asked.mechanism.items] == [0.0] * 3
    for item in asked.mechanism.items:
        narrow = math.exp(item.log_scale.centre) / item.location.scale
        assert narrow == pytest.approx(1 / math.sqrt(30))  # that of a block's estimates
    given = request(coefficients=["x1"], bases={"x1": (5, 0.5)}).mechanism.items[0].location
    assert (given.centre, given.scale) == (5.0, 0.5)
    medians = request(**words, mechanism="location_scale")
    narrow = math.exp(medians.mechanism.items[0].log_scale.centre) / 10.0
    assert narrow == pytest.approx(1 / math.sqrt(30 * medians.blocks))


def test_a_parquet_file_in_a_stream(ledger, tmp_path):
    pq.write_table(pa.table(people()), tmp_path / "people.parquet", row_group_size=500)
    asked = request(rows=6_000)
    assert publish(asked, tmp_path / "people.parquet", ledger=ledger).release.n == 6_000


def test_words_that_meant_something_else_still_find_its_charge(tmp_path):
    """Whoever published signs of 30 rows a block by these words gets that Release again."""
    asked = request(rows=6_000, blocks=400)
    assert isinstance(asked.mechanism, Mean)
    assert isinstance(asked.former.mechanism, Sign)
    ledger = ledger_for(tmp_path / "budget.db")
    old = publish(asked.former, people(), ledger=ledger)
    again = publish(asked, people(), ledger=ledger)
    assert again.repeated
    assert again.release == old.release
    named = request(rows=6_000, blocks=400, mechanism="mean")
    assert named.former is None
    assert not publish(named, people(), ledger=ledger).repeated


def test_signs_and_medians_have_at_most_the_root_of_the_rows_in_blocks():
    signs = request(mechanism="sign", rows=1_000_000, epsilon="0.1")
    assert signs.blocks == 1_000
    assert signs.former.blocks == 1_000_000 // 45
    medians = request(mechanism="location_scale", coefficients=["x1"], rows=10_000)
    assert medians.blocks == 160  # what private medians need, and more than 100


def test_a_question_with_two_ends():
    asked = request(questions=["0 < x1 < 2", "region[süd] > 1"])
    assert [item.coefficient for item in asked.mechanism.items] == ["x1", "region[süd]"]
    same = request(questions=["x1 < 5", "region[süd] < 0"])
    assert same.key == asked.key  # a Release of means answers both
    with pytest.raises(RequestError, match="two ends"):
        request(questions=["0 < x1 < 2"], mechanism="sign")
