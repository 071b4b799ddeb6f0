"""Numbers that describe draws: one line a parameter, and two posteriors side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .arguments import probability

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """One line of a summary."""

    mean: float
    sd: float
    lower: float
    upper: float
    rhat: float
    ess: float


@dataclass(frozen=True)
class Summary:
    """Posterior mean, sd, central credible interval and convergence, in original units."""

    rows: Mapping[str, Row]
    level: float

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Plain numbers, for JSON and data frames."""
        return {name: vars(row).copy() for name, row in self.rows.items()}

    def __str__(self) -> str:
        percent = f"{100 * self.level:g}%"
        width = max(9, *(len(name) for name in self.rows))
        head = f"{'':{width}} {'mean':>12} {'sd':>12} {percent + ' interval':^25} {'rhat':>6} ess"
        lines = [head]
        for name, row in self.rows.items():
            interval = f"{row.lower:>12.5g} {row.upper:>12.5g}"
            lines.append(
                f"{name:{width}} {row.mean:>12.5g} {row.sd:>12.5g} {interval} {row.rhat:>6.3f}"
                f" {row.ess:.0f}"
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class ComparisonRow:
    """One parameter, as the naive and as the noise-aware posterior see it.

    Parameters
    ----------
    naive_mean, naive_sd, naive_lower, naive_upper : float
    mean, sd, lower, upper : float
    sd_ratio : float
        How many times the naive standard deviation the honest one is.
    privacy_share : float
        Share of the noise-aware posterior variance that is due to privacy noise. NaN for sigma2.
    """

    naive_mean: float
    naive_sd: float
    naive_lower: float
    naive_upper: float
    mean: float
    sd: float
    lower: float
    upper: float
    sd_ratio: float
    privacy_share: float


@dataclass(frozen=True)
class Comparison:
    """What ignoring the noise would have claimed, and what privacy cost."""

    rows: Mapping[str, ComparisonRow]
    level: float

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Plain numbers, for JSON and data frames."""
        return {name: vars(row).copy() for name, row in self.rows.items()}

    def __str__(self) -> str:
        width = max(9, *(len(name) for name in self.rows))
        percent = f"{100 * self.level:g}% interval"
        lines = [
            f"{'':{width}} {'naive ' + percent:^23} {'noise-aware ' + percent:^25} "
            f"{'sd ratio':>8} {'due to privacy':>14}"
        ]
        for name, row in self.rows.items():
            share = "" if np.isnan(row.privacy_share) else f"{100 * row.privacy_share:.0f}%"
            lines.append(
                f"{name:{width}} {row.naive_lower:>11.4g} {row.naive_upper:>11.4g} "
                f"{row.lower:>12.4g} {row.upper:>12.4g} {row.sd_ratio:>8.2f} {share:>14}"
            )
        return "\n".join(lines)


def row_of(draws: FloatArray, level: float) -> Row:
    """Describe draws of shape (chains, draws); diagnostics are NaN where they mean nothing."""
    import arviz as az

    lower, upper = central_interval(draws, level)
    varies = draws.shape[1] >= 4 and bool(draws.min() < draws.max())
    several = varies and draws.shape[0] > 1
    return Row(
        mean=float(draws.mean()),
        sd=float(draws.std(ddof=1)) if draws.size > 1 else float("nan"),
        lower=lower,
        upper=upper,
        rhat=float(az.rhat(draws)) if several else float("nan"),
        ess=_effective_draws(draws) if varies else float("nan"),
    )


def _effective_draws(draws: FloatArray) -> float:
    """Effective sample size, of the middle or of the interval's ends, whichever is smaller."""
    import arviz as az

    return float(min(az.ess(draws, method="bulk"), az.ess(draws, method="tail")))


def comparison_row(
    naive: FloatArray, aware: FloatArray, share: float, level: float
) -> ComparisonRow:
    """Describe draws of one parameter under both posteriors."""
    naive_sd, sd = float(naive.std(ddof=1)), float(aware.std(ddof=1))
    return ComparisonRow(
        float(naive.mean()),
        naive_sd,
        *central_interval(naive, level),
        float(aware.mean()),
        sd,
        *central_interval(aware, level),
        sd_ratio=sd / naive_sd,
        privacy_share=share,
    )


def central_interval(draws: FloatArray, level: float) -> tuple[float, float]:
    """The interval that leaves half of 1 - level on either side."""
    level = probability("level", level)
    lower, upper = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(lower), float(upper)
