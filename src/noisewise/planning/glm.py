"""What a Release of a logistic or Poisson regression would be worth, by a formula.

In the coordinates of the last Newton round numbers have spread 1 and hardly go together, so the
information J of a slope for one sd is about n times the mean slope of the target's mean times the
mean weight of rows, for normal rows. The score has noise of sd s, and the posterior variance is

    1/J + (s/J)².

The first is what the rows themselves leave open. No width can be promised where the noise on the
information is as large as the information, or where the round before the last one leaves theta so
open that the expansion about it would be rough (`analyst.glm.fit` warns then, too), or where looks
at the covariates would not find their spread. In all cases the plan says that there are too few
rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import chi2

from noisewise.core.design import Family
from noisewise.core.errors import RequestError
from noisewise.core.kinds.glm import longest_of
from noisewise.core.rounds.newton import SHARES, newton_shape
from noisewise.core.rounds.transform import Transform
from noisewise.core.schema import Schema
from noisewise.core.statistics.ball_moments import PRODUCT_ONE, ROW_BITS
from noisewise.core.statistics.scores import SCORE_ONE, information_scale, score_sensitivity
from noisewise.holder.requests.glm import GlmRequest, make_glm_request
from noisewise.planning.result import check_rows_and_level

_LOOKS = 2  # exploring rounds that most tables take
_HIDDEN = 2.0  # as in `analyst.glm.fit`: information over the spectral size of its noise
_IN_BOUNDS = 0.25  # as there: sd of a number on unit scale, where no round has looked for it
_FOUND = 2  # times the rows from which on there are looks: with fewer, they stop half-way
_LEAST_BENT = 0.3  # as there: |m''/m'| of yes or no
_ROUGH = 1.0  # half of the shift at which a fit warns: noise may be worse than on average
_LEVEL = 0.3  # share of rows that have a level, where nothing is known


@dataclass(frozen=True)
class GlmPlanRow:
    """What to expect at one epsilon."""

    epsilon: float
    delta: float
    # Half-width of the interval of a slope for one sd of a number, and of a level that three of ten
    # rows have; None where there is none of them
    number: float | None
    level: float | None
    # With exact scores
    number_non_private: float | None
    level_non_private: float | None
    enough: bool  # whether there are rows enough for these numbers to mean something


@dataclass(frozen=True)
class GlmPlan:
    """What Releases of several budgets would be worth."""

    family: Family
    n: int
    mean: float
    interval: float
    rows: tuple[GlmPlanRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON and data frames."""
        return asdict(self)

    def __str__(self) -> str:
        what = "log odds" if self.family == "logistic" else "log rates"
        share = f"{self.mean:.0%} of them with the event"
        if self.family == "poisson":
            share = f"{self.mean:g} on average"
        lines = [
            f"Half-widths of {100 * self.interval:g}% intervals of {what} to expect from "
            f"{self.n:,} rows, {share}",
            f"{'epsilon':>8} {'one sd of a number':>19} {'(exact)':>8} {'a level':>8} "
            f"{'(exact)':>8}",
        ]
        for row in self.rows:
            numbers = (row.number, row.number_non_private, row.level, row.level_non_private)
            shown = ["-" if value is None else f"{value:.3g}" for value in numbers]
            note = "" if row.enough else "  too few rows"
            lines.append(
                f"{row.epsilon:8g} {shown[0]:>19} {shown[1]:>8} {shown[2]:>8} {shown[3]:>8}{note}"
            )
        lines.append(
            "For one sd of a number as it is among the rows, or for a level that "
            f"{_LEVEL:.0%} of them have; (exact) is without noise. Say with --mean "
            f"{'how common the event is' if self.family == 'logistic' else 'how large counts are'}."
        )
        if not all(row.enough for row in self.rows):
            lines.append(
                "Too few rows: the noise would hide how much the rows say, or the rounds would end "
                "far from the coefficients, and intervals could miss. Take fewer features, more "
                "rows, a larger epsilon or, for counts, a lower bound."
            )
        return "\n".join(lines)


def plan_glm(
    schema: Schema,
    *,
    family: Family,
    target: str | None = None,
    features: Sequence[str] | None = None,
    formula: str | None = None,
    n: int,
    epsilon: float | Sequence[float],
    delta: float | None = None,
    mean: float | None = None,
    level: float = 0.95,
) -> GlmPlan:
    """Expected widths of posterior intervals, from public quantities only.

    Parameters
    ----------
    schema : Schema
    family, target, features, formula
        As of `make_glm_request`.
    n : int
        Number of rows that there will be.
    epsilon : float or sequence of float
    delta : float, optional
        1e-6 by default.
    mean : float, optional
        The share of rows that will have the event, or the mean count: 0.5, or a quarter of the
        count's bound, by default. Rare events need more rows.
    level : float
        Of intervals.
    """
    check_rows_and_level(n, level)
    epsilons = [epsilon] if isinstance(epsilon, int | float) else list(epsilon)
    if not epsilons:
        raise RequestError("epsilon: none given; give one or several")
    words: dict[str, Any] = {"target": target, "features": features, "formula": formula}
    rows = []
    for value in epsilons:
        request = make_glm_request(schema, family=family, epsilon=value, delta=delta, **words)
        bound = request.outcome.bound
        middle = mean if mean is not None else 0.5 if family == "logistic" else bound / 4
        if not 0 < middle < bound:
            raise RequestError(f"mean: expected a number between 0 and {bound}, got {middle!r}")
        rows.append(_row(request, int(n), value, middle, float(ndtri(0.5 + level / 2))))
    return GlmPlan(family, int(n), middle, level, tuple(rows))


def _row(request: GlmRequest, n: int, epsilon: float, mean: float, z: float) -> GlmPlanRow:
    setting, schema, outcome = request.setting, request.schema, request.outcome
    q = setting.numbers
    shape = newton_shape(setting, outcome, Transform.box(q) if q else Transform((), (), ()), n)
    longest = longest_of(request.design, shape)
    budget = request.budget * Fraction(_last_share(request, n))
    scale = request.scale(score_sensitivity(schema, outcome, longest), budget)
    noise = scale / SCORE_ONE
    hidden = information_scale(schema, outcome, longest, scale) / PRODUCT_ONE
    # In units of the bound: of a yes or no m(1 - m), of a count its mean over the bound.
    slope = mean * (1 - mean) if outcome.family == "logistic" else mean / outcome.bound
    constant, weight = shape.constant / (1 << ROW_BITS), shape.weight / (1 << ROW_BITS)
    fixed = constant**2 + setting.categories * _LEVEL * weight**2
    points = np.linspace(0.0005, 0.9995, 1000)
    # Numbers have spread 1 in the coordinates that looks find; too few rows leave them the bounds.
    spread = 1.0 if q and setting.worthwhile(n) else _IN_BOUNDS
    squares = spread**2 * chi2.ppf(points, q) if q else np.zeros(1)
    counted = np.minimum(1.0, longest / PRODUCT_ONE / (fixed + squares))
    number = level = None
    found = {"constant": n * slope * float(counted.mean()) * constant**2}
    sizes = {"constant": 1}
    if q:
        found["number"] = n * slope * float(np.mean(counted * squares)) / q
        sizes["number"] = q
        number = _half_width(found["number"], noise, spread, outcome.bound, z)
    if setting.categories:
        share = _LEVEL * (1 - _LEVEL)
        found["level"] = n * slope * float(counted.mean()) * weight**2 * share
        sizes["level"] = len(request.design.columns) - 1 - q
        level = _half_width(found["level"], noise, weight, outcome.bound, z)
    # Mean squares of the error of a row's linear predictor, after the last round and before it.
    last, before = (
        sum(
            sizes[name] * (1 / outcome.bound + noise**2 * more / J) / (n * slope)
            for name, J in found.items()
        )
        for more in (1.0, SHARES[-1] / SHARES[-2])
    )
    bent = 1.0 if outcome.family == "poisson" else max(abs(1 - 2 * mean), _LEAST_BENT)
    rough = bent * (last + before) > _ROUGH * math.sqrt(last)
    if q:
        rough = rough or n < _FOUND * setting.rows_needed()
    spectral = hidden * math.sqrt(len(request.design.columns))
    return GlmPlanRow(
        epsilon=float(epsilon),
        delta=float(request.claim.delta),
        number=None if number is None else number[0],
        level=None if level is None else level[0],
        number_non_private=None if number is None else number[1],
        level_non_private=None if level is None else level[1],
        enough=min(found.values()) >= _HIDDEN * spectral and not rough,
    )


def _half_width(
    information: float, noise: float, unit: float, bound: int, z: float
) -> tuple[float, float]:
    """Of a coefficient whose column has this unit in u: with the noise, and without.

    Scores of counts are in units of the bound, and so is their information; their variance is
    `information` over the bound.
    """
    exact = 1 / (bound * information)
    sd = unit * math.sqrt(exact + (noise / information) ** 2)
    return z * sd, z * unit * math.sqrt(exact)


def _last_share(request: GlmRequest, n: int) -> float:
    """Of the budget, for the last Newton round."""
    setting = request.setting
    left = 1.0
    if setting.numbers:
        left -= setting.first_share(n if setting.replaces else None)
        if setting.worthwhile(n):
            left -= _LOOKS * setting.exploring_share(n)
    return left * SHARES[-1]
