"""`naive`: the negative control."""

from __future__ import annotations

from noisewise.analyst.regression.job import Draws, Job


def run_naive(job: Job) -> Draws:
    """Take the noisy statistics at face value."""
    from noisewise.analyst.regression.papers import naive

    return Draws(*naive.sample(job.observations, job.prior, **job.size))
