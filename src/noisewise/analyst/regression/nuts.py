"""NUTS: what `exact` and `individual` share, and the engine of `exact`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from operator import attrgetter
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise.core.errors import NoisewiseError, RequestError

NUTPIE = "nutpie>=0.16.8,<=0.16.11"  # as in pyproject.toml
# What `exact` gives to nutpie's private functions. One more, `from_pymc`, takes arguments that
# nutpie hands to `_make_sampler` and gets back unchanged: two in 0.16.8, the last version with
# wheels for Python 3.11, and four since.
_GIVEN = {
    "PyVariable.new_variables": "names item_types shapes dim_sizes dims",
    "LogpFunc": "ptr user_data_ptr keep_alive",
    "ExpandFunc": "dim expanded_dim ptr user_data_ptr keep_alive",
    "PyMcModel": "density expand variables dim dim_sizes coords init_func transform_adapter",
}


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


class _Later(ModuleType):
    """Stands for a module until something of it is used; for annotations that need not be it."""

    InferenceData = object

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def _without(*names: str) -> Iterator[None]:
    """Import nutpie without ArviZ and pandas, which take long and serve what isn't used here.

    nutpie imports them to hand out containers of theirs, and still can: `_Later` fetches them then.
    """
    stand_ins = {name: _Later(name) for name in names if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]


@cache
def nutpie_engine() -> Any:
    """Import nutpie, and check the private interface that takes a density as a C function.

    Its public way to a density of one's own, `from_pyfunc`, calls Python for every gradient: with
    the same draws, a default fit took 5 times the processor's time at d = 3 and 3 times at d = 11.
    """
    try:
        with _without("arviz", "pandas"):
            import nutpie
            from nutpie.compile_pymc import CompiledPyMCModel

        # After self, settings, init_mean and cores.
        handed_on = list(inspect.signature(CompiledPyMCModel._make_sampler).parameters)[4:]
        sampler = " ".join(["settings cores model", *handed_on])
        for name, arguments in {**_GIVEN, "PySampler.from_pymc": sampler}.items():
            found = list(inspect.signature(attrgetter(name)(nutpie._lib)).parameters)
            if found != arguments.split():
                raise TypeError(f"{name} takes {', '.join(found)}")
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise NoisewiseError(
            f"the installed nutpie is not one that noisewise can use ({error}). Install one that "
            f"it can: pip install '{NUTPIE}'"
        ) from error
    return nutpie
