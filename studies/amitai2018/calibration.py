"""Are the probabilities from blocks right? Their ranks at b = β, and coverage of intervals.

A noise-aware P(slope ≤ b) with a flat prior is uniform over repetitions at b = β, and the central
interval of level L holds β exactly if the probability at β is within L/2 of 1/2; for
`location_scale`, which has intervals, their coverage is therefore read off the same numbers. Three
kinds of rows: normal as in the paper; one covariate with Student's t on 5 degrees of freedom and
errors (0.5 + |x|) times t on 3, so heavy-tailed and heteroscedastic; and 5 covariates with pairwise
correlation 1/2. The negative controls take the released numbers for exact (`... ignoring noise`).
`all_rows` is the posterior of all rows, without privacy and with the usual assumption of equal
variances, to tell what privacy breaks from what that assumption breaks; `scale of the model` is
`location_scale` with the blocks' own standard errors, which make the same assumption.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.summaries import laws
from studies.amitai2018.blocks import Fits, fit_all, fit_blocks
from studies.amitai2018.methods import (
    P_STAR,
    flat_probabilities,
    laplace,
    location_and_scale,
    prepare,
    recommended_blocks,
    sign_noise,
    stouffer_clip,
)
from studies.report import Options, Report, seed_of
from studies.tables import Row, as_markdown, short, write_table
from studies.uniformity import LEVELS, coverage, coverage_test, uniformity_test

NAME = "amitai2018-calibration"
SLOPE, PARTITIONS = 2.0, 30
TRIALS, QUICK_TRIALS = 1000, 100
CONTROL = " ignoring noise"
MODEL_BASED = "scale of the model"  # location_scale with the blocks' own √(v_j/M)


def normal_rows(n: int, rng: np.random.Generator) -> FloatArray:
    """The paper's rows."""
    x = rng.standard_normal(n)
    return np.column_stack([x, 1 + SLOPE * x + rng.standard_normal(n)])


def heavy_rows(n: int, rng: np.random.Generator) -> FloatArray:
    """Heavy tails, and errors whose size depends on the covariate."""
    x = rng.standard_t(5, n)
    return np.column_stack([x, 1 + SLOPE * x + (0.5 + np.abs(x)) * rng.standard_t(3, n)])


def five_covariates(n: int, rng: np.random.Generator) -> FloatArray:
    """Five correlated covariates; the last slope is the one that is asked for."""
    x = (rng.standard_normal((n, 5)) + rng.standard_normal((n, 1))) / math.sqrt(2)
    slopes = np.array([1.0, -1.0, 0.5, 0.0, SLOPE])
    return np.column_stack([x, 1 + x @ slopes + rng.standard_normal(n)])


class Kind(NamedTuple):
    """A kind of rows."""

    name: str
    rows: Callable[[int, np.random.Generator], FloatArray]
    covariates: int


class Cell(NamedTuple):
    """A kind of rows, their number, and ε; the number of blocks is the recommended one."""

    kind: Kind
    n: int
    epsilon: float

    @property
    def blocks(self) -> int:
        """M."""
        return recommended_blocks(self.n, self.epsilon, self.kind.covariates)


KINDS = (
    Kind("normal", normal_rows, 1),
    Kind("heavy-tailed, heteroscedastic", heavy_rows, 1),
    Kind("five covariates", five_covariates, 5),
)
CELLS = tuple(
    Cell(kind, n, epsilon)
    for kind in KINDS
    for n, epsilon in ((30_000, 1.0), (30_000, 0.1), (100_000, 0.1))
    if kind.covariates == 1 or n == 30_000
)


def ranks(cell: Cell, trial: int) -> dict[str, float]:
    """P(slope ≤ β) by every method on one data set."""
    words = (NAME, cell.kind.name, cell.n, round(10 * cell.epsilon), trial)
    seed = seed_of(*words)
    rng = np.random.default_rng(seed)
    rows = cell.kind.rows(cell.n, rng)
    whole = fit_all(rows)
    partition_seed = int(seed.generate_state(1, np.uint64)[0] >> 1)
    (fits,) = fit_blocks(rows, [cell.blocks], PARTITIONS, partition_seed)
    return {
        "all_rows": float(flat_probabilities(whole, np.array([SLOPE]))[0, 0]),
        **_reports(fits, cell.epsilon, rng),
    }


def _reports(fits: Fits, epsilon: float, rng: np.random.Generator) -> dict[str, float]:
    """Noise-aware reports and their controls from the same released numbers."""
    b = np.array([SLOPE])
    blocks = prepare(fits, b)
    M, r = blocks.M, blocks.partitions
    out: dict[str, float] = {}

    def both(name: str, report: Callable[[float], FloatArray], noise: float) -> None:
        out[name] = float(report(noise))
        out[name + CONTROL] = float(report(0.0))

    scale, drawn = sign_noise(r, epsilon, 1, rng)
    mean = float(blocks.signs[0] + drawn[0] / (r * M))
    both("sign", lambda noise: laws.SIGN_LAW.below(mean, M, r, noise), scale / (r * M))
    c = stouffer_clip(M, epsilon)
    noise = 2 * c / (M * epsilon)
    score = float(np.clip(blocks.scores, -c, c).mean() + laplace(noise, 1, rng)[0])
    both("stouffer", lambda noise: laws.stouffer_law(c).below(score, M, 1, noise), noise)
    noise = 1 / (M * epsilon)
    p = float(blocks.flat_p.mean() + laplace(noise, 1, rng)[0])
    both("rescaled_normal", lambda noise: laws.RESCALED_NORMAL_LAW.below(p, M, 1, noise), noise)
    noise = -2 * math.log(P_STAR) / (M * epsilon)
    logs = -2 * np.log(np.maximum(blocks.flat_p, P_STAR))
    total = float(logs.mean() + laplace(noise, 1, rng)[0])
    both("fisher", lambda noise: laws.fisher(total, P_STAR, M, 1, noise), noise)
    for name, by_spread in (("location_scale", True), (MODEL_BASED, False)):
        found = location_and_scale(blocks, epsilon, rng, by_spread=by_spread)
        if found is not None:
            at, wide, law = found
            both(
                name,
                lambda noise, at=at, wide=wide, law=law: laws.median_probability(
                    b[0], at, wide, law._replace(noise=noise)
                ),
                law.noise,
            )
    return out


def run_cells(cells: Sequence[Cell], trials: int) -> dict[Cell, dict[str, FloatArray]]:
    """Ranks of all trials by cell and method, in threads."""
    ranks(Cell(KINDS[2], 2000, 1.0), 0)  # compiles, or finds the compiled code
    results = {}
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for cell in cells:
            done = list(pool.map(lambda trial, cell=cell: ranks(cell, trial), range(trials)))
            results[cell] = {name: np.array([each[name] for each in done]) for name in done[0]}
    return results


def table(results: dict[Cell, dict[str, FloatArray]]) -> list[Row]:
    """A line a cell and method."""
    rows = []
    for cell, methods in results.items():
        for method, u in methods.items():
            test = uniformity_test(u)
            row: Row = {
                "rows": cell.kind.name,
                "n": cell.n,
                "epsilon": cell.epsilon,
                "M": cell.blocks,
                "method": method,
                "trials": len(u),
                "ks": round(test.ks, 4),
                "p_value": short(test.p_value, 3),
            }
            for level in LEVELS:
                row[f"coverage_{round(100 * level)}"] = round(coverage(u, level), 4)
            row["coverage_90_error"] = round(math.sqrt(0.09 / len(u)), 4)
            row["coverage_90_p"] = short(coverage_test(u, 0.9), 3)
            rows.append(row)
    return rows


def markdown(rows: Sequence[Row]) -> str:
    """Uniformity and 90% coverage, a line a cell; controls in brackets."""
    methods = [m for m in dict.fromkeys(row["method"] for row in rows) if CONTROL not in m]
    trials, error = rows[0]["trials"], rows[0]["coverage_90_error"]
    above = (
        "p-value of the Kolmogorov-Smirnov test that P(slope ≤ β) is uniform over "
        f"{trials} trials, and coverage of 90% intervals (Monte Carlo standard error "
        f"{error:.3f}); in brackets the coverage when the released numbers are taken for "
        "exact. p-values below 0.01 are bold.\n\n"
    )
    lines = []
    for key in dict.fromkeys((r["rows"], r["n"], r["epsilon"], r["M"]) for r in rows):
        here = {r["method"]: r for r in rows if (r["rows"], r["n"], r["epsilon"], r["M"]) == key}
        shown = [_entry(here.get(m), here.get(m + CONTROL)) for m in methods]
        name, n, epsilon, M = key
        lines.append((name, f"{n:,}", f"{epsilon:g}", M, *shown))
    return as_markdown(" | ".join(("rows", "n", "ε", "M", *methods)), lines, above)


def _entry(row: Row | None, control: Row | None) -> str:
    if row is None:
        return ""
    p = row["p_value"]
    shown = f"{p:.0e}" if p < 0.001 else f"{p:.2g}"
    brackets = "" if control is None else f" ({control['coverage_90']:.3f})"
    return f"{f'**{shown}**' if p < 0.01 else shown}, {row['coverage_90']:.3f}{brackets}"


def write(out: Path, options: Options) -> list[Path]:
    """Run and write the table."""
    trials = options.runs or (QUICK_TRIALS if options.quick else TRIALS)
    cells = [cell for cell in CELLS if not options.quick or cell.n == 30_000]
    rows = table(run_cells(cells, trials))
    csv, readable = out / f"{NAME}.csv", out / f"{NAME}.md"
    write_table(rows, csv)
    readable.write_text(markdown(rows), encoding="utf-8")
    return [csv, readable]


EXPERIMENT = Report(
    NAME,
    "Probabilities and intervals from blocks: uniform ranks and coverage, with negative controls.",
    write,
)
