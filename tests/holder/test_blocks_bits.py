"""Blocks of other models: the same rows give the same bits, whatever the process and its threads.

The privacy of blocks rests on it: what a block contributes may depend on nothing but its rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest

from noisewise.core.errors import RequestError
from noisewise.core.schema import Category, Number, Schema, Unbounded
from noisewise.holder.blocks import models
from noisewise.holder.requests.summary import BlockFunction, make_summary_request

pytest.importorskip("statsmodels", reason="needs statsmodels: pip install 'noisewise[models]'")

FEATURES = [f"x{i}" for i in range(12)]
COLUMNS = {
    **dict.fromkeys(FEATURES, Unbounded()),
    "group": Category(("a", "b"), "a"),
    "y": Number(0, 1),
    "count": Number(0, 100),
    "time": Unbounded(),
}
TARGETS = {"logistic": "y", "poisson": "count", "quantile": "time", "huber": "time", "cox": "time"}
ROWS = 8_000


def requested(model, target="y"):
    return make_summary_request(
        Schema("d", COLUMNS),
        target=target,
        features=[*FEATURES, "group"],
        mechanism="sign",
        questions=["x0 < 0"],
        epsilon=1,
        blocks=2,
        model=model,
    )


def bits_of(model):
    """Estimates of two blocks, as hexadecimal numbers; rows and blocks come from a seed."""
    rows = ROWS // 4 if model == "cox" else ROWS  # it takes long
    rng = np.random.default_rng(7)
    x, group = rng.normal(size=(12, rows)), rng.integers(0, 2, rows)
    line = x.sum(axis=0) / 6 + 0.4 * group - 0.5
    time = rng.exponential(np.exp(-line)) * np.where(rng.random(rows) < 0.7, 1, -1)
    targets = {
        "y": (rng.random(rows) < 1 / (1 + np.exp(-line))).astype(float),
        "count": rng.poisson(np.exp(0.5 * line)).astype(float),
        "time": time,
    }
    halves = rng.integers(0, 4, rows)
    asked = requested(model, TARGETS[model])
    accumulator = asked.plan().accumulator()
    accumulator.add([*x, group.astype(np.int32), targets[TARGETS[model]]])
    models.draw_blocks = lambda *_: halves[None, :]
    fits = asked.fits(accumulator.result(), None)
    assert fits.valid.all()
    return [float(value).hex() for value in fits.mean.ravel()]


PROCESS = """
import json, sys
from contextlib import nullcontext
import numpy as np
from noisewise.holder.blocks import models
from tests.holder.test_blocks_bits import TARGETS, bits_of

names, guarded, crowded = json.loads(sys.argv[1])
if not guarded:
    models.one_thread = lambda **_: nullcontext()
# Elsewhere in memory, and at other distances from the borders of its pages.
kept = [np.ones(size) for size in range(1, 4000, 7)] if crowded else []
print(json.dumps({name: bits_of(name) for name in names}))
"""


def in_a_process(threads, names=tuple(TARGETS), *, guarded=True, crowded=False):
    words = ("OPENBLAS", "OMP", "MKL", "VECLIB_MAXIMUM")
    more = {f"{word}_NUM_THREADS".replace("MAXIMUM_NUM", "MAXIMUM"): str(threads) for word in words}
    command = [sys.executable, "-c", PROCESS, json.dumps([list(names), guarded, crowded])]
    done = subprocess.run(
        command, env={**os.environ, **more}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def one():
    return in_a_process(1)


@pytest.mark.slow
@pytest.mark.parametrize(("threads", "crowded"), [(1, True), (2, True)])
def test_the_same_rows_give_the_same_bits_in_each_process(one, threads, crowded):
    again = in_a_process(threads, crowded=crowded)
    assert [name for name in TARGETS if again[name] != one[name]] == []


@pytest.mark.slow
def test_the_bits_do_depend_on_threads_where_nothing_is_done(one):
    """Negative control: otherwise the test above would show nothing."""
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one processor: OpenBLAS has one thread in any case")
    again = in_a_process(2, guarded=False)
    assert [name for name in TARGETS if again[name] != one[name]]


def test_the_number_of_threads_is_put_back():
    libraries = [models.openblas(name) for name in ("numpy", "scipy")]
    if None in libraries:
        pytest.skip("needs OpenBLAS")
    before = [get() for get, _ in libraries]
    for _, change in libraries:
        change(2)
    try:
        with models.one_thread():
            assert [get() for get, _ in libraries] == [1, 1]
            with models.one_thread():
                pass
            assert [get() for get, _ in libraries] == [1, 1]
        assert [get() for get, _ in libraries] == [2, 2]
        with suppress(ZeroDivisionError), models.one_thread():
            raise ZeroDivisionError
        assert [get() for get, _ in libraries] == [2, 2]
    finally:
        for threads, (_, change) in zip(before, libraries, strict=True):
            change(threads)


def test_other_libraries_are_refused_before_anything_is_read(monkeypatch):
    """But for functions of one's own, which promise to give the same bits."""
    monkeypatch.setattr(models, "openblas", lambda _: None)
    with pytest.raises(RequestError, match="OpenBLAS"):
        requested("huber", "time").verify()
    words = {"target": "y", "features": ["x0"], "epsilon": 1, "blocks": 400, "rows": 40_000}
    own = BlockFunction("mean", ["one"], lambda block: [block["y"].mean()])
    for model, asked in ((own, "one"), ("least_squares", "x0")):
        made = make_summary_request(
            Schema("d", COLUMNS), model=model, coefficients=[asked], **words
        )
        made.verify()
    with models.one_thread(needed=False):
        pass
