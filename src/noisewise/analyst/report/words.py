"""What the numbers of a posterior mean, in sentences for readers who are no statisticians."""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

from ...core.design import DesignColumn
from ...core.schema import Category
from ..cautions import BAD_RHAT, ENOUGH_DRAWS, GOOD_RHAT
from ..posterior import Posterior
from ..summary import Summary
from .numbers import percent, rounded, short

FloatArray = NDArray[np.float64]
SURE, LIKELY = 0.975, 0.9
_SLACK_DELTA = 1e-6


def finding(posterior: Posterior, column: DesignColumn, level: float) -> str:
    """What one slope says about the target, with its interval and how sure its sign is."""
    draws = posterior.draws(column.name)
    mean, sd = float(draws.mean()), float(draws.std())
    low, high = posterior.interval(column.name, level)
    target = posterior.columns.target
    above = chance_above_zero(draws)
    more, chance = ("higher", above) if mean >= 0 else ("lower", 1 - above)
    if column.is_indicator:
        declared = posterior.columns.schema.columns[column.source]
        assert isinstance(declared, Category)
        start = f"{column.source}: {column.level} rather than {declared.reference} goes"
    else:
        start = f"{column.name}: one unit more goes"
    size = rounded(abs(mean), sd)
    if chance >= SURE:
        verdict = f"with {target} that is {more} by {size} on average"
    elif chance >= LIKELY:
        verdict = f"probably with {target} that is {more}, by {size} on average"
    else:
        verdict = f"with {target} that may be higher or lower: undecided"
    return (
        f"{start} {verdict} ({percent(level)} interval {rounded(low, sd)} to {rounded(high, sd)}; "
        f"probability that it is {more}: {percent(chance)})."
    )


def chance_above_zero(draws: FloatArray) -> float:
    """Probability of a positive value; a finite number of draws never makes it certain."""
    return (float(np.sum(draws > 0)) + 0.5) / (draws.size + 1)


def claim_in_words(claim: str) -> str:
    """What a privacy claim promises to one person; empty if it is of an unknown form."""
    epsilon = re.fullmatch(r"epsilon = ([0-9.e+-]+)(?:, delta = ([0-9.e+-]+))?", claim)
    rho = re.fullmatch(r"rho = ([0-9.e+-]+) \(zCDP\)", claim)
    try:
        if epsilon:
            value, delta = float(epsilon[1]), float(epsilon[2] or 0)
        elif rho:
            budget = float(rho[1])
            value = budget + 2 * math.sqrt(budget * math.log(1 / _SLACK_DELTA))
            delta = _SLACK_DELTA
        else:
            return ""
        factor = math.exp(value)
    except (ValueError, OverflowError):
        return ""
    start = f"At delta = {short(delta)} that is at most epsilon = {short(value)}. " if rho else ""
    slack = f", but for a slack of {short(delta)} in probability" if delta else ""
    return (
        f"{start}Any conclusion that somebody may draw from it is at most {short(factor, 3)} times "
        f"as likely as it would be, had one person's data been different{slack}."
    )


def unit_in_words(unit: str) -> str:
    """Who is protected, from a text such as ``"replace_one/5"``."""
    neighbours, _, rows = unit.partition("/")
    owned = "one row" if rows == "1" else f"up to {rows} rows"
    if neighbours == "replace_one":
        return f"what the data say of any one person, who owns {owned}"
    if neighbours == "add_remove_one":
        return f"whether any one person, who owns {owned}, is in the data at all"
    return "not stated in this file"


def convergence(posterior: Posterior, summary: Summary) -> list[str]:
    """Whether the simulation has settled, in plain words."""
    chains, draws = posterior.sigma2.shape
    rhat = max((row.rhat for row in summary.rows.values()), default=math.nan)
    ess = min((row.ess for row in summary.rows.values()), default=math.nan)
    said = [
        f"The posterior was simulated in {chains} independent run{'s' if chains > 1 else ''} of "
        f"{draws:,} draws."
    ]
    if chains == 1:
        said.append("A single run cannot show whether it has settled; several can.")
    elif math.isnan(rhat):
        said.append("Whether the runs agree could not be measured.")
    elif rhat <= GOOD_RHAT:
        said.append(f"The runs agree with each other: the largest R-hat is {rhat:.3f} ({GOOD_RHAT} "
                    "is the limit).")  # fmt: skip
    else:
        trust = "Do not use these numbers" if rhat > BAD_RHAT else "Run it longer to be sure"
        said.append(f"The runs do not agree yet: the largest R-hat is {rhat:.3f}, and {GOOD_RHAT} "
                    f"is the limit. {trust}.")  # fmt: skip
    if not math.isnan(ess):
        # A 2.5% quantile of a normal law has the standard error sqrt(p (1 - p) / ess) / density.
        error = math.sqrt(0.025 * 0.975 / ess) / 0.0584
        enough = "enough" if ess >= ENOUGH_DRAWS else f"too few; {ENOUGH_DRAWS} are wanted"
        said.append(
            f"Every number rests on at least {ess:,.0f} effectively independent draws ({enough}), "
            f"so the ends of 95% intervals are known to about {percent(error)} of a posterior "
            "standard deviation."
        )
    diverging = posterior.sample_stats.get("diverging")
    if diverging is not None:
        count = int(np.sum(diverging))
        failed = "No step" if count == 0 else f"{count:,} of {diverging.size:,} steps"
        said.append(f"{failed} of the sampler failed.")
    return said


def price(share: float) -> str:
    """What a share of the variance means for the width of an interval."""
    left = math.sqrt(max(1.0 - share, 0.0))
    if left > 0.95:
        return "without the noise the interval would be about as wide"
    return f"without the noise the interval would be about {percent(left)} as wide"


def limits(posterior: Posterior) -> list[tuple[str, str]]:
    """What this analysis cannot say, each with a short name."""
    target = posterior.columns.target
    return [
        (
            "Associations, not causes.",
            "A coefficient compares people who differ in one feature and are alike in the others "
            "that are listed. It does not say what would happen if somebody changed.",
        ),
        (
            "Straight lines only.",
            "The file that was released holds sums of squares and products. They cannot show "
            "curves, outliers or errors that are larger for some people than for others, so none "
            "of that was checked.",
        ),
        (
            "Values were clipped to their public bounds before they were summed.",
            f"The analysis is of the clipped values of {target} and of the features.",
        ),
        (
            "The prior counts.",
            "The noisier the file, the more the prior decides. Compare its width with that of the "
            "posterior in the table, and see what another prior changes.",
        ),
        (
            "The holder is trusted",
            "to have summed the right rows, and to know how many rows a person may own. The digest "
            "finds damage; it is no signature.",
        ),
        (
            "This page may be published.",
            "It was made from the released file alone, so it tells nobody more about a person than "
            "that file does.",
        ),
    ]
