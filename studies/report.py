"""Experiments that end in tables and figures of their own, not in ranks."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from noisewise import __version__
from noisewise._arrays import FloatArray
from studies.trials import code_digest

# Colours that stay apart for colour-blind readers (Okabe & Ito), and markers.
STYLES: dict[str, tuple[str, str]] = {
    "non_private": ("#000000", "o"),
    "exact": ("#0072B2", "D"),
    "exact_own_means": ("#56B4E9", "d"),
    "bs_distributed": ("#009E73", "^"),
    "gibbs_update": ("#009E73", "^"),
    "normal_x": ("#CC79A7", "v"),
    "fixed_s": ("#E69F00", "s"),
    "fixed_s_aware": ("#F0E442", "P"),
    "fixed_s_fast": ("#D55E00", "x"),
    "ada_ssp": ("#56B4E9", "*"),
    "bs_distributed_dense": ("#999999", "<"),
}


def style(method: str) -> dict[str, Any]:
    """Colour and marker of a method, the same in every picture."""
    colour, marker = STYLES.get(method, ("#999999", "."))
    return {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.2}


class Options(NamedTuple):
    """What the command line says."""

    quick: bool
    runs: int | None  # instead of the experiment's own number
    command: str
    n_jobs: int = 1
    backend: str = "loky"  # joblib's
    progress: bool = False


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
    """

    name: str
    describe: str
    write: Callable[[Path, Options], list[Path]]

    def run(self, out: Path, options: Options) -> list[Path]:
        """Write everything into `out`; the first path is that of the facts about the run."""
        out.mkdir(parents=True, exist_ok=True)
        facts = out / f"{self.name}.json"
        facts.write_text(json.dumps(origin(options.command)) + "\n", encoding="utf-8")
        return [facts, *self.write(out, options)]


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
