"""What every kind of request is: a claim, an identity, and a charge by which it is paid once."""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Generic, TypeVar

from noisewise._version import __version__
from noisewise.core import document
from noisewise.core.calibration import gaussian_noise_multiplier, zcdp_noise_multiplier
from noisewise.core.composition import epsilon_of
from noisewise.core.design import Design, Family, names_of
from noisewise.core.document import MAX_SCALE, BaseRelease
from noisewise.core.errors import DataError, RequestError
from noisewise.core.kinds import AnyRelease
from noisewise.core.privacy import Amount, Claim, Event, as_delta, as_fraction
from noisewise.core.schema import MAX_NAME, Schema
from noisewise.core.terms.formula import read_formula
from noisewise.holder.ledger import Charge
from noisewise.holder.rows import Plan, ReadsDesign

DEFAULT_DELTA = Fraction("1e-6")
MAX_DELTA = Fraction(1, 4)

Kind_co = TypeVar("Kind_co", bound="AnyRelease", covariant=True)


def key_of(document: Any) -> str:
    """SHA-256 of a canonical description."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Publishable(ABC, Generic[Kind_co]):
    """A request of any kind, checked as far as it can be without rows."""

    claim: Claim  # the guarantee that was asked for
    label: str = ""  # makes an otherwise equal request a new one, which costs again
    batch: str | None = None  # the batch of a stream that the rows belong to
    # The series of that batch, if you declare that nobody is in two batches of it. Only then
    # batches don't add up (`Charge.series`).
    series: str | None = None
    # Whether the holder chose delta. Kinds that are purely private have none to choose.
    delta_was_given: bool = True
    software: ClassVar[str] = f"noisewise {__version__}"

    def __post_init__(self) -> None:
        if len(self.label) > MAX_NAME or not self.label.isprintable():
            raise RequestError(f"label: expected printable text of at most {MAX_NAME} characters")

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The declared columns that are read, and who is protected."""

    @property
    @abstractmethod
    def sources(self) -> tuple[str, ...]:
        """The table columns that are read."""

    @property
    @abstractmethod
    def event(self) -> Event:
        """The cost of everything together."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """What is published, in the words that the ledger keeps."""

    @abstractmethod
    def verify(self) -> None:
        """Check the noise against its claim; raises before anything is charged."""

    @abstractmethod
    def plan(self) -> Plan[Any]:
        """What is accumulated over the rows. Its result has the number of them as `n`.

        Where the schema names a unit column, a "row" here and below is the mean of a unit's rows.
        """

    @abstractmethod
    def release(self, n: int, result: Any, /) -> Kind_co:
        """Draw the noise: the only step from what is private to what may be published.

        n is the number of rows, and the result is that of the plan's accumulator.
        """

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
        delta, many = self.claim.delta, f"{n:,} {self.schema.counted}"
        if delta * n >= 1:
            raise DataError(
                f"delta: {float(delta):g} is not below 1 / n for {many}, which would allow "
                "publishing somebody's record as it is; give a much smaller one, such as "
                f"{1 / (100 * n):.0e}"
            )
        if delta > 0 and not self.delta_was_given and delta * 10 * n > 1:
            raise DataError(
                f"delta: the default of {float(delta):g} is too weak for {many}, because it "
                f"should be below 1 / (10 n); give one, such as {1 / (10 * n):.0e}"
            )

    def to_json(self) -> dict[str, Any]:
        """Canonical description; its digest is the request's identity. Each kind adds its own."""
        return {
            "schema": self.schema.to_identity(),
            "claim": self.claim.to_json(),
            "label": self.label,
            "batch": self.batch,
            # Only where given, so that older requests keep their identity. Batches of the same
            # name in two series are two requests: they hold other rows.
            **({} if self.series is None else {"series": self.series}),
        }

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
        """Epsilon and delta as people read them: a zCDP claim is stated at the default delta.

        Composition uses the event.
        """
        if self.claim.rho is None:
            return self.epsilon, self.claim.delta
        # Six decimals, rounded up: people will read this number.
        epsilon = math.ceil(epsilon_of([self.event], DEFAULT_DELTA) * 10**6)
        return Fraction(epsilon, 10**6), DEFAULT_DELTA

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

    def public_n(self, n: int) -> int | None:
        """The number of rows, if a Release may say it."""
        return n if self.schema.n_is_public else None

    def _signed(self, n: int) -> dict[str, Any]:
        """What a Release of any kind says about its request."""
        return {
            "n": self.public_n(n),
            "claim": self.claim,
            "event": self.event,
            "label": self.label,
            "software": self.software,
        }

    @staticmethod
    def _bytes(release: BaseRelease) -> int:
        return len(release.to_text().encode())


@dataclass(frozen=True, kw_only=True)
class AboutRegression(ReadsDesign, Publishable[Kind_co]):
    """A request that reads the columns of its design."""

    design: Design

    @property
    def formula(self) -> str:
        """The regression, such as "income ~ age + region"."""
        return f"{self.design.target} ~ {' + '.join(self.design.features)}"

    def to_json(self) -> dict[str, Any]:
        regression = {"features": list(self.design.features), "target": self.design.target}
        return {**super().to_json(), **regression}


# --- words that several kinds take, and the refusal of those that make no sense -------------------


def given_epsilon(epsilon: Amount | None) -> Fraction:
    """Refuse to choose how much privacy may be spent."""
    if epsilon is None:
        raise RequestError("epsilon: not given; say how much privacy may be spent, such as 1.0")
    return as_fraction(epsilon, "epsilon")


def claim_of(
    epsilon: Amount | None, delta: Amount | None, rho: Amount | None, *, pure: bool = False
) -> Claim:
    """The guarantee in these words; a delta is accepted, but never spent, where noise is `pure`."""
    if rho is None:
        spent = DEFAULT_DELTA if delta is None else as_delta(delta)
        return Claim(given_epsilon(epsilon), Fraction(0) if pure else spent)
    if delta is not None:
        raise RequestError("delta: rho-zCDP has no delta; leave one of them out")
    asked = None if epsilon is None else as_fraction(epsilon, "epsilon")
    return Claim(asked, rho=as_fraction(rho, "rho"))


def restricted_design(
    schema: Schema, features: Sequence[str], target: str, family: Family = "linear"
) -> Design:
    """The design, with a schema of no other columns than it reads."""
    checked = Design(schema, names_of(features), target, family)
    return replace(checked, schema=schema.restricted_to(checked.sources))


def named_design(
    schema: Schema,
    target: str | None,
    features: Sequence[str] | None,
    formula: str | None,
    family: Family = "linear",
) -> Design:
    """The design of a target and features, or of a formula, whichever is given."""
    if formula is not None:
        if target is not None or features is not None:
            raise RequestError("formula: it names target and features; leave those out")
        target, features = read_formula(formula, schema)
    for name, given in (("target", target), ("features", features)):
        if given is None:
            raise RequestError(f"{name}: not given; a regression request needs it, or a formula")
    assert target is not None
    assert features is not None
    return restricted_design(schema, features, target, family)


def check_no_terms(design: Design, what: str) -> None:
    """Refuse terms where only columns are summed."""
    for name in design.terms:
        raise RequestError(
            f"features: {name!r} is a term of a formula, and {what} takes columns only; compute it "
            "before publishing, as a column"
        )


def check_bounded(design: Design) -> None:
    """Refuse columns whose sums have no sensitivity."""
    if design.unbounded:
        raise RequestError(
            f"features: column {design.unbounded[0]!r} has no bounds; sums need them. Declare "
            "lower and upper, or publish a block summary (noisewise release-summary)"
        )


def check_delta(claim: Claim) -> None:
    """Refuse a delta that protects nobody."""
    if claim.delta > MAX_DELTA:
        raise RequestError(
            f"delta: {float(claim.delta):g} is no protection; give one well below "
            "1 / (number of people), such as 1e-6"
        )


def noise_multiplier(claim: Claim) -> float:
    """Of continuous Gaussian noise that satisfies the claim."""
    if claim.rho is not None:
        return zcdp_noise_multiplier(claim.rho)
    assert claim.epsilon is not None
    return gaussian_noise_multiplier(claim.epsilon, claim.delta)


def check_scale(scale: int) -> None:
    """Refuse noise that would not fit the integers of a Release."""
    if scale > MAX_SCALE:
        raise RequestError(
            "epsilon: so small that the noise would not fit 64-bit integers and no analyst could "
            "learn anything; ask for more epsilon, or protect fewer rows per unit"
        )


def check_draws(draws: int, most: int) -> None:
    """Refuse what is no number of posterior draws."""
    if isinstance(draws, bool) or not isinstance(draws, int) or not 1 <= draws <= most:
        raise RequestError(f"draws: expected a whole number from 1 to {most}, got {draws!r}")
