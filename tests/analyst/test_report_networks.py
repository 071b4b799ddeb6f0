"""The report on a network: complete, its numbers the posterior's, readable when it is large."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import noisewise as nw
from noisewise.analyst.network.fit import fit_network
from noisewise.analyst.posterior.file import load_posterior
from noisewise.analyst.report import network as page
from noisewise.analyst.report import render, write_report
from noisewise.analyst.report.network import contrasts, plug_in_means, sentence, summable
from noisewise.analyst.report.widgets import drawing, family_order
from noisewise.analyst.report.words import percent, rounded
from noisewise.core.errors import RequestError

from .report_examples import CLINIC, clinic, large_network, made_network, network_release
from .report_pages import HOSTILE, Outline, assert_harmless

LEVEL = 0.9


@pytest.fixture(scope="module")
def fitted():
    """A posterior that really comes from a Release."""
    return fit_network(network_release(), chains=2, draws=200, seed=1)


def test_a_page_has_everything_that_was_promised(fitted):
    outline = Outline(render(fitted))
    assert not outline.open
    for word in (
        "What it says", "The network", "The tables", "What privacy cost", "What was released",
        "Model and prior", "Can the numbers be trusted?", "What it cannot say",
        "Reproduce and cite", "epsilon = 1", "2.72 times", "replace_one", "who owns one row",
        "laplace: counts of rows", "discrete Laplace with sd 9.89",
            "inferred together with everything else",
        "noisewise fit release.json --method joint --chains 2 --draws 200",
        fitted.info.digests[0], f"noisewise {nw.__version__}", "arXiv:1512.06992", *CLINIC,
    ):  # fmt: skip
        assert word in outline.said, word


def test_its_tables_are_those_of_the_posterior(fitted):
    tables = Outline(render(fitted, level=LEVEL)).tables
    for node in fitted.nodes:
        parents = fitted.network.parents[node]
        title = f"{node}, given {' and '.join(parents)}" if parents else node
        head, *rows = tables[f"Probabilities of {title}"]
        assert head[1:] == [
            "probability", "90% interval", "plug-in", "plug-in 90% interval", "due to privacy",
        ]  # fmt: skip
        found, plug = fitted.table(node, LEVEL), fitted.plugin_table(node, LEVEL)
        share = fitted.privacy_share(node)
        places = list(np.ndindex(*fitted.network.shape(node)))
        assert len(rows) == len(places)
        for place, row in zip(places, rows, strict=True):
            levels = [
                fitted.network.levels(name)[k]
                for name, k in zip(fitted.network.family(node), place, strict=True)
            ]
            given = ", ".join(f"{p} = {k}" for p, k in zip(parents, levels[:-1], strict=True))
            sd, plug_sd = found.sd[place], plug.sd[place]
            assert row == [
                f"{levels[-1]} if {given}" if given else levels[-1],
                rounded(found.mean[place], sd),
                f"{rounded(found.lower[place], sd)} to {rounded(found.upper[place], sd)}",
                rounded(plug.mean[place], plug_sd),
                f"{rounded(plug.lower[place], plug_sd)} to {rounded(plug.upper[place], plug_sd)}",
                percent(share[place]),
            ]


def test_its_marginals_are_those_of_the_posterior(fitted):
    _, *rows = Outline(render(fitted, level=LEVEL)).tables["Probability of each level"]
    expected = []
    for node in fitted.nodes:
        answer = fitted.marginal(node, level=LEVEL)
        for k, level in enumerate(fitted.network.levels(node)):
            ends = (rounded(float(x[k]), float(answer.sd[k])) for x in (answer.lower, answer.upper))
            mean = rounded(float(answer.mean[k]), float(answer.sd[k]))
            expected.append([f"{node} = {level}", mean, " to ".join(ends)])
    assert [row[:3] for row in rows] == expected


def test_its_sentences_are_about_conditional_probabilities(fitted):
    """P(child | parent) from the posterior's own queries, one for every arrow, the surest first."""
    found = contrasts(fitted)
    assert len(found) == len(fitted.network.edges)
    assert [c.chance for c in found] == sorted((c.chance for c in found), reverse=True)
    told = [sentence(contrast, LEVEL) for contrast in found]
    said = Outline(render(fitted, level=LEVEL)).said
    for contrast, text in zip(found, told, strict=True):
        child, level = contrast.event.split(" = ")
        parent, high = contrast.given.split(" = ")
        _, low = contrast.otherwise.split(" = ")
        more, less = (fitted.prob({child: level}, given={parent: k}) for k in (high, low))
        difference = more.draws - less.draws
        np.testing.assert_allclose(contrast.difference, difference, atol=1e-12)
        assert contrast.more == pytest.approx(float(more.mean))
        assert contrast.less == pytest.approx(float(less.mean))
        assert contrast.more >= contrast.less
        sd = float(difference.std())
        ends = np.quantile(difference, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        assert f"difference {rounded(ends[0], sd)} to {rounded(ends[1], sd)}" in text
        assert text in said
        verdict = contrast.chance
        assert ("undecided" in text) == (verdict < 0.9)
        assert ("is probably more common" in text) == (0.9 <= verdict < 0.975)


def test_the_largest_contrast_is_told():
    """Three levels on either side: the sentence is about the pair that differs most."""
    network = clinic({"a": [], "b": ["a"]}, {"a": ("x", "y", "z"), "b": ("1", "2", "3")})
    posterior = made_network(network, chains=2, draws=100)
    theta = posterior.theta.copy()
    rows = np.array([[0.2, 0.3, 0.5], [0.2, 0.7, 0.1], [0.3, 0.25, 0.45]])
    theta[..., posterior.layout.part(posterior.layout.number["b"])] = rows.reshape(-1)
    (found,) = contrasts(replace(posterior, theta=theta))
    assert (found.event, found.given, found.otherwise) == ("b = 2", "a = y", "a = z")
    assert found.more - found.less == pytest.approx(0.45)


def test_ignoring_the_noise_is_the_mean_of_plug_in_draws(fitted):
    """The product of mean tables is compared with the mean over draws of the plug-in posterior."""
    from noisewise.analyst.network.layout import normalised
    from noisewise.analyst.network.queries import joint_probabilities

    rng, layout = np.random.default_rng(1), fitted.layout
    draws = normalised(rng.standard_gamma(fitted.plugin, (4000, layout.cells)), layout)
    i = layout.number["cough"]
    each = joint_probabilities(layout, draws, [i], {})
    (found,) = joint_probabilities(layout, plug_in_means(fitted)[None], [i], {})
    assert found == pytest.approx(each.mean(axis=0), abs=5 * each.std(axis=0).max() / 4000**0.5)
    _, *rows = Outline(render(fitted)).tables["Probability of each level"]
    sd = float(fitted.marginal("cough").sd[1])
    assert rows[-1][3] == rounded(found[1], sd)


def test_it_is_accessible(fitted):
    outline = Outline(render(fitted))
    levels = [int(name[1]) for name, _ in outline.elements if re.fullmatch(r"h\d", name)]
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert len(outline.all("caption")) == len(outline.all("table")) > 5
    assert all(cell["scope"] in ("col", "row") for cell in outline.all("th"))
    assert len(outline.all("svg")) > 5
    for chart in outline.all("svg"):
        assert chart["role"] == "img"
        assert len(chart["aria-label"]) > 40
    ids = [a["id"] for _, a in outline.elements if "id" in a]
    assert len(ids) == len(set(ids))
    # Who does not see the graph is told of its edges, and finds them in a table.
    labels = [chart["aria-label"] for chart in outline.all("svg")]
    assert any("smoker to disease" in label and "4 arrows" in label for label in labels)
    nodes = {row[0]: row[2] for row in outline.tables["Nodes"][1:]}
    assert nodes["cough"] == "disease and smoker"
    assert nodes["region"] == "nothing"


def test_hostile_names_are_text():
    parents = {HOSTILE[0]: [], HOSTILE[1]: [HOSTILE[0]], HOSTILE[2]: [HOSTILE[1], HOSTILE[0]]}
    levels = {HOSTILE[0]: (HOSTILE[3], HOSTILE[4], "<i>")}
    posterior = made_network(clinic(parents, levels, dataset="<b>d</b>"))
    posterior = replace(
        posterior,
        info=replace(
            posterior.info,
            warnings=("<script>w</script>",),
            claims=("<script>c</script>",),
            mechanisms=("<script>m</script>",),
            algorithm="<script>a</script>",
            reason="<img src=r>",
            digests=("<img src=d>",),
            units=("<script>/<img>",),
        ),
    )
    page = render(posterior, title="<script>t</script>")
    for bad in ("<script", "<img", "<i>", "<b>", "onerror=alert(2)>", "<svg onload"):
        assert bad not in page
    outline = assert_harmless(page)
    for name in HOSTILE:
        assert name in outline.said


def test_fifty_nodes_stay_readable():
    page = render(made_network(large_network(50)))
    assert len(page) < 2_000_000
    outline = Outline(page)
    folded = outline.all("details")
    assert len(folded) == 50
    assert not any("open" in attributes for attributes in folded)
    assert "12 of the 50 nodes" in outline.said
    assert len(outline.tables["Nodes"]) == 51
    small = Outline(render(made_network()))
    assert all("open" in attributes for attributes in small.all("details"))


def test_long_names_do_not_make_the_page_heavy():
    names = [f"{i:02d}" + "y" * 190 for i in range(30)]
    parents = {name: names[max(0, i - 6) : i] for i, name in enumerate(names)}
    page = render(made_network(clinic(parents), chains=2, draws=20))
    assert len(page) < 4_000_000
    assert "not fit on this page" in page


def test_what_is_too_large_is_named_and_not_shown():
    levels = {"postcode": tuple(str(i) for i in range(300))}
    network = clinic({"postcode": [], "ill": ["postcode"]}, levels)
    outline = Outline(render(made_network(network, draws=20)))
    assert "2 tables do not fit on this page: postcode and ill" in outline.said
    assert "noisewise show post.nc --json" in outline.said
    many = clinic({f"n{i}": [] for i in range(150)})
    assert "150 nodes is too large to be drawn" in render(made_network(many, draws=20))


def test_nothing_is_simulated_unasked():
    """The child of 18 nodes is too wide to sum over: its distribution is left out."""
    names = [f"symptom{i}" for i in range(18)]
    network = clinic({"child": names, **{name: [] for name in names}})
    outline = Outline(render(made_network(network, chains=2, draws=4)))
    shown = {row[0].partition(" = ")[0] for row in outline.tables["Probability of each level"][1:]}
    assert shown == set(names[:12])
    assert "12 of the 19 nodes" in outline.said
    assert "more common" not in outline.said  # nor what its parents do to it


def test_what_would_take_minutes_is_left_out(monkeypatch):
    posterior = made_network()
    assert summable(posterior, [posterior.layout.number["cough"]])
    monkeypatch.setattr(page, "_MOST_WORK", 10 * len(posterior.flat))
    assert not summable(posterior, [posterior.layout.number["cough"]])  # a table of 12 cells
    _, *rows = Outline(render(posterior)).tables["Probability of each level"]
    assert {row[0].partition(" = ")[0] for row in rows} == {"smoker", "region"}


def test_nodes_of_many_levels_have_no_list_of_them():
    network = clinic({"postcode": []}, {"postcode": tuple(str(i) for i in range(20))})
    outline = Outline(render(made_network(network, draws=20)))
    assert "does not fit here" in outline.said
    assert len(outline.tables["Probabilities of postcode"]) == 21


def test_the_plug_in_posterior_comes_with_a_caution(fitted):
    careless = fit_network(network_release(), method="plugin", chains=2, draws=50, seed=1)
    page = render(careless)
    assert "Before you use these numbers" in page
    assert "the privacy noise is ignored" in page
    assert "this analysis ignores it" in page
    assert "plug-in 95% interval" not in page
    assert "cannot tell how much of the uncertainty" in page
    assert all(warning[1:] in Outline(render(fitted)).said for warning in fitted.info.warnings)


def test_released_draws_of_tables():
    from ..core.test_network_release import draws_release

    posterior = nw.fit(draws_release())
    outline = Outline(render(posterior))
    assert not outline.open
    assert "Nothing was simulated here" in outline.said
    assert "The prior of the tables is the holder's" in outline.said
    assert "Before you use these numbers" in outline.said
    assert "plug-in" not in " ".join(outline.tables["Probabilities of a"][0])


def test_several_files_each_have_their_unit():
    posterior = made_network(releases=2)
    info = replace(posterior.info, units=("replace_one/1", "add_remove_one/3"), n=(2000, None))
    outline = Outline(render(replace(posterior, info=info)))
    _, first, second = outline.tables["Released files"]
    assert "who owns one row (replace_one)" in first[-1]
    assert "who owns up to 3 rows" in second[-1]
    assert second[2] == "private"
    assert "promises add up" in outline.said


def test_a_posterior_without_the_later_fields_still_has_a_report(tmp_path):
    posterior = made_network(releases=2)
    info = replace(
        posterior.info, datasets=(), units=(), noise_scales=(), concentration=(), warnings=()
    )
    outline = Outline(render(replace(posterior, info=info)))
    _, first, second = outline.tables["Released files"]
    assert "who owns one row" in first[-1]
    assert second[-1] == "not stated in this file"  # the schema is the first file's
    assert "The prior of the tables is not stated" in outline.said


def test_a_file_keeps_what_the_page_needs(fitted, tmp_path):
    fitted.save(tmp_path / "post.nc")
    loaded = load_posterior(tmp_path / "post.nc")
    assert loaded.info == fitted.info
    assert render(loaded) == render(fitted)


def test_from_python(fitted, tmp_path):
    fitted.report(tmp_path / "a.html", level=0.8, title="A title")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert page == render(fitted, level=0.8, title="A title")
    assert "<h1>A title</h1>" in page
    with pytest.raises(RequestError, match=r"out: .*\.html"):
        write_report(fitted, tmp_path / "report.pdf")
    with pytest.raises(RequestError, match="posterior: expected what"):
        render(network_release())


# --- the drawing -------------------------------------------------------------------------------


def test_parents_come_before_their_children():
    network = large_network(40, seed=3)
    order = family_order(network)
    assert sorted(order) == sorted(network.nodes)
    assert all(order.index(a) < order.index(b) for a, b in network.edges)


def test_every_edge_is_an_arc_between_its_nodes():
    network = clinic()
    picture = str(drawing(network))
    names = re.findall(r'<text x="\d+" y="(\d+)" class="name">(\w+)</text>', picture)
    middle = {name: int(y) - 4 for y, name in names}
    assert list(middle) == family_order(network)
    curves = re.findall(r'class="arc" d="M\d+ (\d+)C\S+ \d+ \S+ \d+ \d+ (\d+)"', picture)
    found = {(int(start) - 3, int(end) + 2) for start, end in curves}
    assert found == {(middle[a], middle[b]) for a, b in network.edges}
    assert len(curves) == len(network.edges)


def test_a_graph_without_edges():
    picture = drawing(clinic({"a": [], "b": []}))
    assert "a and b are independent of each other" in picture
    assert 'class="arc"' not in picture
