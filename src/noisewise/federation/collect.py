"""Releases without any server: files, or folders of files, that holders put there.

Needs no Flower, and imports nothing but `core`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from noisewise.core.errors import ReleaseError
from noisewise.core.kinds import AnyRelease, load_release


@dataclass
class Collected:
    """What was found.

    Parameters
    ----------
    releases : dict of Path to Release
        Of any kind, in the order of the paths given, folders by file name; each Release once.
    skipped : dict of Path to str
        Files that don't count, and why.
    """

    releases: dict[Path, AnyRelease] = field(default_factory=dict)
    skipped: dict[Path, str] = field(default_factory=dict)


def collect(paths: Iterable[str | Path]) -> Collected:
    """Load Releases from files and folders.

    In a folder, every ``*.json`` that isn't hidden is tried; subfolders are not entered. One that
    is not a valid Release is skipped with the reason, since holders write there independently of
    each other. The same Release twice, wherever it is, counts once: it is the same people.

    Parameters
    ----------
    paths : iterable of paths

    Raises
    ------
    ReleaseError
        For a file that was named itself and isn't a valid Release, and for a folder without any.
    """
    found = Collected()
    first: dict[str, Path] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            _add(found, first, path, load_release(path))
            continue
        before = len(first)
        for file in sorted(path.glob("*.json")):
            if file.name.startswith("."):
                continue
            if not file.is_file():  # a pipe would be waited for without end
                found.skipped[file] = "not a file"
                continue
            try:
                release = load_release(file)
            except ReleaseError as error:
                found.skipped[file] = str(error).removeprefix(f"{file}: ")
            except Exception as error:  # one holder's file must not hide the others'
                found.skipped[file] = f"cannot be read ({type(error).__name__})"
            else:
                _add(found, first, file, release)
        if len(first) == before and not any(file.parent == path for file in found.skipped):
            raise ReleaseError(f"{path}: there is no Release in this folder (*.json)")
    if not found.releases:
        reasons = "; ".join(f"{file.name}: {why}" for file, why in found.skipped.items())
        raise ReleaseError(f"releases: none is valid. {reasons}" if reasons else "releases: none")
    return found


def _add(found: Collected, first: dict[str, Path], path: Path, release: AnyRelease) -> None:
    if release.digest in first:
        found.skipped[path] = f"the same Release as {first[release.digest]}; it counts once"
        return
    first[release.digest] = path
    found.releases[path] = release
