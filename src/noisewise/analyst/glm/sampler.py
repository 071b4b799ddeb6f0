"""The posterior of a logistic or Poisson regression from the last Newton round of each Release.

**The likelihood.** About the public theta_T of the last round the log likelihood of the rows is,
with d = theta - theta_T, S·d - d'Jd/2: S the score and J the information there, both weighted
(`core.statistics.scores`). So S has the law N(J d, J) given theta, and released are

    S~ = S + e,  e ~ N(0, s² I);      J~ = J + E,  E symmetric normal, sd b, off the diagonal b/√2.

S is integrated out: S~ | theta, J ~ N(J d, J + s² I). J is latent and positive definite. Earlier
rounds have found theta_T and nothing else: what they say is about other points, and their
expansions would be added up.

**The prior of J.** With C the rest of J when its first row is taken out (a multiple of the
covariates' covariance), the roots of C's diagonal are flat and all correlations between them are as
likely as each other: the density is Π C_jj^(-k/2), k = p - 1. A flat density of J would look
harmless, but says that C_jj is a sum of about p squares, so that a direction in which noise hides
the rows has as much information as the noise is large, and intervals would be too narrow.

**The scale of slopes.** The prior of a slope is for one sd of its column. Where no round has found
that (too few rows), the latent J says it: C_jj over J_00, on the scale of the bounds.

**What is approximate.** The expansion. Its next term is to the last one as (1 - 2m)/2 times the
shift of a row's linear predictor, u·d, for yes or no, and as 1/2 times it for counts. The rounds
make it small, a line A d + b in place of d takes most of it into account, and `shift`
says how large it is. Score weights lower than 1 make N(0, J) a little wide for S.

**The bend.** At theta_T the score has the mean n (g(theta) - g(theta_T)) with g(theta) =
E[u m(theta·u)] over the rows; above, J d is taken for it, J = n ∇g(theta_T). How g bends is not
released. But if rows were normal, with the centre and spread that the first Newton round shows, g
would be known (`core.rounds.newton`). So the mean is taken for J d~, with

    d~ = ∇g(theta_T)⁻¹ (g(theta) - g(theta_T)) ≈ A d + b,

the straight line that touches d~ at the posterior mode. Where the last round looked at the right
place, A = I and b = 0. For rows that are not normal a part of the bend is left.

**Several Releases** share the coefficients, each with a J and coordinates of its own.

**The sampler.** Coefficients are integrated out as well: with a normal prior, and given all J, they
are normal. J of one Release given the others' is drawn by elliptical slice sampling (Murray, Adams
& MacKay 2010) around J~, for which its noise is the normal part; the rest of its density is

    N(S~; J (m - theta_T), J V J + J + s² I) × prior of J,    J positive definite,

where N(m, V) is what the prior and the other Releases say about theta, in its coordinates. There is
nothing to tune and no gradient. Coefficients are drawn exactly, given every kept J.

Where noise hides a direction, J~ is no positive definite matrix, and ellipses around it move J
little. Then columns of J move one by one as well: column j is stretched with its row, by a slice
sampler (Neal 2003; the Jacobian of a stretch by e^t is e^((p + 1) t)), and turned at a fixed J_jj,
by an ellipse of the law N(J~_j, b²/2) times N(0, M J_jj / (p + 1)), with M the other rows and
columns: that is about how far J stays positive definite.

References
----------
Murray, Adams & MacKay (2010), Elliptical slice sampling, AISTATS, arXiv:1001.0175.
Neal (2003), Slice sampling, Annals of Statistics 31, 705-767.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf, dtrtrs

from noisewise._arrays import FloatArray
from noisewise.analyst.chains import Report, generators, run_chains
from noisewise.core.rounds.newton import RowLaw, Scored

_WARM_UP = 300  # steps from a start within the noise of J~
_STEPS = 2  # between kept draws, where columns don't move one by one
_COLUMNS = 12  # that move in a step, at most
_STRETCH = 2.0  # first interval of the logarithm of a stretch
_LINE_STEPS = 30
_DAMPED = 0.6
_LARGEST_STEP = 1.0
_STEADY = 0.02  # a share of the mean curvature: where nothing is known, d~ is d
_DIFFERENCE = 1e-2  # large beside the knots, whose means are rounded
SLOPE_SD = 2.5  # of the default prior, for one sd of a number or one level


@dataclass(frozen=True, eq=False)
class Observed:
    """The last Newton round of one Release."""

    last: Scored
    # K, (p, p): takes w = (1, covariates) on unit scale to u, and theta by K' to unit scale
    map: FloatArray
    rows: tuple[float, float] = (1.0, 0.0)  # Σ ω, as it was released, and the sd of its noise
    # What the rows are like; without it the score is taken for a straight line
    law: RowLaw | None = None

    @cached_property
    def back(self) -> FloatArray:
        """Takes coefficients on unit scale to theta, shape (p, p)."""
        return np.asarray(np.linalg.inv(self.map).T)

    @property
    def size(self) -> int:
        """p."""
        return len(self.map)

    def on_unit_scale(self, J: FloatArray) -> FloatArray:
        """The information of w instead of u, (p, p)."""
        return np.asarray(self.back.T @ J @ self.back)


class NormalPrior(NamedTuple):
    """Of the coefficients on unit scale: precision, (p, p), and precision times mean, (p,).

    Slopes at the places `unscaled` have mean 0 and sd `SLOPE_SD` for one sd of their column, and
    are left out of `precision`.
    """

    precision: FloatArray
    linear: FloatArray
    unscaled: tuple[int, ...] = ()

    def given(self, information: FloatArray) -> FloatArray:
        """The precision given the information of all Releases on unit scale, (p, p)."""
        if not self.unscaled:
            return self.precision
        places = list(self.unscaled)
        precision = self.precision.copy()
        centre = information[0] / information[0, 0]
        variance = information.diagonal() / information[0, 0] - centre**2
        precision[places, places] += variance[places] / SLOPE_SD**2
        return precision


class Draws(NamedTuple):
    """Draws of the coefficients on unit scale, and what goes with them."""

    beta: FloatArray  # (chains, draws, p)
    shift: FloatArray  # (chains, draws): root mean square of u·d, largest over Releases
    slope: FloatArray  # (chains, draws): mean of m'(η) over the rows of all Releases
    centre_shift: FloatArray  # (chains,): the shift of a chain's mean


def sample(
    observations: Sequence[Observed],
    prior: NormalPrior,
    *,
    chains: int,
    draws: int,
    seed: int | None,
) -> Draws:
    """Draw coefficients."""
    rngs = generators(seed, chains)
    bent = [Line.straight(one.size) for one in observations]
    if all(one.law is not None for one in observations):
        rounds = [(o.last, o.law, o.back) for o in observations if o.law is not None]
        rough = sum(one.on_unit_scale(one.last.within_noise()) for one in observations)
        bent = lines(rounds, prior.given(np.asarray(rough)), prior.linear)

    def run(chain: int, report: Report) -> Draws:
        states = [
            _Information(one, line, rngs[chain])
            for one, line in zip(observations, bent, strict=True)
        ]
        return _chain(states, prior, draws, rngs[chain], report)

    # One at a time: matrices are so small that threads would only wait for Python's lock.
    found = run_chains(run, chains=chains, length=draws, cores=1)
    return Draws(*(np.array(part) for part in zip(*found, strict=True)))


def _chain(
    states: Sequence[_Information],
    prior: NormalPrior,
    draws: int,
    rng: np.random.Generator,
    report: Report,
) -> Draws:
    """One chain: arrays as in `Draws`, without the first axis."""
    parts = [state.about_beta() for state in states]
    kept = Draws(
        np.empty((draws, len(prior.linear))), np.empty(draws), np.empty(draws), np.empty(())
    )
    steps = 1 if any(state.hidden for state in states) else _STEPS
    for step in range(-_WARM_UP, draws * steps):
        for i, state in enumerate(states):
            others = [part for j, part in enumerate(parts) if j != i]
            state.step(prior, _About.sum(others, len(prior.linear)))
            parts[i] = state.about_beta()
        if step < 0 or step % steps:
            continue
        total = _About.sum(parts, len(prior.linear))
        precision = prior.given(total.information) + total.precision
        factor = cho_factor(precision, lower=True)
        mean = cho_solve(factor, prior.linear + total.linear)
        beta = mean + solve_triangular(
            factor[0], rng.standard_normal(len(mean)), lower=True, trans="T"
        )
        place = step // steps
        kept.beta[place] = beta
        kept.shift[place] = max(state.shift(beta) for state in states)
        kept.slope[place] = _mean_slope(states, rng)
        report(place + 1)
    centre = kept.beta.mean(axis=0)
    kept.centre_shift[()] = max(state.shift(centre) for state in states)
    return kept


def _mean_slope(states: Sequence[_Information], rng: np.random.Generator) -> float:
    """Σ ω m'(η) over Σ ω, of all Releases: the latter has noise of its own."""
    rows = sum(middle + sd * rng.standard_normal() for middle, sd in (s.rows for s in states))
    return sum(state.slopes for state in states) / max(float(rows), 1.0)


class _About(NamedTuple):
    """What Releases say about beta, given their J; and J on unit scale."""

    precision: FloatArray  # (p, p)
    linear: FloatArray  # (p,)
    information: FloatArray  # (p, p)

    @classmethod
    def sum(cls, parts: Sequence[_About], size: int) -> _About:
        """Of several, or of none."""
        square = np.zeros((size, size))
        none = cls(square, np.zeros(size), square)
        return cls(*(sum(part, start) for start, *part in zip(none, *parts, strict=True)))


class _Information:
    """The latent J of one Release."""

    def __init__(self, observed: Observed, line: Line, rng: np.random.Generator) -> None:
        self._observed, self._line, self._rng = observed, line, rng
        self._last, self._back = observed.last, observed.back
        self._size = observed.size
        self._constant = float(observed.map[0, 0])
        self.rows, self.hidden = observed.rows, observed.last.hides
        self._noise = self._last.score_sd**2 * np.eye(self._size)
        self.J = self._last.within_noise() * math.exp(0.1 * rng.standard_normal())

    def step(self, prior: NormalPrior, others: _About) -> None:
        """Move J, given what all else says about beta."""
        bent = self._line.A @ self._back
        offset = self._line.b - self._line.A @ self._last.theta
        alone = not others.information.any()

        def law(J: FloatArray) -> tuple[FloatArray, FloatArray, float]:
            # Variance and mean of d~, and what the others' scores say of a prior that J scales.
            own = prior.given(others.information + self._observed.on_unit_scale(J))
            precision, linear = own + others.precision, prior.linear + others.linear
            half = np.linalg.solve(precision, bent.T)
            if alone:
                return bent @ half, half.T @ linear + offset, 0.0
            weight = float(linear @ np.linalg.solve(precision, linear)) / 2
            weight -= float(prior.linear @ np.linalg.solve(own, prior.linear)) / 2
            weight += float(np.linalg.slogdet(own)[1] - np.linalg.slogdet(precision)[1]) / 2
            return bent @ half, half.T @ linear + offset, weight

        fixed = None if prior.unscaled else law(self.J)

        def log_density(J: FloatArray) -> float:
            if dpotrf(J)[1]:
                return -math.inf
            variance, centre, weight = fixed or law(J)
            root, failed = dpotrf(J @ variance @ J + J + self._noise, lower=True)
            rest = J.diagonal()[1:] - J[0, 1:] ** 2 / J[0, 0]
            if failed or not np.all(rest > 0.0):
                return -math.inf
            misfit, _ = dtrtrs(root, self._last.score - J @ centre, lower=True)
            size = 2 * float(np.log(root.diagonal()).sum())
            size += (self._size - 1) * float(np.log(rest).sum())
            return weight - (float(misfit @ misfit) + size) / 2

        middle = self._last.information
        self.J = self._on_ellipse(middle, self.J, self._symmetric_noise(), log_density)
        if self.hidden:
            places = self._rng.permutation(np.arange(1, self._size))[:_COLUMNS]
            for place in places:
                self._turn(int(place), log_density)
                self._stretch(int(place), log_density)

    def _on_ellipse(
        self,
        middle: FloatArray,
        present: FloatArray,
        other: FloatArray,
        log_density: Callable[[FloatArray], float],
    ) -> FloatArray:
        """Elliptical slice sampling; `other` is drawn from the normal law, less its `middle`."""
        away = present - middle
        level = log_density(present) + math.log(self._rng.random())
        angle = self._rng.uniform(0.0, 2 * math.pi)
        low, high = angle - 2 * math.pi, angle
        while abs(angle) > 1e-12:  # else rounding alone kept the present state out
            proposed = middle + math.cos(angle) * away + math.sin(angle) * other
            if log_density(proposed) > level:
                return proposed
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = self._rng.uniform(low, high)
        return present

    def _turn(self, place: int, log_density: Callable[[FloatArray], float]) -> None:
        """Move a column at a fixed entry on the diagonal."""
        others = np.flatnonzero(np.arange(self._size) != place)
        inverse = np.linalg.inv(self.J[np.ix_(others, others)])
        pull = (self._size + 1) / float(self.J[place, place])
        known = 2 / self._last.information_sd**2
        precision = known * np.eye(len(others)) + pull * inverse
        middle = np.linalg.solve(precision, known * self._last.information[others, place])
        root = np.linalg.cholesky(precision)
        other = solve_triangular(
            root, self._rng.standard_normal(len(others)), lower=True, trans="T"
        )

        def put(column: FloatArray) -> FloatArray:
            J = self.J.copy()
            J[others, place] = J[place, others] = column
            return J

        def of_column(column: FloatArray) -> float:
            return log_density(put(column)) + pull / 2 * float(column @ inverse @ column)

        self.J = put(self._on_ellipse(middle, self.J[others, place], other, of_column))

    def _stretch(self, place: int, log_density: Callable[[FloatArray], float]) -> None:
        """Multiply a row and its column by a factor."""

        def put(log_factor: float) -> FloatArray:
            factors = np.ones(self._size)
            factors[place] = math.exp(log_factor)
            return self.J * np.outer(factors, factors)

        def of_factor(log_factor: float) -> float:
            J = put(log_factor)
            gap = (J[place] - self._last.information[place]) / self._last.information_sd
            noise = float(gap @ gap) - float(gap[place]) ** 2 / 2
            return log_density(J) - noise + (self._size + 1) * log_factor

        level = of_factor(0.0) + math.log(self._rng.random())
        low = -_STRETCH * self._rng.random()
        high = low + _STRETCH
        while high - low > 1e-12:
            log_factor = self._rng.uniform(low, high)
            if of_factor(log_factor) > level:
                self.J = put(log_factor)
                return
            low, high = (log_factor, high) if log_factor < 0 else (low, log_factor)

    def _symmetric_noise(self) -> FloatArray:
        drawn = self._rng.standard_normal((self._size, self._size)) * self._last.information_sd
        upper = np.triu(drawn, 1) / math.sqrt(2)
        return np.asarray(upper + upper.T + np.diag(drawn.diagonal()))

    def about_beta(self) -> _About:
        """Precision and linear term of beta given S~ and J."""
        precision, linear = self._line.about(self._last, self.J)
        back = self._back
        return _About(
            back.T @ precision @ back, back.T @ linear, self._observed.on_unit_scale(self.J)
        )

    def shift(self, beta: FloatArray) -> float:
        """Root mean square of u·d over rows, weighted as the information is."""
        d = self._back @ beta - self._last.theta
        return math.sqrt(max(float(d @ self.J @ d), 0.0) / self.slopes)

    @property
    def slopes(self) -> float:
        """Σ ω m'(η): the first entry of u is public."""
        return float(self.J[0, 0]) / self._constant**2


# --- how the mean of a score bends away from a line -----------------------------------------------


class Line(NamedTuple):
    """d~ = A d + b."""

    A: FloatArray  # (p, p)
    b: FloatArray  # (p,)

    @classmethod
    def straight(cls, size: int) -> Line:
        """d~ = d."""
        return cls(np.eye(size), np.zeros(size))

    def about(self, last: Scored, J: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Precision and linear term of theta given the score and J: of N(S~; J d~, J + s² I)."""
        JA = J @ self.A
        weighted = np.linalg.solve(J + last.score_sd**2 * np.eye(len(J)), JA)
        precision = JA.T @ weighted
        precision = (precision + precision.T) / 2
        linear = weighted.T @ (last.score - J @ self.b) + precision @ last.theta
        return precision, linear


def lines(
    rounds: Sequence[tuple[Scored, RowLaw, FloatArray]], precision: FloatArray, linear: FloatArray
) -> list[Line]:
    """The lines of all Releases at their common mode.

    Of each Release `rounds` has the last round, the law of its rows, and the (p, p) matrix that
    takes beta to theta; `precision` and `linear` are of the normal prior of beta.
    """
    found = [Line.straight(len(linear)) for _ in rounds]
    beta = None
    for _ in range(_LINE_STEPS):
        total, pull = precision, linear
        for line, (last, _, back) in zip(found, rounds, strict=True):
            own, towards = line.about(last, last.within_noise())
            total = total + back.T @ own @ back
            pull = pull + back.T @ towards
        mode = np.linalg.solve(total, pull)
        if beta is None:  # from where the first Release looked
            beta = np.linalg.solve(rounds[0][2], rounds[0][0].theta)
        step = _DAMPED * (mode - beta)
        size = max(float(np.linalg.norm(back @ step)) for _, _, back in rounds)
        beta = beta + step * min(1.0, _LARGEST_STEP / max(size, 1e-12))
        found = [_touching(law, last.theta, back @ beta) for last, law, back in rounds]
        if size < 1e-4:
            break
    return found


def _touching(law: RowLaw, at: FloatArray, theta: FloatArray) -> Line:
    first, value = _curvature(law, at), law.expected(theta)[1] - law.expected(at)[1]
    steady = _STEADY * float(np.trace(first)) / len(at) * np.eye(len(at))
    A = np.asarray(np.linalg.solve(first + steady, _curvature(law, theta) + steady))
    d = theta - at
    return Line(A, np.linalg.solve(first + steady, value + steady @ d) - A @ d)


def _curvature(law: RowLaw, theta: FloatArray) -> FloatArray:
    """∇g, by differences."""
    columns = []
    for unit in np.eye(len(theta)) * _DIFFERENCE:
        up, down = law.expected(theta + unit)[1], law.expected(theta - unit)[1]
        columns.append((up - down) / (2 * _DIFFERENCE))
    matrix = np.array(columns)
    return np.asarray((matrix + matrix.T) / 2)
