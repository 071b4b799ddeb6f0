"""What each holder has of its own, where coefficients vary by holder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from noisewise._arrays import FloatArray

if TYPE_CHECKING:
    from noisewise.analyst.regression.observation import ModelColumns

BETWEEN = "{} between holders"  # what a spread is called
_PREFIX = "holders_"  # of the arrays in a file


@dataclass(frozen=True, eq=False)
class Holders:
    """Draws of each holder's coefficients and error variance, and of the spreads between holders.

    Coefficients of holders are normal about the common ones. Their spreads, standard deviations,
    are independent; that of the intercept is meant at the average person, not at zeros.
    """

    names: tuple[str, ...]  # what each holder is called: its file, or its number
    theta: FloatArray  # (chains, draws, J, d)
    sigma2: FloatArray  # (chains, draws, J)
    spread: FloatArray  # (chains, draws, d)
    average: FloatArray  # (k,), covariates of the average person, roughly
    # (d,), scale of the prior of each spread, a half-t law with 4 degrees of freedom
    expected: FloatArray

    def in_original_units(self, columns: ModelColumns) -> Holders:
        """The same, from unit scale."""
        factors = columns.theta_to_original(np.eye(self.theta.shape[-1]))
        factors = factors - columns.theta_to_original(np.zeros(self.theta.shape[-1]))
        widths = np.array([column.half_width for column in columns.covariates])
        centres = np.array([column.centre for column in columns.covariates])
        return replace(
            self,
            theta=columns.theta_to_original(self.theta),
            sigma2=columns.sigma2_to_original(self.sigma2),
            spread=self.spread * factors.diagonal(),
            average=centres + widths * self.average,
            expected=self.expected * factors.diagonal(),
        )

    def new_holder(self, rng: np.random.Generator, theta: FloatArray) -> FloatArray:
        """Coefficients of a holder who is not among these, one draw a draw of the common ones."""
        away = self.spread * rng.standard_normal(self.spread.shape)
        away[..., 0] -= away[..., 1:] @ self.average
        return theta + away

    def to_arrays(self) -> dict[str, Any]:
        """Draws by name, for a file."""
        found = {"theta": self.theta, "sigma2": self.sigma2, "spread": self.spread}
        return {_PREFIX + name: values for name, values in found.items()}

    def document(self) -> dict[str, Any]:
        """What is no draw, for a file."""
        return {
            "names": list(self.names),
            "average": self.average.tolist(),
            "expected": self.expected.tolist(),
        }

    @classmethod
    def read(cls, drawn: dict[str, Any], document: dict[str, Any]) -> Holders:
        """Read back what `to_arrays` and `document` gave."""
        return cls(
            tuple(document["names"]),
            *(drawn[_PREFIX + name] for name in ("theta", "sigma2", "spread")),
            *(np.array(document[name]) for name in ("average", "expected")),
        )
