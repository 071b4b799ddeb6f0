"""The durable privacy budget of a data holder: one SQLite file, charged before data is touched.

The file is an append-only log. Nothing in it is ever changed or deleted: a cap, a reservation and a
publication are each one more entry, and the state of every account is the fold of all entries.
Every entry carries the SHA-256 of itself and its predecessor, and the end of the chain is kept
beside it, so that a flipped bit or a lost row is an error and never a smaller sum. The chain has no
secret key: it finds accidents, not a holder who rewrites their own file, and a file that is
replaced whole by an older backup looks intact.

The life of a charge::

    reserve ──► pending ──► commit ──► published   (with the Release's text, in one transaction)
                   │  ▲
                   └──┘ an error, a crash          (it still counts; the same request resumes it)

Postcondition, whatever is killed whenever: a Release that left the process has a charge that
counts. *Proof.* The caller lets a Release out only after `commit` returned its text, and `commit`
returns only text that is stored with a published charge. A published charge is never changed, and
it becomes published only from pending, hence after it was counted. Each transaction takes SQLite's
write lock *before* it reads (BEGIN IMMEDIATE), so what it decides on is what it writes to, and with
the rollback journal and ``synchronous=EXTRA`` it is either wholly on disk when COMMIT returns, or
not at all.

A charge is final: rows may have been read under it, and an error about them is an answer too, which
must not be free. The same request takes a pending charge up again at no further cost, which is
sound because no noise of the first attempt left its process, or decided that there is a second one.
(Ledgers of older versions may hold "void" entries, which don't count. Today an entry is void only
if its request was charged again at another price in the same transaction, after an upgrade.)

A data set is released under a cap that was set for it, and under no other: only setting a cap makes
a ledger.

`Ledger` decides, on the `accounts` that are folded from its `file`; these tell which of the charges
one person may bear; `refusals` keeps apart names that could be taken for one
another, knows the rows of a batch again, and says what to do next.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from noisewise import _html
from noisewise.core.errors import BudgetError, LedgerError, RequestError
from noisewise.core.privacy import Amount, as_delta, as_loss
from noisewise.holder.ledger.accounts import (
    Account,
    Charge,
    ChargeRecord,
    Quote,
    Reservation,
    asked_to_json,
    charge_to_json,
    exact,
    fits,
    total_epsilon,
    up,
    usable_name,
)
from noisewise.holder.ledger.file import Book, LedgerFile
from noisewise.holder.ledger.refusals import (
    cap_command,
    check_content,
    check_new,
    fingerprint,
    moved,
    no_cap,
    other_source,
    refusal,
)

__all__ = ["Account", "Charge", "ChargeRecord", "Ledger", "Quote", "Reservation"]


class Ledger:
    """The budget file of a data holder.

    Parameters
    ----------
    path
        The ledger file, on a local file system (SQLite's locks are unreliable on many network
        ones).
    create
        Let `set_cap` make the file if there is none; nothing else ever makes it. With False a
        missing file is a LedgerError.

    Raises
    ------
    LedgerError
        The file is no ledger, is damaged, cannot be read or written, or stays busy.

    Notes
    -----
    A Ledger belongs to the process and thread that opened it.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True) -> None:
        self._file = LedgerFile(path, create=create)
        if not create and not self._file.is_open:
            raise LedgerError(
                f"There is no ledger at {self._file.path}. Check the path; a new ledger is made by "
                f"its first cap: {cap_command(self._file.path, 'NAME', 'EPSILON')}"
            )

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Pending charges stay pending."""
        self._file.close()

    def set_cap(
        self, dataset: str, epsilon: Amount, delta: Amount = 0, *, new: bool = False
    ) -> None:
        """Set, raise or lower the cap of a data set. Makes the file if there is none.

        Parameters
        ----------
        dataset
            As the schema names it.
        epsilon, delta
            Numbers or exact text. With delta = 0 only purely private releases fit.
        new
            Confirms that a name much like a known one is another data set.

        Raises
        ------
        BudgetError
            More than that is spent already, or the name is a known one in other letters or,
            without `new`, one slip away from it.
        """
        dataset = usable_name("dataset", dataset)
        epsilon, delta = as_loss(epsilon, "epsilon"), as_delta(delta)
        if not self._file.is_open:  # what is refused makes no file
            check_new(dataset, (), confirmed=new)
        with self._file.transaction(write=True, create=True) as book:
            if dataset not in book.accounts:
                check_new(dataset, book.accounts, confirmed=new)
            account = book.account(dataset)
            losses, rule = account.losses(), account.next_rule
            if not fits(losses, epsilon, delta, rule):
                spent = total_epsilon(losses, delta, rule)
                raise BudgetError(
                    f"Data set {dataset!r}: the cap cannot be set to epsilon={exact(epsilon)}, "
                    f"delta={exact(delta)}, since epsilon={up(spent)} is spent "
                    "at this delta. What was published cannot be taken back: set at least that"
                    + (", or a larger delta." if account.cap and delta < account.cap[1] else ".")
                )
            if (account.cap, account.rule) != ((epsilon, delta), rule):
                cap = {"epsilon": exact(epsilon), "delta": exact(delta)}
                # Entries of the former rule stay as they were.
                kept_by = {"rule": rule} if rule == "filter" else {}
                book.append("cap", {"dataset": dataset, **cap, **kept_by})

    def preview(
        self,
        charge: Charge,
        *,
        after: Sequence[Charge] = (),
        source: Mapping[str, Any] | None = None,
        same_data: bool = False,
    ) -> Quote:
        """Say what `reserve` would do. Writes nothing and does not create the file.

        `after` are charges to be taken for reserved before it; `reserve` must accept them all.
        `source` and `same_data` as in `reserve`.

        (If a process was killed in mid-write, SQLite restores the file when it is next opened,
        even for reading.)
        """
        with self._file.transaction(write=False) as book:
            # The book of a reading transaction changes in memory only.
            for earlier in after:
                self._charge(book, earlier)
            before = book.account(charge.dataset).summary()
            known = book.account(charge.dataset).find(charge.request_key)
            published = known is not None and known.status == "published"
            resumes, refused = False, None
            try:
                resumes = self._charge(book, charge, "", "", source, same_data).resumed
            except BudgetError as error:
                refused = str(error)
            afterwards = book.account(charge.dataset).summary()
            return Quote(
                dataset=charge.dataset,
                unit=charge.unit,
                already_published=published,
                resumes=resumes,
                allowed=refused is None,
                refusal=refused,
                cap_epsilon=before.cap_epsilon,
                cap_delta=before.cap_delta,
                rule=before.rule,
                spent_epsilon=before.spent_epsilon,
                remaining_before=before.remaining_epsilon,
                remaining_after=None if refused else afterwards.remaining_epsilon,
                gaussian_before=before.remaining_gaussian,
                gaussian_after=None if refused else afterwards.remaining_gaussian,
            )

    def reserve(
        self,
        charge: Charge,
        *,
        purpose: str = "",
        attested_by: str = "",
        source: Mapping[str, Any] | None = None,
        same_data: bool = False,
    ) -> Reservation:
        """Count a charge against its cap, before any row is read.

        Parameters
        ----------
        charge
            What is asked for.
        purpose
            Why; it is kept with the time and the user's name in the audit trail only.
        attested_by
            Who answers for the query or table that is read; kept likewise.
        source
            Where the rows are, from `engines.where_rows_are`. A pending charge remembers it.
        same_data
            Confirms that a pending charge was made for these rows, though they were somewhere else
            then.

        Raises
        ------
        BudgetError
            There is no ledger or no cap for the data set, the charge does not fit, or its unit is
            not the one the data set is bound to.
        RequestError
            The event costs more than the charge's epsilon and delta; or the charge is pending, was
            made for another source, and `same_data` is not given.
        """
        return self.reserve_all(
            [charge], purpose=purpose, attested_by=attested_by, source=source, same_data=same_data
        )[0]

    def reserve_all(
        self,
        charges: Sequence[Charge],
        *,
        purpose: str = "",
        attested_by: str = "",
        source: Mapping[str, Any] | None = None,
        same_data: bool = False,
    ) -> list[Reservation]:
        """Count several charges in one transaction: all of them, or none.

        They belong together, as the parts of a partition do, and are published together: a
        RequestError if some of them have a Release already, and others don't.
        """
        if attested_by:
            attested_by = usable_name("query_attested_by", attested_by)
        with self._file.transaction(write=True) as book:
            reserved = [
                self._charge(book, charge, purpose, attested_by, source, same_data)
                for charge in charges
            ]
            _check_together([one.published is not None for one in reserved])
            return reserved

    def is_charged(self, charge: Charge) -> bool:
        """Whether the request was charged before, and so costs nothing now."""
        with self._file.transaction(write=False) as book:
            return book.account(charge.dataset).find(charge.request_key) is not None

    def is_published(self, charge: Charge) -> bool:
        """Whether the request has its Release, which `reserve` would return at no cost."""
        with self._file.transaction(write=False) as book:
            known = book.account(charge.dataset).find(charge.request_key)
            return known is not None and known.status == "published"

    def commit(
        self, reservation: Reservation, release_text: str, content: Mapping[str, str] | None = None
    ) -> str:
        """Make a Release the published one. Let nothing out before this returns.

        Returns the text that is now published. This is the earlier one if another process was
        faster: then `release_text` is to be forgotten, as it would be a second draw of noise.
        `content` is of the rows of a batch of a series, from `content_of`; a fingerprint is kept.

        Raises
        ------
        BudgetError
            Another version of the software has charged the request at another price in the
            meantime. Nothing is published.
        DataError
            Another batch of the series has the same content. Nothing is published. What was drawn
            is forgotten, which is sound: whether it is depends on the rows and not on the draw.
        """
        return self.commit_all([(reservation, release_text, content)])[0]

    def kept(self, reservation: Reservation) -> ChargeRecord:
        """Return the charge with the parts that are drawn and kept under it, in order."""
        with self._file.transaction(write=False) as book:
            return book.account(reservation.charge.dataset).records[reservation.charge_id]

    def keep(
        self,
        reservation: Reservation,
        number: int,
        text: str,
        fingerprint: Mapping[str, Any] | None = None,
    ) -> ChargeRecord:
        """Store the part `number` (from 0) of what is drawn in several, before it is used.

        The fingerprint is that of the rows, with the first part. Returns the charge with all parts
        that are now kept. If another process was faster, the part is the earlier one: then `text`
        is to be forgotten, as it would be a second draw of noise.
        """
        with self._file.transaction(write=True) as book:
            record = self._current(book, reservation)
            if record.status == "pending" and len(record.kept) == number:
                book.keep(record, text, fingerprint)
            return book.account(reservation.charge.dataset).records[record.charge_id]

    def commit_all(
        self, drawn: Sequence[tuple[Reservation, str, Mapping[str, str] | None]]
    ) -> list[str]:
        """Publish several Releases in one transaction: all of them, or none; see `commit`."""
        with self._file.transaction(write=True) as book:
            texts = [self._commit(book, *one) for one in drawn]
            _check_together([text == own for text, (_, own, _) in zip(texts, drawn, strict=True)])
            return texts

    def _repr_html_(self) -> str:
        """What a notebook shows: the budget of every data set."""
        head = ("data set", "cap", "at delta", "spent", "remaining", "charges")
        body = []
        for account in self.accounts():
            said = account.to_json()
            cap, delta, left = said["cap_epsilon"], said["cap_delta"], said["remaining_epsilon"]
            body.append(
                (
                    account.dataset, "not set" if cap is None else cap, delta or "0",
                    said["spent_epsilon"], left or "", str(len(account.charges)),
                )
            )  # fmt: skip
        return _html.table(head, body, "Budgets, in epsilon")

    def accounts(self) -> list[Account]:
        """Return every data set with a cap or a charge, by name."""
        with self._file.transaction(write=False) as book:
            return [book.accounts[name].summary() for name in sorted(book.accounts)]

    def charges(self, dataset: str) -> list[ChargeRecord]:
        """Return all charges of a data set in order, none if it is unknown."""
        with self._file.transaction(write=False) as book:
            return list(book.account(usable_name("dataset", dataset)).records.values())

    def published(self) -> dict[int, str]:
        """Return the text of every published Release by the number of its charge."""
        with self._file.transaction(write=False) as book:
            records = [one for each in book.accounts.values() for one in each.records.values()]
            return {r.charge_id: book.text_of(r) for r in records if r.status == "published"}

    def _commit(
        self,
        book: Book,
        reservation: Reservation,
        release_text: str,
        content: Mapping[str, str] | None,
    ) -> str:
        if not release_text:
            raise RequestError("release_text is empty: commit the JSON text of the Release.")
        charge = reservation.charge
        winner = book.account(charge.dataset).find(charge.request_key)
        if winner is not None and winner.status == "published":
            return book.text_of(winner)
        record = self._current(book, reservation)
        kept = None
        if charge.series is not None and content is not None:
            check_content(book.account(charge.dataset), charge, content)
            kept = fingerprint(content)
        book.publish(record, release_text, kept, reservation.attested_by)
        return release_text

    def _current(self, book: Book, reservation: Reservation) -> ChargeRecord:
        """Find the record of a reservation; refuse one that is unknown or was replaced."""
        charge = reservation.charge
        record = book.account(charge.dataset).records.get(reservation.charge_id)
        if record is None or not record.charge.same_terms(charge):
            raise LedgerError(
                f"The ledger {self._file.path} does not know this reservation. Nothing was "
                "published; run the request again."
            )
        if record.status == "void":
            raise BudgetError(
                f"Data set {charge.dataset!r}: the charge behind this release was replaced by "
                "another version of noisewise, which charged the same request at another price. "
                "Nothing was published; run it again."
            )
        return record

    def _charge(
        self,
        book: Book,
        charge: Charge,
        purpose: str = "",
        attested_by: str = "",
        source: Mapping[str, Any] | None = None,
        same_data: bool = False,
    ) -> Reservation:
        """Find the charge of this request or add it to the book."""
        account = book.account(charge.dataset)
        known = account.find(charge.request_key)
        if known is not None and known.status == "published":
            return Reservation(charge, known.charge_id, book.text_of(known), False)
        if account.cap is None:
            raise BudgetError(no_cap(self._file.path, book, account, charge))
        if known is not None and moved(known, source):
            if not same_data:
                raise RequestError(other_source(known, source))
            assert source is not None
            book.move(known, source)
        if known is not None and known.charge.same_terms(charge):
            return Reservation(charge, known.charge_id, None, True, attested_by)
        if known is not None:
            # The same request at another price, say after an upgrade that calibrates better. The
            # old charge would pay for the wrong event, and keeping both would count one release
            # twice. A process still at work under the old one finds it void and cannot commit. No
            # request can bring that about: terms that it may choose are part of its key.
            book.supersede(known)
        reason = refusal(self._file.path, account, charge)
        if reason is not None:
            raise BudgetError(reason)
        of_rows = {} if source is None else {"source": dict(source)}
        body = charge_to_json(charge) | asked_to_json(purpose, attested_by) | of_rows
        charge_id = book.append("reserve", body)
        return Reservation(charge, charge_id, None, False, attested_by)


def _check_together(done: Sequence[bool]) -> None:
    """Refuse to publish the rest of what should have been published at once."""
    if any(done) and not all(done):
        raise RequestError(
            "partition: some parts were published by themselves, maybe from an earlier version of "
            "the data, in which people had other levels; give the partition a new label. Nothing "
            "was charged or published now"
        )
