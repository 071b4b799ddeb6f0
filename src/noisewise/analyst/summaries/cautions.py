"""What a reader must know before trusting a block summary, in plain words."""

from __future__ import annotations

import math

from noisewise.analyst.summaries.answers import rank_epsilon
from noisewise.core.summary import LocationScale
from noisewise.core.summary_release import MedianNoise, SummaryRelease

ENOUGH_KAPPA = 4.0
ENOUGH_BLOCKS = 10
MEDIAN_NEEDS, SCALE_NEEDS = 80, 80  # ε M of the two medians, for fewer than 1e-5 wild draws


def rows_needed(coefficients: int) -> int:
    """Rows of a block below which its regression is too crude; the intercept counts too."""
    return max(30, 15 * coefficients)


def warnings_about(release: SummaryRelease) -> tuple[str, ...]:
    """Warnings, from public quantities only."""
    found = []
    epsilon, M = rank_epsilon(release), release.blocks
    kappa = epsilon * math.sqrt(M)
    if kappa < ENOUGH_KAPPA:
        found.append(
            f"the noise drowns most of what the blocks say (kappa = epsilon of an answer x "
            f"sqrt(blocks) = {kappa:.2g}, should be at least {ENOUGH_KAPPA:g}): probabilities stay "
            "near 1/2 and intervals are wide. They are honest, but ask for fewer answers, more "
            "blocks or a larger epsilon to learn more."
        )
    needed = rows_needed(len(release.coefficients))
    if release.n is not None and release.n < needed * M:
        found.append(
            f"blocks have about {release.n / M:.0f} rows, {needed} are wanted for "
            f"{len(release.coefficients)} coefficients: the blocks' own regressions are rough."
        )
    if M < ENOUGH_BLOCKS:
        found.append(
            f"{M} blocks are too few for the central limit theorem: read probabilities below 0.05 "
            "and above 0.95 as a tendency only."
        )
    if isinstance(release.noise, MedianNoise):
        parts = (
            ("location", rank_epsilon(release), MEDIAN_NEEDS),
            ("scale", float(release.noise.scale_epsilon) / release.noise.sensitivity, SCALE_NEEDS),
        )
        for name, share, needs in parts:
            if share * M < needs:
                found.append(
                    f"the {name} has epsilon x blocks = {share * M:.3g}, at least {needs} is "
                    "wanted: it may be far off, by more than intervals say."
                )
    return tuple(found)


def remedy(release: SummaryRelease) -> str:
    """What to ask the holder for, where a Release has no answer."""
    if isinstance(release.mechanism, LocationScale):
        return "ask the holder for a location_scale release of that coefficient"
    return (
        "ask the holder for it, or for a location_scale release, which answers every threshold, "
        "interval and quantile at once"
    )
