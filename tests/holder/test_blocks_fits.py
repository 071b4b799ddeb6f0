"""Regressions of blocks against NumPy, exact rational arithmetic and closed-form posteriors."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from noisewise.core.design import Design
from noisewise.core.kinds.summary.mechanisms import Conjugate, Flat, GPrior
from noisewise.core.schema import Category, Number, Schema, Unbounded
from noisewise.holder.blocks.regressions import fit_blocks
from noisewise.holder.blocks.sums import BlockAccumulator, BlockGrid, BlockPlan

COLUMNS = {
    "x": Unbounded(),
    "age": Number(18, 90),
    "region": Category(("north", "south", "east"), "north"),
    "y": Unbounded(),
}
DESIGN = Design(Schema("people", COLUMNS), ("x", "age", "region"), "y")
BLOCKS, PARTITIONS = 6, 2


def fits_of(columns, posterior=Flat(), design=DESIGN, blocks=BLOCKS, partitions=PARTITIONS, n=None):  # noqa: B008
    """The fits, and the rows' blocks in every partition."""
    assigned, rng = [], np.random.default_rng(31)

    class Watched(BlockAccumulator):
        def _assign(self, values):
            drawn = rng.integers(0, blocks, (partitions, len(values)), dtype=np.uint32)
            assigned.append(drawn)
            return drawn

    accumulator = Watched(BlockPlan(design, blocks, partitions))
    accumulator.add(columns)
    fits = fit_blocks(accumulator.result(), BlockGrid(design), posterior, blocks, n)
    return fits, np.concatenate(assigned, axis=1) if assigned else None


def table(rows, seed=5, shift=0.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 3, rows) + shift
    age = rng.uniform(18, 90, rows)
    region = rng.integers(0, 3, rows).astype(np.int32)
    y = 2 + 0.5 * x - 0.1 * age + 3.0 * (region == 1) + rng.standard_t(4, rows)
    return [x, age, region, y]


def matrix(columns):
    x, age, region, y = columns
    return np.column_stack([np.ones(len(x)), x, age, region == 1, region == 2]), y


def each_block(columns, assigned):
    design, y = matrix(columns)
    for r in range(PARTITIONS):
        for j in range(BLOCKS):
            inside = assigned[r] == j
            yield r * BLOCKS + j, design[inside], y[inside]


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_flat_fits_agree_with_least_squares(shift):
    columns = table(1_200, shift=shift)
    fits, assigned = fits_of(columns)
    assert fits.valid.all()
    for block, X, y in each_block(columns, assigned):
        centred = X.copy()
        centred[:, 1] -= shift
        beta = np.linalg.lstsq(centred, y, rcond=None)[0]
        rss = ((y - centred @ beta) ** 2).sum()
        beta[0] -= shift * beta[1]
        jacobian = np.eye(5)
        jacobian[0, 1] = -shift
        inverse = jacobian @ np.linalg.inv(centred.T @ centred) @ jacobian.T
        freedom = len(y) - 5
        assert fits.freedom[block] == freedom
        assert fits.mean[block] == pytest.approx(beta, rel=1e-7, abs=1e-7)
        assert fits.variance[block] == pytest.approx(np.diag(inverse) * rss / freedom, rel=1e-7)
        assert fits.full_freedom[block] == BLOCKS * len(y) - 5
        full = np.diag(inverse) * rss / (BLOCKS * len(y) - 5)
        assert fits.full_variance[block] == pytest.approx(full, rel=1e-7)


def test_statsmodels_agrees_on_standard_errors():
    sm = pytest.importorskip("statsmodels.api")
    columns = table(900, seed=9)
    fits, assigned = fits_of(columns)
    for block, X, y in each_block(columns, assigned):
        ols = sm.OLS(y, X).fit()
        assert fits.mean[block] == pytest.approx(ols.params, rel=1e-7, abs=1e-8)
        assert np.sqrt(fits.variance[block]) == pytest.approx(ols.bse, rel=1e-7)


@pytest.mark.parametrize("g", ["n", 40.0])
def test_g_prior_fits_agree_with_the_conjugate_formulas(g):
    columns = table(1_000)
    fits, assigned = fits_of(columns, GPrior(g), n=1_000)
    number = 1000.0 if g == "n" else g
    for block, X, y in each_block(columns, assigned):
        mean, scale, freedom = nig(X, y, np.zeros(5), X.T @ X / number, 0.0, 0.0)
        assert fits.freedom[block] == freedom
        assert fits.mean[block] == pytest.approx(mean, rel=1e-7, abs=1e-8)
        assert fits.variance[block] == pytest.approx(scale, rel=1e-7)
        assert fits.full_variance[block] == pytest.approx(scale / BLOCKS, rel=1e-7)


def nig(X, y, m0, precision0, shape, rate, power=1.0):
    """Mean, squared scale and degrees of freedom of the conjugate posterior, by the textbook."""
    precision = precision0 + power * X.T @ X
    mean = np.linalg.solve(precision, precision0 @ m0 + power * X.T @ y)
    a = shape + power * len(y) / 2
    b = rate + 0.5 * (power * y @ y + m0 @ precision0 @ m0 - mean @ precision @ mean)
    return mean, b / a * np.diag(np.linalg.inv(precision)), 2 * a


def test_conjugate_fits_are_the_rescaled_posterior_of_li_et_al():
    prior = Conjugate((1.0, -1.0, 0.0, 2.0, 0.0), (0.5, 20.0, 3.0, 1.0, 0.0), 3.0, 7.0)
    columns = table(400)
    fits, assigned = fits_of(columns, prior)
    for block, X, y in each_block(columns, assigned):
        textbook = (np.array(prior.mean), np.diag(prior.precision), prior.shape, prior.rate)
        mean, scale, freedom = nig(X, y, *textbook, power=BLOCKS)
        assert fits.mean[block] == pytest.approx(mean, rel=1e-7, abs=1e-8)
        assert fits.full_variance[block] == pytest.approx(scale, rel=1e-7)
        assert fits.full_freedom[block] == pytest.approx(freedom)
        tempered = (textbook[0], textbook[1] / BLOCKS, prior.shape / BLOCKS, prior.rate / BLOCKS)
        mean, scale, freedom = nig(X, y, *tempered)
        assert fits.mean[block] == pytest.approx(mean, rel=1e-7, abs=1e-8)
        assert fits.variance[block] == pytest.approx(scale, rel=1e-7)
        assert fits.freedom[block] == pytest.approx(freedom)


def test_a_conjugate_posterior_is_the_one_of_a_grid():
    """One coefficient by numerical integration over (β, σ²), without any conjugate formula."""
    schema = Schema("d", {"x": Unbounded(), "y": Unbounded()})
    design = Design(schema, ("x",), "y")
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=12), rng.normal(size=12)
    prior = Conjugate((0.0, 0.5), (1e9, 2.0), 2.0, 1.0)  # the intercept is tied to zero
    fits, _ = fits_of([x, y], prior, design, blocks=1, partitions=1)
    beta = np.linspace(-4, 4, 801)[:, None]
    sigma2 = np.exp(np.linspace(-4, 4, 801))[None, :]
    rss = (y @ y) - 2 * beta * (x @ y) + beta**2 * (x @ x)
    log = stats.invgamma.logpdf(sigma2, 2.0, scale=1.0) + np.log(sigma2)
    log = log + stats.norm.logpdf(beta, 0.5, np.sqrt(sigma2 / 2.0))
    log = log - 6 * np.log(sigma2) - rss / (2 * sigma2)
    weight = np.exp(log - log.max()).sum(axis=1)
    cumulative = (np.cumsum(weight) - weight / 2) / weight.sum()
    t = stats.t(fits.freedom[0], fits.mean[0, 1], np.sqrt(fits.variance[0, 1]))
    assert np.abs(cumulative - t.cdf(beta[:, 0])).max() < 1e-4


def test_exact_arithmetic_with_large_means():
    """Values near 1e8 that vary by 1: by rational numbers, where doubles would have lost it all."""
    schema = Schema("d", {"x": Unbounded(), "y": Unbounded()})
    design = Design(schema, ("x",), "y")
    rng = np.random.default_rng(8)
    x = 1e8 + rng.integers(-8, 8, 40) / 4
    y = 3e8 + 2.5 * (x - 1e8) + rng.integers(-8, 8, 40) / 8
    fits, _ = fits_of([x, y], Flat(), design, blocks=1, partitions=1)
    xs, ys = [Fraction(v) for v in x.tolist()], [Fraction(v) for v in y.tolist()]
    xm, ym = sum(xs) / 40, sum(ys) / 40
    sxx = sum((v - xm) ** 2 for v in xs)
    slope = sum((u - xm) * (v - ym) for u, v in zip(xs, ys, strict=True)) / sxx
    rss = sum((v - ym - slope * (u - xm)) ** 2 for u, v in zip(xs, ys, strict=True))
    assert fits.mean[0, 1] == pytest.approx(float(slope), rel=1e-14)
    assert fits.mean[0, 0] == pytest.approx(float(ym - slope * xm), rel=1e-13)
    assert fits.variance[0, 1] == pytest.approx(float(rss / 38 / sxx), rel=1e-12)
    naive = x @ x - 40 * x.mean() ** 2
    assert abs(naive - float(sxx)) > 0.1 * float(sxx)  # the control


DEGENERATE = {
    "too few rows": lambda rng: [rng.normal(size=12), rng.uniform(18, 90, 12), codes(rng, 12)],
    "no rows": lambda rng: [np.empty(0), np.empty(0), np.empty(0, dtype=np.int32)],
    "constant": lambda rng: [np.full(900, 1 / 3), rng.uniform(18, 90, 900), codes(rng, 900)],
    "far out": lambda rng: [np.full(900, 1e300), rng.uniform(18, 90, 900), codes(rng, 900)],
    "one level": lambda rng: [rng.normal(size=900), rng.uniform(18, 90, 900), codes(rng, 900) * 0],
    "on a bound": lambda rng: [rng.normal(size=900), rng.uniform(91, 99, 900), codes(rng, 900)],
}  # fmt: skip


def codes(rng, rows):
    return rng.integers(0, 3, rows).astype(np.int32)


@pytest.mark.parametrize("make", DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_blocks_are_marked_and_harmless(make):
    rng = np.random.default_rng(4)
    covariates = make(rng)
    columns = [*covariates, rng.normal(size=len(covariates[0]))]
    fits, _ = fits_of(columns, blocks=6)
    assert not fits.valid.any()
    for array in (fits.mean, fits.variance, fits.freedom, fits.full_variance, fits.full_freedom):
        assert np.isfinite(array).all()
    proper = Conjugate((0.0,) * 5, (1.0,) * 5, 1.0, 1.0)
    fits, _ = fits_of(columns, proper, blocks=6)
    assert fits.valid.all()  # a proper prior has a posterior whatever the rows


def test_collinear_columns_are_degenerate():
    schema = Schema("d", {"a": Unbounded(), "b": Unbounded(7.0), "y": Unbounded()})
    design = Design(schema, ("a", "b"), "y")
    rng = np.random.default_rng(6)
    a = rng.normal(1e4, 1, 600)
    fits, _ = fits_of([a, 3 * a - 5, rng.normal(size=600)], Flat(), design)
    assert not fits.valid.any()
    nearly = 3 * a - 5 + 1e-3 * rng.normal(size=600)
    fits, _ = fits_of([a, nearly, rng.normal(size=600)], Flat(), design)
    assert fits.valid.all()


def test_saturated_values_do_no_harm():
    columns = table(600)
    columns[0][:6] = [np.inf, -np.inf, 1e300, -1e300, 2.0**31, -(2.0**31)]
    columns[3][6:9] = [np.inf, -np.inf, 1e308]
    fits, _ = fits_of(columns)
    assert np.isfinite(fits.mean).all()
    assert np.isfinite(fits.variance).all()


def test_a_perfect_fit_has_no_width():
    schema = Schema("d", {"x": Unbounded(), "y": Unbounded()})
    design = Design(schema, ("x",), "y")
    x = np.random.default_rng(0).integers(-50, 50, 400) / 4
    fits, _ = fits_of([x, 2 * x], Flat(), design)
    assert fits.valid.all()
    assert fits.mean[:, 1] == pytest.approx(2)
    assert (fits.variance >= 0).all()
    assert fits.variance.max() < 1e-15


def test_a_block_depends_on_its_own_sums_only():
    """Bit for bit, whatever the other blocks are."""
    columns = table(900)
    accumulator = BlockAccumulator(BlockPlan(DESIGN, BLOCKS, PARTITIONS))
    accumulator.add(columns)
    sums = accumulator.result()
    before = fit_blocks(sums, BlockGrid(DESIGN), Flat(), BLOCKS, None)
    sums.limbs[0, 2] = 0
    sums.limbs[1, 5] = sums.limbs[1, 0]
    after = fit_blocks(sums, BlockGrid(DESIGN), Flat(), BLOCKS, None)
    same = np.ones(BLOCKS * PARTITIONS, dtype=bool)
    same[[2, BLOCKS + 5]] = False
    assert np.array_equal(before.mean[same], after.mean[same])
    assert np.array_equal(before.variance[same], after.variance[same])
    assert not after.valid[2]
    assert np.array_equal(after.mean[BLOCKS + 5], after.mean[BLOCKS])
