"""Parities of binary digits: the Fourier coefficients of a network's count tables.

A level is written as a binary number (its position among the declared levels), so a record is a
string of bits. A set of bits γ splits the records into those with an even and those with an odd
number of ones in γ; the number of odd ones is the *parity count* Q_γ, and S_γ = n - 2 Q_γ is the
Walsh-Fourier coefficient of the full contingency table, which is never built. For binary nodes
these are the coefficients of Zhang, Rubinstein & Dimitrakakis (2016, section on the Fourier
domain); for more levels the Walsh functions of the digits serve as contrasts.

The table of a family J with b bits follows from the coefficients of its subsets,

    count(a) = 2^-b Σ_{γ ⊆ J} (-1)^|γ ∩ a| S_γ,

so it is enough to know Q_γ for all subsets of all families: the *downward closure*. Families that
overlap share coefficients, so the tables agree about every marginal that they have in common.

(The paper prints the closure of the parents alone; to rebuild a node's table its own bits must
belong to it. With the empty set, naive Bayes on d binary features has the 2d + 2 members that the
paper counts in its experiments.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from noisewise._arrays import FloatArray
from noisewise.core.errors import RequestError
from noisewise.core.kinds.network.graph import Network

MAX_FAMILY_BITS = 16
MAX_PARITIES = 1 << 19

Positions = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Parities:
    """The downward closure of a network's families, in its canonical order.

    The order is: families in the order of `network.nodes`; within a family, its subsets of bits as
    binary numbers in increasing order, with the first parent's digits leading and the node's own
    last; a subset that an earlier family has is not listed again. The empty set is not listed.
    """

    network: Network

    def __post_init__(self) -> None:
        for node in self.network.nodes:
            if self.family_bits(node) > MAX_FAMILY_BITS:
                raise RequestError(
                    f"network: the family of {node!r} has {self.family_bits(node)} binary digits, "
                    f"at most {MAX_FAMILY_BITS} are supported by the fourier mechanism; use the "
                    "laplace mechanism, fewer parents, or fewer levels"
                )
        if sum(1 << self.family_bits(node) for node in self.network.nodes) > 2 * MAX_PARITIES:
            raise RequestError(
                "network: its families have too many parities for the fourier mechanism; use the "
                "laplace mechanism, fewer parents, or fewer levels"
            )

    def bits(self, node: str) -> int:
        """Number of binary digits of a node's levels."""
        return (self.network.arity(node) - 1).bit_length()

    def family_bits(self, node: str) -> int:
        """Number of binary digits of a node and its parents."""
        return sum(self.bits(name) for name in self.network.family(node))

    def padded_shape(self, node: str) -> tuple[int, ...]:
        """Shape of a family's table with every arity raised to a power of two."""
        return tuple(1 << self.bits(name) for name in self.network.family(node))

    def __len__(self) -> int:
        return len(self._closure[0])

    @property
    def sets(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        """Every listed set, as (node, digits) pairs; bit 0 is a level's last binary digit."""
        return self._closure[0]

    def positions(self, node: str) -> Positions:
        """Where a family's 2^b - 1 non-empty subsets are in the list, in the order of binary
        numbers.
        """
        return self._closure[1][node]

    @cached_property
    def _closure(self) -> tuple[tuple[tuple[tuple[str, int], ...], ...], dict[str, Positions]]:
        number = {node: i for i, node in enumerate(self.network.nodes)}
        known: dict[tuple[tuple[str, int], ...], int] = {}
        places: dict[str, Positions] = {}
        for node in self.network.nodes:
            family = self.network.family(node)
            masks = np.unravel_index(
                np.arange(1, 1 << self.family_bits(node)), self.padded_shape(node)
            )
            axes = sorted(range(len(family)), key=lambda axis: number[family[axis]])
            names = [family[axis] for axis in axes]
            columns = [masks[axis].tolist() for axis in axes]
            found = []
            for digits in zip(*columns, strict=True):
                key = tuple((name, d) for name, d in zip(names, digits, strict=True) if d)
                found.append(known.setdefault(key, len(known)))
            places[node] = np.array(found, dtype=np.intp)
        return tuple(known), places

    # -----------------------------------------------------------------------------------------

    def parity_counts(self, node: str, table: Any) -> npt.NDArray[np.int64]:
        """Q_γ for every non-empty subset γ of a family's bits, from its exact count table."""
        counts = np.asarray(table, dtype=np.int64)
        padded = np.zeros(self.padded_shape(node), dtype=np.int64)
        padded[tuple(slice(size) for size in counts.shape)] = counts
        coefficients = walsh_hadamard(padded.ravel())
        odd: npt.NDArray[np.int64] = (coefficients[0] - coefficients[1:]) // 2
        return odd

    def table(self, node: str, total: float, parity_counts: Sequence[float] | Any) -> FloatArray:
        """A family's count table from n and the parity counts of all listed sets.

        `total` is n, or its noisy value.
        """
        odd = np.asarray(parity_counts, dtype=np.float64)[self.positions(node)]
        coefficients = np.concatenate([[total], total - 2 * odd])
        padded = walsh_hadamard(coefficients) / len(coefficients)
        used = tuple(slice(size) for size in self.network.shape(node))
        result: FloatArray = padded.reshape(self.padded_shape(node))[used]
        return result


def walsh_hadamard(values: Any) -> Any:
    """Σ_a (-1)^|γ ∩ a| values[..., a] for every γ along the last axis, whose length is 2^b.

    Integers stay integers, exactly.
    """
    result = np.array(values)
    length = result.shape[-1]
    leading = result.shape[:-1]
    step = 1
    while step < length:
        pairs = result.reshape(*leading, -1, 2, step)
        even, odd = pairs[..., 0, :].copy(), pairs[..., 1, :].copy()
        pairs[..., 0, :] = even + odd
        pairs[..., 1, :] = even - odd
        step *= 2
    return result
