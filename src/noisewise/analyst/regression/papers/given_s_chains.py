"""What the kernels of `normal_x` and `fixed_s` share, and what their chains keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisewise._arrays import FloatArray
from noisewise.analyst.chains import Progress, check_counts
from noisewise.analyst.random_numbers import KeyArray, chain_keys
from noisewise.analyst.regression.papers import kernels
from noisewise.analyst.regression.papers.kernels import StateT


class Info(NamedTuple):
    """Share of moves accepted in one iteration; of many, as arrays of shape (chains, draws).

    Names differ from those of parameters: both are stored in one file.
    """

    accepted_theta: FloatArray
    accepted_sigma2: FloatArray
    accepted_scatter: FloatArray  # of the holders' scatter matrices; 1 where there is no such move
    accepted_mean: FloatArray  # of the holders' means of the covariates; likewise


class Draws(NamedTuple):
    """Draws from the posterior, on unit scale."""

    theta: FloatArray  # (chains, draws, d)
    sigma2: FloatArray  # (chains, draws)
    conditional_mean: None  # E[theta | statistics] has no closed form once y'y is used
    info: Info
    mu: FloatArray  # (chains, kept, k), of evenly spaced draws; none if not asked for
    T: FloatArray  # (chains, kept, k, k); likewise


class Store(NamedTuple):
    """Where a compiled loop puts one chain's draws."""

    theta: FloatArray
    sigma2: FloatArray
    accepted: FloatArray  # (draws, 4), in the order of Info
    mu: FloatArray  # (kept, k)
    T: FloatArray  # (kept, k, k)


class Work(NamedTuple):
    """Scratch space of one thread."""

    rng: NDArray[np.uint64]  # (4,)
    squares: FloatArray  # (8, d + 1, d + 1)
    vectors: FloatArray  # (6, d + 1)
    H: FloatArray  # (J, d, d), of `given_s`
    r: FloatArray  # (J, d), likewise
    C: FloatArray  # (J, d, d); this and the rest are of `normal_x`
    S: FloatArray  # (J, d, d)
    M: FloatArray  # (J, d, d)
    M_new: FloatArray  # (J, d, d)
    r_new: FloatArray  # (J, d)
    log: FloatArray  # (J, 4)
    log_new: FloatArray  # (J, 4)
    accepted: FloatArray  # (4,)


def workspace(J: int, d: int) -> Work:
    """Scratch space for one thread."""
    return Work(
        rng=np.zeros(4, dtype=np.uint64),
        squares=np.zeros((8, d + 1, d + 1)),
        vectors=np.zeros((6, d + 1)),
        H=np.zeros((J, d, d)),
        r=np.zeros((J, d)),
        C=np.zeros((J, d, d)),
        S=np.zeros((J, d, d)),
        M=np.zeros((J, d, d)),
        M_new=np.zeros((J, d, d)),
        r_new=np.zeros((J, d)),
        log=np.zeros((J, 4)),
        log_new=np.zeros((J, 4)),
        accepted=np.zeros(4),
    )


class Kernel(kernels.Kernel[StateT]):
    """See `kernels.Kernel`.

    Iterations before number `tune` adapt the steps, which are part of the state; later ones leave
    them alone.
    """

    J: int
    d: int
    tune: int
    thin: int = 1  # of so many iterations after warm-up the last is kept

    def __call__(self, rng: tuple[KeyArray, int], state: StateT) -> tuple[StateT, Info]:
        """One iteration."""
        key, counter = rng
        new, work = kernels.copied(state), self.workspace()
        self.advance(key, counter, 1, counter, new, work, make_store(1, self.d))
        return new, Info(*work.accepted)

    def workspace(self) -> Work:
        """Scratch space for one thread."""
        return workspace(self.J, self.d)


def make_store(draws: int, d: int, kept: int = 0) -> Store:
    """Empty arrays for one chain's draws, and for the covariates' law of `kept` of them."""
    return Store(
        theta=np.zeros((draws, d)),
        sigma2=np.zeros(draws),
        accepted=np.zeros((draws, 4)),
        mu=np.zeros((kept, d - 1)),
        T=np.zeros((kept, d - 1, d - 1)),
    )


def sample_chains(
    kernel: Kernel[StateT],
    init: Callable[[KeyArray], StateT],
    *,
    chains: int,
    draws: int,
    seed: int | None,
    cores: int | None,
    progress: Progress | None,
    keep_covariates: int = 0,
) -> Draws:
    """Run chains in parallel threads, each from the state that `init` makes of its key."""
    check_counts(chains=chains, draws=draws, tune=kernel.tune, thin=kernel.thin, cores=cores)
    keys = chain_keys(seed, chains)
    states = [init(key) for key in keys]
    stores = [make_store(draws, kernel.d, keep_covariates) for _ in keys]
    kernels.advance_chains(
        kernel, keys, states, stores, tune=kernel.tune, iterations=draws * kernel.thin,
        cores=cores, progress=progress,
    )  # fmt: skip
    theta, sigma2, accepted, mu, T = (np.stack(parts) for parts in zip(*stores, strict=True))
    return Draws(theta, sigma2, None, Info(*(accepted[..., i] for i in range(4))), mu, T)
