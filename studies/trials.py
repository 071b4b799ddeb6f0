"""Trials on disk: an append-only file of JSON lines that a study goes on from.

The first line is a header with a fingerprint of everything that decides a trial. A file with
another fingerprint is refused. Trials that are in the file are not run again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import noisewise
from noisewise.core.errors import RequestError

Record = dict[str, Any]


_PACKAGE = Path(noisewise.__file__).parent
ANALYST = (_PACKAGE / "analyst",)
PLANS = (Path(__file__).parent, _PACKAGE / "planning")  # what simulates, and what is predicted


@lru_cache(maxsize=2)
def code_digest(folders: tuple[Path, ...] = ANALYST) -> str:
    """Digest of source code: trials of different code are different trials."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class TrialFile:
    """The trials of one configuration.

    Parameters
    ----------
    path : Path
    content : mapping
        Everything that decides a trial, as plain data.
    """

    path: Path
    content: Mapping[str, Any]

    @property
    def header(self) -> Record:
        """The first line."""
        text = json.dumps(self.content, sort_keys=True)
        fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]
        return {**self.content, "fingerprint": fingerprint}

    def load(self, *, check: bool = True) -> list[Record]:
        """Trials that are on disk, in order; an interrupted last line is left out.

        Parameters
        ----------
        check : bool
            Refuse a file that other code or another configuration has made.
        """
        lines = self._complete_lines()
        if not lines:
            return []
        if check and lines[0].get("fingerprint") != self.header["fingerprint"]:
            raise RequestError(
                f"out: {self.path} holds trials of another configuration or of other code; "
                "results are never mixed, so give another folder or delete that file"
            )
        trials = {line["trial"]: line for line in lines[1:]}
        return [trials[number] for number in sorted(trials)]

    def run_missing(
        self,
        call: Callable[[int], Record],
        count: int,
        *,
        n_jobs: int = 1,
        backend: str = "loky",
        report: Progress | None = None,
    ) -> list[Record]:
        """Run those of the first `count` trials that aren't there, and return all, in order.

        Parameters
        ----------
        call : callable
            From a trial's number to its record, whose ``trial`` is that number.
        count : int
        n_jobs : int
            Trials at a time.
        backend : str
            Of joblib; see `parallel.check_backend`.
        report : callable, optional
            Called with (trials done, trials in all).
        """
        done = [record for record in self.load() if record["trial"] < count]
        present = {record["trial"] for record in done}
        missing = [number for number in range(count) if number not in present]
        if report is not None:
            report(len(done), count)
        if not missing:
            return done
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._drop_incomplete_line()
        results = in_parallel(call, missing, n_jobs=n_jobs, backend=backend)
        with self.path.open("a", encoding="utf-8") as file:
            if file.tell() == 0:
                _append(file, self.header)
            for record in results:
                _append(file, record)
                done.append(record)
                if report is not None:
                    report(len(done), count)
        return sorted(done, key=lambda record: int(record["trial"]))

    def _complete_lines(self) -> list[Record]:
        if not self.path.exists():
            return []
        lines = self.path.read_text("utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def _drop_incomplete_line(self) -> None:
        """Cut off what an interruption left of a line that was being written."""
        if self.path.exists():
            content = self.path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole != len(content):
                with self.path.open("r+b") as file:
                    file.truncate(whole)


def _append(file: Any, record: Record) -> None:
    file.write(json.dumps(record, separators=(",", ":")) + "\n")
    file.flush()


# --- in parallel ----------------------------------------------------------------------------------


Item = TypeVar("Item")
Result = TypeVar("Result")
LOCAL = ("loky", "threading", "multiprocessing", "sequential")
Progress = Callable[[int, int | None], None]


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
    report: Progress | None = None,
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
