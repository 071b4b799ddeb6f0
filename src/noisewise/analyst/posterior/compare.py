"""Two posteriors beside each other: where they differ, and how sure that is."""

from __future__ import annotations

import numpy as np

from noisewise.analyst.arguments import probability
from noisewise.analyst.posterior.base import BasePosterior
from noisewise.analyst.posterior.numbers import SummaryTable, central_interval
from noisewise.core.errors import RequestError


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
    for name in shared:
        a, b = mine[name].reshape(-1), theirs[name].reshape(-1)
        low, high = central_interval(a, level), central_interval(b, level)
        line: dict[str, object] = {
            "name": name,
            "first": float(np.median(a)),
            "second": float(np.median(b)),
            f"first_{percent}_low": low[0],
            f"first_{percent}_high": low[1],
            f"second_{percent}_low": high[0],
            f"second_{percent}_high": high[1],
        }
        if independent:
            size = max(len(a), len(b))
            gap = np.resize(rng.permutation(b), size) - np.resize(rng.permutation(a), size)
            ends = central_interval(gap, level)
            line |= {
                "difference": float(np.median(gap)),
                f"difference_{percent}_low": ends[0],
                f"difference_{percent}_high": ends[1],
                "prob_above_zero": float(np.mean(gap > 0)),
            }
        else:
            width = low[1] - low[0]
            line["times_as_wide"] = (high[1] - high[0]) / width if width > 0 else float("nan")
        rows[name] = line
    return SummaryTable(rows, level)
