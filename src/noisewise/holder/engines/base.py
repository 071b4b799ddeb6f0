"""What every engine offers, and how errors of foreign libraries are kept from quoting data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from noisewise.core.errors import DataError, NoisewiseError
from noisewise.holder.plan import Plan, Progress

Result = TypeVar("Result")


class Source(Protocol):
    """A table that can be summed exactly. Opening one reads no rows."""

    @property
    def description(self) -> str:
        """Where the rows are and how they will be read, such as "people.parquet (streaming)"."""

    def column_names(self) -> list[str]:
        """The table's columns in order.

        They come from the data: the first line of a file without a header is somebody's row. Look
        names up in this list, but do not show it.
        """

    def row_count(self) -> int | None:
        """The number of rows if it is known without reading them, for a progress bar."""

    def sums(self, plan: Plan[Result], progress: Progress | None = None) -> Result:
        """Read the rows once and accumulate them; `progress` is told how many are done."""


def sealed(
    call: Callable[[], Result],
    message: str | Callable[[Exception], str],
    *kinds: type[Exception],
) -> Result:
    """Call, and replace a foreign library's error by a `DataError` that cannot quote data.

    Parsers and databases quote the offending value in their messages. The new error is raised
    after the handler has been left, so the old one is not even attached to it as context.

    Parameters
    ----------
    call : callable
    message : str or callable
        The new message, or a function that makes it from the error (and must not quote it).
    *kinds : exception types
        What to replace. noisewise's own errors pass.
    """
    try:
        return call()
    except NoisewiseError:
        raise
    except kinds as error:
        text = message if isinstance(message, str) else message(error)
    except BaseException as error:
        # A crash within Polars is no Exception, and quotes data all the same.
        if type(error).__name__ != "PanicException":
            raise
        text = message if isinstance(message, str) else message(RuntimeError())
    raise DataError(text)


def positions(names: list[str], wanted: tuple[str, ...]) -> list[int]:
    """Where the wanted columns are; every one must be there exactly once."""
    found = []
    for name in wanted:
        count = names.count(name)
        if count == 0:
            raise DataError(
                f"data: there is no column {name!r}; rename the column in the data, or correct "
                "the schema (upper and lower case matter; a CSV file needs a header line)"
            )
        if count > 1:
            raise DataError(f"data: there are several columns {name!r}; rename or drop all but one")
        found.append(names.index(name))
    return found
