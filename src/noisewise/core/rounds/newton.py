"""What the rounds of a logistic or Poisson regression publish next.

First the covariates alone: a look in the public bounds and the exploring rounds of `rounds.plan`,
until their numbers have centre 0 and spread 1. Then Newton rounds in these coordinates, all of one
shape: score and information at a public theta (`core.statistics.scores`), each of which moves theta
to where the score is 0. The last one has most of the budget and is the one that a posterior uses.
Rows out of the ball count less, without bias if the model holds, so the ball is smaller than that
of a linear regression, and no histogram of far rows is needed.

**The ball.** With a squared radius of 1.5 for each number the noise is about smallest for normal
rows. But no model holds exactly, and then coefficients describe the rows that count, by ever more
standard errors the more rows there are. So the ball is as much larger as costs 3% of the total
error, of rows and noise: with e² the noise's variance over the rows', e² is in proportion to
N, and 1 + e² may grow by 1.03². With few rows that is next to nothing, with many it takes in all
but a few of them.

**The first theta** has no slopes. There the information is a public number times Σ ω uu', which
says what centre and spread u has. A Newton step from there would stop short, badly so if an outcome
is rare. Instead take u for normal, with that mean m and covariance C. Then (Stein 1981)

    E[u m(η)] = m E[m(η)] + C theta E[m'(η)],   η ~ N(theta·m, theta'C theta),

and the first score says what it is. The solution is the minimum of E[∫m(η)] - t·theta, which is
convex. For normal covariates this alone finds theta; for others the next rounds do.

What it costs is proved in `rounds.plan`. As there, nothing here is needed for privacy but that it
sees published values and public numbers only.

References
----------
Stein (1981), Estimation of the mean of a multivariate normal distribution,
    doi:10.1214/aos/1176345632.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from noisewise.core.rounds.estimate import Observed
from noisewise.core.rounds.plan import (
    Explore,
    Explored,
    Setting,
    next_look,
    rows_of,
)
from noisewise.core.rounds.transform import Floats, Shape, Transform
from noisewise.core.statistics.ball_moments import LARGEST_SQUARE, PRODUCT_ONE, ROW_BITS
from noisewise.core.statistics.scores import (
    KNOT_BITS,
    LARGEST_PREDICTOR,
    OUTCOME_ONE,
    Outcome,
)

CONSTANT = 5 << (ROW_BITS - 2)  # c = 1.25, which makes intercept and slopes about equally good

# Of the Newton rounds, of what the covariates have left. With less than that for the first two, the
# last one misses the place if outcomes are rare and covariates skewed.
SHARES = (0.1, 0.2, 0.7)
THETA_BITS = 16
LARGEST_THETA = 1 << 22  # in units of 2**-16: 64

_RADIUS, _WIDEST = 1.5, 9.0  # squared radius over the number of numbers
_PRICE = 0.03  # of the total error, for a ball wider than the least
_RARE = 0.1  # m' over a count's bound as the price takes it: it isn't known yet, and may be small
_PRIOR = 2.5  # sd of an entry of theta, for steps only
_LARGEST_STEP = 3.0
_HIDDEN = 2.0  # eigenvalue of the information in units of the noise's spectral size
_LARGEST_SD = 5.0  # of the linear predictor, after the first step
# For means over a normal law. Evenly spaced: slopes of counts fall steeply at their bound, between
# the few nodes of a Gauss rule.
_NODES = np.linspace(-6.0, 6.0, 121)
_WEIGHTS = np.exp(-(_NODES**2) / 2) / np.exp(-(_NODES**2) / 2).sum()


@dataclass(frozen=True)
class Scored:
    """A Newton round, in units of 1 (a count is in units of itself).

    Parameters
    ----------
    theta : (p,) array
    score : (p,) array
    information : (p, p) array
    score_sd : float
        Of the noise on every entry of the score.
    information_sd : float
        Of the noise on diagonal entries; off the diagonal it is 1/√2 of that.
    """

    theta: Floats
    score: Floats
    information: Floats
    score_sd: float
    information_sd: float

    def within_noise(self) -> Floats:
        """The information with eigenvalues no smaller than its noise allows to tell."""
        sizes, directions = np.linalg.eigh(self.information)
        floor = 0.5 * self.information_sd * math.sqrt(len(sizes))
        return np.asarray((directions * np.maximum(sizes, floor)) @ directions.T)

    @property
    def hides(self) -> bool:
        """Whether noise hides how much the rows say, in some direction."""
        noise = self.information_sd * math.sqrt(len(self.theta))
        return bool(np.linalg.eigvalsh(self.information)[0] < _HIDDEN * noise)


@dataclass(frozen=True)
class Score:
    """Publish score and information at `theta`, integers in units of 2**-16."""

    shape: Shape
    theta: tuple[int, ...]
    share: float


def box_shape(numbers: int) -> Shape:
    """The first look at the covariates: a ball around their bounds, which clips nothing."""
    return Shape(
        Transform.box(numbers), 1 << ROW_BITS, 0, math.isqrt(numbers * PRODUCT_ONE - 1) + 1
    )


def next_of_covariates(
    setting: Setting, first: Observed, n: int | None, explored: Sequence[Explored]
) -> Explore | Transform:
    """One more exploring round, or the coordinates for all Newton rounds."""
    if not setting.worthwhile(rows_of(first, n)):
        return Transform.box(setting.numbers)
    step = next_look(setting, first, n, explored)
    return step if isinstance(step, Explore) else Transform.of(*step)


def newton_shape(setting: Setting, outcome: Outcome, transform: Transform, rows: float) -> Shape:
    """The shape of all Newton rounds; `rows` is their number, or its noisy value."""
    relative = 1.0  # in the bounds no row is further out
    if setting.numbers and setting.worthwhile(rows):
        wider = _strength(setting, outcome, rows) + _square(setting, _RADIUS)
        unit = _square(setting, 1.0) - _square(setting, 0.0)  # of N, for 1 more of `relative`
        most = (LARGEST_SQUARE - _square(setting, 0.0)) / unit
        relative = min(_RADIUS + ((1 + _PRICE) ** 2 - 1) * wider / unit, _WIDEST, most)
    radius = max(1, math.isqrt(int(relative * setting.numbers * PRODUCT_ONE)))
    weight = 0
    if setting.categories:
        weight = math.isqrt((CONSTANT**2 + radius**2) // setting.categories)
    return Shape(transform, CONSTANT, weight, radius)


def _square(setting: Setting, relative: float) -> float:
    """N with a squared radius of `relative` for each number."""
    rest = (CONSTANT / (1 << ROW_BITS)) ** 2 + relative * setting.numbers
    return rest * (2 if setting.categories else 1)


def _strength(setting: Setting, outcome: Outcome, rows: float) -> float:
    """N at which the last round's noise is as large as the rows' own variation."""
    side = setting.rows_per_unit * (2 if setting.replaces else 1) / setting.mu
    of_noise = outcome.largest / OUTCOME_ONE**2 * side**2 / SHARES[-1]
    return rows * _RARE / outcome.bound / of_noise


def next_theta(outcome: Outcome, size: int, scored: Sequence[Scored]) -> tuple[int, ...]:
    """Where the next Newton round is, as integers.

    Parameters
    ----------
    outcome : Outcome
    size : int
        p, the number of entries of u.
    scored : sequence of Scored
        The Newton rounds so far.
    """
    constant = CONSTANT / (1 << ROW_BITS)
    if not scored:
        theta = np.zeros(size)
        theta[0] = _first_predictor(outcome) / constant
    elif len(scored) == 1:
        theta = _matched(outcome, scored[0], constant)
    else:
        theta = _stepped(scored[-1])
    limit = LARGEST_THETA
    return tuple(int(v) for v in np.clip(np.rint(theta * (1 << THETA_BITS)), -limit, limit))


def _first_predictor(outcome: Outcome) -> float:
    """η at which an outcome says most about others: a half, or a quarter of a count's bound."""
    return 0.0 if outcome.family == "logistic" else math.log(outcome.bound / 4)


@lru_cache(maxsize=8)
def _tables(outcome: Outcome) -> tuple[Floats, Floats, Floats, Floats]:
    """Knots of η; and m, m' and ∫m there, in units of a count's bound."""
    last = LARGEST_PREDICTOR << KNOT_BITS
    eta = np.arange(-last, last + 1) / (1 << KNOT_BITS)
    mean = outcome.mean / OUTCOME_ONE
    total = np.append(0.0, np.cumsum((mean[1:] + mean[:-1]) / 2)) / (1 << KNOT_BITS)
    return eta, mean, (outcome.root / OUTCOME_ONE) ** 2, total


@dataclass(frozen=True, eq=False)
class RowLaw:
    """What u is like, if it is normal: from a Newton round at a theta without slopes.

    Parameters
    ----------
    outcome : Outcome
    mass : float
        Σ ω.
    centre : (p,) array
    covariance : (p, p) array
        Positive semidefinite; 0 in the first row and column, as the first entry is constant.
    """

    outcome: Outcome
    mass: float
    centre: Floats
    covariance: Floats

    @classmethod
    def of(cls, outcome: Outcome, first: Scored, constant: float) -> RowLaw:
        """From the information of the first round; `constant` is the first entry of u."""
        eta, _, slope, _ = _tables(outcome)
        at = constant * float(first.theta[0])
        gram = first.within_noise() / (outcome.bound * float(np.interp(at, eta, slope)))
        mass = float(gram[0, 0]) / constant**2
        centre = gram[0] / (constant * mass)
        covariance = gram / mass - np.outer(centre, centre)
        covariance[0] = covariance[:, 0] = 0.0
        sizes, directions = np.linalg.eigh(covariance)
        positive = (directions * np.maximum(sizes, 0.0)) @ directions.T
        return cls(outcome, mass, centre, positive)

    def expected(self, theta: Floats) -> tuple[float, Floats]:
        """E ∫m(η), and its gradient E[u m(η)], shape (p,), in units of a count's bound."""
        eta, mean, slope, total = _tables(self.outcome)
        along = self.covariance @ theta
        points = float(self.centre @ theta) + math.sqrt(max(float(theta @ along), 1e-18)) * _NODES
        # Beyond the knots the mean stays what it is at the last one.
        beyond = np.maximum(points - eta[-1], 0.0) * mean[-1]
        value = float(_WEIGHTS @ (np.interp(points, eta, total) + beyond))
        gradient = self.centre * float(_WEIGHTS @ np.interp(points, eta, mean))
        return value, gradient + along * float(_WEIGHTS @ np.interp(points, eta, slope))


def _matched(outcome: Outcome, first: Scored, constant: float) -> Floats:
    """The theta that explains the first score, if u is normal."""
    from scipy.optimize import minimize

    law = RowLaw.of(outcome, first, constant)
    unit = outcome.bound * law.mass
    target = first.score / unit + law.expected(first.theta)[1]
    ridge = first.score_sd / unit / _PRIOR

    def objective(theta: Floats) -> tuple[float, Floats]:
        value, gradient = law.expected(theta)
        return (
            value - float(target @ theta) + ridge * float(theta @ theta) / 2,
            gradient - target + ridge * theta,
        )

    theta = np.asarray(minimize(objective, first.theta, jac=True, method="BFGS").x)
    sd = math.sqrt(max(float(theta @ law.covariance @ theta), 0.0))
    theta[1:] *= min(1.0, _LARGEST_SD / max(sd, 1e-9))
    return theta


def _stepped(last: Scored) -> Floats:
    """A Newton step, as far as the noise allows."""
    information = last.within_noise()
    size = len(information)
    # score ~ N(J d, J + s² I) and theta + d ~ N(0, 2.5²)
    weighted = np.linalg.solve(information + last.score_sd**2 * np.eye(size), information)
    precision = information @ weighted + np.eye(size) / _PRIOR**2
    step = np.linalg.solve(precision, weighted.T @ last.score - last.theta / _PRIOR**2)
    length = float(np.linalg.norm(step))
    return last.theta + step * min(1.0, _LARGEST_STEP / max(length, 1e-9))
