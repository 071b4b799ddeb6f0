"""Checks of arguments that many functions take."""

from __future__ import annotations

import operator
from typing import Any

from noisewise.core.errors import RequestError

MAX_SEED = 2**63 - 1


def whole_number(name: str, value: Any, low: int, high: int) -> int:
    """The value as an int between the limits; NumPy's integers are welcome."""
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if isinstance(value, bool) or not low <= number <= high:
        raise RequestError(f"{name}: expected a whole number from {low} to {high}, got {value!r}")
    return number


def chains_and_draws(chains: Any, draws: Any, most_draws: int) -> tuple[int, int]:
    """How many chains, and draws of each; four draws are the fewest that R-hat is defined for."""
    return whole_number("chains", chains, 1, 1000), whole_number("draws", draws, 4, most_draws)


def seed_or_none(value: Any) -> int | None:
    """A seed, or None for a random one."""
    return None if value is None else whole_number("seed", value, 0, MAX_SEED)


def probability(name: str, value: Any) -> float:
    """A level such as 0.95; 95 and 95% are not meant."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise RequestError(f"{name}: expected a probability such as 0.95, got {value!r}")
    return float(value)
