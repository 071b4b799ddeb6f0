"""From a summary Release to numbers: each mechanism's report, fed with what the Release says."""

from __future__ import annotations

import math
from typing import NamedTuple

from noisewise.analyst.summaries import laws
from noisewise.core.errors import RequestError
from noisewise.core.kinds.summary.mechanisms import (
    Asking,
    ClippedMean,
    Fisher,
    LocationItem,
    LocationScale,
    RescaledNormal,
    Stouffer,
)
from noisewise.core.kinds.summary.release import MedianNoise, SummaryRelease


def below(release: SummaryRelease, index: int, noise_aware: bool = True) -> float:
    """P(coefficient ≤ threshold) for one question of the Release.

    Without `noise_aware` the released number is taken for the exact one.
    """
    mechanism, mean = asking(release), release.mean(index)
    M, r = release.blocks, release.partitions
    noise = release.mean_noise_scale if noise_aware else 0.0
    if isinstance(mechanism, RescaledNormal) and not noise_aware:
        return float(laws.rescaled_normal_plug_in(mean, M))
    if isinstance(mechanism, Fisher):
        return float(laws.fisher(mean, mechanism.p_star, M, r, noise))
    law = laws.SIGN_LAW
    if isinstance(mechanism, RescaledNormal):
        law = laws.RESCALED_NORMAL_LAW
    elif isinstance(mechanism, Stouffer):
        law = laws.stouffer_law(mechanism.clip)
    return float(law.below(mean, M, r, noise))


def asking(release: SummaryRelease) -> Asking:
    """The mechanism, if it answers questions about thresholds."""
    mechanism = release.mechanism
    if isinstance(mechanism, LocationScale | ClippedMean):
        raise RequestError(f"{mechanism.name} answers no single questions")
    return mechanism


class Median(NamedTuple):
    """What a location-scale Release says on one coefficient."""

    location: float
    scale: float
    law: laws.Reference

    def below(self, b: float, noise_aware: bool = True) -> float:
        """P(coefficient ≤ b)."""
        return float(laws.median_probability(b, *self[:2], self._law(noise_aware)))

    def quantile(self, p: float, noise_aware: bool = True) -> float:
        """The p-quantile."""
        return float(laws.median_quantile(p, *self[:2], self._law(noise_aware)))

    def _law(self, noise_aware: bool) -> laws.Reference:
        return self.law if noise_aware else self.law._replace(noise=0.0)


def median(release: SummaryRelease, index: int) -> Median:
    """Location and scale of one coefficient of a location-scale Release."""
    assert isinstance(release.mechanism, LocationScale)
    item: LocationItem = release.mechanism.items[index]
    where, how_wide = release.values[2 * index : 2 * index + 2]
    log_scale = item.log_scale.value(how_wide)
    # A wild draw of the scale is still an answer: everything is then equally probable.
    scale = math.exp(min(max(log_scale, -600.0), 600.0))
    law = laws.median_law(release.blocks, release.partitions, rank_epsilon(release))
    return Median(item.location.value(where), scale, law)


def rank_epsilon(release: SummaryRelease) -> float:
    """Epsilon of one answer about the location, when one unit counts as one row.

    K questions share a budget, and so do the rows of a unit.
    """
    if isinstance(release.noise, MedianNoise):
        return float(release.noise.location_epsilon) / release.noise.sensitivity
    assert not isinstance(release.mechanism, LocationScale)
    span = release.mechanism.high - release.mechanism.low
    return span * release.partitions / release.noise.scale


# --- what a reader must know before trusting them, from public quantities only ----------------


ENOUGH_KAPPA = 4.0
ENOUGH_BLOCKS = 10
MEDIAN_NEEDS = 80  # ε M of each of the two medians, for fewer than 1e-5 wild draws


class Check(NamedTuple):
    """A public number beside what is wanted of it.

    Parameters
    ----------
    what : str
    here, wanted : float
        What there is, and the least that should be.
    why : str
        What happens below it.
    warning : str
        The same for somebody who has less.
    """

    what: str
    here: float
    wanted: float
    why: str
    warning: str


def checks(release: SummaryRelease) -> list[Check]:
    """Whether the approximations hold, as far as public numbers can tell."""
    epsilon, M = rank_epsilon(release), release.blocks
    kappa, coefficients = epsilon * math.sqrt(M), len(release.coefficients)
    found = [
        Check(
            "epsilon of one answer times the root of the number of blocks",
            kappa,
            ENOUGH_KAPPA,
            "or the noise drowns what the blocks say",
            f"the noise drowns most of what the blocks say (kappa = epsilon of an answer x "
            f"sqrt(blocks) = {kappa:.2g}, should be at least {ENOUGH_KAPPA:g}): probabilities stay "
            "near 1/2 and intervals are wide. They are honest, but ask for fewer answers, more "
            "blocks or a larger epsilon to learn more.",
        )
    ]
    if release.n is not None:
        needed = max(30, 15 * coefficients)  # below it a block's regression is too crude
        rows = release.n / M
        found.append(
            Check(
                "rows a block, about",
                rows,
                needed,
                "or the blocks' regressions are rough",
                f"blocks have about {rows:.0f} rows, {needed} are wanted for {coefficients} "
                "coefficients: the blocks' own regressions are rough.",
            )
        )
    found.append(
        Check(
            "blocks",
            M,
            ENOUGH_BLOCKS,
            "or they are too few for the central limit theorem",
            f"{M} blocks are too few for the central limit theorem: read probabilities below 0.05 "
            "and above 0.95 as a tendency only.",
        )
    )
    if isinstance(release.noise, MedianNoise):
        scale = float(release.noise.scale_epsilon) / release.noise.sensitivity
        found += [
            Check(
                f"epsilon of each {name} times the number of blocks",
                share * M,
                MEDIAN_NEEDS,
                f"or the {name} may be far off",
                f"the {name} has epsilon x blocks = {share * M:.3g}, at least {MEDIAN_NEEDS} is "
                "wanted: it may be far off, by more than intervals say.",
            )
            for name, share in (("location", epsilon), ("scale", scale))
        ]
    return found


def warnings_about(release: SummaryRelease) -> tuple[str, ...]:
    """What to warn of; empty when all is well."""
    return tuple(check.warning for check in checks(release) if check.here < check.wanted)


def remedy(release: SummaryRelease) -> str:
    """What to ask the holder for, where a Release has no answer."""
    if isinstance(release.mechanism, LocationScale):
        return "ask the holder for a location_scale release of that coefficient"
    return (
        "ask the holder for it, or for a location_scale release, which answers every threshold, "
        "interval and quantile at once"
    )
