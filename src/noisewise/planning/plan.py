"""What a Release would be worth, before any budget is spent.

From public quantities only: the schema, the number of rows, and a prior. Truths that the prior and
the bounds allow are drawn (`truths`), and for each of them the width of the posterior that a
noise-aware analyst would get is computed (`width`). No row is read, no ledger is opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import ModelColumns
from noisewise.analyst.regression.original_units import CoefficientPrior
from noisewise.analyst.regression.priors import NormalInverseGammaIndependent
from noisewise.core.design import MAX_ROWS, Ball
from noisewise.core.errors import RequestError
from noisewise.core.noise import DISCRETE_FAMILIES
from noisewise.core.rounds.plan import Setting
from noisewise.core.schema import Schema
from noisewise.core.statistics import SecondMoments
from noisewise.holder.requests.base import DEFAULT_DELTA, named_design, restricted_design
from noisewise.holder.requests.regression import MECHANISMS as NOISES
from noisewise.holder.requests.regression import Request, make_request
from noisewise.holder.requests.rounds import RoundsRequest
from noisewise.planning.result import (
    LARGEST,
    SMALLEST,
    Answer,
    Plan,
    PlanRow,
    Verdict,
    check_rows_and_level,
)
from noisewise.planning.rounds import rounds_width
from noisewise.planning.truths import covariate_prior, draw_truths, moved, with_levels
from noisewise.planning.width import (
    Width,
    entry_noise,
    largest_array,
    non_private_width,
    posterior_width,
    regression_precision,
    scale_free_precision,
)

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
TRUTHS = 200
# By what factor the range of a plan goes beyond the truths' own, (with rounds, with all spreads
# known): real data have tails, correlations and shares of explained variance that no truth has.
# Chosen so that it holds eight of ten coefficients of six real data sets (docs/planning.md).
WIDER = {(False, True): 2.0, (False, False): 3.0, (True, True): 2.0, (True, False): 1.5}
EFFECT = 0.3  # of the verdict, in standard deviations
MANY_COLUMNS, FEWER_TRUTHS = 60, 50  # truths are more alike the more coefficients there are
MOST_NUMBERS = 25_000_000  # in an array: 200 numeric columns


def plan(
    schema: Schema,
    *,
    target: str | None = None,
    features: Sequence[str] | None = None,
    formula: str | None = None,
    n: int,
    epsilon: float | Sequence[float] = EPSILONS,
    mechanism: str | Sequence[str] | None = None,
    delta: float | None = None,
    radius: float | None = None,
    prior: CoefficientPrior | None = None,
    want: Mapping[str, float] | None = None,
    expect: Mapping[str, tuple[float, float]] | None = None,
    level: float = 0.95,
    truths: int | None = None,
    seed: int = 0,
) -> Plan:
    """Expected widths of posterior intervals, from public quantities only.

    Parameters
    ----------
    schema : Schema
    target, features : str and sequence of str
    formula : str
        In place of both, as of `make_request`.
    n : int
        Number of rows that there will be; of people, if the schema has a column of ids.
    epsilon : float or sequence of float
    mechanism : {"laplace", "rounds", "gaussian", "isometric", "ball"} or several, optional
        Laplace noise, and Gaussian noise in rounds, by default: what `make_request` does without
        and with a delta. "gaussian" is one round. With a radius there is the ball instead of
        rounds: Gaussian noise for rows that are forced into it.
    delta : float, optional
        Of Gaussian noise; 1e-6 by default.
    radius : float, optional
        Of the ball, on unit scale. All mechanisms are then planned for rows that lie in it, so
        that they differ by their noise alone.
    prior : CoefficientPrior, optional
        What is known about coefficients and error. The default is wide: a plan is as sharp as
        what goes into it.
    want : mapping of str to float, optional
        Coefficient to the half-width that its interval shall have, in original units.
    expect : mapping of str to (mean, sd), optional
        What columns are expected to be like, in original units: from a codebook, an earlier
        Release, or public data. Widths depend on it; numbers without it are as wide as their
        bounds allow.
    level : float
        Of intervals.
    truths : int, optional
        Possible truths that are drawn: 200 by default, 50 with more than 60 coefficients.
    seed : int
    """
    mechanisms = _mechanisms(mechanism, radius)
    design = named_design(schema, target, features, formula)
    target, features = design.target, design.features
    planner = Planner(
        schema, target, features, n, delta, prior, level, truths, seed, radius, expect
    )
    epsilons = [float(e) for e in ([epsilon] if isinstance(epsilon, int | float) else epsilon)]
    for value in epsilons:
        if not 0 < value <= LARGEST:
            raise RequestError(f"epsilon: expected numbers above 0 and up to 100, got {value!r}")
    return Plan(
        n,
        level,
        len(planner.laws),
        tuple(row for m in mechanisms for value in epsilons for row in planner.rows(m, value)),
        tuple(planner.answer(name, width, mechanisms) for name, width in (want or {}).items()),
        planner.noise.radius,
        planner.verdict(mechanisms, epsilons),
        planner.counted,
    )


def _mechanisms(mechanism: str | Sequence[str] | None, radius: float | None) -> list[str]:
    if mechanism is None:
        return ["laplace", "rounds"] if radius is None else ["laplace", "gaussian", "ball"]
    chosen = [mechanism] if isinstance(mechanism, str) else list(mechanism)
    if radius is not None and "ball" not in chosen:
        raise RequestError(
            f"radius: none of {', '.join(chosen)} forces rows into a ball; add the mechanism ball, "
            "or leave the radius out"
        )
    return chosen


class Planner:
    """Possible truths, and widths at any mechanism and epsilon."""

    def __init__(
        self,
        schema: Schema,
        target: str,
        features: tuple[str, ...],
        n: int,
        delta: float | None = None,
        prior: CoefficientPrior | None = None,
        level: float = 0.95,
        truths: int | None = None,
        seed: int = 0,
        radius: float | None = None,
        expect: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        check_rows_and_level(n, level, schema.counted)
        if truths is not None and truths < 10:
            raise RequestError(f"truths: expected at least 10, got {truths!r}")
        self.n, self.level, self.counted = int(n), level, schema.counted
        self.noise = PlannedNoise(schema, target, features, delta, radius)
        self.columns = ModelColumns(self.noise.design.schema, features, target)
        k = len(self.columns.covariates)
        of_features = entry_noise(self.noise.sd("laplace", 1.0)[1:-1, 1:-1] ** 2)
        if largest_array(of_features) > MOST_NUMBERS:
            raise RequestError(
                f"features: they make {k + 1} coefficients, and plans are for up to 200, or fewer "
                "where categories have many levels; plan with fewer"
            )
        if truths is None:
            truths = TRUTHS if k + 1 <= MANY_COLUMNS else FEWER_TRUTHS
        default = NormalInverseGammaIndependent.weakly_informative(k)
        self.prior = default if prior is None else prior.on_unit_scale(self.columns)
        self.covariates = covariate_prior(k, self.noise.radius)
        rng = np.random.default_rng(seed)
        given = (self.prior, self.covariates, truths, rng, self.noise.radius)
        self.truths, self.laws = draw_truths(*given)
        groups = _levels_of(self.columns)
        if radius is None and groups:
            self.truths = with_levels(self.truths, groups, rng)
        if expect:
            if radius is not None:
                raise RequestError("expect: it does not go with a radius; leave one of them out")
            self.truths = moved(self.truths, *_expected(self.columns, expect))
        numbers = {c.name for c in self.columns.design.columns if not c.is_indicator}
        self._expected_all = numbers <= set(expect or ())
        self._stated = np.array([c.name in (expect or ()) for c in self.columns.design.columns])
        self._levels = np.array([c.is_indicator for c in self.columns.covariates])
        # `fit` has a prior of its own unless it is told one; in a ball it is the plan's.
        self._weak = prior is None and radius is None
        d = len(self.columns.names)
        shift = self.columns.theta_to_original(np.zeros(d))
        self._map = (self.columns.theta_to_original(np.eye(d)) - shift).T
        self.z = float(ndtri(0.5 + level / 2))
        self.sds = lru_cache(maxsize=None)(self._sds)

    def _sds(
        self, mechanism: str, epsilon: float, n: int | None = None, *, weak: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Posterior sds at every truth in original units, (m, d) each: with and without noise.

        `weak`: under a prior as weak as the default of `fit`.
        """
        n = self.n if n is None else n
        precision = scale_free_precision(self.truths) if weak else None
        setting = self.noise.rounds(epsilon) if mechanism == "rounds" else None
        known = (self.truths, n, self.prior, self.covariates)
        if setting is not None and setting.worthwhile(n):
            width = rounds_width(*known, self._levels, setting, precision, self._stated)
        else:
            sd = self.noise.sd("gaussian" if mechanism == "rounds" else mechanism, epsilon)
            width = posterior_width(*known, sd, precision)
        private = self._with_unseen(width) if weak else width.private
        return self._original(private), self._original(width.non_private)

    def _with_unseen(self, width: Width) -> FloatArray:
        """The covariance with wider slopes where noise hides spreads; see `unseen_spreads`."""
        m, d = self.truths.theta.shape
        factor = np.maximum(width.unseen, 1.0)
        # The level at the mean of x is known whatever the slopes are.
        to_level = np.broadcast_to(np.eye(d), (m, d, d)).copy()
        to_level[:, 0, 1:] = self.truths.mu
        turned = to_level @ width.private @ np.swapaxes(to_level, 1, 2)
        scale = np.column_stack([np.ones(m), factor])
        turned *= scale[:, :, None] * scale[:, None, :]
        to_level[:, 0, 1:] *= -1.0
        return np.asarray(to_level @ turned @ np.swapaxes(to_level, 1, 2))

    def _original(self, covariance: FloatArray) -> FloatArray:
        return np.asarray(np.sqrt(np.einsum("ij,mjk,ik->mi", self._map, covariance, self._map)))

    def rows(self, mechanism: str, epsilon: float) -> list[PlanRow]:
        """What to expect of every coefficient."""
        private, exact = self.sds(mechanism, epsilon)
        largest = self.sds(mechanism, epsilon, weak=True)[0] if self._weak else private
        in_rounds = mechanism == "rounds" and self.noise.rounds(epsilon).worthwhile(self.n)
        wider = WIDER[in_rounds, self._expected_all]
        found = []
        for j, name in enumerate(self.columns.names):
            low, middle = np.quantile(private[:, j], [0.1, 0.5]) / [wider, 1.0]
            high = max(wider * np.quantile(largest[:, j], 0.9), middle)
            share = 1 - np.minimum(1.0, (exact[:, j] / private[:, j]) ** 2)
            found.append(
                PlanRow(
                    mechanism=mechanism,
                    epsilon=epsilon,
                    delta=0.0 if _is_pure(mechanism) else self.noise.delta,
                    name=name,
                    sd=float(middle),
                    half_width=float(self.z * middle),
                    half_width_low=float(self.z * low),
                    half_width_high=float(self.z * high),
                    half_width_non_private=float(self.z * np.median(exact[:, j])),
                    privacy_share=float(np.median(share)),
                )
            )
        return found

    def answer(self, name: str, half_width: float, mechanisms: Sequence[str]) -> Answer:
        """Which epsilon is needed for an interval of this half-width."""
        if name not in self.columns.names:
            known = ", ".join(self.columns.names)
            raise RequestError(f"want: {name!r} is not a coefficient; there are {known}")
        if not half_width > 0:
            raise RequestError(f"want: expected a half-width above 0 for {name}, got {half_width}")
        j = self.columns.names.index(name)
        _, exact = self.sds(mechanisms[0], 1.0)
        without = float(self.z * np.median(exact[:, j]))
        reachable = without <= half_width
        return Answer(
            name,
            half_width,
            {m: self._epsilon(m, j, half_width) if reachable else None for m in mechanisms},
            without,
            self.n if reachable else self._rows_needed(j, half_width),
            self.counted,
        )

    def verdict(self, mechanisms: Sequence[str], epsilons: Sequence[float]) -> Verdict:
        """What the best mechanism will show at the epsilon that is nearest to 1."""
        epsilon = min(epsilons, key=lambda value: abs(np.log(value)))
        widths = {m: float(np.median(self.sds(m, epsilon)[0][:, 1:])) for m in mechanisms}
        best = min(mechanisms, key=lambda mechanism: widths[mechanism])
        chances = np.median(self._chances(self.sds(best, epsilon)[0][:, 1:]), axis=0)
        found = dict(zip(self.columns.names[1:], chances.tolist(), strict=True))
        wanted = widths[best] / 2

        def by_budget(log_epsilon: float) -> bool:
            return bool(np.median(self.sds(best, _tidy(log_epsilon))[0][:, 1:]) <= wanted)

        def by_rows(log_n: float) -> bool:
            rows = max(self.n, round(np.exp(log_n)))
            return bool(np.median(self.sds(best, epsilon, rows)[0][:, 1:]) <= wanted)

        budget = _first(by_budget, epsilon, LARGEST, 0.05)
        rows = _first(by_rows, self.n, min(1000 * self.n, MAX_ROWS), 0.03)
        return Verdict(
            best,
            epsilon,
            EFFECT,
            found,
            None if budget is None else _tidy(budget),
            None if rows is None else round(float(f"{np.exp(rows):.2g}")),
            self.counted,
        )

    def _chances(self, sd: FloatArray) -> FloatArray:
        """How likely an interval of a posterior with this sd shows the sign of `EFFECT`, (m, k).

        The posterior's mean is w times an estimate with error s, where 1/sd² = 1/s² + 1/prior²
        and w = sd²/s². It is z sd from 0 if the estimate is z sd / w.
        """
        covariance = np.asarray(np.linalg.inv(regression_precision(self.truths, self.prior)))
        prior = self._original(covariance.astype(np.float64))[:, 1:]
        precision = np.maximum(sd**-2 - prior**-2, 1e-12 * sd**-2)
        weight, error = sd**2 * precision, precision**-0.5
        return np.asarray(ndtr((EFFECT * self._one_sd() - self.z * sd / weight) / error))

    def _one_sd(self) -> FloatArray:
        """A coefficient, shape (m, k), of one sd of y by one of a number, or by a level."""
        _, sigma2, _, T = self.truths
        beta = self.truths.theta[:, 1:]
        y = np.sqrt(sigma2 + np.einsum("mi,mij,mj->m", beta, T, beta))
        x = np.where(self._levels, 1.0, np.sqrt(np.einsum("mii->mi", T)))
        width = np.array([column.half_width for column in self.columns.covariates])
        target = self.columns.design.columns[-1].half_width
        return np.asarray(target * y[:, None] / (x * np.where(self._levels, 1.0, width)))

    def _epsilon(self, mechanism: str, j: int, half_width: float) -> float | None:
        def reached(log_epsilon: float) -> bool:
            private, _ = self.sds(mechanism, _tidy(log_epsilon))
            return bool(self.z * np.median(private[:, j]) <= half_width)

        found = _first(reached, SMALLEST, LARGEST, 0.02)
        return None if found is None else _tidy(found)

    def _rows_needed(self, j: int, half_width: float) -> int | None:
        def reached(log_n: float) -> bool:
            n = max(1, round(np.exp(log_n)))
            exact = self._original(non_private_width(self.truths, n, self.prior))
            return bool(self.z * np.median(exact[:, j]) <= half_width)

        found = _first(reached, self.n, MAX_ROWS, 0.01)
        return None if found is None else round(float(np.exp(found)))


def _levels_of(columns: ModelColumns) -> list[list[int]]:
    """The places of each category's indicators among the covariates."""
    groups: dict[str, list[int]] = {}
    for place, column in enumerate(columns.covariates):
        if column.is_indicator:
            groups.setdefault(column.source, []).append(place)
    return list(groups.values())


def _expected(
    columns: ModelColumns, expect: Mapping[str, tuple[float, float]]
) -> tuple[FloatArray, FloatArray, tuple[float, float] | None]:
    """Means and spreads on unit scale, (k,) each and NaN where unknown, and those of the target."""
    numbers = {c.name: i for i, c in enumerate(columns.covariates) if not c.is_indicator}
    known = {column.name: column for column in columns.design.columns}
    mean, sd = np.full((2, len(columns.covariates)), np.nan)
    target = None
    for name, given in expect.items():
        if name not in numbers and name != columns.target:
            told = ", ".join((*numbers, columns.target))
            raise RequestError(f"expect: {name!r} is not a number of this plan; there are {told}")
        centre, half = known[name].centre, known[name].half_width
        low, high = centre - half, centre + half
        middle, spread = (float(value) for value in given)
        if not low < middle < high or not 0 < spread <= 2 * half:
            raise RequestError(
                f"expect: expected a mean and a standard deviation within the bounds of {name}, "
                f"{low:g} to {high:g}, got {middle:g} and {spread:g}"
            )
        stated = ((middle - centre) / half, spread / half)
        if name == columns.target:
            target = stated
        else:
            mean[numbers[name]], sd[numbers[name]] = stated
    return mean, sd, target


def _tidy(log_epsilon: float) -> float:
    """Three digits are more than a plan is worth."""
    return float(f"{min(max(np.exp(log_epsilon), SMALLEST), LARGEST):.3g}")


def _first(reached: Any, least: float, most: float, precision: float) -> float | None:
    """The least logarithm at which a monotone condition holds, by bisection; None up to `most`."""
    low, high = np.log([least, most])
    if not reached(high):
        return None
    if reached(low):
        return float(low)
    while high - low > precision:
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return float(high)


# --- the noise ------------------------------------------------------------------------------------


MECHANISMS: dict[str, dict[str, Any]] = {
    **{name: {"mechanism": name} for name in NOISES},
    "isometric": {"mechanism": "gaussian", "layout": "isometric"},
    "ball": {"mechanism": "gaussian"},  # with a radius
    "rounds": {"mechanism": "gaussian"},  # in the data's own scale
}


def _is_pure(mechanism: str) -> bool:
    return NOISES[MECHANISMS[mechanism]["mechanism"]].pure


class PlannedNoise:
    """Standard deviations of the noise for one regression, on unit scale.

    `delta` is of Gaussian noise, and `radius` of the ball that rows are forced into if the
    mechanism is "ball".
    """

    def __init__(
        self,
        schema: Schema,
        target: str,
        features: tuple[str, ...],
        delta: float | None = None,
        radius: float | None = None,
    ) -> None:
        self.radius = None if radius is None else Ball(radius).radius
        self._words: dict[str, Any] = {"target": target, "features": list(features)}
        self._schema = schema
        self.delta = float(DEFAULT_DELTA) if delta is None else float(delta)
        self.design = restricted_design(schema, features, target)
        self.sd = lru_cache(maxsize=None)(self._sd)

    def rounds(self, epsilon: float) -> Setting:
        """The public numbers that rounds depend on."""
        budget: dict[str, Any] = {"epsilon": epsilon, "delta": self.delta, "rounds": "auto"}
        request = make_request(self._schema, **self._words, **budget)
        assert isinstance(request, RoundsRequest)
        return request.setting

    def _sd(self, mechanism: str, epsilon: float) -> FloatArray:
        """Of every entry of A, shape (P, P)."""
        if mechanism not in MECHANISMS:
            known = ", ".join(MECHANISMS)
            raise RequestError(f"mechanism: {mechanism!r} is unknown; use {known}")
        words = {**self._words, **MECHANISMS[mechanism]}
        if mechanism == "ball":
            if self.radius is None:
                raise RequestError("mechanism: ball needs a radius; give one, on unit scale")
            words["radius"] = self.radius
        if not _is_pure(mechanism):
            words["delta"] = self.delta
        # Laplace noise is proportional to 1 / epsilon; a Gaussian scale has to be solved for.
        asked = 1.0 if mechanism == "laplace" else epsilon
        request = make_request(self._schema, epsilon=asked, rounds=1, **words)
        assert isinstance(request, Request)  # as there is one round
        planned = request.mechanisms[0]
        family = DISCRETE_FAMILIES[planned.family]
        size = len(self.design.names)
        sd = np.zeros((size, size))
        for a, b in SecondMoments(request.design).entries:
            scale = planned.scale if a == b else planned.off_diagonal_scale
            sd[a, b] = sd[b, a] = family(scale).continuous().variance ** 0.5
        return sd * (asked / epsilon)
