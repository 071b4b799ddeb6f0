"""Gibbs-SS-Noisy: the moments of the covariates are released fourth moments, at face value.

Kept because the paper has it. There is no reason to use it: given the second moments, fourth
moments say nothing about the coefficients, so the budget that pays for them is better spent on the
second moments (measured posterior sd of a slope: .143 with the whole budget on second moments, .204
to .214 with fourth moments), and their noise is ignored (90% intervals cover about 87%).
`gibbs_noisy_aware` models that noise. The sampler is that of `gibbs_prior`.

With many covariates or much noise the plugged-in moments are not those of any law, even after
repair: nearly all draws of the statistics are then impossible, and `Info.exhausted` says so.

The authors' code hands un-noised fourth moments to this sampler; here they come from a Release.

References
----------
Bernstein & Sheldon (2019), Differentially private Bayesian linear regression, NeurIPS, section
3.4.4, arXiv:1910.13153.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers import gibbs_prior as fixed_moments
from noisewise.analyst.regression.papers.gibbs import Draws
from noisewise.analyst.regression.papers.moments import (
    CovariateMoments,
    FourthMomentObservation,
    released_moments,
)
from noisewise.analyst.regression.priors import RegressionPrior


def build_kernel(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    fourth: Sequence[FourthMomentObservation | None],
    **options: Any,
) -> fixed_moments.Kernel:
    """The kernel of `gibbs_prior` with moments from the released sums."""
    return fixed_moments.build_kernel(observations, prior, _plug_in(fourth), **options)


def sample(
    observations: Sequence[Observation],
    prior: RegressionPrior,
    fourth: Sequence[FourthMomentObservation | None],
    **options: Any,
) -> Draws:
    """Draw from the posterior with released fourth moments plugged in (Gibbs-SS-Noisy).

    Parameters
    ----------
    observations : sequence of Observation
        Second moments, one for each holder, over the same columns.
    prior : NIGPrior or NormalInverseGammaIndependent
        For the regression.
    fourth : sequence of FourthMomentObservation or None
        Fourth moments of all holders, or of some of them. They are pooled.
    **options
        As for `gibbs_prior.sample`.

    Returns
    -------
    Draws
    """
    return fixed_moments.sample(observations, prior, _plug_in(fourth), **options)


def _plug_in(fourth: Sequence[FourthMomentObservation | None]) -> CovariateMoments:
    return released_moments([released for released in fourth if released is not None])
