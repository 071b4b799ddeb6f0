"""Ten holders with rounds; and more than 50, who are added up in groups: coverage, width, time.

Without rounds, Releases are those of `differing_holders`. With rounds, each holder has summed
w' = K_j w, which whitens its own people up to the errors of its earlier rounds, with the noise that
a Release of 3,000 rows with two covariates has at (1, 1e-6). Truths are fixed and priors are the
defaults. With 60 holders the first trials are fitted one by one, too, and with 10 who are alike,
with one law for all.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.exact.groups import added_up
from noisewise.analyst.regression.exact.sampler import sample
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.original_units import moved
from noisewise.analyst.regression.priors import ScaleFreeCovariates, ScaleFreePrior, ball_share
from noisewise.analyst.regression.rounds import InRounds
from studies import differing_holders
from studies.differing_holders import CORRELATION, SD, SIGMA2, THETA
from studies.regression import gram
from studies.report import Grid, seed_of
from studies.tables import Row, as_markdown, short
from studies.trials import Record

NAME = "many-holders"
LONG, COMPARED = 1, 3  # of the trials: four chains of 1,000 draws; fitted another way, too
OTHER_WAY = {10: "one_law", 60: "single"}  # by number of holders
ROWS = {"laplace": 500, "gaussian": 500, "rounds": 3000}
# Of the last round: noise of means, of squares and of products, on rows in a ball of radius 1.
MEANS, SQUARES, PRODUCTS = 30.0, 18.0, 12.8
RADIUS = 3.5  # of that ball, in standard deviations of a number


class Setting(NamedTuple):
    """One cell."""

    J: int
    noise: str  # laplace, gaussian (both without rounds) or rounds
    apart: float
    ratio: float


GRID = (
    *(Setting(10, "rounds", *how) for how in ((0.0, 1.0), (2.0, 1.0), (1.0, 3.0))),
    *(Setting(60, noise, *how) for noise in ROWS for how in ((0.0, 1.0), (1.0, 3.0))),
    *(Setting(1000, noise, 1.0, 3.0) for noise in ROWS),
)
QUICK_GRID = (Setting(60, "rounds", 1.0, 3.0),)
TRIALS, QUICK_TRIALS = {10: 20, 60: 15, 1000: 4}, 2


class Seen(NamedTuple):
    """What holders publish, in common coordinates; M and t take the truth there."""

    observations: Sequence[Observation]
    prior: ScaleFreePrior
    covariates: ScaleFreeCovariates
    common: InRounds | None


def releases(setting: Setting, rng: np.random.Generator) -> Seen:
    """What the holders publish."""
    k = len(THETA) - 1
    prior, n = ScaleFreePrior(k), ROWS[setting.noise]
    if setting.noise != "rounds":
        mechanism: Any = setting.noise
        cell = differing_holders.Setting(setting.J, n, mechanism, 1.0, setting.apart, setting.ratio)
        seen = differing_holders.releases(cell, rng)
        return Seen(seen, prior, ScaleFreeCovariates.default(k), None)
    root = SD * np.linalg.cholesky(np.full((k, k), CORRELATION) + (1 - CORRELATION) * np.eye(k))
    steps = rng.standard_normal((setting.J, k))
    steps = (steps - steps.mean(axis=0)) / steps.std(axis=0)
    spreads = setting.ratio ** rng.permutation(np.linspace(-0.5, 0.5, setting.J))
    scale = np.full((k + 2, k + 2), PRODUCTS)
    scale[0], scale[:, 0] = MEANS, MEANS
    np.fill_diagonal(scale, SQUARES)
    scale[0, 0] = 0.0
    maps: list[FloatArray] = []
    sums: list[FloatArray] = []
    for step, spread in zip(steps, spreads, strict=True):
        x = SD * setting.apart * step + spread * rng.standard_normal((n, k)) @ root.T
        y = THETA[0] + x @ THETA[1:] + np.sqrt(SIGMA2) * rng.standard_normal(n)
        maps.append(_whitening(np.column_stack([x, y]), rng))
        added = np.triu(rng.standard_normal(scale.shape) * scale)
        exact = maps[-1] @ gram(x, y) @ maps[-1].T
        sums.append((exact + exact.T) / 2 + added + np.triu(added, 1).T)
        sums[-1][0, 0] = n
    back = np.linalg.inv(maps[0])
    turned = [np.tril(K @ back) for K in maps]
    for K in turned:
        K[0] = np.eye(k + 2)[0]
    seen = [
        Observation(n, values, scale, "gaussian", map=None if j == 0 else K)
        for j, (values, K) in enumerate(zip(sums, turned, strict=True))
    ]
    guide = 0.5 * float(np.sqrt(ball_share(k + 1, 1.0)))
    covariates = ScaleFreeCovariates(np.full(k, guide), k + 1.0)
    common = InRounds(tuple(seen), maps[0], covariates)
    y = maps[0][-1, -1]
    found = moved(prior, maps[0][:-1, :-1].T / y, -maps[0][-1, :-1] / y, y**-2)
    if not isinstance(found, ScaleFreePrior):
        raise TypeError("the prior of other coordinates is of another kind")
    return Seen(seen, found, covariates, common)


def _whitening(rows: FloatArray, rng: np.random.Generator) -> FloatArray:
    """K of one holder: rows less their mean, whitened, over the radius; with errors of a tenth."""
    q = rows.shape[1]
    root = np.linalg.cholesky(np.cov(rows.T))
    turn = np.eye(q) + 0.1 * np.tril(rng.standard_normal((q, q)))
    K = np.eye(q + 1)
    K[1:, 1:] = np.abs(np.diag(np.diag(turn))) + np.tril(turn, -1)
    K[1:, 1:] = K[1:, 1:] @ np.linalg.inv(root) / RADIUS
    K[1:, 0] = -K[1:, 1:] @ rows.mean(axis=0) + 0.1 * rng.standard_normal(q) / RADIUS
    return np.asarray(np.tril(K))


def trial(setting: Setting, number: int) -> Record:
    """Fit one set of Releases as `auto` does, and in some trials another way, too."""
    rng = np.random.default_rng(seed_of(NAME, *map(str, setting), number))
    seen = releases(setting, rng)
    truth = np.append(THETA, SIGMA2)
    record: Record = {"trial": number}
    fits = ["groups"]
    alike = setting.apart == 0.0 and setting.ratio == 1.0
    if setting.J in OTHER_WAY and (alike if setting.J == 10 else number < COMPARED):
        fits.append(OTHER_WAY[setting.J])
    for fit in fits:
        long = number < LONG and fit == "groups"
        size: dict[str, Any] = {"chains": 2, "draws": 400, "tune": 300}
        if long:
            size = {"chains": 4, "draws": 1000}
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            drawn = sample(
                added_up(seen.observations) if fit == "groups" else seen.observations,
                seen.prior,
                seen.covariates,
                own_laws=fit != "one_law",
                seed=int(rng.integers(2**31)),
                cores=1,
                keep_covariates=False,
                **size,
            )
        seconds = time.process_time() - start
        theta, sigma2 = drawn.theta, drawn.sigma2
        if seen.common is not None:
            theta, sigma2 = seen.common.regression_to_unit(theta, sigma2)
        draws = np.concatenate([theta, sigma2[:, :, None]], axis=2)
        low, high = np.quantile(draws, [0.025, 0.975], axis=(0, 1))
        record[fit] = {
            "held": ((low < truth) & (truth < high)).tolist(),
            "width": (high - low).tolist(),
            "middle": np.median(draws, axis=(0, 1)).tolist(),
            "divergences": float(drawn.info.diverging.mean()),
        }
        if long:
            record[fit] |= {"effective": differing_holders.effective(draws), "seconds": seconds}
    return record


def row_of(setting: Setting, records: Sequence[Record]) -> Row:
    """One line of the table."""
    of = [record["groups"] for record in records]
    held = np.array([one["held"] for one in of])
    row: Row = {**setting._asdict(), "n": ROWS[setting.noise], "trials": len(of)}
    for name, columns in (("slopes", slice(1, -1)), ("intercept", 0), ("sigma2", -1)):
        row[name] = round(float(held[:, columns].mean()), 3)
    row["divergences"] = short(np.mean([one["divergences"] for one in of]), 2)
    row["effective"] = round(min(one["effective"] for one in of[:LONG]))
    row["seconds"] = short(np.mean([one["seconds"] for one in of[:LONG]]), 3)
    other = OTHER_WAY.get(setting.J, "")
    both = [record for record in records if other in record]
    row["compared"], row["other"], row["width_ratio"] = len(both), other, ""
    if both:
        groups, apart = (
            np.array([r[fit]["width"] for r in both])[:, 1:-1] for fit in ("groups", other)
        )
        row["width_ratio"] = round(float(np.exp(np.log(groups / apart).mean())), 2)
    return row


def markdown(rows: Sequence[Row]) -> str:
    """A line a cell."""
    lines = []
    for row in rows:
        held = ", ".join(f"{100 * row[name]:.0f}%" for name in ("slopes", "intercept", "sigma2"))
        way = {"one_law": "one law", "single": "one by one"}.get(row["other"])
        ratio = f"{row['width_ratio']:.2f}, {way} ({row['compared']})" if row["compared"] else ""
        sizes = f"{row['J']:,}", f"{row['n']:,}", row["noise"], f"{row['apart']:g}"
        run = f"{row['effective']}, {100 * row['divergences']:.2f}%, {row['seconds']:g}"
        lines.append((*sizes, f"1:{row['ratio']:g}", row["trials"], held, ratio, run))
    return as_markdown(
        "J | n | noise | means apart | spreads | trials | slopes, intercept, sigma2 held | width "
        "of slopes over that of another way (trials) | effective draws, divergences, seconds",
        lines,
    )


EXPERIMENT = Grid(
    NAME, GRID, QUICK_GRID, trial, lambda setting: TRIALS[setting.J], QUICK_TRIALS, row_of, markdown
).report("Ten holders with rounds, and more than 50 as sums of groups: coverage, width, time")
