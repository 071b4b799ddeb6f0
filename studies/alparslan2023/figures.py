"""Figures 2, 3 and 4 of Alparslan, Yıldırım & Birbil (2023): simulated data. NOT PRIVATE.

Design, section 5.1: theta ~ N(0, I), x ~ N(0, Σ), Σ ~ IW(Λ, d + 1), Λ = V'V, error variance 1,
n = 100,000 rows, bounds from the data (`not_private`), J = 1, 5, 10, delta = 1/n.
What differs from the paper:

- Every run has its own theta, Σ and rows; the paper draws them once. Means are therefore those of
  logarithms (geometric means), because Σ has no mean.
- The noise multiplier is the right one.
- Two priors. ``paper``: sigma2 ~ IG(20, 1/2), whose mean is 1/38 where the truth is 1, and
  theta ~ N(0, 38 I), as in the last version of the authors' code (the paper says N(0, I/38), under
  which theta = 1 is six standard deviations away). ``matched``: theta ~ N(0, I), from which it is
  drawn, and sigma2 ~ IG(3, 2), whose mean is the truth.
- The error of a prediction is that of the posterior mean, for every method. The authors' code
  averages it over draws for the methods that have draws, which adds the posterior variance to
  those methods only.
- `exact` is added. All methods see the same rows; those with y'y see a release with more noise.

Rows are drawn, not only their sums: the bounds are the largest norms of rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.priors import NIWPrior
from noisewise.core.errors import NoisewiseError
from noisewise.planning.truths import draw_covariate_law
from studies.alparslan2023 import not_private
from studies.alparslan2023.data import gram_matrices
from studies.alparslan2023.methods import QUICK, SAMPLED, Effort, Given, run
from studies.figures import canvas, style
from studies.regression import sample_non_private
from studies.report import Options, Report, seed_of
from studies.tables import Row, short, write_table
from studies.uniformity import mmd2_unbiased, thin

NAME = "alparslan2023-figs"
HOLDERS = (1, 5, 10)
EPSILONS = tuple(Fraction(e) for e in ("1/10", "1/2", "1", "2", "10"))
DIMENSIONS = (2, 5)
PRIORS = ("paper", "matched")
RUNS = 30
ROWS = 100_000
EFFORT = Effort((5000, 5000), (1500, 500), (800, 400), (150, 150))
ENOUGH = 0.1  # seconds of processor time that a timing takes
COMPARED_DRAWS = 200
WIDTH = 0.1  # the paper's kernel is exp(-|a - b|²/(2·0.1))


class Truth(NamedTuple):
    """One simulated data set."""

    theta: FloatArray  # (d,)
    Sigma: FloatArray  # (d, d), covariance of the covariates
    Lam: FloatArray  # (d, d), scale matrix of its prior
    x: FloatArray  # (n, d)
    y: FloatArray  # (n,)


def simulate(d: int, n: int, rng: np.random.Generator) -> Truth:
    """The paper's simulation."""
    Lam = not_private.random_scale_matrix(d, rng)
    _, Sigma = draw_covariate_law(NIWPrior(np.zeros(d), 1.0, Lam, d + 1.0), rng)
    theta = rng.standard_normal(d)
    x = rng.standard_normal((n, d)) @ np.linalg.cholesky(Sigma).T
    return Truth(theta, Sigma, Lam, x, x @ theta + rng.standard_normal(n))


def _priors(name: str, Lam: FloatArray) -> not_private.Priors:
    if name == "paper":
        return not_private.paper_priors(Lam, (not_private.SHAPE - 1) / not_private.SCALE)
    return not_private.paper_priors(Lam, 1.0, shape=3.0, scale=2.0, conjugate_precision=1.0)


def one_run(d: int, n: int, number: int, epsilons: Sequence[Fraction], effort: Effort) -> list[Row]:
    """All priors, J and epsilon for one simulated data set; errors of every method."""
    data_seed, rest = seed_of("figs", d, n, number).spawn(2)
    truth = simulate(d, n, np.random.default_rng(data_seed))
    pooled = gram_matrices(truth.x, truth.y, 1)[0]
    pooled[0, 1:] = pooled[1:, 0] = 0.0  # no intercept
    priors = {name: _priors(name, truth.Lam) for name in PRIORS}
    rows: list[Row] = []
    references = {}
    for name, prior in priors.items():
        theta, _ = sample_non_private(pooled, prior.conjugate, draws=500, seed=number)
        references[name] = theta[0, :, 1:]
        where = Place(name, d, 0, "", number)
        rows.append(_row(where, "non_private", truth, references[name].mean(axis=0)))
    for J in HOLDERS:
        grams = gram_matrices(truth.x, truth.y, J)
        for epsilon in epsilons:
            mechanism = not_private.Mechanism.of(truth.x, truth.y, epsilon, "right")
            rng = np.random.default_rng(rest.spawn(1)[0])
            without = not_private.release(grams, mechanism.sd_sz, False, rng)
            with_y = not_private.release(grams, mechanism.sd_ss, True, rng)
            point = not_private.paper_ada_ssp(grams, mechanism, rng)
            for name, prior in priors.items():
                where = Place(name, d, J, f"{float(epsilon):g}", number)
                given = Given(without, with_y, *prior, mechanism.bound_y / 3)
                seed = int(rng.integers(2**32))
                rows.extend(_all_methods(where, given, effort, seed, truth, references[name]))
                rows.append(_row(where, "ada_ssp", truth, point))
    return rows


class Place(NamedTuple):
    """Where a result belongs."""

    prior: str
    d: int
    J: int
    epsilon: str
    run: int


def _all_methods(
    where: Place, given: Given, effort: Effort, seed: int, truth: Truth, reference: FloatArray
) -> list[Row]:
    rows = []
    for method in SAMPLED:
        try:
            found = run(method, given, effort, seed)
        except (NoisewiseError, ArithmeticError, np.linalg.LinAlgError) as error:
            rows.append(_row(where, method, truth, None, error=str(error)[:80]))
            continue
        row = _row(where, method, truth, found.mean[1:])
        row["seconds"] = found.seconds
        if where.d == DIMENSIONS[0]:
            draws = thin(found.theta[None, :, 1:], COMPARED_DRAWS)
            row["mmd2"] = mmd2_unbiased(reference, draws)
            row["mmd2_paper"] = mmd2_fixed(reference, draws, WIDTH)
        rows.append(row)
    return rows


def _row(where: Place, method: str, truth: Truth, theta: FloatArray | None, **more: Any) -> Row:
    row: Row = {**where._asdict(), "method": method, **more}
    if theta is not None:
        away = theta - truth.theta
        row["estimation"] = float(np.mean(away**2))
        row["prediction"] = float(away @ truth.Sigma @ away)
    return row


def mmd2_fixed(p: FloatArray, q: FloatArray, width: float) -> float:
    """Unbiased squared discrepancy with the paper's kernel exp(-|a - b|²/(2 width))."""

    def total(a: FloatArray, b: FloatArray) -> float:
        squares = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)
        return float(np.exp(-squares / (2 * width)).sum())

    m, k = len(p), len(q)
    within = (total(p, p) - m) / (m * (m - 1)) + (total(q, q) - k) / (k * (k - 1))
    return within - 2 * total(p, q) / (m * k)


def summarise(rows: Sequence[Row]) -> list[Row]:
    """Over runs: geometric means of errors with their standard errors, means of discrepancies."""
    factors = ("prior", "d", "J", "epsilon", "method")
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in factors), []).append(row)
    summary = []
    for key, group in groups.items():
        good = [row for row in group if "estimation" in row]
        line: Row = dict(zip(factors, key, strict=True))
        line.update(runs=len(good), failed=len(group) - len(good))
        for what in ("estimation", "prediction"):
            logs = np.log10([row[what] for row in good])
            if len(logs):
                line[what] = short(10 ** float(logs.mean()))
                spread = logs.std(ddof=1) / len(logs) ** 0.5 if len(logs) > 1 else np.nan
                line[f"{what}_log10_error"] = short(float(spread))
        for what in ("mmd2", "mmd2_paper"):
            values = np.array([row[what] for row in good if what in row])
            if len(values) > 1:
                line[what] = short(float(values.mean()))
                line[f"{what}_error"] = short(float(values.std(ddof=1) / len(values) ** 0.5))
        seconds = [row["seconds"] for row in good if "seconds" in row]
        line["seconds"] = short(float(np.median(seconds))) if seconds else ""
        summary.append(line)
    return summary


def timing_rows(dimensions: Sequence[int], holders: Sequence[int], enough: float) -> list[Row]:
    """Processor time per iteration, compilation and set-up left out: figure 3."""
    rows: list[Row] = []
    for d in dimensions:
        truth = simulate(d, 10_000, np.random.default_rng(seed_of("time", d)))
        mechanism = not_private.Mechanism.of(truth.x, truth.y, Fraction(1), "right")
        priors = _priors("paper", truth.Lam)
        for J in holders:
            grams = gram_matrices(truth.x, truth.y, J)
            rng = np.random.default_rng(seed_of("time", d, J))
            without = not_private.release(grams, mechanism.sd_sz, False, rng)
            with_y = not_private.release(grams, mechanism.sd_ss, True, rng)
            given = Given(without, with_y, *priors, None)
            for method in ("normal_x", "fixed_s", "bs_distributed", "bs_distributed_dense"):
                count, seconds = _time(method, given, enough)
                row = {"d": d, "J": J, "method": method, "iterations": count}
                rows.append({**row, "seconds_per_iteration": short(seconds)})
    return rows


def _time(method: str, given: Given, enough: float) -> tuple[int, float]:
    """Iterations that were timed, and seconds of each; more and more until it takes `enough`."""
    from noisewise.analyst.regression.papers import gibbs

    def work(count: int) -> float:
        start = time.process_time()
        if method == "bs_distributed_dense":
            gibbs.sample(
                given.with_y_squares, given.conjugate, given.covariates, update="dense",
                chains=1, draws=count, tune=1, seed=1, cores=1,
            )  # fmt: skip
        else:
            run(method, given, Effort((count, 1), (count, 1), (count, 1)), 1)
        return time.process_time() - start

    work(2)  # compiles
    setup = min(work(2) for _ in range(3))
    count = 10
    while True:
        elapsed = work(count + 2) - setup
        if elapsed > enough or count >= 20_000:
            return count, max(elapsed, 1e-9) / count
        count *= 4


def write(out: Path, options: Options) -> list[Path]:
    """Run, write tables, draw the three figures."""
    runs = options.runs or (1 if options.quick else RUNS)
    epsilons = (Fraction(1, 10), Fraction(1), Fraction(10)) if options.quick else EPSILONS
    n, effort = (20_000, QUICK) if options.quick else (ROWS, EFFORT)
    errors, times = out / f"{NAME}-errors.csv", out / f"{NAME}-times.csv"
    dimensions = (1, 3, 6) if options.quick else (1, 2, 3, 4, 6, 8, 11, 14, 17, 20)
    timing = timing_rows(dimensions, HOLDERS, 0.01 if options.quick else ENOUGH)
    write_table(timing, times)
    rows: list[Row] = []
    for number in range(runs):
        for d in DIMENSIONS:
            rows.extend(one_run(d, n, number, epsilons, effort))
        write_table(summarise(rows), errors)
    summary = summarise(rows)
    paths = [errors, times, out / f"{NAME}-3.png"]
    draw_times(timing, paths[-1])
    for prior in PRIORS:
        here = [row for row in summary if row["prior"] == prior]
        paths += [out / f"{NAME}-2-{prior}.png", out / f"{NAME}-4-{prior}.png"]
        draw_errors(here, paths[-2])
        draw_discrepancy(here, paths[-1])
    return paths


EXPERIMENT = Report(
    NAME,
    "Figures 2, 3 and 4 of Alparslan et al. (2023): errors, times and discrepancy, simulated data",
    write,
)


# --- the pictures ---------------------------------------------------------------------------------


def _legend(figure: Any, axis: Any, methods: Sequence[str]) -> None:
    handles = [axis.plot([], [], label=name, **style(name))[0] for name in methods]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)


def _methods(rows: Sequence[Row]) -> list[str]:
    return [m for m in dict.fromkeys(row["method"] for row in rows) if m != "non_private"]


def draw_errors(rows: Sequence[Row], path: Path) -> None:
    """Figure 2: errors against epsilon, a column for each J; dotted: without privacy."""
    dimensions = sorted({row["d"] for row in rows})
    holders = sorted({row["J"] for row in rows if row["J"]})
    figure = canvas(3.2 * len(holders), 2.4 * 2 * len(dimensions) + 0.6)
    axes = figure.subplots(2 * len(dimensions), len(holders), squeeze=False, sharex=True)
    for i, d in enumerate(dimensions):
        for half, what in enumerate(("prediction", "estimation")):
            for axis, J in zip(axes[2 * i + half], holders, strict=True):
                here = [row for row in rows if row["d"] == d]
                _lines(axis, [row for row in here if row["J"] == J], what)
                for row in here:
                    if row["method"] == "non_private" and what in row:
                        axis.axhline(row[what], color="0.4", linewidth=0.8, linestyle=":")
                axis.set_title(f"{what}, d = {d}, J = {J}", fontsize=8)
    for axis in axes[:, 0]:
        axis.set_ylabel("squared error", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("epsilon", fontsize=8)
    _legend(figure, axes[0, 0], _methods(rows))
    figure.savefig(path, dpi=110)


def draw_times(rows: Sequence[Row], path: Path) -> None:
    """Figure 3: time per iteration against d, a column for each J."""
    holders = sorted({row["J"] for row in rows})
    figure = canvas(3.2 * len(holders), 3.2)
    axes = figure.subplots(1, len(holders), squeeze=False, sharey=True)[0]
    for axis, J in zip(axes, holders, strict=True):
        for method in _methods(rows):
            points = [
                (row["d"], row["seconds_per_iteration"])
                for row in rows
                if row["J"] == J and row["method"] == method
            ]
            axis.plot(*zip(*sorted(points), strict=True), **style(method))
        axis.set_yscale("log")
        axis.set_title(f"J = {J}", fontsize=9)
        axis.set_xlabel("d", fontsize=8)
    axes[0].set_ylabel("seconds per iteration", fontsize=8)
    _legend(figure, axes[0], _methods(rows))
    figure.savefig(path, dpi=110)


def draw_discrepancy(rows: Sequence[Row], path: Path) -> None:
    """Figure 4: MMD² to the non-private posterior; above with our kernel, below the paper's."""
    rows = [row for row in rows if row.get("mmd2", "") != ""]
    holders = sorted({row["J"] for row in rows})
    if not holders:
        holders = [1]
    figure = canvas(3.2 * len(holders), 5.2)
    axes = figure.subplots(2, len(holders), squeeze=False, sharex=True)
    kernels = (("mmd2", "median width"), ("mmd2_paper", "the paper's width"))
    for line, (what, label) in zip(axes, kernels, strict=True):
        for axis, J in zip(line, holders, strict=True):
            _lines(axis, [row for row in rows if row["J"] == J], what, log=False)
            axis.set_title(f"MMD², {label}, J = {J}", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("epsilon", fontsize=8)
    _legend(figure, axes[0, 0], _methods(rows))
    figure.savefig(path, dpi=110)


def _lines(axis: Any, rows: Sequence[Row], what: str, log: bool = True) -> None:
    for method in _methods(rows):
        points = sorted(
            (float(row["epsilon"]), row[what])
            for row in rows
            if row["method"] == method and row.get(what, "") != ""
        )
        if points:
            axis.plot(*zip(*points, strict=True), **style(method))
    axis.set_xscale("log")
    if log:
        axis.set_yscale("log")
    axis.tick_params(labelsize=7)
