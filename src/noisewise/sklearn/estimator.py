"""What both estimators have in common: they publish a Release in `fit` and learn from it alone."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

TARGET = "target"


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


def target_name(features: Container[str]) -> str:
    """A name for the target that no feature has."""
    name = TARGET
    while name in features:
        name += "_"
    return name
