"""Why a charge does not fit into an account, and the command that would make room for it."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from noisewise.core.composition import within
from noisewise.core.errors import RequestError
from noisewise.holder.ledger.accounts import OpenAccount, fits, remaining_epsilon, total_epsilon
from noisewise.holder.ledger.book import Book
from noisewise.holder.ledger.charges import Charge, down, exact, up
from noisewise.holder.ledger.names import closest, foreign_letters, near_miss


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
    if fits(account.losses(charge), cap_epsilon, cap_delta):
        return None
    spent = total_epsilon(account.losses(), cap_delta)
    pending = sum(record.status == "pending" for record in others)
    facts = (
        f"Data set {account.dataset!r}: the request (epsilon={exact(charge.epsilon)}, "
        f"delta={exact(charge.delta)}) does not fit into the privacy budget: cap "
        f"epsilon={exact(cap_epsilon)}, delta={exact(cap_delta)}, spent "
        f"epsilon={up(spent)}, remaining epsilon={down(remaining_epsilon(cap_epsilon, spent))}. "
    )
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
        spent = up(total_epsilon(account.losses(), account.delta()))
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
    """Return the command that sets the least round cap under which the charge fits."""
    cap_delta = account.delta()
    candidates = {cap_delta, max(cap_delta, charge.delta), cap_delta + charge.delta}
    for delta in sorted(one for one in candidates if one < 1):
        total = total_epsilon(account.losses(charge), delta)
        if total != math.inf:
            return cap_command(path, account.dataset, up(total), exact(delta))
    return cap_command(path, account.dataset, "EPSILON", "DELTA")


def cap_command(path: Path, dataset: str, epsilon: str, delta: str = "0") -> str:
    """Return the command that sets a cap, ready for a shell."""
    command = ["noisewise", "ledger", "cap", "--ledger", str(path)]
    command += ["--dataset", dataset, "--epsilon", epsilon]
    if delta != "0":
        command += ["--delta", delta]
    return shlex.join(command)
