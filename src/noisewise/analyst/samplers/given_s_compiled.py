"""How `normal_x` and `fixed_s` are compiled, and when their cache is out of date."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from noisewise.analyst.models import moments_compiled


def _source_digest() -> str:
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(
        path for name in ("given_s*.py", "normal_x*.py", "fixed_s*.py") for path in here.glob(name)
    ):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


_SOURCES = _source_digest()


def compiled(function: Callable[..., Any]) -> Any:
    """`moments_compiled.compiled`, with a cache that these files put out of date too.

    And without counting references to arrays: nothing is allocated here, all arrays belong to the
    caller. Numba counts with atomic operations at every view of a part of an array, and for few
    columns that was most of the work (two thirds of an iteration of `normal_x` with two). It is
    not part of Numba's interface; where it is missing, the code is slower and otherwise the same.
    """
    dispatcher = moments_compiled.compiled(function)
    options: Any = getattr(dispatcher, "targetoptions", {})
    options["_nrt"] = False
    cache_file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(cache_file, "_source_stamp"):
        cache_file._source_stamp = (cache_file._source_stamp, _SOURCES)
    return dispatcher
