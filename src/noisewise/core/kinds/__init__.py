"""Releases of any kind: the document's `format` says which."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from noisewise.core.document import load, parse_json
from noisewise.core.errors import ReleaseError

if TYPE_CHECKING:
    from noisewise.core.kinds.draws import RegressionSampleRelease
    from noisewise.core.kinds.glm import GlmRelease
    from noisewise.core.kinds.network.release import NetworkRelease
    from noisewise.core.kinds.regression import Release
    from noisewise.core.kinds.summary.release import SummaryRelease

AnyRelease: TypeAlias = (
    "Release | SummaryRelease | NetworkRelease | RegressionSampleRelease | GlmRelease"
)

# Loaded on demand: a reader of one kind does not pay for the others.
_KINDS = {
    "noisewise-release": ("regression", "Release"),
    "noisewise-summary-release": ("summary.release", "SummaryRelease"),
    "noisewise-network-release": ("network.release", "NetworkRelease"),
    "noisewise-glm-release": ("glm", "GlmRelease"),
    "noisewise-regression-sample-release": ("draws", "RegressionSampleRelease"),
}


def release_from_text(text: str) -> AnyRelease:
    """Read and check a Release of any kind; raises ReleaseError and nothing else."""
    document = parse_json(text)
    form = document.get("format") if isinstance(document, dict) else None
    if not isinstance(form, str) or form not in _KINDS:
        raise ReleaseError("release: not a noisewise Release, or of a kind that is not known here")
    module, name = _KINDS[form]
    kind: Any = getattr(import_module(f".{module}", __package__), name)
    release: AnyRelease = kind.from_text(text)
    return release


def load_release(path: str | Path) -> AnyRelease:
    """Read a Release of any kind from a file and check it.

    Raises
    ------
    ReleaseError
        With the path and one reason, for any kind of damage.
    """
    return load(path, release_from_text)
