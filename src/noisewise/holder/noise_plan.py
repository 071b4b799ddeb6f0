"""From a claim to the noise of every statistic. Public numbers only."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from noisewise.core.calibration import (
    gaussian_noise_multiplier,
    gaussian_scale,
    zcdp_noise_multiplier,
)
from noisewise.core.composition import satisfies
from noisewise.core.design import Geometry
from noisewise.core.errors import RequestError
from noisewise.core.privacy import Claim
from noisewise.core.statistics import (
    Layout,
    SecondMoments,
    Statistic,
    l1_sensitivity,
    l2_sensitivity,
)
from noisewise.holder.mechanisms.gaussian import GaussianMechanism
from noisewise.holder.mechanisms.laplace import LaplaceMechanism

Shared = Sequence[tuple[Statistic, Fraction]]  # statistics, each with its share of the budget


def plan_laplace(shared: Shared, epsilon: Fraction) -> tuple[LaplaceMechanism, ...]:
    """Pure epsilons add, so each statistic gets its share of epsilon."""
    return tuple(
        LaplaceMechanism(l1_sensitivity(statistic), epsilon * share) for statistic, share in shared
    )


def plan_gaussian(
    shared: Shared, claim: Claim, geometry: Geometry, layout: Layout
) -> tuple[GaussianMechanism, ...]:
    """Squared noise multipliers add up in the denominator, so each gets multiplier/√share.

    The calibration is for continuous noise. The slack of discreteness is tiny, and raising
    the multiplier by one part in 10¹² at a time until the exact events satisfy the claim
    covers it, whatever the number of entries.
    """
    multiplier = _multiplier(claim)
    for _ in range(64):
        planned = tuple(
            _gaussian(statistic, share, multiplier, geometry, layout) for statistic, share in shared
        )
        if satisfies([mechanism.event() for mechanism in planned], claim):
            return planned
        multiplier *= 1 + 1e-12
    raise RequestError(
        f"epsilon: Gaussian noise cannot be certified for {claim}; use the laplace mechanism "
        "or a larger epsilon"
    )


def _multiplier(claim: Claim) -> float:
    if claim.rho is not None:
        return zcdp_noise_multiplier(claim.rho)
    assert claim.epsilon is not None
    return gaussian_noise_multiplier(claim.epsilon, claim.delta)


def _gaussian(
    statistic: Statistic, share: Fraction, multiplier: float, geometry: Geometry, layout: Layout
) -> GaussianMechanism:
    if not isinstance(statistic, SecondMoments):
        layout = "upper"
    sensitivity = l2_sensitivity(statistic, geometry, layout)
    if share != 1:
        # One part in 10¹⁵ covers the rounding of the square root.
        multiplier = multiplier / float(share) ** 0.5 * (1 + 1e-15)
    off_diagonal = tuple(
        layout == "isometric" and entry[0] != entry[1] for entry in statistic.entries
    )
    return GaussianMechanism(sensitivity, gaussian_scale(sensitivity, multiplier), off_diagonal)
