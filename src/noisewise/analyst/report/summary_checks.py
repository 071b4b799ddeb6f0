"""Whether block summaries can be trusted: public numbers beside what is wanted of them."""

from __future__ import annotations

import math

from noisewise.analyst.report.markup import Content, Markup, tag
from noisewise.analyst.report.numbers import short
from noisewise.analyst.report.tables import section, table
from noisewise.analyst.summaries.answers import rank_epsilon
from noisewise.analyst.summaries.cautions import (
    ENOUGH_BLOCKS,
    ENOUGH_KAPPA,
    MEDIAN_NEEDS,
    SCALE_NEEDS,
    rows_needed,
)
from noisewise.core.summary_release import MedianNoise, SummaryRelease


def checks_section(release: SummaryRelease) -> Markup:
    """What `summaries.cautions` looks at; where less is there than wanted, the page warns first."""
    epsilon, blocks = rank_epsilon(release), release.blocks
    rows: list[list[Content]] = [
        [
            "epsilon of one answer times the root of the number of blocks",
            short(epsilon * math.sqrt(blocks), 3),
            f"at least {short(ENOUGH_KAPPA)}",
            "or the noise drowns what the blocks say",
        ]
    ]
    if release.n is not None:
        rows.append(
            [
                "rows a block, about",
                f"{release.n / blocks:,.0f}",
                f"at least {rows_needed(len(release.coefficients)):,}",
                "or the blocks' regressions are rough",
            ]
        )
    rows.append(
        [
            "blocks",
            f"{blocks:,}",
            f"at least {ENOUGH_BLOCKS}",
            "or they are too few for the central limit theorem",
        ]
    )
    if isinstance(release.noise, MedianNoise):
        scale = float(release.noise.scale_epsilon) / release.noise.sensitivity
        parts = (("location", epsilon, MEDIAN_NEEDS), ("scale", scale, SCALE_NEEDS))
        rows += [
            [
                f"epsilon of each {name} times the number of blocks",
                short(share * blocks, 3),
                f"at least {needs}",
                f"or the {name} may be far off",
            ]
            for name, share, needs in parts
        ]
    return section(
        "checks",
        "Can the numbers be trusted?",
        tag(
            "p",
            "Whether the approximations hold can be judged from public numbers. A warning at the "
            "top says where one of them is less than what is wanted.",
        ),
        table("What the answers rest on", ["", "here", "wanted", "why"], rows),
    )
