"""Numbers that describe draws: one line a parameter, and two posteriors side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.arguments import probability


@dataclass(frozen=True)
class Row:
    """One line of a summary."""

    mean: float
    sd: float
    lower: float
    upper: float
    rhat: float
    ess: float

    @property
    def is_fixed(self) -> bool:
        """Whether the method takes the parameter for known: all draws are one number."""
        return self.sd == 0


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
            if row.is_fixed:
                lines.append(f"{name:{width}} {row.mean:>12.5g} {'fixed':>12}")
                continue
            interval = f"{row.lower:>12.5g} {row.upper:>12.5g}"
            lines.append(
                f"{name:{width}} {row.mean:>12.5g} {row.sd:>12.5g} {interval} {row.rhat:>6.3f}"
                f" {row.ess:.0f}"
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class ComparisonRow:
    """One parameter, as the naive posterior sees it and as another does.

    Parameters
    ----------
    naive_mean, naive_sd, naive_lower, naive_upper : float
    mean, sd, lower, upper : float
    sd_ratio : float
        How many times the naive standard deviation the other one is; NaN for a parameter that the
        other method takes for known.
    privacy_share : float
        Share of the posterior variance that is due to privacy noise. NaN for sigma2, and where the
        method can't tell.
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
    """What ignoring the noise would have claimed, and what privacy cost.

    Parameters
    ----------
    rows : mapping of str to ComparisonRow
    level : float
    method : str
        What is compared with the naive posterior.
    ignores : str
        Which part of the noise that method ignores itself; empty if none.
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
            f"{'sd ratio':>8} {'due to privacy':>14}"
        ]
        for name, row in self.rows.items():
            share = "" if np.isnan(row.privacy_share) else f"{100 * row.privacy_share:.0f}%"
            naive = f"{name:{width}} {row.naive_lower:>11.4g} {row.naive_upper:>11.4g}"
            if row.sd == 0:
                lines.append(f"{naive} {'fixed at':>12} {row.mean:>13.4g}")
                continue
            lines.append(
                f"{naive} {row.lower:>12.4g} {row.upper:>13.4g} {row.sd_ratio:>8.2f} {share:>14}"
            )
        if self.ignores:
            lines.append(f"{self.method} ignores {self.ignores}.")
        return "\n".join(lines)


def row_of(draws: FloatArray, level: float) -> Row:
    """Describe draws of shape (chains, draws); diagnostics are NaN where they mean nothing."""
    import arviz as az

    lower, upper = central_interval(draws, level)
    varies = draws.shape[1] >= 4 and bool(draws.min() < draws.max())
    several = varies and draws.shape[0] > 1
    mean, sd = _mean_and_sd(draws)
    return Row(
        mean=mean,
        sd=sd,
        lower=lower,
        upper=upper,
        rhat=float(az.rhat(draws)) if several else float("nan"),
        ess=_effective_draws(draws) if varies else float("nan"),
    )


def _mean_and_sd(draws: FloatArray) -> tuple[float, float]:
    """Without the rounding errors that would give a constant a spread."""
    if draws.size > 1 and draws.min() == draws.max():
        return float(draws.flat[0]), 0.0
    return float(draws.mean()), float(draws.std(ddof=1)) if draws.size > 1 else float("nan")


def _effective_draws(draws: FloatArray) -> float:
    """Effective sample size, of the middle or of the interval's ends, whichever is smaller."""
    import arviz as az

    return float(min(az.ess(draws, method="bulk"), az.ess(draws, method="tail")))


def comparison_row(
    naive: FloatArray, aware: FloatArray, share: float, level: float
) -> ComparisonRow:
    """Describe draws of one parameter under both posteriors."""
    naive_mean, naive_sd = _mean_and_sd(naive)
    mean, sd = _mean_and_sd(aware)
    return ComparisonRow(
        naive_mean,
        naive_sd,
        *central_interval(naive, level),
        mean,
        sd,
        *central_interval(aware, level),
        sd_ratio=sd / naive_sd if sd > 0 else float("nan"),
        privacy_share=share,
    )


def central_interval(draws: FloatArray, level: float) -> tuple[float, float]:
    """The interval that leaves half of 1 - level on either side."""
    level = probability("level", level)
    lower, upper = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(lower), float(upper)
