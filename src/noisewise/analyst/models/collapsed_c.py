"""The log density and its gradient as a C function, for an engine that knows no Python.

The arrays cross as raw addresses in one table; whoever makes the table keeps them alive.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from noisewise.analyst.models.collapsed_factor import BUFFERS_PER_HOLDER, SHARED_BUFFERS
from noisewise.analyst.models.collapsed_kernels import Arrays, logp_and_gradient
from noisewise.analyst.models.collapsed_prior import SCALARS
from noisewise.analyst.models.compiled import SOURCES

FloatArray = NDArray[np.float64]

_types: Any = types  # Numba's type constructors are not annotated
_TABLE = 19


def _pointer_typed(typingctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(_types.voidptr))

    return _types.voidptr(address), codegen


_pointer: Any = intrinsic(_pointer_typed)  # an integer address as a pointer


# The first entry of a table. A C function refuses a table made by other sources; and because the
# number is a closure's variable, Numba's cache of the function is out of date when it changes.
STAMP = int(SOURCES[:15], 16)


def _density_of(stamp: int) -> Any:
    def logp_c(dim, x_, grad_, logp_, table_):  # type: ignore[no-untyped-def]
        table = carray(table_, (_TABLE,), dtype=np.int64)
        if table[0] != stamp:
            return -1
        J, P, psi = table[1], table[2], table[3]
        buffers = SHARED_BUFFERS + BUFFERS_PER_HOLDER * J
        logp = logp_and_gradient(
            carray(x_, (dim,)),
            carray(grad_, (dim,)),
            carray(_pointer(table[4]), (J,), dtype=np.float64),
            carray(_pointer(table[5]), (J,), dtype=np.bool_),
            carray(_pointer(table[6]), (J, P, P), dtype=np.float64),
            carray(_pointer(table[7]), (J, P, P), dtype=np.float64),
            carray(_pointer(table[8]), (J, P, P), dtype=np.bool_),
            carray(_pointer(table[9]), (J,), dtype=np.bool_),
            carray(_pointer(table[10]), (J, P), dtype=np.bool_),
            carray(_pointer(table[11]), (P - 1, P - 1), dtype=np.float64),
            carray(_pointer(table[12]), (P, P), dtype=np.float64),
            carray(_pointer(table[13]), (psi,), dtype=np.float64),
            carray(_pointer(table[14]), (SCALARS,), dtype=np.float64),
            carray(_pointer(table[15]), (dim,), dtype=np.float64),
            carray(_pointer(table[16]), (dim,), dtype=np.float64),
            carray(_pointer(table[17]), (buffers, P, P), dtype=np.float64),
        )
        carray(logp_, (1,))[0] = logp
        return 0 if logp > -np.inf else 1

    return logp_c


def _record_c(dim, size, x_, out_, table_):  # type: ignore[no-untyped-def]
    x, out = carray(x_, (dim,)), carray(out_, (dim,))
    for i in range(dim):
        out[i] = x[i]
    carray(table_, (_TABLE,), dtype=np.int64)[_TABLE - 1] += 1
    return 0


@cache
def c_density() -> Any:
    """Compiled ``int64 (uint64 dim, double *x, double *gradient, double *logp, void *table)``.

    Returns 0, 1 off the support, or -1 if `table` is not an array from `c_table`.
    """
    double = _types.CPointer(_types.double)
    signature = _types.int64(_types.uint64, double, double, double, _types.voidptr)
    return numba.cfunc(signature, cache=True)(_density_of(STAMP))


@cache
def c_record() -> Any:
    """Compiled ``int64 (uint64 dim, uint64 size, double *x, double *out, void *table)``.

    Copies a draw and counts it, in the last entry of the table.
    """
    double = _types.CPointer(_types.double)
    signature = _types.int64(_types.uint64, _types.uint64, double, double, _types.voidptr)
    return numba.cfunc(signature, cache=True)(_record_c)


def c_table(arrays: Arrays, work: FloatArray) -> NDArray[np.int64]:
    """Stamp, sizes, addresses of the arrays (the caller keeps them alive), counter of draws."""
    for array in (*arrays, work):
        if not array.flags.c_contiguous:
            raise ValueError("the compiled density needs contiguous arrays")
    J, P, _ = arrays.values.shape
    addresses = [array.ctypes.data for array in (*arrays, work)]
    return np.array([STAMP, J, P, arrays.psi_rate.size, *addresses, 0], dtype=np.int64)
