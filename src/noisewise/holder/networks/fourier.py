"""Discrete Laplace noise on parity counts: tables that agree about every common marginal."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from noisewise.core.document import MAX_INTEGER
from noisewise.core.kinds.network.graph import Parities, walsh_hadamard
from noisewise.core.kinds.network.release import NoisyParities
from noisewise.holder.networks.counts import FamilyCounts, LaplaceNoise

DEFAULT_STEALTH = 0.9

_LARGEST_TABLE = 1 << 18
_SIMULATED_CELLS = 1 << 24


@dataclass(frozen=True)
class FourierParities(LaplaceNoise):
    """Independent discrete Laplace noise of scale s ≥ Δ/ε on the parity counts Q_γ, γ ∈ N.

    N is the downward closure of the families (`Parities`); n is published exactly where
    it is public, with noise where it is private.

    **Claim.** ε-differential privacy.

    **Proof.** Let x and x' be the bit strings of two records and d = x xor x'. Q_γ counts records
    with an odd number of ones in γ, so replacing x by x' changes it by at most 1, and by 0 if
    |γ ∩ d| is even. The L1 change is at most κ = max_d #{γ ∈ N: |γ ∩ d| odd}, and a pair with that
    d attains it, since every d is the difference of two valid records: if d contains a level's
    leading digit, take the level that is this digit alone and the one that differs from it by d,
    which is smaller; otherwise two levels below it. Adding or removing x changes
    #{γ: |γ ∩ x| odd} ≤ κ counts and n, so Δ = κ + 1. A unit with r records changes r times as much
    at most. The rest is the proof of `LaplaceCounts`. ∎

    The bound |N| of the paper is not attained: no d makes every parity change. For d binary
    features of naive Bayes κ = 2d, where |N| - 1 = 2d + 1.

    References
    ----------
    Barak et al. (2007), "Privacy, accuracy, and consistency too", doi:10.1145/1265530.1265569.
    Zhang, Rubinstein & Dimitrakakis (2016), Algorithm 2, with integer parities.
    """

    # Probability with which no cell is negative once `increment` is added to it
    stealth: float = DEFAULT_STEALTH

    @cached_property
    def parities(self) -> Parities:
        return Parities(self.network)

    @cached_property
    def sensitivity(self) -> int:
        private = not self.network.schema.n_is_public
        return self.network.schema.max_rows_per_unit * (most_changed(self.parities) + private)

    @cached_property
    def increment(self) -> float:
        """What makes every cell non-negative with probability `stealth`, by simulation."""
        return simulated_increment(self.parities, self.scale, self.stealth)

    def describe(self) -> dict[str, Any]:
        return {"parity_counts": len(self.parities), **self._noise()}

    def draw(self, counts: FamilyCounts) -> NoisyParities:
        exact = np.zeros(len(self.parities), dtype=np.int64)
        for node in self.network.nodes:
            positions = self.parities.positions(node)
            exact[positions] = self.parities.parity_counts(node, counts.tables[node])
        values = exact.tolist()
        if not self.network.schema.n_is_public:
            values.insert(0, counts.n)
        return self._content(self._drawn(values))

    def longest(self) -> NoisyParities:
        private = not self.network.schema.n_is_public
        return self._content((-MAX_INTEGER - 1,) * (len(self.parities) + private))

    def _content(self, noisy: tuple[int, ...]) -> NoisyParities:
        return NoisyParities(noisy, self.scale, self.sensitivity, self.increment, self.stealth)


def most_changed(parities: Parities) -> int:
    """κ = max over d of the number of listed sets that have an odd number of bits in common with d.

    Every listed set is counted at the first family that has it, so the number is a sum of one
    function of d for each family, and its maximum is found by eliminating one node after another
    (max-sum). Where a table on the way would be too large, the remaining functions are maximised
    one by one: that is at least the maximum of their sum, so the noise is never too small.
    """
    functions = _odd_functions(parities)
    while True:
        names = {name for axes, _ in functions for name in axes}
        if not names:
            return sum(int(values) for _, values in functions)
        name = min(sorted(names), key=lambda n: _joined_size(parities, functions, n))
        if _joined_size(parities, functions, name) > _LARGEST_TABLE:
            return sum(int(values.max()) for _, values in functions)
        functions = _without(parities, functions, name)


_Function = tuple[tuple[str, ...], npt.NDArray[np.int64]]


def _odd_functions(parities: Parities) -> list[_Function]:
    """For every family, the number of its own sets that are odd, as a table over d.

    Σ_γ [|γ ∩ d| odd] = (m - Σ_γ (-1)^|γ ∩ d|)/2 for m sets: a Walsh-Hadamard transform.
    """
    seen = np.zeros(len(parities), dtype=bool)
    functions: list[_Function] = []
    for node in parities.network.nodes:
        positions = parities.positions(node)
        own = np.concatenate([[0], ~seen[positions]]).astype(np.int64)
        seen[positions] = True
        odd = (own.sum() - walsh_hadamard(own)) // 2
        functions.append((parities.network.family(node), odd.reshape(parities.padded_shape(node))))
    return functions


def _joined_size(parities: Parities, functions: list[_Function], name: str) -> int:
    names = {n for axes, _ in functions if name in axes for n in axes}
    return 1 << sum(parities.bits(n) for n in names)


def _without(parities: Parities, functions: list[_Function], name: str) -> list[_Function]:
    """Add up the functions that know this node, and maximise over its digits."""
    joined = [item for item in functions if name in item[0]]
    axes = (*sorted({n for names, _ in joined for n in names} - {name}), name)
    total = np.zeros([1 << parities.bits(n) for n in axes], dtype=np.int64)
    for names, values in joined:
        order = sorted(range(len(names)), key=lambda i: axes.index(names[i]))
        shape = [1 << parities.bits(n) if n in names else 1 for n in axes]
        total += values.transpose(order).reshape(shape)
    rest = [item for item in functions if name not in item[0]]
    return [*rest, (axes[:-1], total.max(axis=-1))]


def simulated_increment(parities: Parities, scale: float, stealth: float) -> float:
    """The smallest t such that adding t to all cells leaves none negative, for `stealth` of noise.

    Counts are not negative themselves, so it is enough that no cell's noise is below -t, which
    depends on the network and the noise scale alone: it is simulated, from no data. (The paper's
    constant is many times larger.) The order statistic is chosen so that the probability is at
    least `stealth` on average over simulations.

    Drawing noise again until nothing is negative would not do: which noise is kept would depend on
    the counts, and the privacy loss of what is kept is up to 2ε.
    """
    network = parities.network
    private = not network.schema.n_is_public
    cells = sum(1 << parities.family_bits(node) for node in network.nodes)
    draws = max(100, min(1000, _SIMULATED_CELLS // cells))
    lowest = np.zeros(draws)
    for draw in range(draws):
        noise = _public_noise(f"{scale!r} {draw}", len(parities) + 1, scale)
        total = noise[0] if private else 0.0
        for node in network.nodes:
            lowest[draw] = min(lowest[draw], parities.table(node, total, noise[1:]).min())
    place = min(draws - 1, math.ceil(stealth * (draws + 1)) - 1)
    return float(np.sort(-lowest)[place])


def _public_noise(name: str, size: int, scale: float) -> npt.NDArray[np.float64]:
    """Numbers that look like discrete Laplace noise, the same for everybody. They protect nobody.

    A stream of hashes: no random numbers but the published ones are ever near the counts. The
    difference of two geometric numbers is discrete Laplace.
    """
    stream = hashlib.shake_128(name.encode("ascii")).digest(16 * size)
    uniform = (np.frombuffer(stream, dtype="<u8").reshape(2, size) + 0.5) * 2.0**-64
    geometric = np.floor(-scale * np.log(uniform))
    return np.asarray(geometric[0] - geometric[1])
