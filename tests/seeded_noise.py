"""The holder's randomness with a seed, which the package itself cannot give it.

`noisewise.holder.mechanisms.randomness` is replaced: the laws are the same, to rounding, but the
numbers follow from what is asked for and how often it was asked for before. So a test gets the same
noise whether it runs alone or after others.
"""

from __future__ import annotations

import hashlib
import random
from contextlib import contextmanager
from unittest import mock

import numpy as np

from noisewise.holder.mechanisms import randomness

LIMIT = 2**63 - 1  # where OpenDP's noise ends, too
SMALL = 1000  # below, noise is drawn from the table of its law; above, a rounded density is as good


@contextmanager
def seeded_noise(name):
    """Inside, all of the holder's random numbers follow from `name`."""
    streams = {}

    def stream(make, *what):
        if what not in streams:
            seed = hashlib.sha256(repr((name, what)).encode()).digest()
            streams[what] = make(int.from_bytes(seed))
        return streams[what]

    def octets(count):
        return stream(random.Random, "octets", count).randbytes(count)

    def bits(count):
        return stream(random.Random, "bits", count).getrandbits(count)

    def below(limit):
        return stream(random.Random, "below", limit).randrange(limit)

    made = randomness.laplace_measurement, randomness.gaussian_measurement

    class Seeded:
        """A measurement of OpenDP with noise of another source."""

        def __init__(self, make, scale):
            self._law = "gaussian" if make is made[1] else "laplace"
            self._scale = scale
            self.map = make(scale).map

        def __call__(self, sums):
            rng = stream(np.random.default_rng, self._law, self._scale, tuple(sums))
            drawn = _integers(rng, self._law, float(self._scale), len(sums))
            noisy = (value + int(noise) for value, noise in zip(sums, drawn, strict=True))
            return [max(-LIMIT, min(value, LIMIT)) for value in noisy]

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
