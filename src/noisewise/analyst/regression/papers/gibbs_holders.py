"""From observations to arrays, and the choices that depend on the noise in them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np

from noisewise.analyst.regression.observation import Observation, common_k, named
from noisewise.analyst.regression.papers.gibbs_arrays import (
    CG_EIGEN,
    CG_JACOBI,
    DENSE,
    EIGEN,
    Holders,
)
from noisewise.analyst.regression.papers.gibbs_start import rough_population
from noisewise.analyst.regression.papers.moments_formulas import unique_entries
from noisewise.core.errors import RequestError

Update = Literal["auto", "dense", "eigen", "cg_jacobi", "cg_eigen"]

_MODES = {"dense": DENSE, "eigen": EIGEN, "cg_jacobi": CG_JACOBI, "cg_eigen": CG_EIGEN}
# Fewest columns of w for which the eigenbasis, and conjugate gradients, beat the dense solution.
EIGEN_FROM, CG_FROM = 8, 13
# Ratio of noise to sampling variance from which moves along orbits pay (see `gibbs_interweave`).
INTERWEAVE_FROM = 0.1


def prepare_holders(
    observations: Sequence[Observation], *, update: Update = "auto", clt: bool = True
) -> Holders:
    """Stack observations and choose how each holder's equations are solved.

    Warns about small holders if the method rests on the central limit theorem (`clt`).
    """
    P = common_k(observations) + 2
    which, fewest = min(named(observations), key=lambda item: item[1].n)
    smallest = fewest.n
    if smallest < P:
        raise RequestError(
            f"{which} with n = {smallest} rows is too small for {P - 2} covariates: at least "
            f"k + 2 = {P} rows are needed. Use fewer covariates, or leave the holder out"
        )
    if clt and smallest < 4 * P:
        warnings.warn(
            f"the smallest holder has n = {smallest} rows for {P} columns. The gibbs methods rest "
            f"on the central limit theorem and are unreliable below n = {4 * P}; use the exact "
            "method",
            stacklevel=6,  # the caller of `sample`
        )
    if update != "auto" and update not in _MODES:
        raise RequestError(f"update must be 'auto' or one of {sorted(_MODES)}; got {update!r}")
    rows, columns = unique_entries(P)
    J = len(observations)
    observed = np.zeros((J, rows.size), dtype=np.int64)
    n_observed = np.zeros(J, dtype=np.int64)
    modes = np.zeros(J, dtype=np.int64)
    isometric = np.zeros(J)
    for j, observation in enumerate(observations):
        released = np.flatnonzero(np.isfinite(observation.scale[rows, columns]))
        observed[j, : released.size] = released
        n_observed[j] = released.size
        is_isometric, isometric[j] = _isometric_variance(observation)
        if update == "auto":
            modes[j] = _choose_mode(observation, is_isometric, released.size == rows.size)
        else:
            modes[j] = _MODES[update]
        if modes[j] == EIGEN and not is_isometric:
            raise RequestError(
                "update='eigen' needs Gaussian noise in the isometric layout on every entry"
            )
        if modes[j] == CG_EIGEN and released.size != rows.size:
            raise RequestError("update='cg_eigen' needs a release of every entry")
    return Holders(
        n=np.array([float(observation.n) for observation in observations]),
        laplace=np.array([observation.family == "laplace" for observation in observations]),
        values=np.stack([observation.values for observation in observations]),
        scale=np.stack([observation.scale for observation in observations]),
        mode=modes,
        observed=observed,
        n_observed=n_observed,
        complete=n_observed == rows.size,
        isometric=isometric,
        rows=rows,
        columns=columns,
    )


def wants_interweaving(observations: Sequence[Observation]) -> bool:
    """Whether noise is large enough, for some holder, that moves along orbits pay."""
    return max(noise_to_sampling(observation) for observation in observations) > INTERWEAVE_FROM


def _isometric_variance(observation: Observation) -> tuple[bool, float]:
    P = observation.k + 2
    scale = observation.scale[-1, -1]
    expected = np.where(np.eye(P, dtype=bool), scale, scale / math.sqrt(2.0))
    expected[0, 0] = 0.0
    matches = (
        observation.family == "gaussian"
        and 0 < scale < np.inf
        and np.allclose(observation.scale, expected, rtol=1e-9, atol=0.0)
    )
    return matches, float(scale) ** 2 if matches else 0.0


def _choose_mode(observation: Observation, is_isometric: bool, complete: bool) -> int:
    P = observation.k + 2
    if is_isometric and P >= EIGEN_FROM:
        return EIGEN
    if P < CG_FROM:
        return DENSE
    if not complete:
        return CG_JACOBI
    # Noise that dominates leaves a nearly diagonal system; otherwise Cov dominates. Normal noise
    # is nearly isometric in any layout, so that the eigenbasis is good for longer.
    far = 10.0 if observation.family == "gaussian" else 1.0
    return CG_JACOBI if noise_to_sampling(observation) > far else CG_EIGEN


def noise_to_sampling(observation: Observation) -> float:
    """Median ratio of the noise to the sampling variance of the released entries; inf if none."""
    P = observation.k + 2
    G = rough_population([observation])
    rows, columns = unique_entries(P)
    diagonal = G.diagonal()
    sampling = np.outer(diagonal, diagonal) + G**2 - 2.0 * np.outer(G[0] ** 2, G[0] ** 2)
    ratio = observation.sd**2 / (observation.n * np.maximum(sampling, 1e-12))
    return float(np.median(ratio[rows, columns]))
