"""Blocks without a regression speak for neither side, whatever the mechanism."""

from __future__ import annotations

import numpy as np
import pytest

from noisewise.analyst.summaries import laws
from noisewise.core.kinds.summary.mechanisms import Fisher, Question, RescaledNormal, Sign, Stouffer
from noisewise.holder.blocks.additive import exact_values
from noisewise.holder.blocks.regressions import Fits

BLOCKS = 1000
ASKED = (Question("x", 2.0),)


def no_fits():
    column = np.zeros((BLOCKS, 1))
    ones, none = np.ones(BLOCKS), np.zeros(BLOCKS, dtype=bool)
    return Fits(column, column + 1, ones, column + 1, ones, none)


@pytest.mark.parametrize(
    ("mechanism", "mean"),
    [
        (Sign(ASKED), laws.SIGN_LAW.mean),
        (Stouffer(ASKED, 1.2), laws.stouffer_law(1.2).mean),
        (RescaledNormal(ASKED), laws.RESCALED_NORMAL_LAW.mean),
        *((Fisher(ASKED, p), laws.fisher_moments(p).law.mean) for p in (1e-6, 0.001, 0.2, 0.45)),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_they_count_with_the_mean_of_the_reference_law(mechanism, mean):
    (total,) = exact_values(mechanism, no_fits(), {"x": 0})
    assert total / BLOCKS * 2.0**-mechanism.fraction_bits == pytest.approx(mean, abs=2e-6)
