"""Dirichlet priors of the tables: given by the user, or learned from the Release itself.

A row of node i's table (one configuration of its parents) may be dominated by one level z, or by
none, and given that it is Dirichlet:

    P(z) = w_iz,   θ_row | z ~ Dirichlet(b_i + κ_i e_z)   (without the last term for none).

What is not given is learned: weights w_i, b_ix for every level x, and κ_i. All learned numbers of a
network have one law, whose centre and spread are unknown too:

    log b_ix ~ N(c, s²),   c ~ N(CENTRE, 1),   s² ~ inverse gamma(SHAPE, RATE),
    log κ_i ~ N(m, 1),     m ~ N(0, WIDTH²),   w_i uniform.

So the rows of a table borrow from each other through b_i, κ_i and w_i, and tables borrow from each
other through c, s and m: a root, which has one row, learns from the others how skewed tables are
here. With one Dirichlet(1) for all, a row that the noise hides has its probabilities pulled to 1/r.
With one learned Dirichlet a table, tables that are nearly deterministic (now this level has almost
all of a row, now that) need small concentrations, and then small probabilities are pulled to 0,
also in rows with many records. Here κ says how much of a row its first level takes, and b
how close to 0 the others are. Where κ = 1 and w is as b, it is one Dirichlet(b).

Given the true counts C (latent, sampled by `counts`, `records` or `per_table`), θ is integrated out
and a row's counts have the probability Σ_z w_z D(b + κ e_z), with A the sum of concentrations α in

    D(α) = [Γ(A) / Γ(A + M_row)] Π_x [Γ(α_x + C_row,x) / Γ(α_x)].

Rows without records say nothing. `Learning.update` makes Metropolis steps for each log b_x, for
log κ and for all of a table's b together, of normal size times a log-normal scale that looks at
nothing (so the ratio of densities decides), then draws z of every row, and w, m, c and s² from
their conjugate laws. Together with moves of C given z, b and κ this is a sampler of the joint
posterior of all of them; θ given these is Dirichlet(b + κ e_z + C).

Which cells the prior decides: `Learning.moments` has mean and mean square of every probability
under the prior, z left open, and these are averaged over what was learned. Where the posterior
variance of a probability is not below half of its prior variance, the Release has taught less than
the prior said; that goes for all of its row, whose probabilities add up to one. So does noise
that hides a row or an entry: with a probability of 95%, fewer records than two standard deviations
of the noise on one count. The Release can't tell such an entry from 0. How small it is the prior
says: tables may have many small entries that are alike, and noise hides whether they are.
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
WIDTH = 2.0  # of m: κ is between 0.02 and 50 or so, and one Dirichlet (κ = 1) in the middle
PASSES = 1  # over all levels, in one update


class Concentrations(NamedTuple):
    """The prior of all tables."""

    alpha: Floats  # (layout.cells,); where it is learned, where to start from
    learned: NDArray[np.bool_]  # (nodes,), by number: whether a node's concentrations are learned


def concentrations(prior: Prior | None, layout: Layout) -> Concentrations:
    """What a user says of the prior; where nothing is said, it is learned.

    A number is the concentration of every cell of every table: 1 is uniform, 0.5 is Jeffreys' for
    two levels. A mapping gives nodes a number each, or an array of the node's shape.
    """
    alpha = np.ones(layout.cells)
    learned = np.full(len(layout.nodes), prior is None or isinstance(prior, Mapping))
    if not (prior is None or isinstance(prior, Mapping)):
        alpha[:] = _positive("prior", prior)
        return Concentrations(alpha, learned)
    for name, given in (prior or {}).items():
        i = layout.find(name, "prior: ")
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

    `alpha`, shape (layout.cells,), are those of every row as it is now: b, with κ added at the
    level that dominates it.
    """

    def __init__(self, layout: Layout, given: Concentrations) -> None:
        self.layout, self.alpha = layout, given.alpha.copy()
        self.nodes: Integers = np.flatnonzero(given.learned)
        arity, start = layout.arity[self.nodes], layout.offsets[self.nodes]
        rows = (layout.offsets[self.nodes + 1] - start) // arity
        ends = np.cumsum(arity + 1).astype(np.int64)
        self._tables = (start, rows, arity, ends - arity - 1)
        # Of every table log b of its levels, then log κ; weights of its levels, then of none.
        self._is_base = np.ones(int(arity.sum()) + arity.size, dtype=np.bool_)
        self._is_base[ends - 1] = False
        self._log = np.where(self._is_base, CENTRE, 0.0)
        self._weights = 1.0 / np.repeat(arity + 1.0, arity + 1)
        self._law = np.array([CENTRE, 1.0, 0.0])  # c, s and m
        for i in self.nodes:
            self.alpha[layout.part(int(i))] = math.exp(CENTRE)

    def update(self, rng: np.random.Generator, counts: NDArray[Any]) -> None:
        """Move the concentrations, given true counts of shape (layout.cells,)."""
        if not self.nodes.size:
            return
        seen = counts.astype(np.float64)
        move_levels(rng, self._log, self._weights, *self._tables, seen, self._law, PASSES)
        rows = np.zeros_like(self._log)
        choose_levels(rng, self._log, self._weights, *self._tables, seen, self.alpha, rows)
        drawn, first = rng.standard_gamma(1.0 + rows), self._tables[-1]
        lengths = self._tables[2] + 1
        self._weights = drawn / np.repeat(np.add.reduceat(drawn, first), lengths)
        logs, kappa = self._log[self._is_base], self._log[~self._is_base]
        many, spread = logs.size, self._law[1]
        # m is normal, c | s normal, s² | c inverse gamma.
        precision = 1 / WIDTH**2 + kappa.size
        middle = kappa.sum() / precision + rng.standard_normal() / math.sqrt(precision)
        precision = 1 + many / spread**2
        mean = (CENTRE + logs.sum() / spread**2) / precision
        centre = mean + rng.standard_normal() / math.sqrt(precision)
        rate = RATE + ((logs - centre) ** 2).sum() / 2
        spread = math.sqrt(rate / rng.standard_gamma(SHAPE + many / 2))
        self._law[:] = centre, spread, middle

    def moments(self, counts: NDArray[Any]) -> Floats:
        """Mean and mean square of every probability under the prior, and the records in its row.

        The prior is that of now, and counts are of shape (layout.cells,); shape (3, cells).
        """
        total = row_sums(self.layout, self.alpha)
        mean = self.alpha / total
        records = row_sums(self.layout, counts)
        found = np.stack([mean, mean * (self.alpha + 1) / (total + 1), records])
        for start, rows, arity, first in zip(*self._tables, strict=True):
            own = np.exp(self._log[first : first + arity + 1])
            # A line for each level that may dominate, and one for none.
            alpha = own[:-1] + own[-1] * np.eye(arity + 1, arity)
            total = alpha.sum(axis=1, keepdims=True)
            weights = self._weights[first : first + arity + 1]
            squares = alpha * (alpha + 1) / (total * (total + 1))
            two = np.stack([weights @ (alpha / total), weights @ squares])
            found[:2, start : start + rows * arity] = np.tile(two, rows)
        return found


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
def shapes_of(own):  # type: ignore[no-untyped-def]
    """Of log b and log κ: b and b + κ, their sums last, and the log gammas of all these."""
    r = own.size - 1
    found = np.zeros((4, r + 1))
    kappa = math.exp(own[r])
    for x in range(r):
        found[0, x] = math.exp(own[x])
        found[1, x] = found[0, x] + kappa
        found[0, r] += found[0, x]
    found[1, r] = found[0, r] + kappa
    for x in range(r + 1):
        found[2, x] = log_gamma(found[0, x])
        found[3, x] = log_gamma(found[1, x])
    return found


@compiled_in_order
def weigh_row(counts, at, shapes, weights, out):  # type: ignore[no-untyped-def]
    """Probabilities of a row's counts under each level that may dominate it, and under none.

    They are relative to the largest, whose logarithm is returned. A row without records: 0.
    """
    r = weights.size - 1
    many, plain = 0.0, 0.0
    for x in range(r):
        out[x] = 0.0
        count = counts[at + x]
        if count > 0.0:
            many += count
            without = log_gamma(shapes[0, x] + count) - shapes[2, x]
            out[x] = log_gamma(shapes[1, x] + count) - shapes[3, x] - without
            plain += without
    out[r] = 0.0
    if many > 0.0:
        out[r] = plain - log_gamma(shapes[0, r] + many) + shapes[2, r]
        plain -= log_gamma(shapes[1, r] + many) - shapes[3, r]
    most = out[r]
    for x in range(r):
        out[x] += plain
        most = max(most, out[x])
    for x in range(r + 1):
        out[x] = weights[x] * math.exp(out[x] - most)
    return most


@compiled_in_order
def row_evidence(counts, start, rows, own, weights, out):  # type: ignore[no-untyped-def]
    """log probability of all rows of a table, whatever level dominates them."""
    shapes = shapes_of(own)
    found = 0.0
    for j in range(rows):
        found += weigh_row(counts, start + j * (own.size - 1), shapes, weights, out)
        found += math.log(out.sum())
    return found


@compiled_in_order
def choose_levels(rng, logs, weights, start, rows, arity, first, counts, alpha, many):  # type: ignore[no-untyped-def]
    """Draw the level that dominates each row, or none; write its concentrations."""
    for k in range(start.size):
        r = arity[k]
        here = slice(first[k], first[k] + r + 1)
        shapes, out = shapes_of(logs[here]), np.zeros(r + 1)
        for j in range(rows[k]):
            at = start[k] + j * r
            weigh_row(counts, at, shapes, weights[here], out)
            left = rng.random() * out.sum()
            z = 0
            while z < r and left >= out[z]:
                left -= out[z]
                z += 1
            many[first[k] + z] += 1.0
            for x in range(r):
                alpha[at + x] = shapes[1 if x == z else 0, x]


@compiled_in_order
def move_levels(rng, logs, weights, start, rows, arity, first, counts, law, passes):  # type: ignore[no-untyped-def]
    """Metropolis steps of log b, level by level, of log κ, and of all levels of a table."""
    for k in range(start.size):
        r = arity[k]
        here = slice(first[k], first[k] + r + 1)
        own, out = logs[here].copy(), np.zeros(r + 1)
        evidence = row_evidence(counts, start[k], rows[k], own, weights[here], out)
        for turn in range(passes * (r + 2)):
            x = turn % (r + 2)
            step = math.exp(rng.standard_normal() - 0.5) * rng.standard_normal()
            change = 0.0
            for y in range(r + 1):
                if x == y or (x == r + 1 and y < r):
                    centre, spread = (law[0], law[1]) if y < r else (law[2], 1.0)
                    before, after = own[y] - centre, own[y] + step - centre
                    change += (before * before - after * after) / (2 * spread * spread)
                    own[y] += step
                    if abs(own[y]) > FARTHEST:
                        change = -np.inf
            if change > -np.inf:
                new = row_evidence(counts, start[k], rows[k], own, weights[here], out)
                if -rng.standard_exponential() < change + new - evidence:
                    evidence = new
                    logs[here] = own
                    continue
            own[:] = logs[here]
