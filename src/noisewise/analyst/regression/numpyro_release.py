"""A Release as an observation in a NumPyro model of your own.

Write down how the rows, or their second moments, come about, and say what was released::

    columns, (observation,) = observe([release], target="income", features=["age"])

    def model():
        ...                                   # rows: (n, k + 1), the covariates and then the target
        observe_release(observation, rows)

Rows are on the unit scale of the Release: a numeric column lies in [-1, 1], an indicator is 0 or 1.
`ModelColumns.theta_to_original` turns coefficients into original units. The observation is an
ordinary NumPyro site with `obs`: posterior predictive draws and log likelihoods work as usual.

NumPyro is optional and loaded on first use. Its precision is 32 bits unless your program starts
with ``numpyro.enable_x64()``, which is advisable; where 32 bits cannot tell the statistics from
their noise an error says so.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import Observation, observe
from noisewise.core.errors import RequestError
from noisewise.core.kinds.regression import Release

Array = Any  # a JAX array or a NumPy one


def require_numpyro() -> Any:
    """Return the module numpyro, or say how to get it."""
    try:
        return import_module("numpyro")
    except ImportError as error:
        raise RequestError(
            "this needs NumPyro, which is not installed; install it with "
            "pip install 'noisewise[numpyro]'"
        ) from error


def released_entries(observation: Observation) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the entries that were released with noise, each entry once.

    Neither public entries (scale 0) nor unreleased ones (scale inf) have a likelihood.
    """
    scale = observation.scale
    rows, columns = np.nonzero(np.triu((scale > 0) & np.isfinite(scale)))
    return rows, columns


def gram(rows: Array) -> Array:
    """Sum of ww' over rows (n, P - 1) of (x, y), w = (1, x, y)."""
    import jax.numpy as jnp

    w = jnp.concatenate([jnp.ones_like(rows[:, :1]), rows], axis=1)
    return w.T @ w


def observe_release(release: Release | Observation, rows: Array, *, name: str = "release") -> None:
    """State, inside a NumPyro model, that a Release was made from these latent rows.

    Call it outside plates, once for each holder, under a `name` of its own. The number of rows must
    be public.

    Parameters
    ----------
    release : Release or Observation
        A Release stands for its own features and target. For others, or to look at unit scale, take
        the Observation from `noisewise.analyst.regression.observation.observe`.
    rows : array, shape (n, P - 1)
        Latent records (x, y) on unit scale, covariates first.
    name : str
        Name of the NumPyro site.
    """
    require_numpyro()
    observation = _observation(release)
    if observation.n_is_private:
        raise RequestError(
            "release: its number of rows is private, so there cannot be a fixed number of latent "
            "rows; model the second moments, n among them, with observe_statistics"
        )
    expected = (observation.n, observation.k + 1)
    if np.shape(rows) != expected:
        raise RequestError(
            f"rows: expected shape {expected}, a row for each of the n records with the covariates "
            f"and then the target; got {np.shape(rows)}"
        )
    observe_statistics(observation, gram(rows), name=name)


def observe_statistics(release: Release | Observation, A: Array, *, name: str = "release") -> None:
    """State, inside a NumPyro model, that a Release was made from these latent second moments.

    Parameters
    ----------
    release : Release or Observation
        As in `observe_release`.
    A : array, shape (P, P)
        Latent sum of ww' over all rows, w = (1, x, y), on unit scale. Only the upper triangle at
        released entries is looked at; A₀₀ = n is one of them if the number of rows is private.
    name : str
        Name of the NumPyro site.
    """
    numpyro = require_numpyro()
    import jax.numpy as jnp
    import numpyro.distributions as dist

    observation = _observation(release)
    if np.shape(A) != observation.values.shape:
        raise RequestError(
            f"A: expected shape {observation.values.shape}, the second moments of (1, x, y); got "
            f"{np.shape(A)}"
        )
    A = jnp.asarray(A)
    entries = released_entries(observation)
    values, scale = observation.values[entries], observation.scale[entries]
    _check_precision(A.dtype, values, scale)
    law = dist.Laplace if observation.family == "laplace" else dist.Normal
    noise = law(A[entries], jnp.asarray(scale, A.dtype)).to_event(1)
    numpyro.sample(name, noise, obs=jnp.asarray(values, A.dtype))


def _observation(release: Release | Observation) -> Observation:
    if isinstance(release, Observation):
        return release
    if not isinstance(release, Release):
        raise RequestError(
            f"release: expected a Release or an Observation, got {type(release).__name__}; several "
            "holders take one call each"
        )
    _, (observation,) = observe([release])
    return observation


def _check_precision(dtype: Any, values: FloatArray, scale: FloatArray) -> None:
    """Refuse numbers too coarse for the noise: their rounding would pass for information."""
    step = float(np.finfo(dtype).eps) * np.abs(values)
    if (step > 0.01 * scale).any():
        raise RequestError(
            f"{dtype} numbers are too coarse for these statistics and their noise; call "
            "numpyro.enable_x64() at the start of your program"
        )
