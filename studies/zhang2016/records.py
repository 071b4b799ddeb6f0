"""The regressions of `zhang2016_fig2`: their records, and their sums."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from studies.report import seed_of

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
