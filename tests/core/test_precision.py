"""Rounding in a known direction."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.core.privacy import float_down, float_up


@settings(deadline=None, max_examples=300)
@given(st.fractions(min_value=-(10**400), max_value=10**400))
def test_float_rounding_directions(value: Fraction) -> None:
    up, down = float_up(value), float_down(value)
    assert down <= value <= up
    assert up == down or up == math.nextafter(down, math.inf)
