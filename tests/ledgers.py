"""Ledgers for tests: a release needs one with a cap for its data set."""

from __future__ import annotations

from pathlib import Path

from noisewise.holder.ledger import Ledger


def ledger_for(path: Path, dataset: str = "people", epsilon: object = 1000) -> Path:
    """Set a cap, by default one that nothing in the tests exceeds, and return the path."""
    with Ledger(path) as ledger:
        ledger.set_cap(dataset, epsilon, "1e-6")
    return path
