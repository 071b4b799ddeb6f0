"""Releases made without rows or noise, for tests that only need a valid document."""

from __future__ import annotations

from dataclasses import replace

from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.requests.regression import make_request

COLUMNS = {
    "age": Number(18, 90),
    "region": Category(("north", "süd", "east"), "north"),
    "income": Number(0, 200_000),
}


def example_request(neighbours="replace_one", rows=1, **changes):
    schema = Schema("people", COLUMNS, neighbours, rows)
    words = {
        "target": "income",
        "features": ["age", "region"],
        "epsilon": 1,
        "rounds": 1,
        **changes,
    }
    if "rho" in changes:
        words.pop("epsilon")
    return make_request(schema, **words)


def release_of(request, n=1000, values=None):
    """A Release whose noisy values are given (or small whole numbers)."""
    counts = [len(statistic.entries) for statistic in request.statistics]
    given = [tuple(range(count) if values is None else values[:count]) for count in counts]
    return replace(request.written(n, given), software="noisewise test")


EXAMPLES = {
    "laplace": {},
    "gaussian": {"delta": 1e-6},
    "isometric": {"delta": 1e-6, "radius": 1.25},
    "zcdp": {"rho": 0.1},
    "private_n": {"neighbours": "add_remove_one"},
    "household": {"rows": 4},
    "fourth": {"fourth_moments": 0.25},
    "fourth_gaussian": {"fourth_moments": "1/3", "delta": 1e-6},
    "fourth_zcdp": {"fourth_moments": 0.1, "rho": 0.5},
    "eigenvalue": {"smallest_eigenvalue": 0.2},
    "eigenvalue_ball": {"smallest_eigenvalue": "1/3", "delta": 1e-6, "radius": 0.75},
    "eigenvalue_private_n": {"smallest_eigenvalue": 0.1, "neighbours": "add_remove_one"},
    "all_three": {"smallest_eigenvalue": 0.1, "fourth_moments": 0.25, "rho": 0.5, "rows": 3},
    "labelled": {"label": "2026-Q3"},
}
