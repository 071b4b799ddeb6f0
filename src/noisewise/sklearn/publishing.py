"""How an estimator publishes its rows: into the holder's ledger, or one of its own."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from noisewise.core.errors import RequestError
from noisewise.holder.publish import publish
from noisewise.holder.publishable import Publishable


def released(
    request: Publishable[Any], table: dict[str, Any], ledger: str | os.PathLike[str] | None
) -> Any:
    """The Release of these rows.

    Parameters
    ----------
    request : Publishable
    table : dict of str to array
    ledger : path or None
        Without one, the request is paid from a budget of its own, which ends with it.
    """
    if ledger is None:
        with tempfile.TemporaryDirectory() as folder:
            return publish(request, table, ledger=Path(folder) / "budget.db").release
    if not isinstance(ledger, str | os.PathLike):
        raise RequestError(
            f"ledger: expected the path of the budget file, got a {type(ledger).__name__}; clones "
            "of an estimator cannot share an open one"
        )
    published = publish(request, table, ledger=Path(ledger))
    if published.repeated:
        warnings.warn(
            "an equal request had been published before: its stored Release is used at no cost, "
            "and these rows were not read; give a new label if they are new",
            UserWarning,
            stacklevel=3,
        )
    return published.release
