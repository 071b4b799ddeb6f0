"""What `exact` and `individual` share: NUTS, whichever engine runs it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise.core.errors import RequestError


class NutsInfo(NamedTuple):
    """Diagnostics of every draw, arrays of shape (chains, draws)."""

    diverging: NDArray[np.bool_]
    tree_depth: NDArray[np.int64]
    n_steps: NDArray[np.int64]
    step_size: FloatArray
    energy: FloatArray
    logp: FloatArray
    acceptance_rate: FloatArray


def rounding(kinks: int) -> float:
    """Distance at which Laplace kinks are rounded off in the force, in units of the noise scale.

    The force is that of a Huber potential, and the energy that decides stays exact. The two must
    stay close, or good steps are refused: the total mismatch of D kinks grows like
    (D distance³)^(1/2), which sets the distance to 0.8 D^(-1/3).
    """
    return 0.8 * kinks ** (-1.0 / 3.0) if kinks else 0.0


def check_lengths(**numbers: int) -> None:
    """Refuse fewer than one chain, draw or iteration of warm-up."""
    for name, number in numbers.items():
        if number < 1:
            raise RequestError(f"{name} must be at least 1; got {number}")
