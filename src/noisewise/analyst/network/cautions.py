"""What a reader must know before trusting a network posterior, in plain words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noisewise.analyst.common_cautions import BAD_RHAT, ENOUGH_DRAWS, GOOD_RHAT, ONE_CHAIN
from noisewise.analyst.network.layout import Floats
from noisewise.analyst.posterior.network import NetworkPosterior
from noisewise.core.network_content import TableDraws
from noisewise.core.network_release import NetworkRelease

LOOKED_AT = 40  # worst cells whose effective number of draws is computed
LITTLE = 0.8  # of the prior's sd


def split_rhat(draws: Floats) -> Floats:
    """R-hat of half chains for every cell, from draws of shape (chains, draws, cells)."""
    half = draws.shape[1] // 2
    parts = np.concatenate([draws[:, :half], draws[:, -half:]])
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rhat = np.sqrt((half - 1) / half + between / within)
    return np.asarray(np.where(within > 0, rhat, 1.0))


def convergence_warnings(posterior: NetworkPosterior) -> tuple[str, ...]:
    """What the chains say about themselves; empty when all is well."""
    import arviz as az

    if posterior.theta.shape[0] == 1:
        return (ONE_CHAIN,)
    rhat = split_rhat(posterior.theta)
    worst = np.argsort(rhat)[-LOOKED_AT:]
    ess = min(float(az.ess(posterior.theta[:, :, cell])) for cell in worst)
    name, largest = posterior.cell_name(int(worst[-1])), float(rhat[worst[-1]])
    warnings = []
    if largest > BAD_RHAT:
        warnings.append(
            f"the chains disagree on P({name}) (R-hat {largest:.3f}, should be below {GOOD_RHAT}): "
            "run more draws before using these numbers."
        )
    if ess < ENOUGH_DRAWS:
        warnings.append(
            f"only about {ess:.0f} independent draws of some probabilities ({ENOUGH_DRAWS} are "
            "wanted): interval ends are rough; run more draws."
        )
    return tuple(warnings)


def method_warnings(
    posterior: NetworkPosterior, releases: Sequence[NetworkRelease]
) -> tuple[str, ...]:
    """What the method can't tell."""
    content = releases[0].content
    if isinstance(content, TableDraws):
        many = len(content.draws)
        power = f"{float(content.temper):.3g}"
        how = (
            f"from a likelihood raised to the power {power}"
            if content.law == "posterior"
            else f"by scores that count {power} times, from {content.points} values of a split"
        )
        return (
            f"these are the {many} set(s) of tables that were released, drawn {how}, with every "
            f"split at least {content.omega:.3g} away from 0 and 1. They show no more of the "
            "posterior than that: intervals are quantiles of these draws, the prior is the "
            "holder's, and what truncation and tempering changed cannot be undone.",
        )
    if posterior.info.method == "plugin":
        return (
            "the noisy counts were used as if they were true: the privacy noise is ignored, and "
            "intervals are too narrow. Use method='joint'.",
        )
    if posterior.info.method == "exact":
        return (
            "each node was fitted by itself: what other families say about the same variables "
            "was not used. method='joint' uses it.",
        )
    return ()
