"""Posterior files from somebody else: HDF5 that leads elsewhere, expands, or says what isn't so.

A file with one harmless posterior is changed in one way, and `noisewise show` gets it, in a process
whose memory is limited. It must end soon, with the exit code for bad files and one line.
"""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np

from noisewise.analyst.posterior import hdf5
from noisewise.analyst.posterior.regression import FitInfo, Posterior
from noisewise.analyst.regression.observation import ModelColumns
from noisewise.core.schema import Category, Number, Schema
from studies.mended import Scenario, Unavailable

SECRET = b"Nobody but the owner of this file may see this sentence. " * 20
MEMORY = 1 << 28  # bytes that a command may take beyond what it has when it starts
SECONDS = 10  # of the processor that a command may take; it takes much less than one
THETA = "posterior/theta"
# `noisewise show` of one file after the other: the exit code, seconds of the processor, words.
_SHOW = """
import contextlib, io, json, resource, sys, time
from noisewise.analyst.posterior import plots, regression
from noisewise.cli.main import main
limit, *paths = sys.argv[1:]
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + int(limit),) * 2)
for path in paths:
    sys.argv, code, said = ["noisewise", "show", path], 0, io.StringIO()
    started = time.process_time()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    print(json.dumps([code, time.process_time() - started, said.getvalue()]), flush=True)
"""

Change = Callable[[Path], None]


def genuine(path: Path) -> Path:
    """A posterior of 2 x 600 made-up draws, as `fit` would save it."""
    people = Schema(
        "people",
        {
            "age": Number(18, 90),
            "region": Category(("north", "south"), "north"),
            "pay": Number(0, 9),
        },
    )
    columns = ModelColumns(people, ("age", "region"), "pay")
    theta = np.random.default_rng(1).normal([1.0, 0.1, 2.0], 0.1, (2, 600, 3))
    info = FitInfo(
        method="exact",
        reason="for a test",
        noise_aware=True,
        n=(100,),
        claims=("epsilon = 1",),
        digests=("sha256:0",),
    )
    Posterior(columns, theta, np.exp(theta[..., 0]), info, theta).save(path)
    return path


def shown(paths: list[Path]) -> list[tuple[int, float, str]]:
    """`noisewise show` of these files by one process with little memory, as `_SHOW` says."""
    if not Path("/proc/self/statm").exists():
        raise Unavailable("the system does not say how much memory a process has")
    ended = subprocess.run(
        [sys.executable, "-c", _SHOW, str(MEMORY), *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=10 * SECONDS * len(paths),  # other work on the machine is not the file's fault
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    told = [json.loads(line) for line in ended.stdout.splitlines()]
    more = [(ended.returncode, 0.0, ended.stderr[-500:])] * (len(paths) - len(told))
    return [(code, seconds, text) for code, seconds, text in (*told, *more)]


def _outcome(changes: dict[str, Change], folder: Path, ends: tuple[int, ...] = (6,)) -> str | None:
    paths = []
    for number, change in enumerate(changes.values()):
        place = folder / str(number)
        place.mkdir()
        paths.append(genuine(place / "post.nc"))
        change(paths[-1])
    broken = []
    for name, (code, seconds, text) in zip(changes, shown(paths), strict=True):
        if SECRET[:20].decode() in text:
            broken.append(f"{name}: another file's content is shown")
        elif code not in ends or (code and not text[:-1].isprintable()):
            broken.append(f"{name}: it ends with {code} and {text!r:.500}")
        elif seconds > SECONDS:
            broken.append(f"{name}: it takes {seconds:.0f} seconds")
    return "; ".join(broken) or None


# --- files that lead elsewhere --------------------------------------------------------------------


@contextmanager
def opened(path: Path, **words: Any) -> Iterator[h5py.File]:
    """The file for a change; objects get descriptions of the kind that ours have."""
    before = h5py.get_config().track_order
    h5py.get_config().track_order = True
    try:
        with h5py.File(path, "r+", **words) as file:
            yield file
    finally:
        h5py.get_config().track_order = before


def _replaced(path: Path, name: str, make: Callable[[h5py.Group, str], Any]) -> None:
    """Another object in the place of an array or a group, with the same scales on its axes."""
    with opened(path) as file:
        dims = file[name].dims if isinstance(file[name], h5py.Dataset) else ()
        scales = [axis[0] for axis in dims if len(axis)]
        del file[name]
        made = make(file, name)
        if isinstance(made, h5py.Dataset) and made.ndim == len(scales):
            for axis, scale in zip(made.dims, scales, strict=True):
                axis.attach_scale(scale)


def _secret(path: Path) -> Path:
    found = path.with_name("secret.txt")
    found.write_bytes(SECRET)
    return found


def external_storage(path: Path, name: str = THETA, shape: tuple[int, ...] = (2, 20, 3)) -> None:
    """An array whose bytes are those of another file."""
    size = 8 * int(np.prod(shape))
    outside = [(str(_secret(path)), 0, size)]
    _replaced(path, name, lambda f, n: f.create_dataset(n, shape, "<f8", external=outside))


def virtual_storage(path: Path) -> None:
    """An array that is put together from another file."""
    genuine(path.with_name("other.nc"))
    described = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    described.set_attr_creation_order(h5py.h5p.CRT_ORDER_TRACKED)
    space = h5py.h5s.create_simple((2, 600, 3))
    described.set_virtual(space, b"other.nc", THETA.encode(), space)
    with opened(path) as file:
        del file[THETA]
        h5py.h5d.create(file.id, THETA.encode(), h5py.h5t.IEEE_F64LE, space, described)


def _link(link: Any, name: str, path: Path) -> None:
    genuine(path.with_name("other.nc"))
    with opened(path) as file:
        del file[name]
        file[name] = link


def _cycle(path: Path) -> None:
    with opened(path) as file:
        file["posterior/again"] = file


def _redirected(name: str, target: str, path: Path) -> None:
    """A name leads to another object, and nothing but its address says so."""
    with h5py.File(path) as file:
        before, after = (
            h5py.h5o.get_info(file[each].id).addr.to_bytes(8, "little") for each in (name, target)
        )
    blocks, data = checked_blocks(path), path.read_bytes()
    for block in blocks:
        data = data[: block.start] + data[block].replace(before, after) + data[block.stop :]
    path.write_bytes(with_checksums(data, blocks))


def _twice(path: Path) -> None:
    with opened(path) as file:
        file["posterior/more"] = file[THETA]


def _of_type(dtype: Any, path: Path) -> None:
    _replaced(path, THETA, lambda f, n: f.create_dataset(n, (2, 600, 3), dtype))


def _filtered(path: Path, **words: Any) -> None:
    values = np.random.default_rng(1).normal(size=(2, 600, 3))
    _replaced(path, THETA, lambda f, n: f.create_dataset(n, data=values, **words))


def _plugin(path: Path) -> None:
    """A filter that the library would look for among plug-ins, and run."""

    def make(file: h5py.File, name: str) -> None:
        described = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        described.set_chunk((2, 600, 3))
        described.set_attr_creation_order(h5py.h5p.CRT_ORDER_TRACKED)
        described.set_filter(40_000, h5py.h5z.FLAG_OPTIONAL, (1,))
        space = h5py.h5s.create_simple((2, 600, 3))
        h5py.h5d.create(file.id, name.encode(), h5py.h5t.IEEE_F64LE, space, described)

    _replaced(path, THETA, make)


# --- files that expand ----------------------------------------------------------------------------


def unwritten(path: Path, count: int = 150_000_000) -> None:
    """Chunks that were never written: a gigabyte of zeros to whoever reads them."""
    words = {"chunks": (1 << 20,), "compression": "gzip"}
    with opened(path) as file:
        file.create_dataset("posterior/more", (count,), "<f8", **words)


def compressed(path: Path, chunks: int = 75) -> None:
    """The same, written: 600 MB of zeros in 600 kB."""
    words: dict[str, Any] = {"chunks": (1 << 20,), "compression": "gzip", "shuffle": True}
    packed = zlib.compress(bytes(8 << 20))
    with opened(path) as file:
        made = file.create_dataset("posterior/more", (chunks << 20,), "<f8", **words)
        for number in range(chunks):
            made.id.write_direct_chunk((number << 20,), packed)


def overfull(path: Path, blocks: int) -> None:
    """A chunk that should take 29 kB, and takes so many times 16 MB when it is inflated."""
    stream, block = zlib.compressobj(9, zlib.DEFLATED, -15), bytes(1 << 24)
    part = stream.compress(block) + stream.flush(zlib.Z_FULL_FLUSH)
    check = 1
    for _ in range(blocks):
        check = zlib.adler32(block, check)
    packed = b"\x78\xda" + part * blocks + stream.flush() + check.to_bytes(4, "big")

    def make(file: h5py.File, name: str) -> None:
        words: dict[str, Any] = {"chunks": (2, 600, 3), "compression": "gzip"}
        made = file.create_dataset(name, (2, 600, 3), "<f8", **words)
        made.id.write_direct_chunk((0, 0, 0), packed)

    _replaced(path, THETA, make)


def checked_blocks(path: Path) -> list[slice]:
    """Where descriptions with a checksum, their last four bytes, are in a genuine file."""
    blocks: list[bytes] = []
    with mock.patch.object(hdf5, "_check_sum", blocks.append), hdf5.Reader(path):
        pass
    data = path.read_bytes()
    found = (re.finditer(re.escape(block), data) for block in set(blocks))
    return [slice(*match.span()) for matches in found for match in matches]


def with_checksums(data: bytes, blocks: list[slice]) -> bytes:
    """The same bytes with checksums that fit."""
    made = bytearray(data)
    for block in blocks:
        made[block.stop - 4 : block.stop] = hdf5.lookup3(
            bytes(made[block.start : block.stop - 4])
        ).to_bytes(4, "little")
    return bytes(made)


def _overlapping(path: Path, count: int = 60) -> None:
    """Arrays that all are the same two megabytes of the file."""
    with opened(path) as file:
        for number in range(count):
            file.create_dataset(f"posterior/more{number}", (1 << 18,), "<f8")
        block = file.create_dataset("posterior/more", data=np.ones(1 << 18))
        place, size = block.id.get_offset().to_bytes(8, "little"), (8 << 18).to_bytes(8, "little")
    blocks, nowhere = checked_blocks(path), bytes([255] * 8)
    data = path.read_bytes().replace(b"\3\1" + nowhere + size, b"\3\1" + place + size)
    path.write_bytes(with_checksums(data, blocks))


def _sparse(path: Path) -> None:
    """A file of a hundred gigabytes without content, and an array that is all of it."""
    with opened(path) as file:
        described = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        described.set_layout(h5py.h5d.CONTIGUOUS)
        described.set_attr_creation_order(h5py.h5p.CRT_ORDER_TRACKED)
        described.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        described.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space = h5py.h5s.create_simple((12_500_000_000,))
        h5py.h5d.create(file["posterior"].id, b"more", h5py.h5t.IEEE_F64LE, space, described)


def _crowd(path: Path) -> None:
    with opened(path) as file:
        for number in range(3000):
            file.create_group(f"{number} " + 3500 * "x")


# --- files that say what isn't so -----------------------------------------------------------------


def mark(path: Path, marker: Any) -> None:
    """Let a file say something else of itself."""
    with opened(path) as file:
        del file.attrs["noisewise"]
        file.attrs["noisewise"] = marker


def document(path: Path) -> Any:
    """What a file says of itself."""
    with h5py.File(path) as file:
        return json.loads(file.attrs["noisewise"])


def _edited(place: tuple[str, ...], value: Any, path: Path) -> None:
    whole = part = document(path)
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = value
    mark(path, json.dumps(whole))


def _many_markers(path: Path) -> None:
    mark(path, np.array(["x" * 1000] * 4, dtype=h5py.string_dtype()))


def _shaped(values: Any, path: Path) -> None:
    def make(file: h5py.File, name: str) -> None:
        file[name] = values

    _replaced(path, THETA, make)


def _without(name: str, path: Path) -> None:
    with opened(path) as file:
        del file[name]


def endless(path: Path) -> None:
    """A heap of texts says that it has less free space than it has: the library never ends."""
    data = path.read_bytes()
    at = data.index(b"GCOL") + 16
    while (head := struct.unpack_from("<HHIQ", data, at))[0]:
        at += 16 + head[3] + -head[3] % 8
    path.write_bytes(data[: at + 8] + (64).to_bytes(8, "little") + data[at + 16 :])


def _newest(path: Path) -> None:
    """Chunks that are listed as the newest libraries do it, if one asks them to."""
    words: dict[str, Any] = {"chunks": (1, 600, 3), "compression": "gzip"}
    with opened(path, libver="latest") as file:
        del file[THETA]
        file.create_dataset(THETA, data=np.zeros((2, 600, 3)), **words)


def _later(path: Path) -> None:
    """The same content behind 512 bytes of something else."""
    copied = path.with_name("copied.nc")
    with h5py.File(path) as old, h5py.File(copied, "w", userblock_size=512) as new:
        for name in old:
            old.copy(name, new)
        new.attrs["noisewise"] = old.attrs["noisewise"]
    copied.replace(path)


def _bytes(change: Callable[[bytes], bytes], path: Path) -> None:
    path.write_bytes(change(path.read_bytes()))


def _pipe(path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        raise Unavailable("the system has no named pipes")
    path.unlink()
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


HOSTILE: dict[str, dict[str, Change]] = {
    "files that lead to other files": {
        "an array is another file": external_storage,
        "an axis is another file": partial(external_storage, name="posterior/draw", shape=(600,)),
        "an array is put together from another file": virtual_storage,
        "a group is in another file": partial(
            _link, h5py.ExternalLink("other.nc", "/posterior"), "posterior"
        ),
        "an array is in another file": partial(_link, h5py.ExternalLink("other.nc", THETA), THETA),
        "a soft link": partial(_link, h5py.SoftLink("/posterior/sigma2"), THETA),
        "a filter among plug-ins": _plugin,
        "a pipe": _pipe,
        "a device": _device,
    },
    "files that go round in circles": {
        "a group in itself": _cycle,
        "an array under two names": _twice,
        "a group that leads to the whole": partial(_redirected, "posterior", "/"),
        "an array that leads to its group": partial(_redirected, THETA, "posterior"),
        "two names for one place": partial(_redirected, THETA, "posterior/sigma2"),
    },
    "files that expand": {
        "chunks that were never written": unwritten,
        "very many chunks that were never written": partial(unwritten, count=20_000_000_000),
        "a bomb": compressed,
        "a chunk that is larger than it says": partial(overfull, blocks=1),
        "a chunk that is much larger than it says": partial(overfull, blocks=32),
        "arrays that share their bytes": _overlapping,
        "a file with a hole": _sparse,
        "very many groups": _crowd,
    },
    "files with arrays of another kind": {
        "texts": partial(_of_type, h5py.string_dtype()),
        "short texts": partial(_of_type, "S8"),
        "structures": partial(_of_type, [("a", "<f8"), ("b", "<f8")]),
        "references": partial(_of_type, h5py.ref_dtype),
        "regions of other arrays": partial(_of_type, h5py.regionref_dtype),
        "lists": partial(_of_type, h5py.vlen_dtype("<f8")),
        "words": partial(_of_type, h5py.enum_dtype({"a": 1})),
        "arrays in arrays": partial(_of_type, np.dtype(("<f8", (3,)))),
        "opaque bytes": partial(_of_type, "V8"),
        "numbers of another byte order": partial(_of_type, ">f8"),
        "another filter": partial(_filtered, compression="lzf"),
        "a filter with checksums": partial(_filtered, fletcher32=True, chunks=(2, 600, 3)),
        "a filter with scales": partial(_filtered, scaleoffset=3, chunks=(2, 600, 3)),
        "another shape": partial(_shaped, np.zeros((2, 600, 4))),
        "no axes": partial(_shaped, 1.0),
        "no draws": partial(_shaped, np.zeros((2, 0, 3))),
        "draws that are no numbers": partial(_shaped, np.full((2, 600, 3), np.nan)),
        "no group of draws": partial(_without, "posterior"),
        "no error variance": partial(_without, "posterior/sigma2"),
        "the newest format": _newest,
    },
    "files that say what isn't so": {
        "nothing": partial(mark, marker="{}"),
        "deep brackets": partial(mark, marker="[" * 100_000),
        "deep objects": partial(mark, marker='{"a":' * 100_000),
        "deep brackets in their place": partial(
            mark, marker='{"info": ' + "[" * 500 + "]" * 500 + "}"
        ),
        "a number": partial(mark, marker=1.0),
        "several texts": _many_markers,
        "a warning that steers the terminal": partial(
            _edited, ("info", "warnings"), ["\x1b[2J\x1b]0;owned\x07"]
        ),
        "warnings that are no texts": partial(_edited, ("info", "warnings"), [1]),
        "rows that are no number": partial(_edited, ("info", "n"), [{"a": 1}]),
        "a claim too many": partial(_edited, ("info", "claims"), ["epsilon = 1"] * 2),
        "an enormous seed": partial(_edited, ("info", "seed"), 10**4000),
        "a target that isn't there": partial(_edited, ("target",), "x" * 10_000),
    },
    "files that are none": {
        "one that begins later": _later,
        "one that is cut off": partial(_bytes, lambda data: data[:-100]),
        "an empty one": partial(_bytes, lambda data: b""),
        "the beginning of one": partial(_bytes, lambda data: data[:8]),
        "one of zeros": partial(_bytes, lambda data: data[:8] + bytes(10_000)),
    },
}

SCENARIOS: dict[str, Scenario] = {
    **{name: partial(_outcome, changes) for name, changes in HOSTILE.items()},
    # Whoever reads only what is needed has no reason to refuse it.
    "a heap of texts without an end": partial(_outcome, {"endless": endless}, ends=(0, 6)),
}
