"""Plans: formulas against finite differences and simulation, widths against real posteriors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import noisewise as nw
from noisewise.analyst.regression.agreement import second_moments
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior, NormalInverseGammaIndependent
from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Number, Schema
from noisewise.planning import width as plan_width
from noisewise.planning.plan import PlannedNoise, plan
from noisewise.planning.result import draw_plan
from noisewise.planning.truths import LARGEST_VARIANCE, Truths, covariate_prior, draw_truths
from studies.plan_check import (
    BEYOND_GRID,
    GRID,
    QUICK_BEYOND_GRID,
    QUICK_GRID,
    Setting,
    check,
    markdown,
    planner_for,
    realise,
    row_of,
)
from studies.tables import read_table

from ..ledgers import ledger_for
from . import dense_plan

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = Schema(
    "people",
    {
        "age": Number(18, 90),
        "region": Category(("north", "south", "east"), "north"),
        "income": Number(0, 200_000),
    },
)
WORDS = {"target": "income", "features": ["age", "region"], "n": 5000}


def truths_of(k, count=3, seed=0):
    prior, covariates = (
        NormalInverseGammaIndependent.weakly_informative(k),
        NIWPrior(np.zeros(k), 2.0, 0.2 * (k + 5) * np.eye(k), 2 * k + 6.0),
    )
    return prior, covariates, draw_truths(prior, covariates, count, np.random.default_rng(seed))[0]


# --- truths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 4, 12])
@pytest.mark.parametrize("kind", [NIGPrior, NormalInverseGammaIndependent])
def test_truths_stay_within_the_bounds(k, kind):
    covariates = NIWPrior.weakly_informative(k)
    truths, _ = draw_truths(kind.weakly_informative(k), covariates, 50, np.random.default_rng(1))
    G = second_moments(*truths)
    assert (np.einsum("maa->ma", G) <= 1 + 1e-12).all()
    assert (np.einsum("maa->ma", truths.T) <= LARGEST_VARIANCE + 1e-12).all()
    assert np.linalg.eigvalsh(truths.T).min() > 0
    assert G[:, -1, -1].std() > 0.05  # they differ: not all at a bound


def test_a_prior_that_contradicts_the_bounds_is_refused():
    prior = NormalInverseGammaIndependent(np.array([50.0, 0.0]), 0.01 * np.eye(2), 2.0, 0.1)
    with pytest.raises(RequestError, match="prior"):
        draw_truths(prior, NIWPrior.weakly_informative(1), 3, np.random.default_rng(0))


@pytest.mark.parametrize(("k", "radius"), [(1, 0.5), (4, 1.0), (12, 1.0), (12, 5.0)])
def test_truths_stay_within_a_ball(k, radius):
    """Rows of each truth are in the ball, and have the truth's mean and covariance."""
    rng = np.random.default_rng(1)
    prior = NormalInverseGammaIndependent.weakly_informative(k)
    truths, laws = draw_truths(prior, covariate_prior(k, radius), 30, rng, radius)
    lengths = []
    for mu, T, law in zip(truths.mu, truths.T, laws, strict=True):
        assert T.trace() + mu @ mu <= radius**2
        x = law.draw(rng, 100_000)
        lengths.append(np.linalg.norm(x, axis=1))
        assert x.mean(axis=0) == pytest.approx(mu, abs=6 * np.sqrt(T.diagonal().max() / 2000))
        assert x.var(axis=0) == pytest.approx(T.diagonal(), rel=0.25)
    assert np.max(lengths) <= radius * (1 + 1e-12)
    forced = np.mean(np.array(lengths) > radius * (1 - 1e-9))
    assert 0.01 < forced < 0.6 if radius < 5 else forced < 0.01
    assert np.std([T.trace() for T in truths.T]) > 0  # they differ


def test_a_ball_that_holds_everything_changes_no_truth():
    prior = NormalInverseGammaIndependent.weakly_informative(3)
    _, laws = draw_truths(prior, covariate_prior(3, None), 1, np.random.default_rng(1))
    _, large = draw_truths(prior, covariate_prior(3, 64.0), 1, np.random.default_rng(1), 64.0)
    np.testing.assert_allclose(large[0].mu, laws[0].mu)
    np.testing.assert_allclose(large[0].T, laws[0].T)


# --- formulas -------------------------------------------------------------------------------------


def test_slopes_are_those_of_finite_differences():
    k = 3
    _, _, truths = truths_of(k, 2)
    found = dense_plan.slopes(truths, second_moments(*truths))
    pairs = [(i, j) for i in range(k) for j in range(i, k)]

    def moved(parameter, h):
        theta, sigma2, mu, T = (part.copy() for part in truths)
        if parameter <= k:
            theta[:, parameter] += h
        elif parameter == k + 1:
            sigma2 *= np.exp(h)
        elif parameter < 2 * k + 2:
            mu[:, parameter - k - 2] += h
        else:
            i, j = pairs[parameter - 2 * k - 2]
            T[:, i, j] += h
            T[:, j, i] += h if i != j else 0.0
        return second_moments(*Truths(theta, sigma2, mu, T))

    for parameter in range(found.shape[1]):
        slope = (moved(parameter, 1e-6) - moved(parameter, -1e-6)) / 2e-6
        assert found[:, parameter] == pytest.approx(slope, abs=1e-8)


def test_covariances_of_products_are_those_of_simulated_rows():
    k = 2
    _, _, truths = truths_of(k, 1, seed=3)
    G = second_moments(*truths)
    rng = np.random.default_rng(4)
    x = rng.multivariate_normal(truths.mu[0], truths.T[0], 400_000)
    y = truths.theta[0, 0] + x @ truths.theta[0, 1:]
    y += np.sqrt(truths.sigma2[0]) * rng.standard_normal(len(x))
    w = np.column_stack([np.ones(len(x)), x, y])
    a, b = np.triu_indices(k + 2)
    products = w[:, a] * w[:, b]
    simulated = np.cov(products.T)
    exact = dense_plan.covariance_of_products(G, a, b)[0]
    size = np.sqrt(np.outer(simulated.diagonal(), simulated.diagonal()))
    assert np.abs(exact - simulated).max() < 0.02 * size.max()
    assert np.abs(exact[0]).max() < 1e-12  # the constant doesn't vary


def test_the_prior_of_the_covariance_has_the_information_of_nu_rows():
    """Against its definition nu/2 tr(T⁻¹ E T⁻¹ F), one pair of directions at a time."""
    k = 3
    prior, covariates, truths = truths_of(k, 1)
    found = dense_plan.prior_precision(truths, prior, covariates)[0][2 * k + 2 :, 2 * k + 2 :]
    inverse = np.linalg.inv(truths.T[0])
    directions = []
    for i in range(k):
        for j in range(i, k):
            E = np.zeros((k, k))
            E[i, j] = E[j, i] = 1.0
            directions.append(E)
    expected = [
        [covariates.nu / 2 * np.trace(inverse @ E @ inverse @ F) for F in directions]
        for E in directions
    ]
    assert found == pytest.approx(np.array(expected), rel=1e-9)


COLUMNS = {
    "numbers": {f"x{j}": Number(-1, 1) for j in range(5)},
    "one": {"x": Number(-1, 1)},
    "one category": {"c": Category(tuple("abcdefg"), "a")},
    "categories": {
        "x": Number(-1, 1),
        "c": Category(tuple("abcd"), "a"),
        "e": Category(tuple("uvw"), "u"),
    },
}


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
@pytest.mark.parametrize("kind", [NIGPrior, NormalInverseGammaIndependent])
@pytest.mark.parametrize("columns", COLUMNS)
def test_widths_are_those_of_the_large_matrices(columns, kind, neighbours):
    """Whatever noise, rows and prior: from noise that drowns everything to hardly any."""
    schema = Schema("p", {**COLUMNS[columns], "y": Number(-1, 1)}, neighbours=neighbours)
    noise = PlannedNoise(schema, "y", tuple(COLUMNS[columns]))
    k = len(noise.design.columns) - 1
    prior, covariates = kind.weakly_informative(k), NIWPrior.weakly_informative(k)
    truths, _ = draw_truths(prior, covariates, 10, np.random.default_rng(2))
    for mechanism in ("laplace", "isometric"):
        for n in (5, 3000, 10**7):
            for epsilon in (0.001, 0.1, 1.0, 100.0):
                words = (truths, n, prior, covariates, noise.sd(mechanism, epsilon))
                found = plan_width.posterior_width(*words).private
                expected = dense_plan.private_width(*words)
                size = np.sqrt(np.einsum("maa->ma", expected))
                off = np.abs(found - expected) / (size[:, :, None] * size[:, None, :])
                assert off.max() < 1e-4


def test_without_information_the_posterior_is_the_prior_and_with_all_of_it_the_exact_one():
    k, n = 2, 100_000
    prior, covariates, truths = truths_of(k, 4)
    sd = np.ones((k + 2, k + 2))
    sd[0, 0] = 0.0
    blind = plan_width.posterior_width(truths, 1, prior, covariates, 1e9 * sd)
    assert blind.private == pytest.approx(np.broadcast_to(prior.V0, blind.private.shape), rel=1e-3)
    clear = plan_width.posterior_width(truths, n, prior, covariates, 1e-6 * sd)
    ratio = np.sqrt(np.einsum("maa->ma", clear.private) / np.einsum("maa->ma", clear.non_private))
    assert ratio == pytest.approx(np.ones_like(ratio), abs=0.01)


def test_a_private_number_of_rows_costs_something():
    k = 1
    prior, covariates, truths = truths_of(k, 5)
    sd = np.full((3, 3), 10.0)
    public = sd.copy()
    public[0, 0] = 0.0
    widths = [
        plan_width.posterior_width(truths, 300, prior, covariates, s).private[:, 0, 0]
        for s in (public, sd)
    ]
    assert (widths[1] > widths[0]).all()


def test_many_truths_are_worked_through_in_parts(monkeypatch):
    prior, covariates, truths = truths_of(2, 7)
    sd = np.full((4, 4), 3.0)
    sd[0, 0] = 0.0
    whole = plan_width.posterior_width(truths, 500, prior, covariates, sd)
    monkeypatch.setattr(plan_width, "_NUMBERS_AT_ONCE", 60)
    parts = plan_width.posterior_width(truths, 500, prior, covariates, sd)
    assert parts.private == pytest.approx(whole.private, rel=1e-12)


# --- plans come true ------------------------------------------------------------------------------


def test_planned_noise_is_what_a_request_would_add():
    noise = PlannedNoise(SCHEMA, "income", ("age", "region"), 1e-6, 0.75)
    for mechanism, words in (
        ("laplace", {}),
        ("gaussian", {"delta": "1e-6", "rounds": 1}),
        ("isometric", {"delta": "1e-6", "layout": "isometric"}),
        ("ball", {"delta": "1e-6", "radius": 0.75}),
    ):
        request = nw.make_request(
            SCHEMA, target="income", features=["age", "region"], epsilon=0.7, **words
        )
        planned = request.mechanisms[0]
        factor = np.sqrt(2) if mechanism == "laplace" else 1.0
        sd = noise.sd(mechanism, 0.7)
        assert sd[1, 1] == pytest.approx(factor * planned.scale / 2**32, rel=1e-9)
        assert sd[0, 1] == pytest.approx(factor * planned.off_diagonal_scale / 2**32, rel=1e-9)
        assert sd[0, 0] == 0


@pytest.mark.parametrize("setting", [*QUICK_GRID, *QUICK_BEYOND_GRID])
def test_predicted_widths_are_realised(setting):
    """Within 15%, plus three standard errors of what twelve truths can show.

    The full grid, with up to forty truths a cell, is docs/results/plan-check.md.
    """
    row = row_of(setting, check(setting, truths=12, draws=400))
    for name in ("intercept", "slopes"):
        assert abs(row[f"{name}_ratio"] - 1) < 0.15 + 3 * row[f"{name}_ratio_error"]
        assert row[f"{name}_ratio_error"] < 0.15


def test_predicted_widths_of_many_coefficients_are_realised():
    """As above, for more of them than could be planned with all of V in memory."""
    setting = Setting(45, 300_000, "gaussian", 1.0)
    planner = planner_for(setting, 10)
    predicted, _ = planner.sds(setting.mechanism, setting.epsilon)
    realised = realise(setting, planner, 0, np.random.default_rng(8), draws=300)
    ratio = np.exp(np.log(predicted[0] / realised)[1:].mean())
    assert abs(ratio - 1) < 0.15
    assert (predicted[0][1:] < 0.3 * (0.5 / 45) ** 0.5).all()  # far from the prior's width


def test_a_prior_that_contradicts_the_ball_is_too_sure():
    """What docs/planning.md warns of: a box's prior expects more than ten features hold here."""
    setting = Setting(10, 3000, "ball", 1.0, 1.0)
    planner = planner_for(setting, 10)
    predicted, _ = planner.sds(setting.mechanism, setting.epsilon)
    ratios = {}
    for name, prior in (("ball", planner.covariates), ("box", NIWPrior.weakly_informative(10))):
        planner.covariates = prior
        rng = np.random.default_rng(9)
        realised = [realise(setting, planner, i, rng, draws=300)[1:] for i in range(10)]
        ratios[name] = np.exp(np.log(predicted[:, 1:] / np.array(realised)).mean())
    assert abs(ratios["ball"] - 1) < 0.15
    assert ratios["box"] > 1.25


def test_the_check_would_notice_a_plan_that_forgets_the_noise():
    setting = QUICK_GRID[2]
    found = check(setting, truths=10, draws=200)
    _, without_noise = planner_for(setting, 10).sds(setting.mechanism, setting.epsilon)
    forgetful = row_of(setting, found._replace(predicted=without_noise))
    assert forgetful["slopes_ratio"] < 0.85 - 3 * forgetful["slopes_ratio_error"]


def test_the_committed_plans_came_true():
    """Every cell within 15%, up to the Monte Carlo error of its truths, and most without it."""
    rows = read_table(DOCS / "results" / "plan-check.csv")
    assert len(rows) == len(GRID)
    within = []
    for row in rows:
        for name in ("slopes", "intercept"):
            off = abs(row[f"{name}_ratio"] - 1)
            assert off < 0.15 + 2 * row[f"{name}_ratio_error"], row
            within.append(off < 0.15)
    assert np.mean(within) > 0.9
    assert markdown(rows) in (DOCS / "planning.md").read_text("utf-8")


def test_the_committed_plans_beyond_came_true():
    """Balls and many coefficients: every cell within 15%, up to two standard errors."""
    rows = read_table(DOCS / "results" / "plan-check-beyond.csv")
    assert len(rows) == len(BEYOND_GRID)
    for row in rows:
        for name in ("slopes", "intercept"):
            assert abs(row[f"{name}_ratio"] - 1) < 0.15 + 2 * row[f"{name}_ratio_error"], row
    assert markdown(rows) in (DOCS / "planning.md").read_text("utf-8")


def test_the_grid_is_the_announced_one():
    assert len(GRID) == 54
    assert {s.k + 1 for s in GRID} == {2, 4, 7}
    row = {f"{n}_{w}": 1.0 for n in ("slopes", "intercept") for w in
           ("predicted", "realised", "ratio", "ratio_error")}  # fmt: skip
    text = markdown([{"d": 2, "n": 300, "mechanism": "laplace", "epsilon": 0.1, **row}])
    assert "| 2 | 300 | laplace | 0.1 |" in text


# --- the public face ------------------------------------------------------------------------------


def test_where_rows_have_ids_a_plan_is_about_people():
    schema = Schema("people", SCHEMA.columns, unit_column="person")
    made = nw.plan(schema, **WORDS, epsilon=1, want={"age": 1e-3}, truths=10)
    assert f"from {made.n:,} people" in str(made)
    assert made.to_dict()["counted"] == "people"
    assert all("people" in str(said) for said in (*made.answers, made.verdict))
    with pytest.raises(RequestError, match="number of people"):
        nw.plan(schema, **(WORDS | {"n": 0}), epsilon=1)


def test_a_plan_is_in_original_units_and_falls_with_epsilon():
    made = nw.plan(SCHEMA, **WORDS, epsilon=(0.1, 1, 10), truths=40)
    assert {row.name for row in made.rows} == {"intercept", "age", "region[south]", "region[east]"}
    for mechanism in ("laplace", "rounds"):
        rows = [r for r in made.rows if r.name == "age" and r.mechanism == mechanism]
        widths = [row.half_width for row in rows]
        assert widths == sorted(widths, reverse=True)
        shares = [row.privacy_share for row in rows]
        assert shares == sorted(shares, reverse=True)
        assert all(0 <= share <= 1 for share in shares)
        assert all(r.half_width_low <= r.half_width <= r.half_width_high for r in rows)
        assert all(row.half_width >= row.half_width_non_private for row in rows)
        assert rows[0].half_width == pytest.approx(1.96 * rows[0].sd, rel=1e-3)
    # With next to no information the width is the prior's: slope sd sqrt(1/6) times 100,000/36.
    blind = plan(SCHEMA, **(WORDS | {"n": 2}), epsilon=0.01, mechanism="laplace", truths=20)
    age = next(row for row in blind.rows if row.name == "age")
    assert age.sd == pytest.approx((0.5 / 3) ** 0.5 * 100_000 / 36, rel=0.02)
    assert json.loads(json.dumps(made.to_dict()))["n"] == 5000
    assert "due to privacy" in str(made)


def test_the_epsilon_that_is_answered_gives_the_width_that_was_wanted():
    made = plan(SCHEMA, **WORDS, epsilon=1.0, mechanism=["laplace"], want={"age": 150}, truths=40)
    (answer,) = made.answers
    epsilon = answer.epsilon["laplace"]
    again = plan(SCHEMA, **WORDS, epsilon=epsilon, mechanism="laplace", truths=40)
    age = next(row for row in again.rows if row.name == "age")
    assert age.half_width == pytest.approx(150, rel=0.03)
    assert "needs epsilon about" in str(answer)


def test_what_no_epsilon_can_give():
    made = plan(SCHEMA, **WORDS, epsilon=1.0, mechanism=["laplace"], want={"age": 1}, truths=40)
    (answer,) = made.answers
    assert answer.epsilon == {"laplace": None}
    assert answer.rows_needed > 100_000
    assert "out of reach" in str(answer)
    enough = plan(
        SCHEMA, **(WORDS | {"n": answer.rows_needed}), epsilon=1.0, mechanism="laplace", truths=40
    )
    age = next(row for row in enough.rows if row.name == "age")
    assert age.half_width_non_private == pytest.approx(1, rel=0.02)
    easy = plan(SCHEMA, **WORDS, epsilon=1.0, mechanism="laplace", want={"age": 1e5}, truths=40)
    assert "the prior says it already" in str(easy.answers[0])


def test_a_prior_makes_a_plan_sharper():
    prior = nw.CoefficientPrior({"age": (0, 100)}, error_sd=(10_000, 30_000))
    words = {**WORDS, "epsilon": 0.1, "mechanism": "laplace", "truths": 40}
    wide, sharp = plan(SCHEMA, **words), plan(SCHEMA, **words, prior=prior)
    ages = [next(r for r in made.rows if r.name == "age") for made in (wide, sharp)]
    assert ages[1].sd <= 100
    assert ages[1].sd < ages[0].sd / 2


def test_one_row_more_or_less_is_planned_too():
    from dataclasses import replace

    schema = replace(SCHEMA, neighbours="add_remove_one")
    made = plan(schema, **WORDS, epsilon=1.0, mechanism="laplace", truths=20)
    assert all(np.isfinite(row.half_width) for row in made.rows)


def test_a_real_release_has_a_width_within_the_plan(tmp_path):
    """Real rows, real noise, real fit; the plan knew the schema and n."""
    rng = np.random.default_rng(5)
    n = 3000
    schema = Schema("people", {"age": Number(18, 90), "income": Number(0, 200_000)})
    age = rng.uniform(18, 90, n)
    income = np.clip(40_000 + 900 * age + 15_000 * rng.standard_normal(n), 0, 200_000)
    request = nw.make_request(schema, target="income", features=["age"], epsilon=2)
    release = nw.publish(
        request, {"age": age, "income": income}, ledger=ledger_for(tmp_path / "ledger.db")
    ).release
    posterior = nw.fit(release, seed=1, chains=2, draws=400)
    low, high = posterior.interval("age")
    made = plan(schema, target="income", features=["age"], n=n, epsilon=2.0, mechanism="laplace")
    row = next(row for row in made.rows if row.name == "age")
    assert row.half_width_low / 2 < (high - low) / 2 < 2 * row.half_width_high


def test_a_real_release_of_rows_in_a_ball_has_a_width_within_the_plan(tmp_path):
    rng = np.random.default_rng(6)
    n, radius = 20_000, 1.0
    features = [f"x{j}" for j in range(1, 7)]
    schema = Schema("people", {name: Number(-1, 1) for name in (*features, "y")})
    # Features share half of their variance, as the prior expects; a tenth of rows are too long.
    x = 0.2 * (rng.standard_normal((n, 1)) + rng.standard_normal((n, 6)))
    y = np.clip(0.3 * x[:, 0] + 0.2 * rng.standard_normal(n), -1, 1)
    words = {"target": "y", "features": features, "radius": radius}
    request = nw.make_request(schema, **words, epsilon=2, delta="1e-6")
    rows = {name: np.clip(x[:, j], -1, 1) for j, name in enumerate(features)} | {"y": y}
    release = nw.publish(request, rows, ledger=ledger_for(tmp_path / "ledger.db")).release
    posterior = nw.fit(release, seed=1, chains=2, draws=400)
    low, high = posterior.interval("x1")
    made = plan(schema, **words, n=n, epsilon=2.0, mechanism=["gaussian", "ball"])
    box, ball = (row for row in made.rows if row.name == "x1")
    assert ball.half_width_low / 2 < (high - low) / 2 < 2 * ball.half_width_high
    assert (high - low) / 2 < box.half_width / 2  # which is not what a box would give


def test_pictures(tmp_path):
    made = plan(SCHEMA, **WORDS, epsilon=(0.1, 1), want={"age": 100}, truths=20)
    for name in ("plan.png", "plan.svg"):
        draw_plan(made, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5000
    with pytest.raises(RequestError, match="out"):
        draw_plan(made, tmp_path / "plan.xlsx")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"n": 0}, "n:"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"mechanism": "magic"}, "mechanism"),
        ({"want": {"wealth": 1.0}}, "want"),
        ({"want": {"age": 0.0}}, "want"),
        ({"level": 95}, "level"),
        ({"truths": 2}, "truths"),
        ({"target": "region", "features": ["age"]}, "target"),
    ],
)
def test_errors_name_the_argument(changes, word):
    with pytest.raises(RequestError, match=word):
        plan(SCHEMA, **{**WORDS, "epsilon": 1.0, "truths": 10, **changes})


def test_too_many_columns_are_refused():
    schema = Schema("wide", {f"x{j}": Number(0, 1) for j in range(260)})
    features = [f"x{j}" for j in range(1, 260)]
    with pytest.raises(RequestError, match="plan with fewer"):
        plan(schema, target="x0", features=features, n=100, epsilon=1.0)
    levels = Category(tuple(f"level {j}" for j in range(90)), "level 0")
    schema = Schema("levels", {"a": levels, "b": levels, "y": Number(0, 1)})
    with pytest.raises(RequestError, match="many levels"):
        plan(schema, target="y", features=["a", "b"], n=100, epsilon=1.0)


@pytest.mark.long
def test_many_columns_are_planned_with_fewer_truths():
    schema = Schema("wide", {f"x{j}": Number(0, 1) for j in range(61)})
    features = [f"x{j}" for j in range(1, 61)]
    made = plan(schema, target="x0", features=features, n=10**6, epsilon=1.0, mechanism="gaussian")
    assert made.truths == 50
    assert "medians over 50 possible truths" in str(made)
    assert len(made.rows) == 61
    assert all(row.half_width > row.half_width_non_private > 0 for row in made.rows)


def test_a_ball_is_planned():
    """Noise that is calibrated to the ball, rows that lie in it; the others for the same rows."""
    schema = Schema("people", {f"x{j}": Number(0, 10) for j in range(12)})
    words = {"target": "x0", "features": [f"x{j}" for j in range(1, 12)], "n": 10_000}
    made = plan(schema, **words, epsilon=1.0, radius=1, truths=20)
    widths = {row.mechanism: row.half_width for row in made.rows if row.name == "x3"}
    assert list(widths) == ["laplace", "gaussian", "ball"]
    assert widths["ball"] < 0.7 * widths["gaussian"] < widths["laplace"]
    exact = {row.half_width_non_private for row in made.rows if row.name == "x3"}
    assert len(exact) == 1
    assert made.to_dict()["radius"] == 1.0
    assert "rows in a ball of radius 1 " in str(made)
    assert next(row for row in made.rows if row.mechanism == "ball").delta == 1e-6


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"mechanism": "ball"}, "needs a radius"),
        ({"mechanism": "gaussian", "radius": 1.0}, "radius: none of gaussian"),
        ({"radius": -1.0}, "radius"),
    ],
)
def test_balls_and_radii_go_together(changes, word):
    with pytest.raises(RequestError, match=word):
        plan(SCHEMA, **{**WORDS, "epsilon": 1.0, "truths": 10, **changes})


# ---------------------------------------------------------------------------------------------
# Rounds, and what columns are expected to be like

NARROW = {"age": (45.0, 12.0), "income": (40_000.0, 15_000.0)}


def half_widths(name="age", **words):
    made = plan(SCHEMA, **(WORDS | {"truths": 40, "epsilon": 1.0} | words))
    return {row.mechanism: row.half_width for row in made.rows if row.name == name}


def test_rounds_come_true():
    """Releases in rounds, by `publish` and `fit` with their defaults, at twelve truths."""
    setting = Setting(2, 20_000, "rounds", 1.0)
    row = row_of(setting, check(setting, truths=12))
    assert abs(np.log(row["slopes_ratio"])) < 0.2
    assert abs(np.log(row["intercept_ratio"])) < 0.2


def test_rounds_need_rows():
    """With too few there is one round, whose noise is Gaussian in the bounds."""
    few = half_widths(n=200, mechanism=["gaussian", "rounds"])
    assert few["rounds"] == few["gaussian"]
    many = half_widths(n=50_000, mechanism=["gaussian", "rounds"], expect=NARROW)
    assert many["rounds"] < 0.6 * many["gaussian"]  # the exploring rounds have their price


def test_expected_spreads_decide_the_width():
    """Exact sums: the width is sd of the error over that of x, by the root of n."""
    made = plan(SCHEMA, **(WORDS | {"epsilon": 1.0, "expect": NARROW}))
    row = next(row for row in made.rows if row.name == "age")
    # The share of income that is explained, and correlations, are as drawn.
    assert row.half_width_non_private < 1.96 * 15_000 / 12 / np.sqrt(made.n) * 1.3
    narrower = half_widths(expect={**NARROW, "age": (45.0, 6.0)})
    for mechanism, width in half_widths(expect=NARROW).items():
        assert narrower[mechanism] > 1.7 * width


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        ({"shoes": (1, 1)}, "there are age, income"),
        ({"region": (1, 1)}, "there are age, income"),
        ({"age": (17, 1)}, "within the bounds of age"),
        ({"age": (40, 0)}, "within the bounds of age"),
        ({"age": (40, np.nan)}, "within the bounds of age"),
    ],
)
def test_expectations_that_make_no_sense(expect, message):
    with pytest.raises(RequestError, match=message):
        plan(SCHEMA, **WORDS, expect=expect)
    with pytest.raises(RequestError, match="radius"):
        plan(SCHEMA, **WORDS, expect=NARROW, radius=1.0)


def test_the_verdict():
    made = plan(SCHEMA, **(WORDS | {"n": 20_000}), truths=40, expect=NARROW)
    verdict = made.verdict
    assert (verdict.mechanism, verdict.epsilon) == ("rounds", 1.0)
    assert verdict.chances["age"] > 0.9
    assert str(verdict) in str(made)
    again = plan(
        SCHEMA, **(WORDS | {"n": verdict.half_width_rows}), truths=40, epsilon=1.0, expect=NARROW,
        mechanism="rounds",
    )  # fmt: skip

    def width(one):
        rows = [row for row in one.rows if (row.mechanism, row.epsilon) == ("rounds", 1.0)]
        return np.median([row.half_width for row in rows if row.name != "intercept"])

    assert width(again) == pytest.approx(width(made) / 2, rel=0.15)
    hopeless = plan(SCHEMA, **(WORDS | {"n": 3}), epsilon=0.01, mechanism="laplace", truths=40)
    assert max(hopeless.verdict.chances.values()) < 0.05


def test_noise_that_hides_a_spread_widens_slopes():
    """By the law itself: a root of a variance that is flat up to what the noise allows."""
    rng = np.random.default_rng(1)
    T = np.diag([0.04, 0.09])[None]
    sd, n = np.zeros((4, 4)), 1000
    sd[1, 1], sd[2, 2] = 0.04 * n, 1e-4 * n  # hides the first column's variance
    factor = plan_width.unseen_spreads(T, sd, n)[0]
    r = rng.uniform(0, 0.5, 400_000)
    r = r[rng.uniform(size=len(r)) < np.exp(-((r**2 / 0.04 - 1) ** 2) / 2)]
    slopes = rng.standard_normal(len(r)) * 0.2 / r
    assert factor[0] == pytest.approx(np.quantile(np.abs(slopes), 0.95) / 1.96, rel=0.05)
    assert factor[0] > 3
    assert factor[1] == pytest.approx(1, abs=0.01)
    same = plan_width.unseen_spreads(T, 4 * sd, n, np.diag([2.0, 2.0])[None])
    assert same[0] == pytest.approx(factor)


def test_stated_spreads_tell_of_tails():
    """A mean near a bound with a large spread is a long tail, and its last round is wider."""
    tight = {"age": (54.0, 12.0), "income": (100_000.0, 30_000.0)}
    tailed = {"age": (54.0, 12.0), "income": (20_000.0, 30_000.0)}
    words = WORDS | {"n": 20_000, "epsilon": 1.0, "mechanism": "rounds", "truths": 40}
    widths = [
        next(row.half_width for row in plan(SCHEMA, **words, expect=one).rows if row.name == "age")
        for one in (tight, tailed)
    ]
    assert widths[1] > 1.3 * widths[0]
