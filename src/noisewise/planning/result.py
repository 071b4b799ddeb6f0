"""What a plan says: widths by coefficient, mechanism and epsilon; answers to what was wanted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from noisewise import _html, _palette
from noisewise.core.design import MAX_ROWS
from noisewise.core.errors import RequestError

SMALLEST, LARGEST = 1e-3, 100.0  # epsilons that are searched


def check_rows_and_level(n: int, level: float, counted: str = "rows") -> None:
    """Refuse what no plan can be for."""
    if isinstance(n, bool) or int(n) != n or not 1 <= n <= MAX_ROWS:
        raise RequestError(f"n: expected a number of {counted} up to {MAX_ROWS:,}, got {n!r}")
    if not 0 < level < 1:
        raise RequestError(f"level: expected a probability such as 0.95, got {level!r}")


@dataclass(frozen=True)
class PlanRow:
    """What to expect of one coefficient, in original units."""

    mechanism: str
    epsilon: float
    delta: float
    name: str  # of the coefficient
    sd: float  # of its posterior: the median over possible truths
    half_width: float  # of its central interval, likewise
    # Points that a tenth of the possible truths are below, or above
    half_width_low: float
    half_width_high: float
    half_width_non_private: float  # with the exact sums
    privacy_share: float  # share of the posterior variance that privacy noise causes


@dataclass(frozen=True)
class Answer:
    """Which epsilon an interval of a certain half-width needs."""

    name: str
    half_width: float  # wanted
    # By mechanism; None if no epsilon up to 100 is enough, 0.001 if that is enough already
    epsilon: Mapping[str, float | None]
    # With the exact sums. If that is wider than wanted, only more rows help.
    half_width_non_private: float
    # Then, how many rows would do without any noise; None if not even all rows that a Release can
    # hold
    rows_needed: int | None
    counted: str = "rows"  # what they are: rows, or people where rows have ids

    def __str__(self) -> str:
        wanted = f"An interval of ±{self.half_width:g} on {self.name}"
        if self.half_width_non_private > self.half_width:
            rows = (
                f"more {self.counted} than a Release can hold"
                if self.rows_needed is None
                else f"about {self.rows_needed:,} {self.counted}"
            )
            return (
                f"{wanted} is out of reach: without any noise it would be "
                f"±{self.half_width_non_private:.3g}. It takes {rows}."
            )
        parts = []
        for mechanism, epsilon in self.epsilon.items():
            if epsilon is None:
                parts.append(f"more than {LARGEST:g} with {mechanism}")
            elif epsilon <= SMALLEST:
                parts.append(f"less than {SMALLEST:g} with {mechanism}: the prior says it already")
            else:
                parts.append(f"about {epsilon:.2g} with {mechanism}")
        return f"{wanted} needs epsilon {', '.join(parts)}."


@dataclass(frozen=True)
class Verdict:
    """What to expect in a sentence."""

    # The best of those planned
    mechanism: str
    epsilon: float
    effect: float  # in standard deviations of the target, by one of a number or by a level
    # By coefficient: the probability that an interval shows the sign of such an effect, the median
    # over possible truths
    chances: Mapping[str, float]
    # What half the width would need; None if no epsilon up to 100 is enough
    half_width_epsilon: float | None
    half_width_rows: int | None  # or so many rows; None if a thousand times as many aren't enough
    counted: str = "rows"  # what they are: rows, or people where rows have ids

    def __str__(self) -> str:
        least = sorted(self.chances.items(), key=lambda each: each[1])
        shown = ", ".join(f"{_chance(chance)} for {name}" for name, chance in least[:MOST_NAMED])
        more = f", and higher for {len(least) - MOST_NAMED} more" if len(least) > MOST_NAMED else ""
        ways = []
        if self.half_width_epsilon is not None:
            ways.append(f"epsilon about {self.half_width_epsilon:.2g}")
        if self.half_width_rows is not None:
            ways.append(f"about {self.half_width_rows:,} {self.counted}")
        none = f"more than any budget or number of {self.counted} can do"
        half = " or ".join(ways) if ways else none
        return (
            f"Verdict for epsilon = {self.epsilon:g} with {self.mechanism}: the sign of an effect "
            f"of {self.effect:g} standard deviations will show with probability {shown}{more}. "
            f"Half the width needs {half}."
        )


def _chance(value: float) -> str:
    if 0.01 <= value <= 0.99:
        return f"{value:.2f}"
    return "above 0.99" if value > 0.5 else "below 0.01"


MOST_NAMED = 6


@dataclass(frozen=True)
class Plan:
    """What Releases of several budgets would be worth."""

    n: int
    level: float
    truths: int
    rows: tuple[PlanRow, ...]
    answers: tuple[Answer, ...] = ()
    radius: float | None = None
    verdict: Verdict | None = None
    counted: str = "rows"  # or people, where rows have ids

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON and data frames."""
        return {
            "n": self.n,
            "counted": self.counted,
            "level": self.level,
            "truths": self.truths,
            "radius": self.radius,
            "rows": [asdict(row) for row in self.rows],
            "answers": [{**asdict(a), "epsilon": dict(a.epsilon)} for a in self.answers],
            "verdict": None if self.verdict is None else asdict(self.verdict),
        }

    @property
    def _from(self) -> str:
        averaged = "" if self.counted == "rows" else ", the rows of each averaged"
        return f"{self.n:,} {self.counted}{averaged}"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        head = ("coefficient", "mechanism", "epsilon", "half-width", "8 of 10 within")
        body = [
            (
                row.name, row.mechanism, f"{row.epsilon:g}", f"{row.half_width:.4g}",
                f"{row.half_width_low:.3g} to {row.half_width_high:.3g}",
                f"{row.half_width_non_private:.4g}", f"{100 * row.privacy_share:.0f}%",
            )
            for row in self.rows
        ]  # fmt: skip
        said = f"{100 * self.level:g}% intervals to expect from {self._from}, in original units"
        table = _html.table((*head, "exact sums", "due to privacy"), body, said)
        return table + _html.paragraphs(str(answer) for answer in self.answers)

    def __str__(self) -> str:
        names = list(dict.fromkeys(row.name for row in self.rows))
        width = max(9, *(len(name) for name in names))
        lines = [
            f"Half-widths of {100 * self.level:g}% intervals to expect from {self._from}, in "
            f"original units (medians over {self.truths} possible truths)",
            f"{'coefficient':{width}} {'mechanism':>10} {'epsilon':>8} {'half-width':>11} "
            f"{'(8 of 10 within)':^23} {'exact sums':>11} {'due to privacy':>14}",
        ]
        for name in names:
            for row in (row for row in self.rows if row.name == name):
                reach = f"{row.half_width_low:.3g} to {row.half_width_high:.3g}"
                lines.append(
                    f"{row.name:{width}} {row.mechanism:>10} {row.epsilon:8g} "
                    f"{row.half_width:11.4g} {reach:^23} {row.half_width_non_private:11.4g} "
                    f"{100 * row.privacy_share:13.0f}%"
                )
        if self.radius is not None:
            lines.append(
                f"All widths are for rows in a ball of radius {self.radius:g} on unit scale. The "
                "mechanism ball scales longer rows down, and coefficients are then those of the "
                "rows as scaled."
            )
        lines += [str(answer) for answer in self.answers]
        if self.verdict is not None:
            lines.append(str(self.verdict))
        return "\n".join(lines)


# --- the picture ----------------------------------------------------------------------------------


_NAMES = ("rounds", "laplace", "gaussian", "isometric", "ball")
COLOURS = dict(zip(_NAMES, (_palette.AWARE, *_palette.OTHERS), strict=False))
FORMATS = (".png", ".svg", ".pdf")
MOST_PANELS = 12


def draw_plan(plan: Plan, path: Path) -> None:
    """Draw a plan; the file's ending decides the format.

    Lines are medians over possible truths, bands hold eight of ten. The dashed line is what exact
    sums would give, a dotted one what is wanted. The first twelve coefficients are shown.
    """
    import matplotlib

    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    if path.suffix not in FORMATS:
        raise RequestError(f"out: {path.name!r} must end in {', '.join(FORMATS)}")
    names = list(dict.fromkeys(row.name for row in plan.rows))[:MOST_PANELS]
    wanted = {answer.name: answer.half_width for answer in plan.answers}
    across = min(3, len(names))
    down = math.ceil(len(names) / across)
    figure = Figure(figsize=(3.4 * across + 0.6, 2.7 * down + 0.8), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for axis in axes[len(names) :]:
        axis.set_axis_off()
    for axis, name in zip(axes, names, strict=False):
        rows = [row for row in plan.rows if row.name == name]
        mechanisms = list(dict.fromkeys(row.mechanism for row in rows))
        budgets = sorted({row.epsilon for row in rows})
        for i, mechanism in enumerate(mechanisms):
            points = sorted(
                (row for row in rows if row.mechanism == mechanism), key=lambda row: row.epsilon
            )
            # Of a single epsilon there is no band to fill: bars side by side.
            beside = 1.0 + 0.06 * (i - (len(mechanisms) - 1) / 2) if len(budgets) == 1 else 1.0
            x = [row.epsilon * beside for row in points]
            colour = COLOURS.get(mechanism, _palette.GREY)
            axis.plot(
                x, [row.half_width for row in points], color=colour, marker="o", label=mechanism
            )
            low = [row.half_width_low for row in points]
            high = [row.half_width_high for row in points]
            if len(budgets) == 1:
                axis.vlines(x, low, high, color=colour, alpha=0.3, linewidth=6)
            else:
                axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        exact = rows[0].half_width_non_private
        axis.axhline(exact, color="0.3", linestyle="--", linewidth=1, label="exact sums")
        if name in wanted:
            axis.axhline(wanted[name], color="0.3", linestyle=":", linewidth=1.5, label="wanted")
        axis.set(xscale="log", yscale="log", title=name, xlabel="epsilon")
        if len(budgets) == 1:
            axis.set_xlim(0.7 * budgets[0], budgets[0] / 0.7)
        axis.set_xticks(budgets, [f"{epsilon:g}" for epsilon in budgets])
        axis.xaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.7g}"))
        axis.yaxis.set_minor_locator(NullLocator())
    axes[0].set_ylabel(f"half-width of {100 * plan.level:g}% intervals")
    said = f"What a Release of {plan.n:,} {plan.counted} would be worth"
    figure.suptitle(f"{said} (bands: 8 of 10 within)")
    handles = {
        text: handle
        for axis in axes[: len(names)]
        for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, fontsize=8)
    figure.savefig(path, dpi=110)
