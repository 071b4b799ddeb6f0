"""The draw of the latent statistics, against textbook formulas."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.papers import gibbs
from noisewise.analyst.regression.papers.gibbs import Moments, draw_statistics
from noisewise.analyst.regression.papers.moments import (
    CovariateMoments,
    known_moments,
    normal_factor,
    unique_entries,
)

from .gibbs_problems import MU, SIGMA2, THETA, T, defaults, statistic_moments


def observation(n=400, scale=None, known=False, missing=False, family="gaussian", seed=0):
    """Two covariates; optionally one entry known exactly and one not released."""
    P = 4
    scale = np.full((P, P), 8.0 if scale is None else scale)
    if known:
        scale[1, 2] = scale[2, 1] = 0.0
    if missing:
        scale[1, 3] = scale[3, 1] = np.inf
    scale[0, 0] = 0.0
    rows, columns = unique_entries(P)
    mean, covariance = statistic_moments(CovariateMoments.normal(MU, T), THETA, SIGMA2)
    rng = np.random.default_rng(seed)
    s = rng.multivariate_normal(n * mean, n * covariance)
    noise = np.where(np.isfinite(scale), scale, 0.0)[rows, columns] * rng.standard_normal(s.size)
    values = np.zeros((P, P))
    values[0, 0] = n
    values[rows, columns] = values[columns, rows] = s + noise
    return Observation(n, values, scale, family)


def conditional(o, omega2):
    """Mean and covariance of the statistics given the release, by textbook formulas."""
    rows, columns = unique_entries(4)
    mean, covariance = statistic_moments(CovariateMoments.normal(MU, T), THETA, SIGMA2)
    mean, covariance = o.n * mean, o.n * covariance
    seen = np.isfinite(o.scale[rows, columns])
    gain = covariance[:, seen] @ np.linalg.inv(
        covariance[np.ix_(seen, seen)] + np.diag(omega2[rows, columns][seen])
    )
    centre = mean + gain @ (o.values[rows, columns][seen] - mean[seen])
    return centre, covariance - gain @ covariance[seen]


def draw_many(o, omega2, *, fixed=None, size=6000, tries=50, start=None, seed=5):
    prior, covariates = defaults(2)
    given = covariates if fixed is None else fixed
    model = gibbs.build_model([o], prior, given, tries=tries)
    F, C = np.zeros((4, 4)), np.zeros((0, 0))
    if fixed is None:
        F, G = normal_factor(THETA, SIGMA2, MU, np.linalg.cholesky(T))
    else:
        G, C = known_moments(model.law, THETA, SIGMA2)
    row = Moments(F, G, C)
    rng = np.random.default_rng(seed)
    A = o.n * G if start is None else start
    state = gibbs.init(np.random.default_rng(0), [o], prior, given)
    state = state._replace(theta=THETA, sigma2=SIGMA2, omega2=omega2[None])
    out, counts = [], []
    for _ in range(size):
        A, *numbers = draw_statistics(rng, model, state._replace(A=A[None]), 0, row)
        out.append(A)
        counts.append(numbers)
    return np.array(out), np.array(counts)


def assert_normal(draws, centre, covariance):
    """Mean and covariance in Monte Carlo standard errors (independent draws)."""
    rows, columns = unique_entries(draws.shape[1])
    s = draws[:, rows, columns]
    varies = np.diag(covariance) > 1e-6
    np.testing.assert_allclose(s[:, ~varies], s[:, ~varies] * 0 + centre[~varies], atol=1e-5)
    s, centre, covariance = s[:, varies], centre[varies], covariance[np.ix_(varies, varies)]
    size = len(s)
    sd = np.sqrt(np.diag(covariance))
    assert (np.abs(s.mean(axis=0) - centre) < 4.5 * sd / np.sqrt(size)).all()
    z = (s - centre) / sd
    expected = covariance / np.outer(sd, sd)
    error = np.sqrt((1 + expected**2) / size)
    assert (np.abs(z.T @ z / size - expected) < 4.5 * error).all()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scale": 0.01},
        {"known": True, "missing": True},
        {"known": True, "scale": 80.0},
        {"known": True, "missing": True, "scale": 800.0},
    ],
)
def test_statistics_are_drawn_from_their_conditional(options):
    o = observation(**options)
    omega2 = np.where(np.isfinite(o.sd), o.sd, 0.0) ** 2
    omega2 *= 1 + 0.5 * np.add.outer(np.arange(4), np.arange(4))  # as with Laplace noise: unequal
    draws, counts = draw_many(o, omega2)
    assert_normal(draws, *conditional(o, omega2))
    assert (draws[:, 0, 0] == o.n).all()
    assert (draws == draws.transpose(0, 2, 1)).all()
    assert (counts[:, 2] > 0).all()
    if options.get("known"):
        np.testing.assert_allclose(draws[:, 1, 2], o.values[1, 2], atol=1e-5)


def test_statistics_with_fixed_moments():
    """With the normal law's moments handed over as moments, the conditional is the same."""
    o = observation(known=True, missing=True)
    omega2 = np.where(np.isfinite(o.sd), o.sd, 0.0) ** 2
    draws, _ = draw_many(o, omega2, fixed=CovariateMoments.normal(MU, T))
    assert_normal(draws, *conditional(o, omega2))


def test_the_check_would_notice_a_wrong_covariance():
    """Negative control: the conditional that treats the noise as 10% larger."""
    o = observation()
    omega2 = o.sd**2
    draws, _ = draw_many(o, omega2)
    with pytest.raises(AssertionError):
        assert_normal(draws, *conditional(o, 1.1 * omega2))


def test_products_of_indicators_are_constants():
    """Known entries without variance are left out of the equations, and stay what they are."""
    levels = np.random.default_rng(1).integers(3, size=5000)
    x = np.column_stack([levels == 1, levels == 2]).astype(float)
    moments = CovariateMoments.from_draws(x)
    theta = np.array([0.1, 0.5, -0.4])
    mean, _ = statistic_moments(moments, theta, SIGMA2)
    rows, columns = unique_entries(4)
    values = np.zeros((4, 4))
    values[rows, columns] = values[columns, rows] = 300 * mean
    values[0, 0] = 300
    scale = np.full((4, 4), 5.0)
    scale[0, 0] = scale[1, 2] = scale[2, 1] = 0.0
    o = Observation(300, values, scale, "gaussian")
    draws, counts = draw_many(o, o.sd**2, fixed=moments, size=300)
    assert (draws[:, 1, 2] == 0).all()
    assert counts[:, 1].sum() == 0
    assert draws[:, 3, 3].std() > 0


@pytest.mark.filterwarnings("ignore:the smallest holder has")
def test_rejection_then_slices_keep_the_truncated_law():
    """With 1 try nearly every draw comes from the elliptical slice step: the same law."""
    rng = np.random.default_rng(3)
    o = observation(n=6, scale=2.0, seed=2)
    rejected, counts = draw_many(o, o.sd**2, tries=2000, size=4000)
    start = rejected[-1]
    sliced, slice_counts = draw_many(o, o.sd**2, tries=1, size=40_000, start=start, seed=6)
    assert counts[:, 1].sum() == 0
    assert (counts[:, 0] > 0).mean() > 0.2  # there is something to reject
    assert slice_counts[:, 1].mean() > 0.2  # and the slice step is used
    assert (slice_counts[:, 0] == slice_counts[:, 1]).all()

    def features(draws):
        rows, columns = unique_entries(4)
        return np.column_stack([draws[:, rows, columns], np.linalg.slogdet(draws)[1]])

    a, b = features(rejected), features(sliced)
    batches = b.reshape(100, -1, b.shape[1]).mean(axis=1)
    error = np.sqrt(a.var(axis=0) / len(a) + batches.var(axis=0) / len(batches))
    assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) < 4.5 * error).all()
    # Negative control: projecting impossible draws, as the paper does, is another law.
    centre, covariance = conditional(o, o.sd**2)
    s = rng.multivariate_normal(centre, covariance, size=4000)
    projected = np.zeros((4000, 4, 4))
    rows, columns = unique_entries(4)
    projected[:, rows, columns] = projected[:, columns, rows] = s
    projected[:, 0, 0] = o.n
    values, vectors = np.linalg.eigh(projected)
    projected = (vectors * np.maximum(values, 1e-9)[:, None]) @ vectors.transpose(0, 2, 1)
    c = features(projected)
    error = np.sqrt(a.var(axis=0) / len(a) + c.var(axis=0) / len(c))
    assert (np.abs(a.mean(axis=0) - c.mean(axis=0)) > 6 * error).any()
