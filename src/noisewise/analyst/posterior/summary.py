"""What a summary Release says about coefficients, with the noise accounted for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from noisewise.analyst.arguments import probability
from noisewise.analyst.posterior.base import ReleasedPosterior, rows_in_words
from noisewise.analyst.posterior.file import Arrays, Groups, dataset
from noisewise.analyst.posterior.numbers import SummaryTable
from noisewise.analyst.posterior.plots import AWARE, NAIVE, Interval
from noisewise.analyst.posterior.statements import bounds_on_one, read_statement
from noisewise.analyst.summaries import answers, laws
from noisewise.core.errors import RequestError
from noisewise.core.kinds.summary.mechanisms import ClippedMean, LocationScale, Mean, entries_of
from noisewise.core.kinds.summary.release import SummaryRelease

_NONE_FOLLOWS = "single probabilities, from which none follows"
SAME = 1e-9  # thresholds and probabilities that differ by less, relatively, are the same
VERIFIED = 0.95
_OPERATORS = ("<", "<=", ">", ">=")
_LOCATED = LocationScale | Mean  # mechanisms of which the whole law of a coefficient is known


@dataclass(frozen=True, repr=False)
class SummaryPosterior(ReleasedPosterior):
    """Answers from a Release of block summaries.

    Notes
    -----
    Probabilities are statements about the coefficient given the released numbers, with a flat
    prior: sampling error, the approximation by blocks, and the privacy noise are all in them. The
    coefficient is that of the regression which the blocks fit.
    """

    kind, _what = "summary", "a block summary"

    release: SummaryRelease

    def __post_init__(self) -> None:
        if not isinstance(self.release, SummaryRelease):
            raise RequestError(
                f"release: expected a block summary, got {type(self.release).__name__}; "
                "noisewise.fit reads other Releases"
            )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know before trusting the numbers."""
        return answers.warnings_about(self.release)

    # --- questions -------------------------------------------------------------------------------

    def prob(
        self,
        coefficient: str,
        operator: str | None = None,
        threshold: float | None = None,
        *,
        noise_aware: bool = True,
    ) -> float:
        """Probability of a statement: ``prob("x1", "<", 0)``, ``prob("x1 < 0")``.

        Also ``prob("-1 < x1 < 1")`` where the whole law of a coefficient was released.

        Parameters
        ----------
        coefficient : str
            Or the whole statement.
        operator : {"<", "<=", ">", ">="}, optional
        threshold : float, optional
        noise_aware : bool
            False takes the released numbers for exact, which is overconfident; for comparison.
        """
        if operator is None and threshold is None:
            return self._statement(coefficient, noise_aware)
        if operator not in _OPERATORS:
            raise RequestError(f"operator: {operator!r} is none of {', '.join(_OPERATORS)}")
        b = _number("threshold", threshold)
        release = self.release
        self._known(coefficient)
        if isinstance(release.mechanism, ClippedMean):
            self._refuse(f"P({coefficient} {operator} {b:g})", "quantiles only")
        if isinstance(release.mechanism, _LOCATED):
            value = self._located(coefficient).below(b, noise_aware)
        else:
            index = self._index(coefficient, threshold=b)
            if index is None:
                asked = ", ".join(str(q) for q in self._entries[:8])
                self._refuse(f"P({coefficient} {operator} {b:g})", f"these questions only: {asked}")
            value = answers.below(release, index, noise_aware)
        return 1 - value if operator.startswith(">") else value

    def _statement(self, text: Any, noise_aware: bool) -> float:
        found = bounds_on_one(read_statement(text, self.release.coefficients))
        if found is None:
            raise RequestError(
                f"prob: {text!r}: a block summary has no draws, so one coefficient is compared "
                "with numbers, as in 'age > 0' or '-0.1 < age < 0.1'; for joint statements ask for "
                "a Release of statistics (`noisewise release`)"
            )
        name, bounds = found
        if len(bounds) == 1:
            return self.prob(name, *bounds[0], noise_aware=noise_aware)
        if not isinstance(self.release.mechanism, _LOCATED):
            self._refuse(f"P({text})", "no probability of lying between two numbers")
        both = [self.prob(name, sign, b, noise_aware=noise_aware) for sign, b in bounds]
        return max(0.0, sum(both) - 1.0)  # all but what is beyond either bound

    def verify(self, claims: Sequence[str]) -> SummaryTable:
        """Whether what a published analysis says holds in the data behind the Release.

        A synthetic data set, or a paper, says that a coefficient is positive, or lies between two
        numbers. The real rows stay where they are; what was released of them tells how probable
        the statement is.

        Parameters
        ----------
        claims : sequence of str
            Such as "hours > 0" or "100 < age < 300".

        Returns
        -------
        SummaryTable
            The probability of each, privacy noise included, and the verdict: it holds (at least
            0.95), fails (at most 0.05), or is undecided. A published interval that is as narrow as
            what the Release itself can tell stays undecided, even if it is right.
        """
        if isinstance(claims, str) or not claims:
            raise RequestError("claims: expected a list of statements, such as ['hours > 0']")
        rows = {}
        for claim in claims:
            p = self.prob(claim)
            verdict = "holds" if p >= VERIFIED else "fails" if p <= 1 - VERIFIED else "undecided"
            rows[claim] = {"claim": claim, "probability": p, "verdict": verdict}
        return SummaryTable(rows, VERIFIED)

    def quantile(self, coefficient: str, p: float) -> float:
        """The number below which the coefficient lies with probability p.

        Of a clipped-mean Release it is the released quantile, with its noise.
        """
        p = probability("p", p)
        self._known(coefficient)
        if isinstance(self.release.mechanism, _LOCATED):
            return self._located(coefficient).quantile(p)
        if isinstance(self.release.mechanism, ClippedMean):
            return self._released(coefficient, p)[0]
        return self._refuse(f"a quantile of {coefficient}", _NONE_FOLLOWS)

    def interval(
        self, coefficient: str, level: float = 0.95, *, noise_aware: bool = True
    ) -> tuple[float, float]:
        """Central credible interval.

        Without `noise_aware` the released numbers are taken for exact, for comparison.
        """
        level = probability("level", level)
        self._known(coefficient)
        low, high = (1 - level) / 2, (1 + level) / 2
        if isinstance(self.release.mechanism, _LOCATED):
            found = self._located(coefficient)
            return found.quantile(low, noise_aware), found.quantile(high, noise_aware)
        if isinstance(self.release.mechanism, ClippedMean):
            (first, noise), (last, other) = (self._released(coefficient, p) for p in (low, high))
            if not noise_aware:
                return min(first, last), max(first, last)
            return laws.clipped_mean_interval(first, last, low, high, max(noise, other))
        return self._refuse(f"an interval of {coefficient}", _NONE_FOLLOWS)

    # --- tables ----------------------------------------------------------------------------------

    def summary(self, level: float = 0.95) -> SummaryTable:
        """Every answer that the Release has; intervals of this level where there are any."""
        level = probability("level", level)
        release, rows = self.release, {}
        for i, entry in enumerate(self._entries):
            if isinstance(release.mechanism, _LOCATED):
                rows[entry.coefficient] = self._line(entry.coefficient, level)
            elif isinstance(release.mechanism, ClippedMean):
                value, noise = self._released(entry.coefficient, entry.probability)
                line = {"coefficient": entry.coefficient, "p": entry.probability}
                rows[str(entry)] = line | {"quantile": value, "noise_sd": math.sqrt(2) * noise}
            else:
                aware, naive = (answers.below(release, i, noise_aware=x) for x in (True, False))
                line = {"statement": str(entry), "probability": aware, "ignoring_noise": naive}
                rows[str(entry)] = line
        return SummaryTable(rows, level)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Answers, warnings and where they come from, as plain data."""
        release = self.release
        return {
            "mechanism": release.mechanism.name,
            "model": release.model.name,
            "target": release.design.target,
            "n": release.n,
            "blocks": release.blocks,
            "partitions": release.partitions,
            "claim": str(release.claim),
            "digest": release.digest,
            "signatures": list(self.signatures),
            "level": level,
            "answers": list(self.summary(level).to_dict().values()),
            "rests_on": list(answers.rests_on(release)),
            "warnings": list(self.warnings),
        }

    def describe(self, level: float = 0.95) -> str:
        """Where the answers come from, and the answers."""
        release = self.release
        head = (
            f"{release.mechanism.name} of {release.blocks:,} blocks"
            f"{f' x {release.partitions} partitions' if release.partitions > 1 else ''}"
            f" of {rows_in_words(release.n)}, {release.claim}; target {release.design.target}"
            f"{'' if release.model.is_least_squares else f', {release.model.name}'}"
        )
        rests_on = [f"Rests on: {sentence}" for sentence in answers.rests_on(release)]
        return "\n".join([head, str(self.summary(level)), *rests_on, *release.design.glossary()])

    # --- pictures and files ----------------------------------------------------------------------

    @property
    def heading(self) -> str:
        """The regression, and at what privacy."""
        release = self.release
        has_quantiles = isinstance(release.mechanism, ClippedMean)
        what = " (released quantiles, with the noise on them)" if has_quantiles else ""
        return f"Block summary of {release.design.target}, published at {release.claim}{what}"

    @property
    def is_probability(self) -> bool:
        """Whether the answers are probabilities of statements."""
        return not isinstance(self.release.mechanism, ClippedMean | LocationScale | Mean)

    def called(self, name: str) -> str:
        """What people call a coefficient or a feature."""
        return self.release.design.called(name)

    def shown(self, names: Sequence[str] | None = None) -> list[str]:
        """Answers to draw: all, or those about the coefficients (or statements) that are named."""
        entries = {str(entry): entry for entry in self._entries}
        if isinstance(self.release.mechanism, _LOCATED):
            entries = {entry.coefficient: entry for entry in entries.values()}
        if names is None:
            return list(entries)
        for name in names:
            if name not in entries:
                self._known(name)
        return [k for k, entry in entries.items() if k in names or entry.coefficient in names]

    def bars(self, name: str, level: float) -> dict[str, Interval]:
        """One answer, without and with the noise; a probability has no width."""
        labels = {NAIVE: False, AWARE: True}
        if isinstance(self.release.mechanism, _LOCATED):
            centre, found = self.quantile(name, 0.5), {}
            for label, aware in labels.items():
                low, high = self.interval(name, level, noise_aware=aware)
                found[label] = Interval(low, centre, high)
            return found
        index = [str(entry) for entry in self._entries].index(name)
        if isinstance(self.release.mechanism, ClippedMean):
            item = self._entries[index]
            value, noise = self._released(item.coefficient, item.probability)
            reach = -math.log(1 - level) * noise
            return {"released quantile": Interval(value - reach, value, value + reach)}
        chances = (answers.below(self.release, index, aware) for aware in labels.values())
        return {label: Interval(p, p, p) for label, p in zip(labels, chances, strict=True)}

    def groups(self, *, auxiliary: bool = True) -> Groups:
        """The released numbers; there are no draws."""
        return Groups(observed_data=dataset({"released": self.release.values}, leading=()))

    @classmethod
    def from_groups(cls, data: Arrays, document: dict[str, Any]) -> SummaryPosterior:
        """Read the Release back."""
        return cls(cls._release_in(document, SummaryRelease))

    # --- from names to entries -------------------------------------------------------------------

    @property
    def _entries(self) -> tuple[Any, ...]:
        """Questions, coefficients or quantiles, as the mechanism has them."""
        return entries_of(self.release.mechanism)

    def _line(self, coefficient: str, level: float) -> dict[str, Any]:
        found = self._located(coefficient)
        low, high = self.interval(coefficient, level)
        percent = f"{100 * level:g}%"
        return {
            "coefficient": coefficient,
            "mean" if isinstance(self.release.mechanism, Mean) else "median": found.location,
            "sd_without_noise": found.scale,
            f"{percent}_low": low,
            f"{percent}_high": high,
            "prob_below_0": found.below(0.0),
        }

    def _known(self, coefficient: str) -> None:
        names = self.release.coefficients
        if coefficient not in names:
            raise RequestError(
                f"coefficient: {coefficient!r} is not one of the regression's: {', '.join(names)}"
            )

    def _located(self, coefficient: str) -> answers.Located:
        index = self._index(coefficient)
        if index is None:
            released = ", ".join(item.coefficient for item in self._entries)
            self._refuse(f"{coefficient}", f"{released} only")
        return answers.located(self.release, index)

    def _released(self, coefficient: str, p: float) -> tuple[float, float]:
        """A quantile, and the scale of the noise on it."""
        index = self._index(coefficient, probability=p)
        if index is None:
            there = ", ".join(str(item) for item in self._entries[:8])
            self._refuse(f"the quantile {p:g} of {coefficient}", f"these: {there}")
        item, noise = self._entries[index], self.release.mean_noise_scale
        return item.value(self.release.mean(index)), noise * (item.upper - item.lower)

    def _index(self, coefficient: str, **number: float) -> int | None:
        """Which entry is about a coefficient and has this threshold or probability."""
        for index, entry in enumerate(self._entries):
            close = (
                math.isclose(getattr(entry, name), value, rel_tol=SAME, abs_tol=1e-300)
                for name, value in number.items()
            )
            if entry.coefficient == coefficient and all(close):
                return index
        return None

    def _refuse(self, what: str, has: str) -> NoReturn:
        raise RequestError(
            f"this release can't answer {what}: {self.release.mechanism.name} has {has}; "
            f"{answers.remedy(self.release)}"
        )


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise RequestError(f"{name}: expected a number, got {value!r}")
    return number
