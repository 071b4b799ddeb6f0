"""Commands for the analyst who has a posterior of any kind: show, predict, plot, report."""

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
    from noisewise.analyst.posterior.base import BasePosterior

PosteriorArgument = Annotated[
    Path,
    typer.Argument(
        help="Posterior file that `fit` wrote, or a Release of block summaries or posterior draws."
    ),
]
LevelOption = Annotated[float, typer.Option("--level", help="Level of credible intervals.")]


def show(
    posterior: PosteriorArgument,
    level: LevelOption = 0.95,
    ask: Annotated[
        list[str] | None,
        typer.Option(
            "--ask",
            help="Probability of a statement such as 'age > 0', of a network 'cough=yes | "
            "smoker=no'; repeatable.",
        ),
    ] = None,
    as_json: PrintJsonOption = False,
) -> None:
    """Show the numbers with their uncertainty, in original units, and where they come from.

    Example: noisewise show post.nc --ask "age > 0"
    """
    loaded = read_posterior(posterior)
    answers = {statement: loaded.prob(statement) for statement in ask or []}
    if as_json:
        probabilities = {statement: float(answer) for statement, answer in answers.items()}
        document = {**loaded.to_dict(level), "probabilities": probabilities}
        typer.echo(json.dumps(_without_nan(document), indent=1, allow_nan=False))
        return
    say(loaded, level)
    for statement, answer in answers.items():
        shown = f"{answer:.4f}" if isinstance(answer, float) else str(answer)
        typer.echo(f"P({statement}) = {shown}")


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
    from noisewise.analyst.posterior.file import check_folder

    loaded = read_posterior(posterior)
    lines = loaded.predict(_columns(new), level, seed=seed, target=target).lines()
    if out is None:
        csv.writer(sys.stdout).writerows(lines)
    else:
        check_folder(out)
        with out.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(lines)
        typer.echo(f"Wrote {out}.")


def _columns(path: Path) -> dict[str, list[str]]:
    """Columns of a CSV file with a head."""
    from noisewise.core.errors import RequestError

    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
    except OSError as error:
        raise RequestError(f"new: cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error):
        raise RequestError(f"new: {path} is not a CSV file in UTF-8") from None
    if not rows:
        raise RequestError(f"new: {path} has no rows")
    return {name: [row[name] for row in rows] for name in rows[0] if name is not None}


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
        str | None,
        typer.Option(
            "--names", help="Coefficients or nodes to draw. Default: all slopes, or all that fit."
        ),
    ] = None,
    level: Annotated[float, typer.Option("--level", help="Level of intervals.")] = 0.95,
) -> None:
    """Draw credible intervals or densities, in original units.

    With one file, what ignoring the noise would have given is drawn beside it. With several, they
    are compared with each other.

    Example: noisewise plot post.nc --kind marginals --out marginals.png
    """
    from noisewise.analyst.posterior.plots import plot as draw
    from noisewise.core.errors import RequestError

    stems = [path.stem for path in posteriors]
    labels = stems if len(set(stems)) == len(stems) else [str(path) for path in posteriors]
    if len(set(labels)) < len(labels):
        raise RequestError("posteriors: a file is given twice")
    loaded = dict(zip(labels, map(read_posterior, posteriors), strict=True))
    shown = None if names is None else names_of(names, "names")
    draw(loaded, out, kind=kind, names=shown, level=level)
    typer.echo(f"Wrote {out}.")


def report(
    posterior: PosteriorArgument,
    out: Annotated[Path, typer.Option("--out", help="Web page to write, .html.")] = Path(
        "report.html"
    ),
    level: LevelOption = 0.95,
    title: Annotated[
        str | None, typer.Option("--title", help="Heading. Default: the model in words.")
    ] = None,
) -> None:
    """Write a one-page report: what it says, how sure, what privacy cost, what was checked.

    The page is self-contained: no network, no script. It reads on a phone, prints, and may be
    published like the Release that it was made from.

    A posterior that `fit` wrote:

    Example: noisewise report post.nc --out report.html

    Block summaries or posterior draws, Releases that need no fit:

    Example: noisewise report summary.json --out summary.html
    """
    read_posterior(posterior).report(out, level=level, title=title)
    typer.echo(f"Wrote {out}.")


def read_posterior(path: Path) -> BasePosterior:
    """A posterior file, or a Release that needs no fit; others have to be fitted first."""
    from noisewise.analyst.fit import fit
    from noisewise.analyst.posterior.file import load_posterior
    from noisewise.core.errors import RequestError
    from noisewise.core.kinds import load_release
    from noisewise.core.kinds.draws import RegressionSampleRelease
    from noisewise.core.kinds.summary.release import SummaryRelease

    if path.suffix.lower() != ".json":
        found: BasePosterior = load_posterior(path)
        return found
    release = load_release(path)
    if isinstance(release, SummaryRelease | RegressionSampleRelease):
        return fit(release)
    raise RequestError(
        f"posterior: {path} is a Release; run `noisewise fit {path}` and give what it writes"
    )


def say(posterior: BasePosterior, level: float = 0.95) -> None:
    """Print what was found, with where it comes from and what to be warned of."""
    typer.echo(posterior.describe(level))
    for warning in posterior.warnings:
        typer.echo(f"Warning: {warning}", err=True)


def _without_nan(value: Any) -> Any:
    """JSON has no NaN; diagnostics that mean nothing (R-hat of one chain) become null."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
