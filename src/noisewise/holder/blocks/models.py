"""Blocks that fit any model, or compute whatever the holder's own function says.

**Claim.** What a block contributes is a function of the set of its rows, and of nothing else. So
the proofs of `sums.draw_blocks`, of the sums over blocks and of the medians hold as they are,
whatever the model is: they ask no more of it.

**Proof.** Rows become integers one by one (`sums.BlockGrid`), all of them are put in the order of
these integers, and then every row draws a block for itself. A block's rows are in that order,
whichever they had in the table, so the same set of rows gives the same arrays. Fits start from
fixed values and share nothing, and linear algebra runs in one thread of OpenBLAS (`one_thread`),
so the same arrays give the same numbers, to the last bit: how sums are divided among threads would
be one more argument. What goes wrong in a block stays there: errors are caught, warnings silenced,
and the block counts as one without an estimate. ∎

An own function must keep that: no state, no look at anything but its arguments, and the same bits
for the same arguments. It runs with the rights of whoever calls it. How long it takes is not
protected.

**Without an estimate** is a block that has no more rows than coefficients, a constant column (a
level that nobody in it has), a target that doesn't vary, a fit that doesn't converge, an error, or
a number that isn't finite.

**Separation.** Where all rows of a level have the same outcome, a logistic or Poisson likelihood
has no maximum, and a fit stops at a coefficient of 20, say, which moves the mean over blocks by
more than anything that is in the rows. Leaving such blocks out would choose among them by their
outcomes. So these two have Firth's (1993) penalty, half of the log determinant of the information:
estimates are finite, and the bias of order 1/k is gone before halves take it. A block of `cox` with
fitted log hazards beyond 15 has no estimate.

**The bias of small blocks.** A nonlinear estimate from k rows is off by about b/k, which is bM/√n
standard errors of all rows. Every block is two halves, drawn with it, and 2 f(block) - (f(half) +
f(other half))/2 has no such term (Quenouille 1949). A half without an estimate leaves f(block).
Halves are parts of one block, so a row still touches one block alone.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from noisewise.core.design import Design
from noisewise.core.errors import RequestError
from noisewise.core.kinds.summary.mechanisms import Model
from noisewise.holder.blocks.regressions import Fits
from noisewise.holder.blocks.sums import BlockGrid, KeptRows, draw_blocks
from noisewise.holder.rows import Floats

Function = Callable[[Mapping[str, Floats]], Sequence[float]]
"""From a block's columns by name (indicators as "column[level]") to its estimates, in order."""

_Fit = Callable[[Floats, Floats], Any]
_STEPS = 50
_BEYOND = 15.0  # log hazards that rows of a block can't tell from more


def fit_models(
    rows: KeptRows,
    design: Design,
    model: Model,
    function: Function | None,
    blocks: int,
    partitions: int,
) -> Fits:
    """Estimates of every block of every partition; variances are not known."""
    grid = BlockGrid(design)
    count = len(model.coefficients(design))
    centre = np.array([column.centre for column in grid.columns])
    table = centre + rows.values * np.array([column.step for column in grid.columns])
    fit = _fit_of(model, design, function)
    mean = np.zeros((partitions, blocks, count))
    valid = np.zeros((partitions, blocks), dtype=np.bool_)
    with one_thread(needed=function is None):
        for p in range(partitions):
            halves = draw_blocks(rows.n, 1, 2 * blocks)[0]
            order = np.argsort(halves, kind="stable")  # rows of one half stay in order
            ends = np.searchsorted(halves[order], np.arange(2 * blocks + 1))
            for j in range(blocks):
                first, middle, last = ends[2 * j : 2 * j + 3]
                whole = np.sort(order[first:last])
                parts = whole, order[first:middle], order[middle:last]
                found = _extrapolated(fit, [table[part] for part in parts], count)
                if found is not None:
                    mean[p, j], valid[p, j] = found, True
    means = mean.reshape(-1, count)
    ones = np.ones(len(means))
    return Fits(means, np.ones_like(means), ones, np.ones_like(means), ones, valid.ravel())


def _extrapolated(fit: _Fit, parts: list[Floats], count: int) -> Floats | None:
    """2 f(block) - the mean of f over its halves, f(block) without both, None without that."""
    whole = _estimate(fit, parts[0], count)
    if whole is None:
        return None
    halves = [_estimate(fit, part, count) for part in parts[1:]]
    if any(half is None for half in halves):
        return whole
    with np.errstate(all="ignore"):
        found = 2 * whole - np.mean(np.array(halves), axis=0)
    return found if np.isfinite(found).all() else whole


def _estimate(fit: _Fit, rows: Floats, count: int) -> Floats | None:
    """What a block says, or None: nothing that happens in it may be seen."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = np.asarray(fit(rows[:, :-1].copy(), rows[:, -1].copy()), dtype=np.float64)
    except (Exception, SystemExit):
        return None
    good = found.shape == (count,) and bool(np.isfinite(found).all())
    return found if good else None


# ---------------------------------------------------------------------------------------------
# One thread

_LOCK = RLock()  # the number of threads belongs to the process
_USERS = {"numpy": "numpy.linalg._umath_linalg", "scipy": "scipy.linalg._fblas"}


@contextmanager
def one_thread(*, needed: bool = True) -> Iterator[None]:
    """Linear algebra of NumPy and SciPy in one thread.

    Raises
    ------
    RequestError
        If it is `needed` and one of them uses another library than OpenBLAS.
    """
    with _LOCK:
        libraries = [openblas(name) for name in _USERS]
        if needed and None in libraries:
            raise RequestError(
                "model: NumPy and SciPy must use OpenBLAS here, because in one thread it gives the "
                "same bits for the same rows, on which the privacy of a model in blocks rests. "
                "Their packages on PyPI for Linux and Windows do, and those of conda-forge with "
                "'libblas=*=*openblas'. model='least_squares' needs none"
            )
        before = [(library[0](), library[1]) for library in libraries if library is not None]
        try:
            for _, set_threads in before:
                set_threads(1)
            yield
        finally:
            for threads, set_threads in before:
                set_threads(threads)


@cache
def openblas(package: str) -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """How many threads OpenBLAS uses for a package, and what changes it; None without OpenBLAS."""
    path = Path(str(import_module(_USERS[package]).__file__))
    # A library's own dependencies are searched, too, except by Windows.
    folder = path.parents[2] / f"{package}.libs"
    for file in (path, *sorted(folder.glob("*openblas*.dll"))):
        library = ctypes.CDLL(str(file))
        for name in ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}", "openblas_{}64_"):
            if hasattr(library, name.format("set_num_threads")):
                get = getattr(library, name.format("get_num_threads"))
                change = getattr(library, name.format("set_num_threads"))
                get.restype, change.argtypes, change.restype = ctypes.c_int, [ctypes.c_int], None
                return get, change
    return None


# ---------------------------------------------------------------------------------------------
# The models. Covariates are standardised within the block, so that no unit decides whether a fit
# converges, and coefficients are put back


def _fit_of(model: Model, design: Design, function: Function | None) -> _Fit:
    if model.estimates:
        assert function is not None
        names = [column.name for column in design.columns]

        def own(X: Floats, y: Floats) -> Any:
            return function(dict(zip(names, [*X.T, y], strict=True)))

        return own
    solve = _solver(model, design.columns[-1].centre)
    with_intercept = model.name != "cox"

    def standardised(X: Floats, y: Floats) -> Any:
        middle, width = X.mean(axis=0), X.std(axis=0)
        if len(X) <= X.shape[1] + 1 or not (width > 1e-12 * (1 + np.abs(middle))).all():
            return ()
        Z = (X - middle) / width
        found = solve(np.column_stack([np.ones(len(Z)), Z]) if with_intercept else Z, y)
        if not with_intercept:
            return found / width
        slopes = found[1:] / width
        return [found[0] - middle @ slopes, *slopes]

    return standardised


def _solver(model: Model, threshold: float) -> Callable[[Floats, Floats], Floats]:
    """From a design matrix and a target to coefficients; what isn't `penalised`, by statsmodels."""
    import statsmodels.api as sm
    from statsmodels.tools.sm_exceptions import ConvergenceWarning

    def logistic(X: Floats, y: Floats) -> Any:
        return penalised(X, (y > threshold).astype(np.float64), binary=True)

    def poisson(X: Floats, y: Floats) -> Any:
        return penalised(X, np.maximum(y, 0.0), binary=False)

    def quantile(X: Floats, y: Floats) -> Any:
        return sm.QuantReg(y, X).fit(q=model.quantile).params

    def huber(X: Floats, y: Floats) -> Any:
        fitted = sm.RLM(y, X, M=sm.robust.norms.HuberT()).fit(maxiter=_STEPS)
        return fitted.params if fitted.fit_history["iteration"] < _STEPS else ()

    def cox(X: Floats, y: Floats) -> Any:
        warnings.simplefilter("error", ConvergenceWarning)
        seen = (y > 0).astype(int)
        found = sm.PHReg(np.abs(y), X, status=seen, ties="efron").fit(disp=0).params
        return found if np.abs(X @ found).max() < _BEYOND else ()

    solvers = {"logistic": logistic, "poisson": poisson, "quantile": quantile, "huber": huber,
               "cox": cox}  # fmt: skip
    return solvers[model.kind]


def penalised(X: Floats, y: Floats, *, binary: bool) -> Any:
    """Firth's estimate of a logistic or Poisson regression, by Newton steps of at most 3.

    With means m, variances w and leverages h, the score is X'(y - m + h (1/2 - m)) for yes or no
    and X'(y - m + h/2) for counts (canonical links: h times half of the derivative of log w). The
    first is that of 1 + h rows in place of one, whose information steps must have: with that of one
    row they go twice too far in a level with one member, where h = 1, and back again for ever.

    X has an intercept first.
    """
    if y.min() == y.max():
        return ()
    start = y.mean()
    found = np.zeros(X.shape[1])
    found[0] = np.log(start / (1 - start)) if binary else np.log(start)
    for _ in range(_STEPS):
        eta = X @ found
        mean = 1 / (1 + np.exp(-eta)) if binary else np.exp(eta)
        weight = mean * (1 - mean) if binary else mean
        inverse = np.linalg.inv(X.T @ (weight[:, None] * X))
        leverage = weight * ((X @ inverse) * X).sum(axis=1)
        score = y - mean + (leverage * (0.5 - mean) if binary else leverage / 2)
        if binary:
            inverse = np.linalg.inv(X.T @ ((weight * (1 + leverage))[:, None] * X))
        step = inverse @ (X.T @ score)
        largest = np.abs(step).max()
        found = found + step * min(1.0, 3 / max(largest, 1e-300))
        if largest < 1e-8:
            return found
    return ()
