"""Commands for the holder of the rows: schema, release, ledger.

Heavy modules are imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import csv
import json
import shlex
import sys
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._progress import progress_bar

if TYPE_CHECKING:
    from ..holder.ledger import Account, Ledger, Quote
    from ..holder.request import Request

LedgerOption = Annotated[
    Path, typer.Option("--ledger", help="The budget file. Made at the first cap or release.")
]

schema_app = typer.Typer(no_args_is_help=True, help="Declare what is public about a table.")
ledger_app = typer.Typer(no_args_is_help=True, help="See and set privacy budgets.")


def add_to(app: typer.Typer) -> None:
    """Attach the holder's commands to the root command."""
    app.add_typer(schema_app, name="schema")
    app.command("release")(release)
    app.add_typer(ledger_app, name="ledger")


# ---------------------------------------------------------------------------------------------
# schema


@schema_app.command("new")
def schema_new(
    data: Annotated[Path, typer.Argument(help="CSV, Parquet or DuckDB file.")],
    out: Annotated[Path, typer.Option("--out", help="Where to write the schema.")] = Path(
        "schema.yaml"
    ),
    dataset: Annotated[
        str, typer.Option("--dataset", help="Name of the data set's budget. Default: file name.")
    ] = "",
    table: Annotated[str | None, typer.Option("--table", help="Table in a DuckDB file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a schema to fill in: column names and types, nothing else.

    Bounds and levels are left empty on purpose. They must be known without looking at the data:
    a legal limit, a physical range, a code book. The largest value in the data is somebody's.

    Example: noisewise schema new people.csv --out schema.yaml
    """
    from ..core.errors import RequestError
    from ..holder.template import schema_template

    if out.exists() and not force:
        raise RequestError(f"out: {out} exists; choose another name, or --force to overwrite it")
    text = schema_template(data, dataset or data.stem, table=table)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RequestError(f"out: cannot write {out}: {error.strerror}") from None
    check = ["noisewise", "schema", "check", str(out), "--data", str(data)]
    check += ["--table", table] if table else []
    typer.echo(
        f"Wrote {out}. Fill in public bounds and levels, delete columns you won't use, then:\n"
        f"  {shlex.join(check)}"
    )
    if data.suffix.lower() == ".csv":
        typer.echo("Column names come from the file's first line, which must be a header.")


@schema_app.command("check")
def schema_check(
    schema: Annotated[Path, typer.Argument(help="The schema file.")],
    data: Annotated[
        Path | None, typer.Option("--data", help="Also check that this file fits the schema.")
    ] = None,
    table: Annotated[str | None, typer.Option("--table", help="Table in a DuckDB file.")] = None,
) -> None:
    """Check a schema, and on request that a file fits it. Spends and publishes nothing.

    Example: noisewise schema check schema.yaml --data people.csv
    """
    from ..core.schema import Category
    from ..core.schema_file import read_schema

    declared = read_schema(schema)
    numbers = sum(not isinstance(c, Category) for c in declared.columns.values())
    typer.echo(
        f"{schema}: {numbers} numeric and {len(declared.columns) - numbers} categorical columns, "
        f"data set '{declared.dataset}', neighbours {declared.neighbours}, "
        f"up to {declared.max_rows_per_unit} row(s) per unit."
    )
    if data is not None:
        from ..holder.fit_check import check_data

        with progress_bar("checking", unit="rows", show=sys.stderr.isatty()) as progress:
            check_data(declared, data, table=table, progress=progress)
        typer.echo(f"{data} fits the schema.")


# ---------------------------------------------------------------------------------------------
# release


def release(
    data: Annotated[Path, typer.Option("--data", help="CSV, Parquet or DuckDB file.")],
    schema: Annotated[Path, typer.Option("--schema", help="Schema file with public bounds.")],
    target: Annotated[str, typer.Option("--target", help="Numeric column to explain.")],
    features: Annotated[
        str, typer.Option("--features", help="Columns that explain it, separated by commas.")
    ],
    ledger: LedgerOption,
    epsilon: Annotated[
        str | None, typer.Option("--epsilon", help="Privacy loss to spend, such as 1 or 0.5.")
    ] = None,
    delta: Annotated[
        str | None,
        typer.Option("--delta", help="For Gaussian noise; well below 1 / (number of people)."),
    ] = None,
    rho: Annotated[
        str | None, typer.Option("--rho", help="zCDP budget instead of epsilon and delta.")
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option("--mechanism", help="laplace, or gaussian (default when delta is given)."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Where to write the Release.")] = Path(
        "release.json"
    ),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show noise and cost; read no rows, spend nothing.")
    ] = False,
    radius: Annotated[
        float | None,
        typer.Option("--radius", help="Force rows into a ball (Gaussian, many features)."),
    ] = None,
    layout: Annotated[
        str | None, typer.Option("--layout", help="upper or isometric (Gaussian).")
    ] = None,
    fourth_moments: Annotated[
        str | None,
        typer.Option("--fourth-moments", help="Share of the budget for fourth moments."),
    ] = None,
    smallest_eigenvalue: Annotated[
        str | None,
        typer.Option(
            "--smallest-eigenvalue", help="Share of the budget for the eigenvalue of adaSSP."
        ),
    ] = None,
    label: Annotated[
        str, typer.Option("--label", help="Marks a new release of an equal request; costs anew.")
    ] = "",
    append: Annotated[
        Path | None,
        typer.Option("--append", help="Folder of a series: write this batch's Release into it."),
    ] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", help="Name of the batch, such as 2026-09.")
    ] = None,
    disjoint: Annotated[
        bool,
        typer.Option("--disjoint", help="I declare that nobody is in two batches of the series."),
    ] = False,
    engine: Annotated[
        str, typer.Option("--engine", help="auto, memory, stream or duckdb.")
    ] = "auto",
    table: Annotated[str | None, typer.Option("--table", help="Table in a DuckDB file.")] = None,
    query: Annotated[
        str | None, typer.Option("--query", help="Query on a DuckDB file, one row a row.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Publish a differentially private Release of regression statistics.

    Charges the budget first, sums the rows exactly, adds noise, and writes one small file that may
    be published. The same request again returns the stored Release at no cost.

    A stream is published batch by batch with --append and --batch, after which the rows may be
    erased. Batches add up in the budget; with --disjoint a person bears the cost of one batch
    only, which needs a schema that protects one row per person.

    Example: noisewise release --data people.parquet --schema schema.yaml --target income
    --features age,region --epsilon 1 --ledger budget.db --out release.json
    """
    from ..core.schema_file import read_schema
    from ..holder.request import make_request

    request = make_request(
        read_schema(schema),
        target=target,
        features=_names(features),
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        mechanism=mechanism,
        radius=radius,
        layout=layout,
        fourth_moments=fourth_moments,
        smallest_eigenvalue=smallest_eigenvalue,
        label=label or batch or "",
        batch=batch if disjoint else None,
    )
    if append is not None or batch is not None or disjoint:
        out = _batch_path(append, batch, request)
    if dry_run:
        from ..holder.publish import check_columns, check_writable

        if append is None or append.exists():
            check_writable(out)
        check_columns(request, data, engine=engine, table=table, query=query)
        _dry_run(request, ledger, as_json, table, query)
        return
    from ..holder.ledger import Ledger
    from ..holder.publish import publish

    if append is not None:
        append.mkdir(parents=True, exist_ok=True)
    with Ledger(ledger) as budget:
        with progress_bar("summing", unit="rows", show=sys.stderr.isatty()) as progress:
            outcome = publish(
                request,
                data,
                ledger=budget,
                out=out,
                engine=engine,
                table=table,
                query=query,
                progress=progress,
            )
        dataset = request.design.schema.dataset
        account = _account(budget, dataset)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "release": str(out),
                    "digest": outcome.release.digest,
                    "repeated": outcome.repeated,
                    **_account_json(account),
                }
            )
        )
        return
    if not outcome.repeated:
        typer.echo(f"Published {out} with {outcome.release.claim}.")
        if delta is not None and outcome.release.claim.delta == 0:
            typer.echo("Laplace noise spends no delta.")
    else:
        typer.echo(
            f"Wrote {out}: the stored Release of this request, at no cost. Nothing was read. A "
            "second draw of noise would be a second release. If the data are new, give the "
            "request a --label; it is then charged."
        )
    if outcome.cap_was_implicit:
        typer.echo(
            f"No cap was set for '{dataset}', so this release's cost became the cap. Set one with: "
            f"noisewise ledger cap --ledger {shlex.quote(str(ledger))} "
            f"--dataset {shlex.quote(dataset)} --epsilon ..."
        )
    typer.echo(_account_line(account))


def _batch_path(append: Path | None, batch: str | None, request: Request) -> Path:
    from ..core.errors import RequestError
    from ..holder.series import batch_path

    if append is None or batch is None:
        raise RequestError(
            "append: a series needs both --append FOLDER and --batch NAME (and --disjoint if "
            "nobody is in two batches)"
        )
    return batch_path(append, batch, request)


def _names(text: str) -> list[str]:
    """Column names from comma-separated text; a name with a comma goes in double quotes."""
    try:
        return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    except csv.Error:
        from ..core.errors import RequestError

        raise RequestError("features: expected names separated by commas, on one line") from None


def _dry_run(
    request: Request, ledger: Path, as_json: bool, table: str | None, query: str | None
) -> None:
    from ..core.grid import STATISTIC_ONE
    from ..core.noise import DISCRETE_FAMILIES
    from ..holder.ledger import Ledger

    with Ledger(ledger) as budget:
        quote = budget.preview(request.charge(table=table, query=query))
    planned = []
    for statistic, mechanism in zip(request.statistics, request.mechanisms, strict=True):
        law = DISCRETE_FAMILIES[mechanism.family](mechanism.scale).continuous()
        planned.append(
            {
                "statistic": statistic.name,
                "entries": len(statistic.entries),
                "sensitivity": mechanism.sensitivity / STATISTIC_ONE,
                "noise": mechanism.family,
                "scale": mechanism.scale / STATISTIC_ONE,
                "standard_deviation": law.variance**0.5,
            }
        )
    if as_json:
        typer.echo(json.dumps({"measurements": planned, "budget": _quote_json(quote)}))
    else:
        typer.echo(f"Dry run: nothing is read, spent or written. Asked for: {request.claim}.")
        typer.echo(f"Privacy unit: {quote.unit}. Design columns: {', '.join(request.design.names)}")
        for item in planned:
            typer.echo(
                f"  {item['statistic']}: {item['entries']} sums on unit scale, sensitivity "
                f"{item['sensitivity']:.6g}, {item['noise']} scale {item['scale']:.6g} "
                f"(standard deviation {item['standard_deviation']:.6g})"
            )
        _say_quote(quote)
    if not quote.allowed:
        raise typer.Exit(5)


def _say_quote(quote: Quote) -> None:
    if quote.already_published:
        typer.echo("Already published: asking again returns the stored Release at no cost.")
    if quote.refusal:
        typer.echo(quote.refusal)
        return
    cap = f"epsilon {float(quote.cap_epsilon):g}"
    if quote.cap_delta:
        cap += f" at delta {float(quote.cap_delta):g}"
    if quote.cap_is_implicit:
        cap += " (no cap is set: this request's cost would become the cap)"
    typer.echo(f"Budget of '{quote.dataset}': cap {cap}.")
    before, after = quote.remaining_before, quote.remaining_after
    typer.echo(
        f"  spent so far {float(quote.spent_epsilon):.6g}, remaining {_down(before)} now and "
        f"{_down(before if after is None else after)} after this release."
    )


def _down(value: Any) -> str:
    """Six digits, never more than there is; dust left by outward rounding is nothing."""
    number = float(value)
    if number < 1e-9:
        return "0"
    text = f"{number:.6g}"
    return text if float(text) <= number else f"{number - 1e-6 * abs(number):.6g}"


# ---------------------------------------------------------------------------------------------
# ledger


@ledger_app.command("cap")
def ledger_cap(
    ledger: LedgerOption,
    dataset: Annotated[str, typer.Option("--dataset", help="Name of the data set.")],
    epsilon: Annotated[str, typer.Option("--epsilon", help="Largest total privacy loss.")],
    delta: Annotated[
        str, typer.Option("--delta", help="Needed for Gaussian releases; 0 allows pure ones only.")
    ] = "0",
) -> None:
    """Set how much privacy loss a data set may ever cost in total.

    Example: noisewise ledger cap --ledger budget.db --dataset people --epsilon 3 --delta 1e-5
    """
    from ..core.privacy import as_fraction
    from ..holder.ledger import Ledger

    with Ledger(ledger) as budget:
        budget.set_cap(dataset, as_fraction(epsilon, "epsilon"), as_fraction(delta, "delta"))
        account = _account(budget, dataset)
    typer.echo(_account_line(account))


@ledger_app.command("show")
def ledger_show(
    ledger: LedgerOption,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show every data set's cap, what is spent and what remains, and all charges.

    Example: noisewise ledger show --ledger budget.db
    """
    from ..holder.ledger import Ledger

    with Ledger(ledger, create=False) as budget:
        accounts = budget.accounts()
    if as_json:
        typer.echo(json.dumps({"datasets": [_account_json(a) for a in accounts]}, indent=1))
        return
    if not accounts:
        typer.echo(f"{ledger}: no data set yet.")
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for account in accounts:
        console.print(_account_line(account), markup=False, highlight=False)
        table = Table("charged (UTC)", "status", "epsilon", "delta", "what")
        for charge in account.charges:
            table.add_row(
                charge.reserved_at[:19].replace("T", " "),
                charge.status,
                f"{float(charge.charge.epsilon):g}",
                f"{float(charge.charge.delta):g}",
                charge.charge.summary,
            )
        if account.charges:
            console.print(table)


def _account(ledger: Ledger, dataset: str) -> Account:
    """The account of this data set; the ledger keeps names in composed Unicode (NFC)."""
    name = unicodedata.normalize("NFC", dataset)
    return next(account for account in ledger.accounts() if account.dataset == name)


def _account_line(account: Account) -> str:
    spent = f"spent epsilon {float(account.spent_epsilon):.6g}"
    if account.cap_epsilon is None:
        return f"Budget of '{account.dataset}': no cap, {spent}."
    at = f" at delta {float(account.cap_delta):g}" if account.cap_delta else ""
    return (
        f"Budget of '{account.dataset}': cap epsilon {float(account.cap_epsilon):g}{at}, {spent}, "
        f"remaining {_down(account.remaining_epsilon)}."
    )


def _account_json(account: Account) -> dict[str, Any]:
    """Numbers as JSON numbers for scripts; the exact text is in the ledger."""
    return _numbers(account.to_json())


def _quote_json(quote: Quote) -> dict[str, Any]:
    return _numbers(quote.to_json())


def _numbers(document: dict[str, Any]) -> dict[str, Any]:
    from ..core.privacy import as_fraction

    def convert(key: str, value: Any) -> Any:
        if isinstance(value, list):
            return [_numbers(item) if isinstance(item, dict) else item for item in value]
        amount = key.endswith(("epsilon", "delta")) or key.startswith("remaining")
        if amount and isinstance(value, str):
            return float(as_fraction(value, key))
        return value

    return {key: convert(key, value) for key, value in document.items()}
