"""One netCDF file for every kind of posterior: ArviZ groups, and a marker that says which kind.

Files are written by h5netcdf and read by `hdf5`, because whoever reads one may have it from
somebody else.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise._version import __version__
from noisewise.analyst.posterior import hdf5
from noisewise.core.document import parse_json
from noisewise.core.errors import NoisewiseError, ReleaseError, RequestError

FORMAT = "noisewise-posterior"
FORMAT_VERSION = 2
_ATTRIBUTE = "noisewise"
_PACKED = 1000  # numbers from which on an array is compressed
_CLASSES = {  # loaded on demand: a reader of one kind does not pay for the others
    "regression": "Posterior",
    "network": "NetworkPosterior",
    "summary": "SummaryPosterior",
    "draws": "DrawsPosterior",
    "glm": "GlmPosterior",
}
Arrays = Mapping[str, Mapping[str, NDArray[Any]]]  # of a file, by group and name
# Up to version 1 each kind had a format of its own, and only these two were written.
_FIRST_FORMATS = {FORMAT: "regression", "noisewise-network-posterior": "network"}


@dataclass(frozen=True)
class Group:
    """Arrays by name, with names of their axes and what stands along these.

    It is a data set of xarray, without the time that importing xarray and pandas takes.
    """

    arrays: dict[str, tuple[list[str], NDArray[Any]]]
    coords: dict[str, Any]
    labels: Mapping[str, str]  # of arrays, in words

    def to_xarray(self) -> Any:
        """As a data set of xarray."""
        import xarray as xr

        found = xr.Dataset(self.arrays, coords=self.coords)
        for name, words in self.labels.items():
            found[name].attrs["long_name"] = words
        return found


class Groups(dict[str, Group]):
    """A `Group` for each name.

    That is what a container of ArviZ is, whose import takes several times as long as to write a
    file.
    """

    def groups(self) -> list[str]:
        """The names."""
        return list(self)

    def to_arviz(self) -> Any:
        """As ArviZ's own container."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # it announces its next major version
            import arviz as az

        groups = {name: group.to_xarray() for name, group in self.items()}
        return az.InferenceData(**groups, warn_on_custom_groups=False)


def dataset(
    arrays: Mapping[str, Any],
    coords: Mapping[str, Sequence[str]] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    leading: tuple[str, ...] = ("chain", "draw"),
    labels: Mapping[str, str] | None = None,
) -> Group:
    """Arrays by name, with the names of dimensions that ArviZ gives."""
    found: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    for name, given in arrays.items():
        values = np.asarray(given) if leading else np.atleast_1d(given)
        axes = [*leading, *(dims or {}).get(name, ())]
        axes += [f"{name}_dim_{i - len(leading)}" for i in range(len(axes), values.ndim)]
        found[name] = (axes, values)
        sizes.update(zip(axes, values.shape, strict=True))
    places = {axis: (coords or {}).get(axis, np.arange(size)) for axis, size in sizes.items()}
    return Group(found, places, labels or {})


def write(path: str | Path, kind: str, document: dict[str, Any], data: Mapping[str, Group]) -> None:
    """Write a netCDF file: the groups of `data`, with what `document` says of them."""
    import h5netcdf

    marker = {"format": FORMAT, "format_version": FORMAT_VERSION, "kind": kind}
    marker |= {"software": f"noisewise {__version__}", **document}
    taken = sum(values.nbytes for group in data.values() for _, values in group.arrays.values())
    if taken > hdf5.MAX_ARRAYS:
        raise RequestError(
            f"out: the draws take {taken:,} bytes, and a posterior file has at most "
            f"{hdf5.MAX_ARRAYS:,}; fit again with fewer draws or chains"
        )
    try:
        # The earliest format that can hold this, which is all that `hdf5` reads.
        with h5netcdf.File(str(path), mode="w", libver=("earliest", "latest")) as opened:
            opened.attrs[_ATTRIBUTE] = json.dumps(marker)
            for name, group in data.items():
                _write_group(opened.create_group(name), group)
    except OSError as error:
        raise _cannot_write(path, error) from None


def _write_group(out: Any, group: Group) -> None:
    """As xarray writes a data set, so that it reads the same."""
    import h5py

    axes = {axis: ([axis], np.asarray(along)) for axis, along in group.coords.items()}
    out.dimensions = {axis: len(along) for axis, (_, along) in axes.items()}
    packed = {"compression": "gzip", "compression_opts": 4, "shuffle": True}
    # netCDF has no truth values.
    stored = {"O": h5py.string_dtype(), "U": h5py.string_dtype(), "b": np.dtype(np.int8)}
    for name, (dimensions, given) in {**axes, **group.arrays}.items():
        kind = given.dtype.kind
        more = packed if given.size >= _PACKED else {}
        made = out.create_variable(name, tuple(dimensions), stored.get(kind, given.dtype), **more)
        made[...] = given.astype(object) if kind in "OU" else given
        if kind == "b":
            made.attrs["dtype"] = "bool"
        if name in group.labels:
            made.attrs["long_name"] = group.labels[name]


def load_posterior(path: str | Path) -> Any:
    """Read what any posterior's `save` wrote: of a regression, a network, a summary, or draws.

    Raises
    ------
    ReleaseError
        If the file isn't a posterior of noisewise, or is damaged.
    """
    if not Path(path).is_file():
        exists, folder = Path(path).exists(), Path(path).is_dir()
        what = "a folder" if folder else "no regular file" if exists else "no such file"
        raise ReleaseError(f"{path}: there is {what}; give the file that `fit` wrote")
    try:
        document, data = _read(path)
        kind = _kind(document)
        module = import_module(f"noisewise.analyst.posterior.{kind}")
        return getattr(module, _CLASSES[kind]).from_groups(data, document)
    except NoisewiseError as error:
        raise ReleaseError(f"{path}: {error}") from None
    except OSError as error:
        raise ReleaseError(f"{path}: cannot be read: {error.strerror}; check the path") from None
    except MemoryError:
        raise ReleaseError(f"{path}: it takes more memory than there is") from None
    except Exception:
        # What a document says is taken apart in many ways; none of their errors helps a user.
        raise ReleaseError(
            f"{path}: not a posterior file of noisewise, or damaged (a Release becomes one with "
            "`fit`)"
        ) from None


def _read(path: str | Path) -> tuple[dict[str, Any], Arrays]:
    with hdf5.Reader(path) as reader:
        text = reader.text(_ATTRIBUTE)
        try:
            # A Release is text of several lines, which its own reader checks.
            document = parse_json(text, nan=True, longest=hdf5.MAX_TEXT, unchecked=("release",))
        except ReleaseError as error:
            hdf5.refuse(str(error).removeprefix("release: "))
        return document, reader.arrays()


def _kind(document: dict[str, Any]) -> str:
    version = document["format_version"]
    if type(version) is not int or not 0 < version < 10**6:
        raise ValueError
    if version == 1:
        return _FIRST_FORMATS[document["format"]]
    if document["format"] != FORMAT or document["kind"] not in _CLASSES:
        raise ValueError
    if version != FORMAT_VERSION:
        raise ReleaseError(
            f"format_version: {version!r} is not known here; a newer noisewise may read it"
        )
    return str(document["kind"])


def shaped(values: NDArray[Any] | None, *shape: int | None, finite: bool = True) -> NDArray[Any]:
    """Numbers from a file, if they have this shape; None stands for any length but 0."""
    found = () if values is None else values.shape
    fits = len(found) == len(shape) and all(
        have == want or (want is None and have) for have, want in zip(found, shape, strict=True)
    )
    if values is None or not fits:
        raise ReleaseError("the draws do not fit the model")
    if finite and not np.isfinite(values).all():
        raise ReleaseError("the draws are not all finite numbers")
    return values


def write_text(path: str | Path, text: str) -> None:
    """Write a text file; a file system that refuses is the user's to know."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: str | Path, error: OSError) -> RequestError:
    reason = os.strerror(error.errno) if error.errno else "the file system refused"
    return RequestError(f"out: cannot write {path}: {reason}")
