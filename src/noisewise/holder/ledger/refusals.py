"""What the ledger refuses: names, charges that do not fit, and rows that were published before.

**Names.** A data set has one budget, so no two names may be taken for one another. A release needs
a cap that was set for its very data set. So a slip in a name cannot make a budget at a release; it
could only where a cap is set, and there a name that is easily taken for a known one is refused.

**Fingerprints.** A release in rounds reads its rows several times, and goes on after a kill on
another day: a fingerprint of what the first pass has read is kept, so that other rows are noticed
(`rows.same_rows`).

A series costs what its costliest batch costs, on the holder's word that nobody is in two of them.
Nobody can check that from sums. But the same rows under two names, the slip that turns the budget
of one release into that of twenty, have the same exact sums (`holder.series`), and that is found.

A fingerprint is an HMAC-SHA256 of each text about the rows, with a random key that is kept beside
it: whoever can read the ledger could test guesses about the sums of a batch, and nobody else can do
anything. It finds slips. Somebody who changes one row gets past it, and so do rows that two batches
share in part.
"""

from __future__ import annotations

import hmac
import math
import shlex
import unicodedata
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from fractions import Fraction
from pathlib import Path
from typing import Any

from noisewise.core.composition import within
from noisewise.core.errors import BudgetError, DataError, RequestError
from noisewise.holder.ledger.accounts import (
    Charge,
    ChargeRecord,
    OpenAccount,
    down,
    exact,
    fits,
    total_epsilon,
    up,
    what_remains,
)
from noisewise.holder.ledger.file import Book
from noisewise.holder.mechanisms import randomness


def refusal(path: Path, account: OpenAccount, charge: Charge) -> str | None:
    """Return why the charge does not fit into the account, or None if it does."""
    others = account.live()
    if not within([charge.event], charge.epsilon, charge.delta):
        raise RequestError(
            f"The event {charge.event!r} costs more than the epsilon={exact(charge.epsilon)}, "
            f"delta={exact(charge.delta)} asked for: calibrate it to what is asked."
        )
    bound = others[0].charge.unit if others else charge.unit
    if bound != charge.unit:
        return (
            f"Data set {account.dataset!r} is charged under the neighbour relation and "
            f"privacy unit {bound!r}; this request uses {charge.unit!r}. Losses under "
            f"different relations cannot be added up. Use {bound!r} for this data set."
        )
    assert account.cap is not None  # else there is `no_cap`
    cap_epsilon, cap_delta = account.cap
    if fits(account.losses(charge), cap_epsilon, cap_delta, account.rule):
        return None
    losses = account.losses()
    spent = total_epsilon(losses, cap_delta, account.rule)
    pure, gaussian = what_remains(losses, *account.cap, account.rule, spent)
    pending = sum(record.status == "pending" for record in others)
    facts = (
        f"Data set {account.dataset!r}: the request (epsilon={exact(charge.epsilon)}, "
        f"delta={exact(charge.delta)}) does not fit into the privacy budget: cap "
        f"epsilon={exact(cap_epsilon)}, delta={exact(cap_delta)}, spent "
        f"epsilon={up(spent)}, remaining epsilon={down(pure)}"
    )
    if account.rule == "filter" and cap_delta:
        facts += f" without a delta, or epsilon={down(gaussian)} with Gaussian noise at that delta"
    facts += ". "
    if pending:
        facts += (
            f"Unfinished runs among the charges: {pending}. The same request, run again, completes "
            "one at no further cost. "
        )
    undeclared = sum(r.charge.batch is not None and r.charge.series is None for r in others)
    if undeclared:
        facts += (
            f"Charges of batches that name no series: {undeclared}. They add up, because nothing "
            "says which of them are disjoint. "
        )
    return (
        f"{facts}Nothing was read or published. Ask for less, or raise the cap if you decide that "
        f"the people in the data can bear it:\n  {_remedy(path, account, charge)}"
    )


def no_cap(path: Path, book: Book, account: OpenAccount, charge: Charge) -> str:
    """Say that nobody set a cap for the data set, what may have been meant, and how to set one."""
    name = charge.dataset
    missed = near_miss(name, book.accounts)
    if missed:
        return f"{missed} Nothing was read, charged or published."
    if book.is_missing:
        where = f"There is no ledger at {path}, so no cap is set for data set {name!r}"
    else:
        where = f"Data set {name!r}: no cap is set for it in the ledger {path}"
    others = closest(name, [one for one in book.accounts if one != name])
    if account.live():
        spent = up(total_epsilon(account.losses(), account.delta(), account.rule))
        where += f" (epsilon={spent} is spent, under a cap that nobody chose)"
    elif others:
        shown = ", ".join(map(repr, others[:5])) + (", ..." if len(others) > 5 else "")
        where += f". It holds {shown}{foreign_letters(name, others[0])}"
    return (
        f"{where}. Nothing was read, charged or published. Check the names. If they are right, "
        "decide how much privacy loss the people in the data can bear in all, and set that as the "
        f"cap; this request needs at least\n  {_remedy(path, account, charge)}"
    )


def _remedy(path: Path, account: OpenAccount, charge: Charge) -> str:
    """Return the command that sets the least cap under which the charge fits; it lowers none."""
    cap_delta = account.delta()
    candidates = {cap_delta, max(cap_delta, charge.delta), cap_delta + charge.delta}
    for delta in sorted(one for one in candidates if one < 1):
        total = total_epsilon(account.losses(charge), delta, account.next_rule)
        if total != math.inf:
            present = account.cap[0] if account.cap is not None else Fraction(0)
            needed = exact(present) if present > total else up(total)
            return cap_command(path, account.dataset, needed, exact(delta))
    return cap_command(path, account.dataset, "EPSILON", "DELTA")


def cap_command(path: Path, dataset: str, epsilon: str, delta: str = "0") -> str:
    """Return the command that sets a cap, ready for a shell."""
    command = ["noisewise", "ledger", "cap", "--ledger", str(path)]
    command += ["--dataset", dataset, "--epsilon", epsilon]
    if delta != "0":
        command += ["--delta", delta]
    return shlex.join(command)


# --- the rows that a pending charge was made for --------------------------------------------------


def moved(record: ChargeRecord, source: Mapping[str, Any] | None) -> bool:
    """Tell whether a charge was made for rows somewhere else, as far as both are known.

    Size and time of a file are no part of that: a file that was repaired is the same file.
    """
    if source is None or record.source is None:
        return False
    parts = ("data", "table", "query")
    return any(record.source.get(part) != source.get(part) for part in parts)


def other_source(record: ChargeRecord, source: Mapping[str, Any] | None) -> str:
    """Say what a pending charge was made for, and what to do; the free ways come first."""
    return (
        "data: this request is charged already and not published yet; it was charged for "
        f"{in_words(record.source)}, and now {in_words(source)} is given. With the data that it "
        "was charged for it completes at no further cost, and also with these, if they are the "
        "same people's rows, moved or repaired: say so by --same-data (in Python same_data=True). "
        "Rows of other people are another request: give it a --label, which costs again"
    )


def in_words(source: Mapping[str, Any] | None) -> str:
    """Describe a source in a line."""
    if source is None:
        return "data that are not named"
    words = str(source["data"])
    if "table" in source:
        words += f", table {source['table']}"
    if "query" in source:
        words += f", query {source['query']!r}"
    if "changed" in source:
        words += f" ({source['bytes']:,} bytes, changed {source['changed']})"
    return words


# --- fingerprints of batches ----------------------------------------------------------------------


def new_key() -> str:
    """Return a random key of 256 bits, in hexadecimal digits."""
    return randomness.octets(32).hex()


def fingerprint(content: Mapping[str, str], key: str | None = None) -> dict[str, Any]:
    """Return what the ledger keeps of the texts."""
    key = new_key() if key is None else key
    return {"key": key, "texts": {name: _mac(key, name, content[name]) for name in content}}


def is_of(kept: Mapping[str, Any], content: Mapping[str, str]) -> bool:
    """Whether all texts that both have are the same, and there is one."""
    common = kept["texts"].keys() & content.keys()
    return bool(common) and all(
        hmac.compare_digest(kept["texts"][name], _mac(kept["key"], name, content[name]))
        for name in common
    )


def check_content(account: OpenAccount, charge: Charge, content: Mapping[str, str]) -> None:
    """Refuse rows that are in another batch of the same series.

    The same batch may be published again, by another request: charges of one batch add up.
    """
    for record in account.live():
        other = record.charge
        if other.series != charge.series or other.batch == charge.batch:
            continue
        if record.fingerprint is not None and is_of(record.fingerprint, content):
            raise DataError(
                f"batch: the rows of {charge.batch!r} are those of batch {other.batch!r} of the "
                f"series {charge.series!r}: all their sums are the same. Whoever is in both bears "
                "two losses, and a series counts one. Nothing was published, and the charge stays "
                "pending: if these are the wrong rows, the same request completes with the right "
                "ones at no further cost. If they are other people who agree by chance, as small "
                "batches of yes/no columns may, publish them without a series (the cost is added), "
                "or in another series of their own"
            )


def _mac(key: str, name: str, text: str) -> str:
    return hmac.new(bytes.fromhex(key), f"{name} {text}".encode(), "sha256").hexdigest()


# --- names of data sets ---------------------------------------------------------------------------

# Scripts whose letters pass for one another, and the letters of Greek and Cyrillic that pass for
# Latin ones (after case folding).
_ALIKE_SCRIPTS = {"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "COPTIC", "CHEROKEE"}
_LOOKS_LIKE = str.maketrans("аеорсухіјѕһԁԛԝвмтнкгαορνικτυχγ", "aeopcyxijshdqwbmthkraopviktuxy")
# Printable to Python, and invisible: fillers, the Braille blank, joiners, variation selectors.
_INVISIBLE = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0}


def near_miss(name: str, known: Iterable[str]) -> str | None:
    """Say that the name is a known one in other letters, or return None."""
    others = [one for one in known if _folded(one) == _folded(name)]
    if not others or name in others:
        return None
    return (
        f"Data set {name!r}: the ledger holds {others[0]!r}, which differs in capital letters or "
        "in the form of letters only. A data set has one name and one budget: use the name "
        f"{others[0]!r}."
    )


def closest(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names, the most similar first."""

    def likeness(one: str) -> float:
        return SequenceMatcher(None, _shape(name), _shape(one), autojunk=False).ratio()

    return sorted(known, key=lambda one: (-likeness(one), one))


def foreign_letters(name: str, other: str) -> str:
    """Say by which letters a name differs from another that looks the same, or nothing."""
    if _shape(name) != _shape(other):
        return ""
    odd = sorted({unicodedata.name(c, hex(ord(c))) for c in set(name) - set(other)})
    return f" (looks the same, but is written with {', '.join(odd[:3])})" if odd else ""


def check_new(name: str, known: Iterable[str], *, confirmed: bool) -> None:
    """Refuse a new data set whose name could be taken for a known one.

    `name` is in its one spelling, and none of the names that the ledger knows. With `confirmed` the
    holder says that it is another data set. A name that folds to a known one, and one with
    invisible characters, is refused all the same.
    """
    known = list(known)
    missed = near_miss(name, known)
    if missed:
        raise BudgetError(missed)
    if any(ord(c) in _INVISIBLE or 0xFE00 <= ord(c) <= 0xFE0F for c in name):
        raise RequestError(f"dataset={name!a} has characters that nobody can see; leave them out.")
    if confirmed:
        return
    scripts = {unicodedata.name(c, "").split(" ")[0] for c in name if c.isalpha()}
    mixed = sorted(scripts & _ALIKE_SCRIPTS)
    if len(mixed) > 1:
        raise RequestError(
            f"dataset={name!r} mixes letters that look alike, {' and '.join(mixed)}; write it in "
            "one alphabet, or confirm with --new (in Python new=True)."
        )
    close = [one for one in closest(name, known) if _one_slip(_shape(name), _shape(one))]
    if close:
        raise BudgetError(
            f"Data set {name!r}: the ledger holds {close[0]!r}, which is easily taken for it"
            f"{foreign_letters(name, close[0])}, and a second name is a second budget. If these "
            "are the same people, use the known name; if they are others, confirm with --new (in "
            "Python new=True)."
        )


def _folded(name: str) -> str:
    """Return what two names share if they differ in case or in the form of letters only."""
    once = unicodedata.normalize("NFKC", name).casefold()
    return unicodedata.normalize("NFKC", once).casefold()


def _shape(name: str) -> str:
    """Return roughly what a name looks like."""
    return _folded(name).translate(_LOOKS_LIKE)


def _one_slip(one: str, other: str) -> bool:
    """Tell whether a letter more, less, other, or two swapped make one text of the other."""
    while one and other and one[0] == other[0]:
        one, other = one[1:], other[1:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    return max(len(one), len(other)) <= 1 or (len(one) == 2 and one == other[::-1])
