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
A hash of the words puts rows together for speed alone: where two ids share it, words decide
(`grouping.averages` compares them).

**Memory.** Rows of one unit may be anywhere in a table. They are put on one of 256 shelves by a
hash of the id, and each shelf is averaged by itself. Shelves are kept in memory up to 384 MB, and
from then on in a temporary file. The file has no name from the moment it is made (or is deleted by
the system, where files must have names), so that nothing is left of it if the process is killed.
Ids are in it as they are. They are nowhere else: nothing that comes out of here has any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryFile
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from noisewise.core.design import Design
from noisewise.core.errors import DataError
from noisewise.holder.rows import Accumulator, Floats, Integers, check_row_count
from noisewise.holder.rows.values import MEAN_BITS, DesignRows, RowGrid, filled

Result = TypeVar("Result")
Words = npt.NDArray[np.uint64]
# Rows with their ids: design columns on the grid, then the words of the id, each as two integers.
Records = npt.NDArray[np.int32]

MOST_ROWS = 1 << 27  # of one unit; see "The same integers everywhere"
_SHELVES = 256
_BLOCK_ROWS = 1 << 13  # stay in a core's own cache through all passes over them
_PART_ROWS = 1 << 14  # about so many are averaged at a time
_LARGE = 8 << 20  # integers
_MEMORY = 384 << 20  # of shelves; beyond that they go to the file


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
        *columns, ids = columns
        self._rows += len(ids)
        check_row_count(self._rows)
        # Values far out of bounds may overflow on their way to a bound.
        with np.errstate(over="ignore", invalid="ignore"):
            self._shelves.add(words_of(ids), self._blocks(columns, len(ids)))

    def result(self) -> Result:
        """What all means add up to. Ends the accumulator."""
        self._average()
        self.n = self._means.n
        return self._means.result()

    def state(self) -> Integers:
        """The same in integers, without any id."""
        self._average()
        return self._means.state()

    def join(self, state: Integers) -> None:
        """Add the means of other units."""
        self._means.join(state)

    def _average(self) -> None:
        averages = (self._averages(records) for records in self._shelves.taken())
        with ThreadPoolExecutor(1, thread_name_prefix="noisewise-means") as pool:
            # One thread averages the next shelf while this one sums the last.
            ahead = pool.submit(next, averages, None)
            while (means := ahead.result()) is not None:
                ahead = pool.submit(next, averages, None)
                self._means.add(list(means))

    def _blocks(self, columns: Sequence[Any], rows: int) -> Iterator[Floats]:
        """All design columns on the grid, shape (columns, rows), some rows at a time.

        It is one array, filled again and again; behind the last row is what was there before.
        """
        block = np.empty((len(self._grid.columns), _BLOCK_ROWS))
        for start in range(0, rows, _BLOCK_ROWS):
            given = [values[start : start + _BLOCK_ROWS] for values in columns]
            t = block[:, : rows - start]
            self._rows_of.fill(given, t)
            self._grid.round_block(t, out=t)
            # A sum of clipped values is NaN exactly if one of them is, which is rare.
            if np.isnan(np.add.reduce(t, axis=1)).any():
                named = zip(given, self._design.sources, strict=True)
                self._rows_of.fill([filled(x, self._design.schema, name) for x, name in named], t)
                self._grid.round_block(t, out=t)
            yield block

    def _averages(self, records: Records) -> Floats:
        """The means of the units of one shelf, shape (columns, units)."""
        from noisewise.holder.rows import grouping

        cut_off = np.array([column.group is not None for column in self._design.columns])
        means: Floats
        means, rows = grouping.averages(records, grouping.hashes(records, len(cut_off)), cut_off)
        if rows.max() > MOST_ROWS:
            raise DataError(f"data: somebody has more than {MOST_ROWS:,} rows; check the ids")
        return means


class Shelves:
    """Records by a hash of their ids, in memory or in a file without a name.

    `columns` is how many integers stand before the id in a record.
    """

    def __init__(self, columns: int) -> None:
        from noisewise.holder.rows import grouping  # without Numba it fails here, before any row

        self._grouping = grouping
        self._columns = columns
        self._rows = 0
        self._sorted: list[tuple[Records, npt.NDArray[np.int64]]] = []
        # They are in large arrays that are used again: a system takes long to clear new memory.
        self._large: list[npt.NDArray[np.int32]] = []
        self._taken = (0, 0)  # of which the first so many are full, and so much of the next
        self._file: Any = None
        self._pieces: list[list[tuple[int, int, int]]] = [[] for _ in range(_SHELVES)]

    def add(self, words: Words, blocks: Iterable[Floats]) -> None:
        """Put rows away: their ids, and their columns, shape (columns, rows), in blocks of rows."""
        if not len(words):
            return
        grouping = self._grouping
        ids = words.view(np.int32)
        hashed = grouping.hashes(ids, 0)
        records = self._room(len(ids), self._columns + ids.shape[1])
        ends = grouping.shelf_ends(hashed)
        places, start = ends.copy(), 0
        for block in blocks:
            stop = start + block.shape[1]
            grouping.put(block, ids[start:stop], hashed[start:stop], places, records)
            start = stop
        self._sorted.append((records, ends))
        self._rows += len(ids)
        if sum(one.nbytes for one, _ in self._sorted) > _MEMORY:
            self._write()

    def taken(self) -> Iterator[Records]:
        """All rows, a few shelves at a time; those of one id are on one shelf."""
        if not self._rows:
            return
        together = max(1, min(_SHELVES, _SHELVES * _PART_ROWS // self._rows))
        for start in range(0, _SHELVES, together):
            shelves = range(start, min(start + together, _SHELVES))
            read = (piece for shelf in shelves for piece in self._read(shelf))
            pieces = [*read, *self._in_memory(shelves)]
            if pieces:
                yield _joined(pieces)
        if self._file is not None:
            self._file.close()

    def _room(self, rows: int, width: int) -> Records:
        full, used = self._taken
        size = rows * width
        while full < len(self._large) and self._large[full].size - used < size:
            full, used = full + 1, 0
        if full == len(self._large):
            self._large.append(np.empty(max(size, _LARGE), dtype=np.int32))
        self._taken = (full, used + size)
        return self._large[full][used : used + size].reshape(rows, width)

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
            self._sorted, self._taken = [], (0, 0)
            return
        raise DataError(
            f"data: cannot write a temporary file ({problem}); grouping the rows of so large a "
            "table needs room on disk: make some, or set TMPDIR to another folder"
        )

    def _read(self, shelf: int) -> Iterator[Records]:
        for place, rows, width in self._pieces[shelf]:
            records = np.empty((rows, width), dtype=np.int32)
            self._file.seek(place)
            self._file.readinto(records)
            yield records


def _joined(pieces: Sequence[Records]) -> Records:
    """One after the other. Shorter ids get more zeros, so that all records have one width."""
    if len(pieces) == 1:
        return pieces[0]
    width = max(piece.shape[1] for piece in pieces)
    if any(piece.shape[1] < width for piece in pieces):
        pieces = [np.pad(piece, ((0, 0), (0, width - piece.shape[1]))) for piece in pieces]
    return np.concatenate(pieces)


# --- ids as words ---------------------------------------------------------------------------------

_LONGEST = 255  # bytes


def words_of(ids: Any) -> Words:
    """An Arrow array of 64-bit integers or bytes as words, shape (rows, words of the longest)."""
    import pyarrow as pa

    if pa.types.is_int64(ids.type):
        return np.asarray(np.from_dlpack(ids).view(np.uint64)[:, None])
    from noisewise.holder.rows import grouping

    if not len(ids):  # such an array may have no buffers
        return np.empty((0, 1), dtype=np.uint64)
    _, offsets, data = ids.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[ids.offset : ids.offset + len(ids) + 1]
    octets = np.frombuffer(data or b"", dtype=np.uint8)
    lengths = np.diff(ends)
    longest = int(lengths.max())
    if longest > _LONGEST:
        raise DataError(f"data: an id has more than {_LONGEST} bytes; check the column of ids")
    words = np.empty((len(ids), longest // 8 + 1), dtype=np.uint64)
    grouping.text_words(octets, ends, words)
    return words
