"""The posterior of a logistic or Poisson regression from the last Newton round of each Release.

**The likelihood.** About the public theta_T of the last round the log likelihood of the rows is,
with d = theta - theta_T, S·d - d'Jd/2: S the score and J the information there, both weighted
(`core.statistics.scores`). So S has the law N(J d, J) given theta, and released are

    S~ = S + e,  e ~ N(0, s² I);      J~ = J + E,  E symmetric normal, sd b, off the diagonal b/√2.

S is integrated out: S~ | theta, J ~ N(J d, J + s² I). J is latent, positive definite, and has a
nearly flat prior, exp(-(p + 1) tr J / 2t) with t the trace of J~. Earlier rounds have found theta_T
and nothing else: what they say is about other points, and their expansions would be added up.

**What is approximate.** The expansion. Its next term is to the last one as (1 - 2m)/2 times the
shift of a row's linear predictor, u·d, for yes or no, and as 1/2 times it for counts. The rounds
make it small, `bend` takes most of it into account by a line A d + b in place of d, and `shift`
says how large it is. Score weights lower than 1 make N(0, J) a little wide for S.

**Several Releases** share the coefficients, each with a J and coordinates of its own.

**The sampler.** Coefficients are integrated out as well: with a normal prior, and given all J, they
are normal. J of one Release given the others' is drawn by elliptical slice sampling (Murray, Adams
& MacKay 2010) around J~, for which its noise is the normal part; the rest of its density is

    N(S~; J (m - theta_T), J V J + J + s² I) × prior of J,    J positive definite,

where N(m, V) is what the prior and the other Releases say about theta, in its coordinates. There is
nothing to tune and no gradient. Coefficients are drawn exactly, given every kept J.

References
----------
Murray, Adams & MacKay (2010), Elliptical slice sampling, AISTATS, arXiv:1001.0175.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf, dtrtrs

from noisewise._arrays import FloatArray
from noisewise.analyst.chains import Report, generators, run_chains
from noisewise.analyst.glm.bend import Line, lines
from noisewise.core.rounds.newton import RowLaw, Scored

_WARM_UP = 300  # steps from a start within the noise of J~
_STEPS = 2  # between kept draws


@dataclass(frozen=True, eq=False)
class Observed:
    """The last Newton round of one Release.

    Parameters
    ----------
    last : Scored
    map : array, shape (p, p)
        K: takes w = (1, covariates) on unit scale to u. Coefficients on unit scale are K'theta.
    rows : (float, float)
        Σ ω, as it was released, and the sd of its noise.
    law : RowLaw, optional
        What the rows are like; without it the score is taken for a straight line.
    """

    last: Scored
    map: FloatArray
    rows: tuple[float, float] = (1.0, 0.0)
    law: RowLaw | None = None

    @cached_property
    def back(self) -> FloatArray:
        """Takes coefficients on unit scale to theta, shape (p, p)."""
        return np.asarray(np.linalg.inv(self.map).T)

    @property
    def size(self) -> int:
        """p."""
        return len(self.map)


class NormalPrior(NamedTuple):
    """Of the coefficients on unit scale: precision, (p, p), and precision times mean, (p,)."""

    precision: FloatArray
    linear: FloatArray


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
    """Draw coefficients.

    Parameters
    ----------
    observations : sequence of Observed
    prior : NormalPrior
    chains, draws : int
    seed : int, optional

    Returns
    -------
    Draws
    """
    rngs = generators(seed, chains)
    bent = [Line.straight(one.size) for one in observations]
    if all(one.law is not None for one in observations):
        rounds = [(o.last, o.law, o.back) for o in observations if o.law is not None]
        bent = lines(rounds, prior.precision, prior.linear)

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
    for step in range(-_WARM_UP, draws * _STEPS):
        for i, state in enumerate(states):
            precision = prior.precision + sum(p for j, (p, _) in enumerate(parts) if j != i)
            linear = prior.linear + sum(h for j, (_, h) in enumerate(parts) if j != i)
            state.step(precision, linear)
            parts[i] = state.about_beta()
        if step < 0 or step % _STEPS:
            continue
        precision = prior.precision + sum(p for p, _ in parts)
        factor = cho_factor(precision, lower=True)
        mean = cho_solve(factor, prior.linear + sum(h for _, h in parts))
        beta = mean + solve_triangular(
            factor[0], rng.standard_normal(len(mean)), lower=True, trans="T"
        )
        place = step // _STEPS
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


class _Information:
    """The latent J of one Release."""

    def __init__(self, observed: Observed, line: Line, rng: np.random.Generator) -> None:
        self._last, self._line, self._rng = observed.last, line, rng
        self._size = observed.size
        self._constant = float(observed.map[0, 0])
        self.rows = observed.rows
        self._back = observed.back
        self._noise = self._last.score_sd**2 * np.eye(self._size)
        start = self._last.within_noise()
        self._rate = (self._size + 1) / (2 * float(np.trace(start)))
        self.J = start * math.exp(0.1 * rng.standard_normal())

    def step(self, precision: FloatArray, linear: FloatArray) -> None:
        """One step of elliptical slice sampling, given what all else says about beta."""
        bent = self._line.A @ self._back
        variance = bent @ np.linalg.solve(precision, bent.T)
        centre = bent @ np.linalg.solve(precision, linear)
        centre += self._line.b - self._line.A @ self._last.theta

        def log_density(J: FloatArray) -> float:
            root, failed = dpotrf(J @ variance @ J + J + self._noise, lower=True)
            if failed or dpotrf(J)[1]:
                return -math.inf
            misfit, _ = dtrtrs(root, self._last.score - J @ centre, lower=True)
            size = 2 * float(np.log(root.diagonal()).sum())
            return -(float(misfit @ misfit) + size) / 2 - self._rate * float(J.trace())

        middle = self._last.information
        away, other = self.J - middle, self._symmetric_noise()
        level = log_density(self.J) + math.log(self._rng.random())
        angle = self._rng.uniform(0.0, 2 * math.pi)
        low, high = angle - 2 * math.pi, angle
        while True:
            proposed = middle + math.cos(angle) * away + math.sin(angle) * other
            if log_density(proposed) > level:
                self.J = proposed
                return
            if abs(angle) < 1e-12:  # rounding alone kept the present state out
                return
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = self._rng.uniform(low, high)

    def _symmetric_noise(self) -> FloatArray:
        drawn = self._rng.standard_normal((self._size, self._size)) * self._last.information_sd
        upper = np.triu(drawn, 1) / math.sqrt(2)
        return np.asarray(upper + upper.T + np.diag(drawn.diagonal()))

    def about_beta(self) -> tuple[FloatArray, FloatArray]:
        """Precision and linear term of beta given S~ and J."""
        precision, linear = self._line.about(self._last, self.J)
        return self._back.T @ precision @ self._back, self._back.T @ linear

    def shift(self, beta: FloatArray) -> float:
        """Root mean square of u·d over rows, weighted as the information is."""
        d = self._back @ beta - self._last.theta
        return math.sqrt(max(float(d @ self.J @ d), 0.0) / self.slopes)

    @property
    def slopes(self) -> float:
        """Σ ω m'(η): the first entry of u is public."""
        return float(self.J[0, 0]) / self._constant**2
