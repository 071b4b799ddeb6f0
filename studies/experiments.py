"""Experiments by name: cells to run, figures to draw."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from noisewise.core.errors import RequestError
from studies.calibration.trial import Cell, Record
from studies.markdown import markdown_table
from studies.report import Options, Report, origin
from studies.study import load_trials, run_study
from studies.tables import Row, summarise, write_table

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
    from studies import plan_check
    from studies.alparslan2023 import calibration as alparslan2023_calibration
    from studies.alparslan2023 import case_mix
    from studies.alparslan2023 import figures as alparslan2023_figs
    from studies.alparslan2023 import tables as alparslan2023_tables
    from studies.amitai2018 import calibration as amitai2018_calibration
    from studies.amitai2018 import study as amitai2018
    from studies.bs2019 import fig3 as bs2019
    from studies.bs2019 import fig4 as bs2019_fig4
    from studies.calibration import beyond as calibration_beyond
    from studies.calibration import grid as calibration_grid
    from studies.calibration import power as calibration_power
    from studies.zhang2016 import coverage as zhang2016_coverage
    from studies.zhang2016 import fig1 as zhang2016_fig1
    from studies.zhang2016 import fig2 as zhang2016_fig2

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
    document = {**origin(command), "trials": {c.name: len(results[c.name]) for c in cells}}
    facts.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    readable = out / f"{experiment.name}.md"
    readable.write_text(experiment.readable(rows), encoding="utf-8")
    return [table, facts, readable, *experiment.draw(cells, results, rows, out)]
