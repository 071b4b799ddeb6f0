"""The averaging trick of Alparslan, Yıldırım & Birbil (2023, appendix B.1), and what it costs.

Rows that are not normal can be averaged in groups of k, without looking at them, until their means
nearly are. The paper says that the noise can stay as it is. It can't: one person moves a sum of k
rows, and what is squared is that sum.

**Sensitivity.** Let a group have the sum t + x, where t sums its k - 1 other rows, |row| ≤ R. With
group means u = (t + x)/k, replacing x by x' moves Σ uu' by

    (aa' - bb')/k²,  a = t + x', b = t + x,  |aa' - bb'|² = 2 (|m|²|δ|² + (m·δ)²) ≤ 4 |m|²|δ|²,

where m = (a + b)/2 and δ = x' - x. For x' = -x = R v and t = (k - 1) R v it is 4 (k - 1) R². No
other choice does better for k ≥ 2: with c = (x + x')/2, |δ|² ≤ 4 (R² - |c|²); for δ ⊥ c the best t
of length T = (k - 1) R gives 16 (R² - |c|²)(T² + |c|²), which falls in |c| because T ≥ R (the tests
search for worse). The means themselves move by δ/k, at most 2R/k, in the same configuration. In the
isometric layout of (1, u) all of it together is

    Δ² = 2 (2R/k)² + (4 (k - 1) R²/k²)²,

and without averaging 2 (1 + R²)². Noise thus falls about like 4R²/k, but what it hides falls like
n Var(x)/k²: the signal-to-noise ratio of the second moments gets worse by a factor of about
4k R²/(√2 (1 + R²)).

Normality of x is only a prior for the statistics in `exact`, and a mild one, so nothing is gained
in return. Averaging is here for whoever wants to see that.
"""

from __future__ import annotations

import math

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.core.errors import RequestError


def averaged_gram(rows: FloatArray, k: int) -> FloatArray:
    """Σ uu' over the means of groups of k consecutive rows; leftover rows are dropped."""
    if k < 1 or len(rows) < k:
        raise RequestError(f"k: groups of {k} rows cannot be made of {len(rows)} rows")
    groups = len(rows) // k
    means = rows[: groups * k].reshape(groups, k, -1).mean(axis=1)
    return np.asarray(means.T @ means)


def averaged_sensitivity(k: int, radius: float) -> float:
    """L2 sensitivity (replace one) of the Gram matrix of (1, u), isometric; |row| ≤ radius."""
    if k == 1:
        if radius >= 1.0:
            return math.sqrt(2.0) * (1.0 + radius**2)
        return 2.0 * math.sqrt(2.0) * radius
    return math.hypot(math.sqrt(2.0) * 2.0 * radius / k, 4.0 * (k - 1) * radius**2 / k**2)
