"""The holder's randomness with a seed, which the package itself cannot give it.

`noisewise.holder.mechanisms.randomness` is replaced: the laws are the same, to rounding, but the
numbers follow from what is asked for and how often it was asked for before. So a test gets the same
noise whether it runs alone or after others.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from contextlib import contextmanager
from unittest import mock

import numpy as np

from noisewise.holder.mechanisms import randomness

SMALL = 1000  # below, noise is drawn from the table of its law; above, a rounded density is as good


@contextmanager
def seeded_noise(name):
    """Inside, all of the holder's random numbers follow from `name`."""
    asked = Counter()

    def generator(*what):
        asked[what] += 1
        digest = hashlib.sha256(repr((name, what, asked[what])).encode()).digest()
        return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))

    def octets(count):
        return generator("octets", count).bytes(count)

    def bits(count):
        return int.from_bytes(generator("bits", count).bytes(count // 8 + 1)) % 2**count

    def below(limit):
        # 64 bits more than needed: what is left of a bias is nobody's to see.
        many = limit.bit_length() // 8 + 9
        return int.from_bytes(generator("below", limit).bytes(many)) % limit

    made = randomness.laplace_measurement, randomness.gaussian_measurement

    class Seeded:
        """A measurement of OpenDP with noise of another source."""

        def __init__(self, make, scale):
            self._law = "gaussian" if make is made[1] else "laplace"
            self._scale = scale
            self.map = make(scale).map

        def __call__(self, sums):
            rng = generator(self._law, self._scale, tuple(sums))
            drawn = _integers(rng, self._law, float(self._scale), len(sums))
            return [value + int(noise) for value, noise in zip(sums, drawn, strict=True)]

    with mock.patch.multiple(
        randomness,
        octets=octets,
        bits=bits,
        below=below,
        laplace_measurement=lambda scale: Seeded(made[0], scale),
        gaussian_measurement=lambda scale: Seeded(made[1], scale),
    ):
        yield


def _integers(rng, law, scale, count):
    """Discrete Laplace or Gaussian noise."""
    if scale > SMALL:
        draw = rng.laplace if law == "laplace" else rng.normal
        return np.rint(draw(scale=scale, size=count))
    reach = np.arange(-int(40 * scale) - 1, int(40 * scale) + 2)
    away = np.abs(reach) / scale if scale else np.where(reach, np.inf, 0.0)
    weights = np.exp(-away if law == "laplace" else -(away**2) / 2)
    return rng.choice(reach, size=count, p=weights / weights.sum())
