"""Fits of Releases that were made in rounds: algebra, the law of the turned noise, calibration.

Shapes of rounds come from real Releases, whose noise has no seed; what is checked of those has a
wide margin. Elsewhere the last round's sums are replaced by simulated ones.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaincc

from noisewise.analyst.fit import fit
from noisewise.analyst.regression import rounds as rounds_module
from noisewise.analyst.regression.fit import check_release
from noisewise.analyst.regression.job import Draws
from noisewise.analyst.regression.observation import choose_columns, observe
from noisewise.analyst.regression.original_units import CoefficientPrior
from noisewise.analyst.regression.priors import NIWPrior
from noisewise.analyst.regression.rounds import (
    InRounds,
    LastRound,
    far_agreement,
    lower_triangular,
    shrunk_normal,
    skewness_warnings,
)
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds.rounds import gram_entries
from noisewise.core.rounds.tail import TailFit, grid_edges
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics.ball_moments import COUNT_ONE, PRODUCT_ONE
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


@pytest.fixture
def nothing_is_shrunk(monkeypatch):
    """For exact sums of rows that weren't, and so have lost nothing."""
    monkeypatch.setattr(rounds_module, "shrunk_normal", lambda mean, *_: (0 * mean, 0.0, 0.0))


@pytest.mark.parametrize(("numbers", "square"), [(1, 3.0), (3, 9.0), (5, 12.0)])
def test_what_shrinking_takes_from_normal_rows(numbers, square):
    """Standard normal ones by formula, others by moving and stretching them."""
    upper, all_of_it = (gammaincc(numbers / 2 + more, square / 2) for more in (1.0, 0.0))
    each = upper - square / numbers * all_of_it
    first, second, share = shrunk_normal(np.zeros(numbers), np.eye(numbers), np.sqrt(square))
    assert each > 0.01
    assert share == pytest.approx(all_of_it, rel=0.1)
    np.testing.assert_allclose(first, 0, atol=1e-12)
    np.testing.assert_allclose(second, each * np.eye(numbers), atol=0.15 * each)
    spread = np.tril(np.full((numbers, numbers), 0.6)) + 0.4 * np.eye(numbers)
    mean, covariance = np.linspace(0.5, 1.0, numbers), spread @ spread.T
    z = mean + np.random.default_rng(1).standard_normal((200_000, numbers)) @ spread.T
    shrunk = z * np.minimum(1, np.sqrt(square) / np.linalg.norm(z, axis=1))[:, None]
    first, second, _ = shrunk_normal(mean, covariance, np.sqrt(square))
    lost = (z.T @ z - shrunk.T @ shrunk) / len(z)
    np.testing.assert_allclose(second, lost, atol=0.1 * lost.max())
    np.testing.assert_allclose(first, (z - shrunk).mean(axis=0), atol=0.1 * first.max())
    assert not shrunk_normal(mean, 1e-4 * covariance, 9.0)[1].any()


def test_rows_with_short_tails_have_lost_less(release, monkeypatch):
    """As much as of the rows that the histogram says were shrunk, and never more than normal."""
    columns, _ = choose_columns([release], "score", FEATURES)
    last = replace(release.rounds.last.shape, radius=math.isqrt(grid_edges(3)[0]))
    changed = with_sums(release, exact_sums(release, make_table())).rounds
    changed = replace(changed, last=replace(changed.last, shape=last))
    found = []
    for shrunk in (0.0, 20.0, 40.0, ROWS, 2 * ROWS):
        monkeypatch.setattr(type(changed), "shrunk_rows", lambda *_, value=shrunk: value)
        turned = LastRound.of(replace(release, rounds=changed), columns, "it").observation
        found.append(np.trace(turned.values[np.ix_([1, 2, 5], [1, 2, 5])]))
    added = np.subtract(found[1:], found[0])
    assert added[0] > 0
    assert added[1] == pytest.approx(2 * added[0])
    assert added[2] > 2 * added[1]
    assert added[3] == pytest.approx(added[2])


def test_looks_and_last_round_are_averaged_by_their_noise(release, monkeypatch):
    """Truths that a look and the last round have seen: errors and squares are as they are said.

    With the last round alone, what is said of the square of a slope is too much by twice its noise.
    """
    monkeypatch.setattr(rounds_module, "_UNLIKE", 0.0)
    monkeypatch.setattr(rounds_module, "shrunk_normal", lambda mean, *_: (0 * mean, 0.0, 0.0))
    look, last = release.rounds.explored[-1], release.rounds.last
    given = replace(release, n=2000, rounds=replace(release.rounds, explored=(look,)))
    numbers = [0, 1, 2, 5]
    to_last = last.observed(given.design).map[np.ix_(numbers, numbers)]
    published = look.observed(given.design)
    back = to_last @ np.linalg.inv(published.map[:, numbers])
    seen_by_look = published.values.copy()
    seen_by_look[0, 0] = given.n * to_last[0, 0] ** 2
    double = 1 + np.eye(4)
    double[0, 0] = 0.0  # the number of rows is public
    sizes = np.sum(np.linalg.inv(back)[1:, 1:] ** 2, axis=0)
    variance = 0.1 * double / (published.precision[0, 1] * np.median(sizes) ** 2)
    rng = np.random.default_rng(26)
    errors, squares = [], []
    for _ in range(400):
        truth = seen_by_look - symmetric_noise(rng, np.sqrt(double / published.precision[0, 1]))
        truth = back @ truth @ back.T
        seen = truth + symmetric_noise(rng, np.sqrt(variance))
        by_looks = rounds_module.by_looks(seen, to_last, given)
        found, share = rounds_module.averaged(seen, variance, *by_looks, given.n)
        slopes = np.array([(1, 3), (2, 3), (0, 2)]).T
        for value, left in ((found, 1 - share), (seen, 1 + 0 * share)):
            sd = np.sqrt(variance * left)
            errors.append(((value - truth)[*slopes] / sd[*slopes]) ** 2)
            off = value[*slopes] ** 2 + sd[*slopes] ** 2 - truth[*slopes] ** 2
            squares.append(off / variance[*slopes])
    assert 0.01 < share[1, 3] < 0.4
    assert np.mean(errors[::2]) == pytest.approx(1, abs=0.15)
    centred = np.mean(squares[::2]), np.mean(squares[1::2])
    assert abs(centred[0]) < 0.8
    assert centred[1] == pytest.approx(2, abs=0.8)


@pytest.mark.usefixtures("nothing_is_shrunk")
def test_looks_have_no_weight_where_a_column_must_be_very_skewed(release, monkeypatch):
    columns, _ = choose_columns([release])
    used = []

    def averaged(seen, *_):
        used.append(True)
        return seen, 0 * seen

    monkeypatch.setattr(rounds_module, "averaged", averaged)
    rng = np.random.default_rng(5)
    for shape, times in ((0.55, 1), (0.2, 0)):  # a skewness of 0.6 or more, and of 1.8
        sums = exact_sums(release, make_table() | {"dose": rng.gamma(shape, 5.0, ROWS)})
        rounds = replace(with_sums(release, sums).rounds, explored=release.rounds.explored)
        LastRound.of(replace(release, rounds=rounds), columns, "it")
        assert len(used) == times
        used.clear()


def test_looks_that_differ_by_more_than_noise_count_less(release):
    columns, _ = choose_columns([release])
    at = LastRound.of(release, columns, "it").observation
    alone = LastRound.of(
        replace(release, rounds=replace(release.rounds, explored=())), columns, "it"
    ).observation
    moved = np.abs(at.values - alone.values)[1:, 1:].max()
    assert 0 < moved < 0.5 * alone.scale[1:, 1:].max()
    look = release.rounds.explored[-1]
    wrong = tuple(tuple(int(1.5 * value) for value in matrix) for matrix in look.values)
    rounds = replace(release.rounds, explored=(replace(look, values=wrong),))
    with_wrong = LastRound.of(replace(release, rounds=rounds), columns, "it").observation
    assert np.abs(with_wrong.values - alone.values).max() < 0.5 * alone.scale.max()


@pytest.mark.parametrize("size", [2, 3, 4])
def test_what_far_rows_agree_about_is_seen_in_nearer_ones(release, monkeypatch, size):
    """Skewed errors that grow with a covariate; of either sign they agree about nothing."""
    rng, n, q = np.random.default_rng(17), 200_000, 4
    x = rng.standard_normal((n, q - 1))
    errors = np.exp(0.6 * x[:, 0]) * (rng.standard_exponential(n) - 1)
    mirrored = np.where(rng.random(n) < 0.5, -errors, errors)
    known = replace(release, n=n)
    constant = release.rounds.last.shape.constant / 1024

    def gram(z, square):
        length = np.maximum(np.sum(z**2, axis=1), 1e-12)
        u = np.column_stack(
            [np.full(n, constant), z * np.minimum(1, np.sqrt(square / length))[:, None]]
        )
        return u.T @ u

    def found(errors, sd):
        z = np.column_stack([x, errors])[:, [*range(size - 1), q - 1, *range(size - 1, q - 1)]]
        last, looks, whole = gram(z, 25.0 * q), gram(z, 2.0 * q), gram(z, np.inf)
        last[0, 0] = 0.0  # the number of rows is public, and isn't among the sums
        fit = TailFit(np.zeros(22), np.full(22, np.trace((whole - last)[1:, 1:])), q)
        monkeypatch.setattr(type(release.rounds), "fit", lambda *_: (fit, 0))
        noise = np.full((q + 1, q + 1), sd**2)
        return far_agreement(last, looks, noise, known, size), (whole - last)[size, 1:size]

    seen, lost = found(errors, 10.0)
    assert lost[0] > 400
    assert seen[0] == pytest.approx(lost[0], rel=0.5)  # farther rows agree more
    assert np.abs(seen[1:]).max(initial=0) < 0.2 * lost[0]
    assert np.abs(found(mirrored, 10.0)[0]).max() < 0.15 * lost[0]
    # Noise that hides it leaves nothing, and never more than was seen.
    assert np.abs(found(errors, 1e6)[0]).max() < 0.01 * lost[0]
    assert 0 < found(errors, 3000.0)[0][0] < seen[0]


def test_what_far_rows_agree_about_is_added_back_and_carried(release, monkeypatch):
    columns, _ = choose_columns([release], "score", ["weight", "dose"])
    before = LastRound.of(release, columns, "it").observation
    noise = release.rounds.last.off_diagonal_scale / PRODUCT_ONE
    agreed = noise * np.array([-1.0, 20.0])
    monkeypatch.setattr(rounds_module, "far_agreement", lambda *_: agreed)
    monkeypatch.setattr(rounds_module, "averaged", lambda seen, *_: (seen, 0 * seen))
    after = LastRound.of(release, columns, "it").observation
    monkeypatch.setattr(rounds_module, "far_agreement", lambda *_: 0 * agreed)
    without = LastRound.of(release, columns, "it").observation
    assert without.scale[-1, 0] == pytest.approx(before.scale[-1, 0], rel=0.2)
    unit = (1024 / release.rounds.last.shape.radius) ** 2
    # At most as much as can be carried: twice the noise, which 4/3 of it grow to.
    added = 0.5 * noise * np.array([-1.0, 4 / 3]) * unit
    np.testing.assert_allclose((after.values - without.values)[-1, 1:-1], added)
    carried = np.sqrt(after.scale**2 - without.scale**2)[-1, 1:-1] / unit
    already = without.scale[-1, 1] ** 2 / unit**2 - noise**2
    assert carried[0] == pytest.approx(1.5 * noise, rel=0.01)
    assert carried[1] == pytest.approx(np.sqrt(4 * noise**2 - already), rel=0.01)
    # The constant, and other columns among each other, are left alone.
    np.testing.assert_array_equal(after.values[:-1, :-1], without.values[:-1, :-1])
    np.testing.assert_array_equal(after.values[-1, 0], without.values[-1, 0])
    np.testing.assert_array_equal(after.scale[:-1, :-1], without.scale[:-1, :-1])
    np.testing.assert_array_equal(after.scale[-1, 0], without.scale[-1, 0])


def spreads(release):
    """Sd of the last round's noise by entry, what clipping adds included; 0 where public."""
    rounds, design = release.rounds, release.design
    precision = rounds.last.observed(design, rounds.carried(design, release.noisy_n)).precision
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
@pytest.mark.usefixtures("nothing_is_shrunk")
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
@pytest.mark.usefixtures("nothing_is_shrunk")
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


@pytest.mark.usefixtures("nothing_is_shrunk")
def test_a_column_that_must_be_skewed_is_warned_of(release):
    """By mean and spread alone: an amount that is mostly small."""
    columns, _ = choose_columns([release])

    def turned_with(**changes):
        sums = exact_sums(release, make_table() | changes)
        return LastRound.of(with_sums(release, sums), columns, "it")

    def warned(**changes):
        return skewness_warnings(turned_with(**changes), columns)

    rng = np.random.default_rng(4)
    assert warned() == ()
    assert warned(dose=rng.exponential(2.0, ROWS)) == ()  # skewness 2, but it need not be above 0.4
    assert warned(dose=rng.gamma(2.0, 1.0, ROWS)) == ()
    for dose in (rng.gamma(0.2, 10.0, ROWS), 100.0 - rng.gamma(0.55, 5.0, ROWS)):
        (text,) = warned(dose=dose)
        assert text.startswith("long tails of dose:")
    assert warned(dose=100.0 * (rng.uniform(size=ROWS) < 0.1)) == ()  # 0 or 1: no tail


@pytest.mark.usefixtures("nothing_is_shrunk")
def test_what_is_carried_grows_smoothly_with_the_skewness_of_the_target(release):
    """2.5 (c - 1/2) times the noise, c = sd / mean, whether the histogram shows far rows or not."""
    empty = replace(release.rounds.tail, values=(0,) * len(release.rounds.tail.values))
    release = replace(release, rounds=replace(release.rounds, tail=empty))
    table = make_table()

    def noise(score, target="score"):
        """Of every sum, with what is carried in it; the target's are the last."""
        sums = exact_sums(release, table | {"score": score})
        columns, _ = choose_columns([release], target, ["weight"])
        return LastRound.of(with_sums(release, sums), columns, "it").observation.scale

    rng = np.random.default_rng(6)
    usual = noise(table["score"])
    for shape in (16.0, 4.0, 2.0, 1.0, 0.6):  # c is a quarter to 1.3
        amount = rng.gamma(shape, 20 / shape, ROWS)
        for score in (amount - 200, 400 - amount):
            c = score.std() / min(score.mean() + 200, 400 - score.mean())
            more = min(math.hypot(1, max(0.0, 2.5 * (c - 0.5))), math.sqrt(5))
            found = noise(score)
            np.testing.assert_allclose(found[-1], more * usual[-1], rtol=0.02)
            np.testing.assert_allclose(found[:-1, :-1], usual[:-1, :-1])
            # That of another column says nothing of this target's errors.
            np.testing.assert_allclose(noise(score, "dose"), noise(table["score"], "dose"))


def test_far_rows_are_warned_of(release):
    tail = release.rounds.tail

    def with_counts(counts):
        changed = replace(tail, values=tuple(int(count) * COUNT_ONE for count in counts))
        return replace(release, rounds=replace(release.rounds, tail=changed))

    places = np.arange(len(tail.values))
    _, near = turned(with_counts(0 * places))
    _, far = turned(with_counts(3000 * 1.1**-places))
    assert near.warnings == ()
    (text,) = far.warnings
    assert "far rows may decide this regression: about " in text
    # What clipping may have done is carried, at most twice the noise.
    noise = release.rounds.last.off_diagonal_scale / PRODUCT_ONE
    assert spreads(with_counts(3000 * 1.1**-places))[0, 1] == pytest.approx(np.sqrt(5) * noise)
    noisy = far.observations[0].scale > 0
    ratio = far.observations[0].scale[noisy] / near.observations[0].scale[noisy]
    np.testing.assert_allclose(ratio, ratio[0], rtol=0.05)  # looks take a little from noise alone
    assert 2 < ratio[0] <= 1.05 * np.sqrt(5)


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


@pytest.mark.usefixtures("nothing_is_shrunk")
def test_impossible_sums_are_refused(release):
    sums = exact_sums(release, make_table())
    sums[1, 1] = -1e6
    with pytest.raises(ReleaseError, match="cannot come from rows"):
        fit(with_sums(release, sums))
