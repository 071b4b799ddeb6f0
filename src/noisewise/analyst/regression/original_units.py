"""Priors between original units and the unit scale on which inference works.

With x = c + R x', y = c_y + r_y y' (`ModelColumns`) the coefficients obey theta = M theta' + t for
a matrix M and a vector t that the public bounds fix, and sigma2 = r_y² sigma2'. Normal, inverse
gamma and inverse Wishart laws stay in their families under such maps, so every prior of
`noisewise.analyst.regression.priors` may be stated in either units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.observation import ModelColumns
from noisewise.analyst.regression.priors import (
    AnyCovariatePrior,
    AnyPrior,
    HierarchicalNIWPrior,
    NIGPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
    RegressionPrior,
    ScaleFreeCovariates,
    ScaleFreePrior,
    ball_share,
)
from noisewise.core.design import INTERCEPT, Ball
from noisewise.core.errors import RequestError
from noisewise.core.kinds.regression import Release
from noisewise.core.yaml_files import PlainYamlError, read_yaml

# Methods whose default priors are the scale-free ones; the others take conjugate priors only.
SCALE_FREE_METHODS = ("auto", "exact", "exact_own_laws", "exact_own_means", "exact_varying")


def regression_to_unit(prior: AnyPrior, columns: ModelColumns) -> AnyPrior:
    """The same prior of (theta, sigma2), stated on unit scale.

    theta' = M⁻¹(theta - t). If theta ~ N(mu, V) then theta' ~ N(M⁻¹(mu - t), M⁻¹ V M⁻¹').
    IG(a, b) for sigma2 is IG(a, b / r_y²) for sigma2'. Under the normal inverse gamma prior
    V = sigma2 Lam⁻¹ = sigma2' r_y² Lam⁻¹, so that Lam' = M' Lam M / r_y².
    """
    return moved(prior, *_affine(columns))


def moved(prior: AnyPrior, M: FloatArray, t: FloatArray, square: float) -> AnyPrior:
    """The prior of (theta', sigma2') for theta = M theta' + t and sigma2 = square sigma2'.

    No slope depends on the intercept.
    """
    if isinstance(prior, ScaleFreePrior):
        before = -t[1:] if prior.centre is None else prior.centre - t[1:]
        slopes: FloatArray = np.asarray(np.linalg.solve(M[1:, 1:], before), dtype=np.float64)
        centre = slopes if slopes.any() else None
        return replace(prior, scale=prior.scale / np.sqrt(square), centre=centre)
    mean: FloatArray = np.asarray(np.linalg.solve(M, prior.mu0 - t), dtype=np.float64)
    if isinstance(prior, NIGPrior):
        return NIGPrior(
            mean, _symmetric(M.T @ prior.Lam0 @ M / square), prior.a0, prior.b0 / square
        )
    inverse = np.linalg.inv(M)
    return NormalInverseGammaIndependent(
        mean, _symmetric(inverse @ prior.V0 @ inverse.T), prior.a0, prior.b0 / square
    )


def covariates_to_unit(prior: AnyCovariatePrior, columns: ModelColumns) -> AnyCovariatePrior:
    """The same prior of the covariates' mean and covariance, stated on unit scale."""
    centre = np.array([column.centre for column in columns.covariates])
    width = np.array([column.half_width for column in columns.covariates])
    if isinstance(prior, ScaleFreeCovariates):
        return replace(prior, A=prior.A / width)
    mean = (prior.m - centre) / width
    if isinstance(prior, NIWPrior):
        return replace(prior, m=mean, Psi=_symmetric(prior.Psi / np.outer(width, width)))
    if isinstance(prior, HierarchicalNIWPrior):
        return replace(prior, m=mean, psi=prior.psi / width**2)
    return replace(prior, m=mean, A=prior.A / width)


def coefficients_in_original_units(
    prior: RegressionPrior, columns: ModelColumns
) -> tuple[FloatArray, FloatArray]:
    """Prior mean and standard deviation of every coefficient of a prior on unit scale.

    Under the normal inverse gamma prior the standard deviation depends on sigma2; it is given at
    sigma2 = b0 / a0, near the middle of its prior.
    """
    M, t, _ = _affine(columns)
    V = np.linalg.inv(prior.Lam0) * prior.b0 / prior.a0 if isinstance(prior, NIGPrior) else prior.V0
    return M @ prior.mu0 + t, np.sqrt(np.einsum("ij,jk,ik->i", M, V, M))


def error_sd_in_original_units(prior: AnyPrior, columns: ModelColumns) -> tuple[float, float]:
    """Where a prior on unit scale has the error's sd with probability 0.9.

    b0 / sigma2 is gamma(a0). Under the scale-free prior sigma and omega are half-t variables,
    weighted by what R² is.
    """
    from scipy.special import gammaincinv, stdtrit

    if isinstance(prior, ScaleFreePrior):
        sds = stdtrit(4.0, 0.5 + (np.arange(1000) + 0.5) / 2000)
        log_left = -np.log1p((sds / sds[:, None]) ** 2)
        weights = np.exp(prior.log_lean(log_left)).sum(axis=1)
        shares = (np.cumsum(weights) - 0.5 * weights) / weights.sum()
        points = (prior.scale * np.interp([0.05, 0.95], shares, sds)) ** 2
    else:
        points = prior.b0 / gammaincinv(prior.a0, np.array([0.95, 0.05]))
    low, high = np.sqrt(columns.sigma2_to_original(points))
    return float(low), float(high)


def prior_in_words(prior: AnyPrior, columns: ModelColumns) -> str:
    """What a prior expects, where numbers of single coefficients can't say it; else empty."""
    if not isinstance(prior, ScaleFreePrior):
        return ""
    _, high = error_sd_in_original_units(prior, columns)
    y = columns.target
    ends = "R² near 0 and near 1 are as welcome as any"
    if prior.k > 1:
        ends = "R² near 1 is half as likely as for one feature, near 0 more so the more there are"
    return (
        f"on the data's own scale. What the features explain of {y} together, and what they leave, "
        f"each have a standard deviation below {high:.3g} with probability 0.95 or more. {ends}. "
        "No slope is expected to have any size in its own units; "
        "means, spreads and correlations of the features may be anything within the bounds."
    )


def _affine(columns: ModelColumns) -> tuple[FloatArray, FloatArray, float]:
    """M, t and v of theta = M theta' + t and sigma2 = v sigma2', read off the map itself."""
    d = len(columns.names)
    shift = columns.theta_to_original(np.zeros(d))
    square = float(columns.sigma2_to_original(np.array(1.0)))
    return (columns.theta_to_original(np.eye(d)) - shift).T, shift, square


def _symmetric(matrix: FloatArray) -> FloatArray:
    return 0.5 * (matrix + matrix.T)


# --- a prior stated the way people think of one: by coefficient -----------------------------------


@dataclass(frozen=True)
class CoefficientPrior:
    """Independent normal priors of named coefficients, in original units.

    Parameters
    ----------
    coefficients : mapping of str to (mean, sd)
        Of the coefficients about which something is known, by the names that a summary shows. The
        others keep the weakly informative default.
    error_sd : (low, high), optional
        Where the standard deviation of the error lies with probability 0.9. Its variance gets the
        inverse gamma law with these 5% and 95% points.

    Examples
    --------
    >>> CoefficientPrior({"age": (0, 500), "intercept": (30_000, 20_000)}, error_sd=(5_000, 40_000))
    ... # doctest: +ELLIPSIS
    CoefficientPrior(...)
    """

    coefficients: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    error_sd: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        checked = {}
        for name, pair in self.coefficients.items():
            mean, sd = _pair(f"coefficient {name!r}", pair, "(mean, sd)")
            if sd <= 0:
                raise RequestError(
                    f"prior: the sd of coefficient {name!r} must be positive; got {sd:g}. To fix "
                    "a coefficient, give it a small sd"
                )
            checked[name] = (mean, sd)
        object.__setattr__(self, "coefficients", checked)
        if self.error_sd is not None:
            low, high = _pair("error_sd", self.error_sd, "(low, high)")
            if not 0 < low < high:
                raise RequestError(f"prior: error_sd must be 0 < low < high; got ({low}, {high})")
            object.__setattr__(self, "error_sd", (low, high))

    def on_unit_scale(self, columns: ModelColumns) -> NormalInverseGammaIndependent:
        """The prior of (theta, sigma2) that inference works with.

        The default intercept is that of a person in the middle of all bounds and independent of
        the slopes; an intercept that is given is that of a person with zero in every column.
        """
        names = columns.names
        for name in self.coefficients:
            if name not in names:
                raise RequestError(
                    f"prior: {name!r} is not a coefficient of this model; there are "
                    f"{', '.join(names)}"
                )
        default = NormalInverseGammaIndependent.weakly_informative(len(names) - 1)
        M, _, square = _affine(columns)
        per_slope = M.diagonal()[1:]
        means, sds = np.zeros(len(names)), np.ones(len(names))
        sds[1:] = np.sqrt(default.V0.diagonal()[1:]) * per_slope
        for name, (mean, sd) in self.coefficients.items():
            means[names.index(name)], sds[names.index(name)] = mean, sd
        a0, b0 = default.a0, default.b0
        if self.error_sd is not None:
            a0, scale = inverse_gamma_between(self.error_sd[0] ** 2, self.error_sd[1] ** 2)
            b0 = scale / square
        if INTERCEPT in self.coefficients:
            original = NormalInverseGammaIndependent(means, np.diag(sds**2), a0, b0 * square)
            on_unit = regression_to_unit(original, columns)
            assert isinstance(on_unit, NormalInverseGammaIndependent)
            return on_unit
        unit = np.concatenate([[0.0], means[1:] / per_slope])
        variance = np.concatenate([default.V0.diagonal()[:1], (sds[1:] / per_slope) ** 2])
        return NormalInverseGammaIndependent(unit, np.diag(variance), a0, b0)


def inverse_gamma_between(low: float, high: float) -> tuple[float, float]:
    """Shape and scale of the inverse gamma law with 5% point `low` and 95% point `high`.

    If v is inverse gamma (a, b) then b/v is gamma (a), so high / low is the ratio of the gamma
    law's 95% and 5% points, which falls from infinity to 1 as a grows.
    """
    from scipy.optimize import brentq
    from scipy.special import gammaincinv

    def excess(log_shape: float) -> float:
        a = np.exp(log_shape)
        ratio = np.log(gammaincinv(a, 0.95)) - np.log(gammaincinv(a, 0.05))
        return float(ratio - np.log(high / low))

    # Shapes from 0.02 to 1e8: intervals from hundreds of orders of magnitude to 0.03%.
    if excess(np.log(1e8)) > 0 or excess(np.log(0.02)) < 0:
        raise RequestError(
            "prior: error_sd is too narrow or too wide an interval; give one whose ends differ by "
            "a factor between 1.001 and 1e30"
        )
    shape = float(np.exp(brentq(excess, np.log(0.02), np.log(1e8), xtol=1e-12)))
    return shape, float(low * gammaincinv(shape, 0.95))


def read_prior(path: str | Path) -> CoefficientPrior:
    """Read a prior from a YAML file.

    ::

        coefficients:
          age: {mean: 0, sd: 500}
        error_sd: [5000, 40000]
    """
    try:
        document = read_yaml(path)
    except FileNotFoundError:
        raise RequestError(f"prior: there is no file {path}; check the path") from None
    except PlainYamlError as error:
        raise RequestError(f"prior: {path}: {error}") from None
    if not isinstance(document, dict) or not set(document) <= {"coefficients", "error_sd"}:
        raise RequestError(
            f"prior: {path}: expected 'coefficients' (name: {{mean: ..., sd: ...}}) and "
            "'error_sd' ([low, high]), and nothing else"
        )
    coefficients = document.get("coefficients") or {}
    if not isinstance(coefficients, dict):
        raise RequestError(f"prior: {path}: 'coefficients' must have one line a coefficient")
    pairs: dict[str, Any] = {}
    for name, words in coefficients.items():
        if not isinstance(words, dict) or set(words) != {"mean", "sd"}:
            raise RequestError(f"prior: {path}: {name}: expected {{mean: ..., sd: ...}}")
        pairs[str(name)] = (words["mean"], words["sd"])
    try:
        return CoefficientPrior(pairs, document.get("error_sd"))
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from None


def _pair(what: str, given: Any, form: str) -> tuple[float, float]:
    try:
        first, second = given
        numbers = float(first), float(second)
    except (TypeError, ValueError):
        raise RequestError(f"prior: {what} must be two numbers {form}; got {given!r}") from None
    if isinstance(given, str) or not np.isfinite(numbers).all():
        raise RequestError(f"prior: {what} must be two finite numbers {form}; got {given!r}")
    return numbers


# --- the priors of a fit that is given none -------------------------------------------------------
# A ball confines all features of a Release together, whichever of them a model uses. Two of ten
# features in a ball share it with the eight others, and are expected to have a tenth of it each,
# not half. (That two of them are in the same ball is true too, but says less: with a prior that
# knew only that, intervals were too narrow still.) The Release's target keeps its own interval; as
# a covariate of another model it is outside the ball.


def default_covariates(
    columns: ModelColumns, releases: Sequence[Release], method: str
) -> ScaleFreeCovariates | NIWPrior:
    """Return the default prior of the model's covariates for a method, on unit scale."""
    k = len(columns.covariates)
    share = _shares(columns, releases)
    if method in SCALE_FREE_METHODS:
        default = ScaleFreeCovariates.default(k)
        return replace(default, A=default.A * np.sqrt(share))
    weak = NIWPrior.with_fourth_moments if method == "gibbs_prior" else NIWPrior.weakly_informative
    return weak(k).scaled(share)


def _shares(columns: ModelColumns, releases: Sequence[Release]) -> FloatArray:
    """How much of its default variance each of the covariates is expected to have, shape (k,).

    All holders have one law of the covariates. A single Release without a ball says that it may
    fill the bounds, and of several balls the one that leaves a covariate the most room counts.
    """
    share = np.zeros(len(columns.covariates))
    for release in releases:
        room, inside = 1.0, set()
        if isinstance(release.geometry, Ball):
            inside = {column.name for column in release.design.columns[:-1]}
            room = ball_share(len(inside), release.geometry.radius)
        own = [room if column.name in inside else 1.0 for column in columns.covariates]
        share = np.maximum(share, own)
    return share if len(releases) else np.ones(len(columns.covariates))
