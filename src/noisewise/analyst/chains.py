"""Chains in parallel threads, for every sampler that runs its own.

The samplers' loops are compiled and let go of Python's lock. They work in blocks and report after
each, so that progress can be shown and an interrupt be obeyed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np

from noisewise.core.errors import RequestError

Progress = Callable[[int, int], None]
Report = Callable[[int], None]
Result = TypeVar("Result")


class StoppedError(Exception):
    """Another chain has failed, or the user has interrupted: there is no use in going on."""


def run_chains(
    run: Callable[[int, Report], Result],
    *,
    chains: int,
    length: int,
    cores: int | None = None,
    progress: Progress | None = None,
) -> list[Result]:
    """Run every chain in a thread, and give back what they gave, in the order of the chains.

    `run` gets the number of a chain and a function to call now and then with the number of
    iterations done so far, of `length`. As many run at a time as there are `cores`: by default all
    that this process may use. `progress` is called with (iterations done, iterations in all), from
    any thread but one at a time.
    """
    done = [0] * chains
    lock, stop = threading.Lock(), threading.Event()

    def report(chain: int, iterations: int) -> None:
        if stop.is_set():
            raise StoppedError
        if progress is not None:
            with lock:
                done[chain] = iterations
                progress(sum(done), length * chains)

    with ThreadPoolExecutor(min(chains, cores or available_cores())) as pool:
        running = [pool.submit(run, chain, partial(report, chain)) for chain in range(chains)]
        try:
            return [chain.result() for chain in running]
        finally:
            # In this order: a thread that stops must not find another chain to start.
            pool.shutdown(wait=False, cancel_futures=True)
            stop.set()


def generators(seed: int | None, chains: int) -> list[np.random.Generator]:
    """A generator for each chain: the same for a seed, however many chains follow."""
    return [np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(chains)]


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def check_counts(**numbers: int | None) -> None:
    """Refuse numbers that make no sense. None: chosen here."""
    for name, value in numbers.items():
        least = 0 if name == "tune" else 1
        if value is not None and (isinstance(value, bool) or int(value) != value or value < least):
            raise RequestError(f"{name} must be a whole number, at least {least}; got {value!r}")
