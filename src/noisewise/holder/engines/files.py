"""Parquet and CSV files, read as a stream: memory does not grow with the number of rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noisewise.core.errors import DataError
from noisewise.core.schema import Category
from noisewise.holder.engines.base import Result, positions, sealed
from noisewise.holder.engines.batches import batch_rows, sum_batches
from noisewise.holder.engines.csv_text import CheckedCsv, CsvHeader, read_header
from noisewise.holder.plan import Plan, Progress
from noisewise.holder.sums import check_row_count

# What stands for a missing number in a CSV file. In a category only the empty text does (and
# anything that was not declared): "NA" and "None" may well be levels.
MISSING_NUMBERS = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")

_BUFFER_BYTES = 1 << 20


class ParquetSource:
    """A Parquet file, decoded by Arrow."""

    def __init__(self, path: Path, *, workers: int = 1) -> None:
        self._path = path
        self._workers = workers

    @property
    def description(self) -> str:
        """The file's name and the way it is read."""
        return f"{self._path.name} (streaming)"

    def column_names(self) -> list[str]:
        """From the file's schema."""
        with self.open() as file:
            return list(file.schema_arrow.names)

    def row_count(self) -> int | None:
        """From the file's footer."""
        with self.open() as file:
            return int(file.metadata.num_rows)

    def sums(self, plan: Plan[Result], progress: Progress | None = None) -> Result:
        """Sum batch by batch."""
        import pyarrow as pa

        from noisewise.holder.engines.columns import column_readers

        with self.open() as file:
            schema = file.schema_arrow
            indices = positions(schema.names, plan.sources)
            readers = column_readers(plan, [schema.field(index).type for index in indices])
            check_row_count(file.metadata.num_rows)
            batches = _parquet_batches(file, plan)
            return sealed(
                lambda: sum_batches(plan, batches, readers, progress, self._workers),
                self._failure(),
                pa.ArrowException,
                OSError,
            )

    def open(self) -> Any:
        """Open the file, as a `pyarrow.parquet.ParquetFile`; reads its footer only."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        # Arrow would by default fetch whole row groups ahead, and some files have only one.
        return sealed(
            lambda: pq.ParquetFile(self._path, pre_buffer=False, buffer_size=_BUFFER_BYTES),
            self._failure(),
            pa.ArrowException,
            OSError,
        )

    def _failure(self) -> str:
        return (
            f"data: {self._path.name} cannot be read as Parquet; it may be damaged, or of another "
            "kind"
        )


class CsvSource:
    """A CSV file: UTF-8, a header line, commas, double quotes. Parsed by Arrow, types declared."""

    def __init__(self, path: Path, *, workers: int = 1) -> None:
        self._path = path
        self._workers = workers

    @property
    def description(self) -> str:
        """The file's name and the way it is read."""
        return f"{self._path.name} (streaming)"

    def column_names(self) -> list[str]:
        """From the header line."""
        return list(self._header().names)

    def row_count(self) -> int | None:
        """Not known before the file has been read."""
        return None

    def sums(self, plan: Plan[Result], progress: Progress | None = None) -> Result:
        """Sum block by block."""
        import pyarrow as pa

        def read() -> Result:
            from noisewise.holder.engines.columns import column_readers

            with self.arrow(plan) as reader:
                readers = column_readers(plan, reader.schema.types)
                return sum_batches(plan, reader, readers, progress, self._workers)

        return sealed(read, lambda error: self.explain(plan, error), pa.ArrowException, OSError)

    @contextmanager
    def arrow(self, plan: Plan[Any]) -> Iterator[Any]:
        """A stream of record batches with the plan's sources, in order.

        DuckDB reads CSV files through this too. Its own reader accepts a row with a surplus empty
        field, drops blanks round quotes and ignores a tail behind an unclosed quote.
        """
        import pyarrow as pa
        import pyarrow.csv as pa_csv

        header = self._header()
        positions(list(header.names), plan.sources)
        types = _csv_types(plan)
        if header.only:  # Arrow takes a header without a line end for an error
            yield pa.RecordBatchReader.from_batches(pa.schema(types), [])
            return
        with CheckedCsv(self._path) as file:
            try:
                yield pa_csv.open_csv(
                    pa.PythonFile(file, mode="r"),
                    read_options=pa_csv.ReadOptions(block_size=_BUFFER_BYTES),
                    parse_options=pa_csv.ParseOptions(newlines_in_values=True),
                    convert_options=pa_csv.ConvertOptions(
                        include_columns=list(types),
                        column_types=types,
                        null_values=list(MISSING_NUMBERS),
                        strings_can_be_null=False,
                    ),
                )
            except Exception:
                if file.damage is None:
                    raise
                # DuckDB turns the file's error into one of its own.
                raise DataError(file.damage) from None

    def explain(self, plan: Plan[Any], error: Exception) -> str:
        """A message for an error of Arrow's, which itself quotes fields and whole rows."""
        return self._header().explain(self._path.name, plan.sources, error)

    def _header(self) -> CsvHeader:
        return read_header(self._path)


def _parquet_batches(file: Any, plan: Plan[Any]) -> Iterator[Any]:
    # Arrow takes "a.b" for a part of "a", and reads it too if "a" is wanted: hence the `select`.
    wanted = list(plan.sources)
    for batch in file.iter_batches(batch_rows(plan), columns=wanted, use_threads=True):
        yield batch.select(wanted)


def _csv_types(plan: Plan[Any]) -> dict[str, Any]:
    """The Arrow types of the plan's sources: from the schema, never from the data."""
    import pyarrow as pa

    declared = plan.schema.columns
    return {
        name: pa.string() if isinstance(declared[name], Category) else pa.float64()
        for name in plan.sources
    }
