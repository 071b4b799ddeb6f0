"""A request for the moments of a regression: all that is decided before any row is read.

All of it is public. Planning a request fixes the statistics, the noise and the cost, so a bad
request fails here, before anything is charged, and a dry run needs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from noisewise.core.calibration import gaussian_scale
from noisewise.core.composition import satisfies
from noisewise.core.design import MAX_ROWS, Ball, Box, Geometry, geometry_to_dict
from noisewise.core.document import MAX_INTEGER
from noisewise.core.errors import RequestError
from noisewise.core.kinds import load_release
from noisewise.core.kinds.regression import Measurement, Release
from noisewise.core.privacy import Amount, ComposedEvent, Event, as_fraction, fraction_text
from noisewise.core.schema import Schema
from noisewise.core.statistics import (
    MAX_FOURTH_MOMENTS,
    FourthMoments,
    Layout,
    SecondMoments,
    SmallestEigenvalue,
    Statistic,
    Summed,
    l1_sensitivity,
    l2_sensitivity,
)
from noisewise.core.statistics.smallest_eigenvalue import MAX_SIZE
from noisewise.core.statistics.smallest_eigenvalue import value as eigenvalue
from noisewise.holder.mechanisms import Mechanism
from noisewise.holder.mechanisms.gaussian import GaussianMechanism
from noisewise.holder.mechanisms.laplace import LaplaceMechanism
from noisewise.holder.requests import base
from noisewise.holder.requests.base import AboutRegression
from noisewise.holder.requests.rounds import RoundsRequest
from noisewise.holder.rows.sums import SumPlan, Sums


@dataclass(frozen=True, kw_only=True)
class Request(AboutRegression[Release]):
    """What a holder asks to publish: see `make_request`."""

    mechanism: str  # a key of `MECHANISMS`
    geometry: Geometry = Box()
    layout: Layout = "upper"
    # Shares of the budget for these statistics; None leaves them out
    fourth_share: Fraction | None = None
    eigenvalue_share: Fraction | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_request(self)

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """What is published, the second moments first."""
        return tuple(statistic for statistic, _ in self.shared)

    @property
    def shared(self) -> list[tuple[Statistic, Fraction]]:
        """Statistics, each with its share of the budget."""
        further: list[tuple[Statistic, Fraction]] = []
        if self.fourth_share is not None:
            further.append((FourthMoments(self.design), self.fourth_share))
        if self.eigenvalue_share is not None:
            further.append((SmallestEigenvalue(self.design), self.eigenvalue_share))
        rest = 1 - sum((share for _, share in further), Fraction(0))
        return [(SecondMoments(self.design), rest), *further]

    def plan(self) -> SumPlan:
        sums = tuple(s for s in self.statistics if isinstance(s, Summed))
        return SumPlan(self.design, self.geometry, sums)

    def verify(self) -> None:
        """Check every mechanism's claim against OpenDP's map."""
        for mechanism in self.mechanisms:
            mechanism.verify()

    def release(self, n: int, sums: Sums, /) -> Release:
        pairs = zip(self.statistics, self.mechanisms, strict=True)
        return self.written(n, [m.add_noise(exact_values(s, sums)) for s, m in pairs])

    def longest(self) -> int:
        """With the longest of 64-bit integers for every noisy sum."""
        values = [(-MAX_INTEGER - 1,) * len(statistic.entries) for statistic in self.statistics]
        return self._bytes(self.written(MAX_ROWS, values))

    def written(self, n: int, values: Sequence[tuple[int, ...]]) -> Release:
        """A Release of these values, one tuple a statistic: noisy ones, or invented for a test."""
        measurements = tuple(
            Measurement(
                statistic=statistic.name,
                layout=self.layout if isinstance(statistic, SecondMoments) else "upper",
                values=noisy,
                family=mechanism.family,
                scale=mechanism.scale,
                off_diagonal_scale=mechanism.off_diagonal_scale,
                sensitivity=mechanism.sensitivity,
            )
            for statistic, mechanism, noisy in zip(
                self.statistics, self.mechanisms, values, strict=True
            )
        )
        return Release(
            design=self.design,
            geometry=self.geometry,
            measurements=measurements,
            **self._signed(n),
        )

    @cached_property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The planned noise of every statistic."""
        planned = MECHANISMS[self.mechanism].plan(self)
        base.check_scale(max(mechanism.scale for mechanism in planned))
        return planned

    @property
    def event(self) -> Event:
        events = tuple(m.event() for m in self.mechanisms)
        return events[0] if len(events) == 1 else ComposedEvent(events)

    def to_json(self) -> dict[str, Any]:
        document = {
            **super().to_json(),
            "geometry": geometry_to_dict(self.geometry),
            "mechanism": self.mechanism,
            "layout": self.layout,
            "fourth_share": None if self.fourth_share is None else fraction_text(self.fourth_share),
        }
        # Only where given, so that requests from before these existed keep their identity.
        if self.batch is None:
            del document["batch"]
        if self.eigenvalue_share is not None:
            document["eigenvalue_share"] = fraction_text(self.eigenvalue_share)
        return document

    @property
    def summary(self) -> str:
        return f"{self.formula}, {self.mechanism}"


def make_request(
    schema: Schema,
    *,
    target: str | None = None,
    features: Sequence[str] | None = None,
    formula: str | None = None,
    epsilon: Amount | None = None,
    delta: Amount | None = None,
    rho: Amount | None = None,
    mechanism: str | None = None,
    radius: float | None = None,
    layout: str | None = None,
    fourth_moments: Amount | None = None,
    smallest_eigenvalue: Amount | None = None,
    rounds: int | str | None = None,
    reach_of: Release | str | Path | None = None,
    label: str = "",
    batch: str | None = None,
    series: str | None = None,
) -> Request | RoundsRequest:
    """Check the words of a request and fill in the defaults.

    Parameters
    ----------
    schema : Schema
    target : str
    features : sequence of str
    formula : str
        In place of both, such as ``"visits ~ age*health + log1p(income)"`` (`core.terms`).
    epsilon, delta, rho : number or exact text
        The privacy guarantee: epsilon (pure), epsilon and delta, or rho (zCDP).
    mechanism : {"laplace", "gaussian"}, optional
        A key of `MECHANISMS`. Laplace unless delta or rho is given.
    radius : float, optional
        Force the features of every row into a ball of this radius on unit scale. Lowers Gaussian
        noise when there are many features; rows outside are scaled down.
    layout : {"upper", "isometric"}, optional
        Isometric where it is free (the ball), otherwise upper.
    fourth_moments : number between 0 and 1, optional
        Share of the budget to spend on fourth moments, which only `gibbs_noisy` needs.
    smallest_eigenvalue : number between 0 and 1, optional
        Share of the budget to spend on the smallest eigenvalue, which only `ada_ssp` needs.
    rounds : "auto" or int, optional
        Find the data's own scale in rounds, which needs far less noise where the data fill a small
        part of their bounds (`core.rounds`). ``auto`` has rounds if there are enough rows, a number
        has at most so many, and 1 is one round in the public bounds. Gaussian noise has ``auto``
        by default, unless something is asked for that doesn't go with rounds, or there are more
        than 80 design columns, or epsilon is below 0.001.
    reach_of : Release or path, optional
        A published Release in rounds, whose map and radius are taken over: years, or holders, with
        one reach can be compared, and nothing is spent on exploring.
    label, batch, series : str, optional
        As in `Publishable`.
    """
    if reach_of is not None:
        if rounds is not None:
            raise RequestError("reach_of: it takes the place of rounds; leave rounds out")
        rounds = "auto"
        if not isinstance(reach_of, Release):
            reach_of = _read_reach(reach_of)
    if mechanism is None:
        pure = rho is None and (delta is None or as_fraction(delta, "delta") == 0)
        mechanism = "laplace" if pure else "gaussian"
    if mechanism not in MECHANISMS:
        known = " or ".join(MECHANISMS)
        raise RequestError(f"mechanism: {mechanism!r} is unknown; use {known}")
    pure = MECHANISMS[mechanism].pure
    if pure and rho is not None:
        raise RequestError(
            f"rho: {mechanism.capitalize()} noise is calibrated by epsilon; use gaussian with rho"
        )
    common: dict[str, Any] = {
        "design": base.named_design(schema, target, features, formula),
        "claim": base.claim_of(epsilon, delta, rho, pure=pure),
        "label": label,
        "delta_was_given": delta is not None,
        "batch": batch,
        "series": series,
    }
    shares = {"fourth_moments": fourth_moments, "smallest_eigenvalue": smallest_eigenvalue}
    given = {"radius": radius, "layout": layout, **shares}
    against_rounds = [name for name, value in given.items() if value is not None]
    most = 1 if rounds is None else _most_rounds(rounds)
    if most != 1:
        if mechanism != "gaussian":
            raise RequestError(
                "rounds: they need the gaussian mechanism; give a delta, such as 1e-6, or rho, or "
                "leave rounds out"
            )
        for name in against_rounds:
            raise RequestError(f"{name}: it does not go with rounds; leave one of them out")
        return RoundsRequest(most=most, reach_of=reach_of, **common)
    geometry: Geometry = Box() if radius is None else Ball(radius)
    chosen: Layout = "isometric" if isinstance(geometry, Ball) else "upper"
    if layout is not None:
        if layout not in ("upper", "isometric"):
            raise RequestError(f"layout: {layout!r} is unknown; use upper or isometric")
        chosen = "isometric" if layout == "isometric" else "upper"
    fourth, eigenvalue = (v if v is None else as_fraction(v, k) for k, v in shares.items())
    request = Request(
        mechanism=mechanism,
        geometry=geometry,
        layout=chosen,
        fourth_share=fourth,
        eigenvalue_share=eigenvalue,
        **common,
    )
    if rounds is not None or mechanism != "gaussian" or series is not None or against_rounds:
        return request
    return RoundsRequest(former=request, **common) if _may_have_rounds(request) else request


def _read_reach(path: str | Path) -> Release:
    """The Release in a file."""
    if not isinstance(path, str | Path):
        raise RequestError(f"reach_of: expected a Release or its file, got {path!r}")
    release = load_release(path)
    if not isinstance(release, Release):
        raise RequestError(f"reach_of: {path} is no Release of a linear regression")
    return release


# Beyond these it would take millions of rows for rounds to be of use, or a Release of several MB.
_MOST_COLUMNS_IN_ROUNDS = 80
_LEAST_EPSILON_OF_ROUNDS, _LEAST_RHO_OF_ROUNDS = Fraction(1, 1000), Fraction(1, 10**6)


def _may_have_rounds(request: Request) -> bool:
    """Whether rounds are the default of Gaussian noise."""
    claim = request.claim
    if claim.rho is not None:
        enough = claim.rho >= _LEAST_RHO_OF_ROUNDS
    else:
        enough = claim.epsilon is not None and claim.epsilon >= _LEAST_EPSILON_OF_ROUNDS
    return enough and len(request.design.columns) <= _MOST_COLUMNS_IN_ROUNDS


def _most_rounds(rounds: int | str) -> int | None:
    """How many rounds there may be at most, None for "auto"; `RoundsRequest` checks the range."""
    if rounds == "auto":
        return None
    if isinstance(rounds, bool) or not str(rounds).isdecimal():
        raise RequestError(f"rounds: expected 'auto' or a whole number, got {rounds!r}")
    return int(rounds)


def exact_values(statistic: Statistic, sums: Sums) -> tuple[int, ...]:
    """The statistic without noise: as private as the rows."""
    if isinstance(statistic, SmallestEigenvalue):
        return (eigenvalue(statistic, sums.n, sums.values[SecondMoments.name]),)
    return sums.values[statistic.name]


# --- what makes a request impossible, found before anything is charged or read --------------------


def check_request(request: Request) -> None:
    """Refuse what cannot be published, whatever the rows; the error says what to do."""
    base.check_bounded(request.design)
    if MECHANISMS[request.mechanism].pure:
        if isinstance(request.geometry, Ball):
            raise RequestError(
                "radius: a ball lowers the sensitivity for Gaussian noise only; use the gaussian "
                "mechanism, or leave the radius out"
            )
        if request.layout == "isometric":
            raise RequestError("layout: isometric needs the gaussian mechanism; use upper")
        if not request.claim.is_pure:
            name = request.mechanism.capitalize()
            raise RequestError(f"mechanism: {name} noise makes a pure claim (delta = 0)")
    elif request.claim.rho is None and request.claim.delta == 0:
        raise RequestError(
            f"delta: the {request.mechanism} mechanism needs a delta above 0, well below 1 / "
            "(number of people), such as 1e-6; for delta = 0 use the laplace mechanism"
        )
    base.check_delta(request.claim)
    _check_shares(request)


def _check_shares(request: Request) -> None:
    least = Fraction(1, 100)
    shares = {
        "fourth_moments": request.fourth_share,
        "smallest_eigenvalue": request.eigenvalue_share,
    }
    for name, share in shares.items():
        if share is not None and not least <= share <= 1 - least:
            raise RequestError(f"{name}: expected a share of the budget between 0.01 and 0.99")
    if request.shared[0][1] < least:
        raise RequestError(
            "smallest_eigenvalue: together with fourth_moments it leaves nothing for the second "
            "moments; the shares may add up to 0.99"
        )
    for statistic in request.statistics[1:]:
        if (
            isinstance(statistic, FourthMoments)
            and statistic.number_of_entries > MAX_FOURTH_MOMENTS
        ):
            raise RequestError(
                f"fourth_moments: {statistic.number_of_entries:,} entries for these features; no "
                "budget can pay for that, use fewer features"
            )
        if isinstance(statistic, SmallestEigenvalue) and statistic.size > MAX_SIZE:
            raise RequestError(
                f"smallest_eigenvalue: the features and the intercept are {statistic.size} "
                f"columns, and it is computed for at most {MAX_SIZE}; use fewer features, or "
                "leave it out"
            )


# --- from a claim to the noise of every statistic -------------------------------------------------


def plan_laplace(request: Request) -> tuple[Mechanism, ...]:
    """Pure epsilons add, so each statistic gets its share of epsilon."""
    return tuple(
        LaplaceMechanism(l1_sensitivity(statistic), request.epsilon * share)
        for statistic, share in request.shared
    )


def plan_gaussian(request: Request) -> tuple[Mechanism, ...]:
    """Squared noise multipliers add up in the denominator, so each gets multiplier/√share.

    The calibration is for continuous noise. The slack of discreteness is tiny, and raising
    the multiplier by one part in 10¹² at a time until the exact events satisfy the claim
    covers it, whatever the number of entries.
    """
    multiplier = base.noise_multiplier(request.claim)
    for _ in range(64):
        planned = tuple(
            _gaussian(statistic, share, multiplier, request.geometry, request.layout)
            for statistic, share in request.shared
        )
        if satisfies([mechanism.event() for mechanism in planned], request.claim):
            return planned
        multiplier *= 1 + 1e-12
    raise RequestError(
        f"epsilon: Gaussian noise cannot be certified for {request.claim}; use the laplace "
        "mechanism or a larger epsilon"
    )


def _gaussian(
    statistic: Statistic, share: Fraction, multiplier: float, geometry: Geometry, layout: Layout
) -> GaussianMechanism:
    if not isinstance(statistic, SecondMoments):
        layout = "upper"
    sensitivity = l2_sensitivity(statistic, geometry, layout)
    if share != 1:
        # One part in 10¹⁵ covers the rounding of the square root.
        multiplier = multiplier / float(share) ** 0.5 * (1 + 1e-15)
    off_diagonal = tuple(
        layout == "isometric" and entry[0] != entry[1] for entry in statistic.entries
    )
    return GaussianMechanism(sensitivity, gaussian_scale(sensitivity, multiplier), off_diagonal)


@dataclass(frozen=True)
class Noise:
    """A mechanism that a request can name."""

    # From a request to one planned mechanism for each of its statistics
    plan: Callable[[Request], tuple[Mechanism, ...]]
    pure: bool  # whether its claim is epsilon alone: no delta, no rho, no ball, upper layout


MECHANISMS = {
    "laplace": Noise(plan_laplace, pure=True),
    "gaussian": Noise(plan_gaussian, pure=False),
}
