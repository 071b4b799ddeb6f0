"""The SQLite file of a ledger, used in whole transactions only, and the log that it holds.

The log is a chain of hashes; its entries fold into accounts.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from noisewise.core.errors import LedgerError, NoisewiseError
from noisewise.core.temporary import private_folder, write_file
from noisewise.holder.ledger.accounts import (
    ChargeRecord,
    OpenAccount,
    charge_from_json,
    rule_from_json,
)

_APPLICATION_ID = 0x4E574C47  # "NWLG", so that `file` and we can tell a ledger from other SQLite
# Version 2 has caps with the rule "filter" (`accounts.Rule`), which software that knows version 1
# only would keep by another rule, and entries of the kind "source". A ledger of version 1 gets
# version 2 with the first of these.
_VERSION = 2
_BUSY_SECONDS = 30.0

# The text is compared to what the file says, byte for byte: a ledger with a trigger, a view or a
# renamed column is not one that we wrote. There is no index, so none can disagree with its table.
_SCHEMA = {
    "entry": (
        "CREATE TABLE entry (seq INTEGER PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, "
        "body TEXT NOT NULL, hash TEXT NOT NULL)"
    ),
    "head": (
        "CREATE TABLE head (id INTEGER PRIMARY KEY, entries INTEGER NOT NULL, hash TEXT NOT NULL)"
    ),
    "release": "CREATE TABLE release (charge_id INTEGER PRIMARY KEY, text TEXT NOT NULL)",
}


class LedgerFile:
    """The path, the connection and the transactions of one ledger.

    `create` lets a transaction build the file, if there is none.

    Notes
    -----
    A new ledger is built under another name and then linked to `path` in one step. Whatever is
    found under `path`, a file of zero bytes included, therefore was a whole ledger once or never
    one of ours, and is refused rather than taken for a new ledger with nothing spent.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool) -> None:
        # A symbolic link is followed once, here: SQLite puts its journal beside the real file.
        self.path = Path(os.path.realpath(path))
        self._create = create
        self._connection: sqlite3.Connection | None = None
        self._owner = os.getpid()
        self._closed = False
        self._open_if_there()

    @property
    def is_open(self) -> bool:
        """Whether the file exists, is checked and is open."""
        return self._connection is not None

    def __del__(self) -> None:
        with suppress(Exception):  # nobody can handle it here
            self.close()

    def close(self) -> None:
        """Close the file for good."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def transaction(self, *, write: bool, create: bool = False) -> Iterator[Book]:
        """Run one all-or-nothing transaction on the verified content of the file.

        Without a file, and unless it is to be created, the book is empty and keeps nothing.
        """
        if self._closed:
            raise LedgerError(f"The ledger {self.path} was closed; open it again.")
        if os.getpid() != self._owner:
            # Two processes on one SQLite connection corrupt the file.
            raise LedgerError(
                f"The ledger {self.path} was opened by another process; open it in this one."
            )
        self._open_if_there()
        if self._connection is None and create:
            self._build()
            self._open_if_there()
        if self._connection is None:
            yield Book(None, self._damage, writable=False)
            return
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            book = Book(connection, self._damage, writable=write)
            book.load()
            yield book
            connection.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if isinstance(error, SQLITE_ERRORS):
                raise explained(self.path, error, _BUSY_SECONDS) from error
            raise

    def _open_if_there(self) -> None:
        """Open and check the file, if it exists and is not open yet."""
        # The file is never opened but by SQLite: closing any other descriptor of it would drop
        # the locks that this process holds through SQLite (POSIX advisory locks).
        if self._connection is not None:
            return
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise unusable(self.path, error) from error
        if stat.S_ISDIR(status.st_mode):
            raise LedgerError(
                f"{self.path} is a folder, and a ledger is a file. Name a file in it, such as "
                f"{self.path / 'ledger.db'}"
            )
        if not stat.S_ISREG(status.st_mode):
            raise LedgerError(f"{self.path} is not a regular file. Name a file for the ledger.")
        if status.st_size == 0:
            raise self._damage("it is empty, and a ledger never is, not even a new one")
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(
                f"{self.path.as_uri()}?mode=rw",
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                uri=True,
            )
            self._check(connection)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, SQLITE_ERRORS):
                raise explained(self.path, error, _BUSY_SECONDS) from error
            raise
        self._connection = connection

    def _check(self, connection: sqlite3.Connection) -> None:
        """Refuse any file that is not a whole ledger of this version."""
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
        connection.execute("PRAGMA synchronous=EXTRA")
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application_id != _APPLICATION_ID:
            raise LedgerError(
                f"{self.path} is an SQLite file of something else, not a noisewise ledger (or its "
                "header is damaged). Name another file, or restore the ledger from a backup."
            )
        if version > _VERSION:
            raise LedgerError(
                f"The ledger {self.path} has format version {version}; this noisewise reads "
                f"versions 1 to {_VERSION}. It was written by a newer noisewise: upgrade."
            )
        if version < 1:
            raise self._damage(f"its format version {version} does not exist")
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        if mode != "delete":
            raise self._damage(f"its journal mode is {mode!r} instead of 'delete'")
        found = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name")
        if found.fetchall() != [("table", name, sql) for name, sql in sorted(_SCHEMA.items())]:
            raise self._damage("its tables are not those of a ledger")
        if connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
            raise self._damage("SQLite's integrity check failed")

    def _build(self) -> None:
        """Put a new, empty ledger at the path, unless another process is faster.

        The ledger is complete and on disk before it gets its name, and never replaces a file.
        """
        if not self._create:
            raise LedgerError(f"The ledger {self.path} has vanished. Restore it from a backup.")
        journal = Path(f"{self.path}-journal")
        if journal.exists() and not self.path.exists():
            # SQLite would play it back into the new file.
            raise LedgerError(
                f"{journal} is the journal of a ledger that is gone. Restore {self.path} from a "
                "backup, or choose another name for a new ledger."
            )
        try:
            with suppress(FileExistsError):  # another process was faster: its ledger is as good
                # SQLite gives its journals the mode of their file.
                write_file(self.path, _empty_ledger(), mode=0o600, new=True)
            _sync_directory(self.path.parent)
        except OSError as error:
            raise unusable(self.path, error) from error
        except SQLITE_ERRORS as error:
            raise explained(self.path, error, _BUSY_SECONDS) from error

    def _damage(self, what: str) -> LedgerError:
        return damaged(self.path, what)


@cache
def _empty_ledger() -> bytes:
    with private_folder() as folder:
        path = folder / "ledger"
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={_VERSION}")
            for statement in _SCHEMA.values():
                connection.execute(statement)
            connection.execute("INSERT INTO head VALUES (1, 0, ?)", (GENESIS,))
            connection.execute("COMMIT")
        finally:
            connection.close()
        return path.read_bytes()


def _sync_directory(path: Path) -> None:
    """Make a new name durable, where the platform can sync a directory."""
    with suppress(PermissionError):  # Windows opens no directories
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# --- what can go wrong, each as an error that says what to do -------------------------------------

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


# --- the log --------------------------------------------------------------------------------------

GENESIS = hashlib.sha256(b"noisewise ledger 1").hexdigest()


class Book:
    """All entries of a ledger inside one transaction: verified, folded, and added to."""

    def __init__(
        self,
        connection: sqlite3.Connection | None,
        damage: Callable[[str], LedgerError],
        *,
        writable: bool,
    ) -> None:
        self.accounts: dict[str, OpenAccount] = {}
        self._connection = connection
        self._damage = damage
        self._writable = writable
        self._entries = 0
        self._hash = GENESIS

    @property
    def is_missing(self) -> bool:
        """Whether there is no file behind this book."""
        return self._connection is None

    def account(self, dataset: str) -> OpenAccount:
        """Return an account; one without entries is not kept."""
        return self.accounts.get(dataset) or OpenAccount(dataset)

    def load(self) -> None:
        """Read the whole log, check its chain and fold it."""
        assert self._connection is not None
        head = self._connection.execute("SELECT id, entries, hash FROM head").fetchall()
        for seq, time, kind, body, digest in self._connection.execute(
            "SELECT seq, time, kind, body, hash FROM entry ORDER BY seq"
        ):
            # One flipped bit turns a text into a blob of the same bytes.
            texts = all(isinstance(one, str) for one in (time, kind, body))
            if not texts or digest != _link(self._hash, seq, time, kind, body):
                raise self._damage(f"entry {self._entries + 1} was altered or is missing")
            try:
                self._fold(seq, time, kind, json.loads(body))
            except (ArithmeticError, LookupError, TypeError, ValueError, NoisewiseError) as error:
                raise self._damage(f"entry {seq} makes no sense") from error
            self._entries, self._hash = seq, digest
        if head != [(1, self._entries, self._hash)]:
            raise self._damage("entries are missing at its end")

    def append(self, kind: str, body: dict[str, Any]) -> int:
        """Write one entry (if writable), let it act on the state, and return its number."""
        seq, time = self._entries + 1, datetime.now(UTC).isoformat(timespec="seconds")
        if self._writable and ("rule" in body or kind == "source"):
            assert self._connection is not None
            self._connection.execute(f"PRAGMA user_version={_VERSION}")  # part of the transaction
        text = json.dumps(body, sort_keys=True, allow_nan=False)
        digest = _link(self._hash, seq, time, kind, text)
        if self._writable:
            assert self._connection is not None
            self._connection.execute(
                "INSERT INTO entry (seq, time, kind, body, hash) VALUES (?, ?, ?, ?, ?)",
                (seq, time, kind, text, digest),
            )
            self._connection.execute("UPDATE head SET entries = ?, hash = ?", (seq, digest))
        # Folding what was written, not what was meant: a body that does not read back is found
        # before it is on disk.
        self._fold(seq, time, kind, json.loads(text))
        self._entries, self._hash = seq, digest
        return seq

    def publish(
        self, record: ChargeRecord, text: str, kept: Mapping[str, Any] | None, attested_by: str = ""
    ) -> None:
        """Store the text of a Release, and turn its charge from pending to published.

        `kept` is the fingerprint of the rows of a batch, and `attested_by` who answers for what was
        read. Only where there is one, so that entries of other charges stay as they were; the
        latter only if it isn't whom the charge names.
        """
        assert self._connection is not None
        digest = hashlib.sha256(text.encode()).hexdigest()
        self._connection.execute(
            "INSERT INTO release (charge_id, text) VALUES (?, ?)", (record.charge_id, text)
        )
        body = {"dataset": record.charge.dataset, "charge_id": record.charge_id}
        more: dict[str, Any] = {} if kept is None else {"fingerprint": kept}
        if attested_by != record.attested_by:
            more["attested_by"] = attested_by
        self.append("publish", {**body, "release_sha256": digest, **more})

    def keep(
        self, record: ChargeRecord, text: str, fingerprint: Mapping[str, Any] | None = None
    ) -> None:
        """Store the next part of what is published under a pending charge.

        The fingerprint is that of the rows it was made from.
        """
        body = {"dataset": record.charge.dataset, "charge_id": record.charge_id}
        more = {} if fingerprint is None else {"fingerprint": dict(fingerprint)}
        self.append("keep", {**body, "number": len(record.kept), "text": text, **more})

    def move(self, record: ChargeRecord, source: Mapping[str, Any]) -> None:
        """Note that the rows of a pending charge are somewhere else now."""
        body = {"dataset": record.charge.dataset, "charge_id": record.charge_id}
        self.append("source", {**body, "source": dict(source)})

    def supersede(self, record: ChargeRecord) -> None:
        """Replace a pending charge; the caller charges the same request at another price."""
        body = {"dataset": record.charge.dataset, "charge_id": record.charge_id}
        self.append("void", {**body, "reason": "Superseded"})

    def text_of(self, record: ChargeRecord) -> str:
        """Return the text of a published Release, after checking its digest."""
        assert self._connection is not None
        found = self._connection.execute(
            "SELECT text FROM release WHERE charge_id = ?", (record.charge_id,)
        ).fetchone()
        text = found[0] if found else None
        if isinstance(text, str):
            digest = hashlib.sha256(text.encode()).hexdigest()
            if digest == record.release_sha256:
                return text
        raise self._damage(f"the Release of charge {record.charge_id} was altered or is lost")

    def _fold(self, seq: int, time: str, kind: str, body: dict[str, Any]) -> None:
        """Let one entry act on its account."""
        account = self.accounts.setdefault(body["dataset"], OpenAccount(body["dataset"]))
        if kind == "cap":
            account.cap = Fraction(body["epsilon"]), Fraction(body["delta"])
            account.rule = rule_from_json(body)
            return
        if kind == "reserve":
            asked = {name: body.get(name, "") for name in ("user", "purpose", "attested_by")}
            charge = charge_from_json(body)
            account.add(ChargeRecord(seq, charge, time, **asked, source=body.get("source")))
            return
        record = account.records[body["charge_id"]]
        if kind == "keep" and record.status == "pending" and body["number"] == len(record.kept):
            kept = (*record.kept, str(body["text"]))
            of_rows = body.get("fingerprint", record.fingerprint)
            account.records[record.charge_id] = replace(record, kept=kept, fingerprint=of_rows)
            return
        if kind == "source" and record.status == "pending":
            account.records[record.charge_id] = replace(record, source=body["source"])
            return
        if kind not in ("publish", "void") or record.status != "pending":
            raise ValueError("an unknown kind of entry, or a charge that is settled twice")
        account.records[record.charge_id] = replace(
            record,
            status="published" if kind == "publish" else "void",
            settled_at=time,
            release_sha256=body.get("release_sha256"),
            void_reason=body.get("reason"),
            fingerprint=body.get("fingerprint", record.fingerprint),
            attested_by=body.get("attested_by", record.attested_by),
        )


def _link(previous: str, seq: int, time: str, kind: str, body: str) -> str:
    """Return the hash of an entry, which covers all entries before it."""
    return hashlib.sha256(json.dumps([previous, seq, time, kind, body]).encode()).hexdigest()
