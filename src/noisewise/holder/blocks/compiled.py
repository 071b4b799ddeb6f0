"""How the block sums and regressions are compiled, and when their cache is out of date.

Numba caches machine code beside each source file and looks at that one file only to see whether it
is out of date. But the code of a function contains that of the functions it calls, so the caches
are stamped with the text of all files that are compiled here.

No fast mathematics: the sums are exact, and the double-double arithmetic is wrong as soon as two of
its operations are fused or change places.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

_FILES = ("compiled.py", "kernel.py", "double_double.py", "regressions.py")


def _source_digest() -> str:
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for name in _FILES:
        digest.update((here / name).read_bytes())
    return digest.hexdigest()


_SOURCES = _source_digest()


def compiled(function: Callable[..., Any]) -> Any:
    """Compile with Numba on first use, to the letter."""
    dispatcher = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    # Not part of Numba's interface. Where it is missing, the cache looks at one file only.
    cache_file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(cache_file, "_source_stamp"):
        cache_file._source_stamp = (cache_file._source_stamp, _SOURCES)
    return dispatcher
