"""How functions are compiled with Numba, and when their caches on disk are out of date.

Numba caches machine code beside each source file and looks at that one file only to see whether it
is out of date. But the code of a function contains that of the functions it calls, and constants of
other files. Caches are therefore also stamped with the text of all files with compiled functions
that a file imports, directly or through others.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

# Sums may be re-ordered (vectorised), but infinities and NaN keep their meaning: a bad point must
# come back as -inf, not as an arbitrary number.
FAST = frozenset({"reassoc", "contract", "nsz", "arcp"})
_PACKAGE = Path(__file__).parent
_IMPORTS = re.compile(r"^\s*from noisewise([.\w]*) import (\([^)]*\)|.*)$", re.MULTILINE)
_MARK = re.compile(r"^@compiled", re.MULTILINE)


def compiled(function: Function) -> Function:
    """Compile on first use, without Python's lock; sums may be re-ordered.

    Division by zero gives infinity.
    """
    return _compile(function, fastmath=set(FAST))


def compiled_in_order(function: Function) -> Function:
    """The same with floating-point operations in the order in which they stand."""
    return _compile(function)


def _compile(function: Function, **options: Any) -> Function:
    import numba

    dispatcher: Any = numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    # Not part of Numba's interface. Where it is missing, the cache looks at one file only.
    cache_file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(cache_file, "_source_stamp"):
        digest = sources_digest(Path(function.__code__.co_filename))
        cache_file._source_stamp = (cache_file._source_stamp, digest)
    result: Function = dispatcher
    return result


@cache
def sources_digest(path: Path) -> str:
    """Digest of a file and of the files with compiled functions behind its imports."""
    digest = hashlib.sha256()
    for source in sorted(sources(path)):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()


def sources(path: Path) -> frozenset[Path]:
    """The file itself, and the files with compiled functions that it imports, however far."""
    seen: set[Path] = set()
    waiting = [path.resolve()]
    while waiting:
        source = waiting.pop()
        if source not in seen:
            seen.add(source)
            waiting += _imported(source)
    return frozenset(one for one in seen if one == path.resolve() or _has_compiled(one))


@cache
def _imported(path: Path) -> tuple[Path, ...]:
    """Files of this package whose names a file imports from."""
    found: list[Path] = []
    for dotted, names in _IMPORTS.findall(path.read_text("utf-8")):
        folder = _PACKAGE.joinpath(*dotted.split(".")[1:])
        modules = [folder, *(folder / name for name in re.findall(r"\w+", names))]
        found += [m.with_suffix(".py").resolve() for m in modules if m.with_suffix(".py").is_file()]
    return tuple(found)


@cache
def _has_compiled(path: Path) -> bool:
    return _MARK.search(path.read_text("utf-8")) is not None


# --- families named by hand -----------------------------------------------------------------------


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
