"""How the functions of the collapsed posterior are compiled, and when their cache is out of date.

Numba caches machine code beside each source file and looks at that one file only to see whether it
is out of date. But the code of a function contains that of the functions it calls. The files of the
collapsed posterior call each other, so their caches are stamped with the text of all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

_FILES = ("compiled.py", "triangular.py", "collapsed_*.py")


def _source_digest() -> str:
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _FILES for path in here.glob(pattern)}):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


SOURCES = _source_digest()

# Sums may be re-ordered (vectorised), but infinities and NaN keep their meaning: a bad point must
# come back as -inf, not as an arbitrary number.
_jit = numba.njit(
    cache=True,
    nogil=True,
    error_model="numpy",
    fastmath={"reassoc", "contract", "nsz", "arcp"},
)


def compiled(function: Callable[..., Any]) -> Any:
    """Compile with Numba on first use; the cache is good as long as no file here changes."""
    dispatcher = _jit(function)
    # Not part of Numba's interface. Where it is missing, the cache looks at one file only.
    cache_file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(cache_file, "_source_stamp"):
        cache_file._source_stamp = (cache_file._source_stamp, SOURCES)
    return dispatcher
