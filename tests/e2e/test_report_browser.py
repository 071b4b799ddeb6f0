"""The report in a real browser: quiet console, no requests, no sideways scrolling, pictures.

Runs wherever Chromium is installed; `.ci/run` installs it. Pictures stay in the test's folder, or
in NOISEWISE_SCREENSHOTS if that is set, for people to look at.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from noisewise.analyst.posterior.summary import SummaryPosterior
from noisewise.analyst.report import write_report

from ..analyst.report_examples import (
    clinic,
    large_network,
    made_network,
    mechanisms,
    summary_release,
)
from ..analyst.report_pages import HOSTILE
from ..analyst.test_report import made
from .browser import Browser, find_chromium

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium: install it (apt-get install chromium) to run this"
)
NETWORK = {HOSTILE[0]: [], HOSTILE[1]: [HOSTILE[0]], HOSTILE[4]: [HOSTILE[1], HOSTILE[0]]}
POSTERIORS = {
    "plain": made,
    "hostile": lambda: made(HOSTILE, "t<b>", dataset="<i>x</i>" * 20),
    "many": lambda: made(tuple(f"feature_number_{i}" for i in range(25)), releases=12),
    "naive": lambda: made(aware=False),
    "network": made_network,
    "network-50": lambda: made_network(large_network(50)),
    "network-files": lambda: made_network(releases=12),
    "network-naive": lambda: made_network(aware=False),
    "network-hostile": lambda: made_network(
        clinic(NETWORK, {HOSTILE[0]: (HOSTILE[2], HOSTILE[3], "W" * 200)})
    ),
    "star": lambda: made_network(
        clinic({"ill": [], **{f"symptom_{i}": ["ill"] for i in range(49)}})
    ),
    **{
        f"summary-{name}": lambda mechanism=mechanism: SummaryPosterior(summary_release(mechanism))
        for name, mechanism in mechanisms().items()
    },
    "summary-hostile": lambda: SummaryPosterior(
        summary_release(names=(HOSTILE[4], HOSTILE[1], HOSTILE[2]), label="W" * 200)
    ),
}
WIDTHS = {"desktop": (1280, False), "phone": (360, True)}


@pytest.fixture(scope="module")
def browser():
    with Browser(CHROMIUM) as running:
        yield running


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    for name, make in POSTERIORS.items():
        write_report(make(), folder / f"{name}.html")
    return folder


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", POSTERIORS)
def test_a_page(browser, pages, name, width, tmp_path):
    pixels, mobile = WIDTHS[width]
    page = pages / f"{name}.html"
    browser.open(page.as_uri(), pixels, 800, mobile)
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= pixels
    assert browser.evaluate("document.querySelectorAll('script, img, iframe, link').length") == 0
    assert browser.evaluate("document.documentElement.scrollHeight") < 40_000
    folder = Path(os.environ.get("NOISEWISE_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"report-{name}-{width}.png"
    browser.screenshot(picture)
    assert picture.stat().st_size > 20_000
    browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert browser.evaluate("document.documentElement.scrollWidth") <= pixels
    # Charts are drawn: every one has a size, and so have the lines in it.
    assert browser.evaluate(
        "[...document.querySelectorAll('svg')].every(s => s.getBoundingClientRect().width > 200"
        " && s.querySelectorAll('line, rect, path').length > 1)"
    )
    # No letters outside the page, and none too small to read.
    assert browser.evaluate(
        "[...document.querySelectorAll('svg text, p, th, td, li')].every(e => {"
        " const box = e.getBoundingClientRect(); const size = getComputedStyle(e).fontSize;"
        " return parseFloat(size) >= 12 && (e.textContent.length > 60"
        f" || (box.left >= -1 && box.right <= {pixels} + 1)); }})"
    )


def test_printing(browser, pages, tmp_path):
    browser.open((pages / "plain.html").as_uri())
    browser.pdf(tmp_path / "report.pdf")
    data = (tmp_path / "report.pdf").read_bytes()
    assert data.startswith(b"%PDF")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", data)) <= 6


def test_folded_tables_are_printed(browser, pages, tmp_path):
    """All 50 tables are on paper, though on the screen each is behind its name."""
    sizes = {}
    for unfold in (False, True):
        browser.open((pages / "star.html").as_uri())
        if unfold:
            browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        browser.pdf(tmp_path / "star.pdf")
        data = (tmp_path / "star.pdf").read_bytes()
        sizes[unfold] = len(re.findall(rb"/Type\s*/Page\b", data))
    assert sizes[False] == sizes[True] > 10


def test_the_browser_would_notice(browser, tmp_path):
    """Negative control: a page with a script that complains, a request, and too wide a box."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<!DOCTYPE html><script>console.error('no')</script><img src='missing.png'>"
        "<div style='width:3000px'>wide</div>"
    )
    browser.open(page.as_uri(), 360, 800, True)
    assert browser.complaints()
    assert len(browser.requests()) > 1
    assert browser.evaluate("document.documentElement.scrollWidth") > 360
