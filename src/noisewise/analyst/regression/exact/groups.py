"""Many holders as a few: Releases with like noise are added up.

A sum of Releases is a Release of all their rows: values add, rows add, variances of the noise add.
The regression of y on x is the same in a group of holders whose people differ; only the law of x is
then a mixture, and `own_laws` asks of it no more than a mean and a covariance. So nothing is wrong
with a posterior given sums, but it knows less than one given every Release: where noise per row
differs, the sum weighs the noisy ones too high. Holders are therefore sorted by the variance of
their noise per row, and neighbours go together.

The sum of m Laplace variables isn't one. It is taken for normal with the same variance (its excess
kurtosis is 3 / m), which is an approximation whose effect on coverage was not measured.

Sums are of holders who have published in the same coordinates. Those who have published in rounds
have coordinates of their own, in which the noise of their entries is independent: they stay single.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from noisewise.analyst.regression.observation import Observation

MOST_HOLDERS = 50  # that are fitted one by one
MOST_GROUPS = 20
MEMBERS = 10  # of a group, at least, as far as what holders released allows


def grouped(observations: Sequence[Observation]) -> tuple[list[Observation], list[int]]:
    """Sums of the observations, and in which of them each is; those of few holders as they are."""
    if len(observations) <= MOST_HOLDERS:
        return list(observations), list(range(len(observations)))
    # What is noisy, known and not released, and in which coordinates.
    kinds: dict[bytes, list[int]] = defaultdict(list)
    for j, seen in enumerate(observations):
        kind = (seen.scale > 0).astype(int) + np.isinf(seen.scale)
        where = b"" if seen.map is None else seen.map.tobytes()
        kinds[kind.tobytes() + bytes(seen.indicators) + where].append(j)
    sums: list[Observation] = []
    place = [0] * len(observations)
    for members in kinds.values():
        share = len(members) / len(observations)
        count = max(1, min(round(MOST_GROUPS * share), len(members) // MEMBERS))
        noise = [_noise_per_row(observations[j]) for j in members]
        for part in np.array_split(np.array(members)[np.argsort(noise, kind="stable")], count):
            for j in part:
                place[j] = len(sums)
            sums.append(_sum([observations[j] for j in part]))
    return sums, place


def _noise_per_row(observation: Observation) -> float:
    noisy = observation.sd[np.isfinite(observation.sd)]
    return float(np.median(noisy**2)) / observation.n


def _sum(members: Sequence[Observation]) -> Observation:
    values = np.sum([seen.values for seen in members], axis=0)
    scale = np.sqrt(np.sum([seen.sd**2 for seen in members], axis=0))
    if members[0].n_is_private:
        found = Observation.with_private_n(values, scale, "gaussian")
    else:
        found = Observation(sum(seen.n for seen in members), values, scale, "gaussian")
    return replace(found, indicators=members[0].indicators, map=members[0].map)
