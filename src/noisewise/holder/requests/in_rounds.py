"""What requests in rounds share: one charge before a row is read, then a pass for each round.

What a round sums and how much noise it gets is decided from what earlier rounds have published.
Whatever they were, the noise of all rounds together is no less than that of the Gaussian that was
charged (`core.rounds.plan` has the proof): every scale is chosen with exact fractions of what is
left of it. The ledger keeps every drawn round before the next one is decided on. A run that was
killed goes on from the rounds that are kept, and never draws one of them again.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from noisewise.core.calibration import discreteness_slack, gaussian_scale
from noisewise.core.composition import satisfies
from noisewise.core.design import Design
from noisewise.core.document import MAX_INTEGER
from noisewise.core.errors import DataError, RequestError
from noisewise.core.kinds.rounds import SMALLEST_SCALE, Round, gram_entries
from noisewise.core.privacy import GaussianEvent, float_up
from noisewise.core.rounds.plan import Setting
from noisewise.core.rounds.transform import LARGEST_OFFSET, LARGEST_ROW, Shape
from noisewise.core.statistics.ball_moments import gram_sensitivity, longest_square
from noisewise.holder.mechanisms.gaussian import GaussianMechanism
from noisewise.holder.requests.base import (
    AboutRegression,
    Kind_co,
    check_bounded,
    check_delta,
    noise_multiplier,
)
from noisewise.holder.rows import Plan


@dataclass(frozen=True, kw_only=True)
class InRounds(AboutRegression[Kind_co]):
    """A request that is fulfilled in rounds; parameters as in `Request`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounded(self.design)
        if self.claim.is_pure:
            raise RequestError(
                "rounds: they need Gaussian noise, so give a delta above 0 or rho; or leave rounds "
                "out"
            )
        check_delta(self.claim)
        if self.series is not None:
            # Whether rows were in another batch shows when they are summed. By then rounds have
            # been drawn from them, which the same batch would publish with other rows.
            raise RequestError(
                "rounds: batches of a series can't be made in rounds; leave out the series "
                "(--disjoint), so that the costs of batches are added up, or the rounds"
            )

    # --- the rounds -------------------------------------------------------------------------------

    @abstractmethod
    def begin(self, n: int, result: Any, /) -> Kind_co | str:
        """Draw what the first pass has summed: the text to keep, or at once the Release."""

    @abstractmethod
    def next_step(self, kept: Sequence[str]) -> Any:
        """What comes after the rounds that are kept."""

    @abstractmethod
    def step_plan(self, step: Any) -> Plan[Any]:
        """What a step sums over the rows."""

    @abstractmethod
    def draw(self, kept: Sequence[str], step: Any, result: Any) -> Kind_co | str:
        """Draw a step's noise: the text to keep, or the Release after the last round."""

    @property
    @abstractmethod
    def setting(self) -> Setting:
        """The public numbers that the rounds depend on."""

    # --- what it costs ----------------------------------------------------------------------------

    @property
    @abstractmethod
    def most_draws(self) -> tuple[int, int]:
        """How many rounds there may be, and how many entries one may have."""

    @cached_property
    def event(self) -> GaussianEvent:
        """One Gaussian for all rounds; `core.rounds.plan` has the proof.

        The slack is that of as many draws as there may be, each with the coarsest noise that there
        may be. The calibration is for continuous noise, so the multiplier is raised in tiny steps
        until the event satisfies the claim.
        """
        rounds, entries = self.most_draws
        slack = float_up(rounds * Fraction(discreteness_slack(entries, SMALLEST_SCALE // 2)))
        multiplier = noise_multiplier(self.claim)
        for doubling in range(30):
            event = GaussianEvent(multiplier, slack)
            if satisfies([event], self.claim):
                return event
            multiplier *= 1 + 2.0**doubling * 1e-12
        raise RequestError(
            f"epsilon: Gaussian noise cannot be certified for {self.claim}; use a larger epsilon"
        )

    @cached_property
    def budget(self) -> Fraction:
        """What Σ (sensitivity / scale)² of all rounds may be."""
        return 1 / Fraction(self.event.noise_multiplier) ** 2

    def noise(
        self, sensitivity: int, square: Fraction, off_diagonal: tuple[bool, ...]
    ) -> GaussianMechanism:
        """The noise with (sensitivity / scale)² at most `square`."""
        return GaussianMechanism(sensitivity, self.scale(sensitivity, square), off_diagonal)

    def scale(self, sensitivity: int, square: Fraction) -> int:
        """The smallest usable scale with (sensitivity / scale)² at most `square`."""
        wanted = math.ceil(sensitivity**2 / square)
        return gaussian_scale(max(math.isqrt(wanted - 1) + 1, SMALLEST_SCALE), 1.0)

    def _longest_round(self, entries: int) -> dict[str, Any]:
        """The document of a round with the longest integers that there may be."""
        numbers, value = self.setting.numbers, -MAX_INTEGER - 1
        return {
            "transform": {
                "matrix": [[-LARGEST_ROW] * numbers] * numbers,
                "offset": [-LARGEST_OFFSET] * numbers,
                "shift": [10] * numbers,
            },
            **dict.fromkeys(("constant", "weight", "radius"), 1 << 16),
            "noise": {"family": "discrete_gaussian", "scale": value, "off_diagonal_scale": value},
            "sensitivity": value,
            "values": [[value] * entries] * 2,
        }

    def _round(self, design: Design, shape: Shape, grams: Sequence[Any], square: Fraction) -> Round:
        """Gram matrices with noise of which (sensitivity / scale)² is at most `square`."""
        groups = len(design.category_sizes) if shape.weight else 0
        longest = longest_square(shape.constant, shape.weight, groups, shape.radius)
        entries = gram_entries(design, shape)
        off_diagonal = tuple(a != b for a, b in entries) * len(grams)
        mechanism = self.noise(gram_sensitivity(self.schema, longest), square, off_diagonal)
        mechanism.verify()
        noisy = mechanism.add_noise([int(gram[entry]) for gram in grams for entry in entries])
        size = len(entries)
        return Round(
            shape,
            tuple(noisy[k * size : (k + 1) * size] for k in range(len(grams))),
            mechanism.scale,
            mechanism.off_diagonal_scale,
            mechanism.sensitivity,
        )


def check_same_rows(begun: int | None, now: int) -> None:
    """Refuse rows that have changed since the first round, where their number is public."""
    if begun is not None and now != begun:
        raise DataError(
            "data: another number of rows than in the first round; restore the data as they "
            "were, or give the request a new label, which costs again"
        )
