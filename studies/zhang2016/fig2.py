"""Figure 2 of Zhang, Rubinstein & Dimitrakakis (2016): linear regression by posterior sampling.

Mean squared error of predictions by one draw from the posterior, against the precision b of the
prior N(0, I/b); coefficients are kept within ‖θ‖ ≤ 10/√b, and 10% of the records train, as in the
paper. Its census extract can't be shipped, so the data are a simulated census of the same size
(370,000 records, 14 features) and the RAND health insurance experiment of statsmodels.

Dashed lines: a regression Release of the same epsilon with noise-aware inference instead.

The paper lets the cost of a draw follow from the ball, and doesn't print it. Here it is printed
(``full``), and beside it the likelihood is tempered to reach a chosen epsilon.

Columns are mapped from public bounds to [-1, 1] and divided by √(d + 1), intercept included, so
that ‖x‖ ≤ 1; the target is mapped to [-1, 1] and clipped. Errors are on that scale.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise import _palette
from noisewise._arrays import FloatArray
from noisewise.analyst.fit import fit
from noisewise.core.schema import Number, Schema
from noisewise.holder.engines import open_source
from noisewise.holder.requests.regression import make_request
from studies.figures import canvas
from studies.report import Options, Report, mean_interval, seed_of
from studies.tables import Row, short, write_table
from studies.zhang2016.mechanisms import Ball, full_epsilon, regression_draws, regression_temper

NAME = "zhang2016-fig2"
PRECISIONS = tuple(10.0 ** (k / 2) for k in range(-4, 9))
EPSILONS = (0.1, 1.0, 10.0)
REPEATS = 100
RELEASES = 10  # repeats of the regression Releases, which take seconds each


def errors(records: Records, repeats: int, precisions: tuple[float, ...]) -> list[Row]:
    """A row for each prior precision and line of the figure."""
    everything = Sums.of(records.x, records.y)
    found: dict[tuple[float, str], list[float]] = {}
    for r in range(repeats):
        rng = np.random.default_rng(seed_of(NAME, records.name, r))
        chosen = split(records, everything, rng)
        train = Sums.of(records.x[chosen], records.y[chosen])
        test = everything.without(train)
        for b in precisions:
            ball = Ball(1.0, 1.0, 10 / b**0.5, SIGMA2)
            mean = posterior_mean(train, b)
            found.setdefault((b, "non_private"), []).append(test.error(mean))
            for line, epsilon in _lines():
                temper = regression_temper(ball, epsilon)
                theta = regression_draws(rng, train.gram, train.moment, b, ball, temper, 1)[0]
                found.setdefault((b, line), []).append(test.error(theta))
    return [_row(records, b, line, values, everything) for (b, line), values in found.items()]


def release_errors(records: Records, repeats: int, epsilons: tuple[float, ...]) -> list[Row]:
    """The same task by a regression Release with noise-aware inference, all at their defaults.

    The Release is a real one. It doesn't know the error variance, and has no prior precision to
    choose.
    """
    everything = Sums.of(records.x, records.y)
    d = records.x.shape[1] - 1
    names = [f"x{j + 1}" for j in range(d)]
    schema = Schema("simulated", {name: Number(-1, 1) for name in (*names, "y")})
    found: dict[float, list[float]] = {}
    for r in range(repeats):
        rng = np.random.default_rng(seed_of(NAME, records.name, r))
        chosen = split(records, everything, rng)
        train = Sums.of(records.x[chosen], records.y[chosen])
        columns = records.x[chosen, 1:].T * (d + 1) ** 0.5  # on the scale of their bounds
        rows = dict(zip((*names, "y"), (*columns, records.y[chosen]), strict=True))
        for epsilon in epsilons:
            request = make_request(schema, target="y", features=names, epsilon=epsilon)
            sums = open_source(rows).sums(request.plan())
            release = request.release(len(chosen), sums)
            summary = fit(release, seed=r, chains=2, draws=300).summary()
            theta = np.array([summary.rows[name].mean for name in ("intercept", *names)])
            error = everything.without(train).error(theta * (d + 1) ** 0.5)
            found.setdefault(epsilon, []).append(error)
    return [
        {
            "data": records.name,
            "n": everything.n,
            "training": round(TRAINING * everything.n),
            "line": f"Release, epsilon = {epsilon:g}",
            "precision": "",
            "rho": "",
            "epsilon": epsilon,
            "epsilon_full": "",
            "temper": "",
            "repeats": repeats,
            "mse": short(float(np.mean(values))),
            "se": short(float(np.std(values, ddof=1)) / repeats**0.5),
        }
        for epsilon, values in found.items()
    ]


def _lines() -> list[tuple[str, float | None]]:
    return [*((f"epsilon = {e:g}", e) for e in EPSILONS), ("full", None)]


def _row(records: Records, b: float, line: str, values: list[float], everything: Sums) -> Row:
    ball = Ball(1.0, 1.0, 10 / b**0.5, SIGMA2)
    full = full_epsilon(ball)
    epsilon = dict(_lines()).get(line)
    mean = mean_interval(values)
    private = line != "non_private"
    return {
        "data": records.name,
        "n": everything.n,
        "training": round(TRAINING * everything.n),
        "line": line,
        "precision": short(b),
        "rho": short(ball.rho),
        "epsilon": short(min(full, epsilon or full)) if private else "",
        "epsilon_full": short(full),
        "temper": short(regression_temper(ball, epsilon)) if private else "",
        "repeats": len(values),
        "mse": short(mean.mean),
        "se": short(float(np.std(values, ddof=1)) / len(values) ** 0.5),
    }


STYLES = {
    "non_private": (_palette.TRUTH, "-"),
    "full": (_palette.GREY, ":"),
    "epsilon = 0.1": (_palette.OTHERS[0], "-"),
    "epsilon = 1": (_palette.OTHERS[1], "-"),
    "epsilon = 10": (_palette.OTHERS[2], "-"),
}


def draw(rows: list[Row], path: Path) -> None:
    """A panel for each data set; the numbers above it are what an untempered draw costs."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    figure = canvas(4.4 * len(names) + 0.4, 4.2)
    for axis, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        here = [row for row in rows if row["data"] == name]
        for line, (colour, dash) in STYLES.items():
            points = [row for row in here if row["line"] == line]
            axis.errorbar(
                [row["precision"] for row in points],
                [row["mse"] for row in points],
                [row["se"] for row in points],
                color=colour,
                linestyle=dash,
                marker="o",
                markersize=3,
                label="full posterior, at its own epsilon" if line == "full" else line,
            )
            for row in (row for row in here if row["line"] == f"Release, {line}"):
                axis.axhline(row["mse"], color=colour, linestyle="--", linewidth=1)
        _costs(axis, [row for row in here if row["line"] == "full"])
        axis.set_title(f"{name}, {here[0]['training']:,} training records", fontsize=9)
    first = figure.axes[0]
    first.set_ylabel("mean squared error of predictions")
    figure.legend(
        *first.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=7
    )
    figure.savefig(path, dpi=110)


def _costs(axis: Any, rows: list[Row]) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("prior precision b (coefficients within 10/√b)")
    shown = rows[:: max(1, len(rows) // 5)]
    top = axis.secondary_xaxis("top")
    top.set_xticks([row["precision"] for row in shown], minor=False)
    top.set_xticklabels([f"{row['epsilon_full']:,.0f}" for row in shown], fontsize=7)
    top.set_xticks([], minor=True)
    top.set_xlabel("epsilon of a draw from the full posterior", fontsize=7)


def write(out: Path, options: Options) -> list[Path]:
    """Table and figure."""
    repeats = options.runs or (3 if options.quick else REPEATS)
    n, d = CENSUS
    precisions = PRECISIONS[::4] if options.quick else PRECISIONS
    census = census_records(n // 10 if options.quick else n, d)
    rand = rand_records()
    if rand is None:
        print("randhie is left out: it comes with statsmodels, pip install 'noisewise[demo]'")
    sets = [census] if rand is None else [rand, census]
    rows = [row for records in sets for row in errors(records, repeats, precisions)]
    few, epsilons = (2, (10.0,)) if options.quick else (min(repeats, RELEASES), EPSILONS)
    compared = sets[:1] if options.quick else sets
    rows += [row for records in compared for row in release_errors(records, few, epsilons)]
    paths = [out / f"{NAME}.csv", out / f"{NAME}.png"]
    write_table(rows, paths[0])
    draw(rows, paths[1])
    return paths


EXPERIMENT = Report(
    NAME,
    "Figure 2 of Zhang et al. (2016): regression by posterior sampling, error against the prior",
    write,
)


# --- records and their sums -----------------------------------------------------------------------


CENSUS = (370_000, 14)
TRAINING = 0.1
# The error variance is taken as known, and public, on the scale of the target.
SIGMA2 = 0.05


class Records(NamedTuple):
    """Rows within the unit ball, target within [-1, 1]."""

    name: str
    x: FloatArray  # (n, d + 1), the intercept first
    y: FloatArray  # (n,)


# Public bounds of the RAND data: what the codebook says of the variables, not their extremes.
RAND_TARGET = ("mdvis", 0.0, 30.0)
RAND_FEATURES = {
    "lncoins": (0.0, 5.0),
    "idp": (0.0, 1.0),
    "lpi": (0.0, 8.0),
    "fmde": (0.0, 9.0),
    "physlm": (0.0, 1.0),
    "disea": (0.0, 60.0),
    "hlthg": (0.0, 1.0),
    "hlthf": (0.0, 1.0),
    "hlthp": (0.0, 1.0),
}


def rand_records() -> Records | None:
    """The RAND health insurance experiment, 20,190 records; None without statsmodels."""
    try:
        from statsmodels.datasets import randhie  # type: ignore[import-untyped]
    except ImportError:
        return None
    data = randhie.load_pandas().data
    columns = [
        _unit(data[name].to_numpy(np.float64), low, high)
        for name, (low, high) in RAND_FEATURES.items()
    ]
    name, low, high = RAND_TARGET
    return _records("randhie", columns, _unit(data[name].to_numpy(np.float64), low, high))


def census_records(n: int, d: int) -> Records:
    """A simulated census: half of the features are indicators, half are skewed amounts."""
    rng = np.random.default_rng(seed_of("zhang2016-fig2", "census", n, d))
    amounts = 2 * rng.beta(2, 4, (n, d - d // 2)) - 1
    indicators = 2.0 * (rng.random((n, d // 2)) < rng.uniform(0.1, 0.9, d // 2)) - 1
    columns = list(np.column_stack([amounts, indicators]).T)
    slopes = rng.normal(0, 0.15, d)
    y = -0.3 + np.column_stack(columns) @ slopes + SIGMA2**0.5 * rng.standard_normal(n)
    return _records("census (simulated)", columns, np.clip(y, -1, 1))


def _unit(values: FloatArray, low: float, high: float) -> FloatArray:
    return np.asarray(2 * (np.clip(values, low, high) - low) / (high - low) - 1)


def _records(name: str, columns: list[FloatArray], y: FloatArray) -> Records:
    x = np.column_stack([np.ones(len(y)), *columns]) / (len(columns) + 1) ** 0.5
    return Records(name, x, y)


class Sums(NamedTuple):
    """X'X, X'y, y'y and the number of records."""

    gram: FloatArray
    moment: FloatArray
    square: float
    n: int

    @classmethod
    def of(cls, x: FloatArray, y: FloatArray) -> Sums:
        """Sums over rows."""
        return cls(x.T @ x, x.T @ y, float(y @ y), len(y))

    def without(self, other: Sums) -> Sums:
        """The other rows' sums."""
        return Sums(
            self.gram - other.gram,
            self.moment - other.moment,
            self.square - other.square,
            self.n - other.n,
        )

    def error(self, theta: FloatArray) -> float:
        """Mean squared error of predictions."""
        total = self.square - 2 * theta @ self.moment + theta @ self.gram @ theta
        return float(total) / self.n


def posterior_mean(sums: Sums, precision: float) -> FloatArray:
    """The posterior mean without privacy."""
    P = sums.gram / SIGMA2 + precision * np.eye(len(sums.moment))
    return np.asarray(np.linalg.solve(P, sums.moment / SIGMA2), dtype=np.float64)


def split(records: Records, everything: Sums, rng: np.random.Generator) -> NDArray[np.intp]:
    """Positions of the training rows."""
    return rng.choice(everything.n, round(TRAINING * everything.n), replace=False)
