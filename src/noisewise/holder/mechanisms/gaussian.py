"""Discrete Gaussian noise: approximate and zero-concentrated differential privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from noisewise.core.calibration import discreteness_slack, gaussian_scale
from noisewise.core.privacy import GaussianEvent, float_down, float_up
from noisewise.holder.mechanisms import randomness


@dataclass(frozen=True)
class GaussianMechanism:
    """Independent discrete Gaussian noise: scale s on entries, s/√2 on off-diagonal ones.

    **Claim.** ρ-zCDP with ρ = Δ₂²/2s², and the (ε, δ) curve of a continuous Gaussian mechanism with
    noise multiplier s/Δ₂ up to the slack of discreteness (`core.calibration.discreteness_slack`).

    **Proof.** Let c be the change of the integer sums and s_i the scale of entry i. The privacy
    loss of independent discrete Gaussians is that of one with squared distance Σ c_i²/s_i²
    (Canonne, Kamath & Steinke 2020, Theorem 14). In the upper layout all s_i = s and Σ c_i² ≤ Δ₂².
    In the isometric layout off-diagonal entries have 2s_i² ≥ s², so
    Σ c_i²/s_i² ≤ (Σ_diag c_i² + 2 Σ_off c_i²)/s² ≤ Δ₂²/s², because Δ₂ counts off-diagonal entries
    √2-fold. The slack is computed for the smallest of the scales, which bounds it for all. ∎
    """

    sensitivity: int  # Δ₂ in grid units, in the layout used
    scale: int  # s in grid units, a whole number that a double holds exactly
    # Which entries are off-diagonal in an isometric layout; all False in the upper layout
    off_diagonal: tuple[bool, ...]
    family = "discrete_gaussian"

    @property
    def off_diagonal_scale(self) -> int:
        """Smallest representable whole number with 2·off² ≥ s², or s in the upper layout."""
        if not any(self.off_diagonal):
            return self.scale
        half = math.isqrt((self.scale**2 - 1) // 2) + 1
        return gaussian_scale(half, 1.0)

    def event(self) -> GaussianEvent:
        """A Gaussian of noise multiplier s/Δ₂, rounded down, with the slack of discreteness."""
        smallest = min(self.scale, self.off_diagonal_scale)
        slack = discreteness_slack(len(self.off_diagonal), smallest)
        return GaussianEvent(float_down(Fraction(self.scale, self.sensitivity)), slack)

    def verify(self) -> None:
        """OpenDP's map must agree, wherever the whole change may sit.

        The claim is linear in the squared change, so it is enough that OpenDP grants it when all
        of the change is on diagonal entries (Δ₂) and when all of it is off-diagonal (Δ₂/√2).
        """
        claimed = float_up(Fraction(self.sensitivity, self.scale) ** 2 / 2)
        places = [(self.scale, float(self.sensitivity))]
        if any(self.off_diagonal):
            places.append((self.off_diagonal_scale, self.sensitivity / math.sqrt(2)))
        for scale, distance in places:
            spent = randomness.gaussian_measurement(scale).map(distance)
            # A few units in the last place: OpenDP rounds up at every step of its arithmetic.
            if not spent <= claimed * (1 + 1e-12):
                raise AssertionError(f"OpenDP charges rho = {spent} for a claim of {claimed}")

    def add_noise(self, sums: Sequence[int]) -> tuple[int, ...]:
        if len(sums) != len(self.off_diagonal):  # a sum without a place would get no noise
            raise ValueError(f"{len(sums)} sums given, {len(self.off_diagonal)} were planned")
        noisy = list(sums)
        for scale, is_off in ((self.scale, False), (self.off_diagonal_scale, True)):
            places = [i for i, off in enumerate(self.off_diagonal) if off is is_off]
            measurement = randomness.gaussian_measurement(scale)
            for i, value in zip(
                places, randomness.invoke(measurement, [sums[i] for i in places]), strict=True
            ):
                noisy[i] = value
        return tuple(noisy)
