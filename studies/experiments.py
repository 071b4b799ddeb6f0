"""Experiments by name: cells to run, figures to draw.

Every cell has a file of its own (`trials`). What decides a trial is the model, the methods, the
version, and the code of the analyst's wing. A study goes on where it stopped, and can be made
longer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from noisewise import __version__
from noisewise._progress import progress_bar
from noisewise.core.errors import RequestError
from studies.calibration.trial import Cell, Record, run_trial
from studies.report import Options, Report, check_settings, origin
from studies.tables import Row, markdown_table, summarise, write_table
from studies.trials import Progress, TrialFile, check_backend, code_digest

Results = Mapping[str, list[Record]]


class DataAbsentError(RequestError):
    """An experiment on real data that aren't there."""


@dataclass(frozen=True)
class Experiment:
    """A study with a name.

    Parameters
    ----------
    name : str
    describe : str
        One sentence.
    cells : callable
        From whether a quick run is wanted to cells in order of importance.
    draw : callable
        Draws figures from (cells, their records, table, folder) and returns their paths.
    summarise : callable
        From a cell and its records to lines of the table.
    readable : callable
        From the table to Markdown.
    """

    name: str
    describe: str
    cells: Callable[[bool], list[Cell]]
    draw: Callable[[Sequence[Cell], Results, Sequence[Row], Path], list[Path]]
    summarise: Callable[[Cell, Sequence[Record]], list[Row]] = summarise
    readable: Callable[[Sequence[Row]], str] = markdown_table


def run(
    experiment: Experiment | Report,
    out: Path,
    *,
    quick: bool = False,
    trials: int | None = None,
    n_jobs: int = 1,
    backend: str = "loky",
    progress: bool = False,
    command: str = "",
    settings: Mapping[str, str] = MappingProxyType({}),
) -> list[Path]:
    """Run what is missing, write table and figures, return what was written.

    The table is written anew after every cell, so that an interrupted study shows what it has.
    """
    if isinstance(experiment, Report):
        options = Options(quick, trials, command, n_jobs, backend, progress, settings)
        return experiment.run(out, options)
    check_settings(experiment.name, settings, ())
    cells = experiment.cells(quick)
    if trials is not None:
        cells = [cell.with_trials(trials) for cell in cells]
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []

    def finished(cell: Cell, records: list[Record]) -> None:
        rows.extend(experiment.summarise(cell, records))
        write_table(rows, out / f"{experiment.name}.csv")

    results = run_study(
        cells, out, n_jobs=n_jobs, backend=backend, progress=progress, finished=finished
    )
    return _finish(experiment, cells, results, rows, out, command)


def collect(
    experiment: Experiment | Report,
    trials_in: Path,
    out: Path,
    *,
    quick: bool = False,
    command: str = "",
    check: bool = True,
) -> list[Path]:
    """Table and figures of the trials that are on disk, without running any."""
    if isinstance(experiment, Report):
        raise RequestError(f"experiment: {experiment.name} keeps no trials; run it again")
    found = {
        cell.name: (cell, load_trials(cell, trials_in, check=check))
        for cell in experiment.cells(quick)
    }
    cells = [cell for cell, records in found.values() if records]
    if not cells:
        raise RequestError(f"out: no trials of {experiment.name} in {trials_in}")
    results = {cell.name: found[cell.name][1] for cell in cells}
    rows = [row for cell in cells for row in experiment.summarise(cell, results[cell.name])]
    out.mkdir(parents=True, exist_ok=True)
    return _finish(experiment, cells, results, rows, out, command)


def _finish(
    experiment: Experiment,
    cells: Sequence[Cell],
    results: Results,
    rows: Sequence[Row],
    out: Path,
    command: str,
) -> list[Path]:
    table = out / f"{experiment.name}.csv"
    write_table(rows, table)
    facts = out / f"{experiment.name}.json"
    document = {**origin(command), "trials": {c.name: len(results[c.name]) for c in cells}}
    facts.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    readable = out / f"{experiment.name}.md"
    readable.write_text(experiment.readable(rows), encoding="utf-8")
    return [table, facts, readable, *experiment.draw(cells, results, rows, out)]


# --- trials of cells ------------------------------------------------------------------------------


Finished = Callable[[Cell, list[Record]], None]


def cell_path(cell: Cell, out: Path) -> Path:
    """Where a cell's trials are kept."""
    return out / "trials" / f"{cell.name}.jsonl"


def load_trials(cell: Cell, out: Path, *, check: bool = True) -> list[Record]:
    """Trials of a cell that are on disk, in order; an interrupted last line is left out.

    Parameters
    ----------
    cell : Cell
    out : Path
        The study's folder.
    check : bool
        Refuse a file that other code or another configuration has made.
    """
    trials = _file(cell, out).load(check=check)
    return [record for record in trials if record["trial"] < cell.trials]


def run_cell(
    cell: Cell, out: Path, *, n_jobs: int = 1, backend: str = "loky", report: Progress | None = None
) -> list[Record]:
    """Run a cell's missing trials and return all of them, in order.

    Parameters
    ----------
    cell : Cell
    out : Path
        The study's folder; made if it does not exist.
    n_jobs : int
        Trials at a time. Records do not depend on it, but for the time they took.
    backend : str
        Of joblib; see `parallel.check_backend`.
    report : callable, optional
        Called with (trials done, trials in all).
    """
    return _file(cell, out).run_missing(
        partial(run_trial, cell), cell.trials, n_jobs=n_jobs, backend=backend, report=report
    )


def run_study(
    cells: Sequence[Cell],
    out: Path,
    *,
    n_jobs: int = 1,
    backend: str = "loky",
    progress: bool = False,
    finished: Finished | None = None,
) -> dict[str, list[Record]]:
    """Run cells in the given order; `finished` is called after each of them."""
    check_backend(backend)
    for cell in cells:  # a stale file is refused before hours are spent
        load_trials(cell, out)
    results: dict[str, list[Record]] = {}
    for number, cell in enumerate(cells, 1):
        what = f"{cell.name} ({number}/{len(cells)})"
        with progress_bar(what, unit="trials", show=progress) as report:
            records = run_cell(cell, out, n_jobs=n_jobs, backend=backend, report=report)
        results[cell.name] = records
        if finished is not None:
            finished(cell, records)
    return results


def _file(cell: Cell, out: Path) -> TrialFile:
    content = {"cell": cell.describe(), "noisewise": __version__, "code": code_digest()}
    return TrialFile(cell_path(cell, out), content)
