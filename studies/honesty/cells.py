"""Where truths are fixed: 24 simulated cells, seven of real data, and random configurations.

Everything is on unit scale: each column lies in [-1, 1] or would, if rows were clipped. In a
simulated cell rows are drawn anew for every Release and the regression behind them stays. In a cell
of real data rows are resampled with replacement, and the truth is the regression on all of them.
Simulated rows aren't clipped, so that the truth is what it says it is; `studies.regression` says
what follows from that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import Family
from noisewise.core.errors import RequestError
from studies.alparslan2023.data import (
    BIKE_SHARING,
    POWER_PLANT,
    VARIABLE,
    data_folder,
    load,
    missing_message,
)
from studies.experiments import DataAbsentError
from studies.regression import gram

MEAN_OF_Y = 0.1
DIRECTIONS = {1: (1.0,), 2: (1.0, -0.5), 5: (1.0, -0.5, 0.5, 0.0, 0.25)}


@dataclass(frozen=True)
class SimulatedCell:
    """A regression whose covariates have one correlation, and means and spreads of their own.

    Parameters
    ----------
    name : str
    sd, mean : tuple of float, length k
        Of the covariates.
    direction : tuple of float, length k
        The slopes of standardised covariates, up to the factor that gives `r_squared`.
    correlation : float
        Of every two covariates.
    r_squared : float
        Share of the target's variance that the covariates explain.
    n : int
    epsilon : float
    noise : {"laplace", "gaussian"}
    sd_y : float
        Of the target.
    law : {"normal", "uniform"}
        Of the covariates, before they are mixed to have that correlation.
    """

    name: str
    sd: tuple[float, ...]
    mean: tuple[float, ...]
    direction: tuple[float, ...]
    correlation: float
    r_squared: float
    n: int
    epsilon: float
    noise: Family
    sd_y: float = 0.3
    law: Literal["normal", "uniform"] = "normal"

    @property
    def k(self) -> int:
        """Number of covariates."""
        return len(self.sd)

    @property
    def correlations(self) -> FloatArray:
        """Of the covariates, shape (k, k)."""
        return np.full((self.k, self.k), self.correlation) + (1 - self.correlation) * np.eye(self.k)

    @property
    def truth(self) -> FloatArray:
        """Intercept, slopes and sigma2, shape (k + 2,)."""
        b = np.array(self.direction)
        explained = self.r_squared * self.sd_y**2
        slopes = b * np.sqrt(explained / (b @ self.correlations @ b)) / np.array(self.sd)
        intercept = MEAN_OF_Y - np.array(self.mean) @ slopes
        return np.array([intercept, *slopes, self.sd_y**2 - explained])

    def gram(self, rng: np.random.Generator) -> FloatArray:
        """Σ ww', w = (1, x, y), of fresh rows, shape (k + 2, k + 2)."""
        shape = (self.n, self.k)
        z = (
            rng.standard_normal(shape)
            if self.law == "normal"
            else rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), shape)
        )
        x = np.array(self.mean) + z @ np.linalg.cholesky(self.correlations).T * np.array(self.sd)
        intercept, *slopes, sigma2 = self.truth
        y = intercept + x @ np.array(slopes) + np.sqrt(sigma2) * rng.standard_normal(self.n)
        return gram(x, y)

    def describe(self) -> dict[str, Any]:
        """Everything that decides the law of a Release, as plain data."""
        return asdict(self)


class Cell(NamedTuple):
    """One line of the note's battery: equal means, and a direction by the number of covariates."""

    k: int
    sd: float | tuple[float, ...]
    correlation: float
    r_squared: float
    n: int
    epsilon: float
    noise: Family
    mean: float = 0.0
    sd_y: float = 0.3
    law: Literal["normal", "uniform"] = "normal"

    def named(self, name: str) -> SimulatedCell:
        """The cell."""
        sd = self.sd if isinstance(self.sd, tuple) else (self.sd,) * self.k
        return SimulatedCell(
            name, sd, (self.mean,) * self.k, DIRECTIONS[self.k], *self[2:7], self.sd_y, self.law
        )


# In the names: covariates, sd, correlation r, R², rows, epsilon, Laplace or Gaussian, off-centre.
CELLS = {
    "k1 sd.03 R.3 n3k e1 L": Cell(1, 0.03, 0, 0.3, 3000, 1, "laplace"),
    "k1 sd.07 R.5 n3k e1 L": Cell(1, 0.07, 0, 0.5, 3000, 1, "laplace"),
    "k1 sd.1 R.3 n3k e1 L": Cell(1, 0.1, 0, 0.3, 3000, 1, "laplace"),
    "k1 sd.1 R.9 n3k e1 L off": Cell(1, 0.1, 0, 0.9, 3000, 1, "laplace", 0.5),
    "k1 sd.3 R.9 n500 e1 L": Cell(1, 0.3, 0, 0.9, 500, 1, "laplace"),
    "k1 sd.3 R0 n500 e.3 L": Cell(1, 0.3, 0, 0, 500, 0.3, "laplace"),
    "k1 sd.55 R.99 n3k e1 G": Cell(1, 0.55, 0, 0.99, 3000, 1, "gaussian", law="uniform"),
    "k1 sd.1 R.99 n20k e3 G off": Cell(1, 0.1, 0, 0.99, 20_000, 3, "gaussian", -0.4),
    "k1 sd.3 R.3 n20k e1 L ysd.05": Cell(1, 0.3, 0, 0.3, 20_000, 1, "laplace", 0.2, 0.05),
    "k1 sd.03 R0 n500 e.3 G": Cell(1, 0.03, 0, 0, 500, 0.3, "gaussian"),
    "k2 sd.3 r0 R.3 n3k e1 L": Cell(2, 0.3, 0, 0.3, 3000, 1, "laplace"),
    "k2 sd.3 r.9 R.9 n3k e1 L": Cell(2, 0.3, 0.9, 0.9, 3000, 1, "laplace"),
    "k2 sd.3 r.96 R.5 n3k e1 L": Cell(2, 0.3, 0.96, 0.5, 3000, 1, "laplace"),
    "k2 sd.3 r.98 R.9 n20k e1 G": Cell(2, 0.3, 0.98, 0.9, 20_000, 1, "gaussian"),
    "k2 sd.03/.55 R.3 n3k e1 L": Cell(2, (0.03, 0.55), 0, 0.3, 3000, 1, "laplace", law="uniform"),
    "k2 sd.1 r.9 R.3 n3k e3 L off": Cell(2, 0.1, 0.9, 0.3, 3000, 3, "laplace", 0.5),
    "k2 sd.55 R.99 n3k e1 L": Cell(2, 0.55, 0, 0.99, 3000, 1, "laplace", law="uniform"),
    "k2 sd.3 R0 n500 e.3 L": Cell(2, 0.3, 0, 0, 500, 0.3, "laplace"),
    "k5 sd.3 r0 R.3 n3k e1 L": Cell(5, 0.3, 0, 0.3, 3000, 1, "laplace"),
    "k5 sd.3 r.9 R.9 n20k e1 L": Cell(5, 0.3, 0.9, 0.9, 20_000, 1, "laplace"),
    "k5 sd.1 r0 R.9 n20k e1 G": Cell(5, 0.1, 0, 0.9, 20_000, 1, "gaussian"),
    "k5 sd.55 r0 R.3 n20k e3 L": Cell(5, 0.55, 0, 0.3, 20_000, 3, "laplace", law="uniform"),
    "k5 sd.3 r.5 R.99 n20k e3 G off": Cell(5, 0.3, 0.5, 0.99, 20_000, 3, "gaussian", 0.3),
    "k5 sd.1 r.98 R.3 n3k e1 G": Cell(5, 0.1, 0.98, 0.3, 3000, 1, "gaussian"),
}


# --- random configurations ------------------------------------------------------------------------


STRATA: dict[str, tuple[Any, ...]] = {
    "k": (1, 2, 3, 4, 5),
    "correlation": (0.0, 0.5, 0.9, 0.97),
    "r_squared": (0.0, 0.3, 0.7, 0.95),
    "n": (500, 3000, 20_000),
    "epsilon": (0.3, 1.0, 3.0),
    "noise": ("laplace", "gaussian"),
    "sd_y": (0.1, 0.3),
}
SD, MEAN = (0.03, 0.5), 0.5


def random_cell(seed: int, number: int) -> SimulatedCell:
    """A configuration that nobody chose: the `number`-th of this seed."""
    rng = np.random.default_rng([seed, number])
    drawn = {name: values[rng.integers(len(values))] for name, values in STRATA.items()}
    k = drawn.pop("k")
    if k == 1:
        drawn["correlation"] = 0.0
    return SimulatedCell(
        f"random {number}",
        tuple(np.exp(rng.uniform(*np.log(SD), k)).tolist()),
        tuple(rng.uniform(-MEAN, MEAN, k).tolist()),
        tuple(rng.standard_normal(k).tolist()),
        **drawn,
    )


# --- real data ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RealCell:
    """Real rows, resampled with replacement; epsilon = 1 and Laplace noise.

    Parameters
    ----------
    name : str
    rows : array, shape (n, k + 1)
        On unit scale, clipped to the bounds, the target last.
    """

    name: str
    rows: FloatArray
    epsilon: float = 1.0
    noise: Family = "laplace"

    @property
    def k(self) -> int:
        """Number of covariates."""
        return self.rows.shape[1] - 1

    @property
    def n(self) -> int:
        """Rows of the file, and of every resample."""
        return len(self.rows)

    @property
    def truth(self) -> FloatArray:
        """Least squares on all rows: intercept, slopes and mean squared residual."""
        design = np.column_stack([np.ones(self.n), self.rows[:, :-1]])
        y = self.rows[:, -1]
        theta = np.linalg.lstsq(design, y, rcond=None)[0]
        return np.append(theta, np.mean((y - design @ theta) ** 2))

    def gram(self, rng: np.random.Generator) -> FloatArray:
        """Σ ww' of as many rows as there are, drawn with replacement."""
        some = self.rows[rng.integers(0, self.n, self.n)]
        return gram(some[:, :-1], some[:, -1])

    def describe(self) -> dict[str, Any]:
        """What decides the law of a Release; the truth stands for the rows."""
        truth = [float(f"{value:.10g}") for value in self.truth]
        return {"name": self.name, "n": self.n, "epsilon": self.epsilon, "truth": truth}


AnyCell = SimulatedCell | RealCell
Bounds = tuple[tuple[float, float], ...]

_POWER: dict[str, Bounds] = {
    "power": ((-10, 45), (20, 90), (980, 1050), (0, 100), (400, 520)),
    "power tight": ((0, 40), (25, 85), (990, 1035), (20, 100), (420, 500)),
    "power wide": ((-30, 60), (0, 150), (900, 1100), (0, 100), (300, 600)),
}
_BIKE = ("temperature", "humidity", "windspeed", "year", "weather", "count")


def _power() -> FloatArray:
    rows = load(POWER_PLANT)
    if rows is None:
        raise DataAbsentError(missing_message(POWER_PLANT))
    return rows


def _bike() -> FloatArray:
    rows = load(BIKE_SHARING)
    if rows is None:
        raise DataAbsentError(missing_message(BIKE_SHARING))
    return rows[:, [list(BIKE_SHARING.bounds).index(name) for name in _BIKE]]


def _cirrhosis() -> FloatArray:
    path = data_folder() / "cirrhosis.csv"
    if not path.exists():
        raise DataAbsentError(f"cirrhosis.csv is not there; set {VARIABLE} to the folder of it")
    return np.loadtxt(path, delimiter=",", skiprows=1)


def _diabetes() -> FloatArray:
    try:
        from sklearn.datasets import load_diabetes
    except ImportError:
        raise DataAbsentError("scikit-learn, which has the data, is not installed") from None
    table = load_diabetes(scaled=False, as_frame=True).frame
    return np.asarray(table[["age", "bmi", "bp", "target"]].to_numpy(np.float64))


def _rand_health() -> FloatArray:
    try:
        from statsmodels.datasets import randhie
    except ImportError:
        raise DataAbsentError("statsmodels, which has the data, is not installed") from None
    table = randhie.load_pandas().data
    return np.asarray(table[["lncoins", "physlm", "disea", "mdvis"]].to_numpy(np.float64))


REAL: dict[str, tuple[Callable[[], FloatArray], Bounds]] = {
    **{name: (_power, bounds) for name, bounds in _POWER.items()},
    "bike": (_bike, ((0, 1), (0, 1), (0, 1), (0, 1), (1, 4), (0, 1000))),
    "diabetes": (_diabetes, ((18, 90), (15, 50), (60, 140), (0, 400))),
    "randhie": (_rand_health, ((0, 4.62), (0, 1), (0, 60), (0, 30))),
    "cirrhosis": (_cirrhosis, ((0, 40), (0, 200), (0, 150))),
}
NAMES = (*CELLS, *REAL)


def find_cell(name: str) -> AnyCell:
    """The cell of this name.

    Raises
    ------
    DataAbsentError
        If its data aren't there.
    """
    if name in CELLS:
        return CELLS[name].named(name)
    if name not in REAL:
        raise RequestError(f"cells: {name!r} is unknown; there are: {', '.join(NAMES)}")
    read, bounds = REAL[name]
    low, high = np.array(bounds, dtype=np.float64).T
    rows = np.clip(read(), low, high)
    return RealCell(name, (rows - (low + high) / 2) / ((high - low) / 2))
