"""The naive posterior: noisy statistics taken at face value. Not noise-aware.

It is here as the negative control, and to show what ignoring the noise costs. Its intervals are
too narrow by any factor: the more noise, the worse.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers.conjugate import draw, matched, update
from noisewise.analyst.regression.papers.projection import project
from noisewise.analyst.regression.priors import NIGPrior, NormalInverseGammaIndependent


def sample(
    observations: Sequence[Observation],
    prior: NIGPrior | NormalInverseGammaIndependent,
    *,
    chains: int,
    draws: int,
    seed: int | None,
) -> tuple[FloatArray, FloatArray]:
    """Independent draws of theta (chains, draws, d) and sigma2 (chains, draws), on unit scale."""
    A = sum(project(observation) for observation in observations)
    n = sum(observation.n for observation in observations)
    posterior = update(matched(prior), np.asarray(A), n)
    return draw(posterior, np.random.default_rng(seed), (chains, draws))
