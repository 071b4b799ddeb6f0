"""What a cap buys under the privacy filter, and what adaptive sizes do to it.

**Price.** Charges of one size, as many as there are: the largest size that fits under the filter,
beside that under the former rule, the smallest of three accountants, which holds for planned sizes
only. Sizes are what people ask for: the epsilon of a charge, at its default delta of 1e-6 where
noise is Gaussian.

**Attack.** One or several first charges are answered. Then, by the answer, that last charge is made
which the rule lets in and which is worst given that answer. The true delta of both together follows
from the tree of all answers: sums over the outcomes of randomized response, quadrature over the
answer of a first Gaussian, closed forms for the last charge. Under a valid filter it is at most the
cap's. The control has the filter's certificates and gives all of the delta to each: it shows that
the delta has to be divided among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
from scipy.special import expit, log_ndtr
from scipy.stats import binom, norm

from noisewise._arrays import FloatArray
from noisewise.core import privacy_filter
from noisewise.core.composition import within
from noisewise.core.privacy import Event, GaussianEvent, PureEvent
from noisewise.core.privacy_filter import Borne
from noisewise.core.schema import Number, Schema
from noisewise.holder.requests.regression import make_request
from studies.report import Options, Report, write_both
from studies.tables import Row, as_markdown

MILLIONTH = Fraction(1, 10**6)
CAPS = ((Fraction(1), MILLIONTH), (Fraction(3), MILLIONTH), (Fraction(3), 10 * MILLIONTH))

# Tells whether charges fit into a cap of this epsilon and delta
Rule = Callable[[Sequence[Event], Fraction, Fraction], bool]


def filtered(events: Sequence[Event], epsilon: Fraction, delta: Fraction) -> bool:
    """The filter."""
    return privacy_filter.fits(Borne(len(events), tuple(events)), epsilon, delta)


def undivided(events: Sequence[Event], epsilon: Fraction, delta: Fraction) -> bool:
    """The control: not valid."""
    all_of_it = (Fraction(1),) * privacy_filter.PARTS
    return privacy_filter.fits(Borne(len(events), tuple(events)), epsilon, delta, all_of_it)


RULES: dict[str, Rule] = {"former": within, "filter": filtered, "undivided": undivided}


def largest(lets_in: Callable[[float], bool], most: float = 60.0) -> float:
    """The largest number that a rule lets in, or a little less; 0 for none."""
    low, high = 0.0, most
    while high - low > 1e-6 * high and high > 1e-7:
        middle = (low + high) / 2
        low, high = (middle, high) if lets_in(middle) else (low, middle)
    return low


# --- the attack -----------------------------------------------------------------------------------

# So many pure charges of some epsilon, and one Gaussian of some mu, or neither of them
Charges = tuple[int, float, float]


def attack(rule: Rule, epsilon: Fraction, delta: Fraction, first: Charges) -> tuple[float, float]:
    """The true delta over the cap's: of the worst strategy that begins so, and of the worst plan.

    First charges that the rule refuses are no attack: (0, 0).
    """
    begun = _events(first)
    if not rule(begun, epsilon, delta):
        return 0.0, 0.0
    losses, masses = _answers(first)
    menu = [
        last for last in _last_charges(begun, rule, epsilon, delta)
        if rule([*begun, *_events(last)], epsilon, delta)
    ]  # fmt: skip
    worst = np.array([_delta_of(last, float(epsilon) - losses) for last in menu])
    adaptive, planned = masses @ worst.max(axis=0), (worst @ masses).max()
    return float(adaptive / float(delta)), float(planned / float(delta))


FIRST: tuple[Charges, ...] = (
    (16, 0.05, 0.0), (4, 0.2, 0.0), (0, 0.0, 0.1), (0, 0.0, 0.2), (0, 0.0, 0.4),
)  # fmt: skip


def _events(charges: Charges) -> list[Event]:
    count, size, mu = charges
    pure = [PureEvent(Fraction(size).limit_denominator(10**8)) for _ in range(count)]
    return [*pure, GaussianEvent(1 / mu)] if mu else [*pure]


def _answers(first: Charges) -> tuple[FloatArray, FloatArray]:
    """Privacy losses of the first answers under the first data set, and their masses."""
    count, size, mu = first
    if mu:
        z = np.linspace(-9, 9, 4001)
        return mu * z + mu * mu / 2, norm.pdf(z) * (z[1] - z[0])
    return _responses(count, size)


def _responses(count: int, size: float) -> tuple[FloatArray, FloatArray]:
    """Losses and masses of randomized response."""
    ups = np.arange(count + 1)
    return (2 * ups - count) * size, binom.pmf(ups, count, expit(size))


def _last_charges(
    begun: Sequence[Event], rule: Rule, epsilon: Fraction, delta: Fraction
) -> list[Charges]:
    """The largest of many kinds that the rule lets in."""

    def size_of(count: int, mu: float) -> float:
        if mu == 0 and count == 0:
            return 0.0
        return largest(
            lambda size: size > 1e-7 and rule([*begun, *_events((count, size, mu))], epsilon, delta)
        ) * (1 - 1e-6)

    gaussian = largest(
        lambda mu: mu > 1e-7 and rule([*begun, GaussianEvent(1 / mu)], epsilon, delta)
    )
    found: list[Charges] = [(0, 0.0, gaussian * (1 - 1e-9))] if gaussian else []
    for count in (1, 2, 3, 5, 15):
        for mu in (0.0, gaussian / 2):
            size = size_of(count, mu)
            if size:
                found.append((count, size, mu))
    return found


def _delta_of(charges: Charges, epsilon: FloatArray) -> FloatArray:
    """The exact delta of non-adaptive charges at several epsilons."""
    count, size, mu = charges
    losses, masses = _responses(count, size)
    return np.asarray(masses @ _gaussian_delta(mu, epsilon[None, :] - losses[:, None]))


def _gaussian_delta(mu: float, epsilon: FloatArray) -> FloatArray:
    if mu == 0:
        return np.maximum(0.0, -np.expm1(np.minimum(epsilon, 0.0)))
    return np.asarray(
        np.exp(log_ndtr(mu / 2 - epsilon / mu)) - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
    )


# --- the price ------------------------------------------------------------------------------------

# By kind, how many charges of it: "laplace" is pure, "gaussian" one round, "rounds" several
CASES: tuple[dict[str, int], ...] = (
    {"laplace": 1}, {"laplace": 10}, {"laplace": 30}, {"laplace": 100},
    {"gaussian": 1}, {"gaussian": 10}, {"gaussian": 100},
    {"rounds": 1}, {"rounds": 10}, {"rounds": 100},
    {"laplace": 1, "rounds": 1}, {"laplace": 3, "rounds": 1}, {"laplace": 1, "rounds": 3},
    {"laplace": 5, "rounds": 5}, {"laplace": 2, "rounds": 8},
)  # fmt: skip
QUICK_CASES = CASES[1], CASES[5], CASES[13]


def price(case: dict[str, int], rule: Rule, epsilon: Fraction, delta: Fraction) -> float:
    """The largest epsilon that each of these charges may have."""

    def lets_in(size: float) -> bool:
        if size < 1e-3:
            return True
        events = [event_of(kind, round(size, 6)) for kind, n in case.items() for _ in range(n)]
        return rule(events, epsilon, delta)

    return largest(lets_in, 2 * float(epsilon))


@cache
def event_of(kind: str, epsilon: float) -> Event:
    """What a regression with one feature charges."""
    schema = Schema("people", {"x": Number(0, 1), "y": Number(0, 1)})
    words = {"laplace": {}, "gaussian": {"rounds": 1}, "rounds": {"rounds": "auto"}}[kind]
    if kind != "laplace":
        words["delta"] = "1e-6"
    request = make_request(
        schema, target="y", features=["x"], epsilon=f"{epsilon:.6f}", mechanism=None, **words
    )
    return request.event


# --- the tables -----------------------------------------------------------------------------------


def rows_of(quick: bool) -> list[Row]:
    """A line for each cap and case, and one for each cap and first charge."""
    rows: list[Row] = []
    for epsilon, delta in CAPS[1:2] if quick else CAPS:
        cap: Row = {"epsilon": float(epsilon), "delta": float(delta)}
        for case in QUICK_CASES if quick else CASES:
            sizes = {
                name: price(case, RULES[name], epsilon, delta) for name in ("former", "filter")
            }
            rows.append({"table": "price", **cap, "charges": _named(case), **sizes})
        for first in FIRST[:1] if quick else FIRST:
            found = {name: attack(rule, epsilon, delta, first)[0] for name, rule in RULES.items()}
            rows.append({"table": "attack", **cap, "charges": _first_named(first), **found})
    return rows


def _named(case: dict[str, int]) -> str:
    return " + ".join(f"{count} {kind}" for kind, count in case.items())


def _first_named(first: Charges) -> str:
    count, size, mu = first
    return f"mu = {mu:g}" if mu else f"{count} x epsilon = {size:g}"


def markdown(rows: Sequence[Row]) -> str:
    """Both tables."""
    prices = [
        (
            f"({row['epsilon']:g}, {row['delta']:g})", row["charges"], f"{row['former']:.4g}",
            f"{row['filter']:.4g}", f"{100 * (1 - row['filter'] / row['former']):.1f}%",
        )
        for row in rows if row["table"] == "price"
    ]  # fmt: skip
    attacks = [
        (
            f"({row['epsilon']:g}, {row['delta']:g})", row["charges"],
            *(f"{row[name]:.2f}" if row[name] else "refused" for name in RULES),
        )
        for row in rows if row["table"] == "attack"
    ]  # fmt: skip
    return (
        as_markdown("cap | charges | former rule: epsilon each | filter | less", prices)
        + "\n"
        + as_markdown(
            "cap | first charges | former rule: delta / cap's | filter | undivided", attacks
        )
    )


def write(out: Path, options: Options) -> list[Path]:
    """The tables, as CSV and Markdown."""
    return write_both(rows_of(options.quick), markdown, "caps", out)


EXPERIMENT = Report("caps", "What a cap buys under the privacy filter, and adaptive sizes", write)
