"""NOT PRIVATE: what Zhang, Rubinstein & Dimitrakakis (2016) print or plot, where it breaks epsilon.

It is here to draw their figure and to show what is wrong, and for nothing else.

- `kept_parities`: Algorithm 2 with only those outputs kept that have no negative cell, as in the
  paper's experiment ("those times that contributed to the plot"). Which noise is kept depends on
  the counts: the loss is up to 2ε.
- `per_attribute_truncation`: Theorem 4 says (2‖L‖∞, 0) "under the pseudo-metric ρ". Records that
  differ in every one of |I| attributes are at distance |I|, so that by the paper's own Definition 1
  the loss is |I| times what is claimed.
- `clamped_draw`: sampling first and moving the sample to [ω, 1-ω] afterwards. The ends become
  atoms whose probabilities two neighbours may disagree on by any factor.
"""

from __future__ import annotations

import math

import numpy as np

from noisewise._arrays import FloatArray
from studies.zhang2016.mechanisms import Truncation, discrete_laplace, widest_truncation
from studies.zhang2016.naive_bayes import (
    Counts,
    ParityCounts,
    from_parities,
    noisy_parities,
    with_increment,
)


def paper_scale(d: int, epsilon: float) -> float:
    """The noise scale that Corollary 2 puts on a parity count: |N|/ε, |N| = 2d + 2.

    Printed for coefficients S/2^{|I|/2} as 2|N|/(ε 2^{|I|/2}); Q = (n - S)/2 halves it again.
    """
    return (2 * d + 2) / epsilon


def kept_parities(
    rng: np.random.Generator, exact: ParityCounts, scale: float, increment: float, tries: int = 1000
) -> Counts | None:
    """Draw again until no cell is negative once `increment` is added. NOT PRIVATE.

    None where `tries` is not enough. That would say something about the counts, too.
    """
    for _ in range(tries):
        made = paper_parities(rng, exact, scale, increment)
        if made.tables.min() >= 0:
            return made
    return None


def paper_parities(
    rng: np.random.Generator, exact: ParityCounts, scale: float, increment: float
) -> Counts:
    """One run of Algorithm 2, which is private: counts from noisy coefficients.

    The paper adds noise to the coefficient of the empty set too, n, though it is public under
    replacement; like the increment it moves all cells alike, by a quarter of itself.
    """
    common = discrete_laplace(rng, scale, ()) / 2
    counts = from_parities(noisy_parities(rng, exact, scale))
    return with_increment(counts, increment + float(common))


def increment_for(
    rng: np.random.Generator, d: int, scale: float, stealth: float, draws: int = 2000
) -> float:
    """The increment with which no cell is negative for this share of the noise, whatever the data.

    The noise alone is simulated, so it costs nothing. (Corollary 3's constant is t|N|²/ε on every
    cell of a naive Bayes model, see `printed_increment`.)
    """
    zero = ParityCounts(0, 0.0, np.zeros(d), np.zeros(d))
    lowest = [paper_parities(rng, zero, scale, 0.0).tables.min() for _ in range(draws)]
    return float(np.quantile(-np.array(lowest), stealth))


def printed_increment(d: int, epsilon: float, stealth: float) -> float:
    """Corollary 3: 4t|N|²/(ε 2^{|I|/2}) on the first coefficient, t = -log(1 - stealth).

    On a cell of a family of two binary nodes that is 2^{|I|/2 - 2} times as much: t|N|²/ε.
    """
    return -math.log1p(-stealth) * (2 * d + 2) ** 2 / epsilon


def per_attribute_truncation(epsilon: float) -> Truncation:
    """2 log((1-ω)/ω) = ε, as if a record had one attribute. NOT PRIVATE: it costs |I| ε."""
    return widest_truncation(epsilon, nodes=1)


def clamped_draw(
    rng: np.random.Generator, a: FloatArray, b: FloatArray, omega: float
) -> FloatArray:
    """Beta(a, b) moved to the nearest end of [ω, 1-ω]. NOT PRIVATE, whatever ω."""
    return np.asarray(np.clip(rng.beta(a, b), omega, 1 - omega), dtype=np.float64)
