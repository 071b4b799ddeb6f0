"""`noisewise report`, on everything that may be reported and on what may not."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from noisewise.analyst.networks.posterior_file import load_network_posterior
from noisewise.analyst.report import render
from noisewise.analyst.summaries.posterior import SummaryPosterior
from noisewise.cli.main import app
from noisewise.core.releases import load_release

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
    posterior = load_network_posterior(tmp_path / "net.nc")
    assert out.read_text(encoding="utf-8") == render(posterior, title="Clinic")
    assert "reports are of regressions" not in done.output


@pytest.mark.parametrize("release", [network_release(), release_of(example_request())])
def test_a_release_that_has_to_be_fitted_says_so(tmp_path, out, release):
    (tmp_path / "r.json").write_text(release.to_text(), encoding="utf-8")
    done = run("report", tmp_path / "r.json", "--out", out)
    assert done.exit_code != 0
    assert f"run `noisewise fit {tmp_path / 'r.json'}`" in str(done.exception)
    assert not out.exists()


def test_files_that_are_nothing(tmp_path, out):
    (tmp_path / "no.json").write_text("{}", encoding="utf-8")
    (tmp_path / "no.nc").write_text("nothing", encoding="utf-8")
    for name in ("no.json", "no.nc", "absent.json", "absent.nc"):
        done = run("report", tmp_path / name, "--out", out)
        assert done.exit_code != 0
        assert type(done.exception).__name__ in ("ReleaseError", "RequestError"), name
    assert not out.exists()


def test_help_has_an_example_of_each_kind():
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", run("report", "--help").output).split())
    for example in (
        "noisewise report post.nc --out report.html",
        "noisewise report summary.json --out summary.html",
        "noisewise fit network.json --out network.nc",
        "noisewise report network.nc --out network.html",
    ):
        assert f"Example: {example}" in text
