"""Average over blocks of clipped posterior quantiles, with public bounds.

Each block gives its p-quantile of the posterior with the likelihood to the power M, which is as
wide as that of all rows, clipped to public bounds. With ends so wide that they clip nothing the
average is the full posterior's quantile Q(p) up to terms of order 1/n_j (Li, Srivastava & Dunson
2017), and released is Q(p) + Laplace(noise).

`interval` accounts for the noise. Say β ~ N(m, σ²) is the full posterior and two quantiles
m + σ z_1 and m + σ z_2 are released with noise. Their difference estimates σ, and given σ the
location is a released number minus σ z plus Laplace noise, so that β - released + σ z is
N(0, σ²) + Laplace(noise), and the end that leaves p below itself is released - σ z + F_NL⁻¹(p).

References
----------
Amitai & Reiter (2018), doi:10.29012/jpc.686, section 4. Li, Srivastava & Dunson (2017),
doi:10.1093/biomet/asx033.
"""

from __future__ import annotations

from statistics import NormalDist

from noisewise.core import normal_laplace

_Z = NormalDist().inv_cdf


def posterior_sd(low: float, high: float, p_low: float, p_high: float) -> float:
    """σ from two released quantiles; zero where the noise has turned them round."""
    return max(0.0, (high - low) / (_Z(p_high) - _Z(p_low)))


def interval(
    low: float, high: float, p_low: float, p_high: float, noise: float
) -> tuple[float, float]:
    """The ends that leave `p_low` below and `1 - p_high` above, noise included.

    Where the noise has turned even these round, the smaller one comes first.
    """
    sd = posterior_sd(low, high, p_low, p_high)
    ends = (
        released - sd * _Z(p) + float(normal_laplace.ppf(p, sd, noise))
        for released, p in ((low, p_low), (high, p_high))
    )
    first, second = sorted(ends)
    return first, second
