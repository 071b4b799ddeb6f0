"""The regression mechanisms of noisewise, each on its worst pair, from rows to the file's text.

Designs are small and budgets moderate, where a mistake in the noise shows after a thousand runs.
"""

from __future__ import annotations

from typing import Any

from noisewise.audit.engine import AuditResult
from noisewise.audit.request import audit_release
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.request import Request, make_request
from studies.self_audit.registry import Subject

_COLUMNS = {
    "hours": Number(0, 60),
    "age": Number(18, 90),
    "region": Category(("north", "south", "east"), "north"),
    "income": Number(-1e4, 2.5e5),
}


def request_for(
    features: str = "hours", neighbours: str = "replace_one", rows: int = 1, **words: Any
) -> Request:
    """A request on an invented schema."""
    schema = Schema("audited", _COLUMNS, neighbours=neighbours, max_rows_per_unit=rows)  # type: ignore[arg-type]
    return make_request(schema, target="income", features=features.split("+"), **words)


def _subject(name: str, describe: str, runs: int = 1000, **words: Any) -> Subject:
    def check(runs: int, confidence: float) -> AuditResult:
        return audit_release(request_for(**words), runs=runs, confidence=confidence).result

    return Subject(name, describe, check, runs)


SUBJECTS = (
    _subject("laplace", "Laplace noise, one feature", epsilon=2),
    _subject("laplace-category", "Laplace noise, a category", features="region", epsilon=2),
    _subject("laplace-rows", "Laplace noise, three rows a person", rows=3, epsilon=2),
    _subject(
        "laplace-add-remove",
        "Laplace noise, one row more or less",
        neighbours="add_remove_one",
        epsilon=2,
    ),
    _subject(
        "gaussian", "Gaussian noise, two features", features="hours+age", epsilon=2, delta="1e-6"
    ),
    _subject(
        "gaussian-isometric",
        "Gaussian noise, isometric layout",
        features="hours+age",
        epsilon=2,
        delta="1e-6",
        layout="isometric",
    ),
    _subject("gaussian-ball", "Gaussian noise, rows in a ball", rho="0.5", radius=1.0),
    _subject(
        "fourth-moments",
        "Laplace noise on second and fourth moments",
        epsilon=4,
        fourth_moments="0.5",
    ),
    _subject(
        "eigenvalue",
        "Laplace noise on the smallest eigenvalue too",
        epsilon=2,
        smallest_eigenvalue="0.5",
    ),
    _subject(
        "eigenvalue-gaussian",
        "Gaussian noise on the smallest eigenvalue too",
        rho="0.5",
        smallest_eigenvalue="0.5",
    ),
)
