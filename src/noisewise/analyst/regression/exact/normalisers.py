"""Constants of the collapsed density that depend on the number of rows, with their slopes.

Where n is public they are constants indeed. A private n is latent: the density then needs them at
every point, and their derivatives by n. All are smooth functions of a real n.
"""

from __future__ import annotations

import math
from typing import Any

from noisewise._compiled import compiled

_LOG_2 = math.log(2.0)
_LOG_PI = math.log(math.pi)


@compiled
def digamma(x: float) -> Any:
    """Derivative of lgamma at x > 0, to 4e-15 relative to max(1, |digamma|).

    psi(x) = psi(x + 1) - 1 / x up to x = 10, then the asymptotic series (Abramowitz & Stegun 1964,
    6.3.5 and 6.3.18), whose first omitted term is below 5e-17 there.
    """
    total = 0.0
    while x < 10.0:
        total -= 1.0 / x
        x += 1.0
    r = 1.0 / (x * x)
    tail = 1 / 240 - r * (1 / 132 - r * (691 / 32760 - r / 12))
    series = r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * tail)))
    return total + math.log(x) - 0.5 / x - series


@compiled
def log_multigamma(a: float, p: int) -> Any:
    """Log of the multivariate gamma function Gamma_p(a)."""
    total = 0.25 * p * (p - 1) * _LOG_PI
    for i in range(p):
        total += math.lgamma(a - 0.5 * i)
    return total


@compiled
def log_multigamma_slope(a: float, p: int) -> Any:
    """Derivative of `log_multigamma` by a."""
    total = 0.0
    for i in range(p):
        total += digamma(a - 0.5 * i)
    return total


@compiled
def log_volume(n: float, p: int) -> Any:
    """Log constant of the volume of data matrices in the coordinates (wbar, log diag L, L).

    The n by p matrices with means wbar and covariance L L' have volume
    exp(log_volume) prod_i L_ii^(n - i) dwbar dlog(diag L) dL: an orthogonal transformation splits
    the rows into sqrt(n) wbar and n - 1 others with Gram matrix C = n L L', whose volume element is
    pi^(p (n-1) / 2) / Gamma_p((n-1) / 2) |C|^((n-p-2) / 2) dC.
    """
    volume = p * (_LOG_2 + 0.5 * n * math.log(n) + 0.5 * (n - 1) * _LOG_PI)
    return volume - log_multigamma(0.5 * (n - 1), p)


@compiled
def log_volume_slope(n: float, p: int) -> Any:
    """Derivative of `log_volume` by n."""
    return 0.5 * (p * (math.log(n) + 1.0 + _LOG_PI) - log_multigamma_slope(0.5 * (n - 1), p))


@compiled
def log_covariance(N: float, k: int, nu: float) -> Any:
    """The part of the log marginal density of N rows' covariates that depends on N alone.

    Powers of pi from their normal law, and what integrating T out leaves of the conjugate
    posterior; `log_mean` has that of integrating a mean out.
    """
    return log_multigamma(0.5 * (nu + N), k) - 0.5 * k * N * _LOG_PI


@compiled
def log_covariance_slope(N: float, k: int, nu: float) -> Any:
    """Derivative of `log_covariance` by N."""
    return 0.5 * (log_multigamma_slope(0.5 * (nu + N), k) - k * _LOG_PI)


@compiled
def log_mean(n: float, k: int, lam: float) -> Any:
    """What integrating the mean of n rows out leaves."""
    return -0.5 * k * math.log(lam + n)


@compiled
def log_mean_slope(n: float, k: int, lam: float) -> Any:
    """Derivative of `log_mean` by n."""
    return -0.5 * k / (lam + n)


@compiled
def log_regression(N: float, a0: float, keeps_sigma2: bool) -> Any:
    """The same of N rows' targets: theta and, unless it is kept, sigma2 are integrated out."""
    total = -0.5 * N * (_LOG_2 + _LOG_PI)
    return total if keeps_sigma2 else total + math.lgamma(a0 + 0.5 * N)


@compiled
def log_regression_slope(N: float, a0: float, keeps_sigma2: bool) -> Any:
    """Derivative of `log_regression` by N."""
    total = -_LOG_2 - _LOG_PI
    return 0.5 * (total if keeps_sigma2 else total + digamma(a0 + 0.5 * N))


@compiled
def log_scale_free(N: float) -> Any:
    """The same under the scale-free prior: the flat intercept is integrated out too."""
    return -0.5 * ((N - 1.0) * (_LOG_2 + _LOG_PI) + math.log(N))


@compiled
def log_scale_free_slope(N: float) -> Any:
    """Derivative of `log_scale_free` by N."""
    return -0.5 * (_LOG_2 + _LOG_PI + 1.0 / N)
