"""Tables 1 and 2 of Alparslan, Yıldırım & Birbil (2023), epsilon = 1, and a private counterpart.

Three protocols:

- ``paper, their noise``: the paper's own, with the authors' noise multiplier. NOT PRIVATE.
- ``paper, right noise``: the same with the multiplier that (epsilon, delta) needs. NOT PRIVATE.
- ``private``: public bounds, replace-one sensitivity, an intercept (`private`).

Errors are those of predictions for test rows, of the target divided by its largest absolute
deviation from its mean, squared: the paper's scale in all three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.priors import HierarchicalNIWPrior, NormalInverseGammaIndependent
from noisewise.core.errors import NoisewiseError
from studies.alparslan2023 import not_private, private
from studies.alparslan2023.data import DATA_SETS, DataSet, gram_matrices, load, missing_message
from studies.alparslan2023.methods import QUICK, SAMPLED, Effort, Given, run
from studies.report import Options, Report, mean_interval, seed_of
from studies.tables import Row, short, write_table

NAME = "alparslan2023-tables"
HOLDERS = (1, 5, 10)
EPSILON = Fraction(1)
METHODS = (*SAMPLED, "ada_ssp", "non_private")
PROTOCOLS = ("paper, their noise", "paper, right noise", "private")
RUNS = 50  # of every method, as in the paper


class Errors(NamedTuple):
    """Test errors of all runs of one protocol and number of holders, by method."""

    values: dict[str, list[float]]
    failed: dict[str, int]


def _try_all(
    errors: Errors,
    given: Given,
    effort: Effort,
    seed: np.random.SeedSequence,
    test: Callable[[FloatArray], float],
) -> None:
    for method, stream in zip(SAMPLED, seed.spawn(len(SAMPLED)), strict=True):
        try:
            outcome = run(method, given, effort, int(stream.generate_state(1)[0]))
        except (NoisewiseError, ArithmeticError, np.linalg.LinAlgError):
            errors.failed[method] = errors.failed.get(method, 0) + 1
            continue
        errors.values.setdefault(method, []).append(test(outcome.mean))


def least_squares(x: FloatArray, y: FloatArray) -> FloatArray:
    """The regression on all training rows: what privacy costs is measured from here."""
    return np.asarray(np.linalg.lstsq(x, y, rcond=None)[0], dtype=np.float64)


def paper_errors(
    data: DataSet,
    rows: FloatArray,
    J: int,
    which: not_private.Multiplier,
    runs: int,
    effort: Effort,
) -> Errors:
    """The paper's protocol: the rows stay, the noise is drawn anew in every run. NOT PRIVATE."""
    task = not_private.paper_task(rows)
    mechanism = not_private.Mechanism.of(task.x, task.y, EPSILON, which)
    grams = gram_matrices(task.x, task.y, J)
    errors = Errors({}, {})

    def without_intercept(theta: FloatArray) -> float:
        return float(np.mean((task.y_test - task.x_test @ theta) ** 2))

    for number in range(runs):
        seed = seed_of("paper", data.name, J, which, number)
        noise, rest = seed.spawn(2)
        rng = np.random.default_rng(noise)
        priors = not_private.paper_priors(not_private.random_scale_matrix(data.k, rng))
        given = Given(
            not_private.release(grams, mechanism.sd_sz, False, rng),
            not_private.release(grams, mechanism.sd_ss, True, rng),
            *priors,
            mechanism.bound_y / 3,
        )
        _try_all(errors, given, effort, rest, lambda theta: without_intercept(theta[1:]))
        theta = not_private.paper_ada_ssp(grams, mechanism, rng)
        errors.values.setdefault("ada_ssp", []).append(without_intercept(theta))
    best = least_squares(task.x, task.y)
    errors.values["non_private"] = [without_intercept(best)]
    return errors


def private_prior(k: int) -> NormalInverseGammaIndependent:
    """Intercept N(0, 1), each of k slopes N(0, 1/4k), error variance IG(1, 0.05), on unit scale.

    Stated here and not taken from the defaults, so that results stay those of this experiment.
    """
    variance = np.append(1.0, np.full(k, 0.25 / k))
    return NormalInverseGammaIndependent(np.zeros(k + 1), np.diag(variance), 1.0, 0.05)


def private_errors(data: DataSet, rows: FloatArray, J: int, runs: int, effort: Effort) -> Errors:
    """The private protocol: rows are split and shared out anew in every run."""
    errors = Errors({}, {})
    y = rows[:, -1]
    scale = float(np.abs(y - y.mean()).max()) ** 2  # to the paper's scale; for the table only
    regression = private_prior(data.k)
    covariates = HierarchicalNIWPrior.weakly_informative(data.k)
    for number in range(runs):
        seed = seed_of("private", data.name, J, number)
        noise, rest = seed.spawn(2)
        rng = np.random.default_rng(noise)
        task = private.unit_task(data, rows, rng)
        delta = private.private_delta(len(task.y))
        seen = private.private_releases(task.x, task.y, J, float(EPSILON), delta, rng)
        given = Given(seen, seen, regression, regression, covariates, None)

        def test(theta: FloatArray, task: private.UnitTask = task) -> float:
            return task.test_error(theta) / scale

        _try_all(errors, given, effort, rest, test)
        errors.values.setdefault("ada_ssp", []).append(test(private.ada_ssp(seen)))
        w = np.column_stack([np.ones(len(task.y)), task.x])
        best = least_squares(w, task.y)
        errors.values.setdefault("non_private", []).append(test(best))
    return errors


def table_rows(data: DataSet, protocol: str, J: int, errors: Errors) -> list[Row]:
    """A row for each method, with what the paper has beside it."""
    rows: list[Row] = []
    for method in METHODS:
        values = errors.values.get(method)
        if not values:
            continue
        ours = mean_interval(values)
        row: Row = {
            "protocol": protocol,
            "data": data.label,
            "J": J,
            "method": method,
            "runs": len(values),
            "failed": errors.failed.get(method, 0),
            "mse": short(ours.mean, 5),
            "low_90": short(ours.low, 5),
            "high_90": short(ours.high, 5),
            "median": short(float(np.median(values)), 5),
        }
        theirs = published(data.label, J, method) if protocol != "private" else None
        if theirs is not None:
            row.update(paper_mse=theirs[0], paper_low_90=theirs[1], paper_high_90=theirs[2])
            overlap = ours.low <= theirs[2] + 5e-5 and ours.high >= theirs[1] - 5e-5
            row["intervals_meet"] = int(overlap)
        rows.append(row)
    return rows


def write(out: Path, options: Options) -> list[Path]:
    """Run everything that there is data for."""
    rows: list[Row] = []
    table, readable = out / f"{NAME}.csv", out / f"{NAME}.md"
    notes: list[str] = []
    runs = options.runs or (2 if options.quick else RUNS)
    effort = QUICK if options.quick else Effort()
    for data in DATA_SETS:
        values = load(data)
        if values is None:
            notes.append(missing_message(data))
            print(notes[-1])
            continue
        for J in HOLDERS:
            for protocol in PROTOCOLS:
                if protocol == "private":
                    errors = private_errors(data, values, J, runs, effort)
                else:
                    which: not_private.Multiplier = "theirs" if "their" in protocol else "right"
                    errors = paper_errors(data, values, J, which, runs, effort)
                rows.extend(table_rows(data, protocol, J, errors))
                write_table(rows, table)
    if not rows:
        write_table([{"note": note} for note in notes], table)
    readable.write_text(markdown(rows, notes), encoding="utf-8")
    return [table, readable]


def markdown(rows: Sequence[Row], notes: Sequence[str] = ()) -> str:
    """A table for each protocol, for people to read; [.] is the paper's mean."""
    lines: list[str] = [*notes]
    for protocol in dict.fromkeys(row["protocol"] for row in rows):
        here = [row for row in rows if row["protocol"] == protocol]
        lines += ["", f"**{protocol}**", "", "| data | J | " + " | ".join(METHODS) + " |"]
        lines.append("|---|---|" + "---|" * len(METHODS))
        for data, J in dict.fromkeys((row["data"], row["J"]) for row in here):
            group = {r["method"]: r for r in here if (r["data"], r["J"]) == (data, J)}
            entries = [_entry(group.get(method)) for method in METHODS]
            lines.append(f"| {data} | {J} | " + " | ".join(entries) + " |")
    return "\n".join(lines).lstrip("\n") + "\n"


def _entry(row: Row | None) -> str:
    if row is None:
        return ""
    text = f"{row['mse']:.4f}"
    if row["runs"] > 1:
        text += f" ({row['low_90']:.4f}–{row['high_90']:.4f})"
    if "paper_mse" in row:
        text += f" [{row['paper_mse']:.4f}]"
    return text + (f", {row['failed']} failed" if row["failed"] else "")


EXPERIMENT = Report(
    NAME,
    "Tables 1 and 2 of Alparslan et al. (2023): prediction errors on two real data sets",
    write,
)


# --- as published ---------------------------------------------------------------------------------


_PUBLISHED = ("normal_x", "fixed_s", "fixed_s_fast", "bs_distributed", "ada_ssp")

# Mean prediction MSE over 50 runs (table 1).
_MEANS = {
    ("PowerPlant", 1): (0.0129, 0.0129, 0.0129, 0.0128, 0.0139),
    ("BikeSharing", 1): (0.0024, 0.0021, 0.0021, 0.0020, 0.0107),
    ("PowerPlant", 5): (0.0133, 0.0134, 0.0134, 0.0136, 0.0235),
    ("BikeSharing", 5): (0.0174, 0.0045, 0.0045, 0.0086, 0.0382),
    ("PowerPlant", 10): (0.0142, 0.0143, 0.0143, 0.0143, 0.0351),
    ("BikeSharing", 10): (0.0812, 0.0082, 0.0082, 0.0137, 0.0526),
}
# 90% confidence intervals of those means (table 2), in units of 0.0001.
_INTERVALS = {
    ("PowerPlant", 1): ((128, 129), (128, 129), (128, 129), (128, 129), (137, 140)),
    ("BikeSharing", 1): ((21, 27), (18, 24), (18, 24), (17, 22), (106, 108)),
    ("PowerPlant", 5): ((132, 135), (132, 136), (132, 136), (135, 138), (234, 236)),
    ("BikeSharing", 5): ((137, 210), (41, 49), (40, 49), (76, 95), (380, 383)),
    ("PowerPlant", 10): ((139, 145), (140, 146), (140, 146), (141, 146), (349, 353)),
    ("BikeSharing", 10): ((671, 954), (72, 92), (72, 92), (116, 158), (524, 527)),
}


def published(label: str, J: int, method: str) -> tuple[float, float, float] | None:
    """The paper's mean and interval, None if it has none."""
    if method not in _PUBLISHED or (label, J) not in _MEANS:
        return None
    i = _PUBLISHED.index(method)
    low, high = _INTERVALS[label, J][i]
    return _MEANS[label, J][i], low / 1e4, high / 1e4
