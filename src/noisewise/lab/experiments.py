"""Experiments by name: cells to run, figures to draw."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from noisewise import __version__
from noisewise.core.errors import RequestError
from noisewise.lab.alparslan2023_report import Options, Report
from noisewise.lab.calibration import Cell, Record
from noisewise.lab.markdown import markdown_table
from noisewise.lab.study import load_trials, run_study
from noisewise.lab.table import Row, summarise, write_table
from noisewise.lab.trial_file import code_digest

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


def experiments() -> dict[str, Experiment | Report]:
    """All experiments."""
    from noisewise.lab import (
        alparslan2023_calibration,
        alparslan2023_figs,
        alparslan2023_tables,
        amitai2018,
        amitai2018_calibration,
        bs2019,
        bs2019_fig4,
        calibration_beyond,
        calibration_grid,
        calibration_power,
        case_mix,
        plan_check,
        zhang2016_coverage,
        zhang2016_fig1,
        zhang2016_fig2,
    )

    known: tuple[Experiment | Report, ...] = (
        bs2019.EXPERIMENT,
        bs2019_fig4.EXPERIMENT,
        calibration_grid.EXPERIMENT,
        calibration_beyond.EXPERIMENT,
        calibration_power.EXPERIMENT,
        plan_check.EXPERIMENT,
        plan_check.BEYOND,
        alparslan2023_tables.EXPERIMENT,
        alparslan2023_figs.EXPERIMENT,
        alparslan2023_calibration.EXPERIMENT,
        case_mix.EXPERIMENT,
        amitai2018.EXPERIMENT,
        amitai2018_calibration.EXPERIMENT,
        zhang2016_fig1.EXPERIMENT,
        zhang2016_fig2.EXPERIMENT,
        zhang2016_coverage.EXPERIMENT,
    )
    return {e.name: e for e in known}


def find(name: str) -> Experiment | Report:
    """The experiment of this name."""
    known = experiments()
    if name not in known:
        raise RequestError(f"experiment: {name!r} is unknown; there are: {', '.join(known)}")
    return known[name]


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
) -> list[Path]:
    """Run what is missing, write table and figures, return what was written.

    The table is written anew after every cell, so that an interrupted study shows what it has.
    """
    if isinstance(experiment, Report):
        return experiment.run(out, Options(quick, trials, command, n_jobs, backend, progress))
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
    document = {**_origin(command), "trials": {c.name: len(results[c.name]) for c in cells}}
    facts.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    readable = out / f"{experiment.name}.md"
    readable.write_text(experiment.readable(rows), encoding="utf-8")
    return [table, facts, readable, *experiment.draw(cells, results, rows, out)]


def _origin(command: str) -> dict[str, Any]:
    """What made the results."""
    packages = ("numpy", "scipy", "numba", "nutpie", "arviz")
    return {
        "command": command,
        "noisewise": __version__,
        "code_of_analyst": code_digest(),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in packages},
    }
