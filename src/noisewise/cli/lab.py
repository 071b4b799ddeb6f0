"""Commands of the lab: experiments on simulated data."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

ExperimentArgument = Annotated[
    str, typer.Argument(help="A name from `noisewise lab list`, or all of them: all.")
]
OutOption = Annotated[Path, typer.Option("--out", help="Folder for trials, table and figures.")]
QuickOption = Annotated[bool, typer.Option("--quick", help="A small version, within a minute.")]


def add_to(app: typer.Typer) -> None:
    """Attach the lab's commands to the root command."""
    lab = typer.Typer(
        no_args_is_help=True,
        help="Experiments on simulated data: calibration of the methods, figures of papers.",
    )
    lab.command("list")(list_experiments)
    lab.command("run")(run)
    lab.command("collect")(collect)
    app.add_typer(lab, name="lab")


def list_experiments() -> None:
    """List the experiments."""
    from noisewise.lab.experiments import experiments

    found = experiments().values()
    width = max(len(experiment.name) for experiment in found)
    for experiment in found:
        typer.echo(f"{experiment.name:{width}} {experiment.describe}")


def run(
    experiment: ExperimentArgument,
    quick: QuickOption = False,
    out: OutOption = Path("lab-results"),
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Trials at a time.")] = 1,
    trials: Annotated[
        int | None, typer.Option("--trials", min=2, help="Of every cell, instead of its own.")
    ] = None,
    backend: Annotated[
        str, typer.Option("--backend", help="joblib's: loky, threading, dask, ray and others.")
    ] = "loky",
) -> None:
    """Run an experiment; one that was interrupted goes on where it stopped.

    `all` runs every one of them, and leaves out those whose data aren't there.

    Example: noisewise lab run bs2019-fig3 --quick --out figures
    """
    from noisewise.lab import experiments
    from noisewise.lab.parallel import check_backend

    check_backend(backend)

    def run_one(name: str) -> list[Path]:
        words = ["noisewise", "lab", "run", name, *(["--quick"] if quick else [])]
        words += [] if trials is None else ["--trials", str(trials)]
        return experiments.run(
            experiments.find(name),
            out,
            quick=quick,
            trials=trials,
            n_jobs=jobs,
            backend=backend,
            progress=sys.stderr.isatty(),
            command=shlex.join(words),
        )

    if experiment == "all":
        _run_all(run_one)
    else:
        _say(run_one(experiment))


def _run_all(run_one: Callable[[str], list[Path]]) -> None:
    """Run every experiment; a line each, with the time it took."""
    from noisewise.lab.experiments import DataAbsentError, experiments

    start = time.perf_counter()
    for name in experiments():
        before = time.perf_counter()
        try:
            paths = run_one(name)
        except DataAbsentError as error:
            typer.echo(f"{name}: left out, {error}")
            continue
        files = ", ".join(path.name for path in paths)
        typer.echo(f"{name}: {time.perf_counter() - before:.0f} s; {files}")
    typer.echo(f"All in {time.perf_counter() - start:.0f} s.")


def collect(
    experiment: ExperimentArgument,
    quick: QuickOption = False,
    trials_in: Annotated[
        Path, typer.Option("--from", help="Folder in which `run` keeps trials.")
    ] = Path("lab-results"),
    out: OutOption = Path("lab-results"),
    any_code: Annotated[
        bool,
        typer.Option("--any-code", help="Accept trials that other code or settings have made."),
    ] = False,
) -> None:
    """Write table and figures of the trials so far, without running any.

    Example: noisewise lab collect calibration --from lab-results --out docs/results
    """
    from noisewise.lab import experiments

    words = ["noisewise", "lab", "run", experiment, *(["--quick"] if quick else [])]
    paths = experiments.collect(
        experiments.find(experiment),
        trials_in,
        out,
        quick=quick,
        check=not any_code,
        command=shlex.join(words),
    )
    _say(paths)


def _say(paths: list[Path]) -> None:
    from noisewise.lab.table import read_table, summary_lines, surprises

    rows = read_table(paths[0])
    if rows and "p_value" in rows[0]:  # ranks of truths; other experiments have their own tables
        for line in summary_lines(rows):
            typer.echo(line)
        typer.echo("p-values below 0.01, of all (1% are expected of a calibrated method):")
        for method, (small, all_) in surprises(rows).items():
            typer.echo(f"  {method:18} {small} of {all_}")
    else:
        for path in (path for path in paths if path.suffix == ".md"):
            typer.echo(path.read_text(encoding="utf-8"))
    for path in paths:
        typer.echo(f"Wrote {path}.")
