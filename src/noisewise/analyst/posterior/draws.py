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

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.model_columns import ModelColumns
from noisewise.core.errors import RequestError
from noisewise.core.network_regression import RegressionSampleRelease


@dataclass(frozen=True)
class SampledRegression:
    """Coefficients as they were drawn.

    Parameters
    ----------
    release : RegressionSampleRelease
    """

    release: RegressionSampleRelease

    def __post_init__(self) -> None:
        if not isinstance(self.release, RegressionSampleRelease):
            raise RequestError(
                f"release: expected draws of a regression, got {type(self.release).__name__}; "
                "noisewise.fit reads other Releases"
            )

    @cached_property
    def columns(self) -> ModelColumns:
        """The regression's columns and their units."""
        design = self.release.design
        return ModelColumns(design.schema, design.features, design.target)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coefficients, the intercept first."""
        return self.columns.names

    @cached_property
    def draws(self) -> FloatArray:
        """All draws in original units, of shape (draws, coefficients)."""
        return self.columns.theta_to_original(self.release.coefficients())

    def mean(self) -> dict[str, float]:
        """The mean of the draws, by coefficient."""
        return dict(zip(self.names, self.draws.mean(axis=0).tolist(), strict=True))

    def predict(self, table: Any) -> FloatArray:
        """Expected targets of new rows under the mean of the draws, from named columns."""
        expected: FloatArray = self.columns.design_matrix(table) @ self.draws.mean(axis=0)
        return expected

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know before trusting the numbers."""
        law, count = self.release.law, len(self.draws)
        found = []
        if law.temper < 1:
            found.append(
                f"drawn with the likelihood to the power {float(law.temper):.3g}: wider than the "
                "posterior, and closer to the prior"
            )
        norms = np.linalg.norm(self.release.coefficients(), axis=1)
        if norms.max() > 0.99 * float(law.radius):
            found.append(
                "a draw lies at the edge of the ball that coefficients are kept in: the data "
                "may want larger ones than the holder allowed"
            )
        if count < 20:
            found.append(
                f"{count} draw{'s' if count > 1 else ''}: too few for an interval; `noisewise "
                "release` publishes statistics from which a whole posterior follows"
            )
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Draws, warnings and where they come from, as plain data."""
        release = self.release
        return {
            "target": release.design.target,
            "n": release.n,
            "claim": str(release.claim),
            "digest": release.digest,
            "temper": float(release.law.temper),
            "coefficients": list(self.names),
            "draws": self.draws.tolist(),
            "warnings": list(self.warnings),
        }

    def describe(self) -> str:
        """Where the draws come from, their mean and their spread."""
        release, draws = self.release, self.draws
        rows = "a private number of" if release.n is None else f"{release.n:,}"
        width = max(map(len, self.names))
        lines = [
            f"{len(draws)} posterior draw(s) of {release.design.target} ~ "
            f"{' + '.join(release.design.features)} from {rows} rows, {release.claim}",
            f"{'':{width}}  {'mean':>11} {'sd':>11}",
        ]
        for name, values in zip(self.names, draws.T, strict=True):
            spread = f"{values.std(ddof=1):11.5g}" if len(values) > 1 else f"{'-':>11}"
            lines.append(f"{name:{width}}  {values.mean():11.5g} {spread}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return "\n".join([self.describe(), *(f"Warning: {text}" for text in self.warnings)])
