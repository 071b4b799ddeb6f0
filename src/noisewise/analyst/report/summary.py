"""The page about block summaries: what a Release says of coefficients, noise included.

What a page has depends on the mechanism: probabilities of the statements that were asked, medians
with intervals, or released quantiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noisewise.analyst.posterior.summary import SummaryPosterior
from noisewise.analyst.report import page, widgets, words
from noisewise.analyst.report.widgets import Content, Markup, facts, figure, section, table
from noisewise.analyst.report.words import percent, rounded, short
from noisewise.analyst.summaries import answers
from noisewise.core.errors import RequestError
from noisewise.core.kinds.summary import mechanisms
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


def contents(posterior: SummaryPosterior, level: float) -> page.Contents:
    """Everything the page says about block summaries."""
    release, design = posterior.release, posterior.release.design
    parts: Sequence[Markup]
    if isinstance(release.mechanism, mechanisms.LocationScale | mechanisms.Mean):
        parts = _median_sections(posterior, release.mechanism, level)
    elif isinstance(release.mechanism, mechanisms.ClippedMean):
        parts = _quantile_sections(posterior, release.mechanism)
    else:
        parts = _question_sections(posterior)
    noise = (
        "It was fitted within blocks of rows, and only a noisy aggregate over "
        f"{release.blocks:,} blocks was released; this analysis accounts for the noise."
    )
    what = f"Answers about {_fitted(release)}"
    return page.Contents(
        words.heading(design.schema, design.target, design.features),
        page.lead(what, [release.n], [str(release.claim)], noise),
        (
            *parts,
            _released(release),
            _model(release),
            _checks(release),
            page.limits_section(_limits(release)),
            page.reproduce_section([release.digest], level, _AMITAI),
        ),
    )


def _fitted(release: SummaryRelease) -> str:
    return _A_MODEL.get(release.model.kind, release.model.name)


def _limits(release: SummaryRelease) -> list[tuple[str, str]]:
    asked = "Other thresholds, coefficients or intervals need another release, which costs more "
    asked += "privacy."
    face_value = []
    if isinstance(release.mechanism, mechanisms.LocationScale | mechanisms.Mean):
        asked = (
            "Coefficients that were not asked for need another release, which costs more privacy. "
            "Every threshold and every interval of those above is free."
        )
        second = "The width of an interval rests on a second private number, whose own error is "
        face_value = [("The scale is taken at face value.", second + "not in the interval.")]
    return [
        words.NO_CAUSES,
        (
            "A flat prior.",
            "Block summaries have no other. Who knows more beforehand can narrow the answers.",
        ),
        (
            "The regression that the blocks fit.",
            f"Blocks fitted {_fitted(release)} and looked for nothing else. With few rows a block, "
            "each block's estimate is rough.",
        ),
        ("Only what was asked.", asked),
        *face_value,
        words.HOLDER_IS_TRUSTED,
        words.MAY_BE_PUBLISHED,
    ]


# --- what released medians say of coefficients: intervals, with and without the noise ---------


def _median_sections(
    posterior: SummaryPosterior, mechanism: mechanisms.LocationScale | mechanisms.Mean, level: float
) -> Sequence[Markup]:
    """Sentences, the table, pictures, and what privacy cost."""
    release, design = posterior.release, posterior.release.design
    names = [item.coefficient for item in mechanism.items]
    found = {name: _estimate(posterior, name, level) for name in names}
    told = words.findings(design.columns, design.schema, design.target, found, level)
    size = percent(level)
    if not release.model.is_least_squares:  # no differences in the target's own unit
        told = [
            f"{posterior.called(name)}: {rounded(one.centre, one.sd)} ({size} interval "
            f"{words.between(one.low, one.high, one.sd)}; above zero with probability "
            f"{words.chance(one.above)})."
            for name, one in found.items()
        ]
    head = ["", "estimate", f"{size} interval", "above zero"]
    head += [f"{size} interval, ignoring the noise", "above zero, ignoring the noise"]
    rows = [
        [
            posterior.called(name),
            rounded(one.centre, one.sd),
            words.between(one.low, one.high, one.sd),
            words.chance(one.above),
            words.between(*posterior.interval(name, level, noise_aware=False), one.sd),
            words.chance(1 - posterior.prob(name, "<", 0, noise_aware=False)),
        ]
        for name, one in found.items()
    ]
    about = words.comparing(design.schema, design.target, level)
    return (
        page.findings_section(posterior.warnings, told, about=about),
        section(
            "answers",
            "Coefficients",
            f"The estimate is the released {mechanism.name.partition('_')[0]}, in "
            "original units. An interval holds the "
            f"true value with probability {size}, given what was released and a flat prior. "
            "The columns that ignore the noise take the released number for the true one. "
            "They are shown as a warning, not as an alternative.",
            table(f"Coefficients of the regression for {design.target}", head, rows),
        ),
        page.forest_section(posterior, names[:MOST_FIGURES], level),
        _price(release),
    )


def _estimate(posterior: SummaryPosterior, name: str, level: float) -> words.Estimate:
    centre = posterior.quantile(name, 0.5)
    low, high = posterior.interval(name, level)
    # About a standard deviation of a normal law; enough to know how many digits are worth showing.
    sd = (posterior.quantile(name, 0.84) - posterior.quantile(name, 0.16)) / 2
    return words.Estimate(centre, sd, low, high, 1 - posterior.prob(name, "<", 0))


def _price(release: SummaryRelease) -> Markup:
    laws = [
        answers.located(release, i).law
        for i in range(len(mechanisms.entries_of(release.mechanism)))
    ]
    shares = sorted(1 - variance(law.s, 0.0) / variance(*law) for law in laws)
    ends = list(dict.fromkeys(percent(share) for share in (shares[0], shares[-1])))
    return page.price_section(
        f"Of each coefficient's uncertainty (its posterior variance) {' to '.join(ends)} is there "
        f"only because of the noise: {words.price(shares[-1])}. The rest comes from the limited "
        "number of rows and from fitting them in blocks. It follows from epsilon, the number of "
        "blocks, and for means from how wide the range is."
    )


# --- what block summaries answer to questions: how probable each statement is -----------------


def _question_sections(posterior: SummaryPosterior) -> Sequence[Markup]:
    """Sentences, then every probability beside what ignoring the noise would say."""
    found, lines = [], []
    for question in answers.asking(posterior.release).questions:
        asked = question.coefficient, "<", question.threshold
        found.append((question, posterior.prob(*asked), posterior.prob(*asked, noise_aware=False)))
    told = [
        _verdict(question.coefficient, short(question.threshold), p)
        for question, p, _ in sorted(found, key=lambda line: -abs(line[1] - 0.5))
    ]
    rows = [[str(question), words.chance(p), words.chance(q)] for question, p, q in found]
    for question, p, q in found[:MOST_FIGURES]:
        points = widgets.point("naive", "naive", q), widgets.point("noise-aware", "aware", p)
        lines.append(widgets.Line(str(question), points))
    said = "; ".join(f"{asked} {p}, ignoring the noise {q}" for asked, p, q in rows[:8])
    picture = widgets.probabilities(lines, f"Probabilities of statements: {said}.")
    head = ["", "probability", "ignoring the noise"]
    return (
        page.findings_section(posterior.warnings, told),
        section(
            "answers",
            "How sure, with and without the noise",
            "Probabilities that a coefficient is below a number, given what was released and "
            "with a flat prior, in original units. The last column is what one gets by taking "
            "the noisy number for the true one. It is shown as a warning, not as an "
            "alternative.",
            table("Probability of each statement that was asked", head, rows),
            page.key(),
            figure("Probability, from 0 to 1", picture),
        ),
    )


def _verdict(coefficient: str, threshold: str, below: float) -> str:
    side, chance = ("below", below) if below >= 0.5 else ("above", 1 - below)
    said = words.chance(chance)
    if chance < words.LIKELY:
        return (
            f"{coefficient}: whether it is below or above {threshold} is undecided (probability "
            f"that it is {side}: {said})."
        )
    verdict = "is" if chance >= words.SURE else "is probably"
    return f"{coefficient} {verdict} {side} {threshold} (probability {said})."


# --- what released quantiles say of coefficients: they themselves, and intervals between two --


def _quantile_sections(
    posterior: SummaryPosterior, mechanism: mechanisms.ClippedMean
) -> Sequence[Markup]:
    """Intervals where both ends were released, and every released quantile with its noise."""
    released = []
    for line in posterior.summary().rows.values():
        value, sd = line["quantile"], line["noise_sd"]
        released.append([line["coefficient"], short(line["p"]), rounded(value, sd), short(sd, 3)])
    found, told, figures = [], [], []
    for name, level in _pairs(posterior, mechanism.items):
        ends = {
            style: posterior.interval(name, level, noise_aware=style == "aware")
            for style in ("naive", "aware")
        }
        spread, size = (ends["aware"][1] - ends["aware"][0]) / 4, percent(level)
        ignoring, said = (words.between(*both, spread) for both in ends.values())
        found.append([name, size, said, ignoring])
        told.append(f"{name} is from {said} with probability {size}.")
        bars = [widgets.plain(k, k, a, a / 2 + b / 2, b) for k, (a, b) in ends.items()]
        described = f"{size} interval of {name}: {said}; ignoring the noise {ignoring}."
        figures.append(figure(f"{name}, {size}", widgets.intervals(bars, described)))
    if not told:
        told = [
            "No two released quantiles are the ends of an interval, so that noise and sampling "
            "cannot be told apart: read the table with the noise's standard deviation in mind."
        ]
    head = ["", "probability", "interval", "ignoring the noise"]
    return (
        page.findings_section(posterior.warnings, told),
        section(
            "answers",
            "How sure, with and without the noise",
            "Quantiles of the posterior as they were released, in original units, each with "
            "the standard deviation of its noise. The intervals between two of them account "
            "for the noise; the last column takes the released quantiles for the true ones. "
            "It is shown as a warning, not as an alternative.",
            table("Intervals", head, found) if found else None,
            table("Released quantiles", ["", "quantile", "released", "sd of the noise"], released),
            *([page.key(), *figures[:MOST_FIGURES]] if figures else []),
        ),
    )


def _pairs(
    posterior: SummaryPosterior, items: Sequence[mechanisms.QuantileItem]
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


# --- what was released of blocks, at what privacy, and which regression a block fits ----------


_PUBLISHED = {
    "sign": "in how many blocks the estimate is below each number that was asked",
    "stouffer": "the blocks' normal scores for each statement that was asked, clipped and summed",
    "rescaled_normal": "the sum of the blocks' probabilities of each statement that was asked",
    "fisher": "the sum of the logarithms of the blocks' probabilities of each statement",
    "clipped_mean": "means of the blocks' posterior quantiles, clipped to public bounds",
    "location_scale": "for each coefficient medians of the blocks' estimates and of their spread",
    "mean": "for each coefficient the mean of the blocks' estimates and of their distances from a "
    "rough median, within a range that was found privately",
}


def _released(release: SummaryRelease) -> Markup:
    """The file with its privacy, the promise in words, and the columns that were read."""
    schema = release.design.schema
    claim = str(release.claim)
    known: list[tuple[str, Content]] = [
        ("data set", schema.dataset),
        ("rows", page.rows_in_words(release.n)),
        ("blocks", _blocks(release)),
        ("mechanism", f"{release.mechanism.name}: {_PUBLISHED[release.mechanism.name]}"),
        ("privacy", f"{claim} (pure differential privacy)"),
        ("noise", _noise(release)),
        ("protects", words.unit_in_words(schema.unit)),
    ]
    known += [(k, v) for k, v in (("label", release.label), ("made by", release.software)) if v]
    return section(
        "released",
        "What was released",
        "The rows were put into blocks at random, every block got a regression of its own, and "
        "one noisy aggregate over all blocks was released for each answer, and nothing else. "
        "Who was in which block is not in the file.",
        facts("The released file", known),
        *page.promises([claim]),
        page.columns_table(schema, release.design.target, release.design.features),
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
    assert not isinstance(mechanism, mechanisms.LocationScale)
    step = 2.0**-mechanism.fraction_bits
    reach = f"{short(mechanism.low * step)} to {short(mechanism.high * step)}"
    return (
        f"Laplace with scale {short(release.mean_noise_scale, 3)} on each average over all blocks, "
        f"of numbers from {reach}"
    )


def _model(release: SummaryRelease) -> Markup:
    """Which regression, with which prior, and how answers are made of aggregates."""
    design, count = release.design, len(release.design.features)
    intercept = "" if release.model.name == "cox" else ", the intercept among them"
    estimates = "numbers" if release.model.estimates else f"coefficients{intercept}"
    aggregate = (
        "a median" if isinstance(release.mechanism, mechanisms.LocationScale) else "an average"
    )
    return section(
        "model",
        "Model and prior",
        f"In every block {_fitted(release)} of {design.target} on {count:,} "
        f"feature{'s' if count > 1 else ''}, with {len(release.coefficients):,} {estimates}; "
        f"{_prior(release)}. Blocks without an estimate count with a fixed number, so that "
        "not even how many there are is told.",
        f"What was released is, up to the noise, {aggregate} over many blocks, hence "
        "nearly normal. A probability or an interval follows from the law of a normal variable "
        "plus the noise that was added, with a flat prior for the coefficient.",
    )


def _prior(release: SummaryRelease) -> str:
    posterior = release.posterior
    if isinstance(posterior, mechanisms.Flat):
        return "the block's own prior is flat"
    if isinstance(posterior, mechanisms.GPrior):
        g = "the number of rows" if posterior.g == "n" else f"g = {short(float(posterior.g))}"
        return f"the block's own prior is Zellner's g prior about zero, with {g}"
    assert isinstance(posterior, mechanisms.Conjugate)
    return "the block's own prior is normal-inverse-gamma, as the file states"


# --- whether block summaries can be trusted: public numbers beside what is wanted of them -----


def _checks(release: SummaryRelease) -> Markup:
    """What `answers.checks` looks at; where less is there than wanted, the page warns first."""
    rows = [
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
