"""The law of a normal variable plus independent Laplace noise: N(0, s²) + Laplace(lam).

It is what an analyst of block summaries sees: an average over blocks, which is normal by the
central limit theorem, and the privacy noise on it. With z = x/s, a = s/lam and Mills' ratio
m(t) = Φ(-t)/φ(t), completing the square in ∫ Φ((x - u)/s) exp(-|u|/lam)/(2 lam) du gives

    F(x) = Φ(z) + φ(z) [m(a + z) - m(a - z)] / 2,
    f(x) = φ(z) [m(a + z) + m(a - z)] / (2 lam),

the same as Φ(z) + exp(a²/2) [exp(az) Φ(-z - a) - exp(-az) Φ(z - a)] / 2 without its overflow.
All is computed in logs and for x ≤ 0 only, where every term that is added is positive; the other
half follows by symmetry. `lam` = 0 is the normal law, `s` = 0 Laplace's.

References
----------
Reed (2006), The normal-Laplace distribution and its relatives, doi:10.1007/0-8176-4487-3_4.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray

_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
_STEPS = 200  # of Newton's method; about ten are needed


def variance(s: float, lam: float) -> float:
    """Variance of the sum: s² + 2 lam²."""
    return s * s + 2 * lam * lam


def cdf(x: Any, s: float, lam: float) -> FloatArray:
    """P(N(0, s²) + Laplace(lam) ≤ x)."""
    x = np.asarray(x, dtype=np.float64)
    tail = np.exp(_log_lower(-np.abs(x), s, lam))
    return np.asarray(np.where(x > 0, 1 - tail, tail))


def logcdf(x: Any, s: float, lam: float) -> FloatArray:
    """Log of `cdf`, exact far out in both tails."""
    x = np.asarray(x, dtype=np.float64)
    tail = _log_lower(-np.abs(x), s, lam)
    return np.asarray(np.where(x > 0, np.log1p(-np.exp(tail)), tail))


def logpdf(x: Any, s: float, lam: float) -> FloatArray:
    """Log density."""
    _check(s, lam)
    x = np.abs(np.asarray(x, dtype=np.float64))
    if lam == 0:
        return np.asarray(-0.5 * (x / s) ** 2 - _LOG_ROOT_2PI - math.log(s))
    if s == 0:
        return np.asarray(-x / lam - math.log(2 * lam))
    z, a = x / s, s / lam
    far = _log_mills(a + z) - 0.5 * z * z - _LOG_ROOT_2PI
    return np.asarray(np.logaddexp(_log_laplace_side(z, a), far) - math.log(2 * lam))


def ppf(p: Any, s: float, lam: float) -> FloatArray:
    """The quantile function, by Newton's method on log F.

    The density is log-concave (both factors of the convolution are), hence log F is concave: a
    tangent lies above it, so that after one step Newton's method is to the left of the root and
    climbs to it without ever passing.
    """
    _check(s, lam)
    p = np.asarray(p, dtype=np.float64)
    if not ((p > 0) & (p < 1)).all():
        raise ValueError("p: expected probabilities between 0 and 1")
    target = np.log(np.minimum(p, 1 - p))
    x = np.zeros_like(target)
    for _ in range(_STEPS):
        value = _log_lower(x, s, lam)
        step = (target - value) * np.exp(value - logpdf(x, s, lam))
        moved = np.minimum(x + step, 0.0)
        if (np.abs(moved - x) <= 1e-14 * np.abs(moved)).all():
            x = moved
            break
        x = moved
    return np.asarray(np.where(p < 0.5, x, -x) + 0.0)  # no negative zero


def _log_lower(x: FloatArray, s: float, lam: float) -> FloatArray:
    """Log F(x) for x ≤ 0."""
    from scipy.special import log_ndtr

    _check(s, lam)
    if lam == 0:
        return np.asarray(log_ndtr(x / s))
    if s == 0:
        return np.asarray(x / lam - math.log(2))
    z, a = -x / s, s / lam
    # m(z) - m(a + z)/2 is at least m(z)/2, m being decreasing: no cancellation that matters
    near = np.log(_mills(z) - 0.5 * _mills(a + z)) - 0.5 * z * z - _LOG_ROOT_2PI
    return np.asarray(np.logaddexp(near, _log_laplace_side(z, a) - math.log(2)))


def _log_laplace_side(z: FloatArray, a: float) -> FloatArray:
    """Log of φ(z) m(a - z) for z ≥ 0.

    Where z > a Mills' ratio overflows, and there exp(a²/2 - az) Φ(z - a), which is equal to it,
    is harmless; where a > z it is the other way round.
    """
    from scipy.special import log_ndtr

    inside = _log_mills(np.maximum(a - z, 0.0)) - 0.5 * z * z - _LOG_ROOT_2PI
    least = np.minimum(a, z)  # a itself where it counts; a² may overflow where it doesn't
    outside = least * (0.5 * least - z) + log_ndtr(np.maximum(z - a, 0.0))
    return np.asarray(np.where(z < a, inside, outside))


def _mills(t: Any) -> FloatArray:
    from scipy.special import erfcx

    return np.asarray(math.sqrt(math.pi / 2) * erfcx(np.asarray(t) / math.sqrt(2)))


def _log_mills(t: Any) -> FloatArray:
    return np.asarray(np.log(_mills(t)))


def _check(s: float, lam: float) -> None:
    if not (0 <= s < math.inf and 0 <= lam < math.inf and s + lam > 0):
        raise ValueError(f"s, lam: expected scales of which one is above 0, got {s!r} and {lam!r}")
