"""What cautions about regressions and about networks have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

GOOD_RHAT, BAD_RHAT = 1.01, 1.05
ENOUGH_DRAWS = 400  # effective ones, for interval ends that are not rough
ONE_CHAIN = "one chain cannot show whether it has converged: run several (four by default)."
_NAMED = 5
# What a warning says where its numbers must not be used, rather than be used with care.
_FORBIDDING = ("don't use", "the model that fits all Releases together")


def first_few(names: Sequence[str]) -> str:
    """A list for a sentence, which stays short however many names there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def forbids(warning: str) -> bool:
    """Whether a warning is a reason not to use the numbers at all."""
    return any(words in warning for words in _FORBIDDING)


def repetition_warnings(
    sources: Iterable[tuple[str, int | None]], names: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Releases that look as if the same rows were behind them, which would count people twice.

    One warning, however many they are: batches of equal size are a common and harmless reason.

    Of every Release `sources` has the name of the data set and the number of rows, None where it is
    private; `names` are what to call them, by default their numbers.
    """
    alike: dict[tuple[str, int], list[str]] = {}
    for number, (dataset, n) in enumerate(sources, 1):
        if n is not None:
            name = f"release {number}" if names is None else names[number - 1]
            alike.setdefault((dataset, n), []).append(name)
    found = [
        f"{first_few(which)} are of a data set {dataset!r} with {n:,} rows each"
        for (dataset, n), which in alike.items()
        if len(which) > 1
    ]
    if not found:
        return ()
    return (
        f"{'; '.join(found)}. If the same rows are behind two of them, people count twice and "
        "intervals are too narrow: use one of the two.",
    )
