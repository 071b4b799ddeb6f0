"""How wide a posterior from a Release in rounds will be: a formula, at each possible truth.

**Which coordinates.** The last round sums u = (c, w · indicators, z), z the numbers, the
target among them, in coordinates that exploring rounds have found. With rows enough these whiten
the numbers, and noise is the same in all directions. With few rows the exploring rounds see noise
besides, and leave narrow directions narrow, where the last round's noise hides them. So the rounds
are played at each truth: the covariance is seen with normal noise of the right size, the rule of
`core.rounds.plan` widens or narrows what it sees, and so on until it would stop. A truth's own
noise is one draw of many; over two hundred truths that averages out.

**Which width.** Noise in z is the same whichever way z is turned, so with the target last the map
is made lower triangular, as the analyst does (`analyst.regression.rounds`). There w' = Kw has noise
that is independent from entry to entry, and `width.posterior_width` holds for the truth of w':
theta = M theta' + t. The prior of theta is stated for theta'.

**Which radius.** It depends on the data's tails, and a long tail has a larger radius and more noise
(`core.rounds.plan` says how much is allowed). Where means and spreads were stated, they tell with
the bounds something of the tails. Let c = s / a be a column's standard deviation over the distance
of its mean from the nearer bound. The law of largest entropy on one side of a bound is a normal one
cut off there, from c = 0 (a normal law) to 1 (an exponential one), whose skewness is about 2 c⁴;
beyond 1 there is none, and a gamma law is taken, of skewness 2 c. So rows are drawn from gamma laws
of these skewnesses, ended by the farther bound, with columns that are independent in the last
round's coordinates (the target's is the stretched one), and the histogram is theirs. Columns of
which nothing was stated are taken for normal, and tails that mean and spread don't show are not
planned.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from noisewise._arrays import FloatArray, IntArray
from noisewise.analyst.regression.priors import NIWPrior, RegressionPrior
from noisewise.core.rounds.plan import (
    LastNoise,
    Setting,
    for_slopes,
    last_noise,
    look,
    look_noise,
)
from noisewise.core.rounds.tail import EDGES, stretch
from noisewise.planning.truths import Truths
from noisewise.planning.width import (
    Width,
    non_private_width,
    posterior_width,
    regression_precision,
    unseen_spreads,
)

_SEED = 20_261_117  # of the exploring rounds' noise: a plan is the same every time
_TAILS = 5  # histograms of a plan
_ROWS = 2000  # drawn for each
_LEAST_SKEWNESS = 0.1
_NEAREST = 1e-3  # of a mean to a bound
_RADIUS = 3.0  # squared, over q: the smallest of a last round; a unit for priors, no more


def rounds_width(
    truths: Truths,
    n: int,
    prior: RegressionPrior,
    covariates: NIWPrior,
    indicators: NDArray[np.bool_],
    setting: Setting,
    precision: FloatArray | None = None,
    known: NDArray[np.bool_] | None = None,
) -> Width:
    """Approximate covariance of theta given a Release in rounds of n rows, at each truth.

    `indicators`, (k,), says which covariates are indicators of categories, and `known`, (k + 1,),
    of which columns, the target last, means and spreads were stated. Of the others they are drawn,
    which says nothing of tails. `precision` is as in `posterior_width`.
    """
    if precision is None:
        precision = regression_precision(truths, prior)
    mean, covariance, numbers = _numbers_and_target(truths, indicators)
    maps, explored = explore(covariance, n, setting)
    m, d = truths.theta.shape
    levels = np.flatnonzero(indicators) + 1
    K = np.broadcast_to(np.eye(d + 1), (m, d + 1, d + 1)).copy()
    lower = _lower_triangular(for_slopes(maps)) / math.sqrt(_RADIUS * setting.numbers)
    K[:, numbers[:, None], numbers] = lower
    K[:, numbers, 0] = -np.einsum("mij,mj->mi", lower, mean)
    turned, M = _turned(truths, K)
    precision = np.swapaxes(M, 1, 2) @ precision @ M
    out, unseen = np.empty((m, d, d)), np.empty((m, d - 1))
    stated = np.zeros(setting.numbers, dtype=np.bool_) if known is None else known[numbers - 1]
    whose, tails = _tails(mean, np.sqrt(np.einsum("mii->mi", covariance)), n, stated)
    for kind, count in np.unique(np.column_stack([whose, explored]), axis=0):
        which = (whose == kind) & (explored == count)
        noise = last_noise(setting, n, tails[kind].tolist(), int(count))
        part = Truths(*(values[which] for values in turned))
        sd = _noise(noise, setting.numbers, numbers, levels, d + 1)
        width = posterior_width(part, n, prior, covariates, sd, precision[which])
        out[which] = M[which] @ width.private @ np.swapaxes(M[which], 1, 2)
        unseen[which] = unseen_spreads(truths.T[which], sd, n, K[which, 1:-1, 1:-1])
    return Width(out, non_private_width(truths, n, prior), unseen)


def explore(covariance: FloatArray, n: int, setting: Setting) -> tuple[FloatArray, IntArray]:
    """Play the exploring rounds for m covariances of the numbers, (m, q, q).

    Returns maps, (m, q, q), from the numbers to the last round's coordinates, in which spreads
    would be 1; and how many exploring rounds it took, (m,).
    """
    rng = np.random.default_rng(_SEED)
    m, q, _ = covariance.shape
    own, maps = covariance, np.broadcast_to(np.eye(q), covariance.shape)
    explored, open_ = np.zeros(m, dtype=np.int64), np.ones(m, dtype=np.bool_)
    rounds = 0
    while open_.any():
        error = np.triu(rng.normal(0.0, look_noise(setting, n, rounds), covariance.shape))
        error = error + np.swapaxes(error, 1, 2)  # the diagonal twice
        error[:, np.arange(q), np.arange(q)] *= math.sqrt(0.5)
        sizes, directions = np.linalg.eigh(own + error)
        wanted, ends = look(setting, n, rounds, sizes)
        step = np.swapaxes(directions, 1, 2) / np.sqrt(wanted)[:, :, None]
        moving = open_[:, None, None]
        own = np.where(moving, step @ own @ np.swapaxes(step, 1, 2), own)
        maps = np.where(moving, step @ maps, maps)
        explored[open_ & ends] = rounds
        open_ = open_ & ~ends
        rounds += 1
    return np.asarray(maps), explored


def _tails(
    mean: FloatArray, sd: FloatArray, n: int, stated: NDArray[np.bool_]
) -> tuple[IntArray, list[FloatArray]]:
    """How many rows to expect in each bin of the histogram of far rows; see "Which radius".

    Truths with similar tails share a histogram.

    Mean and sd, (m, q), are of the numbers on unit scale. Of those in `stated`, (q,), they are
    known; the others are taken for normal. Returns which histogram is each truth's, (m,), and the
    histograms.
    """
    near, far = np.maximum(1.0 - np.abs(mean), _NEAREST), 1.0 + np.abs(mean)
    c = sd / near
    skewness = np.where(c < 1.0, 2.0 * c**4, 2.0 * c) * stated
    order = np.argsort((skewness**2).sum(axis=1), kind="stable")
    whose = np.empty(len(mean), dtype=np.int64)
    tails: list[FloatArray] = []
    for group in np.array_split(order, min(_TAILS, len(mean))):
        middle = group[len(group) // 2]
        whose[group] = len(tails)
        tails.append(_tail(skewness[middle], (far / sd)[middle], n))
    return whose, tails


def _tail(skewness: FloatArray, most: FloatArray, n: int) -> FloatArray:
    """The histogram for columns of this skewness, none beyond `most` standard deviations."""
    q = len(skewness)
    drawn = skewness > _LEAST_SKEWNESS
    drawn[-1] = True  # the target, which is stretched
    # The other normal columns' part has a law.
    shape = 4.0 / np.maximum(skewness[drawn], _LEAST_SKEWNESS) ** 2
    rows = np.random.default_rng(_SEED).standard_gamma(shape, (_ROWS, len(shape)))
    rows = np.minimum((rows - shape) / np.sqrt(shape), most[drawn])
    squares = (rows / rows.std(axis=0)) ** 2
    squares[:, -1] *= stretch(q) ** 2
    left = np.array(EDGES)[:, None] * q - squares.sum(axis=1)
    normal = q - len(shape)
    share = (chi2.sf(left, normal) if normal else left < 0.0).mean(axis=1)
    return np.asarray(n * (share - np.append(share[1:], 0.0)))


def _numbers_and_target(
    truths: Truths, indicators: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray, NDArray[np.intp]]:
    """Mean and covariance of the numbers, y last, and their places in w = (1, x, y)."""
    theta, sigma2, mu, T = truths
    beta, k = theta[:, 1:], mu.shape[1]
    with_y = np.einsum("mij,mj->mi", T, beta)
    whole = np.empty((len(mu), k + 1, k + 1))
    whole[:, :k, :k] = T
    whole[:, :k, k] = whole[:, k, :k] = with_y
    whole[:, k, k] = sigma2 + np.einsum("mi,mi->m", beta, with_y)
    mean = np.column_stack([mu, theta[:, 0] + np.einsum("mi,mi->m", beta, mu)])
    inner = np.append(np.flatnonzero(~indicators), k)
    return mean[:, inner], whole[:, inner[:, None], inner], inner + 1


def _lower_triangular(maps: FloatArray) -> FloatArray:
    """Each map turned so that it is lower triangular with a positive diagonal."""
    _, upper = np.linalg.qr(maps[:, :, ::-1])
    R = upper[:, ::-1, ::-1]
    sign = np.where(np.einsum("mii->mi", R) < 0.0, -1.0, 1.0)
    return np.asarray(R * sign[:, :, None])


def _turned(truths: Truths, K: FloatArray) -> tuple[Truths, FloatArray]:
    """The truths of w' = K w, and M of theta = M theta' + t."""
    theta, sigma2, mu, T = truths
    y = K[:, -1, -1]
    M = np.swapaxes(K[:, :-1, :-1], 1, 2) / y[:, None, None]
    shift = -K[:, -1, :-1] / y[:, None]
    moved = np.asarray(np.linalg.solve(M, (theta - shift)[:, :, None])[:, :, 0], dtype=np.float64)
    inner = K[:, 1:-1, 1:-1]
    centre = K[:, 1:-1, 0] + np.einsum("mij,mj->mi", inner, mu)
    spread = inner @ T @ np.swapaxes(inner, 1, 2)
    return Truths(moved, sigma2 * y**2, centre, spread), M


def _noise(
    noise: LastNoise, q: int, numbers: NDArray[np.intp], levels: NDArray[np.intp], size: int
) -> FloatArray:
    """Standard deviation of every entry's noise, in the units of w', shape (P, P)."""
    unit = np.empty(size)
    unit[0], unit[numbers] = 1.0 / noise.constant, 1.0 / math.sqrt(_RADIUS * q)
    unit[levels] = 1.0 / noise.weight if len(levels) else 1.0
    sd = noise.sd * np.outer(unit, unit) * np.where(np.eye(size, dtype=bool), math.sqrt(2), 1.0)
    sd[0, 0] = 0.0
    return np.asarray(sd)
