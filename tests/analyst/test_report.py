"""The report: complete, readable by machines for people, and deaf to hostile names."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import noisewise.analyst.report as package
from noisewise import _palette
from noisewise.analyst.posterior.regression import FitInfo, Naive, Posterior
from noisewise.analyst.regression.observation import ModelColumns
from noisewise.analyst.report import render, write_report
from noisewise.analyst.report.regression import deviations
from noisewise.analyst.report.widgets import Markup, breakable, tag, text
from noisewise.analyst.report.words import claim_in_words, percent, rounded, short, ticks
from noisewise.cli.main import app
from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Number, Schema

from .report_pages import HOSTILE, Outline, assert_harmless


def made(names=("age", "region"), target="income", *, releases=1, aware=True, dataset="people"):
    """A posterior of plain random draws: the page must not care where they come from."""
    rng = np.random.default_rng(1)
    declared = {name: Number(18, 90) for name in names}
    if "region" in names:
        declared["region"] = Category(("north", "south", "east"), "north")
    schema = Schema(dataset, {**declared, target: Number(0, 200_000)})
    columns = ModelColumns(schema, tuple(names), target)
    d = len(columns.names)
    theta = rng.normal(np.arange(d), 1.0, (4, 500, d))
    P = d + 1
    spread = np.full((P, P), 10.0)
    spread[0, 0] = 0.0
    observed = {}
    for j in range(1, releases + 1):
        values = np.full((P, P), 50.0)
        values[0, 0] = 1000.0
        observed |= {
            f"values_{j}": values,
            f"scale_{j}": np.where(spread > 0, 5.0, 0.0),
            f"expected_{j}": np.where(spread > 0, 45.0, 1000.0),
            f"spread_{j}": spread,
            f"below_{j}": np.full((P, P), 0.7),
            f"outside_{j}": np.full(P, 0.12),
        }
    info = FitInfo(
        method="exact" if aware else "naive",
        reason="chosen by auto",
        noise_aware=aware,
        n=(1000,) * releases,
        claims=("epsilon = 1",) * releases,
        digests=tuple(f"sha256:{j}" for j in range(releases)),
        prior=dict.fromkeys(columns.names, (0.0, 10.0)),
        prior_error_sd=(1.0, 20.0),
        datasets=(dataset,) * releases,
        units=("replace_one/2",) * releases,
        noise=("laplace",) * releases,
    )
    return Posterior(
        columns,
        theta,
        rng.gamma(100, 1.0, (4, 500)),
        info,
        0.5 * theta if aware else None,
        {"diverging": np.zeros((4, 500), bool)},
        observed if aware else {},
        Naive(theta[0] / 3, rng.gamma(100, 1.0, 500)) if aware else None,
    )


def test_a_page_has_everything_that_was_promised():
    page = render(made())
    outline = Outline(page)
    assert not outline.open
    said = outline.said
    for word in (
        "What it says", "Coefficients", "What privacy cost", "What was released",
        "Model and prior", "Can the numbers be trusted?", "What it cannot say", "epsilon = 1",
        "up to 2 rows", "Laplace", "The runs agree", "predictive check", "12% of people outside",
        "Where region is south rather than north", "sha256:0",
    ):  # fmt: skip
        assert word in said, word


def test_it_is_accessible():
    outline = Outline(render(made()))
    assert outline.all("html")[0]["lang"] == "en"
    levels = [int(name[1]) for name, _ in outline.elements if re.fullmatch(r"h\d", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert all(cell["scope"] in ("col", "row") for cell in outline.all("th"))
    assert len(outline.all("caption")) == len(outline.all("table")) > 3
    for chart in outline.all("svg"):
        assert chart["role"] == "img"
        assert len(chart["aria-label"]) > 40
    ids = [a["id"] for _, a in outline.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert {a["aria-labelledby"] for _, a in outline.elements if "aria-labelledby" in a} <= set(ids)


def test_colours_have_contrast():
    """WCAG 2.1 AA: 4.5 for text, 3 for graphics, against paper and every tinted background."""
    style = _palette.css() + (Path(package.__file__).parent / "style.css").read_text()
    colours = dict(re.findall(r"--(\w+): #(\w{6})", style))

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(a, b):
        high, low = sorted((luminance(colours[a]), luminance(colours[b])), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for ink in ("ink", "soft", "aware", "naive"):
        for ground in ("paper", "wash", "caution"):
            assert contrast(ink, ground) >= 4.5, (ink, ground)
    assert contrast("aware", "rule") >= 3
    assert contrast("rule", "paper") < 3  # negative control: a hairline is no text colour


def test_nothing_is_fetched_and_nothing_runs():
    page = render(made(HOSTILE, "t<b>", dataset="<i>"))
    outline = assert_harmless(page)
    assert "@import" not in page
    policies = [a["content"] for a in outline.all("meta") if "http-equiv" in a]
    assert policies[0].startswith("default-src 'none'; style-src 'unsafe-inline'")


def test_hostile_names_are_text():
    page = render(made(HOSTILE, "t<b>", dataset="<i>x</i>"), title="<script>t</script>")
    assert "<script" not in page
    assert "<img" not in page
    assert "<i>" not in page
    words = Outline(page).said
    for name in HOSTILE:
        assert name in words


def test_characters_that_deceive_are_shown():
    assert "\u202e" not in text("abc\u202edef")
    assert "\ufffd" in text("abc\u202edef\x07")
    assert text("می‌خواهم") == "می‌خواهم"
    assert tag("p", Markup("<b>"), "<b>") == "<p><b>&lt;b&gt;</p>"
    assert breakable("<b>_c") == "&lt;b&gt;_<wbr/>c"


def test_a_naive_posterior_comes_with_a_caution():
    page = render(made(aware=False))
    assert "Before you use these numbers" in page
    assert "Before you use these numbers" not in render(made())


def test_several_files_and_their_deviations():
    posterior = made(releases=3)
    assert deviations(posterior, 2) == [0.5] * 14
    page = render(posterior)
    assert "3 released files of 3,000 rows" in page
    assert "promises add up" in page


def test_numbers_are_written_for_people():
    assert rounded(1.8363, 0.06) == "1.836"
    assert rounded(-12345.6, 300) == "−12,350"
    assert rounded(-0.0001, 0.5) == "0.00"
    assert rounded(float("nan"), 1) == "not available"
    assert short(-0.5) == "−0.5"
    assert short(1e-6) == "1e-06"
    assert short(123456.0) == "123,456"
    assert percent(0.0004) == "<0.1%"
    assert percent(0.9996) == ">99.9%"
    assert percent(1.0) == "100%"
    assert percent(0.5) == "50%"
    assert ticks(-0.27, 0.01) == pytest.approx([-0.2, -0.1, 0.0])


def test_privacy_in_words():
    assert "2.72 times" in claim_in_words("epsilon = 1")
    assert "slack" not in claim_in_words("epsilon = 1")
    assert "slack" in claim_in_words("epsilon = 1, delta = 1e-06")
    # rho + 2 sqrt(rho ln(1/delta)) with delta = 1e-6
    assert "epsilon = 2.451" in claim_in_words("rho = 0.1 (zCDP)")
    assert claim_in_words("something else") == ""
    assert claim_in_words("epsilon = 1e9") == ""


def test_the_command(tmp_path):
    made().save(tmp_path / "post.nc")
    out = tmp_path / "report.html"
    done = CliRunner().invoke(app, ["report", str(tmp_path / "post.nc"), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_mistakes_are_named(tmp_path):
    with pytest.raises(RequestError, match=r"out: .*\.html"):
        write_report(made(), tmp_path / "report.pdf")
    with pytest.raises(RequestError, match="out: there is no folder"):
        write_report(made(), tmp_path / "nowhere" / "report.html")
    with pytest.raises(RequestError, match="level: expected a probability"):
        write_report(made(), tmp_path / "report.html", level=95)


def test_many_features_are_counted_in_sentences():
    page = render(made(tuple(f"f{i}" for i in range(9)), "y"))
    assert "<h1>y, explained by f0, f1, f2, f3, f4, f5 and 3 more</h1>" in page


def test_a_posterior_without_the_later_fields_still_has_a_report():
    """Files of earlier versions know neither units nor noise, and kept no predictive check."""
    posterior = made()
    info = replace(posterior.info, datasets=(), units=(), noise=(), prior_error_sd=None)
    page = render(replace(posterior, info=info, observed={}, sample_stats={}))
    assert "cannot tell what the fitted model would have released" in page
    assert "up to 1 row" not in page
    assert "who owns one row" in page
    assert Outline(page).open == []
