"""What a block computes from its rows: least squares, another model, or the holder's own function.

Privacy doesn't depend on it. A row is in one block of each partition, and an aggregate over blocks
is released that one block can move only so far, whatever number it comes up with.

least_squares   the default: y = β₀ + β'x, from exact sums.
logistic        log odds of the target being in the upper half of its bounds.
poisson         log of the mean of the target, a count; below zero counts as zero.
quantile        the median of the target, or another quantile of it: quantile:0.9.
huber           a line that outliers pull less (Huber's T, with statsmodels' constant 1.345).
cox             log hazard ratios; the target is the time to the event, negative where the event was
                not seen until then (censored). There is no intercept.

An own function has a name and names what it returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from noisewise.core.design import Design
from noisewise.core.errors import RequestError
from noisewise.core.schema import MAX_NAME

LEAST_SQUARES = "least_squares"
MODELS = (LEAST_SQUARES, "logistic", "poisson", "quantile", "huber", "cox")
LOGARITHMIC = ("logistic", "poisson", "cox")  # coefficients have no unit of the target
MAX_ESTIMATES = 1_000


@dataclass(frozen=True)
class Model:
    """What a block computes, as far as it is published.

    Parameters
    ----------
    name : str
        One of `MODELS`, "quantile:0.9" and the like, or what an own function is called.
    estimates : tuple of str
        What an own function returns; empty for the others.
    """

    name: str = LEAST_SQUARES
    estimates: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        texts = (self.name, *self.estimates)
        if not all(
            isinstance(t, str) and 0 < len(t) <= MAX_NAME and t.isprintable() for t in texts
        ):
            raise RequestError(f"model: names are texts of at most {MAX_NAME} characters")
        if self.estimates:
            if self.kind in MODELS:
                raise RequestError(f"model: {self.name!r} is a model of noisewise; choose a name")
            if len(set(self.estimates)) < len(self.estimates) <= MAX_ESTIMATES:
                raise RequestError("model: an estimate is named twice")
        elif self.kind not in MODELS or (":" in self.name and self.kind != "quantile"):
            raise RequestError(f"model: {self.name!r} is unknown; there are {', '.join(MODELS)}")
        elif self.kind == "quantile":
            _ = self.quantile

    @property
    def kind(self) -> str:
        """The name without a quantile."""
        return self.name.partition(":")[0]

    @property
    def quantile(self) -> float:
        """Of the target, for the model of that name."""
        text = self.name.partition(":")[2] or "0.5"
        try:
            found = float(text)
        except ValueError:
            found = -1.0
        if not 0 < found < 1:
            raise RequestError(f"model: quantile:{text} is not between 0 and 1, as in quantile:0.9")
        return found

    @property
    def is_least_squares(self) -> bool:
        """Whether sums over rows are all that a block needs."""
        return self.name == LEAST_SQUARES

    def coefficients(self, design: Design) -> tuple[str, ...]:
        """Names of what a block estimates."""
        if self.estimates:
            return self.estimates
        return design.names[1 if self.name == "cox" else 0 : -1]

    def to_json(self) -> dict[str, Any]:
        """Plain structure."""
        more = {"estimates": list(self.estimates)} if self.estimates else {}
        return {"name": self.name, **more}


LINE = Model()
