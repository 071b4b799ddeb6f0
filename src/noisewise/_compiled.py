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
_entries: dict[Any, Callable[..., Any]] = {}  # of `call_with`


def compiled(function: Function) -> Function:
    """Compile on first use, without Python's lock; sums may be re-ordered.

    Division by zero gives infinity.
    """
    return _compile(function, fastmath=set(FAST))


def compiled_in_order(function: Callable[..., Any]) -> Any:
    """The same with floating-point operations in the order in which they stand."""
    return _compile(function)


def compiled_inline(function: Callable[..., Any]) -> Any:
    """`compiled_in_order`, into its callers: passing many arrays can cost more than the work."""
    return _compile(function, inline="always")


def call_with(function: Callable[..., Any], parts: Any, examples: Any, *arguments: Any) -> Any:
    """``function(parts, *arguments)``, all compiled, with `parts` called by their addresses.

    The machine code of a compiled function otherwise contains that of all functions it calls, which
    LLVM optimises again for each caller. Large parts of a sampler are better compiled once each,
    and only those that a model needs.

    `parts` is a NamedTuple of compiled functions, `examples` one of the same names with arguments
    of the types that each part will get; `arguments` settle them.
    """
    import numba

    types: Any = numba.types
    typeof: Any = numba.typeof
    given = tuple(typeof(value) for value in arguments)
    if (function, parts, given) not in _entries:
        signatures = []
        for part, example in zip(parts, examples, strict=True):
            own = tuple(typeof(value) for value in example)
            part.compile(own)
            signatures.append(types.FunctionType(part.overloads[own].signature))
        dispatcher: Any = function
        entry = dispatcher.compile((types.NamedTuple(signatures, type(parts)), *given))
        _entries[function, parts, given] = entry
    return _entries[function, parts, given](parts, *arguments)


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
