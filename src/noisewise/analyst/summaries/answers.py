"""From a summary Release to numbers: each mechanism's report, fed with what the Release says."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

from noisewise.analyst.summaries import laws
from noisewise.core import normal_laplace
from noisewise.core.errors import RequestError
from noisewise.core.kinds.summary.mechanisms import (
    Asking,
    ClippedMean,
    Fisher,
    Flat,
    LocationScale,
    Mean,
    RescaledNormal,
    Sign,
    Stouffer,
)
from noisewise.core.kinds.summary.release import MeanNoise, MedianNoise, SummaryRelease


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
    law = laws.RESCALED_NORMAL_LAW if isinstance(mechanism, RescaledNormal) else laws.SIGN_LAW
    if isinstance(mechanism, Stouffer):
        law = laws.stouffer_law(mechanism.clip)
    return float(law.below(mean, M, r, noise))


def asking(release: SummaryRelease) -> Asking:
    """The mechanism, if it answers questions about thresholds."""
    mechanism = release.mechanism
    if isinstance(mechanism, LocationScale | Mean | ClippedMean):
        raise RequestError(f"{mechanism.name} answers no single questions")
    return mechanism


class Located(NamedTuple):
    """What a Release of locations and scales says on one coefficient."""

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


def located(release: SummaryRelease, index: int) -> Located:
    """Location and scale of one coefficient, with the law about them."""
    if isinstance(release.mechanism, Mean):
        return _mean(release, release.mechanism, index)
    assert isinstance(release.mechanism, LocationScale)
    item = release.mechanism.items[index]
    where, how_wide = release.values[2 * index : 2 * index + 2]
    log_scale = item.log_scale.value(how_wide)
    # A wild draw of the scale is still an answer: everything is then equally probable.
    scale = math.exp(min(max(log_scale, -600.0), 600.0))
    law = laws.median_law(release.blocks, release.partitions, rank_epsilon(release))
    return Located(item.location.value(where), scale, law)


def _mean(release: SummaryRelease, mechanism: Mean, index: int) -> Located:
    middle, half = mechanism.range_of(index, *release.values[4 * index : 4 * index + 2])
    noise = release.mean_noise_scale
    # A mean distance below its own noise says nothing about how small it is.
    distance = max(release.mean(4 * index + 3), noise)
    scale = math.sqrt(math.pi / 2) * distance * half / math.sqrt(release.blocks)
    law = laws.Reference(1.0, noise * half / scale)
    return Located(middle + half * release.mean(4 * index + 2), scale, law)


def rank_epsilon(release: SummaryRelease) -> float:
    """Epsilon of one answer about the location, when one unit counts as one row.

    K questions share a budget, and so do the rows of a unit.
    """
    if isinstance(release.noise, MedianNoise):
        return float(release.noise.location_epsilon) / release.noise.sensitivity
    assert not isinstance(release.mechanism, LocationScale)
    noise = release.noise.sums if isinstance(release.noise, MeanNoise) else release.noise
    span = release.mechanism.high - release.mechanism.low
    return span * release.partitions / noise.scale


# --- what a reader must know before trusting them, from public quantities only ----------------


ENOUGH_KAPPA = 4.0
ENOUGH_BLOCKS = 10
LEAST_SIZE, LEAST_ROOM = 0.2, 0.4  # a range 5 times too wide; one that ends at 2.6 deviations
MEDIAN_NEEDS = 80  # ε M of each of the two medians, for fewer than 1e-5 wild draws


class Check(NamedTuple):
    """A public number beside what is wanted of it."""

    what: str
    here: float
    wanted: float  # the least that should be
    why: str  # what happens below it
    warning: str  # the same for somebody who has less


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
        # Below it a block's regression is too crude.
        line = release.model.is_least_squares
        needed = max(30, 15 * coefficients) if line else max(100, 30 * coefficients)
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
        if not isinstance(release.mechanism, Mean | ClippedMean):
            off = M / (6 * math.sqrt(release.n))
            found.append(
                Check(
                    "root of the number of rows over the number of blocks",
                    math.sqrt(release.n) / M,
                    1.0,
                    "or skewed errors bias the answer",
                    f"the answer rests on blocks whose estimates are as often too large as too "
                    f"small. For each unit of skewness of a row's influence it is off by {off:.2g} "
                    "standard errors: ask for a Release by the mean of blocks (mechanism mean).",
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
    if isinstance(release.mechanism, Mean):
        found += _range_checks(release, release.mechanism)
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


def _range_checks(release: SummaryRelease, mechanism: Mean) -> list[Check]:
    """Whether the range of every coefficient suits its blocks; a private draw may miss by far.

    Normal estimates, clipped at c standard deviations, have a mean size of √(2/π)/c of the range.
    """
    clip = mechanism.reach * NormalDist().inv_cdf(1 - mechanism.tail / 2)
    usual = math.sqrt(2 / math.pi) / clip
    found = []
    for index, item in enumerate(mechanism.items):
        size = max(release.mean(4 * index + 3), release.mean_noise_scale) / usual
        found += [
            Check(
                f"{item.coefficient}: mean distance of blocks' estimates, over the usual one for "
                "the range that they were averaged in",
                size,
                LEAST_SIZE,
                "or the range is so wide that only noise is left",
                f"{item.coefficient}: the range in which blocks' estimates were averaged is about "
                f"{1 / size:.0f} times too wide, by an accident of the private draw that found it. "
                "The answer is honest and nearly useless: another Release of it is needed.",
            ),
            Check(
                f"{item.coefficient}: the usual distance, over the mean one",
                1 / size,
                LEAST_ROOM,
                "or most blocks have no estimate, or one outside the range",
                f"{item.coefficient}: most blocks have no estimate (a level that hardly anybody "
                "has, for one), or estimates outside the range in which they were averaged: don't "
                "use this answer. Ask for larger blocks, or join rare levels with others.",
            ),
        ]
    return found


def warnings_about(release: SummaryRelease) -> tuple[str, ...]:
    """What to warn of; empty when all is well."""
    return tuple(check.warning for check in checks(release) if check.here < check.wanted)


def rests_on(release: SummaryRelease) -> tuple[str, ...]:
    """What the answers rest on, with this Release's numbers."""
    mechanism, M = release.mechanism, release.blocks
    rows = "an unknown number of" if release.n is None else f"about {release.n / M:,.0f}"
    said = []
    if isinstance(mechanism, Mean):
        said.append(
            f"The mean over {M:,} blocks of {rows} rows each is nearly normal, whether the errors "
            "are skewed or not, if no few blocks decide it."
        )
        for index, item in enumerate(mechanism.items):
            found = located(release, index)
            middle, half = mechanism.range_of(index, *release.values[4 * index : 4 * index + 2])
            away = (found.location - middle) / found.scale
            usual = _usual_distance(release, found.law.noise)
            said.append(
                f"{item.coefficient}: blocks' estimates were clipped "
                f"{half / (found.scale * math.sqrt(M)):.1f} of their standard deviations from a "
                f"rough median, which is {abs(away):.1f} standard errors "
                f"{'below' if away > 0 else 'above'} their mean; with symmetric estimates it would "
                f"be within {usual:.1f}{', so they are skewed' if abs(away) > usual else ''}."
            )
        if not release.model.is_least_squares and release.n is not None:
            said.append(
                f"Blocks of about {release.n / M:,.0f} rows are large enough for "
                f"{release.model.name}: what is left of the bias of small blocks, most of which "
                "their halves took away, falls with the square of that number."
            )
        return tuple(said)
    if isinstance(mechanism, ClippedMean):
        return (
            "Errors are normal with equal variances, as in an ordinary regression, and no block's "
            "quantile is outside the bounds.",
        )
    per = "" if release.n is None else f" ({M / (6 * math.sqrt(release.n)):.2g} here)"
    said.append(
        "Blocks' estimates are as often too large as too small: errors may have heavy tails, but "
        f"with skewness g of a row's influence the answer is off by g blocks / (6 sqrt(rows)){per} "
        "standard errors."
    )
    if not isinstance(mechanism, Sign | LocationScale) or not isinstance(release.posterior, Flat):
        said.append("Errors have equal variances: the blocks' own standard errors are used.")
    return tuple(said)


def _usual_distance(release: SummaryRelease, mean_noise: float) -> float:
    """95% of distances between the drawn median and the mean of normal estimates, in their SEs."""
    assert isinstance(release.noise, MeanNoise)
    medians = release.noise.medians
    epsilon = float(medians.location_epsilon) / medians.sensitivity
    sampling = math.sqrt((math.pi / 2 - 1) / release.partitions)
    noise = laws.median_law(release.blocks, release.partitions, epsilon).noise
    return float(normal_laplace.ppf(0.975, sampling, math.hypot(noise, mean_noise)))


def remedy(release: SummaryRelease) -> str:
    """What to ask the holder for, where a Release has no answer."""
    if isinstance(release.mechanism, LocationScale | Mean):
        return "ask the holder for a release of that coefficient"
    return (
        "ask the holder for it, or for a release of the coefficient by its mean, which answers "
        "every threshold, interval and quantile at once"
    )
