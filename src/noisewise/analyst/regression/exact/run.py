"""`exact` and `exact_own_means`: no approximation but Monte Carlo error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression import agreement
from noisewise.analyst.regression.job import Draws, Job, exact_covariates, more_rows_than_columns
from noisewise.analyst.regression.priors import ScaleFreePrior

if TYPE_CHECKING:
    from noisewise.analyst.regression.exact.density import CollapsedPosterior

_AT_ONCE = 500  # draws whose statistics are held at a time


def run_exact(job: Job) -> Draws:
    """One law of the covariates for all holders."""
    return _run(job, "exact", own_means=False)


def run_exact_own_means(job: Job) -> Draws:
    """The covariates of each holder have a mean of their own."""
    return _run(job, "exact_own_means", own_means=True)


def _run(job: Job, method: str, *, own_means: bool) -> Draws:
    """Draw from the collapsed posterior, and compare the Releases with what it would release."""
    from noisewise.analyst.regression.exact import sampler as exact
    from noisewise.analyst.regression.exact.density import CollapsedPosterior

    more_rows_than_columns(job)
    collapsed = CollapsedPosterior(
        job.observations, job.regression_prior, exact_covariates(job, method), own_means=own_means
    )
    with job.watched() as options:
        drawn = exact.sample_posterior(collapsed, keep_covariates=False, **options)
    points = drawn.x.reshape(-1, drawn.x.shape[-1])
    some = np.linspace(0, len(points) - 1, min(agreement.CHECKED, len(points))).astype(int)
    rng = np.random.default_rng(job.seed)
    theta, sigma2, _, mu, T = collapsed.draw_parameters(rng, points[some])
    pull: tuple[float, ...] = ()
    if isinstance(job.regression_prior, ScaleFreePrior):
        pull = prior_pull(collapsed, points, drawn.theta.reshape(len(points), -1))
    return Draws(
        drawn.theta,
        drawn.sigma2,
        drawn.conditional_mean,
        drawn.info._asdict(),
        prior_pull=pull,
        **agreement.given_law(job, theta, sigma2, mu, T),
    )


def prior_pull(
    collapsed: CollapsedPosterior, points: FloatArray, theta: FloatArray
) -> tuple[float, ...]:
    """How far each slope's distribution moves under a second prior.

    The scale-free prior is flat, towards 0, in the spread that a covariate has beyond the others
    and in what all of them leave of y. A second prior as reasonable as that expects more of both:
    its density is that of the first times s_j² (1 - R²), s_j² the variance of covariate j given the
    others. Draws are weighted by this. Where the Releases know both numbers the weights are equal
    and nothing moves; where noise hides them the prior decides.

    Parameters
    ----------
    collapsed : CollapsedPosterior
    points : array, shape (draws, ndim)
    theta : array, shape (draws, d)

    Returns
    -------
    tuple of float
        By slope, the largest difference between its two distribution functions.
    """
    weights = np.concatenate(
        [
            _second_prior(collapsed.statistics(points[first : first + _AT_ONCE]).sum(axis=1))
            for first in range(0, len(points), _AT_ONCE)
        ]
    )
    pull = []
    for weight, slope in zip(weights.T, theta[:, 1:].T, strict=True):
        sorted_weight = weight[np.argsort(slope)]
        even = np.arange(1, len(slope) + 1) / len(slope)
        gap = np.abs(np.cumsum(sorted_weight) / sorted_weight.sum() - even)
        pull.append(float(gap.max()))
    return tuple(pull)


def _second_prior(A: FloatArray) -> FloatArray:
    """s_j² (1 - R²) at statistics of all rows (draws, P, P); shape (draws, k)."""
    L = np.linalg.cholesky(A)
    inverse = np.linalg.inv(L[:, 1:-1, 1:-1])
    left = L[:, -1, -1] ** 2
    unexplained = left / (left + (L[:, -1, 1:-1] ** 2).sum(axis=1))
    return np.asarray(unexplained[:, None] / (inverse**2).sum(axis=1) / A[:, :1, 0])
