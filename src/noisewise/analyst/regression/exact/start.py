"""Rough guesses from the noisy statistics: units and starting points for a sampler.

They decide in which coordinates a sampler sees the collapsed posterior (`kernels`), never
what that posterior is. Noisy statistics need not be possible ones; what comes out of here is, and
it is finite for all finite input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from noisewise._arrays import BoolArray, FloatArray, IntArray
from noisewise.analyst.regression.categories import FREE, NESTED, TIED
from noisewise.analyst.regression.exact.factor import (
    BELOW_SMALLEST_N,
    FEW_ENTRIES,
    MEANS,
    PLAIN,
    RELATIVE,
    SPREADS,
    is_relative,
)
from noisewise.analyst.regression.exact.tied import TAIL
from noisewise.analyst.regression.observation import Observation, mapped_variance
from noisewise.analyst.regression.priors import (
    CovariatePrior,
    NIGPrior,
    NIWPrior,
    NormalInverseGammaIndependent,
    RegressionPrior,
    ScaleFreeCovariates,
    ScaleFreePrior,
)

# Statistics on unit scale are of size 1 per row. Far beyond these limits nothing is meant; they
# keep squares and ratios within double precision.
_LARGEST_MEAN = 1e8
_SD_LIMITS = (1e-15, 1e15)
_MOST_ROWS = 1e15
_SIZE_UNIT = 0.7  # of the log size of y's entries, where they are few
_LONGEST_ROW = 0.95  # of the vector of an atom's correlations with earlier families (`tied`)
_SLACK = 1.5  # noise on an entry of y's row, over what it would be if other rows were known


class Coordinates(NamedTuple):
    """Order of the holders, form of their coordinates, centre and unit of each coordinate."""

    order: tuple[int, ...]
    relative: IntArray  # (J,)
    partial: BoolArray  # (J, P)
    size_at: int  # which coordinate is the size of the entries of y's row; 0 for none
    centre: FloatArray  # (ndim,)
    scale: FloatArray  # (ndim,)
    rows: tuple[float, ...]  # numbers of rows, rough where they are private


class _Holder(NamedTuple):
    """A holder's statistics per row, A / n; with a map K, K A K' / n."""

    n: float  # rough, if private
    mean: FloatArray  # (P, P)
    sd: FloatArray  # (P, P), of the noise; 0 if known, inf if not released
    n_is_private: bool
    map: FloatArray | None


class _Moments(NamedTuple):
    """A possible E[w w'] = F F', F lower triangular with F_00 = 1."""

    G: FloatArray
    F: FloatArray


def rough_coordinates(
    observations: Sequence[Observation],
    known: IntArray,
    prior: RegressionPrior | ScaleFreePrior,
    covariates: CovariatePrior | ScaleFreeCovariates,
    *,
    own_laws: bool = False,
    force_relative: int | None = None,
    force_partial: bool | None = None,
    anchored: bool = False,
) -> Coordinates:
    """Choose coordinates, holders in the order reference first.

    `known` are the codes of `categories` for the entries of each holder, (J, P, P). Units are
    conditional standard deviations: of the noise, by Gauss and Newton, of the difference between
    holders by sampling, and of a vague prior.
    """
    k = covariates.k
    given = [_holder(observation.without_map()) for observation in observations]
    population = _rough_population(given, covariates)
    sampling = _sampling_variance(population.G)
    apart = np.zeros_like(sampling)  # variance of holders' own moments about the population's
    if own_laws:
        apart = _between_holders(given, population.G, sampling)
        population = _rough_population(given, covariates, apart)
    # The reference is the holder that knows most about the population.
    uncertainty = [float(np.median(h.sd**2 + sampling / h.n)) for h in given]
    order = tuple(int(j) for j in np.argsort(uncertainty, kind="stable"))
    holders, known = [_holder(observations[j]) for j in order], known[list(order)]
    views = [_view(holder.map, population, sampling, apart) for holder in holders]

    noisy = np.array(
        [_noise_to_sampling(h, own.sampling) > 1.0 for h, own in zip(holders, views, strict=True)]
    )
    relative = np.where(noisy, RELATIVE, PLAIN)
    differ: list[_Differences] = []
    if own_laws:
        differ = _differences(holders)
        for part, found in zip((MEANS, SPREADS), differ, strict=True):
            relative[found.noise**2 < found.sampling + found.size**2] &= ~part
    if force_relative is not None:
        relative[:] = RELATIVE if force_relative is True else int(force_relative)
    relative[0] = PLAIN
    tied = np.diagonal(known, axis1=1, axis2=2) == TIED

    scale_free = isinstance(prior, ScaleFreePrior)
    sized = isinstance(prior, ScaleFreePrior) and prior.centre is None  # y's row (`kernels`)
    sized_by: tuple[float, float] | None = None
    partial = np.zeros((len(holders), k + 2), dtype=np.bool_)
    centres, units = [], []
    for j, holder in enumerate(holders):
        counted = np.array(
            [[is_relative(relative[j], a, b, k + 2) for b in range(k + 2)] for a in range(k + 2)]
        )
        view, R = views[j], views[j].population.F
        F: FloatArray = np.eye(k + 2)
        information = (1.0 + F) / (1.0 / holder.n + 1.0 / holders[0].n)
        information += (R**2).T @ _noise_information(holder, R)
        if relative[j] != RELATIVE:
            of_reference = F, information
            own = view.sampling / holder.n + view.apart
            F = R if j == 0 and not apart.any() else _pool([holder], view.population.G, own).F
            information = 4.0 + _noise_information(holder, F)
            if j == 0:
                for other, form in zip(holders, relative, strict=True):
                    told = _noise_information(other, F, _between(other.map, holder.map))
                    for a in range(1, k + 2):
                        for b in range(a + 1):
                            if is_relative(form, a, b, k + 2):
                                information[a, b] += told[a, b]
            else:
                # n times the sampling variance of F is that of its row from the column on.
                typical = R if holder.map is None else F
                rows = np.tril(np.cumsum(typical[:, ::-1] ** 2, axis=1)[:, ::-1])
                information += holder.n / np.maximum(rows, 1e-12)
            if anchored:
                partial[j, :-1] = True
            elif force_partial is not None or scale_free:
                partial[j] = force_partial is not False
            else:
                partial[j] = _is_partial(information, F)
                # Only a prior of slopes in units of the error measures y's row in those.
                partial[j, -1] &= isinstance(prior, NIGPrior)
            partial[j] &= holder.sd.diagonal() > 0  # the length must be a coordinate
            partial[j, 0] = False
            partial[j, tied[j]] = False
            partial[j, counted.diagonal()] = False
            if j == 0 and ((relative > PLAIN) & (relative < RELATIVE)).any():
                partial[0, -1] = False  # others know the regression too, at other lengths of y
            F = np.where(counted, of_reference[0], F)
            information = np.where(counted, of_reference[1], information)
        centre, unit = _in_coordinates(F, information)
        for row in np.flatnonzero(partial[j]):
            noise = _noise_information(holder, F, squares=False)[row]
            free = 1 + np.flatnonzero(holder.sd[row, 1 : row + 1] > 0)
            knows = _prior_information(covariates, int(row), free)
            centre[row, free], unit[row, free] = _partial_row(F[row, free], noise[free], knows)
            if j == 0 and sized and row == k + 1 and len(free) > 2:
                inner = free[:-1]
                sized_by = _size(centre[row, inner], holder.n)
                unit[row, inner] = _y_noise(unit[row, inner])
        if tied[j].any():
            _tied_rows(holder, known[j], centre, unit)
        if holder.n_is_private:
            centre[0, 0], unit[0, 0] = _private_n(holder, view.population.G)
        coordinates = np.tril(known[j] == FREE)
        centres.append(centre[coordinates])
        units.append(unit[coordinates])
    size_at = 0
    if sized_by is not None:
        size_at = sum(len(one) for one in centres)
        centres.append(np.array([sized_by[0]]))
        units.append(np.array([sized_by[1]]))
    if isinstance(prior, NormalInverseGammaIndependent):
        # ln sigma2 is counted from the log residual variance of the reference holder.
        centres.append(np.zeros(1))
        units.append(np.array([math.sqrt(2.0 / holders[0].n)]))
    if own_laws:
        entries = np.tri(k + 1)[1:] - 0.3 * np.eye(k + 1)[1:]  # their diagonal is a logarithm
        units_of_law = entries[entries > 0]
        centres += [np.arcsinh([found.size for found in differ]), np.zeros(units_of_law.size)]
        units += [np.array([found.unit for found in differ]), units_of_law]
    elif not isinstance(covariates, NIWPrior):
        # psi is counted in units of its rate, given the reference holder's covariance matrix.
        shape = covariates.shape + 0.5 * covariates.nu
        centres.append(np.full(k, math.log(shape)))
        units.append(np.full(k, math.sqrt(1.0 / shape)))
    return Coordinates(
        order,
        relative,
        partial,
        size_at,
        np.concatenate(centres),
        np.concatenate(units),
        tuple(holder.n for holder in holders),
    )


def _holder(observation: Observation) -> _Holder:
    n = min(_rough_n(observation), _MOST_ROWS)
    sd = observation.scale * (math.sqrt(2.0) if observation.family == "laplace" else 1.0) / n
    noisy = (observation.scale > 0) & np.isfinite(observation.scale)
    sd[noisy] = np.clip(sd[noisy], *_SD_LIMITS)
    mean = np.clip(observation.values / n, -_LARGEST_MEAN, _LARGEST_MEAN)
    return _Holder(n, mean, sd, observation.n_is_private, observation.map)


class _View(NamedTuple):
    """What is common to all holders, in the coordinates of one."""

    population: _Moments
    sampling: FloatArray  # (P, P)
    apart: FloatArray  # (P, P)


def _view(
    K: FloatArray | None, population: _Moments, sampling: FloatArray, apart: FloatArray
) -> _View:
    if K is None:
        return _View(population, sampling, apart)
    G = K @ population.G @ K.T
    return _View(_Moments(G, K @ population.F), _sampling_variance(G), mapped_variance(K, apart))


def _between(to: FloatArray | None, origin: FloatArray | None) -> FloatArray | None:
    """The map from the coordinates of one holder to those of another."""
    if origin is None or to is origin:
        return None if to is origin else to
    back: FloatArray = np.asarray(np.linalg.inv(origin), dtype=np.float64)
    return back if to is None else to @ back


def _rough_n(observation: Observation) -> float:
    """The number of rows, or a possible one near the noisy one if it is private."""
    if not observation.n_is_private:
        return float(observation.n)
    low = observation.k + 2 - BELOW_SMALLEST_N
    excess = float(observation.values[0, 0]) - low
    # Far below the smallest n only the noise's tail is left: about one standard deviation long.
    return low + max(excess, float(observation.scale[0, 0]), 1e-3)


def _private_n(holder: _Holder, population: FloatArray) -> tuple[float, float]:
    """Centre and unit of ln(n - smallest): its noise, and that of all sums at given means."""
    excess = holder.n - (len(population) - BELOW_SMALLEST_N)
    noisy = np.triu((holder.sd > 0) & np.isfinite(holder.sd))
    information = float(((population[noisy] / holder.sd[noisy]) ** 2).sum())
    return math.log(excess), 1.0 / math.sqrt(information * (excess / holder.n) ** 2 + 1.0)


def _in_coordinates(F: FloatArray, information: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Centre and unit of the coordinates of each entry of F, in plain rows."""
    diagonal = F.diagonal()
    centre, information = F.copy(), information.copy()
    log_information = information.diagonal() * diagonal**2 + 2.0
    np.fill_diagonal(centre, np.log(diagonal))
    np.fill_diagonal(information, log_information)
    return centre, 1.0 / np.sqrt(information)


def _prior_information(
    covariates: CovariatePrior | ScaleFreeCovariates, row: int, free: IntArray
) -> FloatArray:
    """What the prior knows of each free entry of a partial row; of y's, next to nothing.

    The correlation of columns a and b given those before b is that of two columns whose law is
    IW(nu - k + b + 1): its density is (1 - r²)^((nu - k + b - 2) / 2), and that of artanh r is
    sech^(nu - k + b), of precision nu - k + b.
    """
    if row == covariates.k + 1:
        return np.ones(len(free))
    return np.asarray(np.maximum(covariates.nu - covariates.k + free, 1.0))


def _partial_row(
    row: FloatArray, information: FloatArray, prior: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Centre and unit of the coordinates of a partial row: its correlations, then its log length.

    Parameters
    ----------
    row : array, shape (a,)
        The free ones of (F_a1, ..., F_aa).
    information : array, shape (a,)
        Of each entry in the noise of the row's products with others; of the diagonal one, in that
        of its square.
    prior : array, shape (a,)
        Of each correlation in the prior.
    """
    length = float(np.sqrt((row**2).sum()))
    centre, unit = np.empty(len(row)), np.empty(len(row))
    left = length
    for b, entry in enumerate(row[:-1]):
        y = math.atanh(min(max(entry / left, -0.9995), 0.9995))
        v2 = 0.5 * (math.sqrt(1.0 + 4.0 * TAIL * y * y) - 1.0)  # TAIL times v²
        centre[b] = math.copysign(math.sqrt(v2 / TAIL), y)
        slope = left / math.cosh(y) ** 2 * (1.0 + 2.0 * v2) / math.sqrt(1.0 + v2)
        unit[b] = 1.0 / math.sqrt(information[b] * slope**2 + prior[b])
        left /= math.cosh(y)
    centre[-1] = math.log(length)
    unit[-1] = 1.0 / math.sqrt(4.0 * length**4 * information[-1] + 2.0)
    return centre, unit


def _tied_rows(holder: _Holder, known: IntArray, centre: FloatArray, unit: FloatArray) -> None:
    """Fill in centre and unit of tied rows (`tied`): log odds of the atoms, and correlations.

    Row by row the possible values nearest to the noisy ones, pulled to no correlation where noise
    hides it.
    """
    count = int((known.diagonal() == TIED).sum())
    at = slice(1, count + 1)
    inner, sums = known[at, at], np.eye(count) + (known[at, at] == NESTED)
    seen = np.isfinite(holder.sd)
    precision = np.where(seen & (holder.sd > 0), 1.0 / np.maximum(holder.sd, 1e-300), 0.0) ** 2
    p, noise = _atoms(holder.mean, precision, inner, sums)
    products = np.where(seen, holder.mean, 0.0)[at, at]
    products += np.where(seen[at, at], 0.0, np.outer(sums @ p, sums @ p))
    between: FloatArray = np.asarray(np.linalg.inv(sums), dtype=np.float64)
    products = between @ products @ between.T  # of atoms
    information = sums.T @ precision[at, at]  # of an atom's products with columns
    F, T = np.zeros((count, count)), np.zeros((count, count))
    s = np.ones(count)
    rest, first = 1.0, 0
    for a in range(count):
        if a > 0 and inner[a, a - 1] == FREE:
            rest, first = 1.0, a
        # Where noise hides whether anybody is there at all, as much as noise can hide.
        least = min(max(0.5 * noise[a] / rest, 0.5 / (holder.n * rest)), 0.3)
        share = min(max(p[a] / rest, least), 1.0 - least)
        p[a] = rest * share
        length = math.sqrt(p[a] * (1.0 - share))
        free, own = slice(first), range(first, a)
        row = np.zeros(first)
        known_of = np.zeros(first)
        if first:
            known_of = information[a, free] @ F[free, free] ** 2
            row = np.linalg.solve(F[free, free], products[a, free] - p[a] * p[free])
            row = (row + share * F[own, free].sum(axis=0)) / length
            for z in own:
                row += (T[z, free] @ row) / (s[z] * (1.0 + s[z])) * T[z, free]
            told = known_of * length**2
            row *= told / (told + 1.0)
            row *= min(1.0, _LONGEST_ROW / max(float(np.linalg.norm(row)), 1e-300))
            T[a, free] = row
            s[a] = math.sqrt(1.0 - float(row @ row))
        F[a, free] = row
        for z in reversed(own):
            product = float(T[z, free] @ F[a, free])
            F[a, free] -= product / (1.0 + s[z]) * T[z, free]
            F[a, z] = -product
        F[a] *= length
        F[a] -= share * F[own].sum(axis=0)
        F[a, a] = length * s[a]
        centre[a + 1, 0] = math.log(share / (1.0 - share))
        unit[a + 1, 0] = 1.0 / math.sqrt((rest * share * (1.0 - share) / noise[a]) ** 2 + 0.25)
        if first:
            entries = length * np.append(row, s[a])
            ones = np.ones(first + 1)
            found = _partial_row(entries, np.append(known_of, 0.0), ones)
            centre[a + 1, 1 : first + 1], unit[a + 1, 1 : first + 1] = (x[:-1] for x in found)
        rest -= p[a]


def _atoms(
    mean: FloatArray, precision: FloatArray, known: IntArray, sums: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Shares of atoms by least squares, and the sd of the noise in each.

    `known` and `sums` are of the indicators: which of them are of one family, and which atoms each
    is the sum of. The product of two of them is the sum of the atoms that are in both.
    """
    count = len(known)
    p, noise = np.empty(count), np.empty(count)
    starts = [0, *(a for a in range(1, count) if known[a, a - 1] == FREE), count]
    for first, end in pairwise(starts):
        a, b = np.tril_indices(end - first)
        a, b = np.append(a, np.arange(end - first)) + first, np.append(b, np.full(end - first, -1))
        b = np.where(b < 0, b, b + first)  # -1 is the constant
        weight = precision[a + 1, b + 1]
        told = weight > 0
        a, b, weight = a[told], b[told], weight[told]
        atoms = sums[a, first:end] * np.where(b[:, None] < 0, 1.0, sums[b, first:end])
        # Where nothing is known, all atoms are equal, give or take a half.
        information = (atoms.T * weight) @ atoms + 4.0 * np.eye(end - first)
        covariance: FloatArray = np.asarray(np.linalg.inv(information), dtype=np.float64)
        pull = atoms.T @ (weight * mean[a + 1, b + 1]) + 4.0 / (end - first + 1)
        p[first:end], noise[first:end] = covariance @ pull, np.sqrt(covariance.diagonal())
    return p, noise


def _size(centre: FloatArray, n: float) -> tuple[float, float]:
    """Centre and unit of the size of y's entries (`log_size`)."""
    m = len(centre)
    if m * FEW_ENTRIES**2 > 1.0:
        return -0.5 * math.log(n), 1.0 / math.sqrt(m)
    length = min(max(float(np.sqrt((centre**2).sum())), 0.1), 1.0)
    return math.log(length / math.sqrt(m)), _SIZE_UNIT


def _y_noise(unit: FloatArray) -> FloatArray:
    """The sd of the noise on each of y's entries; `unit` counts the prior too, which a size is."""
    return np.asarray(_SLACK / np.sqrt(np.maximum(1.0 / unit**2 - 1.0, 1e-6)))


def _is_partial(information: FloatArray, F: FloatArray) -> BoolArray:
    """Rows whose covariances are uncertain by more than their residual variance explains.

    There the length of the row is what the released sum of squares tells, and the prior rules the
    rest. The threshold is measured; with fewer than two covariances plain rows are better.
    """
    partial = np.zeros(len(F), dtype=np.bool_)
    for a in range(3, len(F)):
        partial[a] = np.sum(1.0 / information[a, 1:a]) > 2.0 * F[a, a] ** 2
    return partial


def _rough_population(
    holders: Sequence[_Holder],
    covariates: CovariatePrior | ScaleFreeCovariates,
    apart: FloatArray | float = 0.0,
) -> _Moments:
    """A possible E[w w'] near all holders' A_j / n_j."""
    k = covariates.k
    guess = np.diag(np.full(k + 2, 0.3))
    guess[0, 0] = 1.0
    if isinstance(covariates, NIWPrior):
        guess[1:-1, 1:-1] = covariates.Psi / max(covariates.nu - k - 1.0, 1.0)
    vague = np.full_like(guess, 0.25)
    first = _pool(holders, guess, vague, apart)
    # Once more, now with sampling variances that fit the data.
    return _pool(holders, first.G, vague, apart)


def _pool(
    holders: Sequence[_Holder],
    guess: FloatArray,
    guess_variance: FloatArray,
    apart: FloatArray | float = 0.0,
) -> _Moments:
    """Entry by entry, the precision-weighted mean of A_j / n_j and a guess; then repaired."""
    weight = 1.0 / guess_variance
    total = weight * guess
    sampling = _sampling_variance(guess)
    for holder in holders:
        own = 1.0 / (holder.sd**2 + sampling / holder.n + apart)
        total = total + own * holder.mean
        weight = weight + own
    return _repair(total / weight, 0.3 * float(np.sqrt(np.mean(1.0 / weight))))


def _between_holders(
    holders: Sequence[_Holder], population: FloatArray, sampling: FloatArray
) -> FloatArray:
    """Rough variance of the holders' own E[w w'], beyond noise and sampling, shape (P, P)."""
    total, weight = np.zeros_like(population), np.full_like(population, 1e-300)
    for holder in holders:
        expected = holder.sd**2 + sampling / holder.n
        seen = np.isfinite(expected)
        own = 1.0 / expected[seen] ** 2
        total[seen] += own * ((holder.mean[seen] - population[seen]) ** 2 - expected[seen])
        weight[seen] += own
    return np.clip(total / weight, 0.0, _LARGEST_MEAN)


class _Differences(NamedTuple):
    """By how much the holders' means or log spreads differ, in units of the spread within them."""

    size: float  # standard deviation over holders, beyond noise and sampling; 0 if none is seen
    unit: float  # of the coordinate arcsinh(size)
    noise: FloatArray  # (J,), standard deviations
    sampling: FloatArray  # (J,), variances


def _differences(holders: Sequence[_Holder]) -> list[_Differences]:
    """Those of the means and of the log spreads."""
    J, k = len(holders), len(holders[0].mean) - 2
    n = np.array([holder.n for holder in holders])[:, None]
    means, noise, variances, blur = np.stack([_within(h) for h in holders], axis=1)
    weight = n / (1.0 + n * blur)
    within = np.maximum((weight * variances).sum(axis=0) / weight.sum(axis=0), 1e-12)
    found = []
    for values, noise_variance, sampling in (
        (means / np.sqrt(within), noise**2 / within, 1.0 / n),
        (0.5 * np.log(np.maximum(variances / within, 0.05)), 0.25 * blur / within**2, 0.5 / n),
    ):
        errors = np.clip(noise_variance, 1e-12, 1e6)
        weight = 1.0 / (errors + sampling)
        centre = (weight * values).sum(axis=0) / weight.sum(axis=0)
        excess = (weight * ((values - centre) ** 2 - 1.0 / weight)).sum() / weight.sum()
        least = 2.0 / (weight.mean() * math.sqrt(J * k))
        size = math.sqrt(excess) if least < excess < 1e6 else 0.0
        unit = math.sqrt((0.25 * least + size**2 / (2.0 * J * k)) / (1.0 + size**2))
        noise_sd = np.sqrt(errors.mean(axis=1))
        found.append(
            _Differences(size, min(unit, 1.0), noise_sd, np.broadcast_to(sampling, (J, 1))[:, 0])
        )
    return found


def _within(holder: _Holder) -> FloatArray:
    """Means of the covariates, the noise's sd in them, variances, the noise's variance in those.

    Shape (4, k). With a map they are found in the holder's own coordinates, near its own mean.
    """
    k, K = len(holder.mean) - 2, holder.map
    inner = range(1, k + 1)
    means, noise = holder.mean[0, inner], np.minimum(holder.sd[0, inner], 10.0)
    if K is None:
        square_noise = np.minimum(holder.sd[inner, inner], 10.0)
        variances = holder.mean[inner, inner] - means**2 + noise**2
        return np.array([means, noise, variances, square_noise**2 + 4.0 * means**2 * noise**2])
    back: FloatArray = np.asarray(np.linalg.inv(K), dtype=np.float64)
    M = back[1:-1, 1:-1]
    covariance = holder.mean[1:-1, 1:-1] - np.outer(means, means) + np.diag(noise**2)
    product = np.outer(means**2, noise**2)
    blur = np.minimum(holder.sd[1:-1, 1:-1], 10.0) ** 2 + product + product.T
    blur[np.diag_indices(k)] += 2.0 * means**2 * noise**2
    return np.array(
        [
            back[1:-1, 0] + M @ means,
            np.sqrt(M**2 @ noise**2),
            (M @ covariance @ M.T).diagonal(),
            mapped_variance(M, blur).diagonal(),
        ]
    )


def _repair(G: FloatArray, floor: float) -> _Moments:
    """The nearest G with G_00 = 1 whose covariance has no eigenvalue below `floor`."""
    means = G[0, 1:]
    eigenvalues, vectors = np.linalg.eigh(G[1:, 1:] - np.outer(means, means))
    floor = max(floor, 1e-9 * float(np.abs(eigenvalues).max()), 1e-12)
    covariance = (vectors * np.maximum(eigenvalues, floor)) @ vectors.T
    F = np.eye(len(G))
    F[1:, 0] = means
    F[1:, 1:] = np.linalg.cholesky(covariance)
    repaired = np.empty_like(G)
    repaired[0, 0] = 1.0
    repaired[0, 1:] = repaired[1:, 0] = means
    repaired[1:, 1:] = covariance + np.outer(means, means)
    return _Moments(repaired, F)


def _sampling_variance(G: FloatArray) -> FloatArray:
    """Variance of w_a w_b for normal w with E[w w'] = G: G_aa G_bb + G_ab² - 2 m_a² m_b²."""
    m2 = G[0] ** 2
    diagonal = G.diagonal()
    return np.maximum(np.outer(diagonal, diagonal) + G**2 - 2.0 * np.outer(m2, m2), 1e-12)


def _noise_to_sampling(holder: _Holder, sampling: FloatArray) -> float:
    """Median ratio of the noise to the sampling standard deviation of the sums."""
    ratio = holder.sd * np.sqrt(holder.n / sampling)
    return float(np.median(ratio[np.triu_indices_from(ratio)][1:]))


def _noise_information(
    holder: _Holder, F: FloatArray, K: FloatArray | None = None, *, squares: bool = True
) -> FloatArray:
    """Gauss-Newton information of each entry of F in the noise, the others held fixed.

    F is of the holder's own statistics; or K F is. Without `squares`, what a column's sum of
    squares tells is left out, and the diagonal has the precision of that sum.
    """
    weight = np.zeros_like(holder.sd)
    noisy = (holder.sd > 0) & np.isfinite(holder.sd)
    weight[noisy] = 1.0 / holder.sd[noisy] ** 2
    if squares:
        return information_of_entries(weight, F, K)
    information = np.tril(weight, -1) @ F**2
    np.fill_diagonal(information, weight.diagonal())
    return information


def information_of_entries(weight: FloatArray, F: FloatArray, K: FloatArray | None) -> FloatArray:
    """Gauss-Newton information of each entry of F, the others held fixed, shape (P, P).

    `weight` are precisions of the entries of K F F' K'. The derivative by F_ab of that matrix is
    u v' + v u' with u = K[:, a] and v = (K F)[:, b].
    """
    if K is None:
        entries = F**2
        return np.asarray(weight @ entries + 3.0 * weight.diagonal()[:, None] * entries)
    u, v = K, K @ F
    both = u[:, :, None] * v[:, None, :]  # (c, a, b)
    diagonal = weight.diagonal()
    total = (u**2).T @ weight @ v**2 + np.einsum("cab,cd,dab->ab", both, weight, both)
    return np.asarray(total + 2.0 * np.einsum("c,cab->ab", diagonal, both**2))
