"""Network posteriors as ArviZ containers and netCDF files."""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisewise._version import __version__
from noisewise.analyst.network.layout import Layout
from noisewise.analyst.posterior.file import check_folder
from noisewise.analyst.posterior.network import NetworkFit, NetworkPosterior
from noisewise.core.errors import NoisewiseError, ReleaseError, RequestError
from noisewise.core.network import Network
from noisewise.core.schema import Schema

if TYPE_CHECKING:
    import arviz as az

FORMAT = "noisewise-network-posterior"
FORMAT_VERSION = 1
ATTRIBUTE = "noisewise"


def to_arviz(posterior: NetworkPosterior) -> az.InferenceData:
    """One variable a node, with the levels of its family as coordinates."""
    import arviz as az

    network = posterior.network
    number = {node: k for k, node in enumerate(network.nodes)}
    # Names of dimensions may not be names of variables, and netCDF doesn't take every letter.
    axis = {node: f"level_{number[node]}" for node in network.nodes}
    drawn = {f"table_{number[node]}": posterior.draws(node) for node in network.nodes}
    dims = {
        f"table_{number[node]}": [axis[name] for name in network.family(node)]
        for node in network.nodes
    }
    data = az.from_dict(
        posterior=drawn,
        coords={axis[node]: list(network.levels(node)) for node in network.nodes},
        dims=dims,
        attrs={ATTRIBUTE: json.dumps(_document(posterior))},
    )
    for node in network.nodes:
        data.posterior[f"table_{number[node]}"].attrs["long_name"] = node
    return data


def save(posterior: NetworkPosterior, path: str | Path) -> None:
    """Write a netCDF file."""
    check_folder(path)
    data = to_arviz(posterior)
    extra: dict[str, Any] = {}
    if posterior.given_counts is not None:
        extra["given_counts"] = posterior.given_counts
    if posterior.plugin is not None:
        extra["plugin"] = posterior.plugin[None, None]
    if extra:
        import arviz as az

        groups = {name: az.dict_to_dataset({name: values}) for name, values in extra.items()}
        data.add_groups(groups, warn_on_custom_groups=False)
    try:
        data.to_netcdf(str(path))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "the file system refused"
        raise RequestError(f"out: cannot write {path}: {reason}") from None


def is_network_posterior(path: str | Path) -> bool:
    """Whether a file says that it is a network posterior; False for anything unreadable."""
    h5netcdf: Any = import_module("h5netcdf")
    try:
        with h5netcdf.File(str(path), "r") as file:
            document = json.loads(file.attrs[ATTRIBUTE])
    except Exception:
        return False
    return isinstance(document, dict) and document.get("format") == FORMAT


def load_network_posterior(path: str | Path) -> NetworkPosterior:
    """Read what `NetworkPosterior.save` wrote.

    Raises
    ------
    ReleaseError
        If the file isn't a network posterior of noisewise, or is damaged.
    """
    import arviz as az

    if not Path(path).is_file():
        what = "a folder" if Path(path).is_dir() else "no such file"
        raise ReleaseError(f"{path}: there is {what}; give the file that `fit` wrote")
    try:
        with closing(az.from_netcdf(str(path))) as data:
            return _from_arviz(data)
    except NoisewiseError:
        raise
    except Exception:
        # netCDF readers raise many kinds of errors on damaged files; none of them helps a user.
        raise ReleaseError(
            f"{path}: not a network posterior of noisewise, or damaged (a network Release becomes "
            "one with `fit`)"
        ) from None


def _from_arviz(data: az.InferenceData) -> NetworkPosterior:
    document = json.loads(data.attrs[ATTRIBUTE])
    if (document["format"], document["format_version"]) != (FORMAT, FORMAT_VERSION):
        raise ValueError
    network = Network.make(Schema.from_dict(document["schema"]), document["parents"])
    layout = Layout(network)
    parts = {}
    for k, node in enumerate(network.nodes):
        values = data.posterior[f"table_{k}"].to_numpy()
        lead = values.shape[:2]
        if values.shape[2:] != network.shape(node):
            raise ReleaseError("the draws do not fit the network")
        i = layout.number[node]
        axes = [0, 1, *(2 + a for a in layout.axes(i))]
        parts[i] = np.transpose(values, axes).reshape(*lead, -1)
    theta = np.concatenate([parts[i] for i in range(len(layout.nodes))], axis=-1)
    groups = set(data.groups())
    info: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in document["info"].items()
    }
    return NetworkPosterior(
        network,
        theta,
        NetworkFit(**info),
        data["given_counts"]["given_counts"].to_numpy() if "given_counts" in groups else None,
        data["plugin"]["plugin"].to_numpy()[0, 0] if "plugin" in groups else None,
        document["sampler"],
    )


def _document(posterior: NetworkPosterior) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "software": f"noisewise {__version__}",
        "schema": posterior.network.schema.to_dict(),
        "parents": posterior.network.to_json(),
        "info": asdict(posterior.info),
        "sampler": dict(posterior.sampler),
    }
