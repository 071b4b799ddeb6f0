"""What the samplers of all tables together share: arrays of the problem, and the run of chains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noisewise.analyst.chains import Report, run_chains
from noisewise.analyst.networks.layout import Floats, Layout
from noisewise.analyst.networks.observed import Observed
from noisewise.analyst.networks.regions import Moves, Regions, make_moves, make_regions
from noisewise.analyst.networks.slopes import Slopes
from noisewise.analyst.random_numbers import KeyArray, chain_keys


@dataclass(frozen=True)
class Problem:
    """What all chains share."""

    layout: Layout
    slopes: Slopes
    regions: Regions
    names: list[tuple[int, ...]]
    moves: Moves
    holders: tuple[Observed, ...]
    alpha: Floats


def make_problem(layout: Layout, holders: Sequence[Observed], alpha: Floats) -> Problem:
    """Arrays for these holders and concentrations."""
    slopes = Slopes(layout)
    regions, names = make_regions(layout, slopes.entropy, holders, alpha)
    private = any(holder.n is None for holder in holders)
    moves = make_moves(layout, names, private)
    return Problem(layout, slopes, regions, names, moves, tuple(holders), alpha)


def forms_of(regions: Regions, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The measured forms of every holder's counts, shape (holders, forms)."""
    forms = np.zeros_like(regions.form_value)
    for k in range(regions.width.size):
        cells = slice(int(regions.start[k]), int(regions.start[k + 1]))
        for f in range(int(regions.form_start[k]), int(regions.form_start[k + 1])):
            at = int(regions.form_at[f])
            weight = regions.form_weight[at : at + cells.stop - cells.start]
            forms[:, f] = counts[:, cells] @ weight
    return forms


@dataclass(frozen=True)
class Sampled:
    """Draws of all chains.

    Parameters
    ----------
    theta : array, shape (chains, draws, cells)
    given_counts : array, shape (chains, draws, cells)
        E[theta | counts] at each draw.
    acceptance : float
    exact : bool
        Whether no approximation was made.
    free : tuple of int
        Nodes whose parents' joint counts were left without the network's own expectation.
    """

    theta: Floats
    given_counts: Floats
    acceptance: float
    exact: bool
    free: tuple[int, ...]


def sample_chains(
    run: Callable[[KeyArray, Floats, Floats, Report], float],
    cells: int,
    *,
    chains: int,
    draws: int,
    sweeps: int,
    seed: int | None,
    progress: Callable[[int, int | None], None] | None,
) -> tuple[Floats, Floats, float]:
    """Tables and E[theta | counts] of all chains, and the mean of their acceptance rates.

    `run` takes a chain's key, its two arrays of shape (draws, cells) to fill in, and a function
    that it tells now and then how many of its `sweeps` are done. It returns its acceptance rate.
    """
    keys = chain_keys(seed, chains)
    theta = np.empty((chains, draws, cells))
    given = np.empty_like(theta)
    rates = run_chains(
        lambda c, report: run(keys[c], theta[c], given[c], report),
        chains=chains,
        length=sweeps,
        progress=progress,
    )
    return theta, given, float(np.mean(rates))
