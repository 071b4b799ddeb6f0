"""Posteriors as ArviZ containers and netCDF files."""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noisewise._version import __version__
from noisewise.analyst.model_columns import ModelColumns
from noisewise.analyst.posterior.regression import SIGMA2, FitInfo, Naive, Posterior
from noisewise.core.errors import NoisewiseError, ReleaseError, RequestError
from noisewise.core.schema import Schema

if TYPE_CHECKING:
    import arviz as az

FORMAT = "noisewise-posterior"
FORMAT_VERSION = 1
_CONDITIONAL = "theta_given_statistics"


def to_arviz(posterior: Posterior, predictive: NDArray[Any] | None = None) -> az.InferenceData:
    """The draws with names and coordinates; `predictive` has shape (chains, draws, rows)."""
    import arviz as az

    drawn: dict[str, Any] = {"theta": posterior.theta, SIGMA2: posterior.sigma2}
    if posterior.conditional_mean is not None:
        drawn[_CONDITIONAL] = posterior.conditional_mean
    coords = {"coefficient": list(posterior.columns.names)}
    dims = {"theta": ["coefficient"], _CONDITIONAL: ["coefficient"]}
    data = az.from_dict(
        posterior=drawn,
        sample_stats=dict(posterior.sample_stats) or None,
        posterior_predictive=None if predictive is None else {posterior.columns.target: predictive},
        observed_data={k: np.asarray(v) for k, v in posterior.observed.items()} or None,
        coords=coords,
        dims={name: dims[name] for name in drawn if name in dims},
        attrs={"noisewise": json.dumps(_document(posterior))},
    )
    if posterior.naive is not None:
        naive = {name: draws[None] for name, draws in posterior.naive._asdict().items()}
        data.add_groups(
            {"naive": az.dict_to_dataset(naive, coords=coords, dims={"theta": ["coefficient"]})},
            warn_on_custom_groups=False,
        )
    return data


def save(posterior: Posterior, path: str | Path) -> None:
    """Write a netCDF file."""
    check_folder(path)
    try:
        to_arviz(posterior).to_netcdf(str(path))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "the file system refused"
        raise RequestError(f"out: cannot write {path}: {reason}") from None


def check_folder(path: str | Path) -> None:
    """Refuse a path that can't be written to, before any work is done for it."""
    path = Path(path)
    if path.is_dir():
        raise RequestError(f"out: {path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise RequestError(f"out: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise RequestError(f"out: the folder {path.parent} cannot be written to")


def load_posterior(path: str | Path) -> Posterior:
    """Read what `Posterior.save` wrote.

    Raises
    ------
    ReleaseError
        If the file isn't a posterior of noisewise, or is damaged.
    """
    import arviz as az

    if not Path(path).is_file():
        what = "a folder" if Path(path).is_dir() else "no such file"
        raise ReleaseError(f"{path}: there is {what}; give the file that `fit` wrote")
    from noisewise.analyst.posterior.network_file import is_network_posterior

    if is_network_posterior(path):
        raise ReleaseError(
            f"{path}: this is the posterior of a network; read it with load_network_posterior"
        )
    try:
        with closing(az.from_netcdf(str(path))) as data:
            posterior = _from_arviz(data)
    except NoisewiseError:
        raise
    except Exception:
        # netCDF readers raise many kinds of errors on damaged files; none of them helps a user.
        raise ReleaseError(
            f"{path}: not a posterior file of noisewise, or damaged (a Release becomes one with "
            "`fit`)"
        ) from None
    shape = posterior.theta.shape
    if shape[-1] != len(posterior.columns.names) or shape[:2] != posterior.sigma2.shape:
        raise ReleaseError(f"{path}: the draws do not fit the model")
    return posterior


def _from_arviz(data: az.InferenceData) -> Posterior:
    document = json.loads(data.attrs["noisewise"])
    if (document["format"], document["format_version"]) != (FORMAT, FORMAT_VERSION):
        raise ValueError
    columns = ModelColumns(
        Schema.from_dict(document["schema"]), tuple(document["features"]), document["target"]
    )
    drawn = _arrays(data.posterior)
    groups = set(data.groups())
    naive = None
    if "naive" in groups:
        naive = Naive(**{name: values[0] for name, values in _arrays(data["naive"]).items()})
    return Posterior(
        columns,
        drawn["theta"],
        drawn[SIGMA2],
        _info(document["info"]),
        drawn.get(_CONDITIONAL),
        _arrays(data.sample_stats) if "sample_stats" in groups else {},
        _arrays(data.observed_data) if "observed_data" in groups else {},
        naive,
    )


def _document(posterior: Posterior) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "software": f"noisewise {__version__}",
        "schema": posterior.columns.schema.to_dict(),
        "features": list(posterior.columns.features),
        "target": posterior.columns.target,
        "info": asdict(posterior.info),
    }


def _info(words: dict[str, Any]) -> FitInfo:
    """JSON has lists where FitInfo has tuples."""
    fields: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in words.items()
    }
    fields["prior"] = {name: (pair[0], pair[1]) for name, pair in words["prior"].items()}
    return FitInfo(**fields)


def _arrays(group: Any) -> dict[str, NDArray[Any]]:
    return {name: group[name].to_numpy() for name in group.data_vars}
