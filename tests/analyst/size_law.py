"""The coordinate that the posterior has beside the statistics: the size of y's correlations."""

from __future__ import annotations

import math

import numpy as np

from noisewise.analyst.regression.exact import factor
from noisewise.analyst.regression.exact.prior import SIZE_AT


def log_size_and_law(posterior, x):
    """ln size at x in a list, and its log density given the statistics; [] and 0 without one.

    length / size is chi distributed, with a degree of freedom for each entry.
    """
    a = posterior.arrays
    at = int(a.scalars[SIZE_AT])
    if at == 0:
        return [], 0.0
    reference = a.known[0]
    end = int(np.tril(reference == 0).sum()) - 1  # the row's length
    m = int((reference[-1, 1:-1] == 0).sum())
    log_size = factor.log_size(float(x[at]), a.centre[at], a.scale[at])[0]
    inner = slice(end - m, end)
    t2 = 1 / (1 + a.scale[inner] ** 2 * math.exp(-2 * log_size))
    entries = t2 * a.centre[inner] + np.sqrt(t2) * a.scale[inner] * x[inner]
    log_ratio = 0.5 * math.log(entries @ entries) - log_size
    law = (1 - m / 2) * math.log(2) - math.lgamma(m / 2)
    return [log_size], law + m * log_ratio - 0.5 * math.exp(2 * log_ratio)
