"""Random numbers for the compiled samplers: pure functions of (key, counter).

Each iteration of a chain gets its own stream. Its xoshiro256++ generator (Blackman & Vigna 2021)
is seeded by hashing the chain's key and the number of the iteration, so an iteration's random
numbers depend on neither the thread that runs it nor what ran before: chains are reproducible
with any number of threads, and can be cut into pieces or resumed anywhere.

Normals come from layers of equal area under the density (Marsaglia & Tsang 2000, the ziggurat):
98.8% of the draws take one uniform number and a comparison. Nothing is approximate. One uniform
number has 53 bits: 9 choose the layer and the sign, the other 44 the place in the layer.

References
----------
Blackman & Vigna (2021), Scrambled linear pseudorandom number generators, ACM TOMS 47(4),
doi:10.1145/3460772. Marsaglia & Tsang (2000), The ziggurat method for generating random variables,
Journal of Statistical Software 5(8), doi:10.18637/jss.v005.i08. Marsaglia & Tsang (2000), A simple
method for generating gamma variables, ACM TOMS 26(3), doi:10.1145/358407.358414. Michael, Schucany
& Haas (1976), Generating random variates using transformations with multiple roots, The American
Statistician 30(2), doi:10.1080/00031305.1976.10479147.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from noisewise._compiled import Family

KeyArray = NDArray[np.uint64]

_family = Family(__file__, "random_numbers.py")
compiled, compiled_to_the_letter = _family.uncounted, _family.to_the_letter
inlined, expanded = _family.inlined, _family.expanded

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_S11, _S17, _S23, _S27 = np.uint64(11), np.uint64(17), np.uint64(23), np.uint64(27)
_S30, _S31, _S41, _S45, _S19 = (np.uint64(v) for v in (30, 31, 41, 45, 19))
_TO_UNIT = 2.0**-53
_LAYERS = 256
_TAIL = 3.6541528853610088  # where the lowest of 256 layers of equal area gives way to the tail


def _edges() -> NDArray[np.float64]:
    """Right ends of the layers, from the lowest; the first is that of a box as large as its tail.

    Layer i > 0 lies between the heights f(x_i) and f(x_(i+1)), f(x) = exp(-x²/2), and reaches to
    x_i. All have the area of the box [0, _TAIL] by f(_TAIL) with the tail beside it.
    """
    height = math.exp(-0.5 * _TAIL**2)
    area = _TAIL * height + math.sqrt(0.5 * math.pi) * math.erfc(_TAIL / math.sqrt(2.0))
    found = [area / height, _TAIL]
    for _ in range(_LAYERS - 2):
        height += area / found[-1]
        found.append(math.sqrt(-2.0 * math.log(height)))
    return np.array([*found, 0.0])


_X = _edges()
_F = np.exp(-0.5 * _X**2)


def chain_keys(seed: int | None, chains: int) -> KeyArray:
    """One key of two words for each chain, shape (chains, 2), by spawning a SeedSequence."""
    children = np.random.SeedSequence(seed).spawn(chains)
    return np.array([child.generate_state(2, np.uint64) for child in children], dtype=np.uint64)


@inlined
def _mix(x):  # type: ignore[no-untyped-def]
    """The finaliser of SplitMix64: a bijection that scatters neighbouring inputs."""
    x = (x ^ (x >> _S30)) * _MIX1
    x = (x ^ (x >> _S27)) * _MIX2
    return x ^ (x >> _S31)


@compiled_to_the_letter
def seed_stream(rng, key, counter):  # type: ignore[no-untyped-def]
    """Set the generator `rng`, shape (4,), to the start of the stream (key, counter)."""
    x = key[0] + _mix(key[1] + _GOLDEN * np.uint64(counter))
    for i in range(4):
        x += _GOLDEN
        rng[i] = _mix(x)


@expanded
def uniform(rng):  # type: ignore[no-untyped-def]
    """Uniform on (0, 1): never 0, so that its logarithm is finite."""
    s0, s1, s2, s3 = rng[0], rng[1], rng[2], rng[3]
    word = s0 + s3
    word = ((word << _S23) | (word >> _S41)) + s0
    shifted = s1 << _S17
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    s3 = (s3 << _S45) | (s3 >> _S19)
    rng[0], rng[1], rng[2], rng[3] = s0, s1, s2, s3
    return (float(word >> _S11) + 0.5) * _TO_UNIT


@compiled_to_the_letter
def _beyond_the_layer(rng, layer, x):  # type: ignore[no-untyped-def]
    """A draw from the tail, or x, or -1 where x is to be drawn anew."""
    if layer == 0:
        while True:
            away = -math.log(uniform(rng)) / _TAIL
            if -2.0 * math.log(uniform(rng)) > away * away:
                return _TAIL + away
    height = _F[layer] + uniform(rng) * (_F[layer + 1] - _F[layer])
    return x if height < math.exp(-0.5 * x * x) else -1.0


@expanded
def normal(rng):  # type: ignore[no-untyped-def]
    """Standard normal."""
    while True:
        place = 512.0 * uniform(rng)
        which = int(place)
        layer = which >> 1
        x = (place - which) * _X[layer]
        if x >= _X[layer + 1]:
            x = _beyond_the_layer(rng, layer, x)
            if x < 0.0:
                continue
        return -x if which & 1 else x


@compiled_to_the_letter
def fill_normal(rng, out, size):  # type: ignore[no-untyped-def]
    """Fill out[:size] with standard normals."""
    for i in range(size):
        out[i] = normal(rng)


@compiled_to_the_letter
def gamma(rng, shape):  # type: ignore[no-untyped-def]
    """Gamma with the given shape and scale 1 (Marsaglia & Tsang 2000).

    d (1 + t)³ with t = x / sqrt(9 d), x normal, is accepted with probability e^h,
    h = 3 d (ln(1 + t) - t + t²/2 - t³/3). For t > -1/2 the series of the logarithm has
    h > -3 d t⁴/2, so that most draws take no logarithm; their squeeze is wider.
    """
    boost = 1.0
    if shape < 1.0:
        boost = uniform(rng) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        t = c * normal(rng)
        u = uniform(rng)
        square = t * t
        if t > -0.5 and u < 1.0 - 1.5 * d * square * square:
            break
        if t > -1.0 and math.log(u) < 3.0 * d * (
            math.log1p(t) - t + 0.5 * square - t * square / 3.0
        ):
            break
    v = 1.0 + t
    return boost * d * v * v * v


@compiled_to_the_letter
def chi(rng, degrees):  # type: ignore[no-untyped-def]
    """Chi distribution (the square root of chi squared)."""
    return math.sqrt(2.0 * gamma(rng, 0.5 * degrees))


@compiled
def fill_bartlett(rng, R, degrees, step, size, flat):  # type: ignore[no-untyped-def]
    """Lower triangle of R: chi(degrees + a step) on the diagonal, standard normals below it.

    With a step of -1 RR' is Wishart(degrees, I), with +1 R'R is Wishart(degrees + size - 1, I). All
    normals are drawn at once, into the scratch vector `flat`: many short loops take half as long
    again, because the processor doesn't foresee their ends.
    """
    fill_normal(rng, flat, size * (size - 1) // 2)
    first = 0
    for a in range(size):
        row = flat[first:]
        for b in range(a):
            R[a, b] = row[b]
        first += a
    for a in range(size):
        R[a, a] = chi(rng, degrees + step * a)


@compiled_to_the_letter
def laplace_variance(rng, q):  # type: ignore[no-untyped-def]
    """Draw t given |r| = q, where r | t ~ N(0, t) and t ~ Exponential(mean 2): r is Laplace(1).

    1/t is inverse Gaussian with mean 1/q and shape 1 (Bernstein & Sheldon 2019, Algorithm 1, line
    6). Its two roots are written here for t itself, so that q = 0 and huge q need no care.
    """
    x = normal(rng)
    half = 0.5 * x * x
    t = q + half + math.sqrt(half * (2.0 * q + half))
    if uniform(rng) * (t + q) <= t:
        return t
    return q * q / t
