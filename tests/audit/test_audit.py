"""The audit must keep its own promise, and it must catch what is broken."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm

from noisewise.audit import engine as audit_engine
from noisewise.audit.engine import (
    audit,
    likelihood_ratio,
    linear_discriminant,
)
from noisewise.audit.regression import neighbours
from noisewise.core.design import STATISTIC_ONE, Box, Design
from noisewise.core.errors import RequestError
from noisewise.core.noise import Gaussian, Laplace
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics import SecondMoments, l1_sensitivity, l2_sensitivity
from noisewise.holder.mechanisms.gaussian import GaussianMechanism
from noisewise.holder.mechanisms.laplace import LaplaceMechanism
from noisewise.holder.requests.regression import make_request
from studies.self_audit.broken import (
    NoiseDrawnOnce,
    add_remove_passed_off_as_replace_one,
    noise_scale_halved,
)

from .power import detection_probability, worst_pair


def noisy(rng, sums, scale=1.0, kind="laplace"):
    """A batch runner: `sums` with simulated noise."""
    sums = np.asarray(sums, dtype=float)
    draw = rng.laplace if kind == "laplace" else rng.normal
    return lambda trials: sums + draw(scale=scale, size=(trials, len(sums)))


def make_schema(q, lower=-3.0, upper=5.0):
    return Schema("d", {f"x{i}": Number(lower, upper + i) for i in range(q)})


def make_design(q):
    return Design(make_schema(q), tuple(f"x{i}" for i in range(1, q)), "x0")


def moments(design, row):
    """Second moments of a row on unit scale, straight from the definition."""
    w = [1.0] + [(row[c.name] - c.centre) / c.half_width for c in design.columns]
    return np.array([w[i] * w[j] for i, j in SecondMoments(design).entries])


# --- the promise: a true claim is called violated in at most one audit of a hundred --------------


@pytest.mark.parametrize("score_is_known", [True, False])
def test_false_alarms_are_rare_even_at_the_boundary(score_is_known) -> None:
    """Laplace noise of scale 1 on sums one apart has epsilon = 1 exactly, and the score finds it.

    400 audits; with a false alarm rate of 1 % more than 13 alarms have probability 7e-5.
    """
    rng = np.random.default_rng(20260101)
    score = likelihood_ratio(Laplace(1.0), [1.0], [0.0]) if score_is_known else None
    found = [
        audit(
            *(noisy(rng, [1.0]), noisy(rng, [0.0])),
            **{"trials": 600, "epsilon": 1.0, "seed": seed, "score": score, "batch": True},
        )
        for seed in range(400)
    ]
    assert binom.sf(13, 400, 0.01) < 1e-4
    assert sum(not result.passed for result in found) <= 13
    # Negative control: without confidence bounds, or with a claim that is too low, alarms abound.
    plugin = sum(r.likelier > math.e * r.rarer for r in found)
    assert plugin > 100
    assert sum(r.epsilon_lower > 0.3 for r in found) > 200


def test_judging_with_the_runs_that_chose_the_region_would_break_the_promise() -> None:
    """Negative control for the split: 60 entries of pure noise, and a claim of epsilon = 0.5.

    A discriminant that is judged by the runs it was trained on "tells A from B" most of the time.
    The audit holds runs out and doesn't: more than 5 alarms of 40 at 1 % have probability 3e-6.
    """
    rng = np.random.default_rng(7)
    self_judged = alarms = 0
    for seed in range(40):
        a, b = rng.normal(size=(2, 200, 60))
        score = linear_discriminant(a, b)
        threshold = np.quantile(score(b), 0.8)
        more, less = (np.array([np.sum(score(x) >= threshold)]) for x in (a, b))
        lower = audit_engine.lower(more, 200, 0.005)[0]
        self_judged += lower > math.exp(0.5) * audit_engine.upper(less, 200, 0.005)[0]
        runs = [noisy(rng, np.zeros(60), kind="normal") for _ in "ab"]
        alarms += not audit(*runs, trials=400, epsilon=0.5, seed=seed, batch=True).passed
    assert self_judged > 30
    assert alarms <= 5


@pytest.mark.parametrize(("hits", "runs"), [(0, 10), (1, 10), (7, 250), (249, 250), (250, 250)])
def test_clopper_pearson(hits, runs) -> None:
    interval = binomtest(hits, runs).proportion_ci(confidence_level=0.99, method="exact")
    lower = audit_engine.lower(np.array([hits]), runs, 0.005)[0]
    upper = audit_engine.upper(np.array([hits]), runs, 0.005)[0]
    assert (lower, upper) == pytest.approx((interval.low, interval.high), rel=1e-9)


def test_the_bounds_of_a_result_are_the_two_sided_interval_of_its_counts() -> None:
    """Half of the error probability for each of the two bounds, none of it spent elsewhere."""
    rng = np.random.default_rng(2)
    settings = {"trials": 2000, "epsilon": 1.0, "delta": 0.01, "seed": 3, "batch": True}
    result = audit(noisy(rng, [1.0]), noisy(rng, [0.0]), confidence=0.95, **settings)
    likelier, rarer = (
        binomtest(hits, result.held_out).proportion_ci(0.95, method="exact")
        for hits in (result.likelier, result.rarer)
    )
    assert (result.p_lower, result.p_upper) == pytest.approx((likelier.low, rarer.high), rel=1e-9)
    expected = math.log((likelier.low - 0.01) / rarer.high)
    assert result.epsilon_lower == pytest.approx(expected, rel=1e-9)
    assert result.epsilon_lower > 0


def test_detection_probability_by_simulation() -> None:
    p, q, n = 0.2, 0.04, 500
    exact = detection_probability(p, q, held_out=n, epsilon=1.0, delta=0.01)
    rng = np.random.default_rng(3)
    many, few = rng.binomial(n, p, 20_000), rng.binomial(n, q, 20_000)
    lower = audit_engine.lower(many, n, 0.005) - 0.01
    caught = np.mean(lower > math.e * audit_engine.upper(few, n, 0.005))
    assert caught == pytest.approx(exact, abs=5 * math.sqrt(exact * (1 - exact) / 20_000))
    assert 0.05 < exact < 0.95  # an uninformative point would make this test empty


# --- power: what is broken gets caught ------------------------------------------------------------


@pytest.mark.parametrize("kind", ["laplace", "normal"])
@pytest.mark.parametrize("score_is_known", [True, False])
def test_catches_too_little_noise_in_several_entries(kind, score_is_known) -> None:
    """Shifts (0.5, 0.5, -1) under unit noise; the claim is half of what is given away."""
    rng = np.random.default_rng(11)
    a, b = np.array([0.5, 0.5, -1.0]) + 40, np.zeros(3) + 40
    law = Laplace(1.0) if kind == "laplace" else Gaussian(1.0)
    score = likelihood_ratio(law, a, b) if score_is_known else None
    settings = {"trials": 40_000, "seed": 0, "batch": True, "score": score}
    runs = noisy(rng, a, kind=kind), noisy(rng, b, kind=kind)
    result = audit(*runs, epsilon=1.0, **settings)
    assert not result.passed
    assert "Violates epsilon = 1." in str(result)
    if kind == "laplace":  # pure privacy with epsilon = 2, so no more than that can be found
        assert audit(*runs, epsilon=2.0, **settings).passed


def test_the_discriminant_comes_close_to_the_likelihood_ratio() -> None:
    rng = np.random.default_rng(12)
    a, b = np.array([1.0, 0.0, 0.5]), np.zeros(3)
    for kind, law in (("laplace", Laplace(1.0)), ("normal", Gaussian(1.0))):
        train = [noisy(rng, s, kind=kind)(20_000) for s in (a, b)]
        test = [noisy(rng, s, kind=kind)(20_000) for s in (a, b)]
        best, learned = likelihood_ratio(law, a, b), linear_discriminant(*train)
        powers = []
        for score in (best, learned):
            cut = np.quantile(score(test[1]), 0.95)
            powers.append(np.mean(score(test[0]) > cut))
        assert powers[1] > powers[0] - 0.02


def test_finds_the_direction() -> None:
    """B shows a mark that A never shows: only "b over a" reveals anything."""
    rng = np.random.default_rng(13)
    result = audit(
        lambda trials: np.zeros((trials, 1)),
        lambda trials: (rng.random((trials, 1)) < 0.2).astype(float),
        **{"trials": 2000, "epsilon": 2.0, "seed": 1, "batch": True},
    )
    assert result.direction == "b over a"
    assert not result.passed
    assert result.rarer == 0
    assert "on data set B fell" in str(result)


def test_gaussian_privacy_is_challenged_where_epsilon_shows_nothing() -> None:
    """Twice the claimed mu is seen in 1000 runs; at delta = 1e-6 epsilon alone shows nothing."""
    rng = np.random.default_rng(16)
    runs = noisy(rng, [0.5], kind="normal"), noisy(rng, [0.0], kind="normal")
    settings = {"trials": 2000, "epsilon": 1.0, "delta": 1e-6, "seed": 1, "batch": True}
    assert audit(*runs, **settings).passed
    caught = audit(*runs, mu=0.25, **settings)
    assert not caught.passed
    assert 0.25 < caught.mu_lower < 0.6
    assert "standard deviations" in str(caught)
    alarms = sum(not audit(*runs, mu=0.5, **(settings | {"seed": s})).passed for s in range(40))
    assert alarms <= 4  # 1% each: five or more have probability 6e-5


def test_the_better_of_several_scores_is_taken() -> None:
    """A useless score beside a good one costs nothing."""
    rng = np.random.default_rng(17)
    runs = noisy(rng, [2.0, 0.0]), noisy(rng, [0.0, 0.0])
    settings = {"trials": 4000, "epsilon": 1.0, "seed": 1, "batch": True}

    def useless(outputs):
        return outputs[:, 1]

    assert audit(*runs, score=useless, **settings).passed
    assert not audit(*runs, score=(useless, None), **settings).passed


def test_delta_is_granted() -> None:
    """A mechanism that tells everything with probability 0.05 is (0, 0.05)-private."""
    rng = np.random.default_rng(14)

    def marked(trials):
        return (rng.random((trials, 1)) < 0.05).astype(float)

    def never(trials):
        return np.zeros((trials, 1))

    settings = {"trials": 20_000, "epsilon": 1.0, "seed": 1, "batch": True}
    assert audit(marked, never, delta=0.05, **settings).passed
    assert not audit(marked, never, delta=0.03, **settings).passed


def test_single_runs_and_batches_are_the_same_thing() -> None:
    rng = np.random.default_rng(15)
    one = audit(
        lambda: rng.laplace(size=2) + 3,
        lambda: rng.laplace(size=2),
        **{"trials": 400, "epsilon": 0.5, "seed": 1},
    )
    assert not one.passed
    assert one.held_out == 200


# --- the broken mechanisms ------------------------------------------------------------------------

LAPLACE = LaplaceMechanism(2**32, Fraction(1))
GAUSSIAN = GaussianMechanism(2**32, 2**32, (False,))
ONE, ZERO = [STATISTIC_ONE], [0]


def on(mechanism, sums):
    return lambda: np.array(mechanism.add_noise(sums)) / STATISTIC_ONE


def many_on(mechanism, sums):
    """The same for many runs in one call, where every call of OpenDP costs a millisecond."""

    def run(trials):
        tiled = replace(mechanism, off_diagonal=mechanism.off_diagonal * trials)
        return np.reshape(tiled.add_noise(sums * trials), (trials, -1)) / STATISTIC_ONE

    return run


def test_halved_noise_is_caught() -> None:
    """True epsilon 2: the region {LLR = 2} has probabilities 1/2 and e⁻²/2.

    This noise can't be seeded, hence a confidence that makes wrong accusations rarer than 1e-6.
    """
    claim = {"held_out": 900, "epsilon": 1, "confidence": 0.9999}
    assert detection_probability(0.5, 0.5 * math.exp(-2), **claim) > 0.9999
    assert detection_probability(0.5, 0.5 * math.exp(-1), **claim) < 1e-6
    score = likelihood_ratio(Laplace(0.5), [1.0], [0.0])
    settings = {"trials": 1200, "training": 0.25, "epsilon": 1.0, "seed": 1, "score": score}
    settings["confidence"] = 0.9999
    broken = noise_scale_halved(LAPLACE)
    broken.verify()  # the claim itself is in order; only the noise isn't
    assert (broken.scale, broken.event()) == (LAPLACE.scale, LAPLACE.event())
    assert not audit(on(broken, ONE), on(broken, ZERO), **settings).passed
    assert audit(on(LAPLACE, ONE), on(LAPLACE, ZERO), **settings).passed


def test_noise_used_twice_is_caught() -> None:
    """Two releases of different sums under one noise vector: their difference has no noise.

    A: sums (1, 0), B: sums (0, 0). The claim for both releases together is epsilon = 2; the
    discriminant separates A from B without error, so 400 held-out runs show log(p/q) > 4.
    """

    def two_releases(make, sums):
        def run():
            mechanism = make()
            values = [mechanism.add_noise([value])[0] for value in sums]
            return np.array(values) / STATISTIC_ONE

        return run

    settings = {"trials": 800, "epsilon": 2.0, "seed": 1}
    a, b = [STATISTIC_ONE, 0], [0, 0]

    def reusing():
        return NoiseDrawnOnce(LAPLACE)

    caught = audit(two_releases(reusing, a), two_releases(reusing, b), **settings)
    assert caught.epsilon_lower > 4
    sound = audit(two_releases(lambda: LAPLACE, a), two_releases(lambda: LAPLACE, b), **settings)
    assert sound.passed


def test_add_remove_sensitivity_is_caught() -> None:
    """Isometric Gaussian noise is then too small by √2. (epsilon, delta) = (1, 0.2) has power:
    the sound mechanism separates the pair by 1.2 standard deviations, the broken one by 1.69.
    """
    design = make_design(3)
    request = make_request(
        design.schema,
        **{"target": "x0", "features": ["x1", "x2"], "layout": "isometric"},
        **{"epsilon": 1, "delta": "0.2"},
    )
    sound, broken = request.mechanisms[0], add_remove_passed_off_as_replace_one(request)
    assert sound.scale / broken.drawn.scale == pytest.approx(math.sqrt(2), rel=1e-9)
    apart = sound.sensitivity / broken.drawn.scale
    claim = {"held_out": 3000, "epsilon": 1.0, "delta": 0.2, "confidence": 0.9999}
    for t in (1.2, 1.4, 1.6, 1.8):
        assert detection_probability(norm.sf(t - apart), norm.sf(t), **claim) > 0.9999
    apart = sound.sensitivity / sound.scale
    for t in np.arange(-2, 4, 0.1):
        assert detection_probability(norm.sf(t - apart), norm.sf(t), **claim) < 1e-6

    a, b = (moments(design, row) for row in worst_pair(design, "l2"))
    laws = [
        Gaussian((broken.drawn.off_diagonal_scale if off else broken.drawn.scale) / STATISTIC_ONE)
        for off in sound.off_diagonal
    ]
    settings = {"trials": 4000, "training": 0.25, "epsilon": 1.0, "delta": 0.2, "seed": 1}
    settings["confidence"] = 0.9999
    settings["score"] = likelihood_ratio(laws, a, b)
    sums = [[round(v * STATISTIC_ONE) for v in s] for s in (a, b)]
    settings["batch"] = True
    drawn = broken.drawn
    assert not audit(many_on(drawn, sums[0]), many_on(drawn, sums[1]), **settings).passed
    assert audit(many_on(sound, sums[0]), many_on(sound, sums[1]), **settings).passed


# --- worst pairs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [2, 3, 4, 5, 8])
def test_worst_pairs_attain_the_sensitivity(q) -> None:
    design = make_design(q)
    statistic = SecondMoments(design)
    u, v = (moments(design, row) for row in worst_pair(design, "l1"))
    bound = l1_sensitivity(statistic) / STATISTIC_ONE
    assert np.abs(u - v).sum() == pytest.approx(bound, rel=1e-9)

    u, v = (moments(design, row) for row in worst_pair(design, "l2"))
    weight = np.array([1.0 if i == j else math.sqrt(2) for i, j in statistic.entries])
    for layout, factor in (("upper", 1.0), ("isometric", weight)):
        bound = l2_sensitivity(statistic, Box(), layout) / STATISTIC_ONE
        short = 1.0 if q % 2 else math.sqrt(1 - 1 / (q + 1) ** 2)
        assert np.linalg.norm((u - v) * factor) == pytest.approx(short * bound, rel=1e-9)


def test_worst_pairs_are_in_original_units_and_within_bounds() -> None:
    design = make_design(3)
    for norm_name in ("l1", "l2"):
        for row in worst_pair(design, norm_name):
            assert set(row) == set(design.sources)
            for name, value in row.items():
                column = design.schema.columns[name]
                assert column.lower <= value <= column.upper


@pytest.mark.parametrize("relation", ["replace_one", "add_remove_one"])
@pytest.mark.parametrize("features", ["x", "x z", "x g", "x z g", "g h"])
@pytest.mark.parametrize(
    "words",
    [
        {"epsilon": 1},
        {"epsilon": 1, "delta": "1e-6", "rounds": 1},
        {"epsilon": 1, "delta": "1e-6", "layout": "isometric"},
        {"rho": "0.1", "radius": 1.2},
    ],
    ids=["laplace", "gaussian", "isometric", "ball"],
)
def test_neighbours_of_any_request_come_near_the_sensitivity(relation, features, words) -> None:
    """Never beyond it, which would be a mistake in a proof, and 94% of it at the least."""
    columns = {
        **{"x": Number(0, 10), "z": Number(-5, 90), "y": Number(0, 1e5)},
        **{"g": Category(("a", "b", "c"), "a"), "h": Category(("u", "v"), "v")},
    }
    schema = Schema("d", columns, neighbours=relation, max_rows_per_unit=2)
    request = make_request(schema, target="y", features=features.split(), **words)
    pair = neighbours(request)
    assert 0.94 < pair.attained < 1 + 1e-4
    rows = [list(zip(*table.values(), strict=True)) for table in (pair.a, pair.b)]
    same = sum(a == b for a, b in zip(*rows, strict=False))
    if relation == "replace_one":
        assert [len(r) for r in rows] == [same + 2, same + 2]
    else:
        assert [len(r) for r in rows] == [same + 2, same]


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trials": 15}, "trials"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"confidence": 1.0}, "confidence"),
        ({"training": 0.0}, "training"),
        ({"mu": -1.0}, "mu"),
        ({"score": lambda outputs: outputs}, "score"),
        ({"score": lambda outputs: np.full(len(outputs), np.nan)}, "score"),
    ],
)
def test_errors_name_the_argument(changes, message) -> None:
    rng = np.random.default_rng(1)
    given = {"trials": 100, "epsilon": 1.0, "seed": 0, "batch": True, **changes}
    with pytest.raises(RequestError, match=message):
        audit(noisy(rng, [0.0]), noisy(rng, [0.0]), **given)


def test_outputs_must_be_vectors_of_one_length() -> None:
    rng = np.random.default_rng(1)
    with pytest.raises(RequestError, match="run_b"):
        audit(
            noisy(rng, [0.0]),
            np.zeros,
            trials=50,
            epsilon=1,
            seed=0,
            batch=True,
        )
    with pytest.raises(RequestError, match="must not depend on the data"):
        audit(noisy(rng, [0.0]), noisy(rng, [0.0, 1.0]), trials=50, epsilon=1, seed=0, batch=True)


def test_words() -> None:
    rng = np.random.default_rng(1)
    settings = {"trials": 500, "seed": 0, "batch": True}
    passed = audit(noisy(rng, [0.0]), noisy(rng, [0.0]), epsilon=1.0, delta=0.01, **settings)
    assert str(passed).startswith("No violation found of epsilon = 1 and delta = 0.01.")
    assert "not a proof" in str(passed)
    failed = audit(noisy(rng, [9.0]), noisy(rng, [0.0]), epsilon=1.0, **settings)
    assert "with probability at most 0.01." in str(failed)
