"""How functions are compiled with Numba, and when their caches on disk are out of date.

Numba caches machine code beside each source file and looks at that one file only to see whether it
is out of date. But the code of a function contains that of the functions it calls. Files that call
each other are therefore a *family*, and their caches are stamped with the text of all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Sums may be re-ordered (vectorised), but infinities and NaN keep their meaning: a bad point must
# come back as -inf, not as an arbitrary number.
FAST = frozenset({"reassoc", "contract", "nsz", "arcp"})


class Family:
    """Files whose compiled functions call each other.

    `digest` is that of `files`, the paths that were found.

    Parameters
    ----------
    home : str
        The ``__file__`` of whoever makes the family.
    *patterns : str
        Its files, relative to the folder of `home`; wildcards are allowed.
    """

    def __init__(self, home: str, *patterns: str) -> None:
        folder = Path(home).parent
        self.files = frozenset(
            path.resolve() for pattern in patterns for path in _matches(folder, pattern)
        )
        digest = hashlib.sha256()
        for path in sorted(self.files, key=lambda path: (path.name, path)):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
        self.digest = digest.hexdigest()

    def compile(self, function: Callable[..., Any], **options: Any) -> Any:
        """Compile on first use, without Python's lock; division by zero gives infinity."""
        import numba

        dispatcher = numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
        # Not part of Numba's interface. Where it is missing, the cache looks at one file only.
        cache_file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
        if hasattr(cache_file, "_source_stamp"):
            cache_file._source_stamp = (cache_file._source_stamp, self.digest)
        return dispatcher

    def fast(self, function: Callable[..., Any]) -> Any:
        """Compile; sums may be re-ordered."""
        return self.compile(function, fastmath=set(FAST))

    def to_the_letter(self, function: Callable[..., Any]) -> Any:
        """Compile, with floating-point operations in the order in which they stand."""
        return self.compile(function)

    def inlined(self, function: Callable[..., Any]) -> Any:
        """`to_the_letter`, into its callers: passing many arrays can cost more than the work."""
        return self.compile(function, inline="always")

    def expanded(self, function: Callable[..., Any]) -> Any:
        """`to_the_letter`, into its callers: as `inlined`, for functions with loops in them."""
        return self.compile(function, forceinline=True)

    def uncounted(self, function: Callable[..., Any]) -> Any:
        """`fast`, without counting references to arrays; for functions that allocate nothing.

        Numba counts with atomic operations at every view of a part of an array, which for small
        arrays takes most of the time. This is not part of Numba's interface; where it is missing,
        the code is slower and otherwise the same.
        """
        dispatcher = self.fast(function)
        options: Any = getattr(dispatcher, "targetoptions", {})
        options["_nrt"] = False
        return dispatcher


def _matches(folder: Path, pattern: str) -> list[Path]:
    found = list(folder.glob(pattern)) if ".." not in pattern else list(_upwards(folder, pattern))
    if not found:
        raise FileNotFoundError(f"no source file matches {pattern!r} in {folder.name}")
    return found


def _upwards(folder: Path, pattern: str) -> list[Path]:
    """`Path.glob` does not go up; strip the leading ``../`` first."""
    while pattern.startswith("../"):
        folder, pattern = folder.parent, pattern.removeprefix("../")
    return list(folder.glob(pattern))
