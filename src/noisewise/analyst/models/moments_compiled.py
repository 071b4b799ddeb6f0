"""How the Gibbs samplers and their moments are compiled, and when their cache is out of date.

Numba caches machine code beside each source file and looks at that one file only to see whether it
is out of date. But the code of a function contains that of the functions it calls. The files of the
Gibbs samplers call each other, so their caches are stamped with the text of all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

# Sums may be re-ordered (vectorised), but infinities and NaN keep their meaning.
_FASTMATH = {"reassoc", "contract", "nsz", "arcp"}


def _source_digest() -> str:
    analyst = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted([*analyst.glob("models/moments*.py"), *analyst.glob("samplers/gibbs*.py")]):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


_SOURCES = _source_digest()


def _compile(function: Callable[..., Any], **options: Any) -> Any:
    dispatcher = numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    # Not part of Numba's interface. Where it is missing, the cache looks at one file only.
    cache_file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(cache_file, "_source_stamp"):
        cache_file._source_stamp = (cache_file._source_stamp, _SOURCES)
    return dispatcher


def compiled(function: Callable[..., Any]) -> Any:
    """Compile on first use. Sums may be re-ordered."""
    return _compile(function, fastmath=_FASTMATH)


def compiled_to_the_letter(function: Callable[..., Any]) -> Any:
    """Compile on first use, with floating-point operations in the order in which they stand."""
    return _compile(function)


def inlined(function: Callable[..., Any]) -> Any:
    """`compiled_to_the_letter`, into its callers."""
    return _compile(function, inline="always")
