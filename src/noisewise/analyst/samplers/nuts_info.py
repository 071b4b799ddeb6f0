"""What NUTS says about its draws, whichever engine runs it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class NutsInfo(NamedTuple):
    """Diagnostics of every draw, arrays of shape (chains, draws)."""

    diverging: NDArray[np.bool_]
    tree_depth: NDArray[np.int64]
    n_steps: NDArray[np.int64]
    step_size: FloatArray
    energy: FloatArray
    logp: FloatArray
    acceptance_rate: FloatArray
