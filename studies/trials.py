"""Trials on disk: an append-only file of JSON lines that a study goes on from.

The first line is a header with a fingerprint of everything that decides a trial. A file with
another fingerprint is refused. Trials that are in the file are not run again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import noisewise
from noisewise.core.errors import RequestError
from studies.parallel import Report, in_parallel

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
        report: Report | None = None,
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
