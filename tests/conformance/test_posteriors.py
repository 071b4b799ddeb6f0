"""One suite that every kind of posterior passes: words, files, pictures, pages and commands."""

from __future__ import annotations

import csv
import gzip
import json
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import noisewise as nw
from noisewise.analyst.posterior import file
from noisewise.analyst.posterior.base import BasePosterior
from noisewise.cli.main import app
from noisewise.core.errors import NoisewiseError, ReleaseError, RequestError
from noisewise.holder.requests.draws import make_regression_sample_request
from tests.ledgers import ledger_for

KINDS = ("regression", "glm", "network", "summary", "draws")
FILES = Path(__file__).parent / "files"
FEW = {"chains": 2, "draws": 100, "seed": 1}
OPTIONS = {"regression": FEW, "glm": FEW, "network": FEW, "summary": {}, "draws": {}}
# Of each kind a statement, and one about something that is not there.
ASKED = {
    "regression": ("age > 0.03", "wage > 0"),
    "glm": ("age > 0.03", "wage > 0"),
    "network": ("cough=yes | smoker=no > 0.2", "fever=yes > 0.5"),
    "summary": ("age > 0.03", "wage > 0"),
    "draws": ("age > 0.03", "wage > 0"),
}
NAMED = {**dict.fromkeys(KINDS, "age"), "network": "smoker"}
NEW = {"age": ["40", "50"], "group": ["a", "b"], "smoker": ["yes", "no"]}


def rows():
    rng = np.random.default_rng(3)
    n = 3000
    age, group = rng.uniform(18, 90, n), rng.choice(["a", "b"], n)
    smoker = rng.choice(["no", "yes"], n)
    return {
        "age": age,
        "group": group,
        "score": np.clip(3 + 0.03 * age + (group == "b") + rng.normal(0, 1, n), 0, 10),
        "smoker": smoker,
        "cough": np.where(rng.random(n) < np.where(smoker == "yes", 0.6, 0.2), "yes", "no"),
    }


def request_of(kind):
    yes_no = nw.Category(("no", "yes"), "no")
    people = {
        "age": nw.Number(18, 90),
        "group": nw.Category(("a", "b"), "a"),
        "score": nw.Number(0, 10),
    }
    schema = nw.Schema("clinic", people)
    model = {"target": "score", "features": ["age", "group"]}
    if kind == "network":
        schema = nw.Schema("clinic", {"smoker": yes_no, "cough": yes_no})
        network = nw.Network.make(schema, [("smoker", "cough")])
        return nw.make_network_request(schema, network=network, epsilon=2)
    if kind == "glm":
        schema = nw.Schema("clinic", {**people, "cough": yes_no})
        words = {"family": "logistic", "formula": "cough ~ age + group"}
        return nw.make_glm_request(schema, **words, epsilon=5)
    if kind == "summary":
        words = {"mechanism": "location_scale", "coefficients": ["age", "group[b]"], "blocks": 66}
        return nw.make_summary_request(schema, **model, **words, epsilon=5)
    if kind == "draws":
        return make_regression_sample_request(schema, **model, noise_sd=1, epsilon=20, draws=40)
    return nw.make_request(schema, **model, epsilon=5)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A Release of each kind, as a file."""
    folder, table = tmp_path_factory.mktemp("releases"), rows()
    for kind in KINDS:
        out = folder / f"{kind}.json"
        ledger = ledger_for(folder / f"{kind}.db", "clinic")
        nw.publish(request_of(kind), table, ledger=ledger, out=out)
    return {kind: folder / f"{kind}.json" for kind in KINDS}


@pytest.fixture(scope="module")
def posteriors(files):
    return {kind: nw.fit(files[kind], **OPTIONS[kind]) for kind in KINDS}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def posterior(posteriors, kind):
    return posteriors[kind]


def numbers(posterior):
    return posterior.to_dict(0.9)


def kinds_below(found):
    """Of all classes that have one; those that only share something have none."""
    own = {found.kind} if "kind" in vars(found) else set()
    return own.union(*map(kinds_below, found.__subclasses__()))


def test_the_suite_and_the_files_know_every_kind(posteriors):
    assert set(file._CLASSES) == kinds_below(BasePosterior)
    for kind, posterior in posteriors.items():
        assert (posterior.kind, type(posterior).__name__) == (kind, file._CLASSES[kind])


def test_releases_paths_and_lists_of_either(kind, files, posterior):
    path = files[kind]
    for given in (str(path), [path], nw.load_release(path), [nw.load_release(path)]):
        again = nw.fit(given, **OPTIONS[kind])
        np.testing.assert_equal(numbers(again), numbers(posterior))


def test_options_that_a_kind_does_not_have(kind, files):
    with pytest.raises(RequestError, match=r"colour: .* leave colour out"):
        nw.fit(files[kind], colour="red")
    nw.fit(files[kind], colour=None, **OPTIONS[kind])


def test_the_summary(posterior):
    found = posterior.summary(level=0.9)
    assert found.level == 0.9
    assert posterior.summary().level == 0.95
    assert set(found.to_dict()) == set(found.rows)
    assert any(NAMED[posterior.kind] in name for name in found.rows)
    assert "90%" in str(found)
    assert str(posterior.summary(0.5)) != str(found)
    for level in (90, "0.9", 0.0, True):
        with pytest.raises(RequestError, match=r"level: expected a probability such as 0\.95"):
            posterior.summary(level)


def test_probabilities_of_statements(posterior):
    statement, unknown = ASKED[posterior.kind]
    sure = posterior.prob(statement)
    assert isinstance(sure, float)
    assert 0 <= sure <= 1
    other = statement.replace(">", "<")
    assert posterior.prob(other) == pytest.approx(1 - sure, abs=1e-9)
    subject = unknown.split("=")[0].split()[0]
    with pytest.raises(RequestError, match=subject):
        posterior.prob(unknown)
    for senseless in ("", "age", 3):
        with pytest.raises(RequestError):
            posterior.prob(senseless)


def test_warnings_are_words(posterior):
    assert isinstance(posterior.warnings, tuple)
    assert all(isinstance(text, str) and text for text in posterior.warnings)
    assert str(posterior).endswith("".join(f"\nWarning: {w}" for w in posterior.warnings))


def test_a_notebook_shows_the_summary(posterior):
    assert repr(posterior) == str(posterior)
    assert str(posterior.summary()) in repr(posterior)
    assert len(repr(posterior)) < 4000


class _Page(HTMLParser):
    """Tags of a page, to see that names don't add any."""

    def __init__(self):
        super().__init__()
        self.tags = set()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)


def test_notebooks_show_a_short_table(posterior, files):
    shown = posterior._repr_html_()
    for one in (shown, nw.load_release(files[posterior.kind])._repr_html_()):
        page = _Page()
        page.feed(one)
        assert page.tags <= {"table", "thead", "tbody", "tr", "th", "td", "p", "caption"}
        assert len(one) < 6000
    assert NAMED[posterior.kind] in shown
    assert all(escape(text) in shown for text in posterior.warnings)


def test_summaries_as_data_frames(posterior):
    found = posterior.summary(0.9)
    frame = found.to_frame()
    assert list(frame.index) == list(found.rows)
    for name, row in found.to_dict().items():
        np.testing.assert_equal(frame.loc[name].to_dict(), row)


def test_draws_as_data_frames_and_csv(posterior, tmp_path):
    path, out = tmp_path / "post.nc", tmp_path / "draws.csv"
    posterior.save(path)
    if posterior.kind == "summary":
        with pytest.raises(RequestError, match="a block summary has none; `summary` has all"):
            posterior.to_frame()
        with pytest.raises(RequestError, match="has none"):
            run("show", path, "--draws", out)
        return
    frame = posterior.to_frame()
    name = next(name for name in posterior.summary().rows if NAMED[posterior.kind] in name)
    assert list(frame.columns[:2]) == ["chain", "draw"]
    assert frame[name].median() == pytest.approx(posterior.summary().rows[name].median)
    assert not frame.duplicated(["chain", "draw"]).any()
    assert f"Wrote {out}." in run("show", path, "--draws", out)
    with out.open(newline="") as file:
        head, *lines = csv.reader(file)
    assert head == list(frame.columns)
    np.testing.assert_array_equal(np.array(lines, float), frame.to_numpy(float))


def test_joint_statements(posterior):
    kind = posterior.kind
    if kind == "summary":
        between = posterior.prob("0.02 < age < 0.04")
        assert between == pytest.approx(posterior.prob("age < 0.04") - posterior.prob("age < 0.02"))
        with pytest.raises(RequestError, match="one coefficient is compared with numbers"):
            posterior.prob("age > 0 and group[b] > 0")
        return
    first, second = "age", "group[b]"
    if kind == "network":
        first, second = "`cough=yes | smoker=yes`", "`cough=yes | smoker=no`"
    draws = posterior.parameter_draws()
    a, b = (draws[name.strip("`")] for name in (first, second))
    for statement, holds in (
        (f"0.01 < {first} < 0.5", (a > 0.01) & (a < 0.5)),
        (f"{first} > 0.03 and {second} > 0.3", (a > 0.03) & (b > 0.3)),
        (f"abs({first} - 0.03) > 0.001 or not 30 * {first} > {second}",
         (np.abs(a - 0.03) > 0.001) | ~(30 * a > b)),
    ):  # fmt: skip
        assert posterior.prob(statement) == pytest.approx(np.mean(holds), abs=1e-12)


def test_two_posteriors_beside_each_other(posterior):
    if posterior.kind == "summary":
        with pytest.raises(RequestError, match="a block summary has none"):
            nw.compare(posterior, posterior)
        return
    alike = nw.compare(posterior, posterior, 0.9)
    assert set(alike.rows) == set(posterior.parameter_draws())
    for row in alike.rows.values():
        assert row["first"] == row["second"]
        assert row["times_as_wide"] == 1
        assert "difference" not in row  # the same people: draws are not independent
    for row in nw.compare(posterior, posterior, independent=True).rows.values():
        assert row["difference_95%_low"] < 0 < row["difference_95%_high"]
        assert 0.3 < row["prob_above_zero"] < 0.7
        width = row["first_95%_high"] - row["first_95%_low"]
        apart = row["difference_95%_high"] - row["difference_95%_low"]
        # sqrt 2 times as wide; the ends of an interval of 40 released draws are very rough
        least, most = (0.7, 2.8) if posterior.kind == "draws" else (1.1, 1.8)
        assert least * width < apart < most * width
    assert list(alike.to_frame().index) == list(alike.rows)


def test_only_like_is_compared_with_like(posteriors):
    with pytest.raises(RequestError, match="are of different kinds"):
        nw.compare(posteriors["regression"], posteriors["draws"])
    with pytest.raises(RequestError, match="second: expected a posterior, got int"):
        nw.compare(posteriors["regression"], 3)


def test_other_programs_may_have_the_parameters_alone(posterior):
    whole, alone = posterior.to_arviz(), posterior.to_arviz(auxiliary=False)
    if posterior.kind in ("regression", "network"):
        assert set(alone.groups()) < set(whole.groups())
        assert not {"naive", "plugin", "given_counts"} & set(alone.groups())
    if posterior.kind != "summary":
        kept = set(whole.posterior.data_vars) - {"theta_given_statistics"}
        assert set(alone.posterior.data_vars) == kept


# --- files ---------------------------------------------------------------------------------------


def test_files_keep_everything(posterior, tmp_path):
    posterior.save(tmp_path / "post.nc")
    loaded = nw.load_posterior(tmp_path / "post.nc")
    assert type(loaded) is type(posterior)
    np.testing.assert_equal(numbers(loaded), numbers(posterior))
    assert loaded.warnings == posterior.warnings
    assert str(loaded) == str(posterior)


def test_arviz_reads_the_file(posterior, tmp_path):
    import arviz as az

    posterior.save(tmp_path / "post.nc")
    data = az.from_netcdf(tmp_path / "post.nc")
    marker = json.loads(data.attrs["noisewise"])
    assert (marker["format"], marker["kind"]) == ("noisewise-posterior", posterior.kind)
    group = "observed_data" if posterior.kind == "summary" else "posterior"
    assert group in data.groups()


def test_files_that_are_no_posteriors(posterior, files, tmp_path):
    import arviz as az

    path = tmp_path / "post.nc"
    posterior.save(path)
    data = az.from_netcdf(path).load()
    data.close()
    marker = json.loads(data.attrs["noisewise"])
    for change, message in (
        ({"format_version": 3}, "a newer noisewise"),
        ({"kind": "os"}, "not a posterior file"),
        ({"release": "{}", "info": {}}, "post.nc"),
    ):
        data.attrs["noisewise"] = json.dumps({**marker, **change})
        data.to_netcdf(str(tmp_path / "other.nc"))
        with pytest.raises(ReleaseError, match=message.replace("post.nc", "other.nc")):
            nw.load_posterior(tmp_path / "other.nc")
    path.write_bytes(path.read_bytes()[:2000])
    for wrong in (path, files[posterior.kind], tmp_path, tmp_path / "missing.nc"):
        with pytest.raises(ReleaseError, match=str(wrong)):
            nw.load_posterior(wrong)


@pytest.mark.parametrize("where", ["missing/post.nc", "."])
def test_places_that_cannot_be_written_to(posterior, where, tmp_path):
    with pytest.raises(RequestError, match="out: "):
        posterior.save(tmp_path / where)


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("regression", "age", (0.028203914790739658, 0.023257557783853553, 0.03316896821210815)),
        (
            "network",
            "cough=yes | smoker=no",
            (0.5423887927572452, 0.47441875519679094, 0.6200860183154127),
        ),
    ],
)
def test_files_of_the_first_version_are_read(kind, name, expected, tmp_path):
    """Written by the version before this format, with the numbers that it printed."""
    path = tmp_path / "old.nc"
    path.write_bytes(gzip.decompress((FILES / f"posterior_v1_{kind}.nc.gz").read_bytes()))
    loaded = nw.load_posterior(path)
    assert loaded.kind == kind
    assert "R2" not in loaded.summary().rows  # not in such files; sigma follows from sigma2
    assert ("sigma" in loaded.summary().rows) == (kind == "regression")
    row = loaded.summary(0.95).rows[name]
    assert (row.mean, row.lower, row.upper) == pytest.approx(expected, rel=1e-12)
    loaded.save(path)
    np.testing.assert_equal(numbers(nw.load_posterior(path)), numbers(loaded))


# --- pictures, pages, predictions ----------------------------------------------------------------


def test_pictures(posterior, tmp_path):
    path = tmp_path / "a.svg"
    posterior.plot(path)
    whole = path.read_text()
    assert "<svg" in whole
    posterior.plot(path, names=[NAMED[posterior.kind]], level=0.5)
    assert len(path.read_text()) < len(whole)
    for words, message in (
        ({"kind": "bars"}, "kind: 'bars' is unknown; there are intervals, marginals"),
        ({"names": ["wage"]}, "wage"),
        ({"level": 95}, "level: expected a probability"),
    ):
        with pytest.raises(RequestError, match=message):
            posterior.plot(path, **words)
    with pytest.raises(RequestError, match="must end in"):
        posterior.plot(tmp_path / "a.txt")


def test_densities_need_draws(posterior, tmp_path):
    if posterior.kind == "summary":
        with pytest.raises(RequestError, match="no draws to make a density of; use intervals"):
            posterior.plot(tmp_path / "a.png", kind="marginals")
    else:
        for drawn in ("marginals", "pairs"):
            posterior.plot(tmp_path / f"{drawn}.png", kind=drawn)
            assert (tmp_path / f"{drawn}.png").stat().st_size > 2000


def test_effects_need_a_regression(posterior, tmp_path):
    if posterior.kind in ("summary", "network"):
        with pytest.raises(RequestError, match="has no effects of features; use intervals"):
            posterior.plot(tmp_path / "a.png", kind="effect")
    else:
        posterior.plot(tmp_path / "a.png", kind="effect", names=["group", "age"])
        assert (tmp_path / "a.png").stat().st_size > 2000


def test_pages(posterior, tmp_path):
    path = tmp_path / "page.html"
    posterior.report(path, level=0.9, title="Clinic & more")
    page = path.read_text(encoding="utf-8")
    assert "<h1>Clinic &amp; more</h1>" in page
    for part in ("What it says", "What was released", "What it cannot say", "Reproduce and cite"):
        assert part in page
    with pytest.raises(RequestError, match=r"must end in \.html"):
        posterior.report(tmp_path / "page.pdf")


def test_predictions_or_what_to_do_instead(posterior):
    if posterior.kind == "summary":
        with pytest.raises(RequestError, match="noisewise release"):
            posterior.predict(NEW)
        return
    target = {"network": "cough", "glm": "cough"}.get(posterior.kind, "score")
    head, *lines = posterior.predict(NEW, level=0.9, seed=1, target=target).lines()
    assert len(lines) == 2
    assert {len(line) for line in lines} == {len(head)}
    with pytest.raises(RequestError, match="fever"):
        posterior.predict(NEW, target="fever")
    with pytest.raises(RequestError, match="level"):
        posterior.predict(NEW, level=95, target=target)


# --- commands ------------------------------------------------------------------------------------


def run(*words):
    """Run a command; its deliberate errors are raised."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_every_command_takes_every_kind(kind, files, tmp_path):
    out, new = tmp_path / "post.nc", tmp_path / "new.csv"
    options = [word for name, value in OPTIONS[kind].items() for word in (f"--{name}", value)]
    assert f"Wrote {out}." in run("fit", files[kind], *options, "--out", out)
    loaded = nw.load_posterior(out)
    assert loaded.kind == kind
    statement = ASKED[kind][0]
    shown = run("show", out, "--level", 0.9, "--ask", statement)
    assert loaded.describe(0.9) in shown
    assert f"P({statement}) = {loaded.prob(statement):.4f}" in shown
    document = json.loads(run("show", out, "--ask", statement, "--json"))
    assert document["probabilities"] == {statement: loaded.prob(statement)}
    assert document["warnings"] == list(loaded.warnings)
    run("plot", out, "--out", tmp_path / "a.png", "--names", NAMED[kind])
    run("report", out, "--out", tmp_path / "a.html", "--title", "A page")
    assert "A page" in (tmp_path / "a.html").read_text(encoding="utf-8")
    with new.open("w", newline="") as written:
        csv.writer(written).writerows([NEW, *zip(*NEW.values(), strict=True)])
    words = ("predict", out, new, "--out", tmp_path / "p.csv")
    target = ("--target", "cough") if kind == "network" else ()
    if kind == "summary":
        with pytest.raises(NoisewiseError, match="has no predictions"):
            run(*words)
    else:
        run(*words, *target)
        assert len((tmp_path / "p.csv").read_text().splitlines()) == 3


def test_kinds_are_not_drawn_together(posteriors, tmp_path):
    from noisewise.analyst.posterior.plots import plot

    with pytest.raises(RequestError, match="compare like with like"):
        plot({k: posteriors[k] for k in ("regression", "network")}, tmp_path / "a.png")
