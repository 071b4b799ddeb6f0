"""Many holders as a few: Releases with like noise are added up.

A sum of Releases is a Release of all their rows: values add, rows add, variances of the noise add.
The regression of y on x is the same in a group of holders whose people differ; only the law of x is
then a mixture, and `own_laws` asks of it no more than a mean and a covariance. So nothing is wrong
with a posterior given sums, but it knows less than one given every Release: where noise per row
differs, the sum weighs the noisy ones too high. Holders are therefore sorted by the variance of
their noise per row, and neighbours go together. Where means differ, the sum of a group has lost
what they say about the slopes. Putting holders of like released means together would keep more of
it, but their noise would then have decided who is in a group, and sums would be biased.

The sum of m Laplace variables isn't one. It is taken for normal with the same variance (its excess
kurtosis is 3 / m), which is an approximation.

Holders who have published in rounds have coordinates of their own (`Observation.map`), in which the
noise of their entries is independent. The sum is of statistics in the coordinates that all have in
common, A_j = K_j⁻¹ (K_j A_j K_j') K_j⁻ᵀ, where it isn't: then the covariance of the sum's noise is
the sum of the holders' own. People of another mean have more noise there in their sums of squares,
but their rows say as much more about the slopes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import (
    Observation,
    mapped_covariance,
    mapped_variance,
)

MOST_HOLDERS = 50  # that are fitted one by one
MOST_GROUPS = 20
MOST_WITH_ROUNDS = 10  # sums with correlated noise take longer, and lose less
MEMBERS = 10  # of a group with Laplace noise, at least, as far as what holders released allows


def groups_of(observations: Sequence[Observation]) -> list[list[int]]:
    """Which observations are added up; every one by itself where there are few."""
    if len(observations) <= MOST_HOLDERS:
        return [[j] for j in range(len(observations))]
    kinds: dict[bytes, list[int]] = defaultdict(list)  # what is noisy, known and not released
    for j, seen in enumerate(observations):
        kind = (seen.scale > 0).astype(int) + np.isinf(seen.scale)
        kinds[kind.tobytes() + bytes(seen.indicators)].append(j)
    found: list[list[int]] = []
    for members in kinds.values():
        share = len(members) / len(observations)
        least = MEMBERS if any(observations[j].family == "laplace" for j in members) else 1
        with_rounds = any(observations[j].map is not None for j in members)
        most = MOST_WITH_ROUNDS if with_rounds else MOST_GROUPS
        count = max(1, min(round(most * share), len(members) // least))
        noise = [_noise_per_row(observations[j]) for j in members]
        parts = np.array_split(np.array(members)[np.argsort(noise, kind="stable")], count)
        found += [[int(j) for j in part] for part in parts]
    return found


def added_up(observations: Sequence[Observation]) -> list[Observation]:
    """Sums of very many observations; those of few holders as they are."""
    if len(observations) <= MOST_HOLDERS:
        return list(observations)
    return [_sum([observations[j] for j in group]) for group in groups_of(observations)]


def _noise_per_row(observation: Observation) -> float:
    """Variance of the noise of a typical entry; with a map, as if all had a mean in common."""
    noisy = (observation.scale > 0) & np.isfinite(observation.scale)
    variance = np.where(noisy, observation.sd, 0.0) ** 2
    if observation.map is not None:
        scaled = observation.map.copy()
        scaled[1:, 0] = 0.0
        variance = mapped_variance(_inverse(scaled), variance)
    return float(np.median(variance[noisy])) / observation.n


def _inverse(K: FloatArray) -> FloatArray:
    return np.asarray(np.tril(np.linalg.inv(K)), dtype=np.float64)


def _sum(members: Sequence[Observation]) -> Observation:
    first = members[0]
    noisy = (first.scale > 0) & np.isfinite(first.scale)
    same = all(
        seen.map is first.map
        or (seen.map is not None and first.map is not None and np.array_equal(seen.map, first.map))
        for seen in members
    )
    variances = [np.where(noisy, seen.sd, 0.0) ** 2 for seen in members]
    known: dict[str, Any] = {"indicators": first.indicators}
    if same:
        known["map"] = first.map
        values = np.sum([seen.values for seen in members], axis=0)
        variance = np.sum(variances, axis=0)
    else:
        backs = [np.eye(first.k + 2) if o.map is None else _inverse(o.map) for o in members]
        moved = [M @ o.values @ M.T for M, o in zip(backs, members, strict=True)]
        # What is public is of columns that no map changes.
        plain = np.sum([seen.values for seen in members], axis=0)
        values = np.where(noisy, np.sum(moved, axis=0), plain)
        values = (values + values.T) / 2
        known["covariance"] = np.sum(
            [mapped_covariance(M, v) for M, v in zip(backs, variances, strict=True)], axis=0
        )
        variance = np.zeros_like(values)
        a, b = np.tril_indices(len(values))
        variance[a, b] = variance[b, a] = known["covariance"].diagonal()
    scale = np.where(noisy, np.sqrt(variance), first.scale)
    if first.n_is_private:
        found = Observation.with_private_n(values, scale, "gaussian")
    else:
        found = Observation(sum(seen.n for seen in members), values, scale, "gaussian")
    return replace(found, **known)
