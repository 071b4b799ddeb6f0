"""What a plan says: widths by coefficient, mechanism and epsilon; answers to what was wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

SMALLEST, LARGEST = 1e-3, 100.0  # epsilons that are searched


@dataclass(frozen=True)
class PlanRow:
    """What to expect of one coefficient, in original units.

    Parameters
    ----------
    mechanism : str
    epsilon, delta : float
    name : str
        Of the coefficient.
    sd : float
        Of its posterior: the median over possible truths.
    half_width : float
        Of its central interval, likewise.
    half_width_low, half_width_high : float
        Points that a tenth of the possible truths are below, or above.
    half_width_non_private : float
        With the exact sums.
    privacy_share : float
        Share of the posterior variance that privacy noise causes.
    """

    mechanism: str
    epsilon: float
    delta: float
    name: str
    sd: float
    half_width: float
    half_width_low: float
    half_width_high: float
    half_width_non_private: float
    privacy_share: float


@dataclass(frozen=True)
class Answer:
    """Which epsilon an interval of a certain half-width needs.

    Parameters
    ----------
    name : str
    half_width : float
        Wanted.
    epsilon : mapping of str to float or None
        By mechanism; None if no epsilon up to 100 is enough, 0.001 if that is enough already.
    half_width_non_private : float
        With the exact sums. If that is wider than wanted, only more rows help.
    rows_needed : int or None
        Then, how many rows would do without any noise; None if not even all rows that a Release
        can hold.
    """

    name: str
    half_width: float
    epsilon: Mapping[str, float | None]
    half_width_non_private: float
    rows_needed: int | None

    def __str__(self) -> str:
        wanted = f"An interval of ±{self.half_width:g} on {self.name}"
        if self.half_width_non_private > self.half_width:
            rows = (
                "more rows than a Release can hold"
                if self.rows_needed is None
                else f"about {self.rows_needed:,} rows"
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
class Plan:
    """What Releases of several budgets would be worth."""

    n: int
    level: float
    truths: int
    rows: tuple[PlanRow, ...]
    answers: tuple[Answer, ...] = ()
    radius: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON and data frames."""
        return {
            "n": self.n,
            "level": self.level,
            "truths": self.truths,
            "radius": self.radius,
            "rows": [asdict(row) for row in self.rows],
            "answers": [{**asdict(a), "epsilon": dict(a.epsilon)} for a in self.answers],
        }

    def __str__(self) -> str:
        names = list(dict.fromkeys(row.name for row in self.rows))
        width = max(9, *(len(name) for name in names))
        lines = [
            f"Half-widths of {100 * self.level:g}% intervals to expect from {self.n:,} rows, in "
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
        return "\n".join([*lines, *(str(answer) for answer in self.answers)])
