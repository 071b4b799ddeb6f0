"""The scale-free prior of the regression: nodes for its two variances, and draws given statistics.

The density of the statistics with sigma² and omega² integrated out is in `prior`. Both
integrals are over logarithms. That of sigma² is a log-gamma law of N - 1 - k degrees of freedom
times a smooth function: Gauss-Hermite nodes where the law is narrow, the trapezoidal rule where
rows are few. That of omega² is smooth on the scale of sqrt(2/k) or wider: the trapezoidal rule.
"""

from __future__ import annotations

import math

import numpy as np

from noisewise._arrays import FloatArray

_NARROW, _WIDE = 0.05, 0.15  # widths of sigma²'s law for which 5 and 7 Gauss-Hermite nodes serve
_MOST_NODES = 400
_CHUNK = 250  # draws at a time, for memory


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
    return _trapezoid(*_sigma_range(max(m - spread, 1.0)), 0.5 * min(sd, 1.0) / max(width, 1.0))


def _sigma_range(m: float) -> tuple[float, float]:
    """Where the law of ln(sigma² N / RSS) has its mass, for m degrees of freedom.

    Its log density is -m/2 (e^-x - 1 + x) about its mode, which is below -32 beyond 8 standard
    deviations sqrt(2/m) to the left. To the right it falls as -m x / 2 in the end, and the prior
    adds at most x / 2.
    """
    sd = math.sqrt(2.0 / m)
    return -8.0 * sd, 8.0 * sd + min(66.0 / max(m - 1.0, 1.0), 40.0)


def omega_nodes(k: int, half_t: float, smallest: float, fine: int = 1) -> FloatArray:
    """ln omega² and log weights with its law, shape (2, nodes).

    Parameters
    ----------
    k : int
    half_t : float
        4 times the squared scale of the half-t law.
    smallest : float
        An explained variance below which nothing can be told from zero.
    fine : int
        Divides the step.
    """
    low, high = min(math.log(smallest) - 14.0, -24.0), 8.0 + math.log(half_t)
    nodes = _trapezoid(low, high, min(0.6, 0.9 * math.sqrt(2.0 / max(k, 1))) / fine)
    nodes[1] += _log_half_t(nodes[0], half_t)
    return nodes


def _trapezoid(low: float, high: float, step: float) -> FloatArray:
    count = min(math.ceil((high - low) / step) + 1, _MOST_NODES)
    x = np.linspace(low, high, count)
    weight = np.full(count, math.log(x[1] - x[0]))
    weight[[0, -1]] -= math.log(2.0)
    return np.stack([x, weight])


def _log_half_t(u: FloatArray, half_t: float) -> FloatArray:
    return np.asarray(0.5 * u - 2.5 * np.log1p(np.exp(u) / half_t))


def draw(
    rng: np.random.Generator, C: FloatArray, half_t: float, sigma: FloatArray, omega: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Draw theta and sigma² given each of the statistics of all rows.

    omega² and then sigma² are drawn by inverting their distribution functions on a fine grid,
    linear between its points; given both, slopes are N(w b, w sigma² S⁻¹), b least squares and
    w = N omega² / (N omega² + k sigma²), and the intercept is normal given the slopes.

    Parameters
    ----------
    rng : numpy.random.Generator
    C : array, shape (draws, P, P)
        Cholesky factors of the statistics A.
    half_t : float
    sigma, omega : array, shape (2, .)
        Nodes: ln(sigma² N / RSS), and ln omega² on a fine grid.

    Returns
    -------
    theta, sigma2, mean : arrays, shapes (draws, d), (draws,), (draws, d)
        mean is E[theta | A].
    """
    parts = [
        _draw(rng, C[first : first + _CHUNK], half_t, sigma, omega)
        for first in range(0, len(C), _CHUNK)
    ]
    theta, sigma2, mean = zip(*parts, strict=True)
    return np.concatenate(theta), np.concatenate(sigma2), np.concatenate(mean)


def _draw(
    rng: np.random.Generator, C: FloatArray, half_t: float, sigma: FloatArray, omega: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    draws, k = len(C), C.shape[1] - 2
    N, row, rss = C[:, 0, 0] ** 2, C[:, -1, 1:-1], C[:, -1, -1] ** 2
    ess = (row**2).sum(axis=1)

    def log_density(s: FloatArray, explained: FloatArray) -> FloatArray:
        """Of ln sigma² and ln omega², but for the latter's law; leading axis over draws."""
        lead = (draws, *(1,) * (s.ndim - 1))
        rows, left, right = N.reshape(lead), rss.reshape(lead), ess.reshape(lead)
        tau2 = rows * explained + np.exp(s)
        total = -0.5 * ((rows - 1.0 - k) * s + left * np.exp(-s) + k * np.log(tau2) + right / tau2)
        return np.asarray(total + _log_half_t(s, half_t))

    base = np.log(rss / N)
    s = (base[:, None] + sigma[0])[:, :, None]
    explained = np.exp(omega[0]) / max(k, 1)
    joint = log_density(s, explained[None, None]) + sigma[1][:, None]
    joint += omega[1]
    joint = np.exp(joint - joint.max(axis=(1, 2), keepdims=True))
    # w averaged over both variances, for E[theta | A].
    weight = N[:, None, None] * explained / (N[:, None, None] * explained + np.exp(s))
    mean_weight = (joint * weight).sum(axis=(1, 2)) / joint.sum(axis=(1, 2))
    u = _invert(rng, np.broadcast_to(omega[0], (draws, omega.shape[1])), joint.sum(axis=1))
    chosen = np.exp(u) / max(k, 1)
    m = np.maximum(N - 1.0 - k, 1.0)
    grid = base[:, None] + _fine_sigma(m)
    density = log_density(grid, chosen[:, None])
    sigma2 = np.exp(_invert(rng, grid, np.exp(density - density.max(axis=1, keepdims=True))))
    w = N * chosen / (N * chosen + sigma2)

    normal = rng.standard_normal((draws, k + 1))
    upper = np.swapaxes(C[:, 1:-1, 1:-1], 1, 2)
    noise = np.sqrt(w * sigma2)[:, None] * normal[:, 1:]
    sides = np.stack([w[:, None] * row + noise, mean_weight[:, None] * row], axis=2)
    slopes = np.linalg.solve(upper, sides) if k else np.zeros((draws, 0, 2))
    means = C[:, 1:, 0] / C[:, :1, 0]
    intercepts = means[:, -1:] - np.einsum("ik,ikc->ic", means[:, :-1], slopes)
    intercepts[:, 0] += np.sqrt(sigma2 / N) * normal[:, 0]
    theta = np.concatenate([intercepts[:, None], slopes], axis=1)
    return theta[:, :, 0], sigma2, theta[:, :, 1]


def _fine_sigma(m: FloatArray) -> FloatArray:
    """Grid of ln(sigma² N / RSS), shape (draws, points), over the mass of the law of each."""
    low, high = np.array([_sigma_range(each) for each in m]).T
    return np.asarray(low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, 321))


def _invert(rng: np.random.Generator, x: FloatArray, density: FloatArray) -> FloatArray:
    """Draw from densities that are linear between grid points; both arguments (draws, points)."""
    cells = 0.5 * (density[:, 1:] + density[:, :-1]) * np.diff(x, axis=1)
    total = np.cumsum(cells, axis=1)
    aim = rng.uniform(size=len(x)) * total[:, -1]
    at = np.minimum((total < aim[:, None]).sum(axis=1), cells.shape[1] - 1)
    i = np.arange(len(x))
    f0, f1, left, right = density[i, at], density[i, at + 1], x[i, at], x[i, at + 1]
    share = np.clip(1.0 - (total[i, at] - aim) / np.maximum(cells[i, at], 1e-300), 0.0, 1.0)
    root = np.sqrt(f0**2 + share * (f1**2 - f0**2))
    t = share * (f0 + f1) / np.maximum(root + f0, 1e-300)
    return np.asarray(left + np.clip(t, 0.0, 1.0) * (right - left))
