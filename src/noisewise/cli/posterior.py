"""Commands for the analyst who has a posterior: show, predict, plot."""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisewise.cli.options import PrintJsonOption, names_of

if TYPE_CHECKING:
    from noisewise.analyst.posterior.regression import Posterior

PosteriorArgument = Annotated[Path, typer.Argument(help="Posterior file that `fit` wrote.")]


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
    from noisewise.analyst.posterior.file import load_posterior
    from noisewise.cli.as_released import show_release
    from noisewise.cli.network_analyst import show_network

    asked = ask or []
    if show_network(posterior, level, as_json) or show_release(posterior, level, asked, as_json):
        return
    loaded = load_posterior(posterior)
    answers = {statement: loaded.prob(statement) for statement in asked}
    if as_json:
        document = {**_document(loaded, level), "probabilities": answers}
        typer.echo(json.dumps(_without_nan(document), indent=1, allow_nan=False))
        return
    say(loaded, level)
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
    from noisewise.analyst.posterior.file import check_folder, load_posterior
    from noisewise.cli.network_analyst import classify_rows, is_network
    from noisewise.core.errors import RequestError

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
    from noisewise.analyst.posterior.file import check_folder, load_posterior
    from noisewise.analyst.posterior.plots import PLOTS
    from noisewise.cli.network_analyst import plot_network
    from noisewise.core.errors import RequestError

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


def say(posterior: Posterior, level: float = 0.95) -> None:
    """Print what `fit` found, with where it comes from."""
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
