"""Sums over a stream of Arrow record batches, in constant memory.

While one thread sums, another reads ahead (and Arrow decodes on threads of its own). One thread
sums: NumPy's passes over a block take microseconds, and several threads that pass Python's lock to
and fro are slower together than one alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from noisewise.core.schema import Category, Column, Schema
from noisewise.holder.engines.base import (
    Kind,
    Result,
    check_id_kind,
    check_kind,
    level_numbers,
    missing_id_error,
)
from noisewise.holder.rows import Codes, Floats, Plan, Progress, check_row_count
from noisewise.holder.rows.units import bytes_of, in_one_spelling

_BATCH_BYTES = 8 << 20
_MAX_BATCH_ROWS = 1 << 16
_MIN_BATCH_ROWS = 1 << 10


def batch_rows(plan: Plan[Any]) -> int:
    """How many rows to ask for at a time, so that wide tables do not need more memory."""
    rows = _BATCH_BYTES // (8 * len(plan.sources))
    return max(_MIN_BATCH_ROWS, min(_MAX_BATCH_ROWS, rows))


def sum_batches(
    plan: Plan[Result],
    batches: Iterable[Any],
    readers: Sequence[Reader],
    progress: Progress | None = None,
    *,
    ahead: bool = True,
) -> Result:
    """Sum all batches.

    The batches have the plan's sources as columns, in order, and `readers` from `column_readers`,
    one a column. `ahead` reads ahead while summing. To hand batches that are in memory already to
    another thread takes time and gains none.
    """
    accumulator = plan.accumulator()

    def add(batch: Any) -> int:
        accumulator.add([read(column) for read, column in zip(readers, batch.columns, strict=True)])
        return int(batch.num_rows)

    seen = done = 0
    if not ahead:
        for batch in batches:
            check_row_count(done + batch.num_rows)
            done += add(batch)
            if progress is not None:
                progress(done)
        return accumulator.result()
    waiting: deque[Future[int]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="noisewise-sums") as pool:
        for batch in batches:
            seen += batch.num_rows
            check_row_count(seen)
            waiting.append(pool.submit(add, batch))
            if len(waiting) > 2:  # bounds the memory that waiting batches hold
                done += waiting.popleft().result()
                if progress is not None:
                    progress(done)
        while waiting:
            done += waiting.popleft().result()
            if progress is not None:
                progress(done)
    return accumulator.result()


# --- from Arrow columns to the arrays that accumulators take --------------------------------------

# Takes a pyarrow.Array; pyarrow has no type stubs. Ids stay an Arrow array.
Reader = Callable[[Any], Any]


def column_readers(plan: Plan[Any], types: Sequence[Any]) -> list[Reader]:
    """For every source of the plan, a function that turns its Arrow arrays into NumPy's.

    Raises a `DataError` for a type that does not fit the declaration.
    """
    declared, ids = plan.schema.columns, plan.schema.unit_column
    return [
        _id_reader(plan.schema, kind) if name == ids else _reader(name, declared[name], kind)
        for name, kind in zip(plan.sources, types, strict=True)
    ]


def kind_of(kind: Any) -> Kind:
    """Classify an Arrow type."""
    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return kind_of(kind.value_type)
    if types.is_integer(kind) or types.is_floating(kind):
        return Kind.NUMBER
    if types.is_decimal(kind):
        return Kind.DECIMAL
    if types.is_boolean(kind):
        return Kind.TRUTH
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return Kind.TEXT
    if types.is_null(kind):
        return Kind.NOTHING
    return Kind.TIME if types.is_temporal(kind) else Kind.OTHER


def _reader(name: str, column: Column, arrow_type: Any) -> Reader:
    kind = kind_of(arrow_type)
    check_kind(name, column, kind)
    if not isinstance(column, Category):
        return _numbers
    if kind is Kind.TEXT:
        return _codes_of_text(column)
    if kind is Kind.TRUTH:
        return _codes_of_truth(column)
    return _codes_of_numbers(column)


def is_floating(kind: Any) -> bool:
    """Whether an Arrow type is one of floating-point numbers."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return is_floating(kind.value_type)
    return bool(pa.types.is_floating(kind))


def _id_reader(schema: Schema, arrow_type: Any) -> Reader:
    name = schema.unit_column or ""
    check_id_kind(name, kind_of(arrow_type), floating=is_floating(arrow_type))

    def read(array: Any) -> Any:
        """64-bit integers or bytes: equal exactly where the rows are one person's."""
        array = _plain(array)
        if pa.types.is_integer(array.type):
            # The largest unsigned ones become negative, each another.
            kind = pa.uint64() if pa.types.is_unsigned_integer(array.type) else pa.int64()
            array = array.cast(kind).view(pa.int64())
            empty = False
        else:
            array = in_one_spelling(octets_of(array), **spelling_of(schema))
            empty = not np.diff(bytes_of(array)[0]).all()
        if empty or array.null_count:
            raise missing_id_error(name)
        return array

    return read


def spelling_of(schema: Schema) -> dict[str, bool]:
    """Which spellings of ids are one, as `in_one_spelling` takes it."""
    return {"integer": schema.unit_type == "integer", "fold": schema.unit_fold}


def octets_of(texts: Any) -> Any:
    """An Arrow array of texts, or of what has a text, as bytes."""
    return texts.cast(pa.large_string()).cast(pa.large_binary())


def _plain(array: Any) -> Any:
    if pa.types.is_dictionary(array.type):
        return _plain(array.dictionary_decode())
    if pa.types.is_run_end_encoded(array.type):
        return _plain(pc.run_end_decode(array))
    return array


def _in_numpy(array: Any, missing: float) -> Any:
    """As NumPy's, without a copy if nothing is missing.

    Nor does it take long to start: `to_numpy`, `pyarrow.array` and scalars import pandas.
    """
    return np.from_dlpack(pc.fill_null(array, missing) if array.null_count else array)


def _numbers(array: Any) -> Floats:
    """Doubles, NaN where NULL; without a copy where the column already is that."""
    array = _plain(array)
    kind = kind_of(array.type)
    if kind is Kind.DECIMAL:
        # Neither Arrow nor DuckDB always casts to the nearest double; both parse text correctly.
        array = array.cast(pa.string())
    if kind is Kind.TRUTH:
        array = array.cast(pa.uint8())
    if not pa.types.is_float64(array.type):
        # Unsafe, because the safe cast refuses integers beyond 2**53 instead of rounding them.
        array = array.cast(pa.float64(), safe=False)
    return np.asarray(_in_numpy(array, np.nan))


def _codes_of_numbers(column: Category) -> Reader:
    levels = np.array(level_numbers(column))
    order = np.argsort(levels)  # NaN, for levels that are not numbers, comes last and equals none
    ordered = levels[order]

    def read(array: Any) -> Codes:
        values = _numbers(array)
        nearest = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
        return np.asarray(np.where(ordered[nearest] == values, order[nearest], -1).astype(np.int32))

    return read


def _codes_of_truth(column: Category) -> Reader:
    codes = [
        column.levels.index(text) if text in column.levels else -1 for text in ("false", "true")
    ]
    table = np.array([*codes, -1], dtype=np.int32)

    def read(array: Any) -> Codes:
        return np.asarray(table[_in_numpy(_plain(array).cast(pa.int8()), 2)])

    return read


def _codes_of_text(column: Category) -> Reader:
    octets = [level.encode() for level in column.levels]
    ends = np.cumsum([0, *map(len, octets)], dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(octets))]
    levels = pa.Array.from_buffers(pa.large_string(), len(octets), buffers)

    def look_up(array: Any) -> Any:
        if not pa.types.is_large_string(array.type):
            array = array.cast(pa.string())  # views cannot be looked up
        return _in_numpy(pc.index_in(array, value_set=levels.cast(array.type)), -1)

    def read(array: Any) -> Codes:
        if pa.types.is_dictionary(array.type) and kind_of(array.dictionary.type) is Kind.TEXT:
            # Look up the few words of the dictionary, not every row.
            table = np.append(look_up(_plain(array.dictionary)), np.int32(-1))
            return np.asarray(table[_in_numpy(array.indices.cast(pa.int64()), len(table) - 1)])
        return np.asarray(look_up(_plain(array)))

    return read
