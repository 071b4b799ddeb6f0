"""What a compiled kernel is, for `gibbs` and `given_s_chains`, and how many chains of it run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar, cast

import numpy as np

from noisewise.analyst.chains import Progress, Report, run_chains
from noisewise.analyst.random_numbers import KeyArray

StateT = TypeVar("StateT", bound=tuple[Any, ...])

_BLOCK = 500  # iterations between two looks at whether to stop


class Kernel(ABC, Generic[StateT]):
    """The transition ``(rng, state) -> (state, info)``, and the compiled loop over many.

    `rng` is a chain's key of two words and the number of the iteration. A call changes nothing in
    place: with the same arguments it gives the same result.
    """

    @abstractmethod
    def __call__(self, rng: tuple[KeyArray, int], state: StateT) -> tuple[StateT, Any]:
        """One iteration."""

    @abstractmethod
    def workspace(self) -> Any:
        """Scratch space for one thread."""

    @abstractmethod
    def advance(
        self, key: KeyArray, first: int, count: int, keep_from: int, state: StateT, scratch: Any,
        store: Any,
    ) -> None:  # fmt: skip
        """Run `count` iterations in place, storing those from number `keep_from` on."""


def copied(state: StateT) -> StateT:
    """A state that shares no memory with this one."""
    return cast(StateT, cast(Any, type(state))(*(np.array(field) for field in state)))


def advance_chains(
    kernel: Kernel[StateT],
    keys: KeyArray,
    states: Sequence[StateT],
    stores: Sequence[Any],
    *,
    tune: int,
    iterations: int,
    cores: int | None,
    progress: Progress | None,
) -> None:
    """Fill the chains' stores in parallel threads, with `iterations` after `tune` of warm-up.

    Keys, of shape (chains, 2), states and stores are those of the chains.
    """
    length = tune + iterations

    def run(chain: int, report: Report) -> None:
        scratch = kernel.workspace()
        for first in range(0, length, _BLOCK):
            count = min(_BLOCK, length - first)
            kernel.advance(keys[chain], first, count, tune, states[chain], scratch, stores[chain])
            report(first + count)

    run_chains(run, chains=len(keys), length=length, cores=cores, progress=progress)
