"""Files that appear whole, private temporary folders, and what killed processes leave of both.

**Claim.** Nothing is removed that this user's noisewise didn't make itself.

**Proof.** A running process removes only what it made, compared with what it made right before, and
there is no search for leftovers. `remove_leftover` removes what an entry of the manifest names, if
all of this holds. The entry is a file of this user in a folder that nobody else can write to (mode
700, not a symbolic link). No process holds the entry's lock, and the process that wrote it is gone.
The folder in question, or the folder that the file in question is in, and the thing itself have the
device and the inode of the entry, and the thing belongs to this user. Its name is the random one of
the entry (128 bits). A file is unchanged since it was complete, and a folder holds a mark with the
entry's name, because inodes are used again. Folders are emptied by their descriptor, without
following links. What can't be proven stays, and is named. ∎

What remains is the moment between the comparison and the removal of one name, for which there is no
system call. Who can use it may write to that folder, and so may remove the name anyway.

A new file has no name while it is written, where the system has such files (Linux). Then it gets
its name in one step, or if it replaces another file, for that moment a hidden name beside it.

The manifest is the folder `noisewise` in `$XDG_STATE_HOME`, or else in `~/.local/state`: one small
file for each temporary file or folder that has a name. It holds paths, never content. If it can't
be written, everything works, but what a kill leaves can't be proven to be ours. Windows has none.
"""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_NAME = re.compile(r"\.?noisewise-([0-9a-f]{32})")  # of hidden files, with a dot, and of folders
_MARK = ".made-by-noisewise"  # a file in each private folder, with the name of its entry
_LARGEST_ENTRY = 65_536  # bytes
_FOLDER: int = getattr(os, "O_DIRECTORY", 0) | os.O_RDONLY
# A folder as a place for names, which needs no right to read it where the system has such.
_PLACE: int = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", os.O_RDONLY)
_NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)


# --- files that appear whole ----------------------------------------------------------------------


def write_file(path: str | Path, content: bytes, *, mode: int, new: bool = False) -> None:
    """Write a file so that readers see all of it or nothing; it is on disk before it has its name.

    An existing file is replaced, or raises a FileExistsError if the file has to be `new`. May raise
    any other OSError.
    """
    path = Path(path)
    hidden = Path(os.path.realpath(path.parent), f".noisewise-{secrets.token_hex(16)}")
    entry = _Entry(hidden)
    made: os.stat_result | None = None
    try:
        with suppress(OSError), _created(hidden.parent, getattr(os, "O_TMPFILE", 0)) as unnamed:
            _fill(unnamed, content, mode)
            # A new file is closed before it has its name: as soon as a ledger has one, closing any
            # descriptor of it drops the locks that SQLite has on it in this process.
            if not new and _linked(unnamed, path):
                return
            entry.write(os.fstat(unnamed.fileno()), complete=True)
            if _linked(unnamed, hidden):
                made = os.fstat(unnamed.fileno())
        if made is None:
            with _created(hidden, os.O_CREAT | os.O_EXCL) as file:
                made = os.fstat(file.fileno())
                entry.write(made)
                _fill(file, content, mode)
                entry.write(os.fstat(file.fileno()), complete=True)
        (os.link if new else os.replace)(hidden, path)
    finally:
        with suppress(FileNotFoundError):  # it has its name
            if made is not None and os.path.samestat(os.lstat(hidden), made):
                os.unlink(hidden)
        entry.close(forget=not os.path.lexists(hidden))


def _created(path: Path, flags: int) -> IO[bytes]:
    """A new file that nobody else can read."""
    flags |= os.O_WRONLY | getattr(os, "O_BINARY", 0)  # for Windows
    return open(path, "wb", opener=lambda name, _: os.open(name, flags, 0o600))


def _fill(file: IO[bytes], content: bytes, mode: int) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())
    if hasattr(os, "fchmod"):
        os.fchmod(file.fileno(), mode)


def _linked(file: IO[bytes], path: Path) -> bool:
    """Give a file its name, unless another file has it or the system can't."""
    source = f"/proc/self/fd/{file.fileno()}"
    try:
        with _opened(path.parent, _PLACE) as folder:
            # With a descriptor of a folder Python follows the link, without one it doesn't.
            os.link(source, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        return False
    return True


# --- private folders ------------------------------------------------------------------------------


@contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder that nobody else may read, removed with all that is in it afterwards."""
    if fcntl is None:
        with tempfile.TemporaryDirectory(prefix="noisewise-") as windows:
            yield Path(windows)
        return
    owner, token = os.getpid(), secrets.token_hex(16)
    path = Path(os.path.realpath(tempfile.gettempdir()), f"noisewise-{token}")
    with _opened(path.parent, _PLACE) as parent:
        os.mkdir(path.name, 0o700, dir_fd=parent)
        with _opened(path.name, _FOLDER | _NO_LINK, parent) as folder:
            made, entry = os.fstat(folder), _Entry(path)
            if not _is_private(made):
                raise PermissionError(f"{path} was replaced by somebody else; set another TMPDIR")
            _write_mark(folder, token)
            entry.write(made)
            try:
                yield path
            finally:
                if os.getpid() == owner:  # not a child that was forked meanwhile
                    removed = False
                    with suppress(OSError):  # if it can't be removed, it is a leftover
                        _remove_folder(parent, path.name, folder)
                        removed = True
                    entry.close(forget=removed)


def _write_mark(folder: int, token: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with _opened(_MARK, flags, folder) as mark:
        os.write(mark, token.encode())


def _has_mark(folder: int, token: str) -> bool:
    with suppress(OSError), _opened(_MARK, os.O_RDONLY | _NO_LINK | os.O_NONBLOCK, folder) as mark:
        status = os.fstat(mark)
        owned = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        return owned and os.read(mark, 64) == token.encode()
    return False


def _remove_folder(parent: int, name: str, folder: int) -> None:
    """Remove all that is in an open folder, its mark last, and then its name if it is still its."""
    for place, folders, files, here in os.fwalk(".", topdown=False, dir_fd=folder):
        for each in files:
            if place != "." or each != _MARK:
                os.unlink(each, dir_fd=here)
        for each in folders:
            linked = stat.S_ISLNK(os.stat(each, dir_fd=here, follow_symlinks=False).st_mode)
            (os.unlink if linked else os.rmdir)(each, dir_fd=here)
    if os.path.samestat(os.stat(name, dir_fd=parent, follow_symlinks=False), os.fstat(folder)):
        with suppress(FileNotFoundError):
            os.unlink(_MARK, dir_fd=folder)
        os.rmdir(name, dir_fd=parent)


@contextmanager
def _opened(path: str | Path, flags: int, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o600, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


# --- the manifest ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """What an entry says: what was made, where, and by which process."""

    path: str
    device: int
    inode: int
    parent_device: int
    parent_inode: int
    changed: int | None  # of a file that is complete: when it was last written, in nanoseconds
    process: int
    started: str | None  # the process, in ticks since the machine's; None where it can't be told
    boot: str | None  # which start of the machine, likewise
    machine: str
    time: str


class _Entry:
    """An entry of the manifest, locked until it is closed; nothing where there is no manifest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def write(self, made: os.stat_result, *, complete: bool = False) -> None:
        """Say what was made, or is about to get its name."""
        if fcntl is None:
            return
        with suppress(OSError):
            if self._descriptor is None:
                with _manifest(make=True) as manifest:
                    self._descriptor = _new_entry(manifest, self._token)
            parent, process = os.stat(self._path.parent), os.getpid()
            entry = Made(
                path=str(self._path),
                device=made.st_dev,
                inode=made.st_ino,
                parent_device=parent.st_dev,
                parent_inode=parent.st_ino,
                changed=made.st_mtime_ns if complete else None,
                process=process,
                started=_start_of(process),
                boot=_boot(),
                machine=platform.node(),
                time=datetime.now(UTC).isoformat(timespec="seconds"),
            )
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, json.dumps(asdict(entry)).encode(), 0)

    def close(self, *, forget: bool) -> None:
        """Give the lock back; without its entry, if what was made is gone."""
        if self._descriptor is not None:
            with suppress(OSError):
                if forget:
                    with _manifest() as manifest:
                        os.unlink(self._token, dir_fd=manifest)
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def _token(self) -> str:
        return _token_of(self._path.name)


def _token_of(name: str) -> str:
    found = _NAME.fullmatch(name)
    return found[1] if found else ""


def _new_entry(manifest: int, token: str) -> int:
    """An empty entry with its lock: nobody takes it for one of a process that is gone."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    descriptor = os.open(token, flags, 0o600, dir_fd=manifest)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:  # a file system without locks
        os.unlink(token, dir_fd=manifest)
        os.close(descriptor)
        raise
    return descriptor


def manifest_path() -> Path:
    """The folder with the manifest. May raise an OSError."""
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():  # the specification says so
        try:
            base = Path.home() / ".local" / "state"
        except RuntimeError as error:
            raise FileNotFoundError(f"{error} Set XDG_STATE_HOME") from None
    return base / "noisewise"


@contextmanager
def _manifest(*, make: bool = False) -> Iterator[int]:
    """The open folder, if nobody else can have written to it; otherwise an OSError says why."""
    path = manifest_path()
    if make:
        there = next(one for one in path.parents if one.exists())
        if os.stat(there).st_uid != os.geteuid():  # root under another user's HOME, for example
            raise PermissionError(f"{there} belongs to another user")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
    with _opened(path, _FOLDER | _NO_LINK) as folder:
        if not _is_private(os.fstat(folder)):
            raise PermissionError(f"{path} must belong to you and have mode 700")
        yield folder


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077


# --- what killed processes left -------------------------------------------------------------------


@dataclass(frozen=True)
class Leftover:
    """Something that the manifest names."""

    token: str
    made: Made
    # Why it stays; "" if it is proven to be ours and its process is gone
    stays: str

    def __str__(self) -> str:
        path, time = self.made.path, self.made.time
        shown = [one if one.isprintable() else repr(one) for one in (path, time, self.stays)]
        return f"{shown[0]} (of {shown[1]})" + (f" stays: {shown[2]}" if self.stays else "")


def leftovers() -> list[Leftover]:
    """All that the manifest names and that still exists. Entries of what is gone are removed.

    Raises
    ------
    OSError
        If the manifest isn't a folder that only this user can write to.
    """
    if fcntl is None:
        return []
    try:
        with _manifest() as manifest:
            tokens = sorted(name for name in os.listdir(manifest) if _token_of(f"noisewise-{name}"))
            seen = [_examined(manifest, token) for token in tokens]
    except FileNotFoundError:
        return []
    return [one for one in seen if one is not None]


def remove_leftover(leftover: Leftover) -> Leftover | None:
    """Prove once more that it is ours, and remove it; what stays comes back, with the reason."""
    with _manifest() as manifest:
        return _examined(manifest, leftover.token, remove=True)


def _examined(manifest: int, token: str, *, remove: bool = False) -> Leftover | None:
    """What became of the thing that an entry names; None if it is gone, or was never written."""
    try:
        with _opened(token, os.O_RDWR | _NO_LINK | os.O_NONBLOCK, manifest) as entry:
            status = os.fstat(entry)
            if not stat.S_ISREG(status.st_mode) or not _is_private(status):
                return None
            is_free = _lock(entry)
            made = _read(os.pread(entry, _LARGEST_ENTRY, 0), token)
            if made is None:
                return None
            try:
                stays = _why_used(made) if is_free else f"process {made.process} uses it"
                stays = stays or _why_not_ours(made, token, remove=remove)
                if stays or not remove:
                    return Leftover(token, made, stays)
            except FileNotFoundError:  # it is gone
                pass
            except OSError as error:
                return Leftover(token, made, f"{error.strerror or error}")
            os.unlink(token, dir_fd=manifest)
    except OSError:  # no entry, or somebody else was faster
        pass
    return None


def _why_not_ours(made: Made, token: str, *, remove: bool) -> str:
    """Why we can't have made it. If we have ("") it is removed, if that is wanted."""
    path = Path(made.path)
    with _opened(path.parent, _PLACE) as parent:
        place = os.fstat(parent)
        if (place.st_dev, place.st_ino) != (made.parent_device, made.parent_inode):
            return "its folder isn't the one that it was made in"
        status = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
        same = (status.st_dev, status.st_ino) == (made.device, made.inode)
        if not same or status.st_uid != os.geteuid():
            return "it isn't the one that was made"
        if path.name.startswith("."):
            if not stat.S_ISREG(status.st_mode) or made.changed not in (None, status.st_mtime_ns):
                return "it was changed since"
            if remove:
                os.unlink(path.name, dir_fd=parent)
            return ""
        with _opened(path.name, _FOLDER | _NO_LINK, parent) as folder:
            if not os.path.samestat(os.fstat(folder), status) or not _has_mark(folder, token):
                return "it isn't the one that was made"
            if remove:
                _remove_folder(parent, path.name, folder)
    return ""


def _why_used(made: Made) -> str:
    """Why the process may be running still, though nobody has the lock."""
    boot = _boot()
    if boot is not None and boot == made.boot:  # the same system, maybe in another container
        runs = _start_of(made.process) == made.started
    elif made.machine != platform.node():
        return f"it was made on another machine ({made.machine})"
    elif boot is None or made.boot is None:
        runs = _exists(made.process)
    else:
        runs = False
    return f"process {made.process} is running" if runs else ""


def _read(text: bytes, token: str) -> Made | None:
    try:
        made = Made(**json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None
    numbers = made.device, made.inode, made.parent_device, made.parent_inode, made.process
    words = made.path, made.machine, made.time
    sound = (
        all(isinstance(one, int) for one in numbers)
        and all(isinstance(one, str) for one in words)
        and all(isinstance(one, str | None) for one in (made.started, made.boot))
        and isinstance(made.changed, int | None)
        and 0 < made.process < 2**31
    )
    if not sound or not os.path.isabs(made.path) or "\0" in made.path:
        return None
    return made if _token_of(Path(made.path).name) == token else None


def _lock(entry: int) -> bool:
    try:
        fcntl.flock(entry, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        pass
    return True


def _start_of(process: int) -> str | None:
    """When it started, in ticks since the machine did."""
    with suppress(OSError):
        # The name, which is in brackets, may have blanks and brackets.
        return (
            Path(f"/proc/{process}/stat")
            .read_text("ascii", "replace")
            .rpartition(")")[2]
            .split()[19]
        )
    return None


def _boot() -> str | None:
    """Which start of the machine this is."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return None
