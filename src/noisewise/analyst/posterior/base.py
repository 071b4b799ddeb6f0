"""What every posterior can do, whatever was fitted.

A kind of posterior is a subclass in a file of its own. What a kind cannot do, it refuses with what
to do instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    NoReturn,
    Self,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import NDArray

from noisewise import _html
from noisewise._arrays import FloatArray
from noisewise.analyst.arguments import probability
from noisewise.analyst.posterior import file, plots
from noisewise.analyst.posterior.file import Arrays, Groups
from noisewise.analyst.posterior.numbers import Summary, SummaryTable, central_interval, data_frame
from noisewise.analyst.trust import signed_for
from noisewise.core.document import MAX_INTEGER, check_folder, text
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.signatures import in_words

if TYPE_CHECKING:
    import arviz as az
    from matplotlib.figure import Figure


# What is estimated, with a version: it changes if ever another quantity goes by the same name.
WITHIN_REACH = "regression within reach, version 1"  # of the rows as they counted in the Release
ALL_ROWS = "regression of all rows, version 1"  # of the rows within their bounds


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How a posterior came about."""

    method: str
    reason: str  # why this method: the user's choice, or what `auto` saw
    noise_aware: bool  # whether the posterior accounts for all of the privacy noise
    # Of each Release: the rows behind it (None where their number is private), its privacy claim in
    # words, its digest, the data set, who is protected, such as ``"replace_one/1"``, and what is
    # known of its signature, in words (empty: a file from before there were any)
    n: tuple[int | None, ...] = ()
    claims: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    signatures: tuple[str, ...] = ()
    seed: int | None = None  # of the simulation, so that a report can say how to repeat it
    estimand: str = ""  # `WITHIN_REACH` or `ALL_ROWS`; empty in files from before there were names

    # Fields with an entry for each Release, and those that have none in files of earlier versions
    _EACH: ClassVar[tuple[str, ...]] = ("claims", "digests")
    _EACH_OR_NONE: ClassVar[tuple[str, ...]] = ("datasets", "units", "signatures")

    @property
    def published_at(self) -> str:
        """The end of a heading: the claim, where all Releases have the same."""
        claims = set(self.claims)
        return f", published at {claims.pop()}" if len(claims) == 1 else ""

    @classmethod
    def read(cls, words: Any) -> Self:
        """Read back what `asdict` and JSON made of it, and refuse everything else."""
        kinds = get_type_hints(cls)
        if not isinstance(words, dict) or not words.keys() <= kinds.keys():
            raise ReleaseError("info: not as `fit` writes it; the file is damaged or was edited")
        info = cls(**{name: typed(value, kinds[name], name) for name, value in words.items()})
        each = {len(getattr(info, name)) for name in cls._EACH}
        each_or_none = {len(getattr(info, name)) for name in cls._EACH_OR_NONE} - {0}
        if each | each_or_none != {len(info.n)}:
            raise ReleaseError("info: its entries are about different numbers of Releases")
        return info


def typed(value: Any, kind: Any, where: str) -> Any:
    """What JSON made of a value of this type: tuples have become lists."""
    outer, inner = get_origin(kind), get_args(kind)
    if outer is tuple and isinstance(value, list):
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        if len(kinds) == len(value):
            return tuple(typed(*pair, where) for pair in zip(value, kinds, strict=True))
    elif outer is Mapping and isinstance(value, dict):
        return {name: typed(item, inner[1], where) for name, item in value.items()}
    elif NoneType in inner:
        return None if value is None else typed(value, inner[0], where)
    elif kind is float:
        if type(value) is float or (type(value) is int and abs(value) <= MAX_INTEGER):
            return value
    elif type(value) is kind and (kind is not int or abs(value) <= MAX_INTEGER):
        return value
    raise ReleaseError(f"{where}: not as `fit` writes it; the file is damaged or was edited")


def origins(releases: Sequence[Any]) -> dict[str, Any]:
    """What a `Fit` says of each of its Releases."""
    found = [
        (
            *(one.n, str(one.claim), one.digest),
            *(one.schema.dataset, one.schema.unit, in_words(one.signature)),
        )
        for one in releases
    ]
    names = ("n", "claims", "digests", "datasets", "units", "signatures")
    return dict(zip(names, zip(*found, strict=True), strict=True))


def rows_in_words(n: int | None, counted: str = "rows") -> str:
    """How many rows (or people, `Schema.counted`) are behind a Release."""
    return f"{'a private number of' if n is None else format(n, ',')} {counted}"


class BasePosterior(ABC):
    """Numbers with their uncertainty, where they come from, and questions to them."""

    kind: ClassVar[str]  # the word that files and commands know it by
    _what: ClassVar[str]  # the same in a sentence

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

    __repr__ = __str__  # what a terminal shows

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        warned = _html.paragraphs(f"Warning: {text}" for text in self.warnings)
        return _html.paragraphs([self.heading]) + self._short_summary()._repr_html_() + warned

    def _short_summary(self) -> Summary | SummaryTable:
        """As much of the summary as fits on a screen."""
        return self.summary()

    # --- draws as tables -------------------------------------------------------------------------

    def parameter_draws(self) -> dict[str, FloatArray]:
        """Draws of everything by name, each of shape (chains, draws)."""
        raise RequestError(f"draws: {self._what} has none; `summary` has all answers")

    @property
    def sources(self) -> tuple[str, ...]:
        """The data sets behind it."""
        return ()

    @property
    def signatures(self) -> tuple[str, ...]:
        """What is known of the signature of each Release, in words; empty in files of old."""
        return ()

    def draws_columns(self) -> dict[str, NDArray[Any]]:
        """The draws as columns of a table: chain, draw, and one column for each parameter.

        A parameter that is called chain or draw keeps its name, and that column gets a longer one.
        """
        found, columns = self.parameter_draws(), {}
        places = np.indices(next(iter(found.values())).shape).reshape(2, -1)
        for short, place in zip(("chain", "draw"), places, strict=True):
            name = short
            while name in found:
                name += "_"
            columns[name] = place
        return columns | {name: values.reshape(-1) for name, values in found.items()}

    def to_frame(self) -> Any:
        """The draws as a pandas data frame, one row a draw; see `draws_columns`."""
        return data_frame(self.draws_columns(), "columns")

    # --- pictures and pages ----------------------------------------------------------------------

    def plot(
        self,
        path: str | Path | None = None,
        *,
        kind: str = "intervals",
        names: Sequence[str] | None = None,
        level: float = 0.95,
    ) -> Figure:
        """Draw it, into a file (.png, .svg or .pdf) or for a notebook.

        Kinds are intervals, marginals, pairs, effect and forest; see `posterior.plots.plot`, which
        also draws several posteriors beside each other.
        """
        return plots.plot({self.kind: self}, path, kind=kind, names=names, level=level)

    def report(self, path: str | Path, *, level: float = 0.95, title: str | None = None) -> None:
        """Write one self-contained HTML page; see `noisewise.analyst.report`."""
        # By name: reports know posteriors, and no posterior knows reports.
        import_module("noisewise.analyst.report").write_report(self, path, level=level, title=title)

    @property
    @abstractmethod
    def heading(self) -> str:
        """What a picture of it is called."""

    def called(self, name: str) -> str:
        """What people call a parameter or a feature: its label and unit, if they were released."""
        return name

    @property
    def is_probability(self) -> bool:
        """Whether all that is drawn lies between 0 and 1, and shares an axis."""
        return False

    @abstractmethod
    def shown(self, names: Sequence[str] | None = None) -> list[str]:
        """What to draw: all that fit, or what the user names."""

    def bars(self, name: str, level: float) -> dict[str, plots.Interval]:
        """Intervals by label: what ignores the noise first, this posterior's own last."""
        return {label: plots.Interval.of(one, level) for label, one in self.curves(name).items()}

    def curves(self, name: str) -> dict[str, FloatArray]:
        """Draws by label, in the same order."""
        raise RequestError(f"kind: {self._what} has no draws to make a density of; use intervals")

    def forest(self, name: str, level: float) -> dict[str, plots.Interval]:
        """Intervals of one coefficient by holder, where coefficients vary by holder."""
        raise RequestError(f"kind: {self._what} has no holders that differ; use intervals")

    @property
    def features(self) -> tuple[str, ...]:
        """What may have an effect."""
        return self._no_effects()

    def effect(self, feature: str) -> plots.Effect:
        """How the expected target changes with a feature, the others as they are."""
        return self._no_effects()

    def _no_effects(self) -> NoReturn:
        raise RequestError(
            f"kind: {self._what} has no effects of features; use intervals, or a regression"
        )

    # --- files -----------------------------------------------------------------------------------

    def to_arviz(self, *, auxiliary: bool = True) -> az.InferenceData:
        """The draws, or what was released, as an ArviZ container.

        Without `auxiliary`, the parameters alone: no draws that only serve comparisons.
        """
        return self.groups(auxiliary=auxiliary).to_arviz()

    @abstractmethod
    def groups(self, *, auxiliary: bool = True) -> Groups:
        """The groups of that container; files have these."""

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """What a file says besides the arrays of `groups`, as JSON."""

    @classmethod
    @abstractmethod
    def from_groups(cls, data: Arrays, document: dict[str, Any]) -> BasePosterior:
        """Read back what `groups` and `document` gave."""

    def save(self, path: str | Path) -> None:
        """Write a netCDF file that `load_posterior` and ArviZ read."""
        check_folder(path)
        file.write(path, self.kind, self.document(), self.groups())


class FittedPosterior(BasePosterior):
    """What was simulated; `info` says how."""

    info: Fit

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know before trusting the numbers."""
        return self.info.warnings

    @property
    def sources(self) -> tuple[str, ...]:
        """The data sets behind it."""
        return self.info.datasets

    @property
    def signatures(self) -> tuple[str, ...]:
        """What is known of the signature of each Release."""
        return self.info.signatures

    def _origin(self) -> dict[str, Any]:
        """Where the numbers come from, as plain data."""
        names = ("method", "noise_aware", "estimand", "n", "claims", "signatures", "warnings")
        found = {name: getattr(self.info, name) for name in names}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in found.items()}


class ReleasedPosterior(BasePosterior):
    """What is read as it was released, without a fit."""

    release: Any

    @property
    def sources(self) -> tuple[str, ...]:
        """The data set behind it."""
        return (self.release.schema.dataset,)

    @property
    def signatures(self) -> tuple[str, ...]:
        """What is known of the Release's signature."""
        return (in_words(self.release.signature),)

    def document(self) -> dict[str, Any]:
        """The Release, from which everything follows, and whose signature the reader found."""
        signature = self.release.signature
        checked = "" if signature is None else signature.checked_for
        return {"release": self.release.to_text(), **({"checked_for": checked} if checked else {})}

    @staticmethod
    def _release_in(document: dict[str, Any], kind: type[Any]) -> Any:
        """Read back what `document` gave."""
        release = kind.from_text(document["release"])
        return signed_for(release, text(document.get("checked_for", ""), "checked_for"))


# --- two posteriors beside each other: where they differ, and how sure that is --------------------


def compare(
    first: BasePosterior,
    second: BasePosterior,
    level: float = 0.95,
    *,
    independent: bool | None = None,
) -> SummaryTable:
    """Put two posteriors side by side, parameter by parameter.

    Of posteriors from different people, such as two regions or two years, the difference second
    minus first is shown with its interval, and the probability that it is above zero: draws of the
    two are independent. Of posteriors that share people, such as one Release fitted by two methods,
    they are not, and only medians, intervals and widths are compared.

    Parameters
    ----------
    first, second : posteriors with draws, of the same kind
    level : float
    independent : bool, optional
        Whether they are of different people. By default, whether their data sets have different
        names.

    Returns
    -------
    SummaryTable
        One line for every parameter that both have; `to_frame` makes it a data frame.
    """
    level = probability("level", level)
    for name, given in (("first", first), ("second", second)):
        if not isinstance(given, BasePosterior):
            raise RequestError(f"{name}: expected a posterior, got {type(given).__name__}")
    if first.kind != second.kind:
        raise RequestError(
            f"compare: a {first.kind} and a {second.kind} are of different kinds; compare like "
            "with like"
        )
    mine, theirs = first.parameter_draws(), second.parameter_draws()
    shared = [name for name in mine if name in theirs]
    if not shared:
        raise RequestError("compare: the two posteriors have no parameter in common")
    if independent is None:
        known = bool(first.sources and second.sources)
        independent = known and not set(first.sources) & set(second.sources)
    rng = np.random.default_rng(0)  # pairs up independent draws, in whatever order
    percent, rows = f"{100 * level:g}%", {}

    def ends(label: str, draws: FloatArray) -> dict[str, float]:
        low, high = central_interval(draws, level)
        return {f"{label}_{percent}_low": low, f"{label}_{percent}_high": high}

    for name in shared:
        a, b = mine[name].reshape(-1), theirs[name].reshape(-1)
        line: dict[str, object] = {
            "name": name,
            "first": float(np.median(a)),
            "second": float(np.median(b)),
        }
        line |= ends("first", a) | ends("second", b)
        if independent:
            size = max(len(a), len(b))
            gap = np.resize(rng.permutation(b), size) - np.resize(rng.permutation(a), size)
            line |= {"difference": float(np.median(gap)), **ends("difference", gap)}
            line["prob_above_zero"] = float(np.mean(gap > 0))
        else:
            own, other = (float(np.diff(central_interval(x, level))[0]) for x in (a, b))
            line["times_as_wide"] = other / own if own > 0 else float("nan")
        rows[name] = line
    return SummaryTable(rows, level)
