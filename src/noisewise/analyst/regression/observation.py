"""What one holder's Release says about its second moments, ready for inference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from noisewise._arrays import BoolArray, FloatArray
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds.regression import Release

Family = Literal["laplace", "gaussian"]


@dataclass(frozen=True, eq=False)
class Observation:
    """One holder's noisy Gram matrix A = Σ ww', w = (1, x, y), on the common unit scale.

    Parameters
    ----------
    n : int
        Number of rows where it is public. Where it is private (see `with_private_n`) a rough value:
        the released one, rounded to a whole number and at least 1. What takes n for known must
        look at `n_is_private` first.
    values : array, shape (P, P)
        The noisy A, symmetric, P = k + 2 for k covariates. It need not be a possible Gram matrix.
        Entries that were not released are ignored. ``values[0, 0]`` is n, or the noisy n.
    scale : array, shape (P, P)
        Noise scale of each entry: b of the Laplace law or the standard deviation of the normal
        one. 0: known exactly, because it is public. inf: not released. ``scale[0, 0]`` is 0 if n
        is public, and a positive number if it is private.
    family : {"laplace", "gaussian"}
        The noise law. Noise is independent from entry to entry of the upper triangle.
    name : str
        What messages call it.
    indicators : tuple of int
        Columns of w that are 0 or 1 in every row, so that A_aa = A_0a.
    map : array, shape (P, P), optional
        K, lower triangular: `values` and `scale` are of K A K', because the holder has summed
        w' = K w (`rounds`). The constant, indicators, and all columns with a product that is known
        exactly are the same in w' as in w. Default: the identity.
    covariance : array, shape (P (P + 1) / 2,) twice, optional
        Of the noise of the entries of the lower triangle, row by row, where it is normal and not
        independent (`exact.groups`). `scale` has its standard deviations.
    """

    n: int
    values: FloatArray
    scale: FloatArray
    family: Family
    name: str = ""
    indicators: tuple[int, ...] = ()
    map: FloatArray | None = None
    covariance: FloatArray | None = None

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or int(self.n) != self.n or self.n < 1:
            raise ReleaseError(f"n must be a whole number of rows, at least 1; got {self.n!r}")
        if self.family not in ("laplace", "gaussian"):
            raise ReleaseError(f"noise family must be 'laplace' or 'gaussian'; got {self.family!r}")
        scale = _square("scale", self.scale)
        values = _square("values", self.values)
        if values.shape != scale.shape:
            raise ReleaseError(
                f"values and scale must have one shape; got {values.shape} and {scale.shape}"
            )
        if np.isnan(scale).any() or (scale < 0).any():
            raise ReleaseError(
                "every noise scale must be at least 0 (0: public, inf: not released); got "
                f"{scale[np.isnan(scale) | (scale < 0)][0]}"
            )
        if not np.array_equal(scale, scale.T):
            raise ReleaseError("scale must be symmetric: each entry is released once")
        observed = np.isfinite(scale)
        values = np.where(observed, values, 0.0)
        if not np.isfinite(values).all():
            raise ReleaseError(
                "every released statistic must be a finite number; mark an entry that was not "
                "released with scale = inf"
            )
        if not np.array_equal(values, values.T):
            raise ReleaseError("values must be symmetric: fill both triangles from one release")
        if not observed[0, 0]:
            raise ReleaseError("the number of rows must be public or released with noise")
        if self.n != (values[0, 0] if scale[0, 0] == 0 else _rough_n(values[0, 0])):
            raise ReleaseError(
                f"values[0, 0] must be the public n = {self.n} with scale 0; got "
                f"{values[0, 0]} with scale {scale[0, 0]}. Use Observation.with_private_n for a "
                "number of rows that is private"
            )
        if ((scale.diagonal() == 0) & (values.diagonal() < 0)).any():
            raise ReleaseError("a sum of squares that is known exactly cannot be negative")
        if self.map is not None:
            same = (scale == 0).any(axis=0)
            same[[0, *self.indicators]] = True
            object.__setattr__(self, "map", _checked_map(self.map, scale, same))
        values.setflags(write=False)
        scale.setflags(write=False)
        object.__setattr__(self, "n", int(self.n))
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "scale", scale)

    @classmethod
    def with_private_n(
        cls,
        values: FloatArray,
        scale: FloatArray,
        family: Family,
        name: str = "",
        indicators: tuple[int, ...] = (),
    ) -> Observation:
        """Return the observation of a holder whose n is private, and noisy as ``values[0, 0]``."""
        noisy_n = float(_square("values", values)[0, 0])
        if not np.isfinite(noisy_n):
            raise ReleaseError(f"the released number of rows must be finite; got {noisy_n}")
        if not _square("scale", scale)[0, 0] > 0:
            raise ReleaseError("a private number of rows must have noise; got scale 0")
        return cls(_rough_n(noisy_n), values, scale, family, name, indicators)

    def in_order(self, columns: Sequence[int]) -> Observation:
        """The same with the columns of w in another order, in which the constant is first."""
        pick = np.ix_(columns, columns)
        moved = tuple(i for i, column in enumerate(columns) if column in self.indicators)
        covariance = self.covariance
        if covariance is not None:
            a, b = np.tril_indices(len(columns))
            place = np.zeros_like(self.values, dtype=int)
            place[a, b] = place[b, a] = np.arange(len(a))
            entries = place[pick][a, b]
            covariance = covariance[np.ix_(entries, entries)]
        return replace(
            self,
            values=self.values[pick],
            scale=self.scale[pick],
            indicators=moved,
            map=None if self.map is None else self.map[pick],
            covariance=covariance,
        )

    def without_map(self) -> Observation:
        """The same statistics as an observation of A itself, for rough guesses.

        Values and standard deviations are right; the noise of its entries is correlated, and of a
        family of its own if it isn't normal, which an Observation cannot say.
        """
        if self.map is None:
            return self
        M: FloatArray = np.asarray(np.linalg.inv(self.map), dtype=np.float64)
        values = M @ self.values @ M.T
        public = (self.scale == 0) | np.isinf(self.scale)  # of columns that M leaves alone
        total = mapped_variance(M, np.where(public, 0.0, self.sd) ** 2)
        values[public], total[public] = self.values[public], self.scale[public]
        values, scale = (values + values.T) / 2, np.sqrt((total + total.T) / 2)
        return Observation(self.n, values, scale, "gaussian", self.name, self.indicators)

    @property
    def n_is_private(self) -> bool:
        """Whether the number of rows is itself a noisy statistic."""
        return bool(self.scale[0, 0] > 0)

    @property
    def k(self) -> int:
        """Number of covariates."""
        return int(self.values.shape[0]) - 2

    @property
    def sd(self) -> FloatArray:
        """Standard deviation of the noise, shape (P, P)."""
        factor = np.sqrt(2.0) if self.family == "laplace" else 1.0
        return self.scale * factor


def mapped_covariance(M: FloatArray, variance: FloatArray) -> FloatArray:
    """Covariance of the lower triangle of M E M', row by row, the entries of E being independent.

    Its diagonal is that triangle of `mapped_variance`.
    """
    a, b = np.tril_indices(len(M))
    turn = M[np.ix_(a, a)] * M[np.ix_(b, b)]
    turn += np.where(a == b, 0.0, M[np.ix_(a, b)] * M[np.ix_(b, a)])
    return np.asarray((turn * variance[a, b]) @ turn.T)


def mapped_variance(M: FloatArray, variance: FloatArray) -> FloatArray:
    """Variances of the entries of M E M', those of a symmetric E being independent.

    (M E M')_ab = Σ_c M_ac M_bc E_cc + Σ_{c<d} (M_ac M_bd + M_ad M_bc) E_cd.
    """
    squares, rows = M**2, M[:, None, :] * M
    total = squares @ variance @ squares.T + ((rows @ variance) * rows).sum(axis=2)
    return np.asarray(total - rows**2 @ variance.diagonal())


def named(observations: Sequence[Observation]) -> list[tuple[str, Observation]]:
    """Every observation with what messages call it."""
    return [(seen.name or f"holder {number}", seen) for number, seen in enumerate(observations, 1)]


def common_k(observations: Sequence[Observation]) -> int:
    """Number of covariates of all holders, who must cover the same columns."""
    if not observations:
        raise RequestError("give the observation of at least one holder")
    k = observations[0].k
    if any(observation.k != k for observation in observations):
        raise RequestError(
            "all holders must cover the same columns; got "
            f"{[observation.k for observation in observations]} covariates"
        )
    return k


def _checked_map(given: object, scale: FloatArray, same: BoolArray) -> FloatArray:
    K = _square("map", given)
    diagonal = K.diagonal()
    if not (
        K.shape == scale.shape
        and np.isfinite(K).all()
        and np.array_equal(K, np.tril(K))
        and (diagonal > 0).all()
        and np.array_equal(K[same], np.eye(len(K))[same])
        and np.isfinite(scale[~np.outer(same, same)]).all()
    ):
        raise ReleaseError(
            "a map of coordinates must be lower triangular with a positive diagonal, must leave "
            "the constant, indicators and what is known exactly as they are, and needs every other "
            "entry released"
        )
    K.setflags(write=False)
    return K


def _rough_n(noisy_n: float) -> int:
    return max(1, round(noisy_n))


def _square(name: str, value: object) -> FloatArray:
    try:
        matrix = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ReleaseError(f"{name} must be a matrix of numbers") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 2:
        raise ReleaseError(
            f"{name} must be a square matrix over (1, x, y), at least 2 by 2; got shape "
            f"{matrix.shape}"
        )
    return matrix


# --- what a Release is called in messages ---------------------------------------------------------


def release_names(releases: Sequence[Release], given: Sequence[str] | None = None) -> list[str]:
    """A name for each Release, to start a sentence about it with.

    Parameters
    ----------
    releases : sequence of Release
    given : sequence of str, optional
        The analyst's own names, such as those of files.
    """
    if given is None:
        return [_described(release, number, releases) for number, release in enumerate(releases, 1)]
    if isinstance(given, str) or len(given) != len(releases):
        raise RequestError(
            f"names: expected one for each of {len(releases)} Releases, got {given!r}"
        )
    return [
        f"{name} (data set {release.schema.dataset!r})"
        for name, release in zip(given, releases, strict=True)
    ]


def _described(release: Release, number: int, releases: Sequence[Release]) -> str:
    label = f", label {release.label!r}" if release.label else ""
    what = f"data set {release.schema.dataset!r}{label}"
    return f"the Release of {what}" if len(releases) == 1 else f"release {number} ({what})"
