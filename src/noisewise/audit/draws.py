"""The challenge of a request for draws of a regression's coefficients.

**The pair.** One row as far out as the schema allows, with the target at its upper bound in one
table and at its lower bound in the other. As t = θ·(1, x) varies within ±T, the log-likelihoods of
the two differ by τ 2t/σ², which ranges over 4τT/σ²: all of the claim if T ≤ 1, and 4T/(1 + T)² of
it otherwise (`holder.networks.regression`). There are no other rows, so that nothing else is said.

**The law.** A normal law truncated to a ball has no distribution function to speak of, so it is
simulated: by weighting uniform points of the ball, or by keeping those of the normal law that are
inside. Where neither gives enough points (many coefficients, a posterior at the ball's edge), only
the attack is left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.audit.challenge import (
    Batch,
    Challenge,
    Neighbours,
    Run,
    rows_of_one,
    through_text,
    with_ids,
)
from noisewise.audit.noise import DrawCheck, Steps, check_draws
from noisewise.core.design import STATISTIC_ONE, Ball
from noisewise.core.kinds.draws import COEFFICIENT_BITS
from noisewise.core.schema import Category
from noisewise.core.statistics import SecondMoments
from noisewise.holder.engines import open_source
from noisewise.holder.requests.draws import RegressionSampleRequest
from noisewise.holder.rows.sums import Sums

_PROPOSED = 400_000
_WANTED = 40_000  # effective points; their error is allowed for
_BINS = 400


def draws_challenge(request: RegressionSampleRequest) -> Challenge:
    """The worst pair where T ≤ 1, in tables of one unit's rows (and a neutral one)."""
    pair = _pair(request)
    first, second = (open_source(table).sums(request.plan(), None) for table in (pair.a, pair.b))
    laws = (_Law(request, first), _Law(request, second))
    draws = request.planned.draws

    def score(outputs: FloatArray) -> FloatArray:
        points = outputs.reshape(len(outputs), draws, -1)
        return np.asarray((laws[0].logpdf(points) - laws[1].logpdf(points)).sum(axis=1))

    def check(a: FloatArray, b: FloatArray) -> DrawCheck | None:
        rng = np.random.default_rng(0)
        uniform = []
        for outputs, law in ((a, laws[0]), (b, laws[1])):
            margins = law.margins(rng)
            if margins is None:
                return None
            columns = [
                margins[i % len(margins)].uniform(column[:, None], rng)
                for i, column in enumerate(outputs.T)
            ]
            uniform.append(np.hstack(columns))
        # Coefficients of one draw are not independent: rows tie them, and so does the ball.
        return check_draws(*uniform, independent=False, simulated=_WANTED)

    def run(sums: Sums) -> Run:
        return lambda: _points(through_text(request, sums))

    def weakened(factor: float, rng: np.random.Generator) -> tuple[Batch, Batch]:
        def batch(sums: Sums) -> Batch:
            drawn = _Law(request, sums, 1 / factor).sample(rng)

            def sample(trials: int) -> FloatArray:
                if drawn is None:
                    return np.zeros((trials, draws * laws[0].size))  # nothing is caught then
                return drawn[rng.integers(len(drawn), size=(trials, draws))].reshape(trials, -1)

            return sample

        return batch(first), batch(second)

    return Challenge(request, pair, (run(first), run(second)), (score, None), check, weakened)


def _points(release: Any) -> list[float]:
    """All coefficients of all draws, as shares of the largest norm."""
    return [value / (1 << COEFFICIENT_BITS) for draw in release.draws for value in draw]


def _pair(request: RegressionSampleRequest) -> Neighbours:
    schema, law = request.schema, request.planned.law
    names = request.design.sources
    kinds = [schema.columns[name] for name in names]
    far: list[Any] = [
        kind.indicated[0] if isinstance(kind, Category) else kind.centre + kind.half_width
        for kind in kinds
    ]
    target = kinds[-1]
    assert not isinstance(target, Category)
    neutral: list[Any] = [
        kind.reference if isinstance(kind, Category) else kind.centre for kind in kinds
    ]
    low = [*far[:-1], target.centre - target.half_width]
    replace, (counted, copies) = schema.neighbours == "replace_one", rows_of_one(schema)
    others = [] if replace else [neutral]
    tables = [[*others, *[far] * copies], [*others, *([low] * copies if replace else [])]]
    squared = 1.0 + len(kinds) - 1  # every feature is at 1, or has one indicator that is
    if isinstance(law.geometry, Ball):
        squared = min(squared, 1 + law.geometry.radius**2)
    reach = float(law.radius) * squared**0.5
    changed = 4 * reach if replace else ((1 + reach) ** 2 - max(1 - reach, 0.0) ** 2) / 2
    spent = float(law.temper / law.variance) * changed * counted * request.planned.draws
    a, b = (
        with_ids(schema, {n: [row[j] for row in rows] for j, n in enumerate(names)}, len(others))
        for rows in tables
    )
    return Neighbours(a, b, spent / float(request.planned.epsilon))


class _Law:
    """The tempered posterior of one table, in shares t of the largest norm ρ.

    The density is proportional to exp(b't - t'At/2) in the unit ball, A = ρ²(τ/σ² X'X + λI) and
    b = ρτ/σ² X'y; `sharpened` multiplies τ.
    """

    def __init__(
        self, request: RegressionSampleRequest, sums: Sums, sharpened: float = 1.0
    ) -> None:
        law = request.planned.law
        radius, weight = float(law.radius), sharpened * float(law.temper / law.variance)
        moments = _moments(request, sums)
        self.size = len(moments) - 1
        prior = float(law.prior_precision) * np.eye(self.size)
        self.precision = radius**2 * (weight * moments[:-1, :-1] + prior)
        self.linear = radius * weight * moments[:-1, -1]

    def logpdf(self, points: FloatArray) -> FloatArray:
        """Up to a constant, which is no matter for a score; points of shape (..., size)."""
        quadratic = np.einsum("...i,ij,...j->...", points, self.precision, points)
        return np.asarray(points @ self.linear - quadratic / 2)

    def margins(self, rng: np.random.Generator) -> list[Steps] | None:
        """The law of every coefficient by itself; None if it can't be simulated."""
        drawn = self.sample(rng)
        if drawn is None:
            return None
        found = []
        for column in drawn.T:
            inner = np.quantile(column, np.arange(1, _BINS) / _BINS)
            edges = np.concatenate([[-1.0], inner, [1.0]])
            found.append(Steps(edges, np.full(_BINS, 1 / _BINS), 2.0**-COEFFICIENT_BITS))
        return found

    def sample(self, rng: np.random.Generator) -> FloatArray | None:
        """Simulated draws, or None if too few points are proposed where the law is."""
        points = rng.normal(size=(_PROPOSED, self.size))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        points *= rng.random((_PROPOSED, 1)) ** (1 / self.size)
        logs = self.logpdf(points)
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        if 1 / np.sum(weights**2) >= _WANTED:
            return np.asarray(points[rng.choice(_PROPOSED, size=_PROPOSED, p=weights)])
        if np.linalg.cond(self.precision) > 1e12:
            return None
        factor = np.linalg.cholesky(np.linalg.inv(self.precision))
        mean = np.linalg.solve(self.precision, self.linear)
        points = mean + rng.normal(size=(_PROPOSED, self.size)) @ factor.T
        points = points[np.linalg.norm(points, axis=1) <= 1]
        return points if len(points) >= _WANTED else None


def _moments(request: RegressionSampleRequest, sums: Sums) -> FloatArray:
    """All second moments of (1, x, y) on unit scale."""
    statistic = SecondMoments(request.design)
    moments = np.zeros((len(request.design.names),) * 2)
    moments[0, 0] = sums.n
    for (i, j), value in zip(statistic.entries, sums.values[statistic.name], strict=True):
        moments[i, j] = moments[j, i] = value / STATISTIC_ONE
    return moments
