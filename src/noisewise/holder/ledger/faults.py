"""What can go wrong with the file of a ledger, each as an error that says what to do."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from noisewise.core.errors import LedgerError

# SQLite quotes a damaged schema in its message, and the sqlite3 module then fails to decode it.
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)


def damaged(path: Path, what: str) -> LedgerError:
    """Say that the content can't be trusted, and that it may show less than was spent."""
    return LedgerError(
        f"The ledger {path} is damaged: {what}. It is not used any further, as it may "
        "show less than was spent. Restore it from a backup that holds every release made. "
        "Only if nothing was ever released under it, delete it and start anew."
    )


def unusable(path: Path, error: OSError) -> LedgerError:
    """Translate an error of the operating system."""
    if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK):
        remedy = "a ledger needs a local file system with hard links; choose another folder"
    elif error.errno in (errno.ENOENT, errno.ENOTDIR):
        remedy = f"make the folder {path.parent} first"
    elif error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = "make room on the disk and run again"
    else:
        remedy = f"the folder {path.parent} must be readable and writable for you"
    return LedgerError(
        f"The ledger {path} cannot be used ({os.strerror(error.errno or 0)}): {remedy}."
    )


def explained(
    path: Path, error: sqlite3.Error | UnicodeDecodeError, busy_seconds: float
) -> LedgerError:
    """Translate SQLite's error; whatever is not known to be harmless is damage."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    where = f"The ledger {path}"
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LedgerError(
            f"{where} is busy: another process has held it for {busy_seconds:g} seconds. "
            "Nothing was changed; run again when that process is done."
        )
    if code == sqlite3.SQLITE_READONLY_DBMOVED:
        return LedgerError(
            f"{where} was moved, deleted or replaced while in use. Nothing was changed; put it "
            "back and run again."
        )
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return LedgerError(
            f"{where} cannot be opened or written ({name}). Nothing was changed; the file and "
            f"its folder {path.parent} must be readable and writable for you."
        )
    if primary in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM):
        return LedgerError(
            f"{where} could not be read or written ({name}). No release was handed out. Check "
            "that the disk has room and no errors, and run again."
        )
    if primary == sqlite3.SQLITE_NOTADB:
        return LedgerError(
            f"{path} is not an SQLite file, so it is no ledger (or its header is "
            "damaged). Name another file, or restore the ledger from a backup."
        )
    if isinstance(error, sqlite3.ProgrammingError) and code is None:
        return LedgerError(f"{where} is used by a thread that did not open it; open it there.")
    return damaged(path, f"SQLite reports {name}")
