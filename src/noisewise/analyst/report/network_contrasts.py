"""What each arrow of a network amounts to, in a sentence.

For an arrow from a parent to a child: which level of the child differs most between two levels of
the parent, whatever the other nodes are, and how sure that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from noisewise.analyst.network.layout import Floats
from noisewise.analyst.posterior.network import NetworkPosterior
from noisewise.analyst.posterior.numbers import central_interval
from noisewise.analyst.report import words
from noisewise.analyst.report.network_tables import summable
from noisewise.analyst.report.numbers import percent, rounded

_MOST_ARROWS = 60
_MOST_CELLS = 256  # of the joint table of parent and child


class Contrast(NamedTuple):
    """A level of the child under two levels of its parent.

    Parameters
    ----------
    event, given, otherwise : str
        Such as "cough = yes", "smoker = yes" and "smoker = no".
    more, less : float
        Posterior means of P(event | given) and P(event | otherwise).
    difference : array, shape (draws,)
        The first minus the second; its mean is not negative.
    """

    event: str
    given: str
    otherwise: str
    more: float
    less: float
    difference: Floats

    @property
    def chance(self) -> float:
        """Probability that the difference is positive."""
        return words.chance_above_zero(self.difference)


def contrasts(posterior: NetworkPosterior) -> list[Contrast]:
    """One for every arrow that can be summed over, the surest first."""
    found = list(_contrasts(posterior))
    return sorted(found, key=lambda c: (-c.chance, c.less - c.more))


def _contrasts(posterior: NetworkPosterior) -> Iterator[Contrast]:
    from noisewise.analyst.network.queries import joint_probabilities

    network, layout = posterior.network, posterior.layout
    for parent, child in network.edges[:_MOST_ARROWS]:
        pair = [layout.number[parent], layout.number[child]]
        if layout.size(pair) > _MOST_CELLS or not summable(posterior, pair):
            continue
        joint = joint_probabilities(layout, posterior.flat, pair, {})
        assert joint is not None  # it was summable
        total = joint.sum(axis=2, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            given = np.where(total > 0, joint / total, 1.0 / joint.shape[2])
        mean = given.mean(axis=0)
        # Of two levels of the child, the second tells the first.
        start = 1 if mean.shape[1] == 2 else 0
        spread = np.ptp(mean[:, start:], axis=0)
        k = start + int(np.argmax(spread))
        high, low = int(np.argmax(mean[:, k])), int(np.argmin(mean[:, k]))
        levels = network.levels(parent)
        yield Contrast(
            f"{child} = {network.levels(child)[k]}",
            f"{parent} = {levels[high]}",
            f"{parent} = {levels[low]}",
            float(mean[high, k]),
            float(mean[low, k]),
            given[:, high, k] - given[:, low, k],
        )


def sentence(found: Contrast, level: float) -> str:
    """A contrast with its interval, and how sure it is."""
    sd = float(found.difference.std())
    low, high = central_interval(found.difference, level)
    size = f"{percent(level)} interval of the difference {words.between(low, high, sd)}"
    more, less = rounded(found.more, sd), rounded(found.less, sd)
    if found.chance < words.LIKELY:
        return (
            f"Whether {found.event} is more common with {found.given} ({more}) or with "
            f"{found.otherwise} ({less}) is undecided ({size})."
        )
    verdict = "is" if found.chance >= words.SURE else "is probably"
    return (
        f"{found.event} {verdict} more common with {found.given} ({more}) than with "
        f"{found.otherwise} ({less}; {size}; probability that it is more common: "
        f"{percent(found.chance)})."
    )
