"""What is wrong in Zhang, Rubinstein & Dimitrakakis (2016), shown by computation.

Each test has the number that the paper's statement gives and one that contradicts it, and, where
there is a right statement, shows that it holds. docs/networks.md refers to these tests.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import special, stats

from studies.zhang2016.mechanisms import discrete_laplace
from studies.zhang2016.not_private import per_attribute_truncation


def log_pmf(z, scale):
    """Of discrete Laplace noise."""
    return -np.abs(z) / scale + math.log(math.tanh(0.5 / scale))


def walsh(bits):
    """The matrix (-1)^|γ ∩ a| of all sets γ and cells a of so many bits."""
    codes = np.arange(1 << bits)
    return (-1) ** np.array([[(g & a).bit_count() for a in codes] for g in codes])


# --- Theorem 1 ------------------------------------------------------------------------------------


def kl_beta(a, b, c, d):
    """KL divergence of Beta(a, b) from Beta(c, d)."""
    return (
        special.betaln(c, d)
        - special.betaln(a, b)
        + (a - c) * special.psi(a)
        + (b - d) * special.psi(b)
        + (c - a + d - b) * special.psi(a + b)
    )


def test_theorem_1_bounds_the_expected_divergence_by_something_smaller():
    """ln[(α+n+1)(β+n+1)] (n/2) exp(-nε/2|I|) vanishes exponentially fast in ε; noise doesn't."""
    n, nodes = 1000, 1
    for K in (20, 30):  # n ε / 2|I|
        scale = n / K
        rng = np.random.default_rng(16)
        noise = discrete_laplace(rng, scale, (2, 20_000))
        z = np.clip(n / 2 + noise, 0, n)
        kl = kl_beta(1 + n / 2, 1 + n / 2, 1 + z[0], 1 + z[1])
        printed = math.log((1 + n + 1) ** 2) * n / 2 * math.exp(-K)
        mean, error = kl.mean(), kl.std() / len(kl) ** 0.5
        assert mean - 6 * error > 1000 * printed, (nodes, K)
    # and the final rate [1 - exp(-nε/2|I|)] grows with ε, from 0 where there is no information
    assert 1 - math.exp(-0.001) < 1 - math.exp(-20)


# --- The Fourier mechanism ------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [3, 5, 8])
def test_remark_1_the_power_of_two_cancels(nodes):
    """Noise of a cell after projection doesn't depend on |I|, but through |N|.

    The coefficients <f_γ, h> and the projections C^J(f_γ) are built as printed, over all 2^|I|
    cells. Noise of scale b 2^{-|I|/2} on coefficients is noise of variance 2b²/2^|J| on cells.
    """
    cells = 1 << nodes
    basis = walsh(nodes) / 2 ** (nodes / 2)
    J = 0b11  # a node and its parent
    sub = [g for g in range(cells) if g & ~J == 0]
    marginal = np.zeros((4, cells))
    marginal[np.arange(cells) & J, np.arange(cells)] = 1
    rebuild = marginal @ basis[sub].T  # (cells of J, coefficients)
    h = np.random.default_rng(nodes).integers(0, 9, cells)
    np.testing.assert_allclose(rebuild @ (basis[sub] @ h), marginal @ h)  # Theorem 2
    b = 7.0  # 2|N|/ε
    variance = (rebuild**2).sum(axis=1) * 2 * (b * 2 ** (-nodes / 2)) ** 2
    np.testing.assert_allclose(variance, 2 * b**2 / 4)
    assert (b * 2 ** (-nodes / 2)) ** 2 * 2 < variance.min()  # what Remark 1 compares instead


def test_the_closure_of_the_parents_alone_does_not_determine_a_table():
    """Printed: the union of all j ≤ π_i. Naive Bayes: ∅ and {y}. Two tables, one set of values."""
    one, other = np.array([2, 0, 0, 2]), np.array([0, 2, 2, 0])  # cells (y, x)
    coefficients = walsh(2)  # bit 1 is y, bit 0 is x
    parents_only = [0b00, 0b10]
    np.testing.assert_array_equal(
        (coefficients @ one)[parents_only], (coefficients @ other)[parents_only]
    )
    families = [0b00, 0b10, 0b01, 0b11]
    assert np.any((coefficients @ one)[families] != (coefficients @ other)[families])
    assert len(families) == 2 * 1 + 2  # what the experiment counts for d = 1


@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.01])
def test_retrying_until_nothing_is_negative_costs_up_to_twice_epsilon(epsilon):
    """One binary node, n public, its parity count with noise of scale 1/ε: ε-private as it is.

    All outputs and all neighbouring counts are enumerated.
    """
    n = 60 if epsilon >= 0.1 else 2000
    y = np.arange(n + 1)  # kept: both the count and n minus it are not negative
    laws = np.array([log_pmf(y - c, 1 / epsilon) for c in range(n + 1)])
    once = np.abs(np.diff(laws, axis=0)).max()
    assert once == pytest.approx(epsilon)
    kept = laws - special.logsumexp(laws, axis=1, keepdims=True)
    loss = np.abs(np.diff(kept, axis=0)).max()
    q = math.exp(-epsilon)
    if n * epsilon >= 20:
        assert loss == pytest.approx(epsilon + math.log(1 + q - q * q), rel=1e-6)
    assert 1.15 * epsilon < loss <= 2 * epsilon * (1 + 1e-12)
    if epsilon <= 0.01:
        assert loss > 1.97 * epsilon


def test_retrying_on_a_network_of_two_nodes():
    """Parities of {y}, {x}, {y, x} with noise; kept if no cell is negative. All neighbours."""
    epsilon, n = 0.5, 4
    signs = walsh(2)
    tables = [t for t in itertools.product(range(n + 1), repeat=4) if sum(t) == n]
    odd = {t: ((n - signs @ np.array(t)) // 2)[1:] for t in tables}
    scale = 2 / epsilon  # two parities change at most
    reach = 60
    grid = np.stack(np.meshgrid(*[np.arange(-reach, n + reach)] * 3, indexing="ij"), -1).reshape(
        -1, 3
    )
    coefficients = np.concatenate([np.full((len(grid), 1), n), n - 2 * grid], axis=1)
    kept = grid[(coefficients @ signs).min(axis=1) >= 0]
    laws = {t: log_pmf(kept - odd[t], scale).sum(axis=1) for t in tables}
    normal = {t: law - special.logsumexp(law) for t, law in laws.items()}
    pairs = [
        (s, t) for s, t in itertools.permutations(tables, 2) if np.abs(np.subtract(s, t)).sum() == 2
    ]
    assert max(np.abs(odd[s] - odd[t]).sum() for s, t in pairs) == 2
    assert max(np.abs(laws[s] - laws[t]).max() for s, t in pairs) <= epsilon * (1 + 1e-9)
    worst = max(np.abs(normal[s] - normal[t]).max() for s, t in pairs)
    assert epsilon * 1.05 < worst <= 2 * epsilon


# --- Posterior sampling ---------------------------------------------------------------------------


def clamped_loss(n, omega):
    """Log ratio of P(draw is moved to ω) for n - 1 and for n ones among n records."""
    return math.log(special.betainc(n, 2, omega)) - math.log(special.betainc(n + 1, 1, omega))


def truncated_loss(n, omega):
    """Largest log ratio of truncated posterior densities of the same neighbours."""
    v = np.linspace(omega, 1 - omega, 2001)
    low, high = [], []
    for a, b in ((n, 2), (n + 1, 1)):
        mass = special.betainc(a, b, 1 - omega) - special.betainc(a, b, omega)
        density = stats.beta.logpdf(v, a, b) - math.log(mass)
        (low if b == 2 else high).append(density)
    return np.abs(low[0] - high[0]).max()


def test_a_clamped_sample_has_no_finite_privacy_loss():
    omega = 0.2
    claimed = 2 * math.log((1 - omega) / omega)
    losses = [clamped_loss(n, omega) for n in (10, 100, 400)]
    assert losses[0] > claimed
    np.testing.assert_allclose(
        losses, [math.log((n + 1 - n * omega) / omega) for n in (10, 100, 400)], rtol=1e-8
    )  # log n without end
    assert max(truncated_loss(n, omega) for n in (1, 2, 10, 100)) <= claimed


def test_the_lipschitz_constant_counts_one_attribute():
    """2‖L‖∞ is for records that differ in one attribute. Records differ in all of them.

    |I| independent nodes, the posteriors of n zeros and of n - 1 zeros and a one in every node,
    both truncated for `per_attribute_truncation`. The log density ratio at a corner is |I| times
    that of a node, which comes near to ε.
    """
    epsilon, nodes, n = 1.0, 17, 500
    omega = per_attribute_truncation(epsilon).omega
    assert 2 * math.log((1 - omega) / omega) == pytest.approx(epsilon)
    one_node = truncated_loss(n, omega)
    assert 0.99 * epsilon < one_node <= epsilon
    assert nodes * one_node > 16.8 * epsilon


def test_theorem_4_2_says_nothing_of_a_binary_node():
    """M ≥ C ln C with C the largest likelihood over the marginal one. For a binary node C ≥ 2."""
    for p in (0.5, 0.2, 0.01):  # marginal probability of a one, whatever the prior
        C = max(1 / p, 1 / (1 - p))
        assert C >= 2
        assert math.sqrt(C * math.log(C) / 2) >= 0.83
    two_nodes = 4
    assert math.sqrt(two_nodes * math.log(two_nodes) / 2) > 1  # every mechanism is (0, 1)-private


# --- MAP ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("omega", "at_least"), [(0.05, 4), (0.01, 15), (0.001, 100)])
def test_the_density_as_score_is_not_private(omega, at_least):
    """Algorithm 3 on [ω, 1-ω] with Δ = √L: one record changes the density by about 1/ω.

    n ones, or n - 1 ones and a zero: the density at the upper end is n/(1-ω) or 1/ω + 1/(1-ω) less,
    while Δ grows like the root of log(1/ω).
    """
    epsilon, n = 1.0, 20_000
    delta = math.sqrt(2 * math.log((1 - omega) / omega))
    v = (1 - omega) * (1 - np.geomspace(1e-9, 1 - omega / (1 - omega), 20_001))
    v, width = v[:-1], -np.diff(v)  # fine near the upper end, where the densities are
    laws = []
    for zeros in (0, 1):
        log_density = (n - zeros) * np.log(v / (1 - omega)) + zeros * np.log1p(-v)
        density = np.exp(log_density) / (np.exp(log_density) * width).sum()
        score = epsilon * density / (2 * delta)
        laws.append(score - special.logsumexp(score, b=width))
    loss = np.abs(laws[0] - laws[1]).max()
    assert loss > at_least * epsilon


def test_units_change_the_density_mechanism():
    """The same parameter in per cent: scores are a hundredth, and the estimate nearly the prior."""
    v = np.linspace(0.001, 0.999, 9999)
    score = stats.beta.pdf(v, 91, 11)
    near = np.abs(v - 0.9) < 0.05
    share = [special.softmax(factor * score)[near].sum() for factor in (1, 0.01)]
    assert share[0] > 0.9
    assert share[1] < 0.2


def test_a_finite_set_has_the_sensitivity_that_densities_lack():
    """Posterior probabilities of G values change by tanh(L/4) at most when a record is added."""
    omega = 1 / 32
    v = np.linspace(omega, 1 - omega, 31)
    L = math.log((1 - omega) / omega)
    worst = 0.0
    for ones, zeros in itertools.product(range(0, 40, 3), repeat=2):
        log_p = ones * np.log(v) + zeros * np.log1p(-v)
        before = special.softmax(log_p)
        worst = max(worst, np.abs(special.softmax(log_p + np.log(v)) - before).max())
    assert 0.1 < worst <= math.tanh(L / 4)


def test_lemma_4_lacks_a_factor():
    """P(far from the best) ≤ exp(-εt/2Δ)/ξ(S_t) holds; exp(-εt)/ξ(S_t) as printed doesn't."""
    posterior = np.array([0.5, 0.302, 0.099, 0.099])
    prior = np.array([1e-6, 0.01, 0.495, 0.494999])
    epsilon, delta, t = 50.0, 1.0, 0.2001
    law = prior * np.exp(epsilon * posterior / (2 * delta))
    law /= law.sum()
    best = posterior.max()
    near = prior[posterior > best - t].sum()
    far = law[posterior <= best - 2 * t].sum()
    assert far > 50 * math.exp(-epsilon * t) / near
    assert far <= math.exp(-epsilon * t / (2 * delta)) / near
