"""The scale of location_scale: the spread of the blocks' estimates about the drawn location."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from noisewise.core.kinds.summary.mechanisms import (
    CELLS,
    CauchyBase,
    GPrior,
    LocationItem,
    LocationScale,
)
from noisewise.core.kinds.summary.release import MedianNoise
from noisewise.core.schema import Schema, Unbounded
from noisewise.holder.blocks import location_scale
from noisewise.holder.blocks.regressions import Fits
from noisewise.holder.requests.summary import make_summary_request

M, R = 400, 10
ITEM = LocationItem("x", CauchyBase(0, 1), CauchyBase(-4, 3))
MECHANISM = LocationScale((ITEM,))


def fits_of(means, widths):
    n = len(means)
    column = np.asarray(means, dtype=np.float64)[:, None]
    wide = np.asarray(widths, dtype=np.float64)[:, None] ** 2
    valid = np.full(n, True)
    return Fits(column, wide, np.full(n, 28.0), wide / M, np.full(n, 1e4), valid)


def test_a_blocks_cell_depends_on_that_block_and_on_the_published_location_alone():
    rng = np.random.default_rng(1)
    means, widths = rng.normal(2, 0.1, 50), rng.uniform(0.1, 0.2, 50)
    other = means.copy()
    other[7] = 1e9
    for location in (2.0, -5.0, float(means[3])):
        cells = [
            location_scale.terms(MECHANISM, fits_of(m, widths), {"x": 0}, M, [location])
            for m in (means, other)
        ]
        changed = (cells[0] != cells[1]).any(axis=1)
        assert changed[7]
        assert changed.sum() == 1
        assert ((cells[0] >= 0) & (cells[0] < CELLS)).all()
    assert cells[0][3, 1] == 0  # at the location itself the log scale is minus infinity


@pytest.mark.parametrize("by_spread", [True, False])
def test_the_spread_tells_the_truth_where_the_blocks_own_widths_do_not(by_spread):
    rng = np.random.default_rng(2)
    true_sd = 0.3  # of an estimate; the blocks believe in a third of it
    fits = fits_of(rng.normal(2, true_sd, R * M), np.full(R * M, true_sd / 3))
    noise = MedianNoise(Fraction(1, 2), Fraction(1, 2), 1)
    where, wide = location_scale.draw(MECHANISM, fits, {"x": 0}, M, noise, R, by_spread=by_spread)
    assert ITEM.location.value(where) == pytest.approx(2, abs=0.3)
    expected = true_sd / math.sqrt(M) / (1 if by_spread else 3)
    # rank noise Laplace(2/ε) of M blocks; 0.43 is the density of log|ξ| at its median
    tolerance = 12 * 2 / (0.5 * M * 0.43) if by_spread else 0.01
    assert ITEM.log_scale.value(wide) == pytest.approx(math.log(expected), abs=tolerance)


def test_invalid_blocks_count_with_the_ends_by_turns_and_as_infinitely_wide():
    invalid = np.array([False, True, False, False])
    fits = fits_of([np.nan, 2.0, 1e300, -np.inf], [np.nan, 1.0, 0.0, 1.0])
    fits = Fits(**{**vars(fits), "valid": invalid})
    with np.errstate(invalid="ignore"):
        for locations in (None, [1.5]):
            cells = location_scale.terms(MECHANISM, fits, {"x": 0}, M, locations)
            assert cells[[0, 2, 3], 0].tolist() == [0, 0, CELLS - 1]
            assert cells[[0, 2, 3], 1].tolist() == [CELLS - 1] * 3


@pytest.mark.parametrize("share", [0.02, 0.4])
def test_invalid_blocks_pull_the_location_nowhere(share):
    """Blocks that lack a rare level must not draw the coefficient of another column to zero."""
    rng = np.random.default_rng(4)
    fits = fits_of(rng.normal(2, 0.3, R * M), np.full(R * M, 0.3))
    fits = Fits(**{**vars(fits), "valid": rng.random(R * M) >= share})
    noise = MedianNoise(Fraction(2), Fraction(2), 1)
    drawn = [
        location_scale.draw(MECHANISM, fits, {"x": 0}, M, noise, R, by_spread=True)
        for _ in range(5)
    ]
    posterior_sd = 0.3 / math.sqrt(M)
    for where, wide in drawn:
        scale = math.exp(ITEM.log_scale.value(wide))
        # Zero is 133 sds away; noise is Laplace, of .22 sds with the larger share.
        assert abs(ITEM.location.value(where) - 2) < 8 * posterior_sd
        # Wider by at least 1/(1 - share), as fewer blocks are noisier; its own noise is a tenth.
        assert scale > 0.85 * posterior_sd / (1 - share)


def test_other_posteriors_keep_their_own_width():
    """With heteroscedastic errors the two disagree: the spread is what repetition shows."""
    rng = np.random.default_rng(3)
    n = 40_000
    x = rng.standard_normal(n)
    data = {"x": x, "y": 2 * x + np.abs(x) * rng.standard_normal(n)}
    schema = Schema("people", {"x": Unbounded(), "y": Unbounded()})
    found = {}
    for name, posterior in (("spread", None), ("own", GPrior("n"))):
        request = make_summary_request(
            schema,
            target="y",
            features=["x"],
            coefficients=["x"],
            epsilon=4,
            rows=n,
            blocks=1000,
            partitions=3,
            posterior=posterior,
            mechanism="location_scale",
        )
        accumulator = request.plan().accumulator()
        accumulator.add([data["x"], data["y"]])
        release = request.release(n, accumulator.result())
        item = release.mechanism.items[0]
        found[name] = math.exp(item.log_scale.value(release.values[1]))
    robust, usual = math.sqrt(3 / n), math.sqrt(1 / n)  # E x⁴ σ² against E x² σ²
    # The draw of the blocks and the noise together have an sd of 3%.
    assert found["spread"] == pytest.approx(robust, rel=0.25)
    assert found["own"] == pytest.approx(usual, rel=0.25)
