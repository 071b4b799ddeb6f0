"""Whether draws have a stated law: a test with an exact false-alarm rate, for any number of draws.

Each count of draws in a set of values is binomial. The p-value is the smallest tail of all counts,
times the number of tails: a right law has a p-value of at most α with a chance of at most α
(Bonferroni), whatever depends on what. No count is approximated.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from scipy import stats

ALARM = 1e-6  # the chance that a right source fails one check


def p_value(draws, law, parts=1):
    """Of draws against {value: probability}, as one of so many `parts` of a check.

    Looked at are single values, all up to a value (in the order of `law`), and all values that
    `law` leaves out.
    """
    draws = list(draws)
    counts, many = Counter(draws), len(draws)
    single = np.array([counts.pop(value, 0) for value in law])
    shares = np.array(list(law.values()), dtype=float)
    missing = max(0.0, 1 - shares.sum())
    if missing < 1e-12:  # the law is complete, but for rounding
        if counts:
            return 0.0
        missing = 0.0
    up_to = np.minimum(np.cumsum(shares), 1.0)
    found = np.concatenate([single, np.cumsum(single), [sum(counts.values())]])
    chances = np.concatenate([shares, up_to, [missing]])
    if missing == 0:
        chances[2 * len(shares) - 1] = 1.0
    tails = np.concatenate(
        [stats.binom.cdf(found, many, chances), stats.binom.sf(found - 1, many, chances)]
    )
    return min(1.0, float(tails.min()) * len(tails) * parts)


def check(draws, law, parts=1):
    """Fail unless draws have the law: with a right source, 1e-6 of the times of all `parts`."""
    found = p_value(draws, law, parts)
    assert found > ALARM, f"p = {found:.1e}"


def uniform(count):
    """The law of a whole number below `count`."""
    return dict.fromkeys(range(count), 1 / count)
