"""The noise that a request would get, by mechanism and epsilon."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from noisewise._arrays import FloatArray
from noisewise.core.design import Design
from noisewise.core.errors import RequestError
from noisewise.core.geometry import Ball
from noisewise.core.noise import DISCRETE_FAMILIES
from noisewise.core.schema import Schema
from noisewise.core.statistic import SecondMoments
from noisewise.holder.request import DEFAULT_DELTA, make_request

MECHANISMS: dict[str, dict[str, Any]] = {
    "laplace": {"mechanism": "laplace"},
    "gaussian": {"mechanism": "gaussian"},
    "isometric": {"mechanism": "gaussian", "layout": "isometric"},
    "ball": {"mechanism": "gaussian"},  # with a radius
}


class PlannedNoise:
    """Standard deviations of the noise for one regression, on unit scale.

    Parameters
    ----------
    schema : Schema
    target : str
    features : tuple of str
    delta : float, optional
        Of Gaussian noise.
    radius : float, optional
        Of the ball that rows are forced into if the mechanism is "ball".
    """

    def __init__(
        self,
        schema: Schema,
        target: str,
        features: tuple[str, ...],
        delta: float | None = None,
        radius: float | None = None,
    ) -> None:
        self.radius = None if radius is None else Ball(radius).radius
        self._words = {"target": target, "features": list(features)}
        self._schema = schema
        self.delta = float(DEFAULT_DELTA) if delta is None else float(delta)
        self.design = Design(schema.restricted_to((*features, target)), features, target)
        self.sd = lru_cache(maxsize=None)(self._sd)

    def _sd(self, mechanism: str, epsilon: float) -> FloatArray:
        """Of every entry of A, shape (P, P)."""
        if mechanism not in MECHANISMS:
            known = ", ".join(MECHANISMS)
            raise RequestError(f"mechanism: {mechanism!r} is unknown; use {known}")
        words = {**self._words, **MECHANISMS[mechanism]}
        if mechanism == "ball":
            if self.radius is None:
                raise RequestError("mechanism: ball needs a radius; give one, on unit scale")
            words["radius"] = self.radius
        if mechanism != "laplace":
            words["delta"] = self.delta
        # Laplace noise is proportional to 1 / epsilon; a Gaussian scale has to be solved for.
        asked = 1.0 if mechanism == "laplace" else epsilon
        request = make_request(self._schema, epsilon=asked, **words)
        planned = request.mechanisms[0]
        family = DISCRETE_FAMILIES[planned.family]
        size = len(self.design.names)
        sd = np.zeros((size, size))
        for a, b in SecondMoments(request.design).entries:
            scale = planned.scale if a == b else planned.off_diagonal_scale
            sd[a, b] = sd[b, a] = family(scale).continuous().variance ** 0.5
        return sd * (asked / epsilon)
