"""A reader for the HDF5 files that `file.write` makes, and for nothing else that HDF5 can be.

A posterior file comes from somebody else. The HDF5 library would follow it to other files (external
and virtual storage, links), load filters from a folder of plug-ins, and expand a few kilobytes to
any size. It is also written in C, and hostile files have crashed it and hung it. So a file is read
here, in Python, from one open file.

**Claim.** Whatever the file contains, reading it opens nothing else, runs nothing that it names,
and ends with arrays or a `ReleaseError`. It takes at most `MAX_METADATA` bytes of descriptions and
`Reader.most_bytes` of arrays, and time in proportion to both.

**Proof.** Only `_File.fill` reads, and only the file that is open. What leads elsewhere has no code
here: an object has messages of `_GROUP` or `_VARIABLE` only, links are hard, storage is contiguous
or in chunks, filters are shuffle and deflate, types are those of `_NUMBERS`, or text that is not
read. Every structure is used once (`_File.once`), so there are no cycles, and nothing lies deeper
than a variable in a group. Descriptions are counted as they are read. Arrays are counted, chunks
whole, before the first is made; a chunk is inflated to the size that it must have and one byte
more, and is not read if it is longer than deflate makes it. Each byte is read, and judged, when it
is needed, so a file that changes meanwhile is no more than another file. ∎

The format is described in the HDF5 File Format Specification, version 3.0. Of it, this reads
superblocks 0, 2 and 3, object headers 2, links in messages or in a fractal heap with a version 2
B-tree, layout 3, a version 1 B-tree of chunks, and one object of a global heap, the marker's text.
`file.write` asks the library for the earliest formats, which are these.
"""

from __future__ import annotations

import math
import os
import stat
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from noisewise.core.errors import ReleaseError

MAX_METADATA = 1 << 23  # bytes of descriptions: about 10,000 variables
MAX_PIECES = 1 << 18  # in which they are read
MAX_TEXT = 1 << 28  # bytes of an attribute of the whole; of variables:
MAX_WORD = 64
MAX_ARRAYS = 1 << 32  # bytes of all arrays together, and:
ALWAYS, MAX_RATIO = 1 << 26, 16  # at most 64 MiB and 16 times the file; draws don't compress well
MAX_AXES = 32

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_NOWHERE = (1 << 64) - 1  # the address of what is not there
_NUMBERS: dict[bytes, np.dtype[Any]] = {
    bytes.fromhex("11203f000800000000004000340b0034ff030000"): np.dtype("<f8"),
    bytes.fromhex("11201f000400000000002000170800177f000000"): np.dtype("<f4"),
    **{
        bytes([0x10, sign, 0, 0, size, 0, 0, 0, 0, 0, 8 * size, 0]): np.dtype(f"<{kind}{size}")
        for sign, kind in ((0, "u"), (8, "i"))
        for size in (1, 2, 4, 8)
    },
}
_FIXED_TEXT, _LONG_TEXT = 3, 9  # classes of types

# Messages of object headers
_SPACE, _LINKS, _TYPE, _LINK, _LAYOUT, _FILTERS = 1, 2, 3, 6, 8, 11
_ATTRIBUTE, _CONTINUED, _ATTRIBUTES = 12, 16, 21
_NIL, _OLD_FILL, _FILL, _GROUP_INFO, _CHANGED = 0, 4, 5, 10, 18
_ANY = frozenset({_NIL, _ATTRIBUTE, _CONTINUED, _ATTRIBUTES, _CHANGED})
_GROUP = _ANY | {_LINKS, _LINK, _GROUP_INFO}
_VARIABLE = _ANY | {_SPACE, _TYPE, _LAYOUT, _FILTERS, _OLD_FILL, _FILL}
_DEFLATE, _SHUFFLE = 1, 2


def refuse(reason: str) -> NoReturn:
    """The file is none of ours."""
    raise ReleaseError(
        f"not a posterior file of noisewise (`fit` writes those), or damaged: {reason}"
    )


@dataclass(frozen=True)
class Variable:
    """An array as the file describes it, before it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None  # None for text, which is never read
    is_axis: bool  # it only numbers or names what stands along an axis of others
    is_bool: bool  # netCDF has no truth values and stores them as numbers
    layout: bytes
    filters: tuple[int, ...]

    @property
    def chunk(self) -> tuple[int, ...]:
        """The shape of a piece in the file; the whole array if it is contiguous."""
        if self.layout[1] == 1:
            return self.shape
        *chunk, itemsize = _unpack(f"<{len(self.shape) + 1}I", self.layout, 11)
        fits = all(1 <= part <= whole for part, whole in zip(chunk, self.shape, strict=True))
        if self.dtype is None or itemsize != self.dtype.itemsize or not fits:
            refuse("its chunks do not fit an array")
        return tuple(chunk)

    @property
    def parts(self) -> tuple[int, ...]:
        """The number of chunks along each axis."""
        return tuple(-(-whole // part) for whole, part in zip(self.shape, self.chunk, strict=True))

    @property
    def nbytes(self) -> int:
        """What its chunks take when they are inflated."""
        if self.dtype is None or 0 in self.shape:
            return 0
        return math.prod(self.parts) * math.prod(self.chunk) * self.dtype.itemsize


class Reader:
    """An open file: the text of its attributes, and the variables of its groups."""

    def __init__(self, path: str | Path):
        self._file = _File(path)
        try:
            self._root = _Header(self._file, self._file.root, _GROUP)
            self.groups = {
                name: {
                    inner: _Header(self._file, place, _VARIABLE).variable()
                    for inner, place in _Header(self._file, address, _GROUP).links().items()
                }
                for name, address in self._root.links().items()
            }
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def text(self, attribute: str) -> str:
        """The text of an attribute of the whole."""
        found = self._root.text(attribute, MAX_TEXT)
        if found is None:
            refuse(f"it has no attribute {attribute!r}")
        return found

    @property
    def most_bytes(self) -> int:
        """What all arrays together may take."""
        return min(MAX_ARRAYS, ALWAYS + MAX_RATIO * self._file.size)

    def arrays(self) -> dict[str, dict[str, NDArray[Any]]]:
        """All numbers, but for those that stand along axes, by group and name."""
        wanted = {
            group: {
                name: variable
                for name, variable in variables.items()
                if variable.dtype is not None and not variable.is_axis
            }
            for group, variables in self.groups.items()
        }
        total = sum(variable.nbytes for group in wanted.values() for variable in group.values())
        if total > self.most_bytes:
            refuse(
                f"its arrays would take {total:,} bytes; those of a file of {self._file.size:,} "
                f"bytes may take {self.most_bytes:,}"
            )
        return {
            group: {name: self._array(variable) for name, variable in variables.items()}
            for group, variables in wanted.items()
        }

    def _array(self, variable: Variable) -> NDArray[Any]:
        assert variable.dtype is not None
        found = np.empty(variable.shape, variable.dtype)
        if found.size and variable.layout[1] == 1:
            address, size = _unpack("<QQ", variable.layout, 2)
            if variable.filters or size != found.nbytes:
                refuse("an array and its storage differ in size")
            self._file.fill(found.reshape(-1).view(np.uint8).data, address)
        elif found.size:
            for start, block in _chunks(self._file, variable):
                inside = tuple(
                    slice(first, min(first + length, end))
                    for first, length, end in zip(start, block.shape, found.shape, strict=True)
                )
                found[inside] = block[tuple(slice(cut.stop - cut.start) for cut in inside)]
        return found.astype(np.bool_) if variable.is_bool else found


class _File:
    """Bytes of one regular file between two offsets; there is no other way to it."""

    def __init__(self, path: str | Path):
        # Without this flag, a pipe would be opened when somebody writes to it.
        more = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        self._opened = os.fdopen(os.open(path, os.O_RDONLY | more), "rb", buffering=0)
        try:
            status = os.fstat(self._opened.fileno())
            if not stat.S_ISREG(status.st_mode):
                refuse("it is no regular file")
            self.size = self._end = status.st_size
            self._metadata = self._pieces = 0
            self._used: set[int] = set()
            self.root = self._superblock()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._opened.close()

    def _superblock(self) -> int:
        """The address of the root group; from here on it is known where the file ends."""
        head = self.read(0, min(self.size, 96))
        if head[:8] != _SIGNATURE or len(head) < 96:
            refuse("it is not HDF5")
        if head[8] == 0:
            sizes, (base, _, end, other, _, root) = head[13:15], _unpack("<6Q", head, 24)
        elif head[8] in (2, 3):
            sizes, (base, other, end, root) = head[9:11], _unpack("<4Q", head, 12)
            _check_sum(head[:48])
        else:
            refuse("it begins in another way")
        # `other` is where a driver of several files, or an extension, would be described.
        if sizes != b"\x08\x08" or base != 0 or other != _NOWHERE:
            refuse("it begins in another way")
        if end > self.size:
            refuse("it has been cut off")
        self._end = int(end)
        return int(root)

    def read(self, address: int, size: int) -> bytes:
        """A piece of a description."""
        self._metadata += size
        self._pieces += 1
        if self._metadata > MAX_METADATA or self._pieces > MAX_PIECES:
            refuse("it describes more than noisewise writes")
        return self.content(address, size)

    def once(self, address: int, size: int, signature: bytes) -> bytes:
        """The beginning of a structure to which nothing else may lead."""
        if address in self._used:
            refuse("two parts of it lead to the same place")
        self._used.add(address)
        found = self.read(address, size)
        if not found.startswith(signature):
            refuse("a part of it is not where it should be")
        return found

    def content(self, address: int, size: int) -> bytes:
        """So many bytes."""
        if address + size > self._end:
            refuse("a part of it lies beyond its end")
        found = bytearray(size)
        self.fill(memoryview(found), address)
        return bytes(found)

    def fill(self, room: memoryview, address: int) -> None:
        """Fill all of `room`."""
        if address + len(room) > self._end:
            refuse("a part of it lies beyond its end")
        self._opened.seek(address)
        while room:
            count = self._opened.readinto(room)
            if not count:
                refuse("it has been cut off")
            room = room[count:]


class _Header:
    """The messages of an object: a group or a variable."""

    def __init__(self, file: _File, address: int, allowed: frozenset[int]):
        self._file = file
        self._messages: list[tuple[int, bytes]] = []
        head = file.once(address, 6, b"OHDR\x02")
        flags = head[5]
        start = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        width = 1 << (flags & 3)
        size = _number(file.read(address, start + width), start, width)
        block = file.read(address, start + width + size + 4)
        _check_sum(block)
        waiting = [block[start + width : -4]]
        while waiting:
            for kind, data in _messages(waiting.pop(), numbered=bool(flags & 4)):
                if kind not in allowed:
                    refuse("it has an object of a kind that noisewise does not write")
                if kind == _CONTINUED:
                    place, length = _unpack("<QQ", data)
                    block = file.once(place, length, b"OCHK")
                    _check_sum(block)
                    waiting.append(block[4:-4])
                else:
                    self._messages.append((kind, data))
        for data in self._all(_ATTRIBUTES):
            if _number(data, 4 if _number(data, 1, 1) & 1 else 2, 8) != _NOWHERE:
                refuse("an object has more attributes than noisewise writes")

    def _all(self, kind: int) -> list[bytes]:
        return [data for found, data in self._messages if found == kind]

    def _one(self, kind: int) -> bytes:
        found = self._all(kind)
        if len(found) != 1:
            refuse("an object is not described as it should be")
        return found[0]

    def variable(self) -> Variable:
        """The array that is described here."""
        shape, described = _shape(self._one(_SPACE)), self._one(_TYPE)
        dtype = _NUMBERS.get(described)
        if dtype is None and _class_of(described) != (_LONG_TEXT, 1):
            refuse("it has an array of a type that noisewise does not write")
        layout, filters = self._one(_LAYOUT), [_filters(data) for data in self._all(_FILTERS)]
        if layout[:1] != b"\3" or layout[1:2] not in (b"\1", b"\2") or len(filters) > 1:
            refuse("it has an array that is stored in a way that noisewise does not use")
        if layout[1] == 2 and (len(layout) < 3 or layout[2] != len(shape) + 1 or not shape):
            refuse("its chunks do not fit an array")
        return Variable(
            shape,
            dtype,
            self.text("CLASS") == "DIMENSION_SCALE",
            self.text("dtype") == "bool" and dtype == np.int8,
            layout,
            filters[0] if filters else (),
        )

    def text(self, name: str, longest: int = MAX_WORD) -> str | None:
        """The text of an attribute; None if there is no such attribute, or no text in it."""
        for data in self._all(_ATTRIBUTE):
            version, _, *sizes = _unpack("<BBHHH", data)
            if version not in (1, 2, 3):
                refuse("an attribute is not described as it should be")
            at, parts = 9 if version == 3 else 8, []
            for size in sizes:
                parts.append(data[at : at + size])
                at += size + (-size % 8 if version == 1 else 0)
            if parts[0].rstrip(b"\0") == name.encode():
                return self._decoded(parts[1], parts[2], data[at:], longest)
        return None

    def _decoded(self, described: bytes, space: bytes, value: bytes, longest: int) -> str | None:
        found, kind = _class_of(described)
        if found not in (_FIXED_TEXT, _LONG_TEXT) or _shape(space) != ():
            return None
        if found == _LONG_TEXT:
            if kind != 1:
                return None
            length, address, index = _unpack("<IQI", value)
            if length > longest:
                refuse("it has a text that is longer than noisewise writes")
            value = _global_object(self._file, address, index, length)
        else:
            value = value[: _number(described, 4, 4)].rstrip(b"\0")
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            refuse("a text is not UTF-8")

    def links(self) -> dict[str, int]:
        """The addresses of what is in this group."""
        messages = self._all(_LINK)
        for data in self._all(_LINKS):
            heap, tree = _unpack("<QQ", data, 2 + 8 * (_number(data, 1, 1) & 1))
            if heap != _NOWHERE:
                blocks = _Heap(self._file, heap)
                messages += [blocks.item(record[4:]) for record in _records(self._file, tree)]
        found = [_link(data) for data in messages]
        if len(dict(found)) < len(found):
            refuse("a name is used twice")
        return dict(found)


def _messages(block: bytes, *, numbered: bool) -> Iterator[tuple[int, bytes]]:
    at, head = 0, 6 if numbered else 4
    while at + head <= len(block):
        kind, size, flags = _unpack("<BHB", block, at)
        at += head
        if flags & 2 or at + size > len(block):  # shared with other objects; too long
            refuse("an object is not described as it should be")
        yield kind, block[at : at + size]
        at += size


def _class_of(described: bytes) -> tuple[int, int]:
    """The class of a type, and the first of its bits: 1 of texts of any length."""
    head, bits = _unpack("<BB", described)
    return head & 15, bits & 15


def _shape(data: bytes) -> tuple[int, ...]:
    version, axes, _, kind = _unpack("<4B", data)
    if version not in (1, 2) or axes > MAX_AXES or (version == 2 and kind > 1):
        refuse("it has an array of a shape that noisewise does not write")
    shape = _unpack(f"<{axes}Q", data, 8 if version == 1 else 4)
    if any(length > MAX_ARRAYS for length in shape):
        refuse("it has an array of a shape that noisewise does not write")
    return shape


def _filters(data: bytes) -> tuple[int, ...]:
    """Shuffle and deflate, in this order, or one of them."""
    version, count = _unpack("<BB", data)
    at, found = 8 if version == 1 else 2, []
    for _ in range(count if version in (1, 2) and count <= 2 else 0):
        (number,) = _unpack("<H", data, at)
        named = version == 1 or number >= 256
        length = _number(data, at + 2, 2) if named else 0
        at += 4 if named else 2
        values = _number(data, at + 2, 2)
        at += 4 + length + 4 * values + (4 * (values % 2) if version == 1 else 0)
        found.append(number)
    if count == 0 or tuple(found) not in ((_DEFLATE,), (_SHUFFLE,), (_SHUFFLE, _DEFLATE)):
        refuse("it has an array with a filter that noisewise does not use")
    return tuple(found)


def _link(data: bytes) -> tuple[str, int]:
    """The name and the address of a hard link."""
    version, flags = _unpack("<BB", data)
    at = 2
    kind = _number(data, at, 1) if flags & 8 else 0
    at += (1 if flags & 8 else 0) + (8 if flags & 4 else 0) + (1 if flags & 16 else 0)
    width = 1 << (flags & 3)
    length = _number(data, at, width)
    at += width
    name, rest = data[at : at + length], data[at + length :]
    if version != 1 or kind != 0 or len(name) != length:
        refuse("it has a link that noisewise does not write")
    try:
        return name.decode("utf-8"), _number(rest, 0, 8)
    except UnicodeDecodeError:
        refuse("a name is not UTF-8")


# --- many links: a fractal heap of them, and a version 2 B-tree that says where they are ----------


class _Heap:
    """The direct blocks of a fractal heap."""

    def __init__(self, file: _File, address: int):
        head = file.once(address, 146, b"FRHP\0")
        _check_sum(head)
        _, filters, self._flags, self._longest = _unpack("<HHBI", head, 5)
        width, first, largest, bits, _, root, rows = _unpack("<HQQHHQH", head, 110)
        powers = all(n and n & (n - 1) == 0 for n in (width, first, largest))
        if filters or not powers or first > largest or bits > 64 or largest > MAX_METADATA:
            refuse("a list of names is not described as it should be")
        self._file, self._offset = file, -(-bits // 8)
        self._length = (min(largest, self._longest).bit_length() + 7) // 8
        self._width, self._first, self._largest = width, first, largest
        self._blocks: list[tuple[int, bytes]] = []  # where they begin in the heap, and bytes
        if rows:
            self._indirect(root, 0, rows)
        elif root != _NOWHERE:
            self._direct(root, 0, first)
        self._starts = [start for start, _ in self._blocks]

    def _indirect(self, address: int, start: int, rows: int) -> None:
        """Rows of blocks: of the first size twice, and twice as large in each row after that."""
        direct = (self._largest // self._first).bit_length() + 1
        count = rows * self._width
        head = 13 + self._offset
        if rows > 64:
            refuse("a list of names is not described as it should be")
        block = self._file.once(address, head + 8 * count + 4, b"FHIB\0")
        _check_sum(block)
        for number, place in enumerate(_unpack(f"<{count}Q", block, head)):
            row = number // self._width
            size = self._first << max(0, row - 1)
            if place != _NOWHERE and row < direct:
                self._direct(place, start, size)
            elif place != _NOWHERE:
                self._indirect(place, start, (size // (self._first * self._width)).bit_length())
            start += size

    def _direct(self, address: int, start: int, size: int) -> None:
        block = self._file.once(address, size, b"FHDB\0")
        if self._flags & 2:
            at = 13 + self._offset
            stored, blank = _number(block, at, 4), block[:at] + bytes(4) + block[at + 4 :]
            if lookup3(blank) != stored:
                refuse("a checksum is wrong")
        self._blocks.append((start, block))

    def item(self, identity: bytes) -> bytes:
        """A link, by what the B-tree says of it."""
        offset = _number(identity, 1, self._offset)
        length = _number(identity, 1 + self._offset, self._length)
        block = bisect_right(self._starts, offset) - 1
        if identity[:1] != b"\0" or block < 0:
            refuse("a name is not where it should be")
        start, data = self._blocks[block]
        found = data[offset - start : offset - start + length]
        if len(found) != length:
            refuse("a name is not where it should be")
        return found


def _records(file: _File, address: int) -> list[bytes]:
    """What is in a version 2 B-tree of the names of links."""
    head = file.once(address, 38, b"BTHD\0\5")
    _check_sum(head)
    node, size, depth, _, _, root, count, total = _unpack("<IHHBBQHQ", head, 6)
    if size < 12 - 1 or not 64 <= node <= MAX_METADATA or depth > 8:
        refuse("a list of names is not described as it should be")
    # How many records a node of each depth holds at most, itself and with all below it, decides in
    # how many bytes such a number is written.
    most = (node - 10) // size
    width, below, widths = _bytes_of(most), most, [0]
    for _ in range(depth):
        pointer = 8 + width + widths[-1]
        own = (node - 10 - pointer) // (size + pointer)
        below = (own + 1) * below + own
        widths.append(_bytes_of(below))
    found: list[bytes] = []
    waiting = [(root, count, depth)] if total else []
    while waiting:
        place, count, level = waiting.pop()
        pointer = 8 + width + widths[level - 1] if level else 0
        length = 6 + count * size + (count + 1) * pointer + 4
        if length > node:
            refuse("a list of names is not described as it should be")
        block = file.once(place, length, b"BTIN\0\5" if level else b"BTLF\0\5")
        _check_sum(block)
        found += [block[6 + size * i : 6 + size * (i + 1)] for i in range(count)]
        for at in range(6 + size * count, length - 4, pointer or 1):
            waiting.append((_number(block, at, 8), _number(block, at + 8, width), level - 1))
    if len(found) != total:
        refuse("a list of names is not complete")
    return found


def _bytes_of(most: int) -> int:
    return (most.bit_length() + 7) // 8


# --- content -------------------------------------------------------------------------------------


def _global_object(file: _File, address: int, index: int, length: int) -> bytes:
    """The bytes of an object of a global heap."""
    head = file.read(address, 16)
    if not head.startswith(b"GCOL\1"):
        refuse("a text is not where it should be")
    at, end = address + 16, address + _unpack("<Q", head, 8)[0]
    while at + 16 <= end:
        number, _, _, size = _unpack("<HHIQ", file.read(at, 16))
        if number == index and length <= size:
            return file.content(at + 16, length)
        if number in (0, index):
            break
        at += 16 + size + -size % 8
    refuse("a text is not where it should be")


def _chunks(file: _File, variable: Variable) -> Iterator[tuple[tuple[int, ...], NDArray[Any]]]:
    """Every chunk of an array once: where it begins, and what is in it."""
    assert variable.dtype is not None
    axes, chunk, parts = len(variable.shape), variable.chunk, variable.parts
    nbytes = math.prod(chunk) * variable.dtype.itemsize
    key, met = 16 + 8 * axes, set()
    waiting = [(_unpack("<Q", variable.layout, 3)[0], -1)]
    while waiting:
        address, level = waiting.pop()
        head = file.once(address, 24, b"TREE\1")
        if level not in (-1, head[5]):
            refuse("a list of chunks is not described as it should be")
        (count,) = _unpack("<H", head, 6)
        entries = file.read(address + 24, count * (key + 8))
        for at in range(0, len(entries), key + 8):
            size, skipped, *start = _unpack(f"<II{axes}Q", entries, at)
            (place,) = _unpack("<Q", entries, at + key)
            if head[5]:
                waiting.append((place, head[5] - 1))
                continue
            inside = all(
                first % length == 0 and first // length < count
                for first, length, count in zip(start, chunk, parts, strict=True)
            )
            if not inside or tuple(start) in met:
                refuse("a chunk is not where it should be")
            met.add(tuple(start))
            # Deflate makes what it can't compress longer by less than this.
            if size > nbytes + nbytes // 1000 + 64:
                refuse("a chunk is too long")
            data = _inflated(file.content(place, size), nbytes, variable, skipped)
            yield tuple(start), np.frombuffer(data, variable.dtype).reshape(chunk)
    if len(met) != math.prod(parts):
        refuse("a part of an array is missing")


def _inflated(data: bytes, nbytes: int, variable: Variable, skipped: int) -> bytes:
    """The bytes of a chunk before filters, of which some may have been skipped."""
    assert variable.dtype is not None
    for number, name in reversed(list(enumerate(variable.filters))):
        if skipped >> number & 1:
            continue
        if name == _DEFLATE:
            stream = zlib.decompressobj()
            try:
                data = stream.decompress(data, nbytes + 1)
            except zlib.error:
                refuse("a part of an array is damaged")
            if not stream.eof:
                refuse("a chunk is larger than its array says, or cut off")
        elif len(data) == nbytes:
            sorted_bytes = np.frombuffer(data, np.uint8).reshape(variable.dtype.itemsize, -1)
            data = sorted_bytes.T.tobytes()
    if len(data) != nbytes:
        refuse("a chunk has another size than its array says")
    return data


def _unpack(form: str, data: bytes, at: int = 0) -> tuple[Any, ...]:
    """Numbers at a place in some bytes, if they are there."""
    try:
        return struct.unpack_from(form, data, at)
    except struct.error:
        refuse("a part of it is too short")


def _number(data: bytes, at: int, size: int) -> int:
    if len(data) < at + size:
        refuse("a part of it is too short")
    return int.from_bytes(data[at : at + size], "little")


def _check_sum(block: bytes) -> None:
    """The last four bytes must be the checksum of those before."""
    if lookup3(block[:-4]) != _number(block, max(0, len(block) - 4), 4):
        refuse("a checksum is wrong")


def lookup3(data: bytes) -> int:
    """Jenkins' hash ``hashlittle`` (2006) with 0 to begin with: HDF5's checksum."""
    mask = 0xFFFFFFFF
    a = b = c = (0xDEADBEEF + len(data)) & mask
    if not data:
        return c
    words: Iterator[tuple[int, int, int]]
    words = struct.iter_unpack("<III", data + bytes(-len(data) % 12))
    x, y, z = next(words)
    for following in words:
        a, b, c = a + x & mask, b + y & mask, c + z & mask
        a = (a - c & mask) ^ (c << 4 & mask | c >> 28)
        c = c + b & mask
        b = (b - a & mask) ^ (a << 6 & mask | a >> 26)
        a = a + c & mask
        c = (c - b & mask) ^ (b << 8 & mask | b >> 24)
        b = b + a & mask
        a = (a - c & mask) ^ (c << 16 & mask | c >> 16)
        c = c + b & mask
        b = (b - a & mask) ^ (a << 19 & mask | a >> 13)
        a = a + c & mask
        c = (c - b & mask) ^ (b << 4 & mask | b >> 28)
        b = b + a & mask
        x, y, z = following
    turned, other, last = c + z & mask, a + x & mask, b + y & mask
    for bits in (14, 11, 25, 16, 4, 14, 24):
        mixed = (turned ^ last) - (last << bits & mask | last >> (32 - bits)) & mask
        turned, other, last = other, last, mixed
    return last
