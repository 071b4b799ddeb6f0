"""From the bounds that an estimator is given to a public schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Column, Number


def declared_columns(bounds: Any, names: Sequence[str]) -> dict[str, Column]:
    """What is public about every feature.

    Parameters
    ----------
    bounds : pair, sequence of pairs, or mapping of name to pair, Number or Category
        One pair (lower, upper) holds for all features.
    names : sequence of str
        Names of the features, in order.
    """
    if bounds is None:
        raise RequestError(
            "bounds: none given; say what is publicly known, such as bounds={'age': (18, 90)} or "
            "[(18, 90), ...]. They are never taken from the data: a maximum is somebody's value"
        )
    if isinstance(bounds, Mapping):
        missing = [name for name in names if name not in bounds]
        if missing:
            raise RequestError(
                f"bounds: there are none for {missing[0]!r}; the features are {', '.join(names)}"
            )
        unknown = [name for name in bounds if name not in names]
        if unknown:
            raise RequestError(
                f"bounds: {unknown[0]!r} is not a feature; the features are {', '.join(names)}"
            )
        return {name: column_of(bounds[name], f"bounds of {name!r}") for name in names}
    if _is_pair(bounds):
        return dict.fromkeys(names, column_of(bounds, "bounds"))
    if isinstance(bounds, str) or not isinstance(bounds, Sequence | np.ndarray):
        raise RequestError(f"bounds: expected pairs (lower, upper) or a mapping, got {bounds!r}")
    if len(bounds) != len(names):
        raise RequestError(
            f"bounds: {len(bounds)} given for {len(names)} features; give a pair for each"
        )
    return {
        name: column_of(given, f"bounds of {name!r}")
        for name, given in zip(names, bounds, strict=True)
    }


def column_of(given: Any, where: str) -> Column:
    """One column's declaration, from a pair or as it is."""
    if isinstance(given, Number | Category):
        return given
    if not _is_pair(given):
        raise RequestError(f"{where}: expected a pair (lower, upper), got {given!r}")
    return Number(float(given[0]), float(given[1]))


def _is_pair(given: Any) -> bool:
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence | np.ndarray):
        return False
    numbers = (int, float, np.integer, np.floating)
    return len(given) == 2 and all(
        isinstance(end, numbers) and not isinstance(end, bool) for end in given
    )
