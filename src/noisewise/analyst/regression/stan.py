"""A Release as a Stan program with its data: the posterior of `exact` under the default prior.

The program, `regression.stan`, is the density of `exact.density` written plainly, for one Release
with a public number of rows. There theta, mu and T are integrated out, and sigma and omega besides,
by quadrature; in Stan the last two are parameters. Latent statistics are the means of the rows and
the Cholesky factor of their covariance, so that nothing depends on how `exact` moves about in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.categories import Families
from noisewise.analyst.regression.fit import default_job
from noisewise.analyst.regression.observation import ModelColumns, Observation
from noisewise.analyst.regression.priors import ScaleFreeCovariates, ScaleFreePrior
from noisewise.core.errors import RequestError
from noisewise.core.kinds.regression import Release

_REMEDY = "use noisewise fit, and export its draws"
_NARROW = 1e-3  # sd at which a hidden column starts, at least


@dataclass(frozen=True)
class StanModel:
    """A program with its data and starting values, in the forms that Stan's interfaces take."""

    program: str
    # Plain numbers and lists
    data: dict[str, Any]
    start: dict[str, Any]
    names: tuple[str, ...]  # of the coefficients in the program's `theta`, in order


def stan_model(
    release: Release, *, target: str | None = None, features: Sequence[str] | None = None
) -> StanModel:
    """The posterior that `fit` would draw from, in Stan.

    Parameters
    ----------
    release : Release
        Of second moments, in one round or several, with a public number of rows.
    target, features : str and sequence of str, optional
        Any released columns; the Release's own by default.
    """
    if not isinstance(release, Release):
        raise RequestError(
            f"release: a Stan program is made of a regression's Release, not of "
            f"{type(release).__name__}"
        )
    columns, job, affine = default_job(release, target=target, features=features)
    [seen] = job.observations
    prior, covariates = job.regression_prior, job.covariate_prior
    if seen.n_is_private:
        raise RequestError(f"release: its number of rows is private; {_REMEDY}")
    if not (isinstance(prior, ScaleFreePrior) and isinstance(covariates, ScaleFreeCovariates)):
        raise RequestError(f"release: its rows are in a ball, with another prior; {_REMEDY}")
    families = Families.of(seen, seen.indicators)
    numbers = [c for c in range(1, seen.k + 1) if c not in families.columns]
    order = [0, *families.columns, *numbers, seen.k + 1]
    seen = families.apart(seen).in_order(order)
    inner = np.array(order[1:-1]) - 1
    category, sums = families.family, families.sums()
    t, k = len(category), seen.k
    pairs = [(a, b) for a in range(t) for b in range(a) if category[a] != category[b]]
    a, b = np.triu_indices(k + 2)
    noisy = (seen.scale[a, b] > 0) & np.isfinite(seen.scale[a, b])
    a, b = a[noisy], b[noisy]
    matrix, shift, sigma = _to_original(columns, affine)
    centre = np.zeros(k) if prior.centre is None else prior.centre
    data = {
        "n": seen.n,
        "t": t,
        "m": k - t,
        "category": list(category),
        "sums": sums.tolist(),
        "n_pairs": len(pairs),
        "pair_a": [pair[0] + 1 for pair in pairs],
        "pair_b": [pair[1] + 1 for pair in pairs],
        "n_entries": len(a),
        "entry_a": (a + 1).tolist(),
        "entry_b": (b + 1).tolist(),
        "released": seen.values[a, b].tolist(),
        "noise": seen.scale[a, b].tolist(),
        "laplace": int(seen.family == "laplace"),
        "nu": covariates.nu,
        "shape": covariates.shape,
        "rate": covariates.rate[inner].tolist(),
        "guide": prior.scale,
        "prior_centre": centre[inner].tolist(),
        "to_original": matrix[:, order[:-1]].tolist(),
        "shift": shift.tolist(),
        "sigma_to_original": sigma,
    }
    program = files(__package__).joinpath("regression.stan").read_text(encoding="utf-8")
    return StanModel(program, data, _start(seen, category, sums), columns.names)


def _to_original(
    columns: ModelColumns, affine: tuple[FloatArray, FloatArray, float]
) -> tuple[FloatArray, FloatArray, float]:
    """Matrix, shift and factor from the program's coefficients and sigma to original units."""
    M, t, v = affine
    points = np.eye(len(t) + 1, len(t), -1)  # 0, and then the unit vectors
    moved = columns.theta_to_original(points @ M.T + t)
    scale = float(columns.sigma2_to_original(np.array(v)))
    return (moved[1:] - moved[0]).T, moved[0], scale**0.5


def _start(seen: Observation, category: Sequence[int], sums: FloatArray) -> dict[str, Any]:
    """Values near what was released: a walk from far away takes long where noise is small."""
    t, k, n = len(category), seen.k, seen.n
    mean = seen.values[0, 1:] / n
    covariance = seen.values[1:, 1:] / n - np.outer(mean, mean)
    mean[:t] = np.linalg.solve(sums, mean[:t])  # of atoms
    p, stick = np.zeros(t), np.zeros(t)
    for a in range(t):
        rest = 1.0 - sum(p[b] for b in range(a) if category[b] == category[a])
        stick[a] = min(max(mean[a] / rest, 0.02), 0.9)
        p[a] = rest * stick[a]
    V = np.diag(p * (1.0 - p))
    for a in range(t):
        for b in range(a):
            V[a, b] = V[b, a] = -p[a] * p[b] if category[a] == category[b] else 0.0
    root = np.linalg.cholesky(V) if t else np.zeros((0, 0))
    B = np.linalg.solve(sums @ root, covariance[:t, t:]).T if t else np.zeros((k + 1 - t, 0))
    own, turn = np.linalg.eigh(covariance[t:, t:])
    left = turn * np.maximum(own, _NARROW**2) @ turn.T
    # What indicators explain must leave something; halved until it does.
    while np.linalg.eigvalsh(left - B @ B.T)[0] < 0.1 * _NARROW**2:
        B = B / 2.0
    G = np.linalg.cholesky(left - B @ B.T)
    error = max(float(G[-1, -1]), _NARROW)
    start: dict[str, Any] = {
        "mean_of_numbers": mean[t:].tolist(),
        "G": G.tolist(),
        "psi": np.maximum(covariance.diagonal()[:k], _NARROW).tolist(),
        "sigma": error,
        "omega": max(float(np.linalg.norm(G[-1, :-1])), error),
    }
    if t:
        start |= {"stick": stick.tolist(), "B": B.tolist()}
        pairs = sum(category[a] != category[b] for a in range(t) for b in range(a))
        start |= {"correlation": [0.0] * pairs} if pairs else {}
    return start
