"""What the rounds publish next, as a function of what they have published.

In the bounds' own coordinates the first measurement tells roughly where the numbers are. Then
exploring rounds move them to centre 0 and spread 1. A direction whose spread drowns in the noise is
given the spread of the noise, so it is seen better in the next round; this goes on until every
direction stands out. Exploring is cheap, because a ball of radius √(2q) needs little noise, and
the more rows the cheaper. A histogram of far rows then decides on the last ball, and the last round
gets all that is left. Exploring rounds leave categories alone: an indicator is on its own scale
already, and whitening would lose rare levels. The last round has them, with a weight of their own.
Where there are so many rows that they cost little, the spread of residuals follows (`residuals`);
and exploring goes on until a round has seen every direction from near, though it may have stood out
at once: by that round the analyst knows what far rows agree about.

**The last round's coordinates.** A slope needs the products of covariates x and the residual e of
the target. If all have spread 1, noise on Σ xe is in proportion to c² + R² in a ball of radius R.
Stretch e by γ: noise on γ Σ xe is as before for the same R, so on Σ xe it is (c² + R²)/γ. But R has
to grow, since |z|² = |x|² + γ²e². For normal rows and one row in a hundred outside, the best γ² is
1.5 for two covariates, 2 for four, 3.5 for eleven, about 1 + k/4, and noise is 5, 11 and 26%
smaller. With half of that, γ² = 1 + k/8, most of it is had, long tails of e count less, and
regressions among the covariates lose least: R² is some 10% larger, and that is all they lose.

**What it costs.** Let 1/m_r = Δ_r/s_r be the sensitivity of round r over its noise. The request is
charged for one Gaussian with noise multiplier m before any row is read, and the rounds keep
Σ 1/m_r² ≤ 1/m² whatever they publish.

**Claim.** All rounds together cost no more than that Gaussian.

**Proof.** By induction from the last round back, for continuous noise. Suppose that, whatever was
published up to round r, the rest is μ-GDP with μ² = 1/m² - Σ_{i≤r} 1/m_i² (Dong, Roth & Su 2022;
with nothing left to publish it is 0-GDP). Given what was published up to round r - 1, m_r and this
μ are fixed: round r is decided by it, and the noise doesn't depend on its own outcome. Round r is
(1/m_r)-GDP, and what follows is μ-GDP for each of its outcomes. By their Theorem 3.2 both together
are √(μ² + 1/m_r²)-GDP, which is the claim for r - 1. The same induction with Rényi divergences,
which add for the worst outcome, gives zCDP with ρ = 1/(2m²). Noise on the integers: the proof of
`core.calibration.discreteness_slack` compares probabilities given what came before, so its slacks
and tails add up along every path, and the charge has the sum of the largest. ∎

The rules here decide how useful the rounds are. Nothing in them is needed for the proof, but that
they see published values and public numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from noisewise.core.rounds import tail
from noisewise.core.rounds.estimate import Observed, least_squares, mean_and_covariance
from noisewise.core.rounds.transform import Floats, Shape, Transform
from noisewise.core.statistics.ball_moments import LARGEST_SQUARE, PRODUCT_ONE, ROW_BITS

MOST_ROUNDS = 10  # the first measurement and the last round among them
CONSTANT = 5 << (ROW_BITS - 2)  # c = 1.25 of exploring rounds
# c = 1: noise on the mean of the residual is then that on its products with numbers of spread 1.
_LAST_CONSTANT = 1 << ROW_BITS

_REST_OVER_CATEGORIES = 2  # of |u|² in the last round
_ENOUGH = 9  # `Setting.strength` from which rounds are worth their cost (`studies reach --small`)
_EXPLORING = 2  # squared radius of an exploring round, over q
_CONTRACTION, _LEAST_CONTRACTION = 0.10, 0.5  # of a spread that drowns in noise, a round
LEAST_SHARE, _LARGEST_SHARE = 0.03, 0.06  # of an exploring round
LARGEST_TOTAL = (MOST_ROUNDS - 1) * _LARGEST_SHARE  # of the first measurement and all of them
_FIRST_SHARE = 0.05  # where the number of rows is private, and has to be found out first
LEAST_FIRST_SHARE = 0.001  # keeps the noise within 64-bit integers for any number of rows
_INFLATION = 0.7  # of the noise that is added to a spread
_FOUND, _FOUND_AT_ONCE = 3.0, 8.0  # a spread stands out, in units of the noise
_STANDS_OUT = 1.3  # of rows outside the ball, in units of their noise
_NEAR = 0.25  # of a variance as a look sees it: from there it is seen from near
_LOOKS = 3  # exploring rounds after which a direction with far rows is left as it is
_NOISE_CAP = 12.0  # of the last round, in standard errors, beyond which no radius goes
_FREELY = 6.0  # squared radius over q that is always allowed
_RESIDUALS = 0.04  # share of the budget for the spread of residuals
_RESIDUALS_NOISE = 0.25  # of their Gram matrix, spectral, in units of what it is for normal errors
_RESIDUALS_REACH = 16.0  # the least squared radius for them, over the mean square of normal ones


@dataclass(frozen=True)
class Reach:
    """Which rows count in full: a published map, and the radius in units of 2**-10."""

    transform: Transform
    radius: int


@dataclass(frozen=True)
class Setting:
    """The public numbers that the rounds depend on.

    Parameters
    ----------
    numbers, categories : int
        How many of each the design has; the target is a number.
    rows_per_unit : int
    replaces : bool
        Whether neighbours replace rows, so that the number of rows is public.
    mu : float
        Sensitivity over noise of all rounds together.
    most : int or None
        At most so many rounds, and rounds in any case; None decides by the number of rows.
    indicators : int
        How many columns the categories have.
    reach : Reach, optional
        The coordinates and the ball of another Release, which take the place of exploring.
    """

    numbers: int
    categories: int
    rows_per_unit: int
    replaces: bool
    mu: float
    most: int | None = None
    indicators: int = 0
    reach: Reach | None = None

    def noise(self, square: float, share: float) -> float:
        """Sd of an off-diagonal entry: longest row `square`, `share` of the budget; units of 1."""
        relation = 1.0 if self.replaces else math.sqrt(0.5)
        return self.rows_per_unit * relation * square / (self.mu * math.sqrt(share))

    def strength(self, n: float) -> float:
        """How well an exploring round with the whole budget would see spreads of size 1."""
        return n / (self.noise(self._exploring_square, 1.0) * math.sqrt(self.numbers))

    def worthwhile(self, n: float) -> bool:
        """Whether there are rounds at all, from the number of rows or its noisy value."""
        return self.always or self.strength(n) >= _ENOUGH

    @property
    def largest_square(self) -> float:
        """|u|² of the last round with this reach."""
        return 0.0 if self.reach is None else self._square(self.reach.radius**2 / PRODUCT_ONE)

    @property
    def always(self) -> bool:
        """Whether there are rounds whatever the number of rows."""
        return self.most is not None or self.reach is not None

    def rows_needed(self) -> int:
        """From how many rows on there are rounds."""
        return 1 if self.always else math.ceil(_ENOUGH / self.strength(1.0))

    def first_share(self, n: float | None) -> float:
        """Share of the budget for the first measurement; n is None where it is private."""
        if n is None:
            return _FIRST_SHARE
        if self.reach is not None:
            return LEAST_FIRST_SHARE
        square = 1.0 + self.numbers + self.categories
        return max(LEAST_FIRST_SHARE, min(self._needed(square, n), self.exploring_share(n)))

    def exploring_share(self, n: float) -> float:
        """Share of the budget for each exploring round."""
        # Two matrices with noise are added up.
        needed = self._needed(math.sqrt(2) * self._exploring_square, n)
        return min(max(needed, LEAST_SHARE), _LARGEST_SHARE)

    def tail_share(self, n: float) -> float:
        """Share of the budget for the histogram: more where the last round has little noise."""
        errors = self.noise(self._square(4 * self.numbers), 1.0) / math.sqrt(n)
        return min(max(0.06 / errors, 0.04), 0.12)

    def residual_share(self, n: float) -> float:
        """Share of the budget for the spread of residuals: 0 where noise would hide it."""
        return _RESIDUALS if self._residual_reach(n, self._usual) >= _RESIDUALS_REACH else 0.0

    def rows_for_residuals(self) -> int:
        """From how many rows on the spread of residuals is published."""
        return math.ceil(_RESIDUALS_REACH / self._residual_reach(1.0, self._usual))

    def residual_radius(self, n: float, shape: Shape) -> int:
        """The radius for residuals times rows of the last round's shape, in units of 2**-10."""
        weight = self.categories * shape.weight**2 / PRODUCT_ONE
        usual = (shape.constant / (1 << ROW_BITS)) ** 2 + weight + self.numbers
        square = max(self._residual_reach(n, usual), 1.0) * usual
        return math.isqrt(int(min(square, LARGEST_SQUARE) * PRODUCT_ONE))

    def _residual_reach(self, n: float, usual: float) -> float:
        """The squared radius over `usual` with which noise on residuals is as wanted."""
        size = 1 + self.numbers + self.indicators
        wanted = _RESIDUALS_NOISE * n / (2 * math.sqrt(size))  # sd of an off-diagonal entry
        return wanted / self.noise(usual, _RESIDUALS)

    @property
    def _usual(self) -> float:
        """The mean of |u|² in the last round, categories at their largest."""
        return self._square(self.numbers)

    @property
    def _exploring_square(self) -> float:
        return (CONSTANT / (1 << ROW_BITS)) ** 2 + _EXPLORING * self.numbers

    def _square(self, radius_squared: float) -> float:
        """|u|² in the last round: categories get half as much of it as all the rest.

        With a share a in units of the rest, noise is in proportion to 1 + a on slopes of numbers,
        and to (1 + a)/√a on those of levels, which is least at 1. Half of that costs levels 6%
        and saves numbers 25%.
        """
        rest = (_LAST_CONSTANT / (1 << ROW_BITS)) ** 2 + radius_squared
        return rest * (1 + 1 / _REST_OVER_CATEGORIES if self.categories else 1)

    def _needed(self, square: float, n: float) -> float:
        """Share with which noise in units of a spread is as small as the contraction asks for."""
        spectral = math.sqrt(2 * self.numbers) / n
        exploring = self.noise(math.sqrt(2) * self._exploring_square, 1.0) * spectral
        contraction = min(
            max(_CONTRACTION, exploring / math.sqrt(_LARGEST_SHARE)), _LEAST_CONTRACTION
        )
        return (self.noise(square, 1.0) * spectral / contraction) ** 2


@dataclass(frozen=True)
class Explored:
    """An exploring round, in units of 1.

    Parameters
    ----------
    shape : Shape
    inside, outside : (q + 1, q + 1) arrays
        Noisy Gram matrices of rows in the ball, and of rows that were shrunk onto it. The entry
        (0, 0) is 0 where rows are replaced.
    sd : float
        Of the noise on diagonal entries of either; off the diagonal it is 1/√2 of that.
    """

    shape: Shape
    inside: Floats
    outside: Floats
    sd: float

    def observed(self, *, replaces: bool) -> Observed:
        """Both together; of rows outside only what stands out, since the rest would be noise."""
        size = len(self.inside)
        outside, standing = self.standing_out()
        precision = np.full((size, size), 2.0) - np.eye(size)
        precision /= self.sd**2 * (1 + standing)
        if replaces:
            precision[0, 0] = 0.0
        to_round = self.shape.map([True] * (size - 1))
        return Observed(to_round, self.inside + outside, precision)

    def standing_out(self) -> tuple[Floats, float]:
        """What is seen of rows outside above the noise, and the share of directions it is in."""
        sizes, turn = np.linalg.eigh(self.outside)
        standing = sizes > _STANDS_OUT * math.sqrt(len(sizes)) * self.sd
        return (turn * np.where(standing, sizes, 0.0)) @ turn.T, float(standing.mean())


@dataclass(frozen=True)
class Explore:
    """Publish the Gram matrices of rows inside and outside the ball, for a share of the budget."""

    shape: Shape
    share: float


@dataclass(frozen=True)
class CountTail:
    """Publish the histogram of |z|²/q in these coordinates, for a share of the budget."""

    transform: Transform
    share: float


@dataclass(frozen=True)
class Finish:
    """Publish the Gram matrix of all columns, for all that is left but the share of residuals."""

    shape: Shape
    residual_share: float = 0.0


@dataclass(frozen=True)
class Spread:
    """Publish the Gram matrix of residuals times rows, for all that is left of the budget.

    The direction is in units of 2**-16 and the radius in units of 2**-10; see `rounds.residuals`.
    """

    shape: Shape
    direction: tuple[int, ...]
    radius: int


def next_step(
    setting: Setting,
    first: Observed,
    n: int | None,
    explored: Sequence[Explored] = (),
    counted: tuple[Transform, Sequence[float], float] | None = None,
) -> Explore | CountTail | Finish:
    """Decide on what comes next.

    Parameters
    ----------
    setting : Setting
    first : Observed
        The first measurement of (1, numbers), in the bounds' own coordinates.
    n : int or None
        The number of rows where it is public.
    explored : sequence of Explored
        The exploring rounds so far.
    counted : (coordinates, noisy counts, sd of their noise), optional
        The histogram, once it is published. The last round is in its coordinates. They are taken
        as they are and not worked out again: another machine may differ in the last digit.
    """
    rows = rows_of(first, n)
    if not setting.worthwhile(rows):  # only where n is private: otherwise nothing asks
        return Finish(_last_shape(setting, Transform.box(setting.numbers), None))
    if counted is None and setting.reach is not None:
        return CountTail(setting.reach.transform, setting.tail_share(rows))
    if counted is None:
        step = next_look(setting, first, n, explored, near=setting.residual_share(rows) > 0)
        if isinstance(step, Explore):
            return step
        spread, centre = step
        found = Transform.of(_inverse(for_slopes(_inverse(spread))), centre)
        return CountTail(found, setting.tail_share(rows))
    transform, counts, sd = counted
    left = 1 - setting.first_share(None if n is None else rows)
    left -= len(explored) * setting.exploring_share(rows)
    left -= setting.tail_share(rows) + setting.residual_share(rows)
    if setting.reach is not None:
        return Finish(_ball(setting, transform, setting.reach.radius), setting.residual_share(rows))
    fit = tail.TailFit.of(
        counts,
        sd,
        rows,
        setting.rows_per_unit,
        setting.numbers,
        farthest=transform.farthest(),
    )
    shape = _last_shape(setting, transform, _radius(setting, fit, rows, left))
    return Finish(shape, setting.residual_share(rows))


def rows_of(first: Observed, n: int | None) -> float:
    """How many rows there are, by the first measurement where that is private."""
    return float(n) if n is not None else max(float(first.values[0, 0]), 1.0)


def next_look(
    setting: Setting,
    first: Observed,
    n: int | None,
    explored: Sequence[Explored],
    *,
    near: bool = False,
) -> Explore | tuple[Floats, Floats]:
    """One more exploring round, or the spread (q, q) and centre (q,) that were found.

    With `near` it goes on, while there may be more rounds, until a look has seen every direction
    from near, except those that are left as they are.
    """
    rows = rows_of(first, n)
    spread, centre, done = _looked_at(setting, first, n, rows, explored, near=near)
    if done:
        return spread, centre
    radius = math.isqrt(_EXPLORING * setting.numbers * PRODUCT_ONE)
    shape = Shape(Transform.of(spread, centre), CONSTANT, 0, radius)
    return Explore(shape, setting.exploring_share(rows))


@dataclass(frozen=True)
class LastNoise:
    """What the last round would have, in units of 1: sd off the diagonal, c, and w."""

    sd: float
    constant: float
    weight: float


def last_noise(setting: Setting, rows: float, counts: Sequence[float], explored: int) -> LastNoise:
    """The noise of the last round for this histogram, if `explored` rounds find the data."""
    n = rows if setting.replaces else None
    spent = setting.first_share(n) + setting.tail_share(rows) + setting.residual_share(rows)
    most = MOST_ROUNDS if setting.most is None else setting.most
    left = 1 - spent - min(explored, most - 2) * setting.exploring_share(rows)
    noise = setting.rows_per_unit * math.sqrt(2 if setting.replaces else 1) / setting.mu
    noise /= math.sqrt(setting.tail_share(rows))
    fit = tail.TailFit.of(counts, noise, rows, setting.rows_per_unit, setting.numbers)
    index = _radius(setting, fit, rows, left)
    sd = setting.noise(setting._square(tail.EDGES[index] * setting.numbers), left)
    shape = _last_shape(setting, Transform.box(setting.numbers), index)
    unit = 1 << ROW_BITS
    return LastNoise(sd, shape.constant / unit, shape.weight / unit)


def look_noise(setting: Setting, rows: float, explored: int) -> float:
    """Sd of an off-diagonal entry of the covariance that is seen after `explored` rounds."""
    if explored:  # as if no row were out of the ball
        return setting.noise(setting._exploring_square, setting.exploring_share(rows)) / rows
    share = setting.first_share(rows if setting.replaces else None)
    return setting.noise(1.0 + setting.numbers + setting.categories, share) / rows


def look(
    setting: Setting, rows: float, explored: int, sizes: Floats
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """What `_looked_at` makes of a seen covariance where no row is far, for plans.

    Parameters
    ----------
    setting : Setting
    rows : float
    explored : int
        Rounds so far.
    sizes : (m, q) array
        Eigenvalues of m covariances as they are seen, with noise.

    Returns
    -------
    (m, q) array, (m,) array of bool
        Variances that the next round's coordinates take for 1, and whether exploring ends.
    """
    floor = _INFLATION * math.sqrt(2 * setting.numbers) * look_noise(setting, rows, explored)
    most = MOST_ROUNDS if setting.most is None else setting.most
    found = (sizes >= (_FOUND if explored else _FOUND_AT_ONCE) * floor).all(axis=1)
    if setting.residual_share(rows):
        found &= (sizes >= _NEAR).all(axis=1) & (explored > 0)
    if explored + 2 >= most:
        found = np.ones_like(found)
    return np.maximum(sizes, 0.0) + floor, np.asarray(found)


def _looked_at(
    setting: Setting,
    first: Observed,
    n: int | None,
    rows: float,
    explored: Sequence[Explored],
    *,
    near: bool,
) -> tuple[Floats, Floats, bool]:
    """Spread and centre as they were seen, and whether every direction stands out in the noise."""
    q = setting.numbers
    current = explored[-1].shape.transform if explored else Transform.box(q)
    observed = [first, *(one.observed(replaces=setting.replaces) for one in explored)]
    moments = least_squares(observed, current.map(), n)
    if n is None:
        moments[0, 0] = max(moments[0, 0], 1.0)
    mean, covariance = mean_and_covariance(moments)
    sizes, directions = np.linalg.eigh(covariance)
    # The spectral size of all rounds' noise together, in each direction: a round in which it is
    # |d| long sees it with noise of 1/|d|². (0, 1) is an off-diagonal entry.
    back = np.linalg.inv(current.map())[1:, 1:] @ directions
    seen = sum(
        one.precision[0, 1] * (np.linalg.norm(one.map[1:, 1:] @ back, axis=0) ** 4)
        for one in observed
    )
    noise = _INFLATION * np.sqrt(2 * q / seen) / moments[0, 0]
    wanted = np.maximum(sizes, 0.0) + noise
    frozen = np.zeros(q, dtype=bool)
    if explored:
        # Where few rows are not 0, shrinking makes their direction look narrow for ever. It shows
        # outside the ball, and is left as it is.
        outside = explored[-1].standing_out()[0][1:, 1:]
        far = np.einsum("ij,ik,kj->j", directions, outside, directions) / rows
        frozen = far > np.maximum(2 * explored[-1].sd / rows, sizes / 3)
        wanted = np.where(frozen, np.maximum(wanted, 1.0), wanted)
    most = MOST_ROUNDS if setting.most is None else setting.most
    found = bool(np.all((sizes >= _FOUND * noise) | frozen)) and bool(explored)
    # A direction with far rows may yet be found by one more look, from nearer.
    found = found and (len(explored) >= _LOOKS or not frozen.any())
    found = found or bool(np.all(sizes >= _FOUND_AT_ONCE * noise))
    if near:
        found = found and bool(explored) and bool(np.all((sizes >= _NEAR) | frozen))
    done = found or len(explored) + 2 >= most
    spread, centre = current.spread_and_centre()
    return spread @ (directions * np.sqrt(wanted)), centre + spread @ mean, done


def for_slopes(maps: Floats) -> Floats:
    """Maps (…, q, q) that make spreads 1, with the residual of the last number stretched."""
    residual = maps[..., -1:] / np.linalg.norm(maps[..., -1:], axis=-2, keepdims=True)
    longer = tail.stretch(maps.shape[-1]) - 1
    return np.asarray(maps + longer * residual @ (np.swapaxes(residual, -1, -2) @ maps))


def _inverse(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def _radius(setting: Setting, fit: tail.TailFit, rows: float, left: float) -> int:
    """The index among `tail.EDGES` of the last round's squared radius."""
    edges = np.array(tail.EDGES)
    squares = np.array([setting._square(edge * setting.numbers) for edge in edges])
    noise = np.array([setting.noise(square, left) for square in squares])
    near = (edges <= _FREELY) | (noise <= _NOISE_CAP * math.sqrt(rows))
    return tail.balanced(fit, noise, near & (squares <= LARGEST_SQUARE))


def _last_shape(setting: Setting, transform: Transform, index: int | None) -> Shape:
    """The last round's; without an index, the ball around the box, which clips nothing."""
    if index is None:
        squared = setting.numbers * PRODUCT_ONE
        radius = math.isqrt(squared - 1) + 1
    else:
        radius = math.isqrt(tail.grid_edges(setting.numbers)[index])
    return _ball(setting, transform, radius)


def _ball(setting: Setting, transform: Transform, radius: int) -> Shape:
    """The last round's shape with this radius."""
    weight = 0
    if setting.categories:
        rest = (_LAST_CONSTANT**2 + radius**2) // _REST_OVER_CATEGORIES
        weight = math.isqrt(rest // setting.categories)
    return Shape(transform, _LAST_CONSTANT, weight, radius)
