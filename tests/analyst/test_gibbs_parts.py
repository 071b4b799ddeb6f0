"""The pieces of the Gibbs kernels, each against an independent computation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from noisewise.analyst.models.moments import (
    CovariateMoments,
    general_covariance,
    general_mean,
    normal_factor,
    normal_statistic_moments,
    statistic_moments,
    unique_entries,
)
from noisewise.analyst.observation import Observation
from noisewise.analyst.priors import NIGPrior, NIWPrior, NormalInverseGammaIndependent
from noisewise.analyst.samplers import gibbs, gibbs_interweave, gibbs_linalg, gibbs_prior
from noisewise.analyst.samplers import gibbs_random as random
from noisewise.analyst.samplers.gibbs_statistics import draw_statistics
from noisewise.analyst.samplers.gibbs_update import draw_covariates, prepare_covariates

# --- random numbers -------------------------------------------------------------------------------


def stream(seed, counter=0):
    rng = np.zeros(4, dtype=np.uint64)
    random.seed_stream(rng, random.chain_keys(seed, 1)[0], counter)
    return rng


def many(function, *arguments, seed=1, size=20_000):
    rng = stream(seed)
    return np.array([function(rng, *arguments) for _ in range(size)])


def p_value(sample, law):
    return stats.kstest(sample, law.cdf).pvalue


def test_normals():
    rng, out = stream(1), np.zeros(50_001)
    random.fill_normal(rng, out, out.size)
    assert p_value(out, stats.norm()) > 1e-3
    assert p_value(out, stats.norm(scale=1.06)) < 1e-3  # it would notice
    pairs = out[:-1].reshape(-1, 2)
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 4.5 / np.sqrt(len(pairs))


@pytest.mark.parametrize("shape", [0.3, 1.0, 2.5, 300.0])
def test_gammas(shape):
    sample = many(random.gamma, shape)
    assert p_value(sample, stats.gamma(shape)) > 1e-3
    assert p_value(sample, stats.gamma(shape, scale=1 + 0.2 / np.sqrt(shape))) < 1e-3


def test_chi():
    assert p_value(many(random.chi, 7.0), stats.chi(7)) > 1e-3


@pytest.mark.parametrize("q", [0.0, 0.2, 1.0, 30.0])
def test_laplace_variance_is_the_inverse_gaussian_of_the_paper(q):
    """Item 10: 1 / omega2 is inverse Gaussian with mean 1/q and shape 1 (on unit scale)."""
    sample = many(random.laplace_variance, q)
    if q == 0:  # the limit
        assert p_value(sample, stats.chi2(1)) > 1e-3
        return
    law = stats.invgauss(1 / q)  # scipy: mean mu = 1/q, shape 1
    assert p_value(1 / sample, law) > 1e-3
    assert p_value(1 / sample, stats.invgauss(1.5 / q, scale=1.2)) < 1e-3


def test_laplace_is_stationary_under_the_augmentation():
    """r ~ Laplace, t | r, r' | t ~ N(0, t): r' is Laplace again."""
    rng = np.random.default_rng(2)
    r = rng.laplace(size=20_000)
    own = stream(3)
    t = np.array([random.laplace_variance(own, abs(value)) for value in r])
    assert p_value(np.sqrt(t) * rng.standard_normal(t.size), stats.laplace()) > 1e-3


def test_streams_differ_by_key_and_counter():
    words = {tuple(stream(seed, counter)) for seed in range(20) for counter in range(-1, 20)}
    assert len(words) == 20 * 21


# --- linear algebra -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 9, 16, 33])
def test_linear_algebra(size):
    rng = np.random.default_rng(size)
    root = rng.standard_normal((size, size))
    A = root @ root.T + 0.1 * np.eye(size)
    Y = root + root.T
    L = A.copy()
    assert gibbs_linalg.cholesky(L, size)
    np.testing.assert_allclose(np.tril(L), np.linalg.cholesky(A), atol=1e-12)
    L = np.tril(L)
    x = rng.standard_normal(size)
    for solve, matrix in (
        (gibbs_linalg.solve_lower, L),
        (gibbs_linalg.solve_lower_transposed, L.T),
    ):
        y = x.copy()
        solve(L, y, size)
        np.testing.assert_allclose(matrix @ y, x, atol=1e-9)
    out, scratch = np.zeros((size, size)), np.zeros((size, size))
    for function, expected in (
        (gibbs_linalg.congruence, root @ Y @ root.T),
        (gibbs_linalg.congruence_transposed, root.T @ Y @ root),
    ):
        function(root, Y, out, scratch, size)
        np.testing.assert_allclose(out, expected, atol=1e-10)
    gibbs_linalg.congruence_lower(L, Y, out, scratch, size)
    np.testing.assert_allclose(out, L @ Y @ L.T, atol=1e-10)
    gibbs_linalg.invert_lower(L, scratch, size)
    np.testing.assert_allclose(np.tril(scratch), np.linalg.inv(L), atol=1e-8)
    gibbs_linalg.gram_of_lower(scratch, out, size)
    np.testing.assert_allclose(out, np.linalg.inv(A), rtol=1e-6, atol=1e-8)
    X = np.tril(root)
    expected = X @ np.linalg.inv(L)
    gibbs_linalg.right_solve_lower(X, L, size)
    np.testing.assert_allclose(np.tril(X), expected, atol=1e-8)


@pytest.mark.parametrize("size", [1, 2, 3, 6, 21, 50])
@pytest.mark.parametrize("kind", ["random", "diagonal", "equal", "rank one"])
def test_eigen(size, kind):
    rng = np.random.default_rng(size)
    root = rng.standard_normal((size, size))
    A = {
        "random": root @ root.T,
        "diagonal": np.diag(rng.uniform(1, 2, size)),
        "equal": np.full((size, size), 0.3) + 0.7 * np.eye(size),
        "rank one": np.outer(root[0], root[0]),
    }[kind]
    V, values = np.zeros((size, size)), np.zeros(size)
    vectors = [np.zeros(size) for _ in range(3)]
    assert gibbs_linalg.eigen(A.copy(), V, values, *vectors, size)
    np.testing.assert_allclose(V @ V.T, np.eye(size), atol=1e-12)
    np.testing.assert_allclose((V.T * values) @ V, A, atol=1e-11 * max(1, np.abs(A).max()))


def test_not_positive_definite_is_noticed():
    assert not gibbs_linalg.cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]), 2)
    assert not gibbs_linalg.cholesky(np.full((5, 5), np.nan), 5)


# --- the draw of the statistics -------------------------------------------------------------------

MU, T = np.array([0.2, -0.3]), np.array([[0.3, 0.1], [0.1, 0.4]])
THETA, SIGMA2 = np.array([0.1, 0.5, -0.4]), 0.3


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
    mean, covariance = normal_statistic_moments(MU, T, THETA, SIGMA2)
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
    mean, covariance = normal_statistic_moments(MU, T, THETA, SIGMA2)
    mean, covariance = o.n * mean, o.n * covariance
    seen = np.isfinite(o.scale[rows, columns])
    gain = covariance[:, seen] @ np.linalg.inv(
        covariance[np.ix_(seen, seen)] + np.diag(omega2[rows, columns][seen])
    )
    centre = mean + gain @ (o.values[rows, columns][seen] - mean[seen])
    return centre, covariance - gain @ covariance[seen]


def draw_many(o, omega2, *, update="dense", fixed=None, size=6000, tries=50, start=None, seed=5):
    holders = gibbs.prepare_holders([o], update=update)
    if fixed is not None:
        fixed = gibbs_prior.prepare_moments(fixed, 2)
        holders = gibbs_prior._without_constants(holders, fixed)
    work, large = gibbs.workspace(holders, normal=fixed is None)
    if fixed is None:
        normal_factor(THETA, SIGMA2, MU, np.linalg.cholesky(T), work.F, work.G)
        work.m[:] = work.F[:, 0]
        if large is not None:
            from noisewise.analyst.samplers.gibbs_statistics import decompose

            decompose(work, large)
    else:
        general_mean(fixed.eta, THETA, SIGMA2, work.G)
        general_covariance(
            fixed.eta, fixed.xi, fixed.positions_v, fixed.positions_w, THETA, SIGMA2,
            work.once, work.g, work.covariance,
        )  # fmt: skip
    rng = stream(seed)
    A = o.n * work.G if start is None else start.copy()
    out, counts = [], []
    for _ in range(size):
        counts.append(
            draw_statistics(
                rng, 0, holders, fixed, large, THETA, SIGMA2, A, omega2, tries, 1e-10, work
            )
        )
        out.append(A.copy())
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
    ("update", "options"),
    [
        ("dense", {}),
        ("dense", {"known": True, "missing": True}),
        ("cg_jacobi", {"known": True, "missing": True}),
        ("cg_eigen", {"known": True}),
    ],
)
def test_statistics_are_drawn_from_their_conditional(update, options):
    o = observation(**options)
    omega2 = np.where(np.isfinite(o.sd), o.sd, 0.0) ** 2
    omega2 *= 1 + 0.5 * np.add.outer(np.arange(4), np.arange(4))  # as with Laplace noise: unequal
    draws, counts = draw_many(o, omega2, update=update)
    assert_normal(draws, *conditional(o, omega2))
    assert (draws[:, 0, 0] == o.n).all()
    assert (draws == draws.transpose(0, 2, 1)).all()
    assert (counts[:, 2] > 0).all() == update.startswith("cg")
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


# --- conjugate draws ------------------------------------------------------------------------------


def gram(n=60, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.multivariate_normal(MU, T, size=n)
    y = THETA[0] + x @ THETA[1:] + np.sqrt(SIGMA2) * rng.standard_normal(n)
    w = np.column_stack([np.ones(n), x, y])
    return w.T @ w


def small_work():
    return gibbs.workspace(gibbs.prepare_holders([observation()]))[0]


def test_regression_is_drawn_from_the_normal_inverse_gamma_law():
    A, work, rng = gram(), small_work(), stream(7)
    prior = NIGPrior([0.1, 0.0, -0.2], np.diag([1.0, 2.0, 0.5]), 2.0, 0.5)
    theta, sigma2 = np.zeros(3), np.array(1.0)
    arrays = gibbs.prepare_regression(prior, 2)
    draws = []
    for _ in range(10_000):
        gibbs.draw_regression(rng, A, arrays, theta, sigma2, work)
        draws.append([*theta, sigma2[()]])
    draws = np.array(draws)
    Lam = prior.Lam0 + A[:3, :3]
    mu = np.linalg.solve(Lam, prior.Lam0 @ prior.mu0 + A[:3, 3])
    a = prior.a0 + A[0, 0] / 2
    b = prior.b0 + 0.5 * (A[3, 3] + prior.mu0 @ prior.Lam0 @ prior.mu0 - mu @ Lam @ mu)
    assert p_value(draws[:, 3], stats.invgamma(a, scale=b)) > 1e-3
    for i in range(3):
        law = stats.t(2 * a, loc=mu[i], scale=np.sqrt(b / a * np.linalg.inv(Lam)[i, i]))
        assert p_value(draws[:, i], law) > 1e-3
    z = (draws[:, :3] - mu) / np.sqrt(draws[:, 3:])
    np.testing.assert_allclose(z.T @ z / len(z), np.linalg.inv(Lam), atol=0.06 / Lam[0, 0] * 5)


def test_regression_with_an_independent_prior():
    """Two Gibbs steps of the semi-conjugate law: against a grid over sigma2."""
    A, work, rng = gram(), small_work(), stream(8)
    prior = NormalInverseGammaIndependent([0.1, 0.0, -0.2], np.diag([0.1, 0.05, 0.2]), 2.0, 0.5)
    theta, sigma2 = np.zeros(3), np.array(1.0)
    arrays = gibbs.prepare_regression(prior, 2)
    draws = []
    for _ in range(20_000):
        gibbs.draw_regression(rng, A, arrays, theta, sigma2, work)
        draws.append([*theta, sigma2[()]])
    draws = np.array(draws)[50:]
    grid = np.exp(np.linspace(np.log(0.05), np.log(2.0), 2000))
    n, S, z, u = A[0, 0], A[:3, :3], A[:3, 3], A[3, 3]
    precision = np.linalg.inv(prior.V0)
    log_weight, means = [], []
    for value in grid:
        Lam = precision + S / value
        shift = precision @ prior.mu0 + z / value
        mean = np.linalg.solve(Lam, shift)
        means.append(mean)
        log_weight.append(
            -(prior.a0 + n / 2) * np.log(value) - prior.b0 / value - u / (2 * value)
            - 0.5 * np.linalg.slogdet(Lam)[1] + 0.5 * mean @ shift
        )  # fmt: skip
    weight = np.exp(np.array(log_weight) - max(log_weight))
    weight /= weight.sum()
    expected = np.append(weight @ np.array(means), weight @ grid)
    batches = draws[:19_900].reshape(100, -1, 4).mean(axis=1)
    assert (np.abs(batches.mean(axis=0) - expected) < 4.5 * batches.std(axis=0) / 10).all()


def test_covariates_are_drawn_from_the_normal_inverse_wishart_law():
    A, work, rng = gram(n=12), small_work(), stream(9)
    prior = NIWPrior([0.5, -0.5], 3.0, np.array([[1.0, 0.3], [0.3, 2.0]]), 5.0)
    arrays, Psi = prepare_covariates(prior, 2), np.array(prior.Psi)
    mu, L = np.zeros(2), np.zeros((2, 2))
    means, covariances = [], []
    for _ in range(10_000):
        draw_covariates(rng, A, arrays, mu, L, Psi, work)
        means.append(mu.copy())
        covariances.append(np.tril(L) @ np.tril(L).T)
    means, covariances = np.array(means), np.array(covariances)
    n = A[0, 0]
    lam_n, nu_n = prior.lam + n, prior.nu + n
    m_n = (prior.lam * prior.m + A[0, 1:3]) / lam_n
    Psi_n = (
        prior.Psi + A[1:3, 1:3] + prior.lam * np.outer(prior.m, prior.m)
        - lam_n * np.outer(m_n, m_n)
    )  # fmt: skip
    for c in (np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1.0, -2.0])):
        quadratic = np.einsum("nab,a,b->n", covariances, c, c)
        # c'Tc is inverse gamma with nu - k + 1 degrees of freedom; 1 / c'T⁻¹c with nu.
        law = stats.invgamma((nu_n - 1) / 2, scale=c @ Psi_n @ c / 2)
        assert p_value(quadratic, law) > 1e-3
        inverse = np.einsum("nab,a,b->n", np.linalg.inv(covariances), c, c)
        law = stats.gamma(nu_n / 2, scale=2 * (c @ np.linalg.inv(Psi_n) @ c))
        assert p_value(inverse, law) > 1e-3
        scaled = (means - m_n) @ c * np.sqrt(lam_n / quadratic)
        assert p_value(scaled, stats.norm()) > 1e-3


# --- moves along orbits ---------------------------------------------------------------------------


def joint_draws(rng, size, prior, covariates, n, scale):
    """(theta, sigma2, mu, L, A, released) from the model with real rows: no approximation."""
    k = covariates.k
    root = np.linalg.cholesky(np.linalg.inv(covariates.Psi))
    for _ in range(size):
        sigma2 = prior.b0 / rng.gamma(prior.a0)
        theta_root = np.linalg.inv(np.linalg.cholesky(prior.Lam0)).T
        theta = prior.mu0 + np.sqrt(sigma2) * theta_root @ rng.standard_normal(k + 1)
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
        yield theta, np.array(sigma2), mu, L, np.array(A), np.array(released)


@pytest.mark.parametrize("mistake", [None, "covariates", "regression"])
def test_moves_along_orbits_keep_the_joint_law(mistake):
    """Draw everything from the model, move, and the marginals must be what they were.

    Getting it right (Geweke 2004). The negative controls change one exponent.
    """
    precision = np.diag([1.0, 2.0, 1.5, 1.0]) + 0.3
    prior = NIGPrior([0.2, 0.5, -0.5, 0.1], precision, 4.0, 1.0)
    spread = np.array([[2.0, 0.5, 0.2], [0.5, 1.5, -0.3], [0.2, -0.3, 1.0]])
    covariates = NIWPrior([0.3, -0.3, 0.5], 2.0, spread, 8.0)
    n, scale = (20, 25), 6.0
    rng = np.random.default_rng(11)
    wrong = covariates.nu + (2.0 if mistake == "covariates" else 0.0)
    arrays = prepare_covariates(covariates, 3)._replace(nu=wrong)
    regression = gibbs.prepare_regression(prior, 3)
    if mistake == "regression":
        regression = regression._replace(a0=regression.a0 + 1.0)
    own = stream(12)
    before, after = [], []

    def features(theta, sigma2, mu, L, A):
        T = np.tril(L) @ np.tril(L).T
        return [
            *theta, np.log(sigma2), *mu, *np.log(np.diag(T)), T[1, 0], T[2, 0], T[2, 1],
            np.linalg.slogdet(A[0])[1], np.linalg.slogdet(A[1])[1],
        ]  # fmt: skip

    holders = None
    for theta, sigma2, mu, L, A, released in joint_draws(rng, 2500, prior, covariates, n, scale):
        before.append(features(theta, sigma2, mu, L, A))
        if holders is None:
            noise = np.full((5, 5), scale)
            noise[0, 0] = 0.0
            values = (released + released.transpose(0, 2, 1)) / 2
            holders = gibbs.prepare_holders(
                [Observation(m, v, noise, "gaussian") for m, v in zip(n, values, strict=True)]
            )
            orbits = gibbs_interweave.prepare_orbits(holders.scale, covariates=True)
            omega2 = holders.scale**2
        current = holders._replace(values=released)
        for _ in range(3):
            gibbs_interweave.sweep_all(
                own, current, regression, arrays, theta, sigma2, mu, L,
                np.array(covariates.Psi), A, omega2, orbits,
            )  # fmt: skip
        np.testing.assert_allclose(A, A.transpose(0, 2, 1))
        after.append(features(theta, sigma2, mu, L, A))
    before, after = np.array(before), np.array(after)
    assert (np.abs(after - before) > 1e-3).mean() > 0.9  # everything moved
    p = [stats.ks_2samp(before[:, i], after[:, i]).pvalue for i in range(before.shape[1])]
    if mistake is None:
        assert min(p) > 1e-3
    else:
        assert min(p) < 1e-6


def test_columns_with_known_entries_do_not_move():
    scale = np.full((1, 4, 4), 3.0)
    scale[0, 0, 0] = scale[0, 1, 2] = scale[0, 2, 1] = 0.0
    assert gibbs_interweave.prepare_orbits(scale, covariates=True).movable.tolist() == [
        False, False, False, True
    ]  # fmt: skip
    assert gibbs_interweave.prepare_orbits(scale, covariates=False).movable.sum() == 1
