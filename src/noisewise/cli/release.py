"""What publishes: `release`, `release-summary`, `release-network` and `sample-regression`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from noisewise._progress import progress_bar
from noisewise.cli import holder
from noisewise.cli.keys import key_from
from noisewise.cli.options import (
    ASKED,
    DATA,
    DRAWS,
    NETWORK,
    PUBLICATION,
    REGRESSION,
    SERIES,
    SUMMARY,
    asked,
    expert,
    flag,
    out_option,
    shown,
    start_spark,
    with_options,
)
from noisewise.core.errors import NoisewiseError, RequestError
from noisewise.core.yaml_files import read_schema
from noisewise.holder.ledger import Charge, Ledger, Quote

if TYPE_CHECKING:
    from noisewise.core.schema import Schema
    from noisewise.holder.keys import SigningKey
    from noisewise.holder.requests.base import Publishable
    from noisewise.holder.requests.file import Asked
    from noisewise.holder.requests.glm import GlmRequest
    from noisewise.holder.requests.regression import Request
    from noisewise.holder.requests.rounds import RoundsRequest
    from noisewise.holder.requests.summary import SummaryRequest


# --- from a request to words, whatever is published -----------------------------------------------


@dataclass(frozen=True)
class Publication:
    """Where rows come from, where the Release goes, who pays, and how it is told."""

    # As `publish` takes them
    data: str
    ledger: Path
    out: Path | None
    engine: str
    table: str | None
    query: str | None
    query_attested_by: str | None
    as_json: bool  # say it as JSON
    purpose: str = ""  # as `publish` takes it
    sign: SigningKey | None = None  # the same
    same_data: bool = False  # likewise
    dry_run: bool = False  # only say what it would cost

    @property
    def source(self) -> dict[str, Any]:
        """How the rows are read."""
        names = ("engine", "table", "query", "query_attested_by")
        return {name: getattr(self, name) for name in names}

    def charge(self, request: Publishable[Any]) -> Charge:
        """What a ledger is asked for."""
        return request.charge(table=self.table, query=self.query)

    def preview(self, ledger: Ledger, charge: Charge) -> Quote:
        """What the ledger would answer."""
        from noisewise.holder.engines import where_rows_are

        where = where_rows_are(self.data, table=self.table, query=self.query)
        return ledger.preview(charge, source=where, same_data=self.same_data)


def _publish(
    request: Publishable[Any],
    publication: Publication,
    *,
    doing: str = "summing",
    note: str = "",
    renewal: str = "give the request a --label",
) -> None:
    """Publish, with a progress bar, and say what happened and what is left of the budget.

    `doing` is what the progress bar says, `note` what is said after a new Release, and `renewal`
    what to do if the rows are new and the request is not.
    """
    from noisewise.holder.publish import publish

    out = publication.out
    with Ledger(publication.ledger) as budget:
        _say_rehearsal(budget, publication.charge(request), publication, request)
        with progress_bar(doing, unit="rows", show=sys.stderr.isatty()) as progress:
            outcome = publish(
                request,
                publication.data,
                ledger=budget,
                out=out,
                purpose=publication.purpose,
                sign=publication.sign,
                same_data=publication.same_data,
                progress=progress,
                **publication.source,
            )
        left = holder.account(budget, request.schema.dataset)
    if publication.as_json:
        document = {"release": str(out), "digest": outcome.release.digest}
        document |= {"repeated": outcome.repeated, **holder.account_json(left)}
        typer.echo(json.dumps(document))
        return
    if not outcome.repeated:
        typer.echo(f"Published {out} with {outcome.release.claim}.")
        if note:
            typer.echo(note)
    else:
        typer.echo(
            f"Wrote {out}: the stored Release of this request, at no cost. Nothing was read. A "
            f"second draw of noise would be a second release. If the data are new, {renewal}; "
            "that is then charged."
        )
    typer.echo(holder.account_line(left))


def _partition(request: Request, schema: Schema, column: str, publication: Publication) -> None:
    """Publish one Release for every level of a column, or say what that would cost.

    The request is what is asked of every part, the schema declares the column, and the
    publication's `out` is the folder of the Releases.
    """
    from noisewise.holder.partition import Partition, publish_partition
    from noisewise.holder.publish import check_columns

    assert publication.out is not None
    parts = Partition(request, column, schema, publication.table, publication.query)
    files = parts.files(publication.out)
    levels = dict(zip(parts.levels, map(str, files), strict=True))
    with Ledger(publication.ledger) as budget:
        _say_rehearsal(budget, parts.charges[0], publication, parts.plan())
        if publication.dry_run:
            check_columns(parts.plan(), publication.data, **publication.source)
            # Parts of a series cost as much as the costliest, and all of them cost the same.
            quote = publication.preview(budget, parts.charges[0])
        else:
            with progress_bar("summing", unit="rows", show=sys.stderr.isatty()) as progress:
                outcome = publish_partition(
                    parts,
                    publication.data,
                    ledger=budget,
                    out=publication.out,
                    engine=publication.engine,
                    query_attested_by=publication.query_attested_by,
                    purpose=publication.purpose,
                    sign=publication.sign,
                    same_data=publication.same_data,
                    progress=progress,
                )
            left = holder.account(budget, schema.dataset)
    if publication.dry_run:
        said = (
            f"Dry run: nothing is read, spent or written. One Release for each of the "
            f"{len(levels)} levels of '{column}', together for {request.claim}."
        )
        _say_plan([said], {"releases": levels}, quote, publication)
        return
    repeated = all(one.repeated for one in outcome.values())
    if publication.as_json:
        document = {"releases": levels, "repeated": repeated, **holder.account_json(left)}
        typer.echo(json.dumps(document))
        return
    done = "Wrote the stored Releases, at no cost" if repeated else f"Published {request.claim} for"
    typer.echo(f"{done}: {len(levels)} levels of '{column}', together the cost of one:")
    for level, file in levels.items():
        typer.echo(f"  {level}: {file}")
    typer.echo(holder.account_line(left))


def _say_rehearsal(ledger: Ledger, charge: Charge, publication: Publication, columns: Any) -> None:
    """Before the first charge of a data set, say how to find out privately whether it fits.

    Nothing is said where the charge will not come about: the refusal says enough.
    """
    from noisewise.holder.publish import check_columns

    dataset = charge.dataset
    if publication.as_json or any(ledger.charges(dataset)):
        return
    try:
        check_columns(columns, publication.data, **publication.source)
        if not ledger.preview(charge).allowed:
            return
    except NoisewiseError:
        return
    command = ["noisewise", "schema", "check", "SCHEMA", "--data", shown(publication.data)]
    for name in ("table", "query", "query_attested_by"):
        command += [flag(name), publication.source[name]] if publication.source[name] else []
    typer.echo(
        f"First release of '{dataset}': a charge is final once a row is read. Whether the data fit "
        f"is found out at no cost by: {shlex.join(command)}",
        err=True,
    )


def _dry_run(
    request: Publishable[Any], publication: Publication, lines: list[str], document: dict[str, Any]
) -> None:
    """Check everything that can be checked, and show plan and cost. Reads no row, spends nothing.

    `lines` and `document` are the plan in words and as JSON. Without an `out` there is no check
    that it can be written.
    """
    from noisewise.holder.publish import check_columns, check_writable

    request.check_size()
    if publication.out is not None:
        check_writable(publication.out)
    check_columns(request, publication.data, **publication.source)
    with Ledger(publication.ledger) as budget:
        charge = publication.charge(request)
        _say_rehearsal(budget, charge, publication, request)
        quote = publication.preview(budget, charge)
    averaged = request.schema.unit_column is not None
    words = " (one person, averaged over all their rows)" if averaged else ""
    asked_for = f"Dry run: nothing is read, spent or written. Asked for: {request.claim}."
    lines = [asked_for, f"Privacy unit: {quote.unit}{words}.", *lines]
    _say_plan(lines, document, quote, publication)


def _say_plan(
    lines: list[str], document: dict[str, Any], quote: Quote, publication: Publication
) -> None:
    """What a dry run found, and the budget; exits with 5 if that is not enough."""
    if publication.as_json:
        typer.echo(json.dumps({**document, "budget": holder.quote_json(quote)}))
    else:
        typer.echo("\n".join(lines))
        holder.say_quote(quote)
    if not quote.allowed:
        raise typer.Exit(5)


def _taken_apart(kind: str, given: dict[str, Any], out: str) -> tuple[Publication, Asked]:
    """The options of a command: where it is published, and what is asked for."""
    start_spark(given.pop("spark_config"), given["data"])
    passphrase_file = given.pop("passphrase_file")
    if given["sign"] is not None:  # a key that can't be used is known before anything is spent
        given["sign"] = key_from(given["sign"], passphrase_file)
    place = {field.name: given.pop(field.name) for field in fields(Publication)}
    publication = Publication(**{**place, "out": place["out"] or Path(out)})
    return publication, asked(kind, **given)


# --- a batch of a series --------------------------------------------------------------------------


def _check_batch(
    append: Path | None, batch: str | None, series: str | None, disjoint: bool, out: Path | None
) -> None:
    """Refuse options that only half state a batch of a series."""
    from noisewise.holder.series import check_name

    if append is None and batch is None and series is None and not disjoint:
        return
    if append is None or batch is None:
        raise RequestError(
            "append: a series needs both --append FOLDER and --batch NAME (and --disjoint with "
            "--series NAME if nobody is in two batches)"
        )
    if out is not None:
        raise RequestError(
            f"out: a batch is written to {append / f'{batch}.json'}, by its folder and name; leave "
            "--out out, or --append and --batch"
        )
    if disjoint and series is None:
        raise RequestError(
            "series: --disjoint declares that nobody is in two batches of a series; name the "
            "series, such as --series monthly, and keep the name for all its batches. It tells the "
            "ledger which batches are disjoint, wherever the folder is moved to"
        )
    if series is not None and not disjoint:
        raise RequestError(
            "series: the name belongs to the declaration --disjoint, that nobody is in two "
            "batches of the series; give both, or neither and let the costs add up"
        )
    check_name("batch", batch)
    if series is not None:
        check_name("series", series)


def _of_batch(batch: str, series: str | None) -> str:
    """What is declared, and what it does to the budget."""
    if series is None:
        return f"Batch {batch}: not declared disjoint, so its cost is added."
    return (
        f"Batch {batch} of series {series}: you declare that nobody is in two batches of this "
        "series. Of its batches the costliest counts; other series and releases are added."
    )


# --- regressions ----------------------------------------------------------------------------------


@with_options(DATA, *ASKED, *REGRESSION, *PUBLICATION, out_option("release.json"), *SERIES)
def release(
    append: Path | None = None,
    batch: str | None = None,
    disjoint: bool = False,
    series: str | None = None,
    partition: str | None = None,
    **given: Any,
) -> None:
    """Publish a differentially private Release of regression statistics.

    Charges the budget first, sums the rows exactly, adds noise, and writes one small file that may
    be published. The same request again returns the stored Release at no cost.

    A stream is published batch by batch with --append and --batch, after which the rows may be
    erased. Batches add up in the budget. With --disjoint and --series NAME you promise that nobody
    is in two batches of that series: of its batches only the costliest counts, while other series
    and all other releases of the data set are added. It needs a schema that protects one row per
    person, and batches that are formed without looking at values.

    Better than a promise is --partition COLUMN: one Release for every declared level of COLUMN,
    read in one pass and disjoint by construction, for the cost of one. --out names their folder.
    It needs neighbours: add_remove_one and one row per person.

    A target of yes or no is a category with two levels, for --family logistic; its reference is no
    event. A count is a number from 0 to a public bound, for --family poisson. Both are published in
    rounds, and need a delta (1e-6 by default).

    Example: noisewise release --data people.parquet --schema schema.yaml --target income
    --features age,region --epsilon 1 --ledger budget.db --out release.json
    """
    from noisewise.holder.publish import as_charged
    from noisewise.holder.series import batch_path, made

    _check_batch(append, batch, series, disjoint, given["out"])
    label = given["label"] or batch
    default = "release.json" if partition is None else "releases"
    publication, words = _taken_apart("regression", given, default)
    if batch is not None and words.words.get("label", label) != label:
        raise RequestError(
            "label: the request file's would be that of all batches, which would be one Release; "
            "take it out of the file, or give --label"
        )
    more: dict[str, Any] = {} if label is None else {"label": label}
    more |= {"batch": batch if disjoint else None, "series": series}
    if partition is not None:
        if words.words.get("family", "linear") != "linear":
            raise RequestError("partition: only linear regressions are published by level")
        if "rounds" not in words.words:
            words = words.changed({"rounds": 1})
    request: Any = words.make(**more)
    if partition is not None:
        if append is not None:
            raise RequestError("partition: its series follows from it; leave --append out")
        assert words.schema is not None
        _partition(request, read_schema(words.schema), partition, publication)
        return
    with Ledger(publication.ledger) as budget:
        where = {"table": publication.table, "query": publication.query}
        request = as_charged(request, budget, **where)
        if append is not None and batch is not None:
            charge = publication.charge(request)
            out = batch_path(append, batch, request, charge, ledger=budget)
            publication = replace(publication, out=out)
    if publication.dry_run:
        if append is not None and not append.exists():
            publication = replace(publication, out=None)
        lines, document = _plan_in_words(request)
        lines += [] if batch is None else [_of_batch(batch, series)]
        if words.schema is not None and not publication.as_json:
            lines += _worth(words.schema, words.words, request, publication)
        _dry_run(request, publication, lines, document)
        return
    unspent = "delta" in words.words and request.claim.delta == 0
    notes = ["Laplace noise spends no delta."] if unspent else []
    note = " ".join([*notes, *_never_together(request)])
    if append is None:
        _publish(request, publication, note=note)
        return
    with made(append):  # unless nothing comes of it
        _publish(request, publication, note=note, renewal="give them another --batch")


def _terms(request: Request | RoundsRequest | GlmRequest) -> list[str]:
    """Every column of a term with the bounds that follow from the schema."""
    lines = []
    for column in request.design.columns:
        if column.source in request.design.terms:
            free = column.group is None or column.signed
            low = column.centre - column.half_width if free else 0.0
            high = column.centre + column.half_width
            bounds = "0 or 1" if column.is_indicator else f"{low:.6g} to {high:.6g}"
            lines.append(f"  {column.name}: {bounds}")
    return lines


def _never_together(request: Request | RoundsRequest | GlmRequest) -> list[str]:
    """What no regression can have at once: worth knowing before both are paid for."""
    from noisewise.analyst.regression.observation import check_splines

    try:
        check_splines(request.design)
    except RequestError as error:
        return [f"Note: {str(error).removeprefix('features: ')}."]
    return []


def _worth(
    schema: Path, words: Mapping[str, Any], request: Any, publication: Publication
) -> list[str]:
    """What this Release will be worth: a verdict where rows are public and known, and how to ask.

    A Parquet file's footer says how many rows there are.
    """
    from noisewise.holder.engines import open_source
    from noisewise.holder.requests.regression import Request
    from noisewise.holder.requests.rounds import RoundsRequest
    from noisewise.planning.plan import plan

    public = request.schema.neighbours == "replace_one" and request.schema.unit_column is None
    rows, lines, in_rounds = None, [], isinstance(request, RoundsRequest)
    if public and str(publication.data).endswith(".parquet"):
        rows = open_source(publication.data, **publication.source).row_count()
    by_default = in_rounds or (
        isinstance(request, Request)
        and "radius" not in words
        and [one.family for one in request.mechanisms] == ["discrete_laplace"]
    )
    if rows and by_default and "epsilon" in words:
        named: dict[str, Any] = {
            "target": request.design.target,
            "features": request.design.features,
            "mechanism": "rounds" if in_rounds else "laplace",
            **{name: float(words[name]) for name in ("epsilon", "delta") if name in words},
        }
        with suppress(RequestError):  # a budget beyond what a plan takes, say: the command explains
            lines.append(str(plan(request.schema, n=rows, **named).verdict))
    command = ["noisewise", "plan", "--schema", str(schema)]
    for name in ("family", "formula", "target", "features", "epsilon", "delta", "radius"):
        value = words.get(name)
        if value is not None:
            text = ",".join(value) if isinstance(value, list | tuple) else str(value)
            command += [f"--{name}", text]
    many = str(rows or ("ROWS" if request.schema.unit_column is None else "PEOPLE"))
    return [*lines, f"How wide intervals will be: {shlex.join(command)} --n {many}"]


def _plan_in_words(
    request: Request | RoundsRequest | GlmRequest,
) -> tuple[list[str], dict[str, Any]]:
    """The plan as lines and as a document."""
    from noisewise.core.design import STATISTIC_ONE
    from noisewise.core.noise import DISCRETE_FAMILIES
    from noisewise.holder.requests.glm import GlmRequest
    from noisewise.holder.requests.rounds import RoundsRequest

    lines = [f"Design columns: {', '.join(request.design.names)}", *_terms(request)]
    lines += _never_together(request)
    if isinstance(request, GlmRequest):
        return lines + request.in_words(), {"family": request.design.family}
    if isinstance(request, RoundsRequest):
        needed = {"most": request.most, "rows_needed": request.setting.rows_needed()}
        return lines + request.in_words(), {"rounds": needed}
    planned: list[dict[str, Any]] = []
    for statistic, mechanism in zip(request.statistics, request.mechanisms, strict=True):
        law = DISCRETE_FAMILIES[mechanism.family](mechanism.scale).continuous()
        item = {
            "statistic": statistic.name,
            "entries": len(statistic.entries),
            "sensitivity": mechanism.sensitivity / STATISTIC_ONE,
            "noise": mechanism.family,
            "scale": mechanism.scale / STATISTIC_ONE,
            "standard_deviation": law.variance**0.5,
        }
        planned.append(item)
        lines.append(
            f"  {item['statistic']}: {item['entries']} sums on unit scale, sensitivity "
            f"{item['sensitivity']:.6g}, {item['noise']} scale {item['scale']:.6g} "
            f"(standard deviation {item['standard_deviation']:.6g})"
        )
    return lines, {"measurements": planned}


@with_options(DATA, *ASKED, *DRAWS, *PUBLICATION, out_option("sample.json"))
def sample_regression(**given: Any) -> None:
    """Publish draws from the posterior of a linear regression, instead of noisy statistics.

    The draws are private because rows and coefficients are kept within balls, and because the
    likelihood is tempered to the epsilon that you give. For the uncertainty of a whole posterior
    use `noisewise release`: its noise can be modelled, at far less cost than many draws.

    Example: noisewise sample-regression --data people.parquet --schema schema.yaml --target income
    --features age,region --noise-sd 20000 --epsilon 1 --ledger budget.db --out sample.json
    """
    publication, words = _taken_apart("draws", given, "sample.json")
    request: Any = words.make()
    if publication.dry_run:
        plan = request.planned.describe()
        lines = [f"Coefficients: {', '.join(request.design.names[:-1])}", f"  {_listed(plan)}"]
        _dry_run(request, publication, lines, {"plan": plan})
        return
    _publish(request, publication)


# --- block summaries ------------------------------------------------------------------------------


@with_options(
    *(DATA, *ASKED, *SUMMARY, *PUBLICATION, out_option("summary.json")),
    expert(
        "anyway",
        bool,
        "Publish even if the budget is too small for a useful answer.",
        default=False,
    ),
)
def release_summary(anyway: bool = False, **given: Any) -> None:
    """Publish private answers about regression coefficients of data without known bounds.

    Rows are put into many blocks at random, each block gets a regression of its own, and only an
    aggregate that no single person can move by much is published. Columns may be declared with
    'type: number' and 'unbounded: true'.

    Ask single questions (--ask, repeatable; they share the budget), or publish location and scale
    of coefficients (--coefficients), which answers every question about them and gives intervals.
    --dry-run shows what accuracy to expect.

    Example: noisewise release-summary --data people.parquet --schema schema.yaml --target income
    --features age,hours --ask "hours < 0" --epsilon 1 --ledger budget.db --out summary.json
    """
    from noisewise.holder.engines import open_source

    save, given["save_request"] = given["save_request"], None
    publication, words = _taken_apart("summary", given, "summary.json")
    if words.schema is not None and not {"rows", "blocks"} & set(words.words):
        public = read_schema(words.schema).neighbours == "replace_one"
        # Known to some sources without reading any row
        rows = open_source(publication.data, **publication.source).row_count() if public else None
        words = words if rows is None else words.changed({"rows": rows})
    request: Any = words.make()
    if save is not None:
        words.save(save)
    if publication.dry_run:
        plan = _summary_plan(request)
        lines = _summary_in_words(request, plan)
        _dry_run(request, publication, lines, plan)
        return
    if request.warnings and not anyway:
        raise RequestError(
            f"{'. '.join(request.warnings)}. Nothing was spent; --dry-run shows what to "
            "expect, and --anyway spends the budget all the same"
        )
    _publish(request, publication)


def _summary_plan(request: SummaryRequest) -> dict[str, Any]:
    """What would be published, with what noise, and how accurate it would be."""
    from noisewise.core.kinds.summary.mechanisms import ClippedMean, LocationScale, Mean, entries_of
    from noisewise.core.kinds.summary.release import MedianNoise, SummedNoise
    from noisewise.holder.blocks import choice

    mechanism, noise = request.mechanism, request.noise
    plan: dict[str, Any] = {
        "mechanism": mechanism.to_json(),
        "posterior": request.posterior.to_json(),
        "entries": len(entries_of(mechanism)),
        "blocks": request.blocks,
        "partitions": request.partitions,
        "rows": request.rows,
        "kappa": request.kappa,
        "noise": noise.to_json(),
        "warnings": list(request.warnings),
    }
    sizes = (request.blocks, request.partitions)
    if isinstance(mechanism, LocationScale):
        assert isinstance(noise, MedianNoise)
        each = float(noise.location_epsilon) / noise.sensitivity
        plan["expected_error"] = choice.median_error(*sizes, each)
        return plan
    if isinstance(mechanism, Mean):
        each = float(request.laplace.epsilon) / len(mechanism.items)
        each /= request.schema.max_rows_per_unit
        plan["expected_error"] = choice.mean_error(request.blocks, each)
        return plan
    assert isinstance(noise, SummedNoise)
    scale = noise.scale * 2.0**-mechanism.fraction_bits / (request.blocks * request.partitions)
    plan["noise_on_mean"] = scale
    if isinstance(mechanism, ClippedMean):
        plan["noise_on_quantiles"] = choice.quantile_noise(mechanism, scale)
    else:
        plan["expected_error"] = choice.probability_error(mechanism, *sizes, scale)
    return plan


def _summary_in_words(request: SummaryRequest, plan: dict[str, Any]) -> list[str]:
    from noisewise.core.kinds.summary.mechanisms import ClippedMean, entries_of
    from noisewise.holder.blocks.choice import ALWAYS_HALF

    names = [str(entry) for entry in entries_of(request.mechanism)]
    each = f", about {request.rows // request.blocks} rows each" if request.rows else ""
    lines = [
        f"{request.mechanism.name}: {', '.join(names)}",
        f"Coefficients: {', '.join(request.design.names[:-1])}",
        f"{request.blocks:,} blocks{each}, {request.partitions} partition(s); "
        f"epsilon * sqrt(blocks) = {request.kappa:.3g} for each answer",
    ]
    if request.rows and request.design.category_sizes:
        rare = min(1.0, 3 * request.blocks / request.rows)
        lines.append(
            f"A level that fewer than about {rare:.2g} of all rows have is missing in many blocks, "
            "which then have no regression: merge rare levels"
        )
    if "noise_on_mean" in plan:
        lines.append(f"Laplace noise of scale {plan['noise_on_mean']:.3g} on a mean over blocks")
    if isinstance(request.mechanism, ClippedMean):
        for item, sd in zip(request.mechanism.items, plan["noise_on_quantiles"], strict=True):
            lines.append(f"  {item}: noise with standard deviation {sd:.4g}")
    else:
        lines.append(
            f"Expected error of a probability: {plan['expected_error']:.3f} (root mean square; "
            f"always saying 1/2 has {ALWAYS_HALF:g})"
        )
    return [*lines, *(f"Warning: {warning}." for warning in request.warnings)]


# --- networks -------------------------------------------------------------------------------------


@with_options(DATA, *ASKED, *NETWORK, *PUBLICATION, out_option("network.json"))
def release_network(**given: Any) -> None:
    """Publish a differentially private Release of a Bayesian network.

    The graph is yours to declare, or --graph learn chooses one from the rows for a part of
    epsilon. All its columns are categories with public levels. Charges the budget first, counts all
    families in one pass, and publishes noisy counts (laplace), noisy counts that agree about common
    marginals (fourier), tables drawn from the posterior (posterior_sample), or one best table
    (map).

    Example: noisewise release-network --data people.parquet --schema schema.yaml
    --naive-bayes disease --epsilon 1 --ledger budget.db --out network.json
    """
    publication, words = _taken_apart("network", given, "network.json")
    request: Any = words.make()
    if publication.dry_run:
        network, plan = request.network, request.planned.describe()
        size = (
            f"a graph to be learned among {len(network.nodes)} columns"
            if request.mechanism == "learn"
            else f"{len(network.nodes)} nodes, {len(network.edges)} edges, {network.total_cells} "
            "cells"
        )
        lines = [f"Network: {size}.", f"  {request.mechanism}: {_listed(plan)}"]
        _dry_run(request, publication, lines, {"nodes": list(network.nodes), "plan": plan})
        return
    unspent = "delta" in words.words and request.claim.delta == 0
    note = "With so few columns Laplace noise is less, and spends no delta." if unspent else ""
    _publish(request, publication, doing="counting", note=note)


def _listed(plan: Mapping[str, Any]) -> str:
    """What is planned, by name."""
    return ", ".join(
        f"{name.replace('_', ' ')} {f'{value:.6g}' if isinstance(value, float) else value}"
        for name, value in plan.items()
    )


COMMANDS: tuple[Callable[..., None], ...] = (
    *(release, release_summary, release_network, sample_regression),
)
