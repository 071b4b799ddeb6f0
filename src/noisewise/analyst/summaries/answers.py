"""From a summary Release to numbers: each mechanism's report, fed with what the Release says."""

from __future__ import annotations

import math
from typing import NamedTuple

from noisewise.analyst.summaries import fisher, location_scale, rescaled_normal, sign, stouffer
from noisewise.core.errors import RequestError
from noisewise.core.summary import (
    Asking,
    ClippedMean,
    Fisher,
    LocationItem,
    LocationScale,
    RescaledNormal,
    Stouffer,
)
from noisewise.core.summary_release import MedianNoise, SummaryRelease


def below(release: SummaryRelease, index: int, noise_aware: bool = True) -> float:
    """P(coefficient ≤ threshold) for one question of the Release.

    Without `noise_aware` the released number is taken for the exact one.
    """
    mechanism, mean = asking(release), release.mean(index)
    M, r = release.blocks, release.partitions
    noise = release.mean_noise_scale if noise_aware else 0.0
    if isinstance(mechanism, RescaledNormal):
        if not noise_aware:
            return float(rescaled_normal.plug_in(mean, M))
        return float(rescaled_normal.probability(mean, M, r, noise))
    if isinstance(mechanism, Stouffer):
        return float(stouffer.probability(mean, mechanism.clip, M, r, noise))
    if isinstance(mechanism, Fisher):
        return float(fisher.probability(mean, mechanism.p_star, M, r, noise))
    return float(sign.probability(mean, M, r, noise))


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
    law: location_scale.Reference

    def below(self, b: float, noise_aware: bool = True) -> float:
        """P(coefficient ≤ b)."""
        return float(
            location_scale.probability(b, self.location, self.scale, self._law(noise_aware))
        )

    def quantile(self, p: float, noise_aware: bool = True) -> float:
        """The p-quantile."""
        return float(location_scale.quantile(p, self.location, self.scale, self._law(noise_aware)))

    def _law(self, noise_aware: bool) -> location_scale.Reference:
        return self.law if noise_aware else self.law._replace(noise=0.0)


def median(release: SummaryRelease, index: int) -> Median:
    """Location and scale of one coefficient of a location-scale Release."""
    assert isinstance(release.mechanism, LocationScale)
    item: LocationItem = release.mechanism.items[index]
    where, how_wide = release.values[2 * index : 2 * index + 2]
    log_scale = item.log_scale.value(how_wide)
    # A wild draw of the scale is still an answer: everything is then equally probable.
    scale = math.exp(min(max(log_scale, -600.0), 600.0))
    law = location_scale.reference(release.blocks, release.partitions, rank_epsilon(release))
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
