"""What Releases say about a regression: its columns, one observation a holder, and the way back.

A Release holds second moments of all its columns, so any regression among them is free
post-processing: any numeric column may be the target, any others the covariates. `ModelColumns` has
the columns of the model and takes coefficients from unit scale to original units; an `Observation`
is what one Release says about their second moments, ready for inference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import BoolArray, FloatArray
from noisewise.core.design import INTERCEPT, Box, Design, DesignColumn, columns_of
from noisewise.core.design import Family as TargetFamily
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds.regression import Release
from noisewise.core.noise import DiscreteGaussian
from noisewise.core.schema import Category, Number, Schema, level_text
from noisewise.core.statistics import FourthMoments, SecondMoments
from noisewise.core.terms.term import Arithmetic, BSpline, Levels, NaturalSpline

if TYPE_CHECKING:
    from noisewise.analyst.regression.papers.moments import FourthMomentObservation

Family = Literal["laplace", "gaussian"]
# Of an indicator, the factors and the levels of them at which it is 1 (`core.terms`)
Cell = frozenset[tuple[tuple[str, str], str]]


@dataclass(frozen=True)
class ModelColumns:
    """The columns of the model y ~ 1 + x, with the map between unit scale and original units.

    On unit scale a column is (original - centre) / half_width.
    """

    schema: Schema
    features: tuple[str, ...]
    target: str
    family: TargetFamily = "linear"

    @property
    def design(self) -> Design:
        """The design that a Release of just these columns would have."""
        return Design(self.schema, self.features, self.target, self.family)

    @property
    def sources(self) -> tuple[str, ...]:
        """The table columns that the features are made of."""
        each = (source for name in self.features for source in columns_of(name, self.schema))
        return tuple(dict.fromkeys(each))

    @property
    def covariates(self) -> tuple[DesignColumn, ...]:
        """The design columns of the features."""
        return self.design.columns[:-1]

    @property
    def cells(self) -> dict[int, Cell]:
        """What indicators mean, by column of w."""
        columns = enumerate(self.covariates, 1)
        return {i: frozenset(c.cell) for i, c in columns if c.is_indicator}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coefficients, the intercept first."""
        return (INTERCEPT, *(column.name for column in self.covariates))

    @property
    def _units(self) -> tuple[FloatArray, FloatArray, float, float]:
        centre = np.array([column.centre for column in self.covariates])
        width = np.array([column.half_width for column in self.covariates])
        if self.family != "linear":  # coefficients are of a linear predictor, which has no unit
            return centre, width, 0.0, 1.0
        target = self.design.columns[-1]
        return centre, width, target.centre, target.half_width

    def theta_to_original(self, theta: FloatArray) -> FloatArray:
        """Coefficients (…, d) from unit scale to original units.

        y = c_y + r_y y', x = c + r x': slopes r_y θ'_j / r_j, intercept c_y + r_y θ'_0 - Σ θ_j c_j.
        """
        centre, width, target_centre, target_width = self._units
        slopes = target_width * theta[..., 1:] / width
        intercept = target_centre + target_width * theta[..., :1] - (slopes @ centre)[..., None]
        return np.concatenate([intercept, slopes], axis=-1)

    def sigma2_to_original(self, sigma2: FloatArray) -> FloatArray:
        """Error variance from unit scale to squared original units."""
        return sigma2 * self._units[3] ** 2

    def design_matrix(self, table: Any) -> FloatArray:
        """Rows (n, d) in original units, with the intercept and indicators, from named columns.

        Values are not clipped: a prediction is for the person as they are. Splines are the same
        beyond the bounds as at them.
        """
        raw: dict[str, NDArray[Any]] = {}
        for name in self.sources:
            declared = self.schema.columns[name]
            try:
                values = np.asarray(table[name])
            except (KeyError, IndexError, TypeError, ValueError):
                raise RequestError(f"predict: the new data have no column {name!r}") from None
            if isinstance(declared, Category):
                raw[name] = _codes(name, declared, values)
            else:
                raw[name] = _numbers(name, values)
        lengths = {len(column) for column in raw.values()}
        if len(lengths) != 1:
            raise RequestError("predict: the columns of the new data differ in length")
        columns = [part for name in self.features for part in self._expanded(name, raw)]
        return np.column_stack([np.ones(lengths.pop()), *columns])

    def _expanded(self, name: str, raw: dict[str, NDArray[Any]]) -> list[FloatArray]:
        """The columns of a feature."""
        declared = self.schema.columns.get(name)
        if isinstance(declared, Category):
            return Levels(name).values(self.schema, raw)
        if declared is not None:
            return [raw[name]]
        with np.errstate(all="ignore"):
            values = self.design.terms[name].values(self.schema, raw)
        if not all(np.isfinite(part).all() for part in values):
            raise RequestError(
                f"predict: {name} is not a number for some of the new rows; their values are "
                "outside the public bounds"
            )
        return values


def _codes(name: str, declared: Category, values: NDArray[Any]) -> NDArray[Any]:
    """Positions among the declared levels."""
    texts = np.array([level_text(v.item() if hasattr(v, "item") else v) for v in values], object)
    for row, text in enumerate(texts, 1):
        if text not in declared.levels:  # it's somebody's: name its place, not the value
            raise RequestError(
                f"predict: row {row} of column {name!r} has a value that was not declared; its "
                f"levels are {', '.join(declared.levels)}"
            )
    return np.array([declared.levels.index(text) for text in texts], dtype=np.int64)


def _numbers(name: str, values: NDArray[Any]) -> FloatArray:
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        raise RequestError(f"predict: column {name!r} is not numeric") from None
    if numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise RequestError(f"predict: column {name!r} has values that are not finite numbers")
    return numbers


# --- what one holder has released -----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Observation:
    """One holder's noisy Gram matrix A = Σ ww', w = (1, x, y), on the common unit scale.

    Parameters
    ----------
    n : int
        Number of rows where it is public. Where it is private a rough value: the released one,
        rounded to a whole number and at least 1. What takes n for known must look at
        `n_is_private` first.
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
    cells : mapping of int to Cell
        What indicators mean, by column of w (`categories`). Default: two exclude each other if
        their product is known exactly, and that is all.
    """

    n: int
    values: FloatArray
    scale: FloatArray
    family: Family
    name: str = ""
    indicators: tuple[int, ...] = ()
    map: FloatArray | None = None
    covariance: FloatArray | None = None
    cells: Mapping[int, Cell] = field(default_factory=dict)

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
        object.__setattr__(self, "n", int(self.n))
        for name, matrix in (("values", values), ("scale", scale)):
            matrix.setflags(write=False)
            object.__setattr__(self, name, matrix)

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
            indicators=tuple(i for i, old in enumerate(columns) if old in self.indicators),
            map=None if self.map is None else self.map[pick],
            covariance=covariance,
            cells={i: self.cells[old] for i, old in enumerate(columns) if old in self.cells},
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
        return replace(
            self, values=values, scale=scale, family="gaussian", map=None, covariance=None
        )

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
        return self.scale * (np.sqrt(2.0) if self.family == "laplace" else 1.0)


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


def too_few_rows(observations: Sequence[Observation]) -> list[tuple[str, Observation]]:
    """Those with no more rows than columns besides the intercept, with what messages call them."""
    columns = observations[0].k + 1
    return [(x, o) for x, o in named(observations) if not o.n_is_private and o.n <= columns]


def common_k(observations: Sequence[Observation]) -> int:
    """Number of covariates of all holders, who must cover the same columns."""
    if not observations:
        raise RequestError("give the observation of at least one holder")
    each = [observation.k for observation in observations]
    if len(set(each)) > 1:
        raise RequestError(f"all holders must cover the same columns; got {each} covariates")
    return each[0]


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

    `given` are the analyst's own names, such as those of files.
    """
    if given is None:
        labels = [f", label {release.label!r}" if release.label else "" for release in releases]
        whats = [
            f"data set {release.schema.dataset!r}{label}"
            for release, label in zip(releases, labels, strict=True)
        ]
        if len(whats) == 1:
            return [f"the Release of {whats[0]}"]
        return [f"release {number} ({what})" for number, what in enumerate(whats, 1)]
    if isinstance(given, str) or len(given) != len(releases):
        raise RequestError(
            f"names: expected one for each of {len(releases)} Releases, got {given!r}"
        )
    return [
        f"{name} (data set {release.schema.dataset!r})"
        for name, release in zip(given, releases, strict=True)
    ]


# --- from Releases to observations ----------------------------------------------------------------


def as_releases(releases: Release | Sequence[Release]) -> list[Release]:
    """One or several Releases as a list, and nothing else."""
    given: list[Any] = list(releases) if isinstance(releases, Sequence) else [releases]
    first: dict[str, int] = {}
    for number, item in enumerate(given, 1):
        if not isinstance(item, Release):
            raise RequestError(
                f"releases: expected Releases of second moments, got {type(item).__name__}; read "
                "files with load_release, and `fit` those of other kinds"
            )
        if item.digest in first:
            raise RequestError(
                f"releases: {first[item.digest]} and {number} are the same Release of data set "
                f"{item.schema.dataset!r}; its people would count twice: give it once"
            )
        first[item.digest] = number
    return given


def observe(
    releases: Sequence[Release],
    target: str | None = None,
    features: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
) -> tuple[ModelColumns, list[Observation]]:
    """Pick the model's columns out of one or several Releases.

    Releases must declare the columns of the model alike (bounds, levels), because those define
    the unit scale. Everything else may differ: n, epsilon, mechanism, other columns. `names` are
    the analyst's own for the Releases, see `release_names`.
    """
    columns, called = choose_columns(releases, target, features, names)
    pairs = zip(releases, called, strict=True)
    return columns, [observe_one(release, columns, name) for release, name in pairs]


def choose_columns(
    releases: Sequence[Release],
    target: str | None = None,
    features: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
) -> tuple[ModelColumns, list[str]]:
    """The model's columns, which all Releases must have, and what messages call each Release."""
    if not releases:
        raise RequestError("releases: none given")
    first = releases[0].design
    made_of = partial(columns_of, schema=first.schema)
    chosen_target = first.target if target is None else target
    if features is None:
        taken = made_of(chosen_target) if chosen_target in first.regressed else ()
        features = [name for name in first.regressed if not set(taken) & set(made_of(name))]
    if isinstance(features, str):
        raise RequestError(f"features: expected a list of names, got the text {features!r}")
    called = release_names(releases, names)
    chosen = (*features, chosen_target)
    for holder, release in zip(called, releases, strict=True):
        released = release.design.regressed
        averaged = release.schema.unit_column is not None
        if averaged != (first.schema.unit_column is not None):
            told = ("averages", "doesn't") if averaged else ("doesn't average", "does")
            raise ReleaseError(
                f"{holder} {told[0]} the rows of one person and {called[0]} {told[1]}, so that "
                "their errors have different variances: fit them apart"
            )
        for name in chosen:
            if name not in released:
                what = "column or term" if release.design.terms else "column"
                raise RequestError(f"{holder} has no {what} {name!r}; it has {', '.join(released)}")
        ours, theirs = first.schema.columns, release.schema.columns
        needed = dict.fromkeys(source for name in chosen for source in made_of(name))
        for name in needed:
            if theirs.get(name) != ours[name]:
                raise ReleaseError(
                    f"{holder} declares column {name!r} differently from {called[0]} "
                    f"({_told(theirs.get(name))} against {_told(ours[name])}); "
                    "bounds and levels must agree, so that all are on one scale: fit it alone, or "
                    "ask for a Release with the same declaration"
                )
    columns = ModelColumns(
        first.schema.restricted_to(tuple(needed)), tuple(features), chosen_target
    )
    check_splines(columns.design)  # the design validates the choice: one target, nothing twice
    return columns, called


def check_splines(design: Design) -> None:
    """Refuse a spline of a column together with what it contains: no data tell them apart.

    B-splines contain all polynomials up to their degree, natural ones straight lines.
    """
    terms = design.terms.items()
    single = {name: term.factors[0] for name, term in terms if len(term.factors) == 1}
    for name, spline in single.items():
        if not isinstance(spline, BSpline | NaturalSpline):
            continue
        contained = spline.degree if isinstance(spline, BSpline) else 1
        for other in design.features:
            factor = single.get(other)
            same = factor is not None and factor.columns == spline.columns and other != name
            curve = isinstance(factor, Arithmetic) and factor.expression.degree <= contained
            another = isinstance(factor, BSpline | NaturalSpline)
            if other == spline.name or (same and (curve or another)):
                raise RequestError(
                    f"features: {name} contains {other}, or a part of it, so their coefficients "
                    "cannot be told apart; fit without one of them (features=, or a formula)"
                )


def _told(column: object) -> str:
    """A column's declaration in a few words."""
    if isinstance(column, Number):
        return f"{column.lower:g} to {column.upper:g}"
    if isinstance(column, Category):
        levels = ", ".join(column.levels[:6]) + (", ..." if len(column.levels) > 6 else "")
        return f"levels {levels} with reference {column.reference}"
    return "not declared"


def observe_one(release: Release, columns: ModelColumns, name: str) -> Observation:
    """Pick the model's columns out of one Release."""
    if release.rounds is not None:
        raise RequestError(
            f"{name} was made in rounds, in coordinates of its own, which only method exact can "
            "read: use noisewise.fit, or publish without --rounds"
        )
    measurement, statistic = release.second_moments, SecondMoments(release.design)
    size = len(release.design.names)
    values, scale = np.zeros((size, size)), np.zeros((size, size))
    for (a, b), value in statistic.public_values(release.n).items():
        values[a, b] = values[b, a] = value
    diagonal = measurement.noise.continuous().scale
    off = measurement.off_diagonal_noise.continuous().scale
    for (a, b), noisy in zip(statistic.entries, measurement.unit_values(), strict=True):
        values[a, b] = values[b, a] = noisy
        scale[a, b] = scale[b, a] = diagonal if a == b else off
    position = {name: i for i, name in enumerate(release.design.names)}
    pick = [position[name] for name in (*columns.names, columns.target)]
    family: Family = "gaussian" if isinstance(measurement.noise, DiscreteGaussian) else "laplace"
    values, scale = values[np.ix_(pick, pick)], scale[np.ix_(pick, pick)]
    indicators: tuple[int, ...] = ()
    # In a ball rows are shrunk as a whole, and means have shares in place of 0 and 1.
    if isinstance(release.geometry, Box) and release.schema.unit_column is None:
        indicators = tuple(i for i, c in enumerate(columns.covariates, 1) if c.is_indicator)
    if release.n is None:  # add_remove_one: n is the released entry (0, 0)
        return Observation.with_private_n(values, scale, family, name, indicators)
    return Observation(release.n, values, scale, family, name, indicators)


def observe_fourth(
    releases: Sequence[Release], columns: ModelColumns
) -> list[FourthMomentObservation | None]:
    """Released fourth moments of the model's covariates; None where a holder released none.

    Fourth moments are of the Release's own features. They serve any model whose covariates are
    among those.
    """

    def of(release: Release) -> FourthMomentObservation | None:
        measurement = release.measurement(FourthMoments.name)
        positions = {name: i for i, name in enumerate(release.design.names[:-1])}
        if measurement is None or release.n is None or not set(columns.names) <= set(positions):
            return None
        from noisewise.analyst.regression.papers import moments

        entries = release.statistic(FourthMoments.name).entries
        value_of = dict(zip(entries, measurement.unit_values(), strict=True))
        pick = [positions[name] for name in columns.names]
        wanted = (
            tuple(sorted(pick[i] for i in m)) for m in moments.fourth_monomials(len(pick) - 1)
        )
        law = measurement.noise
        return moments.FourthMomentObservation(
            n=release.n,
            k=len(pick) - 1,
            values=np.array([value_of[monomial] for monomial in wanted]),
            scale=law.continuous().scale,
            family="gaussian" if isinstance(law, DiscreteGaussian) else "laplace",
        )

    return [of(release) for release in releases]
