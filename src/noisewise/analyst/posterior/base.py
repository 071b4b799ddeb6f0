"""What every posterior can do, whatever was fitted.

A kind of posterior is a subclass in a file of its own: `regression`, `network`, `summary` (answers
of block summaries) and `draws` (released draws of a regression). What a kind cannot do, it refuses
with what to do instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.posterior import file, plots
from noisewise.analyst.posterior.numbers import Summary, SummaryTable, central_interval
from noisewise.core.errors import RequestError

if TYPE_CHECKING:
    import arviz as az


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How a posterior came about.

    Parameters
    ----------
    method : str
    reason : str
        Why this method: the user's choice, or what `auto` saw.
    noise_aware : bool
        Whether the posterior accounts for all of the privacy noise.
    n : tuple of int or None
        Rows behind each Release; None where the number is private.
    claims, digests : tuple of str
        The privacy claim of each Release, in words, and its digest.
    warnings : tuple of str
        What a reader must know before trusting the numbers, in plain words.
    datasets, units : tuple of str
        Of each Release: the data set, and who is protected, such as ``"replace_one/1"``.
    """

    method: str
    reason: str
    noise_aware: bool
    n: tuple[int | None, ...] = ()
    claims: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    units: tuple[str, ...] = ()

    @property
    def published_at(self) -> str:
        """The end of a heading: the claim, where all Releases have the same."""
        claims = set(self.claims)
        return f", published at {claims.pop()}" if len(claims) == 1 else ""


def rows_in_words(n: int | None, counted: str = "rows") -> str:
    """How many rows (or people, `Schema.counted`) are behind a Release."""
    return f"{'a private number of' if n is None else format(n, ',')} {counted}"


class BasePosterior(ABC):
    """Numbers with their uncertainty, where they come from, and questions to them.

    `kind` is the word that files and commands know it by.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know before trusting the numbers, in plain words."""

    @abstractmethod
    def summary(self, level: float = 0.95) -> Summary | SummaryTable:
        """What is known of everything, one line each; intervals have this level."""

    @abstractmethod
    def prob(self, statement: Any) -> Any:
        """Probability of a statement such as ``"age > 0"``."""

    @abstractmethod
    def describe(self, level: float = 0.95) -> str:
        """Where the numbers come from, and the numbers, for a terminal."""

    @abstractmethod
    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """The same as plain data, for JSON."""

    def predict(
        self, new: Any, level: float = 0.95, *, seed: int | None = None, target: str | None = None
    ) -> Any:
        """What new rows would have, with intervals of this level."""
        raise RequestError(
            f"predict: {self._what} has no predictions; they follow from a Release of statistics "
            "(`noisewise release`) or of a network (`noisewise release-network`)"
        )

    def __str__(self) -> str:
        return "\n".join([self.describe(), *(f"Warning: {text}" for text in self.warnings)])

    __repr__ = __str__  # what a notebook shows

    @property
    @abstractmethod
    def _what(self) -> str:
        """What this is, to start a sentence with."""

    # --- pictures and pages ----------------------------------------------------------------------

    def plot(
        self,
        path: str | Path,
        *,
        kind: str = "intervals",
        names: Sequence[str] | None = None,
        level: float = 0.95,
    ) -> None:
        """Draw it into a file (.png, .svg or .pdf); `posterior.plots` compares several.

        Parameters
        ----------
        path : path
        kind : {"intervals", "marginals"}
            Credible intervals, or densities of the draws.
        names : sequence of str, optional
            What to draw: coefficients, or nodes of a network. Default: all that fit.
        level : float
        """
        plots.plot({self.kind: self}, path, kind=kind, names=names, level=level)

    def report(self, path: str | Path, *, level: float = 0.95, title: str | None = None) -> None:
        """Write one self-contained HTML page; see `noisewise.analyst.report`."""
        # By name: reports know posteriors, and no posterior knows reports.
        import_module("noisewise.analyst.report").write_report(self, path, level=level, title=title)

    @property
    @abstractmethod
    def heading(self) -> str:
        """What a picture of it is called."""

    @property
    def is_probability(self) -> bool:
        """Whether all that is drawn lies between 0 and 1, and shares an axis."""
        return False

    @abstractmethod
    def shown(self, names: Sequence[str] | None = None) -> list[str]:
        """What to draw: all that fit, or what the user names."""

    def bars(self, name: str, level: float) -> dict[str, plots.Interval]:
        """Intervals by label: what ignores the noise first, this posterior's own last."""
        found = {}
        for label, draws in self.curves(name).items():
            low, high = central_interval(draws, level)
            found[label] = plots.Interval(low, float(np.median(draws)), high)
        return found

    def curves(self, name: str) -> dict[str, FloatArray]:
        """Draws by label, in the same order."""
        raise RequestError(f"kind: {self._what} has no draws to make a density of; use intervals")

    # --- files -----------------------------------------------------------------------------------

    @abstractmethod
    def to_arviz(self) -> az.InferenceData:
        """The draws, or what was released, as an ArviZ container."""

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """What a file says besides the arrays of `to_arviz`, as JSON."""

    @classmethod
    @abstractmethod
    def from_arviz(cls, data: az.InferenceData, document: dict[str, Any]) -> BasePosterior:
        """Read back what `to_arviz` and `document` gave."""

    def save(self, path: str | Path) -> None:
        """Write a netCDF file that `load_posterior` and ArviZ read."""
        file.check_folder(path)
        file.write(path, self.kind, self.document(), self.to_arviz())
