"""Size and power of the calibration harness itself: how often does it reject, right and wrong?

Whole studies are run again and again on a problem whose posterior is known exactly, and the share
of them that each test rejects is counted. A method that is right should be rejected as often as
the test's level says (its size); for wrong ones the share is the power:

- `conjugate`: the exact posterior given the exact sums. Right by construction;
- `naive`, where noise is large and where it is nearly harmless;
- `narrow by 5%, 10%, 20%`: the exact posterior with draws pulled towards their mean;
- `shifted by .1 sd, .25 sd`: the exact posterior moved.

Tests: Kolmogorov-Smirnov at 5% and 1%, leaving the simultaneous 95% band, and the binomial test of
95% coverage at 1%. Their verdict is on one parameter at a time, as in the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from noisewise._arrays import FloatArray
from studies.calibration.grid import broad_model
from studies.methods import Sampler
from studies.regression import SimulatedRegression
from studies.report import Options, Report, kept_trials, write_both
from studies.tables import Row, as_markdown, short
from studies.trials import Record
from studies.uniformity import coverage_test, outside_band, spread_rank, uniformity_test

NAME = "calibration-power"
SEED = 20261117
RANKED = 200
SIZES = (100, 300, 1000)
TRIALS, QUICK_TRIALS = 45_000, 2000
CHUNK = 500
NAIVE = ("naive, much noise", "naive, little noise")
METHODS = (
    "conjugate",
    *NAIVE,
    "narrow by 5%",
    "narrow by 10%",
    "narrow by 20%",
    "shifted by .1 sd",
    "shifted by .25 sd",
)
TESTS = ("ks_5", "ks_1", "band_5", "coverage_1")


def verdicts(u: FloatArray) -> list[bool]:
    """Whether each of `TESTS` rejects these ranks of one parameter."""
    p = uniformity_test(u, resamples=2).p_value
    return [p < 0.05, p < 0.01, outside_band(u), coverage_test(u, 0.95) < 0.01]


@lru_cache(maxsize=1)
def models() -> dict[str, SimulatedRegression]:
    """One covariate, 100 rows; noise that matters, and noise that hardly does."""
    return dict(zip(NAIVE, (broad_model(1, 100, 1.0), broad_model(1, 100, 10.0)), strict=True))


def distorted(draws: FloatArray, method: str) -> FloatArray:
    """Draws (L, D) of the exact posterior, made wrong in a known way."""
    mean, sd = draws.mean(axis=0), draws.std(axis=0)
    if method.startswith("narrow"):
        percent = float(method.rsplit(maxsplit=1)[-1].rstrip("%"))
        return np.asarray(mean + (1 - percent / 100) * (draws - mean))
    if method.startswith("shifted"):
        return np.asarray(draws + float(method.split()[-2]) * sd)
    return draws


def ranks(chunk: int, *, trials: int) -> dict[str, FloatArray]:
    """Spread ranks of all methods in some trials, (trials, 3) each."""
    rng = np.random.default_rng([SEED, chunk])
    found: dict[str, list[list[float]]] = {method: [] for method in METHODS}
    exact, naive = Sampler("non_private", draws=RANKED), Sampler("naive", draws=RANKED)
    for _ in range(trials):
        for name, model in models().items():
            case = model.simulate(rng)
            seed = int(rng.integers(2**62))
            found[name].append(_ranked(case.truth, naive.sample(model, case, seed)[0], rng))
        draws = exact.sample(model, case, seed)[0]  # the last case serves all the others
        for method in METHODS:
            if method not in NAIVE:
                found[method].append(_ranked(case.truth, distorted(draws, method), rng))
    return {method: np.array(values) for method, values in found.items()}


def _ranked(truth: FloatArray, draws: FloatArray, rng: np.random.Generator) -> list[float]:
    return [spread_rank(truth[i], draws[:, i], rng) for i in range(len(truth))]


def rejections(u: FloatArray, trials: int) -> dict[str, tuple[float, float, int]]:
    """By test, the share of studies of so many trials that reject, its error, their number.

    Studies don't share trials. Parameters of one study are tested one by one; the error is over
    studies.
    """
    studies = len(u) // trials
    rejected = np.array(
        [
            np.mean([verdicts(column) for column in u[s * trials : (s + 1) * trials].T], axis=0)
            for s in range(studies)
        ]
    )
    errors = rejected.std(axis=0, ddof=min(1, studies - 1)) / studies**0.5
    return {
        name: (float(share), float(error), studies)
        for name, share, error in zip(TESTS, rejected.mean(axis=0), errors, strict=True)
    }


def write(out: Path, options: Options) -> list[Path]:
    """The table, as CSV and Markdown."""
    trials = options.runs or (QUICK_TRIALS if options.quick else TRIALS)
    size = min(trials, CHUNK)
    parts = kept_trials(
        f"{NAME}-{size}",
        partial(_chunk, size),
        max(1, trials // CHUNK),
        {"size": size, "ranked": RANKED, "methods": list(METHODS)},
        out,
        options,
    )
    rows: list[Row] = []
    for method in METHODS:
        u = np.concatenate([np.array(part["ranks"][method]) for part in parts])
        for size in (size for size in SIZES if len(u) >= size):
            row: Row = {"method": method, "trials": size}
            for test, (share, error, studies) in rejections(u, size).items():
                row["studies"] = studies
                row[test] = short(share)
                row[f"{test}_error"] = short(error, 2)
            rows.append(row)
    return write_both(rows, markdown, NAME, out)


def _chunk(trials: int, number: int) -> Record:
    found = ranks(number, trials=trials)
    return {"trial": number, "ranks": {method: u.tolist() for method, u in found.items()}}


def markdown(rows: Sequence[Row]) -> str:
    """A line a method and number of trials, a column a test."""
    names = ("method", "trials", "studies")
    return as_markdown(
        "method | trials | studies | KS < .05 | KS < .01 | outside the 95% band | "
        "95% coverage, p < .01",
        ((*(row[n] for n in names), *(f"{row[test]:.3f}" for test in TESTS)) for row in rows),
    )


EXPERIMENT = Report(
    NAME,
    "Size and power of the calibration harness: how often it rejects right and wrong methods",
    write,
)
