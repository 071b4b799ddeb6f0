"""Do default intervals hold fixed truths, whatever the data look like?

Simulation-based calibration draws truths from the prior, so it can't see a prior that is wrong
about ordinary data. Here truths are fixed: 31 cells with many Releases each, and random
configurations with one Release each, whose seed is new in every folder of results. `default` is
what `fit` does when no prior is given; `bounds`, the former default, is the negative control.

What a prior must do:

- in every cell, hold slopes, the worst slope, intercept and sigma2 in 92% of the Releases or more:
  it fails where the upper 95% limit (one-sided, exact binomial) is below 92%;
- over random configurations, hold 94% of each, and 90% in every stratum.

Slopes of one Release aren't independent. Their limit is that of as many independent tries as have
the variance that shares held have from Release to Release, never fewer than Releases nor more than
slopes. The worst slope is one slope, and its tries are the Releases. A fit that ends in an error
has held nothing. Random configurations are judged by the shares themselves, where there are 40
Releases or more.

Widths are geometric means over slopes and Releases. They are compared with the narrowest prior that
passes everywhere, because a prior that fails elsewhere is narrow by luck. What every prior fails on
real data isn't held against any of them in that choice: errors there need not be normal. It still
counts as a failure and is shown.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from noisewise.analyst.regression.cautions import PULLED
from noisewise.core.errors import RequestError
from studies.experiments import DataAbsentError
from studies.honesty.cells import NAMES, REAL, STRATA, find_cell
from studies.honesty.trial import PRIORS, Length, cell_trial, random_trial
from studies.report import Options, Report, kept_trials, write_both
from studies.tables import Row
from studies.trials import Record

NAME = "honesty"
RANDOM = "random"
CONTROL = "bounds"
TRIALS, QUICK_TRIALS = 100, 4
RANDOM_PER_TRIAL = 4  # 400 random configurations where cells have 100 Releases
QUICK_CELLS = ("k1 sd.07 R.5 n3k e1 L", "k2 sd.3 r0 R.3 n3k e1 L")
QUICK_PRIORS = ("default", CONTROL)
CELL_LIMIT, OVERALL_LIMIT, STRATUM_LIMIT = 0.92, 0.94, 0.90
CONFIDENCE = 0.95
JUDGED = 40  # random configurations that a stratum needs
PARAMETERS = ("slopes", "worst slope", "intercept", "sigma2")

ByPrior = Mapping[str, Sequence[Record]]


# --- what is run ----------------------------------------------------------------------------------


class Plan(NamedTuple):
    """What the command line says, with the study's own numbers where it says nothing."""

    cells: tuple[str, ...]
    priors: tuple[str, ...]
    trials: int
    random: int
    length: Length
    seed: int | None

    @classmethod
    def of(cls, options: Options) -> Plan:
        """Read the settings."""
        quick, given = options.quick, options.settings
        trials = options.runs or (QUICK_TRIALS if quick else TRIALS)
        cells = _names(given.get("cells"), QUICK_CELLS if quick else NAMES)
        priors = _names(given.get("priors"), QUICK_PRIORS if quick else tuple(PRIORS))
        for what, names, known in (("cells", cells, NAMES), ("priors", priors, tuple(PRIORS))):
            if unknown := [name for name in names if name not in known]:
                raise RequestError(
                    f"{what}: {unknown[0]!r} is unknown; there are: {', '.join(known)}"
                )
        length = Length(
            _whole(given, "chains", 2 if quick else 4, 1),
            _whole(given, "draws", 200 if quick else 500, 10),
        )
        seed = _whole(given, "seed", 0, 0) if "seed" in given else None
        random = _whole(given, "random", RANDOM_PER_TRIAL * trials, 0)
        return cls(cells, priors, trials, random, length, seed)


def _names(given: str | None, usual: tuple[str, ...]) -> tuple[str, ...]:
    return usual if given is None else tuple(name.strip() for name in given.split(","))


def _whole(given: Mapping[str, str], name: str, usual: int, least: int) -> int:
    text = given.get(name, str(usual))
    if not text.isdecimal() or int(text) < least:
        raise RequestError(f"{name}: expected a whole number of at least {least}, got {text!r}")
    return int(text)


def write(out: Path, options: Options) -> list[Path]:
    """Run what is missing; the tables are written anew after every cell."""
    plan = Plan.of(options)
    seed = _seed(plan, out)
    notes = [f"{plan.length.chains} x {plan.length.draws} draws a fit."]
    tried: dict[str, ByPrior] = {}
    for name in plan.cells:
        try:
            cell = find_cell(name)
        except DataAbsentError as error:
            notes.append(f"{name}: left out, {error}.")
            continue
        file = "-".join([NAME, *name.replace("/", " ").split()])
        tried[name] = {
            prior: kept_trials(
                f"{file}-{prior}",
                partial(cell_trial, cell, prior, plan.length),
                plan.trials,
                {"cell": cell.describe(), "prior": prior, **plan.length._asdict()},
                out,
                options,
            )
            for prior in plan.priors
        }
        _write_tables(tried, notes, out)
    if plan.random:
        notes.append(f"Random configurations: seed {seed}.")
        tried[RANDOM] = {
            prior: kept_trials(
                f"{NAME}-{RANDOM}-{prior}",
                partial(random_trial, seed, prior, plan.length),
                plan.random,
                {"seed": seed, "prior": prior, **plan.length._asdict()},
                out,
                options,
            )
            for prior in plan.priors
        }
    return _write_tables(tried, notes, out)


def _seed(plan: Plan, out: Path) -> int:
    """Given, or that of the run that this one goes on with, or a new one."""
    path = out / "trials" / f"{NAME}-seed.json"
    if plan.seed is None and path.exists():
        return int(json.loads(path.read_text("utf-8"))["seed"])
    seed = secrets.randbits(32) if plan.seed is None else plan.seed
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"seed": seed}) + "\n", encoding="utf-8")
    return seed


def _write_tables(tried: Mapping[str, ByPrior], notes: Sequence[str], out: Path) -> list[Path]:
    rows = table(tried)
    alarm = prior_alarm(tried)
    if alarm["decides"] + alarm["does_not"]:
        notes = [
            *notes,
            f"The prior decides on {alarm['decides']} slopes of random configurations, and "
            f"{alarm['missed']} of them had no warning of it; of the {alarm['does_not']} others "
            f"{alarm['false']} had one.",
        ]
    return [
        *write_both(rows, partial(markdown, notes=notes), NAME, out),
        *write_both(alarm_rows(tried), alarm_markdown, f"{NAME}-alarms", out),
    ]


# --- shares held ----------------------------------------------------------------------------------


class Held(NamedTuple):
    """How often intervals held the truth."""

    share: float
    error: float  # standard error, over Releases
    upper: float  # limit that the true share is below, with 95% confidence


def held(counts: Sequence[Sequence[int]]) -> Held:
    """Of 0s and 1s, some for each Release; those of one Release depend on each other."""
    tries = np.array([len(each) for each in counts], dtype=np.float64)
    hits = np.array([sum(each) for each in counts], dtype=np.float64)
    releases, total = len(tries), tries.sum()
    share = float(hits.sum() / total)
    spread = ((hits - share * tries) ** 2).sum() / total**2
    variance = float(spread * releases / max(releases - 1, 1))
    size = float(releases)  # of independent tries with that variance
    if variance > 0:
        size = float(np.clip(share * (1 - share) / variance, releases, total))
    upper = 1.0
    if share < 1:
        upper = float(stats.beta.ppf(CONFIDENCE, share * size + 1, (1 - share) * size))
    return Held(share, variance**0.5, upper)


def shares(records: Sequence[Record], level: int = 95) -> dict[str, Held]:
    """By parameter; the worst slope where all records are of one cell."""
    found = [record.get(f"held{level}", [0] * len(record["truth"])) for record in records]
    slopes = [each[1:-1] for each in found]
    answer = {"slopes": held(slopes)}
    if records and "cell" not in records[0]:  # which records of random configurations have
        single = [held([[value] for value in column]) for column in zip(*slopes, strict=True)]
        answer["worst slope"] = min(single, key=lambda one: one.share)
    answer["intercept"] = held([each[:1] for each in found])
    answer["sigma2"] = held([each[-1:] for each in found])
    return answer


# --- the table ------------------------------------------------------------------------------------


def groups(tried: Mapping[str, ByPrior]) -> Iterator[tuple[str, ByPrior]]:
    """Cells, then random configurations: all of them, and by stratum."""
    for name, by_prior in tried.items():
        yield name, by_prior
        if name != RANDOM:
            continue
        for factor, values in STRATA.items():
            for value in values:
                chosen = {
                    prior: [r for r in records if _is_of(r["cell"], factor, value)]
                    for prior, records in by_prior.items()
                }
                if any(chosen.values()):
                    yield f"{RANDOM}: {factor} = {value}", chosen


def _is_of(cell: Mapping[str, Any], factor: str, value: Any) -> bool:
    """Whether a configuration is of a stratum; one covariate has no correlation."""
    return bool(cell[factor] == value and (factor != "correlation" or cell["k"] > 1))


def fails(name: str, parameter: Held, releases: int) -> bool:
    """Whether intervals of a parameter hold less than they must."""
    if not name.startswith(RANDOM):
        return parameter.upper < CELL_LIMIT
    limit = OVERALL_LIMIT if name == RANDOM else STRATUM_LIMIT
    return releases >= JUDGED and parameter.share < limit


def table(tried: Mapping[str, ByPrior]) -> list[Row]:
    """A line for each cell or stratum and prior."""
    rows = [
        _row(name, prior, records, by_prior)
        for name, by_prior in groups(tried)
        for prior, records in by_prior.items()
    ]
    passing = passing_priors(rows)
    widths = {(row["cell"], row["prior"]): row["width"] for row in rows}
    for row in rows:
        best = [widths[row["cell"], prior] for prior in passing]
        best = [width for width in best if width != ""]
        compared = bool(best) and row["width"] != ""
        row["width_to_best"] = _short(row["width"] / min(best)) if compared else ""
    return rows


def passing_priors(rows: Sequence[Row]) -> list[str]:
    """Priors that fail nowhere, but for what every prior fails on real data."""
    failed: dict[str, set[tuple[str, str]]] = {row["prior"]: set() for row in rows}
    for row in rows:
        failed[row["prior"]] |= {(row["cell"], name) for name in row["fails"].split(", ") if name}
    everybody = set.intersection(*failed.values()) if len(failed) > 1 else set()
    excused = {(cell, name) for cell, name in everybody if cell in REAL}
    return [prior for prior, where in failed.items() if where <= excused]


def _row(name: str, prior: str, records: Sequence[Record], by_prior: ByPrior) -> Row:
    good = [record for record in records if "error" not in record]
    row: Row = {
        "cell": name,
        "prior": prior,
        "releases": len(records),
        "errors": len(records) - len(good),
    }
    found, found80 = shares(records), shares(records, 80)
    failing = [one for one in found if fails(name, found[one], len(records))]
    for parameter in PARAMETERS:
        one, at_80 = found.get(parameter), found80.get(parameter)
        word = parameter.replace(" ", "_")
        row[word] = "" if one is None else _short(one.share)
        row[f"{word}_error"] = "" if one is None else _short(one.error)
        row[f"{word}_upper"] = "" if one is None else _short(one.upper)
        row[f"{word}_80"] = "" if at_80 is None else _short(at_80.share)
    row["fails"] = ", ".join(failing)
    row |= dict.fromkeys(("width", "width_to_bounds", "ess_median", "ess_10", "diverging"), "")
    row |= dict.fromkeys(("alarmed", "seconds"), "")
    if good:
        sizes = [record["ess"] for record in good]
        row["width"] = _short(np.exp(np.mean([_log_width(record) for record in good])))
        row["width_to_bounds"] = _ratio(good, by_prior.get(CONTROL, ()))
        row["ess_median"] = _short(np.median(sizes))
        row["ess_10"] = _short(np.quantile(sizes, 0.1))
        row["diverging"] = _short(np.mean([record["diverging"] for record in good]))
        row["alarmed"] = _short(np.mean([bool(record["alarms"]) for record in good]))
        row["seconds"] = _short(np.median([record["seconds"] for record in good]))
    return row


def _log_width(record: Record) -> float:
    return float(np.mean(np.log(record["width95"][1:-1])))


def _ratio(good: Sequence[Record], others: Sequence[Record]) -> float | str:
    """Of widths, over the Releases that both priors could fit."""
    theirs = {record["trial"]: _log_width(record) for record in others if "error" not in record}
    both = [_log_width(r) - theirs[r["trial"]] for r in good if r["trial"] in theirs]
    return _short(np.exp(np.mean(both))) if both else ""


def _short(value: Any) -> float:
    return float(f"{float(value):.4g}")


# --- alarms ---------------------------------------------------------------------------------------


def alarm_rows(tried: Mapping[str, ByPrior]) -> list[Row]:
    """How often each kind of warning is shown, where a slope was missed and where none was."""
    rows: list[Row] = []
    for prior in dict.fromkeys(prior for by_prior in tried.values() for prior in by_prior):
        good = [r for by_prior in tried.values() for r in by_prior[prior] if "error" not in r]
        missed = [r for r in good if not all(r["held95"][1:-1])]
        right = [r for r in good if all(r["held95"][1:-1])]
        for kind in sorted({kind for record in good for kind in record["alarms"]}):
            row: Row = {"prior": prior, "warning": kind}
            for what, some in (("missed", missed), ("held", right)):
                row[what] = len(some)
                shown = [kind in record["alarms"] for record in some]
                row[f"shown_where_{what}"] = _short(np.mean(shown)) if shown else ""
            rows.append(row)
    return rows


def prior_alarm(tried: Mapping[str, ByPrior]) -> dict[str, int]:
    """How often the warning that the prior decides on a slope is missed, and how often false.

    Over the slopes of random configurations that were fitted under all priors. The prior decides if
    another one gives an interval that is 1.5 times as wide or narrow, or a median that is a quarter
    of the narrower interval away.
    """
    found = {"decides": 0, "missed": 0, "does_not": 0, "false": 0}
    for records in zip(*tried.get(RANDOM, {}).values(), strict=True):
        if len(records) < len(PRIORS) or any("error" in record for record in records):
            continue
        own = next(record for record in records if record["pull"])
        for j, pull in enumerate(own["pull"], 1):
            decides = False
            for other in records:
                widths = own["width95"][j], other["width95"][j]
                away = abs(own["median"][j] - other["median"][j])
                decides |= max(widths) > 1.5 * min(widths) or away > 0.25 * min(widths)
            found["decides" if decides else "does_not"] += 1
            found["missed"] += decides and pull <= PULLED
            found["false"] += not decides and pull > PULLED
    return found


# --- for people to read ---------------------------------------------------------------------------


def markdown(rows: Sequence[Row], notes: Sequence[str] = ()) -> str:
    """A line for each cell or stratum and prior, and what to know about them."""
    lines = [
        "| cell | prior | releases | slopes % | worst slope % | intercept % | sigma2 % | width | "
        "of the best | of bounds | effective draws, 10% point | divergences % | warned % | s |",
        "|---" * 14 + "|",
    ]
    for row in rows:
        if row["cell"].startswith(f"{RANDOM}:") and row["releases"] < JUDGED:
            continue
        errors = f" ({row['errors']} errors)" if row["errors"] else ""
        ess = "" if row["ess_median"] == "" else f"{row['ess_median']:.0f}, {row['ess_10']:.0f}"
        entries = [
            row["cell"],
            row["prior"],
            f"{row['releases']}{errors}",
            *(_percent(row, parameter) for parameter in PARAMETERS),
            _number(row["width"], ".3g"),
            _number(row["width_to_best"], ".2f"),
            _number(row["width_to_bounds"], ".2f"),
            ess,
            _number(row["diverging"], ".2f", 100),
            _number(row["alarmed"], ".0f", 100),
            _number(row["seconds"], ".2g"),
        ]
        lines.append("| " + " | ".join(entries) + " |")
    passing = ", ".join(passing_priors(rows)) or "none"
    said = [
        f"Priors that fail nowhere, but for what all of them fail on real data: {passing}.",
        f"Strata of fewer than {JUDGED} Releases are in the CSV file only.",
        *notes,
    ]
    return "\n".join([*lines, "", *said]) + "\n"


def _percent(row: Row, parameter: str) -> str:
    share = row[parameter.replace(" ", "_")]
    if share == "":
        return ""
    failing = parameter in row["fails"].split(", ")
    return f"**{100 * share:.0f} fails**" if failing else f"{100 * share:.0f}"


def _number(value: Any, form: str, times: float = 1.0) -> str:
    return "" if value == "" else format(times * value, form)


def alarm_markdown(rows: Sequence[Row]) -> str:
    """A line for each prior and kind of warning, by its first words."""
    lines = [
        "| prior | warning | shown where a slope was missed | where all were held |",
        "|---|---|---|---|",
    ]
    for row in rows:
        shown = [
            f"{100 * row[f'shown_where_{what}']:.0f}% of {row[what]}" if row[what] else ""
            for what in ("missed", "held")
        ]
        lines.append(f"| {row['prior']} | {row['warning']} … | {shown[0]} | {shown[1]} |")
    return "\n".join(lines) + "\n"


EXPERIMENT = Report(
    NAME,
    "Whether default intervals hold fixed truths: 31 cells and random configurations, by prior",
    write,
    settings=("cells", "priors", "chains", "draws", "random", "seed"),
)
