"""NOT PRIVATE: the two algorithms of Amitai & Reiter (2018) with the noise that was printed.

They are here for their figures, and as the negative control of the audit, and for nothing else.
Noise is floating-point Laplace from a seeded generator, and its scale is wrong in both:

- *rescaled normal* (section 2.1): a mean of M probabilities has sensitivity 1/M, so ε-differential
  privacy takes noise of scale 1/(Mε). Printed is ε/M, which gives 1/ε: at ε = 1 the two agree, at
  ε = 0.1 the printed algorithm spends 10.
- *Fisher-derived* (section 2.2): one record is in one block and can move that block's term by
  -2 log p*, and a *sum* over blocks moves as much, not 1/M of it. Printed is -2 log p*/(Mε), which
  spends M ε: 100 instead of 1 for M = 100. What the paper reports as Fisher's advantage at ε = 0.1
  is the missing noise.

The reference distribution of step 2 to 5 would take the logarithm twice; it is taken once here. A
noisy mean of probabilities outside (0, 1), of which the paper says nothing, counts as 0 or 1.
All functions take block probabilities p_j(b) as arrays with the blocks on the last axis.

References
----------
Amitai & Reiter (2018), Differentially private posterior summaries for linear regression
coefficients, doi:10.29012/jpc.686.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from noisewise._arrays import FloatArray


def rescaled_normal_printed_scale(blocks: int, epsilon: float) -> float:
    """The scale of equation 2.10, ε/M; no noise for ε = ∞, as in the paper's section 3.1."""
    return 0.0 if math.isinf(epsilon) else epsilon / blocks


def rescaled_normal_right_scale(blocks: int, epsilon: float) -> float:
    """What ε-differential privacy takes: 1/(Mε)."""
    return 1 / (blocks * epsilon)


def fisher_printed_scale(blocks: int, epsilon: float, p_star: float) -> float:
    """The scale of equation 2.13, -2 log p*/(Mε)."""
    return -2 * math.log(p_star) / (blocks * epsilon)


def fisher_right_scale(epsilon: float, p_star: float) -> float:
    """What ε-differential privacy takes: -2 log p*/ε."""
    return -2 * math.log(p_star) / epsilon


def rescaled_normal_statistic(
    probabilities: ArrayLike, scale: float, rng: np.random.Generator
) -> FloatArray:
    """The noisy mean of the block probabilities; shape (...,)."""
    mean = np.asarray(probabilities, dtype=np.float64).mean(axis=-1)
    return np.asarray(mean + _laplace(mean.shape, scale, rng))


def rescaled_normal_probability(statistic: ArrayLike, multiplier: float) -> FloatArray:
    """Φ(multiplier Φ⁻¹(statistic)); the printed multiplier is √M, the unbiased one √(2M - 1)."""
    from scipy.special import ndtr, ndtri

    mean = np.clip(np.asarray(statistic, dtype=np.float64), 0.0, 1.0)
    return np.asarray(ndtr(multiplier * ndtri(mean)))


def rescaled_normal_as_printed(
    probabilities: ArrayLike, epsilon: float, rng: np.random.Generator
) -> FloatArray:
    """Equation 2.10: p_{N,ε}(b); shape (...,)."""
    blocks = np.shape(probabilities)[-1]
    scale = rescaled_normal_printed_scale(blocks, epsilon)
    statistic = rescaled_normal_statistic(probabilities, scale, rng)
    return rescaled_normal_probability(statistic, math.sqrt(blocks))


def fisher_statistic(
    probabilities: ArrayLike, p_star: float, scale: float, rng: np.random.Generator
) -> FloatArray:
    """-2 Σ log max(p_j, p*) with noise; shape (...,)."""
    clipped = np.maximum(np.asarray(probabilities, dtype=np.float64), p_star)
    total = -2 * np.log(clipped).sum(axis=-1)
    return np.asarray(total + _laplace(total.shape, scale, rng))


def fisher_reference(
    blocks: int, p_star: float, scale: float, draws: int, rng: np.random.Generator
) -> FloatArray:
    """Sorted draws of the statistic for uniform probabilities; shape (draws,)."""
    reference = np.empty(draws)
    for start in range(0, draws, 1000):
        uniform = rng.random((min(1000, draws - start), blocks))
        reference[start : start + 1000] = fisher_statistic(uniform, p_star, scale, rng)
    return np.sort(reference)


def fisher_probability(statistic: ArrayLike, reference: FloatArray) -> FloatArray:
    """The share of the reference distribution that exceeds the statistic."""
    below = np.searchsorted(reference, np.asarray(statistic, dtype=np.float64), side="right")
    return np.asarray(1 - below / len(reference))


def fisher_as_printed(
    probabilities: ArrayLike,
    epsilon: float,
    rng: np.random.Generator,
    *,
    p_star: float = 0.001,
    draws: int = 10_000,
) -> FloatArray:
    """Section 2.2: p_{F,ε}(b); shape (...,)."""
    blocks = np.shape(probabilities)[-1]
    scale = fisher_printed_scale(blocks, epsilon, p_star)
    reference = fisher_reference(blocks, p_star, scale, draws, rng)
    return fisher_probability(fisher_statistic(probabilities, p_star, scale, rng), reference)


def _laplace(shape: tuple[int, ...], scale: float, rng: np.random.Generator) -> FloatArray:
    return np.asarray(rng.laplace(0.0, scale, shape)) if scale > 0 else np.zeros(shape)
