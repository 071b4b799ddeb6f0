"""The report in a real browser: quiet console, no requests, no sideways scrolling, pictures.

Runs wherever Chromium is installed; `.ci/run` installs it. Pictures stay in the test's folder, or
in NOISEWISE_SCREENSHOTS if that is set, for people to look at.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from noisewise.analyst.report import write_report

from ..analyst.test_report import HOSTILE, made
from .browser import Browser, find_chromium

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium: install it (apt-get install chromium) to run this"
)
WIDTHS = {"desktop": (1280, False), "phone": (360, True)}


@pytest.fixture(scope="module")
def browser():
    with Browser(CHROMIUM) as running:
        yield running


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    posteriors = {
        "plain": made(),
        "hostile": made(HOSTILE, "t<b>", dataset="<i>x</i>" * 20),
        "many": made(tuple(f"feature_number_{i}" for i in range(25)), releases=12),
        "naive": made(aware=False),
    }
    for name, posterior in posteriors.items():
        write_report(posterior, folder / f"{name}.html")
    return folder


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["plain", "hostile", "many", "naive"])
def test_a_page(browser, pages, name, width, tmp_path):
    pixels, mobile = WIDTHS[width]
    page = pages / f"{name}.html"
    browser.open(page.as_uri(), pixels, 800, mobile)
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= pixels
    assert browser.evaluate("document.querySelectorAll('script, img, iframe, link').length") == 0
    # Charts are drawn: every one has a size, and so have the lines in it.
    assert browser.evaluate(
        "[...document.querySelectorAll('svg')].every(s => s.getBoundingClientRect().width > 200"
        " && s.querySelectorAll('line, rect').length > 1)"
    )
    # No letters outside the page, and none too small to read.
    assert browser.evaluate(
        "[...document.querySelectorAll('svg text, p, th, td, li')].every(e => {"
        " const box = e.getBoundingClientRect(); const size = getComputedStyle(e).fontSize;"
        " return parseFloat(size) >= 12 && (e.textContent.length > 60"
        f" || (box.left >= -1 && box.right <= {pixels} + 1)); }})"
    )
    folder = Path(os.environ.get("NOISEWISE_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"report-{name}-{width}.png"
    browser.screenshot(picture)
    assert picture.stat().st_size > 20_000


def test_printing(browser, pages, tmp_path):
    browser.open((pages / "plain.html").as_uri())
    browser.pdf(tmp_path / "report.pdf")
    data = (tmp_path / "report.pdf").read_bytes()
    assert data.startswith(b"%PDF")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", data)) <= 6


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
