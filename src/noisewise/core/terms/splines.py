"""Bases of cubic and other splines with public knots; the outermost knots are a column's bounds.

**B-splines.** On m knots within the bounds, of degree p, there are m + p + 1 functions. They are
at least 0 and add up to 1 everywhere, so without the first one (the intercept has its place) a
row's values are at least 0 and add up to at most 1: what is known of a category's indicators too.
Computed by the recursion of Cox and de Boor, each value is a sum of products of numbers that are
at least 0, so it has a relative error below 8(p + 1) 2**-53, and so has their sum.

**Natural splines.** Cubic between knots, straight beyond the bounds, on the knots ξ_0 < ... < ξ_m+1
with both bounds among them. The basis is the cardinal one: function k is 1 at ξ_k and 0 at all
other knots. So the coefficient of function k is how much higher the curve is at ξ_k than at the
lower bound, whose function is left out. They add up to 1, but may be a little below 0 or above 1
between knots: each has bounds of its own.

All values are computed by +, -, *, / alone (see `expressions`): the same everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from noisewise._arrays import FloatArray


def b_spline(
    x: FloatArray, ends: tuple[float, float], knots: Sequence[float], degree: int
) -> list[FloatArray]:
    """Values of all B-splines but the first at x, which is confined to the bounds first."""
    low, high = ends
    x = np.minimum(np.maximum(x, low), high)
    t = [low] * (degree + 1) + list(knots) + [high] * (degree + 1)
    last = degree + len(knots)  # the interval that the upper bound belongs to
    found = [
        (x >= t[j]) & ((x < t[j + 1]) if j < last else (x <= t[j + 1])) & (t[j] < t[j + 1])
        for j in range(len(t) - 1)
    ]
    basis = [inside.astype(np.float64) for inside in found]
    for p in range(1, degree + 1):
        higher = []
        for j in range(len(t) - 1 - p):
            value = np.zeros_like(x)
            if t[j] < t[j + p]:
                value = value + (x - t[j]) / (t[j + p] - t[j]) * basis[j]
            if t[j + 1] < t[j + p + 1]:
                value = value + (t[j + p + 1] - x) / (t[j + p + 1] - t[j + 1]) * basis[j + 1]
            higher.append(value)
        basis = higher
    return basis[1:]


def natural_spline(
    x: FloatArray, ends: tuple[float, float], knots: Sequence[float]
) -> list[FloatArray]:
    """Values of all cardinal natural splines but the first at x, confined to the bounds first."""
    low, high = ends
    x = np.minimum(np.maximum(x, low), high)
    points = [low, *knots, high]
    bends = _second_derivatives(points)
    place = np.searchsorted(np.array(knots, dtype=np.float64), x, side="right")
    at = np.array(points)
    left, right = at[place], at[place + 1]
    h = right - left
    after, before = x - left, right - x
    # The cubic with given ends and second derivatives there.
    c_left = (before * before * before / h - h * before) / 6.0
    c_right = (after * after * after / h - h * after) / 6.0
    values = []
    for k in range(1, len(points)):
        bend = np.array(bends[k])
        straight = before / h * (place == k) + after / h * (place + 1 == k)
        values.append(straight + c_left * bend[place] + c_right * bend[place + 1])
    return values


def natural_spline_bounds(
    ends: tuple[float, float], knots: Sequence[float]
) -> list[tuple[float, float]]:
    """The smallest and the largest value of each function of `natural_spline`.

    Between two knots a function is a cubic: its extremes are there or where its slope is 0.
    """
    points = [ends[0], *knots, ends[1]]
    bends = _second_derivatives(points)
    found = []
    for k in range(1, len(points)):
        candidates = list(points)
        for j in range(len(points) - 1):
            h = points[j + 1] - points[j]
            g, g_next = bends[k][j] * h, bends[k][j + 1] * h
            rise = (float(j + 1 == k) - float(j == k)) / h
            # Slope at left + u h: rise + g (-3(1-u)² + 1) / 6 + g_next (3u² - 1) / 6.
            a, b, c = (g_next - g) / 2, g, rise - g / 3 - g_next / 6
            candidates += [points[j] + u * h for u in _roots(a, b, c) if 0 < u < 1]
        values = natural_spline(np.array(candidates), ends, knots)[k - 1]
        found.append((min(0.0, float(values.min())), max(1.0, float(values.max()))))
    return found


def _roots(a: float, b: float, c: float) -> list[float]:
    if a == 0.0:
        return [] if b == 0.0 else [-c / b]
    square = b * b - 4 * a * c
    if square < 0:
        return []
    q = -(b + math.copysign(math.sqrt(square), b)) / 2
    return [q / a] if q == 0.0 else [q / a, c / q]


def _second_derivatives(points: Sequence[float]) -> list[list[float]]:
    """Of every cardinal function at every knot, by elimination in a tridiagonal system.

    At inner knots h_j γ_j-1 + 2 (h_j + h_j+1) γ_j + h_j+1 γ_j+1 = 6 (change of slope); 0 at ends.
    """
    m = len(points) - 1
    h = [points[j + 1] - points[j] for j in range(m)]
    found = []
    for k in range(m + 1):
        y = [float(j == k) for j in range(m + 1)]
        slope = [(y[j + 1] - y[j]) / h[j] for j in range(m)]
        diagonal, right = [0.0] * (m + 1), [0.0] * (m + 1)
        for j in range(1, m):
            factor = h[j - 1] / diagonal[j - 1] if j > 1 else 0.0
            diagonal[j] = 2 * (h[j - 1] + h[j]) - factor * h[j - 1]
            right[j] = 6 * (slope[j] - slope[j - 1]) - factor * right[j - 1]
        bend = [0.0] * (m + 1)
        for j in range(m - 1, 0, -1):
            bend[j] = (right[j] - h[j] * bend[j + 1]) / diagonal[j]
        found.append(bend)
    return found
