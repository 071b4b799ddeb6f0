"""No budget by slip: a release needs a cap that was set for that very data set, and a sane one."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from noisewise.cli.main import app
from noisewise.core.document import digest_of
from noisewise.core.errors import (
    BudgetError,
    LedgerError,
    NoisewiseError,
    ReleaseError,
    RequestError,
)
from noisewise.core.kinds import release_from_text
from noisewise.core.privacy import Claim, GaussianEvent, PureEvent
from noisewise.holder.ledger import Account, Charge, Ledger
from noisewise.holder.ledger.accounts import charge_to_json

from ..releases import example_request, release_of


def charge(name: str = "a", dataset: str = "people", epsilon: str = "1", **terms: Any) -> Charge:
    return Charge(
        dataset=dataset,
        request_key=hashlib.sha256(name.encode()).hexdigest(),
        unit="replace_one/1",
        **{
            "event": PureEvent(Fraction(epsilon)),
            "epsilon": Fraction(epsilon),
            "delta": Fraction(0),
            "summary": f"request {name}",
            **terms,
        },
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


def refused(path: Path, one: Charge) -> str:
    """Return the refusal of a charge, which must leave everything as it was."""
    before = path.read_bytes() if path.exists() else None
    with Ledger(path) as ledger:
        with pytest.raises(BudgetError) as caught:
            ledger.reserve(one)
        quote = ledger.preview(one)
    assert (quote.allowed, quote.refusal) == (False, str(caught.value))
    assert (path.read_bytes() if path.exists() else None) == before
    return str(caught.value)


def run_remedy(message: str) -> None:
    """Run the command in the last line of a refusal."""
    words = shlex.split(message.splitlines()[-1])
    assert words[:3] == ["noisewise", "ledger", "cap"]
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, result.output


def account(path: Path, dataset: str = "people") -> Account:
    with Ledger(path, create=False) as ledger:
        return next(one for one in ledger.accounts() if one.dataset == dataset)


# --- no ledger, no cap ---------------------------------------------------------------------------


def test_a_cap_in_one_line(path: Path) -> None:
    Ledger(path).set_cap("people", epsilon=3)
    assert (account(path).cap_epsilon, account(path).cap_delta) == (3, 0)
    Ledger(path).set_cap("people", 0.3, "1e-6")  # 0.3 is three tenths
    assert account(path).cap_epsilon == Fraction(3, 10)
    assert account(path).cap_delta == Fraction(1, 10**6)


def test_no_ledger_and_then_the_command_that_is_given(path: Path) -> None:
    message = refused(path, charge(epsilon="0.5"))
    assert f"There is no ledger at {path}" in message
    assert "Nothing was read, charged or published" in message
    run_remedy(message)
    with Ledger(path) as ledger:
        assert ledger.reserve(charge(epsilon="0.5")).published is None


def test_the_command_covers_a_gaussian(path: Path) -> None:
    one = charge(
        event=GaussianEvent(4.0), epsilon="2", delta=Fraction(1, 10**6), summary="gaussian"
    )
    run_remedy(refused(path, one))
    with Ledger(path) as ledger:
        ledger.reserve(one)


@pytest.mark.parametrize(
    ("slip", "why"),
    [
        ("People", "use the name 'people'"),
        ("PEOPLE", "use the name 'people'"),
        ("\uff50eople", "use the name 'people'"),  # full width
        ("\u0440\u0435ople", "CYRILLIC SMALL LETTER ER"),
        ("poeple", "It holds 'people', 'survey'"),
        ("people2", "It holds 'people', 'survey'"),
        ("surveys", "It holds 'survey', 'people'"),
        ("elsewhere", "no cap is set for it"),
    ],
)
def test_a_slip_in_the_name_is_no_budget(path: Path, slip: str, why: str) -> None:
    with Ledger(path) as ledger:
        ledger.set_cap("survey", 1)
        ledger.set_cap("people", 1)
        ledger.commit(ledger.reserve(charge()), "text")  # the cap is used up
    message = refused(path, charge("b", slip))
    assert why in message
    assert ("ledger cap" in message) == ("use the name" not in message)
    assert [one.dataset for one in Ledger(path).accounts()] == ["people", "survey"]


@pytest.mark.parametrize("name", ["People", "\uff50eople", "PEOPLE"])
def test_a_cap_for_a_known_name_in_other_letters_is_refused(path: Path, name: str) -> None:
    with Ledger(path) as ledger:
        ledger.set_cap("people", 1)
        for new in (False, True):
            with pytest.raises(BudgetError, match="'people'"):
                ledger.set_cap(name, 1, new=new)
        assert [one.dataset for one in ledger.accounts()] == ["people"]


@pytest.mark.parametrize("name", ["peopl", "peple", "poeple", "people2", "peopie", "\u0441\u0430t"])
def test_a_cap_for_a_name_much_like_a_known_one_wants_a_word(path: Path, name: str) -> None:
    with Ledger(path) as ledger:
        ledger.set_cap("people", 1)
        ledger.set_cap("cat", 1)
        with pytest.raises(NoisewiseError, match="--new"):
            ledger.set_cap(name, 1)
        assert len(ledger.accounts()) == 2
        ledger.set_cap(name, 1, new=True)
        ledger.set_cap(name, 2)  # known by now
        assert len(ledger.accounts()) == 3
        ledger.set_cap("hospital", 1)  # unlike all of them


def test_letters_of_two_alphabets_and_invisible_ones(path: Path) -> None:
    with Ledger(path) as ledger:
        with pytest.raises(RequestError, match="CYRILLIC and LATIN"):
            ledger.set_cap("\u0440eople", 1)
        for invisible in ("\u3164", "\u200b", "\u2800", "\ufe0f", "\u00ad"):
            with pytest.raises(RequestError):
                ledger.set_cap(f"people{invisible}", 1, new=True)
        assert not path.exists()
        ledger.set_cap("Kraków 2026 東京", 1)  # scripts that nobody mixes up


def test_a_new_cap_is_confirmed_on_the_command_line(path: Path) -> None:
    def cap(*words: str) -> tuple[int, str]:
        command = ["ledger", "cap", "--ledger", str(path), "--epsilon", "1", *words]
        result = CliRunner().invoke(app, command)
        error = result.exception
        return getattr(error, "exit_code", result.exit_code), str(error)

    assert cap("--dataset", "wave-1")[0] == 0
    code, message = cap("--dataset", "wave-2")
    assert (code, "--new" in message) == (BudgetError.exit_code, True)
    assert cap("--dataset", "wave-2", "--new")[0] == 0
    assert cap("--dataset", "Wave-2", "--new")[0] == BudgetError.exit_code


# --- ledgers from when a first release set the cap -----------------------------------------------


def old_ledger(path: Path, one: Charge, text: str | None = "text") -> None:
    """Write what the first release without a cap used to write."""
    with Ledger(path) as ledger, ledger._file.transaction(write=True, create=True) as book:
        number = book.append("reserve", {**charge_to_json(one), "sets_cap": True})
        if text is not None:
            book.publish(book.account(one.dataset).records[number], text, None)


@pytest.mark.parametrize(
    "one",
    [charge(), charge(event=GaussianEvent(4.0), epsilon="2", delta=Fraction(1, 10**6))],
    ids=["pure", "gaussian"],
)
def test_a_cap_that_nobody_chose_is_none(path: Path, one: Charge) -> None:
    old_ledger(path, one)
    found = account(path)
    assert (found.cap_epsilon, found.remaining_epsilon) == (None, None)
    assert 0.5 < found.spent_epsilon <= one.epsilon
    with Ledger(path) as ledger:
        assert ledger.reserve(one).published == "text"  # what is published stays available
        quote = ledger.preview(one)
        assert (quote.already_published, quote.allowed, quote.cap_epsilon) == (True, True, None)
        with pytest.raises(BudgetError, match="is spent"):
            ledger.set_cap("people", "0.1", one.delta)
    message = refused(path, charge("b"))
    assert "under a cap that nobody chose" in message
    run_remedy(message)
    with Ledger(path) as ledger:
        ledger.commit(ledger.reserve(charge("b")), "more")
    show = CliRunner().invoke(app, ["ledger", "show", "--ledger", str(path)])
    assert show.exit_code == 0


def test_an_unfinished_release_without_a_cap_waits_for_one(path: Path) -> None:
    old_ledger(path, charge(), text=None)
    run_remedy(refused(path, charge()))
    with Ledger(path) as ledger:
        reservation = ledger.reserve(charge())
        assert reservation.resumed
        ledger.commit(reservation, "text")
    assert account(path).spent_epsilon == 1


def test_the_command_line_shows_a_ledger_without_a_cap(path: Path) -> None:
    old_ledger(path, charge())
    show = CliRunner().invoke(app, ["ledger", "show", "--ledger", str(path)])
    assert "no cap is set, spent epsilon 1" in show.output
    show = CliRunner().invoke(app, ["ledger", "show", "--json", "--ledger", str(path)])
    assert '"cap_epsilon": null' in show.output


# --- numbers -------------------------------------------------------------------------------------

NO_LOSS = ["1e400", "1e309", "1e7", 10**400, "1e-400", "1e-10", "nan", "inf", "", 0, -1, math.inf]
NO_DELTA = ["1e400", "1e309", 10**400, "1e-400", "1e-301", "nan", "inf", "", 1, -1, math.nan]


@pytest.mark.parametrize("value", [*NO_LOSS, math.nan, True, None, Decimal("NaN"), Decimal("1e99")])
def test_numbers_that_are_no_epsilon(path: Path, value: Any) -> None:
    with pytest.raises(RequestError, match="epsilon"):
        Ledger(path).set_cap("people", value)
    assert not path.exists()
    for name in ("epsilon", "rho"):
        with pytest.raises(RequestError):
            Claim(**{name: value})


@pytest.mark.parametrize("value", NO_DELTA)
def test_numbers_that_are_no_delta(path: Path, value: Any) -> None:
    with pytest.raises(RequestError, match="delta"):
        Ledger(path).set_cap("people", 1, value)
    assert not path.exists()
    with pytest.raises(RequestError, match="delta"):
        Claim(1, value)


def test_the_limits_are_in_the_message_and_hold(path: Path) -> None:
    with pytest.raises(RequestError, match=r"from 1e-09 to 1,000,000"):
        Ledger(path).set_cap("people", "1e400")
    with pytest.raises(RequestError, match=r"0, or a probability from 1e-300 to below 1"):
        Ledger(path).set_cap("people", 1, "1e400")
    Ledger(path).set_cap("people", 10**6, "1e-300")
    Ledger(path).set_cap("people", "1e-9", "0.99")


def test_an_event_beyond_the_limits() -> None:
    with pytest.raises(RequestError):
        PureEvent(Fraction(10) ** 300)


@pytest.mark.parametrize(("epsilon", "delta"), [("1e+400", "0"), ("1e+400", "1e-400"), ("0", "0")])
def test_an_absurd_cap_of_an_old_ledger_is_shown(path: Path, epsilon: str, delta: str) -> None:
    with Ledger(path) as ledger, ledger._file.transaction(write=True, create=True) as book:
        book.append("cap", {"dataset": "people", "epsilon": epsilon, "delta": delta})
    if epsilon != "0":
        with Ledger(path) as ledger:
            ledger.commit(ledger.reserve(charge()), "text")
    for words in ([], ["--json"]):
        show = CliRunner().invoke(app, ["ledger", "show", "--ledger", str(path), *words])
        assert show.exit_code == 0, show.exception
        assert "people" in show.output
    Ledger(path).set_cap("people", 2)
    assert account(path).cap_epsilon == 2


def test_a_ledger_that_must_exist(path: Path) -> None:
    with pytest.raises(LedgerError, match="made by its first cap"):
        Ledger(path, create=False)


@pytest.mark.parametrize("number", ["1e400", "1e309", "1e-400", "nan", ""])
@pytest.mark.parametrize("where", ["epsilon", "delta", "rho", "event"])
def test_a_release_with_absurd_numbers_is_refused_on_reading(number: str, where: str) -> None:
    document = json.loads(release_of(example_request()).to_text())
    del document["digest"]
    if where == "event":
        document["privacy"]["event"]["epsilon"] = number
    elif where == "rho":
        document["privacy"]["claim"] = {"rho": number}
    else:
        document["privacy"]["claim"][where] = number
    with pytest.raises(ReleaseError):
        release_from_text(json.dumps({**document, "digest": digest_of(document)}))
