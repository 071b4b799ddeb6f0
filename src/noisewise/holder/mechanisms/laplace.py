"""Discrete Laplace noise: pure differential privacy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from noisewise.core.calibration import laplace_scale
from noisewise.core.privacy import PureEvent, float_up
from noisewise.holder.mechanisms import randomness


@dataclass(frozen=True)
class LaplaceMechanism:
    """Independent discrete Laplace noise of scale s ≥ Δ₁/ε on every sum.

    **Claim.** ε-differential privacy.

    **Proof.** P(noise = z) ∝ exp(-|z|/s) independently for every entry, so for two integer vectors
    a, a' of sums the probability of any output o satisfies
    P(o|a)/P(o|a') = exp(Σ(|o_i - a'_i| - |o_i - a_i|)/s) ≤ exp(‖a - a'‖₁/s) ≤ exp(Δ₁/s) ≤ e^ε. ∎
    """

    sensitivity: int  # Δ₁ in grid units
    epsilon: Fraction
    family = "discrete_laplace"

    @cached_property
    def scale(self) -> int:
        """The smallest whole number ≥ Δ₁/ε that a double holds exactly."""
        return laplace_scale(self.sensitivity, self.epsilon)

    @property
    def off_diagonal_scale(self) -> int:
        """The same: Laplace noise has no rotation-invariant layout."""
        return self.scale

    def event(self) -> PureEvent:
        return PureEvent(self.epsilon)

    def verify(self) -> None:
        """OpenDP's map of Δ₁ must be at most ε (rounded up to a double)."""
        verify_laplace(self.scale, self.sensitivity, self.epsilon)

    def add_noise(self, sums: Sequence[int]) -> tuple[int, ...]:
        return randomness.invoke(randomness.laplace_measurement(self.scale), sums)


def verify_laplace(scale: float, sensitivity: int, epsilon: Fraction) -> None:
    """OpenDP's own map must grant the claim."""
    spent = randomness.laplace_measurement(scale).map(sensitivity)
    if not spent <= float_up(epsilon):
        raise AssertionError(f"OpenDP charges {spent} for a claim of {float(epsilon)}")
