"""Estimators in the manner of scikit-learn, for somebody who owns the data and wants the model.

They join both wings: `fit` publishes a Release and forgets the rows, and everything else is learnt
from that Release. Names are loaded on first use. Needs the extra ``sklearn``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noisewise.sklearn.naive_bayes import PrivateNaiveBayes
    from noisewise.sklearn.regression import PrivateBayesianClassifier, PrivateBayesianRegressor

_HOMES = {
    "PrivateBayesianClassifier": "regression",
    "PrivateBayesianRegressor": "regression",
    "PrivateNaiveBayes": "naive_bayes",
}

__all__ = ["PrivateBayesianClassifier", "PrivateBayesianRegressor", "PrivateNaiveBayes"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
