"""One netCDF file for every kind of posterior: ArviZ groups, and a marker that says which kind."""

from __future__ import annotations

import json
import os
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from noisewise._version import __version__
from noisewise.core.errors import NoisewiseError, ReleaseError, RequestError

if TYPE_CHECKING:
    import arviz as az

FORMAT = "noisewise-posterior"
FORMAT_VERSION = 2
_ATTRIBUTE = "noisewise"
_CLASSES = {  # loaded on demand: a reader of one kind does not pay for the others
    "regression": "Posterior",
    "network": "NetworkPosterior",
    "summary": "SummaryPosterior",
    "draws": "DrawsPosterior",
    "glm": "GlmPosterior",
}
# Up to version 1 each kind had a format of its own, and only these two were written.
_FIRST_FORMATS = {FORMAT: "regression", "noisewise-network-posterior": "network"}


def write(path: str | Path, kind: str, document: dict[str, Any], data: az.InferenceData) -> None:
    """Write a netCDF file: the groups of `data`, with what `document` says of them."""
    marker = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "software": f"noisewise {__version__}",
        **document,
    }
    data.attrs[_ATTRIBUTE] = json.dumps(marker)
    try:
        data.to_netcdf(str(path))
    except OSError as error:
        raise _cannot_write(path, error) from None


def load_posterior(path: str | Path) -> Any:
    """Read what any posterior's `save` wrote: of a regression, a network, a summary, or draws.

    Returns
    -------
    Posterior, NetworkPosterior, SummaryPosterior, DrawsPosterior or GlmPosterior

    Raises
    ------
    ReleaseError
        If the file isn't a posterior of noisewise, or is damaged.
    """
    import arviz as az

    if not Path(path).is_file():
        what = "a folder" if Path(path).is_dir() else "no such file"
        raise ReleaseError(f"{path}: there is {what}; give the file that `fit` wrote")
    try:
        with closing(az.from_netcdf(str(path))) as data:
            document = json.loads(data.attrs[_ATTRIBUTE])
            kind = _kind(document)
            module = import_module(f"noisewise.analyst.posterior.{kind}")
            return getattr(module, _CLASSES[kind]).from_arviz(data, document)
    except NoisewiseError as error:
        raise ReleaseError(f"{path}: {error}") from None
    except Exception:
        # netCDF readers raise many kinds of errors on damaged files; none of them helps a user.
        raise ReleaseError(
            f"{path}: not a posterior file of noisewise, or damaged (a Release becomes one with "
            "`fit`)"
        ) from None


def _kind(document: dict[str, Any]) -> str:
    version: int = document["format_version"]
    if version == 1:
        return _FIRST_FORMATS[document["format"]]
    if document["format"] != FORMAT or document["kind"] not in _CLASSES:
        raise ValueError
    if version != FORMAT_VERSION:
        raise ReleaseError(
            f"format_version: {version!r} is not known here; a newer noisewise may read it"
        )
    return str(document["kind"])


def arrays(group: Any) -> dict[str, NDArray[Any]]:
    """All arrays of a group of an ArviZ container."""
    return {name: group[name].to_numpy() for name in group.data_vars}


def tuples(words: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where records of a fit have tuples."""
    return {key: tuple(v) if isinstance(v, list) else v for key, v in words.items()}


def check_folder(path: str | Path) -> None:
    """Refuse a path that can't be written to, before any work is done for it."""
    path = Path(path)
    if path.is_dir():
        raise RequestError(f"out: {path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise RequestError(f"out: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise RequestError(f"out: the folder {path.parent} cannot be written to")


def write_text(path: str | Path, text: str) -> None:
    """Write a text file; a file system that refuses is the user's to know."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: str | Path, error: OSError) -> RequestError:
    reason = os.strerror(error.errno) if error.errno else "the file system refused"
    return RequestError(f"out: cannot write {path}: {reason}")
