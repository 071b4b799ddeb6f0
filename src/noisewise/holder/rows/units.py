"""One row for every unit: the mean of its rows, whoever has however many.

The schema's unit column says whose row it is. Every row is put on a grid of 24 binary digits, by
the value map of `rows.values` (missing values filled, numbers clipped, levels as 0/1 indicators).
For the m rows of a unit and the exact sum T of a design column over them, the unit's value is

    number     floor((2 T + m) / (2 m)), the mean rounded to nearest, halves up;
    level      floor(T / m), the share of the unit's rows that have this level, rounded down;
    group      trunc(T / m), of any other column of a group (`core.terms.term`), cut off towards 0.

All that follows (coarser grids, balls, the coordinates of rounds) takes these means for rows, and
the number of units for n.

**Claim.** The table of means has one row for each unit, inside the set that the sensitivities of
`core.statistics` are proved for: numbers in [-1, 1], in each category shares s ≥ 0 with Σ s ≤ 1,
and in each other group columns g with Σ |g| ≤ 1. So whatever is private when a row of such a table
is replaced (added, removed) is private when a unit with all its rows is replaced (added, removed).

**Proof.** A row's numbers are integers t with |t| ≤ ONE, so |T| ≤ m ONE and -ONE ≤ T/m ≤ ONE. The
ends are integers, and rounding to nearest doesn't pass one. Shares: of a category's indicators at
most one is ONE in a row, so Σ_a T_a ≤ m ONE, and floor(T_a / m) ≤ T_a / m is never negative: the
shares add up to ONE at most. Of any group Σ_a |t_a| ≤ ONE in a row, so Σ_a |T_a| ≤ m ONE, and
cutting off makes no size larger. Coarser grids keep both: ONE becomes the coarser ONE, rounding a
number to nearest stays in the box, and shares are rounded down again. A unit's mean is a function
of its own rows alone, and rows with different ids are in different units. So two tables that differ
in the rows of one unit have tables of means that differ in one row: in its values, or in whether it
is there. ∎

What it needs is that a unit's rows have one id, and that nobody else's have it. A person with two
ids is two units, and protected as such: epsilon then doubles.

**The same integers everywhere.** Nobody may own more than 2**27 rows. So T, at most 2**24 m in
size, is added up exactly in doubles, in any order, and 2 T + m is exact. A quotient x of these that
is below an integer k is below it by 1/2m ≥ 2**-28 at least, and doubles just below k are at most
2**-29 apart, because |k| ≤ 2**24: the rounded quotient is still below k, and rounding down gives
what it gives for x itself. Which rows a unit has doesn't depend on their order, so neither do the
means.

**Which rows are one unit's.** An id becomes a few words of 64 bits: a whole number is one; text is
its bytes, then a byte of 1, then zeros. That is one to one, because the last byte that isn't 0 is
the mark where the text ends. So ids are equal where their words are, and rows are records of one
width. Texts of more than 255 bytes are refused: one of them would widen all records of its batch.
A hash of the words puts rows together for speed alone: where two ids share it, words decide.

**Memory.** Rows of one unit may be anywhere in a table. They are put on one of 256 shelves by a
hash of the id, and each shelf is averaged by itself. Shelves are kept in memory up to 256 MB, and
from then on in a temporary file. The file has no name from the moment it is made (or is deleted by
the system, where files must have names), so that nothing is left of it if the process is killed.
Ids are in it as they are. They are nowhere else: nothing that comes out of here has any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryFile
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from noisewise.core.design import Design
from noisewise.core.errors import DataError
from noisewise.holder.rows.plan import Accumulator, Floats, check_row_count
from noisewise.holder.rows.values import MEAN_BITS, DesignRows, RowGrid, filled

Result = TypeVar("Result")
Words = npt.NDArray[np.uint64]
# Rows with their ids: design columns on the grid, then the words of the id, each as two integers.
Records = npt.NDArray[np.int32]

MOST_ROWS = 1 << 27  # of one unit; see "The same integers everywhere"
_SHELVES = 256
_BLOCK_ROWS = 1 << 13  # stay in a core's own cache through all passes over them
_PART_ROWS = 1 << 14  # about so many are averaged at a time
_CHUNK_BYTES = 2 << 20  # rows are sorted by shelf so many at a time: an engine's batch or two
_FEWEST_ROWS = 1 << 10
_MEMORY = 256 << 20  # of shelves; beyond that they go to the file


def averaged(design: Design, accumulator: Accumulator[Result]) -> Accumulator[Result]:
    """The accumulator itself, or one that takes rows and hands it the means of units."""
    if design.schema.unit_column is None:
        return accumulator
    return ByUnit(design, accumulator)


class ByUnit(Generic[Result]):
    """Takes rows with their ids as the last column; hands on one row of means for each id."""

    def __init__(self, design: Design, means: Accumulator[Result]) -> None:
        self._design = design
        self._means = means
        self._grid = RowGrid.with_bits(design, MEAN_BITS)
        self._rows_of = DesignRows(design, self._grid.columns)
        self._shelves = Shelves(len(self._grid.columns))
        self._rows = 0
        self.n = 0  # units; none is complete before there is a result

    def add(self, columns: Sequence[Any]) -> None:
        """Add rows; see `Accumulator.add`."""
        *columns, ids = columns
        self._rows += len(ids)
        check_row_count(self._rows)
        self._shelves.add(self._records(columns, words_of(ids)))

    def result(self) -> Result:
        """What all means add up to. Ends the accumulator."""
        averages = (self._averages(records) for records in self._shelves.taken())
        with ThreadPoolExecutor(1, thread_name_prefix="noisewise-means") as pool:
            # One thread averages the next shelf while this one sums the last.
            ahead = pool.submit(next, averages, None)
            while (means := ahead.result()) is not None:
                ahead = pool.submit(next, averages, None)
                self._means.add(means)
        self.n = self._means.n
        return self._means.result()

    def _records(self, columns: Sequence[Any], words: Words) -> Records:
        """All design columns as integers, and the ids; a row stays together."""
        places = self._grid.columns
        p = len(places)
        records = np.empty((len(words), p + 2 * words.shape[1]), dtype=np.int32)
        records[:, p:] = words.view(np.int32)
        block = np.empty((p, _BLOCK_ROWS))
        # Values far out of bounds may overflow on their way to a bound.
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(records), _BLOCK_ROWS):
                part = records[start : start + _BLOCK_ROWS, :p]
                given = [values[start : start + _BLOCK_ROWS] for values in columns]
                t = block[:, : len(part)]
                self._rows_of.fill(given, t)
                self._grid.round_block(t, out=t)
                # A sum of clipped values is NaN exactly if one of them is, which is rare.
                if np.isnan(np.add.reduce(t, axis=1)).any():
                    self._rows_of.fill([*map(self._filled, given, self._design.sources)], t)
                    self._grid.round_block(t, out=t)
                part[:] = t.T
        return records

    def _filled(self, values: Any, name: str) -> Any:
        return filled(values, self._design.schema, name)

    def _averages(self, records: Records) -> list[Floats]:
        """The columns of means, for the units of one shelf."""
        from scipy.sparse import csc_array

        p = len(self._grid.columns)
        codes = codes_of(_words_in(records, p))
        rows = np.bincount(codes)
        if rows.max() > MOST_ROWS:
            raise DataError(f"data: somebody has more than {MOST_ROWS:,} rows; check the ids")
        # A matrix with a single 1 in each column, at the unit that owns this row, adds up.
        whose = (np.ones(len(codes)), codes, np.arange(len(codes) + 1))
        owners = csc_array(whose, shape=(len(rows), len(codes)))
        totals: Floats = np.ascontiguousarray((owners @ records[:, :p].astype(np.float64)).T)
        for j, column in enumerate(self._design.columns):
            if column.group is not None:
                totals[j] /= rows
                np.trunc(totals[j], out=totals[j])
            else:
                totals[j] *= 2
                totals[j] += rows
                totals[j] /= 2 * rows
                np.floor(totals[j], out=totals[j])
        return list(totals)


class Shelves:
    """Records by a hash of their ids, in memory or in a file without a name.

    Parameters
    ----------
    columns : int
        How many integers stand before the id in a record.
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._open: list[Records] = []  # not yet sorted by shelf
        self._open_rows = 0
        self._rows = 0
        self._sorted: list[tuple[Records, npt.NDArray[np.intp]]] = []
        self._file: Any = None
        self._pieces: list[list[tuple[int, int, int]]] = [[] for _ in range(_SHELVES)]

    def add(self, records: Records) -> None:
        """Put rows away."""
        if not len(records):
            return
        self._open.append(records)
        self._open_rows += len(records)
        self._rows += len(records)
        size = sum(one.nbytes for one in self._open)
        if self._open_rows >= _FEWEST_ROWS and size >= _CHUNK_BYTES:
            self._sort()
            if sum(one.nbytes for one, _ in self._sorted) > _MEMORY:
                self._write()

    def taken(self) -> Iterator[Records]:
        """All rows, a few shelves at a time; those of one id are on one shelf."""
        if not self._sorted and self._file is None:  # so few that they need no shelves
            if self._open:
                yield _joined(self._open)
            return
        self._sort()
        together = max(1, min(_SHELVES, _SHELVES * _PART_ROWS // self._rows))
        for start in range(0, _SHELVES, together):
            shelves = range(start, min(start + together, _SHELVES))
            read = (piece for shelf in shelves for piece in self._read(shelf))
            pieces = [*read, *self._in_memory(shelves)]
            if pieces:
                yield _joined(pieces)
        if self._file is not None:
            self._file.close()

    def _sort(self) -> None:
        if not self._open:
            return
        records = _joined(self._open)
        self._open, self._open_rows = [], 0
        mixed = _mixed(hashes(_words_in(records, self._columns)))
        shelves = (mixed >> np.uint64(56)).astype(np.uint8)
        order = np.argsort(shelves, kind="stable")
        ends = np.concatenate([[0], np.cumsum(np.bincount(shelves, minlength=_SHELVES))])
        self._sorted.append((records.take(order, axis=0), ends))

    def _in_memory(self, shelves: range) -> Iterator[Records]:
        for records, ends in self._sorted:
            start, stop = int(ends[shelves.start]), int(ends[shelves.stop])
            if stop > start:
                yield records[start:stop]

    def _write(self) -> None:
        """Append what is in memory to the file."""
        try:
            if self._file is None:
                self._file = TemporaryFile(prefix="noisewise-")  # noqa: SIM115 - closed by `taken`
            for shelf in range(_SHELVES):
                pieces = list(self._in_memory(range(shelf, shelf + 1)))
                if pieces:
                    records = _joined(pieces)
                    rows, width = records.shape
                    self._pieces[shelf].append((self._file.tell(), rows, width))
                    self._file.write(records)
        except OSError as error:
            problem = error.strerror or "it failed"
        else:
            self._sorted = []
            return
        raise DataError(
            f"data: cannot write a temporary file ({problem}); grouping the rows of so large a "
            "table needs room on disk: make some, or set TMPDIR to another folder"
        )

    def _read(self, shelf: int) -> Iterator[Records]:
        for place, rows, width in self._pieces[shelf]:
            self._file.seek(place)
            yield np.frombuffer(self._file.read(4 * rows * width), np.int32).reshape(rows, width)


def _joined(pieces: Sequence[Records]) -> Records:
    """One after the other. Shorter ids get more zeros, so that all records have one width."""
    if len(pieces) == 1:
        return pieces[0]
    width = max(piece.shape[1] for piece in pieces)
    if any(piece.shape[1] < width for piece in pieces):
        pieces = [np.pad(piece, ((0, 0), (0, width - piece.shape[1]))) for piece in pieces]
    return np.concatenate(pieces)


# ---------------------------------------------------------------------------------------------
# Ids as words

_LONGEST = 255  # bytes
# By how many bytes of a text are left where a word begins, from -1 (none, and no mark either) to 8:
# which bits of the word are the text's, and the mark behind it.
_KEPT = np.array([0, *((1 << 8 * left) - 1 for left in range(9))], dtype=np.uint64)
_MARK = np.array([0, *(1 << 8 * left for left in range(8)), 0], dtype=np.uint64)


def words_of(ids: Any) -> Words:
    """An Arrow array of 64-bit integers or bytes as words, shape (rows, words of the longest)."""
    import pyarrow as pa

    if pa.types.is_int64(ids.type):
        numbers: Words = ids.to_numpy(zero_copy_only=False).view(np.uint64)[:, None]
        return numbers
    if not len(ids):  # such an array may have no buffers
        return np.empty((0, 1), dtype=np.uint64)
    _, offsets, data = ids.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[ids.offset : ids.offset + len(ids) + 1]
    octets = np.frombuffer(data or b"", dtype=np.uint8)
    lengths = np.diff(ends)
    longest = int(lengths.max())
    if longest > _LONGEST:
        raise DataError(f"data: an id has more than {_LONGEST} bytes; check the column of ids")
    # Eight bytes from any place on, as a word; past the end there are zeros.
    start = int(ends[0])
    padded = np.zeros(int(ends[-1]) - start + 8, dtype=np.uint8)
    padded[:-8] = octets[start : int(ends[-1])]
    anywhere = np.ndarray(len(padded) - 7, dtype="<u8", buffer=padded, strides=(1,))
    words = np.empty((len(ids), longest // 8 + 1), dtype=np.uint64)
    for j in range(words.shape[1]):
        places = np.minimum(ends[:-1] + (8 * j - start), len(anywhere) - 1)
        left = np.clip(lengths - 8 * j, -1, 8) + 1
        words[:, j] = anywhere[places] & _KEPT[left] | _MARK[left]
    return words


def codes_of(words: Words) -> npt.NDArray[np.int32]:
    """Numbers from 0 on, equal exactly where all words of a row are; shape (rows,)."""
    import pyarrow as pa

    def encoded(array: Any) -> npt.NDArray[np.int32]:
        codes: npt.NDArray[np.int32] = array.dictionary_encode().indices.to_numpy()
        return codes

    if words.shape[1] == 1:
        return encoded(pa.array(words[:, 0]))
    codes = encoded(pa.array(hashes(words)))
    first = np.empty(codes.max() + 1, dtype=np.intp)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # of several, the last assignment stays
    if np.array_equal(words, words.take(first[codes], axis=0)):
        return codes
    kind = pa.binary(8 * words.shape[1])
    return encoded(pa.Array.from_buffers(kind, len(words), [None, pa.py_buffer(words)]))


def hashes(words: Words) -> Words:
    """A number for each id; shape (rows,). Words of 0 at the end change nothing."""
    total = _mixed(words[:, 0])
    for j in range(1, words.shape[1]):
        total += _mixed(words[:, j] * np.uint64(2 * j + 1))
    return total


def _mixed(values: Words) -> Words:
    """Spread 64-bit numbers, one to one: near ones get far apart, and 0 stays 0."""
    values = values * np.uint64(0x9E3779B97F4A7C15)
    values ^= values >> np.uint64(32)
    values *= np.uint64(0xD6E8FEB86659FD93)
    values ^= values >> np.uint64(32)
    return values


def _words_in(records: Records, columns: int) -> Words:
    return np.ascontiguousarray(records[:, columns:]).view(np.uint64)
