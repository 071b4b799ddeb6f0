"""Methods of `fit`: names in errors, whether holders agree, the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from noisewise.analyst.common_cautions import repetition_warnings
from noisewise.analyst.fit import fit
from noisewise.analyst.regression.agreement import draw_covariates, thinned
from noisewise.analyst.regression.cautions import contradiction_warnings
from noisewise.analyst.regression.methods import METHODS
from noisewise.analyst.regression.papers import alparslan, gibbs
from noisewise.analyst.regression.priors import NIWPrior
from noisewise.core.errors import ReleaseError, RequestError

from ..cli.test_holder_commands import Shell
from ..conformance.test_methods import release
from ..releases import example_request, release_of
from .gibbs_problems import defaults, problem

FROM_DRAWS = ("exact", "gibbs_update", "gibbs_noisy", "gibbs_noisy_aware", "bs_distributed")


def test_what_is_fixed_is_shown_as_fixed():
    posterior = fit(release(), method="fixed_s_fast", seed=1, chains=2, draws=20)
    row = posterior.summary().rows["sigma2"]
    assert row.is_fixed
    assert row.lower == row.mean == row.upper == posterior.sigma2[0, 0]
    line, last = str(posterior.summary()).splitlines()[-2:]
    assert line.split() == ["sigma2", f"{row.mean:.5g}", "fixed"]
    assert last.split() == ["sigma", f"{row.mean**0.5:.5g}", "fixed"]
    compared = str(posterior.comparison())
    assert "nan" not in compared
    assert "0.00" not in compared
    assert "fixed at" in compared
    assert np.isnan(posterior.comparison().rows["sigma2"].width_ratio)
    other = fit(release(), method="fixed_s", seed=1, chains=2, draws=20)
    assert not other.summary().rows["sigma2"].is_fixed


def test_fixed_s_aware_is_fixed_s_with_account_for_s():
    from noisewise.analyst.regression.observation import observe
    from noisewise.analyst.regression.priors import NormalInverseGammaIndependent

    noisy = release(n=200, epsilon=2)
    columns, observations = observe([noisy])
    prior = NormalInverseGammaIndependent.weakly_informative(1)
    words = {"chains": 2, "draws": 400, "seed": 1}
    drawn = alparslan.sample(observations, prior, account_for_s=True, **words)
    aware = fit(noisy, method="fixed_s_aware", **words)
    np.testing.assert_array_equal(aware.theta, columns.theta_to_original(drawn.theta))
    assert not np.array_equal(aware.theta, fit(noisy, method="fixed_s", **words).theta)


# --- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "error"),
    [("auto", ReleaseError), ("exact", ReleaseError), ("gibbs_update", ReleaseError)]
    + [(method, RequestError) for method in ("normal_x", "fixed_s", "fixed_s_fast")],
)
def test_a_tiny_holder_is_named_with_the_remedy(method, error):
    given = [release(), release(n=2, dataset="tiny", label="May")]
    with pytest.raises(error, match=r"release 2 \(data set 'tiny', label 'May'\) has .*leave it o"):
        fit(given, method=method, seed=1)
    with pytest.raises(error, match=r"b\.json \(data set 'tiny'\) has .*leave it out"):
        fit(given, method=method, seed=1, names=["a.json", "b.json"])


def test_names_must_be_one_for_each_release():
    for names in (["a.json"], "ab"):
        with pytest.raises(RequestError, match="names: expected one for each of 2"):
            fit([release(), release(dataset="other")], names=names)


def test_other_errors_about_one_of_several_name_it():
    other = release_of(example_request(features=["region"]))
    with pytest.raises(RequestError, match=r"release 2 \(data set 'people'\) has no column 'age'"):
        fit([release(), other])
    forged = release_of(example_request(), n=50, values=[(-1) ** i * (1 << 50) for i in range(13)])
    with pytest.raises(ReleaseError, match="the Release of data set 'people' cannot come from"):
        fit(forged)
    laplace = release_of(example_request(features=["age"]))
    with pytest.raises(RequestError, match=r"bs_distributed is for Gaussian.*'people'.* Laplace"):
        fit(laplace, method="bs_distributed")


def test_many_batches_of_one_size_are_one_warning():
    found = repetition_warnings([("batches", 500)] * 10 + [("other", 500), ("batches", None)])
    assert len(found) == 1
    assert "release 1, release 2" in found[0]
    assert "and 5 more are of a data set 'batches' with 500 rows each" in found[0]
    assert "other" not in found[0]
    named = repetition_warnings([("a", 5), ("b", 5), ("a", 5)], ["x.json", "y.json", "z.json"])
    assert named[0].startswith("x.json, z.json are of a data set 'a'")
    assert repetition_warnings([("a", 5), ("a", 6), ("b", 5), ("a", None), ("a", None)]) == ()


# --- do holders agree? -------------------------------------------------------------------------


def contradictions(posterior):
    return [text for text in posterior.info.warnings if "contradict" in text]


@pytest.mark.parametrize("method", [*FROM_DRAWS, "gibbs_prior", "normal_x"])
def test_holders_whose_covariates_differ_are_named(method):
    """Means 1.6 standard deviations apart; and the control, holders that agree."""
    words = {"method": method, "seed": 1, "chains": 2, "draws": 200}
    alike = [release(n=400, seed=s, dataset=name) for s, name in enumerate(("north", "south"))]
    assert not contradictions(fit(alike, **words))
    older = release(n=400, seed=1, dataset="south", older=0.4)
    posterior = fit([alike[0], older], **words)
    (text,) = contradictions(posterior)
    assert "'north'" in text
    assert "'south'" in text
    assert "too narrow" in text
    assert "let coefficients vary by holder" in text
    assert posterior.observed["discrepancy_2"].max() > 6


def test_holders_whose_means_differ_have_a_method():
    """The warning recommends it, and it finds nothing wrong; one holder's posterior is the same."""
    words = {"seed": 1, "chains": 2, "draws": 300}
    south = release(n=400, seed=1, dataset="south", older=0.4)
    seen = [release(n=400, seed=0, dataset="north"), south]
    shared, own = (fit(seen, method=name, **words) for name in ("exact", "exact_own_laws"))
    assert "exact_own_laws" in contradictions(shared)[0]
    assert not contradictions(own)
    assert own.info.method == "exact_own_laws"
    one, same = (fit(south, method=name, **words) for name in ("exact", "exact_own_laws"))
    np.testing.assert_array_equal(one.draws("age"), same.draws("age"))


def test_one_release_alone_contradicts_nobody():
    columns = fit(release(), method="naive").columns
    away = np.zeros((3, 3))
    away[0, 1] = 9.0
    assert contradiction_warnings([away], columns, ["it"]) == ()
    (text,) = contradiction_warnings([away, away / 2], columns, ["one", "two"])
    assert "one by its sum of age contradicts the model that fits all Releases" in text
    assert contradiction_warnings([away / 2, away / 2], columns, ["one", "two"]) == ()


def test_covariates_drawn_given_the_statistics():
    """Mean and variance of the conjugate law, by formula."""
    rng = np.random.default_rng(1)
    x = rng.normal([0.2, -0.1], [0.3, 0.5], (30, 2))
    w = np.column_stack([np.ones(30), x, x[:, 0]])
    prior = NIWPrior(np.array([0.1, 0.0]), 2.0, np.array([[1.0, 0.2], [0.2, 0.5]]), 6.0)
    mu, T = draw_covariates(rng, np.tile(w.T @ w, (40_000, 1, 1)), prior)
    centre = (2.0 * prior.m + x.sum(axis=0)) / 32.0
    Psi = prior.Psi + x.T @ x + 2.0 * np.outer(prior.m, prior.m) - 32.0 * np.outer(centre, centre)
    expected = Psi / (36.0 - 3.0)
    np.testing.assert_allclose(T.mean(axis=0), expected, atol=6 * T.std() / 200)
    np.testing.assert_allclose(mu.mean(axis=0), centre, atol=6 * mu.std() / 200)
    np.testing.assert_allclose(np.cov(mu.T), expected / 32.0, atol=2e-4)


def test_kept_statistics_and_covariates_are_those_of_evenly_spaced_draws():
    o = problem(2)
    words = {"chains": 2, "draws": 23, "seed": 3}
    every = gibbs.sample([o, o], *defaults(2), keep_statistics=True, **words)
    some = gibbs.sample([o, o], *defaults(2), keep_statistics=5, **words)
    np.testing.assert_array_equal(some.theta, every.theta)
    np.testing.assert_array_equal(some.statistics, every.statistics[:, :20:4])
    np.testing.assert_array_equal(
        thinned(every.theta, 5), every.theta[:, [0, 4, 8, 12, 16]].reshape(10, 3)
    )
    seen = [problem(2, scale=1.0, family="gaussian", n=100)]
    words |= {"tune": 50}
    every = alparslan.sample(seen, *defaults(2), keep_covariates=23, **words)
    some = alparslan.sample(seen, *defaults(2), keep_covariates=5, **words)
    np.testing.assert_array_equal(some.mu, every.mu[:, :20:4])
    np.testing.assert_array_equal(some.T, every.T[:, :20:4])
    assert (np.linalg.eigvalsh(every.T) > 0).all()
    assert alparslan.sample(seen, *defaults(2), **words).mu.shape == (2, 0, 2)


# --- command line ------------------------------------------------------------------------------


@pytest.fixture
def shell(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return Shell(tmp_path, capsys, monkeypatch)


def test_help_and_the_list_have_every_method(shell):
    listed, usual = shell("methods", "--all"), shell("methods")
    told = shell("fit", "--help")
    for name, method in METHODS.items():
        assert f"{name} " in listed
        assert method.describe in listed or f"{name} " in usual
    for name in ("exact", "exact_own_laws", "individual"):
        assert f"{name} " in usual
        assert name in told
    assert "gibbs_noisy" not in usual
    assert "gibbs_noisy" not in told
    assert "noisewise methods" in told


def test_files_are_named(shell):
    def write(given, name):
        (shell.folder / name).write_text(given.to_text(), encoding="utf-8")

    for number in range(10):
        write(release(seed=number, label=str(number)), f"{number}.json")
    shell("fit", ".", "--method", "fixed_s", "--draws", "20", "--seed", "1", "--out", "post.nc")
    assert shell.err.count("people count twice") == 1
    assert "0.json, 1.json" in shell.err
    write(release(n=2, dataset="tiny"), "tiny.json")
    shell("fit", ".", "--out", "post.nc", code=6)
    assert "tiny.json (data set 'tiny') has 2 rows" in shell.err
    shell("estimate", ".")
    assert "tiny.json (data set 'tiny') has 2 rows" in shell.err
    assert shell.err.count("people count twice") == 1
    document = json.loads(shell("estimate", "tiny.json", "--json"))
    assert len(document["warnings"]) == 1
    assert json.loads(shell("estimate", "1.json", "--json"))["warnings"] == []
