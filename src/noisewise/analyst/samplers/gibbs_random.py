"""Random numbers for the compiled Gibbs kernels: pure functions of (key, counter).

Each iteration of a chain gets its own stream. Its xoshiro256++ generator (Blackman & Vigna 2021)
is seeded by hashing the chain's key and the number of the iteration, so an iteration's random
numbers depend on neither the thread that runs it nor what ran before: chains are reproducible
with any number of threads, and can be cut into pieces or resumed anywhere.

References
----------
Blackman & Vigna (2021), Scrambled linear pseudorandom number generators, ACM TOMS 47(4),
doi:10.1145/3460772. Marsaglia & Tsang (2000), A simple method for generating gamma variables,
ACM TOMS 26(3), doi:10.1145/358407.358414. Michael, Schucany & Haas (1976), Generating random
variates using transformations with multiple roots, The American Statistician 30(2),
doi:10.1080/00031305.1976.10479147.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.models.moments_compiled import compiled_to_the_letter, inlined

KeyArray = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_S11, _S17, _S23, _S27 = np.uint64(11), np.uint64(17), np.uint64(23), np.uint64(27)
_S30, _S31, _S41, _S45, _S19 = (np.uint64(v) for v in (30, 31, 41, 45, 19))
_TO_UNIT = 2.0**-53


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


@compiled_to_the_letter
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
def _normal_pair(rng):  # type: ignore[no-untyped-def]
    """Two independent standard normals, by the polar method."""
    while True:
        x = 2.0 * uniform(rng) - 1.0
        y = 2.0 * uniform(rng) - 1.0
        square = x * x + y * y
        if 0.0 < square < 1.0:
            factor = math.sqrt(-2.0 * math.log(square) / square)
            return x * factor, y * factor


@compiled_to_the_letter
def normal(rng):  # type: ignore[no-untyped-def]
    """Standard normal."""
    return _normal_pair(rng)[0]


@compiled_to_the_letter
def fill_normal(rng, out, size):  # type: ignore[no-untyped-def]
    """Fill out[:size] with standard normals."""
    i = 0
    while i + 1 < size:
        out[i], out[i + 1] = _normal_pair(rng)
        i += 2
    if i < size:
        out[i] = normal(rng)


@compiled_to_the_letter
def gamma(rng, shape):  # type: ignore[no-untyped-def]
    """Gamma with the given shape and scale 1 (Marsaglia & Tsang 2000)."""
    boost = 1.0
    if shape < 1.0:
        boost = uniform(rng) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal(rng)
        v = 1.0 + c * x
        if v <= 0.0:
            continue
        v = v * v * v
        u = uniform(rng)
        square = x * x
        if u < 1.0 - 0.0331 * square * square:
            return boost * d * v
        if math.log(u) < 0.5 * square + d * (1.0 - v + math.log(v)):
            return boost * d * v


@compiled_to_the_letter
def chi(rng, degrees):  # type: ignore[no-untyped-def]
    """Chi distribution (the square root of chi squared)."""
    return math.sqrt(2.0 * gamma(rng, 0.5 * degrees))


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
