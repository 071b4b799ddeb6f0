"""Everything that can be audited by name: the real mechanisms, and broken ones as controls.

Another kind of mechanism joins by a module of its own with ``SUBJECTS``, named in `MODULES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from noisewise.audit.engine import AuditResult
from noisewise.core.errors import RequestError

# In the order in which they are run.
MODULES = ("regressions", "summaries", "networks")


@dataclass(frozen=True)
class Subject:
    """Something with a privacy claim, ready to be run on a pair of neighbouring data sets.

    Parameters
    ----------
    name : str
    describe : str
        One sentence.
    check : callable
        From (runs on each data set, confidence) to what the audit found.
    runs : int
        As many as it takes to see a mistake of the kind that the audit is there for.
    sound : bool
        Whether the claim is meant to hold. If not, it's a control: the audit must catch it.
    """

    name: str
    describe: str
    check: Callable[[int, float], AuditResult]
    runs: int = 1000
    sound: bool = True


@dataclass(frozen=True)
class Verdict:
    """What the audit of a subject came to."""

    subject: Subject
    result: AuditResult

    @property
    def as_it_should_be(self) -> bool:
        """Whether a sound mechanism passed, or a broken one was caught."""
        return self.result.passed == self.subject.sound


def subjects() -> dict[str, Subject]:
    """All of them, by name."""
    found: dict[str, Subject] = {}
    for name in MODULES:
        for subject in import_module(f".{name}", __package__).SUBJECTS:
            if subject.name in found:
                raise RequestError(f"subject: the name {subject.name!r} is used twice")
            found[subject.name] = subject
    return found


def examine(subject: Subject, *, runs: int | None = None, confidence: float = 0.99) -> Verdict:
    """Audit a subject."""
    return Verdict(subject, subject.check(runs or subject.runs, confidence))
