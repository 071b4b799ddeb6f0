"""adaSSP: ridge on noiseless data, truth in the limit, bounds that hold as often as promised."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from noisewise.analyst.regression.papers.ada_ssp import (
    MOST_SIMULATED,
    STATEMENT,
    PointEstimate,
    _closed_form,
    ada_ssp,
    noise_width,
)
from noisewise.core.design import STATISTIC_ONE
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds.regression import Measurement, Release
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.requests.regression import make_request

COLUMNS = {
    "age": Number(18, 90),
    "hours": Number(0, 60),
    "region": Category(("north", "south"), "north"),
    "income": Number(0, 200_000),
}
FEATURES = ("age", "hours", "region")
TRUTH = {"intercept": 20_000.0, "age": 400.0, "hours": 900.0, "region[south]": -8_000.0}


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    age, hours = rng.uniform(18, 90, n), rng.uniform(0, 60, n)
    south = rng.random(n) < 0.4
    mean = 20_000 + 400 * age + 900 * hours - 8_000 * south
    income = np.clip(mean + rng.normal(0, 10_000, n), 0, 200_000)
    region = np.where(south, "south", "north")
    return {"age": age, "hours": hours, "region": region, "income": income}


def unit_rows(data):
    columns = [
        np.ones(len(data["age"])),
        (data["age"] - 54) / 36,
        (data["hours"] - 30) / 30,
        (data["region"] == "south").astype(float),
        (data["income"] - 1e5) / 1e5,
    ]
    return np.column_stack(columns)


def released(data, rng=None, **words):
    """A Release of these rows, with simulated noise of the planned law (or none without `rng`)."""
    asked = {"epsilon": 1, "smallest_eigenvalue": 0.2, "features": list(FEATURES), "rounds": 1}
    words = {**asked, **words}
    neighbours = words.pop("neighbours", "replace_one")
    if "rho" in words:
        del words["epsilon"]
    schema = Schema("people", COLUMNS, neighbours)
    request = make_request(schema, target="income", **words)
    w = unit_rows(data)
    picks = [0] + [1 + list(COLUMNS).index(name) for name in words["features"]] + [4]
    gram = (w.T @ w)[np.ix_(picks, picks)]
    measurements = []
    for statistic, mechanism in zip(request.statistics, request.mechanisms, strict=True):
        if statistic.name == "second_moments":
            exact = np.array([gram[entry] for entry in statistic.entries])
        else:
            exact = np.array([np.linalg.eigvalsh(gram[:-1, :-1])[0]])
        values = exact * STATISTIC_ONE
        isometric = request.layout == "isometric" and statistic.name == "second_moments"
        if rng is not None:
            scale = np.full(len(exact), float(mechanism.scale))
            if isometric:
                off = [a != b for a, b in statistic.entries]
                scale[off] = mechanism.off_diagonal_scale
            laplace = mechanism.family == "discrete_laplace"
            draw = rng.laplace if laplace else rng.normal
            values = values + draw(size=len(exact)) * scale
        measurements.append(
            Measurement(
                statistic=statistic.name,
                layout="isometric" if isometric else "upper",
                values=tuple(int(x) for x in values),
                family=mechanism.family,
                scale=mechanism.scale,
                off_diagonal_scale=mechanism.off_diagonal_scale,
                sensitivity=mechanism.sensitivity,
            )
        )
    n = len(w) if neighbours == "replace_one" else None
    return Release(
        *(request.design, request.geometry, tuple(measurements)),
        **{"n": n, "claim": request.claim, "event": request.event},
    )


def ridge(data, penalty):
    """Ridge on unit scale with everything penalised, in original units."""
    w = unit_rows(data)
    x, y = w[:, :-1], w[:, -1]
    theta = np.linalg.solve(x.T @ x + penalty * np.eye(4), x.T @ y)
    slopes = 1e5 * theta[1:] / np.array([36, 30, 1])
    intercept = 1e5 + 1e5 * theta[0] - slopes @ np.array([54, 30, 0])
    return np.array([intercept, *slopes])


WORDS = [{}, {"delta": 1e-6}, {"rho": 0.5}, {"delta": 1e-6, "radius": 1.7}]


@pytest.mark.parametrize("words", [*WORDS, {"neighbours": "add_remove_one"}])
@pytest.mark.parametrize("n", [60, 4000])
def test_without_noise_it_is_ridge_regression(n, words):
    data = people(n)
    estimate = ada_ssp(released(data, **words))
    found = np.array(list(estimate.coefficients.values()))
    assert tuple(estimate.coefficients) == tuple(TRUTH)
    np.testing.assert_allclose(found, ridge(data, estimate.penalty), rtol=1e-6)
    assert (estimate.penalty > 0) == (n == 60)
    assert estimate.lifted == 0


def test_three_holders_add_up():
    parts = [people(n, seed) for seed, n in enumerate((50, 80, 5000))]
    releases = [released(part, **words) for part, words in zip(parts, WORDS, strict=False)]
    estimate = ada_ssp(releases)
    together = {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}
    found = np.array(list(estimate.coefficients.values()))
    np.testing.assert_allclose(found, ridge(together, estimate.penalty), rtol=1e-6)
    assert estimate.penalty == sum(holder.penalty for holder in estimate.holders)
    assert estimate.holders[2].penalty == 0 < estimate.holders[0].penalty
    singles = [ada_ssp(release).penalty for release in releases]
    assert singles == [holder.penalty for holder in estimate.holders]


@pytest.mark.parametrize("words", WORDS)
def test_many_rows_and_little_noise_recover_the_truth(words):
    rng = np.random.default_rng(1)
    estimate = ada_ssp([released(people(100_000, seed), rng, **words) for seed in range(3)])
    assert estimate.penalty == 0
    for name, truth in TRUTH.items():
        assert estimate.coefficients[name] == pytest.approx(truth, rel=0.05), name


def test_predictions_in_original_units():
    estimate = ada_ssp(released(people(100_000)))
    new = {"age": [30.0, 60.0], "hours": [10.0, 50.0], "region": ["south", "north"]}
    expected = [20_000 + 12_000 + 9_000 - 8_000, 20_000 + 24_000 + 45_000]
    np.testing.assert_allclose(estimate.predict(new), expected, rtol=0.02)


def test_it_says_what_it_is_not():
    estimate = ada_ssp(released(people(500)))
    assert isinstance(estimate, PointEstimate)
    assert estimate.statement == STATEMENT == "no uncertainty: not a posterior"
    assert STATEMENT in str(estimate)
    assert "region[south]" in str(estimate)
    assert "intercept too" in str(estimate)


@pytest.mark.parametrize("words", [*WORDS, {"neighbours": "add_remove_one"}])
def test_the_bounds_hold_as_often_as_promised(words):
    """Of 300 releases at failure = 0.2, 60 may fail; more than 90 come up once in 1e5 runs."""
    rng = np.random.default_rng(2)
    data = people(200)
    w = unit_rows(data)
    S = (w.T @ w)[:4, :4]
    smallest = np.linalg.eigvalsh(S)[0]
    wide = low = both = 0
    for _ in range(300):
        release = released(data, rng, **words)
        estimate = ada_ssp(release, failure=0.2)
        (holder,) = estimate.holders
        noisy = noisy_gram(release)
        too_wide = np.abs(np.linalg.eigvalsh(noisy - S)).max() > holder.width
        too_low = holder.lower > smallest
        wide, low, both = wide + too_wide, low + too_low, both + (too_wide or too_low)
        if not too_wide and not too_low:
            lifted = np.linalg.eigvalsh(noisy)[0] + estimate.penalty
            assert lifted > -1e-9
    assert stats.binom.sf(both - 1, 300, 0.2) > 1e-5
    # And the width isn't idle: a tenth is asked for, somewhat less is got.
    assert stats.binom.cdf(wide, 300, 0.05) > 1e-5


def noisy_gram(release):
    values = np.zeros((5, 5))
    statistic = release.statistic("second_moments")
    for (a, b), x in zip(statistic.entries, release.second_moments.unit_values(), strict=True):
        values[a, b] = values[b, a] = x
    if release.n is not None:
        values[0, 0] = release.n
    return values[:4, :4]


def test_the_measurement_lowers_the_penalty():
    """Where the data are just strong enough, the free bound alone would shrink."""
    data = people(400)
    with_it = ada_ssp(released(data, epsilon=1)).holders[0]
    without = ada_ssp(released(data, epsilon=0.8, smallest_eigenvalue=None)).holders[0]
    assert with_it.width == pytest.approx(without.width, rel=1e-6)  # as much for the sums
    assert with_it.measured
    assert not without.measured
    assert with_it.lower > without.lower
    assert with_it.penalty < without.penalty


def test_models_of_other_columns():
    data = people(3000)
    release = released(data)
    fewer = ada_ssp(release, features=["age"])
    assert fewer.holders[0].measured  # the eigenvalue of more columns is a bound for fewer
    assert list(fewer.coefficients) == ["intercept", "age"]
    swapped = ada_ssp(release, target="hours", features=["age", "income"])
    assert not swapped.holders[0].measured  # income was the target: the eigenvalue knows nothing
    assert swapped.coefficients["income"] > 0


def test_the_formula_of_the_papers():
    data = people(3000)
    release = released(data, delta=1e-6)
    (holder,) = ada_ssp(release, rule="paper", failure=0.05).holders
    sigma = 4 / (1 / 3)  # |v|² <= 1 + 1 + 1 + 1, epsilon = 1
    level = math.log(6 / 1e-6)
    assert holder.width == pytest.approx(sigma * math.sqrt(4 * level * math.log(32 / 0.05)))
    noisy = release.measurement("smallest_eigenvalue").unit_values()[0]
    assert holder.lower == pytest.approx(max(0, noisy - level * sigma))
    assert holder.lower > 0
    certified = ada_ssp(release).holders[0]
    assert certified.width < holder.width  # a jointly calibrated budget has less noise
    for words in ({}, {"rho": 0.5}):
        with pytest.raises(RequestError, match="epsilon and delta"):
            ada_ssp(released(data, **words), rule="paper")
    with pytest.raises(RequestError, match="smallest eigenvalue"):
        ada_ssp(released(data, delta=1e-6, smallest_eigenvalue=None), rule="paper")


def test_hopeless_noise_still_gives_a_finite_estimate():
    rng = np.random.default_rng(3)
    for _ in range(40):
        estimate = ada_ssp(released(people(8), rng, epsilon=0.05), failure=0.5)
        assert np.isfinite(list(estimate.coefficients.values())).all()
        assert estimate.penalty > 0


def test_refusals():
    release = released(people(100))
    for words, error, match in (
        ({"rule": "other"}, RequestError, "rule"),
        ({"failure": 0}, RequestError, "failure"),
        ({"failure": True}, RequestError, "failure"),
        ({"features": ["wage"]}, RequestError, "wage"),
    ):
        with pytest.raises(error, match=match):
            ada_ssp(release, **words)
    with pytest.raises(RequestError, match="load_release"):
        ada_ssp(["release.json"])
    with pytest.raises(RequestError, match="none given"):
        ada_ssp([])
    schema = Schema("people", {**COLUMNS, "age": Number(0, 99)})
    assert schema != release.design.schema
    other = Release.from_text(release.to_text())
    object.__setattr__(other.design, "schema", schema)
    with pytest.raises(ReleaseError, match="differently"):
        ada_ssp([release, other])


@pytest.mark.parametrize("family", ["gaussian", "laplace"])
@pytest.mark.parametrize("failure", [0.3, 0.025])
def test_the_width_of_noise(family, failure):
    """Against other simulated noise: exceeded at most as often as promised, and not much less."""
    scale = np.full((5, 5), 2.0)
    scale[0, 0] = scale[1, 2] = scale[2, 1] = 0.0
    width = noise_width(scale, family, failure)
    rng = np.random.default_rng(4)
    draw = rng.laplace if family == "laplace" else rng.normal
    noise = np.triu(draw(size=(40_000, 5, 5)) * scale)
    noise += np.triu(noise, 1).transpose(0, 2, 1)
    above = np.mean(np.linalg.norm(noise, 2, axis=(1, 2)) > width)
    assert 0.3 * failure < above < failure
    assert noise_width(0 * scale, family, failure) == 0
    assert noise_width(3 * scale, family, failure) == pytest.approx(3 * width)


def test_the_width_of_one_entry_has_a_closed_form():
    one = np.array([[1.0]])
    assert noise_width(one, "laplace", 0.05) == pytest.approx(math.log(20), rel=0.2)
    assert noise_width(one, "gaussian", 0.05) == pytest.approx(1.96, rel=0.1)
    assert noise_width(one, "laplace", 0.05) > math.log(20)
    assert noise_width(one, "gaussian", 0.001) > stats.norm.isf(0.0005)


@pytest.mark.parametrize("family", ["gaussian", "laplace"])
def test_the_closed_form_is_a_bound_and_not_a_wild_one(family):
    rng = np.random.default_rng(5)
    for d in (1, 3, 12):
        scale = rng.uniform(0.5, 1, (d, d))
        scale = np.maximum(scale, scale.T)
        simulated = noise_width(scale, family, 0.05)
        assert simulated < _closed_form(scale, family, 0.05) < 4 * simulated
    large = np.ones((MOST_SIMULATED + 1, MOST_SIMULATED + 1))
    assert noise_width(large, family, 0.05) == _closed_form(large, family, 0.05)
