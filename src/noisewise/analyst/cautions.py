"""What a reader must know before trusting a posterior, in plain words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .model_columns import ModelColumns
from .posterior import Posterior

FloatArray = NDArray[np.float64]
CONTRADICTION = 6.0  # standard deviations beyond which a release contradicts the model


def convergence_warnings(posterior: Posterior) -> tuple[str, ...]:
    """What the diagnostics of the sampler say; empty when all is well."""
    rows = posterior.summary().rows
    worst_rhat = max(
        rows, key=lambda name: -np.inf if np.isnan(rows[name].rhat) else rows[name].rhat
    )
    least_ess = min(rows, key=lambda name: np.inf if np.isnan(rows[name].ess) else rows[name].ess)
    warnings = []
    if rows[worst_rhat].rhat > 1.01:
        warnings.append(
            f"the chains have not agreed yet on {worst_rhat!r} (R-hat "
            f"{rows[worst_rhat].rhat:.3f}, should be below 1.01): don't use these numbers; run "
            "more draws, or method='exact'."
        )
    if rows[least_ess].ess < 400:
        warnings.append(
            f"only about {rows[least_ess].ess:.0f} independent draws of {least_ess!r} (400 are "
            "wanted): interval ends are rough; run more draws."
        )
    diverging = posterior.sample_stats.get("diverging")
    if diverging is not None and np.mean(diverging) > 0.001:
        warnings.append(
            f"{100 * np.mean(diverging):.1f}% of the sampler's steps diverged: parts of the "
            "posterior may be missed; treat the intervals with care."
        )
    return tuple(warnings)


def contradiction_warnings(
    discrepancies: Sequence[FloatArray], columns: ModelColumns
) -> tuple[str, ...]:
    """Releases that the fitted model can't explain, by their worst entry."""
    names = (*columns.names, columns.target)
    warnings = []
    for number, away in enumerate(discrepancies, 1):
        a, b = np.unravel_index(int(np.argmax(np.abs(away))), away.shape)
        if abs(away[a, b]) <= CONTRADICTION:
            continue
        entry = names[b] if a == 0 else f"{names[a]} x {names[b]}"
        warnings.append(
            f"release {number} contradicts the model that fits all releases together: its sum of "
            f"{entry} is {abs(away[a, b]):.0f} standard deviations from what was expected. Check "
            "that all holders measure the same thing in the same units, or fit it alone."
        )
    return tuple(warnings)
