"""The collapsed posterior of the latent statistics, any dimension, noise and number of holders.

theta, sigma2, mu and T are integrated out in closed form; what is left is a density of the latent
statistics alone, exact down to n = k + 2 rows. The model, the coordinates and the derivation are in
`kernels`; here observations and priors become the input of the compiled functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.categories import FREE, KNOWN, Families
from noisewise.analyst.regression.exact import scale_free
from noisewise.analyst.regression.exact.draws import conjugate_draws, pooled_factors
from noisewise.analyst.regression.exact.factor import (
    BELOW_SMALLEST_N,
    statistics,
    total_statistics,
)
from noisewise.analyst.regression.exact.kernels import Arrays, logp_and_gradient, workspace
from noisewise.analyst.regression.exact.normalisers import (
    log_covariance,
    log_mean,
    log_multigamma,
    log_regression,
    log_scale_free,
    log_volume,
)
from noisewise.analyst.regression.exact.own_laws import (
    between,
    common_law,
    coordinates,
    draw_own_laws,
    log_constant,
)
from noisewise.analyst.regression.exact.prior import (
    A0,
    B0_SIGMA2,
    CONSTANT,
    HALF_T,
    INDICATORS,
    KEEPS_SIGMA2,
    LAM,
    NU,
    OWN_LAWS,
    PSI_POWER,
    SCALARS,
    SCALE_FREE,
    SIZE_AT,
    SMOOTHING,
)
from noisewise.analyst.regression.exact.start import rough_coordinates
from noisewise.analyst.regression.observation import Observation, common_k
from noisewise.analyst.regression.priors import (
    CovariatePrior,
    NIWPrior,
    NormalInverseGammaIndependent,
    RegressionPrior,
    ScaleFreeCovariates,
    ScaleFreePrior,
)
from noisewise.core.errors import RequestError

_SURE = 6.0  # standard deviations of the noise


class CollapsedPosterior:
    """The collapsed posterior of J holders' latent statistics.

    Parameters
    ----------
    observations : sequence of Observation
        One for each holder, over the same columns. Where n is private it is a coordinate.
    prior : NIGPrior, NormalInverseGammaIndependent or ScaleFreePrior
        For the regression. With the second, ln sigma2 is one more coordinate.
    covariates : NIWPrior, HierarchicalNIWPrior, HuangWandPrior or ScaleFreeCovariates
        For the covariates. But for the first, the k values ln psi are more coordinates.
    own_laws : bool
        Each holder's covariates have a law of their own, and how far these are apart is learnt
        (`own_laws`). By default they share one law; with one holder that is all there is.
    relative : int, optional
        Force one of the forms of `factor` on all holders but the reference.
    partial : bool, optional
        Force (True) or forbid (False) these forms of coordinates (see the module). By default
        they are used where noise hides what the plain ones measure. The posterior of the
        statistics does not depend on them.
    anchored : bool
        Of a single holder: rows of covariates are partial and y's is plain, as `anchor` wants.

    Attributes
    ----------
    arrays : Arrays
        Everything the compiled functions need.
    order : tuple of int
        ``order[i]`` is the position in `observations` of the i-th holder in `arrays`.
    columns : list of int
        ``columns[i]`` is the column of w at place i in `arrays`.
    k, ndim : int
        Numbers of covariates and of coordinates.
    own_laws : bool
    """

    def __init__(
        self,
        observations: Sequence[Observation],
        prior: RegressionPrior | ScaleFreePrior,
        covariates: CovariatePrior | ScaleFreeCovariates,
        *,
        own_laws: bool = False,
        relative: int | None = None,
        partial: bool | None = None,
        anchored: bool = False,
    ) -> None:
        k = _check(observations, prior, covariates)
        # Columns of w, the indicators of all holders first (`kernels`).
        tied = sorted(set.intersection(*(set(seen.indicators) for seen in observations)))
        several = len(observations) > 1 or not isinstance(covariates, ScaleFreeCovariates)
        numbers = [c for c in range(1, k + 1) if c not in tied]
        if not (several or anchored or partial is False) and observations[0].map is None:
            numbers = _best_known_first(
                observations[0], numbers
            )  # maps are triangular as they come
        families = Families.of(observations[0], () if several else tied)
        if not several:
            tied = list(families.columns)
        self.columns = [0, *tied, *numbers, k + 1]
        self._place = np.argsort(self.columns)
        observations = [
            (_without_empty_levels(seen) if several else families.apart(seen)).in_order(
                self.columns
            )
            for seen in (replace(seen, indicators=tuple(sorted(tied))) for seen in observations)
        ]
        known = np.stack([np.where(seen.scale == 0, KNOWN, FREE) for seen in observations])
        count = len(families.columns)
        known[:, 1 : count + 1, 1 : count + 1] = families.known()
        self.own_laws = own_laws and k > 0 and len(observations) > 1
        rough = rough_coordinates(
            observations,
            known,
            prior,
            covariates,
            own_laws=self.own_laws,
            force_relative=relative,
            force_partial=partial,
            anchored=anchored,
        )
        holders = [observations[j] for j in rough.order]
        scale = np.stack([holder.scale for holder in holders])
        noisy = (scale > 0) & np.isfinite(scale)
        precision = np.zeros_like(scale)
        precision[noisy] = 1.0 / scale[noisy]
        E0, B0, scalars = _prior_arrays(prior, covariates, self.own_laws)
        design, ordered = self.columns[:-1], np.array(self.columns[1:-1], dtype=int) - 1
        E0, B0 = E0[np.ix_(design, design)], B0[np.ix_(self.columns, self.columns)]
        if count:
            scalars[INDICATORS] = count
            others = k - count
            scalars[CONSTANT] += log_multigamma(0.5 * (covariates.nu - others), count)
            if not holders[0].n_is_private:
                n, nu = holders[0].n, scalars[NU]
                scalars[CONSTANT] -= log_volume(n, count) + log_mean(n, count, 0.0)
                scalars[CONSTANT] -= log_covariance(n, count, nu - others)
        scalars[CONSTANT] += sum(
            float(log_volume(holder.n, k + 1)) for holder in holders if not holder.n_is_private
        )
        if not any(holder.n_is_private for holder in holders):
            nu, lam, a0, keeps_sigma2 = scalars[[NU, LAM, A0, KEEPS_SIGMA2]]
            N = sum(holder.n for holder in holders)
            scalars[CONSTANT] += (
                log_scale_free(N)
                if isinstance(prior, ScaleFreePrior)
                else log_regression(N, a0, keeps_sigma2 > 0.0)
            )
            if not self.own_laws:
                scalars[CONSTANT] += log_covariance(N, k, nu) + log_mean(N, k, lam)
        scalars[CONSTANT] += sum(_log_noise_constant(holder) for holder in holders)
        scalars[CONSTANT] += np.log(rough.scale).sum()
        scalars[SIZE_AT] = rough.size_at
        if rough.size_at > 0:
            m = int((scale[0, -1, 1:-1] != 0).sum())
            scalars[CONSTANT] += (1.0 - 0.5 * m) * math.log(2.0) - math.lgamma(0.5 * m)
        self._omega = omega = self._sigma = sigma = np.zeros((2, 0))
        if isinstance(prior, ScaleFreePrior):
            total = sum(rough.rows)
            spread = sum(6.0 * h.scale[0, 0] for h in holders if h.n_is_private)
            self._sigma = sigma = scale_free.sigma_nodes(total, k, spread)
            self._omega = scale_free.omega_nodes(prior, total, fine=4)
            omega = scale_free.omega_nodes(prior, total)
        self.arrays = Arrays(
            n=np.array(rough.rows),
            laplace=np.array([holder.family == "laplace" for holder in holders]),
            values=np.stack([holder.values for holder in holders]),
            precision=precision,
            known=known[list(rough.order)],
            relative=rough.relative,
            partial=rough.partial,
            E0=E0,
            B0=B0,
            psi_rate=np.zeros(0) if isinstance(covariates, NIWPrior) else covariates.rate[ordered],
            scalars=scalars,
            sigma_nodes=np.ascontiguousarray(sigma),
            omega_nodes=omega,
            centre=rough.centre,
            scale=rough.scale,
            maps=_maps(holders),
            whiteners=_whiteners(holders),
        )
        self.order = rough.order
        self.k = k
        self.ndim = rough.centre.size

    def workspace(self) -> FloatArray:
        """Scratch space for one thread."""
        J, P, _ = self.arrays.values.shape
        return workspace(J, P)

    def smoothed(self, amount: float) -> Arrays:
        """Return the arrays with the Laplace kinks rounded off in the gradient, not the density."""
        scalars = self.arrays.scalars.copy()
        scalars[SMOOTHING] = amount
        return self.arrays._replace(scalars=scalars)

    def logp_and_gradient(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Log joint density of x and the released values, and its gradient by x."""
        x = np.ascontiguousarray(x, dtype=np.float64)
        if x.shape != (self.ndim,):
            raise RequestError(f"x must have shape ({self.ndim},); got {x.shape}")
        gradient = np.empty(self.ndim)
        logp = logp_and_gradient(x, gradient, *self.arrays, self.workspace())
        return float(logp), gradient

    def statistics(self, x: FloatArray) -> FloatArray:
        """Latent A_j at each x, shape (..., J, P, P), holders in the order they were given in.

        Its entry (0, 0) is n_j, also where that is private.
        """
        a = self.arrays
        points = np.ascontiguousarray(x, dtype=np.float64).reshape(-1, self.ndim)
        out = np.empty((len(points), *a.values.shape))
        work = self.workspace()
        for point, latent in zip(points, out, strict=True):
            statistics(
                point, a.n, a.values, a.known, a.relative, a.partial, a.scalars[SIZE_AT], a.centre,
                a.scale, a.maps, work, latent,
            )  # fmt: skip
        out = out[:, np.argsort(self.order)][..., self._place, :][..., self._place]
        return out.reshape(*np.shape(x)[:-1], *a.values.shape)

    def pooled_factors(self, x: FloatArray) -> FloatArray:
        """Cholesky factors of the sum of the A_j at each row of x, shape (draws, P, P).

        Columns are in the order of `arrays`. By way of the holders' factors: the sum itself need
        not have one in double precision.
        """
        a = self.arrays
        out = np.zeros((len(x), *a.values.shape[1:]))
        pooled_factors(
            np.ascontiguousarray(x), a.n, a.values, a.known, a.relative, a.partial,
            a.scalars[SIZE_AT], a.centre, a.scale, a.maps, self.workspace(), out,
        )  # fmt: skip
        return out

    def rows(self, x: FloatArray) -> FloatArray:
        """Number of rows n_j at each x, shape (..., J), holders in the order they were given in."""
        a = self.arrays
        n = np.broadcast_to(a.n, (*np.shape(x)[:-1], a.n.size)).copy()
        free = np.tril(a.known == FREE).sum(axis=(1, 2))
        for j in np.flatnonzero(a.known[:, 0, 0] == FREE):
            first = free[:j].sum()
            log_excess = a.centre[first] + a.scale[first] * x[..., first]
            n[..., j] = self.k + 2 - BELOW_SMALLEST_N + np.exp(log_excess)
        return n[..., np.argsort(self.order)]

    def draw_parameters(
        self, rng: np.random.Generator, x: FloatArray, *, covariates: bool = True
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
        """Draw theta, sigma2, mu and T given the latent statistics at each row of x.

        Parameters
        ----------
        rng : numpy.random.Generator
        x : array, shape (draws, ndim)
        covariates : bool
            False leaves mu and T out; they come back with no rows.

        Returns
        -------
        theta, sigma2, mean, mu, T : arrays
            Of shapes (draws, d), (draws,), (draws, d), (draws, k), (draws, k, k); mean is
            E[theta | statistics], given sigma2 too if the prior keeps it as a coordinate. Where
            holders have laws of their own, mu and T are of shapes (draws, J, k) and
            (draws, J, k, k), holders in the order they were given in.
        """
        a, k = self.arrays, self.k
        draws = len(x)
        kept = draws if covariates and not self.own_laws else 0
        theta, sigma2, mean = np.empty((draws, k + 1)), np.empty(draws), np.empty((draws, k + 1))
        mu, T = np.empty((kept, k)), np.empty((kept, k, k))
        N = self.rows(x).sum(axis=-1)
        normal = rng.standard_normal((draws, k + 1))
        gamma = rng.standard_gamma(a.scalars[A0] + 0.5 * N)
        normal_mu = rng.standard_normal((kept, k))
        normal_T = rng.standard_normal((kept, k, k))
        degrees = a.scalars[NU] + N[:kept, None] - np.arange(k)
        chi = np.sqrt(rng.chisquare(degrees))
        conjugate_draws(
            np.ascontiguousarray(x), normal, gamma, normal_mu, normal_T, chi, a.n, a.values,
            a.known, a.relative, a.partial, a.E0, a.B0, a.psi_rate, a.scalars, a.centre, a.scale,
            a.maps, self.workspace(), theta, sigma2, mean, mu, T,
        )  # fmt: skip
        if a.scalars[SCALE_FREE] > 0.0:
            latent = self.pooled_factors(x)
            half_t = float(a.scalars[HALF_T])
            slopes = a.B0[-1, 1:-1]
            latent[:, -1] -= slopes @ latent[:, 1:-1]  # the factor with y - x'slopes for y
            theta, sigma2, mean = scale_free.draw(rng, latent, half_t, self._sigma, self._omega)
            theta[:, 1:] += slopes
            mean[:, 1:] += slopes
        design, inner = self._place[:-1], self._place[1:-1] - 1
        theta, mean = theta[:, design], mean[:, design]
        mu, T = mu[:, inner], T[:, inner][..., inner]
        if covariates and self.own_laws:
            mu, T = draw_own_laws(rng, *self._common_law(x), self.statistics(x))
        return theta, sigma2, mean, mu, T

    def own_variances(self, x: FloatArray) -> FloatArray:
        """The variance of each covariate given the others, of all rows at each x; (draws, k)."""
        C = self.pooled_factors(x)
        inverse = np.linalg.inv(C[:, 1:-1, 1:-1])
        variances = C[:, :1, 0] ** -2.0 / (inverse**2).sum(axis=1)
        return np.asarray(variances[:, self._place[1:-1] - 1])

    def predictor_variance(self, x: FloatArray, slopes: FloatArray) -> FloatArray:
        """The variance of x'b over all rows at each x, (draws,), given slopes b, (draws, k)."""
        C = self.pooled_factors(x)
        roots = C[:, self._place[1:-1], 1:-1] / C[:, :1, :1]
        return np.asarray((np.einsum("ma,mab->mb", slopes, roots) ** 2).sum(axis=1))

    def _common_law(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """m, T, lam and nu of `own_laws` at each x."""
        a, k = self.arrays, self.k
        y = (a.centre + a.scale * x)[:, -coordinates(k) :]
        H, lam, nu = np.empty((len(x), k + 1, k + 1)), np.empty(len(x)), np.empty(len(x))
        work = self.workspace()
        for i, (point, own) in enumerate(zip(x, y, strict=True)):
            total_statistics(
                point, a.n, a.known, a.values, a.relative, a.partial, a.scalars[SIZE_AT], a.centre,
                a.scale, a.maps, work,
            )  # fmt: skip
            lam[i], nu[i] = between(math.sinh(own[0]), math.sinh(own[1]), k)
            common_law(own, a.n, lam[i], nu[i], k, work)
            H[i] = np.tril(work[15, : k + 1, : k + 1])
        U = H[:, 1:, 1:][:, self._place[1:-1] - 1]
        return H[:, self._place[1:-1], 0], U @ np.swapaxes(U, 1, 2), lam, nu


def _best_known_first(seen: Observation, columns: list[int]) -> list[int]:
    """The columns by their spread over the noise, largest first.

    A row's coordinates are its length and its correlations with the rows before it. Where noise
    hides whether a column varies at all, correlations with it can be anything, and mix slowly: no
    row but y's has them if such a column is the last.
    """
    spread = np.diag(seen.values) - seen.values[0] ** 2 / max(seen.n, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        known = np.nan_to_num(spread / np.diag(seen.scale), nan=0.0)
    return sorted(columns, key=lambda c: -known[c])


def _without_empty_levels(seen: Observation) -> Observation:
    """The same without the products that are 0 because they are of two levels of one category.

    Where indicators have a normal law, an empty level fulfils these equations best (`kernels`).
    They are used where noise leaves no doubt that both levels have people.
    """
    inner = np.array(seen.indicators, dtype=int)
    doubtful = np.zeros(len(seen.scale), dtype=np.bool_)
    doubtful[inner] = seen.values[0, inner] < _SURE * seen.sd[0, inner]
    both = np.zeros_like(seen.scale, dtype=np.bool_)
    both[np.ix_(inner, inner)] = ~np.eye(len(inner), dtype=np.bool_)
    dropped = both & (seen.scale == 0.0) & (doubtful[:, None] | doubtful)
    return replace(seen, scale=np.where(dropped, np.inf, seen.scale))


def _maps(holders: Sequence[Observation]) -> FloatArray:
    """The maps of all holders; none of them if there is none but the identity."""
    P = holders[0].k + 2
    if all(holder.map is None for holder in holders):
        return np.zeros((0, P, P))
    return np.stack([np.eye(P) if holder.map is None else holder.map for holder in holders])


def _whiteners(holders: Sequence[Observation]) -> FloatArray:
    """Inverse Cholesky factors of all holders' noise; none if no one's is correlated.

    Rows and columns of entries without noise are 0.
    """
    a, b = np.tril_indices(holders[0].k + 2)
    correlated = any(holder.covariance is not None for holder in holders)
    found = np.zeros((len(holders) if correlated else 0, len(a), len(a)))
    for holder, whitener in zip(holders, found, strict=False):
        if holder.family == "laplace":
            raise RequestError("correlated noise goes with normal noise only")
        noisy = np.flatnonzero((holder.scale[a, b] > 0) & np.isfinite(holder.scale[a, b]))
        pick = np.ix_(noisy, noisy)
        if holder.covariance is None:
            whitener[noisy, noisy] = 1.0 / holder.scale[a, b][noisy]
            continue
        # By way of correlations: entries are of very different sizes.
        sd = holder.scale[a, b][noisy]
        root = np.linalg.cholesky(holder.covariance[pick] / np.outer(sd, sd))
        whitener[pick] = np.linalg.inv(root) / sd
    return found


def _log_noise_constant(holder: Observation) -> float:
    upper = holder.scale[np.triu_indices(holder.k + 2)]
    scales = upper[(upper > 0) & np.isfinite(upper)]
    if holder.covariance is not None:
        whitener = _whiteners([holder])[0].diagonal()
        scales = 1.0 / whitener[whitener > 0]
    each = math.log(2.0) if holder.family == "laplace" else 0.5 * math.log(2.0 * math.pi)
    return -float(np.log(scales).sum()) - each * scales.size


def _check(
    observations: Sequence[Observation],
    prior: RegressionPrior | ScaleFreePrior,
    covariates: CovariatePrior | ScaleFreeCovariates,
) -> int:
    k = common_k(observations)
    for name, given in (("prior", prior.k), ("covariates", covariates.k)):
        if given != k:
            raise RequestError(f"{name} is for {given} covariates, the statistics are for {k}")
    for observation in observations:
        # A private n that is certainly too small; 30 noise scales are beyond any doubt.
        if observation.values[0, 0] + 30.0 * observation.scale[0, 0] < k + 2 - BELOW_SMALLEST_N:
            raise RequestError(
                f"a holder with n = {observation.n} rows is too small for {k} covariates: the "
                f"exact method needs at least k + 2 = {k + 2} rows from each holder. Use fewer "
                "covariates, or leave the holder out"
            )
    return k


def _prior_arrays(
    prior: RegressionPrior | ScaleFreePrior,
    covariates: CovariatePrior | ScaleFreeCovariates,
    own_laws: bool,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """E0, B0 and the scalars; the constant is that part of the rows' density that is of the prior.

    What depends on the number of rows is left to the normalisers.
    """
    k, nu = covariates.k, covariates.nu
    scalars = np.zeros(SCALARS)
    flat = isinstance(covariates, ScaleFreeCovariates)
    scalars[[NU, OWN_LAWS]] = nu - 1.0 if flat and not own_laws else nu, own_laws
    E0 = np.zeros((k + 1, k + 1))
    constant = -log_multigamma(0.5 * nu, k)
    if not isinstance(covariates, ScaleFreeCovariates):
        m, lam = covariates.m, covariates.lam
        scalars[LAM] = E0[0, 0] = lam
        E0[0, 1:] = E0[1:, 0] = m if own_laws else lam * m
        if not own_laws:
            E0[1:, 1:] = lam * np.outer(m, m)
        constant += 0.5 * k * math.log(lam)
    if isinstance(covariates, NIWPrior):
        E0[1:, 1:] += covariates.Psi
        constant += 0.5 * nu * float(np.linalg.slogdet(covariates.Psi)[1])
    else:
        shape = covariates.shape
        scalars[PSI_POWER] = 0.5 * nu + shape
        constant += shape * float(np.log(covariates.rate).sum()) - k * math.lgamma(shape)
    if own_laws:
        constant += log_constant(k, scalars[LAM], nu, scalars[PSI_POWER])
    scalars[CONSTANT] = constant
    if isinstance(prior, ScaleFreePrior):
        scalars[[SCALE_FREE, HALF_T]] = 1.0, 4.0 * prior.scale**2
        B0 = np.zeros((k + 2, k + 2))
        B0[-1, 1:-1] = 0.0 if prior.centre is None else prior.centre
        return E0, B0, scalars

    keeps_sigma2 = isinstance(prior, NormalInverseGammaIndependent)
    precision = (
        np.linalg.inv(prior.V0) if isinstance(prior, NormalInverseGammaIndependent) else prior.Lam0
    )
    B0 = np.empty((k + 2, k + 2))
    B0[:-1, :-1] = precision
    B0[:-1, -1] = B0[-1, :-1] = precision @ prior.mu0
    B0[-1, -1] = prior.mu0 @ precision @ prior.mu0
    if not keeps_sigma2:
        B0[-1, -1] += 2.0 * prior.b0
    scalars[CONSTANT] += (
        0.5 * float(np.linalg.slogdet(precision)[1])
        + prior.a0 * math.log(prior.b0)
        - math.lgamma(prior.a0)
    )
    scalars[[KEEPS_SIGMA2, A0, B0_SIGMA2]] = keeps_sigma2, prior.a0, prior.b0
    return E0, B0, scalars
