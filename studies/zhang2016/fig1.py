"""Figure 1 of Zhang, Rubinstein & Dimitrakakis (2016): naive Bayes, accuracy against epsilon.

16 binary features, 1000 records of a naive Bayes model, 50 of them for training, uniform priors,
accuracy of the predicted class on the other 950. Each repeat has a model of its own, where the
paper repeats splits of one data set that it doesn't print. All methods of a repeat see the same
records, so that differences between them are paired.

The paper's four mechanisms, as they are private; two as printed or plotted, which are not
(`not_private`); and the noise-aware posteriors from the same kinds of Release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise import _palette
from noisewise._arrays import FloatArray
from studies.figures import canvas
from studies.report import Options, Report, seed_of
from studies.tables import Row, short, write_table
from studies.zhang2016 import not_private
from studies.zhang2016.mechanisms import (
    Truncation,
    grid_factor,
    grid_map,
    posterior_draw,
    tempered,
    widest_truncation,
)
from studies.zhang2016.naive_bayes import (
    Counts,
    Data,
    Tables,
    accuracy,
    clamped,
    count,
    enumerate_counts,
    enumerate_parities,
    log_joint,
    noisy_counts,
    noisy_parities,
    parities,
    posterior_mean,
    simulate,
)

NAME = "zhang2016-fig1"
FEATURES, RECORDS, TRAINING, REPEATS = 16, 1000, 50, 100
NODES = FEATURES + 1
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
OMEGA = 1 / 32
POINTS = 31
STEALTH = 0.9


class Given(NamedTuple):
    """What a method gets: training counts, the records to predict, epsilon, and an increment."""

    counts: Counts
    x: NDArray[np.int64]
    epsilon: float
    increment: float


Scores = Callable[[np.random.Generator, Given], FloatArray]


class Method(NamedTuple):
    """A line of the figure."""

    scores: Scores
    whose: str  # "paper", "ours" or "reference"
    private: bool


def _non_private(_: np.random.Generator, given: Given) -> FloatArray:
    return log_joint(posterior_mean(given.counts), given.x)


def _laplace(rng: np.random.Generator, given: Given) -> FloatArray:
    """Algorithm 1: scale 2|I|/ε on all counts, both of the class too, clamped, plugged in."""
    scale = 2 * NODES / given.epsilon
    noisy = noisy_counts(rng, given.counts, scale)
    other = noisy_counts(rng, given.counts, scale)  # its class count has independent noise
    zeros = given.counts.n - other.ones
    pair = Counts(zeros + noisy.ones, noisy.ones, noisy.tables)
    return log_joint(posterior_mean(clamped(pair, given.counts.n)), given.x)


def _fourier(rng: np.random.Generator, given: Given) -> FloatArray:
    """Algorithm 2 with the smallest increment for 90% stealth; clamped where that's not enough."""
    scale = not_private.paper_scale(FEATURES, given.epsilon)
    made = not_private.paper_parities(rng, parities(given.counts), scale, given.increment)
    return log_joint(posterior_mean(clamped(made, np.inf)), given.x)


def _fourier_kept(rng: np.random.Generator, given: Given) -> FloatArray:
    """Only outputs without a negative cell, as plotted in the paper. NOT PRIVATE."""
    scale = not_private.paper_scale(FEATURES, given.epsilon)
    made = not_private.kept_parities(rng, parities(given.counts), scale, given.increment)
    assert made is not None  # nine in ten are kept, whatever the data
    return log_joint(posterior_mean(clamped(made, np.inf)), given.x)


def _point(rng: np.random.Generator, given: Given, how: Truncation) -> FloatArray:
    """Predictions of one draw of all tables."""
    n, ones, tables = given.counts
    pi = float(posterior_draw(rng, ones, n - ones, how))
    return log_joint(Tables(pi, posterior_draw(rng, tables[..., 1], tables[..., 0], how)), given.x)


def _sampler(rng: np.random.Generator, given: Given) -> FloatArray:
    return _point(rng, given, widest_truncation(given.epsilon, NODES))


def _sampler_tempered(rng: np.random.Generator, given: Given) -> FloatArray:
    how = widest_truncation(given.epsilon, NODES)
    if how.omega > OMEGA:
        how = tempered(given.epsilon, NODES, OMEGA)
    return _point(rng, given, how)


def _sampler_printed(rng: np.random.Generator, given: Given) -> FloatArray:
    """2‖L‖∞ = ε whatever the number of attributes. NOT PRIVATE."""
    return _point(rng, given, not_private.per_attribute_truncation(given.epsilon))


def _map_grid(rng: np.random.Generator, given: Given) -> FloatArray:
    n, ones, tables = given.counts
    settings = (grid_factor(given.epsilon, NODES, OMEGA), OMEGA, POINTS)
    pi = float(grid_map(rng, ones, n - ones, *settings))
    return log_joint(Tables(pi, grid_map(rng, tables[..., 1], tables[..., 0], *settings)), given.x)


def _map_tempered(rng: np.random.Generator, given: Given) -> FloatArray:
    """The sound continuous mechanism: the temper may exceed 1."""
    how = tempered(given.epsilon, NODES, OMEGA)
    free = given.epsilon / (2 * NODES * np.log((1 - OMEGA) / OMEGA))
    return _point(rng, given, Truncation(how.omega, float(free)))


def _aware_laplace(rng: np.random.Generator, given: Given) -> FloatArray:
    scale = (2 * FEATURES + 1) / given.epsilon
    return enumerate_counts(noisy_counts(rng, given.counts, scale), scale).scores(given.x)


def _aware_fourier(rng: np.random.Generator, given: Given) -> FloatArray:
    scale = 2 * FEATURES / given.epsilon
    noisy = noisy_parities(rng, parities(given.counts), scale)
    return enumerate_parities(noisy, scale).scores(given.x)


METHODS: Mapping[str, Method] = {
    "non_private": Method(_non_private, "reference", False),
    "laplace": Method(_laplace, "paper", True),
    "fourier": Method(_fourier, "paper", True),
    "posterior_sample": Method(_sampler, "paper", True),
    "posterior_sample tempered": Method(_sampler_tempered, "ours", True),
    "map grid": Method(_map_grid, "paper", True),
    "map tempered": Method(_map_tempered, "ours", True),
    "laplace + noise-aware": Method(_aware_laplace, "ours", True),
    "fourier + noise-aware": Method(_aware_fourier, "ours", True),
    "fourier kept if ≥ 0 (NOT PRIVATE)": Method(_fourier_kept, "paper", False),
    "sampler, 2‖L‖∞ (NOT PRIVATE)": Method(_sampler_printed, "paper", False),
}
OURS = ("laplace + noise-aware", "fourier + noise-aware")


def accuracies(epsilons: tuple[float, ...], repeats: int) -> FloatArray:
    """Test accuracy, shape (epsilons, methods, repeats)."""
    found = np.empty((len(epsilons), len(METHODS), repeats))
    increments = [
        not_private.increment_for(
            np.random.default_rng(seed_of(NAME, "increment")),
            FEATURES,
            not_private.paper_scale(FEATURES, epsilon),
            STEALTH,
        )
        for epsilon in epsilons
    ]
    for r in range(repeats):
        rng = np.random.default_rng(seed_of(NAME, r))
        data, _ = simulate(rng, RECORDS, FEATURES)
        counts = count(Data(data.y[:TRAINING], data.x[:TRAINING]))
        test = Data(data.y[TRAINING:], data.x[TRAINING:])
        for i, epsilon in enumerate(epsilons):
            given = Given(counts, test.x, epsilon, increments[i])
            for j, method in enumerate(METHODS.values()):
                found[i, j, r] = accuracy(method.scores(rng, given), test.y)
    return found


def table(epsilons: tuple[float, ...], found: FloatArray) -> list[Row]:
    """A row for each epsilon and method.

    `ahead` is the mean of (our accuracy - this one) over repeats, `ahead_se` its standard error,
    for the noise-aware posterior from noisy counts and from noisy parities.
    """
    rows: list[Row] = []
    names = list(METHODS)
    repeats = found.shape[2]
    for i, epsilon in enumerate(epsilons):
        for j, (name, method) in enumerate(METHODS.items()):
            row: Row = {
                "epsilon": epsilon,
                "method": name,
                "whose": method.whose,
                "private": int(method.private),
                "repeats": repeats,
                "accuracy": short(found[i, j].mean()),
                "se": short(found[i, j].std(ddof=1) / repeats**0.5),
            }
            for label, ours in zip(("laplace", "fourier"), OURS, strict=True):
                ahead = found[i, names.index(ours)] - found[i, j]
                row[f"ahead_{label}"] = short(ahead.mean())
                row[f"ahead_{label}_se"] = short(ahead.std(ddof=1) / repeats**0.5)
            rows.append(row)
    return rows


COLOURS = {
    "laplace": _palette.NAIVE,
    "fourier": _palette.OTHERS[2],
    "poster": _palette.OTHERS[1],
    "map": _palette.OTHERS[3],
}


def draw(rows: list[Row], path: Path) -> None:
    """Accuracy against epsilon: ours thick, the paper's thin, what is not private dotted."""
    figure = canvas(7.6, 4.6)
    axis = figure.subplots()
    for name, method in METHODS.items():
        here = [row for row in rows if row["method"] == name]
        style: dict[str, Any] = {"linewidth": 1.2, "linestyle": "-", "marker": "o"}
        style["color"] = next((c for k, c in COLOURS.items() if name.startswith(k)), _palette.TRUTH)
        if name in OURS:
            style.update(linewidth=2.6, marker="D")
            style["color"] = _palette.AWARE if "laplace" in name else _palette.OTHERS[0]
        elif method.whose == "ours":
            style.update(linestyle="--", marker="s")
        elif not method.private:
            style.update(linestyle=":", marker="x")
        if name.startswith("sampler"):
            style["color"] = COLOURS["poster"]
        x, y = [row["epsilon"] for row in here], [row["accuracy"] for row in here]
        axis.errorbar(x, y, [row["se"] for row in here], label=name, markersize=3.5, **style)
    axis.set_xscale("log")
    axis.set_xlabel("epsilon")
    axis.set_ylabel("accuracy on records not seen")
    figure.legend(loc="outside right center", fontsize=7)
    figure.savefig(path, dpi=110)


def write(out: Path, options: Options) -> list[Path]:
    """Table and figure."""
    epsilons = (1.0, 30.0) if options.quick else EPSILONS
    repeats = options.runs or (4 if options.quick else REPEATS)
    rows = table(epsilons, accuracies(epsilons, repeats))
    paths = [out / f"{NAME}.csv", out / f"{NAME}.png"]
    write_table(rows, paths[0])
    draw(rows, paths[1])
    return paths


EXPERIMENT = Report(
    NAME,
    "Figure 1 of Zhang et al. (2016): accuracy of private naive Bayes, with noise-aware posteriors",
    write,
)
