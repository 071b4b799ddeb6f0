"""One suite that every method of `fit` passes: it is run for each entry of `METHODS`.

A posterior that can be saved, headings that are true, Releases that are refused alone just where
they are refused in company. Whether the draws are right is the matter of a test of its own for
each method: against an oracle, and by simulation-based calibration.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import noisewise as nw
from noisewise.analyst.fit import fit
from noisewise.analyst.posterior.file import load_posterior
from noisewise.analyst.regression.fit import check_release, fit_regression
from noisewise.analyst.regression.methods import METHODS
from noisewise.core.errors import NoisewiseError, RequestError

from ..releases import COLUMNS, example_request, release_of

TAKE_A_PRIVATE_N = {"exact", "exact_own_laws", "naive"}


def release(n=40, seed=1, dataset="people", epsilon=100, older=0.0, features=("age",), label=""):
    """A Release with fourth moments and Gaussian noise; ages are `older` on unit scale."""
    rng = np.random.default_rng([n, seed])
    schema = nw.Schema(dataset, COLUMNS)
    request = nw.make_request(
        schema, target="income", features=features, epsilon=epsilon, delta=1e-6,
        fourth_moments=0.3, label=label,
    )  # fmt: skip
    age, region = rng.normal(older, 0.25, n), rng.integers(0, 3, n)
    income = 0.2 + 0.4 * age + 0.1 * rng.standard_normal(n)
    columns = {"age": [age], "region": [region == 1, region == 2]}
    w = np.column_stack([np.ones(n), *(x for f in features for x in columns[f]), income])
    blank = release_of(request, n=n)
    measurements = []
    for measurement, statistic in zip(blank.measurements, request.statistics, strict=True):
        sums = [np.prod(w[:, list(entry)], axis=1).sum() for entry in statistic.entries]
        noisy = sums + measurement.noise.continuous().scale * rng.standard_normal(len(sums))
        step = measurement.unit_values()[1] - measurement.unit_values()[0]  # values are 0, 1, ...
        values = tuple(round(value / step) for value in noisy)
        measurements.append(replace(measurement, values=values))
    return replace(blank, measurements=tuple(measurements))


@pytest.fixture(scope="module")
def posteriors():
    """One posterior of every method, made when it is first asked for."""
    made = {}

    def of(method):
        if method == "individual":
            pytest.importorskip("numpyro", reason="the extra numpyro is not installed")
        if method not in made:
            made[method] = fit(release(), method=method, seed=1, chains=2, draws=20)
        return made[method]

    return of


# individual is compiled by JAX for each model, which takes 10 to 20 s.
QUICK_AND_LONG = [
    pytest.param(name, marks=pytest.mark.long) if name == "individual" else name for name in METHODS
]


@pytest.mark.parametrize("method", QUICK_AND_LONG)
def test_every_posterior_can_be_saved_and_loaded(posteriors, method, tmp_path):
    posterior = posteriors(method)
    posterior.save(tmp_path / "post.nc")
    loaded = load_posterior(tmp_path / "post.nc")
    assert loaded.info == posterior.info
    assert loaded.theta.shape == (2, 20, 2)
    np.testing.assert_array_equal(loaded.theta, posterior.theta)
    np.testing.assert_array_equal(loaded.sigma2, posterior.sigma2)
    assert set(loaded.sample_stats) == set(posterior.sample_stats)
    for name, values in posterior.sample_stats.items():
        assert values.shape == (2, 20)
        np.testing.assert_array_equal(loaded.sample_stats[name], values)
    assert set(loaded.observed) == set(posterior.observed)
    assert not set(posterior.sample_stats) & {"theta", "sigma2"}


@pytest.mark.parametrize("method", QUICK_AND_LONG)
def test_headings_are_true(posteriors, method):
    """Only a method that accounts for all of the noise is called noise-aware."""
    posterior = posteriors(method)
    in_part = bool(METHODS[method].ignores)
    assert posterior.info.noise_aware != in_part
    assert posterior.info.ignores == METHODS[method].ignores
    if method == "naive":
        return
    text = str(posterior.comparison())
    assert ("noise-aware 95%" in text) == posterior.info.noise_aware
    assert (f"{method} ignores {METHODS[method].ignores}." in text) == in_part
    if posterior.conditional_mean is None:
        why = "does not account" if in_part else "keeps no draws"
        with pytest.raises(RequestError, match=why):
            posterior.privacy_share()


@pytest.mark.parametrize("method", QUICK_AND_LONG)
def test_categories_with_three_levels(method):
    """What docs/methods.md says about them: all methods but normal_x."""
    if method == "individual":
        pytest.importorskip("numpyro", reason="the extra numpyro is not installed")
    given = release(n=40, features=("age", "region"))
    words = {"method": method, "seed": 1, "chains": 2, "draws": 20}
    if method == "normal_x":
        with pytest.raises(RequestError, match=r"always 0.*use exact, or leave out categories"):
            fit(given, **words)
    else:
        assert fit(given, **words).theta.shape == (2, 20, 4)


@pytest.fixture(scope="module")
def of_people(tmp_path_factory):
    """A Release of people with several rows, with hardly any noise, and least squares of means."""
    rng = np.random.default_rng(5)
    who = np.repeat(np.arange(300), rng.integers(1, 6, 300))
    age, region = rng.uniform(18, 90, len(who)), rng.integers(0, 3, len(who))
    income = 90_000 + 500 * (age - 54) + 20_000 * (region == 1)
    income = np.clip(income + 35_000 * rng.normal(size=len(who)), 0, 200_000)
    levels = np.array(COLUMNS["region"].levels)
    table = {"age": age, "region": levels[region], "income": income, "who": who}
    request = nw.make_request(
        nw.Schema("people", COLUMNS, unit_column="who"), target="income",
        features=["age", "region"], epsilon=100, delta=1e-6, rounds=1, fourth_moments=0.5,
    )  # fmt: skip
    ledger = tmp_path_factory.mktemp("people") / "budget.db"
    nw.Ledger(ledger).set_cap("people", epsilon=100, delta=1e-5)
    given = nw.publish(request, table, ledger=ledger).release
    rows = np.column_stack([np.ones(len(who)), age, region == 1, region == 2, income])
    means = np.array([rows[who == one].mean(axis=0) for one in range(300)])
    theta, rest, *_ = np.linalg.lstsq(means[:, :-1], means[:, -1], rcond=None)
    covariance = rest[0] / 296 * np.linalg.inv(means[:, :-1].T @ means[:, :-1])
    return given, theta, np.sqrt(np.diag(covariance))


# individual draws 300 records for every draw, which takes minutes.
@pytest.mark.parametrize("method", [name for name in METHODS if name != "individual"])
def test_shares_of_levels(of_people, method):
    """In averaged rows levels have shares in place of 0 and 1, and their products aren't 0."""
    given, theta, error = of_people
    posterior = fit(given, method=method, seed=1, chains=2, draws=200)
    for name, least_squares, se in zip(posterior.columns.names, theta, error, strict=True):
        found = posterior.draws(name)
        assert abs(np.median(found) - least_squares) < 1.5 * se, name
        assert 0.5 * se < np.std(found) < 2 * se, name


def test_clipping_is_modelled_where_rows_were_clipped_and_summed(of_people):
    with pytest.raises(RequestError, match="averages are not"):
        fit(of_people[0], clip=True)
    schema = nw.Schema("people", COLUMNS)
    curve = nw.make_request(schema, formula="income ~ age + I(age**2)", epsilon=1)
    with pytest.raises(RequestError, match="terms are not"):
        fit(release_of(curve, n=40), clip=True)


@pytest.mark.parametrize("method", sorted(set(METHODS) - TAKE_A_PRIVATE_N))
def test_a_private_number_of_rows_is_refused_by_the_name_that_was_asked_for(method):
    words = {"fourth_moments": 0.3} if method.startswith("gibbs_noisy") else {}
    private = release_of(
        example_request(neighbours="add_remove_one", features=["age"], delta=1e-6, **words)
    )
    values = tuple([40 * (1 << 32)] + [0] * 20)[: len(private.measurements[0].values)]
    first = replace(private.measurements[0], values=values)
    private = replace(private, measurements=(first, *private.measurements[1:]))
    with pytest.raises(RequestError, match=rf"method: {method} needs .*(private|fourth)"):
        fit(private, method=method)


# --- a Release judged by itself is judged as it would be in company ---

SAMPLED = [name for name in METHODS if name != "individual"]  # with JAX, which takes long
# Sums a row, on unit scale: of 1, age, two indicators and income.
A_ROW = {(0, 0): 1, (0, 2): 0.3, (0, 3): 0.3, (1, 1): 0.4, (2, 2): 0.3, (3, 3): 0.3, (4, 4): 0.4}


def unremarkable(n=1000, times=1.0, **words):
    """Of n rows that are as unremarkable as can be; `times` multiplies their sums."""
    request = example_request(**words)
    unit = 1 << 32
    sums = [round(times * n * A_ROW.get(e, 0) * unit) for e in request.statistics[0].entries]
    # A further measurement, of fourth moments, takes as many of the values as it needs.
    return release_of(request, n, [*sums, *[0] * 100])


COMPANION = unremarkable(delta=1e-6, fourth_moments=0.25)
CASES = {
    "sound": unremarkable(delta=1e-6),
    "sound with fourth moments": COMPANION,
    "Laplace noise": unremarkable(),
    "few rows": unremarkable(n=2, delta=1e-6),
    "rows for some": unremarkable(n=12, delta=1e-6),
    "private n": unremarkable(neighbours="add_remove_one", delta=1e-6),
    "forged": unremarkable(times=100, delta=1e-6),
}


def refusal(attempt):
    try:
        attempt()
    except NoisewiseError as error:
        return str(error)
    return None


def check(given, method="auto"):
    check_release(given, target="income", features=["age"], method=method)


@pytest.mark.parametrize("method", SAMPLED)
@pytest.mark.parametrize("case", [name for name in CASES if name != "sound with fourth moments"])
def test_alone_as_in_company(case, method):
    """The check refuses just those Releases that stop a fit with others."""
    given = CASES[case]
    fit = refusal(
        lambda: fit_regression(
            [COMPANION, given], features=["age"], method=method, chains=1, draws=4, seed=1
        )
    )
    alone = refusal(lambda: check(given, method))
    assert (alone is None) == (fit is None), (alone, fit)


@pytest.mark.parametrize(
    ("case", "method", "says"),
    [
        ("few rows", "auto", "2 rows and 2 columns"),
        ("few rows", "gibbs_update", "n = 2 rows"),
        ("rows for some", "normal_x", "n = 12 rows, too few"),
        ("forged", "auto", "damaged, forged or miscomputed"),
        ("Laplace noise", "bs_distributed", "Gaussian noise"),
        ("Laplace noise", "fixed_s", "Gaussian noise"),
        ("private n", "gibbs_update", "private"),
        ("private n", "individual", "private"),
    ],
)
def test_the_reason_is_told(case, method, says):
    assert says in (refusal(lambda: check(CASES[case], method)) or "")


@pytest.mark.parametrize("method", ["auto", *METHODS])
@pytest.mark.parametrize("case", ["sound", "sound with fourth moments"])
def test_every_method_takes_a_sound_release(case, method):
    check(CASES[case], method)


def test_more_rows_than_individual_takes_are_too_many():
    given = unremarkable(n=5001, delta=1e-6)
    assert "5,001 rows" in (refusal(lambda: check(given, "individual")) or "")
