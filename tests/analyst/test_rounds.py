"""Fits of Releases that were made in rounds: algebra, the law of the turned noise, calibration.

Shapes of rounds come from real Releases, whose noise has no seed; what is checked of those has a
wide margin. Elsewhere the last round's sums are replaced by simulated ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noisewise.analyst.fit import fit
from noisewise.analyst.regression.fit import check_release
from noisewise.analyst.regression.job import Draws
from noisewise.analyst.regression.observation import choose_columns, observe
from noisewise.analyst.regression.original_units import CoefficientPrior
from noisewise.analyst.regression.priors import NIWPrior
from noisewise.analyst.regression.rounds import InRounds, LastRound, lower_triangular
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds.rounds import gram_entries
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics.ball_moments import PRODUCT_ONE
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import make_request

from ..ledgers import ledger_for

ROWS = 20_000
FEATURES = ["dose", "weight", "region"]
MODELS = [
    ("score", ["dose", "weight", "region"]),
    ("score", ["region", "weight", "dose"]),
    ("score", ["weight"]),
    ("score", ["region"]),
    ("dose", ["score", "region"]),
    ("weight", ["score", "dose"]),
]


def make_schema(**changes):
    """Columns that are narrow, off the centre and correlated; bounds ten times too wide."""
    columns = {
        "dose": Number(0, 100),
        "weight": Number(0, 200),
        "region": Category(("n", "s", "w"), "n"),
        "score": Number(-200, 400),
    }
    return Schema("people", columns, **changes)


TRUTH = np.array([20.0, 1.5, -0.7, 0.0, 3.0])
ERROR_SD = 4.0


def make_table(n=ROWS, seed=1):
    rng = np.random.default_rng(seed)
    dose = rng.normal(70, 1.5, n)
    weight = 40 + 1.6 * (dose - 70) + rng.normal(0, 1.5, n)
    region = rng.choice(["n", "s", "w"], p=[0.6, 0.35, 0.05], size=n)
    known = np.column_stack([np.ones(n), dose, weight, region == "s", region == "w"])
    score = known @ TRUTH + rng.normal(0, ERROR_SD, n)
    return {"dose": dose, "weight": weight, "region": region, "score": score}


def least_squares(table, target, features):
    """Coefficients on the rows, in original units."""
    columns = [np.ones(len(table[target]))]
    for name in features:
        if name == "region":
            columns += [1.0 * (table[name] == level) for level in "sw"]
        else:
            columns.append(table[name])
    x, y = np.column_stack(columns), table[target]
    found, left, _, _ = np.linalg.lstsq(x, y, rcond=None)
    return found, left[0] / len(y)


def asked(schema, **words):
    given = {"epsilon": 1, "delta": "1e-6", **words}
    return make_request(schema, target="score", features=FEATURES, **given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rounds")


@pytest.fixture(scope="module")
def release(folder):
    ledger = ledger_for(folder / "rounds.db")
    request = asked(make_schema(), rounds="auto")
    return publish(request, make_table(), ledger=ledger, out=folder / "rounds.json").release


def with_sums(release, sums, n=None):
    """The Release with other sums of the last round, (P, P) in units of 1, and no looks at them."""
    last = release.rounds.last
    places = gram_entries(release.design, last.shape)
    values = tuple(round(float(sums[place]) * PRODUCT_ONE) for place in places)
    rounds = replace(release.rounds, explored=(), last=replace(last, values=(values,)))
    return replace(release, rounds=rounds, n=release.n if n is None else n)


def exact_sums(release, table):
    """M A M' of the rows, none of them shrunk."""
    design = release.design
    columns = [np.ones(len(table["score"]))]
    for column in design.columns:
        if column.is_indicator:
            columns.append(1.0 * (table["region"] == column.name[-2]))
        else:
            columns.append((table[column.name] - column.centre) / column.half_width)
    u = np.column_stack(columns) @ release.rounds.last.observed(design).map.T
    return u.T @ u


def spreads(release):
    """Sd of the last round's noise by entry; 0 where public."""
    precision = release.rounds.last.observed(release.design).precision
    return np.where(precision > 0, 1 / np.sqrt(precision + (precision == 0)), 0.0)


def symmetric_noise(rng, sd):
    lower = np.tril(rng.standard_normal(sd.shape))
    return sd * (lower + np.tril(lower, -1).T)


def turned(release, target=None, features=None):
    columns, names = choose_columns([release], target, features)
    return columns, InRounds.of([release], columns, names)


# --- algebra --------------------------------------------------------------------------------------


def test_a_matrix_is_turned_into_a_lower_triangular_one():
    matrix = np.random.default_rng(1).standard_normal((5, 5))
    Q, T = lower_triangular(matrix)
    np.testing.assert_allclose(Q @ Q.T, np.eye(5), atol=1e-14)
    np.testing.assert_allclose(Q @ matrix, T, atol=1e-14)
    assert np.all(np.triu(T, 1) == 0.0)
    assert np.all(np.diag(T) > 0)


@pytest.mark.parametrize(("target", "features"), MODELS)
def test_sums_without_noise_give_the_least_squares_of_the_rows(release, target, features):
    table = make_table(seed=2)
    same = with_sums(release, exact_sums(release, table))
    columns, last = turned(same, target, features)
    A = last.observations[0].values
    theta = np.linalg.solve(A[:-1, :-1], A[:-1, -1])
    sigma2 = (A[-1, -1] - theta @ A[:-1, -1]) / ROWS
    drawn = last.to_unit(Draws(theta[None, None], np.array([[sigma2]])))
    wanted, left = least_squares(table, target, features)
    found = columns.theta_to_original(drawn.theta)[0, 0]
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    assert columns.sigma2_to_original(drawn.sigma2)[0, 0] == pytest.approx(left, rel=1e-6)


@pytest.mark.parametrize(("target", "features"), MODELS)
def test_a_model_sees_its_own_columns_alone(release, target, features):
    """Sums of rows whose other columns are scrambled are the same."""
    table = make_table(seed=2)
    rng = np.random.default_rng(3)
    other = {k: v if k in (target, *features) else rng.permutation(v) for k, v in table.items()}
    seen = [
        turned(with_sums(release, exact_sums(release, rows)), target, features)[1].observations[0]
        for rows in (table, other)
    ]
    np.testing.assert_allclose(seen[0].values, seen[1].values, atol=1e-4)
    np.testing.assert_array_equal(seen[0].scale, seen[1].scale)


# --- the law of the turned noise ------------------------------------------------------------------


def standardised(release, spread, target, features, draws=200):
    """Entries of the turned noise in units of what the observation says, (draws, entries)."""
    rng = np.random.default_rng(4)
    base = exact_sums(release, make_table(seed=2))
    _, still = turned(with_sums(release, base), target, features)
    middle, scale = still.observations[0].values, still.observations[0].scale
    noisy = np.nonzero(np.triu(scale > 0))
    found = []
    for _ in range(draws):
        sums = base + symmetric_noise(rng, spread)
        _, one = turned(with_sums(release, sums), target, features)
        found.append(((one.observations[0].values - middle)[noisy]) / scale[noisy])
    return np.array(found)


def is_standard(noise):
    """Whether all variances are 1 and all correlations 0, to 5 Monte Carlo sds."""
    draws, entries = noise.shape
    away = np.cov(noise.T) - np.eye(entries)
    limit = 5 * np.sqrt((1 + np.eye(entries)) / draws)
    return bool(np.all(np.abs(away) < limit))


@pytest.mark.long
@pytest.mark.parametrize(("target", "features"), [MODELS[0], MODELS[4]])
def test_turned_noise_is_independent_with_the_stated_spread(release, target, features):
    spread = spreads(release)
    assert is_standard(standardised(release, spread, target, features))
    unequal = np.where(np.eye(len(spread)) > 0, spread, np.sqrt(2) * spread)
    assert not is_standard(standardised(release, unequal, target, features))


# --- from rows to intervals -----------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
def test_intervals_hold_the_rows_regression_and_are_far_narrower_than_of_one_round(
    folder, neighbours
):
    schema, table = make_schema(neighbours=neighbours), make_table(seed=5)
    posteriors = []
    for rounds in (1, "auto"):
        ledger = ledger_for(folder / f"{neighbours}{rounds}.db")
        out = folder / f"{neighbours}{rounds}.json"
        published = publish(asked(schema, rounds=rounds), table, ledger=ledger, out=out).release
        posteriors.append(fit(published, seed=1, chains=2, draws=500))
    one, several = (posterior.summary().rows for posterior in posteriors)
    wanted, left = least_squares(table, "score", FEATURES)
    names = posteriors[1].columns.names
    for name, value in zip((*names, "sigma2"), (*wanted, left), strict=True):
        row = several[name]
        assert abs(row.median - value) < 6 * row.spread
    for name in ("dose", "weight"):
        widths = [rows[name].upper - rows[name].lower for rows in (one, several)]
        assert widths[0] > 10 * widths[1]
    assert "the last one is used" in posteriors[1].info.reason
    assert posteriors[0].info.prior_words == posteriors[1].info.prior_words
    assert not any("far rows" in text or "prior decides" in text for text in posteriors[1].warnings)
    share = posteriors[1].privacy_share()
    assert all(0 < share[name] < 1 for name in names)


def covered(release, factor, times=40):
    """How many 50% and 90% intervals of the slopes hold the truth; noise `factor` times as much."""
    rng = np.random.default_rng(6)
    found, spread = np.zeros(2, dtype=int), spreads(release)
    for seed in range(times):
        sums = exact_sums(release, make_table(seed=1000 + seed))
        sums += factor * symmetric_noise(rng, spread)
        posterior = fit(with_sums(release, sums), seed=seed, chains=2, draws=300)
        found += slopes_held(posterior)
    return found


def slopes_held(posterior):
    """How many slopes are in their 50% and 90% intervals."""
    held = np.zeros(2, dtype=int)
    for name, value in zip(posterior.columns.names[1:], TRUTH[1:], strict=True):
        for i, level in enumerate((0.5, 0.9)):
            low, high = posterior.interval(name, level)
            held[i] += low <= value <= high
    return held


def check_as_often_as_they_say(count, times=40):
    """`count` takes a factor of the noise; three times what was stated is the control.

    Truths are fixed, so there must be rows enough for the prior to shrink slopes little: with 3,000
    rows and the noise of these Releases it draws them .7 posterior sds toward 0.
    """
    slopes = 4 * times
    expected = slopes * np.array([0.5, 0.9])
    # Slopes of one fit are not independent: twice the binomial variance. The Releases' shapes have
    # no seed: 4.5 sds.
    allowed = 4.5 * np.sqrt(2 * slopes * np.array([0.25, 0.09]))
    assert np.all(np.abs(count(1.0) - expected) < allowed)
    assert (count(3.0) < expected - allowed)[1]


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say(release):
    check_as_often_as_they_say(lambda factor: covered(release, factor))


# --- what is said and refused ---------------------------------------------------------------------


def test_a_prior_of_coefficients_is_the_same_in_any_coordinates(release):
    sharp = CoefficientPrior({"dose": (1.0, 1e-4)})
    posterior = fit(release, prior=sharp, seed=1, chains=2, draws=300)
    row = posterior.summary().rows["dose"]
    assert row.median == pytest.approx(1.0, abs=1e-3)
    assert posterior.info.prior["dose"] == pytest.approx((1.0, 1e-4))


def test_what_cannot_be_done_with_rounds_is_refused_with_the_remedy(release, folder):
    for method in ("gibbs_update", "normal_x", "fixed_s", "individual"):
        with pytest.raises(RequestError, match=f"method: {method} cannot read .*Use exact"):
            fit(release, method=method)
        with pytest.raises(RequestError, match="made in rounds"):
            check_release(release, target=None, features=None, method=method)
    with pytest.raises(RequestError, match="covariate_prior"):
        fit(release, covariate_prior=NIWPrior.weakly_informative(4))
    with pytest.raises(RequestError, match="clip"):
        fit(release, clip=True)
    with pytest.raises(RequestError, match="only method exact"):
        observe([release])
    check_release(release, target="dose", features=["score"], method="auto")


def test_singular_sums_of_a_forged_release_end_nothing(release):
    columns, _ = choose_columns([release])
    forged = with_sums(release, np.zeros((6, 6)))
    assert np.isfinite(LastRound.of(forged, columns, "it").observation.values).all()


def test_impossible_sums_are_refused(release):
    sums = exact_sums(release, make_table())
    sums[1, 1] = -1e6
    with pytest.raises(ReleaseError, match="cannot come from rows"):
        fit(with_sums(release, sums))
