"""How far off private slopes are, and whether 95% intervals hold: rounds, one round and peers.

For every data set, epsilon (delta = 1e-6) and method, many Releases: the error of each slope in
standard errors of least squares on the rows without noise, and whether its interval held the truth.
With real rows, which stay as they are, the truth is least squares on all of them, clipped to the
bounds: errors and coverage are about the privacy noise only, and intervals, which allow for
sampling too, hold more than 95% where the noise is small. Simulated rows are new for every Release
and the truth is fixed: an error of 1 is what sampling alone brings. Intervals of ours are judged
twice: those within reach by least squares on the rows as they counted in this Release, and those
for all rows by the same truth as errors.

    python -m benchmarks.accuracy --epsilon 1 --releases 20 --out accuracy.jsonl
    python -m benchmarks.accuracy --out accuracy.jsonl --table > table.md

`--out` is appended to, and Releases that are in it are not made again, so that a long run may be
stopped and split. Releases go the holder's way: a request, a ledger, `publish`. Fits are what
`nw.fit` does by default, with 2 chains of 400 draws. Peers are in `accuracy_peers`.
"""

from __future__ import annotations

import argparse
import json
import secrets
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import noisewise as nw
from benchmarks.accuracy_data import PROBLEMS, DataAbsentError, Problem, Table, least_squares
from benchmarks.accuracy_peers import (
    DPGD_SETTINGS,
    NoAnswerError,
    PeerAbsentError,
    diffprivlib,
    dp_gd,
    tukey_em,
)
from noisewise._arrays import FloatArray
from noisewise.core.errors import NoisewiseError
from studies.honesty.trial import kind_of
from studies.report import commit
from studies.trials import in_parallel

Record = dict[str, Any]
LENGTH = {"chains": 2, "draws": 400}
UNSURE = ("the prior decides on", "the chains disagree on")  # how other warnings begin that matter
OURS = {"one": 1, "rounds": "auto"}
METHODS = ("one", "rounds", "adassp", "diffprivlib", "tukeyem", "dpgd")
TITLES = ("one round", "rounds", "adaSSP", "diffprivlib", "TukeyEM", "DP-GD")


class Job(NamedTuple):
    """One Release of one data set, by one method."""

    data: str
    epsilon: str
    method: str
    setting: str  # of methods that have several


# --- one Release ----------------------------------------------------------------------------------


@lru_cache(maxsize=len(PROBLEMS))
def _real_rows(name: str) -> Table:
    return PROBLEMS[name].draw(np.random.default_rng(0))


def run(job: Job) -> Record:
    """Draw or read the rows, release, estimate, compare."""
    problem, seed = PROBLEMS[job.data], secrets.randbits(32)
    rng = np.random.default_rng(seed)
    table = _real_rows(problem.name) if problem.slopes is None else problem.draw(rng)
    rows = problem.matrix(table)
    fitted, se = least_squares(rows)
    truth = fitted if problem.slopes is None else np.array(problem.slopes)
    record: Record = {**job._asdict(), "seed": seed, "n": len(rows), "commit": commit()}
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _estimate(job, problem, table, rows, seed, rng)
    except (NoAnswerError, NoisewiseError, ArithmeticError, np.linalg.LinAlgError) as error:
        return {**record, "failed": f"{type(error).__name__}: {error}"[:200]}
    record["seconds"] = round(time.process_time() - start, 2)
    record["error"] = _short((found.pop("slopes") - truth) / se)
    record["sampling"] = _short((fitted - truth) / se)
    if "interval" in found:
        reach = found.pop("reach")
        for ends, of, what in (("interval", reach, "held"), ("interval_all", truth, "held_all")):
            low, high = found.pop(ends)
            record[what] = ((low <= of) & (of <= high)).astype(int).tolist()
            record["width" + what.removeprefix("held")] = _short((high - low) / se)
    return {**record, **found}


def _estimate(
    job: Job, problem: Problem, table: Table, rows: FloatArray, seed: int, rng: np.random.Generator
) -> Record:
    """The slopes in original units, and what else a method says."""
    epsilon, delta = float(job.epsilon), float(problem.delta)
    if job.method in OURS:
        published = release(problem, table, job.epsilon, OURS[job.method], seed)
        moved = nw.within_reach(published, table).to_numpy()
        return {**_fitted(published, seed), "reach": least_squares(moved)[0]}
    if job.method == "adassp":
        estimate = nw.ada_ssp(release(problem, table, job.epsilon, 1, seed))
        return {"slopes": np.array(list(estimate.coefficients.values())[1:])}
    low, high = problem.bounds.T
    half = (high - low) / 2
    unit = (rows - (low + high) / 2) / half
    if job.method == "diffprivlib":
        slopes = diffprivlib(unit, problem.rows_per_unit, epsilon, seed)
    elif job.method == "tukeyem":
        slopes = tukey_em(unit, problem.units() if problem.units else None, epsilon, delta, rng)
    else:
        slopes = dp_gd(unit, problem.rows_per_unit, epsilon, delta, job.setting, rng)
    return {"slopes": slopes * half[-1] / half[:-1]}


def release(
    problem: Problem, table: Table, epsilon: str, rounds: int | str, seed: int
) -> nw.Release:
    """Publish as a holder would; the label makes it another request than any before."""
    *features, target = problem.columns
    request = nw.make_request(
        problem.schema,
        target=target,
        features=features,
        epsilon=epsilon,
        delta=problem.delta,
        rounds=rounds,
        label=f"{seed}",
    )
    with tempfile.TemporaryDirectory() as folder:
        ledger = f"{folder}/ledger.db"
        nw.Ledger(ledger).set_cap(problem.name, epsilon, problem.delta)
        return nw.publish(request, table, ledger=ledger).release


def _fitted(published: nw.Release, seed: int) -> Record:
    posterior = nw.fit(published, seed=seed, **LENGTH)
    draws = posterior.theta.reshape(-1, posterior.theta.shape[-1])[:, 1:]
    low, middle, high = np.quantile(draws, [0.025, 0.5, 0.975], axis=0)
    rows = list(posterior.all_rows().rows.values())[1:]
    return {
        "slopes": middle,
        "interval": (low, high),
        "interval_all": tuple(np.array([[row.lower, row.upper] for row in rows]).T),
        "in_rounds": published.rounds is not None,
        "warnings": sorted({kind_of(text) for text in posterior.warnings}),
    }


def _short(values: FloatArray) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


# --- many Releases --------------------------------------------------------------------------------


def load(path: Path) -> list[Record]:
    """Releases on disk; a last line that an interruption cut off is left out."""
    if not path.exists():
        return []
    lines = path.read_text("utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def missing(jobs: Iterable[Job], done: Iterable[Record], releases: int) -> list[Job]:
    """What is left to do, a Release of everything before the second of anything."""
    count: dict[Job, int] = defaultdict(int)
    for record in done:
        count[Job(*(record[name] for name in Job._fields))] += 1
    jobs = list(jobs)
    return [job for number in range(releases) for job in jobs if count[job] <= number]


def run_all(
    data: Sequence[str],
    epsilons: Sequence[str],
    methods: Sequence[str],
    releases: int,
    path: Path,
    n_jobs: int,
) -> None:
    """Run what is missing, and append it."""
    settings = {"dpgd": DPGD_SETTINGS}
    jobs = [
        Job(name, epsilon, method, setting)
        for epsilon in epsilons
        for name in data
        for method in methods
        for setting in settings.get(method, ("",))
    ]
    todo = missing(jobs, load(path), releases)
    content = path.read_bytes() if path.exists() else b""
    path.write_bytes(content[: content.rfind(b"\n") + 1])
    with path.open("a", encoding="utf-8") as file:
        for number, record in enumerate(in_parallel(run, todo, n_jobs=n_jobs), 1):
            file.write(json.dumps(record, separators=(",", ":")) + "\n")
            file.flush()
            print(f"{number}/{len(todo)} {record['data']} {record['method']}", flush=True)


def present(data: Sequence[str], methods: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those that are there; of the others it prints why not."""
    found = []
    for name in data:
        try:
            if PROBLEMS[name].slopes is None:
                _real_rows(name)
            found.append(name)
        except DataAbsentError as error:
            print(f"{name} is left out: {error}", flush=True)
    kept = list(methods)
    if "diffprivlib" in kept:
        try:
            diffprivlib(np.random.default_rng(1).uniform(-1, 1, (100, 2)), 1, 1.0, 1)
        except PeerAbsentError as error:
            print(f"left out: {error}", flush=True)
            kept.remove("diffprivlib")
    return found, kept


# --- the table ------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """What the Releases of one data set, epsilon and method say; shares are of those that answered.

    The last seven are of methods with intervals. `median` is that of the size of errors, `width`
    the geometric mean of widths, in standard errors; `wider` how many times as wide intervals for
    all rows are.
    """

    releases: int
    failed: int
    rmse: float
    median: float = np.nan
    coverage: float = np.nan
    width: float = np.nan
    in_rounds: float = np.nan
    coverage_all: float = np.nan
    wider: float = np.nan
    unsure: float = np.nan


def summarise(records: Sequence[Record]) -> Cell:
    """Pool errors over slopes and Releases; a Release that failed has no error."""
    good = [record for record in records if "error" in record]
    if not good:
        return Cell(len(records), len(records), np.nan)
    errors = np.array([record["error"] for record in good])
    cell = Cell(len(records), len(records) - len(good), float(np.sqrt(np.mean(errors**2))))
    if "held" not in good[0]:
        return cell

    def mean(name: str) -> float:
        return float(np.mean([record[name] for record in good]))

    width, width_all = (
        float(np.exp(np.mean(np.log([record[what] for record in good]))))
        for what in ("width", "width_all")
    )
    return cell._replace(
        median=float(np.median(np.abs(errors))),
        coverage=mean("held"),
        width=width,
        in_rounds=mean("in_rounds"),
        coverage_all=mean("held_all"),
        wider=width_all / width,
        unsure=float(np.mean([bool({*UNSURE} & {*record["warnings"]}) for record in good])),
    )


def cells(records: Iterable[Record]) -> dict[tuple[str, str, str], Cell]:
    """By data, epsilon and method; of settings the one with the smallest error."""
    grouped: dict[Job, list[Record]] = defaultdict(list)
    for record in records:
        grouped[Job(*(record[name] for name in Job._fields))].append(record)
    found: dict[tuple[str, str, str], Cell] = {}
    for job, some in grouped.items():
        cell = summarise(some)
        best = found.get(job[:3])
        if best is None or cell.rmse < best.rmse:
            found[job[:3]] = cell
    return found


def render(records: Sequence[Record]) -> str:
    """Two Markdown tables for each epsilon: all methods, and ours in detail."""
    found, rows = cells(records), {record["data"]: record["n"] for record in records}
    lines = []
    for epsilon in sorted({record["epsilon"] for record in records}, key=float):
        there = [name for name in PROBLEMS if any(key[:2] == (name, epsilon) for key in found)]
        lines += [
            f"**epsilon = {epsilon}: RMSE (coverage)**",
            "",
            "| data | rows | " + " | ".join(TITLES) + " |",
            "|---" * (len(TITLES) + 2) + "|",
        ]
        for name in there:
            words = [_words(found.get((name, epsilon, method))) for method in METHODS]
            lines.append(f"| {name} | {rows[name]:,} | {' | '.join(words)} |")
        lines += [
            "",
            f"**epsilon = {epsilon}: one round / rounds**",
            "",
            "| data | Releases | median error | width | in rounds | all rows held | times as wide "
            "| warnings |",
            "|---" * 8 + "|",
        ]
        for name in there:
            both = [found[key] for method in OURS if (key := (name, epsilon, method)) in found]
            kept = [
                " / ".join(str(cell.releases) for cell in both),
                " / ".join(_number(cell.median) for cell in both),
                " / ".join(_number(cell.width) for cell in both),
                *(_percent(getattr(both[-1], what)) for what in ("in_rounds", "coverage_all")),
                _number(both[-1].wider),
                " / ".join(_percent(cell.unsure) for cell in both),
            ]
            lines.append(f"| {name} | {' | '.join(kept)} |")
        lines.append("")
    return "\n".join(lines)


def _words(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if cell.failed == cell.releases:
        return "no answer"
    text = _number(cell.rmse)
    if not np.isnan(cell.coverage):
        text += f" ({_percent(cell.coverage)})"
    if cell.failed:
        text += f", {cell.failed} of {cell.releases} without answer"
    return text


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _percent(share: float) -> str:
    return "" if np.isnan(share) else f"{100 * share:.0f}%"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    listed = partial(str.split, sep=",")
    parser.add_argument("--data", type=listed, default=list(PROBLEMS), help="names, with commas")
    parser.add_argument("--epsilon", type=listed, default=["0.3", "1", "3"])
    parser.add_argument("--methods", type=listed, default=list(METHODS))
    parser.add_argument("--releases", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, appended to")
    parser.add_argument("--table", action="store_true", help="print the table, run nothing")
    options = parser.parse_args()
    unknown = {*options.data} - {*PROBLEMS} or {*options.methods} - {*METHODS}
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {[*PROBLEMS, *METHODS]}")
    if options.table:
        print(render(load(options.out)))
        return
    data, methods = present(options.data, options.methods)
    run_all(data, options.epsilon, methods, options.releases, options.out, options.jobs)


if __name__ == "__main__":
    # By its own name: what is defined in "__main__" can't be sent to other processes.
    from benchmarks.accuracy import main as run_main

    run_main()
