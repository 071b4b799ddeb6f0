"""Brute force over all data sets of a few rows, for tests of network posteriors."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.special import gammaln

from noisewise.analyst.network.observed import Measurement, Observed
from noisewise.analyst.network.prior import CENTRE, RATE, SHAPE, WIDTH, Concentrations
from noisewise.core.kinds.network.graph import Network
from noisewise.core.schema import Category, Schema


def network(arities, parents, neighbours="replace_one"):
    """A network with nodes a, b, c... of the given arities."""
    columns = {
        name: Category(tuple(str(k) for k in range(arity)), "0") for name, arity in arities.items()
    }
    return Network.make(Schema("test", columns, neighbours), parents)


def fixed(alpha):
    """A prior of which nothing is learned, for nodes of any number."""
    return Concentrations(alpha, np.zeros(64, dtype=bool))


def learned(layout):
    """The default prior."""
    return Concentrations(np.ones(layout.cells), np.ones(len(layout.nodes), dtype=bool))


def prior_draws(layout, many, rng):
    """Concentrations of all cells from the hyperprior, shape (many, cells)."""
    centre = CENTRE + rng.standard_normal((many, 1))
    spread = np.sqrt(RATE / rng.standard_gamma(SHAPE, (many, 1)))
    middle = WIDTH * rng.standard_normal((many, 1))
    found = []
    for i in range(len(layout.nodes)):
        r = int(layout.arity[i])
        level = np.exp(centre + spread * rng.standard_normal((many, r)))
        kappa = np.exp(middle + rng.standard_normal((many, 1)))
        ends = rng.dirichlet(np.ones(r + 1), many).cumsum(axis=1)
        for _ in range((layout.part(i).stop - layout.part(i).start) // r):
            first = (rng.random((many, 1)) > ends).sum(axis=1)  # r: no level dominates
            found.append(level + kappa * (np.arange(r) == first[:, None]))
    return np.concatenate(found, axis=1)


def compositions(n, parts):
    """All ways to write n as an ordered sum of `parts` whole numbers."""
    if parts == 1:
        yield (n,)
        return
    for first in range(n + 1):
        for rest in compositions(n - first, parts - 1):
            yield (first, *rest)


def family_counts(layout, full):
    """Cells of all families from a full table over the nodes in topological order."""
    d = len(layout.nodes)
    return np.concatenate(
        [
            full.sum(axis=tuple(j for j in range(d) if j not in family)).reshape(-1)
            for family in layout.families
        ]
    )


def log_evidence(layout, counts, alpha):
    """log of the prior predictive probability of one data set with these family counts."""
    total = 0.0
    for i in range(len(layout.nodes)):
        rows = counts[layout.part(i)].reshape(-1, layout.arity[i])
        a = alpha[layout.part(i)].reshape(-1, layout.arity[i])
        total += (gammaln(a + rows) - gammaln(a)).sum()
        total -= (gammaln((a + rows).sum(axis=1)) - gammaln(a.sum(axis=1))).sum()
    return total


def log_noise(observed, layout, full):
    total = 0.0
    for m in observed.measurements:
        d = len(layout.nodes)
        table = full.sum(axis=tuple(j for j in range(d) if j not in m.names)).reshape(-1)
        forms = table if m.matrix is None else m.matrix @ table
        away = np.abs(m.values - forms) / m.scale
        total -= (away**2 / 2 if m.gaussian else away).sum()
    return total


def brute_force(layout, observed, alpha, sizes):
    """Posterior mean and second moment of every table cell, over all data sets of these sizes.

    With several sizes the number of rows is private, and every number has the same prior weight.
    """
    shape = tuple(int(r) for r in layout.arity)
    weights, means, squares = [], [], []
    for n in sizes:
        for cells in compositions(n, int(np.prod(shape))):
            full = np.array(cells).reshape(shape)
            counts = family_counts(layout, full)
            log_weight = gammaln(n + 1) - gammaln(full + 1).sum()
            log_weight += log_evidence(layout, counts, alpha) + log_noise(observed, layout, full)
            a = alpha + counts
            total = np.empty_like(a)
            for i in range(len(layout.nodes)):
                rows = a[layout.part(i)].reshape(-1, layout.arity[i])
                total[layout.part(i)] = np.repeat(rows.sum(axis=1), layout.arity[i])
            weights.append(log_weight)
            means.append(a / total)
            squares.append(a * (a + 1) / (total * (total + 1)))
    w = np.exp(np.array(weights) - max(weights))
    w /= w.sum()
    return w @ np.array(means), w @ np.array(squares)


def all_cells(layout, values, scale, n):
    """Every cell of every family, released with noise of one scale."""
    return Observed(
        n,
        tuple(
            Measurement(
                family,
                np.asarray(values[layout.part(i)], dtype=np.int64),
                np.full(layout.size(family), float(scale)),
            )
            for i, family in enumerate(layout.families)
        ),
    )


def simulated(layout, theta, n, rng):
    """Family counts of n rows drawn from the network, and the full table."""
    shape = tuple(int(r) for r in layout.arity)
    joint = np.ones(shape)
    for i, family in enumerate(layout.families):
        own = theta[layout.part(i)].reshape(layout.shape(family))
        index = tuple(slice(None) if j in family else None for j in range(len(shape)))
        joint = joint * own[index]
    full = rng.multinomial(n, joint.reshape(-1)).reshape(shape)
    return family_counts(layout, full), full


def discrete_laplace(rng, scale, size):
    """Differences of geometric variables; for tests only."""
    p = 1 - np.exp(-1 / scale)
    return rng.geometric(p, size) - rng.geometric(p, size)


def levels_of(layout):
    return list(product(*(range(int(r)) for r in layout.arity)))
