"""Commands for the analyst who received Releases: fit, show, predict, plot."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..analyst.posterior import Posterior

PosteriorArgument = Annotated[Path, typer.Argument(help="Posterior file that `fit` wrote.")]


def add_to(app: typer.Typer) -> None:
    """Attach the analyst's commands to the root command."""
    app.command("fit")(fit)
    app.command("show")(show)
    app.command("predict")(predict)
    app.command("plot")(plot)


def fit(
    releases: Annotated[list[Path], typer.Argument(help="One or more Release files.")],
    method: Annotated[
        str,
        typer.Option(
            "--method", help="auto, exact, gibbs_update, gibbs_prior, gibbs_noisy, ... or naive."
        ),
    ] = "auto",
    target: Annotated[
        str | None, typer.Option("--target", help="Released column to explain.")
    ] = None,
    features: Annotated[
        str | None, typer.Option("--features", help="Released columns, separated by commas.")
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

    Example: noisewise fit release.json --seed 1 --out post.nc
    """
    from ..analyst.fit import fit as run
    from ..core.release import load_release
    from .holder import _names

    posterior = run(
        [load_release(path) for path in releases],
        method=method,
        target=target,
        features=None if features is None else _names(features),
        chains=chains,
        draws=draws,
        seed=seed,
        progress=sys.stderr.isatty(),
    )
    posterior.save(out)
    _say(posterior)
    typer.echo(f"Wrote {out}.")


def show(
    posterior: PosteriorArgument,
    level: Annotated[float, typer.Option("--level", help="Level of credible intervals.")] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the coefficients with their uncertainty, in original units.

    Example: noisewise show post.nc --json
    """
    from ..analyst.posterior import load_posterior

    loaded = load_posterior(posterior)
    if as_json:
        typer.echo(json.dumps(_document(loaded, level), indent=1))
    else:
        _say(loaded, level)


def predict(
    posterior: PosteriorArgument,
    new: Annotated[Path, typer.Argument(help="CSV file with one column per feature.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="CSV file to write. Default: the screen.")
    ] = None,
    level: Annotated[float, typer.Option("--level", help="Level of intervals.")] = 0.95,
    seed: Annotated[int | None, typer.Option("--seed", help="Of the error term's draws.")] = None,
) -> None:
    """Predict the target for new rows: mean, sd and predictive interval, in original units.

    Example: noisewise predict post.nc new.csv --out predictions.csv
    """
    from ..analyst.posterior import load_posterior
    from ..core.errors import RequestError

    loaded = load_posterior(posterior)
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
    result = loaded.predict(table, interval=level, seed=seed)
    lines: list[list[Any]] = [["mean", "sd", "lower", "upper"]]
    columns = (result.mean, result.sd, result.lower, result.upper)
    lines += [[f"{value:.8g}" for value in line] for line in zip(*columns, strict=True)]
    if out is None:
        csv.writer(sys.stdout).writerows(lines)
    else:
        with out.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(lines)
        typer.echo(f"Wrote {out}.")


def plot(
    posteriors: Annotated[
        list[Path], typer.Argument(help="Posterior files of the same model, compared by name.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Picture: .png, .svg or .pdf.")] = Path(
        "intervals.png"
    ),
    level: Annotated[float, typer.Option("--level", help="Level of intervals.")] = 0.95,
) -> None:
    """Draw credible intervals of every coefficient, one or several posteriors side by side.

    Example: noisewise plot exact.nc naive.nc --out intervals.png
    """
    from ..analyst.plots import plot_intervals
    from ..analyst.posterior import load_posterior
    from ..core.errors import RequestError

    loaded = {path.stem: load_posterior(path) for path in posteriors}
    if len({p.columns.names for p in loaded.values()}) != 1:
        raise RequestError(
            "posteriors: these files are of different models; compare like with like"
        )
    if out.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise RequestError(f"out: {out} must end in .png, .svg or .pdf")
    plot_intervals(loaded, out, level=level)
    typer.echo(f"Wrote {out}.")


def _say(posterior: Posterior, level: float = 0.95) -> None:
    info = posterior.info
    typer.echo(f"{posterior.columns.target} ~ {' + '.join(posterior.columns.features)}")
    typer.echo(f"Method {info.method}: {info.reason}")
    for n, claim in zip(info.n, info.claims, strict=True):
        typer.echo(f"Release of {n:,} rows at {claim}.")
    typer.echo(str(posterior.summary(level)))
    if posterior.conditional_mean is not None:
        shares = posterior.privacy_share()
        typer.echo(
            "Share of the posterior variance due to privacy noise: "
            + ", ".join(f"{name} {100 * share:.0f}%" for name, share in shares.items())
        )
    for warning in info.warnings:
        typer.echo(f"Warning: {warning}", err=True)


def _document(posterior: Posterior, level: float) -> dict[str, Any]:
    info = posterior.info
    shares = posterior.privacy_share() if posterior.conditional_mean is not None else None
    return {
        "summary": posterior.summary(level).to_dict(),
        "level": level,
        "target": posterior.columns.target,
        "features": list(posterior.columns.features),
        "method": info.method,
        "noise_aware": info.noise_aware,
        "n": list(info.n),
        "claims": list(info.claims),
        "privacy_share": shares,
        "warnings": list(info.warnings),
    }
