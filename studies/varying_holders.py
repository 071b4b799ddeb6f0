"""Coefficients that vary by holder: how often intervals hold, and what one regression for all does.

The common coefficients, the spread between holders, errors and covariates are fixed. In every trial
holders' coefficients are drawn about the common ones, with the spread `tau` in units sd(y) / sd(x)
of a regression without slopes that vary; the intercept at the average person varies too. All
Releases are fitted with `varying`, and in the first trials of a cell with one regression for all
(`exact_own_laws`) and holder by holder.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import ScaleFreeCovariates, ScaleFreePrior
from studies.differing_holders import effective
from studies.regression import gram, noise_scales
from studies.report import Grid, seed_of
from studies.tables import Row, as_markdown, short
from studies.trials import Record

NAME = "varying-holders"
DELTA = 1e-6
SD, CORRELATION, SIGMA = 0.2, 0.3, 0.1
MEAN = np.array([0.1, -0.2])
THETA = np.array([0.1, 0.6, -0.4])  # the intercept at the average person
SD_Y = float(np.sqrt(SIGMA**2 + SD**2 * (0.6**2 + 0.4**2 - 2 * CORRELATION * 0.6 * 0.4)))
UNIT = SD_Y * np.array([1.0, 1 / SD, 1 / SD])
LONG = 1  # of the trials of a cell have four chains of 1,000 draws, for the diagnostics
COMPARED = 10  # of the trials are fitted in other ways, too


class Setting(NamedTuple):
    """One cell."""

    J: int
    n: int
    mechanism: Literal["laplace", "gaussian"]
    tau: float


GRID = tuple(
    Setting(J, 2000, mechanism, tau)
    for J in (3, 10)
    for mechanism in ("laplace", "gaussian")
    for tau in (0.0, 0.2, 1.0)
)
QUICK_GRID = (Setting(3, 2000, "gaussian", 0.4),)
TRIALS = {3: 40, 10: 12}
QUICK_TRIALS = 2


def releases(
    setting: Setting, rng: np.random.Generator
) -> tuple[list[Observation], list[list[float]]]:
    """What the holders publish, and their coefficients."""
    k = len(THETA) - 1
    delta = DELTA if setting.mechanism == "gaussian" else 0.0
    noise = noise_scales(k, 1.0, delta, "upper", False)
    scale = np.full((k + 2, k + 2), noise.off_diagonal)
    np.fill_diagonal(scale, noise.diagonal)
    scale[0, 0] = 0.0
    root = SD * np.linalg.cholesky(np.full((k, k), CORRELATION) + (1 - CORRELATION) * np.eye(k))
    seen, own = [], []
    for _ in range(setting.J):
        theta = THETA + setting.tau * UNIT * rng.standard_normal(k + 1)
        theta[0] -= theta[1:] @ MEAN
        x = MEAN + rng.standard_normal((setting.n, k)) @ root.T
        y = theta[0] + x @ theta[1:] + SIGMA * rng.standard_normal(setting.n)
        draw = rng.laplace if setting.mechanism == "laplace" else rng.normal
        added = np.triu(draw(0.0, 1.0, scale.shape) * scale)
        values = gram(x, y) + added + np.triu(added, 1).T
        seen.append(Observation(setting.n, values, scale, setting.mechanism))
        own.append(theta.tolist())
    return seen, own


def trial(setting: Setting, number: int) -> Record:
    """Fit one set of Releases."""
    from noisewise.analyst.regression.exact import sampler as exact
    from noisewise.analyst.regression.exact import varying

    rng = np.random.default_rng(seed_of(NAME, *map(str, setting), number))
    seen, own = releases(setting, rng)
    k, own_truth = len(THETA) - 1, np.array(own)
    common = THETA - np.append(THETA[1:] @ MEAN, np.zeros(k))
    size: dict[str, Any] = (
        {"chains": 4, "draws": 1000} if number < LONG else {"chains": 2, "draws": 500, "tune": 400}
    )
    size |= {"seed": int(rng.integers(2**31)), "cores": 1}
    given = ScaleFreePrior(k), ScaleFreeCovariates.default(k)
    start = time.process_time()
    drawn = varying.sample_varying(varying.VaryingPosterior(seen, *given), **size)
    record: Record = {"trial": number, "seconds": time.process_time() - start}
    low, high = np.quantile(drawn.common, [0.025, 0.975], axis=(0, 1))
    own_low, own_high = np.quantile(drawn.theta, [0.025, 0.975], axis=(0, 1))
    truth = setting.tau * UNIT
    tau_low, tau_high = np.quantile(drawn.tau, [0.025, 0.975], axis=(0, 1))
    record |= {
        "common": ((low < common) & (common < high)).tolist(),
        "width": (high - low).tolist(),
        "own": ((own_low < own_truth) & (own_truth < own_high)).mean(axis=0).tolist(),
        "own_width": (own_high - own_low).mean(axis=0).tolist(),
        # no interval holds a spread of 0, which is at the end: there its upper end counts
        "spread": ((tau_low < truth) & (truth < tau_high)).tolist(),
        "spread_high": (tau_high / UNIT).tolist(),
        "divergences": float(drawn.info.diverging.mean()),
    }
    if number < LONG:
        flat = drawn.theta.reshape(*drawn.tau.shape[:2], -1)
        record["effective"] = effective(np.concatenate([drawn.common, drawn.tau, flat], axis=2))
    if number < COMPARED:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            short = size | {"chains": 2, "draws": 400, "tune": 300, "keep_covariates": False}
            one = exact.sample(seen, *given, own_laws=True, **short).theta
            alone = np.stack([exact.sample([each], *given, **short).theta for each in seen], axis=2)
        low, high = np.quantile(one, [0.025, 0.975], axis=(0, 1))
        record["one"] = ((low < common) & (common < high)).tolist()
        record["one_own"] = ((low < own_truth) & (own_truth < high)).mean(axis=0).tolist()
        record["one_width"] = (high - low).tolist()
        low, high = np.quantile(alone, [0.025, 0.975], axis=(0, 1))
        record["alone_width"] = (high - low).mean(axis=0).tolist()
    return record


def row_of(setting: Setting, records: Sequence[Record]) -> Row:
    """One line of the table."""
    row: Row = {**setting._asdict(), "trials": len(records)}

    def mean(name: str, part: Any = slice(1, None)) -> float:
        found = [np.mean(np.array(r[name])[part]) for r in records if name in r]
        return float(f"{np.mean(found):.3f}")

    for name in ("common", "own", "spread", "one", "one_own"):
        row[f"{name}_slopes"], row[f"{name}_intercept"] = mean(name), mean(name, 0)
    row["spread_high"] = mean("spread_high")
    compared = [record for record in records if "one" in record]
    for name, by in (("own_width", "alone_width"), ("width", "one_width")):
        ratio = [np.log(np.array(r[name]) / np.array(r[by]))[1:].mean() for r in compared]
        row[f"{name}_ratio"] = float(f"{np.exp(np.mean(ratio)):.3f}")
    row["effective"] = round(min(r["effective"] for r in records[:LONG]))
    row["divergences"] = short(np.mean([r["divergences"] for r in records]), 2)
    row["seconds"] = short(np.mean([r["seconds"] for r in records[:LONG]]), 2)
    return row


def markdown(rows: Sequence[Row]) -> str:
    """A line a cell."""
    lines = []
    for r in rows:
        spread = "–" if r["tau"] == 0 else f"{100 * r['spread_slopes']:.0f}%"
        lines.append(
            (
                *(r["J"], r["n"], r["mechanism"], f"{r['tau']:g}", r["trials"]),
                f"{100 * r['common_slopes']:.0f}%, {100 * r['common_intercept']:.0f}%",
                f"{100 * r['own_slopes']:.0f}%, {100 * r['own_intercept']:.0f}%",
                f"{spread} ({r['spread_high']:.2f})",
                f"{100 * r['one_slopes']:.0f}%, {100 * r['one_own_slopes']:.0f}%",
                *(f"{r['width_ratio']:.2f}", f"{r['own_width_ratio']:.2f}"),
                f"{r['effective']}, {100 * r['divergences']:.2f}%, {r['seconds']:g}",
            )
        )
    return as_markdown(
        "J | n | noise | spread | trials | held: common slopes, intercept | held: holders' own | "
        "held: spreads (mean upper end) | one regression for all holds: common slopes, holders' "
        "own | width of common, varying / one | width of own, varying / holder alone | effective "
        "draws, divergences, seconds",
        lines,
    )


EXPERIMENT = Grid(
    NAME, GRID, QUICK_GRID, trial, lambda setting: TRIALS[setting.J], QUICK_TRIALS, row_of, markdown
).report("Coverage of common and of holders' own coefficients, where they vary by holder")
