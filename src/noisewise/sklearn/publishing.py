"""How an estimator publishes its rows: into the holder's ledger, or one of its own."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from noisewise.core.errors import BudgetError, RequestError
from noisewise.core.privacy import as_delta, as_loss
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.base import Publishable


def released(
    request: Publishable[Any],
    table: dict[str, Any],
    ledger: str | os.PathLike[str] | None,
    cap: Any = None,
) -> Any:
    """The Release of these rows.

    Parameters
    ----------
    request : Publishable
    table : dict of str to array
    ledger : path or None
        Without one, the request is paid from a budget of its own, which ends with it.
    cap : number, exact text, or pair of them, optional
        Epsilon, or epsilon and delta: the cap in the ledger, set if there is none.
    """
    price = request.charge()
    if ledger is None:
        if cap is not None:
            raise RequestError("cap: belongs to a ledger, and none is given; give ledger= as well")
        with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "budget.db") as own:
            own.set_cap(price.dataset, price.epsilon, price.delta)
            return publish(request, table, ledger=own).release
    if not isinstance(ledger, str | os.PathLike):
        raise RequestError(
            f"ledger: expected the path of the budget file, got a {type(ledger).__name__}; clones "
            "of an estimator cannot share an open one"
        )
    with Ledger(ledger) as budget:
        if cap is not None:
            _agree(budget, price.dataset, cap)
        published = publish(request, table, ledger=budget)
    if published.repeated:
        warnings.warn(
            "an equal request had been published before: its stored Release is used at no cost, "
            "and these rows were not read; give a new label if they are new",
            UserWarning,
            stacklevel=3,
        )
    return published.release


def _agree(ledger: Ledger, dataset: str, cap: Any) -> None:
    """Set the cap of a data set that has none; refuse to change one."""
    given = cap if isinstance(cap, tuple | list) else (cap, 0)
    if len(given) != 2:
        raise RequestError("cap: expected epsilon, or a pair of epsilon and delta")
    epsilon, delta = as_loss(given[0], "cap"), as_delta(given[1], "delta of the cap")
    for account in ledger.accounts():
        if account.dataset == dataset and account.cap_epsilon is not None:
            if (account.cap_epsilon, account.cap_delta) != (epsilon, delta):
                raise BudgetError(
                    f"cap: the ledger holds another cap for data set {dataset!r}, epsilon="
                    f"{float(min(account.cap_epsilon, 10**6)):g} and delta="
                    f"{float(account.cap_delta or 0):g}; leave cap out to keep it, or change it by "
                    "Ledger.set_cap"
                )
            return
    ledger.set_cap(dataset, epsilon, delta)
