"""Commands for the analyst: from Releases to a posterior, and what to do with one."""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisewise.cli.options import PRINT_JSON, Option, expert, names_of, option, with_options
from noisewise.core.document import check_folder
from noisewise.core.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from noisewise.analyst.posterior.base import BasePosterior
    from noisewise.analyst.trust import Trust
    from noisewise.core.kinds import AnyRelease

ReleasesArgument = Annotated[list[Path], typer.Argument(help="Release files, or folders of them.")]
TARGET = option("target", str, "Released column to explain.")
FEATURES = option("features", str, "Released columns, separated by commas.")
FORMULA = option("formula", str, "Both at once, of released columns and terms: 'y ~ x + z'.")
PosteriorArgument = Annotated[
    Path,
    typer.Argument(
        help="Posterior file that `fit` wrote, or a Release of block summaries or posterior draws."
    ),
]
LEVEL = option("level", float, "Level of credible intervals.", default=0.95)
LEVEL_OF_INTERVALS = option("level", float, "Level of intervals.", default=0.95)


@with_options(
    option(
        "method",
        str,
        "auto, which takes exact, or exact_own_laws for several holders; individual for "
        "few rows. `noisewise methods --all` lists all.",
        shown="auto",
    ),
    *(TARGET, FEATURES, FORMULA),
    option(
        "varying",
        bool,
        "Coefficients vary by holder: those of each, the common ones, and how far apart they are.",
    ),
    option("prior", Path, "YAML file with priors of named coefficients, in original units."),
    expert("chains", int, "Independent chains.", shown="4"),
    expert("draws", int, "Draws a chain after warm-up.", shown="1000"),
    option("seed", int, "Makes the result reproducible."),
    option(
        "trust",
        list[Path],
        "File of public keys, or a folder of them: fit only what they signed; repeatable.",
    ),
    option(
        "skip_unusable",
        bool,
        "Leave out Releases that don't go with the others; every report names them.",
    ),
    option("out", Path, "Where to write the posterior.", default=Path("post.nc")),
)
def fit(
    releases: ReleasesArgument,
    out: Path,
    target: str | None = None,
    features: str | None = None,
    trust: list[Path] | None = None,
    **given: Any,
) -> None:
    """Turn Releases into a posterior that accounts for the privacy noise, in original units.

    Any released column may be the target and any others the features: a Release of second moments
    answers all those regressions at no further privacy cost. A network is fitted as a whole. Block
    summaries and posterior draws are read as they were released, without options.

    A prior file has lines such as "coefficients: {age: {mean: 0, sd: 500}}" and
    "error_sd: [5000, 40000]" (its 90% range); what it leaves out keeps a weakly informative
    default, which `show` prints. Of a network it has a line such as "concentration: 0.5".

    Example: noisewise fit release.json --seed 1 --out post.nc

    Example: noisewise fit network.json --seed 1 --out network.nc

    Several holders whose coefficients may differ:

    Example: noisewise fit a.json b.json c.json --varying --out holders.nc

    Releases that must be signed by their publishers, whose public keys are in a folder:

    Example: noisewise fit a.json b.json --trust keys/ --out signed.nc
    """
    from noisewise.analyst.fit import file_names
    from noisewise.analyst.fit import fit as run
    from noisewise.analyst.report.words import signatures_in_words

    keys = None
    if trust:
        from noisewise.analyst.trust import read_trust

        keys = read_trust(trust)
    collected = _collected(releases, keys)
    check_folder(out)
    posterior = run(
        list(collected.values()),
        target=target,
        features=_names(features),
        progress=sys.stderr.isatty(),
        names=file_names(list(collected)),
        trust=keys,
        **given,
    )
    posterior.save(out)
    say(posterior)
    if keys is not None:
        typer.echo("\n".join(signatures_in_words(posterior.signatures)))
    typer.echo(f"Wrote {out}.")


@with_options(
    *(TARGET, FEATURES),
    option("rule", str, "noise (from the real noise scales), or paper.", default="noise"),
    PRINT_JSON,
)
def estimate(
    releases: ReleasesArgument, rule: str, target: str | None, features: str | None, as_json: bool
) -> None:
    """Point estimates by adaSSP (Wang 2018), with no uncertainty: prefer `fit`.

    Example: noisewise estimate release.json
    """
    from noisewise.analyst.fit import file_names
    from noisewise.analyst.regression.papers.ada_ssp import ada_ssp

    if rule not in ("noise", "paper"):
        raise RequestError(f"rule: {rule!r} is unknown; use noise or paper")
    collected = _collected(releases)
    found = ada_ssp(
        list(collected.values()),  # type: ignore[arg-type]  # ada_ssp refuses other kinds
        target=target,
        features=_names(features),
        rule="paper" if rule == "paper" else "noise",
        names=file_names(list(collected)),
    )
    if as_json:
        document = {name: getattr(found, name) for name in ("coefficients", "penalty", "statement")}
        typer.echo(json.dumps({**document, "warnings": list(found.warnings)}, indent=1))
    else:
        typer.echo(str(found))
    _warn(found.warnings)


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
    "auto": "use this: it takes exact, or exact_own_laws for several holders",
    "exact": "no approximation but Monte Carlo error, if holders share one law",
    "exact_own_laws": "exact for several holders, whether their people differ or not",
    "exact_varying": "several holders whose coefficients may differ too (--varying)",
    "individual": "for few rows, up to some hundreds: samples every hidden row",
}


def _collected(paths: list[Path], trust: Trust | None = None) -> dict[Path, AnyRelease]:
    """Releases from files and folders, by file; what doesn't count is said."""
    from noisewise.federation.gather import collect

    found = collect(paths, trust)
    for path, why in found.skipped.items():
        typer.echo(f"Left out {path}: {why}", err=True)
    return found.releases


# --- what to do with a posterior ------------------------------------------------------------------


@with_options(
    LEVEL,
    option(
        "ask",
        list[str],
        "Probability of a statement such as 'age > 0', '-0.1 < age < 0.1' or 'a > 0 and 2 * b > "
        "a', of a network 'P(cough=yes | smoker=no)'; repeatable.",
    ),
    option("node", list[str], "Of a network: show this node's table; repeatable."),
    option("draws", Path, "Also write all draws to this CSV file, one row a draw."),
    PRINT_JSON,
)
def show(
    posterior: PosteriorArgument,
    level: float,
    ask: list[str] | None,
    node: list[str] | None,
    draws: Path | None,
    as_json: bool,
) -> None:
    """Show the numbers with their uncertainty, in original units, and where they come from.

    Of a network: how common each level is, then as many tables as fit on a screen.

    Example: noisewise show post.nc --ask "age > 0" --draws draws.csv

    Example: noisewise show network.nc --ask "P(disease=yes | region=south)" --node region
    """
    from noisewise.analyst.posterior.network import NetworkPosterior

    loaded = read_posterior(posterior)
    if node and not isinstance(loaded, NetworkPosterior):
        raise RequestError("node: only a network has nodes; leave --node out")
    if draws is not None:
        check_folder(draws)
        _write_csv(draws, loaded.draws_columns())
    answers = {statement: loaded.prob(statement) for statement in ask or []}
    if as_json:
        probabilities = {statement: float(answer) for statement, answer in answers.items()}
        document = {**loaded.to_dict(level), "probabilities": probabilities}
        typer.echo(json.dumps(_without_nan(document), indent=1, allow_nan=False))
        return
    say(loaded, level, **({"nodes": node} if node else {}))
    for statement, answer in answers.items():
        shown = f"{answer:.4f}" if isinstance(answer, float) else str(answer)
        wrapped = statement if statement.lstrip().startswith("P(") else f"P({statement})"
        typer.echo(f"{wrapped} = {shown}")
    if draws is not None:
        typer.echo(f"Wrote {draws}.")


@with_options(PRINT_JSON)
def verify(
    summary: Annotated[Path, typer.Argument(help="Release of block summaries.")],
    claims: Annotated[
        list[str],
        typer.Argument(help="What was published: 'hours > 0', '100 < age < 300'.", metavar="CLAIM"),
    ],
    as_json: bool,
) -> None:
    """Does a published analysis hold in the real data? A private answer for signs and intervals.

    The holder of the real rows publishes a block summary of the coefficients that the analysis is
    about (`release-summary --ask`); this reads it, and costs nothing.

    Example: noisewise verify summary.json "hours > 0" "0 < hours < 300"
    """
    from noisewise.analyst.posterior.summary import SummaryPosterior

    loaded = read_posterior(summary)
    if not isinstance(loaded, SummaryPosterior):
        raise RequestError(f"summary: {summary} is no block summary; use `noisewise show --ask`")
    found = loaded.verify(claims)
    if as_json:
        verdicts = list(found.to_dict().values())
        document = {"verdicts": verdicts, "warnings": list(loaded.warnings)}
        typer.echo(json.dumps(document, indent=1, allow_nan=False))
        return
    typer.echo(str(found))
    _warn(loaded.warnings)


@with_options(
    option("out", Path, "CSV file to write. Default: the screen."),
    LEVEL_OF_INTERVALS,
    option("seed", int, "Of the error term's draws."),
    option("target", str, "Of a network: the node to classify."),
)
def predict(
    posterior: PosteriorArgument,
    new: Annotated[Path, typer.Argument(help="CSV file with one column per feature.")],
    out: Path | None,
    level: float,
    seed: int | None,
    target: str | None,
) -> None:
    """Predict the target for new rows: mean, sd and predictive interval, in original units.

    Of a network: the probabilities of every level of the node that --target names.

    Example: noisewise predict post.nc new.csv --out predictions.csv
    """
    loaded = read_posterior(posterior)
    lines = loaded.predict(_columns(new), level, seed=seed, target=target).lines()
    if out is None:
        csv.writer(sys.stdout).writerows(lines)
    else:
        check_folder(out)
        with out.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(lines)
        typer.echo(f"Wrote {out}.")


@with_options(
    option("out", Path, "Folder for set-1.csv, set-2.csv ...", default=Path("synthetic")),
    option("sets", int, "Data sets, each of one draw.", default=20),
    option("rows", int, "Rows of each. Default: as many as there were."),
    option("columns", str, "That you will analyse together: says if that is sound."),
    option("seed", int, "Makes them reproducible."),
)
def synthesize(
    posterior: Annotated[Path, typer.Argument(help="Posterior file of a network.")],
    out: Path,
    sets: int,
    rows: int | None,
    columns: str | None,
    seed: int | None,
) -> None:
    """Write synthetic data sets that can be analysed with honest intervals, at no privacy cost.

    Each is of the network of one posterior draw. Run the same analysis on every one, and combine
    estimates and squared standard errors by `noisewise.pool` in Python: one set alone, or the rules
    for imputed data, give wrong intervals. Sets know no dependences but those of the network.

    Example: noisewise synthesize network.nc --sets 20 --columns region,disease --out synthetic
    """
    from noisewise.analyst.pool import congeniality
    from noisewise.analyst.posterior.network import NetworkPosterior

    loaded = read_posterior(posterior)
    if not isinstance(loaded, NetworkPosterior):
        raise RequestError("posterior: synthetic rows are made from the posterior of a network")
    warnings = congeniality(loaded, names_of(columns)) if columns else ()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RequestError(f"out: {out} is there already and not an empty folder; name a new one")
    if not out.exists():
        check_folder(out)
    many = loaded.rows_behind() if rows is None else rows
    made = loaded.synthetic_sets(sets, many, seed)
    for number, found in enumerate(made, 1):
        out.mkdir(exist_ok=True)
        _write_csv(out / f"set-{number}.csv", found)
    typer.echo(f"Wrote {sets} sets of {many:,} rows into {out}.")
    typer.echo(
        "Analyse each in the same way, then: noisewise.pool(estimates, squared_standard_errors, "
        f"rows={many}, posterior=noisewise.load_posterior({str(posterior)!r}), columns=[...])"
    )
    _warn(warnings)


def _write_csv(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([list(columns), *rows])


def _columns(path: Path) -> dict[str, list[str]]:
    """Columns of a CSV file with a head."""
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


@with_options(
    option("out", Path, "Picture: .png, .svg or .pdf.", default=Path("posterior.png")),
    option(
        "kind",
        str,
        "intervals, marginals (densities of the draws), pairs (each parameter against each other), "
        "effect (of features over their range), or forest (of each holder, after fit --varying).",
        default="intervals",
    ),
    option(
        "names",
        str,
        "Coefficients, nodes, or features of effects. Default: all slopes, or all that fit.",
    ),
    LEVEL_OF_INTERVALS,
)
def plot(
    posteriors: Annotated[
        list[Path], typer.Argument(help="Posterior files of the same model, compared by name.")
    ],
    out: Path,
    kind: str,
    names: str | None,
    level: float,
) -> None:
    """Draw credible intervals, densities, pairs of parameters or effects, in original units.

    With one file, what ignoring the noise would have given is drawn beside it. With several, they
    are compared with each other.

    Example: noisewise plot post.nc --kind marginals --out marginals.png
    """
    from noisewise.analyst.posterior.plots import plot as draw

    stems = [path.stem for path in posteriors]
    labels = stems if len(set(stems)) == len(stems) else [str(path) for path in posteriors]
    if len(set(labels)) < len(labels):
        raise RequestError("posteriors: a file is given twice")
    loaded = dict(zip(labels, map(read_posterior, posteriors), strict=True))
    draw(loaded, out, kind=kind, names=_names(names, "names"), level=level)
    typer.echo(f"Wrote {out}.")


@with_options(
    option("out", Path, "Web page to write, .html.", default=Path("report.html")),
    LEVEL,
    option("title", str, "Heading. Default: the model in words."),
)
def report(posterior: PosteriorArgument, out: Path, level: float, title: str | None) -> None:
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


@with_options(
    option("to", str, "csv, parquet or stan.", default=Option.empty),
    option(
        "out", Path, "File to write. Default: the source's name, ending in .csv, .parquet or .stan."
    ),
    option("target", str, "Of stan: released column to explain."),
    option("features", str, "Of stan: released columns, by commas."),
)
def export(
    source: Annotated[
        Path, typer.Argument(help="Posterior file, for csv and parquet; Release, for stan.")
    ],
    to: str,
    out: Path | None,
    target: str | None,
    features: str | None,
) -> None:
    """Write draws for R and other programs, or a Release as a Stan program with its data.

    csv and parquet have one row a draw: .chain, .iteration and .draw, counted from 1 as R's package
    posterior has them, then one column a parameter.

    stan writes a program, its data and starting values (NAME.stan, NAME.data.json,
    NAME.start.json): the posterior of method exact under the default prior, of one Release whose
    number of rows is public.

    Example: noisewise export post.nc --to parquet --out draws.parquet

    Example: noisewise export release.json --to stan --out model.stan
    """
    if to not in ("csv", "parquet", "stan"):
        raise RequestError(f"to: {to!r} is unknown; there are csv, parquet and stan")
    if to != "stan" and (target or features):
        raise RequestError("target and features are for stan; draws have those of their fit")
    path = source.with_suffix(f".{to}") if out is None else out
    if path.suffix != f".{to}":
        raise RequestError(f"out: {path} must end in .{to}")
    check_folder(path)
    if to == "stan":
        _write_stan(source, path, target, _names(features))
        return
    columns = _draws(source)
    if to == "csv":
        _write_csv(path, columns)
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(dict(columns)), path)
    typer.echo(f"Wrote {path}.")


def _draws(source: Path) -> Mapping[str, NDArray[Any]]:
    """Draws as R's package posterior knows them: places are counted from 1."""
    import numpy as np

    found = read_posterior(source).parameter_draws()
    chain, iteration = np.indices(next(iter(found.values())).shape).reshape(2, -1) + 1
    places = {".chain": chain, ".iteration": iteration, ".draw": np.arange(chain.size) + 1}
    return places | {name: values.reshape(-1) for name, values in found.items()}


def _write_stan(source: Path, path: Path, target: str | None, features: list[str] | None) -> None:
    from noisewise.analyst.regression.stan import stan_model
    from noisewise.core.kinds import load_release

    made = stan_model(load_release(source), target=target, features=features)  # type: ignore[arg-type]
    path.write_text(made.program, encoding="utf-8")
    data, start = path.with_suffix(".data.json"), path.with_suffix(".start.json")
    for file, content in ((data, made.data), (start, made.start)):
        file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    typer.echo(f"Wrote {path}, {data} and {start}. In theta are, in this order:")
    typer.echo("  " + ", ".join(made.names))


def read_posterior(path: Path) -> BasePosterior:
    """A posterior file, or a Release that needs no fit; others have to be fitted first."""
    from noisewise.analyst.fit import fit
    from noisewise.analyst.posterior.file import load_posterior
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


def say(posterior: BasePosterior, level: float = 0.95, **shown: Any) -> None:
    """Print what was found, with where it comes from and what to be warned of."""
    typer.echo(posterior.describe(level, **shown))
    _warn(posterior.warnings)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        typer.echo(f"Warning: {warning}", err=True)


def _names(text: str | None, argument: str = "features") -> list[str] | None:
    return None if text is None else names_of(text, argument)


def _without_nan(value: Any) -> Any:
    """JSON has no NaN; diagnostics that mean nothing (R-hat of one chain) become null."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


COMMANDS: tuple[Callable[..., None], ...] = (
    *(fit, methods, estimate, show, verify, predict, synthesize, plot, report, export),
)
