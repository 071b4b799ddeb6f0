"""A request for the moments of a regression in rounds that find the data's own scale.

What a round sums and how much noise it gets is decided by `core.rounds.plan` from what earlier
rounds have published; `requests.in_rounds` has what all requests in rounds share.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, assert_never

import numpy as np

from noisewise.core.design import MAX_ROWS, Box, Design
from noisewise.core.document import MAX_INTEGER, dumps, integer, take
from noisewise.core.errors import RequestError
from noisewise.core.kinds.regression import (
    Measurement,
    Release,
    measurement_from_json,
    observed_moments,
)
from noisewise.core.kinds.rounds import (
    Residuals,
    Round,
    Rounds,
    Tail,
    is_number,
    spent,
    triangle,
)
from noisewise.core.rounds import residuals
from noisewise.core.rounds.estimate import Observed
from noisewise.core.rounds.plan import (
    LEAST_FIRST_SHARE,
    LEAST_SHARE,
    MOST_ROUNDS,
    CountTail,
    Explore,
    Finish,
    Reach,
    Setting,
    Spread,
    next_step,
)
from noisewise.core.rounds.tail import EDGES
from noisewise.core.statistics import SecondMoments, l2_sensitivity
from noisewise.core.statistics.ball_moments import (
    COUNT_ONE,
    LARGEST_SQUARE,
    PRODUCT_ONE,
    count_sensitivity,
    gram_sensitivity,
)
from noisewise.holder.mechanisms.gaussian import GaussianMechanism
from noisewise.holder.requests.base import Publishable, check_scale
from noisewise.holder.requests.in_rounds import InRounds, check_same_rows
from noisewise.holder.rows import Plan
from noisewise.holder.rows.rounds import BallPlan, BallSums, ResidualPlan, TailCounts, TailPlan
from noisewise.holder.rows.sums import SumPlan, Sums

Step = Explore | CountTail | Finish | Spread


@dataclass(frozen=True)
class Begun:
    """The rounds that are drawn and kept: the first measurement, and what followed."""

    n: int | None  # the number of rows where it is public
    first: Measurement
    explored: tuple[Round, ...] = ()
    tail: Tail | None = None
    last: Round | None = None  # once it is drawn, if residuals follow

    @classmethod
    def of(cls, kept: Sequence[str]) -> Begun:
        """Read what the ledger has kept, in the order in which it was drawn."""
        first, *others = map(json.loads, kept)
        n, measurement = take(first, "the first round", ("n", "second_moments"))
        explored = [Round.from_json(one["explored"]) for one in others if "explored" in one]
        tails = [Tail.from_json(one["tail"]) for one in others if "tail" in one]
        lasts = [Round.from_json(one["last"]) for one in others if "last" in one]
        return cls(
            None if n is None else integer(n, "n", 1, MAX_ROWS),
            measurement_from_json(measurement),
            tuple(explored),
            tails[0] if tails else None,
            lasts[0] if lasts else None,
        )


@dataclass(frozen=True, kw_only=True)
class RoundsRequest(InRounds[Release]):
    """What a holder asks to publish."""

    # At most so many rounds, the first measurement and the last round among them. None decides by
    # the number of rows whether there are rounds, and stops when all directions are found.
    most: int | None = None
    # The Release whose map and radius are taken over, in place of exploring
    reach_of: Release | None = field(default=None, repr=False)
    # What the same words asked for before rounds were the default. Where a ledger has a charge for
    # it, that is what they still mean, and nothing is charged for them again.
    former: Publishable[Release] | None = field(default=None, compare=False, repr=False)
    mechanism: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.most is not None and not 2 <= self.most <= MOST_ROUNDS:
            raise RequestError(
                f"rounds: expected 'auto' or a number from 2 to {MOST_ROUNDS}, got {self.most}"
            )
        if self.reach_of is not None:
            _check_reach(self.design, self.reach_of)
            if self.setting.largest_square > LARGEST_SQUARE:
                raise RequestError(
                    "reach_of: with so many categories the sums could overflow in so large a "
                    "ball; drop features, or leave it out"
                )
        # The most noise that any round could need, whatever is published.
        largest = gram_sensitivity(self.schema, LARGEST_SQUARE * PRODUCT_ONE)
        for sensitivity, share in (
            (self._first_sensitivity, LEAST_FIRST_SHARE),
            (largest, LEAST_SHARE),
            (count_sensitivity(self.schema), LEAST_SHARE),
        ):
            check_scale(self.scale(sensitivity, Fraction(share) * self.budget))

    # -----------------------------------------------------------------------------------------
    # What it costs

    @property
    def most_draws(self) -> tuple[int, int]:
        """The histogram and residuals among them."""
        return MOST_ROUNDS + 2, max(2 * SecondMoments(self.design).number_of_products, len(EDGES))

    def verify(self) -> None:
        """Check the noise of one round with the whole budget; others are checked before a draw."""
        self.first_mechanism(Fraction(1)).verify()

    # -----------------------------------------------------------------------------------------
    # What it is

    @cached_property
    def setting(self) -> Setting:
        """The public numbers that the rounds depend on."""
        return Setting(
            numbers=self.design.number_of_numbers,
            categories=len(self.design.category_sizes),
            rows_per_unit=self.schema.max_rows_per_unit,
            replaces=self.schema.n_is_public,
            mu=1 / self.event.noise_multiplier,
            most=self.most,
            indicators=len(self.design.columns) - self.design.number_of_numbers,
            reach=None if self.reach_of is None else _reach(self.reach_of),
        )

    @property
    def summary(self) -> str:
        """The regression and the noise."""
        return f"{self.formula}, gaussian in rounds"

    def in_words(self) -> list[str]:
        """What the rounds will do, from public quantities."""
        setting, most = self.setting, MOST_ROUNDS if self.most is None else self.most
        most = most if self.reach_of is None else 2
        rows = "people" if self.schema.unit_column is not None else "rows"
        shared = f"the share of the first measurement follows from the number of {rows}"
        if not setting.replaces:
            shared = f"the first measurement has {setting.first_share(None):.0%} of the budget"
        lines = [
            f"  Rounds: at most {most}, with a pass over the rows for each and one for a histogram "
            f"of far {rows}. One charge pays for all; {shared}, exploring rounds have at least "
            f"{LEAST_SHARE:.0%} each, and the last round all that is left",
            f"  With {setting.rows_for_residuals():,} {rows} or more a pass and "
            f"{setting.residual_share(math.inf):.0%} of the budget are for the spread of "
            "residuals, so that intervals hold where errors differ in spread",
        ]
        if self.reach_of is not None:
            lines.append(
                f"  The reach is that of the Release {self.reach_of.digest[:19]}: nothing is "
                "explored, and years or holders with one reach can be compared"
            )
        elif self.most is None:
            few = "published in the bounds, with the whole budget"
            lines.append(
                f"  With fewer than {setting.rows_needed():,} {rows} there is one round, {few}"
            )
        return lines

    def to_json(self) -> dict[str, Any]:
        """Canonical description; its digest is the request's identity."""
        document = {**super().to_json(), "rounds": "auto" if self.most is None else self.most}
        if self.reach_of is not None:  # requests from before it existed keep their identity
            document["reach_of"] = self.reach_of.digest
        return document

    def plan(self) -> SumPlan:
        """What the first pass sums."""
        return SumPlan(self.design, Box(), (SecondMoments(self.design),))

    def longest(self) -> int:
        """With as many rounds as there may be, and the longest integers that there may be."""
        value, entries = -MAX_INTEGER - 1, SecondMoments(self.design).number_of_products
        one = self._longest_round(entries)
        tail = {**one, "edges": [value] * len(EDGES), "values": [value] * len(EDGES)}
        spread = {
            **{key: one[key] for key in ("radius", "noise", "sensitivity")},
            "direction": [-residuals.LARGEST_DIRECTION] * len(self.design.names),
            "values": [value] * entries,
        }
        explored = [one] * (MOST_ROUNDS - 2)
        rounds = {"explored": explored, "tail": tail, "last": one, "residuals": spread}
        values = (value,) * len(SecondMoments(self.design).entries)
        plain = self._plain(MAX_ROWS, self.first_mechanism(Fraction(1)), values)
        events = {"event": 200 * " "}  # another event has other floats, of 24 characters at most
        return len(dumps({**plain.document, "rounds": rounds, **events}).encode())

    # -----------------------------------------------------------------------------------------
    # The rounds

    def release(self, n: int, sums: Sums, /) -> Release:
        """One round with the whole budget, where there are too few rows for more."""
        mechanism = self.first_mechanism(Fraction(1))
        return self._plain(n, mechanism, mechanism.add_noise(sums.values[SecondMoments.name]))

    def begin(self, n: int, sums: Sums) -> Release | str:
        """Draw the first measurement.

        The Release, if a public n is too small for rounds; else the text to keep.
        """
        public = self.public_n(n)
        if public is not None and not self.setting.worthwhile(public):
            return self.release(n, sums)
        mechanism = self.first_mechanism(Fraction(self.setting.first_share(public)))
        mechanism.verify()
        values = mechanism.add_noise(sums.values[SecondMoments.name])
        return json.dumps(
            {"n": public, "second_moments": self._measurement(mechanism, values).to_json()}
        )

    def next_step(self, kept: Sequence[str]) -> Step:
        """What comes after the rounds that are kept."""
        begun = Begun.of(kept)
        if begun.last is not None:
            return self._residuals(begun, begun.last)
        return next_step(
            self.setting,
            self._first_of_numbers(begun),
            begun.n,
            [one.explored(self.design) for one in begun.explored],
            None if begun.tail is None else (begun.tail.transform, *begun.tail.counted),
        )

    def step_plan(self, step: Step) -> Plan[BallSums | TailCounts]:
        """What a step sums over the rows."""
        if isinstance(step, CountTail):
            return TailPlan(self.design, step.transform)
        if isinstance(step, Spread):
            return ResidualPlan(self.design, step.shape, step.direction, step.radius)
        return BallPlan(self.design, step.shape)

    def draw(self, kept: Sequence[str], step: Step, result: BallSums | TailCounts) -> Release | str:
        """Draw a step's noise.

        The Release after the last round; else the text to keep.
        """
        begun = Begun.of(kept)
        check_same_rows(begun.n, result.n)
        left = self.budget - spent(_drawn(begun))[0]
        if isinstance(step, CountTail):
            assert isinstance(result, TailCounts)
            tail = self._tail(step, result, min(left, Fraction(step.share) * self.budget))
            return json.dumps({"tail": tail.to_json()})
        assert isinstance(result, BallSums)
        if isinstance(step, Explore):
            pair = (result.inside, result.outside)
            square = min(left, Fraction(step.share) * self.budget)
            return json.dumps(
                {"explored": self._round(self.design, step.shape, pair, square).to_json()}
            )
        if isinstance(step, Finish):
            for_residuals = min(left / 2, Fraction(step.residual_share) * self.budget)
            sums = (result.inside + result.outside,)
            last = self._round(self.design, step.shape, sums, left - for_residuals)
            if for_residuals:
                return json.dumps({"last": last.to_json()})
            return self._in_rounds(begun, last, None, result.n)
        if isinstance(step, Spread):
            assert begun.last is not None
            spread = self._spread(step, result, left)
            return self._in_rounds(begun, begun.last, spread, result.n)
        assert_never(step)

    def first_mechanism(self, share: Fraction) -> GaussianMechanism:
        """The noise of the first measurement for a share of the budget."""
        entries = len(SecondMoments(self.design).entries)
        return self.noise(self._first_sensitivity, share * self.budget, (False,) * entries)

    @property
    def _first_sensitivity(self) -> int:
        return l2_sensitivity(SecondMoments(self.design), Box(), "upper")

    def _first_of_numbers(self, begun: Begun) -> Observed:
        """The first measurement of the constant and the numbers."""
        whole = observed_moments(begun.first, self.design)
        places = [0, *(1 + np.flatnonzero(is_number(self.design)))]
        block = np.ix_(places, places)
        return Observed(whole.map[block], whole.values[block], whole.precision[block])

    def _residuals(self, begun: Begun, last: Round) -> Spread:
        """Which residuals: those of the regression that the last round has found."""
        public = begun.n is not None
        n = float(begun.n) if begun.n is not None else self._noisy_rows(begun)
        found = residuals.direction(last.observed(self.design), n, n_is_public=public)
        return Spread(last.shape, found, self.setting.residual_radius(n, last.shape))

    def _noisy_rows(self, begun: Begun) -> float:
        return max(float(self._first_of_numbers(begun).values[0, 0]), 1.0)

    def _spread(self, step: Spread, result: BallSums, square: Fraction) -> Residuals:
        sensitivity = gram_sensitivity(self.schema, step.radius**2)
        entries = triangle(len(step.direction))
        mechanism = self.noise(sensitivity, square, tuple(a != b for a, b in entries))
        mechanism.verify()
        noisy = mechanism.add_noise([int(result.inside[entry]) for entry in entries])
        return Residuals(
            step.direction,
            step.radius,
            noisy,
            mechanism.scale,
            mechanism.off_diagonal_scale,
            sensitivity,
        )

    def _in_rounds(self, begun: Begun, last: Round, spread: Residuals | None, n: int) -> Release:
        return Release(
            design=self.design,
            geometry=Box(),
            measurements=(begun.first,),
            rounds=Rounds(
                begun.explored,
                begun.tail,
                last,
                spread,
                None if self.reach_of is None else self.reach_of.digest,
            ),
            **self._signed(n),
        )

    def _tail(self, step: CountTail, result: TailCounts, square: Fraction) -> Tail:
        sensitivity = count_sensitivity(self.schema)
        mechanism = self.noise(sensitivity, square, (False,) * len(EDGES))
        mechanism.verify()
        noisy = mechanism.add_noise([count * COUNT_ONE for count in result.counts])
        return Tail(step.transform, noisy, mechanism.scale, sensitivity)

    def _measurement(self, mechanism: GaussianMechanism, values: tuple[int, ...]) -> Measurement:
        return Measurement(
            statistic=SecondMoments.name,
            layout="upper",
            values=values,
            family=mechanism.family,
            scale=mechanism.scale,
            off_diagonal_scale=mechanism.off_diagonal_scale,
            sensitivity=mechanism.sensitivity,
        )

    def _plain(self, n: int, mechanism: GaussianMechanism, values: tuple[int, ...]) -> Release:
        """A Release without rounds. Its own event is covered by the one that was charged."""
        return Release(
            design=self.design,
            geometry=Box(),
            measurements=(self._measurement(mechanism, values),),
            **{**self._signed(n), "event": mechanism.event()},
        )


def _reach(release: Release) -> Reach:
    """The map and the radius of a Release in rounds."""
    assert release.rounds is not None
    shape = release.rounds.last.shape
    return Reach(shape.transform, shape.radius)


def _check_reach(design: Design, release: Release) -> None:
    """Refuse the reach of a Release that isn't about the same numbers."""
    if release.rounds is None or release.rounds.tail is None:
        raise RequestError(
            "reach_of: that Release was not made in rounds, so it has no reach; leave it out"
        )
    now, then = (
        [(c.name, c.centre, c.half_width) for c in of.columns if not c.is_indicator]
        for of in (design, release.design)
    )
    if now != then:
        names = ", ".join(name for name, _, _ in then)
        raise RequestError(
            "reach_of: that Release is about other numbers, or has other bounds; its reach is of "
            f"{names}, in this order and within the bounds of its schema"
        )


def _drawn(begun: Begun) -> list[tuple[int, int, int, int]]:
    """Sensitivity, scale, smallest scale and number of entries of everything that is kept."""
    first = begun.first
    drawn = [(first.sensitivity, first.scale, first.off_diagonal_scale, len(first.values))]
    further = (*begun.explored, begun.tail, begun.last)
    return drawn + [one.noise for one in further if one is not None]
