"""A request on two neighbouring data sets: how it is run, and what is known of its outputs.

Every kind of request has a module that makes its challenge: `audit_regression_request`,
`audit_summary_request`, `audit_network_request` and `audit_draws_request`. `audit_release` takes it
from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.audit.laws import DrawCheck
from noisewise.audit.noise import NoiseCheck
from noisewise.audit.pairs import Neighbours
from noisewise.audit.scores import Score
from noisewise.core.noise import Gaussian, Laplace
from noisewise.core.releases import release_from_text
from noisewise.holder.publishable import Publishable

Run = Callable[[], list[float]]
Batch = Callable[[int], FloatArray]


@dataclass(frozen=True)
class Challenge:
    """What an audit of a request needs.

    Parameters
    ----------
    request : Publishable
    pair : Neighbours
    runs : two callables
        One for each data set: from its rows, or from their exact sums, to the values of a Release
        that was written as text and read back.
    scores : sequence of Score or None
        As `audit` takes them; the first is the one that is known to be good.
    check : callable
        From all outputs of both data sets, in the order of the runs, to whether their noise is the
        stated one.
    weakened : callable
        From (factor, generator) to simulated runs of both data sets with so much of the noise.
    """

    request: Publishable[Any]
    pair: Neighbours
    runs: tuple[Run, Run]
    scores: Sequence[Score | None]
    check: Callable[[FloatArray, FloatArray], NoiseCheck | DrawCheck | None]
    weakened: Callable[[float, np.random.Generator], tuple[Batch, Batch]]


def through_text(request: Publishable[Any], result: Any) -> Any:
    """Draw the noise, write a Release, and read it as anybody would."""
    return release_from_text(request.release(result.n, result).to_text())


def simulated(
    exact: tuple[FloatArray, FloatArray], laws: Sequence[Laplace | Gaussian]
) -> Callable[[float, np.random.Generator], tuple[Batch, Batch]]:
    """The `weakened` of sums with independent noise, by NumPy's generator."""

    def weakened(factor: float, rng: np.random.Generator) -> tuple[Batch, Batch]:
        scales = factor * np.array([law.scale for law in laws])
        draw = rng.laplace if isinstance(laws[0], Laplace) else rng.normal

        def noisy(values: FloatArray) -> Batch:
            return lambda trials: values + draw(0.0, scales, (trials, len(values)))

        return noisy(exact[0]), noisy(exact[1])

    return weakened
