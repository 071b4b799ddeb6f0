"""The options of all commands that share some, each written once, and how their texts are read."""

from __future__ import annotations

import csv
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from noisewise.core.errors import RequestError
from noisewise.core.yaml_files import PlainYamlError, read_yaml

if TYPE_CHECKING:
    from noisewise.holder.requests.file import Asked

EXPERTS = "For experts"  # the panel of --help that comes last

Option = inspect.Parameter
Command = TypeVar("Command", bound=Callable[..., None])


def flag(name: str) -> str:
    """As it is typed."""
    return "--" + name.replace("_", "-")


def option(
    name: str,
    kind: Any,
    text: str,
    *flags: str,
    default: Any = None,
    panel: str | None = None,
    shown: str | None = None,
    least: int | None = None,
) -> Option:
    """An option that several commands take, as a keyword of this name."""
    info = typer.Option(
        *(flags or (flag(name),)),
        help=text,
        rich_help_panel=panel,
        show_default=True if shown is None else shown,
        min=least,
    )
    annotation: Any = Annotated[kind | None if default is None else kind, info]
    return Option(name, Option.KEYWORD_ONLY, default=default, annotation=annotation)


def expert(name: str, kind: Any, text: str, **more: Any) -> Option:
    """An option in the panel that comes last."""
    return option(name, kind, text, panel=EXPERTS, **more)


def with_options(*options: Option) -> Callable[[Command], Command]:
    """Give a command these options before its own; it takes them as keywords (`**given`)."""

    def decorate(command: Command) -> Command:
        shared = {each.name for each in options}
        own = [
            each.replace(kind=Option.KEYWORD_ONLY)
            for each in inspect.signature(command, eval_str=True).parameters.values()
            if each.kind != Option.VAR_KEYWORD and each.name not in shared
        ]
        command.__signature__ = inspect.Signature([*options, *own])  # type: ignore[attr-defined]
        return command

    return decorate


# --- what is asked for, by the kind of a request file ---------------------------------------------

ASKED = (
    option("schema", Path, "Schema file with public bounds."),
    option("request", Path, "Request file: it says what these options leave out."),
    option("save_request", Path, "Write what is asked for to a request file, too."),
)
_TARGET = option("target", str, "Column to explain.")
_FEATURES = option("features", str, "Columns that explain it, separated by commas.")
_EPSILON = option("epsilon", str, "Privacy loss to spend, such as 1 or 0.5.")
FAMILIES = "linear; logistic, for a target of yes or no; poisson, for counts."
FAMILY = option("family", str, FAMILIES, shown="linear")
_LABEL = expert("label", str, "Marks a new release of an equal request; costs again.")
_RADIUS = expert("radius", float, "Force rows into a ball, on unit scale.")

REGRESSION = (
    _TARGET,
    _FEATURES,
    option("formula", str, "Both at once: 'visits ~ age*health + log1p(income)'."),
    _EPSILON,
    option("delta", str, "For Gaussian noise; well below 1 / (number of people)."),
    FAMILY,
    option("mechanism", str, "laplace, or gaussian (default when delta is given)."),
    expert("rho", str, "zCDP budget instead of epsilon and delta."),
    _RADIUS,
    expert("layout", str, "upper or isometric (Gaussian)."),
    expert("fourth_moments", str, "Share of the budget for fourth moments."),
    expert("smallest_eigenvalue", str, "Share of the budget for the eigenvalue of adaSSP."),
    expert(
        "rounds",
        str,
        "Find the data's own scale: at most so many rounds; 1: none of that. With Gaussian noise:",
        shown="auto",
    ),
    option("reach_of", str, "Last year's Release: count the same rows in full, explore nothing."),
    _LABEL,
)
SUMMARY = (
    _TARGET,
    _FEATURES,
    _EPSILON,
    option("ask", list[str], "A question such as 'x1 < 0'; may be repeated."),
    option("coefficients", str, "Publish what is known of these, with commas."),
    option(
        "model",
        str,
        "What a block fits: least_squares, logistic, poisson, quantile (or quantile:0.9), huber or "
        "cox.",
        shown="least_squares",
    ),
    option("rows", int, "Number of rows. Default: what a Parquet file says."),
    expert("quantiles", str, "Instead, these quantiles of them, such as 0.05,0.95."),
    expert("bounds", list[str], "Public bounds of a coefficient, such as x1=-10:10."),
    expert("base", list[str], "Where a coefficient might be: centre and scale, x1=0:100."),
    expert(
        "mechanism",
        str,
        "mean, sign, stouffer, rescaled_normal, fisher, location_scale or clipped_mean.",
    ),
    expert("blocks", int, "Number of blocks, M."),
    expert("partitions", int, "How often rows are put into blocks, r."),
    expert("posterior", str, "Of a block: flat, or g_prior.", shown="flat"),
    expert("g", float, "Of the g_prior. Default: the number of rows."),
    expert("clip", float, "Of stouffer."),
    expert("p_star", float, "Of fisher."),
    _LABEL,
)
NETWORK = (
    _EPSILON,
    option("delta", str, "With --graph learn, for Gaussian noise; well below 1 / (people)."),
    option("graph", Path, "YAML file: every node and a list of parents; or the word learn."),
    option("edges", str, "Edges, such as 'smoker>cough, region>cough'."),
    option("naive_bayes", str, "Column that is the parent of all others."),
    option("features", str, "Its children, or the columns to learn among; else all."),
    option("mechanism", str, "laplace, fourier, posterior_sample or map.", shown="laplace"),
    expert("kind", str, "Of map: counts, tempered or grid."),
    expert("draws", int, "Number of posterior draws; they share epsilon."),
    expert("omega", str, "Smallest split probability of drawn tables."),
    expert("temper", str, "Power of the likelihood, up to 1."),
    expert("points", int, "Values of a split, for map with kind grid."),
    expert("concentration", str, "Dirichlet prior of drawn tables, a cell.", shown="1"),
    _LABEL,
)
DRAWS = (
    _TARGET,
    _FEATURES,
    option("noise_sd", str, "Known standard deviation of the target, in its unit."),
    option("epsilon", str, "Privacy loss to spend; without it, whatever draws cost."),
    option("draws", int, "Number of posterior draws.", shown="1"),
    _RADIUS,
    expert("largest_norm", str, "Of the coefficients, on unit scale.", shown="1"),
    expert("prior_precision", str, "Of a coefficient, on unit scale.", shown="1"),
    _LABEL,
)
SERIES = (
    expert("append", Path, "Folder of a series: write this batch's Release into it."),
    expert("batch", str, "Name of the batch, such as 2026-09."),
    expert(
        "disjoint",
        bool,
        "I declare that nobody is in two batches of the series that --series names.",
        default=False,
    ),
    expert(
        "series",
        str,
        "Name of the series for --disjoint, the same for all its batches. Costs of other series of "
        "the data set are added.",
    ),
    expert("partition", str, "Public category: one Release a level, for the cost of one."),
)
KINDS = {"regression": REGRESSION, "summary": SUMMARY, "network": NETWORK, "draws": DRAWS}

# --- where rows come from, who pays, and how it is said -------------------------------------------

JSON = option("as_json", bool, "Print the outcome as JSON.", "--json", default=False)
PRINT_JSON = option("as_json", bool, "Print JSON.", "--json", default=False)
DATA_HELP = (
    "CSV, Parquet or DuckDB file, postgresql://USER@HOST/DATABASE, or spark:TABLE or spark:PATH."
)
DATA = option("data", str, DATA_HELP, default=Option.empty)
LEDGER = option(
    "ledger", Path, "The budget file, made by: noisewise ledger cap.", default=Option.empty
)
TABLE = expert("table", str, "Table in a database.")
SPARK = expert(
    "spark_config", list[str], "Setting of Spark, such as spark.master=yarn; may be repeated."
)
SOURCE = (
    expert("engine", str, "auto, memory, stream, duckdb, postgres or spark.", default="auto"),
    TABLE,
    expert("query", str, "Query on a database's own tables, whose result is the rows."),
    expert(
        "query_attested_by",
        str,
        "Name of who answers for it, if noisewise can't tell, that each row of the query's result "
        "depends on the rows of one unit alone; kept in the ledger.",
    ),
    SPARK,
)
PASSPHRASE = expert("passphrase_file", Path, "File with the key's passphrase; else you are asked.")
PUBLICATION = (
    LEDGER,
    option("dry_run", bool, "Show noise and cost; read no rows, spend nothing.", default=False),
    option("purpose", str, "Why: kept in the ledger, not in the Release.", default=""),
    option("sign", Path, "Sign the Release with this key, made by: noisewise keys new."),
    PASSPHRASE,
    expert(
        "same_data",
        bool,
        "I confirm that a pending charge was made for these rows, in another place.",
        default=False,
    ),
    JSON,
    *SOURCE,
)


def out_option(name: str) -> Option:
    """Where a Release goes."""
    return option("out", Path, "Where to write the Release.", shown=name)


def shown(data: str) -> str:
    """The data as they may be printed: the address of a server may hold a password."""
    from noisewise.holder.engines import is_server

    if not is_server(data) or (data.startswith("spark:") and "@" not in data):
        return data
    return "spark:..." if data.startswith("spark:") else "postgresql://..."


def start_spark(settings: Sequence[str] | None, data: str | None) -> None:
    """Start Spark with the settings of --spark-config, each NAME=VALUE; values may be secrets."""
    if not settings:
        return
    if data is None or not data.startswith("spark:"):
        raise RequestError("spark_config: only --data spark:TABLE takes settings of Spark")
    pairs = {name: value for name, _, value in (text.partition("=") for text in settings)}
    if not all(name and value for name, value in pairs.items()):
        raise RequestError("spark_config: expected NAME=VALUE, such as spark.master=yarn")
    from noisewise.holder.engines import start_spark_session

    start_spark_session(pairs)


# --- from texts to what is asked for --------------------------------------------------------------


def is_given(value: Any) -> bool:
    """Whether an option without a default was used."""
    return value is not None and value != [] and value != ()


def words_of(given: dict[str, Any]) -> dict[str, Any]:
    """Options that were given, in the words of a request file."""
    return {
        name: _READERS[name](value, name) if name in _READERS else value
        for name, value in given.items()
        if is_given(value)
    }


def asked(
    kind: str,
    /,
    *,
    schema: Path | None,
    request: Path | None = None,
    save_request: Path | None = None,
    **given: Any,
) -> Asked:
    """What is asked for: the request file, if there is one, with these options in place of its own.

    Raises
    ------
    RequestError
        Also if the file is of another kind.
    """
    from noisewise.holder.requests.file import Asked, read_asked

    found = Asked(kind, {}) if request is None else read_asked(request)
    if found.kind != kind:
        raise RequestError(
            f"request: {request} asks for a {found.kind} release and this command publishes "
            f"another kind ({kind})"
        )
    found = found.changed(words_of(given))
    found = Asked(kind, found.words, found.schema if schema is None else schema)
    if save_request is not None:
        found.make()  # what is wrong is not kept
        found.save(save_request)
    return found


def names_of(text: str, argument: str = "features") -> list[str]:
    """Column names from comma-separated text; a name with a comma goes in double quotes."""
    try:
        return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    except csv.Error:
        raise RequestError(f"{argument}: expected names separated by commas, on one line") from None


def number(text: str, argument: str) -> float:
    """The number that a text is."""
    try:
        return float(text)
    except ValueError:
        raise RequestError(f"{argument}: expected a number, got {text.strip()!r}") from None


def _numbers(text: str, argument: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        wanted = "numbers separated by commas"
        raise RequestError(f"{argument}: expected {wanted}, got {text!r}") from None


def _pairs(texts: Sequence[str], argument: str) -> dict[str, tuple[float, float]]:
    found = {}
    for text in texts:
        name, equals, numbers = text.rpartition("=")
        try:
            first, second = (float(part) for part in numbers.split(":"))
        except ValueError:
            equals = ""
        if not equals:
            raise RequestError(f"{argument}: expected NAME=NUMBER:NUMBER, got {text!r}")
        if name.strip() in found:
            raise RequestError(f"{argument}: {name.strip()!r} is given twice")
        found[name.strip()] = (first, second)
    return found


def _read_graph(path: Path, argument: str) -> Any:
    if str(path) == "learn":
        return "learn"
    try:
        return read_yaml(path)
    except FileNotFoundError:
        raise RequestError(f"{argument}: there is no file {path}") from None
    except PlainYamlError as error:
        raise RequestError(f"{argument}: {path}: {error}") from None


_READERS: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("features", "coefficients", "edges"), names_of),
    **dict.fromkeys(("bounds", "base"), _pairs),
    "quantiles": _numbers,
    "graph": _read_graph,
}
