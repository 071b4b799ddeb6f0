"""The ledger: exact sums, one charge a release, and no way to lose one.

The crash tests fork real processes and kill them: before every SQL statement and system call
that the ledger makes, inside of writes (a file size limit tears the write in two), and at
arbitrary times. The parent never holds an open ledger while it forks, as SQLite forbids that.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import resource
import shlex
import shutil
import signal
import sqlite3
import stat
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noisewise.core.calibration import gaussian_noise_multiplier
from noisewise.core.composition import epsilon_of
from noisewise.core.errors import BudgetError, LedgerError, NoisewiseError, RequestError
from noisewise.core.privacy import ComposedEvent, Event, GaussianEvent, PureEvent
from noisewise.core.privacy_filter import Borne, epsilon_spent
from noisewise.holder.ledger import Account, Charge, Ledger, Reservation
from noisewise.holder.ledger import accounts as accounts_module
from noisewise.holder.ledger import accounts as amounts
from noisewise.holder.ledger import file as file_module

DELTA = Fraction(1, 10**6)
UNIT = "replace_one/1"


def charge(
    epsilon: str = "0.1",
    request: str = "a",
    *,
    dataset: str = "survey",
    unit: str = UNIT,
    event: Event | None = None,
    delta: Fraction = Fraction(0),
    batch: str | None = None,
    series: str | None = None,
) -> Charge:
    amount = Fraction(epsilon)
    return Charge(
        dataset=dataset,
        request_key=hashlib.sha256(request.encode()).hexdigest(),
        unit=unit,
        event=PureEvent(amount) if event is None else event,
        epsilon=amount,
        delta=delta,
        summary=f"request {request}",
        batch=batch,
        series=series,
    )


def gaussian_charge(
    request: str, *, multiplier: float = 20.0, delta: Fraction = DELTA, dataset: str = "survey"
) -> Charge:
    event = GaussianEvent(noise_multiplier=multiplier)
    # A little above what it costs, so that rounding inside the accountant is not under test here.
    epsilon = str(Fraction(epsilon_of([event], delta)) * Fraction(1001, 1000))
    return charge(epsilon, request, event=event, delta=delta, dataset=dataset)


def publish(ledger: Ledger, one: Charge, text: str = "text") -> str:
    reservation = ledger.reserve(one)
    if reservation.published is not None:
        return reservation.published
    return ledger.commit(reservation, text)


def lifted(ledger: Ledger, reservation: Reservation) -> None:
    """Write the entry by which older versions lifted a charge after an error."""
    body = {"dataset": reservation.charge.dataset, "charge_id": reservation.charge_id}
    with ledger._file.transaction(write=True) as book:
        book.append("void", {**body, "reason": "DataError"})


def only_account(ledger: Ledger) -> Account:
    (account,) = ledger.accounts()
    return account


def statuses(account: Account) -> list[str]:
    return [record.status for record in account.charges]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def capped(path: Path, *datasets: str, epsilon: str = "10", delta: Fraction = DELTA) -> Ledger:
    """Open a ledger with a cap for each data set, by default for the survey."""
    ledger = Ledger(path)
    for dataset in datasets or ("survey",):
        ledger.set_cap(dataset, epsilon, delta)
    return ledger


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with capped(path) as opened:
        yield opened


# --- caps and sums -------------------------------------------------------------------------------


def test_sums_are_exact(ledger: Ledger) -> None:
    ledger.set_cap("survey", Fraction("0.3"), Fraction(0))
    for request in "abc":  # 0.1 + 0.1 + 0.1 > 0.3 in binary floats
        publish(ledger, charge("0.1", request))
    account = only_account(ledger)
    assert account.spent_epsilon == Fraction(3, 10)
    assert account.remaining_epsilon == 0
    with pytest.raises(BudgetError):
        ledger.reserve(charge("0.0000001", "d"))
    assert statuses(only_account(ledger)) == ["published"] * 3


def in_series(epsilon: str, request: str, series: str, batch: str) -> Charge:
    return charge(epsilon, request, series=series, batch=batch)


def test_disjoint_batches_cost_as_much_as_the_worst_one(path: Path) -> None:
    """Nobody is in two batches; everybody is in what is asked of the data set as a whole."""
    with Ledger(path) as ledger:
        ledger.set_cap("survey", Fraction("0.5"), Fraction(0))
        publish(ledger, charge("0.1", "whole"))
        for number in range(5):
            publish(ledger, in_series("0.2", f"batch {number}", "months", f"2026-0{number}"))
        publish(ledger, in_series("0.1", "again", "months", "2026-03"))
    with Ledger(path) as ledger:
        account = only_account(ledger)
        assert account.spent_epsilon == Fraction("0.4")  # 0.1 + (0.2 + 0.1) for batch 3
        assert account.charges[1].to_json()["batch"] == "2026-00"
        assert account.charges[1].to_json()["series"] == "months"
        with pytest.raises(BudgetError):
            ledger.reserve(in_series("0.2", "more of the third", "months", "2026-03"))
        publish(ledger, in_series("0.2", "more of the first", "months", "2026-01"))
        with pytest.raises(BudgetError):
            ledger.reserve(charge("0.1", "one more of everybody"))
        with pytest.raises(BudgetError, match="is spent"):
            ledger.set_cap("survey", Fraction("0.49"), Fraction(0))
        ledger.set_cap("survey", Fraction("0.5"), Fraction(0))


def test_series_add_up(path: Path) -> None:
    """A month of one series and a week of another may hold the same people."""
    with Ledger(path) as ledger:
        ledger.set_cap("survey", Fraction(1), Fraction(0))
        publish(ledger, in_series("0.6", "a", "months", "2026-09"))
        publish(ledger, in_series("0.6", "b", "months", "2026-10"))
        for batch in ("week-36", "2026-09"):
            with pytest.raises(BudgetError, match=r"remaining epsilon=0\.4\."):
                ledger.reserve(in_series("0.6", f"c {batch}", "weeks", batch))
        assert ledger.preview(in_series("0.4", "d", "weeks", "week-36")).remaining_after == 0
        publish(ledger, in_series("0.3", "d", "weeks", "week-36"))
        publish(ledger, in_series("0.4", "e", "weeks", "week-37"))
    with Ledger(path) as ledger:
        assert only_account(ledger).spent_epsilon == 1


def test_a_batch_without_a_series_declares_nothing(ledger: Ledger) -> None:
    ledger.set_cap("survey", Fraction(1), Fraction(0))
    for number in range(3):
        publish(ledger, charge("0.2", f"plain {number}"))
    publish(ledger, charge("0.1", "b1", batch="b1"))
    publish(ledger, charge("0.1", "b2", batch="b2"))
    assert only_account(ledger).spent_epsilon == Fraction("0.8")
    with pytest.raises(BudgetError, match=r"name no series: 2\. They add up"):
        ledger.reserve(in_series("0.3", "b3", "s", "b3"))


def entries_as_before_series(path: Path) -> None:
    """Rewrite a ledger as the software before series would have written it: batch, no series."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        last = file_module.GENESIS
        rows = connection.execute("SELECT seq, time, kind, body FROM entry ORDER BY seq").fetchall()
        for seq, time_, kind, body in rows:
            document = json.loads(body)
            if "stream" in document:
                document["batch"] = document.pop("stream")["batch"]
            document.pop("rule", None)  # of a cap: there was no choice
            text = json.dumps(document, sort_keys=True)
            last = file_module._link(last, seq, time_, kind, text)
            connection.execute(
                "UPDATE entry SET body = ?, hash = ? WHERE seq = ?", (text, last, seq)
            )
        connection.execute("UPDATE head SET hash = ?", (last,))
        connection.execute("PRAGMA user_version=1")


def test_batches_of_an_old_ledger_add_up(path: Path) -> None:
    """They may be of two series: the ledger didn't say. What is spent may exceed the cap then."""
    with Ledger(path) as ledger:
        ledger.set_cap("survey", Fraction(1), Fraction(0))
        for number in range(3):
            publish(ledger, in_series("1", f"{number}", "s", f"b{number}"))
        assert only_account(ledger).spent_epsilon == 1
    entries_as_before_series(path)
    with Ledger(path) as ledger:
        account = only_account(ledger)
        assert [one.charge.batch for one in account.charges] == ["b0", "b1", "b2"]
        assert account.spent_epsilon == 3
        assert account.remaining_epsilon == 0
        quote = ledger.preview(in_series("0.1", "new", "s", "b9"))
        assert not quote.allowed
        assert (quote.spent_epsilon, quote.remaining_before) == (3, 0)
        with pytest.raises(BudgetError, match="spent epsilon=3, remaining epsilon=0"):
            ledger.reserve(in_series("0.1", "new", "s", "b9"))
        with pytest.raises(BudgetError, match="epsilon=3 is spent"):
            ledger.set_cap("survey", Fraction(2), Fraction(0))
        # What was published stays available at no cost, and the remedy works.
        assert publish(ledger, charge("1", "1", batch="b1")) == "text"
        ledger.set_cap("survey", Fraction("3.1"), Fraction(0))
        publish(ledger, in_series("0.1", "new", "s", "b9"))
        publish(ledger, in_series("0.1", "newer", "s", "b10"))
        assert only_account(ledger).spent_epsilon == Fraction("3.1")


def test_gaussian_batches_of_an_old_ledger_add_up(path: Path) -> None:
    event = GaussianEvent(noise_multiplier=20.0)
    cost = Fraction(epsilon_of([event], DELTA)) * Fraction(1001, 1000)
    with capped(path, epsilon=str(cost)) as ledger:
        for number in range(9):
            terms = {"event": event, "delta": DELTA, "series": "s", "batch": f"b{number}"}
            publish(ledger, charge(str(cost), f"{number}", **terms))
        assert only_account(ledger).spent_epsilon < cost
    entries_as_before_series(path)
    with Ledger(path) as ledger:
        assert only_account(ledger).spent_epsilon == Fraction(epsilon_of([event] * 9, DELTA))
        assert only_account(ledger).remaining_epsilon == 0


def test_software_from_before_series_adds_these_charges_up(path: Path) -> None:
    """It knows the field "batch" only, and would take batches of all series for disjoint."""
    with Ledger(path) as ledger:
        ledger.set_cap("survey", Fraction(1), Fraction(0))
        publish(ledger, in_series("0.1", "a", "s", "b"))
        publish(ledger, charge("0.1", "c"))
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT body FROM entry WHERE kind = 'reserve' ORDER BY seq")
        bodies = [json.loads(body) for (body,) in rows]
    assert [body.get("batch") for body in bodies] == [None, None]
    assert bodies[0]["stream"] == {"series": "s", "batch": "b"}
    assert "stream" not in bodies[1]


def test_a_series_needs_a_batch_and_a_privacy_unit_of_one_row() -> None:
    with pytest.raises(RequestError, match="several batches"):
        charge("0.1", "a", unit="replace_one/5", series="s", batch="2026-01")
    with pytest.raises(RequestError, match="name the batch too"):
        charge("0.1", "a", series="s")
    for name in ("", " 2026-01"):
        with pytest.raises(RequestError, match=r"batch=.*usable name"):
            charge("0.1", "a", series="s", batch=name)
        with pytest.raises(RequestError, match=r"series=.*usable name"):
            charge("0.1", "a", series=name, batch="2026-01")
    charge("0.1", "a", unit="replace_one/5", batch="2026-01")  # declares nothing


def test_two_spellings_of_a_batch_are_one_batch(ledger: Ledger) -> None:
    """Otherwise what was asked of its people twice would count once."""
    ledger.set_cap("survey", Fraction(1), Fraction(0))
    publish(ledger, in_series("0.2", "a", "s", "caf\u00e9"))
    publish(ledger, in_series("0.2", "b", "s", "cafe\u0301"))
    assert only_account(ledger).spent_epsilon == Fraction("0.4")


def test_two_spellings_of_a_series_are_one_series(ledger: Ledger) -> None:
    ledger.set_cap("survey", Fraction("0.2"), Fraction(0))
    publish(ledger, in_series("0.2", "a", "caf\u00e9", "1"))
    publish(ledger, in_series("0.2", "b", "cafe\u0301", "2"))
    assert only_account(ledger).spent_epsilon == Fraction("0.2")


def test_batches_compose_over_gaussians_too(ledger: Ledger) -> None:
    ledger.set_cap("survey", Fraction(1), DELTA)
    event = GaussianEvent(noise_multiplier=20.0)
    cost = Fraction(epsilon_of([event], DELTA)) * Fraction(1001, 1000)
    for series, number in itertools.product("st", range(20)):
        terms = {"event": event, "delta": DELTA, "series": series, "batch": f"b{number}"}
        publish(ledger, charge(str(cost), f"{series}{number}", **terms))
    worst = Borne(2, (event, event))  # one batch of each series
    assert only_account(ledger).spent_epsilon == Fraction(epsilon_spent(worst, DELTA))


def test_thirds_are_exact_too_and_kept_over_reopening(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.set_cap("survey", Fraction(1), Fraction(0))
        for request in "abc":
            publish(ledger, charge("1/3", request))
    with Ledger(path) as ledger:
        assert only_account(ledger).remaining_epsilon == 0
        with pytest.raises(BudgetError):
            ledger.reserve(charge("1e-30", "d"))


def test_no_number_in_the_file_is_a_binary_float(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.set_cap("survey", Fraction("0.3"), DELTA)
        publish(ledger, charge("0.1"))
        publish(ledger, charge("1/7", "b"))

    def no_float(text: str) -> NoReturn:
        raise AssertionError(text)

    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT body, typeof(body) FROM entry ORDER BY seq").fetchall()
    assert {kind for _, kind in rows} == {"text"}
    bodies = [json.loads(body, parse_float=no_float) for body, _ in rows]
    amounts = [(body["epsilon"], body["delta"]) for body in bodies if "epsilon" in body]
    assert amounts == [("0.3", "0.000001"), ("0.1", "0"), ("1/7", "0")]


def test_the_cap_can_be_raised_and_lowered_but_not_below_what_is_spent(ledger: Ledger) -> None:
    ledger.set_cap("survey", Fraction(1), Fraction(0))
    publish(ledger, charge("0.4"))
    ledger.set_cap("survey", Fraction("0.4"), Fraction(0))
    with pytest.raises(BudgetError, match=r"epsilon=0\.4 is spent"):
        ledger.set_cap("survey", Fraction("0.39"), Fraction(0))
    assert only_account(ledger).cap_epsilon == Fraction("0.4")
    with pytest.raises(BudgetError):
        ledger.reserve(charge("0.1", "b"))
    ledger.set_cap("survey", Fraction("0.5"), Fraction(0))
    publish(ledger, charge("0.1", "b"))
    assert only_account(ledger).spent_epsilon == Fraction("0.5")


def test_data_sets_have_separate_budgets(path: Path) -> None:
    with capped(path, "east", "west") as ledger:
        publish(ledger, charge("1", dataset="east"))
        publish(ledger, charge("2", dataset="west"))
        assert [(one.dataset, one.spent_epsilon) for one in ledger.accounts()] == [
            ("east", Fraction(1)),
            ("west", Fraction(2)),
        ]


def test_two_spellings_that_look_alike_share_a_budget(ledger: Ledger) -> None:
    ledger.set_cap("caf\u00e9", 1)
    publish(ledger, charge("1", dataset="caf\u00e9"))
    with pytest.raises(BudgetError):
        ledger.reserve(charge("1", "b", dataset="cafe\u0301"))


def test_a_cap_without_delta_takes_pure_events_only(ledger: Ledger) -> None:
    ledger.set_cap("survey", Fraction(100), Fraction(0))
    with pytest.raises(BudgetError, match="--delta"):
        ledger.reserve(gaussian_charge("a"))
    publish(ledger, charge("1", "b"))


def test_a_smaller_cap_delta_than_the_event_needs_is_refused(ledger: Ledger) -> None:
    one = gaussian_charge("a", delta=DELTA)
    ledger.set_cap("survey", one.epsilon, DELTA / 10**6)
    with pytest.raises(BudgetError):
        ledger.reserve(one)
    ledger.set_cap("survey", one.epsilon, DELTA)
    publish(ledger, one)


def test_the_delta_of_a_spent_gaussian_cannot_be_taken_back(ledger: Ledger) -> None:
    publish(ledger, gaussian_charge("a"))
    with pytest.raises(BudgetError, match=r"infinity.*larger delta"):
        ledger.set_cap("survey", Fraction(1000), Fraction(0))


def test_gaussian_charges_compose(ledger: Ledger) -> None:
    one = gaussian_charge("0")
    ledger.set_cap("survey", one.epsilon * 3, DELTA)
    accepted = 0
    with suppress(BudgetError):
        for number in range(20):
            publish(ledger, gaussian_charge(str(number)))
            accepted += 1
    # Basic composition would stop at three; composition as sqrt(n) reaches about nine.
    assert 3 < accepted < 12
    account = only_account(ledger)
    assert one.epsilon < account.spent_epsilon <= one.epsilon * 3
    assert account.remaining_gaussian < one.epsilon
    with pytest.raises(BudgetError, match="with Gaussian noise at that delta"):
        ledger.reserve(gaussian_charge("more"))


def test_what_remains_is_what_the_next_charge_may_cost(ledger: Ledger) -> None:
    """One part in a thousand more is refused, for either kind of charge."""
    ledger.set_cap("survey", Fraction(3), DELTA)
    publish(ledger, gaussian_charge("a"))
    publish(ledger, charge("0.4", "b"))
    account = only_account(ledger)
    assert 0 < account.remaining_gaussian < account.remaining_epsilon < 3  # tenths are wasteful
    less, more = Fraction(999, 1000), Fraction(1001, 1000)
    for factor, fitting in ((less, True), (more, False)):
        amount = account.remaining_epsilon * factor
        assert ledger.preview(charge(str(amount), "next")).allowed == fitting
        amount = account.remaining_gaussian * factor
        event = GaussianEvent(gaussian_noise_multiplier(amount, DELTA))
        terms = {"event": event, "delta": DELTA}
        assert ledger.preview(charge(str(amount), "next", **terms)).allowed == fitting


def test_composed_events_survive_the_file(path: Path) -> None:
    event = ComposedEvent((PureEvent(Fraction(1, 3)), PureEvent(Fraction(1, 6))))
    with capped(path) as ledger:
        publish(ledger, charge("0.5", event=event))
    with Ledger(path) as ledger:
        assert only_account(ledger).charges[0].charge.event == event
        assert only_account(ledger).spent_epsilon == Fraction(1, 2)


def test_an_event_above_its_own_price_is_refused(ledger: Ledger) -> None:
    with pytest.raises(RequestError, match="costs more"):
        ledger.reserve(charge("0.1", event=PureEvent(Fraction("0.2"))))
    assert only_account(ledger).charges == ()


# --- the refusal ---------------------------------------------------------------------------------


def test_the_refusal_says_everything_and_its_remedy_works(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.set_cap("my survey", Fraction("0.3"), Fraction(0))
        publish(ledger, charge("0.1", dataset="my survey"))
        ledger.reserve(charge("0.05", "left pending", dataset="my survey"))
        with pytest.raises(BudgetError) as caught:
            ledger.reserve(charge("0.2", "b", dataset="my survey"))
        message = str(caught.value)
        for part in (
            "'my survey'",
            "(epsilon=0.2, delta=0)",
            "cap epsilon=0.3, delta=0",
            "spent epsilon=0.15",
            "remaining epsilon=0.15",
            "Unfinished runs among the charges: 1.",
            str(path),
        ):
            assert part in message
        command = shlex.split(message.splitlines()[-1])
        assert command[:3] == ["noisewise", "ledger", "cap"]
        options = dict(zip(command[3::2], command[4::2], strict=True))
        assert options == {
            "--ledger": str(path),
            "--dataset": "my survey",
            "--epsilon": "0.35",
        }
        ledger.set_cap("my survey", Fraction(options["--epsilon"]), Fraction(0))
        publish(ledger, charge("0.2", "b", dataset="my survey"))


def test_the_remedy_for_a_missing_delta_works(ledger: Ledger) -> None:
    ledger.set_cap("survey", Fraction(1), Fraction(0))
    publish(ledger, charge("1"))
    one = gaussian_charge("b")
    with pytest.raises(BudgetError) as caught:
        ledger.reserve(one)
    command = shlex.split(str(caught.value).splitlines()[-1])
    options = dict(zip(command[3::2], command[4::2], strict=True))
    ledger.set_cap("survey", Fraction(options["--epsilon"]), Fraction(options["--delta"]))
    publish(ledger, one)


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (Fraction("0.1"), "0.1", "0.1"),
        (Fraction(1, 3), "0.333334", "0.333333"),
        (Fraction(2, 3 * 10**9), "6.66667e-10", "6.66666e-10"),
        (Fraction(100), "100", "100"),
        (Fraction(0), "0", "0"),
        (Fraction(0.1), "0.100001", "0.1"),
    ],
)
def test_shown_numbers_are_rounded_towards_caution(value: Fraction, up: str, down: str) -> None:
    assert (amounts.up(value), amounts.down(value)) == (up, down)
    assert Fraction(down) <= value <= Fraction(up)
    assert Fraction(amounts.exact(value)) == value


# --- the life of a charge ------------------------------------------------------------------------


def test_a_published_request_is_returned_at_no_cost(path: Path) -> None:
    with capped(path) as ledger:
        publish(ledger, charge("0.1"), "first draw")
    with Ledger(path) as ledger:
        again = ledger.reserve(charge("0.1"))
        assert again.published == "first draw"
        assert ledger.commit(again, "second draw") == "first draw"
        account = only_account(ledger)
        assert statuses(account) == ["published"]
        assert account.spent_epsilon == Fraction("0.1")
        assert account.charges[0].release_sha256 == hashlib.sha256(b"first draw").hexdigest()


def test_the_same_request_of_another_data_set_is_another_release(path: Path) -> None:
    with capped(path, "east", "west") as ledger:
        publish(ledger, charge(dataset="east"), "east")
        assert ledger.reserve(charge(dataset="west")).published is None


def test_a_pending_charge_counts_and_is_resumed(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.set_cap("survey", Fraction("0.1"), Fraction(0))
        first = ledger.reserve(charge("0.1"))
        assert (first.resumed, first.published) == (False, None)
    with Ledger(path) as ledger:
        assert only_account(ledger).spent_epsilon == Fraction("0.1")
        with pytest.raises(BudgetError):
            ledger.reserve(charge("0.1", "another"))
        again = ledger.reserve(charge("0.1"))
        assert (again.resumed, again.charge_id) == (True, first.charge_id)
        assert ledger.commit(again, "text") == "text"
        assert statuses(only_account(ledger)) == ["published"]


def test_the_first_commit_of_two_wins(path: Path) -> None:
    with capped(path) as one, Ledger(path) as two:
        first, second = one.reserve(charge()), two.reserve(charge())
        assert first.charge_id == second.charge_id
        assert two.commit(second, "from two") == "from two"
        assert one.commit(first, "from one") == "from two"
        assert one.reserve(charge()).published == "from two"


def test_no_charge_can_be_lifted() -> None:
    assert not hasattr(Ledger, "void")


def test_charges_that_older_versions_lifted_do_not_count(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.set_cap("survey", Fraction("0.1"), Fraction(0))
        first = ledger.reserve(charge("0.1"))
        lifted(ledger, first)
    with Ledger(path) as ledger:
        account = only_account(ledger)
        assert account.spent_epsilon == 0
        assert [(one.status, one.void_reason) for one in account.charges] == [("void", "DataError")]
        second = ledger.reserve(charge("0.1"))
        assert second.charge_id != first.charge_id
        assert not second.resumed
        ledger.commit(second, "text")
        assert statuses(only_account(ledger)) == ["void", "published"]


def test_a_reservation_of_another_ledger_is_not_committed(tmp_path: Path) -> None:
    with capped(tmp_path / "one.db") as one, capped(tmp_path / "two.db") as two:
        reservation = one.reserve(charge("0.1"))
        two.reserve(charge("0.1", "b"))
        with pytest.raises(LedgerError, match="does not know"):
            two.commit(reservation, "text")


def test_the_same_request_at_another_price_replaces_the_pending_charge(ledger: Ledger) -> None:
    ledger.set_cap("survey", Fraction(1), Fraction(0))
    old = ledger.reserve(charge("0.9", "a"))
    new = ledger.reserve(charge("0.8", "a"))
    assert not new.resumed
    assert only_account(ledger).spent_epsilon == Fraction("0.8")
    with pytest.raises(BudgetError, match="another price"):
        ledger.commit(old, "noise for another price")
    with pytest.raises(BudgetError):  # and a refused replacement leaves things as they are
        ledger.reserve(charge("1.1", "a"))
    assert ledger.commit(new, "text") == "text"


def test_an_empty_release_is_not_one(ledger: Ledger) -> None:
    reservation = ledger.reserve(charge())
    with pytest.raises(RequestError):
        ledger.commit(reservation, "")
    assert statuses(only_account(ledger)) == ["pending"]


def test_any_text_comes_back_as_it_was(ledger: Ledger) -> None:
    text = '{"name": "Käse\u2603\U0001f9c0\x00"}' * 5000
    publish(ledger, charge(), text)
    assert ledger.reserve(charge()).published == text


# --- units ---------------------------------------------------------------------------------------


def test_a_data_set_is_bound_to_its_unit(ledger: Ledger) -> None:
    ledger.set_cap("survey", Fraction(10), Fraction(0))
    publish(ledger, charge("0.1"))
    with pytest.raises(BudgetError, match=r"'replace_one/1'.*'add_remove/1'"):
        ledger.reserve(charge("0.1", "b", unit="add_remove/1"))
    ledger.set_cap("other", 1)
    publish(ledger, charge("0.1", "b", dataset="other", unit="add_remove/1"))
    assert [one.unit for one in ledger.accounts()] == ["add_remove/1", UNIT]


# --- preview -------------------------------------------------------------------------------------


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {one.name: (one.stat().st_mtime_ns, one.read_bytes()) for one in folder.iterdir()}


def test_preview_creates_no_file(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        quote = ledger.preview(charge("0.5"))
        assert ledger.accounts() == []
        with pytest.raises(BudgetError) as caught:
            ledger.reserve(charge("0.5"))
    assert list(tmp_path.iterdir()) == []
    assert quote.refusal == str(caught.value)
    assert (quote.allowed, quote.cap_epsilon, quote.remaining_after) == (False, None, None)


def test_preview_after_charges_that_are_still_to_come(path: Path) -> None:
    """As if they had been reserved: under a cap, and where they are known."""
    first, second, known = charge("0.5", "first"), charge("0.5", "second"), charge("0.25", "known")
    with Ledger(path) as ledger:
        ledger.set_cap("survey", Fraction(1), Fraction(0))
        publish(ledger, known)
    before = snapshot(path.parent)
    with Ledger(path) as ledger:
        assert ledger.preview(second).allowed
        quote = ledger.preview(second, after=[first])
        assert not quote.allowed
        assert quote.spent_epsilon == Fraction("0.75")
        again = ledger.preview(second, after=[second, known])
        assert (again.allowed, again.resumes) == (True, True)
        with pytest.raises(BudgetError):
            ledger.preview(first, after=[charge("2", "refused")])
    assert snapshot(path.parent) == before


def test_preview_tells_what_reserve_does_and_writes_nothing(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.set_cap("survey", Fraction(1), Fraction(0))
        publish(ledger, charge("0.5", "published"))
        ledger.reserve(charge("0.25", "pending"))
    before = snapshot(path.parent)
    quotes = {}
    with Ledger(path) as ledger:
        for name, amount in [("published", "0.5"), ("pending", "0.25"), ("new", "0.125")]:
            quotes[name] = ledger.preview(charge(amount, name))
        quotes["repriced"] = ledger.preview(charge("0.5", "pending"))
        quotes["too much"] = ledger.preview(charge("0.3", "too much"))
        quotes["unit"] = ledger.preview(charge("0.1", "unit", unit="add_remove/1"))
        quotes["fresh"] = ledger.preview(charge("7", "fresh", dataset="fresh"))
    assert snapshot(path.parent) == before
    quarter = Fraction(1, 4)
    for name in ("published", "pending", "new", "repriced", "too much", "unit"):
        assert quotes[name].spent_epsilon == 3 * quarter
        assert quotes[name].remaining_before == quarter
        assert quotes[name].cap_epsilon == 1
    assert [name for name, one in quotes.items() if one.already_published] == ["published"]
    assert [name for name, one in quotes.items() if one.resumes] == ["pending"]
    assert [name for name, one in quotes.items() if not one.allowed] == [
        "too much",
        "unit",
        "fresh",
    ]
    assert quotes["published"].remaining_after == quarter
    assert quotes["pending"].remaining_after == quarter
    assert quotes["new"].remaining_after == quarter / 2
    assert quotes["repriced"].remaining_after == 0
    assert quotes["too much"].remaining_after is None
    assert (quotes["fresh"].cap_epsilon, quotes["fresh"].remaining_before) == (None, None)
    with Ledger(path) as ledger, pytest.raises(BudgetError) as caught:
        ledger.reserve(charge("0.3", "too much"))
    assert quotes["too much"].refusal == str(caught.value)
    json.dumps([one.to_json() for one in quotes.values()], allow_nan=False)


def test_accounts_are_plain_json(ledger: Ledger) -> None:
    ledger.set_cap("survey", Fraction(10), DELTA)
    publish(ledger, gaussian_charge("a"))
    lifted(ledger, ledger.reserve(charge("1/3", "b")))
    (account,) = json.loads(json.dumps([one.to_json() for one in ledger.accounts()]))
    assert account["cap_epsilon"] == "10"
    assert Fraction(account["cap_delta"]) == DELTA
    assert 0 < Fraction(account["spent_epsilon"]) < 10
    assert 0 < Fraction(account["remaining_epsilon"]) < 10
    assert account["rule"] == "filter"
    assert [one["status"] for one in account["charges"]] == ["published", "void"]
    assert account["charges"][1]["epsilon"] == "1/3"
    assert account["charges"][0]["reserved_at"].endswith("+00:00")


# --- requests that make no sense -----------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": ""},
        {"dataset": " survey"},
        {"dataset": "sur\nvey"},
        {"dataset": "x" * 201},
        {"unit": ""},
        {"request_key": "xyz"},
        {"request_key": ""},
        {"epsilon": Fraction(0)},
        {"epsilon": Fraction(-1)},
        {"delta": Fraction(-1)},
        {"delta": Fraction(1)},
    ],
)
def test_nonsense_is_refused(change: dict[str, Any]) -> None:
    fields = {**vars(charge()), **change}
    with pytest.raises(RequestError):
        Charge(**fields)


@pytest.mark.parametrize(("epsilon", "delta"), [(-1, 0), (1, -1), (1, 1)])
def test_nonsensical_caps_are_refused(path: Path, epsilon: int, delta: int) -> None:
    with Ledger(path) as ledger, pytest.raises(RequestError):
        ledger.set_cap("survey", Fraction(epsilon), Fraction(delta))
    assert not path.exists()


# --- files that are not ledgers ------------------------------------------------------------------


def refused(path: Path) -> str:
    """Return the message with which a path is refused, and see that nothing was changed."""
    content = path.read_bytes() if path.is_file() else None
    messages = set()
    for create in (True, False):
        with pytest.raises(LedgerError) as caught:
            Ledger(path, create=create)
        messages.add(str(caught.value))
    assert (path.read_bytes() if path.is_file() else None) == content
    (message,) = messages
    assert str(path) in message
    return message


def test_a_folder(tmp_path: Path) -> None:
    assert "Name a file" in refused(tmp_path)


def test_a_device() -> None:
    assert "regular file" in refused(Path("/dev/null"))


def test_a_text_file(path: Path) -> None:
    path.write_text("these are my notes, and they are long enough to be a header\n" * 100)
    assert "not an SQLite file" in refused(path)


def test_an_empty_file_is_not_a_new_ledger(path: Path) -> None:
    path.touch()
    assert "it is empty" in refused(path)


def test_an_sqlite_file_of_something_else(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE cats (name TEXT)")
    assert "something else" in refused(path)


def test_a_ledger_of_a_newer_version(path: Path) -> None:
    with capped(path) as ledger:
        publish(ledger, charge())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=3")
    assert "upgrade" in refused(path)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER kind AFTER INSERT ON entry BEGIN DELETE FROM entry; END",
        "CREATE TABLE more (x)",
        "ALTER TABLE entry ADD COLUMN x",
        "PRAGMA journal_mode=WAL",
        "PRAGMA user_version=0",
    ],
)
def test_a_ledger_with_other_tables(path: Path, statement: str) -> None:
    with capped(path) as ledger:
        publish(ledger, charge())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
    assert "damaged" in refused(path)


def test_a_missing_ledger_that_must_not_be_created(path: Path) -> None:
    with pytest.raises(LedgerError, match="no ledger at"):
        Ledger(path, create=False)
    assert not path.exists()


def test_a_missing_folder(tmp_path: Path) -> None:
    with (
        Ledger(tmp_path / "nowhere" / "ledger.db") as ledger,
        pytest.raises(LedgerError, match="make the folder"),
    ):
        ledger.set_cap("survey", 1)


def test_the_journal_of_a_lost_ledger(path: Path) -> None:
    Path(f"{path}-journal").write_bytes(b"x" * 600)
    with Ledger(path) as ledger, pytest.raises(LedgerError, match="journal of a ledger"):
        ledger.set_cap("survey", 1)
    assert not path.exists()


def test_a_ledger_that_is_moved_while_in_use(path: Path) -> None:
    with capped(path) as ledger:
        reservation = ledger.reserve(charge())
        path.rename(path.with_name("elsewhere.db"))
        with pytest.raises(LedgerError, match="was moved"):
            ledger.commit(reservation, "text")
    with Ledger(path.with_name("elsewhere.db")) as ledger:
        assert statuses(only_account(ledger)) == ["pending"]


def test_a_busy_ledger(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_module, "_BUSY_SECONDS", 0.2)
    with capped(path) as ledger:
        publish(ledger, charge())
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(LedgerError, match="is busy:"):
                ledger.reserve(charge("0.1"))
            with pytest.raises(LedgerError, match="is busy:"):
                ledger.accounts()
            other.execute("ROLLBACK")
        assert ledger.reserve(charge("0.1")).published == "text"


def test_a_short_wait_is_waited_for(path: Path) -> None:
    with capped(path) as ledger:
        publish(ledger, charge())
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN EXCLUSIVE")
            timer = threading.Timer(0.3, lambda: other.execute("ROLLBACK"))
            timer.start()
            assert ledger.reserve(charge("0.1")).published == "text"
            timer.join()


def test_a_closed_ledger(path: Path) -> None:
    with Ledger(path) as ledger:
        pass
    with pytest.raises(LedgerError, match="was closed"):
        ledger.accounts()


def test_another_thread(ledger: Ledger) -> None:
    ledger.reserve(charge())
    errors: list[Exception] = []

    def use() -> None:
        try:
            ledger.accounts()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert [type(error) for error in errors] == [LedgerError]


def test_only_the_owner_can_read_the_file(path: Path) -> None:
    before = os.umask(0)
    try:
        with capped(path) as ledger:
            ledger.reserve(charge())
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_links_and_odd_names(tmp_path: Path) -> None:
    odd = tmp_path / "50% of #1? Käse.db"
    link = tmp_path / "link.db"
    link.symlink_to(odd)
    with capped(link) as ledger:
        publish(ledger, charge())
    assert link.is_symlink()
    with Ledger(odd, create=False) as ledger:
        assert statuses(only_account(ledger)) == ["published"]


# --- other processes -----------------------------------------------------------------------------


def fork(action: Callable[[], object]) -> int:
    """Run an action in a child that leaves with the exit code of its error."""
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        action()
        code = 0
    except NoisewiseError as error:
        code = error.exit_code
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def outcome(pid: int) -> int:
    """Wait for a child; its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def race(actions: list[Callable[[], object]]) -> list[int]:
    """Let the children start at the same moment; return how they ended."""
    reading, writing = os.pipe()

    def after_the_signal(action: Callable[[], object]) -> Callable[[], object]:
        def run() -> None:
            os.close(writing)
            os.read(reading, 1)
            action()

        return run

    pids = [fork(after_the_signal(action)) for action in actions]
    os.close(reading)
    time.sleep(0.01)
    os.close(writing)
    return [outcome(pid) for pid in pids]


def sound(path: Path) -> list[Account]:
    """Return the accounts after SQLite and the ledger both find the file intact."""
    with Ledger(path, create=False) as ledger:
        accounts = ledger.accounts()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    return accounts


@pytest.mark.parametrize("start", ["no file", "a cap"])
def test_one_of_many_gets_the_last_budget(tmp_path: Path, start: str) -> None:
    for attempt in range(8):
        path = tmp_path / f"{attempt}.db"
        if start == "a cap":
            with Ledger(path) as ledger:
                ledger.set_cap("survey", Fraction(1), Fraction(0))
                publish(ledger, charge("0.5", "earlier"))

        def take(number: int, path: Path = path) -> None:
            with Ledger(path) as ledger:
                if start == "no file":  # they race for making it, too
                    ledger.set_cap("survey", "0.5")
                publish(ledger, charge("0.5", f"racer {number}"), f"draw {number}")

        results = race([partial(take, number) for number in range(5)])
        assert sorted(results) == [0] + [BudgetError.exit_code] * 4
        (account,) = sound(path)
        assert account.remaining_epsilon == 0
        assert set(statuses(account)) == {"published"}


@pytest.mark.parametrize("same", [True, False], ids=["one series", "a series each"])
def test_racing_batches_share_a_budget_within_one_series_only(tmp_path: Path, same: bool) -> None:
    for attempt in range(4):
        path = tmp_path / f"{attempt}.db"
        with Ledger(path) as ledger:
            ledger.set_cap("survey", Fraction(1), Fraction(0))
            publish(ledger, charge("0.5", "earlier"))

        def take(number: int, path: Path = path) -> None:
            series = "s" if same else f"s{number}"
            with Ledger(path) as ledger:
                publish(ledger, in_series("0.5", f"{number}", series, f"b{number}"))

        results = race([partial(take, number) for number in range(5)])
        assert sorted(results) == ([0] * 5 if same else [0] + [BudgetError.exit_code] * 4)
        (account,) = sound(path)
        assert account.spent_epsilon == 1
        assert len(account.charges) == (6 if same else 2)


def test_many_runs_of_one_request_publish_one_text(tmp_path: Path) -> None:
    for attempt in range(8):
        path = tmp_path / f"{attempt}.db"

        def run(number: int, path: Path = path) -> None:
            with capped(path) as ledger:
                reservation = ledger.reserve(charge("0.5"))
                text = reservation.published or ledger.commit(reservation, f"draw {number}")
            Path(f"{path}.{number}").write_text(text)

        results = race([partial(run, number) for number in range(5)])
        assert results == [0] * 5
        (account,) = sound(path)
        assert statuses(account) == ["published"]
        (text,) = {Path(f"{path}.{number}").read_text() for number in range(5)}
        assert account.charges[0].release_sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_a_ledger_is_not_shared_with_a_child(path: Path) -> None:
    with capped(path) as ledger:
        ledger.reserve(charge())
        assert outcome(fork(ledger.accounts)) == LedgerError.exit_code
        assert statuses(only_account(ledger)) == ["pending"]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that a user without rights can reach, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_nobody(action: Callable[[], object]) -> int:
    def run() -> None:
        if os.getuid() == 0:  # permissions do not bind root
            os.setgid(65534)
            os.setuid(65534)
        action()

    return outcome(fork(run))


def test_a_read_only_ledger_can_be_read_but_not_charged(open_folder: Path) -> None:
    path = open_folder / "ledger.db"
    with capped(path, epsilon="0.1") as ledger:
        publish(ledger, charge())
    path.chmod(0o444)

    def read() -> None:
        with Ledger(path) as ledger:
            assert statuses(only_account(ledger)) == ["published"]
            assert ledger.preview(charge("0.1", "b")).refusal

    def write() -> None:
        with Ledger(path) as ledger, pytest.raises(LedgerError, match="writable for you") as caught:
            ledger.set_cap("survey", Fraction(1), Fraction(0))
        assert str(path) in str(caught.value)

    def create() -> None:
        with Ledger(open_folder / "new.db") as ledger:
            ledger.set_cap("survey", 1)

    assert as_nobody(read) == 0
    assert as_nobody(write) == 0
    path.chmod(0)
    assert as_nobody(read) == LedgerError.exit_code
    open_folder.chmod(0o555)
    assert as_nobody(create) == LedgerError.exit_code
    assert [one.name for one in open_folder.iterdir()] == ["ledger.db"]


# --- kills ---------------------------------------------------------------------------------------


class Deadline:
    """Kills this process, with a signal it cannot catch, at its k-th step."""

    def __init__(self, last: int) -> None:
        self.left = last

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Count the moments before and after the call."""

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.step()
            result = function(*args, **kwargs)
            self.step()
            return result

        return counted

    def install(self) -> None:
        """Count every SQL statement and system call of the ledger (only ever in a child)."""
        deadline = self

        class Connection(sqlite3.Connection):
            def execute(self, *args: Any) -> sqlite3.Cursor:
                return deadline.around(super().execute)(*args)  # type: ignore[no-any-return]

            def close(self) -> None:
                deadline.around(super().close)()

        connect = sqlite3.connect
        sqlite3.connect = self.around(
            lambda *args, **kwargs: connect(*args, factory=Connection, **kwargs)
        )
        for name in ("link", "unlink", "fsync", "close"):
            setattr(os, name, self.around(getattr(os, name)))
        tempfile.mkstemp = self.around(tempfile.mkstemp)


def publish_to(path: Path, one: Charge, text: str, outbox: Path) -> None:
    """Do what the holder does: charge, compute, commit, and only then let the file out."""
    with capped(path, epsilon="1", delta=Fraction(0)) as ledger:
        released = publish(ledger, one, text)
        outbox.write_text(released)


def check_after_kill(path: Path, outbox: Path, earlier: int) -> str:
    """Check the promises after a kill; return what was left of the request."""
    state = "nothing"
    if path.exists():
        accounts = sound(path)
        records = accounts[0].charges if accounts else ()
        assert statuses(accounts[0])[:earlier] == ["published"] * earlier if earlier else True
        last = records[earlier:]
        assert len(last) <= 1
        if last:
            state = last[0].status
    if outbox.exists():
        assert state == "published"
    # Whatever happened, the same request completes under one charge and with one text.
    with capped(path, epsilon="1", delta=Fraction(0)) as ledger:
        text = publish(ledger, charge("0.25", "killed"), "second draw")
        account = only_account(ledger)
    assert account.spent_epsilon == Fraction(1, 4) * (earlier + 1)
    assert statuses(account) == ["published"] * (earlier + 1)
    assert text == ("first draw" if state == "published" else "second draw")
    if outbox.exists():
        assert outbox.read_text() in ("", text)
    return state


def prepare(path: Path, earlier: int) -> None:
    """Put a ledger with so many releases at the path; none for zero."""
    if not earlier:
        return
    template = path.parents[1] / "template.db"  # written once a test: every release waits for disk
    if not template.exists():
        with Ledger(template) as ledger:
            ledger.set_cap("survey", Fraction(1), Fraction(0))
            for number in range(earlier):
                publish(ledger, charge("0.25", f"earlier {number}"), "x" * 5000)
    shutil.copyfile(template, path)


@pytest.mark.parametrize("earlier", [0, 2])
def test_killed_before_and_after_every_statement(tmp_path: Path, earlier: int) -> None:
    states = []
    for last in itertools.count():
        folder = tmp_path / str(last)
        folder.mkdir()
        path, outbox = folder / "ledger.db", folder / "release.json"
        prepare(path, earlier)

        def run(last: int = last, path: Path = path, outbox: Path = outbox) -> None:
            Deadline(last).install()
            publish_to(path, charge("0.25", "killed"), "first draw", outbox)

        result = outcome(fork(run))
        assert result in (0, -signal.SIGKILL)
        states.append(check_after_kill(path, outbox, earlier))
        if result == 0:
            break
    # The kills were spread over the whole life of a charge, and it only ever moved forward.
    assert [state for state, _ in itertools.groupby(states)] == ["nothing", "pending", "published"]
    assert len(states) > 40


@pytest.mark.parametrize("earlier", [0, 2])
def test_killed_in_the_middle_of_a_write(tmp_path: Path, earlier: int) -> None:
    """A file size limit lets a write succeed in part and then kills the process."""
    states, results = set(), set()
    for limit in range(0, 56 * 1024, 1500):
        folder = tmp_path / str(limit)
        folder.mkdir()
        path, outbox = folder / "ledger.db", folder / "release.json"
        prepare(path, earlier)

        def run(limit: int = limit, path: Path = path, outbox: Path = outbox) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            with capped(path, epsilon="1", delta=Fraction(0)) as ledger:
                reservation = ledger.reserve(charge("0.25", "killed"))
                text = "first draw" if earlier else "x" * 20000
                ledger.commit(reservation, text)
                outbox.write_text(text)

        results.add(outcome(fork(run)))
        if path.exists():
            accounts = sound(path)
            found = statuses(accounts[0])[earlier:] if accounts else []
            states.update(found or ["nothing"])
            assert not outbox.exists() or found == ["published"]
            if earlier:
                assert accounts[0].spent_epsilon >= Fraction(earlier, 4)
    assert results == {0, -signal.SIGXFSZ}
    assert "published" in states
    assert len(states) >= 2


def test_a_full_disk_is_an_error_and_no_damage(tmp_path: Path) -> None:
    results = set()
    for limit in range(0, 40 * 1024, 2500):
        path = tmp_path / str(limit) / "ledger.db"
        path.parent.mkdir()
        prepare(path, 1)
        before = sound(path)

        def run(limit: int = limit, path: Path = path) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            with Ledger(path) as ledger:
                ledger.set_cap("survey", Fraction(2), Fraction(0))

        result = outcome(fork(run))
        results.add(result)
        (account,) = sound(path)
        assert account.cap_epsilon == (2 if result == 0 else before[0].cap_epsilon)
        assert account.charges == before[0].charges
    assert results == {0, LedgerError.exit_code}


def test_killed_at_any_time(tmp_path: Path) -> None:
    """One ledger, many killed processes: whatever was let out is published and charged."""
    path, outbox = tmp_path / "ledger.db", tmp_path / "outbox"
    outbox.touch()
    prices = Fraction(1, 1000)
    with Ledger(path) as ledger:
        ledger.set_cap("survey", Fraction(1000), Fraction(0))

    def run(life: int) -> None:
        with Ledger(path) as ledger, outbox.open("ab", buffering=0) as out:
            for number in itertools.count():
                name = f"{life}-{number}"
                publish(ledger, charge(str(prices), name), f"text {name}")
                out.write(f"{name}\n".encode())

    rng = random.Random(20240607)
    for life in range(40):
        # Wait for a few releases rather than for a time: how long one takes depends on the disk.
        enough = outbox.stat().st_size + rng.choice([0, 1, 10, 20])
        pid = fork(partial(run, life))
        started = time.monotonic()
        while outbox.stat().st_size < enough and time.monotonic() - started < 20:
            time.sleep(0.0005)
        time.sleep(rng.uniform(0, 0.01))
        os.kill(pid, signal.SIGKILL)
        assert outcome(pid) == -signal.SIGKILL
        if life % 8 == 7:
            sound(path)
    (account,) = sound(path)
    published = {
        one.charge.summary.removeprefix("request "): one.release_sha256
        for one in account.charges
        if one.status == "published"
    }
    names = outbox.read_text().split()
    assert len(names) > 20
    for name in names:
        assert published[name] == hashlib.sha256(f"text {name}".encode()).hexdigest()
    assert account.spent_epsilon == prices * len(account.charges)
    # At most one process of each life was at work between commit and the outbox.
    assert len(published) - len(names) <= 40
    assert statuses(account).count("pending") <= 40


# --- damage --------------------------------------------------------------------------------------


def rich_ledger(path: Path) -> str:
    """Write a ledger with all kinds of entries and a text on overflow pages; return the text."""
    text = json.dumps({"values": list(range(3000))})
    with Ledger(path) as ledger:
        ledger.set_cap("survey", Fraction(3), DELTA)
        publish(ledger, charge("0.5", "a"), text)
        lifted(ledger, ledger.reserve(charge("0.5", "b")))
        publish(ledger, gaussian_charge("c"), "short text")
        ledger.reserve(charge("0.25", "d"))
        ledger.set_cap("other", 1)
        publish(ledger, charge("1/7", "a", dataset="other"), "other text")
    return text


def damage(content: bytes, rng: random.Random) -> bytes:
    kind = rng.choice(["bit", "bit", "bit", "byte", "zeros", "truncate", "swap"])
    if kind == "truncate":
        return content[: rng.randrange(len(content))]
    # A third of the damage goes into the first 200 bytes, where the file's own header is.
    place = rng.randrange(200 if rng.random() < 1 / 3 else len(content))
    changed = bytearray(content)
    if kind == "bit":
        changed[place] ^= 1 << rng.randrange(8)
    elif kind == "byte":
        changed[place] = rng.randrange(256)
    elif kind == "zeros":
        changed[place : place + 64] = bytes(len(changed[place : place + 64]))
    else:
        page = 4096
        one, two = (rng.randrange(len(content) // page) * page for _ in range(2))
        changed[one : one + page], changed[two : two + page] = (
            content[two : two + page],
            content[one : one + page],
        )
    return bytes(changed)


def test_damage_is_found_or_harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = tmp_path / "original.db"
    text = rich_ledger(original)
    content = original.read_bytes()
    with Ledger(original) as ledger:
        truth = ledger.accounts()
    # The accountant is not under test here, and it would be asked the same thing 300 times.
    known: dict[Any, Any] = {}

    def remembered(events: Any, delta: Fraction) -> Any:
        key = (tuple(events), delta)
        if key not in known:
            known[key] = epsilon_of(events, delta)
        return known[key]

    monkeypatch.setattr(accounts_module, "epsilon_of", remembered)
    rng = random.Random(1)
    harmless, messages = 0, []
    for attempt in range(300):
        path = tmp_path / f"{attempt}.db"
        path.write_bytes(damage(content, rng))
        try:
            with Ledger(path) as ledger:
                assert ledger.accounts() == truth
                assert ledger.reserve(charge("0.5", "a")).published == text
                publish(ledger, charge("0.125", "new"), "new text")
            with Ledger(path) as ledger:
                survey = ledger.accounts()[1]
                assert survey.charges[:-1] == truth[1].charges
                assert survey.spent_epsilon >= truth[1].spent_epsilon
                assert ledger.reserve(charge("0.125", "new")).published == "new text"
            harmless += 1
        except LedgerError as error:
            messages.append(str(error))
        path.unlink(missing_ok=True)
    assert all(str(tmp_path) in message for message in messages)
    assert len(messages) > 100
    assert harmless > 10


def test_damage_that_only_sqlite_can_see(path: Path) -> None:
    rich_ledger(path)
    content = bytearray(path.read_bytes())
    content[36:40] = (5).to_bytes(4, "big")  # a list of five free pages that does not exist
    path.write_bytes(content)
    assert "integrity check" in refused(path)


def test_damage_to_the_names_and_definitions_of_tables(path: Path) -> None:
    """SQLite quotes these in its messages, which are then no valid UTF-8."""
    rich_ledger(path)
    content = path.read_bytes()
    start = content.index(b"tablerelease")
    for place in range(start, content.index(b"hash TEXT NOT NULL)", start), 5):
        changed = bytearray(content)
        changed[place] ^= 0x80
        path.write_bytes(changed)
        with pytest.raises(LedgerError):
            Ledger(path)


def tampered(path: Path, *statements: str) -> None:
    rich_ledger(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            changed = connection.execute(statement)
            assert changed.rowcount > 0


@pytest.mark.parametrize(
    "statements",
    [
        ["""UPDATE entry SET body = replace(body, '"0.5"', '"0.4"') WHERE seq = 2"""],
        ["UPDATE entry SET time = '2020-01-01T00:00:00+00:00' WHERE seq = 2"],
        ["UPDATE entry SET kind = 'void' WHERE seq = 3"],
        ["DELETE FROM entry WHERE seq = 4"],
        ["DELETE FROM entry WHERE seq = (SELECT max(seq) FROM entry)"],
        ["DELETE FROM entry"],
        ["DELETE FROM head"],
        ["UPDATE head SET entries = entries - 1"],
        ["UPDATE head SET hash = ''"],
        [
            "DELETE FROM entry WHERE seq = (SELECT max(seq) FROM entry)",
            "UPDATE head SET entries = entries - 1",
        ],
        ["INSERT INTO entry VALUES (99, 'now', 'void', '{}', '')"],
        ["UPDATE entry SET seq = seq + 1 WHERE seq = (SELECT max(seq) FROM entry)"],
        # One flipped bit turns a text into a blob of the same bytes.
        ["UPDATE entry SET time = CAST(time AS BLOB) WHERE seq = 2"],
        ["UPDATE entry SET kind = CAST(kind AS BLOB) WHERE seq = 2"],
        ["UPDATE entry SET body = CAST(body AS BLOB) WHERE seq = 2"],
        ["UPDATE entry SET hash = CAST(hash AS BLOB) WHERE seq = 2"],
        ["UPDATE head SET hash = CAST(hash AS BLOB)"],
    ],
)
def test_a_changed_or_missing_entry_is_found(path: Path, statements: list[str]) -> None:
    tampered(path, *statements)
    with Ledger(path) as ledger:
        for use in (ledger.accounts, lambda: ledger.reserve(charge("0.1", "new"))):
            with pytest.raises(LedgerError, match="damaged"):
                use()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE release SET text = text || ' '",
        "UPDATE release SET text = CAST(text AS BLOB)",
        "DELETE FROM release",
    ],
)
def test_a_changed_release_is_not_handed_out_and_still_counts(path: Path, statement: str) -> None:
    tampered(path, statement)
    with Ledger(path) as ledger:
        with pytest.raises(LedgerError, match="Release of charge"):
            ledger.reserve(charge("0.5", "a"))
        assert ledger.accounts()[1].spent_epsilon > Fraction(1, 2)


# --- a model that is too simple to be wrong ------------------------------------------------------

AMOUNTS = [Fraction(1, 10), Fraction(1, 3), Fraction(1, 7)]
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "publish", "void", "cap", "reopen"]),
        st.integers(0, 5),
        st.sampled_from([Fraction(1, 2), Fraction(1), Fraction(1, 10), Fraction(2)]),
    ),
    max_size=14,
)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(operations=OPERATIONS)
def test_against_a_model(tmp_path: Path, operations: list[tuple[str, int, Fraction]]) -> None:
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    path = folder / "ledger.db"
    cap: Fraction | None = None
    state: dict[int, str] = {}
    ledger = Ledger(path)
    for operation, number, amount in operations:
        price = AMOUNTS[number % 3]
        spent = sum((AMOUNTS[one % 3] for one in state), Fraction(0))
        one = charge(str(price), str(number))
        if operation == "reopen":
            ledger.close()
            ledger = Ledger(path)
        elif operation == "cap":
            if amount < spent:
                with pytest.raises(BudgetError):
                    ledger.set_cap("survey", amount, Fraction(0))
            else:
                ledger.set_cap("survey", amount, Fraction(0))
                cap = amount
        else:
            quote = ledger.preview(one)
            if cap is None or (number not in state and spent + price > cap):
                assert not quote.allowed
                with pytest.raises(BudgetError):
                    ledger.reserve(one)
                continue
            assert quote.allowed
            reservation = ledger.reserve(one)
            assert (reservation.published is not None) == (state.get(number) == "published")
            assert reservation.resumed == (state.get(number) == "pending")
            state.setdefault(number, "pending")
            if operation == "publish":
                ledger.commit(reservation, "text")
                state[number] = "published"
            elif operation == "void" and state[number] == "pending":
                lifted(ledger, reservation)
                del state[number]
        accounts = ledger.accounts()
        if accounts:
            live = [record for record in accounts[0].charges if record.counts]
            assert accounts[0].cap_epsilon == cap
            assert accounts[0].spent_epsilon == sum(
                (AMOUNTS[one % 3] for one in state), Fraction(0)
            )
            assert sorted(one.status for one in live) == sorted(state.values())
        else:
            assert not state
            assert cap is None
    ledger.close()
