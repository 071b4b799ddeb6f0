"""Holders whose regressions contradict each other, found before anything is sampled.

One regression for all is a bad model of holders that differ by far more than sampling and noise
allow: the sampler bends the latent statistics of all of them, takes minutes, and what comes out is
of nobody. So each holder's own coefficients are estimated first, and compared with those of all
others together.

With the noisy Gram matrix A + E of w' = (x', y') in the coordinates in which a holder published it,
and the residual e = r·w' of the regression with coefficients b, the holder's score is

    h = ((A + E) r)_x = Σ x' e + (E r)_x.

At the right b it has mean 0 and, whatever the noise hides, the covariance

    S = Cov(E r)_x + sigma2 A_xx,
    Cov((E r)_a, (E r)_c) = var_ac r_a r_c off the diagonal, Σ_b var_ab r_b² on it.

The others' coefficients b_-j solve their scores together, each weighted by S⁻¹; with the scores'
derivatives J their covariance is V = (Σ J' S⁻¹ J)⁻¹. So the distance of holder j from the rest is

    D² = h_j' (S_j + J_j V J_j')⁻¹ h_j   at b_-j,

chi-squared with as many degrees of freedom as there are coefficients, if all agree. It is said in
standard deviations of a normal law with the same tail, and `CONTRADICTION` of them is too much.
Only holders whose noise is small beside A say what the others' coefficients are, because products
of noise with itself are left out of V; all are judged. With three holders or more the one without
whom the others agree best is named. Errors that aren't normal, and rows that each holder moves
within a reach of its own, make distances a little larger; six standard deviations leave room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, ndtri

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import ModelColumns, Observation
from noisewise.core.errors import ReleaseError

CONTRADICTION = 6.0  # standard deviations
_CLEAR = 2.0  # times the noise, the least eigenvalue of a Gram matrix with little noise
_STEPS = 3  # in which scores are solved


class Holder(NamedTuple):
    """A holder's noisy sums, in the coordinates in which it published them."""

    name: str
    n: int
    gram: FloatArray  # (P, P)
    variance: FloatArray  # (P, P), of its noise
    back: FloatArray  # (P, P), takes (-b, 1) on unit scale to r
    is_clear: bool  # whether noise is small beside all of it


class Score(NamedTuple):
    """h, S and J at some coefficients."""

    h: FloatArray
    S: FloatArray
    J: FloatArray


class Law(NamedTuple):
    """Coefficients on unit scale, and their covariance."""

    b: FloatArray
    V: FloatArray


def check_agreement(
    observations: Sequence[Observation],
    maps: Sequence[FloatArray],
    names: Sequence[str],
    columns: ModelColumns,
) -> None:
    """Refuse holders whose regressions contradict each other, with the culprit if there is one.

    Parameters
    ----------
    observations : sequence of Observation
        Of each holder, in the coordinates in which it published.
    maps : sequence of (P, P) arrays
        To these coordinates from w = (1, x, y) on unit scale.
    names : sequence of str
        What messages call the holders.
    columns : ModelColumns
    """
    holders = [
        _holder(seen, K, name)
        for seen, K, name in zip(observations, maps, names, strict=True)
        if np.isfinite(seen.scale).all()
    ]
    worst = _farthest(holders)
    if worst <= CONTRADICTION:
        return
    if len(holders) == 2:
        first, second = holders
        raise ReleaseError(
            f"{first.name} and {second.name} contradict each other, by {worst:.0f} standard "
            f"deviations{_apart(first, [second], columns)}. Check that both measure the same "
            "things in the same units. If they do, their regressions differ: let coefficients vary "
            "by holder (varying=True, --varying), or fit each alone"
        )
    left = [_farthest([one for one in holders if one is not each]) for each in holders]
    culprit = holders[int(np.argmin(left))]
    others = [one for one in holders if one is not culprit]
    if min(left) > CONTRADICTION or not any(one.is_clear for one in others):
        raise ReleaseError(
            f"these Releases contradict each other, by up to {worst:.0f} standard deviations, and "
            f"not because of a single one ({culprit.name} differs most). Check that all holders "
            "measure the same things in the same units. If they do, their regressions differ: let "
            "coefficients vary by holder (varying=True, --varying)"
        )
    raise ReleaseError(
        f"{culprit.name} contradicts the {len(others)} others, which agree with each other, by "
        f"{_distance(culprit, others):.0f} standard deviations{_apart(culprit, others, columns)}. "
        "Check its units and definitions. Fit the others without it, or, if its regression does "
        "differ, let coefficients vary by holder (varying=True, --varying)"
    )


def _holder(seen: Observation, K: FloatArray, name: str) -> Holder:
    gram: FloatArray = np.asarray((seen.values + seen.values.T) / 2, dtype=np.float64)
    gram[0, 0] = seen.n
    variance: FloatArray = np.asarray(seen.sd**2, dtype=np.float64)
    noise = np.sqrt(len(gram) * np.median(variance[variance > 0.0]))
    sizes, turn = np.linalg.eigh(gram)
    is_clear = bool(sizes[0] > _CLEAR * noise)
    positive: FloatArray = np.asarray((turn * np.maximum(sizes, 0.0)) @ turn.T, dtype=np.float64)
    back: FloatArray = np.asarray(np.linalg.inv(K).T, dtype=np.float64)
    return Holder(name, seen.n, gram if is_clear else positive, variance, back, is_clear)


def _score(holder: Holder, b: FloatArray) -> Score:
    r = holder.back @ np.append(-b, 1.0)
    inner = r[:-1]
    cov = holder.variance[:-1, :-1] * np.outer(inner, inner)
    np.fill_diagonal(cov, holder.variance[:-1] @ r**2)
    sigma2 = max(float(r @ holder.gram @ r) / holder.n, 0.0)
    S = cov + sigma2 * holder.gram[:-1, :-1]
    return Score((holder.gram @ r)[:-1], S, -(holder.gram @ holder.back)[:-1, :-1])


def _together(holders: Sequence[Holder]) -> Law:
    """What several holders say of one regression."""
    whole = np.zeros_like(holders[0].gram)
    for one in holders:
        whole += one.back.T @ one.gram @ one.back
    b: FloatArray = np.asarray(np.linalg.solve(whole[:-1, :-1], whole[:-1, -1]), dtype=np.float64)
    V = np.zeros_like(whole[:-1, :-1])
    for _ in range(_STEPS):
        scores = [_score(one, b) for one in holders]
        known = np.sum([s.J.T @ np.linalg.solve(s.S, s.J) for s in scores], axis=0)
        V = np.asarray(np.linalg.inv(known), dtype=np.float64)
        b = b - V @ np.sum([s.J.T @ np.linalg.solve(s.S, s.h) for s in scores], axis=0)
    return Law(b, V)


def _distance(holder: Holder, others: Sequence[Holder]) -> float:
    """How far a holder is from the clear ones of the others; 0 if there are none."""
    clear = [one for one in others if one.is_clear]
    if not clear:
        return 0.0
    law = _together(clear)
    score = _score(holder, law.b)
    square = score.h @ np.linalg.solve(score.S + score.J @ law.V @ score.J.T, score.h)
    return _in_sds(float(square), len(score.h))


def _farthest(holders: Sequence[Holder]) -> float:
    """How far any of them is from the others."""
    return max(_distance(one, [other for other in holders if other is not one]) for one in holders)


def _in_sds(square: float, degrees: int) -> float:
    """Standard deviations of a normal law with the same probability beyond."""
    beyond = float(chdtrc(degrees, square))
    if beyond < 1e-280:  # far out the two are the same but for a constant
        return float(np.sqrt(square))
    return -float(ndtri(beyond / 2))


def _apart(holder: Holder, others: Sequence[Holder], columns: ModelColumns) -> str:
    """The slope in which it differs most, in original units, where its own can be told."""
    clear = [one for one in others if one.is_clear]
    if not holder.is_clear or not clear:
        return ""
    mine, theirs = _together([holder]), _together(clear)
    away = np.abs(mine.b - theirs.b) / np.sqrt(np.diag(mine.V + theirs.V))
    worst = int(np.argmax(away[1:])) + 1
    own, rest = (columns.theta_to_original(law.b)[worst] for law in (mine, theirs))
    return f": {columns.names[worst]} is {own:.3g} against {rest:.3g}"
