"""The log density and its gradient as a C function, for an engine that knows no Python.

The engine sees the coordinates y of `pooling`; what it records are those of
`kernels`. The arrays cross as raw addresses in one table; whoever makes the table keeps
them alive.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from noisewise._arrays import FloatArray, IntArray
from noisewise._compiled import compiled, sources_digest
from noisewise.analyst.regression.exact.factor import BUFFERS_PER_HOLDER, SHARED_BUFFERS
from noisewise.analyst.regression.exact.kernels import Arrays, logp_and_gradient
from noisewise.analyst.regression.exact.pooling import Pooling, from_pooled, gradient_to_pooled
from noisewise.analyst.regression.exact.prior import SCALARS

_types: Any = types  # Numba's type constructors are not annotated
C_TABLE = 37


def _pointer_typed(typingctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(_types.voidptr))

    return _types.voidptr(address), codegen


pointer: Any = intrinsic(_pointer_typed)  # an integer address as a pointer


# The first entry of a table. A C function refuses a table made by other sources; and because the
# number is a closure's variable, Numba's cache of the function is out of date when it changes.
STAMP = int(sources_digest(Path(__file__))[:15], 16)


@compiled
def from_table(y: FloatArray, x: FloatArray, table: IntArray) -> Any:
    """`from_pooled` with the map whose addresses are in the table."""
    size = table[4]
    from_pooled(
        y,
        x,
        carray(pointer(table[28]), (size,), dtype=np.int64),
        carray(pointer(table[29]), (size,), dtype=np.int64),
        carray(pointer(table[30]), (size,), dtype=np.int64),
        carray(pointer(table[31]), (size,), dtype=np.float64),
        carray(pointer(table[32]), (size,), dtype=np.float64),
        carray(pointer(table[33]), (size,), dtype=np.float64),
        carray(pointer(table[34]), (table[5],), dtype=np.float64),
    )


def _density_of(stamp: int) -> Any:
    def logp_c(dim: int, x_: Any, grad_: Any, logp_: Any, table_: Any) -> Any:
        table = carray(table_, (C_TABLE,), dtype=np.int64)
        if table[0] != stamp:
            return -1
        J, P, psi = table[1], table[2], table[3]
        entries = P * (P + 1) // 2
        buffers = SHARED_BUFFERS + BUFFERS_PER_HOLDER * J
        x, grad = carray(pointer(table[35]), (dim,), dtype=np.float64), carray(grad_, (dim,))
        from_table(carray(x_, (dim,)), x, table)
        logp = logp_and_gradient(
            x,
            grad,
            carray(pointer(table[10]), (J,), dtype=np.float64),
            carray(pointer(table[11]), (J,), dtype=np.bool_),
            carray(pointer(table[12]), (J, P, P), dtype=np.float64),
            carray(pointer(table[13]), (J, P, P), dtype=np.float64),
            carray(pointer(table[14]), (J, P, P), dtype=np.int64),
            carray(pointer(table[15]), (J,), dtype=np.int64),
            carray(pointer(table[16]), (J, P), dtype=np.bool_),
            carray(pointer(table[17]), (P - 1, P - 1), dtype=np.float64),
            carray(pointer(table[18]), (P, P), dtype=np.float64),
            carray(pointer(table[19]), (psi,), dtype=np.float64),
            carray(pointer(table[20]), (SCALARS,), dtype=np.float64),
            carray(pointer(table[21]), (2, table[6]), dtype=np.float64),
            carray(pointer(table[22]), (3, table[7]), dtype=np.float64),
            carray(pointer(table[23]), (dim,), dtype=np.float64),
            carray(pointer(table[24]), (dim,), dtype=np.float64),
            carray(pointer(table[25]), (table[8], P, P), dtype=np.float64),
            carray(pointer(table[26]), (table[9], entries, entries), dtype=np.float64),
            carray(pointer(table[27]), (buffers, P, P), dtype=np.float64),
        )
        size = table[4]
        if size > 0:
            gradient_to_pooled(
                grad,
                carray(pointer(table[28]), (size,), dtype=np.int64),
                carray(pointer(table[29]), (size,), dtype=np.int64),
                carray(pointer(table[30]), (size,), dtype=np.int64),
                carray(pointer(table[31]), (size,), dtype=np.float64),
                carray(pointer(table[32]), (size,), dtype=np.float64),
                carray(pointer(table[33]), (size,), dtype=np.float64),
                carray(pointer(table[34]), (table[5],), dtype=np.float64),
            )
        carray(logp_, (1,))[0] = logp
        return 0 if logp > -np.inf else 1

    return logp_c


def _record_of(stamp: int) -> Any:
    def record_c(dim: int, size: Any, y_: Any, out_: Any, table_: Any) -> Any:
        table = carray(table_, (C_TABLE,), dtype=np.int64)
        if table[0] != stamp:
            return -1
        from_table(carray(y_, (dim,)), carray(out_, (dim,)), table)
        table[C_TABLE - 1] += 1
        return 0

    return record_c


@cache
def c_density() -> Any:
    """Compiled ``int64 (uint64 dim, double *y, double *gradient, double *logp, void *table)``.

    Returns 0, 1 off the support, or -1 if `table` is not an array from `c_table`.
    """
    double = _types.CPointer(_types.double)
    signature = _types.int64(_types.uint64, double, double, double, _types.voidptr)
    return numba.cfunc(signature, cache=True)(_density_of(STAMP))


@cache
def c_record() -> Any:
    """Compiled ``int64 (uint64 dim, uint64 size, double *y, double *out, void *table)``.

    Writes a draw down as x and counts it, in the last entry of the table.
    """
    double = _types.CPointer(_types.double)
    signature = _types.int64(_types.uint64, _types.uint64, double, double, _types.voidptr)
    return numba.cfunc(signature, cache=True)(_record_of(STAMP))


def c_table(arrays: Arrays, work: FloatArray, pooled: Pooling, x: FloatArray) -> NDArray[np.int64]:
    """Stamp, sizes, addresses of the arrays (the caller keeps them alive), counter of draws.

    `work` and `x`, of one number for each coordinate, are scratch space of one thread.
    """
    given = (*arrays, work, *pooled, x)
    for array in given:
        if not array.flags.c_contiguous:
            raise ValueError("the compiled density needs contiguous arrays")
    J, P, _ = arrays.values.shape
    nodes = arrays.sigma_nodes.shape[1], arrays.omega_nodes.shape[1]
    held = len(arrays.maps), len(arrays.whiteners)
    sizes = J, P, arrays.psi_rate.size, pooled.place.size, pooled.sums.size, *nodes, *held
    return np.array([STAMP, *sizes, *(array.ctypes.data for array in given), 0], dtype=np.int64)
