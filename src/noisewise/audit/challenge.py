"""A request on two neighbouring data sets: how it is run, and what is known of its outputs.

Every kind of request has a module that makes its challenge: `regression`, `summary`, `network` and
`draws`. `request.audit_release` takes it from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.audit.engine import Score, likelihood_ratio
from noisewise.audit.noise import DrawCheck, NoiseCheck, check_noise, spread_out
from noisewise.core.kinds import release_from_text
from noisewise.core.noise import Gaussian, Laplace
from noisewise.core.schema import Schema
from noisewise.holder.requests.base import Publishable

Run = Callable[[], list[float]]
Batch = Callable[[int], FloatArray]
Table = dict[str, list[Any]]


@dataclass(frozen=True)
class Neighbours:
    """Two data sets that differ in one privacy unit."""

    # Columns in original units
    a: Table
    b: Table
    # Their distance in units of the noise, over what the stated sensitivities allow. The smallest
    # eigenvalue, where it is published, is left out.
    attained: float


_OWNED = 3  # rows of the person in whom data sets with ids differ


def rows_of_one(schema: Schema) -> tuple[int, int]:
    """How many rows of a unit count, and how many it has; equal ones are their own mean."""
    if schema.unit_column is not None:
        return 1, _OWNED
    return schema.max_rows_per_unit, schema.max_rows_per_unit


def with_ids(schema: Schema, table: Table, shared: int) -> Table:
    """The same table with a column of ids, if the schema names one.

    The first `shared` rows are of as many people, and all others of one more.
    """
    if schema.unit_column is None:
        return table
    rows = len(next(iter(table.values())))
    return {**table, schema.unit_column: [min(row, shared) for row in range(rows)]}


@dataclass(frozen=True)
class Challenge:
    """What an audit of a request needs."""

    request: Publishable[Any]
    pair: Neighbours
    # One for each data set: from its rows, or from their exact sums, to the values of a Release
    # that was written as text and read back
    runs: tuple[Run, Run]
    # As `audit` takes them; the first is the one that is known to be good
    scores: Sequence[Score | None]
    # From all outputs of both data sets, in the order of the runs, to whether their noise is the
    # stated one
    check: Callable[[FloatArray, FloatArray], NoiseCheck | DrawCheck | None]
    # From (factor, generator) to simulated runs of both data sets with so much of the noise
    weakened: Callable[[float, np.random.Generator], tuple[Batch, Batch]]


def through_text(request: Publishable[Any], result: Any) -> Any:
    """Draw the noise, write a Release, and read it as anybody would."""
    return release_from_text(request.release(result.n, result).to_text())


def noisy_sums(
    request: Publishable[Any],
    pair: Neighbours,
    results: tuple[Any, Any],
    exact: tuple[FloatArray, FloatArray],
    laws: Sequence[Laplace | Gaussian],
    published: Callable[[Any], list[float]],
    *,
    discrete: bool = False,
) -> Challenge:
    """The challenge of sums with independent noise, drawn anew in every run from these results.

    `published` has the values of a Release, whose noise is that of the laws; if it is `discrete`,
    with scales of few units, it is spread out before it is looked at.
    """

    def run(result: Any) -> Run:
        return lambda: published(through_text(request, result))

    def check(a: FloatArray, b: FloatArray) -> NoiseCheck:
        noise = np.concatenate([a - exact[0], b - exact[1]])
        if discrete:
            noise = spread_out(noise, laws[0].scale, np.random.default_rng(0))
        return check_noise(noise, laws)

    runs, scores = (run(results[0]), run(results[1])), (likelihood_ratio(laws, *exact), None)
    return Challenge(request, pair, runs, scores, check, simulated(exact, laws))


def simulated(
    exact: tuple[FloatArray, FloatArray], laws: Sequence[Laplace | Gaussian]
) -> Callable[[float, np.random.Generator], tuple[Batch, Batch]]:
    """The `weakened` of sums with independent noise, by NumPy's generator."""

    def weakened(factor: float, rng: np.random.Generator) -> tuple[Batch, Batch]:
        scales = factor * np.array([law.scale for law in laws])
        draw = rng.laplace if isinstance(laws[0], Laplace) else rng.normal

        def noisy(values: FloatArray) -> Batch:
            return lambda trials: values + draw(0.0, scales, (trials, len(values)))

        return noisy(exact[0]), noisy(exact[1])

    return weakened
