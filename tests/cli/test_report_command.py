"""`noisewise report`, on everything that may be reported and on what may not."""

from __future__ import annotations

import re
import shlex
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner

from noisewise.analyst.posterior.file import load_posterior
from noisewise.analyst.posterior.summary import SummaryPosterior
from noisewise.analyst.report import render
from noisewise.cli.main import app
from noisewise.core.kinds import load_release

from ..analyst.report_examples import network_release, summary_release
from ..analyst.test_report import made
from ..core.test_network_release import draws_release
from ..releases import example_request, release_of


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def out(tmp_path):
    return tmp_path / "report.html"


def test_a_regression(tmp_path, out):
    made().save(tmp_path / "post.nc")
    done = run("report", tmp_path / "post.nc", "--out", out)
    assert done.exit_code == 0, done.output
    assert "Coefficients" in out.read_text(encoding="utf-8")


def test_block_summaries_from_the_release_itself(tmp_path, out):
    (tmp_path / "asked.json").write_text(summary_release().to_text(), encoding="utf-8")
    done = run("report", tmp_path / "asked.json", "--out", out, "--level", "0.9")
    assert done.exit_code == 0, done.output
    assert done.output.endswith("report.html.\n")
    posterior = SummaryPosterior(load_release(tmp_path / "asked.json"))
    assert out.read_text(encoding="utf-8") == render(posterior, level=0.9)


@pytest.mark.parametrize("release", [network_release(), draws_release()], ids=["counts", "draws"])
def test_a_network_after_a_fit(tmp_path, out, release):
    (tmp_path / "net.json").write_text(release.to_text(), encoding="utf-8")
    words = ("--chains", 2, "--draws", 50, "--seed", 1, "--out", tmp_path / "net.nc")
    assert run("fit", tmp_path / "net.json", *words).exit_code == 0
    done = run("report", tmp_path / "net.nc", "--out", out, "--title", "Clinic")
    assert done.exit_code == 0, done.output
    posterior = load_posterior(tmp_path / "net.nc")
    assert out.read_text(encoding="utf-8") == render(posterior, title="Clinic")
    assert "reports are of regressions" not in done.output


@pytest.mark.parametrize("release", [network_release(), release_of(example_request())])
def test_a_release_that_has_to_be_fitted_says_so(tmp_path, out, release):
    (tmp_path / "r.json").write_text(release.to_text(), encoding="utf-8")
    done = run("report", tmp_path / "r.json", "--out", out)
    assert done.exit_code != 0
    assert f"run `noisewise fit {tmp_path / 'r.json'}`" in str(done.exception)
    assert not out.exists()


def commands_of(page):
    """The commands by which a page says that it can be made again."""
    found = re.findall(r"<pre><code>(.*?)</code></pre>", page.read_text(encoding="utf-8"))
    return [shlex.split(unescape(command)) for command in found]


@pytest.mark.parametrize(
    ("release", "method"),
    [
        (summary_release(), None),
        (network_release(), "per_table"),
        (draws_release(), "auto"),
        (release_of(example_request()), "naive"),
    ],
    ids=["summary", "network", "draws", "regression"],
)
def test_the_commands_of_a_page_make_it_again(tmp_path, monkeypatch, release, method):
    monkeypatch.chdir(tmp_path)
    Path("release.json").write_text(release.to_text(), encoding="utf-8")
    reported = "release.json"
    if method is not None:
        words = ("--method", method, "--chains", 2, "--draws", 20, "--seed", 1, "--out", "first.nc")
        assert run("fit", "release.json", *words).exit_code == 0
        reported = "first.nc"
    assert run("report", reported, "--out", "first.html").exit_code == 0
    again = commands_of(Path("first.html"))
    assert len(again) == 2
    for words in again:
        assert words[0] == "noisewise"
        done = run(*words[1:])
        assert done.exit_code == 0, (words, done.output, done.exception)
    first, second = (Path(n).read_text(encoding="utf-8") for n in ("first.html", "report.html"))
    assert first == second  # nothing is random, or its seed is in the command


def test_names_in_commands_cannot_do_harm(tmp_path):
    """Whoever copies a command must not run what a column is called."""
    target = "$(touch /tmp/x); 'y' `z` \"w\" <b>"
    made(("a b", "it's"), target).report(tmp_path / "page.html")
    fitting, _ = commands_of(tmp_path / "page.html")
    assert fitting[fitting.index("--target") + 1] == target
    assert fitting[fitting.index("--features") + 1] == "a b,it's"


def test_files_that_are_nothing(tmp_path, out):
    (tmp_path / "no.json").write_text("{}", encoding="utf-8")
    (tmp_path / "no.nc").write_text("nothing", encoding="utf-8")
    for name in ("no.json", "no.nc", "absent.json", "absent.nc"):
        done = run("report", tmp_path / name, "--out", out)
        assert done.exit_code != 0
        assert type(done.exception).__name__ in ("ReleaseError", "RequestError"), name
    assert not out.exists()


def test_help_has_examples():
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", run("report", "--help").output).split())
    for example in (
        "noisewise report post.nc --out report.html",
        "noisewise report summary.json --out summary.html",
    ):
        assert f"Example: {example}" in text
