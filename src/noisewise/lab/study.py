"""Many cells of trials: in parallel, resumable after an interruption, never mixed up.

Every cell has an append-only file of JSON lines. The first line is a header with a fingerprint of
everything that decides a trial: model, methods, the version, and the code of the analyst's wing. A
file with another fingerprint is refused. Trials that are in the file are not run again, so that a
study goes on where it stopped, and can be made longer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from .. import __version__
from .._progress import progress_bar
from ..core.errors import RequestError
from .calibration import Cell, Record, run_trial
from .parallel import check_backend, in_parallel

Finished = Callable[[Cell, list[Record]], None]


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Digest of the analyst's source code: trials of different code are different trials."""
    root = Path(__file__).parents[1] / "analyst"
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def header(cell: Cell) -> Record:
    """The first line of a cell's file."""
    content = {"cell": cell.describe(), "noisewise": __version__, "code": code_digest()}
    text = json.dumps(content, sort_keys=True)
    return {**content, "fingerprint": hashlib.sha256(text.encode()).hexdigest()[:16]}


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
    path = cell_path(cell, out)
    if not path.exists():
        return []
    lines = _complete_lines(path)
    if not lines:
        return []
    if check and lines[0].get("fingerprint") != header(cell)["fingerprint"]:
        raise RequestError(
            f"out: {path} holds trials of another configuration or of other code; results are "
            "never mixed, so give another folder or delete that file"
        )
    trials = {line["trial"]: line for line in lines[1:]}
    return [trials[number] for number in sorted(trials) if number < cell.trials]


def run_cell(
    cell: Cell,
    out: Path,
    *,
    n_jobs: int = 1,
    backend: str = "loky",
    report: Callable[[int, int | None], None] | None = None,
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
    done = load_trials(cell, out)
    present = {record["trial"] for record in done}
    missing = [number for number in range(cell.trials) if number not in present]
    if report is not None:
        report(len(done), cell.trials)
    if not missing:
        return done
    path = cell_path(cell, out)
    path.parent.mkdir(parents=True, exist_ok=True)
    _drop_incomplete_line(path)
    results = in_parallel(partial(run_trial, cell), missing, n_jobs=n_jobs, backend=backend)
    with path.open("a", encoding="utf-8") as file:
        if file.tell() == 0:
            _append(file, header(cell))
        for record in results:
            _append(file, record)
            done.append(record)
            if report is not None:
                report(len(done), cell.trials)
    return sorted(done, key=lambda record: int(record["trial"]))


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


def _append(file: Any, record: Record) -> None:
    file.write(json.dumps(record, separators=(",", ":")) + "\n")
    file.flush()


def _complete_lines(path: Path) -> list[Record]:
    text = path.read_text("utf-8")
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _drop_incomplete_line(path: Path) -> None:
    """Cut off what an interruption left of a line that was being written."""
    if path.exists():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole != len(content):
            with path.open("r+b") as file:
                file.truncate(whole)
