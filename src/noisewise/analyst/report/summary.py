"""The page about block summaries: what a Release says of coefficients, noise included.

What a page has depends on the mechanism: probabilities of the statements that were asked, medians
with intervals, or released quantiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noisewise.analyst.posterior.summary import SummaryPosterior
from noisewise.analyst.report import widgets, words
from noisewise.analyst.report.page import (
    Contents,
    columns_table,
    findings_section,
    forest_section,
    key,
    lead,
    limits_section,
    price_section,
    promises,
    reproduce_section,
    rows_in_words,
)
from noisewise.analyst.report.widgets import Content, Markup, facts, figure, section, table
from noisewise.analyst.report.words import percent, rounded, short
from noisewise.analyst.summaries import answers
from noisewise.core.errors import RequestError
from noisewise.core.kinds.summary.mechanisms import (
    ClippedMean,
    Conjugate,
    Fisher,
    Flat,
    GPrior,
    LocationScale,
    Mean,
    QuantileItem,
    RescaledNormal,
    Sign,
    Stouffer,
    entries_of,
)
from noisewise.core.kinds.summary.release import MeanNoise, MedianNoise, SummaryRelease, SummedNoise
from noisewise.core.normal_laplace import variance

MOST_FIGURES = 30
_AMITAI = (
    "Amitai & Reiter (2018), Differentially private posterior summaries for linear regression "
    "coefficients, doi:10.29012/jpc.686."
)


_A_MODEL = {
    "least_squares": "a linear regression",
    "logistic": "a logistic regression (log odds)",
    "poisson": "a Poisson regression (log means)",
    "quantile": "a quantile regression",
    "huber": "a robust linear regression (Huber)",
    "cox": "a Cox regression (log hazard ratios)",
}


def contents(posterior: SummaryPosterior, level: float) -> Contents:
    """Everything the page says about block summaries."""
    release = posterior.release
    design = release.design
    parts: Sequence[Markup]
    if isinstance(release.mechanism, LocationScale | Mean):
        parts = _median_sections(posterior, level)
    elif isinstance(release.mechanism, ClippedMean):
        parts = _quantile_sections(posterior, release.mechanism)
    else:
        parts = _question_sections(posterior)
    return Contents(
        words.heading(design.schema, design.target, design.features),
        lead(
            f"Answers about {_A_MODEL.get(release.model.kind, release.model.name)}",
            [release.n],
            [str(release.claim)],
            "It was fitted within blocks of rows, and only a noisy aggregate over "
            f"{release.blocks:,} blocks was released; this analysis accounts for the noise.",
        ),
        (
            *parts,
            _released(release),
            _model(release),
            _checks(release),
            limits_section(_limits(posterior)),
            reproduce_section([release.digest], level, _AMITAI),
        ),
    )


def _limits(posterior: SummaryPosterior) -> list[tuple[str, str]]:
    release = posterior.release
    said = [
        words.NO_CAUSES,
        (
            "A flat prior.",
            "Block summaries have no other. Who knows more beforehand can narrow the answers.",
        ),
        (
            "The regression that the blocks fit.",
            f"Blocks fitted {_A_MODEL.get(release.model.kind, release.model.name)} and looked for "
            "nothing else. With few rows a block, each block's estimate is rough.",
        ),
        (
            "Only what was asked.",
            "Other thresholds, coefficients or intervals need another release, which costs more "
            "privacy."
            if not isinstance(release.mechanism, LocationScale | Mean)
            else "Coefficients that were not asked for need another release, which costs more "
            "privacy. Every threshold and every interval of those above is free.",
        ),
    ]
    if isinstance(release.mechanism, LocationScale | Mean):
        said.append(
            (
                "The scale is taken at face value.",
                "The width of an interval rests on a second private number, whose own error is not "
                "in the interval.",
            )
        )
    return [*said, words.HOLDER_IS_TRUSTED, words.MAY_BE_PUBLISHED]


# --- what released medians say of coefficients: intervals, with and without the noise ---------


def _median_sections(posterior: SummaryPosterior, level: float) -> Sequence[Markup]:
    """Sentences, the table, pictures, and what privacy cost."""
    release = posterior.release
    assert isinstance(release.mechanism, LocationScale | Mean)
    names = [item.coefficient for item in release.mechanism.items]
    found = {name: _estimate(posterior, name, level) for name in names}
    design = release.design
    told = words.findings(design.columns, design.schema, design.target, found, level)
    size = percent(level)
    if not release.model.is_least_squares:  # no differences in the target's own unit
        told = [
            f"{posterior.called(name)}: {rounded(one.centre, one.sd)} ({size} interval "
            f"{words.between(one.low, one.high, one.sd)}; above zero with probability "
            f"{words.chance(one.above)})."
            for name, one in found.items()
        ]
    rows: list[list[Content]] = []
    for name in names:
        low, high = posterior.interval(name, level, noise_aware=False)
        rows.append(
            [
                posterior.called(name),
                rounded(found[name].centre, found[name].sd),
                words.between(found[name].low, found[name].high, found[name].sd),
                words.chance(found[name].above),
                words.between(low, high, found[name].sd),
                words.chance(1 - posterior.prob(name, "<", 0, noise_aware=False)),
            ]
        )
    return (
        findings_section(
            posterior.warnings, told, about=words.comparing(design.schema, design.target, level)
        ),
        section(
            "answers",
            "Coefficients",
            f"The estimate is the released {release.mechanism.name.partition('_')[0]}, in "
            "original units. An interval holds the "
            f"true value with probability {size}, given what was released and a flat prior. "
            "The columns that ignore the noise take the released number for the true one. "
            "They are shown as a warning, not as an alternative.",
            table(
                f"Coefficients of the regression for {release.design.target}",
                [
                    "",
                    "estimate",
                    f"{size} interval",
                    "above zero",
                    f"{size} interval, ignoring the noise",
                    "above zero, ignoring the noise",
                ],
                rows,
            ),
        ),
        forest_section(posterior, names[:MOST_FIGURES], level),
        _price(posterior),
    )


def _estimate(posterior: SummaryPosterior, name: str, level: float) -> words.Estimate:
    centre = posterior.quantile(name, 0.5)
    low, high = posterior.interval(name, level)
    # About a standard deviation of a normal law; enough to know how many digits are worth showing.
    sd = (posterior.quantile(name, 0.84) - posterior.quantile(name, 0.16)) / 2
    return words.Estimate(centre, sd, low, high, 1 - posterior.prob(name, "<", 0))


def _price(posterior: SummaryPosterior) -> Markup:
    release = posterior.release
    laws = [answers.located(release, i).law for i in range(len(entries_of(release.mechanism)))]
    shares = sorted(1 - variance(law.s, 0.0) / variance(*law) for law in laws)
    ends = list(dict.fromkeys(percent(share) for share in (shares[0], shares[-1])))
    return price_section(
        f"Of each coefficient's uncertainty (its posterior variance) {' to '.join(ends)} is there "
        f"only because of the noise: {words.price(shares[-1])}. The rest comes from the limited "
        "number of rows and from fitting them in blocks. It follows from epsilon, the number of "
        "blocks, and for means from how wide the range is."
    )


# --- what block summaries answer to questions: how probable each statement is -----------------


def _question_sections(posterior: SummaryPosterior) -> Sequence[Markup]:
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
        widgets.Line(
            str(question),
            (widgets.point("naive", "naive", q), widgets.point("noise-aware", "aware", p)),
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
            "Probabilities that a coefficient is below a number, given what was released and "
            "with a flat prior, in original units. The last column is what one gets by taking "
            "the noisy number for the true one. It is shown as a warning, not as an "
            "alternative.",
            table(
                "Probability of each statement that was asked",
                ["", "probability", "ignoring the noise"],
                rows,
            ),
            key(),
            figure(
                "Probability, from 0 to 1",
                widgets.probabilities(lines, f"Probabilities of statements: {said}."),
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


# --- what released quantiles say of coefficients: they themselves, and intervals between two --


def _quantile_sections(posterior: SummaryPosterior, mechanism: ClippedMean) -> Sequence[Markup]:
    """Intervals where both ends were released, and every released quantile with its noise."""
    lines = posterior.summary().rows.values()
    released: list[list[Content]] = [
        [
            line["coefficient"],
            short(line["p"]),
            rounded(line["quantile"], line["noise_sd"]),
            short(line["noise_sd"], 3),
        ]
        for line in lines
    ]
    found: list[list[Content]] = []
    told, figures = [], []
    for name, level in _pairs(posterior, mechanism.items):
        aware = posterior.interval(name, level)
        naive = posterior.interval(name, level, noise_aware=False)
        spread = (aware[1] - aware[0]) / 4
        said = words.between(*aware, spread)
        ignoring = words.between(*naive, spread)
        found.append([name, percent(level), said, ignoring])
        told.append(f"{name} is from {said} with probability {percent(level)}.")
        bars = [_plain_bar("naive", naive), _plain_bar("aware", aware)]
        description = f"{percent(level)} interval of {name}: {said}; ignoring the noise {ignoring}."
        picture = widgets.intervals(bars, description)
        figures.append(figure(f"{name}, {percent(level)}", picture))
    if not told:
        told = [
            "No two released quantiles are the ends of an interval, so that noise and sampling "
            "cannot be told apart: read the table with the noise's standard deviation in mind."
        ]
    head = ["", "probability", "interval", "ignoring the noise"]
    return (
        findings_section(posterior.warnings, told),
        section(
            "answers",
            "How sure, with and without the noise",
            "Quantiles of the posterior as they were released, in original units, each with "
            "the standard deviation of its noise. The intervals between two of them account "
            "for the noise; the last column takes the released quantiles for the true ones. "
            "It is shown as a warning, not as an alternative.",
            table("Intervals", head, found) if found else None,
            table("Released quantiles", ["", "quantile", "released", "sd of the noise"], released),
            *([key(), *figures[:MOST_FIGURES]] if figures else []),
        ),
    )


def _pairs(
    posterior: SummaryPosterior, items: Sequence[QuantileItem]
) -> Iterator[tuple[str, float]]:
    """Coefficients and levels of which both ends were released."""
    for item in items:
        if item.probability >= 0.5:
            continue
        level = 1 - 2 * item.probability
        try:
            posterior.interval(item.coefficient, level)
        except RequestError:  # the other end is not there
            continue
        yield item.coefficient, level


def _plain_bar(style: str, ends: tuple[float, float]) -> widgets.Bar:
    """An interval of which only the ends are known."""
    middle = ends[0] / 2 + ends[1] / 2
    return widgets.Bar(style, style, ends[0], middle, middle, middle, ends[1])


# --- what was released of blocks, at what privacy, and which regression a block fits ----------


_PUBLISHED: dict[type, str] = {
    Sign: "in how many blocks the estimate is below each number that was asked",
    Stouffer: "the blocks' normal scores for each statement that was asked, clipped and summed",
    RescaledNormal: "the sum of the blocks' probabilities of each statement that was asked",
    Fisher: "the sum of the logarithms of the blocks' probabilities of each statement",
    ClippedMean: "means of the blocks' posterior quantiles, clipped to public bounds",
    LocationScale: "for each coefficient medians of the blocks' estimates and of their spread",
    Mean: "for each coefficient the mean of the blocks' estimates and of their distances from a "
    "rough median, within a range that was found privately",
}


def _released(release: SummaryRelease) -> Markup:
    """The file with its privacy, the promise in words, and the columns that were read."""
    schema = release.design.schema
    claim = str(release.claim)
    known: list[tuple[str, Content]] = [
        ("data set", schema.dataset),
        ("rows", rows_in_words(release.n)),
        ("blocks", _blocks(release)),
        ("mechanism", f"{release.mechanism.name}: {_PUBLISHED[type(release.mechanism)]}"),
        ("privacy", f"{claim} (pure differential privacy)"),
        ("noise", _noise(release)),
        ("protects", words.unit_in_words(schema.unit)),
    ]
    if release.label:
        known.append(("label", release.label))
    if release.software:
        known.append(("made by", release.software))
    return section(
        "released",
        "What was released",
        "The rows were put into blocks at random, every block got a regression of its own, and "
        "one noisy aggregate over all blocks was released for each answer, and nothing else. "
        "Who was in which block is not in the file.",
        facts("The released file", known),
        *promises([claim]),
        columns_table(schema, release.design.target, release.design.features),
    )


def _blocks(release: SummaryRelease) -> str:
    times = f", formed {release.partitions:,} times over" if release.partitions > 1 else ""
    rows = "" if release.n is None else f" of about {release.n / release.blocks:,.0f} rows"
    return f"{release.blocks:,}{rows}{times}"


def _noise(release: SummaryRelease) -> str:
    noise = release.noise
    if not isinstance(noise, SummedNoise):
        drawn = noise.medians if isinstance(noise, MeanNoise) else noise
        location, scale = float(drawn.location_epsilon), float(drawn.scale_epsilon)
        said = (
            "medians drawn at random by the exponential mechanism, with epsilon = "
            f"{short(location)} for each location and {short(scale)} for each scale"
        )
        if isinstance(noise, MedianNoise):
            return said
        share = short(release.mean_noise_scale, 3)
        return f"{said}; Laplace with scale {share} of half the range on each mean"
    mechanism = release.mechanism
    assert not isinstance(mechanism, LocationScale)
    step = 2.0**-mechanism.fraction_bits
    reach = f"{short(mechanism.low * step)} to {short(mechanism.high * step)}"
    return (
        f"Laplace with scale {short(release.mean_noise_scale, 3)} on each average over all blocks, "
        f"of numbers from {reach}"
    )


def _model(release: SummaryRelease) -> Markup:
    """Which regression, with which prior, and how answers are made of aggregates."""
    design = release.design
    return section(
        "model",
        "Model and prior",
        f"In every block {_A_MODEL.get(release.model.kind, release.model.name)} of {design.target} "
        f"on {len(design.features):,} feature{'s' if len(design.features) > 1 else ''}, with "
        f"{len(release.coefficients):,} {_estimates(release)}; "
        f"{_prior(release)}. Blocks without an estimate count with a fixed number, so that "
        "not even how many there are is told.",
        f"What was released is, up to the noise, {_aggregate(release)} over many blocks, hence "
        "nearly normal. A probability or an interval follows from the law of a normal variable "
        "plus the noise that was added, with a flat prior for the coefficient.",
    )


def _estimates(release: SummaryRelease) -> str:
    if release.model.estimates:
        return "numbers"
    alone = release.model.name == "cox"
    return "coefficients" + ("" if alone else ", the intercept among them")


def _aggregate(release: SummaryRelease) -> str:
    return "a median" if isinstance(release.mechanism, LocationScale) else "an average"


def _prior(release: SummaryRelease) -> str:
    posterior = release.posterior
    if isinstance(posterior, Flat):
        return "the block's own prior is flat"
    if isinstance(posterior, GPrior):
        g = "the number of rows" if posterior.g == "n" else f"g = {short(float(posterior.g))}"
        return f"the block's own prior is Zellner's g prior about zero, with {g}"
    assert isinstance(posterior, Conjugate)
    return "the block's own prior is normal-inverse-gamma, as the file states"


# --- whether block summaries can be trusted: public numbers beside what is wanted of them -----


def _checks(release: SummaryRelease) -> Markup:
    """What `answers.checks` looks at; where less is there than wanted, the page warns first."""
    rows: list[list[Content]] = [
        [check.what, short(check.here, 3), f"at least {short(check.wanted)}", check.why]
        for check in answers.checks(release)
    ]
    return section(
        "checks",
        "Can the numbers be trusted?",
        "Whether the approximations hold can be judged from public numbers. A warning at the "
        "top says where one of them is less than what is wanted.",
        table("What the answers rest on", ["", "here", "wanted", "why"], rows),
        *answers.rests_on(release),
    )
