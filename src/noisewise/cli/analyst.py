"""Commands for the analyst who received Releases: fit, show, predict, plot."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import PrintJsonOption, names_of

if TYPE_CHECKING:
    from ..analyst.posterior import Posterior
    from ..core.releases import AnyRelease

ReleasesArgument = Annotated[list[Path], typer.Argument(help="Release files, or folders of them.")]
TargetOption = Annotated[str | None, typer.Option("--target", help="Released column to explain.")]
FeaturesOption = Annotated[
    str | None, typer.Option("--features", help="Released columns, separated by commas.")
]
PosteriorArgument = Annotated[Path, typer.Argument(help="Posterior file that `fit` wrote.")]


def add_to(app: typer.Typer) -> None:
    """Attach the analyst's commands to the root command."""
    app.command("fit")(fit)
    app.command("methods")(methods)
    app.command("estimate")(estimate)
    app.command("show")(show)
    app.command("predict")(predict)
    app.command("plot")(plot)


def fit(
    releases: ReleasesArgument,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            help="auto, or one of those that `noisewise methods` lists: exact (what auto takes), "
            "exact_own_means (holders whose people differ), individual, gibbs_update, gibbs_prior, "
            "gibbs_noisy, gibbs_noisy_aware, for several holders with Gaussian noise "
            "bs_distributed, normal_x, fixed_s, fixed_s_aware, fixed_s_fast, and naive.",
        ),
    ] = "auto",
    target: TargetOption = None,
    features: FeaturesOption = None,
    prior: Annotated[
        Path | None,
        typer.Option(
            "--prior", help="YAML file with priors of named coefficients, in original units."
        ),
    ] = None,
    chains: Annotated[int, typer.Option("--chains", help="Independent chains.")] = 4,
    draws: Annotated[int, typer.Option("--draws", help="Draws a chain after warm-up.")] = 1000,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Makes the result reproducible.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Where to write the posterior.")] = Path(
        "post.nc"
    ),
) -> None:
    """Turn Releases into a posterior that accounts for the privacy noise, in original units.

    Any released column may be the target and any others the features: a Release of second moments
    answers all those regressions at no further privacy cost.

    A prior file has lines such as "coefficients: {age: {mean: 0, sd: 500}}" and
    "error_sd: [5000, 40000]" (its 90% range); what it leaves out keeps a weakly informative
    default, which `show` prints.

    Example: noisewise fit release.json --seed 1 --out post.nc
    """
    from ..analyst.coefficient_prior import read_prior
    from ..analyst.fit import fit as run
    from ..analyst.posterior_file import check_folder
    from ..core.network_release import NetworkRelease
    from .as_released import is_read_as_released, say
    from .network_analyst import fit_networks

    collected = _collected(releases)
    given = list(collected.values())
    if any(isinstance(release, NetworkRelease) for release in given):
        fit_networks(given, method, prior, chains, draws, seed, out)
        return
    if any(is_read_as_released(release) for release in given):
        say(given)
        typer.echo("Nothing was written: such a Release is read as it is; see `show`.")
        return
    check_folder(out)
    posterior: Posterior = run(
        given,  # type: ignore[arg-type]
        method=method,
        target=target,
        features=None if features is None else names_of(features),
        prior=None if prior is None else read_prior(prior),
        chains=chains,
        draws=draws,
        seed=seed,
        progress=sys.stderr.isatty(),
        names=_names(collected),
    )
    posterior.save(out)
    _say(posterior)
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
    from ..analyst.ada_ssp import ada_ssp
    from ..core.errors import RequestError

    if rule not in ("noise", "paper"):
        raise RequestError(f"rule: {rule!r} is unknown; use noise or paper")
    collected = _collected(releases)
    found = ada_ssp(
        list(collected.values()),  # type: ignore[arg-type]  # ada_ssp refuses other kinds
        target=target,
        features=None if features is None else names_of(features),
        rule="paper" if rule == "paper" else "noise",
        names=_names(collected),
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


def methods() -> None:
    """List the methods of `fit` for regressions: what each is, and what is wrong with it.

    Example: noisewise methods
    """
    from ..analyst.methods import METHODS

    width = max(map(len, METHODS))
    for name, method in METHODS.items():
        ignored = f"; ignores {method.ignores}" if method.ignores else ""
        typer.echo(f"{name:{width}}  {method.describe}{ignored}")
    typer.echo("auto takes exact, which is right for any noise and any number of rows or holders;")
    typer.echo("exact_own_means is for holders whose people differ, and exact warns of those.")


def _collected(paths: list[Path]) -> dict[Path, AnyRelease]:
    """Releases from files and folders, by file; what doesn't count is said."""
    from ..federation.collect import collect

    found = collect(paths)
    for path, why in found.skipped.items():
        typer.echo(f"Left out {path}: {why}", err=True)
    return found.releases


def _names(files: Iterable[Path]) -> list[str]:
    """What to call files: their names, and where those are not enough, their paths."""
    paths = list(files)
    names = [path.name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def show(
    posterior: PosteriorArgument,
    level: Annotated[float, typer.Option("--level", help="Level of credible intervals.")] = 0.95,
    ask: Annotated[
        list[str] | None,
        typer.Option("--ask", help="Probability of a statement such as 'age > 0'; repeatable."),
    ] = None,
    as_json: PrintJsonOption = False,
) -> None:
    """Show the coefficients with their uncertainty, in original units.

    Takes a posterior file, or a Release that needs no fit (block summaries, posterior draws).

    Example: noisewise show post.nc --ask "age > 0"
    """
    from ..analyst.posterior_file import load_posterior
    from .as_released import show_release
    from .network_analyst import show_network

    asked = ask or []
    if show_network(posterior, level, as_json) or show_release(posterior, level, asked, as_json):
        return
    loaded = load_posterior(posterior)
    answers = {statement: loaded.prob(statement) for statement in asked}
    if as_json:
        document = {**_document(loaded, level), "probabilities": answers}
        typer.echo(json.dumps(_without_nan(document), indent=1, allow_nan=False))
        return
    _say(loaded, level)
    for statement, probability in answers.items():
        typer.echo(f"P({statement}) = {probability:.4f}")


def predict(
    posterior: PosteriorArgument,
    new: Annotated[Path, typer.Argument(help="CSV file with one column per feature.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="CSV file to write. Default: the screen.")
    ] = None,
    level: Annotated[float, typer.Option("--level", help="Level of intervals.")] = 0.95,
    seed: Annotated[int | None, typer.Option("--seed", help="Of the error term's draws.")] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Of a network: the node to classify.")
    ] = None,
) -> None:
    """Predict the target for new rows: mean, sd and predictive interval, in original units.

    Of a network: the probabilities of every level of the node that --target names.

    Example: noisewise predict post.nc new.csv --out predictions.csv
    """
    from ..analyst.posterior_file import check_folder, load_posterior
    from ..core.errors import RequestError
    from .network_analyst import classify_rows, is_network

    loaded = None if is_network(posterior) else load_posterior(posterior)
    try:
        with new.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
    except OSError as error:
        raise RequestError(f"new: cannot read {new}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error):
        raise RequestError(f"new: {new} is not a CSV file in UTF-8") from None
    if not rows:
        raise RequestError(f"new: {new} has no rows")
    table = {name: [row[name] for row in rows] for name in rows[0] if name is not None}
    lines: list[list[Any]]
    if loaded is None:
        lines = classify_rows(posterior, target, table, level)
    else:
        result = loaded.predict(table, interval=level, seed=seed)
        lines = [["mean", "sd", "lower", "upper"]]
        columns = (result.mean, result.sd, result.lower, result.upper)
        lines += [[f"{value:.8g}" for value in line] for line in zip(*columns, strict=True)]
    if out is None:
        csv.writer(sys.stdout).writerows(lines)
    else:
        check_folder(out)
        with out.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(lines)
        typer.echo(f"Wrote {out}.")


def plot(
    posteriors: Annotated[
        list[Path], typer.Argument(help="Posterior files of the same model, compared by name.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Picture: .png, .svg or .pdf.")] = Path(
        "posterior.png"
    ),
    kind: Annotated[
        str, typer.Option("--kind", help="intervals, or marginals (densities of the draws).")
    ] = "intervals",
    names: Annotated[
        str | None, typer.Option("--names", help="Parameters to draw. Default: all slopes.")
    ] = None,
    level: Annotated[float, typer.Option("--level", help="Level of intervals.")] = 0.95,
) -> None:
    """Draw every coefficient's credible interval or density, in original units.

    With one file the naive posterior is drawn beside the noise-aware one. With several, they are
    compared with each other.

    Example: noisewise plot post.nc --kind marginals --out marginals.png
    """
    from ..analyst.plots import PLOTS
    from ..analyst.posterior_file import check_folder, load_posterior
    from ..core.errors import RequestError
    from .network_analyst import plot_network

    if plot_network(posteriors, out, names, level):
        return
    stems = [path.stem for path in posteriors]
    labels = stems if len(set(stems)) == len(stems) else [str(path) for path in posteriors]
    if len(set(labels)) < len(labels):
        raise RequestError("posteriors: a file is given twice")
    loaded = dict(zip(labels, map(load_posterior, posteriors), strict=True))
    if len({p.columns.names for p in loaded.values()}) != 1:
        raise RequestError(
            "posteriors: these files are of different models; compare like with like"
        )
    if kind not in PLOTS:
        raise RequestError(f"kind: {kind!r} is unknown; there are {', '.join(PLOTS)}")
    if out.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise RequestError(f"out: {out} must end in .png, .svg or .pdf")
    check_folder(out)
    PLOTS[kind](loaded, out, level=level, names=None if names is None else names_of(names))
    typer.echo(f"Wrote {out}.")


def _say(posterior: Posterior, level: float = 0.95) -> None:
    info, summary = posterior.info, posterior.summary(level)
    typer.echo(f"{posterior.columns.target} ~ {' + '.join(posterior.columns.features)}")
    typer.echo(f"Method {info.method}: {info.reason}")
    for n, claim in zip(info.n, info.claims, strict=True):
        rows = "a private number of" if n is None else f"{n:,}"
        typer.echo(f"Release of {rows} rows at {claim}.")
    prior = (f"{name} {mean:.3g} ± {sd:.3g}" for name, (mean, sd) in info.prior.items())
    typer.echo(f"Prior mean ± sd: {', '.join(prior)}")
    if info.prior_error_sd is not None:
        low, high = info.prior_error_sd
        typer.echo(f"Prior of the error's sd: from {low:.3g} to {high:.3g} with probability 0.9")
    typer.echo(str(summary))
    if posterior.naive is not None:
        typer.echo(
            f"\nBeside the naive posterior, which ignores the privacy noise:\n"
            f"{posterior.comparison(level)}"
        )
    for warning in info.warnings:
        typer.echo(f"Warning: {warning}", err=True)


def _document(posterior: Posterior, level: float) -> dict[str, Any]:
    info = posterior.info
    naive = None if posterior.naive is None else posterior.naive_summary(level)
    knows_share = posterior.conditional_mean is not None
    return {
        "summary": posterior.summary(level).to_dict(),
        "level": level,
        "target": posterior.columns.target,
        "features": list(posterior.columns.features),
        "method": info.method,
        "noise_aware": info.noise_aware,
        "n": list(info.n),
        "claims": list(info.claims),
        "prior_error_sd": info.prior_error_sd,
        "prior": {name: {"mean": mean, "sd": sd} for name, (mean, sd) in info.prior.items()},
        "privacy_share": posterior.privacy_share() if knows_share else None,
        "naive": naive,
        "warnings": list(info.warnings),
    }


def _without_nan(value: Any) -> Any:
    """JSON has no NaN; diagnostics that mean nothing (R-hat of one chain) become null."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value
