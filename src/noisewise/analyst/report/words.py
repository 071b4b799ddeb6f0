"""What numbers of a posterior mean, in sentences for readers who are no statisticians."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.common_cautions import BAD_RHAT, ENOUGH_DRAWS, GOOD_RHAT
from noisewise.analyst.posterior.numbers import central_interval, median_and_spread, round_step
from noisewise.core.design import DesignColumn
from noisewise.core.schema import Category, Number, Schema, Unbounded, averages
from noisewise.core.terms.term import read_term

SURE, LIKELY = 0.975, 0.9
_LISTED = 6
_NO_YES = {("no", "yes"), ("false", "true"), ("0", "1")}
_ARTICLES = ("a ", "an ", "any ", "the ")
_SLACK_DELTA = 1e-6
HOLDER_IS_TRUSTED = (
    "The holder is trusted",
    "to have used the right rows, and to know how many rows a person may own. The digest "
    "finds damage; it is no signature.",
)
MAY_BE_PUBLISHED = (
    "This page may be published.",
    "It was made from released files alone, so it tells nobody more about a person than they do.",
)
NO_CAUSES = (
    "Associations, not causes.",
    "A coefficient compares people who differ in one feature and are alike in the others "
    "that are listed. It does not say what would happen if somebody changed.",
)


def listed(names: Sequence[str], most: int = _LISTED) -> str:
    """Names in a sentence; beyond a handful only their number."""
    shown = list(names[:most])
    if len(names) > most:
        shown.append(f"{len(names) - most:,} more")
    return ", ".join(shown[:-1]) + (" and " if len(shown) > 1 else "") + shown[-1]


def heading(schema: Schema, target: str, features: Sequence[str]) -> str:
    """What a page about a regression is called."""
    return f"{schema.label(target)}, explained by {listed([schema.label(f) for f in features])}"


def comparing(schema: Schema, target: str, level: float) -> str:
    """What the findings of a regression are about, and what their brackets hold."""
    unit = schema.unit_of_measure(target)
    what = f"{schema.label(target)}{f' ({unit})' if unit else ''}"
    return (
        f"{what}: people are compared who differ in one feature and are alike in the others. "
        "Numbers are averages; brackets hold the true difference with probability "
        f"{percent(level)}."
    )


class Estimate(NamedTuple):
    """What is known of one coefficient."""

    centre: float
    sd: float
    # Ends of the credible interval
    low: float
    high: float
    above: float  # probability that it is above zero
    # The interval for all rows and its probability, where some rows were moved within reach
    all_rows: tuple[float, float, float] | None = None

    @classmethod
    def of(cls, draws: FloatArray, level: float, all_rows: FloatArray | None = None) -> Estimate:
        """What draws of it say."""
        whole = None
        if all_rows is not None:
            whole = (*central_interval(all_rows, level), chance_above_zero(all_rows))
        ends = central_interval(draws, level)
        return cls(*median_and_spread(draws), *ends, chance_above_zero(draws), whole)

    @property
    def decided_by_far_rows(self) -> bool:
        """Whether the rows farthest out may change the sign, or double the interval."""
        if self.all_rows is None:
            return False
        low, high, above = self.all_rows
        sure, surely = max(self.above, 1 - self.above), max(above, 1 - above)
        return (sure >= LIKELY > surely) or high - low > 2 * (self.high - self.low)


def findings(
    columns: Iterable[DesignColumn],
    schema: Schema,
    target: str,
    found: Mapping[str, Estimate],
    level: float,
) -> list[str]:
    """What the slopes say about the target, the surest sign first, with their intervals.

    Each compares people who differ in one feature and are alike in the others. A coefficient of a
    term says nothing by itself that people could print, and is told as a number.
    """
    known = [column for column in columns if column.name in found]
    known.sort(key=lambda column: -max(found[column.name].above, 1 - found[column.name].above))
    told = []
    for column in known:
        said = _finding(column, schema, target, found[column.name], level)
        told.append(said + _of_all_rows(column, schema, found[column.name]))
    return told


def _of_all_rows(column: DesignColumn, schema: Schema, found: Estimate) -> str:
    """What the rows farthest out may change, where that is much."""
    if found.all_rows is None or not found.decided_by_far_rows:
        return ""
    differing = compared(column, schema)
    step = 1.0 if differing is None else differing.step
    low, high, above = found.all_rows
    ends = between(step * low, step * high, 10 * step * found.sd)
    return (
        " That is within reach: counted in full, the rows farthest out may change this to "
        f"anywhere from {ends} (above zero with probability {percent(above)})."
    )


def _finding(
    column: DesignColumn, schema: Schema, target: str, found: Estimate, level: float
) -> str:
    """What one slope says about the target, with its interval, in words that people may print."""
    differing = compared(column, schema)
    if differing is None:
        return (
            f"The coefficient of {column.name} is {between(found.low, found.high, found.sd)} with "
            f"probability {percent(level)}."
        )
    where, who, than, step = differing
    centre, sd, low, high = (step * x for x in (found.centre, found.sd, found.low, found.high))
    sd *= 10  # one digit of it, where tables show two
    up = centre >= 0
    sure = found.above if up else 1 - found.above
    unit = schema.unit_of_measure(target)
    counted = _singular(unit) != unit  # people have fewer euros, but no fewer mmHg
    called = f"“{schema.label(target)}”" if target in schema.words else target
    if sure < LIKELY:
        either = f"{who} have more or fewer {unit}{than}"
        if not counted:
            either = f"{called} is higher or lower" + ("" if where else f" for {who}{than}")
        said = f"{rounded(low, sd)} and {rounded(high, sd)}"
        return (
            f"{where}{'it' if where else 'It'} is undecided whether {either}: the difference is "
            f"between {said}{'' if counted or not unit else ' ' + unit}."
        )
    probably = "" if sure >= SURE else "probably "
    size, ends = rounded(abs(centre), sd), (low, high) if up else (-high, -low)
    if counted:
        about = f"about {size} {'more' if up else 'fewer'} {unit} ({between(*ends, sd)})"
        return _sentence(f"{where}{who} {probably}have {about}{than}.")
    size = f"{size} {unit}" if unit else size
    more = f"{probably}{'higher' if up else 'lower'} by about {size} ({between(*ends, sd)})"
    return _sentence(f"{where or f'for {who}, '}{called} is {more}{than}.")


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


class Compared(NamedTuple):
    """Who is compared with whom: words, and by how much the feature differs."""

    where: str
    who: str
    than: str
    step: float


def compared(column: DesignColumn, schema: Schema) -> Compared | None:
    """People who differ in one feature; None for a term of a formula.

    A label that begins with an article is a thing that people have or don't have.
    """
    name = column.source
    declared, label = schema.columns.get(name), schema.label(name)
    if name != label and not label[1:2].isupper():
        label = label[:1].lower() + label[1:]
    levels: tuple[str, str] | None = None
    if isinstance(declared, Category) and column.level is not None:
        levels = (declared.reference, column.level)
    elif isinstance(declared, Number) and (declared.lower, declared.upper) == (0.0, 1.0):
        levels = ("0", "1")
    if levels is not None:
        first, second = levels
        if (first.lower(), second.lower()) in _NO_YES and label.startswith(_ARTICLES):
            return Compared("", f"people with {label}", " than people without", 1.0)
        return Compared(f"Where {label} is {second} rather than {first}, ", "people", "", 1.0)
    if not isinstance(declared, Number | Unbounded):
        return None
    step, unit = round_step(declared), schema.unit_of_measure(name)
    unit = f" {_singular(unit) if step == 1 else unit}" if unit else ""
    return Compared(f"Where {label} is higher by {short(step)}{unit}, ", "people", "", step)


def _singular(unit: str) -> str:
    """One of what a unit counts: "years" is "year", "visits a year" is "visit a year"."""
    first, space, rest = unit.partition(" ")
    if first.endswith("ies"):
        first = first[:-3] + "y"
    elif first.endswith(("ches", "shes", "xes")):
        first = first[:-2]
    elif first.endswith("s") and not first.endswith(("ss", "us", "is")):
        first = first[:-1]
    return first + space + rest


def between(low: float, high: float, spread: float) -> str:
    """An interval, with the digits that the spread leaves."""
    return f"{rounded(low, spread)} to {rounded(high, spread)}"


def chance_above_zero(draws: FloatArray) -> float:
    """Probability of a positive value; a finite number of draws never makes it certain."""
    return (float(np.sum(draws > 0)) + 0.5) / (draws.size + 1)


def chance(probability: float) -> str:
    """A probability that was computed from a law: far out in the tails it is small, never nothing.

    Floating point rounds it to 0 or 1 there, and no approximation is right to so many digits.
    """
    return percent(min(max(probability, 1e-9), 1 - 1e-9))


def claim_in_words(claim: str) -> str:
    """What a privacy claim promises to one person; empty if it is of an unknown form."""
    epsilon = re.fullmatch(r"epsilon = ([0-9.e+-]+)(?:, delta = ([0-9.e+-]+))?", claim)
    rho = re.fullmatch(r"rho = ([0-9.e+-]+) \(zCDP\)", claim)
    try:
        if epsilon:
            value, delta = float(epsilon[1]), float(epsilon[2] or 0)
        elif rho:
            budget = float(rho[1])
            value = budget + 2 * math.sqrt(budget * math.log(1 / _SLACK_DELTA))
            delta = _SLACK_DELTA
        else:
            return ""
        factor = math.exp(value)
    except (ValueError, OverflowError):
        return ""
    start = f"At delta = {short(delta)} that is at most epsilon = {short(value)}. " if rho else ""
    slack = f", but for a slack of {short(delta)} in probability" if delta else ""
    return (
        f"{start}Any conclusion that somebody may draw from it is at most {short(factor, 3)} times "
        f"as likely as it would be, had one person's data been different{slack}."
    )


def unit_in_words(unit: str) -> str:
    """Who is protected, from a text such as ``"replace_one/5"``."""
    neighbours, _, rows = unit.partition("/")
    owned = "one row" if rows == "1" else f"up to {rows} rows"
    if averages(unit):
        owned = "any number of rows, averaged into one"
    if neighbours == "replace_one":
        return f"what the data say of any one person, who owns {owned} (replace_one)"
    if neighbours == "add_remove_one":
        return f"whether any one person, who owns {owned}, is in the data at all (add_remove_one)"
    return "not stated in this file"


def signatures_in_words(signatures: Sequence[str]) -> list[str]:
    """Sentences about who published the released files, for the end of a page."""
    by_text: dict[str, list[int]] = {}
    for number, text in enumerate(signatures, 1):
        by_text.setdefault(str(text), []).append(number)
    said = []
    for text, numbers in by_text.items():
        which = f"Files {listed([str(number) for number in numbers])} are"
        if len(numbers) == 1:
            which = f"File {numbers[0]} is" if len(signatures) > 1 else "The released file is"
        elif len(numbers) == len(signatures):
            which = f"All {len(numbers):,} released files are"
        said.append(f"{which} {text}.")
    return said


def declared_in_words(schema: Schema, name: str) -> str:
    """A column's public bounds or levels."""
    declared = schema.columns.get(name)
    if declared is None:
        return term_in_words(schema, name)
    if isinstance(declared, Category):
        return ", ".join(
            f"{level} (reference)" if level == declared.reference else level
            for level in declared.levels
        )
    if isinstance(declared, Number):
        return f"{short(declared.lower, 7)} to {short(declared.upper, 7)}"
    assert isinstance(declared, Unbounded)
    return f"no bounds; measured in units of about {short(declared.unit)}"


def term_in_words(schema: Schema, name: str) -> str:
    """A term's bounds, which follow from those of the columns."""
    columns = read_term(name, schema).design_columns(schema)
    told = {
        "0 or 1"
        if column.is_indicator
        else f"{short(column.centre - column.half_width, 7)} to "
        f"{short(column.centre + column.half_width, 7)}"
        if column.signed or column.group is None
        else f"0 to {short(column.half_width, 7)}"
        for column in columns
    }
    if len(columns) == 1:
        return f"{told.pop()} (follows)"
    return f"{len(columns)} columns, {', '.join(sorted(told))} (follows)"


def convergence(
    chains: int, draws: int, rhat: float, ess: float, diverging: FloatArray | None = None
) -> list[str]:
    """Whether the simulation has settled, in plain words.

    Takes the largest R-hat and the smallest number of effective draws, NaN where unknown, and which
    steps of the sampler failed.
    """
    said = [
        f"The posterior was simulated in {chains} independent run{'s' if chains > 1 else ''} of "
        f"{draws:,} draws."
    ]
    if chains == 1:
        said.append("A single run cannot show whether it has settled; several can.")
    elif math.isnan(rhat):
        said.append("Whether the runs agree could not be measured.")
    elif rhat <= GOOD_RHAT:
        said.append(f"The runs agree with each other: the largest R-hat is {rhat:.3f} ({GOOD_RHAT} "
                    "is the limit).")  # fmt: skip
    else:
        trust = "Do not use these numbers" if rhat > BAD_RHAT else "Run it longer to be sure"
        said.append(f"The runs do not agree yet: the largest R-hat is {rhat:.3f}, and {GOOD_RHAT} "
                    f"is the limit. {trust}.")  # fmt: skip
    if not math.isnan(ess):
        # A 2.5% quantile of a normal law has the standard error sqrt(p (1 - p) / ess) / density.
        error = math.sqrt(0.025 * 0.975 / ess) / 0.0584
        enough = "enough" if ess >= ENOUGH_DRAWS else f"too few; {ENOUGH_DRAWS} are wanted"
        said.append(
            f"Every number rests on at least {ess:,.0f} effectively independent draws ({enough}), "
            f"so the ends of 95% intervals are known to about {percent(error)} of a posterior "
            "standard deviation."
        )
    if diverging is not None:
        count = int(np.sum(diverging))
        failed = "No step" if count == 0 else f"{count:,} of {diverging.size:,} steps"
        said.append(f"{failed} of the sampler failed.")
    return said


def price(share: float) -> str:
    """What a share of the variance means for the width of an interval."""
    left = math.sqrt(max(1.0 - share, 0.0))
    if left > 0.95:
        return "without the noise the interval would be about as wide"
    return f"without the noise the interval would be about {percent(left)} as wide"


# --- numbers as people read them: as many digits as the uncertainty leaves, and a real minus si


MINUS = "\N{MINUS SIGN}"


def rounded(value: float, spread: float) -> str:
    """A number with two digits of its spread: 1.8363 with a spread of 0.06 is 1.836.

    A spread of 0 or NaN asks for four digits.
    """
    if not math.isfinite(value):
        return "not available"
    if not (math.isfinite(spread) and spread > 0):
        return short(value)
    places = 1 - math.floor(math.log10(spread))
    if not -6 < places < 7:
        return short(value)
    shown = round(value, places)
    return signed(f"{shown:,.{max(places, 0)}f}")


def short(value: float, digits: int = 4) -> str:
    """A number with a few significant digits, without an exponent where that is readable."""
    if not math.isfinite(value):
        return "not available"
    if value != 0 and not 1e-4 <= abs(value) < 1e7:
        return signed(f"{value:.{digits}g}")
    if value == 0:
        return "0"
    places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    plain = f"{value:,.{places}f}"
    return signed(plain.rstrip("0").rstrip(".") if "." in plain else plain)


def percent(share: float) -> str:
    """A share in per cent, with a decimal near the ends; never 0% or 100% unless it is."""
    if not math.isfinite(share):
        return "not available"
    if 0 < share < 0.001:
        return "<0.1%"
    if 0.999 < share < 1:
        return ">99.9%"
    near_an_end = 0 < share < 0.0095 or 0.9905 < share < 1
    return f"{100 * share:.{1 if near_an_end else 0}f}%"


def signed(plain: str) -> str:
    """With a typographic minus; minus nothing is nothing."""
    if plain.startswith("-"):
        return MINUS + plain[1:] if any(c in "123456789" for c in plain) else plain[1:]
    return plain


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers from low to high, at most about `most` of them."""
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low]
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [step * i for i in range(first, last + 1)]
