"""Dirichlet priors of the tables: given by the user, or learned from the Release itself.

A row of node i's table (one configuration of its parents) has θ_row ~ Dirichlet(α_i), with one
concentration α_ix for every level x. What is not given is learned. All learned concentrations of a
network have one law, whose centre and spread are unknown too:

    log α_ix ~ N(c, s²),   c ~ N(CENTRE, 1),   s² ~ inverse gamma(SHAPE, RATE).

So the rows of a table borrow from each other through α_i (the base measure α_i / Σα_i is close to
the node's margin, and Σα_i says how far rows stray from it), and tables borrow from each other
through c and s: a root, which has one row, is told by the others how skewed tables are here. With
α = 1 in every cell, a row that the noise hides has its probabilities pulled to 1/r, and intervals
that hold small probabilities too seldom; a learned α is as skewed as the rows that can be seen.

Given the true counts C (latent, sampled by `counts`, `records` or `per_table`), θ is integrated out
and α_i has the density

    Π_rows [Γ(A) / Γ(A + M_row)] Π_x [Γ(α_x + C_row,x) / Γ(α_x)] · Π_x N(log α_x; c, s²),  A = Σα_x,

in log α: rows without records say nothing. `Learning.update` makes Metropolis steps for each log
α_x and for all of a table together, of normal size times a log-normal scale that looks at nothing
(so the ratio of densities decides), and then draws c and s² from their conjugate laws. Together
with moves of C given α this is a sampler of the joint posterior of C, α, c and s; θ given C and α
is Dirichlet(α + C).

Which cells the prior decides: `Moments` has mean and variance of every cell under the learned
prior, α's uncertainty included. Where the posterior variance of a probability is not below half of
its prior variance, the Release has taught less than the prior said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise._compiled import compiled_in_order
from noisewise.analyst.network.layout import Floats, Integers, Layout, row_sums
from noisewise.core.errors import RequestError

Prior = float | Mapping[str, Any]
CENTRE = math.log(0.5)  # between Jeffreys' prior of two levels and the uniform one
SHAPE, RATE = 3.0, 2.0  # s² about 1: levels of a table differ by a factor of three or so
# Log concentrations stay within: far beyond, differences of log gammas are nothing but rounding
# errors, which let them run away. The hyperprior has no mass there to speak of.
FARTHEST = 12.0
PASSES = 1  # over all levels, in one update


class Concentrations(NamedTuple):
    """The prior of all tables.

    Parameters
    ----------
    alpha : array, shape (layout.cells,)
        Where it is learned, where to start from.
    learned : array of bool, shape (nodes,)
        By number: whether a node's concentrations are learned.
    """

    alpha: Floats
    learned: NDArray[np.bool_]


def concentrations(prior: Prior | None, layout: Layout) -> Concentrations:
    """What a user says of the prior; where nothing is said, it is learned.

    Parameters
    ----------
    prior : float, mapping of str to float or array, or None
        A number is the concentration of every cell of every table: 1 is uniform, 0.5 is
        Jeffreys' for two levels. A mapping gives nodes a number each, or an array of the node's
        shape.
    layout : Layout
    """
    alpha = np.ones(layout.cells)
    learned = np.full(len(layout.nodes), prior is None or isinstance(prior, Mapping))
    if prior is None:
        return Concentrations(alpha, learned)
    if not isinstance(prior, Mapping):
        alpha[:] = _positive("prior", prior)
        return Concentrations(alpha, learned)
    for name, given in prior.items():
        if name not in layout.number:
            shown = ", ".join(layout.network.nodes[:20])
            raise RequestError(f"prior: {name!r} is not a node; the nodes are {shown}")
        i = layout.number[name]
        values = _positive(f"prior of {name!r}", given)
        shape = layout.network.shape(name)
        if values.ndim and values.shape != shape:
            raise RequestError(
                f"prior of {name!r}: expected one number or an array of shape {shape} (parents' "
                f"levels, then its own), got shape {values.shape}"
            )
        alpha[layout.part(i)] = layout.inward(i, np.broadcast_to(values, shape))
        learned[i] = False
    return Concentrations(alpha, learned)


def read_concentrations(path: Path) -> Any:
    """A prior file: ``concentration: 0.5``, or a number (or nested lists) for every node."""
    import yaml

    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise RequestError(f"prior: cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError):
        raise RequestError(f"prior: {path} is not YAML in UTF-8") from None
    if not isinstance(document, dict) or set(document) != {"concentration"}:
        raise RequestError(
            f"prior: of a network, {path} must have one line such as 'concentration: 0.5' or "
            "'concentration: {cough: 1, smoker: 0.5}'"
        )
    return document["concentration"]


def _positive(where: str, given: Any) -> Floats:
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array(np.nan)
    if isinstance(given, bool) or not (np.isfinite(values).all() and (values > 0).all()):
        raise RequestError(
            f"{where}: expected positive concentrations, got {str(given)[:60]}; 1 is the uniform "
            "prior"
        )
    return values


# --- learning ----------------------------------------------------------------------------------


class Learning:
    """The concentrations of one chain, changed in place.

    Parameters
    ----------
    layout : Layout
    given : Concentrations

    Attributes
    ----------
    alpha : array, shape (layout.cells,)
    """

    def __init__(self, layout: Layout, given: Concentrations) -> None:
        self.layout, self.alpha = layout, given.alpha.copy()
        self.nodes: Integers = np.flatnonzero(given.learned)
        self._arity = layout.arity[self.nodes]
        self._start = layout.offsets[self.nodes]
        self._rows = (layout.offsets[self.nodes + 1] - self._start) // self._arity
        self._first = np.concatenate([[0], np.cumsum(self._arity)]).astype(np.int64)
        self._log = np.full(int(self._first[-1]), CENTRE)
        self._law = np.array([CENTRE, 1.0])  # c and s
        self._spread()

    def _spread(self) -> None:
        """Write the learned concentrations into all rows of their tables."""
        for k, (start, rows) in enumerate(zip(self._start, self._rows, strict=True)):
            level = np.exp(self._log[self._first[k] : self._first[k + 1]])
            self.alpha[start : start + rows * level.size] = np.tile(level, rows)

    def update(self, rng: np.random.Generator, counts: NDArray[Any]) -> None:
        """Move the concentrations, given true counts of shape (layout.cells,)."""
        if not self.nodes.size:
            return
        arrays = (self._start, self._rows, self._arity, self._first)
        move_levels(rng, self._log, *arrays, counts.astype(np.float64), self._law, PASSES)
        many, spread = self._log.size, self._law[1]
        # c | s is normal, s² | c inverse gamma.
        precision = 1 + many / spread**2
        mean = (CENTRE + self._log.sum() / spread**2) / precision
        centre = mean + rng.standard_normal() / math.sqrt(precision)
        rate = RATE + ((self._log - centre) ** 2).sum() / 2
        self._law[:] = centre, math.sqrt(rate / rng.standard_gamma(SHAPE + many / 2))
        self._spread()


class Moments(NamedTuple):
    """Mean and variance of every probability under the prior, each of shape (cells,)."""

    mean: Floats
    variance: Floats


def prior_moments(layout: Layout, alphas: Floats) -> Moments:
    """Of draws of the concentrations, shape (draws, cells): within a draw and between them."""
    total = row_sums(layout, alphas)
    mean = alphas / total
    within = mean * (1 - mean) / (total + 1)
    return Moments(mean.mean(axis=0), within.mean(axis=0) + mean.var(axis=0))


def draw_tables(rng: np.random.Generator, given: Floats, layout: Layout) -> Floats:
    """Rows from Dirichlet laws of concentrations `given`, of shape (..., cells), in logs.

    A gamma of concentration a is one of a + 1 times U^(1/a), which underflows for small a.
    """
    small = given < 0.05
    logs = np.log(np.maximum(rng.standard_gamma(given + small), 1e-300))
    where = np.nonzero(small)
    logs[where] += np.log1p(-rng.random(where[0].size)) / given[where]
    starts = np.unique(layout.row_start)
    lengths = np.diff(np.append(starts, layout.cells))
    logs -= np.repeat(np.maximum.reduceat(logs, starts, axis=-1), lengths, axis=-1)
    np.exp(logs, out=logs)
    logs /= row_sums(layout, logs)
    return np.asarray(logs)


# --- compiled kernels --------------------------------------------------------------------------


@compiled_in_order
def log_gamma(x):  # type: ignore[no-untyped-def]
    """Stirling's series from 10 on, with an error below 1e-10."""
    if x < 10.0:
        return math.lgamma(x)
    r = 1.0 / x
    r2 = r * r
    series = r * (8.333333333333333e-2 - r2 * (2.777777777777778e-3 - r2 * 7.936507936507937e-4))
    return (x - 0.5) * math.log(x) - x + 0.9189385332046727 + series


@compiled_in_order
def log_gamma_ratio(x, by):  # type: ignore[no-untyped-def]
    """log Γ(x + by) - log Γ(x)."""
    return log_gamma(x + by) - log_gamma(x)


@compiled_in_order
def row_evidence(counts, start, rows, arity, alpha):  # type: ignore[no-untyped-def]
    """log probability of all rows of a table, given concentrations; rows without records: 0."""
    total = alpha.sum()
    found = 0.0
    for j in range(rows):
        many = 0.0
        for x in range(arity):
            count = counts[start + j * arity + x]
            if count > 0.0:
                many += count
                found += log_gamma_ratio(alpha[x], count)
        if many > 0.0:
            found -= log_gamma_ratio(total, many)
    return found


@compiled_in_order
def move_levels(rng, logs, start, rows, arity, first, counts, law, passes):  # type: ignore[no-untyped-def]
    """Metropolis steps of the log concentrations: level by level, then all of a table."""
    centre, spread = law[0], law[1]
    for k in range(start.size):
        r = arity[k]
        own = logs[first[k] : first[k] + r]
        alpha = np.exp(own)
        evidence = row_evidence(counts, start[k], rows[k], r, alpha)
        for turn in range(passes * (r + 1)):
            x = turn % (r + 1)
            step = math.exp(rng.standard_normal() - 0.5) * rng.standard_normal()
            change = 0.0
            for y in range(r):
                if x in (y, r):
                    if abs(own[y] + step) > FARTHEST:
                        change = -np.inf
                        break
                    before, after = own[y] - centre, own[y] + step - centre
                    change += (before * before - after * after) / (2 * spread * spread)
                    alpha[y] = math.exp(own[y] + step)
            new = row_evidence(counts, start[k], rows[k], r, alpha) if change > -np.inf else 0.0
            if -rng.standard_exponential() < change + new - evidence:
                evidence = new
                for y in range(r):
                    if x in (y, r):
                        own[y] += step
            else:
                for y in range(r):
                    alpha[y] = math.exp(own[y])
