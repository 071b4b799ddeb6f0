"""The two public data sets of Alparslan, Yıldırım & Birbil (2023), section 5.2, that we have.

Both are from the UCI Machine Learning Repository. The project holds no data: files named
``power_plant_energy.csv`` and ``bike_sharing.csv`` (numbers only, no header, the target last) are
read from the folder in the environment variable NOISEWISE_LAB_DATA, by default ``shared/data``
beside the project's root.

**Public bounds** are what somebody who has not seen the rows would write down from the code book.
They are wider than the data in most columns, and that is what it costs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.core.errors import RequestError

VARIABLE = "NOISEWISE_LAB_DATA"


@dataclass(frozen=True)
class DataSet:
    """A file, and what a code book says about its columns.

    Parameters
    ----------
    name : str
        Of the file, without its ending.
    label : str
        What the paper calls it.
    bounds : dict of str to (float, float)
        Public bounds of each column in the file's order, the target last.
    """

    name: str
    label: str
    bounds: dict[str, tuple[float, float]]

    @property
    def k(self) -> int:
        """Number of covariates."""
        return len(self.bounds) - 1


POWER_PLANT = DataSet(
    "power_plant_energy",
    "PowerPlant",
    {
        "temperature_celsius": (0.0, 40.0),
        "exhaust_vacuum_cm_hg": (20.0, 85.0),
        "pressure_millibar": (980.0, 1040.0),
        "humidity_percent": (0.0, 101.0),
        "power_megawatt": (420.0, 500.0),
    },
)
BIKE_SHARING = DataSet(
    "bike_sharing",
    "BikeSharing",
    {
        "season": (1.0, 4.0),
        "year": (0.0, 1.0),
        "month": (1.0, 12.0),
        "hour": (0.0, 23.0),
        "holiday": (0.0, 1.0),
        "weekday": (0.0, 6.0),
        "workingday": (0.0, 1.0),
        "weather": (1.0, 4.0),
        "temperature": (0.0, 1.0),
        "feeling_temperature": (0.0, 1.0),
        "humidity": (0.0, 1.0),
        "windspeed": (0.0, 1.0),
        "casual": (0.0, 400.0),
        "registered": (0.0, 1000.0),
        "count": (0.0, 1000.0),
    },
)
DATA_SETS = (POWER_PLANT, BIKE_SHARING)


def data_folder() -> Path:
    """Where the files are looked for."""
    given = os.environ.get(VARIABLE)
    return Path(given) if given else Path(__file__).parents[3] / "shared" / "data"


def load(data: DataSet) -> FloatArray | None:
    """All rows, the target last; None if the file is not there."""
    path = data_folder() / f"{data.name}.csv"
    if not path.exists():
        return None
    rows = np.loadtxt(path, delimiter=",", dtype=np.float64, ndmin=2)
    if rows.shape[1] != len(data.bounds) or not np.isfinite(rows).all():
        raise RequestError(
            f"data: {data.name}.csv must have {len(data.bounds)} columns of finite numbers without "
            f"a header, got {rows.shape[1]} columns"
        )
    return rows


def missing_message(data: DataSet) -> str:
    """What to do about a file that is not there."""
    return (
        f"{data.name}.csv is not there and was left out; set {VARIABLE} to the folder that holds it"
    )


def training_rows(n: int) -> int:
    """80% of the rows, rounded up."""
    return -(-n * 4 // 5)


def holder_slices(n: int, J: int) -> list[slice]:
    """Consecutive shares of n rows for J holders; the last one has what division leaves over."""
    if not 1 <= J <= n:
        raise RequestError(f"J: {n} rows can't be shared by {J} holders")
    each = n // J
    ends = [each * j for j in range(J)] + [n]
    return [slice(a, b) for a, b in pairwise(ends)]


def gram_matrices(x: FloatArray, y: FloatArray, J: int) -> list[FloatArray]:
    """Σ ww', w = (1, x, y), of each holder's share of the rows."""
    w = np.column_stack([np.ones(len(y)), x, y])
    return [w[rows].T @ w[rows] for rows in holder_slices(len(y), J)]


def with_noise(A: FloatArray, sd: FloatArray, rng: np.random.Generator) -> FloatArray:
    """A plus symmetric normal noise; entries of infinite sd, which are not released, become 0."""
    known = np.isfinite(sd)
    noise = np.triu(rng.standard_normal(A.shape) * np.where(known, sd, 0.0))
    return np.where(known, A + noise + np.triu(noise, 1).T, 0.0)
