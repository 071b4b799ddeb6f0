"""Many cells of trials: in parallel, resumable after an interruption, never mixed up.

Every cell has a file of its own (`trial_file`). What decides a trial is the model, the methods, the
version, and the code of the analyst's wing. A study goes on where it stopped, and can be made
longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from noisewise import __version__
from noisewise._progress import progress_bar
from studies.calibration.trial import Cell, Record, run_trial
from studies.parallel import Report, check_backend
from studies.trials import TrialFile, code_digest

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
    cell: Cell,
    out: Path,
    *,
    n_jobs: int = 1,
    backend: str = "loky",
    report: Report | None = None,
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
