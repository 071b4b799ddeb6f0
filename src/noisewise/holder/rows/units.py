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
its bytes, then a byte that marks the end, then zeros. What all texts of the first rows begin with
(up to 7 bytes) is left out wherever texts begin with it. The mark says whether: 1 if so, else 2.
That is one to one, because the last byte that isn't 0 is the mark, and says what the text begins
with and where it ends. So ids are equal where their words are. Texts of more than 255 bytes are
refused: one of them widens all records of its block. A hash of the words puts rows together for
speed alone: where two ids share it, words decide (`grouping.averages` compares them).

**Which spellings are one id.** By default two texts are one id where their bytes are the same: 1,
1.0, 01 and +1 are four people. A schema may have ids read by a rule that is fixed and public, a
function f of the one text (`folded`, then `as_integer`):

    fold: true      without white space at both ends, in one letter case, in one form of Unicode;
    type: integer   a whole number in its shortest spelling. What is none stays as it is.

What f gives is the id, for every engine: it is applied to Arrow arrays, on which all of them agree.
Whole numbers that are stored as numbers have one spelling already. f(f(text)) is f(text), so an
engine that has to know the ids before (Spark, which brings their rows together) may apply it twice.
For `folded` that is a property of Unicode's tables, which a test goes through.

**Claim.** With f, what is protected is a person with all rows whose ids f takes to one id.
**Proof.** The proof above, with f(id) for id: a unit's mean is a function of its own rows alone,
and rows for which f differs are in different units. ∎ So a person with several spellings that f
merges is one unit instead of several, and nobody has more ids than before. But where f merges ids
of two people, they share a unit. Under replace_one that costs them nothing: to replace the rows of
one of them is to replace a unit's rows. Under add_remove_one to take one of them away is to replace
a unit, as if one were taken away and another added: epsilon may double for these two. It is the
same for two people who were given one id.

**Memory.** Rows of one unit may be anywhere in a table. They are put on one of 512 shelves by a
hash of the id, block by block, and each shelf is averaged by itself. Shelves are kept in memory up
to 384 MB, and from then on in a temporary file. The file has no name from the moment it is made (or
is deleted by the system, where files must have names), so that nothing is left of it if the process
is killed. Ids are in it as they are. They are nowhere else: nothing that comes out of here has any.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
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
Octets = npt.NDArray[np.uint8]
# Design columns on the grid, shape (columns, rows); or records (`rows.grouping`), (rows, width)
Grid = npt.NDArray[np.int32]

MOST_ROWS = 1 << 27  # of one unit; see "The same integers everywhere"
_BLOCK_ROWS = 1 << 14  # are put away at a time, or fewer if they have many columns
_BLOCK_BYTES = 1 << 21
_PART_ROWS = 1 << 15  # about so many are averaged at a time
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
        width = len(self._grid.columns)
        self._shelves = Shelves(width)
        self._most = min(_BLOCK_ROWS, max(1 << 7, _BLOCK_BYTES // (8 * width)))
        # Columns at a power of 2 from each other would fight for the same places of a cache.
        self._centred = np.empty((width, self._most + 16))
        self._block = np.empty(self._centred.shape, dtype=np.int32)
        self._scales = np.array([column.scale for column in self._grid.columns])
        self._cut_off = np.array([column.cut_off for column in self._grid.columns])
        self._rows = 0
        self.n = 0  # units; none is complete before there is a result

    def add(self, columns: Sequence[Any]) -> None:
        *columns, ids = columns
        self._rows += len(ids)
        check_row_count(self._rows)
        # Values far out of bounds may overflow on their way to a bound.
        with np.errstate(over="ignore", invalid="ignore"):
            for rows, block in in_blocks(ids, self._most):
                given = [values[rows] for values in columns]
                self._shelves.add(block, self._on_grid(given, len(block)))

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
        cut_off = np.array([column.group is not None for column in self._design.columns])
        averages = self._shelves.averages(cut_off)
        with ThreadPoolExecutor(1, thread_name_prefix="noisewise-means") as pool:
            # One thread averages the next shelves while this one sums the last.
            ahead = pool.submit(next, averages, None)
            while (found := ahead.result()) is not None:
                ahead = pool.submit(next, averages, None)
                means, rows = found
                if rows.max() > MOST_ROWS:
                    raise DataError(
                        f"data: somebody has more than {MOST_ROWS:,} rows; check the ids"
                    )
                self._means.add(list(means))

    def _on_grid(self, columns: list[Any], rows: int) -> Grid:
        """All design columns on the grid, shape (columns, rows or more).

        It is one array, filled again and again; behind the last row is what was there before.
        """
        self._rows_of.fill(columns, self._centred[:, :rows])
        if self._round(rows):
            for i, name in enumerate(self._design.sources):
                columns[i] = filled(columns[i], self._design.schema, name)
            self._rows_of.fill(columns, self._centred[:, :rows])
            self._round(rows)
        return self._block

    def _round(self, rows: int) -> bool:
        """Put the centred block on the grid; says whether a number is missing in it."""
        from noisewise.holder.rows import grouping

        given = (self._centred, rows, self._scales, self._cut_off, float(self._grid.one))
        return bool(grouping.on_grid(*given, self._block))


class Shelves:
    """Records by a hash of their ids, in memory or in a file without a name.

    `columns` is how many integers stand before the id in a record.
    """

    def __init__(self, columns: int) -> None:
        from noisewise.holder.rows import grouping  # without Numba it fails here, before any row

        self._grouping = grouping
        self._columns = columns
        self._start: bytes | None = None
        self._rows = 0
        self._records: Grid = np.empty(0, dtype=np.int32)
        self._used = 0
        # For each block in memory, how wide its records are, and where each shelf ends.
        self._widths: list[int] = []
        self._ends: list[Integers] = []
        self._file: Any = None
        self._pieces: list[list[tuple[int, int, int]]] = [[] for _ in range(grouping.SHELVES)]

    def add(self, ids: Any, grid: Grid) -> None:
        """Put a block of rows away: their ids, and their columns, shape (columns, rows or more)."""
        if not len(ids):
            return
        if self._start is None:
            self._start = start_of(ids)
        words = words_of(ids, self._start)
        hashed = self._grouping.hashes(words)
        width = self._columns + 1 + 2 * int((hashed & 63).max())  # their last bits count words
        size = len(ids) * width
        if self._used + size > len(self._records):
            if self._used:
                self._write()
            # New memory is faster than used memory: its zeros are in the cache.
            self._records = np.empty(max(size, _MEMORY // 4), dtype=np.int32)
        where = (width, self._used, self._records)
        self._ends.append(self._grouping.put(grid, hashed, words.view(np.int32), *where))
        self._widths.append(width)
        self._rows += len(ids)
        self._used += size

    def averages(self, cut_off: npt.NDArray[np.bool_]) -> Iterator[tuple[Floats, Integers]]:
        """The means of units and how many rows each has (`grouping.averages`), in parts."""
        if not self._rows:
            return
        shelves = self._grouping.SHELVES
        together = max(1, min(shelves, shelves * _PART_ROWS // self._rows))
        ends, widths = self._ends_of_shelves(), np.array(self._widths)
        for start in range(0, shelves, together):
            stop = min(start + together, shelves)
            records, starts, stops = self._records, ends[start], ends[stop]
            if self._file is not None:
                records = self._gathered(ends, range(start, stop), file=True)
                starts, stops = np.array([0]), np.array([records.size])
                widths = np.array(records.shape[1:])
            if stops.sum() > starts.sum():
                yield self._grouping.averages(records.ravel(), starts, stops, widths, cut_off)
        if self._file is not None:
            self._file.close()

    def _ends_of_shelves(self) -> Integers:
        """Where shelves end in each block in memory, shape (shelves + 1, blocks)."""
        return np.ascontiguousarray(np.transpose(self._ends))

    def _gathered(self, ends: Integers, shelves: range, *, file: bool) -> Grid:
        """Records of some shelves, all of one width: those in memory, and those in the file."""
        pieces = [piece for shelf in shelves for piece in self._pieces[shelf]] if file else []
        starts, stops, widths = ends[shelves.start], ends[shelves.stop], np.array(self._widths)
        row = int(((stops - starts) // widths).sum())
        width = max(self._widths + [width for _, _, width in pieces])
        records = np.empty((row + sum(rows for _, rows, _ in pieces), width), dtype=np.int32)
        self._grouping.gather(self._records, starts, stops, widths, records)
        for place, rows, own in pieces:
            there = records[row : row + rows]
            read = there if own == width else np.empty((rows, own), dtype=np.int32)
            self._file.seek(place)
            self._file.readinto(read)
            if own < width:
                there[:, :own], there[:, own:] = read, 0
            row += rows
        return records

    def _write(self) -> None:
        """Append what is in memory to the file."""
        ends = self._ends_of_shelves()
        try:
            if self._file is None:
                self._file = TemporaryFile(prefix="noisewise-")  # noqa: SIM115 - closed by `averages`
            for shelf, pieces in enumerate(self._pieces):
                records = self._gathered(ends, range(shelf, shelf + 1), file=False)
                pieces.append((self._file.tell(), *records.shape))
                self._file.write(records)
        except OSError as error:
            problem = error.strerror or "it failed"
        else:
            self._ends, self._widths, self._used = [], [], 0
            return
        raise DataError(
            f"data: cannot write a temporary file ({problem}); grouping the rows of so large a "
            "table needs room on disk: make some, or set TMPDIR to another folder"
        )


# --- ids as words ---------------------------------------------------------------------------------

_LONGEST = 255  # bytes
_SHARED = 7  # bytes that all begin with, at most


# What the two functions below leave as it is, most of it: as patterns of bytes, so that few ids go
# through Python.
_FOLDED = r"\A[!-@\[-~]*\z"
_NO_INTEGER = r"(?s)\A(?:0|-?[1-9][0-9]*|[^ \t+\-0-9].*)\z"
_INTEGER = re.compile(r"[ \t]*([+-]?)([0-9]+)(?:\.0*)?[ \t]*", re.ASCII)


def folded(text: str) -> str:
    """An id without white space at its ends, in one letter case and in one form of Unicode (NFC).

    Letters are compared as Unicode says for caseless matching: Straße and STRASSE are one id.
    """
    stripped = unicodedata.normalize("NFD", text.strip())
    return unicodedata.normalize("NFC", stripped.casefold())


def as_integer(text: str) -> str:
    """The shortest spelling of a whole number: 7 for 007, +7, 7.0, "7." and " 7".

    A sign, digits 0 to 9, a point with zeros behind it, blanks and tabs around: everything else
    (7e0, 7.5, 1,000, digits of other alphabets) is no spelling of a number and stays as it is.
    """
    found = _INTEGER.fullmatch(text)
    if found is None:
        return text
    digits = found[2].lstrip("0")
    return f"{'-' if found[1] == '-' else ''}{digits}" if digits else "0"


def in_one_spelling(ids: Any, *, integer: bool, fold: bool) -> Any:
    """An Arrow array of bytes (large_binary) with ids as the schema has them read."""
    if fold:
        ids = _mapped(ids, folded, _FOLDED)
    return _mapped(ids, as_integer, _NO_INTEGER) if integer else ids


def _mapped(ids: Any, function: Callable[[str], str], unchanged: str) -> Any:
    """Apply a function to the texts that don't match the pattern of those it doesn't change.

    Bytes that are no UTF-8 stay what they are. So do texts that are too long for an id.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    others = pc.invert(pc.fill_null(pc.match_substring_regex(ids, unchanged), True))
    chosen = ids.filter(others).dictionary_encode()
    texts = [
        octets
        if len(octets) > _LONGEST
        else function(octets.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        for octets in chosen.dictionary.to_pylist()
    ]
    if not texts:
        return ids
    mapped = pa.array(texts, type=pa.large_binary()).take(chosen.indices)
    return pc.replace_with_mask(ids, others, mapped)


def in_blocks(ids: Any, most: int = _BLOCK_ROWS) -> Iterator[tuple[slice, Any]]:
    """An Arrow array of ids, some rows at a time, and which rows these are."""
    for start in range(0, len(ids), most):
        yield slice(start, start + most), ids.slice(start, most)


def start_of(ids: Any) -> bytes:
    """What all of these texts begin with, seven bytes at most; of numbers nothing."""
    import pyarrow as pa

    if pa.types.is_int64(ids.type):
        return b""
    ends, octets = bytes_of(ids)
    several = np.arange(min(_SHARED, int(np.diff(ends).min())))
    first = octets[ends[:-1, None] + several]
    shared = np.append((first == first[0]).all(axis=0), False)
    return bytes(first[0, : np.argmin(shared)])


def words_of(ids: Any, start: bytes = b"") -> Words:
    """An Arrow array of 64-bit integers or bytes as words, shape (rows, words of the longest).

    What texts `start` with is left out where they do.
    """
    import pyarrow as pa

    if pa.types.is_int64(ids.type):
        return np.asarray(np.from_dlpack(ids).view(np.uint64)[:, None])
    from noisewise.holder.rows import grouping

    ends, octets = bytes_of(ids)
    longest = int(np.diff(ends).max(initial=0))
    if longest > _LONGEST:
        raise DataError(f"data: an id has more than {_LONGEST} bytes; check the column of ids")
    words = np.empty((len(ids), longest // 8 + 1), dtype=np.uint64)
    grouping.text_words(octets, ends, np.frombuffer(start, dtype=np.uint8), words)
    return words


def bytes_of(ids: Any) -> tuple[Integers, Octets]:
    """Where texts begin and the last one ends, and their bytes."""
    _, offsets, data = ids.buffers()
    if not len(ids):  # such an array may have no buffers
        offsets = bytes(8 * ids.offset + 8)
    ends = np.frombuffer(offsets, dtype=np.int64)[ids.offset : ids.offset + len(ids) + 1]
    return ends, np.frombuffer(data or b"", dtype=np.uint8)
