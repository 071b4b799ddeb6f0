"""Published posterior draws of a regression, in original units.

There is no noise to model: the draws are private because they are few, tempered and truncated.
What they are draws of is the holder's tempered posterior within a ball, not the posterior; with k
of them the Monte Carlo error of a mean is still √(1/k) of that posterior's width. A Release of
statistics (`noisewise release`) says more for the same epsilon.

References
----------
Zhang, Rubinstein & Dimitrakakis (2016), "On the differential privacy of Bayesian inference".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.arguments import probability
from noisewise.analyst.posterior.base import ReleasedPosterior, rows_in_words
from noisewise.analyst.posterior.file import Arrays, Groups, dataset
from noisewise.analyst.posterior.numbers import Row, Summary, central_interval, median_and_spread
from noisewise.analyst.posterior.plots import Effect, Interval
from noisewise.analyst.posterior.regression import Coefficients, Prediction, check_target
from noisewise.analyst.regression.observation import ModelColumns
from noisewise.core.errors import RequestError
from noisewise.core.kinds.draws import RegressionSampleRelease

ENOUGH = 20  # draws, for an interval or a probability


@dataclass(frozen=True, eq=False, repr=False)
class DrawsPosterior(ReleasedPosterior, Coefficients):
    """Coefficients as they were drawn."""

    kind, _what = "draws", "a Release of posterior draws"

    release: RegressionSampleRelease
    columns: ModelColumns = field(init=False)
    theta: FloatArray = field(init=False)  # (draws, coefficients), in original units

    def __post_init__(self) -> None:
        if not isinstance(self.release, RegressionSampleRelease):
            raise RequestError(
                f"release: expected draws of a regression, got {type(self.release).__name__}; "
                "noisewise.fit reads other Releases"
            )
        design = self.release.design
        columns = ModelColumns(design.schema, design.features, design.target)
        object.__setattr__(self, "columns", columns)
        theta = columns.theta_to_original(self.release.coefficients())
        object.__setattr__(self, "theta", theta)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know before trusting the numbers."""
        law, count = self.release.law, len(self.theta)
        found = []
        if law.temper < 1:
            found.append(
                f"drawn with the likelihood to the power {float(law.temper):.3g}: wider than the "
                "posterior, and closer to the prior"
            )
        longest = np.linalg.norm(self.release.coefficients(), axis=1).max()
        if longest > 0.99 * float(law.radius):
            found.append(
                "a draw lies at the edge of the ball that coefficients are kept in: the data "
                "may want larger ones than the holder allowed"
            )
        if count < ENOUGH:
            found.append(
                f"{count} draw{'s' if count > 1 else ''}: too few for an interval; `noisewise "
                "release` publishes statistics from which a whole posterior follows"
            )
        return tuple(found)

    def parameter_draws(self) -> dict[str, FloatArray]:
        """Draws of all coefficients by name, as one chain: shape (1, draws)."""
        return {name: draws[None] for name, draws in super().parameter_draws().items()}

    # --- questions -------------------------------------------------------------------------------

    def summary(self, level: float = 0.95) -> Summary:
        """Median, spread and central interval of the draws; no interval where they are few."""
        level, count = probability("level", level), len(self.theta)
        rows = {}
        for name in self.names:
            draws = self.draws(name)
            median, spread = median_and_spread(draws)
            ends = central_interval(draws, level) if count >= ENOUGH else (np.nan, np.nan)
            sd = float(draws.std(ddof=1)) if count > 1 else np.nan
            spread = spread if count > 1 else np.nan
            rows[name] = Row(median, spread, *ends, np.nan, float(count), float(draws.mean()), sd)
        return Summary(rows, level)

    def prob(self, statement: str) -> float:
        """Share of the draws for which a statement such as ``"bmi > 0 and age > 0"`` holds."""
        found = super().prob(statement)
        self._check_enough("prob")
        return found

    def _check_enough(self, argument: str) -> None:
        if len(self.theta) < ENOUGH:
            raise RequestError(
                f"{argument}: {len(self.theta)} released draws are too few for that ({ENOUGH} are "
                "wanted); `noisewise release` publishes statistics from which a whole posterior "
                "follows"
            )

    def predict(
        self, new: Any, level: float = 0.95, *, seed: int | None = None, target: str | None = None
    ) -> Prediction:
        """Expected targets of new rows under the mean of the draws.

        There are no intervals: the error's variance was not released.
        """
        probability("level", level)
        check_target(target, self.columns.target)
        return Prediction(self.columns.design_matrix(new) @ self.theta.mean(axis=0))

    def effect(self, feature: str) -> Effect:
        """How the expected target changes with a feature, the others as they are."""
        self._check_enough("kind")
        return super().effect(feature)

    # --- for people ------------------------------------------------------------------------------

    def describe(self, level: float = 0.95) -> str:
        """Where the draws come from, their mean and their spread."""
        release, design = self.release, self.release.design
        head = (
            f"{len(self.theta)} posterior draw(s) of {design.target} ~ "
            f"{' + '.join(design.features)} from {rows_in_words(release.n)}, {release.claim}"
        )
        return "\n".join([head, str(self.summary(level)), *design.glossary()])

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Draws, warnings and where they come from, as plain data."""
        release = self.release
        return {
            "target": release.design.target,
            "n": release.n,
            "claim": str(release.claim),
            "digest": release.digest,
            "signatures": list(self.signatures),
            "temper": float(release.law.temper),
            "coefficients": list(self.names),
            "draws": self.theta.tolist(),
            "summary": self.summary(level).to_dict(),
            "level": level,
            "warnings": list(self.warnings),
        }

    @property
    def heading(self) -> str:
        """What was drawn, and at what privacy."""
        target, count = self.release.design.target, len(self.theta)
        return f"{count} released draws of a regression for {target}, {self.release.claim}"

    def bars(self, name: str, level: float) -> dict[str, Interval]:
        """The interval of one coefficient, or the range of its draws where they are few."""
        draws = self.draws(name)
        if len(draws) < ENOUGH:
            ends, label = (float(draws.min()), float(draws.max())), "range of the released draws"
        else:
            ends, label = central_interval(draws, level), "released draws"
        return {label: Interval(ends[0], float(draws.mean()), ends[1])}

    def curves(self, name: str) -> dict[str, FloatArray]:
        """The draws of one coefficient."""
        self._check_enough("kind")
        return {"released draws": self.draws(name)}

    # --- files -----------------------------------------------------------------------------------

    def groups(self, *, auxiliary: bool = True) -> Groups:
        """The draws as one chain."""
        drawn = {"theta": self.theta[None]}
        coords = {"coefficient": list(self.names)}
        return Groups(posterior=dataset(drawn, coords, {"theta": ["coefficient"]}))

    @classmethod
    def from_groups(cls, data: Arrays, document: dict[str, Any]) -> DrawsPosterior:
        """Read the Release back."""
        return cls(cls._release_in(document, RegressionSampleRelease))
