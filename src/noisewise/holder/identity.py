"""Which request this is: equal requests are the same Release, and cost once."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from typing import Any

from ..core.privacy import Event
from ..core.schema import Schema
from .ledger import Charge


def key_of(document: Any) -> str:
    """SHA-256 of a request's canonical description."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def charge_of(
    key: str,
    schema: Schema,
    event: Event,
    *,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    summary: str,
    label: str,
    batch: str | None,
    table: str | None,
    query: str | None,
) -> Charge:
    """What the ledger is asked for.

    Another table or query of a database is another population, hence another request.

    Parameters
    ----------
    key : str
        The request's own.
    schema : Schema
    event : Event
    epsilon, delta : Fraction
        As people read them; composition uses the event.
    summary, label : str
        What is published, in words.
    batch : str or None
        See `Charge.batch`.
    table, query : str or None
    """
    if table is not None or query is not None:
        key = key_of([key, table, query])
    return Charge(
        dataset=schema.dataset,
        request_key=key,
        unit=schema.unit,
        event=event,
        epsilon=epsilon,
        delta=delta,
        summary=summary + (f", label {label}" if label else ""),
        batch=batch,
    )
