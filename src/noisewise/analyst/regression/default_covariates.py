"""The covariates' prior of a fit that is given none: what the Releases' public geometry implies.

A ball confines all features of a Release together, whichever of them a model uses. Two of ten
features in a ball share it with the eight others, and are expected to have a tenth of it each, not
half. (That two of them are in the same ball is true too, but says less: with a prior that knew only
that, intervals were too narrow still.) The Release's target keeps its own interval; as a covariate
of another model it is outside the ball.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.analyst.model_columns import ModelColumns
from noisewise.analyst.regression.priors import NIWPrior, ball_share
from noisewise.core.design import Design
from noisewise.core.geometry import Ball
from noisewise.core.release import Release


def default_covariates(columns: ModelColumns, releases: Sequence[Release], method: str) -> NIWPrior:
    """Return the default prior of the model's covariates, on unit scale.

    All holders have one law of the covariates. A single Release without a ball says that it may
    fill the bounds, and of several balls the one that leaves a covariate the most room counts.
    """
    k = len(columns.covariates)
    needs_moments = method == "gibbs_prior"
    prior = (NIWPrior.with_fourth_moments if needs_moments else NIWPrior.weakly_informative)(k)
    balls = [(r.design, r.geometry) for r in releases if isinstance(r.geometry, Ball)]
    if not balls or len(balls) < len(releases):
        return prior
    return prior.scaled(np.max([_shares(columns, *ball) for ball in balls], axis=0))


def _shares(columns: ModelColumns, design: Design, ball: Ball) -> FloatArray:
    """How much of its default variance a Release expects each of the covariates to have."""
    inside = {column.name for column in design.columns[:-1]}
    share = ball_share(len(inside), ball.radius)
    return np.array([share if c.name in inside else 1.0 for c in columns.covariates])
