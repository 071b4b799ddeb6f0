"""Numbers that describe posteriors: lines of a summary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from noisewise import _html
from noisewise._arrays import FloatArray
from noisewise.analyst.arguments import probability
from noisewise.analyst.convergence import effective_draws, rhat
from noisewise.core.errors import RequestError
from noisewise.core.schema import Number, Unbounded

SIGMA2 = "sigma2"  # the error variance, in summaries, pictures and files
SIGMA, R2 = "sigma", "R2"  # the error's standard deviation; the share of variance explained
_NEGLIGIBLE = 1e-4


def round_step(declared: Number | Unbounded) -> float:
    """A difference worth talking about: 1, or a power of ten where bounds are far apart or near."""
    if isinstance(declared, Unbounded) or 1 <= declared.half_width <= 50:
        return 1.0
    if (declared.lower, declared.upper) == (0.0, 1.0):  # a yes or no
        return 1.0
    return 10.0 ** math.floor(math.log10(declared.half_width / 5))


@dataclass(frozen=True)
class Row:
    """One line of a summary.

    Where noise hides how much a feature varies, a slope has tails so long that mean and sd mean
    nothing. Median and spread always do.

    Parameters
    ----------
    median : float
    spread : float
        1.48 times the median distance from the median: the sd of a normal law of that width.
    lower, upper : float
        Ends of the central credible interval.
    rhat, ess : float
        R-hat, and effective draws of the middle or of the interval's ends, whichever are fewer.
    mean, sd : float
    all_rows_lower, all_rows_upper : float
        Ends of the interval for all rows, where some were moved within a Release's reach; else NaN.
    """

    median: float
    spread: float
    lower: float
    upper: float
    rhat: float
    ess: float
    mean: float
    sd: float
    all_rows_lower: float = math.nan
    all_rows_upper: float = math.nan

    @property
    def is_fixed(self) -> bool:
        """Whether the method takes the parameter for known: all draws are one number."""
        return self.sd == 0


@dataclass(frozen=True)
class Summary:
    """Posterior median, spread, credible interval and convergence, in original units."""

    rows: Mapping[str, Row]
    level: float

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Plain numbers, for JSON and data frames."""
        return {name: vars(row).copy() for name, row in self.rows.items()}

    def to_frame(self) -> Any:
        """A pandas data frame, one row a parameter."""
        return data_frame(self.to_dict())

    @property
    def has_all_rows(self) -> bool:
        """Whether some lines have an interval for all rows, too."""
        return not all(math.isnan(row.all_rows_lower) for row in self.rows.values())

    def _repr_html_(self) -> str:
        head = ["", "median", "spread", f"{100 * self.level:g}% interval", "rhat", "ess"]
        if self.has_all_rows:
            head.insert(4, "all rows")
        body = []
        for name, row in self.rows.items():
            low, high = (_or_dash(x, 0, ".5g") for x in (row.lower, row.upper))
            ends = "fixed" if row.is_fixed else f"{low} to {high}"
            others = ((row.spread, ".5g"), (row.rhat, ".3f"), (row.ess, ".0f"))
            spread, rhat, ess = (_or_dash(value, 0, form) for value, form in others)
            line = [name, f"{row.median:.5g}", spread, ends, rhat, ess]
            if self.has_all_rows:
                known = not math.isnan(row.all_rows_lower)
                line.insert(4, f"{row.all_rows_lower:.5g} to {row.all_rows_upper:.5g}" * known)
            body.append(line)
        return _html.table(head, body)

    def __str__(self) -> str:
        percent = f"{100 * self.level:g}%"
        width = max(9, *(len(name) for name in self.rows))
        # With a column for all rows others are narrower, so that most tables fit a terminal.
        room = 9 if self.has_all_rows else 12
        form = ".4g" if self.has_all_rows else ".5g"
        head = f"{'':{width}} {'median':>{room}} {'spread':>{room}} "
        head += f"{percent + ' interval':^{2 * room + 1}}"
        if self.has_all_rows:
            head += f" {'all rows':^{2 * room + 1}}"
        lines = [f"{head} {'rhat':>6} ess"]
        for name, row in self.rows.items():
            if row.is_fixed:
                lines.append(f"{name:{width}} {row.median:>{room}{form}} {'fixed':>{room}}")
                continue
            shown = [row.median, row.spread, row.lower, row.upper]
            numbers = [_or_dash(x, room, form) for x in shown]
            if self.has_all_rows:
                known = not math.isnan(row.all_rows_lower)
                ends = (row.all_rows_lower, row.all_rows_upper)
                numbers += [f"{x:>{room}{form}}" if known else " " * room for x in ends]
            quality = f"{_or_dash(row.rhat, 6, '.3f')} {_or_dash(row.ess, 0, '.0f')}"
            lines.append(f"{name:{width}} {' '.join(numbers)} {quality}")
        return "\n".join(lines)


def _or_dash(value: float, width: int, form: str) -> str:
    """A number, or a dash where there is none."""
    return f"{'-' if math.isnan(value) else format(value, form):>{width}}"


@dataclass(frozen=True)
class SummaryTable:
    """Answers that are no parameters with draws: one line each, with columns of their own.

    Parameters
    ----------
    rows : mapping of str to mapping
        By what was asked; the same columns in each, in order.
    level : float
    """

    rows: Mapping[str, Mapping[str, Any]]
    level: float

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Plain numbers, for JSON and data frames."""
        return {name: dict(row) for name, row in self.rows.items()}

    def to_frame(self) -> Any:
        """A pandas data frame, one row an answer."""
        return data_frame(self.to_dict())

    def _lines(self) -> list[list[str]]:
        """A head, and the cells of every line."""
        rows = list(self.rows.values())
        columns = list(rows[0])
        shown = [[_shown(name, row[name]) for name in columns] for row in rows]
        return [[name.replace("_", " ") for name in columns], *shown]

    def _repr_html_(self) -> str:
        head, *body = self._lines()
        return _html.table(head, body)

    def __str__(self) -> str:
        lines = self._lines()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        adjusted = [
            [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in lines
        ]
        return "\n".join("  ".join(line).rstrip() for line in adjusted)


def _shown(name: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if name.startswith("prob") or name == "ignoring_noise":
        # Nothing in the approximations is right to more than this.
        if value < _NEGLIGIBLE:
            return f"< {_NEGLIGIBLE:g}"
        if value > 1 - _NEGLIGIBLE:
            return f"> {1 - _NEGLIGIBLE:g}"
        return f"{value:.4f}"
    return f"{value:.5g}"


@dataclass(frozen=True)
class ComparisonRow:
    """One parameter, as the naive posterior sees it and as another does.

    `width_ratio` is how many times as wide as the naive interval the other one is; NaN for a
    parameter that the other method takes for known. `privacy_share` is the share of the posterior
    variance that is due to privacy noise; NaN for sigma2, and where the method can't tell.
    """

    naive_median: float
    naive_spread: float
    naive_lower: float
    naive_upper: float
    median: float
    spread: float
    lower: float
    upper: float
    width_ratio: float
    privacy_share: float


@dataclass(frozen=True)
class Comparison:
    """What ignoring the noise would have claimed, and what privacy cost.

    Of `method` beside the naive posterior; `ignores` says which part of the noise that method
    ignores itself, and is empty if none.
    """

    rows: Mapping[str, ComparisonRow]
    level: float
    method: str = ""
    ignores: str = ""

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Plain numbers, for JSON and data frames."""
        return {name: vars(row).copy() for name, row in self.rows.items()}

    def __str__(self) -> str:
        width = max(9, *(len(name) for name in self.rows))
        percent = f"{100 * self.level:g}% interval"
        heading = f"{self.method if self.ignores else 'noise-aware'} {percent}"
        lines = [
            f"{'':{width}} {'naive ' + percent:^23} {heading:^26} "
            f"{'times':>8} {'due to privacy':>14}"
        ]
        for name, row in self.rows.items():
            share = "" if np.isnan(row.privacy_share) else f"{100 * row.privacy_share:.0f}%"
            naive = f"{name:{width}} {row.naive_lower:>11.4g} {row.naive_upper:>11.4g}"
            if row.lower == row.upper:
                lines.append(f"{naive} {'fixed at':>12} {row.median:>13.4g}")
                continue
            lines.append(
                f"{naive} {row.lower:>12.4g} {row.upper:>13.4g} {row.width_ratio:>8.2f} {share:>14}"
            )
        if self.ignores:
            lines.append(f"{self.method} ignores {self.ignores}.")
        return "\n".join(lines)


def data_frame(values: Mapping[str, Any], orient: str = "index") -> Any:
    """Rows by name as a pandas data frame, or columns."""
    try:
        return import_module("pandas").DataFrame.from_dict(dict(values), orient=orient)
    except ImportError:
        raise RequestError(
            "to_frame: pandas is not installed; install it with 'pip install pandas', or use "
            "to_dict, or `noisewise show --draws draws.csv`"
        ) from None


def row_of(draws: FloatArray, level: float) -> Row:
    """Describe draws of shape (chains, draws); diagnostics are NaN where they mean nothing."""
    middle, ends = median_and_spread(draws), central_interval(draws, level)
    varies = draws.shape[1] >= 4 and bool(draws.min() < draws.max())
    agree = rhat(draws) if varies and draws.shape[0] > 1 else math.nan
    ess = effective_draws(draws) if varies else math.nan
    # Without the rounding errors that would give a constant a spread.
    constant = draws.size > 1 and draws.min() == draws.max()
    mean = float(draws.flat[0] if constant else draws.mean())
    sd = math.nan if draws.size == 1 else 0.0 if constant else float(draws.std(ddof=1))
    return Row(*middle, *ends, agree, ess, mean, sd)


def median_and_spread(draws: FloatArray) -> tuple[float, float]:
    """Median, and 1.48 times the median distance from it."""
    median = float(np.median(draws))
    return median, 1.4826 * float(np.median(np.abs(draws - median)))


def comparison_row(
    naive: FloatArray, aware: FloatArray, share: float, level: float
) -> ComparisonRow:
    """Describe draws of one parameter under both posteriors."""
    naive_ends, ends = central_interval(naive, level), central_interval(aware, level)
    width, naive_width = ends[1] - ends[0], naive_ends[1] - naive_ends[0]
    return ComparisonRow(
        *median_and_spread(naive),
        *naive_ends,
        *median_and_spread(aware),
        *ends,
        width_ratio=width / naive_width if width > 0 and naive_width > 0 else float("nan"),
        privacy_share=share,
    )


def central_interval(draws: FloatArray, level: float) -> tuple[float, float]:
    """The interval that leaves half of 1 - level on either side."""
    level = probability("level", level)
    lower, upper = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(lower), float(upper)
