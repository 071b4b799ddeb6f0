"""The single door from rows to a Release. It takes no seed.

Order matters. Everything that can be checked without rows is checked first and costs nothing. Then
the ledger is charged, and only then are rows read. From there on no error lifts the charge: that
the data don't fit is an answer about them, exact and without noise, and whoever may choose a
request or a query could ask for such answers as often as they like if they were free. The charge
stays pending, and the same request completes under it once the data are repaired.

What is drawn is stored before anything is checked about it: to refuse a draw for what it is and
draw again would be to publish from another law than the one that the proof is about. So whatever
could make a Release unreadable is bounded when it is planned (`Publishable.longest`).

The Release is stored in the ledger in the transaction that turns its charge from pending to
published, and the file is written after that: a process that dies leaves at worst a charge without
a file, never a file without a charge.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from noisewise.core.document import BaseRelease, check_folder, write_text
from noisewise.core.errors import DataError, NoisewiseError, ReleaseError, RequestError
from noisewise.core.kinds import AnyRelease, load_release, release_from_text
from noisewise.holder.engines import Source, is_server, open_source, where_rows_are
from noisewise.holder.engines.base import positions
from noisewise.holder.keys import SigningKey, signing_key, today
from noisewise.holder.ledger import Ledger, Reservation
from noisewise.holder.ledger.refusals import fingerprint, is_of, new_key
from noisewise.holder.requests.base import Publishable
from noisewise.holder.requests.in_rounds import InRounds
from noisewise.holder.requests.rounds import RoundsRequest
from noisewise.holder.requests.summary import SummaryRequest
from noisewise.holder.rows import Plan
from noisewise.holder.rows.same_rows import check_of, with_check

Kind = TypeVar("Kind", bound="AnyRelease")

REHEARSAL = (
    "`noisewise schema check SCHEMA --data FILE` reads the rows and finds such errors, spends "
    "nothing and publishes nothing"
)

_REPAIRED = "Once the data are repaired, the same request completes under it at no further cost"
_OTHER_THAN_BEFORE = (
    "data: the rows are not those that the first pass of this release has read: they were changed "
    "in between, and rounds about different rows say nothing about either. With the rows as they "
    "were, from a copy or a backup, the same request completes at no further cost. As they are now "
    "they are another request: give it a label, which costs again, and read a copy or a snapshot "
    "that nobody changes"
)
_OTHER_ROWS = (
    "The same request completes under it only with another number of rows. Another one, say with a "
    "smaller delta or fewer blocks, costs again, and this charge stays spent"
)


@dataclass(frozen=True)
class Published(Generic[Kind]):
    """The outcome of `publish`."""

    release: Kind
    # The same request had been published before: this is that Release, and it cost nothing
    repeated: bool


def publish(
    request: Publishable[Kind],
    data: Any,
    *,
    ledger: Ledger | str | Path,
    out: str | Path | None = None,
    engine: str = "auto",
    table: str | None = None,
    query: str | None = None,
    query_attested_by: str | None = None,
    purpose: str = "",
    sign: SigningKey | str | Path | None = None,
    same_data: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
) -> Published[Kind]:
    """Charge the budget, sum the rows exactly, add noise, and publish.

    Parameters
    ----------
    request : Request, SummaryRequest or NetworkRequest
        See `make_request`, `make_summary_request` and `make_network_request`.
    data : path, address, data frame, dict of arrays, connection or relation
        Of a file, a PostgreSQL server (postgresql://...), Spark (spark:...), DuckDB or psycopg; see
        `open_source`.
    ledger : Ledger or path
        Where the budget of `request.schema.dataset` is kept. It must exist and hold a cap for that
        data set: ``Ledger("budget.db").set_cap("people", epsilon=3)``.
    out : path, optional
        Where to write the Release; written atomically.
    engine : {"auto", "memory", "stream", "duckdb", "postgres", "spark"}
    table, query : str, optional
        What to read from a database. Each row of a query's result must depend on the rows of one
        unit alone: that is checked on the statement, before anything else.
    query_attested_by : str, optional
        Who answers for it that this is so, if noisewise can't tell; kept in the ledger.
    purpose : str
        Why it is released: kept with the charge in the ledger, not in the Release.
    sign : SigningKey or path, optional
        The key that signs the Release, or its file (`noisewise.read_key`). The ledger keeps the
        Release unsigned: the same request with another key, or without one, costs nothing more.
    same_data : bool
        Confirms that a charge which is pending was made for these rows, though they were in another
        file, table or place then. It completes at no further cost.
    progress : callable, optional
        Called with the number of rows read so far and, where it is known, of all rows.

    Raises
    ------
    RequestError, DataError, BudgetError, LedgerError
        What can be known before a row is read costs nothing: the request, its output, absent
        columns, the size of the Release, the budget. After that the charge stays, whatever the
        error, and the same request takes it up again at no further cost. If the Release is stored
        in the ledger and the file cannot be written, the same request writes it.
    """
    request.verify()
    request.check_size()
    signer = None if sign is None else signing_key(sign)
    date = today()  # before rows are read: a signature must not say how long that took
    if out is not None:
        check_writable(Path(out))
    read = {"table": table, "query": query, "query_attested_by": query_attested_by}
    source = check_columns(request, data, engine=engine, **read)
    with _opened(ledger) as budget:
        request = as_charged(request, budget, table=table, query=query)
        charge = request.charge(table=table, query=query)
        schema = request.schema
        counts_rows = schema.n_is_public and schema.unit_column is None
        if query is None and counts_rows and not budget.is_published(charge):
            # A public n may decide for free; how many rows a query returns is not the public n,
            # and neither is the number of rows where n counts the people who own them.
            n = _public_rows(data, source)
            if n is not None:
                request.check_rows(n)
        where = where_rows_are(data, table=table, query=query)
        reservation = budget.reserve(
            charge,
            purpose=purpose,
            attested_by=query_attested_by or "",
            source=where,
            same_data=same_data,
        )
        if reservation.published is not None:
            text, repeated = reservation.published, True
        else:
            text = _fulfil(budget, reservation, request, source, progress)
            repeated = False
    release = cast(Kind, release_from_text(text))
    if signer is not None:
        release = signer.sign(release, date)
        text = release.to_text()
    if out is not None:
        _write_atomically(Path(out), text)
    return Published(release, repeated)


def as_charged(
    request: Publishable[Kind], ledger: Ledger, *, table: str | None, query: str | None
) -> Publishable[Kind]:
    """The request, or what its words meant before, if the ledger has a charge for that alone."""
    former = request.former if isinstance(request, RoundsRequest | SummaryRequest) else None
    if former is None or ledger.is_charged(request.charge(table=table, query=query)):
        return request
    if not ledger.is_charged(former.charge(table=table, query=query)):
        return request
    former.verify()
    former.check_size()
    return cast("Publishable[Kind]", former)


def _fulfil(
    ledger: Ledger,
    reservation: Reservation,
    request: Publishable[Any],
    source: Source,
    progress: Callable[[int, int | None], None] | None,
) -> str:
    """From a charge to stored text. After an error the charge is still pending."""
    if isinstance(request, InRounds):
        return _in_rounds(ledger, reservation, request, source, progress)
    content = None
    with still_pending(reservation.charge.epsilon):
        result = source.sums(request.plan(), with_total(source, progress))
    with still_pending(reservation.charge.epsilon, _OTHER_ROWS):
        request.check_rows(result.n)
    if reservation.charge.series is not None:
        from noisewise.holder.series import content_of

        content = content_of(request.plan(), result)
    return ledger.commit(reservation, request.release(result.n, result).to_text(), content)


def _in_rounds(
    ledger: Ledger,
    reservation: Reservation,
    request: InRounds[Any],
    source: Source,
    progress: Callable[[int, int | None], None] | None,
) -> str:
    """Pass by pass over the same rows: each draws a part, which is kept, and the last the Release.

    A part is kept before anything is decided by it, and never drawn again. With the first one a
    fingerprint of the rows is kept (`rows.same_rows`), and every later pass must have it. Parts
    from before there were fingerprints go on without.
    """
    record = ledger.kept(reservation)
    key = record.fingerprint["key"] if record.fingerprint is not None else new_key()
    while True:
        kept, known = record.kept, record.fingerprint
        step = request.next_step(kept) if kept else None
        with still_pending(reservation.charge.epsilon):
            plan = with_check(request.step_plan(step) if kept else request.plan(), key)
            result = source.sums(plan, with_total(source, progress))
            of_rows = {"rows": json.dumps([result.n, check_of(plan, result, key)])}
            if known is not None and not is_of(known, of_rows):
                raise DataError(_OTHER_THAN_BEFORE)
            drawn: BaseRelease | str
            if kept:
                drawn = request.draw(kept, step, result)
        if not kept:
            with still_pending(reservation.charge.epsilon, _OTHER_ROWS):
                request.check_rows(result.n)
            drawn = request.begin(result.n, result)
        if not isinstance(drawn, str):
            return ledger.commit(reservation, drawn.to_text())
        first = None if kept else fingerprint(of_rows, key)
        record = ledger.keep(reservation, len(kept), drawn, first)
        if record.fingerprint is not None:
            key = record.fingerprint["key"]  # another process may have been faster, with its own


def _public_rows(data: Any, source: Source) -> int | None:
    """The public number of rows, if nothing else has to be found out for it."""
    if is_server(data):
        return None
    if isinstance(data, str | os.PathLike) and Path(data).suffix.lower() == ".csv":
        from noisewise.holder.engines.files import count_rows

        return count_rows(Path(data))
    return source.row_count()


@contextmanager
def still_pending(epsilon: Fraction, remedy: str = _REPAIRED) -> Iterator[None]:
    """Add to an error about the rows what became of the charge, and what to do."""
    try:
        yield
    except NoisewiseError as error:
        raise type(error)(
            f"{error}.\nThe charge of epsilon={float(epsilon):g} stays pending: rows were read. "
            f"{remedy}. {REHEARSAL}"
        ) from None


def with_total(
    source: Source, progress: Callable[[int, int | None], None] | None
) -> Callable[[int], None] | None:
    """Tell `progress` how many rows there are in all, if the source knows without reading them."""
    if progress is None:
        return None
    total = source.row_count()
    return lambda rows: progress(rows, total)


def check_columns(
    request: Publishable[Any] | Plan[Any],
    data: Any,
    *,
    engine: str,
    table: str | None,
    query: str | None,
    query_attested_by: str | None = None,
) -> Source:
    """Open the data and see that the request's columns are there. Reads no row."""
    read = {"table": table, "query": query, "query_attested_by": query_attested_by}
    source = open_source(data, engine=engine, **read)
    positions(source.column_names(), request.sources)
    source.check(request.plan() if isinstance(request, Publishable) else request)
    return source


@contextmanager
def _opened(ledger: Ledger | str | Path) -> Iterator[Ledger]:
    """A ledger given as a path is opened and closed here; one given open stays open."""
    if isinstance(ledger, Ledger):
        yield ledger
    else:
        with Ledger(ledger) as own:
            yield own


def check_writable(path: Path) -> None:
    """Refuse an output that cannot be written, or that would destroy something else.

    An earlier Release may be overwritten, because the ledger keeps them all. Anything else that
    exists may not: it could be the ledger, the data or the schema.
    """
    check_folder(path, "release.json")
    if path.exists():
        try:
            load_release(path)
        except ReleaseError:
            raise RequestError(
                f"out: {path} exists and is not a Release; choose another name, or remove it"
            ) from None


def _write_atomically(path: Path, text: str) -> None:
    try:
        write_text(path, text)
    except OSError as error:
        raise RequestError(
            f"out: cannot write {path}: {error.strerror}. The Release is charged and stored in the "
            "ledger: the same request with another output costs nothing more"
        ) from None
