"""The laws of exact draws, by going through all that the random numbers may be: no chance at all.

A source that reads from a script takes the place of the real one. All scripts are tried until what
is left of the probability is tiny; then the law is known to within that. It goes step by step: once
a function has its law, a coin with this law stands for it in the next one.
`tests/statistical/test_randomness.py` looks at the real source.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest

from noisewise.holder.mechanisms import exact, randomness


class NextTry(Exception):  # noqa: N818 - it is no error
    """The first proposal was rejected. All tries are alike, so one is enough."""


class MoreNeeded(Exception):  # noqa: N818 - it is no error
    """The script is at its end; next comes one of these outcomes, with these chances."""


def evenly(limit):
    return [(number, Fraction(1, limit)) for number in range(limit)]


def coin(chance):
    return [(outcome, p) for outcome, p in ((True, chance), (False, 1 - chance)) if p]


def geometric(scale):
    """P(z) ∝ exp(-|z|/scale)."""
    q = math.exp(-1 / scale)
    return {z: (1 - q) / (1 + q) * q ** abs(z) for z in range(-40 * scale, 40 * scale + 1)}


SOURCES = {  # what a script may stand for
    "below": (randomness, evenly),
    "bits": (randomness, lambda count: evenly(2**count)),
    "bernoulli": (exact, coin),
    "bernoulli_exp": (exact, lambda gamma: coin(math.exp(-gamma))),
    "discrete_laplace": (exact, lambda scale: list(geometric(scale).items())),
}


@pytest.fixture
def law_of(monkeypatch):
    """From a draw to its law: a lower bound for each outcome, and how much is undecided."""

    def law(draw, undecided, *sources, tries_begin_with=None):
        found, left, rejected = {}, Fraction(0), Fraction(0)
        scripts = [((), Fraction(1))]
        while scripts:
            script, chance = scripts.pop()
            numbers, calls = iter(script), []

            def source(name, outcomes, numbers=numbers, calls=calls):
                def take(argument):
                    if name == tries_begin_with and name in calls:
                        raise NextTry
                    calls.append(name)
                    for number in numbers:
                        return number
                    raise MoreNeeded(outcomes(argument))

                return take

            for name in sources:
                module, outcomes = SOURCES[name]
                monkeypatch.setattr(module, name, source(name, outcomes))
            try:
                outcome = draw()
            except NextTry:
                rejected += chance
            except MoreNeeded as more:
                if chance < undecided:
                    left += chance
                else:
                    scripts += [((*script, number), chance * p) for number, p in more.args[0]]
            else:
                found[outcome] = found.get(outcome, Fraction(0)) + chance
        assert sum(found.values()) + left + rejected == pytest.approx(1, rel=1e-12)
        # With shares f, l and r: f / (1 - r) or more, and at most (f + l) / (1 - r - l).
        more = 2 * left / (1 - rejected - left)
        return {one: share / (1 - rejected) for one, share in found.items()}, more

    return law


def agrees(found, left, law):
    """Whether each outcome has at most its share, and at least that but for what is undecided."""
    rounding = 1e-12
    return all(
        found.get(outcome, 0) - rounding <= chance <= found.get(outcome, 0) + left + rounding
        for outcome, chance in law.items()
    )


@pytest.mark.parametrize("p", ["0", "1", "1/2", "3/7", "39/40"])
def test_bernoulli(law_of, p):
    found, left = law_of(lambda: exact.bernoulli(Fraction(p)), 0, "below")
    assert found.get(True, 0) == Fraction(p)
    assert left == 0


@pytest.mark.parametrize("gamma", ["0", "1/7", "2/3", "1", "5/2"])
def test_bernoulli_exp(law_of, gamma):
    draw, chance = exact.bernoulli_exp, math.exp(-Fraction(gamma))
    found, left = law_of(lambda: draw(Fraction(gamma)), Fraction(1, 10**12), "bernoulli")
    assert left < 1e-9
    assert agrees(found, left, {True: chance, False: 1 - chance})
    wrong = chance * (1 - 1e-8)
    assert not agrees(found, left, {True: wrong, False: 1 - wrong})


@pytest.mark.parametrize("scale", [1, 2, 5])
def test_discrete_laplace(law_of, scale):
    sources = "below", "bits", "bernoulli_exp"
    draw = exact.discrete_laplace
    found, left = law_of(lambda: draw(scale), 1e-12, *sources, tries_begin_with="below")
    assert left < 1e-8
    assert agrees(found, left, geometric(scale))
    assert not agrees(found, left, geometric(scale + 1))
    assert all(found[z] == found[-z] for z in range(1, 5))


@pytest.mark.parametrize(("variance", "centre"), [("1", "0"), ("1/2", "1/3"), ("40", "-5/2")])
def test_discrete_gaussian(law_of, variance, centre):
    def law(variance, centre):
        weights = {z: math.exp(-((z - centre) ** 2) / (2 * variance)) for z in range(-80, 81)}
        total = math.fsum(weights.values())
        return {z: weight / total for z, weight in weights.items()}

    v, c = Fraction(variance), Fraction(centre)
    sources = "discrete_laplace", "bernoulli_exp"
    draw = exact.discrete_gaussian
    found, left = law_of(lambda: draw(v, c), 1e-14, *sources, tries_begin_with=sources[0])
    assert left < 1e-8
    assert agrees(found, left, law(float(v), float(c)))
    assert not agrees(found, left, law(float(v) * 0.999, float(c)))
    assert not agrees(found, left, law(float(v), float(c) + 0.001))


def test_choose(monkeypatch):
    """Each index has its share of the 2**64 first numbers, but for the few that decide nothing."""
    shares = [Fraction(1, 2), Fraction(3, 10), Fraction(1, 8), Fraction(3, 40)]
    weights = [(Decimal(str(float(share))),) * 2 for share in shares]

    def index(u):
        numbers = iter([u])

        def bits(_):
            for number in numbers:
                return number
            raise MoreNeeded

        monkeypatch.setattr(randomness, "bits", bits)
        try:
            return exact.choose(lambda _: weights)
        except MoreNeeded:
            return None

    for k, start in enumerate([Fraction(0), *(sum(shares[: k + 1]) for k in range(3))]):
        edge = start * 2**64
        first, last = math.ceil(edge), math.ceil(edge + shares[k] * 2**64) - 1
        assert {index(first + 1), index(last - 1), index((first + last) // 2)} == {k}
        assert {index(first), index(last)} <= {k, None}
        if k:
            assert index(first - 2) == k - 1


def test_going_through_all_scripts_notices_a_wrong_draw(law_of):
    """Negative controls: one too many, no sign, and something added now and then."""
    assert law_of(lambda: randomness.below(4) <= 1, 0, "below") == ({True: 0.5, False: 0.5}, 0)
    assert law_of(lambda: randomness.below(4) <= 2, 0, "below")[0][True] == Fraction(3, 4)
    source, draw = "discrete_laplace", lambda: exact.discrete_laplace(2)
    assert agrees(*law_of(draw, 1e-14, source), geometric(2))
    assert not agrees(*law_of(lambda: abs(draw()), 1e-14, source), geometric(2))
    added = law_of(lambda: draw() + (randomness.below(50) == 0), 1e-14, source, "below")
    assert not agrees(*added, geometric(2))
