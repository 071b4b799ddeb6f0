"""Intervals when holders' people differ, and what allowing for it costs when they don't.

Slopes, error and correlation of the covariates are fixed; nothing is drawn from a prior. Holders'
means are `apart` standard deviations (of the people of one holder) apart, in random directions:
that is the standard deviation over holders. Their spreads go from 1 to `ratio` in equal steps of
their logarithm. All Releases are fitted with a law for each holder, and with one law for all where
holders are alike and in the first trials of other cells, under the default priors and with a second
run where `fit` would make one.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import ScaleFreeCovariates, ScaleFreePrior
from studies.regression import gram, noise_scales
from studies.report import Grid, seed_of
from studies.tables import Row
from studies.trials import Record

NAME = "differing-holders"
DELTA = 1e-6
SD, CORRELATION = 0.2, 0.3
THETA = np.array([0.1, 0.6, -0.4])
SIGMA2 = 0.01
FITS = ("own_laws", "one_law")
LONG = 1  # of the trials of a cell have four chains of 1,000 draws, for the diagnostics
COMPARED = 6  # of the trials of a cell have one law for all, too; all where holders are alike


class Setting(NamedTuple):
    """One cell."""

    J: int
    n: int
    mechanism: Literal["laplace", "gaussian"]
    epsilon: float
    apart: float
    ratio: float


PATTERNS = {
    3: ((0.0, 1.0), (0.5, 1.0), (1.0, 1.0), (2.0, 1.0), (0.0, 3.0), (1.0, 3.0)),
    10: ((0.0, 1.0), (0.5, 1.0), (2.0, 1.0), (1.0, 3.0)),
    50: ((0.0, 1.0), (2.0, 1.0), (1.0, 3.0)),
}
GRID = tuple(
    Setting(J, n, mechanism, 1.0, apart, ratio)
    for J, n in ((10, 1000), (50, 500), (3, 2000))
    for mechanism in ("laplace", "gaussian")
    for apart, ratio in PATTERNS[J]
)
QUICK_GRID = (
    Setting(3, 2000, "gaussian", 1.0, 0.0, 1.0),
    Setting(3, 2000, "gaussian", 1.0, 1.0, 3.0),
)
TRIALS = {3: 60, 10: 40, 50: 12}
QUICK_TRIALS = 4


def releases(setting: Setting, rng: np.random.Generator) -> list[Observation]:
    """What the holders publish."""
    k = len(THETA) - 1
    delta = DELTA if setting.mechanism == "gaussian" else 0.0
    noise = noise_scales(k, setting.epsilon, delta, "upper", False)
    scale = np.full((k + 2, k + 2), noise.off_diagonal)
    np.fill_diagonal(scale, noise.diagonal)
    scale[0, 0] = 0.0
    root = SD * np.linalg.cholesky(np.full((k, k), CORRELATION) + (1 - CORRELATION) * np.eye(k))
    steps = rng.standard_normal((setting.J, k))
    steps = (steps - steps.mean(axis=0)) / steps.std(axis=0)
    spreads = setting.ratio ** rng.permutation(np.linspace(-0.5, 0.5, setting.J))
    found = []
    for step, spread in zip(steps, spreads, strict=True):
        x = SD * setting.apart * step + spread * rng.standard_normal((setting.n, k)) @ root.T
        y = THETA[0] + x @ THETA[1:] + np.sqrt(SIGMA2) * rng.standard_normal(setting.n)
        draw = rng.laplace if setting.mechanism == "laplace" else rng.normal
        added = np.triu(draw(0.0, 1.0, scale.shape) * scale)
        values = gram(x, y) + added + np.triu(added, 1).T
        found.append(Observation(setting.n, values, scale, setting.mechanism))
    return found


def trial(setting: Setting, number: int) -> Record:
    """Fit one set of Releases both ways."""
    from noisewise.analyst.regression.exact import sampler as exact
    from noisewise.analyst.regression.exact.density import CollapsedPosterior

    rng = np.random.default_rng(seed_of(NAME, *map(str, setting), number))
    seen = releases(setting, rng)
    k = len(THETA) - 1
    truth = np.append(THETA, SIGMA2)
    record: Record = {"trial": number}
    alike = setting.apart == 0.0 and setting.ratio == 1.0
    for fit in FITS if alike or number < COMPARED else FITS[:1]:
        size: dict[str, Any] = (
            {"chains": 4, "draws": 1000}
            if number < LONG
            else {"chains": 2, "draws": 400, "tune": 300}
        )
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            drawn, _ = exact.sample_enough(
                CollapsedPosterior(
                    seen,
                    ScaleFreePrior(k),
                    ScaleFreeCovariates.default(k),
                    own_laws=fit == "own_laws",
                ),
                seed=int(rng.integers(2**31)),
                cores=1,
                keep_covariates=False,
                **size,
            )
        seconds = time.process_time() - start
        draws = np.concatenate([drawn.theta, drawn.sigma2[:, :, None]], axis=2)
        low, high = np.quantile(draws, [0.025, 0.975], axis=(0, 1))
        record[fit] = {
            "held": ((low < truth) & (truth < high)).tolist(),
            "width": (high - low).tolist(),
            "divergences": float(drawn.info.diverging.mean()),
        }
        if number < LONG:
            record[fit] |= {"effective": effective(draws), "seconds": seconds}
    return record


def effective(draws: FloatArray) -> float:
    """Smallest effective number of draws, bulk and tail, of all parameters."""
    import arviz

    return min(
        float(arviz.ess(draws[:, :, i], method=method))
        for i in range(draws.shape[2])
        for method in ("bulk", "tail")
    )


def row_of(setting: Setting, records: Sequence[Record]) -> Row:
    """One line of the table."""
    row: Row = {**setting._asdict(), "trials": len(records)}
    widths: dict[str, Any] = {}
    for fit in FITS:
        of = [record[fit] for record in records if fit in record]
        held = np.array([one["held"] for one in of])
        widths[fit] = np.array([one["width"] for one in of])
        for name, columns in (("slopes", slice(1, -1)), ("intercept", 0), ("sigma2", -1)):
            row[f"{fit}_{name}"] = float(f"{held[:, columns].mean():.3f}")
        row[f"{fit}_divergences"] = float(f"{np.mean([one['divergences'] for one in of]):.2g}")
        row[f"{fit}_effective"] = round(min(one["effective"] for one in of[:LONG]))
        row[f"{fit}_seconds"] = float(f"{np.mean([one['seconds'] for one in of[:LONG]]):.2g}")
    row["one_law_trials"] = len(widths["one_law"])
    both = widths["own_laws"][: len(widths["one_law"])]
    ratio = np.log(both / widths["one_law"])[:, 1:-1]
    row["width_ratio"] = float(f"{np.exp(ratio.mean()):.3f}")
    return row


def markdown(rows: Sequence[Row]) -> str:
    """A line a cell."""
    lines = [
        "| J | n | noise | means apart | spreads | trials | slopes, intercept, sigma2 held: "
        "own laws | one law (trials) | width of slopes, own / one | effective draws, divergences, "
        "seconds: own laws |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        held = [
            ", ".join(
                f"{100 * row[f'{fit}_{name}']:.0f}%" for name in ("slopes", "intercept", "sigma2")
            )
            for fit in FITS
        ]
        lines.append(
            f"| {row['J']} | {row['n']} | {row['mechanism']} | {row['apart']:g} "
            f"| 1:{row['ratio']:g} | {row['trials']} | {held[0]} | {held[1]} "
            f"({row['one_law_trials']}) "
            f"| {row['width_ratio']:.2f} "
            f"| {row['own_laws_effective']}, {100 * row['own_laws_divergences']:.2f}%, "
            f"{row['own_laws_seconds']:g} |"
        )
    return "\n".join(lines) + "\n"


EXPERIMENT = Grid(
    NAME,
    GRID,
    QUICK_GRID,
    trial,
    lambda setting: TRIALS[setting.J],
    QUICK_TRIALS,
    row_of,
    markdown,
).report("Coverage and width when holders' people differ: a law for each holder, or one for all")
