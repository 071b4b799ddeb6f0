"""The challenge of a regression request: sums with independent noise of a known law.

Exact sums come from the holder's engine once; then noise is drawn, written into a Release's text
and read back, many times. So the likelihood ratio is known, and so is the noise of every run.

**The pair.** Two data sets are as far apart as the schema allows, and made from it alone.
`neighbours` starts from the rows at which the proofs in `core.statistics.second_moments` attain
their bounds, and climbs, one value at a time, as long as the change grows in units of the noise. So
it serves any request, with categories, fourth moments, balls, several rows a person, or one row
more or less. How near it comes to the stated sensitivity is part of the answer: an audit can't find
what its data sets don't show.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.audit.challenge import (
    Batch,
    Challenge,
    DrawCheck,
    Neighbours,
    Steps,
    Table,
    check_draws,
    noisy_sums,
    rows_of_one,
    sums_of,
    through_text,
    uniform_numbers,
    with_ids,
)
from noisewise.core.design import STATISTIC_ONE, Ball, row_bits
from noisewise.core.kinds.draws import COEFFICIENT_BITS
from noisewise.core.noise import DISCRETE_FAMILIES, Gaussian, Laplace
from noisewise.core.schema import Category, Number
from noisewise.core.statistics import SecondMoments, SmallestEigenvalue
from noisewise.holder.requests.draws import RegressionSampleRequest
from noisewise.holder.requests.regression import MECHANISMS, Request, exact_values
from noisewise.holder.rows.sums import Sums
from noisewise.holder.rows.values import DesignRows, RowGrid


def regression_challenge(request: Request) -> Challenge:
    """The worst pair that the schema allows, as far as climbing finds it."""
    pair = neighbours(request)
    first, second = sums_of(request, pair.a), sums_of(request, pair.b)
    exact = (exact_sums(request, first), exact_sums(request, second))
    laws = noise_laws(request)

    def published(release: Any) -> list[float]:
        return [value for part in release.measurements for value in part.unit_values()]

    return noisy_sums(request, pair, (first, second), exact, laws, published)


def exact_sums(request: Request, sums: Sums) -> FloatArray:
    """What would be published without noise, on unit scale."""
    values = [value for one in request.statistics for value in exact_values(one, sums)]
    return np.array(values, dtype=np.float64) / STATISTIC_ONE


def noise_laws(request: Request) -> list[Laplace | Gaussian]:
    """The stated law of the noise on every published value, on unit scale."""
    laws: list[Laplace | Gaussian] = []
    for statistic, mechanism in zip(request.statistics, request.mechanisms, strict=True):
        family = DISCRETE_FAMILIES[mechanism.family]
        for entry in statistic.entries:
            off = isinstance(statistic, SecondMoments) and entry[0] != entry[1]
            scale = mechanism.off_diagonal_scale if off else mechanism.scale
            laws.append(family(scale).continuous())
    return laws


# --- the pair -------------------------------------------------------------------------------------


_MOST_CLIMBED = 40  # columns; with more, climbing takes minutes and gains little
_SWEEPS = 6


def second_row(q: int, norm: str) -> list[float]:
    """With a row at the corner (1, …, 1): one whose second moments are as far from its as can be.

    q numbers on unit scale. For L1 the bound is attained at -1/(q+1) in every column. For L2 (both
    layouts) it is at another corner with w·v = 0 for w = (1, x, y). For even q there is none; one
    with w·v = 1 comes within the factor √(1 - 1/(q+1)²) of the bound.
    """
    if norm == "l1":
        return [-1 / (q + 1)] * q
    return [-1.0 if j < (q + 1) // 2 else 1.0 for j in range(q)]


def neighbours(request: Request) -> Neighbours:
    """Two data sets for a request, from its public schema."""
    rows = _Rows(request)
    replace = request.schema.neighbours == "replace_one"
    climbed = (rows.climb(u, v, replace) for u, v in rows.starts())
    first, second = max(climbed, key=lambda pair: rows.distance(pair[0], pair[1], replace))
    counted, copies = rows_of_one(request.schema)
    rest = rows.rest()
    a = [*rest, *[first] * copies]
    b = [*rest, *([second] * copies if replace else [])]
    attained = counted * rows.distance(first, second, replace) / rows.allowed()
    table_a, table_b = (with_ids(request.schema, rows.table(one), len(rest)) for one in (a, b))
    return Neighbours(table_a, table_b, float(attained))


class _Rows:
    """Rows of a request's sources, as numbers on unit scale and codes of levels."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.kinds = [request.schema.columns[name] for name in request.design.sources]
        grid = RowGrid.with_bits(request.design, row_bits(2))
        self.rows = DesignRows(request.design, grid.columns)
        self.norm = 1 if MECHANISMS[request.mechanism].pure else 2
        self.summed = [
            (statistic, mechanism)
            for statistic, mechanism in zip(request.statistics, request.mechanisms, strict=True)
            if not isinstance(statistic, SmallestEigenvalue)
        ]

    # --- distance -----------------------------------------------------------------------------

    def expand(self, rows: FloatArray) -> FloatArray:
        """w = (1, x, y) of every row, shape (m, P), forced into the ball where there is one."""
        w = np.ones((len(rows), len(self.request.design.names)))
        block: list[Any] = [self._raw(j, rows[:, j]) for j in range(len(self.kinds))]
        self.rows.fill(block, w.T[1:])
        for j, column in enumerate(self.request.design.columns, 1):
            w[:, j] /= column.half_width
        geometry = self.request.geometry
        if isinstance(geometry, Ball):
            length = np.linalg.norm(w[:, 1:-1], axis=1)
            w[:, 1:-1] *= np.minimum(1.0, geometry.radius / np.maximum(length, 1e-300))[:, None]
        return w

    def _raw(self, j: int, values: FloatArray) -> FloatArray:
        """A source's values in its own units; codes of levels as they are."""
        kind = self.kinds[j]
        if isinstance(kind, Number):
            return np.clip(kind.centre + kind.half_width * values, kind.lower, kind.upper)
        return values

    def sums(self, rows: FloatArray) -> FloatArray:
        """What each row adds to the statistics, in units of the noise, shape (m, entries)."""
        w = self.expand(rows)
        parts = []
        for statistic, mechanism in self.summed:
            entries = np.array(statistic.entries)
            values = np.prod([w[:, entries[:, j]] for j in range(entries.shape[1])], axis=0)
            off = (entries[:, 0] != entries[:, -1]) & isinstance(statistic, SecondMoments)
            scale = np.where(off, mechanism.off_diagonal_scale, mechanism.scale)
            parts.append(values * STATISTIC_ONE / scale)
        return np.hstack(parts)

    def distance(self, u: FloatArray, v: FloatArray, replace: bool) -> float:
        """How far replacing v by u, or adding u, moves the statistics."""
        change = self.sums(u[None])[0] - (self.sums(v[None])[0] if replace else 0.0)
        return float(np.linalg.norm(change, self.norm))

    def allowed(self) -> float:
        """The same for the stated sensitivities."""
        ratios = [mechanism.sensitivity / mechanism.scale for _, mechanism in self.summed]
        return float(np.linalg.norm(ratios, self.norm))

    # --- search -------------------------------------------------------------------------------

    def starts(self) -> list[tuple[FloatArray, FloatArray]]:
        """Corners against the second rows of the proofs, with categories in every state."""
        numbers = [isinstance(kind, Number) for kind in self.kinds]
        found = []
        for norm, state in product(("l1", "l2", "centre"), ("same", "other", "reference")):
            u, v = np.ones(len(self.kinds)), np.zeros(len(self.kinds))
            if norm != "centre":
                v[numbers] = second_row(sum(numbers), norm)
            for j, kind in enumerate(self.kinds):
                if isinstance(kind, Category):
                    codes = [kind.levels.index(level) for level in kind.indicated]
                    reference = kind.levels.index(kind.reference)
                    u[j] = codes[0]
                    v[j] = {"same": codes[0], "other": codes[-1], "reference": reference}[state]
            found.append((u, v))
        return found

    def climb(self, u: FloatArray, v: FloatArray, replace: bool) -> tuple[FloatArray, FloatArray]:
        """Change one value of either row at a time as long as that moves the statistics apart."""
        pair = [u.copy(), v.copy()]
        if len(self.kinds) > _MOST_CLIMBED:
            return pair[0], pair[1]
        best = self.distance(u, v, replace)
        for _ in range(_SWEEPS):
            before = best
            for side, j in product((0, 1) if replace else (0,), range(len(self.kinds))):
                trial = np.repeat(pair[side][None], len(self._values(j)), axis=0)
                trial[:, j] = self._values(j)
                other = self.sums(pair[1 - side][None]) if replace else 0.0
                reached = np.linalg.norm(self.sums(trial) - other, self.norm, axis=1)
                if reached.max() > best * (1 + 1e-12):
                    best = float(reached.max())
                    pair[side] = trial[int(np.argmax(reached))]
            if best <= before * (1 + 1e-12):
                break
        return pair[0], pair[1]

    def _values(self, j: int) -> FloatArray:
        kind = self.kinds[j]
        if isinstance(kind, Category):
            return np.arange(len(kind.levels), dtype=np.float64)
        return np.linspace(-1.0, 1.0, 17)

    # --- data sets ----------------------------------------------------------------------------

    def rest(self) -> list[FloatArray]:
        """The rows that both data sets share.

        Without a smallest eigenvalue any will do. With one, they should leave the direction of
        the corner free: (1, -e_j) is orthogonal to (1, …, 1) for every feature j, and k + 1
        copies of each make all other eigenvalues k + 1 or more, so that the corner's row alone
        decides the smallest one (`core.statistics.smallest_eigenvalue`).
        """
        neutral = np.zeros(len(self.kinds))
        for j, kind in enumerate(self.kinds):
            if isinstance(kind, Category):
                neutral[j] = kind.levels.index(kind.reference)
        if len(self.summed) == len(self.request.statistics):
            return [neutral, neutral]
        features = [j for j, kind in enumerate(self.kinds[:-1]) if isinstance(kind, Number)]
        rows = []
        for j in features:
            row = neutral.copy()
            row[j] = -1.0
            rows += [row] * (len(features) + 1)
        return rows or [neutral, neutral]

    def table(self, rows: list[FloatArray]) -> Table:
        """Columns in original units."""
        found: Table = {}
        for j, (name, kind) in enumerate(zip(self.request.design.sources, self.kinds, strict=True)):
            values = self._raw(j, np.array([row[j] for row in rows]))
            if isinstance(kind, Category):
                found[name] = [kind.levels[int(value)] for value in values]
            else:
                found[name] = values.tolist()
        return found


# --- posterior draws of a linear regression -------------------------------------------------------

# The challenge of a request for draws of a regression's coefficients.
#
# **The pair.** One row as far out as the schema allows, with the target at its upper bound in one
# table and at its lower bound in the other. As t = θ·(1, x) varies within ±T, the log-likelihoods
# of the two differ by τ 2t/σ², which ranges over 4τT/σ²: all of the claim if T ≤ 1, and 4T/(1 +
# T)² of it otherwise (`holder.networks.regression`). There are no other rows, so that nothing
# else is said.
#
# **The law.** A normal law truncated to a ball has no distribution function to speak of, so it is
# simulated: by weighting uniform points of the ball, or by keeping those of the normal law that
# are inside. Where neither gives enough points (many coefficients, a posterior at the ball's
# edge), only the attack is left.


_PROPOSED = 400_000
_WANTED = 40_000  # effective points; their error is allowed for
_BINS = 400


def draws_challenge(request: RegressionSampleRequest) -> Challenge:
    """The worst pair where T ≤ 1, in tables of one unit's rows (and a neutral one)."""
    pair = _pair(request)
    sums = (sums_of(request, pair.a), sums_of(request, pair.b))
    laws = [_Law(request, one) for one in sums]
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
            uniform.append(uniform_numbers(margins, outputs, rng))
        # Coefficients of one draw are not independent: rows tie them, and so does the ball.
        return check_draws(*uniform, independent=False, simulated=_WANTED)

    def run(side: int) -> list[float]:
        """All coefficients of all draws, as shares of the largest norm."""
        release = through_text(request, sums[side])
        return [value / (1 << COEFFICIENT_BITS) for draw in release.draws for value in draw]

    def weakened(side: int, factor: float, rng: np.random.Generator) -> Batch:
        drawn = _Law(request, sums[side], 1 / factor).sample(rng)

        def sample(trials: int) -> FloatArray:
            if drawn is None:
                return np.zeros((trials, draws * laws[0].size))  # nothing is caught then
            return drawn[rng.integers(len(drawn), size=(trials, draws))].reshape(trials, -1)

        return sample

    return Challenge(request, pair, run, (score, None), check, weakened)


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
        statistic = SecondMoments(request.design)
        moments = np.zeros((len(request.design.names),) * 2)  # of (1, x, y) on unit scale
        moments[0, 0] = sums.n
        for (i, j), value in zip(statistic.entries, sums.values[statistic.name], strict=True):
            moments[i, j] = moments[j, i] = value / STATISTIC_ONE
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
