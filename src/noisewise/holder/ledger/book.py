"""The log of a ledger as a chain of hashes, and the accounts that its entries fold into."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from noisewise.core.errors import LedgerError, NoisewiseError
from noisewise.holder.ledger.accounts import OpenAccount
from noisewise.holder.ledger.charges import ChargeRecord, charge_from_json

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

    def publish(self, record: ChargeRecord, text: str, kept: Mapping[str, Any] | None) -> None:
        """Store the text of a Release, and turn its charge from pending to published.

        `kept` is the fingerprint of the rows of a batch. Only where there is one, so that entries
        of other charges stay as they were.
        """
        assert self._connection is not None
        digest = hashlib.sha256(text.encode()).hexdigest()
        self._connection.execute(
            "INSERT INTO release (charge_id, text) VALUES (?, ?)", (record.charge_id, text)
        )
        body = {"dataset": record.charge.dataset, "charge_id": record.charge_id}
        more = {} if kept is None else {"fingerprint": kept}
        self.append("publish", {**body, "release_sha256": digest, **more})

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
            return
        if kind == "reserve":
            charge = charge_from_json(body)
            account.records[seq] = ChargeRecord(
                seq, charge, time, user=body.get("user", ""), purpose=body.get("purpose", "")
            )
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
            fingerprint=body.get("fingerprint"),
        )


def _link(previous: str, seq: int, time: str, kind: str, body: str) -> str:
    """Return the hash of an entry, which covers all entries before it."""
    return hashlib.sha256(json.dumps([previous, seq, time, kind, body]).encode()).hexdigest()
