"""A request on two neighbouring data sets: how it is run, and what is known of its outputs.

`regression`, `rounds`, `summary` and `network` make the challenges of their kinds of request, and
`audit_release` takes it from there. First come checks of the noise by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincinv, ndtr

from noisewise._arrays import FloatArray
from noisewise.audit.engine import Score, likelihood_ratio
from noisewise.core.kinds import release_from_text
from noisewise.core.noise import Gaussian, Laplace
from noisewise.core.schema import Schema
from noisewise.holder.engines import open_source
from noisewise.holder.requests.base import Publishable

FALSE_ALARMS = 1e-6  # chance that sound noise is called too small or shared, each
_MOST_COMPARED = 2000  # columns; all pairs of more would not fit memory


@dataclass(frozen=True)
class NoiseCheck:
    """What the noise of many runs looked like."""

    # Over all published values, the observed scale over the stated one
    smallest: float
    largest: float
    correlation: float  # the largest in size between two of them, of the first 2,000
    # Whether nowhere there is less noise than stated, and no two values share any; both are wrongly
    # denied with probability 1e-6
    enough: bool
    independent: bool
    blind_above: float  # noise above this share of the stated scale may escape notice

    @property
    def passed(self) -> bool:
        """Whether the noise is as stated."""
        return self.enough and self.independent

    @property
    def flaw(self) -> str:
        """What is wrong, if it hasn't passed, and what would seldom look like that."""
        what = "noise that values share" if self.enough else "less noise than stated"
        return f"there is {what}. Sound noise"

    def __str__(self) -> str:
        return (
            f"Noise: {100 * self.smallest:.0f}% to {100 * self.largest:.0f}% of the stated scale "
            f"over all published values; the largest correlation of two is {self.correlation:.2f}."
        )


def check_noise(noise: FloatArray, laws: Sequence[Laplace | Gaussian]) -> NoiseCheck:
    """Compare noise (runs, values) with the stated laws."""
    runs, values = noise.shape
    scaled = noise / np.array([law.scale for law in laws])
    if isinstance(laws[0], Laplace):
        degrees, power = float(runs), 1
    else:
        degrees, power = runs / 2, 2
    total = (np.abs(scaled) ** power).sum(axis=0) / power
    tail = gammainc(degrees, total)
    observed = (total / degrees) ** (1 / power)
    limit = gammaincinv(degrees, FALSE_ALARMS / values) / degrees
    largest_correlation, shared = shared_randomness(scaled) if values > 1 else (0.0, False)
    return NoiseCheck(
        float(observed.min()),
        float(observed.max()),
        largest_correlation,
        bool(tail.min() >= FALSE_ALARMS / values),
        not shared,
        float(limit ** (1 / power)),
    )


def shared_randomness(numbers: FloatArray) -> tuple[float, bool]:
    """The largest correlation of two columns, and whether it is beyond chance."""
    numbers = numbers[:, :_MOST_COMPARED]
    runs, values = numbers.shape
    spread = numbers.std(axis=0)
    centred = (numbers - numbers.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    pairs = np.abs((centred.T @ centred / runs)[np.triu_indices(values, 1)])
    largest = float(pairs.max())
    z = np.arctanh(min(largest, 1 - 1e-15)) * max(runs - 3, 1) ** 0.5
    return largest, bool(2 * ndtr(-z) * len(pairs) < FALSE_ALARMS)


def spread_out(noise: FloatArray, scale: float, rng: np.random.Generator) -> FloatArray:
    """Make Laplace noise of discrete Laplace noise of the same scale.

    With a scale of few integers the two differ. P(|Z| ≥ k) = 2q^k/(1 + q) for k ≥ 1, q = e^(-1/s);
    a number drawn uniformly between P(|Z| > |z|) and P(|Z| ≥ |z|) is uniform over all, and -s times
    its logarithm is the size of Laplace noise. Noise of less than the stated scale stays that.
    """
    size = np.abs(noise)
    share = 2 / (1 + np.exp(-1 / scale))
    below = share * np.exp(-(size + 1) / scale)
    above = np.where(size == 0, 1.0, share * np.exp(-size / scale))
    uniform = np.maximum(below + (above - below) * rng.random(noise.shape), 1e-300)
    sign = np.where(size == 0, rng.choice([-1.0, 1.0], noise.shape), np.sign(noise))
    return np.asarray(-scale * np.log(uniform) * sign)


# --- draws ----------------------------------------------------------------------------------------


Integers = NDArray[np.int64]
_LOOKS = 3  # at either data set, and at both


@dataclass(frozen=True)
class Steps:
    """A law whose density is constant between neighbouring edges."""

    edges: FloatArray  # (k + 1,)
    mass: FloatArray  # (k,), probabilities of the intervals
    # The grid that draws are on: a draw x stands for the interval from x to x + unit. None if draws
    # are atoms at the left edges, each of which stands for its whole interval.
    unit: float | None

    @classmethod
    def weighted(cls, edges: FloatArray, log_weights: FloatArray, unit: float | None) -> Steps:
        """From unnormalised log weights of the intervals."""
        weights = np.exp(log_weights - log_weights.max())
        return cls(edges, weights / weights.sum(), unit)

    def uniform(self, draws: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Uniform numbers, if these are draws from the law. Atoms are spread out at random."""
        at, start, width = self._intervals(draws)
        chance = rng.random(draws.shape)
        inside = chance
        if self.unit is not None:
            inside = np.clip((draws - start + self.unit * chance) / width, 0.0, 1.0)
        before = np.concatenate([[0.0], np.cumsum(self.mass)])
        return np.asarray(before[at] + self.mass[at] * inside)

    def logpdf(self, x: FloatArray) -> FloatArray:
        """Log density."""
        at, _, width = self._intervals(x)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.mass[at]) - np.log(width))

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Simulated draws."""
        at = rng.choice(len(self.mass), size=size, p=self.mass)
        inside = 0.0 if self.unit is None else np.diff(self.edges)[at] * rng.random(size)
        return np.asarray(self.edges[at] + inside)

    def divergence(self, other: Steps) -> float:
        """Of Kullback and Leibler, from another law; by its density in the middle of intervals."""
        seen = self.mass > 0
        middle = ((self.edges[:-1] + self.edges[1:]) / 2)[seen]
        return float(self.mass[seen] @ (self.logpdf(middle) - other.logpdf(middle)))

    def _intervals(self, x: FloatArray) -> tuple[Integers, FloatArray, FloatArray]:
        at = np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, len(self.mass) - 1)
        return at, self.edges[at], np.diff(self.edges)[at]


@dataclass(frozen=True)
class DrawCheck:
    """What many draws looked like beside their stated laws."""

    # Of Kolmogorov, between the stated distribution function and the observed one; the largest over
    # all published values, in units of its limit
    distance: float
    limit: float  # what is exceeded anywhere with probability 1e-6 if all laws are as stated
    # The largest in size between two values, where they should be independent; else 0
    correlation: float
    # Whether no two values share randomness; wrongly denied with probability 1e-6
    independent: bool

    @property
    def enough(self) -> bool:
        """Whether every value follows its law."""
        return self.distance <= self.limit

    @property
    def passed(self) -> bool:
        """Whether the draws are as stated."""
        return self.enough and self.independent

    @property
    def flaw(self) -> str:
        """What is wrong, if they haven't passed, and what would seldom look like that."""
        what = "share their randomness" if self.enough else "do not follow their stated law"
        return f"the draws {what}. Sound draws"

    def __str__(self) -> str:
        shared = f"; the largest correlation of two is {self.correlation:.2f}"
        return (
            f"Law: the draws are off their stated distribution by {self.distance:.3f} at most, "
            f"where {self.limit:.3f} would be noticed{shared if self.correlation else ''}."
        )


def check_draws(
    a: FloatArray, b: FloatArray, *, independent: bool = True, simulated: int | None = None
) -> DrawCheck:
    """Compare numbers (runs, values) of two data sets that should be uniform.

    Each data set is looked at by itself, where draws that follow the rows too closely show, and
    both together, where draws with too little spread show sooner.

    `a` and `b` are draws of the two data sets, through the distribution functions of their stated
    laws; `simulated` says how many points the laws were simulated with, if they are no better
    known. `independent` says whether the values of one run should be.
    """
    together = np.concatenate([a, b])
    looks = [_kolmogorov(numbers, simulated) for numbers in (a, b, together)]
    distance, limit = max(looks, key=lambda look: look[0] / look[1])
    largest, shared = 0.0, False
    if independent and together.shape[1] > 1:
        largest, shared = shared_randomness(together)
    return DrawCheck(distance, limit, largest, not shared)


def uniform_numbers(
    laws: Sequence[Steps], outputs: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Outputs (runs, values) through the distribution functions of these laws, over and over."""
    columns = enumerate(outputs.T)
    return np.column_stack([laws[i % len(laws)].uniform(column, rng) for i, column in columns])


def _kolmogorov(uniform: FloatArray, simulated: int | None) -> tuple[float, float]:
    """The largest distance from uniformity over all columns, and its limit."""
    runs, values = uniform.shape
    ordered = np.sort(uniform, axis=0)
    steps = np.arange(runs + 1)[:, None] / runs
    distance = max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max())
    # Dvoretzky, Kiefer and Wolfowitz, with Massart's constant: for any number of runs.
    chances = np.log(2 * _LOOKS * values / FALSE_ALARMS)
    limit = np.sqrt(chances / (2 * runs))
    if simulated is not None:
        limit += np.sqrt(chances / (2 * simulated))
    return float(distance), float(limit)


Run = Callable[[int], list[float]]
Batch = Callable[[int], FloatArray]
Weakened = Callable[[int, float, np.random.Generator], Batch]
Table = dict[str, list[Any]]


@dataclass(frozen=True)
class Neighbours:
    """Two data sets that differ in one privacy unit."""

    # Columns in original units
    a: Table
    b: Table
    # Their distance in units of the noise, over what the stated sensitivities allow. The smallest
    # eigenvalue, where it is published, is left out.
    attained: float


_OWNED = 3  # rows of the person in whom data sets with ids differ


def rows_of_one(schema: Schema) -> tuple[int, int]:
    """How many rows of a unit count, and how many it has; equal ones are their own mean."""
    if schema.unit_column is not None:
        return 1, _OWNED
    return schema.max_rows_per_unit, schema.max_rows_per_unit


def with_ids(schema: Schema, table: Table, shared: int) -> Table:
    """The same table with a column of ids, if the schema names one.

    The first `shared` rows are of as many people, and all others of one more.
    """
    if schema.unit_column is None:
        return table
    rows = len(next(iter(table.values())))
    return {**table, schema.unit_column: [min(row, shared) for row in range(rows)]}


@dataclass(frozen=True)
class Challenge:
    """What an audit of a request needs."""

    request: Publishable[Any]
    pair: Neighbours
    # From a data set (0 or 1), by its rows or by their exact sums, to the values of a Release that
    # was written as text and read back
    run: Run
    # As `audit` takes them; the first is the one that is known to be good
    scores: Sequence[Score | None]
    # From all outputs of both data sets, in the order of the runs, to whether their noise is the
    # stated one
    check: Callable[[FloatArray, FloatArray], NoiseCheck | DrawCheck | None]
    # From (data set, factor, generator) to simulated runs of it with so much of the noise
    weakened: Weakened


def sums_of(request: Publishable[Any], table: Table) -> Any:
    """The exact sums that a Release starts from, by the holder's engine."""
    return open_source(table).sums(request.plan(), None)


def through_text(request: Publishable[Any], result: Any) -> Any:
    """Draw the noise, write a Release, and read it as anybody would."""
    return release_from_text(request.release(result.n, result).to_text())


def noisy_sums(
    request: Publishable[Any],
    pair: Neighbours,
    results: tuple[Any, Any],
    exact: tuple[FloatArray, FloatArray],
    laws: Sequence[Laplace | Gaussian],
    published: Callable[[Any], list[float]],
    *,
    discrete: bool = False,
) -> Challenge:
    """The challenge of sums with independent noise, drawn anew in every run from these results.

    `published` has the values of a Release, whose noise is that of the laws; if it is `discrete`,
    with scales of few units, it is spread out before it is looked at.
    """

    def run(side: int) -> list[float]:
        return published(through_text(request, results[side]))

    def check(a: FloatArray, b: FloatArray) -> NoiseCheck:
        noise = np.concatenate([a - exact[0], b - exact[1]])
        if discrete:
            noise = spread_out(noise, laws[0].scale, np.random.default_rng(0))
        return check_noise(noise, laws)

    scores = (likelihood_ratio(laws, *exact), None)
    return Challenge(request, pair, run, scores, check, simulated(exact, laws))


def simulated(exact: tuple[FloatArray, FloatArray], laws: Sequence[Laplace | Gaussian]) -> Weakened:
    """The `weakened` of sums with independent noise, by NumPy's generator."""

    def weakened(side: int, factor: float, rng: np.random.Generator) -> Batch:
        scales = factor * np.array([law.scale for law in laws])
        draw = rng.laplace if isinstance(laws[0], Laplace) else rng.normal
        return lambda trials: exact[side] + draw(0.0, scales, (trials, len(laws)))

    return weakened
