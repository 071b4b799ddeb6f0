"""What rows beyond reach may do: from the regression within reach to that of all rows.

Releases in rounds move far rows onto a ball (`holder.reach`), and the posterior is of the
regression of the rows as they counted. Least squares on all rows differs from it by

    A⁻¹ h,   h = Σ x e - Σ x_m e_m,

sums over far rows of covariates times residual, before and after they were moved, A = Σ xx'. What
few far rows do is what privacy hides: nothing that was published tells h. What is known is how many
such rows there may be, and how far out, from the noisy histogram (`core.rounds.tail`): if all of
them agreed about the sign, an entry of h would be about B/√(q(q + 2)) in size, where B is the trace
that the ball has taken. So in the last round's coordinates, where all directions are alike, h is
taken for

    h = s √((a ρ)² + f²) t,   ρ = B / (√(q(q + 2)) s),

with the noise s of an entry, B drawn from its posterior, and t of a multivariate t law. How much
far rows agree (a, and the tails of t) and what the histogram doesn't show (f: rows whose number is
within its noise) are not to be had from a Release. They are constants, learned on tables where all
rows are known (`AGREEMENT`, `UNSEEN`, `DEGREES`; `make battery` says how often the intervals hold,
also on tables that had no part in the choice). This is a statement about tables like those, not one
that holds on every table, as that about the regression within reach does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import Observation
from noisewise.core.kinds.regression import Release
from noisewise.core.statistics.ball_moments import PRODUCT_ONE

AGREEMENT = 0.6  # a: of far rows about one entry of h, in units of complete agreement
UNSEEN = 0.3  # f: times the noise of an entry
DEGREES = 2.0  # of freedom of the t law: few rows agree completely, now and then

_STREAM = 0xFA2  # of random numbers, so that draws of the posterior stay as they are


def steps_to_all_rows(
    releases: Sequence[Release],
    observations: Sequence[Observation],
    maps: Sequence[FloatArray],
    shape: tuple[int, int],
    seed: int | None,
) -> FloatArray:
    """Draws of A⁻¹ h, on unit scale.

    Parameters
    ----------
    releases : sequence of Release
    observations : sequence of Observation
        Of each Release, in its own coordinates w'.
    maps : sequence of (P, P) arrays
        To these coordinates from w = (1, x, y) on unit scale.
    shape : (chains, draws)
    seed : int or None

    Returns
    -------
    (chains, draws, d) array
    """
    rng = np.random.default_rng(None if seed is None else (seed, _STREAM))
    d = len(maps[0]) - 1
    gram, moved = np.zeros((d, d)), np.zeros((*shape, d))
    for release, seen, K in zip(releases, observations, maps, strict=True):
        back = np.linalg.inv(K)
        gram += (back @ _positive(seen) @ back.T)[:-1, :-1]
        rounds, design = release.rounds, release.design
        fitted = None if rounds is None else rounds.fit(design, release.noisy_n)
        if rounds is None or fitted is None:
            continue
        fit, index = fitted
        q, noise = fit.numbers, rounds.last.off_diagonal_scale / PRODUCT_ONE
        rho = fit.excess(index, rng.random(shape)) / (np.sqrt(q * (q + 2)) * noise)
        t = rng.standard_normal((*shape, d))
        t /= np.sqrt(rng.chisquare(DEGREES, shape) / DEGREES)[..., None]
        h = np.hypot(AGREEMENT * rho, UNSEEN)[..., None] * t * seen.scale[:-1, -1]
        moved += h @ back[:-1, :-1].T / K[-1, -1]
    return np.asarray(np.linalg.solve(gram, moved[..., None])[..., 0])


def _positive(seen: Observation) -> FloatArray:
    """The noisy Gram matrix with eigenvalues that drown in noise raised to it."""
    gram = (seen.values + seen.values.T) / 2
    gram[0, 0] = seen.n
    sizes, turn = np.linalg.eigh(gram)
    noise = np.sqrt(len(gram)) * float(np.median(seen.scale))
    return np.asarray((turn * np.maximum(sizes, 0.5 * noise)) @ turn.T)
