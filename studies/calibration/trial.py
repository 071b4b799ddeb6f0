"""Simulation-based calibration of any model, mechanism and method.

One trial: the model draws a truth and what is released about it, every method draws from its
posterior, and the rank of the truth among nearly independent draws is recorded for every
parameter. Over many trials the ranks of a calibrated method are uniform.

Autocorrelation must not look like miscalibration. A rank is therefore taken among no more draws
than are effectively independent: a method that has fewer than wanted is run three times longer,
and what it still lacks is thinned away, which is recorded. A method that fails says so in the
record; it is never left out in silence.

References
----------
Talts, Betancourt, Simpson, Vehtari & Gelman (2018), Validating Bayesian inference algorithms with
simulation-based calibration, arXiv:1804.06788.
"""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.core.errors import NoisewiseError, RequestError
from studies.uniformity import effective_size, mmd2_unbiased, spread_rank, thin

Record = dict[str, Any]
REFERENCE = "non_private"  # the method to which the others' discrepancy is measured
LONGER = 3


class Model(Protocol):
    """A prior, a data law and a mechanism."""

    parameters: tuple[str, ...]  # names of the D parameters

    def simulate(self, rng: np.random.Generator) -> Any:
        """A case; methods are judged by its `truth`, shape (D,)."""

    def factors(self) -> dict[str, Any]:
        """What tables say about the model."""

    def describe(self) -> dict[str, Any]:
        """Everything that decides the law of a simulation, as plain data."""


class Method(Protocol):
    """A way from a case to draws."""

    name: str  # what tables call it
    independent: bool  # whether draws are independent by construction

    def sample(self, model: Any, case: Any, seed: int, longer: int = 1) -> FloatArray:
        """Draws, shape (chains, draws, D), `longer` times as many as usual."""

    def describe(self) -> dict[str, Any]:
        """Everything that decides the draws, as plain data."""


@dataclass(frozen=True)
class Cell:
    """One model with the methods that are tried on it.

    Parameters
    ----------
    name : str
        Also the name of the cell's file.
    model : Model
    methods : sequence of Method
        With different names.
    trials : int
    ranked : int
        Nearly independent draws that the truth is ranked among.
    """

    name: str
    model: Model
    methods: tuple[Method, ...]
    trials: int = 300
    ranked: int = 200

    def __post_init__(self) -> None:
        names = [method.name for method in self.methods]
        if len(set(names)) != len(names):
            raise RequestError(f"methods: each needs its own name, got {', '.join(names)}")
        if self.trials < 1 or self.ranked < 2:
            raise RequestError(
                f"trials and ranked: expected at least 1 and 2, got {self.trials} and {self.ranked}"
            )

    def describe(self) -> dict[str, Any]:
        """Everything that decides a trial's outcome, as plain data; not the number of trials."""
        return {
            "model": self.model.describe(),
            "parameters": list(self.model.parameters),
            "methods": {method.name: method.describe() for method in self.methods},
            "ranked": self.ranked,
        }

    @property
    def entropy(self) -> int:
        """The cell's part of every seed: a digest of the model alone."""
        text = json.dumps(self.model.describe(), sort_keys=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")

    def with_trials(self, trials: int) -> Cell:
        """The same cell with another number of trials."""
        return replace(self, trials=trials)


def seed_sequence(cell: Cell, trial: int, purpose: str) -> np.random.SeedSequence:
    """Seeds are the cell, the trial and the purpose: reproducible, never chosen by outcome."""
    return np.random.SeedSequence([cell.entropy, trial, zlib.crc32(purpose.encode())])


def run_trial(cell: Cell, trial: int) -> Record:
    """Simulate once and try every method. The record is plain data."""
    case = cell.model.simulate(np.random.default_rng(seed_sequence(cell, trial, "simulate")))
    outcomes: dict[str, Record] = {}
    kept: dict[str, FloatArray] = {}
    for method in cell.methods:
        try:
            outcomes[method.name], kept[method.name] = _try(cell, method, case, trial)
        except (NoisewiseError, ArithmeticError, np.linalg.LinAlgError) as error:
            outcomes[method.name] = {"error": f"{type(error).__name__}: {error}"[:200]}
    if REFERENCE in kept:
        for name, draws in kept.items():
            if name != REFERENCE and len(draws) >= 2:
                outcomes[name]["mmd2"] = _short(mmd2_unbiased(kept[REFERENCE], draws))
    return {"trial": trial, "truth": [_short(value) for value in case.truth], "methods": outcomes}


def _try(cell: Cell, method: Method, case: Any, trial: int) -> tuple[Record, FloatArray]:
    start = time.process_time()
    sizes = np.zeros(0)
    longer = 0
    for longer in (1, LONGER):
        seeds = seed_sequence(cell, trial, f"{method.name} {longer}").generate_state(1, np.uint64)
        draws = method.sample(cell.model, case, int(seeds[0] >> 1), longer)
        sizes = _sizes(draws, method.independent)
        if sizes.min() >= cell.ranked:
            break
    seconds = time.process_time() - start
    counts = np.clip(sizes, 1, cell.ranked).astype(int)
    rng = np.random.default_rng(seed_sequence(cell, trial, f"{method.name} spread"))
    ranks = [
        spread_rank(truth, thin(draws[..., i], count), rng)
        for i, (truth, count) in enumerate(zip(case.truth, counts, strict=True))
    ]
    record = {
        "u": [_short(rank) for rank in ranks],
        "ranked": counts.tolist(),
        "ess": [round(float(size)) for size in sizes],
        "longer": longer,
        "seconds": round(seconds, 4),
    }
    return record, thin(draws, int(counts.min()))


def _sizes(draws: FloatArray, independent: bool) -> FloatArray:
    if not np.isfinite(draws).all():
        raise ArithmeticError("draws are not finite")
    if independent:
        return np.full(draws.shape[-1], float(draws.shape[0] * draws.shape[1]))
    return np.array([effective_size(draws[..., i]) for i in range(draws.shape[-1])])


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def spread_ranks(records: Sequence[Record], method: str) -> FloatArray:
    """All spread ranks of a method, shape (trials that did not fail, D)."""
    found = [record["methods"][method] for record in records]
    return np.array([outcome["u"] for outcome in found if "u" in outcome], dtype=np.float64)
