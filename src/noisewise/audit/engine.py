"""An empirical privacy audit: how much does a mechanism give away, at the very least?

A mechanism is (epsilon, delta)-differentially private for a pair of neighbouring data sets A, B if

    P_A(R) <= exp(epsilon) P_B(R) + delta    for every region R of outputs, both ways round.

The audit runs the mechanism many times on A and on B. With some of the runs it looks for the region
that tells them apart best; with the others, which it hasn't looked at until then, it bounds the two
probabilities of this one region by Clopper-Pearson intervals. That gives

    epsilon_lower = log((p_lower - delta) / p_upper).

**What the confidence means.** Suppose that the mechanism does keep its claim on A and B, and that
runs are independent. Then the audit says "violates" with probability at most 1 - `confidence`, for
any number of trials and any scores: score, region and direction are fixed before the held-out runs
are looked at, so only one comparison is ever made with them; each of its two one-sided bounds is
wrong with probability at most (1 - `confidence`) / 2, and if neither is wrong then
epsilon_lower <= epsilon. By default that is 1 %.

**Gaussian noise.** Its claim is stronger than one (epsilon, delta): no test tells A from B better
than one draw of N(mu, 1) from one of N(0, 1), mu = sensitivity / scale (Dong, Roth and Su 2022).
At a delta of 1e-6 it would take millions of runs to see a violation of epsilon; of mu it takes
hundreds. Given `mu`, the audit looks at mu_lower = Phi^-1(p_lower) - Phi^-1(p_upper) too, from the
same two bounds, so at the same confidence.

**What a pass means.** Little. The audit gives a lower bound on epsilon and never a proof: another
pair of data sets, another region or more trials might have shown more. It finds mistakes; proofs
are beside the mechanisms.

References
----------
Clopper and Pearson (1934), The use of confidence or fiducial limits, doi:10.1093/biomet/26.4.404.
Ding, Wang, Wang, Zhang and Kifer (2018), Detecting violations of differential privacy,
    doi:10.1145/3243734.3243818.
Dong, Roth and Su (2022), Gaussian differential privacy, doi:10.1111/rssb.12454.
Jagielski, Ullman and Oprea (2020), Auditing differentially private machine learning,
    arXiv:2006.07709.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from noisewise._arrays import FloatArray
from noisewise.core.errors import RequestError

Counts = NDArray[np.int64]
Direction = Literal["a over b", "b over a"]
Goal = Callable[[FloatArray, FloatArray], FloatArray]
Score = Callable[[FloatArray], FloatArray]

_MOST_THRESHOLDS = 400


@dataclass(frozen=True)
class AuditResult:
    """What an audit found."""

    # The claim
    epsilon: float
    delta: float
    confidence: float  # see the notes of `audit`
    direction: Direction  # whether the region is likelier under A or under B
    # The region is score >= threshold for "a over b", score <= threshold for "b over a"
    threshold: float
    # Held-out runs that fell into the region, on the data set that makes it likelier, and on the
    # other one
    likelier: int
    rarer: int
    held_out: int  # number of held-out runs on each data set
    # Lower confidence bound of the larger probability, upper bound of the smaller one
    p_lower: float
    p_upper: float
    epsilon_lower: float  # lower confidence bound of epsilon at this delta; 0 if nothing was found
    mu: float | None = None  # the claim in terms of Gaussian privacy, where there is one

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


def audit(
    run_a: Callable[..., Any],
    run_b: Callable[..., Any],
    *,
    trials: int,
    epsilon: float,
    delta: float = 0.0,
    mu: float | None = None,
    confidence: float = 0.99,
    seed: int,
    score: Score | Sequence[Score | None] | None = None,
    batch: bool = False,
    training: float = 0.5,
) -> AuditResult:
    """Bound from below the epsilon with which outputs tell two neighbouring data sets apart.

    Parameters
    ----------
    run_a, run_b : callable
        ``run()`` returns one output as a vector of m numbers; with `batch`, ``run(trials)``
        returns an array of shape (trials, m). Runs must be independent of one another.
    trials : int
        Runs on each of the two data sets.
    epsilon, delta : float
        The claim to be challenged.
    mu : float, optional
        The claim of Gaussian noise, to be challenged too; regions are then chosen for it.
    confidence : float
        1 - `confidence` bounds the probability of calling a true claim violated.
    seed : int
        Decides which runs choose the region and which are held out. The noise of the runs is
        their own and takes no seed from here.
    score : callable or sequence of them, optional
        Maps outputs of shape (k, m) to k numbers, large where A is likelier than B. The best one
        is the log-likelihood ratio, see `likelihood_ratio`. None stands for a linear discriminant
        that is trained on runs that aren't held out. Of several, the one that does best on runs
        that aren't held out is taken.
    batch : bool
    training : float
        Share of the runs that choose the region. With a good `score` there is only a threshold
        to be chosen, and less than half will do.
    """
    _check(trials, epsilon, delta, mu, confidence, training)
    size = round(trials * training)
    rng = np.random.default_rng(seed)
    a = _outputs(run_a, trials, batch, "run_a")[rng.permutation(trials)]
    b = _outputs(run_b, trials, batch, "run_b")[rng.permutation(trials)]
    if a.shape[1] != b.shape[1]:
        raise RequestError(
            f"run_a, run_b: outputs have {a.shape[1]} and {b.shape[1]} entries; the number of "
            "entries must not depend on the data"
        )
    alpha = (1 - confidence) / 2
    goal = ratio(delta) if mu is None else distance
    candidates = list(score) if isinstance(score, Sequence) else [score]
    chosen, region = max(
        (_trained(candidate, a[:size], b[:size], goal, alpha) for candidate in candidates),
        key=lambda found: found[1].gain,
    )

    held_out = trials - size
    in_a, in_b = (region.count(_scores(chosen, outputs[size:])) for outputs in (a, b))
    likelier, rarer = (in_a, in_b) if region.direction == "a over b" else (in_b, in_a)
    p_lower = float(lower(np.array([likelier]), held_out, alpha)[0])
    p_upper = float(upper(np.array([rarer]), held_out, alpha)[0])
    return AuditResult(
        epsilon=float(epsilon),
        delta=float(delta),
        confidence=float(confidence),
        direction=region.direction,
        threshold=region.threshold,
        likelier=likelier,
        rarer=rarer,
        held_out=held_out,
        p_lower=p_lower,
        p_upper=p_upper,
        epsilon_lower=max(0.0, math.log((p_lower - delta) / p_upper)) if p_lower > delta else 0.0,
        mu=mu,
    )


def _trained(
    score: Score | None, a: FloatArray, b: FloatArray, goal: Goal, alpha: float
) -> tuple[Score, Region]:
    """A score and its best region.

    A discriminant looks better on the runs it was trained on than it is, so half of the runs train
    it and the other half choose the region.
    """
    if score is None:
        half = len(a) // 2
        score = linear_discriminant(a[:half], b[:half])
        a, b = a[half:], b[half:]
    return score, choose_region(_scores(score, a), _scores(score, b), goal, alpha)


def _check(
    trials: int, epsilon: float, delta: float, mu: float | None, confidence: float, training: float
) -> None:
    if not epsilon >= 0 or not 0 <= delta < 1:
        raise RequestError(f"epsilon = {epsilon!r}, delta = {delta!r}: not a privacy claim")
    if mu is not None and not mu >= 0:
        raise RequestError(f"mu = {mu!r}: expected a number of standard deviations, at least 0")
    if not 0.5 <= confidence < 1:
        raise RequestError(f"confidence = {confidence!r}: expected 0.5 to below 1, such as 0.99")
    if not 0 < training < 1 or min(round(trials * training), round(trials * (1 - training))) < 10:
        raise RequestError(
            f"trials = {trials!r} with training = {training!r}: at least ten runs are needed to "
            "choose a region, and ten to judge it"
        )


def _outputs(run: Callable[..., Any], trials: int, batch: bool, name: str) -> FloatArray:
    # Outputs are 64-bit integers on a grid of 2**-32: as doubles they lose less than a grid step
    # below 2**53, and what is lost above is post-processing, which can only weaken the audit.
    raw = run(trials) if batch else [run() for _ in range(trials)]
    outputs = np.asarray(raw, dtype=np.float64)
    if outputs.ndim != 2 or len(outputs) != trials or outputs.shape[1] == 0:
        raise RequestError(
            f"{name}: expected {trials} outputs that are vectors of the same length, got an array "
            f"of shape {outputs.shape}"
        )
    return outputs


def _scores(score: Score, outputs: FloatArray) -> FloatArray:
    scores = np.asarray(score(outputs), dtype=np.float64)
    if scores.shape != (len(outputs),) or np.isnan(scores).any():
        raise RequestError("score: expected one number for every output, and no NaN")
    return scores


# --- regions, and what counts in them are worth ---------------------------------------------------


class Region(NamedTuple):
    """Outputs with score >= threshold ("a over b") or score <= threshold ("b over a")."""

    gain: float  # what it would show if the runs that chose it were the held-out ones
    direction: Direction
    threshold: float

    def count(self, scores: FloatArray) -> int:
        """How many runs fell into it."""
        inside = (
            scores >= self.threshold if self.direction == "a over b" else scores <= self.threshold
        )
        return int(np.count_nonzero(inside))


def ratio(delta: float) -> Goal:
    """What a bound on epsilon looks at: (p_lower - delta) / p_upper."""

    def gain(p_lower: FloatArray, p_upper: FloatArray) -> FloatArray:
        excess = p_lower - delta
        return np.asarray(np.where(excess > 0, excess, np.finfo(float).tiny) / p_upper)

    return gain


def distance(p_lower: FloatArray, p_upper: FloatArray) -> FloatArray:
    """What a bound on mu looks at: standard deviations between two normal laws."""
    return np.asarray(ndtri(p_lower) - ndtri(p_upper), dtype=np.float64)


def choose_region(a: FloatArray, b: FloatArray, goal: Goal, alpha: float) -> Region:
    """The region whose bound would be best if these runs were the held-out ones.

    The bound is taken at a stricter level than the held-out runs are judged by. At the same level
    the best-looking region is often a small one that was lucky, and the audit loses power.

    `a` and `b` are scores on both data sets, `goal` takes (p_lower, p_upper) to what is to be
    large, and `alpha` is the probability with which either bound on held-out runs may be wrong.
    """
    alpha /= 25
    levels = np.linspace(0, 1, _MOST_THRESHOLDS // 2)
    thresholds = np.unique([np.quantile(s, levels, method="nearest") for s in (a, b)])
    found = []
    sides: tuple[tuple[Direction, FloatArray, FloatArray, int], ...] = (
        ("a over b", a, b, 1),
        ("b over a", b, a, -1),
    )
    for direction, likelier, rarer, sign in sides:
        many = _reached(sign * likelier, sign * thresholds)
        few = _reached(sign * rarer, sign * thresholds)
        gain = goal(lower(many, len(likelier), alpha), upper(few, len(rarer), alpha))
        best = int(np.argmax(gain))
        found.append(Region(float(gain[best]), direction, float(thresholds[best])))
    return max(found)


def lower(hits: Counts, runs: int, alpha: float) -> FloatArray:
    """Clopper-Pearson lower bound of a probability, wrong with probability at most `alpha`."""
    bound = betaincinv(np.maximum(hits, 1), runs - hits + 1, alpha)
    return np.where(hits > 0, bound, 0.0)


def upper(hits: Counts, runs: int, alpha: float) -> FloatArray:
    """Clopper-Pearson upper bound of a probability, wrong with probability at most `alpha`."""
    bound = betaincinv(hits + 1, np.maximum(runs - hits, 1), 1 - alpha)
    return np.where(hits < runs, bound, 1.0)


def _reached(scores: FloatArray, thresholds: FloatArray) -> Counts:
    """How many scores are at least as large as each threshold."""
    return len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")


# --- scores: large where one data set is likelier than the other ----------------------------------


class _Law(Protocol):
    """A noise law of `core.noise` on unit scale."""

    def logpdf(self, x: Any) -> FloatArray:
        """Log density."""


def likelihood_ratio(noise: _Law | Sequence[_Law], a: Any, b: Any) -> Score:
    """The best possible score (Neyman and Pearson) for sums with independent noise of known law.

    The log density under A minus that under B, where `a` and `b` are the exact sums of both data
    sets and `noise` is a law of `core.noise` in their unit, or one for each entry.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    laws = list(noise) if isinstance(noise, Sequence) else [noise] * len(a)

    def score(outputs: FloatArray) -> FloatArray:
        terms = [
            law.logpdf(outputs[:, i] - a[i]) - law.logpdf(outputs[:, i] - b[i])
            for i, law in enumerate(laws)
        ]
        # Laplace ratios have atoms; without rounding, the last bit would split them at random.
        return np.asarray(np.round(np.sum(terms, axis=0), 9), dtype=np.float64)

    return score


def linear_discriminant(a: FloatArray, b: FloatArray) -> Score:
    """Fisher's linear discriminant of two samples, on the entries and on the entries clipped.

    An entry clipped to the interval between the two medians is, up to a factor, the log-likelihood
    ratio of Laplace noise; unclipped it's that of Gaussian noise. With both as inputs the
    discriminant comes close to the best score for either.
    """
    middle_a, middle_b = np.median(a, axis=0), np.median(b, axis=0)
    low, high = np.minimum(middle_a, middle_b), np.maximum(middle_a, middle_b)
    # On a common scale, or the large entries would set the precision of the small ones.
    spread = np.std(np.vstack([a, b]), axis=0)
    spread[spread == 0] = 1.0

    def inputs(outputs: FloatArray) -> FloatArray:
        clipped = np.clip(outputs, low, high)
        return np.hstack([(outputs - low) / spread, (clipped - low) / spread])

    in_a, in_b = inputs(a), inputs(b)
    covariance = (np.cov(in_a.T) + np.cov(in_b.T)) / 2
    # A direction without any noise is the best of all: a tiny ridge keeps it, where a
    # pseudo-inverse would drop it.
    ridge = 1e-10 * np.eye(len(covariance))
    weights = np.linalg.solve(covariance + ridge, in_a.mean(axis=0) - in_b.mean(axis=0))

    def score(outputs: FloatArray) -> FloatArray:
        return np.asarray(inputs(outputs) @ weights, dtype=np.float64)

    return score
