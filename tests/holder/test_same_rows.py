"""Other rows in a later pass are noticed, whatever the pass sums."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from noisewise.core.design import Box, Design
from noisewise.core.errors import DataError
from noisewise.core.rounds.transform import Shape, Transform
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics import SecondMoments
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.glm import make_glm_request
from noisewise.holder.requests.regression import make_request
from noisewise.holder.rows.rounds import BallPlan, ResidualPlan, TailPlan
from noisewise.holder.rows.same_rows import MODULUS, check_of, secrets_of, with_check
from noisewise.holder.rows.scores import ScorePlan
from noisewise.holder.rows.sums import SumPlan

from ..ledgers import ledger_for

KEY = "0123456789abcdef" * 4
LEVELS = tuple("abcdefghijkl")  # so many that they are summed by level
FEW = ("u", "v", "w")


def schema(**more):
    columns = {
        "x": Number(-1, 1),
        "c": Category(LEVELS, "b"),
        "g": Category(FEW, "v"),
        "y": Number(0, 4),
    }
    fill = {"x": 0.25, "c": "d"}
    return Schema("people", columns, "add_remove_one", fill=fill, **more)


def columns(n=500, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 0.4, n)
    x[::50] = np.nan
    return [
        x,
        rng.integers(-1, len(LEVELS), n).astype(np.int32),
        rng.integers(len(FEW), size=n).astype(np.int32),
        np.abs(rng.normal(0, 2, n)),
    ]


LINEAR = Design(schema(), ("x", "c", "g"), "y")
TERMS = Design(schema(), ("x", "I(x**2)", "c:g", "c", "g"), "y")
COUNTS = Design(schema(), ("x", "c", "g"), "y", "poisson")


def plans(design):
    """The first pass, and later ones, of a design."""
    numbers = design.number_of_numbers
    transform = Transform.of(np.eye(numbers) * 0.2, np.full(numbers, 0.1))
    shape = Shape(transform, 1280, 900, 2000)
    direction = tuple(range(1, len(design.names) + 1))
    return [
        SumPlan(design, Box(), (SecondMoments(design),)),
        BallPlan(design, shape),
        BallPlan(design, replace(shape, weight=0)),
        TailPlan(design, transform),
        ResidualPlan(design, shape, direction, 3000),
    ]


def glm_plans():
    alone = Shape(Transform.of(np.array([[0.3]]), np.array([0.1])), 1280, 900, 1500)
    theta = tuple(range(len(COUNTS.names) - 1))
    return [BallPlan(COUNTS.covariates, alone), ScorePlan(COUNTS, alone, theta)]


def check(plan, rows, cuts=(), key=KEY):
    """With the rows in two accumulators, as on two workers of Spark."""
    asked = with_check(plan, key)
    whole, other = asked.accumulator(), asked.accumulator()
    for piece in zip(*(np.split(column, (*cuts, 300)) for column in rows), strict=True):
        whole, other = other, whole
        whole.add(list(piece))
    whole.join(other.state())
    return check_of(asked, whole.result(), key)


def by_hand(design, rows):
    """The definition, in Python's integers, from the exact sums of single rows."""
    plan, secrets = SumPlan(design, Box(), (SecondMoments(design),)), secrets_of(KEY, design)
    total = 0
    for i in range(len(rows[0])):
        accumulator = plan.accumulator()
        accumulator.add([column[i : i + 1] for column in rows])
        sums = accumulator.result().values[SecondMoments.name]
        moments = SecondMoments(design).with_public(1, sums)
        w = [moments[0, j] >> 16 for j in range(len(design.names))]
        assert w[0] == 1 << 16
        total += sum(k * value for k, value in zip(secrets, w, strict=True)) ** 2
    return total % MODULUS


@pytest.mark.parametrize("design", [LINEAR, TERMS], ids=["columns", "terms"])
def test_every_pass_has_the_same_check(design):
    rows = columns()
    found = {check(plan, rows, cuts) for plan in plans(design) for cuts in ((), (7, 100))}
    assert len(found) == 1
    order = np.random.default_rng(3).permutation(len(rows[0]))
    assert {check(plan, [column[order] for column in rows]) for plan in plans(design)} == found
    few = [column[:60] for column in rows]
    assert check(plans(design)[1], few) == check(plans(design)[0], few) == by_hand(design, few)
    # Another key is another check, or its value would say something about the rows.
    assert check(plans(design)[1], rows, key="ff" * 32) not in found


def test_passes_of_a_logistic_or_poisson_regression_have_the_same_check():
    rows = columns()
    found = {check(plan, rows, cuts) for plan in glm_plans() for cuts in ((), (7, 100))}
    # That of the linear regression of the same columns, which is read off its sums.
    assert found == {check(plans(LINEAR)[0], rows)}


def test_averaged_rows_have_the_same_check():
    design = Design(schema(unit_column="id"), ("x", "c", "g"), "y")
    ids = pa.array(np.random.default_rng(5).integers(100, size=500))
    found = set()
    for plan in plans(design):
        accumulator = with_check(plan, KEY).accumulator()
        accumulator.add([*columns(), ids])
        found.add(check_of(plan, accumulator.result(), KEY))
    assert len(found) == 1


def test_without_a_check_nothing_is_added_up():
    accumulator = plans(LINEAR)[1].accumulator()
    accumulator.add(columns())
    assert accumulator.result().check is None


CHANGES = {
    "a number in one row": lambda rows: rows[0].__setitem__(5, rows[0][5] + 0.01),
    "a target": lambda rows: rows[3].__setitem__(5, 0.5),
    "a level": lambda rows: rows[1].__setitem__(5, (rows[1][5] + 3) % 12),
    "two targets are swapped": lambda rows: rows[3].__setitem__([3, 4], rows[3][[4, 3]]),
    "a level becomes missing": lambda rows: rows[1].__setitem__(int(np.argmax(rows[1] != 3)), -1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_row_has_another_check(change):
    before, after = columns(), columns()
    CHANGES[change](after)
    for plan in (*plans(LINEAR), *glm_plans()):
        assert check(plan, before) != check(plan, after)


def test_what_is_not_noticed():
    """As the docstring says: changes below half a step of the grid, and sums that stay."""
    before, after = columns(), columns()
    after[0][5] += 1e-9
    assert check(plans(LINEAR)[1], before) == check(plans(LINEAR)[1], after)
    pair = [np.array([0.5, -0.5, 0.0, 0.0]), np.array([0.0, 0.0, 0.5, -0.5])]
    turned = [np.array([0.5, -0.5, 0.0, 0.0]), np.array([0.0, 0.0, -0.5, 0.5])]
    design = Design(Schema("p", {"a": Number(-1, 1), "b": Number(-1, 1)}), ("a",), "b")
    plan = BallPlan(design, Shape(Transform.box(2), 1280, 0, 1774))
    assert check(plan, pair) == check(plan, turned)  # the same rows, in another order


# --- in a release ---------------------------------------------------------------------------------


def people(n=6000, seed=2):
    rng = np.random.default_rng(seed)
    age = rng.normal(45, 6, n)
    return {"age": age, "income": 800 * age + rng.normal(0, 4000, n),
            "visits": rng.poisson(1.5, n).astype(float)}  # fmt: skip


DECLARED = {"age": Number(18, 90), "income": Number(0, 200_000), "visits": Number(0, 8)}


def requests(neighbours):
    declared = Schema("people", DECLARED, neighbours)
    words = {"features": ["age"], "epsilon": 1, "delta": "1e-6"}
    return {
        "linear": make_request(declared, target="income", **words, rounds=3),
        "poisson": make_glm_request(declared, target="visits", family="poisson", **words),
    }


class Changing:
    """A table whose rows change before a pass."""

    def __init__(self, monkeypatch, before, change):
        from noisewise.holder.engines import frame

        self.passes = 0
        self.change = change
        sums = frame.FrameSource.sums

        def changed(source, plan, progress=None):
            self.passes += 1
            if self.passes == before:
                source = frame.FrameSource(self.change)
            return sums(source, plan, progress)

        monkeypatch.setattr(frame.FrameSource, "sums", changed)


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
@pytest.mark.parametrize("kind", ["linear", "poisson"])
@pytest.mark.parametrize("what", ["a value", "a row"])
@pytest.mark.parametrize("number", [2, 3])
def test_a_table_that_changes_between_passes_is_noticed(
    neighbours, kind, what, number, tmp_path, monkeypatch
):
    rows, request = people(), requests(neighbours)[kind]
    changed = {name: values.copy() for name, values in rows.items()}
    if what == "a value":
        changed["visits" if kind == "poisson" else "income"][17] += 1 if kind == "poisson" else 100
    else:
        changed = {name: values[1:] for name, values in changed.items()}
    ledger = ledger_for(tmp_path / "budget.db")
    with monkeypatch.context() as patch:
        Changing(patch, number, changed)
        with pytest.raises(DataError, match="rows are not those that the first pass") as error:
            publish(request, rows, ledger=ledger, out=tmp_path / "release.json")
    text = str(error.value)
    assert "stays pending" in text
    assert not re.search(r"age|income|visits|\d{4}", text.replace("0.1", ""))  # nor how many
    assert text.index("no further cost") < text.index("costs again")
    assert not (tmp_path / "release.json").exists()
    with Ledger(ledger) as budget:
        (account,) = budget.accounts()
        assert [one.status for one in account.charges] == ["pending"]
        assert budget.published() == {}
    # The same rows complete it, in another run, at no further cost; changed ones don't.
    with pytest.raises(DataError, match="rows are not those"):
        publish(request, changed, ledger=ledger)
    published = publish(request, rows, ledger=ledger)
    assert not published.repeated
    with Ledger(ledger) as budget:
        assert budget.accounts()[0].spent_epsilon == account.spent_epsilon


def test_the_ledger_keeps_no_sum_and_no_check(tmp_path, monkeypatch):
    """A keyed fingerprint: the number of rows is not in it either."""
    request, ledger = requests("add_remove_one")["linear"], ledger_for(tmp_path / "budget.db")
    publish(request, people(), ledger=ledger)
    with Ledger(ledger) as budget:
        (charge,) = budget.accounts()[0].charges
    kept = charge.fingerprint
    assert set(kept) == {"key", "texts"}
    assert set(kept["texts"]) == {"rows"}
    assert re.fullmatch(r"[0-9a-f]{64}", kept["texts"]["rows"])
    assert "6000" not in json.dumps(dict(kept)).replace(kept["key"], "").replace(
        kept["texts"]["rows"], ""
    )


def test_parts_from_before_fingerprints_go_on(tmp_path, monkeypatch):
    """A charge that an older version left pending has none; its rows are taken as they are."""
    request, ledger = requests("add_remove_one")["linear"], ledger_for(tmp_path / "budget.db")
    rows = people()
    with monkeypatch.context() as patch:
        Changing(patch, 2, {name: values[1:] for name, values in rows.items()})
        with pytest.raises(DataError):
            publish(request, rows, ledger=ledger)
    from noisewise.holder.ledger import file

    fold = file.Book._fold

    def as_before(book, seq, time, kind, body):
        body = {key: value for key, value in body.items() if key != "fingerprint"}
        fold(book, seq, time, kind, body)

    monkeypatch.setattr(file.Book, "_fold", as_before)
    assert publish(request, {k: v[1:] for k, v in rows.items()}, ledger=ledger).release.rounds
