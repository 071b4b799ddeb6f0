"""Experiments that end in tables and figures of their own, not in ranks."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from noisewise import __version__
from noisewise._arrays import FloatArray
from noisewise._progress import progress_bar
from noisewise.core.errors import RequestError
from studies.tables import Row, write_table
from studies.trials import PLANS, Record, TrialFile, code_digest


class Options(NamedTuple):
    """What the command line says."""

    quick: bool
    runs: int | None  # instead of the experiment's own number
    command: str
    n_jobs: int = 1
    backend: str = "loky"  # joblib's
    progress: bool = False
    settings: Mapping[str, str] = MappingProxyType({})  # of the experiment's own


@dataclass(frozen=True)
class Report:
    """A study with a name that writes its own tables and figures.

    Parameters
    ----------
    name : str
    describe : str
        One sentence.
    write : callable
        From (folder, options) to the paths of what was written.
    settings : tuple of str
        Names of the settings that it takes.
    """

    name: str
    describe: str
    write: Callable[[Path, Options], list[Path]]
    settings: tuple[str, ...] = ()

    def run(self, out: Path, options: Options) -> list[Path]:
        """Write everything into `out`; the first path is that of the facts about the run."""
        check_settings(self.name, options.settings, self.settings)
        out.mkdir(parents=True, exist_ok=True)
        facts = out / f"{self.name}.json"
        facts.write_text(json.dumps(origin(options.command)) + "\n", encoding="utf-8")
        return [facts, *self.write(out, options)]


def check_settings(experiment: str, given: Mapping[str, str], known: Sequence[str]) -> None:
    """Refuse a setting that an experiment doesn't have."""
    if unknown := [name for name in given if name not in known]:
        there = f"there are: {', '.join(known)}" if known else "it has none"
        raise RequestError(f"set: {experiment} has no setting {unknown[0]!r}; {there}")


def origin(command: str) -> dict[str, Any]:
    """What made the results; one line when written, so that a table reader finds no rows."""
    packages = ("numpy", "scipy", "numba", "nutpie", "arviz")
    return {
        "command": command,
        "commit": commit(),
        "noisewise": __version__,
        "code_of_analyst": code_digest(),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in packages},
    }


def commit() -> str:
    """The commit of the repository that runs, with a plus if its code was changed since."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parents[1]), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "src", "studies")
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"  # no repository, or no git


def published(request: Any, rows: Mapping[str, Any]) -> Any:
    """The Release of these rows, by the one door, from a budget that ends with it."""
    from noisewise.core.temporary import private_folder
    from noisewise.holder.ledger import Ledger
    from noisewise.holder.publish import publish

    price = request.charge()
    with private_folder() as folder, Ledger(folder / "budget.db") as ledger:
        ledger.set_cap(price.dataset, price.epsilon, price.delta)
        return publish(request, rows, ledger=ledger).release


class Interval(NamedTuple):
    """A mean over runs with its 90% confidence interval."""

    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float] | FloatArray, level: float = 0.9) -> Interval:
    """Mean and Student's confidence interval, as in the paper's table 2."""
    values = np.asarray(values, dtype=np.float64)
    mean = float(values.mean())
    if len(values) < 2:
        return Interval(mean, mean, mean)
    reach = stats.t.ppf(0.5 + level / 2, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return Interval(mean, mean - float(reach), mean + float(reach))


def seed_of(*words: int | str) -> np.random.SeedSequence:
    """Seeds are what is run, never chosen by outcome."""
    import zlib

    numbers = [w if isinstance(w, int) else zlib.crc32(w.encode()) for w in words]
    return np.random.SeedSequence(numbers)


# --- trials that are kept -------------------------------------------------------------------------


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


@dataclass(frozen=True)
class Grid:
    """A study that runs trials of one kind in many settings: a file of trials for each setting.

    Parameters
    ----------
    name : str
    settings, quick : sequence of NamedTuple
        All, and those of `--quick`. `--set FIELD=VALUE,VALUE` keeps some of all.
    trial : callable
        From (setting, number) to a record; it can be pickled.
    trials : callable
        From a setting to how many.
    quick_trials : int
    row_of : callable
        From (setting, records) to a line of the table, or several.
    markdown : callable
        The table as people read it.
    facts : mapping
        What decides a trial besides setting, number and code, as plain data.
    """

    name: str
    settings: Sequence[Any]
    quick: Sequence[Any]
    trial: Callable[[Any, int], Record]
    trials: Callable[[Any], int]
    quick_trials: int
    row_of: Callable[[Any, Sequence[Record]], Row | list[Row]]
    markdown: Callable[[Sequence[Row]], str]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def report(self, describe: str) -> Report:
        """The study, with every field of a setting as a choice of the command line."""
        return Report(self.name, describe, self.write, settings=self.settings[0]._fields)

    def write(self, out: Path, options: Options) -> list[Path]:
        """The table as CSV and Markdown, anew after every setting."""
        rows: list[Row] = []
        paths: list[Path] = []
        for setting in self._chosen(options):
            words = [_word(value) for value in setting]
            records = kept_trials(
                "-".join([self.name, *words]),
                partial(self.trial, setting),
                options.runs or (self.quick_trials if options.quick else self.trials(setting)),
                {"setting": words, **self.facts},
                out,
                options,
            )
            found = self.row_of(setting, records)
            rows += found if isinstance(found, list) else [found]
            paths = write_both(rows, self.markdown, self.name, out)
        return paths

    def _chosen(self, options: Options) -> list[Any]:
        """Of the settings those that the command line asks for."""
        found = list(self.quick if options.quick and not options.settings else self.settings)
        for name, wanted in options.settings.items():
            found = [one for one in found if _word(getattr(one, name)) in wanted.split(",")]
        if not found:
            raise RequestError(f"set: no setting of {self.name} is like this")
        return found


def _word(value: Any) -> str:
    """A field of a setting in the name of a file."""
    if isinstance(value, tuple):
        return "+".join(map(_word, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
