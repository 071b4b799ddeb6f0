"""Moves along orbits keep the joint law."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from noisewise.analyst.regression.papers.moments import normal_factor
from noisewise.analyst.regression.papers.orbits import (
    line,
    log_density,
    movable_columns,
    regression_of,
    rows_apart,
    sweep,
)
from noisewise.analyst.regression.papers.shared import prepare_covariates, prepare_regression
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior, NormalInverseGammaIndependent


def joint_draws(rng, size, prior, covariates, n, scale):
    """(theta, sigma2, mu, L, A, released) from the model with real rows: no approximation."""
    k = covariates.k
    root = np.linalg.cholesky(np.linalg.inv(covariates.Psi))
    for _ in range(size):
        theta, sigma2 = draw_prior(rng, prior)
        z = root @ rng.standard_normal((k, int(covariates.nu)))
        L = np.linalg.cholesky(np.linalg.inv(z @ z.T))
        mu = covariates.m + L @ rng.standard_normal(k) / np.sqrt(covariates.lam)
        A, released = [], []
        for rows in n:
            x = mu + rng.standard_normal((rows, k)) @ L.T
            y = theta[0] + x @ theta[1:] + np.sqrt(sigma2) * rng.standard_normal(rows)
            w = np.column_stack([np.ones(rows), x, y])
            A.append(w.T @ w)
            noise = np.triu(rng.standard_normal(A[-1].shape)) * scale
            noise += np.triu(noise, 1).T
            noise[0, 0] = 0.0
            released.append(A[-1] + noise)
        yield theta, sigma2, mu, L, np.array(A), np.array(released)


def draw_prior(rng, prior):
    """(theta, sigma2) from either kind of prior."""
    sigma2 = prior.b0 / rng.gamma(prior.a0)
    if isinstance(prior, NIGPrior):
        root = np.sqrt(sigma2) * np.linalg.inv(np.linalg.cholesky(prior.Lam0)).T
    else:
        root = np.linalg.cholesky(prior.V0)
    return prior.mu0 + root @ rng.standard_normal(prior.mu0.size), sigma2


PRECISION = np.diag([1.0, 2.0, 1.5, 1.0]) + 0.3
CENTRE = [0.2, 0.5, -0.5, 0.1]
JOINT = NIGPrior(CENTRE, PRECISION, 4.0, 1.0)
INDEPENDENT = NormalInverseGammaIndependent(CENTRE, 0.3 * np.linalg.inv(PRECISION), 4.0, 1.0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("prior", "method", "mistake"),
    [
        (JOINT, "update", None),
        (JOINT, "update", "covariates"),
        (JOINT, "update", "regression"),
        (INDEPENDENT, "update", None),
        (INDEPENDENT, "update", "regression"),
        (JOINT, "prior", None),
        (INDEPENDENT, "prior", None),
        (INDEPENDENT, "prior", "regression"),
    ],
)
def test_moves_along_orbits_keep_the_joint_law(prior, method, mistake):
    """Draw everything from the model, move, and the marginals must be what they were.

    Getting it right (Geweke 2004). The negative controls change one exponent.
    """
    spread = np.array([[2.0, 0.5, 0.2], [0.5, 1.5, -0.3], [0.2, -0.3, 1.0]])
    covariates = NIWPrior([0.3, -0.3, 0.5], 2.0, spread, 8.0)
    n, scale = (20, 25), 6.0
    rng = np.random.default_rng(11)
    wrong = covariates.nu + (2.0 if mistake == "covariates" else 0.0)
    arrays = prepare_covariates(covariates, 3)._replace(nu=wrong)
    regression = prepare_regression(prior, 3)
    if mistake == "regression":
        regression = regression._replace(a0=regression.a0 + 1.0)
    own = np.random.default_rng(12)
    before, after = [], []

    def features(theta, sigma2, mu, L, A):
        T = np.tril(L) @ np.tril(L).T
        return [
            *theta, np.log(sigma2), np.linalg.slogdet(A[0])[1], np.linalg.slogdet(A[1])[1],
            *mu, *np.log(np.diag(T)), T[1, 0], T[2, 0], T[2, 1],
        ]  # fmt: skip

    noise = np.full((5, 5), scale)
    noise[0, 0] = 0.0
    scales = np.stack([noise] * len(n))
    movable, Psi = movable_columns(scales), np.array(covariates.Psi)
    for *start, released in joint_draws(rng, 2500, prior, covariates, n, scale):
        theta, sigma2, mu, L, A = start
        before.append(features(theta, sigma2, mu, L, A))
        for turn in (0, 1, 0, 1):
            moves = movable.copy()
            if method == "update":
                moves[1:4] &= np.arange(1, 4) % 2 == turn
                standard = mu, L
            else:  # the covariates stay, standardised by their own statistics
                moves[:4] = False
                root = np.linalg.cholesky(A.sum(axis=0)[:4, :4])
                standard = root[1:, 0] / root[0, 0], root[1:, 1:] / root[0, 0]
            F, _ = normal_factor(theta, sigma2, *standard)
            F, A = sweep(own, regression, arrays, Psi, moves, released, scales, scales**2, F, A)
            theta, sigma2 = regression_of(F)
            if method == "update":
                mu, L = F[1:4, 0].copy(), F[1:4, 1:4].copy()
        np.testing.assert_allclose(A, A.transpose(0, 2, 1))
        after.append(features(theta, sigma2, mu, L, A))
    moving = slice(None) if method == "update" else slice(7)
    before, after = np.array(before)[:, moving], np.array(after)[:, moving]
    assert (np.abs(after - before) > 1e-3).mean() > 0.9  # everything moved
    p = [stats.ks_2samp(before[:, i], after[:, i]).pvalue for i in range(before.shape[1])]
    if mistake is None:
        assert min(p) > 1e-3
    else:
        assert min(p) < 1e-6


@pytest.mark.parametrize("prior", [JOINT, INDEPENDENT])
def test_the_density_along_a_move_is_that_of_its_definition(prior):
    """prior(phi) |dphi / dF| times the noise's density, by SciPy and by differences."""
    rng = np.random.default_rng(5)
    covariates = NIWPrior([0.3, -0.3, 0.5], 2.0, np.diag([2.0, 1.5, 1.0]) + 0.2, 8.0)
    ((theta, sigma2, mu, L, A, released),) = joint_draws(rng, 1, prior, covariates, (20,), 6.0)
    F, _ = normal_factor(theta, sigma2, mu, L)
    B = np.linalg.solve(F, np.linalg.solve(F, A[0]).T)
    below, triangle = np.tril_indices(5), np.tril_indices(3)

    def parameters(F):
        theta = np.linalg.solve(F[:4, :4].T, F[4, :4])
        T = F[1:4, 1:4] @ F[1:4, 1:4].T
        return np.concatenate([F[1:4, 0], T[triangle], theta, [F[4, 4] ** 2]])

    def direct(F):
        mu, theta, sigma2 = F[1:4, 0], *regression_of(F)
        T = F[1:4, 1:4] @ F[1:4, 1:4].T
        spread = sigma2 * np.linalg.inv(prior.Lam0) if prior is JOINT else prior.V0
        jacobian = []
        for a, b in zip(*below, strict=True):
            step = np.zeros((5, 5))
            step[a, b] = 1e-6
            jacobian.append((parameters(F + step) - parameters(F - step)) / 2e-6)
        return (
            stats.invgamma.logpdf(sigma2, prior.a0, scale=prior.b0)
            + stats.multivariate_normal.logpdf(theta, prior.mu0, spread)
            + stats.invwishart.logpdf(T, covariates.nu, covariates.Psi)
            + stats.multivariate_normal.logpdf(mu, covariates.m, T / covariates.lam)
            + np.linalg.slogdet(np.array(jacobian)[1:])[1]
            + stats.norm.logpdf(released[0][below], (F @ B @ F.T)[below], 6.0)[1:].sum()
        )

    law = np.zeros((5, 5))
    law[:4, :4] = prepare_covariates(covariates, 3).bordered
    law[1:4, 1:4] += covariates.Psi
    weight = np.full((1, 5, 5), 6.0**-2)
    weight[0, 0, 0] = 0.0
    regression, f = prepare_regression(prior, 3), np.linalg.inv(F)
    for i in range(1, 5):
        for first, scaled in [(b, 0) for b in range(i)] + [(i, 1)] + [(1, 4)] * (i == 4):
            v = np.zeros(5)
            v[first : first + max(scaled, 1)] = F[i, first : i + 1] if scaled else 1.0
            along = line(regression, law, 8.0, B[None], released, weight, F, f, i, v, scaled)
            for x in (-0.7, 0.4):
                moved = F.copy()
                moved[i] += (np.expm1(x) if scaled else x) * v
                expected = direct(moved) - direct(F) + scaled * x
                found = log_density(along, x) - log_density(along, 0.0)
                assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_many_covariates_move_in_turn():
    assert rows_apart(0) == rows_apart(11) == 1
    assert rows_apart(99) == 16


def test_columns_with_known_entries_do_not_move():
    scale = np.full((1, 4, 4), 3.0)
    scale[0, 0, 0] = scale[0, 1, 2] = scale[0, 2, 1] = 0.0
    assert movable_columns(scale).tolist() == [False, False, False, True]
