"""Combine what an analysis says of several synthetic data sets.

Set j of m is made of the tables θ_j of one posterior draw: k rows from the network of θ_j. The
analysis gives an estimate q_j and its usual variance u_j, both from set j alone. Let Q(θ) be what
the analysis would find in infinitely many rows of θ, and V the posterior variance of Q, which holds
sampling error, privacy noise and prior alike. Then, given the Release,

    q_j = Q(θ_j) + sampling error of k rows:   E q_j = E Q,   Var q_j = V + u.

So the spread b of the estimates (their variance over sets) estimates V + u, not V, and their mean
q̄ differs from the posterior mean of Q by an error of variance (V + u) / m. The uncertainty of Q
around q̄ is therefore

    T = V + (V + u) / m ≈ (b - ū) + b / m = (1 + 1/m) b - ū,

the rule of Raghunathan, Reiter & Rubin (2003) for fully synthetic data; the noise of a Release is
in b because it is in the posterior. The rule for imputed data, ū + (1 + 1/m) b, would count
sampling error three times, and a plain analysis of one set, u, leaves out V altogether.

T is a difference and may be far off, or negative, where b is hardly larger than ū: then more rows a
set (they make ū small) or more sets help. V can't be less than the sampling variance of the n true
rows, ū k / n, so that is the least that T is taken to be. Intervals are those of a t law with

    (m - 1) (1 - ū / ((1 + 1/m) b))²

degrees of freedom, which is Satterthwaite's number for T; at least 2 of them.

*Congenial*: columns that are all joined by arrows may have any joint law. Of two columns without an
arrow the sets know only what follows from the others; where the graph is wrong there, so is the
answer, and no interval shows it.

References
----------
Raghunathan, Reiter and Rubin (2003), Multiple imputation for statistical disclosure limitation,
Journal of Official Statistics 19, 1-16.
Räisä, Jälkö, Kaski and Honkela (2023), Noise-aware statistical inference with differentially
private synthetic data, AISTATS, arXiv:2205.14485.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.arguments import probability, whole_number
from noisewise.core.errors import RequestError

if TYPE_CHECKING:
    from noisewise.analyst.posterior.network import NetworkPosterior

LEAST_FREEDOM = 2.0


@dataclass(frozen=True, eq=False)
class Pooled:
    """What all synthetic sets say together; arrays of the shape of one estimate."""

    estimate: FloatArray
    sd: FloatArray
    lower: FloatArray
    upper: FloatArray
    freedom: FloatArray  # degrees of freedom of the t law behind the interval
    level: float
    sets: int
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        columns = (np.atleast_1d(x) for x in (self.estimate, self.sd, self.lower, self.upper))
        percent = f"{100 * self.level:g}%"
        lines = [
            f"{q:.5g} (sd {sd:.3g}, {percent} interval {low:.5g} to {high:.5g})"
            for q, sd, low, high in zip(*(x.ravel() for x in columns), strict=True)
        ]
        return "\n".join([*lines, *(f"Warning: {text}" for text in self.warnings)])


def pool(
    estimates: Any,
    variances: Any,
    *,
    rows: int,
    n: int | None = None,
    level: float = 0.95,
    posterior: NetworkPosterior | None = None,
    columns: Sequence[str] | None = None,
) -> Pooled:
    """One answer from the same analysis of several synthetic data sets.

    Parameters
    ----------
    estimates : array, shape (sets,) or (sets, ...)
        What the analysis estimated in each set, such as slopes.
    variances : array of the same shape
        Their squared standard errors, as the analysis of that set alone gives them.
    rows : int
        Rows of each synthetic set.
    n : int, optional
        Rows behind the Release. By default those of `posterior`, where they are public.
    level : float
    posterior : NetworkPosterior, optional
        Where the sets came from.
    columns : sequence of str, optional
        Columns that the analysis relates to each other: with `posterior`, it is said if the network
        leaves out dependences between them.
    """
    from scipy.stats import t as student

    q, u = _numbers("estimates", estimates), _numbers("variances", variances)
    if q.shape != u.shape or q.ndim < 1 or len(q) < 2:
        raise RequestError(
            "estimates, variances: expected arrays of the same shape, with one entry a set and at "
            f"least two sets; got shapes {q.shape} and {u.shape}"
        )
    if (u < 0).any():
        raise RequestError("variances: expected squared standard errors, which aren't negative")
    rows, level, m = whole_number("rows", rows, 1, 10**12), probability("level", level), len(q)
    if n is None and posterior is not None and None not in posterior.info.n:
        n = sum(own for own in posterior.info.n if own is not None)
    between, within = (1 + 1 / m) * q.var(axis=0, ddof=1), u.mean(axis=0)
    least = within * (0.0 if n is None else rows / whole_number("n", n, 1, 10**12))
    total = between - within
    small = total < least
    if n is None and (total <= 0).any():
        raise RequestError(
            "estimates: they differ by no more between sets than rows within one; say the number n "
            "of true rows, or make more sets, or more rows in each"
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(between > 0, 1 - within / between, 0.0)
    freedom = np.maximum((m - 1) * np.maximum(share, 0.0) ** 2, LEAST_FREEDOM)
    # Where the bound decides, nothing of the spread over sets is left to be uncertain about.
    freedom = np.where(small, float(max(m - 1, LEAST_FREEDOM)), freedom)
    sd = np.sqrt(np.where(small, least, total))
    centre, reach = q.mean(axis=0), student.ppf((1 + level) / 2, freedom) * sd
    warnings = []
    if small.any():
        warnings.append(
            f"{int(small.sum())} of {small.size} estimates spread over the sets hardly more than "
            "within one: their interval is what the true rows would give without privacy, the "
            "least that is possible. Make more sets, or more rows in each."
        )
    if posterior is not None and columns is not None:
        warnings.extend(congeniality(posterior, columns))
    return Pooled(centre, sd, centre - reach, centre + reach, freedom, level, m, tuple(warnings))


def congeniality(posterior: NetworkPosterior, columns: Sequence[str]) -> tuple[str, ...]:
    """A warning where columns of an analysis are not all joined by arrows; otherwise nothing."""
    pairs = posterior.unlinked(columns)
    if not pairs:
        return ()
    shown = ", ".join(f"{a} and {b}" for a, b in pairs[:5]) + (" ..." if len(pairs) > 5 else "")
    return (
        f"not congenial: the network has no arrow between {shown}. The sets know only the "
        "dependence that follows from other columns; if there is more of it in the rows, this "
        "answer is wrong and its interval too narrow.",
    )


def _numbers(where: str, given: Any) -> FloatArray:
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array(np.nan)
    if not np.isfinite(values).all():
        raise RequestError(f"{where}: expected finite numbers, one entry a set")
    return values
