"""Checks of the numbers that priors are made of."""

from __future__ import annotations

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.core.errors import RequestError


def positive_vector(name: str, value: object, k: int) -> FloatArray:
    """One positive number for each covariate, shape (k,)."""
    given = vector(name, value)
    if given.size != k or (given <= 0).any():
        raise RequestError(
            f"{name} must have one positive entry for each of the {k} covariates; got {given}"
        )
    return given


def count(k: int) -> int:
    """A number of covariates."""
    if k < 0:
        raise RequestError(f"k must be the number of covariates, at least 0; got {k}")
    return k


def positive(name: str, value: float) -> float:
    """A positive finite number."""
    number = float(value)
    if not (np.isfinite(number) and number > 0):
        raise RequestError(f"{name} must be a positive finite number; got {value!r}")
    return number


def degrees(nu: float, k: int) -> float:
    """Degrees of freedom of a proper inverse Wishart law of k by k matrices."""
    number = positive("nu", nu)
    if number <= k - 1:
        raise RequestError(
            f"nu must be more than k - 1 = {k - 1} for a proper prior; got {nu}. "
            f"2k + 2 = {2 * k + 2} is a weak choice"
        )
    return number


def vector(name: str, value: object) -> FloatArray:
    """A vector of finite numbers that can't be written to."""
    given = np.array(value, dtype=np.float64)
    if given.ndim != 1 or not np.isfinite(given).all():
        raise RequestError(f"{name} must be a vector of finite numbers; got shape {given.shape}")
    given.setflags(write=False)
    return given


def positive_definite(name: str, value: object, size: int) -> FloatArray:
    """A positive definite matrix, shape (size, size), that can't be written to."""
    matrix = np.array(value, dtype=np.float64)
    if matrix.shape != (size, size):
        raise RequestError(
            f"{name} must be {size} by {size}, one row for each entry of the mean; got shape "
            f"{matrix.shape}. Use np.diag for independent entries"
        )
    if not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T, rtol=1e-10, atol=0.0):
        raise RequestError(f"{name} must be symmetric with finite entries")
    matrix = 0.5 * (matrix + matrix.T)
    if size and np.linalg.eigvalsh(matrix)[0] <= 0:
        raise RequestError(
            f"{name} must be positive definite; its smallest eigenvalue is "
            f"{np.linalg.eigvalsh(matrix)[0]:.3g}. An improper flat prior is not supported: give "
            "small positive values instead"
        )
    matrix.setflags(write=False)
    return matrix
