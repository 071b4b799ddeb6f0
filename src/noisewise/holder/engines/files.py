"""Parquet and CSV files, read as a stream: memory does not grow with the number of rows."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from noisewise.core.errors import DataError
from noisewise.core.schema import Category
from noisewise.holder.engines.base import Result, check_id_kind, positions, sealed
from noisewise.holder.engines.batches import (
    batch_rows,
    column_readers,
    is_floating,
    kind_of,
    sum_batches,
)
from noisewise.holder.rows import Plan, Progress, check_row_count

# What stands for a missing number in a CSV file. In a category only the empty text does (and
# anything that was not declared): "NA" and "None" may well be levels.
MISSING_NUMBERS = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")

_BUFFER_BYTES = 1 << 20


class _FileSource:
    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def description(self) -> str:
        return f"{self._path.name} (streaming)"


class ParquetSource(_FileSource):
    """A Parquet file, decoded by Arrow."""

    def column_names(self) -> list[str]:
        with self.open() as file:
            return list(file.schema_arrow.names)

    def row_count(self) -> int | None:
        with self.open() as file:
            return int(file.metadata.num_rows)

    def check(self, plan: Plan[Any]) -> None:
        """Ids by the file's schema."""
        name = plan.schema.unit_column
        if name is None:
            return
        with self.open() as file:
            schema = file.schema_arrow
        (index,) = positions(schema.names, (name,))
        kind = schema.field(index).type
        # Whole numbers become floating where one is missing: that is told after the charge.
        if not is_floating(kind):
            check_id_kind(name, kind_of(kind), floating=False)

    def sums(self, plan: Plan[Result], progress: Progress | None = None) -> Result:
        with self.open() as file:
            schema = file.schema_arrow
            indices = positions(schema.names, plan.sources)
            readers = column_readers(plan, [schema.field(index).type for index in indices])
            check_row_count(file.metadata.num_rows)
            # Arrow takes "a.b" for a part of "a", and reads it too if "a" is wanted.
            wanted = list(plan.sources)
            # Putting rows of people together keeps the other core busy.
            threads = plan.schema.unit_column is None
            read = file.iter_batches(batch_rows(plan), columns=wanted, use_threads=threads)
            batches = (batch.select(wanted) for batch in read)
            return self._sealed(lambda: sum_batches(plan, batches, readers, progress))

    def open(self) -> Any:
        """Open the file, as a `pyarrow.parquet.ParquetFile`; reads its footer only."""
        import pyarrow.parquet as pq

        # Arrow would by default fetch whole row groups ahead, and some files have only one.
        options = {"pre_buffer": False, "buffer_size": _BUFFER_BYTES}
        if "binary_type" in signature(pq.ParquetFile).parameters:  # as old pyarrows don't have it
            options["binary_type"] = pa.large_binary()  # text, too: it takes less time
        return self._sealed(lambda: pq.ParquetFile(self._path, **options))

    def _sealed(self, call: Callable[[], Result]) -> Result:
        failure = (
            f"data: {self._path.name} cannot be read as Parquet; it may be damaged, or of another "
            "kind"
        )
        return sealed(call, failure, pa.ArrowException, OSError)


class CsvSource(_FileSource):
    """A CSV file: UTF-8, a header line, commas, double quotes. Parsed by Arrow, types declared."""

    def column_names(self) -> list[str]:
        return list(read_header(self._path).names)

    def row_count(self) -> int | None:
        """Not known before the file has been read."""
        return None

    def check(self, plan: Plan[Any]) -> None:
        """Nothing: any text can be an id."""

    def sums(self, plan: Plan[Result], progress: Progress | None = None) -> Result:
        def read() -> Result:
            with self.arrow(plan) as reader:
                readers = column_readers(plan, reader.schema.types)
                return sum_batches(plan, reader, readers, progress)

        return sealed(read, lambda error: self.explain(plan, error), pa.ArrowException, OSError)

    @contextmanager
    def arrow(self, plan: Plan[Any]) -> Iterator[Any]:
        """A stream of record batches with the plan's sources, in order.

        DuckDB reads CSV files through this too. Its own reader accepts a row with a surplus empty
        field, drops blanks round quotes and ignores a tail behind an unclosed quote.
        """
        header = read_header(self._path)
        positions(list(header.names), plan.sources)
        types = _csv_types(plan)
        if header.only:  # Arrow takes a header without a line end for an error
            yield pa.RecordBatchReader.from_batches(pa.schema(types), [])
            return
        with CheckedCsv(self._path) as file:
            try:
                reader = pa_csv.open_csv(
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
                yield _with_missing_ids(reader, plan.schema.unit_column)
            except Exception:
                if file.damage is None:
                    raise
                # DuckDB turns the file's error into one of its own.
                raise DataError(file.damage) from None

    def explain(self, plan: Plan[Any], error: Exception) -> str:
        """A message for an error of Arrow's, which itself quotes fields and whole rows."""
        names = read_header(self._path).names
        place = re.match(r"In CSV column #(\d+):", str(error))
        name = names[int(place[1])] if place and int(place[1]) < len(names) else None
        if name in plan.sources:
            return (
                f"column {name!r} has fields that are not numbers; correct them, leave them empty "
                "where the value is missing, or declare the column as a category"
            )
        return (
            f"data: {self._path.name} is not a well-formed CSV file; every row needs as many "
            "fields as the header, and fields with commas or line breaks need quotes"
        )


def _with_missing_ids(reader: Any, ids: str | None) -> Any:
    """The stream with nulls for ids that are blank or say that they are missing."""
    if ids is None:
        return reader
    place = reader.schema.get_field_index(ids)
    missing = pa.array(MISSING_NUMBERS)

    def batches() -> Iterator[Any]:
        for batch in reader:
            given = batch.column(place)
            absent = pc.is_in(pc.utf8_trim_whitespace(given), value_set=missing)
            known = pc.if_else(absent, pa.scalar(None, pa.string()), given)
            yield batch.set_column(place, reader.schema.field(place), known)

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def _csv_types(plan: Plan[Any]) -> dict[str, Any]:
    """The Arrow types of the plan's sources: from the schema, never from the data."""
    declared = plan.schema.columns
    return {
        name: pa.string() if isinstance(declared.get(name), Category | None) else pa.float64()
        for name in plan.sources  # ids, which are not declared, are text
    }


# ---------------------------------------------------------------------------------------------
# The outside of a CSV file: its header line, its bytes and its quotes. Arrow parses the fields, but
# it lets some damage pass: quotes in the middle of a field, invalid bytes in columns that are not
# read, a header that names a column twice. These are caught here.

_HEADER_BYTES = 1 << 20
_QUOTE = ord('"')
_AROUND_FIELDS = np.frombuffer(b',\r\n"', dtype=np.uint8)


class CsvHeader(NamedTuple):
    """The column names, and whether nothing follows them."""

    names: tuple[str, ...]
    only: bool


def read_header(path: Path) -> CsvHeader:
    """Read the first line that is not blank.

    Raises a `DataError` if there is none, or if it names a column twice. The message does not show
    the names: in a file without a header they are somebody's data.
    """
    return sealed(
        lambda: _parse_header(path),
        f"data: the first line of {path.name} cannot be read; it should be a header with column "
        "names, in UTF-8",
        OSError,
        UnicodeError,
        csv.Error,
    )


def _parse_header(path: Path) -> CsvHeader:
    with path.open("rb") as file:
        head = file.read(_HEADER_BYTES)
        is_all = not file.read(1)
    # Bad bytes further down are for `CheckedCsv` to report.
    text = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape").decode(head, final=is_all)
    rows = (row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row)
    names = next(rows, None)
    if names is None:
        raise DataError(f"data: {path.name} is empty; it should begin with a header line")
    "".join(names).encode("utf-8")  # fails where the header itself has bad bytes
    if len(set(names)) < len(names):
        raise DataError(
            f"data: the header line of {path.name} has the same name twice; names must differ"
        )
    try:
        only = is_all and next(rows, None) is None
    except csv.Error:
        only = False  # something follows; Arrow will say what is wrong with it
    return CsvHeader(tuple(names), only)


class CheckedCsv(io.RawIOBase):
    """A CSV file that checks its bytes and quotes while it is being read.

    Quotes alternate between opening and closing, if a doubled quote inside a field counts as one
    that closes and one that opens again. So every opening one must follow a comma, a line end, the
    beginning or a closing quote, every closing one must be followed by a comma, a line end, the
    end or an opening quote, and their number must be even.
    """

    def __init__(self, path: Path) -> None:
        self.damage: str | None = None
        self._name = path.name
        self._file = path.open("rb")
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._inside = False
        self._before = ord("\n")  # the byte before this block
        self._closed_at_end = False  # the previous block ended with a closing quote
        self._at_beginning = True

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Read a block, check it, and hand it on."""
        block = self._file.read(size)
        try:
            self._check_bytes(block)
            self._check_quotes(block)
        except DataError as error:
            self.damage = str(error)
            raise
        return block

    def close(self) -> None:
        self._file.close()
        super().close()

    def _check_bytes(self, block: bytes) -> None:
        if block and block.isascii() and not self._decoder.getstate()[0]:
            return
        try:
            self._decoder.decode(block, final=not block)
            return
        except UnicodeDecodeError:
            pass
        raise DataError(f"data: {self._name} has bytes that are not UTF-8 text; convert it")

    def _check_quotes(self, block: bytes) -> None:
        if self._at_beginning and block.startswith(codecs.BOM_UTF8):
            block = block[len(codecs.BOM_UTF8) :]
        self._at_beginning = False
        if not block:
            if self._inside:
                raise self._quotes_error()
            return
        if self._closed_at_end and block[0] not in b',\r\n"':
            raise self._quotes_error()
        if self._inside or b'"' in block:
            # One byte of context on either side; a line end stands for a neighbour not yet known.
            around = np.frombuffer(bytes([self._before]) + block + b"\n", dtype=np.uint8)
            quotes = np.flatnonzero(around[1:-1] == _QUOTE) + 1
            first_opening = int(self._inside)
            opening, closing = quotes[first_opening::2], quotes[1 - first_opening :: 2]
            neighbours = np.concatenate([around[opening - 1], around[closing + 1]])
            if not np.isin(neighbours, _AROUND_FIELDS).all():
                raise self._quotes_error()
            self._inside ^= bool(len(quotes) % 2)
        self._before = block[-1]
        self._closed_at_end = block[-1] == _QUOTE and not self._inside

    def _quotes_error(self) -> DataError:
        return DataError(
            f'data: {self._name} has stray quotes; a field with a " in it must be quoted as a '
            'whole, with that " doubled'
        )


def count_rows(path: Path) -> int:
    """How many rows follow the header: lines that aren't blank, line breaks in quotes left out.

    It looks at quotes and line ends only and refuses nothing, so it tells the number of rows of a
    sound file, and of any other no more than a number.
    """
    lines, inside, at_start = 0, 0, True
    with path.open("rb") as file:
        while block := file.read(_HEADER_BYTES):
            codes = np.frombuffer(block, dtype=np.uint8)
            ends = (codes == ord("\n")) | (codes == ord("\r"))
            if inside or b'"' in block:
                quoted = (inside + np.cumsum(codes == _QUOTE)) & 1
                ends &= quoted == 0
                inside = int(quoted[-1])
            after_end = np.concatenate([[at_start], ends[:-1]])
            lines += int(np.count_nonzero(after_end & ~ends))  # first bytes of lines
            at_start = bool(ends[-1])
    return max(lines - 1, 0)
