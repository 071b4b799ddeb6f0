"""Regressions to measure accuracy on: thirteen of real data, and simulated corners.

Every column has bounds that a holder could state without a look at the rows: what a scale or a
format allows, or a round number from general knowledge. They are beside the columns below. Real
rows are what they are; simulated rows are drawn anew for every Release, from a fixed regression.

Power, bike and cirrhosis are read from the folder in NOISEWISE_LAB_DATA (see
`studies.alparslan2023.data`); all others come with statsmodels or scikit-learn. Of their tables
only randhie has 10,000 rows or more. The larger ones here besides it are other columns of RAND's
own file, and differences between neighbouring pixels of scikit-learn's two photographs, whose tails
are long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray, IntArray
from noisewise.core.schema import Category, Number, Schema
from studies.honesty.cells import REAL, DataAbsentError

Table = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Problem:
    """A regression of the last column on all others.

    Parameters
    ----------
    name : str
    columns : mapping of str to Number or Category
        With public bounds, the target last.
    draw : callable
        From a generator to rows, as named columns. Real rows are the same every time.
    slopes : tuple of float or None
        The truth; None: least squares on the rows, which are real.
    rows_per_unit : int
    units : callable, optional
        Whose row each is, as integers, shape (n,), where one person has several.
    delta : str
        Less than one in the number of rows.
    """

    name: str
    columns: Mapping[str, Number | Category]
    draw: Callable[[np.random.Generator], Table]
    slopes: tuple[float, ...] | None = None
    rows_per_unit: int = 1
    units: Callable[[], IntArray] | None = None
    delta: str = "1e-6"

    @property
    def schema(self) -> Schema:
        return Schema(self.name, dict(self.columns), max_rows_per_unit=self.rows_per_unit)

    @property
    def bounds(self) -> FloatArray:
        """Of the design's columns without the intercept, the target last, shape (k + 1, 2)."""
        found = []
        for column in self.columns.values():
            if isinstance(column, Number):
                found.append((column.lower, column.upper))
            else:
                found += [(0.0, 1.0)] * (len(column.levels) - 1)
        return np.array(found, dtype=np.float64)

    def matrix(self, table: Table) -> FloatArray:
        """Clipped rows, a column for every slope and the target last, shape (n, k + 1)."""
        found = []
        for name, column in self.columns.items():
            if isinstance(column, Number):
                found.append(np.clip(np.asarray(table[name], float), column.lower, column.upper))
            else:
                levels = [level for level in column.levels if level != column.reference]
                found += [np.asarray(table[name]) == level for level in levels]
        return np.column_stack(found).astype(np.float64)


def least_squares(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Slopes of the last column on the others, and their standard errors, shape (k,) each."""
    middle = rows.mean(axis=0)
    x, y = rows[:, :-1] - middle[:-1], rows[:, -1] - middle[-1]
    inverse = np.linalg.inv(x.T @ x)
    slopes = inverse @ (x.T @ y)
    residual = y - x @ slopes
    variance = residual @ residual / (len(rows) - rows.shape[1])
    return slopes, np.sqrt(variance * np.diag(inverse))


# --- real data ------------------------------------------------------------------------------------


def _installed(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.split(".", maxsplit=1)[0]
        raise DataAbsentError(f"{name}, which has the data, is not installed") from None


def _beside(module: str, path: str) -> Path:
    found = Path(_installed(module).__file__).parent / path
    if not found.exists():
        raise DataAbsentError(f"this {module.split('.', maxsplit=1)[0]} comes without {found.name}")
    return found


def _honesty(name: str) -> Problem:
    """One of the honesty study's, with its bounds: what a code book says, in round numbers."""
    read, bounds = REAL[name]
    names = [*(f"x{j}" for j in range(1, len(bounds))), "y"]
    columns = {column: Number(*pair) for column, pair in zip(names, bounds, strict=True)}
    return Problem(name, columns, lambda _: dict(zip(names, read().T, strict=True)))


@lru_cache(maxsize=1)
def _rand() -> Any:
    """All columns of RAND's file, of which statsmodels' own table has ten."""
    import pandas as pd

    return pd.read_csv(_beside("statsmodels.datasets.randhie", "src/randhie.csv"))


def _people() -> IntArray:
    return np.asarray(_rand()["zper"], dtype=np.int64)


def _means(_: np.random.Generator) -> Table:
    """Averages of everybody's years, of the columns that randhie has."""
    columns = {
        "logc": "coinsurance",
        "physlm": "limitation",
        "disea": "diseases",
        "mdvis": "visits",
    }
    mean = _rand().groupby("zper")[list(columns)].mean()
    return {name: mean[column].to_numpy() for column, name in columns.items()}


def _spending(_: np.random.Generator) -> Table:
    table = _rand()
    return {
        "age": table["xage"].to_numpy(),
        "coinsurance": table["coins"].to_numpy(float),
        "diseases": table["disea"].to_numpy(),
        "dollars": table["meddol"].to_numpy(),
    }


def _log_spending(rng: np.random.Generator) -> Table:
    rows = _spending(rng)
    return {**rows, "dollars": np.log1p(rows["dollars"])}


def _affairs(_: np.random.Generator) -> Table:
    table = _installed("statsmodels.datasets").fair.load_pandas().data
    return {name: table[name].to_numpy(float) for name in FAIR}


def _voters(_: np.random.Generator) -> Table:
    table = _installed("statsmodels.datasets").anes96.load_pandas().data
    return {name: table[name].to_numpy(float) for name in VOTERS}


def _births(_: np.random.Generator) -> Table:
    import pandas as pd

    path = _beside("statsmodels.treatment.tests", "results/cataneo2.csv")
    table = pd.read_csv(path)
    found: Table = {name: table[name].to_numpy(float) for name in ("mage", "medu", "nprenatal")}
    return {**found, "mbsmoke": table["mbsmoke"].to_numpy(str), "bweight": table["bweight"]}


def _photo(_: np.random.Generator) -> Table:
    image = _installed("sklearn.datasets").load_sample_image("china.jpg").astype(float)
    steps = np.diff(image, axis=1).reshape(-1, 3)
    return dict(zip(("red", "green", "blue"), steps.T, strict=True))


def _edges(_: np.random.Generator) -> Table:
    image = _installed("sklearn.datasets").load_sample_image("flower.jpg").astype(float)
    grey = image.mean(axis=2)
    step = np.abs(np.diff(grey, axis=1))
    return {
        "left": step[1:, :-1].ravel(),
        "above": step[:-1, 1:].ravel(),
        "brightness": grey[1:, 1:-1].ravel(),
        "step": step[1:, 1:].ravel(),
    }


# As in randhie: the logarithm of percent + 1, a share, a score up to 60, visits up to 30.
MEANS = {
    "coinsurance": Number(0, 4.62),
    "limitation": Number(0, 1),
    "diseases": Number(0, 60),
    "visits": Number(0, 30),
}
# The answers' own scales; years of marriage and age as such a survey of wives may have them.
FAIR = {
    "rate_marriage": Number(1, 5),
    "age": Number(15, 60),
    "yrs_married": Number(0, 40),
    "children": Number(0, 10),
    "religious": Number(1, 4),
    "affairs": Number(0, 60),
}
# Codes of the questionnaire; voters are 18 or older.
VOTERS = {
    "PID": Number(0, 6),
    "age": Number(18, 100),
    "educ": Number(1, 7),
    "income": Number(1, 24),
    "selfLR": Number(1, 7),
}
# Grams of a child that lives; visits to a doctor at most once a week.
BIRTHS = {
    "mage": Number(12, 50),
    "medu": Number(0, 20),
    "nprenatal": Number(0, 40),
    "mbsmoke": Category(("nonsmoker", "smoker"), "nonsmoker"),
    "bweight": Number(500, 6000),
}
# Nobody over 64 was taken into the experiment, coinsurance is in percent, diseases are a score up
# to 60, and a year's bill above 10,000 dollars of 1975 is counted as 10,000.
SPENDING = {
    "age": Number(0, 65),
    "coinsurance": Number(0, 100),
    "diseases": Number(0, 60),
    "dollars": Number(0, 10_000),
}
# What bytes, and differences of two, can be.
PHOTO = {name: Number(-255, 255) for name in ("red", "green", "blue")}
EDGES = {name: Number(0, 255) for name in ("left", "above", "brightness", "step")}


def _real() -> list[Problem]:
    five = {"rows_per_unit": 5, "units": _people}  # a person was in the experiment for 3 or 5 years
    return [
        _honesty("power"),
        _honesty("bike"),
        replace(_honesty("randhie"), **five),
        Problem("randhie means", MEANS, _means),
        _honesty("diabetes"),
        _honesty("cirrhosis"),
        Problem("affairs", FAIR, _affairs),
        Problem("voters", VOTERS, _voters),
        Problem("births", BIRTHS, _births),
        Problem("spending", SPENDING, _spending, **five),
        Problem("log spending", {**SPENDING, "dollars": Number(0, 10)}, _log_spending, **five),
        Problem("photo", PHOTO, _photo),
        Problem("edges", EDGES, _edges),
    ]


# --- simulated corners ----------------------------------------------------------------------------

SLOPES = (1.0, -0.5, 0.5, 0.0)
Errors = Callable[[np.random.Generator, int], FloatArray]


def _normal_errors(rng: np.random.Generator, n: int) -> FloatArray:
    return rng.standard_normal(n)


def _t3(rng: np.random.Generator, n: int) -> FloatArray:
    return rng.standard_t(3, n) / np.sqrt(3)


def _skewed(rng: np.random.Generator, n: int) -> FloatArray:
    return (np.exp(rng.standard_normal(n)) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e)


def _lognormal(rng: np.random.Generator, n: int, k: int) -> FloatArray:
    return np.minimum(np.exp(rng.standard_normal((n, k))), 50.0)


def _correlated(rng: np.random.Generator, n: int, k: int) -> FloatArray:
    """Sd 1, mean 0.5, correlation 0.5."""
    shared = rng.standard_normal((n, 1))
    return 0.5 + np.sqrt(0.5) * (shared + rng.standard_normal((n, k)))


def _conditioned(rng: np.random.Generator, n: int, k: int) -> FloatArray:
    """A covariance whose eigenvalues go from 1 to 1e-4, in directions that mix all columns."""
    turn = np.linalg.qr(np.random.default_rng(4).standard_normal((k, k)))[0]
    return rng.standard_normal((n, k)) * np.geomspace(1, 1e-2, k) @ turn


def _simulated(
    name: str,
    n: int,
    *,
    slopes: tuple[float, ...] = SLOPES,
    covariates: Callable[[np.random.Generator, int, int], FloatArray] = _correlated,
    errors: Errors = _normal_errors,
    x_bounds: tuple[float, float] = (-5.0, 5.0),
    y_bounds: tuple[float, float] = (-10.0, 10.0),
) -> Problem:
    """Errors of sd 1. The bounds are about five sds away and clip next to nothing."""
    names = [f"x{j}" for j in range(1, len(slopes) + 1)]

    def draw(rng: np.random.Generator) -> Table:
        x = np.clip(covariates(rng, n, len(slopes)), *x_bounds)
        y = x @ np.array(slopes) + errors(rng, n)
        return dict(zip([*names, "y"], [*x.T, y], strict=True))

    columns = {column: Number(*x_bounds) for column in names} | {"y": Number(*y_bounds)}
    return Problem(name, columns, draw, slopes)


def _rare_level(share: float, n: int = 20_000) -> Problem:
    """Two numbers, and a category with a rare level."""
    slopes = (1.0, -0.5, 1.0)

    def draw(rng: np.random.Generator) -> Table:
        x, rare = _correlated(rng, n, 2), rng.random(n) < share
        y = np.column_stack([x, rare]) @ slopes + rng.standard_normal(n)
        return {"x1": x[:, 0], "x2": x[:, 1], "level": np.where(rare, "rare", "usual"), "y": y}

    number, level = Number(-5, 5), Category(("usual", "rare"), "usual")
    columns = {"x1": number, "x2": number, "level": level, "y": Number(-10, 10)}
    return Problem(f"level of {100 * share:g}%", columns, draw, slopes)


def _corners() -> list[Problem]:
    wide = [
        _simulated(
            f"bounds {times}x", 20_000, x_bounds=(-5.0 * times, 5.0 * times),
            y_bounds=(-10.0 * times, 10.0 * times),
        )
        for times in (10, 100)
    ]  # fmt: skip
    eleven = (1.0, -0.5, 0.5, 0.0, 0.25, -0.25, 0.0, 0.5, 0.0, 0.1, -0.1)
    return [
        _simulated("normal", 20_000),
        _simulated("n = 1e3", 1_000),
        replace(_simulated("n = 1e6", 1_000_000), delta="1e-7"),
        *wide,
        _simulated("12 columns", 100_000, slopes=eleven),
        _simulated("condition 1e4", 20_000, slopes=(*SLOPES, 0.25), covariates=_conditioned),
        _simulated("t3 errors", 20_000, errors=_t3, y_bounds=(-50.0, 50.0)),
        _simulated(
            "lognormal x", 20_000, covariates=_lognormal, x_bounds=(0.0, 50.0),
            y_bounds=(-50.0, 100.0),
        ),
        _simulated("skewed errors", 20_000, errors=_skewed, y_bounds=(-10.0, 50.0)),
        *map(_rare_level, (0.003, 0.01, 0.05)),
    ]  # fmt: skip


PROBLEMS = {problem.name: problem for problem in (*_real(), *_corners())}
