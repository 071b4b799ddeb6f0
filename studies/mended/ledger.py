"""Attacks on the budget: sizes chosen by answers, rows that change or are exchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from noisewise.core.errors import DataError, RequestError
from noisewise.core.privacy_filter import Borne
from noisewise.core.schema import Number, Schema
from noisewise.holder.engines.files import CsvSource
from noisewise.holder.ledger import Ledger
from noisewise.holder.ledger.accounts import fits
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import make_request
from studies.caps import CAPS, FIRST, attack

PEOPLE = Schema("people", {"age": Number(18, 90), "income": Number(0, 200_000)}, "add_remove_one")


def _people(path: Path, rows: int, seed: int = 1) -> Path:
    """A file of people whose incomes go with their ages."""
    rng = np.random.default_rng(seed)
    age = rng.normal(45, 6, rows)
    income = 800 * age + rng.normal(0, 4000, rows)
    lines = [f"{a:.3f},{i:.2f}" for a, i in zip(age, income, strict=True)]
    path.write_text("\n".join(["age,income", *lines]) + "\n", encoding="utf-8")
    return path


def _ledger(folder: Path) -> Path:
    with Ledger(folder / "budget.db") as ledger:
        ledger.set_cap("people", 3, "1e-6")
    return folder / "budget.db"


def adaptive_sizes(folder: Path) -> str | None:
    """By the answer to a first charge, the last one is as large as a cap of today lets it be.

    The true delta of both together, by the tree of all answers, was up to 3.4 times the cap's.
    """
    with Ledger(folder / "budget.db") as ledger:
        ledger.set_cap("people", 3, "1e-6")
        (account,) = ledger.accounts()
    rule = account.rule
    assert rule is not None

    def lets_in(events: Any, epsilon: Any, delta: Any) -> bool:
        return fits([Borne(len(events), tuple(events))], epsilon, delta, rule)

    for epsilon, delta in CAPS[:2]:
        worst = max(attack(lets_in, epsilon, delta, first)[0] for first in FIRST)
        if worst > 1:
            return f"the true delta is {worst:.2f} times that of the cap ({epsilon}, 1e-6)"
    return None


def changed_between_passes(folder: Path) -> str | None:
    """A file is written anew while a release in rounds reads it again and again; n is private."""
    path, ledger = _people(folder / "people.csv", 6000), _ledger(folder)
    request = make_request(
        PEOPLE, target="income", features=["age"], epsilon=1, delta="1e-6", rounds=3
    )
    passes, sums = [0], CsvSource.sums

    def changing(source: CsvSource, plan: Any, progress: Any = None) -> Any:
        passes[0] += 1
        if passes[0] == 2:
            _people(path, 5999)
        return sums(source, plan, progress)

    with mock.patch.object(CsvSource, "sums", changing):
        try:
            publish(request, path, ledger=ledger)
        except DataError:
            pass
        else:
            return "a release was made of two tables"
    with Ledger(ledger) as budget:
        if budget.published():
            return "a release was published"
        status = [one.status for one in budget.accounts()[0].charges]
    return None if status == ["pending"] else f"the charge is {status}"


def pending_charge_for_another_file(folder: Path) -> str | None:
    """A charge that failed on one file is used for other people's rows, at no cost."""
    ledger = _ledger(folder)
    request = make_request(PEOPLE, target="income", features=["age"], epsilon=1)
    failing = _people(folder / "failing.csv", 50)
    failing.write_text(failing.read_text("utf-8") + ",\n", encoding="utf-8")
    try:
        publish(request, failing, ledger=ledger)
    except DataError:
        pass
    else:
        return "a missing value was no error"
    try:
        publish(request, _people(folder / "others.csv", 50, seed=2), ledger=ledger)
    except RequestError:
        return None
    return "it was published about the other file"


SCENARIOS = {
    "sizes of charges follow from answers": adaptive_sizes,
    "a table changes between the passes of rounds": changed_between_passes,
    "a pending charge is used for another file": pending_charge_for_another_file,
}
