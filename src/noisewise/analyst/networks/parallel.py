"""How many threads there is work for. The kernels let go of Python's lock."""

from __future__ import annotations

import os


def workers(tasks: int) -> int:
    """No more threads than tasks, or than cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    cores = len(allowed(0)) if allowed is not None else os.cpu_count() or 1
    return max(1, min(tasks, cores))
