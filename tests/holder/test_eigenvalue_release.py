"""The smallest eigenvalue on its way into a Release: value, noise, cost, refusals, identity."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from noisewise.core.design import STATISTIC_ONE
from noisewise.core.errors import DataError, RequestError
from noisewise.core.kinds import load_release
from noisewise.core.kinds.regression import Release
from noisewise.core.privacy import Claim, ComposedEvent, PureEvent
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics import SmallestEigenvalue
from noisewise.core.statistics.smallest_eigenvalue import MAX_SIZE
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import make_request

from ..releases import example_request, release_of
from .test_publish import (
    BAD_DATA,
    KNOWN_WITHOUT_ROWS,
    exact_unit_sums,
    people,
    request,
    schema,
    spent,
)


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "budget.db") as opened:
        opened.set_cap("people", Fraction(3), Fraction("1e-5"))
        yield opened


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"delta": 1e-6},
        {"rho": 0.05},
        {"delta": 1e-6, "radius": 2.5},  # no row is outside: the sums stay as they are
        {"neighbours": True},
        {"fourth_moments": 0.3},
    ],
)
def test_the_value_is_the_eigenvalue_plus_noise_of_the_stated_size(ledger, words, tmp_path):
    made_of = schema(neighbours="add_remove_one") if words.pop("neighbours", None) else None
    data = people(20_000)
    asked = request(made_of, smallest_eigenvalue=0.25, **words)
    release = publish(asked, data, ledger=ledger, out=tmp_path / "r.json").release
    assert load_release(tmp_path / "r.json") == release
    measurement = release.measurement("smallest_eigenvalue")
    assert isinstance(release.statistic("smallest_eigenvalue"), SmallestEigenvalue)
    truth = np.linalg.eigvalsh(exact_unit_sums(data, None)[:4, :4])[0]
    sd = measurement.noise.continuous().variance ** 0.5
    z = (measurement.unit_values()[0] - truth) / sd
    assert 1e-6 < abs(z) < 12  # twelve standard deviations: a chance of 1e-7 for Laplace noise
    assert truth > 20 * sd  # another matrix's eigenvalue would have been noticed
    assert measurement.sensitivity == 3 * STATISTIC_ONE  # 1, age, and one level of the region


def test_without_noise_it_is_exact_to_the_coarse_grid(monkeypatch, ledger):
    monkeypatch.setattr(
        "noisewise.holder.mechanisms.randomness.invoke", lambda _, sums: tuple(sums)
    )
    data = people(300)
    published = publish(request(smallest_eigenvalue=0.5), data, ledger=ledger).release
    found = published.measurement("smallest_eigenvalue").unit_values()[0]
    truth = np.linalg.eigvalsh(exact_unit_sums(data, None)[:4, :4])[0]
    assert found == pytest.approx(truth, abs=0.02)  # rows are rounded to 16 bits first


def test_shares_of_the_budget_add_up():
    both = example_request(smallest_eigenvalue="0.2", fourth_moments="0.3")
    assert both.event == ComposedEvent(
        tuple(PureEvent(Fraction(share)) for share in ("0.5", "0.3", "0.2"))
    )
    assert [s.name for s in both.statistics] == [
        *("second_moments", "fourth_moments", "smallest_eigenvalue")
    ]
    assert both.mechanisms[2].scale == pytest.approx(3 * STATISTIC_ONE / 0.2, rel=1e-9)
    gaussian = example_request(smallest_eigenvalue="0.2", rho=0.1)
    spent = [1 / (2 * Fraction(e.noise_multiplier) ** 2) for e in gaussian.event.events]
    assert sum(spent) <= Fraction("0.1")
    assert float(spent[1]) == pytest.approx(0.02, rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"smallest_eigenvalue": 0}, "0.01"),
        ({"smallest_eigenvalue": 1}, "0.99"),
        ({"smallest_eigenvalue": "much"}, "much"),
        ({"smallest_eigenvalue": 0.5, "fourth_moments": 0.5}, "add up"),
    ],
)
def test_refusals(changes, word):
    with pytest.raises(RequestError) as caught:
        example_request(**changes)
    assert "smallest_eigenvalue" in str(caught.value)
    assert word in str(caught.value)


def test_the_limit_on_columns():
    def wide(levels):
        columns = {
            "g": Category(tuple(f"l{i}" for i in range(levels)), "l0"),
            "y": Number(0, 1),
        }
        words = {"target": "y", "features": ["g"], "epsilon": 1}
        return make_request(Schema("d", columns), smallest_eigenvalue=0.5, **words)

    wide(MAX_SIZE)
    with pytest.raises(RequestError, match=f"{MAX_SIZE + 1} columns.*at most {MAX_SIZE}"):
        wide(MAX_SIZE + 1)


def test_a_request_without_it_keeps_the_identity_that_it_always_had():
    plain = example_request().to_json()
    assert "eigenvalue_share" not in plain
    keys = {example_request(smallest_eigenvalue=share).key for share in (None, 0.1, 0.2)}
    assert len(keys) == 3


@pytest.mark.parametrize("fault", BAD_DATA)
def test_bad_data_cost_what_the_repaired_ones_cost(ledger, fault):
    data = people()
    data["region"] = data["region"].astype(object)
    BAD_DATA[fault](data)
    with pytest.raises(DataError):
        publish(request(smallest_eigenvalue=0.2), data, ledger=ledger)
    assert spent(ledger) == (0 if fault in KNOWN_WITHOUT_ROWS else 1)
    publish(request(smallest_eigenvalue=0.2), people(), ledger=ledger)
    assert spent(ledger) == 1


def test_an_unforeseen_error_of_a_mechanism_keeps_the_charge(ledger, monkeypatch):
    """Whether it occurs may depend on the rows: nobody may find out for free, again and again."""

    def out_of_memory(*_):
        raise MemoryError

    asked = request(smallest_eigenvalue=0.2)
    with monkeypatch.context() as patched:
        patched.setattr("noisewise.holder.requests.regression.eigenvalue", out_of_memory)
        with pytest.raises(MemoryError):
            publish(asked, people(), ledger=ledger)
    paid = spent(ledger)
    assert paid > 0
    assert not publish(asked, people(), ledger=ledger).repeated  # takes the charge up again
    assert spent(ledger) == paid


def test_fewer_rows_than_columns(ledger):
    """The matrix is singular; nothing special happens."""
    data = {name: values[:2] for name, values in people().items()}
    release = publish(request(smallest_eigenvalue=0.2), data, ledger=ledger).release
    assert len(release.measurement("smallest_eigenvalue").values) == 1


def test_readers_check_it():
    from noisewise.core.document import digest_of
    from noisewise.core.errors import ReleaseError

    release = release_of(example_request(smallest_eigenvalue=0.2))

    def reread(change):
        document = json.loads(json.dumps(release.document))
        change(document["measurements"][1])
        document["digest"] = digest_of(document)
        return Release.from_text(json.dumps(document))

    assert reread(lambda m: None) == release
    for change, word in (
        (lambda m: m["values"].append(1), "2 values, expected 1"),
        (lambda m: m.update(layout="isometric"), "isometric"),
        (lambda m: m.update(sensitivity=m["sensitivity"] * 2), "too small"),
        (lambda m: m.update(statistic="second_moments"), "once"),
        (lambda m: m["noise"].update(scale=m["noise"]["scale"] // 2), "one noise scale"),
    ):
        with pytest.raises(ReleaseError, match=word):
            reread(change)
    # Its noise counts towards the claim.
    assert release.claim == Claim(Fraction(1))
