"""Prior distributions, on the unit scale on which a Release's statistics live.

On that scale every numeric column lies in [-1, 1] and every indicator of a category in {0, 1}.
A prior is therefore weakly informative if it is wide compared with 1, whatever the data are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.core.errors import RequestError

# --- checks of the numbers that priors are made of ------------------------------------------------


def positive_vector(name: str, value: object, k: int) -> FloatArray:
    """One positive number for each covariate, shape (k,)."""
    given = vector(name, value)
    if given.size != k or (given <= 0).any():
        raise RequestError(
            f"{name} must have one positive entry for each of the {k} covariates; got {given}"
        )
    return given


def count(k: int) -> int:
    """A number of covariates."""
    if k < 0:
        raise RequestError(f"k must be the number of covariates, at least 0; got {k}")
    return k


def positive(name: str, value: float) -> float:
    """A positive finite number."""
    number = float(value)
    if not (np.isfinite(number) and number > 0):
        raise RequestError(f"{name} must be a positive finite number; got {value!r}")
    return number


def degrees(nu: float, k: int) -> float:
    """Degrees of freedom of a proper inverse Wishart law of k by k matrices."""
    number = positive("nu", nu)
    if number <= k - 1:
        raise RequestError(
            f"nu must be more than k - 1 = {k - 1} for a proper prior; got {nu}. "
            f"2k + 2 = {2 * k + 2} is a weak choice"
        )
    return number


def vector(name: str, value: object) -> FloatArray:
    """A vector of finite numbers that can't be written to."""
    given = np.array(value, dtype=np.float64)
    if given.ndim != 1 or not np.isfinite(given).all():
        raise RequestError(f"{name} must be a vector of finite numbers; got shape {given.shape}")
    given.setflags(write=False)
    return given


def positive_definite(name: str, value: object, size: int) -> FloatArray:
    """A positive definite matrix, shape (size, size), that can't be written to."""
    matrix = np.array(value, dtype=np.float64)
    if matrix.shape != (size, size):
        raise RequestError(
            f"{name} must be {size} by {size}, one row for each entry of the mean; got shape "
            f"{matrix.shape}. Use np.diag for independent entries"
        )
    if not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T, rtol=1e-10, atol=0.0):
        raise RequestError(f"{name} must be symmetric with finite entries")
    matrix = 0.5 * (matrix + matrix.T)
    if size and np.linalg.eigvalsh(matrix)[0] <= 0:
        raise RequestError(
            f"{name} must be positive definite; its smallest eigenvalue is "
            f"{np.linalg.eigvalsh(matrix)[0]:.3g}. An improper flat prior is not supported: give "
            "small positive values instead"
        )
    matrix.setflags(write=False)
    return matrix


EXPECTED_VARIANCE = 0.2  # of a covariate that may fill [-1, 1]
BALL_VARIANCE = 0.5  # of covariates in a ball, all together, as a share of the radius squared


class _Regression:
    """What priors of theta = (intercept, slopes) and of the error variance share."""

    mu0: FloatArray
    a0: float
    b0: float

    @property
    def k(self) -> int:
        """Number of covariates."""
        return self.mu0.size - 1

    def _check(self, matrix: str) -> None:
        """Check mu0, a0, b0 and the precision or covariance of that name; freeze the arrays."""
        mu0 = vector("mu0", self.mu0)
        if mu0.size < 1:
            raise RequestError("mu0 needs one entry for the intercept and one for each covariate")
        object.__setattr__(self, "mu0", mu0)
        given = getattr(self, matrix)
        object.__setattr__(self, matrix, positive_definite(matrix, given, mu0.size))
        object.__setattr__(self, "a0", positive("a0", self.a0))
        object.__setattr__(self, "b0", positive("b0", self.b0))


class _Covariates:
    """What priors of the covariates' mean mu and covariance T share: mu | T ~ N(m, T / lam)."""

    m: FloatArray
    lam: float
    nu: float

    @property
    def k(self) -> int:
        """Number of covariates."""
        return self.m.size

    def _check(self) -> None:
        """Check m, lam and nu, and freeze m."""
        m = vector("m", self.m)
        object.__setattr__(self, "m", m)
        object.__setattr__(self, "lam", positive("lam", self.lam))
        object.__setattr__(self, "nu", degrees(self.nu, m.size))


class _HalfT:
    """Standard deviations of covariates with half-t laws of scale A (Huang & Wand 2013)."""

    A: FloatArray
    nu: float
    shape = 0.5  # of the gamma laws of psi

    @property
    def rate(self) -> FloatArray:
        """Rates of the gamma laws of psi, shape (k,)."""
        return 1.0 / (2.0 * (self.nu - self.A.size + 1.0) * self.A**2)


@dataclass(frozen=True, eq=False)
class NIGPrior(_Regression):
    """Normal inverse gamma: theta | sigma2 ~ N(mu0, sigma2 Lam0⁻¹), sigma2 ~ IG(a0, b0).

    Parameters
    ----------
    mu0 : array, shape (d,)
        Prior mean of theta = (intercept, slopes), d = k + 1.
    Lam0 : array, shape (d, d)
        Prior precision of theta in units of 1 / sigma2.
    a0, b0 : float
        Shape and scale of the inverse gamma prior of the error variance; its mean is
        b0 / (a0 - 1) if a0 > 1.
    """

    mu0: FloatArray
    Lam0: FloatArray
    a0: float
    b0: float

    def __post_init__(self) -> None:
        self._check("Lam0")

    @classmethod
    def weakly_informative(cls, k: int) -> NIGPrior:
        """Return the default for `k` covariates.

        The error variance has median 0.03 and a central 90% from 0.007 to 0.4 (a0 = 1,
        b0 = 0.02), that is an error of 4% to 30% of the width of the target's bounds. Coefficients
        are centred at 0. The intercept has prior precision 0.02 / sigma2 (a t law with scale 1).
        Each slope has 0.2 k / sigma2: covariates with variance 0.2 are expected to explain as much
        of the target as the error does, however many there are. A flatter prior isn't weaker: with
        k slopes it expects them to explain nearly everything, and where noise hides the
        covariances that belief shrinks sigma2 whatever its own prior says.
        """
        precision = np.full(count(k) + 1, 0.2 * k)
        precision[0] = 0.02
        return cls(np.zeros(k + 1), np.diag(precision), 1.0, 0.02)


@dataclass(frozen=True, eq=False)
class NormalInverseGammaIndependent(_Regression):
    """Independent normal and inverse gamma: theta ~ N(mu0, V0), sigma2 ~ IG(a0, b0).

    Parameters
    ----------
    mu0 : array, shape (d,)
        Prior mean of theta = (intercept, slopes), d = k + 1.
    V0 : array, shape (d, d)
        Prior covariance of theta.
    a0, b0 : float
        Shape and scale of the inverse gamma prior of the error variance.
    """

    mu0: FloatArray
    V0: FloatArray
    a0: float
    b0: float

    def __post_init__(self) -> None:
        self._check("V0")

    @classmethod
    def weakly_informative(cls, k: int) -> NormalInverseGammaIndependent:
        """Return the default of methods that take conjugate priors only, for `k` covariates.

        The intercept has prior variance 1 and each slope 1/(2k): however many covariates there
        are, together they may explain most of a target in [-1, 1]. The error variance is
        IG(0.5, 0.01): median 0.04, nearly flat in its logarithm above 0.01, so that an error of a
        tenth of the target's half-width is as welcome as one of all of it. Bounds are often
        generous, which makes both small on unit scale.

        Where noise hides the covariances, flatter slopes are not a weaker prior: they expect the
        covariates to explain nearly everything, which leaves nothing to the error. And slopes
        that share their scale with the error (`NIGPrior`) are too small when it is. How often
        intervals hold fixed truths: `python -m studies run honesty`, where this is "bounds".
        """
        variance = np.full(count(k) + 1, 0.5 / max(k, 1))
        variance[0] = 1.0
        return cls(np.zeros(k + 1), np.diag(variance), 0.5, 0.01)


@dataclass(frozen=True, eq=False)
class NIWPrior(_Covariates):
    """Normal inverse Wishart for the covariates: mu | T ~ N(m, T / lam), T ~ IW(nu, Psi).

    Parameters
    ----------
    m : array, shape (k,)
        Prior mean of the covariates' means.
    lam : float
        Prior weight of m, in rows.
    Psi : array, shape (k, k)
        Scale matrix; the prior mean of T is Psi / (nu - k - 1) if nu > k + 1.
    nu : float
        Degrees of freedom, more than k - 1.
    """

    m: FloatArray
    lam: float
    Psi: FloatArray
    nu: float

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "Psi", positive_definite("Psi", self.Psi, self.k))

    @classmethod
    def weakly_informative(cls, k: int) -> NIWPrior:
        """Return the default for `k` covariates.

        The prior mean of T is 0.2 I (a column of [-1, 1] has variance 1/3 if uniform, at most 1).
        nu = 2k + 2: each covariate is expected to share about half of its variance with the
        others, however many there are. With the customary nu = k + 2 that share tends to one as k
        grows, and such a prior outvotes statistics whose noise has the Laplace law's heavy tails.
        The means are centred at 0 with the weight of a tenth of a row: nearly flat over [-1, 1].

        One Psi for all columns expects all variances near 0.2. If some may be far smaller (rare
        indicators, bounds much wider than the data), use `HierarchicalNIWPrior`.
        """
        mean = np.zeros(count(k))
        return cls(mean, 0.1, EXPECTED_VARIANCE * (k + 1.0) * np.eye(k), 2.0 * k + 2.0)

    @classmethod
    def in_ball(cls, k: int, radius: float) -> NIWPrior:
        """Return the default for `k` covariates that share a ball of this radius on unit scale.

        In a ball E|x|² <= radius², so the k variances cannot add up to more than that. Here they
        are expected to add up to half of it, or to 0.2 each as in `weakly_informative` if that is
        less. Where noise hides the variances, a prior that expects more than the ball can hold
        has covariates vary more than they do, and intervals of slopes come out too narrow.
        """
        prior = cls.weakly_informative(k)
        return prior.scaled(np.full(k, ball_share(k, positive("radius", radius))))

    @classmethod
    def with_fourth_moments(cls, k: int) -> NIWPrior:
        """Return a default under which a row has fourth moments (nu > k + 3), for `gibbs_prior`.

        The prior mean of T is 0.2 I, as in `weakly_informative`.
        """
        mean = np.zeros(count(k))
        return cls(mean, 0.1, EXPECTED_VARIANCE * (k + 4.0) * np.eye(k), 2.0 * k + 5.0)

    def scaled(self, share: FloatArray) -> NIWPrior:
        """The same with the j-th covariate's variance multiplied by share[j], shape (k,)."""
        return replace(self, Psi=self.Psi * np.sqrt(np.outer(share, share)))


def ball_share(features: int, radius: float) -> float:
    """How much of its default variance each of the features in a ball is expected to have."""
    return min(1.0, BALL_VARIANCE * radius**2 / (EXPECTED_VARIANCE * max(features, 1)))


@dataclass(frozen=True, eq=False)
class HierarchicalNIWPrior(_Covariates):
    """Normal inverse Wishart for the covariates, with the scale of each column unknown.

    mu | T ~ N(m, T / lam), T | psi ~ IW(nu, diag(psi)), psi_j ~ Gamma(shape) with mean psi[j]. A
    fixed Psi expects every column's variance near one size and, for many columns, insists on it.
    Here a column whose values fill little of its bounds (a rare indicator) costs next to nothing.

    Parameters
    ----------
    m : array, shape (k,)
        Prior mean of the covariates' means.
    lam : float
        Prior weight of m, in rows.
    psi : array, shape (k,)
        Prior mean of the diagonal of Psi; that of T is psi / (nu - k - 1) if nu > k + 1.
    nu : float
        Degrees of freedom, more than k - 1.
    shape : float
        Shape of the gamma law. With 1/2 standard deviations have half-t laws, as in Huang & Wand;
        larger values keep variances away from zero, which samples much better if noise hides them.

    References
    ----------
    Huang & Wand (2013), Simple marginally noninformative prior distributions for covariance
    matrices, Bayesian Analysis 8(2), doi:10.1214/13-BA815.
    """

    m: FloatArray
    lam: float
    psi: FloatArray
    nu: float
    shape: float = 2.0

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "psi", positive_vector("psi", self.psi, self.k))
        object.__setattr__(self, "shape", positive("shape", self.shape))

    @property
    def rate(self) -> FloatArray:
        """Rates of the gamma laws, shape (k,)."""
        return self.shape / self.psi

    @classmethod
    def weakly_informative(cls, k: int) -> HierarchicalNIWPrior:
        """Return the default for `k` covariates; means as in `NIWPrior.weakly_informative`."""
        return cls(np.zeros(count(k)), 0.1, np.full(k, 0.2 * (k + 1.0)), 2.0 * k + 2.0)


@dataclass(frozen=True, eq=False)
class HuangWandPrior(_HalfT, _Covariates):
    """The hierarchical prior whose standard deviations have half-t laws (shape 1/2).

    √T_jj has the half-t law with nu - k + 1 degrees of freedom and scale A_j. It lets a variance go
    to zero where noise hides it, which is honest but samples badly; `HierarchicalNIWPrior` doesn't.

    Parameters
    ----------
    m : array, shape (k,)
        Prior mean of the covariates' means.
    lam : float
        Prior weight of m, in rows.
    A : array, shape (k,)
        Scale of the half-t law of each column's standard deviation.
    nu : float
        Degrees of freedom, more than k - 1.

    References
    ----------
    Huang & Wand (2013), doi:10.1214/13-BA815.
    """

    m: FloatArray
    lam: float
    A: FloatArray
    nu: float

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "A", positive_vector("A", self.A, self.k))

    @classmethod
    def weakly_informative(cls, k: int) -> HuangWandPrior:
        """Return the default for `k` covariates: standard deviations flat up to about 0.5."""
        return cls(np.zeros(count(k)), 0.1, np.full(k, 0.5), 2.0 * k + 2.0)


@dataclass(frozen=True, eq=False)
class ScaleFreePrior:
    """Slopes on the data's own scale: no unit of x or y is built in, but as an upper guide.

    With S the scatter of the N rows' covariates about their mean::

        slopes | x, omega ~ N(centre, (omega² / k) (S / N)⁻¹)
        (omega, sigma) ~ h(omega) h(sigma) (1 + c_k (1 - R²)^((k-1)/2)),  intercept flat

    omega² is the variance that the covariates explain, sigma² what they leave and R² = omega² /
    (omega² + sigma²). h is the density of half-t(4, scale), flat towards 0, and c_k such that R² is
    Beta(1/2, 1/2) or Beta(1/2, k/2) with equal probability where both are well below the scale. The
    prior is the same for any linear map of the covariates: narrow, off-centre or correlated columns
    are no surprise to it.

    For that it expects each direction of x to explain as much as any other. Of k directions noise
    may hide all but one, and what that one explains, times k, leaves little to the error. Under the
    second law of R² all that is explained is as one direction of k + 1. Without it sigma² was too
    low where noise hides most of five columns (docs/calibration.md).

    Parameters
    ----------
    k : int
        Number of covariates.
    scale : float
        Of the half-t laws, on unit scale: above it standard deviations become unlikely.
    centre : array, shape (k,), optional
        Slopes at which nothing is explained; 0 by default.

    References
    ----------
    Zellner (1986), On assessing prior distributions and Bayesian regression analysis with g-prior
    distributions; Gelman (2006), Prior distributions for variance parameters in hierarchical
    models, Bayesian Analysis 1(3), doi:10.1214/06-BA117A.
    """

    k: int
    scale: float = 0.5
    centre: FloatArray | None = None

    def __post_init__(self) -> None:
        count(self.k)
        if self.centre is not None:
            object.__setattr__(self, "centre", vector("centre", self.centre))
            if self.centre.size != self.k:
                raise RequestError(f"centre needs one slope for each of {self.k} covariates")
        object.__setattr__(self, "scale", positive("scale", self.scale))

    def log_lean(self, log_left: FloatArray) -> FloatArray:
        """ln(1 + c_k (1 - R²)^((k-1)/2)), by ln(1 - R²)."""
        k = max(self.k, 1)
        log_c = math.lgamma(0.5) + math.lgamma(0.5 * (k + 1)) - math.lgamma(0.5 * k)
        return np.asarray(np.logaddexp(0.0, log_c + 0.5 * (k - 1) * log_left))


@dataclass(frozen=True, eq=False)
class ScaleFreeCovariates(_HalfT):
    """The law of Huang & Wand for the covariates' covariance, with a flat mean.

    psi_j ~ Gamma(1/2, rate), T | psi ~ IW(nu, diag psi), and mu flat, independent of T. √T_jj has
    the half-t law with nu - k + 1 degrees of freedom and scale A_j, flat towards 0. Of the variance
    of covariate j the others leave a share that is Beta((nu - k + 1) / 2, (k - 1) / 2).

    With nu = k the standard deviation that is left is flat towards 0 too. With nu = k + 1, where
    correlations are uniform on (-1, 1), it is the variance that is flat. Where noise hides such a
    direction, that expects more spread in it, and so less of slopes, than columns have that nearly
    go together: two with a correlation of .96 held 87%, and hold 94% (docs/calibration.md).

    Parameters
    ----------
    A : array, shape (k,)
        Scale of the half-t law of each column's standard deviation.
    nu : float
        Degrees of freedom, more than k - 1.

    References
    ----------
    Huang & Wand (2013), Simple marginally noninformative prior distributions for covariance
    matrices, Bayesian Analysis 8(2), doi:10.1214/13-BA815.
    """

    A: FloatArray
    nu: float

    def __post_init__(self) -> None:
        A = vector("A", self.A)
        object.__setattr__(self, "A", positive_vector("A", A, A.size))
        object.__setattr__(self, "nu", degrees(self.nu, A.size))

    @property
    def k(self) -> int:
        """Number of covariates."""
        return self.A.size

    @classmethod
    def default(cls, k: int) -> ScaleFreeCovariates:
        """Return the default for `k` covariates on unit scale: nu = k."""
        return cls(np.full(count(k), 0.5), max(k, 1.0))


RegressionPrior = NIGPrior | NormalInverseGammaIndependent
CovariatePrior = NIWPrior | HierarchicalNIWPrior | HuangWandPrior
# What `exact` takes: the conjugate priors, which every method takes, and the scale-free ones.
AnyPrior = RegressionPrior | ScaleFreePrior
AnyCovariatePrior = CovariatePrior | ScaleFreeCovariates
