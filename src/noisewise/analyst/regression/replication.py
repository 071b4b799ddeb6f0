"""The posterior predictive check of a Release: what the fitted model would have released.

For every posterior draw, `agreement.released_law` has mean and variance of the noisy sums that a
holder of as many rows would publish under those parameters. Over draws that is a mixture, whose
mean, standard deviation and distribution function at the released value are kept.

What this can and cannot find. Second moments have as many entries as the model has parameters, so
one Release is matched almost by construction, and the released value was used to choose the
draws: the distribution function at it is less spread than uniform (a posterior predictive p-value
is conservative). A value far out is still a sure sign of other units or a broken file.

One thing is not matched by construction: the bounds. A normal law with the fitted mean and variance
may put people where the public bounds say that nobody is, and then predictive intervals for single
people cannot be trusted, whatever the coefficients are worth. `outside` measures that.

References
----------
Gelman, Meng & Stern (1996), Posterior predictive assessment of model fitness via realized
    discrepancies, Statistica Sinica 6, 733-807.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from noisewise._arrays import FloatArray
from noisewise.analyst.regression.agreement import released_law
from noisewise.analyst.regression.observation import Observation


class Replication(NamedTuple):
    """The posterior predictive law of one Release, on unit scale.

    Parameters
    ----------
    expected, spread : array, shape (P, P)
        Mean and standard deviation of a replicated release. The spread is 0 where nothing noisy
        was released.
    below : array, shape (P, P)
        Probability that a replicated value is below the released one; 0.5 where nothing was.
    outside : array, shape (P,)
        Share of the model's people outside [-1, 1], by column.
    """

    expected: FloatArray
    spread: FloatArray
    below: FloatArray
    outside: FloatArray


def replicate(
    observation: Observation,
    theta: FloatArray,
    sigma2: FloatArray,
    mu: FloatArray,
    T: FloatArray,
) -> Replication:
    """The law of a replicated Release, over m posterior draws of the parameters."""
    G, mean, variance, noisy = released_law(observation, theta, sigma2, mu, T)
    sd = np.sqrt(variance)
    total = np.sqrt(variance.mean(axis=0) + mean.var(axis=0))
    below = ndtr((observation.values - mean) / sd).mean(axis=0)
    centre = G[:, 0]
    width = np.sqrt(np.maximum(np.einsum("maa->ma", G) - centre**2, 1e-300))
    outside = (ndtr((-1.0 - centre) / width) + ndtr((centre - 1.0) / width)).mean(axis=0)
    outside[0] = 0.0
    return Replication(
        np.where(noisy, mean.mean(axis=0), observation.values),
        np.where(noisy, total, 0.0),
        np.where(noisy, below, 0.5),
        outside,
    )
