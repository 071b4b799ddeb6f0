"""What an analyst gets from a summary Release, and what is refused with which reason."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from noisewise.analyst.posterior.statements import bounds_on_one, read_statement
from noisewise.analyst.posterior.summary import SummaryPosterior
from noisewise.core import normal_laplace
from noisewise.core.design import Design
from noisewise.core.errors import RequestError
from noisewise.core.kinds.summary.mechanisms import (
    CELLS,
    CauchyBase,
    ClippedMean,
    Fisher,
    Flat,
    LocationItem,
    LocationScale,
    Mean,
    QuantileItem,
    Question,
    RescaledNormal,
    Sign,
    Stouffer,
    entries_of,
    sensitivity_of,
)
from noisewise.core.kinds.summary.release import MeanNoise, MedianNoise, SummaryRelease, SummedNoise
from noisewise.core.privacy import Claim, PureEvent
from noisewise.core.schema import Schema, Unbounded

ASKED = (Question("x1", 0.0), Question("x2", 1.5))
ASKING = {
    "sign": Sign(ASKED),
    "stouffer": Stouffer(ASKED, 1.2),
    "rescaled_normal": RescaledNormal(ASKED),
    "fisher": Fisher(ASKED, 0.2),
}
BOUNDS = (-10, 10)
QUANTILES = ClippedMean(tuple(QuantileItem("x1", p, *BOUNDS) for p in (0.05, 0.5, 0.95)))
MEDIANS = LocationScale((LocationItem("x1", CauchyBase(0, 1), CauchyBase(0, 2)),))
MIDDLE = {"fisher": -2 * math.log(0.5), "rescaled_normal": 0.5}


def cell_of(base, value):
    return int((0.5 + math.atan((value - base.centre) / base.scale) / math.pi) * CELLS)


def release_of(mechanism, means=(), *, n=1_000_000, M=1000, r=30, epsilon=Fraction(1), rows=1):
    """A Release with these means of ψ (or with this location and scale)."""
    schema = Schema(
        "people", {name: Unbounded() for name in ("x1", "x2", "y")}, "replace_one", rows
    )
    if isinstance(mechanism, LocationScale):
        (item,) = mechanism.items
        location, scale = means
        cells = cell_of(item.location, location), cell_of(item.log_scale, math.log(scale))
        noise = MedianNoise(epsilon * Fraction(9, 10), epsilon / 10, rows)
        values = cells
    else:
        sensitivity = sensitivity_of(mechanism, r, rows)
        noise = SummedNoise(math.ceil(sensitivity / epsilon), sensitivity)
        means = means or (MIDDLE.get(mechanism.name, 0.0),) * len(entries_of(mechanism))
        values = tuple(round(m * M * r * 2**mechanism.fraction_bits) for m in means)
    return SummaryRelease(
        design=Design(schema, ("x1", "x2"), "y"),
        n=n,
        blocks=M,
        partitions=r,
        mechanism=mechanism,
        posterior=Flat(),
        values=values,
        noise=noise,
        claim=Claim(epsilon),
        event=PureEvent(epsilon),
    )


@pytest.mark.parametrize("name", ASKING)
def test_questions_are_answered_and_no_others(name):
    middle = {"fisher": fisher_mean(), "rescaled_normal": 0.5}.get(name, 0.0)
    up = (middle - 0.06 if name == "fisher" else middle + 0.02 if middle else 0.07, middle)
    posterior = SummaryPosterior(release_of(ASKING[name], up))
    p = posterior.prob("x1", "<", 0)
    assert 0.9 < p < 1
    assert posterior.prob("x1 < 0") == posterior.prob("x1", "<=", 0.0) == p
    assert posterior.prob("x1", ">", 0) == posterior.prob("x1>=0") == 1 - p
    assert posterior.prob("x2", "<", 1.5) != p
    with pytest.raises(RequestError, match=r"x1 < 0, x2 < 1.5.*by its mean"):
        posterior.prob("x1", "<", 0.1)
    for refused in (posterior.interval, posterior.quantile):
        with pytest.raises(RequestError, match=f"{name} has single probabilities.*by its mean"):
            refused("x1", 0.9)


@pytest.mark.parametrize("name", ASKING)
def test_an_even_release_says_one_half(name):
    posterior = SummaryPosterior(release_of(ASKING[name]))
    means = {"fisher": fisher_mean()}
    if name in means:
        posterior = SummaryPosterior(release_of(ASKING[name], (means[name],) * 2))
    assert posterior.prob("x1 < 0") == pytest.approx(0.5, abs=0.003)


def fisher_mean():
    from noisewise.analyst.summaries import laws

    return laws.fisher_moments(0.2).law.mean


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize("partitions", [1, 4])
def test_probabilities_are_uniform_at_the_truth(name, partitions):
    """Released sums of blocks of normal rows plus noise, at b = β; ignoring noise must fail."""
    from .test_summaries_laws import CASES, partition_averages

    mechanism = ASKING[name]
    case = {"stouffer": "stouffer 1.2", "fisher": "fisher 0.2"}.get(name, name)
    M, trials = 40, 400
    averages = partition_averages(CASES[case][0], M, partitions, trials, seed=21)
    rng = np.random.default_rng(22)
    aware, naive = [], []
    for average in averages:
        release = release_of(mechanism, (average, 0.5), M=M, r=partitions, n=4000)
        noisy = average + rng.laplace(0, release.mean_noise_scale)
        posterior = SummaryPosterior(release_of(mechanism, (noisy, 0.5), M=M, r=partitions, n=4000))
        aware.append(posterior.prob("x1 < 0"))
        naive.append(posterior.prob("x1", "<", 0, noise_aware=False))
    assert stats.kstest(aware, "uniform").pvalue > 1e-3
    assert stats.kstest(naive, "uniform").pvalue < 1e-3


def test_one_location_scale_release_answers_everything():
    posterior = SummaryPosterior(release_of(MEDIANS, (2.0, 0.1)))
    assert posterior.prob("x1 < 2") == pytest.approx(0.5, abs=1e-6)
    assert posterior.quantile("x1", 0.5) == pytest.approx(2, abs=1e-6)
    low, high = posterior.interval("x1", 0.9)
    assert posterior.prob("x1", "<", low) == pytest.approx(0.05)
    assert posterior.prob("x1", ">", high) == pytest.approx(0.05)
    assert high - low > 2 * 1.645 * 0.1  # wider than without noise
    assert posterior.prob("x1", "<", low, noise_aware=False) < 0.05
    narrow = posterior.interval("x1", 0.5)
    assert low < narrow[0] < narrow[1] < high
    with pytest.raises(RequestError, match="x1 only; ask the holder"):
        posterior.interval("x2")
    (row,) = posterior.summary(0.9).to_dict().values()
    assert (row["90%_low"], row["90%_high"]) == (low, high)


def test_clipped_means_give_their_quantiles():
    width = BOUNDS[1] - BOUNDS[0]
    means = tuple((q - BOUNDS[0]) / width for q in (1.8, 2.0, 2.2))
    release = release_of(QUANTILES, means)
    posterior = SummaryPosterior(release)
    assert posterior.quantile("x1", 0.05) == pytest.approx(1.8, abs=1e-5)
    low, high = posterior.interval("x1", 0.9)
    noise = release.mean_noise_scale * width
    assert low < 1.8 - noise / 10
    assert high > 2.2 + noise / 10
    assert (low + high) / 2 == pytest.approx(2, abs=1e-4)
    for ask in (lambda: posterior.quantile("x1", 0.25), lambda: posterior.interval("x1", 0.8)):
        with pytest.raises(RequestError, match=r"quantile 0.05 of x1, quantile 0.5 of x1"):
            ask()
    with pytest.raises(RequestError, match="quantiles only"):
        posterior.prob("x1 < 0")


def test_an_interval_allows_for_the_noisier_of_its_ends():
    uneven = ClippedMean((QuantileItem("x1", 0.05, 1.9, 2.1), QuantileItem("x1", 0.95, -100, 100)))
    low, high = SummaryPosterior(release_of(uneven, (0.5, 0.51))).interval("x1", 0.9)
    wide = ClippedMean(tuple(QuantileItem("x1", p, -100, 100) for p in (0.05, 0.95)))
    expected = SummaryPosterior(release_of(wide, (0.51, 0.51))).interval("x1", 0.9)
    assert high - low == pytest.approx(expected[1] - expected[0], rel=1e-3)


def test_statements_about_levels_with_signs_in_their_names():
    for text, bound in (("age[<30] >= -2", (">=", -2.0)), ("-2 < age[<30]", (">", -2.0))):
        assert bounds_on_one(read_statement(text, ["age[<30]"])) == ("age[<30]", [bound])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: p.prob("x9 < 0"), r"'x9' is neither a parameter \(intercept, x1, x2\)"),
        (lambda p: p.prob("x9", "<", 0), "'x9' is not one of the regression's: intercept, x1, x2"),
        (lambda p: p.prob("x1"), "true or false is wanted"),
        (lambda p: p.prob("x1", "==", 0), "operator"),
        (lambda p: p.prob("x1", "<", "a"), "threshold"),
        (lambda p: p.prob("x1", "<", math.nan), "threshold"),
        (lambda p: p.prob("x1", "<", True), "threshold"),
        (lambda p: p.interval("x1", 90), "level"),
        (lambda p: p.quantile("x1", 0), "p: expected"),
        (lambda p: p.summary(95), "level"),
    ],
)
def test_arguments_are_checked(ask, message):
    posterior = SummaryPosterior(release_of(MEDIANS, (2.0, 0.1)))
    with pytest.raises(RequestError, match=message):
        ask(posterior)


def test_only_block_summaries_are_read():
    with pytest.raises(RequestError, match="expected a block summary, got str"):
        SummaryPosterior("release")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"epsilon": Fraction(1, 10)}, ["kappa = .* 1.6"]),
        ({"n": 500_000}, ["off by 0.24 standard errors: .*mechanism mean"]),
        ({"n": 20_000}, ["about 20 rows, 45 are wanted", "off by 1.2 standard errors"]),
        ({"M": 9, "epsilon": Fraction(8)}, ["9 blocks are too few"]),
        ({"rows": 20}, ["kappa"]),
    ],
)
def test_warnings_come_from_public_quantities(changes, said):
    warnings = SummaryPosterior(release_of(ASKING["sign"], **changes)).warnings
    assert len(warnings) == len(said)
    for text, pattern in zip(warnings, said, strict=True):
        assert re.search(pattern, text)


MEANS = Mean(MEDIANS.items, 0.2, 4.0)


def means_of(location, total, size, M=1000, r=30):
    """A Release of a mean: a rough location, a range of ±4 about it, mean and mean distance."""
    (item,) = MEANS.items
    cells = cell_of(item.location, location), cell_of(item.log_scale, 0.0)
    sensitivity = sensitivity_of(MEANS, r, 1)
    one = M * r * 2**20
    release = release_of(MEDIANS, (2.0, 0.1), M=M, r=r)
    return replace(
        release,
        mechanism=MEANS,
        values=(*cells, round(total * one), round(size * one)),
        noise=MeanNoise(
            MedianNoise(Fraction(1, 20), Fraction(1, 20), 1),
            SummedNoise(math.ceil(sensitivity / Fraction(9, 10)), sensitivity),
        ),
    )


def test_a_mean_has_the_law_of_a_normal_variable_with_noise():
    """By hand: u is 1/40 on average, |u| 1/5, in a range of ±4 about 2."""
    posterior = SummaryPosterior(means_of(2.0, 1 / 40, 1 / 5))
    sd = math.sqrt(math.pi / 2) * 4 / 5 / math.sqrt(1000)
    noise = 4 * 2 / (1000 * 0.9)
    low, high = posterior.interval("x1", 0.9)
    assert (low + high) / 2 == pytest.approx(2.1)
    assert high - 2.1 == pytest.approx(float(normal_laplace.ppf(0.95, sd, noise)), rel=1e-3)
    assert posterior.prob("x1 < 2.1") == pytest.approx(0.5)
    assert posterior.prob("2 < x1 < 2.2") == pytest.approx(
        1 - 2 * float(normal_laplace.cdf(-0.1, sd, noise)), rel=1e-2
    )
    naive = posterior.interval("x1", 0.9, noise_aware=False)
    assert naive[1] - 2.1 == pytest.approx(1.645 * sd, rel=1e-3)
    assert posterior.warnings == ()


def test_what_a_mean_rests_on_is_computed_from_it():
    plain = SummaryPosterior(means_of(2.0, 0.001, 1 / 5)).to_dict()["rests_on"]
    skewed = SummaryPosterior(means_of(2.0, 0.1, 1 / 5)).to_dict()["rests_on"]
    assert "1,000 blocks of about 1,000 rows" in plain[0]
    assert "clipped 4.0 of their standard deviations" in plain[1]
    assert "so they are skewed" not in plain[1]
    assert "12.6 standard errors below their mean" in skewed[1]
    assert skewed[1].endswith("so they are skewed.")


def test_a_mean_distance_that_noise_has_drowned_is_no_certainty():
    """Zero or below it is the noise's own size: the interval stays as wide as the noise."""
    for size in (0.0, -0.1):
        low, high = SummaryPosterior(means_of(2.0, 0.0, size)).interval("x1", 0.9)
        assert high - low > 2 * 4 * 2 / (1000 * 0.9)


@pytest.mark.parametrize(
    ("size", "said"), [(0.005, "about 31 times too wide"), (0.9, "most blocks have no estimate")]
)
def test_a_range_that_does_not_suit_the_blocks_is_said(size, said):
    """Normal estimates in this range have a mean size of .156."""
    (warning,) = SummaryPosterior(means_of(2.0, 0.0, size)).warnings
    assert re.search(said, warning)


def test_claims_of_a_published_analysis():
    posterior = SummaryPosterior(means_of(2.0, 0.0, 1 / 5))
    found = posterior.verify(["x1 > 0", "1 < x1 < 3", "x1 < 1", "x1 > 2"]).rows.values()
    assert [row["verdict"] for row in found] == ["holds", "holds", "fails", "undecided"]
    signs = SummaryPosterior(release_of(ASKING["sign"]))
    assert signs.verify(["x1 < 0"]).rows["x1 < 0"]["verdict"] == "undecided"
    with pytest.raises(RequestError, match="no probability of lying between"):
        signs.verify(["-1 < x1 < 1"])
    for wrong in ("x1 > 0", []):
        with pytest.raises(RequestError, match="expected a list of statements"):
            posterior.verify(wrong)


def test_medians_with_little_budget_are_flagged():
    posterior = SummaryPosterior(release_of(MEDIANS, (2.0, 0.1), epsilon=Fraction(1, 25)))
    text = " ".join(posterior.warnings)
    assert "the location has epsilon x blocks = 36" in text
    assert "the scale has epsilon x blocks = 4" in text


@pytest.mark.parametrize("mechanism", [*ASKING.values(), QUANTILES, MEDIANS])
def test_everything_prints_and_goes_into_json(mechanism):
    means = {"location_scale": (2.0, 0.1)}.get(mechanism.name, ())
    posterior = SummaryPosterior(release_of(mechanism, means, epsilon=Fraction(1, 10)))
    text = str(posterior)
    assert mechanism.name in text
    assert "epsilon = 0.1" in text
    assert "Warning:" in text
    document = json.loads(json.dumps(posterior.to_dict()))
    assert document["answers"] == list(posterior.summary().to_dict().values())
    assert document["warnings"] == list(posterior.warnings)


def test_a_wild_scale_is_still_an_answer():
    far = LocationScale((LocationItem("x1", CauchyBase(0, 1), CauchyBase(0, 1e6)),))
    release = release_of(far, (0.0, 1.0))
    posterior = SummaryPosterior(replace(release, values=(5, CELLS - 1)))
    with np.errstate(all="raise", under="ignore"):
        assert posterior.prob("x1 < 0") == pytest.approx(0.5)
    assert all(math.isfinite(end) for end in posterior.interval("x1"))
