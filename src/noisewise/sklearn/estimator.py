"""What all estimators have in common: they publish a Release in `fit` and learn from it alone."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Container
from fractions import Fraction
from typing import Any, TypeVar

from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from noisewise.core.errors import BudgetError, NoisewiseError, RequestError
from noisewise.core.privacy import as_delta, as_loss
from noisewise.core.temporary import private_folder
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.base import Publishable

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
    "true/false values, with a Category in bounds for each feature that has levels (the value is "
    "not shown: a log file is a release too)"
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


# --- how an estimator publishes its rows: into the holder's ledger, or one of its own -------------


def released(
    request: Publishable[Any],
    table: dict[str, Any],
    ledger: str | os.PathLike[str] | None,
    cap: Any = None,
) -> Any:
    """The Release of these rows.

    Parameters
    ----------
    request : Publishable
    table : dict of str to array
    ledger : path or None
        Without one, the request is paid from a budget of its own, which ends with it.
    cap : number, exact text, or pair of them, optional
        Epsilon, or epsilon and delta: the cap in the ledger, set if there is none.
    """
    price = request.charge()
    if ledger is None:
        if cap is not None:
            raise RequestError("cap: belongs to a ledger, and none is given; give ledger= as well")
        with private_folder() as folder, Ledger(folder / "budget.db") as own:
            own.set_cap(price.dataset, price.epsilon, price.delta)
            return publish(request, table, ledger=own).release
    if not isinstance(ledger, str | os.PathLike):
        raise RequestError(
            f"ledger: expected the path of the budget file, got a {type(ledger).__name__}; clones "
            "of an estimator cannot share an open one"
        )
    with Ledger(ledger) as budget:
        if cap is not None:
            _agree(budget, price.dataset, cap)
        published = publish(request, table, ledger=budget)
    if published.repeated:
        warnings.warn(
            "an equal request had been published before: its stored Release is used at no cost, "
            "and these rows were not read; give a new label if they are new",
            UserWarning,
            stacklevel=3,
        )
    return published.release


def _agree(ledger: Ledger, dataset: str, cap: Any) -> None:
    """Set the cap of a data set that has none; refuse to change one."""
    given = cap if isinstance(cap, tuple | list) else (cap, 0)
    if len(given) != 2:
        raise RequestError("cap: expected epsilon, or a pair of epsilon and delta")
    epsilon, delta = as_loss(given[0], "cap"), as_delta(given[1], "delta of the cap")
    for account in ledger.accounts():
        if account.dataset == dataset and account.cap_epsilon is not None:
            if (account.cap_epsilon, account.cap_delta) != (epsilon, delta):
                raise BudgetError(
                    f"cap: the ledger holds another cap for data set {dataset!r}, epsilon="
                    f"{float(min(account.cap_epsilon, Fraction(10**6))):g} and delta="
                    f"{float(account.cap_delta or 0):g}; leave cap out to keep it, or change it by "
                    "Ledger.set_cap"
                )
            return
    ledger.set_cap(dataset, epsilon, delta)
