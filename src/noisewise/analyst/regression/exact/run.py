"""`exact`, `exact_own_laws` and `exact_varying`: no approximation but Monte Carlo error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression import agreement
from noisewise.analyst.regression.exact.groups import MOST_HOLDERS, added_up
from noisewise.analyst.regression.job import Draws, Job, exact_covariates, more_rows_than_columns
from noisewise.analyst.regression.observation import named
from noisewise.analyst.regression.priors import NIGPrior, ScaleFreePrior
from noisewise.core.errors import RequestError

if TYPE_CHECKING:
    from noisewise.analyst.regression.exact.density import CollapsedPosterior

_AT_ONCE = 500  # draws whose statistics are held at a time
_INDEPENDENT = (
    "the noise is small beside the information, so draws are independent: weighted proposals "
    "(Pareto k = {:.2f}), no chains of NUTS"
)


def run_exact(job: Job) -> Draws:
    """One law of the covariates for all holders."""
    return _run(job, "exact", own_laws=False)


def run_exact_own_laws(job: Job) -> Draws:
    """The covariates of each holder have a law of their own; very many holders are grouped."""
    return _run(job, "exact_own_laws", own_laws=True)


def run_exact_varying(job: Job) -> Draws:
    """Holders have coefficients of their own, normal about common ones; one alone has `exact`."""
    if len(job.observations) == 1:
        return run_exact(job)
    from noisewise.analyst.posterior.regression import Holders
    from noisewise.analyst.regression.exact import varying

    more_rows_than_columns(job)
    prior, holders = job.regression_prior, len(job.observations)
    if isinstance(prior, NIGPrior):
        raise RequestError(
            "prior: coefficients that vary by holder take a CoefficientPrior, a ScaleFreePrior or "
            "a NormalInverseGammaIndependent, of the common ones"
        )
    if holders > MOST_HOLDERS:
        raise RequestError(
            f"varying: {holders} holders are more than {MOST_HOLDERS}, the most whose coefficients "
            "may vary; fit some of them, or leave varying out"
        )
    affine = None if job.affine is None else varying.Affine(*job.affine)
    covariates = exact_covariates(job, "exact_varying")
    with job.watched() as options:
        posterior = varying.VaryingPosterior(job.observations, prior, covariates, affine)
        drawn = varying.sample_varying(posterior, **options)
    rows = np.array([seen.n for seen in job.observations], dtype=np.float64)
    return Draws(
        drawn.common,
        drawn.sigma2 @ (rows / rows.sum()),
        drawn.conditional_mean,
        drawn.info._asdict(),
        holders=Holders(
            tuple(name for name, _ in named(job.observations)),
            drawn.theta,
            drawn.sigma2,
            drawn.tau,
            posterior.average,
            varying.SPREAD_SCALE * posterior.unit,
        ),
    )


def _run(job: Job, method: str, *, own_laws: bool) -> Draws:
    """Draw from the collapsed posterior, and compare the Releases with what it would release."""
    from noisewise.analyst.regression.exact import sampler as exact
    from noisewise.analyst.regression.exact.density import CollapsedPosterior
    from noisewise.analyst.regression.exact.independent import IndependentDraws, draw_independent

    more_rows_than_columns(job)
    own_laws = own_laws and len(job.observations) > 1
    seen = added_up(job.observations) if own_laws else job.observations
    given = seen, job.regression_prior, exact_covariates(job, method)
    drawn: IndependentDraws | exact.ExactDraws | None
    with job.watched() as options:
        drawn = None if own_laws else draw_independent(*given, **job.size)
        if drawn is not None:
            collapsed, how = drawn.posterior, _INDEPENDENT.format(drawn.pareto_k)
            stats = {"pareto_k": np.full(drawn.sigma2.shape, drawn.pareto_k)}
        else:
            collapsed = CollapsedPosterior(*given, own_laws=own_laws)
            drawn, how = exact.sample_enough(collapsed, keep_covariates=False, **options)
            stats = drawn.info._asdict()
    points = drawn.x.reshape(-1, drawn.x.shape[-1])
    some = np.linspace(0, len(points) - 1, min(agreement.CHECKED, len(points))).astype(int)
    rng = np.random.default_rng(job.seed)
    theta, sigma2, _, mu, T = collapsed.draw_parameters(rng, points[some])
    agreed = agreement.given_law(seen, theta, sigma2, mu, T)
    if len(seen) < len(job.observations):
        agreed["discrepancies"] = ()  # a holder in a group has no law of its own to contradict
    pull: tuple[float, ...] = ()
    if isinstance(job.regression_prior, ScaleFreePrior):
        pull = prior_pull(collapsed, points, drawn.theta.reshape(len(points), -1))
    return Draws(
        drawn.theta,
        drawn.sigma2,
        drawn.conditional_mean,
        stats,
        prior_pull=pull,
        how=how,
        **agreed,
        predictor_variance=lambda slopes: _predictor_variance(collapsed, points, slopes),
    )


def _predictor_variance(
    collapsed: CollapsedPosterior, points: FloatArray, slopes: FloatArray
) -> FloatArray:
    """`Draws.predictor_variance`, some draws at a time."""
    rows = slopes.reshape(len(points), -1)
    parts = [slice(first, first + _AT_ONCE) for first in range(0, len(points), _AT_ONCE)]
    found = [collapsed.predictor_variance(points[part], rows[part]) for part in parts]
    return np.concatenate(found).reshape(slopes.shape[:-1])


def prior_pull(
    collapsed: CollapsedPosterior, points: FloatArray, theta: FloatArray
) -> tuple[float, ...]:
    """How much the width of each slope's 95% interval changes under a second prior.

    The scale-free prior is flat, towards 0, in the spread that a covariate has beyond the others.
    A second prior as reasonable as that expects more of it: its density is that of the first times
    s_j², the variance of covariate j given the others. Draws are weighted by this. Where the
    Releases know s_j the weights are equal and nothing changes; where noise hides it, the interval
    is the prior's. (A factor 1 - R² on top told less about what other priors change.)

    Parameters
    ----------
    collapsed : CollapsedPosterior
    points : array, shape (draws, ndim)
    theta : array, shape (draws, d)

    Returns
    -------
    tuple of float
        By slope, |w' / w - 1|, w and w' the widths under the prior and the second one.
    """
    weights = np.concatenate(
        [
            collapsed.own_variances(points[first : first + _AT_ONCE])
            for first in range(0, len(points), _AT_ONCE)
        ]
    )
    pull = []
    for weight, slope in zip(weights.T, theta[:, 1:].T, strict=True):
        order = np.argsort(slope)
        widths = [
            float(np.diff(np.interp([0.025, 0.975], np.cumsum(w) / w.sum(), slope[order]))[0])
            for w in (np.ones(len(slope)), weight[order])
        ]
        pull.append(abs(widths[1] / widths[0] - 1.0) if widths[0] > 0.0 else 0.0)
    return tuple(pull)
