"""From a privacy guarantee to an integer noise scale, and back. Arithmetic only, no events.

Everything that decides about privacy is evaluated with 80 digits and compared with a margin that
dwarfs the evaluation error; a result that has to become a float64 is then rounded towards more
privacy. Floats with hardware precision only ever supply starting points.

References
----------
Balle and Wang (2018), Improving the Gaussian mechanism for differential privacy,
    arXiv:1805.06530.
Bun and Steinke (2016), Concentrated differential privacy, doi:10.1007/978-3-662-53641-4_24.
Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy,
    doi:10.29012/jpc.784.
Dong, Roth and Su (2022), Gaussian differential privacy, doi:10.1111/rssb.12454.
Laurent and Massart (2000), Adaptive estimation of a quadratic functional by model selection,
    doi:10.1214/aos/1015957395.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from noisewise.core.errors import RequestError
from noisewise.core.privacy import MARGIN, check_whole, float_up, precise, to_fraction, to_precise

# How many standard deviations `discreteness_slack` covers; what lies beyond has mass exp(-8192).
TAIL = 128
SMALLEST_GAUSSIAN_SCALE = 2**20


def gaussian_delta(mu: Any, epsilon: Fraction) -> Any:
    r"""Bound delta(epsilon) of the Gaussian mechanism with sensitivity/sigma = `mu` from above.

    Balle and Wang (2018, Theorem 8): with u = epsilon/mu - mu/2 and v = u + mu the mechanism is
    (epsilon, delta)-DP exactly for delta >= Phi(-u) - exp(epsilon) Phi(-v). The two terms cancel
    when mu is small, so the bound adds `MARGIN` times the first term, which exceeds the
    absolute error of either term as long as mu and u stay below 1e8. Beyond, 80 digits say
    little about exp(-u^2/2), and Phi(-u) <= exp(-u^2/2) for u > 0, or 1, is returned instead.

    `mu` is positive, `epsilon` not negative.
    """
    mp = precise()
    e = to_precise(epsilon)
    if mu > 10**8:
        return mp.one
    u = e / mu - mu / 2
    v = e / mu + mu / 2
    if u > 10**8:
        return mp.exp(-((u * (1 - to_precise(MARGIN))) ** 2) / 2)
    root2 = mp.sqrt(2)
    first = mp.erfc(u / root2) / 2
    second = mp.exp(e) * mp.erfc(v / root2) / 2
    return first - second + first * to_precise(MARGIN)


def _certifies(mu: Any, epsilon: Fraction, delta: Fraction) -> bool:
    return bool(gaussian_delta(mu, epsilon) <= to_precise(delta * (1 - MARGIN)))


def _bisect(holds: Callable[[float], bool], low: float, high: float, tolerance: float) -> float:
    """Shrink [low, high] while `holds(high)` stays true; return `high`, so it is certified."""
    while high - low > tolerance * high:
        middle = low + (high - low) / 2
        if not low < middle < high:
            break
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def gaussian_epsilon(mu: Any, delta: Fraction) -> float:
    """Return the smallest epsilon at `delta` of the Gaussian mechanism, rounded up by < 1e-13.

    The search starts from mu^2/2 + mu sqrt(2 log(1/delta)), which suffices because the mechanism
    is (mu^2/2)-zCDP (Bun and Steinke 2016, Proposition 1.3). Infinity when delta is zero or when
    epsilon doesn't fit a float64.
    """
    if delta <= 0:
        return math.inf
    if _certifies(mu, Fraction(0), delta):
        return 0.0
    mp = precise()
    start = mu * mu / 2 + mu * mp.sqrt(-2 * mp.log(to_precise(delta)))
    if not mp.isfinite(start) or start > mp.mpf("1e300"):
        return math.inf
    high = float(start) * (1 + 1e-15) + 5e-324

    def holds(epsilon: float) -> bool:
        return _certifies(mu, Fraction(epsilon), delta)

    # delta is bounded above with a margin, so the theorem alone doesn't promise success here.
    return _bisect(holds, 0.0, high, 1e-13) if holds(high) else math.inf


def zcdp_epsilon(rho: Any, delta: Fraction) -> float:
    """Return an epsilon for which rho-zCDP implies (epsilon, delta)-DP, rounded up.

    Canonne, Kamath and Steinke (2020, Proposition 12) give, for *every* order alpha > 1,

        epsilon = alpha rho + log(1 - 1/alpha) - log(delta alpha) / (alpha - 1).

    The order is found with ordinary floats: a poor choice can only make epsilon larger. The value
    at that order is then computed with 80 digits.
    """
    if delta <= 0:
        return math.inf
    mp = precise()
    log_delta = mp.log(to_precise(delta))

    def at(log_excess: float, arithmetic: Any, rho: Any, log_delta: Any) -> Any:
        x = arithmetic.exp(log_excess)  # alpha - 1
        y = arithmetic.log1p(x)
        return (1 + x) * rho + log_excess - y - (log_delta + y) / x

    low, high = -30.0, 60.0
    rough = float(rho), float(log_delta)
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(100):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if at(left, math, *rough) <= at(right, math, *rough):
            high = right
        else:
            low = left
    value = at(mp.mpf((low + high) / 2), mp, rho, log_delta)
    if not mp.isfinite(value):
        return math.inf
    return max(0.0, float_up(to_fraction(value + (abs(value) + 1) * to_precise(MARGIN))))


def laplace_scale(sensitivity: int, epsilon: Fraction) -> int:
    """Return the smallest float64-representable integer that is >= sensitivity / epsilon.

    Discrete Laplace noise of this scale on an integer vector whose L1 sensitivity is
    `sensitivity` is epsilon-DP: pmf ratios are exp(-|x|/scale) ratios, at most
    exp(sensitivity/scale) <= exp(epsilon). No continuous approximation is involved.
    """
    check_whole(sensitivity, "sensitivity")
    _positive_fraction(epsilon, "epsilon")
    return _representable(Fraction(sensitivity) / epsilon)


def gaussian_scale(sensitivity: int, noise_multiplier: float) -> int:
    """Return the smallest float64-representable integer >= sensitivity * noise_multiplier."""
    check_whole(sensitivity, "sensitivity")
    if not (isinstance(noise_multiplier, float) and 0 < noise_multiplier < math.inf):
        raise RequestError(
            f"noise_multiplier = {noise_multiplier!r} must be a positive, finite float"
        )
    return _representable(sensitivity * Fraction(noise_multiplier))


def gaussian_noise_multiplier(epsilon: Fraction, delta: Fraction) -> float:
    """Return the smallest sigma/sensitivity that is (epsilon, delta)-DP, rounded up.

    delta decreases in sigma (more noise is post-processing), so a bracket with a certified upper
    end is shrunk until it is relatively narrower than 1e-11; the certified end is returned.

    Tested for epsilon from 1e-6 to 1e3 and delta from 1e-300 to 0.5.
    """
    _positive_fraction(epsilon, "epsilon")
    if not isinstance(delta, Fraction) or not 0 < delta < 1:
        raise RequestError(
            f"delta = {delta!r} must be a Fraction strictly between 0 and 1; "
            "convert with as_fraction"
        )
    mp = precise()

    def holds(multiplier: float) -> bool:
        return _certifies(1 / mp.mpf(multiplier), epsilon, delta)

    guess = _starting_multiplier(epsilon, delta)
    low, high, step = guess * (1 - 1e-11), guess * (1 + 1e-11), 1e-10
    while high < 1e300 and not holds(high):
        low, high, step = high, high * (1 + step), min(step * 32, 1.0)
    if not high < 1e300:
        raise RequestError(
            f"epsilon = {float(epsilon)!r} with delta = {float(delta)!r} needs more noise than "
            "a float64 can describe; ask for a larger epsilon"
        )
    step = 1e-10
    while holds(low):
        low, high, step = low / (1 + step), low, min(step * 32, 1.0)
    return _bisect(holds, low, high, 1e-11)


def _starting_multiplier(epsilon: Fraction, delta: Fraction) -> float:
    """Guess sigma/sensitivity; dp_accounting where its floats suffice, else a zCDP formula.

    Solving rho + 2 sqrt(rho log(1/delta)) = epsilon gives
    1/sqrt(2 rho) = (sqrt(L + epsilon) + sqrt(L)) / (sqrt(2) epsilon) with L = log(1/delta).
    """
    mp = precise()
    level = -mp.log(to_precise(delta))
    e = to_precise(epsilon)
    fallback = float((mp.sqrt(level + e) + mp.sqrt(level)) / (mp.sqrt(2) * e))
    if not (Fraction(1, 10**9) <= epsilon <= 10**4 and Fraction(1, 10**307) <= delta):
        return fallback
    import warnings

    from dp_accounting.gaussian_mechanism import get_sigma_gaussian

    try:
        with warnings.catch_warnings():  # it takes log(0) where its two terms cancel completely
            warnings.simplefilter("ignore")
            guess = float(get_sigma_gaussian(float(epsilon), float(delta)))
    except (ArithmeticError, ValueError, RuntimeError):
        return fallback
    # The guess costs or saves steps; it can't cost privacy. The formula is an upper bound.
    return guess if 0 < guess <= fallback else fallback


def zcdp_noise_multiplier(rho: Fraction) -> float:
    """Return the smallest float64 that is >= 1/sqrt(2 rho) (Bun and Steinke 2016, Prop. 1.6)."""
    _positive_fraction(rho, "rho")
    result = float(1 / precise().sqrt(to_precise(2 * rho)))
    # Compare squares as rationals: exact, where comparing roots would not be.
    while Fraction(result) ** 2 * 2 * rho < 1:
        result = math.nextafter(result, math.inf)
    while Fraction(math.nextafter(result, 0.0)) ** 2 * 2 * rho >= 1:
        result = math.nextafter(result, 0.0)
    return result


def _representable(value: Fraction) -> int:
    """Return the smallest integer >= value that a float64 represents exactly."""
    integer = math.ceil(value)
    spare = integer.bit_length() - 53
    if spare > 0:
        integer = -((-integer) >> spare) << spare
    if integer.bit_length() > 1024:
        raise RequestError(
            "the noise scale exceeds the largest float64; use a larger epsilon or fewer "
            "fixed-point bits"
        )
    return integer


def _positive_fraction(value: Fraction, name: str) -> None:
    if not isinstance(value, Fraction) or value <= 0:
        raise RequestError(
            f"{name} = {value!r} must be a positive Fraction; convert with as_fraction"
        )


# --- what it costs to account for discrete Gaussian noise as if it were continuous ----------------


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

    The scale must be at least 2**20; the result is rounded up.
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


def lattice_inflation(scale: int) -> Fraction:
    r"""Return by how much mu^2 grows when discrete Gaussian noise is taken for continuous noise.

    Claim. Let an integer statistic with coordinates that move by v_i get independent noise with pmf
    p_i(x) proportional to exp(-x^2 / 2s_i^2) on the integers, all s_i at least s = `scale` >= 8.
    The mechanism is mu-Gaussian private (Dong, Roth and Su 2022) for

        mu^2 = (1 + 1/2s^2) sum_i (v_i / s_i)^2.

    There is no delta and no tail: where losses are added up as mu^2, this takes the place of
    `discreteness_slack`, which is for accountants that know (epsilon, delta) curves only.

    Proof. *One coordinate.* Let F be the distribution function of p at the integers, u_t =
    Phi^-1(F(t)) and d_t = u_t - u_{t-1}. It is enough that d_t <= d with d^2 = (1 + 1/2s^2) / s^2.
    For the likelihood ratio of x and x + v is monotone, so the best tests are thresholds: the
    trade-off function has its vertices at a first error 1 - F(t) and a second error F(t - v), t an
    integer, and is straight between them. That of a Gaussian is convex and lies at
    Phi(u_t - mu) there, and u_t - u_{t-v} <= v d = mu.

    (i) *At infinity d_t tends to 1/s.* By symmetry d_{-t} = d_t, so let t be negative. From F(t) =
    p(t) (1 + o(1)) and Phi(u) = exp(-u^2/2) / |u| O(1) follows u_t = t/s + O(log|t| / |t|).

    (ii) *d_t <= 1.* d_0 = 2 Phi^-1(1/2 + p(0)/2) < 0.13, because p(0) <= 1 / (s sqrt(2 pi)) <= 0.05
    by Poisson summation. Let t < 0, so that u_t < 0, and d_t > 1. The hazard phi/Phi(u) is larger
    than |u|, so Phi(u_t)/Phi(u_{t-1}) > Phi(u_t)/Phi(u_t - 1) >= exp(|u_t| + 1/2), and at least
    Phi(0)/Phi(-1) > 3.15. On the other hand that is F(t)/F(t-1) <= 1 + p(t)/p(t-1) = 1 + exp(a), a
    = (|t| + 1/2)/s^2. So a > 0.76, and |u_t| < 0.2 + a. But F(t) <= exp(-t^2/2s^2): sums of
    exp(-(x - c)^2/2s^2) are largest for whole c, so the noise X has E exp(l X) <= exp(l^2 s^2/2).
    And Phi(u) >= phi(|u| + 1), so (|u_t| + 1)^2 >= t^2/s^2 - 1.84. With r = |t|/s > 6 the first
    says |u_t| + 1 < 1.21 + r/8, whose square is below r^2 - 1.84: a contradiction.

    (iii) *The largest d_t.* If no d_t is above 1/s we are done. Otherwise there is a largest one, w
    = d_t, by (i). Let I(y) be the mass of N(0, 1) on [y - w/2, y + w/2] and y the middle of u_{t-1}
    and u_t. Then p(t) = I(y), and p(t+1) <= I(y + w), p(t-1) <= I(y - w), because d_{t+1} and
    d_{t-1} are at most w. So

        1/s^2 = 2 log p(t) - log p(t-1) - log p(t+1)
             >= 2 log I(y) - log I(y-w) - log I(y+w) = int_{-w}^w (w - |r|) -(log I)''(y + r) dr,

    and -(log I)'' is 1 less the variance of a normal variable on an interval of length w, which is
    at most w^2/4. So w^2 (1 - w^2/4) <= 1/s^2. As w <= 1, first w^2 <= 4/3s^2, and then w^2 <=
    1/s^2 + (4/3s^2)^2 / 4 < (1 + 1/2s^2) / s^2.

    *All coordinates.* Products of mu_i-Gaussian private mechanisms are private with the root of
    sum mu_i^2 (Dong, Roth and Su 2022, Corollary 3.3), and what is 1/2s^2 only falls with s. QED.

    Nothing much is lost: the largest d_t^2 is about (1 + 1/12s^2) / s^2
    (`tests/core/test_discreteness.py`).
    """
    check_whole(scale, "scale")
    if scale < 8:
        raise RequestError(f"scale = {scale} is below 8, where this is not proved")
    return 1 + Fraction(1, 2 * scale * scale)
