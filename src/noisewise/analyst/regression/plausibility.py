"""Whether released statistics are possible at all, given the noise they are said to have.

Rows on unit scale lie in the box [-1, 1]^p, indicators in {0, 1} (in means in [0, 1]). So every sum
of products is at most n in size, sums of squares are not negative, and A = Σ ww' is positive
semidefinite. Noise may carry the released numbers beyond those limits, but only so far: each limit
is widened until noise crosses any of them in fewer than one of 10⁹ sound Releases. What lies
farther out was damaged, forged or miscomputed.

The eigenvalue limit is the matrix Laplace transform bound. The noise is E = Σ_{a≤b} ξ_ab M_ab with
M_ab = e_a e_b' + e_b e_a' (e_a e_a' on the diagonal) and M_ab² the projection on coordinates a and
b, so that log E[exp(θ ξ_ab M_ab)] ≤ g_ab(θ) M_ab² where g = θ²s²/2 for the normal law and
θ²s²/(1 - θ²s²) for Laplace's, s the scale. Therefore P(λ_min(E) ≤ -t) ≤ P exp(v(θ) - θt) for every
θ, where v(θ) = max_a Σ_b g_ab(θ).

References
----------
Tropp (2012), User-friendly tail bounds for sums of random matrices, Foundations of Computational
Mathematics 12, doi:10.1007/s10208-011-9099-z, theorem 3.6.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import NormalDist

import numpy as np

from noisewise._arrays import BoolArray, FloatArray
from noisewise.analyst.regression.observation import Observation
from noisewise.core.design import MAX_ROWS

FALSE_ALARMS = 1e-9  # chance that a sound Release is called impossible, at most
_SHOWN = 5
_ROUNDING = 1e-9  # of double precision, relative


@np.errstate(over="ignore")  # forged numbers may be as large as they like
def impossible_statistics(
    observation: Observation,
    names: Sequence[str] | None = None,
    indicators: Collection[int] = (),
    *,
    shares: bool = False,
) -> tuple[str, ...]:
    """Say in plain words what rows in the unit box and the stated noise cannot explain.

    The rows were clipped to their public bounds. `names` are those of w = (1, x, y), the constant
    first, and `indicators` the positions in w of columns that are 0 or 1, or with `shares` anything
    between, because rows are means. Returns one phrase for each finding, the gravest first.
    """
    P = observation.k + 2
    names = ["1", *(f"x{i}" for i in range(1, P - 1)), "y"] if names is None else list(names)
    chance = FALSE_ALARMS / (P * (P + 1) + 2)  # two sides of each entry, and two other checks
    reach = _reach(observation, chance)
    found = _entries(observation, reach, names, sorted(indicators), shares)
    if len(found) > _SHOWN:
        found = [*found[:_SHOWN], f"{len(found) - _SHOWN} more sums are impossible like these"]
    return (
        *_number_of_rows(observation, float(reach[0, 0])),
        *found,
        *_eigenvalues(observation, chance, names),
    )


def _reach(observation: Observation, chance: float) -> FloatArray:
    """How far noise carries an entry to one side with probability `chance`; inf if unreleased."""
    if observation.family == "laplace":
        return observation.scale * math.log(0.5 / chance)
    return observation.scale * -NormalDist().inv_cdf(chance)


def _number_of_rows(observation: Observation, reach: float) -> list[str]:
    n = float(observation.values[0, 0])
    if n < 1.0 - reach:
        return [f"the number of rows is {n:,.6g}; noise explains at most {reach:.3g} of that"]
    if n > MAX_ROWS + reach:
        return [f"the number of rows is {n:,.6g}, more than a Release can hold ({MAX_ROWS:,})"]
    return []


def _entries(
    observation: Observation,
    reach: FloatArray,
    names: Sequence[str],
    indicators: Sequence[int],
    shares: bool,
) -> list[str]:
    """Sums beyond the box, the farthest in units of the noise first."""
    P = observation.k + 2
    values, n = observation.values, max(float(observation.values[0, 0]), 1.0)
    positive = np.eye(P, dtype=np.bool_)
    for a in indicators:
        positive[0, a] = True
        positive[a, list(indicators)] = True
    room = reach + reach[0, 0] + _ROUNDING * n
    above = values - n - room
    below = -values - np.where(positive, reach + _ROUNDING * n, n + room)
    excess = np.maximum(above, below)
    excess[0, 0] = -1.0
    findings: list[tuple[float, str]] = []
    for a, b in zip(*np.nonzero(np.triu(excess > 0)), strict=True):
        low = 0 if positive[a, b] else -n
        text = (
            f"{_sum_name(names, a, b)} is {values[a, b]:,.6g}; about {n:,.6g} rows allow "
            f"{low:,.6g} to {n:,.6g}, and noise explains at most {room[a, b]:.3g} more"
        )
        findings.append((float(excess[a, b] / room[a, b]), text))
    for a in () if shares else indicators:
        gap = abs(float(values[0, a] - values[a, a]))
        allowed = float(reach[0, a] + reach[a, a]) + _ROUNDING * n
        text = (
            f"the sum and the sum of squares of {names[a]!r}, which is 0 or 1, differ by "
            f"{gap:,.6g}; noise explains at most {allowed:.3g}"
        )
        if gap > allowed:
            findings.append((gap / allowed - 1.0, text))
    return [text for _, text in sorted(findings, key=lambda item: -item[0])]


def _sum_name(names: Sequence[str], a: int, b: int) -> str:
    if a == 0:
        return f"the sum of {names[b]!r} (unit scale)"
    if a == b:
        return f"the sum of squares of {names[a]!r} (unit scale)"
    return f"the sum of products of {names[a]!r} and {names[b]!r} (unit scale)"


def _eigenvalues(observation: Observation, chance: float, names: Sequence[str]) -> list[str]:
    """The most negative eigenvalue, if noise cannot have made it."""
    there = _fully_released(np.isfinite(observation.scale))
    values = observation.values[np.ix_(there, there)]
    size = float(np.abs(values).max())
    eigenvalues, vectors = np.linalg.eigh(values / size)
    lowest = float(eigenvalues[0]) * size
    limit = _lowest_eigenvalue_of_noise(
        observation.scale[np.ix_(there, there)], observation.family == "laplace", chance
    )
    if -lowest <= limit + _ROUNDING * len(there) * size:
        return []
    strongest = np.argsort(-np.abs(vectors[:, 0]))[:2]
    which = " and ".join(repr(names[there[i]]) for i in sorted(strongest))
    return [
        "the sums contradict each other, like a correlation beyond 1 (mostly those of "
        f"{which}): the matrix of second moments has the eigenvalue {lowest:,.6g}, and noise "
        f"explains at most {-limit:.3g}"
    ]


def _fully_released(observed: BoolArray) -> list[int]:
    """Columns all of whose products were released, leaving out the worst first."""
    there = list(range(len(observed)))
    while True:
        missing = (~observed[np.ix_(there, there)]).sum(axis=0)
        if not missing.any():
            return there
        there.pop(int(np.argmax(missing)))


def _lowest_eigenvalue_of_noise(scale: FloatArray, laplace: bool, chance: float) -> float:
    """t such that the noise has an eigenvalue below -t with at most this probability."""
    largest = float(scale.max())
    if largest == 0.0:
        return 0.0
    squares = (scale / largest) ** 2
    odds = math.log(len(scale) / chance)
    if not laplace:
        return largest * math.sqrt(2.0 * odds * float(squares.sum(axis=1).max()))
    theta = np.linspace(0.02, 0.98, 193)
    grown = theta[:, None, None] ** 2 * squares
    v = (grown / (1.0 - grown)).sum(axis=2).max(axis=1)
    return largest * float(((odds + v) / theta).min())
