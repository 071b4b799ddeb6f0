"""Commands for the analyst who received Releases: fit, estimate, methods."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noisewise.cli import posterior as posterior_commands
from noisewise.cli.options import EXPERTS, PrintJsonOption, names_of

if TYPE_CHECKING:
    from noisewise.core.kinds import AnyRelease

ReleasesArgument = Annotated[list[Path], typer.Argument(help="Release files, or folders of them.")]
TargetOption = Annotated[str | None, typer.Option("--target", help="Released column to explain.")]
FeaturesOption = Annotated[
    str | None, typer.Option("--features", help="Released columns, separated by commas.")
]


def add_to(app: typer.Typer) -> None:
    """Attach the analyst's commands to the root command."""
    app.command("fit")(fit)
    app.command("methods")(methods)
    app.command("estimate")(estimate)
    app.command("show")(posterior_commands.show)
    app.command("predict")(posterior_commands.predict)
    app.command("plot")(posterior_commands.plot)
    app.command("report")(posterior_commands.report)


def fit(
    releases: ReleasesArgument,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            help="auto, which takes exact; exact_own_means for holders whose people differ; "
            "individual for few rows. `noisewise methods --all` lists all.",
            show_default="auto",
        ),
    ] = None,
    target: TargetOption = None,
    features: FeaturesOption = None,
    prior: Annotated[
        Path | None,
        typer.Option(
            "--prior", help="YAML file with priors of named coefficients, in original units."
        ),
    ] = None,
    chains: Annotated[
        int | None,
        typer.Option(
            "--chains", help="Independent chains.", show_default="4", rich_help_panel=EXPERTS
        ),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(
            "--draws",
            help="Draws a chain after warm-up.",
            show_default="1000",
            rich_help_panel=EXPERTS,
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Makes the result reproducible.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Where to write the posterior.")] = Path(
        "post.nc"
    ),
) -> None:
    """Turn Releases into a posterior that accounts for the privacy noise, in original units.

    Any released column may be the target and any others the features: a Release of second moments
    answers all those regressions at no further privacy cost. A network is fitted as a whole. Block
    summaries and posterior draws are read as they were released, without options.

    A prior file has lines such as "coefficients: {age: {mean: 0, sd: 500}}" and
    "error_sd: [5000, 40000]" (its 90% range); what it leaves out keeps a weakly informative
    default, which `show` prints. Of a network it has a line such as "concentration: 0.5".

    Example: noisewise fit release.json --seed 1 --out post.nc
    """
    from noisewise.analyst.fit import file_names
    from noisewise.analyst.fit import fit as run
    from noisewise.analyst.posterior.file import check_folder

    collected = _collected(releases)
    check_folder(out)
    posterior = run(
        list(collected.values()),
        method=method,
        target=target,
        features=None if features is None else names_of(features),
        prior=prior,
        chains=chains,
        draws=draws,
        seed=seed,
        progress=sys.stderr.isatty(),
        names=file_names(list(collected)),
    )
    posterior.save(out)
    posterior_commands.say(posterior)
    typer.echo(f"Wrote {out}.")


def estimate(
    releases: ReleasesArgument,
    target: TargetOption = None,
    features: FeaturesOption = None,
    rule: Annotated[
        str, typer.Option("--rule", help="noise (from the real noise scales), or paper.")
    ] = "noise",
    as_json: PrintJsonOption = False,
) -> None:
    """Point estimates by adaSSP (Wang 2018), with no uncertainty: prefer `fit`.

    Example: noisewise estimate release.json
    """
    from noisewise.analyst.fit import file_names
    from noisewise.analyst.regression.papers.ada_ssp import ada_ssp
    from noisewise.core.errors import RequestError

    if rule not in ("noise", "paper"):
        raise RequestError(f"rule: {rule!r} is unknown; use noise or paper")
    collected = _collected(releases)
    found = ada_ssp(
        list(collected.values()),  # type: ignore[arg-type]  # ada_ssp refuses other kinds
        target=target,
        features=None if features is None else names_of(features),
        rule="paper" if rule == "paper" else "noise",
        names=file_names(list(collected)),
    )
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "coefficients": found.coefficients,
                    "penalty": found.penalty,
                    "statement": found.statement,
                    "warnings": list(found.warnings),
                },
                indent=1,
            )
        )
    else:
        typer.echo(str(found))
    for warning in found.warnings:
        typer.echo(f"Warning: {warning}", err=True)


def methods(
    everything: Annotated[
        bool, typer.Option("--all", help="Also those for comparison with papers.")
    ] = False,
) -> None:
    """List the methods of `fit` for regressions, and when to use which.

    Example: noisewise methods --all
    """
    from noisewise.analyst.regression.methods import METHODS

    width = max(map(len, METHODS if everything else _USUAL))
    for name, when in _USUAL.items():
        typer.echo(f"{name:{width}}  {when}")
    if not everything:
        typer.echo("Others are for comparison with papers: noisewise methods --all")
        return
    typer.echo("For comparison with papers, not for results:")
    for name, method in METHODS.items():
        if name not in _USUAL:
            ignored = f"; ignores {method.ignores}" if method.ignores else ""
            typer.echo(f"{name:{width}}  {method.describe}{ignored}")


_USUAL = {
    "auto": "use this: it takes exact",
    "exact": "no approximation but Monte Carlo error, if holders share one law",
    "exact_own_means": "for several holders whose people differ; exact warns of those",
    "individual": "for few rows, up to some hundreds: samples every hidden row",
}


def _collected(paths: list[Path]) -> dict[Path, AnyRelease]:
    """Releases from files and folders, by file; what doesn't count is said."""
    from noisewise.federation.gather import collect

    found = collect(paths)
    for path, why in found.skipped.items():
        typer.echo(f"Left out {path}: {why}", err=True)
    return found.releases
