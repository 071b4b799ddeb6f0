"""What an audit found, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from noisewise.audit.regions import Direction, distance


@dataclass(frozen=True)
class AuditResult:
    """What an audit found.

    Parameters
    ----------
    epsilon, delta : float
        The claim.
    confidence : float
        See the notes of `audit`.
    direction : {"a over b", "b over a"}
        Whether the region is likelier under A or under B.
    threshold : float
        The region is score >= threshold for "a over b", score <= threshold for "b over a".
    likelier, rarer : int
        Held-out runs that fell into the region, on the data set that makes it likelier, and on the
        other one.
    held_out : int
        Number of held-out runs on each data set.
    p_lower, p_upper : float
        Lower confidence bound of the larger probability, upper bound of the smaller one.
    epsilon_lower : float
        Lower confidence bound of epsilon at this delta; 0 if nothing was found.
    mu : float, optional
        The claim in terms of Gaussian privacy, where there is one.
    """

    epsilon: float
    delta: float
    confidence: float
    direction: Direction
    threshold: float
    likelier: int
    rarer: int
    held_out: int
    p_lower: float
    p_upper: float
    epsilon_lower: float
    mu: float | None = None

    @property
    def mu_lower(self) -> float:
        """Lower confidence bound of mu; 0 if nothing was found."""
        return max(0.0, float(distance(np.array(self.p_lower), np.array(self.p_upper))))

    @property
    def passed(self) -> bool:
        """Whether the runs are compatible with the claim; no proof that it holds."""
        gaussian = self.mu is None or self.mu_lower <= self.mu
        return self.epsilon_lower <= self.epsilon and gaussian

    def __str__(self) -> str:
        first, second = ("A", "B") if self.direction == "a over b" else ("B", "A")
        delta = f" and delta = {self.delta:g}" if self.delta else ""
        found = (
            f"{self.likelier:,} of {self.held_out:,} runs on data set {first} fell into the region "
            f"chosen beforehand, {self.rarer:,} of {self.held_out:,} on its neighbour {second}: "
            f"epsilon is at least {self.epsilon_lower:.3f} with {self.confidence:.4g} confidence."
        )
        if self.mu is not None:
            found += (
                f" As Gaussian noise, it tells them apart by at least {self.mu_lower:.3f} standard "
                f"deviations, where {self.mu:.3f} are allowed."
            )
        if self.passed:
            return (
                f"No violation found of epsilon = {self.epsilon:g}{delta}. {found} "
                "This is a lower bound, not a proof of privacy."
            )
        return (
            f"Violates epsilon = {self.epsilon:g}{delta}. {found} If the claim were true, such a "
            f"verdict would come up with probability at most {1 - self.confidence:.4g}."
        )
