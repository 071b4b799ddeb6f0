"""What it costs to account for discrete Gaussian noise as if it were continuous.

References
----------
Laurent and Massart (2000), Adaptive estimation of a quadratic functional by model selection,
    doi:10.1214/aos/1015957395.
"""

from __future__ import annotations

from fractions import Fraction

from noisewise.core.errors import RequestError
from noisewise.core.precision import MARGIN, check_whole, float_up, precise, to_fraction, to_precise

# How many standard deviations `discreteness_slack` covers; what lies beyond has mass exp(-8192).
TAIL = 128
SMALLEST_GAUSSIAN_SCALE = 2**20


def discreteness_slack(entries: int, scale: int) -> float:
    r"""Return the epsilon to add when integer noise is accounted for as continuous noise.

    Claim. Let integer statistics with m = `entries` coordinates and L2 sensitivity D get
    independent discrete Gaussian noise with pmf p(x) proportional to exp(-x^2 / 2s^2),
    s = `scale`. If continuous Gaussian noise of standard deviation s, alone or composed with
    other mechanisms, is (epsilon, delta)-DP, then the same with discrete noise is
    (epsilon + slack, exp(slack) (delta + exp(epsilon - t^2/2)))-DP, with t = `TAIL` and

        slack = A + B,  A = m / (24 s^2),
        B = (sqrt(m) (1 + 1/(2s)) + t)^2 / (24 s^2) + m zeta,  zeta = 3 exp(-2 pi^2 s^2).

    Proof. (i) Rounding is free: x is integer, so round(x + g) = x + round(g) almost surely, and
    the rounded continuous mechanism is (epsilon, delta)-DP by post-processing. Write r for the
    pmf of round(g) and phi for the density of g.

    (ii) One coordinate. Folding the integral over a cell at its middle,

        r(x) = phi(x) I(x),   I(x) = int_{-1/2}^{1/2} exp(-u^2 / 2s^2) cosh(x u / s^2) du.

    Below, cosh >= 1 and Jensen's inequality with int u^2 du = 1/12 give I >= exp(-1/(24 s^2)).
    Above, exp(-u^2/2s^2) <= 1 and sinh(c)/c <= exp(c^2/6) with c = x/(2 s^2) give
    I <= exp(x^2 / (24 s^4)). By Poisson summation the normaliser of p is
    s sqrt(2 pi) (1 + z) with 0 < z = 2 sum_{k>=1} exp(-2 pi^2 s^2 k^2) <= zeta, so
    p = phi / (1 + z) and, *for every integer x*,

        p(x) <= exp(1/(24 s^2)) r(x),      r(x) <= (1 + zeta) exp(x^2 / (24 s^4)) p(x).

    (iii) All coordinates. Multiplying, p <= exp(A) r everywhere. In the other direction,
    ||round(g)|| <= ||g|| + sqrt(m)/2, and ||g|| <= s (sqrt(m) + t) except with probability
    exp(-t^2/2) (Laurent and Massart 2000, Lemma 1, with x = t^2/2). Hence r <= exp(B) p on a set
    G with r(G^c) <= exp(-t^2/2).

    (iv) Let P, P' and R, R' be the discrete and the rounded mechanism on two neighbouring
    datasets, and G' the set of (iii) around the second one. For every event S

        P(S) <= exp(A) R(S) <= exp(A) (exp(epsilon) R'(S) + delta)
             <= exp(A) (exp(epsilon) (exp(B) P'(S) + exp(-t^2/2)) + delta).

    In an adaptive composition the pmfs multiply conditionally on what came before and the other
    mechanisms cancel, so slacks add and so do the tails exp(-t^2/2). QED.

    Coordinates with different scales s_i are covered by passing the smallest: then A only
    overstates, and x_i^2 / s_i^4 <= (x_i / s_i)^2 / s^2 leads (iii) to the same B.

    `noisewise.core.privacy` charges the factor exp(slack) and the tail to delta.

    Parameters
    ----------
    entries : int
        Number of integers that get noise, m.
    scale : int
        Parameter s of the noise, at least 2**20.

    Returns
    -------
    float
        Rounded up.
    """
    check_whole(entries, "entries")
    check_whole(scale, "scale")
    if scale < SMALLEST_GAUSSIAN_SCALE:
        raise RequestError(
            f"scale = {scale} is below 2**20, too coarse to account for as a Gaussian; "
            "use more fixed-point bits, or a smaller epsilon"
        )
    slack = sum(_slack_terms(entries, scale, TAIL), Fraction(0))
    return float_up(slack)


def _slack_terms(entries: int, scale: int, tail: int) -> tuple[Fraction, Fraction]:
    """Return upper bounds of A and B of `discreteness_slack`; valid for every scale >= 1."""
    mp = precise()
    s = mp.mpf(scale)
    root = mp.sqrt(entries)
    upper = 1 + to_precise(MARGIN)
    zeta = 3 * mp.exp(-2 * mp.pi**2 * s * s)
    lower = (root * (1 + 1 / (2 * s)) + tail) ** 2 / (24 * s * s) + entries * zeta
    return Fraction(entries, 24 * scale * scale), to_fraction(lower * upper)
