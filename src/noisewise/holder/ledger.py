"""The durable privacy budget of a data holder: one SQLite file, charged before data is touched.

The file is an append-only log. Nothing in it is ever changed or deleted: a cap, a reservation, a
publication and a lifted charge are each one more entry, and the state of every account is the
fold of all entries. Every entry carries the SHA-256 of itself and its predecessor, and the end of
the chain is kept beside it, so that a flipped bit or a lost row is an error and never a smaller
sum. The chain has no secret key: it finds accidents, not a holder who rewrites their own file,
and a file that is replaced whole by an older backup looks intact.

The life of a charge::

    reserve ──► pending ──► commit ──► published   (with the Release's text, in one transaction)
                   │
                   └──────► void                   (a data error: nothing was published)

Postcondition, whatever is killed whenever: a Release that left the process has a charge that
counts. *Proof.* The caller lets a Release out only after `commit` returned its text, and `commit`
returns only text that is stored with a published charge. Published charges are never lifted:
`void` acts on pending ones only, inside a write transaction. A charge becomes published only from
pending, hence after it was counted. Each transaction takes SQLite's write lock *before* it reads
(BEGIN IMMEDIATE), so what it decides on is what it writes to, and with the rollback journal and
``synchronous=EXTRA`` it is either wholly on disk when COMMIT returns, or not at all.

A charge that is pending after a crash still counts. The same request takes it up again at no
further cost, which is sound because no noise of the first attempt left its process.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shlex
import sqlite3
import stat
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, Inexact
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from noisewise.core.composition import epsilon_of, within
from noisewise.core.errors import BudgetError, LedgerError, NoisewiseError, RequestError
from noisewise.core.privacy import Event, as_fraction, event_from_json, event_to_json

__all__ = ["Account", "Charge", "ChargeRecord", "Ledger", "Quote", "Reservation"]

Status = Literal["pending", "published", "void"]

_APPLICATION_ID = 0x4E574C47  # "NWLG", so that `file` and we can tell a ledger from other SQLite
_VERSION = 1
_BUSY_SECONDS = 30.0
_GENESIS = hashlib.sha256(b"noisewise ledger 1").hexdigest()

# SQLite quotes a damaged schema in its message, and the sqlite3 module then fails to decode it.
_SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)

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


# --- what goes in and what comes out -------------------------------------------------------------


@dataclass(frozen=True)
class Charge:
    """What a request would cost, known before any row is read.

    Parameters
    ----------
    dataset
        Name of the data set, the key of its budget. Unicode is normalised (NFC), since two
        spellings that look alike must not be two budgets.
    request_key
        Hex digest of the canonical request. The same key is the same release.
    unit
        Neighbour relation and privacy unit as one text, for example ``"replace_one/1"``.
    event
        What the mechanism does, for composition.
    epsilon, delta
        What was asked for. `event` may not cost more than that.
    summary
        One line for the audit trail. Part of the request, never of the data.
    """

    dataset: str
    request_key: str
    unit: str
    event: Event
    epsilon: Fraction
    delta: Fraction
    summary: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "dataset", _dataset_name(self.dataset))
        if not re.fullmatch(r"[0-9a-f]{16,128}", self.request_key):
            raise RequestError(
                f"request_key={self.request_key!r} is not a lower-case hex digest of at least 16 "
                "digits: pass the digest of the canonical request."
            )
        if not self.unit or not self.unit.isprintable():
            raise RequestError(
                f"unit={self.unit!r} is not a printable text: pass the neighbour relation and the "
                "privacy unit, for example 'replace_one/1'."
            )
        epsilon, delta = _checked_budget(self.epsilon, self.delta)
        if epsilon == 0:
            raise RequestError("epsilon=0 buys no release: ask for a positive epsilon.")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)

    def same_terms(self, other: Charge) -> bool:
        """Whether the other charge pays for exactly this one; the summary is only words."""
        return (self.dataset, self.request_key, self.unit, self.event) == (
            other.dataset,
            other.request_key,
            other.unit,
            other.event,
        ) and (self.epsilon, self.delta) == (other.epsilon, other.delta)


@dataclass(frozen=True)
class Reservation:
    """A charge that counts; hand it back to `Ledger.commit` or `Ledger.void`.

    Parameters
    ----------
    charge
        What was charged.
    charge_id
        Number of the charge in the ledger.
    published
        Text of the Release if this request was already published: hand this out, draw no noise.
    cap_was_implicit
        The data set had no cap, so this very charge became its cap.
    resumed
        The charge was left pending by an earlier run (or another process runs it right now).
    """

    charge: Charge
    charge_id: int
    published: str | None
    cap_was_implicit: bool
    resumed: bool


@dataclass(frozen=True)
class Quote:
    """What `Ledger.reserve` would answer, without any effect.

    Parameters
    ----------
    dataset, unit
        Of the charge asked about.
    already_published, resumes
        The request costs nothing more, since it is published or its charge is still pending.
    allowed
        Whether `Ledger.reserve` would accept.
    refusal
        The message of the BudgetError otherwise.
    cap_epsilon, cap_delta, cap_is_implicit
        The cap that applies. Where none is set this is the charge's own epsilon and delta.
    spent_epsilon
        What is spent at the cap's delta, rounded up, pending charges included.
    remaining_before, remaining_after
        Epsilon left of the cap, rounded down; `remaining_after` is None when refused.
    """

    dataset: str
    unit: str
    already_published: bool
    resumes: bool
    allowed: bool
    refusal: str | None
    cap_epsilon: Fraction
    cap_delta: Fraction
    cap_is_implicit: bool
    spent_epsilon: Fraction
    remaining_before: Fraction
    remaining_after: Fraction | None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; numbers are decimal or fraction text."""
        return {
            "dataset": self.dataset,
            "unit": self.unit,
            "already_published": self.already_published,
            "resumes": self.resumes,
            "allowed": self.allowed,
            "refusal": self.refusal,
            "cap_epsilon": _exact(self.cap_epsilon),
            "cap_delta": _exact(self.cap_delta),
            "cap_is_implicit": self.cap_is_implicit,
            "spent_epsilon": _up(self.spent_epsilon, 12),
            "remaining_before": _down(self.remaining_before, 12),
            "remaining_after": _optional(self.remaining_after, lambda x: _down(x, 12)),
        }


@dataclass(frozen=True)
class ChargeRecord:
    """One charge and what became of it, for the audit trail; times are UTC in ISO 8601."""

    charge_id: int
    charge: Charge
    sets_cap: bool
    reserved_at: str
    status: Status = "pending"
    settled_at: str | None = None
    release_sha256: str | None = None
    void_reason: str | None = None

    @property
    def counts(self) -> bool:
        """Whether the charge is part of what is spent."""
        return self.status != "void"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; numbers are decimal or fraction text."""
        return {
            "charge_id": self.charge_id,
            "status": self.status,
            "reserved_at": self.reserved_at,
            "settled_at": self.settled_at,
            "summary": self.charge.summary,
            "request_key": self.charge.request_key,
            "unit": self.charge.unit,
            "epsilon": _exact(self.charge.epsilon),
            "delta": _exact(self.charge.delta),
            "event": event_to_json(self.charge.event),
            "release_sha256": self.release_sha256,
            "void_reason": self.void_reason,
        }


@dataclass(frozen=True)
class Account:
    """The budget of one data set, with all its charges in order.

    `unit` is None before the first charge, and cap and remainder are None where no cap is set.
    """

    dataset: str
    unit: str | None
    cap_epsilon: Fraction | None
    cap_delta: Fraction | None
    cap_is_implicit: bool
    spent_epsilon: Fraction
    remaining_epsilon: Fraction | None
    charges: tuple[ChargeRecord, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; numbers are decimal or fraction text."""
        return {
            "dataset": self.dataset,
            "unit": self.unit,
            "cap_epsilon": _optional(self.cap_epsilon, _exact),
            "cap_delta": _optional(self.cap_delta, _exact),
            "cap_is_implicit": self.cap_is_implicit,
            "spent_epsilon": _up(self.spent_epsilon, 12),
            "remaining_epsilon": _optional(self.remaining_epsilon, lambda x: _down(x, 12)),
            "charges": [charge.to_json() for charge in self.charges],
        }


# --- the ledger ----------------------------------------------------------------------------------


class Ledger:
    """The budget file of a data holder.

    Parameters
    ----------
    path
        The ledger file, on a local file system (SQLite's locks are unreliable on many network
        ones).
    create
        Make the file at the first cap or charge if there is none. Reading never makes it. With
        False a missing file is a LedgerError.

    Raises
    ------
    LedgerError
        The file is no ledger, is damaged, cannot be read or written, or stays busy.

    Notes
    -----
    A new ledger is built under another name and then linked to `path` in one step. Whatever is
    found under `path`, a file of zero bytes included, therefore was a whole ledger once or never
    one of ours, and is refused rather than taken for a new ledger with nothing spent.

    A Ledger belongs to the process and thread that opened it.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        # A symbolic link is followed once, here: SQLite puts its journal beside the real file.
        self._path = Path(os.path.realpath(path))
        self._create = create
        self._connection: sqlite3.Connection | None = None
        self._owner = os.getpid()
        self._closed = False
        self._open_if_there()
        if self._connection is None and not create:
            raise LedgerError(
                f"There is no ledger at {self._path}. Check the path; a new ledger is made by "
                f"its first cap: {self._cap_command('NAME', 'EPSILON')}"
            )

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Pending charges stay pending."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def set_cap(self, dataset: str, epsilon: Fraction, delta: Fraction) -> None:
        """Set, raise or lower the cap of a data set.

        Raises
        ------
        BudgetError
            More than that is spent already.
        """
        dataset = _dataset_name(dataset)
        epsilon, delta = _checked_budget(epsilon, delta)
        with self._transaction(write=True) as book:
            account = book.account(dataset)
            events = account.live_events()
            if events and not within(events, epsilon, delta):
                raise BudgetError(
                    f"Data set {dataset!r}: the cap cannot be set to epsilon={_exact(epsilon)}, "
                    f"delta={_exact(delta)}, since epsilon={_up(_total(events, delta))} is spent "
                    "at this delta. What was published cannot be taken back: set at least that"
                    + (", or a larger delta." if account.cap and delta < account.cap[1] else ".")
                )
            if account.cap != (epsilon, delta) or account.cap_is_implicit:
                cap = {"epsilon": _exact(epsilon), "delta": _exact(delta)}
                book.append("cap", {"dataset": dataset, **cap})

    def preview(self, charge: Charge) -> Quote:
        """Say what `reserve` would do. Writes nothing and does not create the file.

        (If a process was killed in mid-write, SQLite restores the file when it is next opened,
        even for reading.)
        """
        with self._transaction(write=False) as book:
            before = book.account(charge.dataset).summary()
            known = book.account(charge.dataset).find(charge.request_key)
            published = known is not None and known.status == "published"
            resumes, refusal = False, None
            try:
                # The book of a reading transaction changes in memory only.
                resumes = self._charge(book, charge).resumed
            except BudgetError as error:
                refusal = str(error)
            after = book.account(charge.dataset).summary()
            cap = before if before.cap_epsilon is not None else after
            assert cap.cap_epsilon is not None
            assert cap.cap_delta is not None
            return Quote(
                dataset=charge.dataset,
                unit=charge.unit,
                already_published=published,
                resumes=resumes,
                allowed=refusal is None,
                refusal=refusal,
                cap_epsilon=cap.cap_epsilon,
                cap_delta=cap.cap_delta,
                cap_is_implicit=cap.cap_is_implicit,
                spent_epsilon=before.spent_epsilon,
                remaining_before=cap.cap_epsilon - before.spent_epsilon,
                remaining_after=None if refusal else after.remaining_epsilon,
            )

    def reserve(self, charge: Charge) -> Reservation:
        """Count a charge against its cap, before any row is read.

        Raises
        ------
        BudgetError
            The charge does not fit, or its unit is not the one the data set is bound to.
        RequestError
            The event costs more than the charge's epsilon and delta.
        """
        with self._transaction(write=True) as book:
            return self._charge(book, charge)

    def commit(self, reservation: Reservation, release_text: str) -> str:
        """Make a Release the published one. Let nothing out before this returns.

        Parameters
        ----------
        reservation
            From `reserve`.
        release_text
            The Release as JSON text.

        Returns
        -------
        str
            The text that is now published. This is the earlier one if another process was
            faster: then `release_text` is to be forgotten, as it would be a second draw of noise.

        Raises
        ------
        BudgetError
            The charge was lifted in the meantime. Nothing is published.
        """
        if not release_text:
            raise RequestError("release_text is empty: commit the JSON text of the Release.")
        with self._transaction(write=True) as book:
            charge = reservation.charge
            winner = book.account(charge.dataset).find(charge.request_key)
            if winner is not None and winner.status == "published":
                return book.text_of(winner)
            record = book.account(charge.dataset).records.get(reservation.charge_id)
            if record is None or not record.charge.same_terms(charge):
                raise LedgerError(
                    f"The ledger {self._path} does not know this reservation. Nothing was "
                    "published; run the request again."
                )
            if record.status != "pending":
                raise BudgetError(
                    f"Data set {charge.dataset!r}: the charge behind this release was lifted by "
                    "another run of the same request. Nothing was published; run it again."
                )
            book.publish(record, release_text)
        return release_text

    def void(self, reservation: Reservation, reason: str) -> None:
        """Lift a pending charge after a data error. The charge stays in the audit trail.

        A charge under which another process has published is not lifted.

        Parameters
        ----------
        reservation
            From `reserve`.
        reason
            Name of the error's class. Nothing else: a message might quote the data.
        """
        if not all(part.isidentifier() for part in reason.split(".")) or len(reason) > 100:
            raise RequestError("reason must be the name of an error's class and nothing else.")
        with self._transaction(write=True) as book:
            charge = reservation.charge
            record = book.account(charge.dataset).records.get(reservation.charge_id)
            if record and record.status == "pending" and record.charge.same_terms(charge):
                book.void(record, reason)

    def accounts(self) -> list[Account]:
        """Return every data set with a cap or a charge, by name."""
        with self._transaction(write=False) as book:
            return [book.accounts[name].summary() for name in sorted(book.accounts)]

    # --- deciding

    def _charge(self, book: _Book, charge: Charge) -> Reservation:
        """Find the charge of this request or add it to the book."""
        account = book.account(charge.dataset)
        known = account.find(charge.request_key)
        if known is not None and known.status == "published":
            return Reservation(charge, known.charge_id, book.text_of(known), False, False)
        if known is not None and known.charge.same_terms(charge):
            first = account.cap_is_implicit and known.sets_cap
            return Reservation(charge, known.charge_id, None, first, True)
        if known is not None:
            # The same request at another price, say after an upgrade that calibrates better. The
            # old charge would pay for the wrong event, and keeping both would count one release
            # twice. A process still at work under the old one finds it void and cannot commit.
            book.void(known, "Superseded")
        refusal = self._refusal(account, charge)
        if refusal is not None:
            raise BudgetError(refusal)
        sets_cap = account.cap is None
        charge_id = book.append("reserve", _charge_to_json(charge, sets_cap))
        return Reservation(charge, charge_id, None, sets_cap, False)

    def _refusal(self, account: _Account, charge: Charge) -> str | None:
        """Return why the charge does not fit into the account, or None if it does."""
        others = account.live()
        if not within([charge.event], charge.epsilon, charge.delta):
            raise RequestError(
                f"The event {charge.event!r} costs more than the epsilon={_exact(charge.epsilon)}, "
                f"delta={_exact(charge.delta)} asked for: calibrate it to what is asked."
            )
        bound = others[0].charge.unit if others else charge.unit
        if bound != charge.unit:
            return (
                f"Data set {account.dataset!r} is charged under the neighbour relation and "
                f"privacy unit {bound!r}; this request uses {charge.unit!r}. Losses under "
                f"different relations cannot be added up. Use {bound!r} for this data set."
            )
        if account.cap is None:
            return None
        cap_epsilon, cap_delta = account.cap
        events = account.live_events()
        if within([*events, charge.event], cap_epsilon, cap_delta):
            return None
        spent = _total(events, cap_delta)
        pending = sum(record.status == "pending" for record in others)
        lines = [
            f"Data set {account.dataset!r}: the request (epsilon={_exact(charge.epsilon)}, "
            f"delta={_exact(charge.delta)}) does not fit into the privacy budget.",
            f"  cap        epsilon={_exact(cap_epsilon)}, delta={_exact(cap_delta)}"
            + (" (none was set, so the first release set it)" if account.cap_is_implicit else ""),
            f"  spent      epsilon={_up(spent)}",
            f"  remaining  epsilon={_down(_remaining(cap_epsilon, spent))}",
        ]
        if pending:
            lines.append(
                f"  Unfinished runs among the charges: {pending}. The same request, run again, "
                "completes one at no further cost."
            )
        lines.append("Nothing was read or published. Ask for less, or raise the cap if you decide")
        lines.append("that the people in the data can bear it:")
        lines.append(f"  {self._remedy(account, events, charge)}")
        return "\n".join(lines)

    def _remedy(self, account: _Account, events: Sequence[Event], charge: Charge) -> str:
        """Return the command that sets the least round cap under which the charge fits."""
        assert account.cap is not None
        cap_delta = account.cap[1]
        candidates = {cap_delta, max(cap_delta, charge.delta), cap_delta + charge.delta}
        for delta in sorted(one for one in candidates if one < 1):
            total = _total([*events, charge.event], delta)
            if total != math.inf:
                return self._cap_command(account.dataset, _up(total), _exact(delta))
        return self._cap_command(account.dataset, "EPSILON", "DELTA")

    def _cap_command(self, dataset: str, epsilon: str, delta: str = "0") -> str:
        command = ["noisewise", "ledger", "cap", "--ledger", str(self._path)]
        command += ["--dataset", dataset, "--epsilon", epsilon]
        if delta != "0":
            command += ["--delta", delta]
        return shlex.join(command)

    # --- the file

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[_Book]:
        """Run one all-or-nothing transaction on the verified content of the file."""
        if self._closed:
            raise LedgerError(f"The ledger {self._path} was closed; open it again.")
        if os.getpid() != self._owner:
            # Two processes on one SQLite connection corrupt the file.
            raise LedgerError(
                f"The ledger {self._path} was opened by another process; open it in this one."
            )
        self._open_if_there()
        if self._connection is None and write:
            self._build()
            self._open_if_there()
        if self._connection is None:
            yield _Book(None, self._damage, writable=False)
            return
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            book = _Book(connection, self._damage, writable=write)
            book.load()
            yield book
            connection.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if isinstance(error, _SQLITE_ERRORS):
                raise self._explained(error) from error
            raise

    def _open_if_there(self) -> None:
        """Open and check the file, if it exists and is not open yet."""
        # The file is never opened but by SQLite: closing any other descriptor of it would drop
        # the locks that this process holds through SQLite (POSIX advisory locks).
        if self._connection is not None:
            return
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unusable(error) from error
        if stat.S_ISDIR(status.st_mode):
            raise LedgerError(
                f"{self._path} is a folder, and a ledger is a file. Name a file in it, such as "
                f"{self._path / 'ledger.db'}"
            )
        if not stat.S_ISREG(status.st_mode):
            raise LedgerError(f"{self._path} is not a regular file. Name a file for the ledger.")
        if status.st_size == 0:
            raise self._damage("it is empty, and a ledger never is, not even a new one")
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(
                f"{self._path.as_uri()}?mode=rw",
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                uri=True,
            )
            self._check(connection)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, _SQLITE_ERRORS):
                raise self._explained(error) from error
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
                f"{self._path} is an SQLite file of something else, not a noisewise ledger (or its "
                "header is damaged). Name another file, or restore the ledger from a backup."
            )
        if version > _VERSION:
            raise LedgerError(
                f"The ledger {self._path} has format version {version}; this noisewise reads "
                f"version {_VERSION}. It was written by a newer noisewise: upgrade."
            )
        if version < _VERSION:
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

        The ledger is complete and on disk before it gets its name, and linking is atomic and
        never replaces a file. A kill leaves at most a hidden file that nothing will ever read.
        """
        if not self._create:
            raise LedgerError(f"The ledger {self._path} has vanished. Restore it from a backup.")
        journal = Path(f"{self._path}-journal")
        if journal.exists() and not self._path.exists():
            # SQLite would play it back into the new file.
            raise LedgerError(
                f"{journal} is the journal of a ledger that is gone. Restore {self._path} from a "
                "backup, or choose another name for a new ledger."
            )
        temporary = None
        try:
            # mkstemp gives mode 0600, and SQLite gives its journals the mode of their file.
            descriptor, temporary = tempfile.mkstemp(
                prefix=f".{self._path.name}.", suffix=".new", dir=self._path.parent
            )
            os.close(descriptor)
            _write_empty_ledger(temporary)
            with suppress(FileExistsError):  # another process was faster: its ledger is as good
                os.link(temporary, self._path)
            _sync_directory(self._path.parent)
        except OSError as error:
            raise self._unusable(error) from error
        except _SQLITE_ERRORS as error:
            raise self._explained(error) from error
        finally:
            if temporary is not None:
                with suppress(OSError):
                    os.unlink(temporary)

    # --- explaining

    def _damage(self, what: str) -> LedgerError:
        return LedgerError(
            f"The ledger {self._path} is damaged: {what}. It is not used any further, as it may "
            "show less than was spent. Restore it from a backup that holds every release made. "
            "Only if nothing was ever released under it, delete it and start anew."
        )

    def _unusable(self, error: OSError) -> LedgerError:
        if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK):
            remedy = "a ledger needs a local file system with hard links; choose another folder"
        elif error.errno in (errno.ENOENT, errno.ENOTDIR):
            remedy = f"make the folder {self._path.parent} first"
        elif error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            remedy = "make room on the disk and run again"
        else:
            remedy = f"the folder {self._path.parent} must be readable and writable for you"
        return LedgerError(
            f"The ledger {self._path} cannot be used ({os.strerror(error.errno or 0)}): {remedy}."
        )

    def _explained(self, error: sqlite3.Error | UnicodeDecodeError) -> LedgerError:
        """Translate SQLite's error; whatever is not known to be harmless is damage."""
        code = getattr(error, "sqlite_errorcode", None)
        primary = None if code is None else code & 0xFF
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        where = f"The ledger {self._path}"
        if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return LedgerError(
                f"{where} is busy: another process has held it for {_BUSY_SECONDS:g} seconds. "
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
                f"its folder {self._path.parent} must be readable and writable for you."
            )
        if primary in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM):
            return LedgerError(
                f"{where} could not be read or written ({name}). No release was handed out. Check "
                "that the disk has room and no errors, and run again."
            )
        if primary == sqlite3.SQLITE_NOTADB:
            return LedgerError(
                f"{self._path} is not an SQLite file, so it is no ledger (or its header is "
                "damaged). Name another file, or restore the ledger from a backup."
            )
        if isinstance(error, sqlite3.ProgrammingError) and code is None:
            return LedgerError(f"{where} is used by a thread that did not open it; open it there.")
        return self._damage(f"SQLite reports {name}")


# --- the content of the file ---------------------------------------------------------------------


@dataclass
class _Account:
    """One data set's cap and charges, while they are folded."""

    dataset: str
    cap: tuple[Fraction, Fraction] | None = None
    cap_is_implicit: bool = False
    records: dict[int, ChargeRecord] = field(default_factory=dict)

    def live(self) -> list[ChargeRecord]:
        return [record for record in self.records.values() if record.counts]

    def live_events(self) -> list[Event]:
        return [record.charge.event for record in self.live()]

    def find(self, request_key: str) -> ChargeRecord | None:
        """Return the charge of a request that counts; there is never more than one."""
        return next((one for one in self.live() if one.charge.request_key == request_key), None)

    def summary(self) -> Account:
        live = self.live()
        spent, remaining = Fraction(0), None
        if self.cap is not None:  # a charge that counts always has a cap over it
            total = _total(self.live_events(), self.cap[1])
            spent, remaining = _finite(total, self.cap[0]), _remaining(self.cap[0], total)
        return Account(
            dataset=self.dataset,
            unit=live[0].charge.unit if live else None,
            cap_epsilon=None if self.cap is None else self.cap[0],
            cap_delta=None if self.cap is None else self.cap[1],
            cap_is_implicit=self.cap_is_implicit,
            spent_epsilon=spent,
            remaining_epsilon=remaining,
            charges=tuple(self.records.values()),
        )


class _Book:
    """All entries of a ledger inside one transaction: verified, folded, and added to."""

    def __init__(
        self,
        connection: sqlite3.Connection | None,
        damage: Callable[[str], LedgerError],
        *,
        writable: bool,
    ) -> None:
        self.accounts: dict[str, _Account] = {}
        self._connection = connection
        self._damage = damage
        self._writable = writable
        self._entries = 0
        self._hash = _GENESIS

    def account(self, dataset: str) -> _Account:
        """Return an account; one without entries is not kept."""
        return self.accounts.get(dataset) or _Account(dataset)

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

    def publish(self, record: ChargeRecord, text: str) -> None:
        assert self._connection is not None
        digest = hashlib.sha256(text.encode()).hexdigest()
        self._connection.execute(
            "INSERT INTO release (charge_id, text) VALUES (?, ?)", (record.charge_id, text)
        )
        body = {"dataset": record.charge.dataset, "charge_id": record.charge_id}
        self.append("publish", {**body, "release_sha256": digest})

    def void(self, record: ChargeRecord, reason: str) -> None:
        body = {"dataset": record.charge.dataset, "charge_id": record.charge_id}
        self.append("void", {**body, "reason": reason})

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
        account = self.accounts.setdefault(body["dataset"], _Account(body["dataset"]))
        if kind == "cap":
            account.cap = Fraction(body["epsilon"]), Fraction(body["delta"])
            account.cap_is_implicit = False
            return
        if kind == "reserve":
            charge = _charge_from_json(body)
            account.records[seq] = ChargeRecord(seq, charge, body["sets_cap"], time)
            if body["sets_cap"]:
                account.cap, account.cap_is_implicit = (charge.epsilon, charge.delta), True
            return
        record = account.records[body["charge_id"]]
        if kind not in ("publish", "void") or record.status != "pending":
            raise ValueError("an unknown kind of entry, or a charge that is settled twice")
        account.records[record.charge_id] = replace(
            record,
            status="published" if kind == "publish" else "void",
            settled_at=time,
            release_sha256=body.get("release_sha256"),
            void_reason=body.get("reason"),
        )
        if account.cap_is_implicit and not account.live():
            # Nobody chose this cap: the request that set it came to nothing.
            account.cap, account.cap_is_implicit = None, False


def _write_empty_ledger(path: str) -> None:
    """Turn an empty file that nobody else knows into a ledger, and wait until it is on disk."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=MEMORY")  # a killed process leaves no journal file
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={_VERSION}")
        for statement in _SCHEMA.values():
            connection.execute(statement)
        connection.execute("INSERT INTO head VALUES (1, 0, ?)", (_GENESIS,))
        connection.execute("COMMIT")
    finally:
        connection.close()


def _sync_directory(path: Path) -> None:
    """Make a new name durable, where the platform can sync a directory."""
    with suppress(PermissionError):  # Windows opens no directories
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _link(previous: str, seq: int, time: str, kind: str, body: str) -> str:
    return hashlib.sha256(json.dumps([previous, seq, time, kind, body]).encode()).hexdigest()


def _charge_to_json(charge: Charge, sets_cap: bool) -> dict[str, Any]:
    return {
        "dataset": charge.dataset,
        "request_key": charge.request_key,
        "unit": charge.unit,
        "event": event_to_json(charge.event),
        "epsilon": _exact(charge.epsilon),
        "delta": _exact(charge.delta),
        "summary": charge.summary,
        "sets_cap": sets_cap,
    }


def _charge_from_json(body: dict[str, Any]) -> Charge:
    return Charge(
        dataset=body["dataset"],
        request_key=body["request_key"],
        unit=body["unit"],
        event=event_from_json(body["event"]),
        epsilon=Fraction(body["epsilon"]),
        delta=Fraction(body["delta"]),
        summary=body["summary"],
    )


# --- numbers and names ---------------------------------------------------------------------------


def _dataset_name(name: str) -> str:
    normal = unicodedata.normalize("NFC", name)
    if not normal or normal != normal.strip() or not normal.isprintable() or len(normal) > 200:
        raise RequestError(
            f"dataset={name!r} is not a usable name: give 1 to 200 printable characters without "
            "blanks around them."
        )
    return normal


def _checked_budget(epsilon: Fraction, delta: Fraction) -> tuple[Fraction, Fraction]:
    epsilon, delta = as_fraction(epsilon, "epsilon"), as_fraction(delta, "delta")
    if delta >= 1:
        raise RequestError(f"delta={_exact(delta)} promises nothing: give a number far below 1.")
    return epsilon, delta


def _total(events: Sequence[Event], delta: Fraction) -> Fraction | float:
    """Return the epsilon spent at `delta`, exact or rounded up; infinite if none suffices."""
    if not events:
        return Fraction(0)
    total = epsilon_of(events, delta)
    return math.inf if total == math.inf else Fraction(total)


def _remaining(cap: Fraction, spent: Fraction | float) -> Fraction:
    return Fraction(0) if spent == math.inf else max(Fraction(0), cap - Fraction(spent))


def _finite(spent: Fraction | float, cap: Fraction) -> Fraction:
    """Return what is spent, at most the cap: charges that count fit under it by `within`."""
    return cap if spent == math.inf else min(Fraction(spent), cap)


def _exact(value: Fraction) -> str:
    """Return the number as text that reads back as the same number."""
    return _short(value, 12, ROUND_FLOOR, exact=True) or str(value)


def _up(value: Fraction | float, digits: int = 6) -> str:
    return "infinity" if value == math.inf else _rounded(Fraction(value), digits, ROUND_CEILING)


def _down(value: Fraction, digits: int = 6) -> str:
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: Fraction, digits: int, rounding: str) -> str:
    """Return short decimals as they are, and long ones rounded to so many digits."""
    return (
        _short(value, 12, rounding, exact=True)
        or _short(value, digits, rounding, exact=False)
        or ""
    )


def _short(value: Fraction, digits: int, rounding: str, *, exact: bool) -> str | None:
    """Return `value` as a decimal of so many digits, or None if it must be exact and isn't."""
    context = Context(prec=digits, rounding=rounding)
    numerator, denominator = Decimal(value.numerator), Decimal(value.denominator)
    decimal = context.divide(numerator, denominator)
    if exact and context.flags[Inexact]:
        return None
    decimal = decimal.normalize(context)
    small_or_huge = decimal != 0 and not -5 <= decimal.adjusted() < 12
    return str(decimal).lower() if small_or_huge else format(decimal, "f")


def _optional(value: Fraction | None, text: Callable[[Fraction], str]) -> str | None:
    return None if value is None else text(value)
