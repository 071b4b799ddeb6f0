"""The single door from rows to a Release. It takes no seed.

Order matters. Everything that can be checked without rows is checked first and costs nothing. Then
the ledger is charged, and only then are rows read. If the data turn out not to fit, nothing has
been published and the charge is lifted. The Release is stored in the ledger in the same
transaction that makes the charge final, and the file is written after that: a process that dies at
any point leaves at worst a charge without a file, never a file without a charge.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from noisewise.core.document import write_text
from noisewise.core.errors import DataError, NoisewiseError, ReleaseError, RequestError
from noisewise.core.releases import AnyRelease, load_release, release_from_text
from noisewise.holder.engines import Source, open_source
from noisewise.holder.ledger import Ledger, Reservation
from noisewise.holder.publishable import Publishable

Kind = TypeVar("Kind", bound="AnyRelease")


@dataclass(frozen=True)
class Published(Generic[Kind]):
    """The outcome of `publish`.

    Parameters
    ----------
    release : Release, SummaryRelease or NetworkRelease
    repeated : bool
        The same request had been published before; this is that Release, and it cost nothing.
    cap_was_implicit : bool
        The data set had no cap, and this request's cost became its cap.
    """

    release: Kind
    repeated: bool
    cap_was_implicit: bool


def publish(
    request: Publishable[Kind],
    data: Any,
    *,
    ledger: Ledger | str | Path,
    out: str | Path | None = None,
    engine: str = "auto",
    table: str | None = None,
    query: str | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Published[Kind]:
    """Charge the budget, sum the rows exactly, add noise, and publish.

    Parameters
    ----------
    request : Request, SummaryRequest or NetworkRequest
        See `make_request`, `make_summary_request` and `make_network_request`.
    data : path, data frame, dict of arrays, or DuckDB connection or relation
    ledger : Ledger or path
        Where the budget of `request.schema.dataset` is kept.
    out : path, optional
        Where to write the Release; written atomically.
    engine : {"auto", "memory", "stream", "duckdb"}
    table, query : str, optional
        What to read from a DuckDB database.
    progress : callable, optional
        Called with the number of rows read so far and, where it is known, of all rows.

    Returns
    -------
    Published

    Raises
    ------
    RequestError, DataError, BudgetError, LedgerError
        None of them leaves anything charged, but for one: if the Release is stored in the ledger
        and the file then cannot be written, the RequestError says so, and the same request
        writes the stored Release at no further cost. Any other error after the rows were read
        leaves the charge, which the same request takes up again.
    """
    request.verify()
    if out is not None:
        check_writable(Path(out))
    source = check_columns(request, data, engine=engine, table=table, query=query)
    with _opened(ledger) as budget:
        reservation = budget.reserve(request.charge(table=table, query=query))
        if reservation.published is not None:
            text, repeated = reservation.published, True
        else:
            text = _fulfil(budget, reservation, request, source, progress)
            repeated = False
    release = cast(Kind, release_from_text(text))
    if out is not None:
        _write_atomically(Path(out), text)
    return Published(release, repeated, reservation.cap_was_implicit)


def _fulfil(
    ledger: Ledger,
    reservation: Reservation,
    request: Publishable[Any],
    source: Source,
    progress: Callable[[int, int | None], None] | None,
) -> str:
    """From a charge to stored text. Data that do not fit lift the charge.

    Lifting is sound because nothing has left this function: the noisy values, if they were drawn
    at all, are discarded with it. But an unforeseen error of a mechanism may depend on the rows,
    and who could provoke it for free, as often as they like, could learn from it whether it
    occurs. So once the rows are summed, only deliberate errors lift the charge; after any other it
    stays, as after a crash, and the same request takes it up again.
    """
    try:
        result = source.sums(request.plan(), with_total(source, progress))
        check_rows(request, result.n)
    except BaseException as error:
        ledger.void(reservation, type(error).__name__)
        raise
    try:
        text = request.release(result.n, result).to_text()
        release_from_text(text)  # what nobody could read must not cost anything
    except NoisewiseError as error:
        ledger.void(reservation, type(error).__name__)
        raise
    return ledger.commit(reservation, text)


def with_total(
    source: Source, progress: Callable[[int, int | None], None] | None
) -> Callable[[int], None] | None:
    """Tell `progress` how many rows there are in all, if the source knows without reading them."""
    if progress is None:
        return None
    total = source.row_count()
    return lambda rows: progress(rows, total)


def check_columns(
    request: Publishable[Any], data: Any, *, engine: str, table: str | None, query: str | None
) -> Source:
    """Open the data and see that the request's columns are there. Reads no row."""
    source = open_source(data, engine=engine, table=table, query=query)
    names = source.column_names()
    for name in request.sources:
        if name not in names:
            # The names that were found stay unsaid: without a header they are somebody's row.
            raise DataError(
                f"data: there is no column {name!r}; the data and the schema must use the same "
                "names, and a CSV file must begin with a header"
            )
    return source


def check_rows(request: Publishable[Any], n: int) -> None:
    """Refuse a number of rows for which nothing can be published, or delta is too weak."""
    if request.schema.neighbours != "replace_one":
        return  # n is private: nothing may depend on it
    if n == 0:
        raise DataError("data: there are no rows; nothing was published or charged")
    delta = request.claim.delta
    if delta * n >= 1:
        raise DataError(
            f"delta: {float(delta):g} is not below 1 / n for {n:,} rows, which would allow "
            f"publishing somebody's record as it is; give a much smaller one, such as 1e-6"
        )
    if delta > 0 and not request.delta_was_given and delta * 10 * n > 1:
        raise DataError(
            f"delta: the default of {float(delta):g} is too weak for {n:,} rows, because it "
            f"should be below 1 / (10 n); give one, such as {1 / (10 * n):.0e}"
        )


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
    parent = path.parent
    if path.is_dir():
        raise RequestError(f"out: {path} is a folder; name a file, such as {path / 'release.json'}")
    if not parent.is_dir():
        raise RequestError(f"out: there is no folder {parent}; make it first")
    if not os.access(parent, os.W_OK):
        raise RequestError(f"out: the folder {parent} cannot be written to")
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
