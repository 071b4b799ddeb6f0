"""What a reader must know before trusting a posterior, in plain words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.common_cautions import (
    BAD_RHAT,
    ENOUGH_DRAWS,
    GOOD_RHAT,
    ONE_CHAIN,
    first_few,
)
from noisewise.analyst.model_columns import ModelColumns
from noisewise.analyst.posterior.numbers import median_and_spread
from noisewise.analyst.posterior.regression import Posterior
from noisewise.analyst.regression.agreement import Replication
from noisewise.core.design import INTERCEPT

CONTRADICTION = 6.0  # standard deviations beyond which a release contradicts the model
OUTSIDE_FEATURE, OUTSIDE_TARGET = 0.1, 0.05  # shares of the model's people beyond the bounds
MATTERS = 1.0  # spreads by which clipping may move a slope before it is mentioned
PULLED = 0.1  # by how much a second prior may change the width of a slope's interval
WELL_KNOWN = 0.1  # standard deviation of a mean square on unit scale
PRIOR_SHARE = 0.5  # of the prior's sd: a posterior that is no narrower has learnt little


def convergence_warnings(posterior: Posterior) -> tuple[str, ...]:
    """What the diagnostics of the sampler say; empty when all is well."""
    rows = posterior.summary().rows
    worst_rhat = max(
        rows, key=lambda name: -np.inf if np.isnan(rows[name].rhat) else rows[name].rhat
    )
    least_ess = min(rows, key=lambda name: np.inf if np.isnan(rows[name].ess) else rows[name].ess)
    warnings = []
    chains, exact = posterior.sigma2.shape[0], posterior.info.method.startswith("exact")
    remedy = "run more draws" + ("" if exact else ", or method='exact' where it applies")
    if chains == 1:
        warnings.append(ONE_CHAIN)
    elif rows[worst_rhat].rhat > BAD_RHAT:
        warnings.append(
            f"the chains disagree on {worst_rhat!r} (R-hat {rows[worst_rhat].rhat:.3f}, should be "
            f"below {GOOD_RHAT}): don't use these numbers; {remedy}."
        )
    elif rows[worst_rhat].rhat > GOOD_RHAT:
        warnings.append(
            f"the chains have not quite agreed yet on {worst_rhat!r} (R-hat "
            f"{rows[worst_rhat].rhat:.3f}, should be below {GOOD_RHAT}): {remedy}."
        )
    if rows[least_ess].ess < ENOUGH_DRAWS:
        warnings.append(
            f"only about {rows[least_ess].ess:.0f} independent draws of {least_ess!r} "
            f"({ENOUGH_DRAWS} are wanted): interval ends are rough; {remedy}."
        )
    diverging = posterior.sample_stats.get("diverging")
    if diverging is not None and np.mean(diverging) > 0.001:
        warnings.append(
            f"{100 * np.mean(diverging):.1f}% of the sampler's steps diverged: parts of the "
            "posterior may be missed; treat the intervals with care."
        )
    return tuple(warnings)


def contradiction_warnings(
    discrepancies: Sequence[FloatArray],
    columns: ModelColumns,
    releases: Sequence[str],
    *,
    own_laws: bool = False,
) -> tuple[str, ...]:
    """Releases that the fitted model can't explain, the worst first, each by its worst entry.

    `releases` has what to call each of them, `own_laws` says that each holder's covariates had a
    law of their own. One alone can't contradict itself: the model has as
    many parameters as second moments have entries, and what no rows can have is refused before.
    """
    if len(discrepancies) == 1:
        return ()
    names = (*columns.names, columns.target)
    found = []
    for release, away in zip(releases, discrepancies, strict=False):
        a, b = np.unravel_index(int(np.argmax(np.abs(away))), away.shape)
        if abs(away[a, b]) > CONTRADICTION:
            entry = names[b] if a == 0 else f"{names[a]} x {names[b]}"
            found.append((-abs(away[a, b]), f"{release} by its sum of {entry}"))
    if not found:
        return ()
    found.sort()
    distance = f"{-found[0][0]:.0f} standard deviations from what was expected"
    worst = first_few([text for _, text in found])
    contradict = "contradicts" if len(found) == 1 else "contradict"
    return (
        f"{worst} {contradict} the model that fits all Releases together, at worst {distance}. "
        "Check that all holders measure the same thing in the same units. "
        + (
            "If they do, the regression itself differs between them: fit the holders apart and "
            "compare."
            if own_laws
            else "If they do and their people differ, intervals are too narrow: method "
            "exact_own_laws gives each holder's covariates a law of their own. Where it warns "
            "too, the regression itself differs; fit the holders apart and compare."
        ),
    )


def bounds_warnings(replications: Sequence[Replication], posterior: Posterior) -> tuple[str, ...]:
    """Columns whose bounds cut through the fitted normal law, where that could matter.

    A Release can't tell whether values were clipped, but clipping leaves this trace, and intervals
    for the coefficients of rows as they were before are then too sure (docs/calibration.md). A
    column that is uniform over its bounds has 8% outside, so features are named from 10% on.
    Clipping a share p of a normal target multiplies slopes by about 1 - p, and that of a feature
    changes its own slope by no more than about p: where that is less than the spread of every
    slope, nothing is said.
    """
    columns = posterior.columns
    slopes = {name: median_and_spread(posterior.draws(name)) for name in columns.names[1:]}
    surest = {name: abs(middle) / max(spread, 1e-300) for name, (middle, spread) in slopes.items()}
    surest[columns.target] = max(surest.values(), default=0.0)
    names = [*columns.names, columns.target]
    limits = [OUTSIDE_FEATURE] * (len(names) - 1) + [OUTSIDE_TARGET]
    # A term's bounds follow from those of its columns: nothing is clipped at them.
    terms = columns.design.terms
    skipped = {c.name for c in columns.covariates if c.is_indicator or c.source in terms}
    worst: dict[str, float] = {}
    for found in replications:
        # Where noise hides a column's spread, what is outside is the prior's doing.
        seen = found.spread.diagonal() < WELL_KNOWN * max(float(found.expected[0, 0]), 1.0)
        for name, share, limit, known in zip(names, found.outside, limits, seen, strict=True):
            matters = share * surest.get(name, 0.0) > MATTERS
            if known and share > limit and matters and name not in skipped:
                worst[name] = max(float(share), worst.get(name, 0.0))
    tight = [f"{name} ({100 * share:.0f}%)" for name, share in worst.items()]
    if not tight:
        return ()
    return (
        f"the fitted model puts people beyond the bounds of {first_few(tight)}. If values were "
        "clipped there, coefficients are about clipped values, and intervals are too sure about "
        "the others: ask the holder whether the bounds clip. Where values only crowd at the "
        "bounds, as those of a yes/no column do, nothing is wrong with the coefficients.",
    )


def prior_warnings(posterior: Posterior) -> tuple[str, ...]:
    """Coefficients on which the Releases say little, so that the prior decides.

    Under the scale-free prior, those whose interval a second prior changes
    (`exact.run.prior_pull`); how often this is a false or a missed alarm is in docs/calibration.md.
    Under others, those that are more than half as wide as the prior.
    """
    pulled = [name for name, pull in posterior.info.prior_pull.items() if pull > PULLED]
    if pulled:
        return (
            f"the prior decides on {first_few(pulled)}: the noise hides how much such a feature "
            "varies beyond the others, and another reasonable prior gives another interval. More "
            "people, a larger epsilon or tighter public bounds would tell; so does a prior of your "
            "own that you can defend.",
        )
    ruled = [
        name
        for name, (_, sd) in posterior.info.prior.items()
        if name != INTERCEPT and posterior.draws(name).std() > PRIOR_SHARE * sd
    ]
    if not ruled:
        return ()
    return (
        f"the Releases say little about {first_few(ruled)}: the posterior is more than half as "
        "wide as the prior, which therefore matters. Give a prior that you can defend, and see "
        "what another one changes.",
    )
