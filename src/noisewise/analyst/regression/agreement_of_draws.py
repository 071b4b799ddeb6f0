"""Whether the Releases agree with the fitted model, asked of some of a method's draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.job import Job
from noisewise.analyst.regression.priors import NIWPrior

CHECKED = 500  # posterior draws that the Releases are compared with
MAX_NUMBERS = 1 << 24  # of latent statistics that are kept for it


def kept_a_chain(job: Job) -> int:
    """Of how many draws of each chain to keep the latent statistics of all holders."""
    P = job.observations[0].k + 2
    affordable = MAX_NUMBERS // (job.chains * len(job.observations) * P * P)
    return min(job.draws, max(4, min(CHECKED // job.chains, affordable)))


def thinned(draws: FloatArray, kept: int) -> FloatArray:
    """The draws (chains, draws, ...) of which samplers keep more, as rows."""
    every = draws.shape[1] // kept
    return draws[:, : kept * every : every].reshape(-1, *draws.shape[2:])


def given_law(
    job: Job, theta: FloatArray, sigma2: FloatArray, mu: FloatArray, T: FloatArray
) -> dict[str, Any]:
    """What `Draws` says about agreement, from m draws of the regression and the covariates' law.

    mu is of shape (m, k), or (m, J, k) where each holder has a mean of its own.
    """
    from noisewise.analyst.regression.agreement import discrepancy
    from noisewise.analyst.regression.replication import replicate

    means = np.moveaxis(mu, 1, 0) if mu.ndim == 3 else [mu] * len(job.observations)
    laws = [(theta, sigma2, mean, T) for mean in means]
    pairs = list(zip(job.observations, laws, strict=True))
    return {
        "discrepancies": [discrepancy(seen, *law) for seen, law in pairs],
        "replications": [replicate(seen, *law) for seen, law in pairs],
    }


def given_statistics(
    job: Job, theta: FloatArray, sigma2: FloatArray, statistics: FloatArray
) -> dict[str, Any]:
    """The same from m draws of the regression and of the statistics of all holders together.

    The covariates' law is drawn given those, under a weak prior: what is asked is whether holders
    agree with each other, whatever a method takes for granted about the covariates.
    """
    from noisewise.analyst.regression.population import draw_covariates

    rng = np.random.default_rng(job.seed)
    prior = NIWPrior.weakly_informative(job.observations[0].k)
    return given_law(job, theta, sigma2, *draw_covariates(rng, statistics, prior))
