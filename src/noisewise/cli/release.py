"""What publishes: `release`, `release-summary`, `release-network` and `sample-regression`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisewise.cli import publishing
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
    out_option,
    start_spark,
    with_options,
)
from noisewise.cli.publishing import Publication
from noisewise.core.errors import RequestError

if TYPE_CHECKING:
    from noisewise.holder.requests.file import Asked
    from noisewise.holder.requests.glm import GlmRequest
    from noisewise.holder.requests.network import NetworkRequest
    from noisewise.holder.requests.regression import Request
    from noisewise.holder.requests.rounds import RoundsRequest
    from noisewise.holder.requests.summary import SummaryRequest


def _taken_apart(kind: str, given: dict[str, Any], out: str) -> tuple[Publication, Asked]:
    """The options of a command: where it is published, and what is asked for."""
    start_spark(given.pop("spark_config"), given["data"])
    place = {field.name: given.pop(field.name) for field in fields(Publication)}
    publication = Publication(**{**place, "out": place["out"] or Path(out)})
    return publication, asked(kind, **given)


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
    from noisewise.core.yaml_files import read_schema

    stated = publishing.stated_batch(append, batch, series, disjoint, given["out"])
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
        if stated is not None:
            raise RequestError("partition: its series follows from it; leave --append out")
        assert words.schema is not None
        publishing.partition(request, read_schema(words.schema), partition, publication)
        return
    request = publishing.as_charged(request, publication)
    if stated is not None:
        publication = stated.publication(request, publication)
    if publication.dry_run:
        if stated is not None and not stated.folder.exists():
            publication = replace(publication, out=None)
        lines, document = _plan_in_words(request)
        lines += [] if stated is None else [stated.in_words()]
        if words.schema is not None and not publication.as_json:
            lines += _worth(words.schema, words.words, request, publication)
        publishing.dry_run(request, publication, lines=lines, document=document)
        return
    unspent = "delta" in words.words and request.claim.delta == 0
    notes = ["Laplace noise spends no delta."] if unspent else []
    note = " ".join([*notes, *_never_together(request)])
    if stated is None:
        publishing.publish_and_say(request, publication, note=note)
        return
    with stated.folder_made():
        publishing.publish_and_say(
            request, publication, note=note, renewal="give them another --batch"
        )


def _plan(request: Request) -> list[dict[str, Any]]:
    from noisewise.core.design import STATISTIC_ONE
    from noisewise.core.noise import DISCRETE_FAMILIES

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
    return planned


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
    rows, lines = None, []
    if public and str(publication.data).endswith(".parquet"):
        rows = open_source(publication.data, **publication.source).row_count()
    by_default = isinstance(request, RoundsRequest) or (
        isinstance(request, Request)
        and "radius" not in words
        and [one.family for one in request.mechanisms] == ["discrete_laplace"]
    )
    if rows and by_default and "epsilon" in words:
        design = request.design
        budget: dict[str, Any] = {
            name: float(words[name]) for name in ("epsilon", "delta") if name in words
        }
        try:
            made = plan(
                request.schema,
                target=design.target,
                features=design.features,
                n=rows,
                mechanism="rounds" if isinstance(request, RoundsRequest) else "laplace",
                **budget,
            )
            lines.append(str(made.verdict))
        except RequestError:
            pass  # a budget beyond what a plan takes, say: the command explains
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
    from noisewise.holder.requests.glm import GlmRequest
    from noisewise.holder.requests.rounds import RoundsRequest

    lines = [f"Design columns: {', '.join(request.design.names)}", *_terms(request)]
    lines += _never_together(request)
    if isinstance(request, GlmRequest):
        return lines + request.in_words(), {"family": request.design.family}
    if isinstance(request, RoundsRequest):
        needed = {"most": request.most, "rows_needed": request.setting.rows_needed()}
        return lines + request.in_words(), {"rounds": needed}
    planned = _plan(request)
    for item in planned:
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
        publishing.dry_run(request, publication, lines=lines, document={"plan": plan})
        return
    publishing.publish_and_say(request, publication)


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
    save, given["save_request"] = given["save_request"], None
    publication, words = _taken_apart("summary", given, "summary.json")
    if not {"rows", "blocks"} & set(words.words):
        rows = _known_rows(words.schema, publication)
        words = words if rows is None else words.changed({"rows": rows})
    request: Any = words.make()
    if save is not None:
        words.save(save)
    if publication.dry_run:
        plan = _summary_plan(request)
        lines = _summary_in_words(request, plan)
        publishing.dry_run(request, publication, lines=lines, document=plan)
        return
    if request.warnings and not anyway:
        raise RequestError(
            f"{'. '.join(request.warnings)}. Nothing was spent; --dry-run shows what to "
            "expect, and --anyway spends the budget all the same"
        )
    publishing.publish_and_say(request, publication)


def _known_rows(schema: Path | None, publication: Publication) -> int | None:
    """The number of rows, if it is public and the source knows it without reading any."""
    from noisewise.core.yaml_files import read_schema
    from noisewise.holder.engines import open_source

    if schema is None or read_schema(schema).neighbours != "replace_one":
        return None
    return open_source(publication.data, **publication.source).row_count()


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
        document = {"nodes": list(request.network.nodes), "plan": request.planned.describe()}
        lines = _network_in_words(request)
        publishing.dry_run(request, publication, lines=lines, document=document)
        return
    unspent = "delta" in words.words and request.claim.delta == 0
    note = "With so few columns Laplace noise is less, and spends no delta." if unspent else ""
    publishing.publish_and_say(request, publication, doing="counting", note=note)


def _network_in_words(request: NetworkRequest) -> list[str]:
    network = request.network
    size = (
        f"a graph to be learned among {len(network.nodes)} columns"
        if request.mechanism == "learn"
        else f"{len(network.nodes)} nodes, {len(network.edges)} edges, {network.total_cells} cells"
    )
    return [f"Network: {size}.", f"  {request.mechanism}: {_listed(request.planned.describe())}"]


def _listed(plan: Mapping[str, Any]) -> str:
    """What is planned, by name."""
    return ", ".join(
        f"{name.replace('_', ' ')} {f'{value:.6g}' if isinstance(value, float) else value}"
        for name, value in plan.items()
    )
