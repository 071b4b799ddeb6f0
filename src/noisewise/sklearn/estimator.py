"""What both estimators have in common: they publish a Release in `fit` and learn from it alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from typing import Any, TypeVar

from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from noisewise.core.errors import NoisewiseError

TARGET = "target"

Result = TypeVar("Result")

# What scikit-learn says about shapes, names and kinds of values without quoting any.
_SAFE = re.compile(
    r"Found (array with|input variables with)|Input (X |y )?contains |X has \d|y should be a 1d|"
    r"y cannot be None|The feature names should match|Feature names |Sparse data was passed|"
    r"Unknown label type: \w+[.]|.* requires y to be passed",
)
# What quotes values, with other words for it.
_REWORDED = {
    "Expected 2D array": "X: expected a 2D array. Reshape your data either using "
    "array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) if it "
    "contains a single sample.",
    "Complex data not supported": "Complex data not supported; give real numbers",
    "float() argument must be": "X, y: every cell as an argument must be a string that reads as "
    "a number, or a number",
}
_OTHERWISE = (
    "X, y: a value cannot be converted; give plain numbers, and levels as text, whole numbers or "
    "true/false values (the value is not shown: a log file is a release too)"
)


class ReleaseEstimator(BaseEstimator):
    """An estimator whose every number comes from a differentially private Release.

    Parameters are written out in each estimator's own constructor, where scikit-learn looks for
    them.
    """

    method: str
    chains: int
    draws: int
    random_state: Any

    def _require_target(self, y: Any) -> None:
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )

    def _inference(self) -> dict[str, Any]:
        """How to infer, as both the check before publishing and the fit after it take it."""
        return {"method": self.method, "chains": self.chains, "draws": self.draws}

    def _seed(self) -> int:
        """The sampler's seed; the privacy noise takes none."""
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _names(self, width: int) -> list[str]:
        """Names of the features that `fit` has seen, or x0, x1, ... if they had none."""
        given = getattr(self, "feature_names_in_", None)
        return [f"x{i}" for i in range(width)] if given is None else [str(name) for name in given]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # the privacy noise is fresh in every fit
        return tags


def without_cells(check: Callable[[], Result]) -> Result:
    """Call a check of scikit-learn's; its error, if it raises one, can't quote a value.

    The new error is of the same kind, and is raised after the handler has been left, so that the
    old one is not attached to it.
    """
    try:
        return check()
    except NoisewiseError:
        raise
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        words = str(error)
        kind = TypeError if isinstance(error, TypeError) else ValueError
    if not _SAFE.match(words):
        words = next((new for old, new in _REWORDED.items() if words.startswith(old)), _OTHERWISE)
    raise kind(words)


def target_name(features: Container[str]) -> str:
    """A name for the target that no feature has."""
    name = TARGET
    while name in features:
        name += "_"
    return name
