"""What a reader must know before trusting a posterior, in plain words."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr, stdtrit

from noisewise._arrays import BoolArray, FloatArray
from noisewise.analyst.common_cautions import (
    BAD_RHAT,
    ENOUGH_DRAWS,
    GOOD_RHAT,
    ONE_CHAIN,
    first_few,
)
from noisewise.analyst.posterior.numbers import median_and_spread
from noisewise.analyst.posterior.regression import Posterior
from noisewise.analyst.regression.agreement import Replication
from noisewise.analyst.regression.observation import ModelColumns
from noisewise.core.design import INTERCEPT

CONTRADICTION = 6.0  # standard deviations beyond which a release contradicts the model
OUTSIDE_FEATURE, OUTSIDE_TARGET = 0.1, 0.05  # shares of the model's people beyond the bounds
MATTERS = 2.0  # spreads by which clipping may move a slope before it is mentioned
PULLED = 0.1  # by how much a second prior may change the width of a slope's interval
WELL_KNOWN = 0.1  # standard deviation of a mean square on unit scale
_ROOT_2PI = math.sqrt(2.0 * math.pi)
PRIOR_SHARE = 0.5  # of the prior's sd: a posterior that is no narrower has learnt little


def convergence_warnings(posterior: Posterior) -> tuple[str, ...]:
    """What the diagnostics of the sampler say; empty when all is well."""
    rows = dict(posterior.summary().rows)
    if posterior.holders is not None:
        for holder, found in posterior.holder_summaries().items():
            rows |= {f"{name} of {holder}": row for name, row in found.rows.items()}
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
            "If they do, the regression itself differs between them: let coefficients vary by "
            "holder (varying=True, --varying)."
            if own_laws
            else "If they do and their people differ, intervals are too narrow: method "
            "exact_own_laws gives each holder's covariates a law of their own. Where it warns "
            "too, the regression itself differs: let coefficients vary by holder (--varying)."
        ),
    )


def bounds_warnings(replications: Sequence[Replication], posterior: Posterior) -> tuple[str, ...]:
    """Columns whose bounds may have cut people off, where that would move a slope.

    Means and products can't tell a bell that was clipped from a column that is crowded at its
    bounds by nature. So nothing is said but where clipping would matter: the slopes of the normal
    law that clipping would have turned into these moments are compared with the fitted ones, in
    units of their spread (`slopes_before_clipping`). How often this is a false or a missed alarm is
    in docs/calibration.md.
    """
    columns = posterior.columns
    used = (*columns.covariates, columns.design.columns[-1])
    widths = np.array([column.half_width for column in used])
    spreads = np.array([median_and_spread(posterior.draws(c.name))[1] for c in columns.covariates])
    units = np.maximum(spreads * widths[:-1] / widths[-1], 1e-300)
    terms = columns.design.terms  # whose bounds follow from those of its columns
    ends = np.array([[c.centre - c.half_width, c.centre + c.half_width] for c in used])
    clips = may_clip(ends)
    clips[[column.is_indicator or column.source in terms for column in used]] = False
    shares: dict[str, float] = {}
    furthest = 0.0
    for found in replications:
        n = max(float(found.expected[0, 0]), 1.0)
        mean = found.expected[0, 1:] / n
        moments = found.expected[1:, 1:] / n - np.outer(mean, mean)
        # Where noise hides a column's spread, what is outside is the prior's doing.
        known = found.spread.diagonal()[1:] < WELL_KNOWN * n
        before, cut = slopes_before_clipping(mean, moments, clips & known[:, None])
        if not cut.any():
            continue
        slopes = np.linalg.solve(moments[:-1, :-1], moments[:-1, -1])
        away = float(np.max(np.abs(before - slopes) / units))
        if away > MATTERS:
            furthest = max(furthest, away)
            for column, share in zip(used, cut, strict=True):
                if share > 0.0:
                    shares[column.name] = max(share, shares.get(column.name, 0.0))
    if not shares:
        return ()
    suspected = first_few([f"{name} ({100 * share:.0f}%)" for name, share in shares.items()])
    return (
        f"if values were clipped at the bounds of {suspected}, slopes before clipping may be up to "
        f"{furthest:.1f} posterior standard deviations from these: a bell-shaped column with such "
        "a mean and spread would have so many people there. Ask the holder whether the bounds "
        "clip. If values only crowd there, as on a scale of a few steps, nothing is wrong.",
    )


def may_clip(ends: FloatArray) -> BoolArray:
    """Which bounds, (columns, 2), may cut values off, and are not where values end by nature.

    Counts, amounts and shares have no values below 0, and scales of a few steps start at 0 or 1.
    """
    clips = ends != 0.0
    clips[:, 0] &= ends[:, 0] != 1.0
    return np.asarray(clips)


def slopes_before_clipping(
    mean: FloatArray, covariance: FloatArray, clips: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Slopes of the normal law of (x, y) that was clipped to [-1, 1] and has these moments since.

    With x normal, q the share of it within the bounds and z any other normal variable,
    Cov(z, clip(x)) = q Cov(z, x) (Stein). If both are clipped, both shares are taken, which leaves
    out terms of third order in the correlation.

    Mean, (k + 1,), and covariance are those of (x, y) on unit scale; `clips`, (k + 1, 2), says
    which of the bounds of each column may clip, the lower one and the upper one.

    Returns the slopes, (k,), and the shares beyond the bounds, (k + 1,), of the columns that were
    taken for clipped, 0 for others: those with few beyond them, and those with more than half,
    which no bell is (a yes/no column, or people crowded at both ends). All 0 if no normal law has
    these moments once clipped.
    """
    k = len(mean) - 1
    inside, variances, cut = np.ones(k + 1), covariance.diagonal().copy(), np.zeros(k + 1)
    for j in range(k + 1):
        low, high = (1.0 if end else np.inf for end in clips[j])
        sd = float(np.sqrt(max(variances[j], 1e-300)))
        share = float(ndtr((-low - mean[j]) / sd) + ndtr((mean[j] - high) / sd))
        if share > (OUTSIDE_TARGET if j == k else OUTSIDE_FEATURE):
            own_sd, share = _normal_before(float(mean[j]), sd, low, high)
            if max(share, _normal_before(float(mean[j]), sd, 1.0, 1.0)[1]) < 0.5:
                inside[j], variances[j], cut[j] = 1.0 - share, own_sd**2, share
    whole = covariance / np.outer(inside, inside)
    np.fill_diagonal(whole, variances)
    if np.linalg.eigvalsh(whole)[0] <= 0.0:
        whole, cut = covariance, np.zeros(k + 1)
    return np.asarray(np.linalg.solve(whole[:-1, :-1], whole[:-1, -1]), dtype=np.float64), cut


def _normal_before(mean: float, sd: float, low: float, high: float) -> tuple[float, float]:
    """Standard deviation of a normal variable that has `mean` and `sd` once it is clipped.

    To [-low, high]. And the share that was clipped; 1 if more than half was. By iteration.
    """
    mu, s = mean, sd
    share = 0.0
    for _ in range(60):
        a, b = (-low - mu) / s, (high - mu) / s
        below, above = float(ndtr(a)), float(ndtr(-b))
        share = below + above
        if share > 0.5:
            return s, 1.0
        heights = [math.exp(-0.5 * z * z) / _ROOT_2PI if math.isfinite(z) else 0.0 for z in (a, b)]
        ends = [(-low, below, a, heights[0]), (high, above, b, -heights[1])]
        first = mu * (1.0 - share) + s * (heights[0] - heights[1])
        second = (mu * mu + s * s) * (1.0 - share)
        for end, mass, z, height in ends:
            if math.isfinite(z):
                first += end * mass
                second += end * end * mass + (2.0 * mu * s + s * s * z) * height
        mu += mean - first
        s *= sd / math.sqrt(max(second - first * first, 1e-300))
    return s, share


def spread_warnings(posterior: Posterior) -> tuple[str, ...]:
    """Coefficients whose spread between holders the prior decides, as `prior_warnings` judges."""
    holders = posterior.holders
    if holders is None:
        return ()
    known = float(stdtrit(4.0, 0.975)) * holders.expected
    found = np.quantile(holders.spread.reshape(-1, len(known)), 0.95, axis=0)
    ruled = [
        name
        for name, end, most in zip(posterior.columns.names, found, known, strict=True)
        if end > PRIOR_SHARE * most
    ]
    if not ruled:
        return ()
    return (
        f"{len(holders.names)} holders say little about how far apart holders are in "
        f"{first_few(ruled)}: the prior of the spread decides, and through it how wide intervals "
        "of the common coefficients are. What single holders have is known better.",
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
