"""An audit of the smallest eigenvalue, from sums to the Release's text, on a worst pair.

The pair attains the sensitivity: four rows (1, -1) and one more of them or (1, 1), so that the
eigenvalue is 0 or 2. One number carries the whole change, so a few hundred runs show half of the
noise. As in `test_release_audit` the noise has no seed; the powers are computed and asserted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from noisewise.audit.engine import audit, likelihood_ratio
from noisewise.core.kinds.regression import Release
from noisewise.core.noise import Laplace
from noisewise.core.schema import Number, Schema
from noisewise.holder.engines import open_source
from noisewise.holder.requests.regression import make_request
from studies.self_audit.broken import noise_scale_halved

from ..audit.power import detection_probability

pytestmark = pytest.mark.slow

SCHEMA = Schema("audited", {"age": Number(18, 90), "income": Number(0, 1e5)})
REQUEST = make_request(
    SCHEMA, target="income", features=["age"], epsilon=2, smallest_eigenvalue="0.5"
)
EPSILON = 1.0  # half of the budget
TRIALS = 1000
TRAINING = 0.3
CONFIDENCE = 0.999


def frame(odd):
    return pd.DataFrame({"age": [18.0] * 4 + [odd], "income": [5e4] * 5})


def audited(request):
    def runs(data):
        sums = open_source(data).sums(request.plan(), None)

        def run():
            release = Release.from_text(request.release(sums.n, sums).to_text())
            return release.measurement("smallest_eigenvalue").unit_values()

        return run

    return audit(
        runs(frame(90.0)),
        runs(frame(18.0)),
        trials=TRIALS,
        training=TRAINING,
        epsilon=EPSILON,
        confidence=CONFIDENCE,
        seed=1,
        score=likelihood_ratio(Laplace(2.0), [2.0], [0.0]),
    )


def halved(request):
    broken = replace(request)
    second, eigenvalue = request.mechanisms
    # `mechanisms` is a cached property; this is its cache.
    broken.__dict__["mechanisms"] = (second, noise_scale_halved(eigenvalue))
    return broken


def test_power():
    """The score is largest where the value is 2 or more; its probabilities are 1/2 and e^-ε'/2."""
    mechanism = REQUEST.mechanisms[1]
    assert mechanism.scale == mechanism.sensitivity == 2 * 2**32
    held_out = round(TRIALS * (1 - TRAINING))
    claim = {"held_out": held_out, "epsilon": EPSILON, "confidence": CONFIDENCE}
    assert detection_probability(0.5, 0.5 * np.exp(-2), **claim) > 1 - 2e-5
    assert detection_probability(0.5, 0.5 * np.exp(-1), **claim) < 1e-5  # 0.001 is promised


def test_the_sound_mechanism_keeps_its_claim():
    result = audited(REQUEST)
    print(result)
    assert result.passed, str(result)


def test_half_of_the_noise_is_caught():
    result = audited(halved(REQUEST))
    print(result)
    assert not result.passed, str(result)
