"""The only source of randomness in anything that is published. None of it takes a seed.

Noise comes from OpenDP, which samples discrete Laplace and Gaussian noise with exact rational
arithmetic from the system's cryptographic random numbers (Canonne, Kamath & Steinke 2020), and
saturates at the ends of the 64-bit range, which is post-processing. It is imported when needed, and
must then be a version that noisewise was tested with and pass a short test (`known_answers`).
Mechanisms that draw rather than add noise take the system's numbers as integers or bytes. Everybody
else in this wing calls these functions by the module's name, and a test reads the source of the
wing to see that nobody has another source or hands one around.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

from noisewise.core.errors import RequestError
from noisewise.holder.mechanisms import known_answers

# Versions of OpenDP with which all tests of the noise passed. `pyproject.toml` asks for the same.
TESTED = ("0.16.0",)
OVERRIDE = "NOISEWISE_UNTESTED_OPENDP"


@cache
def _opendp() -> Any:
    """OpenDP's parts that are needed: `opendp.prelude` would load scikit-learn and more.

    Every request makes its mechanisms before it charges the budget, so whatever is refused here
    costs nothing.
    """
    from opendp import domains, measurements, metrics, mod

    installed = version("opendp")
    if installed not in TESTED and os.environ.get(OVERRIDE) != installed:
        raise RequestError(
            f"opendp: noisewise was not tested with version {installed}, which would draw the "
            f"noise; install one that it was tested with, such as opendp=={TESTED[-1]}. To use it "
            f"nevertheless, set the environment variable {OVERRIDE}={installed}: you then vouch "
            "for the law of its noise, of which only a short test for gross faults is made"
        )
    mod.enable_features("contrib")
    parts = domains, metrics, measurements
    fault = known_answers.check(lambda s: _laplace(parts, s), lambda s: _gaussian(parts, s))
    if fault:
        raise RequestError(
            f"opendp: version {installed} failed a test whose right answers are known: {fault}. "
            "Nothing was published or charged; install opendp anew, and report this "
            "if it comes again"
        )
    return parts


def _laplace(parts: Any, scale: float) -> Any:
    domains, metrics, measurements = parts
    space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.l1_distance(T="i64")
    return measurements.make_laplace(*space, scale=_exact_float(scale))


def _gaussian(parts: Any, scale: float) -> Any:
    domains, metrics, measurements = parts
    space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.l2_distance(T="f64")
    return measurements.make_gaussian(*space, scale=_exact_float(scale))


def laplace_measurement(scale: float) -> Any:
    """OpenDP's vector-valued discrete Laplace mechanism on 64-bit integers."""
    return _laplace(_opendp(), scale)


def gaussian_measurement(scale: int) -> Any:
    """OpenDP's vector-valued discrete Gaussian mechanism on 64-bit integers."""
    return _gaussian(_opendp(), scale)


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
