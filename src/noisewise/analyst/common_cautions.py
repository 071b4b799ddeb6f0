"""What cautions about regressions and about networks have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

GOOD_RHAT, BAD_RHAT = 1.01, 1.05
ENOUGH_DRAWS = 400  # effective ones, for interval ends that are not rough
ONE_CHAIN = "one chain cannot show whether it has converged: run several (four by default)."
_NAMED = 5


def first_few(names: Sequence[str]) -> str:
    """A list for a sentence, which stays short however many names there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def repetition_warnings(sources: Iterable[tuple[str, int | None]]) -> tuple[str, ...]:
    """Releases that look as if the same rows were behind them, which would count people twice.

    Parameters
    ----------
    sources : iterable of (str, int or None)
        Name of the data set and number of rows of every Release; None where it is private.
    """
    seen: dict[tuple[str, int], int] = {}
    warnings = []
    for number, (dataset, n) in enumerate(sources, 1):
        if n is None:
            continue
        if (dataset, n) in seen:
            warnings.append(
                f"releases {seen[dataset, n]} and {number} are of a data set {dataset!r} with "
                f"{n:,} rows each. If the same rows are behind both, people count twice and "
                "intervals are too narrow: use one of them."
            )
        seen.setdefault((dataset, n), number)
    return tuple(warnings)
