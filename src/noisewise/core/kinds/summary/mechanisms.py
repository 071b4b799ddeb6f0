"""What a block summary measures, and the posterior within a block, as public vocabulary.

The rows are put into M blocks, r times over (r *partitions*), and every one of the r M blocks gets
a regression of its own. All but one of the mechanisms publish, for each of their entries, the sum
over all r M blocks of a bounded number ψ_j that depends on one block alone:

    value = Σ_j round(2**fraction_bits ψ_j) + discrete Laplace noise,    low ≤ round(…) ≤ high.

One row is in one block of each partition, so it can move an entry by at most r (high - low), in
all entries at once. `location_scale` instead publishes two medians over the blocks, drawn by the
exponential mechanism, from which every probability and every quantile follows, and `mean` both: a
range that two such draws find, then sums of the estimates within it.

Blocks that have no regression (too few rows, collinear columns) count with a fixed ψ.
With z_j = (b - m_j)/√v_j and p_j = T_ν(z_j) the block's posterior probability that the coefficient
is below b:

================  =======================================  ============  ==================
name              ψ_j                                      no fit        range
================  =======================================  ============  ==================
sign              sign(b - m_j)                            0             -1 .. 1
stouffer          Φ⁻¹(p_j) clipped to ±c                   0             -c .. c
rescaled_normal   p_j                                      1/2           0 .. 1
fisher            -2 log max(p_j, p*)                      2 (1 - p*)    0 .. -2 log p*
clipped_mean      (Q_j(p) clipped - lower)/(upper - lower) 1/2           0 .. 1
================  =======================================  ============  ==================

**The posterior within a block** of coefficient k is a Student t with mean m_k, squared scale v_k
and ν degrees of freedom. With d the diagonal of (X'X)⁻¹, n_j the block's rows and K its number of
coefficients, intercept included:

flat        prior ∝ 1/σ²:                m = β̂, v = d RSS/ν, ν = n_j - K.
g_prior     β | σ² ~ N(0, g σ² (X'X)⁻¹), p(σ²) ∝ 1/σ²:
            m = g/(g+1) β̂, v = g/(g+1) d (RSS + y'Hy/(g+1))/n_j, ν = n_j.
conjugate   β | σ² ~ N(m₀, σ² Λ₀⁻¹), σ² ~ InverseGamma(a, b), each to the power 1/M, because the
            prior would otherwise count M times (which made the paper fail at n = 10,000).

`clipped_mean` needs a posterior as narrow as that of all rows: the likelihood goes to the power M
(Li, Srivastava & Dunson 2017), which is called *full width* here. For flat, v is d RSS/ν with
ν = M n_j - K; the others have v/M with M ν degrees of freedom. The conjugate posterior is then the
one of Li et al. with the prior counted once, since (prior^(1/M) · likelihood)^M says the same.

References
----------
Amitai & Reiter (2018), Differentially private posterior summaries for linear regression
coefficients, doi:10.29012/jpc.686. Li, Srivastava & Dunson (2017), doi:10.1093/biomet/asx033.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, Literal

from noisewise.core.design import Design, Family
from noisewise.core.errors import RequestError
from noisewise.core.schema import MAX_NAME, Category, Schema

CELL_BITS = 52
CELLS = 1 << CELL_BITS
FRACTION_BITS = 20
MAX_ENTRIES = 1_000
MAX_BLOCKS = 1 << 20
MAX_PARTITIONS = 1_000
MAX_REGRESSIONS = 1 << 22
MAX_CLIP = 8.0
MIN_P_STAR = 1e-6
MAX_G = 1e15
MAX_PRIOR = 1e100


# --- what can be asked: questions, quantiles, and locations with their base laws ------------------


@dataclass(frozen=True)
class Question:
    """How probable is it that a coefficient is below a number?"""

    coefficient: str
    threshold: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", finite(self.threshold, "threshold"))

    def __str__(self) -> str:
        return f"{self.coefficient} < {self.threshold:g}"


@dataclass(frozen=True)
class QuantileItem:
    """A posterior quantile of a coefficient that is known to lie between two public numbers."""

    coefficient: str
    probability: float
    lower: float
    upper: float

    def __post_init__(self) -> None:
        for name in ("probability", "lower", "upper"):
            object.__setattr__(self, name, finite(getattr(self, name), name))
        if not 0 < self.probability < 1:
            raise RequestError(
                f"probability: {self.probability:g} is not between 0 and 1, such as 0.05 or 0.5"
            )
        if not 0 < self.upper - self.lower < math.inf:
            raise RequestError(
                f"bounds of {self.coefficient!r}: lower ({self.lower:g}) must be below upper "
                f"({self.upper:g})"
            )
        size = max(abs(self.lower), abs(self.upper))
        if size > 1e150 or self.upper - self.lower < 1e-150:
            raise RequestError(
                f"bounds of {self.coefficient!r}: {self.lower:g} and {self.upper:g} must be "
                "numbers of ordinary size, and not the same to 150 digits"
            )

    def __str__(self) -> str:
        return f"quantile {self.probability:g} of {self.coefficient}"

    def value(self, fraction: float) -> float:
        """The coefficient that a mean of ψ stands for."""
        return self.lower + fraction * (self.upper - self.lower)


@dataclass(frozen=True)
class CauchyBase:
    """The public base law of a median: where it might be, before any row is seen.

    The real line is divided into 2**52 cells of equal probability. It costs little to be wrong: a
    median k scales away from the centre is found as well as if log(k²) fewer blocks counted.
    """

    centre: float
    scale: float

    def __post_init__(self) -> None:
        for name in ("centre", "scale"):
            object.__setattr__(self, name, finite(getattr(self, name), f"base {name}"))
        if not 1e-150 < self.scale < 1e150 or abs(self.centre) > 1e150:
            raise RequestError(
                f"base: scale = {self.scale:g} must be a positive number of ordinary size"
            )

    def value(self, cell: int) -> float:
        """The number in the middle of a cell (in probability)."""
        middle = cell + 0.5 - CELLS / 2
        if abs(middle) <= CELLS / 4:
            return self.centre + self.scale * math.tan(math.pi * middle / CELLS)
        # The distance to the end is exact; in the tails the tangent of the middle would not be.
        rest = CELLS / 2 - abs(middle)
        return self.centre + math.copysign(self.scale, middle) / math.tan(math.pi * rest / CELLS)


@dataclass(frozen=True)
class LocationItem:
    """A coefficient whose location and scale are published."""

    coefficient: str
    location: CauchyBase  # base law of the median over blocks of the posterior mean m_j
    log_scale: CauchyBase  # base law of the log scale (see `LocationScale` and `Mean`)

    def __str__(self) -> str:
        return self.coefficient


def finite(value: Any, name: str) -> float:
    """A finite number, or an error that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"{name}: expected a number, got {str(value)[:40]!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise RequestError(f"{name}: expected a finite number, got {number}")
    return number + 0.0


# --- the mechanisms -------------------------------------------------------------------------------


class _Described:
    """What goes into a Release: the name, and the fields."""

    name: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **_plain(self)}


@dataclass(frozen=True)
class _Asks(_Described):
    questions: tuple[Question, ...]
    entry: ClassVar[type[Any]] = Question
    fraction_bits: ClassVar[int] = FRACTION_BITS

    def __post_init__(self) -> None:
        _check_entries(self.questions, self.entry, "questions")


@dataclass(frozen=True)
class Sign(_Asks):
    """Counts of blocks on either side of each threshold. The default."""

    name: ClassVar[str] = "sign"
    fraction_bits: ClassVar[int] = 0
    low: ClassVar[int] = -1
    high: ClassVar[int] = 1


@dataclass(frozen=True)
class Stouffer(_Asks):
    """Sums of clipped normal scores (Stouffer's method for combining tests)."""

    clip: float
    name: ClassVar[str] = "stouffer"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "clip", finite(self.clip, "clip"))
        if not 0.01 <= self.clip <= MAX_CLIP:
            raise RequestError(
                f"clip: {self.clip:g} is not between 0.01 and {MAX_CLIP:g}; about 1 is usual"
            )

    @property
    def high(self) -> int:
        """c on the grid, rounded up."""
        return math.ceil(math.ldexp(self.clip, FRACTION_BITS))

    @property
    def low(self) -> int:
        """-c on the grid."""
        return -self.high


@dataclass(frozen=True)
class RescaledNormal(_Asks):
    """Sums of posterior probabilities (Amitai & Reiter 2018, section 2.1, with the right noise)."""

    name: ClassVar[str] = "rescaled_normal"
    low: ClassVar[int] = 0
    high: ClassVar[int] = 1 << FRACTION_BITS


@dataclass(frozen=True)
class Fisher(_Asks):
    """Sums of -2 log probabilities (Amitai & Reiter 2018, section 2.2, with the right noise)."""

    p_star: float
    name: ClassVar[str] = "fisher"
    low: ClassVar[int] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "p_star", finite(self.p_star, "p_star"))
        if not MIN_P_STAR <= self.p_star <= 0.45:
            raise RequestError(
                f"p_star: {self.p_star:g} is not between {MIN_P_STAR:g} and 0.45; smaller ones "
                "need more noise, 0.2 is a good choice"
            )

    @property
    def high(self) -> int:
        """-2 log p* on the grid, rounded up."""
        return math.ceil(math.ldexp(-2 * math.log(self.p_star), FRACTION_BITS))


@dataclass(frozen=True)
class ClippedMean(_Described):
    """Means of block quantiles between public bounds (Amitai & Reiter 2018, section 4)."""

    items: tuple[QuantileItem, ...]
    name: ClassVar[str] = "clipped_mean"
    entry: ClassVar[type[Any]] = QuantileItem
    fraction_bits: ClassVar[int] = FRACTION_BITS
    low: ClassVar[int] = 0
    high: ClassVar[int] = 1 << FRACTION_BITS

    def __post_init__(self) -> None:
        _check_entries(self.items, self.entry, "quantiles")


@dataclass(frozen=True)
class LocationScale(_Described):
    """Two exponential-mechanism medians for each coefficient: of m_j, and of the log scale.

    The scale is the full data's posterior standard deviation as a block sees it. With the flat
    posterior that is |m_j - location| / (Φ⁻¹(3/4) √M), from the blocks' spread about the published
    location, which needs no model of the errors' variances; with any other it is √(v_j / M).
    A value is a cell of the item's base law; the location comes first, then the log scale.
    """

    items: tuple[LocationItem, ...]
    name: ClassVar[str] = "location_scale"
    entry: ClassVar[type[Any]] = LocationItem

    def __post_init__(self) -> None:
        _check_entries(self.items, self.entry, "coefficients")


@dataclass(frozen=True)
class Mean(_Described):
    """The mean of the blocks' estimates, within a range that is found privately. The default.

    Four values for each coefficient: the cell of a rough location c (the median of m_j), that of
    log s (s being the quantile 1 - tail of |m_j - c|, now their median), and two sums over all
    blocks, of

        a_j = round(2**20 u_j) and |a_j|,  u_j = (m_j - c)/(reach s), clipped to ±1.

    A block without an estimate counts with 0 in the first sum and with 2**19 in the second: it
    doesn't move the mean, and makes the answer less sure.
    """

    items: tuple[LocationItem, ...]
    tail: float  # share of the blocks that are further from c than s
    reach: float  # half of the range's width, in s
    name: ClassVar[str] = "mean"
    entry: ClassVar[type[Any]] = LocationItem
    fraction_bits: ClassVar[int] = FRACTION_BITS
    low: ClassVar[int] = -(1 << FRACTION_BITS)
    high: ClassVar[int] = 1 << FRACTION_BITS

    def __post_init__(self) -> None:
        _check_entries(self.items, self.entry, "coefficients")
        for name, most in (("tail", 0.5), ("reach", 1e3)):
            object.__setattr__(self, name, finite(getattr(self, name), name))
            if not 0 < getattr(self, name) <= most:
                raise RequestError(f"{name}: expected a number above 0, at most {most:g}")

    def range_of(self, index: int, where: int, how_wide: int) -> tuple[float, float]:
        """The middle of a coefficient's range and half of its width, from the two cells."""
        item = self.items[index]
        log_width = math.log(self.reach) + item.log_scale.value(how_wide)
        # A wild draw still gives a range, so wide or narrow that nothing is learned from it.
        return item.location.value(where), math.exp(min(max(log_width, -600.0), 600.0))


Asking = Sign | Stouffer | RescaledNormal | Fisher
Additive = Asking | ClippedMean
Located = LocationScale | Mean
SummaryMechanism = Additive | Located


def coefficients_of(mechanism: SummaryMechanism) -> tuple[str, ...]:
    """The coefficients that the entries are about, in order of their first appearance."""
    entries = entries_of(mechanism)
    return tuple(dict.fromkeys(entry.coefficient for entry in entries))


def entries_of(mechanism: SummaryMechanism) -> tuple[Question | QuantileItem | LocationItem, ...]:
    """What is measured, in order; see `values_each` for how many values each has."""
    if isinstance(mechanism, ClippedMean | LocationScale | Mean):
        return mechanism.items
    return mechanism.questions


def values_each(mechanism: SummaryMechanism) -> int:
    """Values of one entry."""
    return {LocationScale: 2, Mean: 4}.get(type(mechanism), 1)


def sensitivity_of(mechanism: Additive | Mean, partitions: int, rows_per_unit: int) -> int:
    """L1 sensitivity of all values together, in grid units, for either neighbour relation.

    A row is in exactly one block of each of the r partitions, and a block's ψ depends on that
    block's rows alone. So replacing a row, adding one or removing one changes at most r of the
    terms of each sum, each by at most high - low. A unit with m rows changes at most m times as
    many, and all of the entries may change at once. (That the blocks are drawn independently of
    the rows, record by record, is shown in `noisewise.holder.blocks.sums`.) The two sums of `mean`
    together change by no more than that, as `noisewise.holder.blocks.mean` shows.
    """
    span = mechanism.high - mechanism.low
    return len(entries_of(mechanism)) * partitions * rows_per_unit * span


def _plain(value: Any) -> Any:
    """A dataclass as an object with its fields, a tuple as a list."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _check_entries(entries: Any, kind: type[Any], name: str) -> None:
    if not isinstance(entries, tuple) or not all(isinstance(entry, kind) for entry in entries):
        raise RequestError(f"{name}: expected a tuple of {kind.__name__}")
    if not 1 <= len(entries) <= MAX_ENTRIES:
        raise RequestError(f"{name}: {len(entries)} given, expected from 1 to {MAX_ENTRIES}")
    keys = entries if kind is not LocationItem else tuple(e.coefficient for e in entries)
    if len(set(keys)) < len(keys):
        raise RequestError(f"{name}: one of them is given twice; asking once costs half")


# --- the posterior within a block -----------------------------------------------------------------


class _BlockPosterior:
    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **_plain(self)}


@dataclass(frozen=True)
class Flat(_BlockPosterior):
    """The reference prior, proportional to 1/σ²."""

    kind = "flat"

    def check(self, coefficients: int, n_is_public: bool) -> None:
        """Fits every regression."""


@dataclass(frozen=True)
class GPrior(_BlockPosterior):
    """Zellner's g prior, centred on zero."""

    # "n" is the number of rows of the whole table, not of a block; it must be public
    g: float | Literal["n"] = "n"
    kind = "g_prior"

    def __post_init__(self) -> None:
        if self.g == "n":
            return
        given = _ordinary(self.g, "posterior: g")
        if not 0 < given <= MAX_G:
            raise RequestError(f"posterior: g = {self.g!r} must be 'n' or a number from 0 to 1e15")
        object.__setattr__(self, "g", given)

    def check(self, coefficients: int, n_is_public: bool) -> None:
        """A private number of rows cannot be a parameter."""
        if self.g == "n" and not n_is_public:
            raise RequestError(
                "posterior: g = 'n' needs a public number of rows, and add_remove_one keeps it "
                "private; give g a number, or use the flat posterior"
            )

    def value(self, n: int | None) -> float:
        if self.g == "n":
            assert n is not None
            return float(n)
        return float(self.g)


@dataclass(frozen=True)
class Conjugate(_BlockPosterior):
    """A normal-inverse-gamma prior in the table's own units."""

    # m₀ and the diagonal of Λ₀, one number for each coefficient, the intercept first
    mean: tuple[float, ...]
    precision: tuple[float, ...]
    # a and b of the inverse gamma prior of σ²
    shape: float
    rate: float
    kind = "conjugate"

    def __post_init__(self) -> None:
        for name in ("mean", "precision"):
            numbers = tuple(_ordinary(v, f"posterior: {name}") for v in getattr(self, name))
            object.__setattr__(self, name, numbers)
        for name in ("shape", "rate"):
            object.__setattr__(self, name, _ordinary(getattr(self, name), f"posterior: {name}"))
        if min((*self.precision, self.shape, self.rate)) < 0:
            raise RequestError(
                "posterior: precision, shape and rate must be zero or positive; zero is a flat part"
            )

    def check(self, coefficients: int, n_is_public: bool) -> None:
        """One mean and one precision for each coefficient."""
        if {len(self.mean), len(self.precision)} != {coefficients}:
            raise RequestError(
                f"posterior: the regression has {coefficients} coefficients, the intercept among "
                f"them; give as many means ({len(self.mean)} given) and precisions "
                f"({len(self.precision)} given)"
            )


BlockPosterior = Flat | GPrior | Conjugate


def _ordinary(value: Any, where: str) -> float:
    number = finite(value, where)
    if abs(number) > MAX_PRIOR:
        raise RequestError(f"{where}: expected a finite number of at most 1e100 in size")
    return number


# --- what a block computes from its rows ----------------------------------------------------------


LEAST_SQUARES = "least_squares"
MODELS = (LEAST_SQUARES, "logistic", "poisson", "quantile", "huber", "cox")
LOGARITHMIC = ("logistic", "poisson", "cox")  # coefficients have no unit of the target
MAX_ESTIMATES = 1_000


@dataclass(frozen=True)
class Model:
    """What a block computes, as far as it is published.

    Privacy doesn't depend on it. A row is in one block of each partition, and an aggregate over
    blocks is released that one block can move only so far, whatever number it comes up with.

    least_squares   the default: y = β₀ + β'x, from exact sums.
    logistic        log odds of the target being in the upper half of its bounds, or, of a category
                    with two levels, not its reference.
    poisson         log of the mean of the target, a count; below zero counts as zero.
    quantile        the median of the target, or another quantile of it: quantile:0.9.
    huber           a line that outliers pull less (Huber's T, with statsmodels' constant 1.345).
    cox             log hazard ratios; the target is the time to the event, negative where the event
                    was not seen until then (censored). There is no intercept.

    An own function has a name and names what it returns.
    """

    # One of `MODELS`, "quantile:0.9" and the like, or what an own function is called
    name: str = LEAST_SQUARES
    estimates: tuple[str, ...] = ()  # what an own function returns; empty for the others

    def __post_init__(self) -> None:
        texts = (self.name, *self.estimates)
        if not all(
            isinstance(t, str) and 0 < len(t) <= MAX_NAME and t.isprintable() for t in texts
        ):
            raise RequestError(f"model: names are texts of at most {MAX_NAME} characters")
        if self.estimates:
            if self.kind in MODELS:
                raise RequestError(f"model: {self.name!r} is a model of noisewise; choose a name")
            if len(set(self.estimates)) < len(self.estimates) <= MAX_ESTIMATES:
                raise RequestError("model: an estimate is named twice")
        elif self.kind not in MODELS or (":" in self.name and self.kind != "quantile"):
            raise RequestError(f"model: {self.name!r} is unknown; there are {', '.join(MODELS)}")
        elif self.kind == "quantile":
            _ = self.quantile

    @property
    def kind(self) -> str:
        """The name without a quantile."""
        return self.name.partition(":")[0]

    @property
    def quantile(self) -> float:
        """Of the target, for the model of that name."""
        text = self.name.partition(":")[2] or "0.5"
        try:
            found = float(text)
        except ValueError:
            found = -1.0
        if not 0 < found < 1:
            raise RequestError(f"model: quantile:{text} is not between 0 and 1, as in quantile:0.9")
        return found

    @property
    def is_least_squares(self) -> bool:
        """Whether sums over rows are all that a block needs."""
        return self.name == LEAST_SQUARES

    def family(self, schema: Schema, target: str) -> Family:
        """Of the design: logistic blocks take a category for yes (not its reference) or no."""
        category = isinstance(schema.columns.get(target), Category)
        return "logistic" if category and self.name == "logistic" else "linear"

    def coefficients(self, design: Design) -> tuple[str, ...]:
        """Names of what a block estimates."""
        if self.estimates:
            return self.estimates
        return design.names[1 if self.name == "cox" else 0 : -1]

    def to_json(self) -> dict[str, Any]:
        more = {"estimates": list(self.estimates)} if self.estimates else {}
        return {"name": self.name, **more}


LINE = Model()
