"""R-hat and effective draws are ArviZ's, and a fit that is saved needs no ArviZ."""

from __future__ import annotations

import subprocess
import sys

import arviz as az
import numpy as np
import pytest

import noisewise as nw
from noisewise.analyst import convergence

from ..releases import example_request, release_of


@pytest.mark.parametrize("kind", ["alike", "apart", "equal values", "heavy"])
@pytest.mark.parametrize("pull", [-0.5, 0.0, 0.9])
def test_the_numbers_are_those_of_arviz(pull, kind):
    rng = np.random.default_rng(3)
    draws = rng.standard_t(1.5, (4, 502)) if kind == "heavy" else rng.normal(size=(4, 502))
    for i in range(1, draws.shape[1]):
        draws[:, i] += pull * draws[:, i - 1]
    if kind == "apart":
        draws += np.arange(4)[:, None]
    if kind == "equal values":
        draws = np.round(2 * draws)
    ess = [float(az.ess(draws, method=method)) for method in ("bulk", "tail", "mean")]
    assert convergence.rhat(draws) == pytest.approx(float(az.rhat(draws)), rel=1e-9)
    assert convergence.effective_in_bulk(draws) == pytest.approx(ess[0], rel=1e-9)
    assert convergence.effective_draws(draws) == pytest.approx(min(ess[:2]), rel=1e-9)
    assert convergence.effective_for_mean(draws) == pytest.approx(ess[2], rel=1e-9)
    assert convergence.effective_for_mean(draws[:1]) == pytest.approx(
        float(az.ess(draws[:1], method="mean")), rel=1e-9
    )


def test_a_fit_is_made_saved_and_read_without_arviz(tmp_path):
    """Importing it took half of the processor's time of a fit with three coefficients."""
    release = release_of(example_request(epsilon=5), values=[0] * 20)
    (tmp_path / "release.json").write_text(release.to_text(), encoding="utf-8")
    code = """if True:
        import sys
        import noisewise as nw
        release, out = sys.argv[1:]
        nw.fit(release, chains=2, draws=50, seed=1).save(out)
        assert not {"pandas", "xarray"} & set(sys.modules)
        nw.load_posterior(out).summary()
        heavy = {"arviz", "matplotlib", "scipy.stats"} & set(sys.modules)
        lent = sys.modules["nutpie.sample"].arviz  # nutpie still has it when it asks
        assert lent.from_dict.__module__.startswith("arviz."), lent
        print(sorted(heavy))
    """
    words = [sys.executable, "-c", code, tmp_path / "release.json", tmp_path / "post.nc"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    read = az.from_netcdf(tmp_path / "post.nc")
    assert {"posterior", "sample_stats", "naive"} <= set(read.groups())
    theta = nw.load_posterior(tmp_path / "post.nc").theta
    assert (read.posterior["theta"].to_numpy() == theta).all()
    assert list(read.posterior["theta"].dims) == ["chain", "draw", "coefficient"]
