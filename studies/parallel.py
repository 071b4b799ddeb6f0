"""Many calls at a time, by any of joblib's backends: here, or on a cluster of Dask or Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from noisewise.core.errors import RequestError

Item = TypeVar("Item")
Result = TypeVar("Result")
LOCAL = ("loky", "threading", "multiprocessing", "sequential")
Report = Callable[[int, int | None], None]


def check_backend(backend: str) -> None:
    """Make a backend ready, or refuse with the remedy.

    ``dask`` uses the running client, or connects to the scheduler that Dask's own settings name
    (``DASK_SCHEDULER_ADDRESS``), or starts a local one. ``ray`` likewise by ``RAY_ADDRESS``. Other
    names must have been registered with joblib.
    """
    from joblib.parallel import BACKENDS

    if backend in BACKENDS:
        return
    if backend == "dask":
        try:
            from distributed import Client, get_client  # type: ignore[import-not-found]
        except ImportError:
            raise RequestError(
                "backend: dask is not installed; pip install 'dask[distributed]'"
            ) from None
        try:
            get_client()
        except ValueError:
            Client()
    elif backend == "ray":
        try:
            from ray.util.joblib import register_ray  # type: ignore[import-not-found]
        except ImportError:
            raise RequestError("backend: ray is not installed; pip install ray") from None
        register_ray()
    else:
        raise RequestError(
            f"backend: {backend!r} is unknown; use {', '.join(LOCAL)}, dask or ray, or register "
            "it with joblib"
        )


def in_parallel(
    call: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    n_jobs: int = 1,
    backend: str = "loky",
    report: Report | None = None,
) -> Iterator[Result]:
    """Yield the results in order, each as soon as it and those before it are there.

    Parameters
    ----------
    call : callable
        A function that can be pickled.
    items : sequence
    n_jobs : int
        Calls at a time.
    backend : str
        See `check_backend`.
    report : callable, optional
        Called with (results so far, results in all).
    """
    for done, result in enumerate(_results(call, items, n_jobs, backend), 1):
        if report is not None:
            report(done, len(items))
        yield result


def _results(
    call: Callable[[Item], Result], items: Sequence[Item], n_jobs: int, backend: str
) -> Iterator[Result]:
    from joblib import Parallel, delayed

    check_backend(backend)
    if n_jobs == 1 and backend in LOCAL:
        yield from map(call, items)
        return
    try:
        parallel = Parallel(n_jobs=n_jobs, backend=backend, return_as="generator")
    except ValueError:  # a backend that can't hand out results one by one: go in short steps
        plain: Any = Parallel(n_jobs=n_jobs, backend=backend)
        for start in range(0, len(items), 4 * n_jobs):
            yield from plain(delayed(call)(item) for item in items[start : start + 4 * n_jobs])
        return
    yield from parallel(delayed(call)(item) for item in items)
