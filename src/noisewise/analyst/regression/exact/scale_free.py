"""The scale-free prior of the regression: nodes for its two variances, and draws given statistics.

The density of the statistics with sigma² and omega² integrated out is in `prior`. Both
integrals are over logarithms. That of sigma² is a log-gamma law of N - 1 - k degrees of freedom
times a smooth function: Gauss-Hermite nodes where the law is narrow, the trapezoidal rule where
rows are few. That of omega² is over t, omega = sigma sqrt(k / N) sinh t: see `omega_nodes`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise._compiled import compiled
from noisewise.analyst.regression.exact.prior import mode
from noisewise.analyst.regression.priors import ScaleFreePrior

_NARROW, _WIDE = 0.05, 0.15  # widths of sigma²'s law for which 5 and 7 Gauss-Hermite nodes serve
_MOST_NODES = 400
_COARSEST, _LARGEST_T = 0.27, 45.0
_SIGMA_POINTS = 201  # of the grid on which sigma² is drawn
_SMALL = 1e-10  # terms below this share of the sum before them end it


def sigma_nodes(n: float, k: int, spread: float = 0.0) -> FloatArray:
    """ln(sigma² N / RSS) and log weights, shape (2, nodes).

    Parameters
    ----------
    n : float
        The number of rows, or a guess.
    k : int
    spread : float
        How far the number of rows may be off, where it is private.
    """
    m = max(n - 1.0 - k, 1.0)
    sd = math.sqrt(2.0 / m)
    width = sd * math.sqrt(max(k, 1))
    if width < _WIDE and spread < 0.2 * m:
        t, weight = np.polynomial.hermite.hermgauss(5 if width < _NARROW else 7)
        unit = math.sqrt(2.0) * sd
        return np.stack([math.log(n / m) + unit * t, np.log(unit * weight) + t**2])
    low, high = _sigma_range(max(m - spread, 1.0))
    return _trapezoid(low, high, 0.5 * min(sd, 1.0) / max(width, 1.0))


@compiled
def _sigma_range(m: float) -> Any:
    """Where the law of ln(sigma² N / RSS) has its mass, for m degrees of freedom.

    Its log density is -m/2 (e^-x - 1 + x) about its mode, which is below -32 beyond 8 standard
    deviations sqrt(2/m) to the left. To the right it falls as -m x / 2 in the end, and the prior
    adds at most x / 2.
    """
    sd = math.sqrt(2.0 / m)
    return -8.0 * sd, 8.0 * sd + min(66.0 / max(m - 1.0, 1.0), 40.0)


def omega_nodes(prior: ScaleFreePrior, n: float, fine: int = 1) -> FloatArray:
    """Log weights with all that depends on t alone, sech² t and sinh² t; shape (3, nodes).

    omega = sigma sqrt(k / N) sinh t, and the integrand is even and smooth in t: the trapezoidal
    rule, whose error falls exponentially. The integrand is as narrow as 1 / sqrt(2k).

    Parameters
    ----------
    prior : ScaleFreePrior
    n : float
        The number of rows; where it is private a guess, which 1 - R² in the prior is then counted
        by: 1 / (1 + (k / n) sinh² t).
    fine : int
        Divides the step.
    """
    k = prior.k
    step = min(_COARSEST, 0.5 / math.sqrt(max(k, 1))) / fine
    t = np.arange(0.0, _LARGEST_T, step)
    log_cosh = t + np.log1p(np.exp(-2.0 * t)) - math.log(2.0)
    weight = np.full(t.size, math.log(2.0 * step) + 0.5 * math.log(max(k, 1)))
    weight[0] -= math.log(2.0)
    sinh2 = np.sinh(t) ** 2
    weight += (1.0 - k) * log_cosh + prior.log_lean(-np.log1p(k / n * sinh2))
    return np.stack([weight, np.exp(-2.0 * log_cosh), sinh2])


def _trapezoid(low: float, high: float, step: float) -> FloatArray:
    count = min(math.ceil((high - low) / step) + 1, _MOST_NODES)
    x = np.linspace(low, high, count)
    weight = np.full(count, math.log(x[1] - x[0]))
    weight[[0, -1]] -= math.log(2.0)
    return np.stack([x, weight])


def draw(
    rng: np.random.Generator, C: FloatArray, half_t: float, sigma: FloatArray, omega: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Draw theta and sigma² given each of the statistics of all rows.

    A node of sigma², t given it, and sigma² given t: the last two by inverting distribution
    functions on a fine grid, with densities linear between its points. Given both, slopes are
    N(w b, w sigma² S⁻¹), b least squares and w = tanh² t = N omega² / (N omega² + k sigma²), and
    the intercept is normal given the slopes.

    Parameters
    ----------
    rng : numpy.random.Generator
    C : array, shape (draws, P, P)
        Cholesky factors of the statistics A.
    half_t : float
    sigma : array, shape (2, .)
        Of `sigma_nodes`.
    omega : array, shape (3, .)
        Of `omega_nodes`, a fine grid.

    Returns
    -------
    theta, sigma2, mean : arrays, shapes (draws, d), (draws,), (draws, d)
        mean is E[theta | A].
    """
    draws, d = len(C), C.shape[1] - 1
    theta, sigma2, mean = np.empty((draws, d)), np.empty(draws), np.empty((draws, d))
    uniform, normal = rng.uniform(size=(draws, 3)), rng.standard_normal((draws, d))
    work = np.empty((4, max(omega.shape[1], sigma.shape[1], _SIGMA_POINTS)))
    factors = np.ascontiguousarray(C)
    _draw(factors, uniform, normal, half_t, sigma, omega, work, theta, sigma2, mean)
    return theta, sigma2, mean


@compiled
def _draw(
    factors: FloatArray,
    uniform: FloatArray,
    normal: FloatArray,
    half_t: float,
    sigma: FloatArray,
    omega: FloatArray,
    work: FloatArray,
    theta: FloatArray,
    sigma2: FloatArray,
    mean: FloatArray,
) -> Any:
    """`draw` with its random numbers from outside; `work` is scratch space."""
    d = factors.shape[1] - 1
    k = d - 1
    step = math.asinh(math.sqrt(omega[2, 1]))
    for i in range(factors.shape[0]):
        C = factors[i]
        N = C[0, 0] * C[0, 0]
        rss, ess = C[d, d] * C[d, d], 0.0
        for b in range(1, d):
            ess += C[d, b] * C[d, b]
        base, unit = math.log(rss / N), max(k, 1) / (N * half_t)
        node, shrunk = _draw_node(uniform[i, 0], base, ess, N, k, half_t, sigma, omega, work)
        s2 = math.exp(base + sigma[0, node])
        first, count = _terms(s2 * unit, ess / s2, k, omega, work[0])
        for j in range(count):
            work[1, j] = (first + j) * step
        t = _invert(uniform[i, 1], work[1], work[0], count, first == 0)
        sech2, sinh2 = 1.0 / math.cosh(t) ** 2, math.sinh(t) ** 2
        low, high = _sigma_range(max(N - 1.0 - k, 1.0))
        top = -np.inf
        for j in range(_SIGMA_POINTS):
            x = low + (high - low) * j / (_SIGMA_POINTS - 1)
            s2 = math.exp(base + x)
            value = -0.5 * ((N - 3.0) * x + (rss + ess * sech2) / s2)
            value -= 2.5 * (math.log1p(s2 / half_t) + math.log1p(s2 * unit * sinh2))
            work[0, j], work[1, j] = value, x
            top = max(top, value)
        for j in range(_SIGMA_POINTS):
            work[0, j] = math.exp(work[0, j] - top)
        x = _invert(uniform[i, 2], work[1], work[0], _SIGMA_POINTS, False)
        sigma2[i] = math.exp(base + x)
        w = 1.0 - sech2
        sd = math.sqrt(w * sigma2[i])
        theta[i, 0], mean[i, 0] = C[d, 0] + math.sqrt(sigma2[i]) * normal[i, 0], C[d, 0]
        for a in range(d - 1, -1, -1):  # by substitution, C' theta = the right side
            if a > 0:
                theta[i, a] = w * C[d, a] + sd * normal[i, a]
                mean[i, a] = (1.0 - shrunk) * C[d, a]
            for b in range(a + 1, d):
                theta[i, a] -= C[b, a] * theta[i, b]
                mean[i, a] -= C[b, a] * mean[i, b]
            theta[i, a] /= C[a, a]
            mean[i, a] /= C[a, a]


@compiled
def _draw_node(
    uniform: float,
    base: float,
    ess: float,
    N: float,
    k: int,
    half_t: float,
    sigma: FloatArray,
    omega: FloatArray,
    work: FloatArray,
) -> Any:
    """A node of sigma² in proportion to its weight, and E[sech² t | A]."""
    count = sigma.shape[1]
    best = -np.inf
    for i in range(count):
        s = base + sigma[0, i]
        s2 = math.exp(s)
        q, E = s2 * max(k, 1) / (N * half_t), ess / s2
        first, terms = _terms(q, E, k, omega, work[0])
        weight = shrunk = 0.0
        for j in range(terms):
            weight += work[0, j]
            shrunk += work[0, j] * omega[1, first + j]
        peak = _peak(q, E, k, omega)
        value = sigma[1, i] - 0.5 * ((N - 3.0) * sigma[0, i] + N * math.exp(-sigma[0, i]))
        value += omega[0, peak] - 0.5 * E * omega[1, peak] - 2.5 * math.log1p(s2 / half_t)
        work[1, i], work[2, i] = value + math.log(weight), shrunk / weight
        best = max(best, work[1, i])
    total = shrunk = 0.0
    for i in range(count):
        work[1, i] = math.exp(work[1, i] - best)
        total += work[1, i]
        shrunk += work[1, i] * work[2, i]
    node, aim = 0, uniform * total - work[1, 0]
    while aim > 0.0 and node < count - 1:
        node += 1
        aim -= work[1, node]
    return node, shrunk / total


@compiled
def _peak(q: float, E: float, k: int, omega: FloatArray) -> Any:
    """The node nearest to where the integrand over t is largest."""
    step = math.asinh(math.sqrt(omega[2, 1]))
    return int(min(mode(E, q, k) / step + 0.5, omega.shape[1] - 1.0))


@compiled
def _terms(q: float, E: float, k: int, omega: FloatArray, out: FloatArray) -> Any:
    """The integrand over t in units of its peak, where it isn't negligible: first node, number."""
    peak, last = _peak(q, E, k, omega), omega.shape[1] - 1
    top = omega[0, peak] - 0.5 * E * omega[1, peak]
    first, end = peak, peak + 1
    total = 0.0
    for way in (-1, 1):
        j = peak if way < 0 else peak + 1
        while j >= 0 and j <= last:
            bend = 1.0 + q * omega[2, j]
            term = math.exp(omega[0, j] - 0.5 * E * omega[1, j] - top)
            term /= bend * bend * math.sqrt(bend)
            out[j] = term
            total += term
            first, end = min(first, j), max(end, j + 1)
            if term < _SMALL * total:
                break
            j += way
    for j in range(first, end):
        out[j - first] = out[j]
    return first, end - first


@compiled
def _invert(uniform: float, x: FloatArray, density: FloatArray, count: int, half: bool) -> Any:
    """Draw from a density that is linear between grid points.

    `half`: the first of the densities counts half of what it is, as a weight of the
    trapezoidal rule.
    """
    if half:
        density[0] *= 2.0
    total = 0.0
    for j in range(1, count):
        total += 0.5 * (density[j] + density[j - 1]) * (x[j] - x[j - 1])
    aim, j = uniform * total, 0
    cell = 0.0
    while j < count - 1:
        j += 1
        cell = 0.5 * (density[j] + density[j - 1]) * (x[j] - x[j - 1])
        if aim <= cell:
            break
        aim -= cell
    if not cell > 0.0:
        return x[j]
    share = min(aim / cell, 1.0)
    f0, f1 = density[j - 1], density[j]
    root = math.sqrt(f0 * f0 + share * (f1 * f1 - f0 * f0))
    return x[j - 1] + min(share * (f0 + f1) / (root + f0), 1.0) * (x[j] - x[j - 1])
