"""What a holder declares and keeps: `noisewise schema`, `noisewise ledger` and `noisewise clean`.

Heavy modules are imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import json
import shlex
import sys
import unicodedata
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from noisewise._progress import progress_bar
from noisewise.cli.options import (
    DATA_HELP,
    LEDGER,
    PRINT_JSON,
    SOURCE,
    SPARK,
    TABLE,
    Option,
    option,
    shown,
    start_spark,
    with_options,
)
from noisewise.core.errors import RequestError
from noisewise.core.privacy import as_fraction
from noisewise.core.schema import Category
from noisewise.core.yaml_files import read_schema
from noisewise.holder.ledger import Account, Ledger, Quote

# --- the schema -----------------------------------------------------------------------------------

schema_app = typer.Typer(no_args_is_help=True, help="Declare what is public about a table.")


@schema_app.command("new")
@with_options(
    option("out", Path, "Where to write the schema.", default=Path("schema.yaml")),
    option(
        "dataset",
        str,
        "Name of the data set's budget. Default: name of the file or table.",
        default="",
    ),
    option("unit", str, "The column that says whose row it is, if people have several."),
    option(
        "codebook",
        Path,
        "Takes bounds, levels, labels and units from a code book: YAML, CSV (columns name, min, "
        "max, levels, label, unit_of_measure), or DDI XML (valid ranges only).",
    ),
    *(TABLE, SPARK),
    option("force", bool, "Overwrite an existing file.", default=False),
)
def schema_new(
    data: Annotated[str, typer.Argument(help=DATA_HELP)],
    out: Path,
    dataset: str,
    unit: str | None,
    codebook: Path | None,
    table: str | None,
    spark_config: list[str] | None,
    force: bool,
) -> None:
    """Write a schema to fill in: column names and types, nothing else of the data.

    Bounds and levels are left empty on purpose. They must be known without looking at the data:
    a legal limit, a physical range, a code book. The largest value in the data is somebody's.
    With --codebook, a file that declares them fills them in.

    Example: noisewise schema new people.csv --out schema.yaml
    """
    from noisewise.holder.engines import is_server
    from noisewise.holder.schema_files import read_codebook, schema_template

    if out.exists() and not force:
        raise RequestError(f"out: {out} exists; choose another name, or --force to overwrite it")
    start_spark(spark_config, data)
    book = None if codebook is None else read_codebook(codebook)
    named = (table or "") if is_server(data) else Path(data).stem
    if data.startswith("spark:"):
        named = Path(data.partition(":")[2]).stem
    text = schema_template(data, dataset or named, table=table, unit=unit, codebook=book)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RequestError(f"out: cannot write {out}: {error.strerror}") from None
    check = ["noisewise", "schema", "check", str(out), "--data", shown(data)]
    check += ["--table", table] if table else []
    typer.echo(
        f"Wrote {out}. Fill in public bounds and levels, delete columns you won't use, then:\n"
        f"  {shlex.join(check)}"
    )
    if not is_server(data) and Path(data).suffix.lower() == ".csv":
        typer.echo("Column names come from the file's first line, which must be a header.")


@schema_app.command("check")
@with_options(option("data", str, f"Also check that this fits it: {DATA_HELP}"), *SOURCE)
def schema_check(
    schema: Annotated[Path, typer.Argument(help="The schema file.")],
    data: str | None,
    spark_config: list[str] | None,
    **source: Any,
) -> None:
    """Check a schema, and on request that a file fits it. Spends and publishes nothing.

    With --data it is the rehearsal of a release, for the holder only: it reads the rows and finds
    what a release would fail on, which then would leave its charge pending.

    Example: noisewise schema check schema.yaml --data people.csv
    """
    start_spark(spark_config, data)
    declared = read_schema(schema)
    numbers = sum(not isinstance(c, Category) for c in declared.columns.values())
    owned = f"up to {declared.max_rows_per_unit} row(s) per unit"
    if declared.unit_column is not None:
        owned = f"all rows with one '{declared.unit_column}' averaged into one"
    typer.echo(
        f"{schema}: {numbers} numeric and {len(declared.columns) - numbers} categorical columns, "
        f"data set '{declared.dataset}', neighbours {declared.neighbours}, {owned}."
    )
    if data is not None:
        from noisewise.holder.schema_files import check_data, merged_ids

        with progress_bar("checking", unit="rows", show=sys.stderr.isatty()) as progress:
            n = check_data(declared, data, progress=progress, **source)
        _say_leftovers()
        typer.echo(f"{shown(data)} fits the schema.")
        if declared.n_is_public:
            counted = declared.counted
            typer.echo(
                f"It has {n:,} {counted}: for Gaussian noise give a delta below "
                f"{1 / (10 * n):.0e}, and never one above 1 / (number of {counted})."
            )
        if declared.unit_column is not None:
            typer.echo(_spellings(merged_ids(declared, data, n, **source)))


def _spellings(merged: dict[str, int]) -> str:
    """What the rehearsal found about ids, marked as what it is."""
    if not merged:
        return "PRIVATE: no two ids differ in spelling alone, as far as type and fold can tell."
    counts = "; ".join(f"with '{words}' {count:,}" for words, count in merged.items())
    return (
        f"PRIVATE, about the data, not to be passed on: ids that would be one with another id: "
        f"{counts}. If these are spellings of one person's id, that person now counts more than "
        "once and has less protection: write the rule into 'unit' of the schema, or mend the data."
    )


# --- budgets: to see and set them, and in words and as JSON ---------------------------------------

ledger_app = typer.Typer(no_args_is_help=True, help="See and set privacy budgets.")


@ledger_app.command("cap")
@with_options(
    LEDGER,
    option("dataset", str, "Name of the data set.", default=Option.empty),
    option("epsilon", str, "Largest total privacy loss.", default=Option.empty),
    option("delta", str, "Needed for Gaussian releases; 0 allows pure ones only.", default="0"),
    option(
        "new", bool, "Confirm a new data set whose name is much like a known one.", default=False
    ),
)
def ledger_cap(ledger: Path, dataset: str, epsilon: str, delta: str, new: bool) -> None:
    """Set how much privacy loss a data set may ever cost in total.

    Nothing is released without it. The first cap makes the ledger.

    Example: noisewise ledger cap --ledger budget.db --dataset people --epsilon 3 --delta 1e-5
    """
    with Ledger(ledger) as budget:
        budget.set_cap(dataset, epsilon, delta, new=new)
        set_now = account(budget, dataset)
    typer.echo(f"{account_line(set_now)}\n{rule_line(set_now)}")


@ledger_app.command("show")
@with_options(LEDGER, PRINT_JSON)
def ledger_show(ledger: Path, as_json: bool) -> None:
    """Show every data set's cap, what is spent and what remains, and who asked for what and why.

    Charges add up, pending ones included. Of the batches of a series that is declared disjoint only
    the costliest counts; different series add up.

    Example: noisewise ledger show --ledger budget.db
    """
    with Ledger(ledger, create=False) as budget:
        accounts = budget.accounts()
    _say_leftovers()
    if as_json:
        typer.echo(json.dumps({"datasets": [account_json(a) for a in accounts]}, indent=1))
        return
    if not accounts:
        typer.echo(f"{ledger}: no data set yet.")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for each in accounts:
        console.print(account_line(each), markup=False, highlight=False)
        if each.rule is not None:
            console.print(rule_line(each), markup=False, highlight=False)
        streams = any(record.charge.batch is not None for record in each.charges)
        columns = ("series", "batch") if streams else ()
        asked = ["user", "purpose"] if any(record.user for record in each.charges) else []
        asked += ["attested_by"] if any(record.attested_by for record in each.charges) else []
        titles = (column.replace("_", " ") for column in asked)
        table = Table("charged (UTC)", "status", "epsilon", "delta", *columns, "what", *titles)
        for record in each.charges:
            charge = record.charge
            table.add_row(
                record.reserved_at[:19].replace("T", " "),
                record.status,
                f"{float(charge.epsilon):g}",
                f"{float(charge.delta):g}",
                *(Text(getattr(charge, column) or "") for column in columns),
                Text(charge.summary),
                *(Text(getattr(record, column)) for column in asked),
            )
        if each.charges:
            console.print(table)
        if streams:
            console.print(_what_is_added(each), markup=False, highlight=False)
        if any(record.status == "pending" for record in each.charges):
            console.print(_what_is_pending(each), markup=False, highlight=False)


def _what_is_pending(account: Account) -> str:
    """Which charges have no Release yet, and what to do."""
    from noisewise.holder.ledger.refusals import in_words
    from noisewise.holder.publish import REHEARSAL

    pending = [record for record in account.charges if record.status == "pending"]
    runs = "; ".join(
        f"{one.charge.summary} (epsilon {one.charge.epsilon})"
        + (f" of {in_words(one.source)}" if one.source else "")
        for one in pending
    )
    return (
        f"Pending: {runs}. Charged and not published: the run was interrupted, or the data did "
        "not fit. It counts, because rows may have been read, and is never lifted. Repair the "
        "data if need be and give the same command again: it completes at no further cost. "
        f"{REHEARSAL}."
    )


@ledger_app.command("export")
@with_options(
    LEDGER,
    option("out", Path, "Where to write it: .md or .json.", default=Option.empty),
    option("as_json", bool, "Write JSON, whatever the file is called.", "--json", default=False),
)
def ledger_export(ledger: Path, out: Path, as_json: bool) -> None:
    """Write an audit sheet: all that was promised, at what cost, and what it rests on.

    Privacy unit, neighbours, epsilon and delta by release and in total, mechanisms, bounds,
    assumptions, trust model, side channels and exposure, as NIST SP 800-226 asks for them; and who
    asked for what, when and why. It is for the holder and whoever checks the holder.

    Example: noisewise ledger export --ledger budget.db --out sheet.md
    """
    from noisewise.holder.audit_sheet import audit_sheet, sheet_markdown, write_sheet

    with Ledger(ledger, create=False) as budget:
        sheet = audit_sheet(budget)
    in_json = as_json or out.suffix.lower() == ".json"
    write_sheet(out, json.dumps(sheet, indent=1) + "\n" if in_json else sheet_markdown(sheet))
    typer.echo(f"Wrote {out}.")


# --- what killed runs left ------------------------------------------------------------------------


@with_options(option("yes", bool, "Remove without asking.", default=False))
def clean(yes: bool) -> None:
    """List temporary files and folders of killed runs, and remove them if you agree.

    Nothing is removed unless noisewise can prove that it made it, for you and on this machine. All
    else is listed with the reason why it stays.

    Example: noisewise clean
    """
    from noisewise.core.temporary import leftovers, remove_leftover

    try:
        known = leftovers()
    except OSError as error:
        raise RequestError(f"clean: the list of temporary files can't be used: {error}") from None
    ours = [one for one in known if not one.stays]
    typer.echo("Left by killed runs:" if ours else "Nothing is left that can be removed.")
    for leftover in sorted(known, key=lambda one: bool(one.stays)):
        typer.echo(f"  {leftover}")
    if ours and (yes or typer.confirm("Remove what was left? It can't be undone.")):
        kept = [one for one in map(remove_leftover, ours) if one is not None]
        typer.echo(f"Removed {len(ours) - len(kept)} of {len(ours)}.")
        for leftover in kept:
            typer.echo(f"  {leftover}")


def _say_leftovers() -> None:
    """A hint on stderr: leftovers may hold rows."""
    from noisewise.core.temporary import leftovers

    with suppress(OSError):
        if number := sum(not one.stays for one in leftovers()):
            typer.echo(
                f"Killed runs left {number} temporary file(s) or folder(s), which may hold rows: "
                "noisewise clean",
                err=True,
            )


def _what_is_added(account: Account) -> str:
    """How the charges of streams make up what is spent."""
    live = [record.charge for record in account.charges if record.counts]
    words = (
        "Spent: the charges without a series, and for every series those of its costliest batch "
        "(you declared that nobody is in two batches of a series), are added up."
    )
    if any(charge.batch is not None and charge.series is None for charge in live):
        words += " A batch without a series is not declared disjoint from any other: it is added."
    return words


# --- budgets in words and as JSON -----------------------------------------------------------------


def say_quote(quote: Quote) -> None:
    """What a request would cost, and what would be left."""
    if quote.already_published:
        typer.echo("Already published: asking again returns the stored Release at no cost.")
    if quote.refusal:
        typer.echo(quote.refusal)
        return
    if quote.cap_epsilon is None:  # already published, in a ledger from when caps need not be set
        return
    cap = f"epsilon {_float(quote.cap_epsilon):g}"
    if quote.cap_delta:
        cap += f" at delta {_float(quote.cap_delta):g}"
    typer.echo(f"Budget of '{quote.dataset}': cap {cap}.")
    now = _remaining(quote, quote.remaining_before, quote.gaussian_before)
    after = now
    if quote.remaining_after is not None:
        after = _remaining(quote, quote.remaining_after, quote.gaussian_after)
    spent = f"{_float(quote.spent_epsilon):.6g}"
    typer.echo(f"  spent so far {spent}, remaining {now} now and {after} after this release.")


def _remaining(budget: Account | Quote, pure: Any, gaussian: Any) -> str:
    """What the next charge may cost at most."""
    if budget.rule != "filter" or not budget.cap_delta:
        return _down(pure)
    return f"{_down(pure)} (with Gaussian noise {_down(gaussian)})"


def _float(value: Fraction) -> float:
    """The number as a float; a ledger from before caps had limits may hold one beyond floats."""
    return float(min(value, Fraction(10) ** 300))


def _down(value: Any) -> str:
    """Six digits, never more than there is; what outward rounding leaves counts as nothing."""
    left = _float(value)
    if left < 1e-9:
        return "0"
    text = f"{left:.6g}"
    return text if float(text) <= left else f"{left - 1e-6 * abs(left):.6g}"


def account(ledger: Ledger, dataset: str) -> Account:
    """The account of this data set; the ledger keeps names in composed Unicode (NFC)."""
    name = unicodedata.normalize("NFC", dataset)
    return next(account for account in ledger.accounts() if account.dataset == name)


def account_line(account: Account) -> str:
    """Cap, spent and remaining, in a sentence."""
    spent = f"spent epsilon {_float(account.spent_epsilon):.6g}"
    if account.cap_epsilon is None:
        return f"Budget of '{account.dataset}': no cap is set, {spent}; set one to go on."
    at = f" at delta {_float(account.cap_delta):g}" if account.cap_delta else ""
    return (
        f"Budget of '{account.dataset}': cap epsilon {_float(account.cap_epsilon):g}{at}, {spent}, "
        f"remaining {_remaining(account, account.remaining_epsilon, account.remaining_gaussian)}."
    )


def rule_line(account: Account) -> str:
    """What the cap rests on."""
    if account.rule == "filter":
        return (
            "Rule 'filter': the cap holds even if the sizes of releases are chosen in the light of "
            "earlier ones."
        )
    remedy = "Set the cap again, and it has the rule 'filter', which needs no such promise."
    if account.next_rule == "accountants":
        remedy = "Charges were let in by it, so it stays; new data sets have the rule 'filter'."
    return (
        "Rule 'accountants', of an older noisewise: the cap holds if the sizes of releases are not "
        f"chosen in the light of earlier ones. {remedy}"
    )


def account_json(account: Account) -> dict[str, Any]:
    """Numbers as JSON numbers for scripts; the exact text is in the ledger."""
    return _numbers(account.to_json())


def quote_json(quote: Quote) -> dict[str, Any]:
    """The same as `account_json` for what a request would cost."""
    return _numbers(quote.to_json())


def _numbers(document: dict[str, Any]) -> dict[str, Any]:
    def convert(key: str, value: Any) -> Any:
        if isinstance(value, list):
            return [_numbers(item) if isinstance(item, dict) else item for item in value]
        amount = key.endswith(("epsilon", "delta")) or key.startswith("remaining")
        if amount and isinstance(value, str):
            return _float(as_fraction(value, key))
        return value

    return {key: convert(key, value) for key, value in document.items()}
