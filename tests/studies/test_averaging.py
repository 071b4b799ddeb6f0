"""Averaging rows: the sensitivity that the paper overlooked, and the information it loses."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.analyst.regression.exact import sampler as exact
from noisewise.analyst.regression.observation import Observation
from noisewise.analyst.regression.priors import NIGPrior, NIWPrior
from noisewise.core.errors import RequestError
from studies.alparslan2023.averaging import averaged_gram, averaged_sensitivity


def isometric(matrix):
    """The norm in which off-diagonal entries count twice: Frobenius."""
    return np.sqrt((matrix**2).sum())


def ball(rng, shape, radius):
    """Points on the sphere, where extremes are, and some inside."""
    points = rng.normal(size=shape)
    points *= radius / np.linalg.norm(points, axis=-1, keepdims=True)
    return points * np.where(rng.uniform(size=(*shape[:-1], 1)) < 0.8, 1.0, rng.uniform())


def moved(t, x, other, k):
    """Change of the Gram matrix of (1, mean) when x is replaced; the group's others sum to t."""
    a, b = (np.append(1.0, (t + row) / k) for row in (x, other))
    return isometric(np.outer(a, a) - np.outer(b, b))


@pytest.mark.parametrize("k", [1, 2, 3, 10])
@pytest.mark.parametrize("radius", [0.7, 1.0, 2.5])
def test_no_neighbour_is_worse(k, radius):
    rng = np.random.default_rng([k, int(10 * radius)])
    bound = averaged_sensitivity(k, radius)
    worst = 0.0
    for _ in range(3000):
        x, other = ball(rng, (2, 3), radius)
        t = (k - 1) * ball(rng, (1, 3), radius)[0]
        if rng.uniform() < 0.5:  # near the proof's worst case
            direction = x / np.linalg.norm(x)
            other = -x + 0.05 * rng.normal(size=3) * radius
            other *= min(1.0, radius / np.linalg.norm(other))
            t = (k - 1) * radius * direction
        worst = max(worst, moved(t, x, other, k))
    assert worst <= bound * (1 + 1e-12)
    if k > 1:
        v = np.array([radius, 0.0, 0.0])
        assert moved((k - 1) * v, v, -v, k) == pytest.approx(bound)
        # The paper: as without averaging, on its scale, where sums are k times those of means.
        assert k * bound > np.sqrt(2) * radius**2


def test_groups_of_one_are_the_rows():
    rows = np.random.default_rng(1).normal(size=(7, 3))
    np.testing.assert_allclose(averaged_gram(rows, 1), rows.T @ rows)
    assert averaged_gram(rows, 3).shape == (3, 3)
    with pytest.raises(RequestError, match="groups"):
        averaged_gram(rows, 8)


def test_averaging_costs_information_and_buys_nothing():
    """Uniform x, the same epsilon: the slope's posterior is far wider from averages of ten."""
    rng = np.random.default_rng(2)
    n, k, radius, multiplier = 20_000, 10, 1.3, 4.2
    x = rng.uniform(-1, 1, n)
    y = np.clip(0.1 + 0.5 * x + rng.normal(0, 0.2, n), -0.83, 0.83)
    w = np.column_stack([np.ones(n), x, y])
    widths = []
    for group in (1, k):
        sd = multiplier * averaged_sensitivity(group, radius)
        scale = np.where(np.eye(3, dtype=bool), sd, sd / np.sqrt(2))
        scale[0, 0] = 0.0
        noise = np.triu(rng.normal(size=(3, 3)) * scale)
        A = averaged_gram(w, group) + noise + np.triu(noise, 1).T
        drawn = exact.sample(
            [Observation(n // group, A, scale, "gaussian")],
            NIGPrior.weakly_informative(1),
            NIWPrior.weakly_informative(1),
            chains=2,
            draws=500,
            seed=1,
        )
        widths.append(drawn.theta[..., 1].std())
    assert widths[1] > 5 * widths[0]
