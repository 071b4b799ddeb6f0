"""How likely an audit is to catch a violation, for tests that promise that it does; worst pairs."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from noisewise.audit.engine import lower, upper
from noisewise.audit.regression import second_row
from noisewise.core.design import Design


def detection_probability(
    likelier: float,
    rarer: float,
    *,
    held_out: int,
    epsilon: float,
    delta: float = 0.0,
    mu: float | None = None,
    confidence: float = 0.99,
) -> float:
    """The probability that an audit which chose a certain region calls the claim violated.

    For planning the number of trials. It is exact: a sum over both binomial counts.

    Parameters
    ----------
    likelier, rarer : float
        Probabilities of the region under the two data sets.
    held_out : int
        Held-out runs on each.
    epsilon, delta, mu, confidence : float
        As for `audit`; with `mu`, by that alone.

    Returns
    -------
    float
    """
    alpha = (1 - confidence) / 2
    counts = np.arange(held_out + 1)
    at_least, at_most = lower(counts, held_out, alpha), upper(counts, held_out, alpha)
    # The smallest count in the likelier data set that convicts, for every count in the other.
    allowed = math.exp(epsilon) * at_most + delta if mu is None else ndtr(mu + ndtri(at_most))
    needed = np.searchsorted(at_least, allowed, side="right")
    return float(binom.pmf(counts, held_out, rarer) @ binom.sf(needed - 1, held_out, likelier))


def worst_pair(design: Design, norm: str) -> tuple[dict[str, float], dict[str, float]]:
    """Two rows of numbers whose second moments are as far apart as the box allows (`second_row`).

    In original units. Two data sets that agree in all rows but this one are a worst case of
    ``replace_one``.
    """
    columns = design.columns
    corner = {c.name: c.centre + c.half_width for c in columns}
    unit = second_row(len(columns), norm)
    return corner, {c.name: c.centre + c.half_width * t for c, t in zip(columns, unit, strict=True)}
