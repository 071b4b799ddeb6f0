"""Words that several kinds of request take, and the refusal of those that make no sense."""

from __future__ import annotations

from collections.abc import Sequence

from noisewise.core.design import Design
from noisewise.core.document import MAX_SCALE
from noisewise.core.errors import RequestError
from noisewise.core.privacy import Amount
from noisewise.core.schema import MAX_NAME, Schema


def given_epsilon(epsilon: Amount | None) -> Amount:
    """Refuse to choose how much privacy may be spent."""
    if epsilon is None:
        raise RequestError("epsilon: not given; say how much privacy may be spent, such as 1.0")
    return epsilon


def feature_names(features: Sequence[str]) -> tuple[str, ...]:
    """Refuse a text, whose letters would be taken for names."""
    if isinstance(features, str):
        raise RequestError(f"features: expected a list of column names, got the text {features!r}")
    return tuple(features)


def restricted_design(schema: Schema, features: tuple[str, ...], target: str) -> Design:
    """The design, with a schema of no other columns than it reads."""
    checked = Design(schema, features, target)
    return Design(schema.restricted_to(checked.sources), features, target)


def check_bounded(design: Design) -> None:
    """Refuse columns whose sums have no sensitivity."""
    if design.unbounded:
        raise RequestError(
            f"features: column {design.unbounded[0]!r} has no bounds; sums need them. Declare "
            "lower and upper, or publish a block summary (noisewise release-summary)"
        )


def check_label(label: str) -> None:
    """Refuse labels that a Release could not carry."""
    if len(label) > MAX_NAME or not label.isprintable():
        raise RequestError(f"label: expected printable text of at most {MAX_NAME} characters")


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
