"""Releases that were made in rounds, as observations in coordinates of their own.

**Which rounds.** Given all earlier rounds the last one is

    U = M A M' + E,

with a map M that they have fixed: its likelihood is exact, whatever they said, and has most of the
budget behind it. The exploring rounds, or looks, tell little of A beyond that, but leaving them out
would be wrong where rows are few. In these coordinates they say: spreads are 1, means and slopes
are 0, give or take τ, where the last round has noise s. Take a slope β ~ N(0, τ²) and its noisy
value b = β + s ε. Without the looks its posterior is N(b, s²), whose E[β²] is b² + s², on average
τ² + 2s²: a variance from which it is subtracted is too low by 2s² for every slope and mean, 2 to 3%
with 1,000 rows. With the looks it is N((1 - w) b, (1 - w) s²), w = s²/(s² + τ²), and E[β²] is
(1 - w)² (τ² + s²) + (1 - w) s² = τ² on average, however small w is. The noise on a variance is in
proportion to what the looks have said of it, which has an effect of the same kind. So both are
averaged (`averaged`), entry by entry: the looks' noise is not quite independent in these
coordinates, and is taken for it. Looks shrink many rows. What normal rows lose by it is added, and
`_UNLIKE` is the sd of what rows of other laws may have lost beside it; more, where looks and last
round differ by more than that and noise. With many rows it leaves the looks no weight, and with
skewed columns they have none.

**What shrinking takes.** Rows beyond the radius R are shrunk onto the ball, and variances are lower
for it: with three numbers and R² = 9 by 2%. What normal rows with the mean and covariance of U lose
is added to U; or less, if the histogram shows fewer far rows than normal ones would have. What
longer tails lose beyond it is in the carried noise (`core.rounds.tail`).

**What skewness adds.** A row is shrunk by a factor that depends on x and on the error, so least
squares gets weights. If the formula is right and errors are symmetric, weights don't move slopes.
Skewed errors do: large errors of one sign are where the covariates make errors large. Of a target
at a mean distance d from a bound, with standard deviation c d, that can be seen: its skewness is
c - 1/c or more. A uniform law from the bound on has c = 0.58, half a normal one 0.76, an
exponential one 1, and counts and amounts that are mostly small have more. Their tails are longer
than a noisy histogram shows. From c = 1/2 on, `_UNSEEN` (c - 1/2) times the noise is carried for
the rows that it doesn't show. This grows smoothly, so that noise in d and c doesn't decide. Such
rows are far out in the target, so it is carried for the sums with y' alone: what the others lose is
little beside it.

**What far rows agree about.** The looks have shrunk many more rows than the last round. If far rows
have no preferred direction, residuals e of the last round's regression have the same sums with x
in both, give or take noise. Where they agree, as skewed errors do whose spread grows with x, the
looks lack them: let D be the difference of Σ e x, and t that of the traces. Then D √(q(q + 2)) / t
is the agreement of the rows in between (`core.rounds.tail`), of every x by itself. Its prior is
normal with sd `AGREEMENT`, which is raised to what is measured where that is `_BEYOND_DOUBT` times
its noise. If the rows beyond the last ball agree as much, they take that in proportion to the
excess B that the histogram expects. Half of it is added back, and `_GROWS` times it is carried:
those farthest out may agree about nothing, or more (two to four times as much in a photograph), and
B is not known well. No more counts than can be carried, `LARGEST_CARRY` times the noise. Sums of e
with 1 and with indicators are left alone: of them a row takes what grows with |z|, not with |z|².
In wide balls, that is with many rows, looks have less noise than the last round, and this tells
much; in narrow ones the looks' noise hides it, and next to nothing is added.

**Which coordinates.** U is about u = (c, w · indicators, z) with z = L⁻¹(x - m), a mixture of all
numbers x. The noise E is symmetric and normal, with sd s on the diagonal and s/√2 off it; what
clipping may have done is carried as more noise of the same form. So for orthogonal Q the matrices
E and QEQ' have one law. Let the model's own numbers come first, its target last among them, and
then all others. With a Q that makes QL⁻¹ lower triangular the j-th of z' = Q(z) is a function of
the first j numbers alone. Hence the Gram matrix of the model's z' is a block of the turned one: a
regression that leaves columns out, or has another target, is as free as in the bounds' own
coordinates. Divided by the radius every z' is in [-1, 1], and the constant and the indicators are
divided by c and w.

**Which model.** With w' = K w, w = (1, x, y), the last row of K the only one that sees y,

    y' = w'_x · theta' + error'   is   y = (1, x) · theta + error,
    theta = (K_xx' theta' - K_yx) / K_yy,   sigma = sigma' / K_yy.

**Which prior.** That of the regression is the one of any other Release, stated in these
coordinates: a prior of slopes on y is one of slopes on y' with another centre. (A scale-free prior
with slopes of 0 on y' has another meaning: y' is what the earlier rounds have left of y, so it
expects little of every slope, also of those of categories, which those rounds have not seen, and
its intervals of rare levels missed.) The covariates' prior is the scale-free one in these
coordinates, with uniform correlations (nu = k + 1): the earlier rounds have left none near 1. Rows
in a ball of radius 1 have a mean square of at most 1 in all numbers together, so the upper guides
of sds are those of rows in such a ball (`priors.ball_share`): 0.9 to 1.4 sds of a number at the
smallest radius that rounds take, √(3q) sds, and more at larger ones. Since the last round is judged
given the earlier ones, a prior that depends on them uses nothing twice.

**Several holders.** Each with rounds has coordinates K_j w, others have w itself. Where statistics
of holders meet, in the regression and in the law of the covariates, they must be of one vector:
that of the holder with rounds who has most rows, K w. Both priors are stated there. Of another
holder the entries of C_j A C_j', C_j = K_j K⁻¹ (K⁻¹ for one without rounds), have independent
noise, and the sampler takes it there (`Observation.map`, `exact.kernels`): nothing is approximate.
Like populations have been whitened alike, so C_j is near the identity, and the sampler's units fit
all of them. Indicators are the same in all coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.job import Draws, Job
from noisewise.analyst.regression.observation import ModelColumns, Observation, observe_one
from noisewise.analyst.regression.original_units import moved
from noisewise.analyst.regression.priors import (
    ScaleFreeCovariates,
    ball_share,
)
from noisewise.core.design import Design
from noisewise.core.errors import RequestError
from noisewise.core.kinds.regression import Release
from noisewise.core.kinds.rounds import Rounds, is_number
from noisewise.core.rounds.estimate import least_squares
from noisewise.core.rounds.tail import AGREEMENT, EDGES, LARGEST_CARRY
from noisewise.core.statistics.ball_moments import PRODUCT_ONE, ROW_BITS

HOW = "of the rounds mostly the last one is used, the earlier ones have found its coordinates"
HOW_OF_SEVERAL = "of the rounds of each holder mostly the last one is used, in its own coordinates"
# exact_own_means is a former name of exact_own_laws
METHODS_WITH_ROUNDS = (
    "auto",
    "exact",
    "exact_own_laws",
    "exact_own_means",
    "exact_varying",
    "naive",
)
_REMEDY = (
    "{} was made in rounds. Use exact (or exact_own_laws for several holders), as auto does, with "
    "its own prior of the covariates, or ask the holder for a Release with rounds=1"
)

_DRAWS = 1 << 14  # of `shrunk_normal`
_UNLIKE, _APART = 0.03, 2.0  # sd of looks beside their noise, of a spread; a mean square
_LONG_TAILED = 0.4  # a skewness, from which a column is warned of
_SKEWED = 1.0  # a skewness, from which looks have lost too much to have any weight
_FAR_BOUND = 6.0  # standard deviations
# Of what nearer rows agree about: the share that is added back, and the sd that is carried.
_ADDED_BACK, _GROWS = 0.5, 1.5
_BEYOND_DOUBT, _LOST_FROM = 3.0, 2.0  # standard deviations of the noise
_UNSEEN = 2.5  # times the noise, for each unit that a target's c is above 1/2


@dataclass(frozen=True, eq=False)
class LastRound:
    """The last round of a Release, turned for one model."""

    observation: Observation  # over w' = (1, x', y')
    K: FloatArray  # (P, P), takes w = (1, x, y) on unit scale to w'
    covariates: ScaleFreeCovariates  # the prior of x'
    skewed: frozenset[str] = frozenset()  # columns of the Release that are warned of

    @classmethod
    def of(cls, release: Release, columns: ModelColumns, name: str) -> LastRound:
        """Turn the last round of a Release, which messages call `name`, for a model."""
        rounds, design = release.rounds, release.design
        if rounds is None:
            raise ValueError("there are no rounds in this Release")
        last, rows = rounds.last, release.noisy_n
        observed = last.observed(design)
        # Model columns by their places in the design; the model's numbers first, y last of them.
        numbers = [i for i, number in enumerate(is_number(design), 1) if number]
        place = {known: i for i, known in enumerate(design.names)}
        kept = [place[known] for known in (*columns.names, columns.target)]
        own = [p for p in kept if p in numbers]
        order = [*own, *(p for p in numbers if p not in own)]
        turn, lower = lower_triangular(observed.map[np.ix_(numbers, order)])
        N, K = np.eye(len(observed.map)), observed.map.copy()
        N[np.ix_(numbers, numbers)] = turn
        K[numbers, 0] = turn @ K[numbers, 0]
        K[np.ix_(numbers, order)] = lower
        unit = np.full(len(N), float(last.shape.weight))
        unit[0], unit[numbers] = last.shape.constant, last.shape.radius
        unit = (1 << ROW_BITS) / unit
        seen = restored(observed.values, rounds, design, rows, numbers)
        spreads = spreads_over_distances(observed.map, seen, rows, design)
        skewness = {name: c - 1 / c for name, c in spreads.items()}
        known = observed.precision == 0.0
        variance = np.where(known, 0.0, 1 / (observed.precision + known))
        unseen = _UNSEEN * max(0.0, spreads.get(columns.target, 0.0) - 0.5)
        clip = np.full(known.shape, rounds.carried(design, rows) ** 2)
        y = numbers[len(own) - 1]  # the target's place, once turned
        clip[y] = clip[:, y] = rounds.carried(design, rows, unseen) ** 2
        seen = N @ seen @ N.T
        if rounds.explored:
            block = np.ix_([0, *numbers], [0, *numbers])
            found, doubt = by_looks(seen[block], K[block], release)
            if rounds.tail is not None:
                both = variance[block] + doubt
                agreed = far_agreement(seen[block], found, both, release, len(own))
                noise, with_y = last.off_diagonal_scale / PRODUCT_ONE, numbers[: len(own) - 1]
                agreed = np.clip(agreed, *(LARGEST_CARRY / _GROWS * noise * np.array([-1, 1])))
                seen[y, with_y] += _ADDED_BACK * agreed
                seen[with_y, y] = seen[y, with_y]
                more = clip[y, with_y] + (_GROWS * agreed) ** 2
                clip[y, with_y] = clip[with_y, y] = np.minimum(more, (LARGEST_CARRY * noise) ** 2)
            if max(skewness.values(), default=0.0) < _SKEWED:
                seen[block], shares = averaged(seen[block], variance[block], found, doubt, rows)
                variance[block] *= 1 - shares
        clip *= np.where(known, 0.0, 1 + np.eye(len(known)))
        values = seen * np.outer(unit, unit)
        scale = np.outer(unit, unit) * np.sqrt(variance + clip)
        # The i-th of the model's numbers is at the place of the i-th of all numbers.
        slot = dict(zip(own, numbers, strict=False))
        pick = [slot.get(p, p) for p in kept]
        values, scale = values[np.ix_(pick, pick)], scale[np.ix_(pick, pick)]
        values = (values + values.T) / 2
        if release.n is None:
            observation = Observation.with_private_n(values, scale, "gaussian", name)
        else:
            values[0, 0] = release.n
            observation = Observation(release.n, values, scale, "gaussian", name)
        guide = 0.5 * float(np.sqrt(ball_share(len(numbers), 1.0)))
        guides = [0.5 if column.is_indicator else guide for column in columns.covariates]
        return cls(
            observation,
            (K * unit[:, None])[np.ix_(pick, kept)],
            ScaleFreeCovariates(np.array(guides), len(guides) + 1.0),
            frozenset(name for name, least in skewness.items() if least >= _LONG_TAILED),
        )


@dataclass(frozen=True, eq=False)
class InRounds:
    """What all Releases say, at least one of them made in rounds."""

    # By Release, as it was published; the map of each is from the common coordinates
    observations: tuple[Observation, ...]
    K: FloatArray  # (P, P), takes w = (1, x, y) on unit scale to the common coordinates w'
    covariates: ScaleFreeCovariates  # the prior of x'
    name: str = ""  # what messages call the Release whose coordinates these are
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, releases: Sequence[Release], columns: ModelColumns, names: Sequence[str]
    ) -> InRounds | None:
        """Bring all Releases to common coordinates; None if no one was made in rounds."""
        named = list(zip(releases, names, strict=True))
        turned = [None if r.rounds is None else LastRound.of(r, columns, n) for r, n in named]
        several = len(releases) > 1
        rows, common = 0.0, None
        for release, last in zip(releases, turned, strict=True):
            if last is not None and (common is None or release.noisy_n > rows):
                rows, common = release.noisy_n, last
        if common is None:
            return None
        # The last round moves numbers alone, so indicators are still 0 or 1 (but not in means).
        covariates = columns.covariates if columns.schema.unit_column is None else ()
        levels = tuple(i for i, c in enumerate(covariates, 1) if c.is_indicator)
        seen: list[Observation] = []
        warnings: list[str] = []
        for (release, name), last in zip(named, turned, strict=True):
            own = observe_one(release, columns, name) if last is None else last.observation
            if last is not None:
                own = replace(own, indicators=levels)
            if last is not common:
                K = np.eye(len(common.K)) if last is None else last.K
                own = replace(own, map=_between(K, common.K, columns))
            seen.append(own)
            called = name if several else ""
            found = far_rows_warnings(release, called)
            if last is not None and not found:
                found = skewness_warnings(last, columns, called)
            warnings += found
        of = common.observation.name
        return cls(tuple(seen), common.K, common.covariates, of, tuple(warnings))

    def check_options(self, method: str, covariate_prior: Any, *, clip: bool) -> None:
        """Refuse what can't be done with a Release that was made in rounds."""
        check_method_with_rounds(method, self.name)
        what = ""
        if clip:
            what = "clip: it needs method individual, which cannot read it"
        elif covariate_prior is not None:
            what = "covariate_prior: none can be given, because its coordinates mix the covariates"
        if what:
            raise RequestError(f"{what}: {_REMEDY.format(self.name)}")

    @property
    def affine(self) -> tuple[FloatArray, FloatArray, float]:
        """M, t and v of theta = M theta' + t and sigma2 = v sigma2'."""
        y = float(self.K[-1, -1])
        return self.K[:-1, :-1].T / y, -self.K[-1, :-1] / y, y**-2

    def turned(self, job: Job) -> Job:
        """The job with its prior of the regression, on unit scale, in these coordinates."""
        M, t, v = self.affine
        prior = moved(job.regression_prior, M, t, v)
        return replace(
            job, regression_prior=prior, covariate_prior=self.covariates, affine=self.affine
        )

    def regression_to_unit(
        self, theta: FloatArray, sigma2: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Coefficients (..., d) and error variances on unit scale."""
        M, t, v = self.affine
        return theta @ M.T + t, sigma2 * v

    def to_unit(self, drawn: Draws) -> Draws:
        """Draws on unit scale. What single sums would be under the model is of no use there.

        A slope is made of several in these coordinates, and gets the largest pull of theirs.
        """
        M, t, _ = self.affine
        theta, sigma2 = self.regression_to_unit(drawn.theta, drawn.sigma2)
        several = len(self.observations) > 1
        mean, pull, holders = drawn.conditional_mean, drawn.prior_pull, drawn.holders
        if holders is not None:  # its spreads are on unit scale already
            own = self.regression_to_unit(holders.theta, holders.sigma2)
            holders = replace(holders, theta=own[0], sigma2=own[1])
        # x' = K x + constants for the covariates alone, so that x'b is K⁻ᵀ b times theirs.
        inner, back = drawn.predictor_variance, np.linalg.inv(self.K[1:-1, 1:-1])
        if pull:
            pull = tuple(np.where(M[1:, 1:] != 0.0, np.array(pull), 0.0).max(axis=1).tolist())
        return replace(
            drawn,
            theta=theta,
            sigma2=sigma2,
            conditional_mean=None if mean is None else mean @ M.T + t,
            discrepancies=drawn.discrepancies if several else (),
            replications=(),
            prior_pull=pull,
            warnings=(*drawn.warnings, *self.warnings),
            how="; ".join(filter(None, (drawn.how, HOW_OF_SEVERAL if several else HOW))),
            predictor_variance=None if inner is None else lambda b: inner(b @ back),
            holders=holders,
        )


def restored(
    values: FloatArray, rounds: Rounds, design: Design, n: float, numbers: Sequence[int]
) -> FloatArray:
    """The last round's sums with what normal rows have lost in the ball, at `numbers`."""
    seen = values.copy()
    if rounds.tail is None:
        return seen
    shape = rounds.last.shape
    c, radius = (x / (1 << ROW_BITS) for x in (shape.constant, shape.radius))
    mean = seen[0, numbers] / (n * c)
    covariance = seen[np.ix_(numbers, numbers)] / n - np.outer(mean, mean)
    first, second, share = shrunk_normal(mean, covariance, radius)
    # Short tails, of which fewer rows were shrunk, have lost less, if that can be seen.
    # Without `noise` as a margin normal rows would get too little back on average.
    expected, noise = n * share, rounds.tail.counted[1]
    seen_well = expected**2 / (expected**2 + len(EDGES) * noise**2)
    fewer = max(0.0, expected - rounds.shrunk_rows(design, n) - noise)
    fewer /= max(expected, 1e-9)
    lost = n * (1.0 - seen_well * fewer)
    seen[0, numbers] += lost * c * first
    seen[numbers, 0] += lost * c * first
    seen[np.ix_(numbers, numbers)] += lost * second
    return seen


def shrunk_normal(
    mean: FloatArray, covariance: FloatArray, radius: float
) -> tuple[FloatArray, FloatArray, float]:
    """What first and second moments of normal rows lose in a ball, and the share that is shrunk.

    By simulation, with the same draws in every call. About one in fifty is out of the ball where it
    matters, so the answer is good to about 5%, of the few per cent that are lost.
    """
    sizes, turn = np.linalg.eigh((covariance + covariance.T) / 2)
    normal = np.random.default_rng(0).standard_normal((_DRAWS, len(mean)))
    z = np.concatenate([normal, -normal]) * np.sqrt(np.maximum(sizes, 0.0)) @ turn.T + mean
    length = np.linalg.norm(z, axis=1)
    far = z[length > radius]
    factor = radius / length[length > radius]
    first, second = (1 - factor) @ far / len(z), (far.T * (1 - factor**2)) @ far / len(z)
    return first, second, len(far) / len(z)


def by_looks(
    seen: FloatArray, to_last: FloatArray, release: Release
) -> tuple[FloatArray, FloatArray]:
    """The last round's sums as the exploring rounds have them, and the variance of their noise.

    Parameters
    ----------
    seen : (q + 1, q + 1) array
        Of (c, z'), the numbers alone, by the last round.
    to_last : (q + 1, q + 1) array
        Takes (1, numbers) to (c, z').
    release : Release
    """
    rounds, design, n = release.rounds, release.design, release.noisy_n
    if rounds is None:
        raise ValueError("there are no rounds in this Release")
    places = [0, *(1 + np.flatnonzero(is_number(design)))]
    c, back = to_last[0, 0], np.linalg.inv(to_last)
    moments = seen / n
    moments[0, 0] = c**2
    looks, precision = [], np.zeros_like(seen)
    for one in rounds.explored:
        look = one.observed(design)
        look = replace(look, map=look.map[:, places])
        to_look = look.map @ back
        here = to_look @ moments @ to_look.T
        mean = here[0, 1:] / c
        radius = one.shape.radius / (1 << ROW_BITS)
        first, second, _ = shrunk_normal(mean, here[1:, 1:] - np.outer(mean, mean), radius)
        look.values[0, 1:] += n * c * first
        look.values[1:, 0] += n * c * first
        look.values[1:, 1:] += n * second
        looks.append(look)
        sizes = np.append(1.0, np.sum(to_look[1:, 1:] ** 2, axis=0))
        precision += np.outer(sizes, sizes) * look.precision[0, 1]
    found = least_squares(looks, to_last / np.append(c, np.ones(len(mean)))[:, None], n)
    found[0, 1:] *= c
    found[1:, 0] *= c
    found[0, 0] = seen[0, 0]
    double = 1 + np.eye(len(seen))  # the variance of a diagonal entry is twice that of others
    return found, double / precision


def averaged(
    seen: FloatArray, variance: FloatArray, found: FloatArray, noise: FloatArray, n: float
) -> tuple[FloatArray, FloatArray]:
    """The last round's sums, averaged with those that looks have found, and the looks' shares.

    `variance` and `noise` are those of the noise on `seen` and `found`.
    """
    noise = noise + (1 + np.eye(len(seen))) * (_UNLIKE * n) ** 2
    # Where both differ by more than their noise, it is by what shrinking has done in the looks.
    upper = np.triu_indices(len(seen))
    apart = float(np.mean(((found - seen) ** 2 / (noise + variance))[upper]))
    if apart > _APART:
        noise = noise * apart
    share = variance / (variance + noise)
    return seen + share * (found - seen), share


def far_agreement(
    seen: FloatArray, found: FloatArray, noise: FloatArray, release: Release, size: int
) -> FloatArray:
    """What far rows may yet take from the sums with the residual, if they go on as nearer ones do.

    Parameters
    ----------
    seen, found : (q + 1, q + 1) arrays
        Of (c, z') by the last round and by the looks; the model's numbers first.
    noise : (q + 1, q + 1) array
        Variance of the noise of both together.
    release : Release
    size : int
        How many numbers the model has; its target is the last of them.

    Returns
    -------
    (size - 1,) array
        For the model's covariates that are numbers.
    """
    rounds, design, n = release.rounds, release.design, release.noisy_n
    fitted = None if rounds is None else rounds.fit(design, n)
    if rounds is None or fitted is None:
        raise ValueError("nothing is clipped in this Release")
    fit, index = fitted
    excess = float(fit.excess[index])
    q = fit.numbers
    gram, apart, noise = seen[: size + 1, : size + 1].copy(), seen - found, noise.copy()
    gram[0, 0] = n * (rounds.last.shape.constant / (1 << ROW_BITS)) ** 2
    apart[0, 0] = noise[0, 0] = 0.0
    slopes = np.linalg.lstsq(gram[:-1, :-1], gram[:-1, -1])[0]  # forged sums may be singular
    residual = np.append(-slopes, 1.0)
    moved = (apart[: size + 1, : size + 1] @ residual)[1:-1]
    moved_noise = (noise[: size + 1, : size + 1] @ residual**2)[1:-1]
    lost = float(np.trace(apart))
    if lost < _LOST_FROM * math.sqrt(float(np.trace(noise))):
        return np.zeros(size - 1)
    agreement, doubt = moved / lost * math.sqrt(q * (q + 2)), moved_noise / lost**2 * q * (q + 2)
    prior = np.clip(agreement**2 - _BEYOND_DOUBT**2 * doubt, AGREEMENT**2, 1.0)
    agreement *= prior / (prior + doubt)
    return np.asarray(excess * agreement / math.sqrt(q * (q + 2)))


def check_method_with_rounds(method: str, name: str) -> None:
    """Refuse a method that cannot read a Release in rounds, which messages call `name`."""
    if method not in METHODS_WITH_ROUNDS:
        raise RequestError(f"method: {method} cannot read it: {_REMEDY.format(name)}")


def _between(K: FloatArray, common: FloatArray, columns: ModelColumns) -> FloatArray:
    """K common⁻¹, lower triangular as both are. The constant and indicators are left alone."""
    found = np.tril(np.linalg.solve(common.T, K.T).T)
    same = [0, *(i for i, c in enumerate(columns.covariates, 1) if c.is_indicator)]
    found[same] = np.eye(len(K))[same]
    return found


def far_rows_warnings(release: Release, name: str = "") -> tuple[str, ...]:
    """Whether clipping may have moved the slopes by more than intervals account for."""
    rounds, design, n = release.rounds, release.design, release.noisy_n
    if rounds is None or not rounds.warns(design, n):
        return ()
    where = f"in {name} " if name else ""
    return (
        f"far rows may decide this regression: {where}about "
        f"{rounds.shrunk_rows(design, n):,.0f} rows were so far from the rest that they were "
        "moved towards it before they were summed. The "
        "slopes describe the others, and intervals may miss the regression on all rows. Where "
        "amounts or counts have long tails, ask for a Release of their logarithms.",
    )


def spreads_over_distances(
    to_round: FloatArray, values: FloatArray, n: float, design: Design
) -> dict[str, float]:
    """Of numbers that may have a long tail, the standard deviation over the mean's distance.

    Values of mean m and standard deviation s above a bound at distance m have E[v³] ≥ E[v²]² / m,
    so their skewness is at least c - 1/c with c = s / m. An amount that is mostly small has a
    large c. Only columns whose other bound is far away can have a tail worth a warning. `values`
    are of the last round, to whose coordinates `to_round` takes the columns on unit scale.
    """
    back, known = np.linalg.inv(to_round), values.copy()
    known[0, 0] = n * to_round[0, 0] ** 2
    moments = back @ (known / n) @ back.T
    found = {}
    for i, column in enumerate(design.columns, 1):
        mean, variance = float(moments[0, i]), float(moments[i, i] - moments[0, i] ** 2)
        if column.is_indicator or not (variance > 0.0 and abs(mean) < 1.0):
            continue
        s = math.sqrt(variance)
        near, far = 1.0 - abs(mean), 1.0 + abs(mean)
        if far > _FAR_BOUND * s:
            found[column.name] = s / near
    return found


def skewness_warnings(last: LastRound, columns: ModelColumns, name: str = "") -> tuple[str, ...]:
    """Which columns of the model have tails that the histogram of far rows may have missed."""
    skewed = [known for known in (*columns.names, columns.target) if known in last.skewed]
    if not skewed:
        return ()
    where = f" in {name}" if name else ""
    return (
        f"long tails of {', '.join(skewed)}{where}: mean and spread say that most values are small "
        "and a few are large, and the largest were moved towards the rest before they were summed. "
        "Intervals may miss the regression on all rows. Ask for a Release of logarithms, or one "
        "without rounds.",
    )


def lower_triangular(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """An orthogonal Q and a lower triangular T with Q matrix = T and a positive diagonal of T."""
    Q, R = np.linalg.qr(matrix[:, ::-1])
    sign = np.where(np.diag(R)[::-1] < 0.0, -1.0, 1.0)[:, None]
    return sign * Q.T[::-1], sign * R[::-1, ::-1]
