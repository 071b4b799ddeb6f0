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
Grid = npt.NDArray[np.int32]

MOST_ROWS = 1 << 27  # of one unit; see "The same integers everywhere"
_SHELVES = 256
_BLOCK_ROWS = 1 << 13  # stay in a core's own cache through all passes over them
_PART_ROWS = 1 << 16  # about so many are averaged at a time
_CHUNK_BYTES = 4 << 20  # rows are sorted by shelf so many at a time
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
        self._shelves.add(ids, self._on_grid(columns))

    def result(self) -> Result:
        """What all means add up to. Ends the accumulator."""
        averages = (self._averages(ids, grid) for ids, grid in self._shelves.taken())
        with ThreadPoolExecutor(1, thread_name_prefix="noisewise-means") as pool:
            # One thread averages the next shelf while this one sums the last.
            ahead = pool.submit(next, averages, None)
            while (means := ahead.result()) is not None:
                ahead = pool.submit(next, averages, None)
                self._means.add(means)
        self.n = self._means.n
        return self._means.result()

    def _on_grid(self, columns: Sequence[Any]) -> Grid:
        """All design columns as integers; shape (rows, p), so that a row stays together."""
        places = self._grid.columns
        grid = np.empty((len(columns[0]), len(places)), dtype=np.int32)
        block = np.empty((len(places), _BLOCK_ROWS))
        # Values far out of bounds may overflow on their way to a bound.
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(grid), _BLOCK_ROWS):
                part = grid[start : start + _BLOCK_ROWS]
                complete = [
                    filled(values[start : start + _BLOCK_ROWS], self._design.schema, name)
                    for values, name in zip(columns, self._design.sources, strict=True)
                ]
                t = block[:, : len(part)]
                self._rows_of.fill(complete, t)
                self._grid.round_block(t, out=t)
                part[:] = t.T
        return grid

    def _averages(self, ids: Any, grid: Grid) -> list[Floats]:
        """The columns of means, for the units of one shelf."""
        from scipy.sparse import csc_array

        codes = ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        rows = np.bincount(codes)
        if len(rows) and rows.max() > MOST_ROWS:
            raise DataError(f"data: somebody has more than {MOST_ROWS:,} rows; check the ids")
        # A matrix with a single 1 in each column, at the unit that owns this row, adds up.
        whose = (np.ones(len(codes)), codes, np.arange(len(codes) + 1))
        owners = csc_array(whose, shape=(len(rows), len(codes)))
        totals: Floats = np.ascontiguousarray((owners @ grid.astype(np.float64)).T)
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
    """Rows by a hash of their ids, in memory or in a file without a name."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._chunk_rows = max(_FEWEST_ROWS, _CHUNK_BYTES // (4 * columns + 8))
        self._open: list[tuple[Any, Grid]] = []  # not yet sorted by shelf
        self._open_rows = 0
        self._rows = 0
        self._sorted: list[tuple[Any, Grid, npt.NDArray[np.intp]]] = []
        self._file: Any = None
        self._pieces: list[list[tuple[int, int, int]]] = [[] for _ in range(_SHELVES)]

    def add(self, ids: Any, grid: Grid) -> None:
        """Put rows away."""
        if not len(ids):
            return
        self._open.append((ids, grid))
        self._open_rows += len(ids)
        self._rows += len(ids)
        if self._open_rows >= self._chunk_rows:
            self._sort()
            if sum(ids.nbytes + grid.nbytes for ids, grid, _ in self._sorted) > _MEMORY:
                self._write()

    def taken(self) -> Iterator[tuple[Any, Grid]]:
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
        ids, grid = _joined(self._open)
        self._open, self._open_rows = [], 0
        shelves = _shelf(ids)
        order = np.argsort(shelves, kind="stable")
        ends = np.concatenate([[0], np.cumsum(np.bincount(shelves, minlength=_SHELVES))])
        self._sorted.append((ids.take(order), grid.take(order, axis=0), ends))

    def _in_memory(self, shelves: range) -> Iterator[tuple[Any, Grid]]:
        for ids, grid, ends in self._sorted:
            start, stop = int(ends[shelves.start]), int(ends[shelves.stop])
            if stop > start:
                yield ids.slice(start, stop - start), grid[start:stop]

    def _write(self) -> None:
        """Append what is in memory to the file."""
        import pyarrow as pa

        try:
            if self._file is None:
                self._file = TemporaryFile(prefix="noisewise-")  # noqa: SIM115 - closed by `taken`
            for shelf in range(_SHELVES):
                pieces = list(self._in_memory(range(shelf, shelf + 1)))
                if not pieces:
                    continue
                ids, grid = _joined(pieces)
                batch = pa.record_batch([ids], ["id"]).serialize()
                self._pieces[shelf].append((self._file.tell(), batch.size, len(ids)))
                self._file.write(batch)
                self._file.write(grid)
            self._type = ids.type
        except OSError as error:
            problem = error.strerror or "it failed"
        else:
            self._sorted = []
            return
        raise DataError(
            f"data: cannot write a temporary file ({problem}); grouping the rows of so large a "
            "table needs room on disk: make some, or set TMPDIR to another folder"
        )

    def _read(self, shelf: int) -> Iterator[tuple[Any, Grid]]:
        import pyarrow as pa

        for place, size, rows in self._pieces[shelf]:
            self._file.seek(place)
            schema = pa.schema([("id", self._type)])
            batch = pa.ipc.read_record_batch(pa.py_buffer(self._file.read(size)), schema)
            values = np.frombuffer(self._file.read(4 * self._columns * rows), dtype=np.int32)
            yield batch.column(0), values.reshape(rows, self._columns)


def _joined(pieces: Sequence[tuple[Any, Grid]]) -> tuple[Any, Grid]:
    import pyarrow as pa

    if len(pieces) == 1:
        return pieces[0]
    grid: Grid = np.concatenate([grid for _, grid in pieces])
    return pa.concat_arrays([ids for ids, _ in pieces]), grid


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Spread 64-bit numbers: equal ones stay equal, and near ones get far apart."""
    values = values * np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return values ^ (values >> np.uint64(32))


def _shelf(ids: Any) -> npt.NDArray[np.uint8]:
    """Where each id's rows go: a function of the id, so that all of them meet."""
    import pyarrow as pa

    if pa.types.is_int64(ids.type):
        numbers = ids.to_numpy(zero_copy_only=False).view(np.uint64)
    else:
        # The sum of its bytes, each of them spread. Ids with the same bytes in another order meet
        # as well, which does no harm: a shelf tells ids apart.
        _, offsets, data = ids.buffers()
        ends = np.frombuffer(offsets, dtype=np.int64)[ids.offset : ids.offset + len(ids) + 1]
        octets = np.frombuffer(data or b"", dtype=np.uint8)[ends[0] : ends[-1]]
        sums = np.cumsum(_mixed(np.arange(1, 257, dtype=np.uint64))[octets], dtype=np.uint64)
        sums = np.concatenate([np.zeros(1, dtype=np.uint64), sums])[ends - ends[0]]
        numbers = np.diff(sums)
    return (_mixed(numbers) >> np.uint64(56)).astype(np.uint8)
