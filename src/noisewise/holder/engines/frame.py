"""Tables in memory: pandas, Polars, Arrow and others, dicts of arrays, NumPy structured arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from noisewise.core.errors import DataError, RequestError
from noisewise.holder.engines.base import Result, positions, sealed
from noisewise.holder.engines.batches import batch_rows, column_readers, sum_batches
from noisewise.holder.rows import Plan, Progress


class FrameSource:
    """A table in memory. Its columns become Arrow arrays for summing, mostly without a copy."""

    def __init__(self, data: Any) -> None:
        table = _named_columns(data)
        if table is None:
            raise RequestError(f"data: a {type(data).__name__} is not a table in memory")
        self._table = table

    @property
    def description(self) -> str:
        return f"{self._table.what} (in memory)"

    def column_names(self) -> list[str]:
        return self._table.names()

    def row_count(self) -> int | None:
        """The table's length, unless it is lazy."""
        return self._table.length()

    def check(self, plan: Plan[Any]) -> None:
        """Nothing: the type of a column in memory may depend on its values."""

    def sums(self, plan: Plan[Result], progress: Progress | None = None) -> Result:
        def read() -> Result:
            with self.arrow(plan) as rows:
                readers = column_readers(plan, rows.schema.types)
                batches = _slices(rows, plan) if isinstance(rows, pa.Table) else rows
                return sum_batches(plan, batches, readers, progress, ahead=False)

        return sealed(read, lambda error: self.explain(plan, error), pa.ArrowException)

    @contextmanager
    def arrow(self, plan: Plan[Any]) -> Iterator[Any]:
        """The plan's sources, in order: a `pyarrow.Table`, or a reader of a lazy table."""
        positions(self.column_names(), plan.sources)
        yield self._table.to_arrow(plan.sources, batch_rows(plan))

    def explain(self, plan: Plan[Any], error: Exception) -> str:
        """A message for an error of Arrow's, which itself quotes values."""
        return "data: a column cannot be converted; use plain numbers, text or true/false values"


def is_frame(data: Any) -> bool:
    """Whether `FrameSource` takes it."""
    return _named_columns(data) is not None


def _slices(table: Any, plan: Plan[Any]) -> Iterator[Any]:
    rows = batch_rows(plan)
    chunks = max(column.num_chunks for column in table.columns)
    if chunks <= 8 + 4 * table.num_rows / rows:
        yield from table.to_reader(max_chunksize=rows)  # cuts where chunks end, copies nothing
        return
    # Many small chunks, as after appending row by row: join them, a slice at a time.
    for start in range(0, table.num_rows, rows):
        yield from table.slice(start, rows).combine_chunks().to_batches()


class _Dict:
    """A mapping from names to sequences, or a NumPy structured array."""

    what = "dict of arrays"

    def __init__(self, columns: Mapping[Any, Any]) -> None:
        self._columns = columns

    def names(self) -> list[str]:
        return list(self._columns)

    def length(self) -> int | None:
        return next((len(c) for c in self._columns.values() if isinstance(c, Sized)), None)

    def to_arrow(self, wanted: tuple[str, ...], rows: int) -> Any:
        arrays = [_converted(name, lambda n=name: _array(self._columns[n])) for name in wanted]
        if len({len(array) for array in arrays}) > 1:
            raise DataError("data: the columns differ in length; give arrays of the same length")
        return pa.Table.from_arrays(arrays, names=list(wanted))


class _Structured(_Dict):
    what = "NumPy structured array"

    def __init__(self, array: Any) -> None:
        super().__init__({name: array[name] for name in array.dtype.names})


class _Frame:
    """Whatever narwhals understands."""

    def __init__(self, native: Any, frame: Any) -> None:
        self.what = f"{type(native).__module__.partition('.')[0]} {type(native).__name__}"
        self._frame = frame

    def names(self) -> list[str]:
        return list(self._frame.collect_schema().names())

    def length(self) -> int | None:
        return len(self._frame) if hasattr(self._frame, "get_column") else None

    def to_arrow(self, wanted: tuple[str, ...], rows: int) -> Any:
        frame = self._frame
        if hasattr(frame, "get_column"):
            return _columns(frame, wanted)
        if not any(_is_pattern(name) for name in wanted):
            frame = frame.select(*wanted)
        parts = _computed(lambda: _parts(frame.to_native(), rows))
        if parts is None:
            return _columns(_computed(frame.collect), wanted)
        return _reader(parts, wanted, frame)


def _parts(lazy: Any, rows: int) -> Iterator[Any] | None:
    """A lazy table in pieces, computed as they are asked for; None if it has no such thing."""
    if hasattr(lazy, "collect_batches"):  # Polars
        return (part for part in lazy.collect_batches(chunk_size=rows, lazy=True))
    if hasattr(lazy, "to_pyarrow_batches"):  # Ibis
        return (pa.table(batch) for batch in lazy.to_pyarrow_batches(chunk_size=rows))
    if hasattr(lazy, "npartitions"):  # Dask
        return (lazy.get_partition(i).compute() for i in range(lazy.npartitions))
    return None


def _reader(parts: Iterator[Any], wanted: tuple[str, ...], frame: Any) -> Any:
    """A reader of their batches, with the types of the first."""
    import narwhals as nw

    def following() -> Any:
        part = _computed(lambda: next(parts, None))
        return None if part is None else _columns(nw.from_native(part, eager_only=True), wanted)

    def batches() -> Iterator[Any]:
        part = first
        while part is not None:
            yield from part.cast(schema).to_batches()
            part = following()

    first = following()
    empty = first is None
    schema = (_columns(_computed(frame.head(0).collect), wanted) if empty else first).schema
    return pa.RecordBatchReader.from_batches(schema, batches())


def _columns(frame: Any, wanted: tuple[str, ...]) -> Any:
    native = frame.to_native()
    if isinstance(native, pa.Table):
        return native.select(list(wanted))  # narwhals would copy what is in several chunks
    columns = [_converted(n, lambda n=n: frame.get_column(n).to_arrow()) for n in wanted]
    return pa.Table.from_arrays(columns, names=list(wanted))


def _computed(compute: Any) -> Any:
    """What a lazy table computes; its errors may quote values."""
    message = "data: the lazy table cannot be computed; collect it before publishing"
    return sealed(compute, message, Exception)


def _named_columns(data: Any) -> _Dict | _Frame | None:
    if isinstance(data, Mapping):
        return _Dict(data)
    if getattr(getattr(data, "dtype", None), "names", None) and getattr(data, "ndim", 0) == 1:
        return _Structured(data)
    import narwhals as nw

    frame = sealed(
        lambda: nw.from_native(data, pass_through=True),
        "data: the table has several columns of the same name; rename or drop all but one",
        Exception,
    )
    return _Frame(data, frame) if isinstance(frame, nw.DataFrame | nw.LazyFrame) else None


def _is_pattern(name: str) -> bool:
    """Whether Polars would take a column's name for a wildcard or a regular expression."""
    return name == "*" or (name.startswith("^") and name.endswith("$"))


def _array(values: Any) -> Any:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if hasattr(values, "__arrow_c_stream__"):  # a Polars series, among others
        return pa.chunked_array(values)
    if isinstance(values, np.ndarray) and not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    return pa.array(values, from_pandas=True)


def _converted(name: str, convert: Any) -> Any:
    return sealed(
        convert,
        f"column {name!r} cannot be converted, perhaps because it mixes types; make it plain "
        "numbers, text or true/false values",
        Exception,
    )
