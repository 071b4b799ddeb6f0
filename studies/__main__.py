"""`python -m studies`: experiments on simulated data, and the audit of every mechanism."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noisewise.core.errors import NoisewiseError, RequestError

if TYPE_CHECKING:
    from studies.experiments import Experiment
    from studies.report import Report

VIOLATED = 8  # exit code, as of `noisewise audit`

ExperimentArgument = Annotated[
    str, typer.Argument(help="A name from `python -m studies list`, or all of them: all.")
]
OutOption = Annotated[Path, typer.Option("--out", help="Folder for trials, table and figures.")]
QuickOption = Annotated[bool, typer.Option("--quick", help="A small version, within a minute.")]


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Experiments on simulated data: calibration of the methods, figures of papers, audits.",
)


# Their modules, in the order of the list.
MODULES = (
    "bs2019.fig3", "bs2019.fig4", "calibration.grid", "calibration.beyond", "calibration.power",
    "honesty.study", "plan_check", "plan_real", "scores", "alparslan2023.tables",
    "alparslan2023.figures", "alparslan2023.calibration", "differing_holders",
    "rounds_calibration", "holders_in_rounds", "many_holders", "varying_holders", "people", "terms",
    "unequal_errors", "amitai2018.study", "amitai2018.calibration", "skewed_blocks",
    "block_models", "zhang2016.fig1", "zhang2016.fig2", "network_priors", "synthetic_sets",
    "zhang2016.coverage", "battery", "caps",
)  # fmt: skip


def experiments() -> dict[str, Experiment | Report]:
    """All of them, by name; a module has one, or says which."""
    found: dict[str, Experiment | Report] = {}
    for name in MODULES:
        module = import_module(f"studies.{name}")
        found |= {e.name: e for e in getattr(module, "EXPERIMENTS", (module.EXPERIMENT,))}
    return found


def find(name: str) -> Experiment | Report:
    """The experiment of this name."""
    known = experiments()
    if name not in known:
        raise RequestError(f"experiment: {name!r} is unknown; there are: {', '.join(known)}")
    return known[name]


@app.command("list")
def list_experiments() -> None:
    """List the experiments."""
    found = experiments().values()
    width = max(len(experiment.name) for experiment in found)
    for experiment in found:
        typer.echo(f"{experiment.name:{width}} {experiment.describe}")


@app.command()
def run(
    experiment: ExperimentArgument,
    quick: QuickOption = False,
    out: OutOption = Path("study-results"),
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Trials at a time.")] = 1,
    trials: Annotated[
        int | None, typer.Option("--trials", min=2, help="Of every cell, instead of its own.")
    ] = None,
    backend: Annotated[
        str, typer.Option("--backend", help="joblib's: loky, threading, dask, ray and others.")
    ] = "loky",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the experiment's own: draws=1000."),
    ] = None,
) -> None:
    """Run an experiment; one that was interrupted goes on where it stopped.

    `all` runs every one of them, and leaves out those whose data aren't there.

    Example: python -m studies run bs2019-fig3 --quick --out figures
    """
    from studies.experiments import run as run_experiment
    from studies.trials import check_backend

    check_backend(backend)
    given = {}
    for text in settings or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise RequestError(f"set: expected NAME=VALUE, got {text!r}")
        given[name] = value

    def run_one(name: str) -> list[Path]:
        words = ["python", "-m", "studies", "run", name, *(["--quick"] if quick else [])]
        words += [] if trials is None else ["--trials", str(trials)]
        words += [word for text in settings or [] for word in ("--set", text)]
        return run_experiment(
            find(name),
            out,
            quick=quick,
            trials=trials,
            n_jobs=jobs,
            backend=backend,
            progress=sys.stderr.isatty(),
            command=shlex.join(words),
            settings=given,
        )

    if experiment == "all":
        _run_all(run_one)
    else:
        _say(run_one(experiment))


def _run_all(run_one: Callable[[str], list[Path]]) -> None:
    """Run every experiment; a line each, with the time it took."""
    from studies.experiments import DataAbsentError

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


@app.command()
def collect(
    experiment: ExperimentArgument,
    quick: QuickOption = False,
    trials_in: Annotated[
        Path, typer.Option("--from", help="Folder in which `run` keeps trials.")
    ] = Path("study-results"),
    out: OutOption = Path("study-results"),
    any_code: Annotated[
        bool,
        typer.Option("--any-code", help="Accept trials that other code or settings have made."),
    ] = False,
) -> None:
    """Write table and figures of the trials so far, without running any.

    Example: python -m studies collect calibration --from study-results --out docs/results
    """
    from studies.experiments import collect as collect_trials

    words = ["python", "-m", "studies", "run", experiment, *(["--quick"] if quick else [])]
    paths = collect_trials(
        find(experiment),
        trials_in,
        out,
        quick=quick,
        check=not any_code,
        command=shlex.join(words),
    )
    _say(paths)


def _say(paths: list[Path]) -> None:
    from studies.tables import read_table, summary_lines, surprises

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


@app.command()
def audit(
    runs: Annotated[
        int | None, typer.Option("--runs", min=40, help="Of each, instead of its own number.")
    ] = None,
    confidence: Annotated[
        float, typer.Option("--confidence", help="1 - chance of calling a true claim violated.")
    ] = 0.99,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Audit every mechanism of noisewise, and broken ones that must be caught.

    The exit code is 8 if one is not as it should be.
    """
    from studies.self_audit.registry import examine, subjects

    wrong, documents = [], []
    if not as_json:
        typer.echo(f"{'':24} {'claimed':>8} {'at least':>9} {'runs':>7}  verdict")
    for subject in subjects().values():
        verdict = examine(subject, runs=runs, confidence=confidence)
        result = verdict.result
        if not verdict.as_it_should_be:
            wrong.append(subject.name)
        # Gaussian noise is judged by standard deviations.
        claimed, least, what = (
            (result.epsilon, result.epsilon_lower, "epsilon")
            if result.mu is None
            else (result.mu, result.mu_lower, "mu")
        )
        documents.append(
            {
                "name": subject.name,
                "sound": subject.sound,
                "passed": result.passed,
                "what": what,
                "claimed": claimed,
                "lower": least,
                "runs": runs or subject.runs,
            }
        )
        if not as_json:
            kept = "claim kept" if result.passed else "claim violated"
            note = "" if subject.sound else " (broken on purpose)"
            alarm = "" if verdict.as_it_should_be else "  <-- NOT AS IT SHOULD BE"
            typer.echo(
                f"{subject.name:24} {claimed:8.3f} {least:9.3f} {runs or subject.runs:7,}  "
                f"{what}: {kept}{note}{alarm}"
            )
    if as_json:
        typer.echo(json.dumps(documents))
    elif not wrong:
        typer.echo("Every sound mechanism kept its claim, and every broken one was caught.")
    if wrong:
        raise typer.Exit(VIOLATED)


@app.command()
def attacks(
    quick: Annotated[bool, typer.Option("--quick", help="A few tries of each.")] = False,
    tries: Annotated[
        list[str] | None,
        typer.Option("--tries", help="Of one attack, instead of its own number: kills=100."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of times and edits.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for attacks.json.")] = None,
) -> None:
    """Attack the holder's side: kills, races, damaged ledgers, forged Releases, neighbours.

    Then every attack that broke something once is carried out again (`studies.mended`). The exit
    code is 8 if anything broke that must hold.

    Example: python -m studies attacks --quick
    """
    from studies.attacks import ATTACKS, campaign
    from studies.mended import carry_out
    from studies.report import origin

    counts = {name: few if quick else many for name, (_, many, few) in ATTACKS.items()}
    for given in tries or []:
        name, _, number = given.partition("=")
        if name not in ATTACKS or not number.isdecimal():
            raise RequestError(f"tries: {given!r} is not one of {', '.join(ATTACKS)} with =NUMBER")
        counts[name] = int(number)
    found = []
    for one in campaign(counts, seed):
        found.append(one)
        ends = "; ".join(f"{end}: {count:,}" for end, count in sorted(one["ends"].items()))
        typer.echo(
            f"{one['attack']}: {one['tries']:,} tries, {len(one['breaks'])} breaks, "
            f"{one['seconds']} s ({ends})"
        )
        for line in one["breaks"]:
            typer.echo(f"  BROKEN: {line}")
    mended = []
    for name, broken, skipped in carry_out():
        mended.append({"attack": name, "broken": broken, "skipped": skipped})
        end = f"BROKEN: {broken}" if broken else f"skipped, {skipped}" if skipped else "held"
        typer.echo(f"{name}: {end}")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        words = ["python", "-m", "studies", "attacks", *(["--quick"] if quick else [])]
        words += [word for given in tries or [] for word in ("--tries", given)]
        document = {**origin(shlex.join(words)), "attacks": found, "mended": mended}
        (out / "attacks.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if any(one["breaks"] for one in found) or any(one["broken"] for one in mended):
        raise typer.Exit(VIOLATED)


def main() -> None:
    """Run a command; every deliberate error is one message and an exit code."""
    try:
        app(prog_name="python -m studies")
    except NoisewiseError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
