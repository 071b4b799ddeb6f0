"""What a Release is called in messages: its data set, and what tells it from the others."""

from __future__ import annotations

from collections.abc import Sequence

from noisewise.core.errors import RequestError
from noisewise.core.release import Release


def release_names(releases: Sequence[Release], given: Sequence[str] | None = None) -> list[str]:
    """A name for each Release, to start a sentence about it with.

    Parameters
    ----------
    releases : sequence of Release
    given : sequence of str, optional
        The analyst's own names, such as those of files.
    """
    if given is None:
        return [_described(release, number, releases) for number, release in enumerate(releases, 1)]
    if isinstance(given, str) or len(given) != len(releases):
        raise RequestError(
            f"names: expected one for each of {len(releases)} Releases, got {given!r}"
        )
    return [
        f"{name} (data set {release.schema.dataset!r})"
        for name, release in zip(given, releases, strict=True)
    ]


def _described(release: Release, number: int, releases: Sequence[Release]) -> str:
    label = f", label {release.label!r}" if release.label else ""
    what = f"data set {release.schema.dataset!r}{label}"
    return f"the Release of {what}" if len(releases) == 1 else f"release {number} ({what})"
