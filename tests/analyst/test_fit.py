"""From a Release file to a posterior in original units, in Python and on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

import noisewise as nw
from noisewise.analyst.fit import fit
from noisewise.analyst.regression.methods import METHODS
from noisewise.analyst.regression.priors import (
    NIGPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
)
from noisewise.core.errors import ReleaseError, RequestError

from ..cli.test_holder_commands import Shell
from ..releases import example_request, release_of

TRUTH = {"intercept": 20_000.0, "age": 1_000.0, "region[south]": -5_000.0, "region[east]": 8_000.0}
SIGMA = 10_000.0


def table(n=2000, seed=3):
    rng = np.random.default_rng(seed)
    age, region = rng.uniform(18, 90, n), rng.choice(["north", "south", "east"], n)
    effect = np.select([region == "south", region == "east"], [-5_000.0, 8_000.0], 0.0)
    income = 20_000 + 1_000 * age + effect + SIGMA * rng.standard_normal(n)
    return {"age": age, "region": region, "income": income}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two Releases of the same kind of people: hardly any noise, and a lot of it."""
    folder = tmp_path_factory.mktemp("releases")
    schema = nw.Schema(
        "people",
        {
            "age": nw.Number(18, 90),
            "region": nw.Category(("north", "south", "east"), "north"),
            "income": nw.Number(0, 200_000),
        },
    )
    with nw.Ledger(folder / "budget.db") as ledger:
        ledger.set_cap("people", 200, 0)
        for name, epsilon in (("clear", 100), ("noisy", 1)):
            request = nw.make_request(
                schema, target="income", features=["age", "region"], epsilon=epsilon
            )
            nw.publish(request, table(), ledger=ledger, out=folder / f"{name}.json")
    return folder


@pytest.fixture(scope="module")
def clear(folder):
    return nw.fit(nw.load_release(folder / "clear.json"), seed=1, draws=500)


@pytest.fixture(scope="module")
def noisy(folder):
    return nw.fit(nw.load_release(folder / "noisy.json"), seed=1, draws=500)


def test_little_noise_gives_the_ordinary_regression(clear):
    rows = clear.summary().rows
    for name, value in TRUTH.items():
        # The noise is fresh in every run: six standard deviations keep the test quiet.
        assert abs(rows[name].mean - value) < 6 * rows[name].sd
    assert rows["sigma2"].mean == pytest.approx(SIGMA**2, rel=0.15)
    # Least squares has standard error σ/√(n Var(age)) for the slope; privacy adds little here.
    assert rows["age"].sd == pytest.approx(SIGMA / np.sqrt(2000 * 72**2 / 12), rel=0.35)
    assert max(row.rhat for row in rows.values()) < 1.02
    assert clear.info.method == "exact"
    assert clear.info.noise_aware
    assert clear.info.warnings == (), clear.info.warnings


def test_more_noise_gives_wider_intervals_and_a_larger_share(clear, noisy):
    rows = noisy.summary().rows
    for name, value in TRUTH.items():
        assert abs(rows[name].mean - value) < 8 * rows[name].sd
    assert noisy.summary().rows["age"].sd > 3 * clear.summary().rows["age"].sd
    assert noisy.privacy_share()["age"] > 0.9
    assert clear.privacy_share()["age"] < noisy.privacy_share()["age"]


def test_naive_is_labelled_and_overconfident(folder, noisy):
    naive = nw.fit(nw.load_release(folder / "noisy.json"), method="naive", seed=1)
    assert not naive.info.noise_aware
    assert "too narrow" in naive.info.warnings[0]
    assert naive.summary().rows["age"].sd < noisy.summary().rows["age"].sd / 3
    with pytest.raises(RequestError, match="does not account"):
        naive.privacy_share()


def test_what_privacy_cost_is_in_the_posterior(noisy):
    row = noisy.comparison().rows["age"]
    assert row.width_ratio > 3
    assert row.naive_upper - row.naive_lower < (row.upper - row.lower) / 2
    assert row.privacy_share == noisy.privacy_share()["age"]


def test_holders_that_contradict_each_other_are_named(folder):
    """The second holder counts another kind of people: incomes are ten times lower."""
    schema = nw.load_release(folder / "clear.json").design.schema
    data = table(seed=5)
    data["income"] = data["income"] / 10
    request = nw.make_request(
        schema, target="income", features=["age", "region"], epsilon=100, label="odd"
    )
    with nw.Ledger(folder / "other.db") as ledger:
        ledger.set_cap("people", 100)
        odd = nw.publish(request, data, ledger=ledger).release
    with pytest.raises(ReleaseError, match=r"label 'odd'.* contradict each other"):
        fit([nw.load_release(folder / "clear.json"), odd], seed=1, draws=300)


def test_a_seed_makes_it_reproducible(folder):
    release = nw.load_release(folder / "clear.json")
    first, second, other = (fit(release, seed=s, draws=50, chains=2) for s in (7, 7, 8))
    np.testing.assert_array_equal(first.theta, second.theta)
    assert not np.array_equal(first.theta, other.theta)


def test_another_regression_from_the_same_release(folder):
    release = nw.load_release(folder / "clear.json")
    posterior = fit(release, target="age", features=["income"], seed=1, draws=500)
    data = table()
    slope, intercept = np.polyfit(data["income"], data["age"], 1)
    rows = posterior.summary().rows
    assert rows["income"].mean == pytest.approx(slope, abs=5 * rows["income"].sd)
    assert rows["intercept"].mean == pytest.approx(intercept, abs=5 * rows["intercept"].sd)


def test_two_holders_know_more_than_one(gaussian):
    one = fit(gaussian[0], seed=1, draws=500).summary().rows["age"].sd
    both = fit(gaussian, seed=1, draws=500)
    assert both.summary().rows["age"].sd < one
    assert both.info.n == (2000, 2000)


def test_the_same_people_do_not_count_twice(folder, gaussian):
    release = nw.load_release(folder / "clear.json")
    with pytest.raises(RequestError, match="the same Release"):
        fit([release, release])
    # Two data sets of one name and size may well be one data set, published twice.
    assert "count twice" in " ".join(fit(gaussian, method="naive").info.warnings)


def test_holders_that_disagree_under_heavy_tails_are_named(folder):
    """A posterior torn between two slopes is wide; that must not excuse the contradiction."""
    schema = nw.load_release(folder / "clear.json").design.schema
    other = table(3000, seed=6)
    other["income"] = 110_000 - other["income"]
    releases = []
    with nw.Ledger(folder / "mirror.db") as ledger:
        ledger.set_cap("people", 100, 0)
        for name, data in (("one", table(2500, seed=5)), ("mirrored", other)):
            request = nw.make_request(
                schema, target="income", features=["age", "region"], epsilon=20, label=name
            )
            releases.append(nw.publish(request, data, ledger=ledger).release)
    with pytest.raises(ReleaseError, match=r"contradict each other.* age is"):
        fit(releases, seed=1, draws=300)


def test_one_chain_cannot_show_that_it_converged(folder):
    release = nw.load_release(folder / "clear.json")
    text = " ".join(fit(release, chains=1, draws=500, seed=1).info.warnings)
    assert "one chain" in text


def test_a_prior_that_rules_is_said_to_rule():
    drowned = fit(release_of(example_request(epsilon=1e-3), n=200), seed=1, draws=300)
    assert "the prior decides on age" in " ".join(drowned.info.warnings)
    prior = nw.CoefficientPrior({"age": (0, 500)})
    drowned = fit(release_of(example_request(epsilon=1e-3), n=200), prior=prior, seed=1, draws=300)
    assert "say little about age" in " ".join(drowned.info.warnings)


def test_a_clear_release_is_not_said_to_be_ruled_by_the_prior(clear):
    assert not any("the prior decides" in text for text in clear.info.warnings)
    assert max(clear.info.prior_pull.values()) < 0.05


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"method": "magic"}, "magic"),
        ({"chains": 0}, "chains"),
        ({"draws": "many"}, "draws"),
        ({"seed": -1}, "seed"),
        ({"prior": {"age": (0, 500)}}, "CoefficientPrior"),
        ({"prior": "prior.yaml"}, "there is no file prior.yaml"),
        ({"covariate_prior": NIGPrior.weakly_informative(3)}, "covariate_prior"),
        ({"prior_units": "metric"}, "prior_units"),
        ({"prior": NIGPrior.weakly_informative(7)}, "7 covariates"),
    ],
)
def test_requests_that_make_no_sense(words, message):
    with pytest.raises(RequestError, match=message):
        fit(release_of(example_request()), **words)


def test_only_releases_are_accepted():
    with pytest.raises(RequestError, match="load_release"):
        fit([np.eye(3)])
    with pytest.raises(RequestError, match="load_release"):
        fit(None)
    with pytest.raises(RequestError, match="none given"):
        fit([])


@pytest.mark.parametrize("n", [1, 3, 4])
def test_too_few_rows_are_refused_with_the_remedy(n):
    with pytest.raises(ReleaseError, match="fewer features"):
        fit(release_of(example_request(), n=n))


def test_impossible_statistics_that_noise_explains_give_a_wide_posterior():
    """Sums of squares that are negative, means beyond the bounds: all of it may be noise."""
    values = [(-1) ** i * 60 * (1 << 32) for i in range(13)]
    posterior = fit(release_of(example_request(), n=50, values=values), seed=1, draws=200)
    assert np.isfinite(posterior.theta).all()
    assert posterior.summary().rows["age"].sd > 0


def test_impossible_statistics_that_noise_cannot_explain_are_refused():
    values = [(-1) ** i * (1 << 50) for i in range(13)]
    with pytest.raises(ReleaseError, match="damaged, forged or miscomputed"):
        fit(release_of(example_request(), n=50, values=values), seed=1, draws=200)


def test_a_private_number_of_rows():
    """Under add_remove_one n is a noisy statistic like the others; exact takes it for latent."""
    request = example_request(neighbours="add_remove_one", epsilon=20)
    names = request.design.names
    rng = np.random.default_rng(8)
    age, region = rng.uniform(-1, 1, 400), rng.integers(0, 3, 400)
    income = np.clip(0.3 * age - 0.2 * (region == 1) + rng.normal(0, 0.2, 400), -1, 1)
    w = np.column_stack([np.ones(400), age, region == 1, region == 2, income])
    entries = request.statistics[0].entries
    values = [round((w[:, a] * w[:, b]).sum() * 2**32) for a, b in entries]
    release = release_of(request, values=values)
    assert (release.n, len(names)) == (None, 5)
    posterior = fit(release, seed=1, draws=300)
    row = posterior.summary().rows["age"]
    assert row.mean == pytest.approx(0.3 * 100_000 / 36, abs=5 * row.sd)
    assert posterior.info.n == (None,)
    with pytest.raises(RequestError, match="private"):
        fit(release, method="gibbs_update")


@pytest.mark.slow
def test_a_law_of_the_covariates_of_ones_own():
    pytest.importorskip("numpyro", reason="the extra numpyro is not installed")
    from noisewise.analyst.regression import records

    release = release_of(example_request(features=["age"], epsilon=1), n=15)
    posterior = fit(release, covariate_prior=records.uniform, seed=1, draws=100, chains=2)
    assert posterior.info.method == "individual"
    assert posterior.comparison().rows["age"].spread > 0
    with pytest.raises(RequestError, match="individual"):
        fit(release, covariate_prior=records.uniform, method="exact")
    with pytest.raises(RequestError, match="individual"):
        fit(release, clip=True, method="gibbs_update")


@pytest.fixture(scope="module")
def fourth(folder):
    """A clear Release with fourth moments."""
    schema = nw.load_release(folder / "clear.json").design.schema
    request = nw.make_request(
        schema, target="income", features=["age"], epsilon=90, fourth_moments=0.5, label="fourth"
    )
    with nw.Ledger(folder / "budget.db") as ledger:
        return nw.publish(request, table(), ledger=ledger).release


@pytest.mark.parametrize("method", ["gibbs_update", "gibbs_noisy", "gibbs_noisy_aware", "naive"])
def test_every_method_finds_a_clear_slope(fourth, method):
    posterior = fit(fourth, method=method, seed=1, draws=500, chains=2)
    rows = posterior.summary().rows
    data = table()
    slope, intercept = np.polyfit(data["age"], data["income"], 1)
    assert rows["age"].mean == pytest.approx(slope, abs=5 * rows["age"].sd)
    assert rows["intercept"].mean == pytest.approx(intercept, abs=5 * rows["intercept"].sd)
    assert rows["sigma2"].mean == pytest.approx(1.1e8, rel=0.3)


def test_gibbs_prior_takes_moments_by_formula_or_by_simulation(fourth):
    """Uniform ages: by default, and told so, by simulation from the law itself."""
    from noisewise.analyst.regression.papers.moments import CovariateMoments

    uniform = CovariateMoments.from_draws(np.random.default_rng(1).uniform(-1, 1, (200_000, 1)))
    slope = np.polyfit(table()["age"], table()["income"], 1)[0]
    for moments in (None, uniform):
        posterior = fit(fourth, method="gibbs_prior", covariate_prior=moments, seed=1, draws=500)
        row = posterior.summary().rows["age"]
        assert row.mean == pytest.approx(slope, abs=6 * row.sd)
        assert "fixes the law" in " ".join(posterior.info.warnings)
    with pytest.raises(RequestError, match="gibbs_prior"):
        fit(fourth, method="exact", covariate_prior=uniform)


def test_gibbs_and_exact_agree_where_both_are_right(folder):
    release = nw.load_release(folder / "noisy.json")
    gibbs = fit(release, method="gibbs_update", seed=2, draws=4000)
    # Gibbs sampling takes conjugate priors only.
    priors = {
        "prior": NormalInverseGammaIndependent.weakly_informative(3),
        "covariate_prior": NIWPrior.weakly_informative(3),
    }
    exact = fit(release, seed=1, **priors)
    for name in exact.names:
        ours, theirs = exact.summary().rows[name], gibbs.summary().rows[name]
        error = np.hypot(ours.sd / np.sqrt(ours.ess), theirs.sd / np.sqrt(theirs.ess))
        assert abs(ours.mean - theirs.mean) < 6 * error + 0.1 * ours.sd
        assert theirs.sd == pytest.approx(ours.sd, rel=0.35)


@pytest.fixture(scope="module")
def gaussian(folder):
    """Two holders with Gaussian noise."""
    schema = nw.load_release(folder / "clear.json").design.schema
    releases = []
    with nw.Ledger(folder / "gaussian.db") as ledger:
        ledger.set_cap("people", 200, "1e-5")
        for number in range(2):
            request = nw.make_request(
                schema, target="income", features=["age"], epsilon=30, delta=1e-6, rounds=1,
                label=f"{number}",
            )  # fmt: skip
            releases.append(nw.publish(request, table(seed=number), ledger=ledger).release)
    return releases


@pytest.mark.parametrize("method", ["normal_x", "bs_distributed", "fixed_s", "fixed_s_fast"])
def test_methods_for_holders_with_gaussian_noise(gaussian, method):
    posterior = fit(gaussian, method=method, seed=1, draws=300, chains=2)
    row = posterior.comparison().rows["age"]
    assert row.median == pytest.approx(1_000, abs=6 * row.spread)
    assert posterior.info.noise_aware == (method in ("normal_x", "bs_distributed"))
    caveat = method in ("fixed_s", "fixed_s_fast", "bs_distributed")
    assert any("use exact" in text for text in posterior.info.warnings) == caveat
    assert np.isnan(posterior.summary().rows["sigma2"].ess) == (method == "fixed_s_fast")


@pytest.mark.parametrize("method", ["normal_x", "bs_distributed", "fixed_s", "fixed_s_fast"])
def test_methods_for_gaussian_noise_refuse_other_noise(folder, method):
    with pytest.raises(RequestError, match=r"Gaussian|gaussian"):
        fit(nw.load_release(folder / "noisy.json"), method=method)


def test_fourth_moments_must_be_there(folder):
    with pytest.raises(RequestError, match="fourth moments"):
        fit(nw.load_release(folder / "clear.json"), method="gibbs_noisy")


def test_every_method_is_described():
    assert {"exact", "naive"} <= set(METHODS)
    assert all(method.describe for method in METHODS.values())


# --- command line ------------------------------------------------------------------------------


@pytest.fixture
def shell(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    return Shell(folder, capsys, monkeypatch)


def test_fit_show_and_predict(shell):
    out = shell("fit", "clear.json", "--seed", "1", "--draws", "200", "--out", "post.nc")
    assert "exact" in out
    assert "income ~ age + region" in out
    document = json.loads(shell("show", "post.nc", "--json"))
    assert set(document["summary"]) == {*TRUTH, "sigma2", "sigma", "R2"}
    assert set(document["summary"]["age"]) == {
        *("median", "spread", "lower", "upper", "rhat", "ess", "mean", "sd"),
        *("all_rows_lower", "all_rows_upper"),
    }
    assert document["summary"]["age"]["median"] == pytest.approx(1_000, rel=0.2)
    assert document["noise_aware"] is True
    shell("fit", "clear.json", "--chains", "1", "--draws", "50", "--out", "one.nc")
    assert json.loads(shell("show", "one.nc", "--json"))["summary"]["age"]["rhat"] is None
    assert set(document["naive"]["age"]) == {"median", "spread", "lower", "upper"}
    assert document["prior"] == {}
    assert set(document["prior_pull"]) == set(TRUTH) - {"intercept"}
    text = shell("show", "post.nc")
    assert "naive" in text
    assert "Prior: on the data's own scale" in text
    (shell.folder / "new.csv").write_text("region,age\nsouth,40\neast,50.5\n")
    lines = shell("predict", "post.nc", "new.csv", "--seed", "2").splitlines()
    assert lines[0] == "estimate,spread,lower,upper"
    mean, _, lower, upper = map(float, lines[1].split(","))
    assert mean == pytest.approx(55_000, abs=4_000)
    assert lower < mean < upper


@pytest.mark.slow
def test_a_prior_file_and_pictures(shell):
    (shell.folder / "prior.yaml").write_text("coefficients: {age: {mean: 0, sd: 1}}\n")
    words = ("--seed", "1", "--draws", "200", "--out", "tight.nc")
    shell("fit", "noisy.json", "--prior", "prior.yaml", *words)
    document = json.loads(shell("show", "tight.nc", "--json"))
    assert document["prior"]["age"] == {"mean": 0.0, "sd": pytest.approx(1)}
    assert abs(document["summary"]["age"]["mean"]) < 10
    for kind in ("intervals", "marginals"):
        shell("plot", "tight.nc", "--kind", kind, "--out", f"{kind}.png")
        assert (shell.folder / f"{kind}.png").read_bytes().startswith(b"\x89PNG")
    for words in (("plot", "tight.nc"), ("predict", "tight.nc", "new.csv")):
        (shell.folder / "new.csv").write_text("region,age\nsouth,40\n")
        shell(*words, "--out", "nofolder/a.png", code=2)
        assert "no folder" in shell.err
    shell("predict", "tight.nc", "new.csv", "--seed", "-1", code=2)
    shell("fit", "noisy.json", "--out", "nofolder/post.nc", code=2)
    assert "error's sd" in shell("show", "tight.nc")
    shell("plot", "tight.nc", "--names", "sigma2,age", "--kind", "marginals", "--out", "two.png")
    shell("plot", "tight.nc", "tight.nc", code=2)
    shell("plot", "tight.nc", "--kind", "pie", code=2)
    shell("plot", "tight.nc", "--out", "picture.txt", code=2)
    shell("fit", "noisy.json", "--prior", "absent.yaml", code=2)


def test_folders_of_releases_and_a_point_estimate(shell):
    series = shell.folder / "series"
    series.mkdir(exist_ok=True)
    for name in ("a.json", "b.json"):
        (series / name).write_bytes((shell.folder / "clear.json").read_bytes())
    (series / "c.json").write_bytes((shell.folder / "noisy.json").read_bytes())
    (series / "notes.json").write_text("{}")
    shell("fit", "series", "--method", "naive", "--out", "folder.nc")
    assert "b.json: the same Release" in shell.err
    assert "notes.json" in shell.err
    assert json.loads(shell("show", "folder.nc", "--json"))["n"] == [2000, 2000]
    document = json.loads(shell("estimate", "clear.json", "--json"))
    assert document["coefficients"]["age"] == pytest.approx(1_000, rel=0.3)
    assert "no uncertainty" in shell("estimate", "clear.json")
    shell("estimate", "clear.json", "--rule", "magic", code=2)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["fit", "absent.json"], 6),
        (["fit", "clear.json", "--method", "magic"], 2),
        (["fit", "clear.json", "--features", "wage"], 2),
        (["show", "absent.nc"], 6),
        (["show", "clear.json"], 2),
    ],
)
def test_mistakes(shell, words, code):
    shell(*words, code=code)
    assert "Traceback" not in shell.err
