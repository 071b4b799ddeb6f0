"""Compiled loops that put the rows of a unit together: see `rows.units` for what and why.

A record is a row of 32-bit integers: `columns` values on the grid, the lower half of the hash of
the id, and the words of the id, each as two integers. All are in one flat array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from noisewise._compiled import compiled_in_order

SHELVES = 512

# Of indices, too: of signed ones Numba asks each time whether they count from the end.
_U = np.uint64
_FIRST = _U(0x9E3779B97F4A7C15)
_SECOND = _U(0xD6E8FEB86659FD93)
_HALF = _U(32)
_SHELF = _U(65 - SHELVES.bit_length())
_COUNT = _U(6)
_ZERO, _ONE, _TWO, _EIGHT, _MOST = _U(0), _U(1), _U(2), _U(8), _U(63)
_TILE = 128  # units whose totals stay in a core's innermost cache


@compiled_in_order
def text_words(octets: Any, ends: Any, start: Any, words: Any) -> None:
    """Write texts as words: their bytes, then a mark, then zeros.

    Texts that begin with the bytes of `start`, seven at most, are written without them: 1 marks
    that they are left out, 2 that they aren't. `ends` has where each text begins, and the last one
    ends; `words`, (texts, words of the longest), receives them.
    """
    size, shared = _U(len(start)), _ZERO
    for k in range(size):
        shared |= _U(start[k]) << _EIGHT * k
    for i in range(words.shape[0]):
        at, end = _U(ends[i]), _U(ends[i + 1])
        mark = _TWO
        for j in range(-1, words.shape[1]):
            word = _ZERO
            if at <= end:
                left = end - at
                if at + _EIGHT <= _U(len(octets)):
                    for k in range(_EIGHT):  # becomes a single load, of the next texts' bytes too
                        word |= _U(octets[at + k]) << _EIGHT * k
                else:
                    for k in range(left):
                        word |= _U(octets[at + k]) << _EIGHT * k
                if j < 0:
                    if size <= left and word & (_ONE << _EIGHT * size) - _ONE == shared:
                        at += size
                        mark = _ONE
                    continue
                if left < _EIGHT:
                    word = word & (_ONE << _EIGHT * left) - _ONE | mark << _EIGHT * left
            words[i, j] = word
            at += _EIGHT


@compiled_in_order
def hashes(words: Any) -> Any:
    """A number of 64 bits for each id, whose last 6 bits say how many words the id has.

    Words of 0 at the end are no part of it. Where ids share a number, their words decide.
    """
    rows, width = words.shape
    result = np.empty(rows, dtype=np.uint64)
    for i in range(rows):
        end = width
        while end > 0 and words[i, end - 1] == 0:
            end -= 1
        total = _FIRST
        for k in range(end):
            total = (total ^ words[i, k]) * _FIRST
            total ^= total >> _HALF
        total *= _SECOND
        total ^= total >> _HALF
        result[i] = total >> _COUNT << _COUNT | _U(end)
    return result


@compiled_in_order
def on_grid(centred: Any, rows: int, scales: Any, cut_off: Any, one: float, grid: Any) -> Any:
    """`RowGrid.round_block` to 32-bit integers; returns whether a value is missing."""
    missing = 0
    for column in range(len(scales)):
        for i in range(rows):
            x = centred[column, i]
            missing += np.isnan(x)
            t = x * scales[column]
            t = np.trunc(t) if cut_off[column] else np.floor(t + 0.5)
            t = t if t > -one else -one  # NaN, too
            grid[column, i] = np.int32(t if t < one else one)
    return missing > 0


@compiled_in_order
def put(grid: Any, hashed: Any, ids: Any, width: int, start: int, records: Any) -> Any:
    """Write rows as records, shelf by shelf; returns where each shelf ends. `start` comes first.

    `grid` is (columns, rows or more), `ids` are (rows, integers), of which so many are written that
    records have this width.
    """
    columns = _U(len(grid))
    integers = _U(width) - columns - _ONE
    ends = np.zeros(SHELVES + 1, dtype=np.int64)
    for i in range(len(hashed)):
        ends[(hashed[i] >> _SHELF) + _ONE] += width
    ends[0] = start
    for shelf in range(SHELVES):
        ends[shelf + 1] += ends[shelf]
    places = ends.copy()
    for i in range(_U(len(hashed))):
        shelf = hashed[i] >> _SHELF
        place = _U(places[shelf])
        for k in range(columns):
            records[place + k] = grid[k, i]
        place += columns
        records[place] = np.int32(hashed[i])
        place += _ONE
        for k in range(integers):
            records[place + k] = ids[i, k]
        places[shelf] = place + integers
    return ends


@compiled_in_order
def gather(records: Any, starts: Any, stops: Any, widths: Any, out: Any) -> None:
    """Put pieces one after the other into `out`, (rows, width); shorter ids get more zeros."""
    flat, width = out.ravel(), _U(out.shape[1])
    to = _ZERO
    for piece in range(len(starts)):
        own = _U(widths[piece])
        if own == width:
            for k in range(_U(starts[piece]), _U(stops[piece])):
                flat[to] = records[k]
                to += _ONE
        else:
            for place in range(_U(starts[piece]), _U(stops[piece]), own):
                for k in range(width):
                    flat[to + k] = records[place + k] if k < own else 0
                to += width


@compiled_in_order
def averages(records: Any, starts: Any, stops: Any, widths: Any, cut_off: Any) -> Any:
    """The means of units, shape (columns, units), and how many rows each has.

    The rows are in pieces of `records`, each of one width. `cut_off` has an entry for each column:
    whether its mean is cut off towards 0, or rounded.
    """
    columns = _U(len(cut_off))
    rows = np.sum((stops - starts) // widths)
    slots = 2
    while slots < 2 * rows:
        slots *= 2
    last = _U(slots - 1)
    table = np.full(slots, -1, dtype=np.int32)  # units, by their hashes
    first = np.empty(rows, dtype=np.int64)  # the first record of each unit
    counts = np.zeros(rows, dtype=np.int64)
    unit_of = np.empty(rows, dtype=np.int32)
    units, row = 0, 0
    for piece in range(len(starts)):
        for place in range(_U(starts[piece]), _U(stops[piece]), _U(widths[piece])):
            hashed = _U(records[place + columns])
            slot = hashed >> _COUNT & last
            end = columns + _ONE + _TWO * (hashed & _MOST)
            while table[slot] >= 0:
                other = _U(first[table[slot]])
                k = columns
                while k < end and records[place + k] == records[other + k]:
                    k += _ONE
                if k == end:
                    break
                slot = slot + _ONE & last
            if table[slot] < 0:
                table[slot] = units
                first[units] = place
                units += 1
            counts[table[slot]] += 1
            unit_of[row] = table[slot]
            row += 1
    totals = np.zeros((units, len(cut_off)))
    row = 0
    for piece in range(len(starts)):
        for place in range(_U(starts[piece]), _U(stops[piece]), _U(widths[piece])):
            whose = _U(unit_of[row])
            row += 1
            for column in range(columns):
                totals[whose, column] += records[place + column]
    means = np.empty((len(cut_off), units))
    for start in range(0, units, _TILE):
        for column in range(len(cut_off)):
            for unit in range(start, min(start + _TILE, units)):
                total, m = totals[unit, column], np.float64(counts[unit])
                if cut_off[column]:
                    means[column, unit] = np.trunc(total / m)
                else:
                    means[column, unit] = np.floor((2 * total + m) / (2 * m))
    return means, counts[:units]
