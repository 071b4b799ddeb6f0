"""Plans of logistic and Poisson regressions: against what Releases turn out to be worth."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.analyst.glm.fit import fit_glm
from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.requests.glm import make_glm_request
from noisewise.planning.glm import plan_glm

SCHEMA = Schema(
    "people",
    {
        "x": Number(-10, 10),
        "z": Number(-10, 10),
        "g": Category(("a", "b"), "a"),
        "y": Category(("no", "yes"), "no"),
        "count": Number(0, 8),
    },
)


def planned(n, epsilon=1.0, **words):
    given = {"family": "logistic", "target": "y", "features": ["x", "z", "g"], **words}
    return plan_glm(SCHEMA, n=n, epsilon=epsilon, **given)


@pytest.mark.parametrize("n", [4000, 40_000])
def test_plans_come_true(n):
    """Within a third: rows are normal, and nothing but the formula is in between."""
    rng = np.random.default_rng(3)
    x, z, g = rng.normal(0, 1, n), rng.normal(2, 1, n), rng.random(n) < 0.3
    y = rng.random(n) < 1 / (1 + np.exp(-0.3 * x - 0.3 * (g - 0.3)))
    table = {"x": x, "z": z, "g": g.astype(np.int32), "y": y.astype(np.int32)}
    request = make_glm_request(
        SCHEMA, family="logistic", target="y", features=["x", "z", "g"], epsilon=1
    )

    def sums(plan):
        accumulator = plan.accumulator()
        accumulator.add([table[name] for name in plan.sources])
        return accumulator.result()

    kept = []
    drawn = request.begin(n, sums(request.plan()))
    while isinstance(drawn, str):
        kept.append(drawn)
        step = request.next_step(kept)
        drawn = request.draw(kept, step, sums(request.step_plan(step)))
    posterior = fit_glm(drawn, draws=300, seed=1)
    [row] = planned(n).rows
    for name, expected in (("x", row.number), ("z", row.number), ("g[b]", row.level)):
        low, high = posterior.interval(name)
        assert (high - low) / 2 == pytest.approx(expected, rel=0.34)


def test_less_noise_more_rows_and_commoner_events_are_better():
    by_budget = [row.number for row in planned(5000, [0.3, 1.0, 3.0]).rows]
    assert by_budget == sorted(by_budget, reverse=True)
    assert planned(20_000).rows[0].number < planned(5000).rows[0].number
    assert planned(20_000, mean=0.05).rows[0].number > planned(20_000).rows[0].number
    [row] = planned(20_000).rows
    assert row.number > row.number_non_private
    assert row.level > row.level_non_private


def test_too_few_rows_are_named():
    few, many = planned(300), planned(50_000)
    assert not few.rows[0].enough
    assert "too few rows" in str(few)
    assert many.rows[0].enough
    assert "too few rows" not in str(many)


def test_counts_and_categories_alone():
    counts = planned(20_000, family="poisson", target="count", mean=1.5)
    assert "1.5 on average" in str(counts)
    alone = planned(20_000, features=["g"])
    assert alone.rows[0].number is None
    assert alone.rows[0].level > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [({"n": 0}, "n: "), ({"mean": 1.5}, "mean: "), ({"level": 95}, "level: ")],
)
def test_what_makes_no_sense_is_refused(words, message):
    with pytest.raises(RequestError, match=message):
        planned(**{"n": 5000, **words})
