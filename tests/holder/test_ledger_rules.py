"""By which rule a cap is kept: new ones by the filter, those of older ledgers by their own."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from noisewise.core.calibration import gaussian_noise_multiplier
from noisewise.core.errors import BudgetError, LedgerError
from noisewise.core.privacy import GaussianEvent, PureEvent
from noisewise.holder.ledger import Charge, Ledger
from noisewise.holder.ledger import file as file_module

DELTA = Fraction(1, 10**6)


def charge(number, epsilon, *, gaussian=False):
    epsilon = Fraction(epsilon)
    event = PureEvent(epsilon)
    if gaussian:
        event = GaussianEvent(gaussian_noise_multiplier(epsilon, DELTA))
    return Charge(
        dataset="people",
        request_key=hashlib.sha256(str(number).encode()).hexdigest(),
        unit="replace_one/1",
        event=event,
        epsilon=epsilon,
        delta=DELTA if gaussian else Fraction(0),
        summary=f"charge {number}",
    )


def version_of(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


def as_version_1(path):
    """What an older noisewise would have written: caps name no rule."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        last = file_module.GENESIS
        for seq, time, kind, body in connection.execute(
            "SELECT seq, time, kind, body FROM entry ORDER BY seq"
        ).fetchall():
            text = json.dumps(
                {key: value for key, value in json.loads(body).items() if key != "rule"},
                sort_keys=True,
            )
            last = file_module._link(last, seq, time, kind, text)
            connection.execute(
                "UPDATE entry SET body = ?, hash = ? WHERE seq = ?", (text, last, seq)
            )
        connection.execute("UPDATE head SET hash = ?", (last,))
        connection.execute("PRAGMA user_version=1")


def ledger(path, cap=(1, DELTA), charges=(), *, old=False):
    with Ledger(path) as budget:
        budget.set_cap("people", *cap)
        for one in charges:
            budget.commit(budget.reserve(one), "text")
    if old:
        as_version_1(path)
    return path


def account(path):
    with Ledger(path) as budget:
        (found,) = budget.accounts()
    return found


# Both rules let in the first; only that of planned sizes lets in the second after it.
FIRST, SECOND = charge(1, "0.5", gaussian=True), charge(2, "0.5")


def test_a_new_cap_is_a_filter(tmp_path):
    path = ledger(tmp_path / "budget.db", charges=[FIRST])
    assert account(path).rule == "filter"
    assert version_of(path) == 2
    with Ledger(path) as budget:
        assert not budget.preview(SECOND).allowed
        with pytest.raises(BudgetError, match="does not fit"):
            budget.reserve(SECOND)


def test_charges_of_an_older_ledger_go_on_under_their_rule(tmp_path):
    path = ledger(tmp_path / "budget.db", charges=[FIRST], old=True)
    assert account(path).rule == "accountants"
    with Ledger(path) as budget:
        budget.commit(budget.reserve(SECOND), "text")
    assert version_of(path) == 1  # the older noisewise reads it still
    with Ledger(path) as budget:  # raised, it is the same rule
        budget.set_cap("people", 2, DELTA)
    found = account(path)
    assert (found.rule, found.next_rule, found.cap_epsilon) == ("accountants", "accountants", 2)
    assert version_of(path) == 1
    assert found.remaining_epsilon == found.remaining_gaussian == 2 - found.spent_epsilon


def test_another_data_set_of_an_older_ledger_has_the_filter(tmp_path):
    path = ledger(tmp_path / "budget.db", charges=[FIRST], old=True)
    with Ledger(path) as budget:
        budget.set_cap("clients", 1, DELTA)
        rules = {one.dataset: one.rule for one in budget.accounts()}
    assert rules == {"clients": "filter", "people": "accountants"}
    assert version_of(path) == 2


def test_an_older_cap_without_charges_gets_the_filter_when_it_is_set_again(tmp_path):
    path = ledger(tmp_path / "budget.db", old=True)
    assert account(path).rule == "accountants"
    with Ledger(path) as budget:
        budget.set_cap("people", 1, DELTA)
    assert account(path).rule == "filter"
    assert version_of(path) == 2


def test_pure_charges_of_an_older_ledger_are_sound_as_they_are(tmp_path):
    """A pure cap was the sum that is part of the filter, so a delta may be added to it."""
    path = ledger(tmp_path / "budget.db", (1, 0), [SECOND], old=True)
    assert account(path).next_rule == "filter"
    with Ledger(path) as budget:
        budget.set_cap("people", 1, DELTA)
    assert account(path).rule == "filter"


def test_a_delta_that_is_taken_back_does_not_change_what_was_let_in(tmp_path):
    path = ledger(tmp_path / "budget.db", charges=[SECOND], old=True)
    with Ledger(path) as budget:
        budget.set_cap("people", 1, 0)
        budget.set_cap("people", 1, DELTA)
    assert account(path).rule == "accountants"


def test_the_ledgers_of_version_0_1_keep_their_rule(tmp_path):
    old = Path(__file__).parents[1] / "data" / "written_by_0_1" / "ledgers"
    for name in ("set_cap", "batches", "voided"):
        path = Path(shutil.copyfile(old / f"{name}.db", tmp_path / f"{name}.db"))
        path.chmod(0o600)
        found = account(path)
        assert found.rule == "accountants"
        assert version_of(path) == 1


def test_older_software_refuses_what_it_would_keep_by_another_rule(tmp_path, monkeypatch):
    path = ledger(tmp_path / "budget.db")
    monkeypatch.setattr(file_module, "_VERSION", 1)
    with pytest.raises(LedgerError, match="upgrade"):
        Ledger(path)


def test_a_rule_that_nobody_knows_is_damage(tmp_path, monkeypatch):
    path = ledger(tmp_path / "budget.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        ((seq, time, kind, body, _),) = connection.execute("SELECT * FROM entry").fetchall()
        text = body.replace("filter", "none")
        digest = file_module._link(file_module.GENESIS, seq, time, kind, text)
        connection.execute("UPDATE entry SET body = ?, hash = ?", (text, digest))
        connection.execute("UPDATE head SET hash = ?", (digest,))
    with pytest.raises(LedgerError, match="makes no sense"):
        account(path)


def test_a_killed_upgrade_leaves_the_old_version(tmp_path):
    """The version is part of the transaction that writes the first entry of the new kind."""
    path = ledger(tmp_path / "budget.db", old=True)

    def interrupted():
        with Ledger(path) as budget, budget._file.transaction(write=True) as book:
            book.append("cap", {"dataset": "x", "epsilon": "1", "delta": "0", "rule": "filter"})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert version_of(path) == 1
    assert account(path).rule == "accountants"
