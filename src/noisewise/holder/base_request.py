"""What every kind of request is: a claim, an identity, and a charge by which it is paid once."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any, ClassVar

from noisewise._version import __version__
from noisewise.core import document
from noisewise.core.document import BaseRelease
from noisewise.core.errors import DataError, RequestError
from noisewise.core.privacy import Claim, Event
from noisewise.core.schema import Schema
from noisewise.holder.ledger import Charge


def key_of(document: Any) -> str:
    """SHA-256 of a canonical description."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


class BaseRequest(ABC):
    """Which request this is, and what it costs; each kind is a frozen dataclass.

    Attributes
    ----------
    claim : Claim
    label : str
        Makes an otherwise equal request a new one, which costs anew.
    batch : str or None
        The batch of a stream that the rows belong to.
    series : str or None
        The series of that batch, if nobody is in two batches of it; see `Charge.series`.
    delta_was_given : bool
        Whether the holder chose delta. Kinds that are purely private have none to choose.
    software : str
        As it is written into Releases.
    """

    claim: Claim
    label: str
    batch: str | None
    series: str | None
    delta_was_given: bool = True
    software: ClassVar[str] = f"noisewise {__version__}"

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The declared columns that are read, and who is protected."""

    @property
    @abstractmethod
    def event(self) -> Event:
        """The cost of everything together."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """What is published, in the words that the ledger keeps."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Canonical description; its digest is the request's identity."""

    @abstractmethod
    def longest(self) -> int:
        """Bytes that no text of this request's Release exceeds, whatever is drawn.

        **Claim.** Take a Release of this request, and put into its document the largest n that
        there may be and, for every integer that is drawn, one with as many characters as any in
        its range. No text of this request's Releases has more bytes.

        **Proof.** All else in the document is fixed by the request, so two of its texts differ in
        the digits of n, in the drawn integers and in the digest, whose length is fixed. The length
        of a JSON text is the sum of the lengths of its scalars and of separators that depend on
        its structure alone; integers are ASCII, one byte a character. ∎

        Each kind writes such a document, or one with shorter integers and adds what they lack. The
        text of k equal draws is linear in k, so two of them tell the length of any number.
        """

    def check_size(self) -> None:
        """Refuse a Release that a reader might refuse, before its draws can decide about that.

        Whether a drawn text is too long would be known only once it is drawn. To refuse it then
        and draw again would be to publish from another law: that of the draws that are short.
        """
        if self.longest() > document.MAX_BYTES:
            raise RequestError(
                f"release: it could be larger than the {document.MAX_BYTES:,} bytes that a reader "
                "takes; ask for fewer draws, or for fewer columns or levels"
            )

    def check_rows(self, n: int) -> None:
        """Refuse a number of rows for which nothing can be published, or delta is too weak."""
        if not self.schema.n_is_public:
            return  # nothing may depend on it
        if n == 0:
            raise DataError("data: there are no rows")
        delta = self.claim.delta
        if delta * n >= 1:
            raise DataError(
                f"delta: {float(delta):g} is not below 1 / n for {n:,} rows, which would allow "
                f"publishing somebody's record as it is; give a much smaller one, such as 1e-6"
            )
        if delta > 0 and not self.delta_was_given and delta * 10 * n > 1:
            raise DataError(
                f"delta: the default of {float(delta):g} is too weak for {n:,} rows, because it "
                f"should be below 1 / (10 n); give one, such as {1 / (10 * n):.0e}"
            )

    @property
    def series_json(self) -> dict[str, str]:
        """For `to_json`: only where given, so that older requests keep their identity.

        Batches of the same name in two series are two requests: they hold other rows.
        """
        return {} if self.series is None else {"series": self.series}

    @property
    def key(self) -> str:
        """Identity of the request: equal requests are the same Release."""
        return key_of(self.to_json())

    @property
    def epsilon(self) -> Fraction:
        """The claim's, of a kind that makes no other claims."""
        assert self.claim.epsilon is not None
        return self.claim.epsilon

    def stated_cost(self) -> tuple[Fraction, Fraction]:
        """Epsilon and delta as people read them; composition uses the event."""
        return self.epsilon, self.claim.delta

    def charge(self, *, table: str | None = None, query: str | None = None) -> Charge:
        """What the ledger is asked for.

        Another table or query of a database is another population, hence another request.
        """
        here = table is None and query is None
        epsilon, delta = self.stated_cost()
        return Charge(
            dataset=self.schema.dataset,
            request_key=self.key if here else key_of([self.key, table, query]),
            unit=self.schema.unit,
            event=self.event,
            epsilon=epsilon,
            delta=delta,
            summary=self.summary + (f", label {self.label}" if self.label else ""),
            batch=self.batch,
            series=self.series,
        )

    @staticmethod
    def _bytes(release: BaseRelease) -> int:
        return len(release.to_text().encode())

    def public_n(self, n: int) -> int | None:
        """The number of rows, if a Release may say it."""
        return n if self.schema.n_is_public else None
