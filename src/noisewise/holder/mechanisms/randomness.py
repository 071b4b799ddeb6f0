"""The only source of randomness in anything that is published. None of it takes a seed.

Noise comes from OpenDP, which samples discrete Laplace and Gaussian noise with exact rational
arithmetic from the system's cryptographic random numbers (Canonne, Kamath & Steinke 2020), and
saturates at the ends of the 64-bit range, which is post-processing. It is imported when needed.
Mechanisms that draw rather than add noise take the system's numbers as integers or bytes. Everybody
else in this wing calls these functions by the module's name, and a test reads the source of the
wing to see that nobody has another source or hands one around.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from functools import cache
from typing import Any


@cache
def _opendp() -> Any:
    """OpenDP's parts that are needed: `opendp.prelude` would load scikit-learn and more."""
    from opendp import domains, measurements, metrics, mod

    mod.enable_features("contrib")
    return domains, metrics, measurements


def laplace_measurement(scale: float) -> Any:
    """OpenDP's vector-valued discrete Laplace mechanism on 64-bit integers."""
    domains, metrics, measurements = _opendp()
    space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.l1_distance(T="i64")
    return measurements.make_laplace(*space, scale=_exact_float(scale))


def gaussian_measurement(scale: int) -> Any:
    """OpenDP's vector-valued discrete Gaussian mechanism on 64-bit integers."""
    domains, metrics, measurements = _opendp()
    space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.l2_distance(T="f64")
    return measurements.make_gaussian(*space, scale=_exact_float(scale))


def invoke(measurement: Any, sums: Sequence[int]) -> tuple[int, ...]:
    """One noise draw for every sum."""
    limit = 2**63 - 1
    if any(abs(value) > limit for value in sums):
        raise OverflowError("a sum does not fit 64 bits")  # excluded by the grid, see core.design
    return tuple(int(value) for value in measurement(list(sums))) if sums else ()


def below(limit: int) -> int:
    """A secret whole number from 0 to below `limit`, all equally likely."""
    return secrets.randbelow(limit)


def bits(count: int) -> int:
    """`count` secret random bits, as a whole number."""
    return secrets.randbits(count)


def octets(count: int) -> bytes:
    """`count` secret random bytes."""
    return os.urandom(count)


def _exact_float(scale: float) -> float:
    value = float(scale)
    if value != scale:  # exact, between an integer and a double
        raise ValueError("the noise scale must be a number that a double holds exactly")
    return value
