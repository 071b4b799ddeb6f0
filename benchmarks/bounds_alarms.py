"""How often the warning about clipped values is a false alarm, and how often it is missed.

Every real data set of `accuracy_data` is published in one round and fitted, with its own bounds.
Then the bounds of one column at a time are made so tight that they cut off a part of its people,
and moments of the clipped rows, without noise, are judged with the spreads of the posterior. An
alarm is right where least squares on the rows before clipping is more than two spreads away, in any
slope, from least squares on the clipped ones.

    python -m benchmarks.bounds_alarms
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import noisewise as nw
from benchmarks.accuracy_data import PROBLEMS, DataAbsentError, Problem, Table, least_squares
from noisewise._arrays import BoolArray, FloatArray
from noisewise.analyst.posterior.numbers import median_and_spread
from noisewise.analyst.regression.cautions import MATTERS, may_clip, slopes_before_clipping
from noisewise.core.schema import Number

EPSILONS = ("1", "10")
TIGHT = ((0, 0.98), (0, 0.95), (0, 0.9), (0, 0.8), (0.05, 0.95), (0.1, 0.9), (0.2, 0.8))
FEW_VALUES = 10  # of a column, whose bounds nobody makes tight
MOST_ROWS = 20_000  # of those that are clipped anew


def fitted(problem: Problem, table: Table, epsilon: str) -> tuple[FloatArray, bool]:
    """Spreads of the slopes, and whether the fit warned."""
    *features, target = problem.columns
    request = nw.make_request(
        problem.schema, target=target, features=features, epsilon=epsilon, delta="1e-6", rounds=1
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        with nw.Ledger(path) as ledger:
            ledger.set_cap(problem.name, epsilon, "1e-6")
        release = nw.publish(request, table, ledger=path).release
    posterior = nw.fit(release, seed=1, chains=2, draws=400)
    names = posterior.columns.names[1:]
    spreads = np.array([median_and_spread(posterior.draws(name))[1] for name in names])
    return spreads, any(text.startswith("if values were clipped") for text in posterior.warnings)


def unclipped(problem: Problem, table: Table) -> tuple[FloatArray, BoolArray]:
    """Rows as they are, (n, k + 1), and which columns are numbers."""
    wide = {
        name: Number(-1e300, 1e300) if isinstance(column, Number) else column
        for name, column in problem.columns.items()
    }
    numbers: list[bool] = []
    for column in problem.columns.values():
        is_number = isinstance(column, Number)
        numbers += [True] if is_number else [False] * (len(column.levels) - 1)
    rows = Problem(problem.name, wide, problem.draw).matrix(table)
    return rows[:: max(1, len(rows) // MOST_ROWS)], np.array(numbers)


def tightened(rows: FloatArray, bounds: FloatArray, numbers: BoolArray) -> Iterator[FloatArray]:
    """Bounds of which those of one column cut people off."""
    for j in np.flatnonzero(numbers):
        if len(np.unique(rows[:, j])) < FEW_VALUES:
            continue
        for low, high in TIGHT:
            found = bounds.copy()
            if low > 0:
                found[j, 0] = np.quantile(rows[:, j], low)
            found[j, 1] = min(bounds[j, 1], np.quantile(rows[:, j], high))
            if found[j, 0] < found[j, 1] and (np.clip(rows, *found.T).std(axis=0) > 0).all():
                yield found


def judged(
    rows: FloatArray, bounds: FloatArray, numbers: BoolArray, spreads: FloatArray
) -> tuple[float, float]:
    """How far clipping has moved a slope, and how far the rule thinks that it may have."""
    before, _ = least_squares(rows)
    clipped = np.clip(rows, *bounds.T)
    slopes, _ = least_squares(clipped)
    width = (bounds[:, 1] - bounds[:, 0]) / 2
    unit = (clipped - bounds.mean(axis=1)) / width
    covariance = np.cov(unit.T)
    clips = may_clip(bounds) & numbers[:, None]
    guess, cut = slopes_before_clipping(unit.mean(axis=0), covariance, clips)
    now = np.linalg.solve(covariance[:-1, :-1], covariance[:-1, -1])
    units = spreads * width[:-1] / width[-1]
    suspected = float(np.max(np.abs(guess - now) / units)) if cut.any() else 0.0
    return float(np.max(np.abs(before - slopes) / spreads)), suspected


def main() -> None:
    """Count."""
    fits, warned = 0, []
    pairs: list[tuple[float, float]] = []
    own: list[float] = []
    for problem in PROBLEMS.values():
        if problem.slopes is not None:
            continue
        try:
            table = problem.draw(np.random.default_rng(0))
        except DataAbsentError as absent:
            print(f"left out: {problem.name}: {absent}")
            continue
        rows, numbers = unclipped(problem, table)
        for epsilon in EPSILONS:
            spreads, alarm = fitted(problem, table, epsilon)
            fits += 1
            warned += [f"{problem.name} at {epsilon}"] if alarm else []
            own.append(judged(rows, problem.bounds, numbers, spreads)[0])
            pairs += [
                judged(rows, bounds, numbers, spreads)
                for bounds in tightened(rows, problem.bounds, numbers)
            ]
    print(
        f"own bounds: {len(warned)} of {fits} fits warn ({', '.join(warned) or 'none'}); clipping"
    )
    print(f"moved a slope by {MATTERS:g} spreads in {sum(a > MATTERS for a in own)}, ", end="")
    print(f"at most by {max(own):.2f}")
    moved, alarms = np.transpose(np.array(pairs) > MATTERS)
    print(f"tight bounds: {moved.sum()} of {len(pairs)} matter; {(moved & alarms).sum()} of those ")
    print(f"have an alarm, and so have {(~moved & alarms).sum()} of the {(~moved).sum()} others")


if __name__ == "__main__":
    main()
