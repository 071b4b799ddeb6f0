"""Priors between original units and the unit scale on which inference works.

With x = c + R x', y = c_y + r_y y' (`ModelColumns`) the coefficients obey theta = M theta' + t for
a matrix M and a vector t that the public bounds fix, and sigma2 = r_y² sigma2'. Normal, inverse
gamma and inverse Wishart laws stay in their families under such maps, so every prior of
`noisewise.analyst.regression.priors` may be stated in either units.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.model_columns import ModelColumns
from noisewise.analyst.regression.priors import (
    CovariatePrior,
    HierarchicalNIWPrior,
    HuangWandPrior,
    NIGPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
    RegressionPrior,
)


def regression_to_unit(prior: RegressionPrior, columns: ModelColumns) -> RegressionPrior:
    """The same prior of (theta, sigma2), stated on unit scale.

    theta' = M⁻¹(theta - t). If theta ~ N(mu, V) then theta' ~ N(M⁻¹(mu - t), M⁻¹ V M⁻¹').
    IG(a, b) for sigma2 is IG(a, b / r_y²) for sigma2'. Under the normal inverse gamma prior
    V = sigma2 Lam⁻¹ = sigma2' r_y² Lam⁻¹, so that Lam' = M' Lam M / r_y².
    """
    M, t = _affine(columns)
    square = float(columns.sigma2_to_original(np.array(1.0)))
    mean: FloatArray = np.asarray(np.linalg.solve(M, prior.mu0 - t), dtype=np.float64)
    if isinstance(prior, NIGPrior):
        return NIGPrior(
            mean, _symmetric(M.T @ prior.Lam0 @ M / square), prior.a0, prior.b0 / square
        )
    inverse = np.linalg.inv(M)
    return NormalInverseGammaIndependent(
        mean, _symmetric(inverse @ prior.V0 @ inverse.T), prior.a0, prior.b0 / square
    )


def covariates_to_unit(prior: CovariatePrior, columns: ModelColumns) -> CovariatePrior:
    """The same prior of the covariates' mean and covariance, stated on unit scale."""
    centre = np.array([column.centre for column in columns.covariates])
    width = np.array([column.half_width for column in columns.covariates])
    mean = (prior.m - centre) / width
    if isinstance(prior, NIWPrior):
        return replace(prior, m=mean, Psi=_symmetric(prior.Psi / np.outer(width, width)))
    if isinstance(prior, HierarchicalNIWPrior):
        return replace(prior, m=mean, psi=prior.psi / width**2)
    if isinstance(prior, HuangWandPrior):
        return replace(prior, m=mean, A=prior.A / width)
    raise TypeError(type(prior).__name__)


def coefficients_in_original_units(
    prior: RegressionPrior, columns: ModelColumns
) -> tuple[FloatArray, FloatArray]:
    """Prior mean and standard deviation of every coefficient of a prior on unit scale.

    Under the normal inverse gamma prior the standard deviation depends on sigma2; it is given at
    sigma2 = b0 / a0, near the middle of its prior.
    """
    M, t = _affine(columns)
    V = np.linalg.inv(prior.Lam0) * prior.b0 / prior.a0 if isinstance(prior, NIGPrior) else prior.V0
    return M @ prior.mu0 + t, np.sqrt(np.einsum("ij,jk,ik->i", M, V, M))


def error_sd_in_original_units(
    prior: RegressionPrior, columns: ModelColumns
) -> tuple[float, float]:
    """Where a prior on unit scale has the error's sd with probability 0.9.

    b0 / sigma2 is gamma(a0): the points of sigma2 are b0 over those of the gamma law.
    """
    from scipy.special import gammaincinv

    points = prior.b0 / gammaincinv(prior.a0, np.array([0.95, 0.05]))
    low, high = np.sqrt(columns.sigma2_to_original(points))
    return float(low), float(high)


def _affine(columns: ModelColumns) -> tuple[FloatArray, FloatArray]:
    """M and t of theta = M theta' + t, read off the map itself."""
    d = len(columns.names)
    shift = columns.theta_to_original(np.zeros(d))
    return (columns.theta_to_original(np.eye(d)) - shift).T, shift


def _symmetric(matrix: FloatArray) -> FloatArray:
    return 0.5 * (matrix + matrix.T)
