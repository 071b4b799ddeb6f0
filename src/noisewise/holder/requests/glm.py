"""A request for a logistic or Poisson regression, in rounds.

Looks at the covariates find their own scale, then Newton rounds publish score and information at a
theta that earlier ones have found (`core.rounds.newton`). `requests.in_rounds` says how they are
paid for and kept.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from noisewise.core.calibration import gaussian_scale
from noisewise.core.design import MAX_ROWS, Covariates, Family
from noisewise.core.document import MAX_INTEGER, dumps, integer
from noisewise.core.errors import RequestError
from noisewise.core.kinds.glm import (
    FAMILIES,
    GlmRelease,
    Newton,
    information_entries,
    longest_of,
    noises,
)
from noisewise.core.kinds.rounds import (
    SMALLEST_SCALE,
    Round,
    is_number,
    shape_from_json,
    shape_to_json,
    spent,
)
from noisewise.core.privacy import Amount
from noisewise.core.rounds.estimate import Observed
from noisewise.core.rounds.newton import (
    SHARES,
    Score,
    box_shape,
    newton_shape,
    next_of_covariates,
    next_theta,
)
from noisewise.core.rounds.plan import (
    LARGEST_TOTAL,
    LEAST_FIRST_SHARE,
    LEAST_SHARE,
    MOST_ROUNDS,
    Explore,
    Setting,
    rows_of,
)
from noisewise.core.rounds.transform import Shape, Transform
from noisewise.core.schema import Schema
from noisewise.core.statistics.ball_moments import (
    LARGEST_SQUARE,
    PRODUCT_ONE,
    gram_sensitivity,
    longest_square,
)
from noisewise.core.statistics.scores import (
    Outcome,
    information_scale,
    outcome_of,
    score_sensitivity,
)
from noisewise.holder.mechanisms.gaussian import GaussianMechanism
from noisewise.holder.requests.base import check_scale, claim_of, named_design
from noisewise.holder.requests.in_rounds import InRounds, check_same_rows
from noisewise.holder.rows import Plan
from noisewise.holder.rows.rounds import BallPlan, BallSums
from noisewise.holder.rows.scores import ScorePlan, ScoreSums

Step = Explore | Score


@dataclass(frozen=True)
class Begun:
    """The rounds that are drawn and kept."""

    n: int | None = None  # the number of rows where it is public
    looks: tuple[Round, ...] = ()
    newton: tuple[Newton, ...] = ()
    shape: Shape | None = None  # of the Newton rounds, once there are any

    @classmethod
    def of(cls, kept: Sequence[str]) -> Begun:
        """Read what the ledger has kept, in the order in which it was drawn."""
        if not kept:
            return cls()
        read = [json.loads(text) for text in kept]
        n = read[0]["n"]
        return cls(
            None if n is None else integer(n, "n", 1, MAX_ROWS),
            tuple(Round.from_json(one["look"]) for one in read if "look" in one),
            tuple(Newton.from_json(one["newton"]) for one in read if "newton" in one),
            next((shape_from_json(one["shape"]) for one in read if "shape" in one), None),
        )


@dataclass(frozen=True, kw_only=True)
class GlmRequest(InRounds[GlmRelease]):
    """What a holder asks to publish: see `make_glm_request`."""

    mechanism: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        if self.design.family not in FAMILIES:
            raise RequestError("family: expected logistic or poisson")
        if self.claim.is_pure:
            raise RequestError(
                f"delta: a {self.design.family} regression needs Gaussian noise; give a delta "
                "above 0, or leave it out for 1e-6"
            )
        super().__post_init__()
        if self.schema.unit_column is not None:
            raise RequestError(
                "family: rows of a unit are averaged, and a mean of outcomes is no outcome; leave "
                f"out the unit column {self.schema.unit_column!r} and declare max_rows_per_unit"
            )
        # The most noise that any round could need, whatever is published.
        longest = LARGEST_SQUARE * PRODUCT_ONE
        share = Fraction(LEAST_SHARE) * self.budget
        check_scale(self.scale(gram_sensitivity(self.schema, longest), share))
        if self.setting.numbers:
            box = box_shape(self.setting.numbers)
            first = gram_sensitivity(self.schema, longest_square(box.constant, 0, 0, box.radius))
            check_scale(self.scale(first, Fraction(LEAST_FIRST_SHARE) * self.budget))
        scale = self.scale(score_sensitivity(self.schema, self.outcome, longest), share)
        check_scale(scale)
        check_scale(information_scale(self.schema, self.outcome, longest, scale))

    # --- what it is -------------------------------------------------------------------------------

    @cached_property
    def covariates(self) -> Covariates:
        """The design without its target."""
        return self.design.covariates

    @cached_property
    def outcome(self) -> Outcome:
        """The law of the target."""
        return outcome_of(self.design)

    @cached_property
    def setting(self) -> Setting:
        """The public numbers that looks at the covariates depend on."""
        return Setting(
            numbers=self.covariates.number_of_numbers,
            categories=len(self.covariates.category_sizes),
            rows_per_unit=self.schema.max_rows_per_unit,
            replaces=self.schema.n_is_public,
            mu=1 / self.event.noise_multiplier,
        )

    @property
    def most_draws(self) -> tuple[int, int]:
        """Looks at the covariates and Newton rounds."""
        size = len(self.design.columns)
        return MOST_ROUNDS + len(SHARES), size * (size + 1)

    @property
    def summary(self) -> str:
        return f"{self.formula}, {self.design.family}, gaussian in rounds"

    def in_words(self) -> list[str]:
        """What the rounds will do, from public quantities."""
        newton = ", ".join(f"{share:.0%}" for share in SHARES)
        words = [
            f"  Rounds: at most {MOST_ROUNDS} looks at the covariates for at most "
            f"{LARGEST_TOTAL:.0%} of the budget, then {len(SHARES)} Newton rounds with {newton} "
            "of what is left, with a pass over the rows for each. One charge pays for all"
        ]
        if self.setting.numbers:
            words.append(
                f"  With fewer than about {2 * self.setting.rows_needed():,} rows they can't find "
                f"what numbers are like: see noisewise plan --family {self.design.family}"
            )
        return words

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "kind": "glm", "family": self.design.family}

    def verify(self) -> None:
        """Check the noise of one round with the whole budget; others are checked before a draw."""
        shape = newton_shape(self.setting, self.outcome, Transform.box(self.setting.numbers), 1.0)
        for mechanism in self._mechanisms(longest_of(self.design, shape), self.budget):
            mechanism.verify()

    def longest(self) -> int:
        """With as many rounds as there may be, and the longest integers that there may be."""
        value, size, numbers = -MAX_INTEGER - 1, len(self.design.columns), self.setting.numbers
        look = self._longest_round((numbers + 1) * (numbers + 2) // 2)
        newton = {
            "theta": [value] * size,
            "noise": {**look["noise"], "information_scale": value},
            "sensitivity": value,
            "score": [value] * size,
            "information": [value] * (size * (size + 1) // 2),
        }
        document = {
            "format": GlmRelease.FORMAT,
            "format_version": GlmRelease.FORMAT_VERSION,
            "software": self.software,
            "label": self.label,
            "schema": self.schema.to_dict(),
            "features": list(self.design.features),
            "target": self.design.target,
            "family": self.design.family,
            "design_columns": list(self.design.names),
            "n": MAX_ROWS,
            "looks": [look] * MOST_ROUNDS,
            "shape": {key: look[key] for key in ("transform", "constant", "weight", "radius")},
            "newton": [newton] * len(SHARES),
            # An event has two floats, of 24 characters at most.
            "privacy": {"claim": self.claim.to_json(), "event": 300 * " "},
        }
        return len(dumps(document).encode())

    # --- the rounds -------------------------------------------------------------------------------

    def plan(self) -> Plan[BallSums | ScoreSums]:
        return self.step_plan(self.next_step(()))

    def release(self, n: int, result: Any, /) -> GlmRelease:
        """There is no Release without rounds."""
        raise NotImplementedError("a logistic or Poisson regression is published in rounds")

    def begin(self, n: int, result: BallSums | ScoreSums, /) -> str:
        """Draw the first round: the text to keep."""
        return json.dumps({"n": self.public_n(n), **self._drawn((), self.next_step(()), result)})

    def next_step(self, kept: Sequence[str]) -> Step:
        begun, setting = Begun.of(kept), self.setting
        if begun.shape is not None:
            shape = begun.shape
        elif not setting.numbers:
            shape = newton_shape(setting, self.outcome, Transform((), (), ()), 1.0)
        elif not begun.looks:
            # Where n is public, it is not known before the first pass.
            return Explore(box_shape(setting.numbers), 0.0)
        else:
            first = self._of_numbers(begun.looks[0])
            explored = [one.explored(self.covariates) for one in begun.looks[1:]]
            found = next_of_covariates(setting, first, begun.n, explored)
            if isinstance(found, Explore):
                return found
            shape = newton_shape(setting, self.outcome, found, rows_of(first, begun.n))
        scored = [one.scored(self.outcome.bound) for one in begun.newton]
        theta = next_theta(self.outcome, len(self.design.columns), scored)
        share = SHARES[len(scored)] / sum(SHARES[len(scored) :])
        return Score(shape, theta, share)

    def _of_numbers(self, look: Round) -> Observed:
        """What a look says about the constant and the numbers."""
        whole = look.observed(self.covariates)
        places = [0, *(1 + np.flatnonzero(is_number(self.covariates)))]
        return Observed(whole.map[:, places], whole.values, whole.precision)

    def step_plan(self, step: Step) -> Plan[BallSums | ScoreSums]:
        if isinstance(step, Explore):
            return BallPlan(self.covariates, step.shape)
        return ScorePlan(self.design, step.shape, step.theta)

    def draw(
        self, kept: Sequence[str], step: Step, result: BallSums | ScoreSums
    ) -> GlmRelease | str:
        """Draw a step's noise: the text to keep, or the Release after the last round."""
        begun = Begun.of(kept)
        check_same_rows(begun.n, result.n)
        drawn = self._drawn(kept, step, result)
        if len(begun.newton) + 1 < len(SHARES):
            return json.dumps(drawn)
        assert isinstance(step, Score)
        return GlmRelease(
            design=self.design,
            looks=begun.looks,
            shape=step.shape,
            newton=(*begun.newton, Newton.from_json(drawn["newton"])),
            **self._signed(result.n),
        )

    def _drawn(
        self, kept: Sequence[str], step: Step, result: BallSums | ScoreSums
    ) -> dict[str, Any]:
        """What a step draws, as it is kept."""
        begun = Begun.of(kept)
        left = self.budget - spent(noises(begun.looks, begun.newton))[0]
        if isinstance(step, Score):
            assert isinstance(result, ScoreSums)
            share = Fraction(step.share) if len(begun.newton) + 1 < len(SHARES) else Fraction(1)
            newton = self._newton(step, result, share * left)
            # Beside the round, because another machine may find another last digit.
            return {"newton": newton.to_json(), "shape": shape_to_json(step.shape)}
        assert isinstance(result, BallSums)
        share = Fraction(step.share)
        grams: tuple[Any, ...] = (result.inside, result.outside)
        if not begun.looks:
            share = Fraction(self.setting.first_share(self.public_n(result.n)))
            grams = (result.inside + result.outside,)
        square = min(left, share * self.budget)
        return {"look": self._round(self.covariates, step.shape, grams, square).to_json()}

    def _mechanisms(
        self, longest: int, square: Fraction
    ) -> tuple[GaussianMechanism, GaussianMechanism]:
        """The noise of a Newton round on the score, and on the information.

        Of both together (sensitivity / scale)² is at most `square`: that of the score says it. The
        information has the sensitivity with which it alone would use all of it.
        """
        size = len(self.design.columns)
        score = self.noise(
            score_sensitivity(self.schema, self.outcome, longest), square, (False,) * size
        )
        wanted = information_scale(self.schema, self.outcome, longest, score.scale)
        scale = gaussian_scale(max(wanted, SMALLEST_SCALE), 1.0)
        alone = -(-score.sensitivity * scale // score.scale)
        entries = tuple(a != b for a, b in information_entries(size))
        return score, GaussianMechanism(alone, scale, entries)

    def _newton(self, step: Score, result: ScoreSums, square: Fraction) -> Newton:
        score, information = self._mechanisms(longest_of(self.design, step.shape), square)
        score.verify()
        information.verify()
        entries = information_entries(len(step.theta))
        return Newton(
            step.theta,
            score.add_noise([int(value) for value in result.score]),
            information.add_noise([int(result.information[entry]) for entry in entries]),
            score.scale,
            information.scale,
            information.off_diagonal_scale,
            score.sensitivity,
        )


def make_glm_request(
    schema: Schema,
    *,
    family: Family,
    target: str | None = None,
    features: Sequence[str] | None = None,
    formula: str | None = None,
    epsilon: Amount | None = None,
    delta: Amount | None = None,
    rho: Amount | None = None,
    label: str = "",
    batch: str | None = None,
) -> GlmRequest:
    """Describe a logistic or Poisson regression to publish. Nothing is read or charged.

    Parameters
    ----------
    schema : Schema
    family : {"logistic", "poisson"}
        A target of yes or no is a category with two levels, whose reference is no event; a count
        is a number from 0 to a public bound.
    target, features : str and sequence of str
        Or a `formula`, such as "ill ~ age + region".
    epsilon, delta : number or text
        The guarantee; delta is 1e-6 unless given. Or `rho` of zero-concentrated privacy.
    label, batch : str, optional
        As in `Publishable`.
    """
    if family not in FAMILIES:
        raise RequestError(f"family: expected linear, logistic or poisson, got {family!r}")
    return GlmRequest(
        design=named_design(schema, target, features, formula, family),
        claim=claim_of(epsilon, delta, rho),
        label=label,
        batch=batch,
        delta_was_given=delta is not None,
    )
