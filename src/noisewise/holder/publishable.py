"""What `publish` needs to know of a request, whatever it asks for."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from noisewise.core.kinds import AnyRelease
from noisewise.core.privacy import Claim
from noisewise.core.schema import Schema
from noisewise.holder.ledger import Charge
from noisewise.holder.plan import Plan

Kind_co = TypeVar("Kind_co", bound="AnyRelease", covariant=True)


class Publishable(Protocol[Kind_co]):
    """A request that has been checked as far as it can be without rows."""

    @property
    def schema(self) -> Schema:
        """The declared columns that are read, and who is protected."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The table columns that are read."""

    @property
    def claim(self) -> Claim:
        """The guarantee that was asked for."""

    @property
    def delta_was_given(self) -> bool:
        """Whether the holder chose delta, or it is the default."""

    def verify(self) -> None:
        """Check the noise against its claim; raises before anything is charged."""

    def check_size(self) -> None:
        """Refuse a Release that might be too large to read, whatever would be drawn."""

    def check_rows(self, n: int) -> None:
        """Refuse a number of rows for which nothing can be published, where it is public."""

    def plan(self) -> Plan[Any]:
        """What is accumulated over the rows. Its result has the number of rows as `n`."""

    def charge(self, *, table: str | None = None, query: str | None = None) -> Charge:
        """What the ledger is asked for."""

    def release(self, n: int, result: Any, /) -> Kind_co:
        """Draw the noise: the only step from what is private to what may be published.

        Parameters
        ----------
        n : int
            The number of rows.
        result
            Of the plan's accumulator.
        """
