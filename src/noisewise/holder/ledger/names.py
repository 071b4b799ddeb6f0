"""Names of data sets: one budget each, so no two that could be taken for one another.

A release needs a cap that was set for its very data set. So a slip in a name cannot make a budget
at a release; it could only where a cap is set, and there a name that is easily taken for a known
one is refused.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from difflib import SequenceMatcher

from noisewise.core.errors import BudgetError, RequestError

# Scripts whose letters pass for one another, and the letters of Greek and Cyrillic that pass for
# Latin ones (after case folding).
_ALIKE_SCRIPTS = {"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "COPTIC", "CHEROKEE"}
_LOOKS_LIKE = str.maketrans("аеорсухіјѕһԁԛԝвмтнкгαορνικτυχγ", "aeopcyxijshdqwbmthkraopviktuxy")
# Printable to Python, and invisible: fillers, the Braille blank, joiners, variation selectors.
_INVISIBLE = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0}


def usable_name(what: str, name: str) -> str:
    """Return the one spelling of the name of a data set, series or batch, if it is usable."""
    normal = unicodedata.normalize("NFC", name)
    if not normal or normal != normal.strip() or not normal.isprintable() or len(normal) > 200:
        raise RequestError(
            f"{what}={name!r} is not a usable name: give 1 to 200 printable characters without "
            "blanks around them."
        )
    return normal


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
    return sorted(known, key=lambda one: (-_likeness(_shape(name), _shape(one)), one))


def foreign_letters(name: str, other: str) -> str:
    """Say by which letters a name differs from another that looks the same, or nothing."""
    if _shape(name) != _shape(other):
        return ""
    odd = sorted({unicodedata.name(c, hex(ord(c))) for c in set(name) - set(other)})
    return f" (looks the same, but is written with {', '.join(odd[:3])})" if odd else ""


def check_new(name: str, known: Iterable[str], *, confirmed: bool) -> None:
    """Refuse a new data set whose name could be taken for a known one.

    Parameters
    ----------
    name
        In its one spelling.
    known
        The names that the ledger holds; `name` is none of them.
    confirmed
        The holder says that it is another data set. A name that folds to a known one, and one
        with invisible characters, is refused all the same.
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


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def _one_slip(one: str, other: str) -> bool:
    """Tell whether a letter more, less, other, or two swapped make one text of the other."""
    while one and other and one[0] == other[0]:
        one, other = one[1:], other[1:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    return max(len(one), len(other)) <= 1 or (len(one) == 2 and one == other[::-1])
