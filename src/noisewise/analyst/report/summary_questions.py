"""What block summaries answer to questions: how probable each statement is."""

from __future__ import annotations

from collections.abc import Sequence

from noisewise.analyst.posterior.summary import SummaryPosterior
from noisewise.analyst.report import charts, words
from noisewise.analyst.report.markup import Content, Markup, tag
from noisewise.analyst.report.numbers import short
from noisewise.analyst.report.sections import findings_section, key
from noisewise.analyst.report.tables import section, table
from noisewise.analyst.summaries import answers

MOST_FIGURES = 30


def question_sections(posterior: SummaryPosterior) -> Sequence[Markup]:
    """Sentences, then every probability beside what ignoring the noise would say."""
    questions = answers.asking(posterior.release).questions
    aware = [posterior.prob(q.coefficient, "<", q.threshold) for q in questions]
    naive = [posterior.prob(q.coefficient, "<", q.threshold, noise_aware=False) for q in questions]
    surest = sorted(range(len(questions)), key=lambda i: -abs(aware[i] - 0.5))
    told = [
        _verdict(questions[i].coefficient, short(questions[i].threshold), aware[i]) for i in surest
    ]
    rows: list[list[Content]] = [
        [str(question), words.chance(p), words.chance(q)]
        for question, p, q in zip(questions, aware, naive, strict=True)
    ]
    shown = list(zip(questions, aware, naive, strict=True))[:MOST_FIGURES]
    lines = [
        charts.Line(
            str(question),
            (charts.point("naive", "naive", q), charts.point("noise-aware", "aware", p)),
        )
        for question, p, q in shown
    ]
    said = "; ".join(
        f"{question} {words.chance(p)}, ignoring the noise {words.chance(q)}"
        for question, p, q in shown[:8]
    )
    return (
        findings_section(posterior.warnings, told),
        section(
            "answers",
            "How sure, with and without the noise",
            tag(
                "p",
                "Probabilities that a coefficient is below a number, given what was released and "
                "with a flat prior, in original units. The last column is what one gets by taking "
                "the noisy number for the true one. It is shown as a warning, not as an "
                "alternative.",
            ),
            table(
                "Probability of each statement that was asked",
                ["", "probability", "ignoring the noise"],
                rows,
            ),
            key(),
            tag(
                "figure",
                tag("figcaption", "Probability, from 0 to 1"),
                charts.probabilities(lines, f"Probabilities of statements: {said}."),
            ),
        ),
    )


def _verdict(coefficient: str, threshold: str, below: float) -> str:
    side, chance = ("below", below) if below >= 0.5 else ("above", 1 - below)
    if chance >= words.SURE:
        verdict = f"is {side} {threshold}"
    elif chance >= words.LIKELY:
        verdict = f"is probably {side} {threshold}"
    else:
        return (
            f"{coefficient}: whether it is below or above {threshold} is undecided (probability "
            f"that it is {side}: {words.chance(chance)})."
        )
    return f"{coefficient} {verdict} (probability {words.chance(chance)})."
