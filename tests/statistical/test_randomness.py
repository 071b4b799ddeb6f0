"""The real functions that draw, with nothing replaced, against their laws.

All other tests of draws replace these functions by ones with a seed. Here each law is looked at by
counts whose laws are binomial, so the chance of a false alarm is exact: at most 1e-6 for a law and
a run (`tests.laws`). The negative controls replace a function by a wrong one, which the law's check
must notice; numbers of draws are such that it misses one with a chance far below 1e-6.
"""

from __future__ import annotations

import json
import math
import random
import secrets
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from noisewise.holder.blocks.median import draw_median
from noisewise.holder.blocks.sums import draw_blocks
from noisewise.holder.ledger.refusals import fingerprint
from noisewise.holder.mechanisms import exact, randomness
from noisewise.holder.mechanisms.gaussian import GaussianMechanism
from noisewise.holder.mechanisms.laplace import LaplaceMechanism
from noisewise.holder.networks.learned import noisy_maximum

from ..laws import check, uniform

SMALL = range(1, 41)
LARGE = (3 * 2**62, 2**64 + 1, 10**30, 2**200 - 3)
WIDTHS = (1, 2, 8, 13, 64, 192)


# --- laws -----------------------------------------------------------------------------------------


def below_small():
    """Every limit up to 40: all values are drawn, equally often, and no others.

    A limit m has 60 m draws. A value that is never drawn would be drawn each time with a chance of
    1 - 1/m: (1 - 1/m)**(60 m) < 1e-26.
    """
    for limit in SMALL:
        draws = [randomness.below(limit) for _ in range(60 * limit + 200)]
        check(draws, uniform(limit), len(SMALL))


def below_large():
    """Limits that no word and no double holds: twelfths, and the remainders by 2, 3 and 7."""
    for limit in LARGE:
        draws = [randomness.below(limit) for _ in range(4000)]
        assert all(0 <= draw < limit for draw in draws)
        edges = [-(-limit * i // 12) for i in range(13)]
        law = {i: (edges[i + 1] - edges[i]) / limit for i in range(12)}
        check([12 * draw // limit for draw in draws], law, 4 * len(LARGE))
        for divisor in (2, 3, 7):
            law = (
                {r: len(range(r, limit, divisor)) / limit for r in range(divisor)}
                if (limit < 2**60)
                else {r: (limit - r + divisor - 1) // divisor / limit for r in range(divisor)}
            )
            check([draw % divisor for draw in draws], law, 4 * len(LARGE))


def below_in_a_row():
    """Each pair of successive draws below 5 is as likely as any other."""
    draws = [randomness.below(5) for _ in range(20_001)]
    for first in (0, 1):  # pairs that don't overlap are independent
        pairs = [5 * a + b for a, b in zip(draws[first::2], draws[first + 1 :: 2], strict=False)]
        check(pairs, uniform(25), 2)


def bits():
    """Each bit is a fair coin, and so is whether it is that of the draw before."""
    checks = 2 * sum(WIDTHS)
    for width in WIDTHS:
        draws = [randomness.bits(width) for _ in range(8001)]
        assert all(0 <= draw < 2**width for draw in draws)
        for place in range(width):
            coins = [draw >> place & 1 for draw in draws]
            check(coins, uniform(2), checks)
            check(
                [a ^ b for a, b in zip(coins[::2], coins[1::2], strict=False)], uniform(2), checks
            )


def bits_of_few():
    """All words of three bits, so all that three bits have in common."""
    check([randomness.bits(3) for _ in range(20_000)], uniform(8))


def octets():
    """All values of a byte, and all differences of neighbours, within a call and between calls."""
    draws = [randomness.octets(40) for _ in range(2000)]
    assert {len(draw) for draw in draws} == {40}
    assert [len(randomness.octets(count)) for count in (0, 1, 7, 100_000)] == [0, 1, 7, 100_000]
    flat = np.frombuffer(b"".join(draws), dtype=np.uint8).reshape(2000, 40)
    check(flat.ravel().tolist(), uniform(256), 4)
    check((flat[:, ::2] ^ flat[:, 1::2]).ravel().tolist(), uniform(256), 4)
    check((flat[::2, ::3] ^ flat[1::2, ::3]).ravel().tolist(), uniform(256), 4)
    check((flat[:, 0] >> 4).tolist(), uniform(16), 4)


def geometric(q):
    """P(z) ∝ q**|z| on the integers."""
    return lambda z: (1 - q) / (1 + q) * q ** abs(z)


def normal(scale):
    """P(z) ∝ exp(-z²/2s²) on the integers."""
    total = math.fsum(math.exp(-(z**2) / (2 * scale**2)) for z in range(-2000, 2001))
    return lambda z: math.exp(-(z**2) / (2 * scale**2)) / total


def noise(make, law_of_scale, scales):
    """Entries of vectors: all of them, the first, the last, and pairs of neighbours."""
    for scale in scales:
        law = law_of_scale(scale)
        reach = range(-math.ceil(4 * scale) - 1, math.ceil(4 * scale) + 2)
        measurement = make(scale)
        sums = [1000, -7, 0, 2**40, 3]
        drawn = np.array(
            [
                np.subtract(randomness.invoke(measurement, sums * 8), sums * 8).tolist()
                for _ in range(500)
            ]
        )
        stated = {z: law(z) for z in reach}
        parts = 5 * len(scales)
        check(drawn.ravel().tolist(), stated, parts)
        check(drawn[:, 0].tolist(), stated, parts)
        check(drawn[:, -1].tolist(), stated, parts)
        signs = {
            z: math.fsum(law(y) for y in range(-3000, 3001) if np.sign(y) == z) for z in (-1, 0, 1)
        }
        pairs = {3 * a + b: signs[a] * signs[b] for a in signs for b in signs}
        for first, second in ((drawn[:, ::2], drawn[:, 1::2]), (drawn[::2], drawn[1::2])):
            both = 3 * np.sign(first) + np.sign(second)
            check(both.ravel().tolist(), pairs, parts)


def laplace():
    """OpenDP's noise at scales that are small, so that each integer can be counted."""
    noise(randomness.laplace_measurement, lambda s: geometric(math.exp(-1 / s)), (0.5, 1, 2.5, 12))


def gaussian():
    noise(randomness.gaussian_measurement, normal, (1, 3, 12))


def laplace_of_releases():
    """At the scale of a Release: sixteenths of the law, and the lowest bits."""
    scale = 2**34 + 12_345
    mechanism = LaplaceMechanism(scale, Fraction(1))
    drawn = np.array(mechanism.add_noise([0] * 20_000))
    below = np.where(drawn < 0, 0.5 * np.exp(drawn / scale), 1 - 0.5 * np.exp(-drawn / scale))
    check(np.floor(16 * below).astype(int).tolist(), uniform(16), 2)
    check((drawn & 7).tolist(), uniform(8), 2)


def gaussian_of_releases():
    """The same for both scales of an isometric layout."""
    from scipy import stats

    mechanism = GaussianMechanism(1, 2**34, (False, True) * 10_000)
    drawn = np.array(mechanism.add_noise([0] * 20_000))
    scales = mechanism.scale, mechanism.off_diagonal_scale
    for values, scale in zip((drawn[::2], drawn[1::2]), scales, strict=True):
        below = stats.norm.cdf(values, scale=scale)
        check(np.floor(16 * below).astype(int).tolist(), uniform(16), 4)
        check((values & 7).tolist(), uniform(8), 4)


def bernoulli():
    chances = [Fraction(1, 2), Fraction(1, 3), Fraction(7, 9), Fraction(1, 40), Fraction(39, 40)]
    for p in chances:
        draws = [exact.bernoulli(p) for _ in range(6000)]
        check(draws, {False: 1 - float(p), True: float(p)}, len(chances))
    assert {exact.bernoulli(Fraction(0)) for _ in range(50)} == {False}
    assert {exact.bernoulli(Fraction(1)) for _ in range(50)} == {True}


def bernoulli_exp():
    gammas = [Fraction(1, 7), Fraction(1, 2), Fraction(1), Fraction(5, 2)]
    for gamma in gammas:
        p = math.exp(-gamma)
        draws = [exact.bernoulli_exp(gamma) for _ in range(6000)]
        check(draws, {False: 1 - p, True: p}, len(gammas))


def exact_laplace():
    for scale in (1, 2, 7):
        law = geometric(math.exp(-1 / scale))
        draws = [exact.discrete_laplace(scale) for _ in range(6000)]
        check(draws, {z: law(z) for z in range(-4 * scale, 4 * scale + 1)}, 3)


def exact_gaussian():
    cases = [("1/3", "1/4"), ("9", "-7/2"), ("4", "0")]
    for variance, centre in cases:
        v, c = float(Fraction(variance)), float(Fraction(centre))
        weights = {z: math.exp(-((z - c) ** 2) / (2 * v)) for z in range(-60, 61)}
        total = math.fsum(weights.values())
        draws = [exact.discrete_gaussian(Fraction(variance), Fraction(centre)) for _ in range(4000)]
        check(draws, {z: w / total for z, w in weights.items() if w > 1e-9}, len(cases))


def choose():
    from decimal import Decimal

    weights = [(Decimal(w),) * 2 for w in ("0.5", "0.3", "0.125", "0.075")]
    draws = [exact.choose(lambda _: weights) for _ in range(4000)]
    check(draws, dict(enumerate((0.5, 0.3, 0.125, 0.075))))


def median():
    """A uniform law on all 2**52 cells if epsilon is 0: quarters of it, and their lowest bits."""
    cells = np.array([5, 2**50, 2**51])
    draws = [draw_median(cells, Fraction(0)) for _ in range(4000)]
    check([draw >> 48 for draw in draws], uniform(16), 2)
    check([draw & 7 for draw in draws], uniform(8), 2)


def blocks():
    """Blocks of rows, of successive rows, and of a row in two partitions."""
    drawn = draw_blocks(12_000, 2, 7).astype(int)
    check(drawn.ravel().tolist(), uniform(7), 3)
    check((7 * drawn[:, ::2] + drawn[:, 1::2]).ravel().tolist(), uniform(49), 3)
    check((7 * drawn[0] + drawn[1]).tolist(), uniform(49), 3)


def maximum():
    """The largest of scores with one-sided noise: by adding up over all that the noise may be."""
    scores, scale = [0, 2, 1], 2.0
    q = math.exp(-1 / scale)
    one_sided = [(1 - q) * q**z for z in range(400)]
    up_to = np.cumsum(one_sided)

    def at_most(top, score):
        return up_to[top - score] if top >= score else 0.0

    law = {
        k: math.fsum(
            share
            * math.prod(
                at_most(score + z - (j < k), other) for j, other in enumerate(scores) if j != k
            )
            for z, share in enumerate(one_sided[:380])
        )
        for k, score in enumerate(scores)
    }
    assert math.fsum(law.values()) == pytest.approx(1)
    check([noisy_maximum(scores, scale) for _ in range(4000)], law)


def keys():
    """Keys of fingerprints have 256 bits that differ from batch to batch."""
    found = [int(fingerprint({"sums": "1"})["key"], 16) for _ in range(3000)]
    for place in range(256):
        check([key >> place & 1 for key in found], uniform(2), 512)
        next_byte = (place + 8) % 256
        check([key >> place & 1 ^ key >> next_byte & 1 for key in found], uniform(2), 512)


LAWS = {
    one.__name__: one
    for one in (
        *(below_small, below_large, below_in_a_row, bits, bits_of_few, octets),
        *(laplace, gaussian, laplace_of_releases, gaussian_of_releases),
        *(bernoulli, bernoulli_exp, exact_laplace, exact_gaussian, choose),
        *(median, blocks, maximum, keys),
    )
}


@pytest.mark.parametrize("law", LAWS)
def test_the_real_functions_have_their_laws(law):
    LAWS[law]()


# --- negative controls: sources that are wrong ----------------------------------------------------

REAL = {name: getattr(randomness, name) for name in ("below", "bits", "octets", "invoke")}
MAKE = {name: getattr(randomness, f"{name}_measurement") for name in ("laplace", "gaussian")}


def never_the_largest(limit):
    return secrets.randbelow(max(1, limit - 1))


def never_zero(limit):
    return secrets.randbelow(limit - 1) + 1 if limit > 1 else 0


def one_too_many(limit):
    return secrets.randbelow(limit + 1)


def by_remainder(limit):
    """Small numbers come more often, up to twice as often."""
    return secrets.randbits(limit.bit_length()) % limit


def by_a_double(limit):
    """As many languages do it: beyond 2**53 the lowest bits are always 0."""
    return int(secrets.randbits(53) / 2**53 * limit)


def again(draw):
    """Every other number is the one before."""
    kept = []

    def twice(argument):
        if kept and kept[-1][0] == argument:
            return kept.pop()[1]
        kept.append((argument, draw(argument)))
        return kept[-1][1]

    return twice


def biased(count):
    """Bits that are 1 with a chance of 0.6."""
    return sum((secrets.randbelow(10) < 6) << place for place in range(count))


def first_bit_set(count):
    return secrets.randbits(count) | 1 << count - 1


def one_bit_less(count):
    return secrets.randbits(count - 1) if count > 1 else 0


def one_byte(count):
    return secrets.token_bytes(1) * count


def text(count):
    return bytes(secrets.choice(b"0123456789abcdef") for _ in range(count))


def seven_bits(count):
    return bytes(byte & 127 for byte in secrets.token_bytes(count))


def changed(change):
    """All noise is changed: `change` gets the sums and the noisy sums, as arrays."""

    def invoke(measurement, sums):
        noisy = REAL["invoke"](measurement, sums)
        added = np.array(noisy, dtype=object) - np.array(sums, dtype=object)
        return tuple(int(s + z) for s, z in zip(sums, change(added), strict=True))

    return invoke


def without_the_first(added):
    return [0, *added[1:]]


def all_alike(added):
    return [added[0]] * len(added)


def positive(added):
    return [abs(z) for z in added]


def even(added):
    return [2 * (z // 2) for z in added]


def scaled(law, factor):
    return lambda scale: MAKE[law](
        scale * factor if law == "laplace" else max(1, round(scale * factor))
    )


WRONG = {  # what takes the place of a function, and the laws that must notice
    "below, never the largest": (
        {"below": never_the_largest},
        ["below_small", "bernoulli", "bernoulli_exp", "exact_laplace", "exact_gaussian"],
    ),
    "below, never zero": ({"below": never_zero}, ["below_small", "bernoulli", "bernoulli_exp"]),
    "below, one too many": (
        {"below": one_too_many},
        ["below_small", "below_in_a_row", "bernoulli"],
    ),
    "below, by remainder": ({"below": by_remainder}, ["below_small", "below_large", "bernoulli"]),
    "below, by a double": ({"below": by_a_double}, ["below_large"]),
    "below, each twice": ({"below": again(secrets.randbelow)}, ["below_in_a_row"]),
    "below, zero": ({"below": lambda limit: 0}, ["below_small", "below_in_a_row", "bernoulli"]),
    "bits, biased": ({"bits": biased}, ["bits", "bits_of_few", "exact_laplace", "choose"]),
    "bits, the first is set": ({"bits": first_bit_set}, ["bits", "choose", "exact_laplace"]),
    "bits, one less": ({"bits": one_bit_less}, ["bits", "choose", "exact_laplace"]),
    "bits, each twice": ({"bits": again(secrets.randbits)}, ["bits"]),
    "bits, all alike": (
        {"bits": lambda n: 2**n - 1 if secrets.randbits(1) else 0},
        ["bits_of_few"],
    ),
    "octets, one byte": ({"octets": one_byte}, ["octets", "blocks", "keys"]),
    "octets, text": ({"octets": text}, ["octets", "blocks", "keys"]),
    "octets, seven bits": ({"octets": seven_bits}, ["octets", "blocks", "keys"]),
    "octets, each twice": ({"octets": again(secrets.token_bytes)}, ["octets"]),
    "noise, none on the first": ({"invoke": changed(without_the_first)}, ["laplace", "gaussian"]),
    "noise, all alike": ({"invoke": changed(all_alike)}, ["laplace", "gaussian", "maximum"]),
    "noise, positive": (
        {"invoke": changed(positive)},
        ["laplace", "gaussian", "laplace_of_releases", "gaussian_of_releases"],
    ),
    "noise, even": (
        {"invoke": changed(even)},
        ["laplace", "gaussian", "laplace_of_releases", "gaussian_of_releases"],
    ),
    "Laplace, half the scale": (
        {"laplace_measurement": scaled("laplace", 0.5)},
        ["laplace", "laplace_of_releases", "maximum"],
    ),
    "Laplace, a fifth less": (
        {"laplace_measurement": scaled("laplace", 0.8)},
        ["laplace", "laplace_of_releases"],
    ),
    "Gaussian, half the scale": (
        {"gaussian_measurement": scaled("gaussian", 0.5)},
        ["gaussian", "gaussian_of_releases"],
    ),
    "Gaussian, a fifth less": (
        {"gaussian_measurement": scaled("gaussian", 0.8)},
        ["gaussian", "gaussian_of_releases"],
    ),
    "Laplace for Gaussian": ({"gaussian_measurement": MAKE["laplace"]}, ["gaussian"]),
    "Gaussian for Laplace": (
        {"laplace_measurement": lambda scale: MAKE["gaussian"](max(1, round(scale * 2**0.5)))},
        ["laplace", "laplace_of_releases"],
    ),
}


@pytest.mark.parametrize(
    ("name", "law"), [(name, law) for name, (_, laws) in WRONG.items() for law in laws]
)
def test_a_wrong_source_is_noticed(monkeypatch, name, law):
    for function, wrong in WRONG[name][0].items():
        monkeypatch.setattr(randomness, function, wrong)
    with pytest.raises(AssertionError):
        LAWS[law]()


# --- no seed: two processes, and a process and its child, draw different numbers ------------------

PROCESS = """
import json, os, sys
from fractions import Fraction
from noisewise.holder.blocks.sums import draw_blocks
from noisewise.holder.mechanisms import exact, randomness

{wrong}

def draws():
    return {{
        "below": str(randomness.below(2**160)),
        "bits": str(randomness.bits(160)),
        "octets": randomness.octets(20).hex(),
        "laplace": randomness.invoke(randomness.laplace_measurement(2.0**40), [0] * 8),
        "gaussian": randomness.invoke(randomness.gaussian_measurement(2**40), [0] * 8),
        "blocks": draw_blocks(60, 1, 2**16).tolist(),
        "exact": [exact.discrete_laplace(2**40) for _ in range(8)],
    }}

before = draws()
reading, writing = os.pipe()
if not os.fork():
    os.write(writing, json.dumps(draws()).encode())
    os._exit(0)
after = draws()
os.wait()
os.close(writing)
with os.fdopen(reading) as pipe:
    child = json.loads(pipe.read())
print(json.dumps([before, after, child]))
"""


def drawn_by_processes(wrong=""):
    """What two processes draw first, then again, and in a child, which are six draws of a kind."""
    found = []
    for _ in range(2):
        code = PROCESS.format(wrong=wrong)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        found += json.loads(done.stdout)
    return {kind: [json.dumps(one[kind]) for one in found] for kind in found[0]}


def repeated(kinds):
    return {kind for kind, draws in kinds.items() if len(set(draws)) < len(draws)}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_no_two_processes_draw_the_same():
    """Each kind of draw is one of at least 2**160 or so: two of six agree with chance 1e-46."""
    assert repeated(drawn_by_processes()) == set()


SEEDED = """
import random
generator = random.Random({seed})
randomness.below, randomness.bits = generator.randrange, generator.getrandbits
randomness.octets = generator.randbytes
"""
SEEDED_NOISE = """
import numpy as np
generator = np.random.default_rng({seed})
noise = {{"laplace": generator.laplace, "gaussian": generator.normal}}
for name in noise:
    setattr(randomness, name + "_measurement", lambda scale, name=name: (
        lambda sums: np.rint(noise[name](scale=scale, size=len(sums))).astype(int)))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize("seed", [1, ""], ids=["a constant", "of the process, not of its child"])
def test_a_generator_with_a_seed_is_noticed(seed):
    own = {"below", "bits", "octets", "blocks", "exact"}
    assert repeated(drawn_by_processes(SEEDED.format(seed=seed))) == own
    noisy = repeated(drawn_by_processes(SEEDED_NOISE.format(seed=seed)))
    assert noisy == {"laplace", "gaussian"}


def test_no_global_generator_decides():
    states = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        states.append((randomness.bits(160), randomness.below(2**160), randomness.octets(20)))
    assert all(a != b for a, b in zip(*states, strict=True))


# --- the checks themselves ------------------------------------------------------------------------


def test_the_false_alarm_rate_is_what_it_is_said_to_be():
    """At a rate of 1 in 20 instead of 1e-6, in 600 checks of draws that are right.

    With a chance of at most 0.05 each, more than 65 have a chance of 1e-9.
    """
    from ..laws import p_value

    rng = random.Random(10)
    alarms = sum(
        p_value([rng.randrange(6) for _ in range(200)], uniform(6)) <= 0.05 for _ in range(600)
    )
    assert alarms <= 65


def test_a_value_that_the_law_does_not_have_is_noticed():
    from ..laws import p_value

    assert p_value([0, 1, 0, 1, 2], uniform(2)) == 0
    assert p_value([0, 1, 0, 1], {0: 0.5, 1: 0.4}) > 0.1
    assert p_value([7] * 40, {0: 0.5, 1: 0.4}) < 1e-12
