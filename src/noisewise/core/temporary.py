"""Temporary files and folders; what a killed process left of them, the next run removes.

Whoever uses one keeps a lock on it, and the system takes the lock back when the process dies, in
whatever way. So one without a lock is a leftover. Where there are no such locks (Windows), nothing
is removed but by its owner.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_FILE, _FOLDER = ".noisewise-", "noisewise-"
_COMPLETED = "[a-z0-9_]{8}"  # by `tempfile`


def locked_file(folder: Path) -> tuple[int, str]:
    """A new, empty file that nobody else may read: descriptor and path. Leftovers go first."""
    _remove_leftovers(folder, _FILE)
    while True:
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=_FILE)
        if _is_ours(descriptor, name):
            return descriptor, name


@contextmanager
def private_folder() -> Iterator[Path]:
    """An empty folder that nobody else may read, removed with all that is in it afterwards."""
    if fcntl is None:
        with tempfile.TemporaryDirectory(prefix=_FOLDER) as name:
            yield Path(name)
        return
    _remove_leftovers(Path(tempfile.gettempdir()), _FOLDER)
    folder, descriptor = _locked_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _locked_folder() -> tuple[Path, int]:
    while True:
        name = tempfile.mkdtemp(prefix=_FOLDER)
        with suppress(FileNotFoundError):  # it has been removed already
            descriptor = os.open(name, os.O_RDONLY)
            if _is_ours(descriptor, name):
                return Path(name), descriptor


def _is_ours(descriptor: int, name: str) -> bool:
    """Lock what was just made; false if another process has removed it as a leftover by then."""
    _lock(descriptor, wait=True)
    with suppress(FileNotFoundError):
        if os.path.samestat(os.stat(name), os.fstat(descriptor)):
            return True
    os.close(descriptor)
    return False


def _remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove what nobody has a lock on; what can't be had is left alone."""
    ours, found = re.compile(re.escape(prefix) + _COMPLETED), []
    if fcntl is not None:
        with suppress(OSError):
            found = [path for path in folder.iterdir() if ours.fullmatch(path.name)]
    for path in found:
        with suppress(OSError):
            # Neither through a link nor waiting at a pipe, which are not ours.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if _lock(descriptor):
                    shutil.rmtree(path) if prefix == _FOLDER else path.unlink()
            finally:
                os.close(descriptor)


def _lock(descriptor: int, *, wait: bool = False) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
