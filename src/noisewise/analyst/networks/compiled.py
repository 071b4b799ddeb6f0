"""How the kernels of this room are compiled, and when their cache is out of date.

Numba looks at one source file only to see whether its cached machine code is out of date. The files
here call each other and the random numbers of the Gibbs samplers, so their caches are stamped with
the text of all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba


def _source_digest() -> str:
    here = Path(__file__).parent
    random = [here.parent / "samplers" / "gibbs_random.py"]
    digest = hashlib.sha256()
    for path in [*sorted(here.glob("*_kernels.py")), *random]:
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
    """Compile with Numba on first use, with floating-point operations as they stand."""
    return _compile(function)


def inlined(function: Callable[..., Any]) -> Any:
    """`compiled`, into its callers: passing tuples of arrays costs more than most of these do."""
    return _compile(function, inline="always")
