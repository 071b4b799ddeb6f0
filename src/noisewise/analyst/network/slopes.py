"""Where loops make the centre of a parents' table depend on the rest of the network."""

from __future__ import annotations

import numpy as np

from noisewise.analyst.network.entropy import Entropy, Names, entropy_of
from noisewise.analyst.network.expectation import Step, plan, probabilities
from noisewise.analyst.network.layout import Floats, Integers, Layout, row_sums

TINY = 1e-300


class Slopes:
    """The u_i of `entropy`, as a slope for every cell of every region.

    Parameters
    ----------
    layout : Layout
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        plans = [plan(layout, parents) for parents in layout.parents]
        self.entropy: Entropy = entropy_of(layout, [steps is not None for steps in plans])
        self._plans: dict[int, list[Step]] = {
            i: steps for i in self.entropy.expected if (steps := plans[i]) is not None
        }

    @property
    def needed(self) -> bool:
        """Whether any slope depends on the counts."""
        return bool(self._plans)

    def fill(self, out: Floats, names: list[Names], start: Integers, counts: Floats) -> None:
        """Write slopes for the network whose tables are the proportions of smoothed `counts`.

        Parameters
        ----------
        out : array, shape (cells of all regions,)
        names, start
            The regions and their first cells.
        counts : array, shape (layout.cells,)
            Family counts plus concentrations.
        """
        theta = counts / row_sums(self.layout, counts)
        for i, steps in self._plans.items():
            parents = self.layout.parents[i]
            joint = probabilities(self.layout, steps, theta)
            slope = np.zeros(joint.shape)
            for subset, c in self.entropy.expected[i].items():
                away = tuple(k for k, j in enumerate(parents) if j not in subset)
                margin = joint.sum(axis=away, keepdims=True) if away else joint
                slope = slope + c * np.log(np.maximum(margin, TINY))
            first = int(start[names.index(parents)])
            out[first : first + slope.size] = slope.reshape(-1)
