"""The report on block summaries: every mechanism, the posterior's numbers, hostile names."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

import noisewise as nw
from noisewise.analyst.posterior.summary import SummaryPosterior
from noisewise.analyst.report import render, write_report
from noisewise.analyst.report.words import chance, rounded, short
from noisewise.core.errors import RequestError
from noisewise.core.kinds.summary.mechanisms import (
    CELLS,
    CauchyBase,
    ClippedMean,
    Conjugate,
    GPrior,
    LocationItem,
    LocationScale,
    QuantileItem,
    Question,
    Sign,
)

from .report_examples import mechanisms, summary_release
from .report_pages import HOSTILE, Outline, assert_harmless

ASKING = ("sign", "stouffer", "rescaled_normal", "fisher")


def made(name="sign", **changes):
    return SummaryPosterior(summary_release(mechanisms()[name], **changes))


@pytest.mark.parametrize("name", mechanisms())
def test_a_page_has_everything_that_was_promised(name):
    posterior = made(name, rows=2, label="the label")
    outline = Outline(render(posterior))
    assert not outline.open
    for word in (
        "What it says", "What was released", "Model and prior", "Can the numbers be trusted?",
        "What it cannot say",
        "Reproduce and cite", "epsilon = 4", "54.6 times", "pure differential privacy",
        "replace_one", "up to 2 rows", f"{name}: ", "400 of about 400 rows", "10 times over",
        "income", "region[south]", "noisewise show release.json --level 0.95", "the label",
        posterior.release.digest, f"noisewise {nw.__version__}", "doi:10.29012/jpc.686",
        "gnor",  # what ignoring the noise would say
    ):  # fmt: skip
        assert word in outline.said, word


@pytest.mark.parametrize("name", ASKING)
def test_probabilities_are_those_of_the_posterior(name):
    posterior = made(name, epsilon=0.25)
    _, *rows = Outline(render(posterior)).tables["Probability of each statement that was asked"]
    questions = posterior.release.mechanism.questions
    assert rows == [
        [
            str(q),
            chance(posterior.prob(q.coefficient, "<", q.threshold)),
            chance(posterior.prob(q.coefficient, "<", q.threshold, noise_aware=False)),
        ]
        for q in questions
    ]
    assert any(row[1] != row[2] for row in rows)  # at this epsilon the noise matters


def test_intervals_of_medians_are_those_of_the_posterior():
    posterior = made("location_scale", epsilon=1)
    tables = Outline(render(posterior, level=0.9)).tables
    head, *rows = tables["Coefficients of the regression for income"]
    assert head[2] == "90% interval"
    for row, name in zip(rows, ("hours", "region[south]"), strict=True):
        sd = (posterior.quantile(name, 0.84) - posterior.quantile(name, 0.16)) / 2
        aware = [rounded(end, sd) for end in posterior.interval(name, 0.9)]
        naive = [rounded(end, sd) for end in posterior.interval(name, 0.9, noise_aware=False)]
        assert row == [
            name,
            rounded(posterior.quantile(name, 0.5), sd),
            " to ".join(aware),
            chance(posterior.prob(name, ">", 0)),
            " to ".join(naive),
            chance(posterior.prob(name, ">", 0, noise_aware=False)),
        ]
        assert aware != naive


def test_ignoring_the_noise_narrows_intervals():
    posterior = made("location_scale", epsilon=1)
    for level in (0.5, 0.95):
        low, high = posterior.interval("hours", level)
        inner = posterior.interval("hours", level, noise_aware=False)
        assert low < inner[0] < inner[1] < high
        # It is the inverse of the probability that ignores the noise.
        below = posterior.prob("hours", "<", inner[0], noise_aware=False)
        assert below == pytest.approx((1 - level) / 2)


def test_intervals_between_quantiles_are_those_of_the_posterior():
    posterior = made("clipped_mean")
    tables = Outline(render(posterior)).tables
    _, row = tables["Intervals"]
    aware = posterior.interval("hours", 0.9)
    spread = (aware[1] - aware[0]) / 4
    naive = posterior.interval("hours", 0.9, noise_aware=False)
    assert naive == (posterior.quantile("hours", 0.05), posterior.quantile("hours", 0.95))
    assert aware[0] < naive[0] < naive[1] < aware[1]
    assert row == [
        "hours",
        "90%",
        " to ".join(rounded(end, spread) for end in aware),
        " to ".join(rounded(end, spread) for end in naive),
    ]
    _, *released = tables["Released quantiles"]
    expected = list(posterior.summary().rows.values())
    assert [line[1] for line in released] == [short(item["p"]) for item in expected]
    assert [line[2] for line in released] == [
        rounded(item["quantile"], item["noise_sd"]) for item in expected
    ]


def test_a_single_quantile_has_no_interval():
    mechanism = ClippedMean((QuantileItem("hours", 0.5, -10, 10),))
    outline = Outline(render(SummaryPosterior(summary_release(mechanism))))
    assert "No two released quantiles are the ends of an interval" in outline.said
    assert "Intervals" not in outline.tables


@pytest.mark.parametrize("p", [0.05, 1e-9, 1e-13, 1e-17])
def test_quantiles_that_only_look_like_ends_are_no_interval(p):
    """A file may hold probabilities that differ from ends of an interval by less than rounding."""
    other = 1 - 3 * p if p < 0.05 else 0.9500001
    items = tuple(QuantileItem("hours", q, -10, 10) for q in (p, other) if q < 1)
    outline = Outline(render(SummaryPosterior(summary_release(ClippedMean(items)))))
    assert "Intervals" not in outline.tables
    assert len(outline.tables["Released quantiles"]) == 1 + len(items)


@pytest.mark.parametrize("name", mechanisms())
def test_it_is_accessible(name):
    outline = Outline(render(made(name)))
    levels = [int(tag[1]) for tag, _ in outline.elements if re.fullmatch(r"h\d", tag)]
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert len(outline.all("caption")) == len(outline.all("table")) > 2
    assert all(cell["scope"] in ("col", "row") for cell in outline.all("th"))
    assert outline.all("svg")
    for chart in outline.all("svg"):
        assert chart["role"] == "img"
        assert len(chart["aria-label"]) > 40


@pytest.mark.parametrize("kind", mechanisms())
def test_hostile_names_are_text(kind):
    names, levels = HOSTILE[:3], (HOSTILE[3], HOSTILE[4])
    x, category, _ = names
    mechanism = mechanisms(x, f"{category}[{levels[1]}]")[kind]
    release = summary_release(
        mechanism, names=names, levels=levels, dataset="<b>d</b>", label="<script>l</script>"
    )
    release = replace(release, software="<img src=s>")
    page = render(SummaryPosterior(release), title="<script>t</script>")
    for bad in ("<script", "<img", "<b>", "<svg onload"):
        assert bad not in page
    outline = assert_harmless(page)
    for name in HOSTILE:
        assert name in outline.said


def test_warnings_come_first():
    posterior = made(epsilon=0.1)
    assert posterior.warnings
    outline = Outline(render(posterior))
    assert "Before you use these numbers" in outline.said
    for warning in posterior.warnings:
        assert warning[1:] in outline.said
    assert made().warnings == ()
    assert "Before you use these numbers" not in render(made())


def test_what_the_answers_rest_on_is_shown_and_agrees_with_the_warnings():
    rows = Outline(render(made("location_scale"))).tables["What the answers rest on"][1:]
    here = {row[0]: (float(row[1].replace(",", "")), float(row[2].split()[-1])) for row in rows}
    kappa = here["epsilon of one answer times the root of the number of blocks"]
    assert kappa == (pytest.approx(1.4 * 20), 4)
    assert here["rows a block, about"] == (400, 45)
    assert here["blocks"] == (400, 10)
    assert here["epsilon of each scale times the number of blocks"] == (240, 80)
    assert all(value >= wanted for value, wanted in here.values())
    poor = made("location_scale", epsilon=0.4)
    rows = Outline(render(poor)).tables["What the answers rest on"][1:]
    short_of = [row for row in rows if float(row[1]) < float(row[2].split()[-1])]
    assert len(short_of) == len(poor.warnings) == 3


def test_certainty_is_never_claimed():
    release = summary_release(Sign((Question("hours", 1.0),)))
    posterior = SummaryPosterior(replace(release, values=(4000,)))
    assert posterior.prob("hours < 1") == 1.0  # in floating point
    assert "100%" not in Outline(render(posterior)).said.partition("What it says")[2]


def test_a_private_number_of_rows():
    outline = Outline(render(made(neighbours="add_remove_one")))
    facts = dict(outline.tables["The released file"])
    assert facts["rows"] == "private"
    assert facts["blocks"] == "400, formed 10 times over"
    assert "is in the data at all (add_remove_one)" in facts["protects"]


def test_verdicts_follow_the_probability():
    release = summary_release(Sign((Question("hours", 1.0),)))
    said = {}
    for count in (-900, -260, 0, 900):
        posterior = SummaryPosterior(replace(release, values=(count,)))
        said[count] = re.search(r"<li>(hours[^<]*)</li>", render(posterior))[1]
    assert said[-900] == "hours is above 1 (probability &gt;99.9%)."
    assert "is probably above 1" in said[-260]
    assert "undecided" in said[0]
    assert said[900] == "hours is below 1 (probability &gt;99.9%)."


def test_a_wild_scale_is_no_picture_but_still_a_page():
    base = CauchyBase(0, 1), CauchyBase(0, 1e140)
    release = summary_release(LocationScale((LocationItem("hours", *base),)))
    release = replace(release, values=(CELLS - 1, CELLS - 1))
    page = render(SummaryPosterior(release))
    assert Outline(page).open == []
    assert "nan" not in re.sub(r"<style>.*?</style>", "", page, flags=re.S)


def test_the_prior_of_the_blocks_is_told():
    release = summary_release()
    assert "prior is flat" in render(SummaryPosterior(release))
    told = render(SummaryPosterior(replace(release, posterior=GPrior(500))))
    assert "g prior about zero, with g = 500" in told
    assert "the number of rows" in render(SummaryPosterior(replace(release, posterior=GPrior())))
    conjugate = Conjugate((0.0,) * 3, (1.0,) * 3, 1.0, 1.0)
    told = render(SummaryPosterior(replace(release, posterior=conjugate)))
    assert "normal-inverse-gamma" in told


def test_many_questions_stay_below_a_megabyte():
    questions = tuple(Question("hours", float(i)) for i in range(500))
    page = render(SummaryPosterior(summary_release(Sign(questions))))
    assert len(page) < 1_000_000
    assert "The table below has 492 more." in page


def test_from_python(tmp_path):
    posterior = nw.fit(summary_release())
    posterior.report(tmp_path / "a.html", level=0.8, title="A title")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert page == render(posterior, level=0.8, title="A title")
    assert "<h1>A title</h1>" in page
    with pytest.raises(RequestError, match="level: expected a probability"):
        write_report(posterior, tmp_path / "a.html", level=95)
