"""Reports whose trials are kept, so that an interrupted one goes on where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from noisewise import __version__
from noisewise._progress import progress_bar
from studies.report import Options
from studies.tables import Row, write_table
from studies.trials import PLANS, Record, TrialFile, code_digest


def kept_trials(
    name: str,
    call: Callable[[int], Record],
    count: int,
    settings: Mapping[str, Any],
    out: Path,
    options: Options,
) -> list[Record]:
    """The first `count` trials of a report, in order; those in its file aren't run again.

    Parameters
    ----------
    name : str
        Of the file below ``out/trials``.
    call : callable
        From a trial's number to its record; it can be pickled.
    count : int
    settings : mapping
        What decides a trial besides its number and the code, as plain data.
    out : Path
    options : Options
    """
    content = {
        "settings": dict(settings),
        "noisewise": __version__,
        "code": code_digest(),
        "code_of_studies": code_digest(PLANS),
    }
    file = TrialFile(out / "trials" / f"{name}.jsonl", content)
    with progress_bar(name, unit="trials", show=options.progress) as report:
        return file.run_missing(
            call, count, n_jobs=options.n_jobs, backend=options.backend, report=report
        )


def write_both(
    rows: Sequence[Row], markdown: Callable[[Sequence[Row]], str], name: str, out: Path
) -> list[Path]:
    """The table as CSV, and as people read it."""
    table, readable = out / f"{name}.csv", out / f"{name}.md"
    write_table(rows, table)
    readable.write_text(markdown(rows), encoding="utf-8")
    return [table, readable]
