"""Compiled loops that put the rows of a unit together: see `rows.units` for what and why.

A record is a row of 32-bit integers: `columns` values on the grid, then the words of the id, each
as two of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from noisewise._compiled import compiled_in_order

_FIRST = np.uint64(0x9E3779B97F4A7C15)
_SECOND = np.uint64(0xD6E8FEB86659FD93)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_SHELF = np.uint64(56)


@compiled_in_order
def text_words(octets: Any, ends: Any, words: Any) -> None:
    """Write texts as words: their bytes, then a byte of 1, then zeros.

    `ends` has where each text begins, and the last one ends; `words`, (texts, words of the
    longest), receives them.
    """
    for i in range(words.shape[0]):
        at, end = ends[i], ends[i + 1]
        for j in range(words.shape[1]):
            word = np.uint64(0)
            if at + 8 <= end:
                for k in range(8):  # becomes a single load
                    word |= np.uint64(octets[at + k]) << np.uint64(8 * k)
            elif at <= end:
                for k in range(end - at):
                    word |= np.uint64(octets[at + k]) << np.uint64(8 * k)
                word |= np.uint64(1) << np.uint64(8 * (end - at))
            words[i, j] = word
            at += 8


@compiled_in_order
def hashes(records: Any, columns: int) -> Any:
    """A number of 64 bits for each id. Words of 0 at the end change nothing."""
    rows, width = records.shape
    result = np.empty(rows, dtype=np.uint64)
    for i in range(rows):
        end = width
        while end > columns and records[i, end - 1] == 0 and records[i, end - 2] == 0:
            end -= 2
        total = _FIRST
        for k in range(columns, end, 2):
            low = np.uint64(records[i, k]) & _LOW
            word = low | np.uint64(records[i, k + 1]) << _HALF
            total = (total ^ word) * _FIRST
            total ^= total >> _HALF
        total *= _SECOND
        result[i] = total ^ total >> _HALF
    return result


@compiled_in_order
def shelf_ends(hashed: Any) -> Any:
    """Where each of 256 shelves ends if rows are in their order; 0 comes first."""
    ends = np.zeros(257, dtype=np.int64)
    for i in range(len(hashed)):
        ends[np.int64(hashed[i] >> _SHELF) + 1] += 1
    for shelf in range(256):
        ends[shelf + 1] += ends[shelf]
    return ends


@compiled_in_order
def put(block: Any, ids: Any, hashed: Any, places: Any, records: Any) -> None:
    """Write rows as records into the next free places of their shelves.

    `block` is (columns, rows or more), `ids` are (rows, integers) and `records` (all rows, columns
    + integers). `places`, (257,), has the next free place of each shelf, and moves on.
    """
    columns = len(block)
    for i in range(len(ids)):
        shelf = np.int64(hashed[i] >> _SHELF)
        place = places[shelf]
        places[shelf] = place + 1
        for k in range(columns):
            records[place, k] = np.int32(block[k, i])
        for k in range(ids.shape[1]):
            records[place, columns + k] = ids[i, k]


@compiled_in_order
def averages(records: Any, hashed: Any, cut_off: Any) -> Any:
    """The means of units, shape (columns, units), and how many rows each has.

    `cut_off` has an entry for each column: whether its mean is cut off towards 0, or rounded.
    """
    rows, width = records.shape
    columns = len(cut_off)
    slots = 2
    while slots < 2 * rows:
        slots *= 2
    table = np.full(slots, -1, dtype=np.int32)  # units, by their hashes
    first = np.empty(rows, dtype=np.int32)  # the first row of each unit
    counts = np.zeros(rows, dtype=np.int64)
    totals = np.empty((rows, columns))
    units = 0
    for i in range(rows):
        slot = np.int64(hashed[i] & np.uint64(slots - 1))
        while table[slot] >= 0:
            other = first[table[slot]]
            k = columns
            while k < width and records[i, k] == records[other, k]:
                k += 1
            if k == width:
                break
            slot += 1
            if slot == slots:
                slot = np.int64(0)
        unit = table[slot]
        if unit < 0:
            unit = np.int32(units)
            table[slot] = unit
            first[unit] = i
            for k in range(columns):
                totals[unit, k] = 0.0
            units += 1
        counts[unit] += 1
        for k in range(columns):
            totals[unit, k] += records[i, k]
    means = np.empty((columns, units))
    for unit in range(units):
        m = np.float64(counts[unit])
        for k in range(columns):
            if cut_off[k]:
                means[k, unit] = np.trunc(totals[unit, k] / m)
            else:
                means[k, unit] = np.floor((2 * totals[unit, k] + m) / (2 * m))
    return means, counts[:units]
