"""All mechanisms by the name of their public description."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from noisewise.core.kinds.summary.mechanisms import (
    Additive,
    ClippedMean,
    Fisher,
    RescaledNormal,
    Sign,
    Stouffer,
)
from noisewise.holder.blocks import clipped_mean, fisher, rescaled_normal, sign, stouffer
from noisewise.holder.blocks.grid import Integers
from noisewise.holder.blocks.regressions import Fits

_TERMS: Mapping[type[Any], Callable[[Any, Fits, Mapping[str, int]], Integers]] = {
    Sign: sign.terms,
    Stouffer: stouffer.terms,
    RescaledNormal: rescaled_normal.terms,
    Fisher: fisher.terms,
    ClippedMean: clipped_mean.terms,
}


def exact_values(mechanism: Additive, fits: Fits, positions: Mapping[str, int]) -> tuple[int, ...]:
    """The sums of ψ over all blocks of all partitions, without noise: as private as the rows.

    Terms are clipped once more here, as integers, so that the sensitivity holds whatever a
    mechanism's arithmetic did.
    """
    terms = _TERMS[type(mechanism)](mechanism, fits, positions)
    clipped = np.clip(terms, mechanism.low, mechanism.high)
    return tuple(int(total) for total in clipped.sum(axis=0))
