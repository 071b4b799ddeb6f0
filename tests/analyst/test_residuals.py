"""Published residuals widen intervals by what least squares without noise would say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noisewise.analyst.fit import fit
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import make_request

from ..ledgers import ledger_for

SIZE = {"chains": 2, "draws": 2000, "seed": 3}


def make_schema(**changes):
    columns = {"x": Number(-8, 8), "c": Category(("a", "b"), "a"), "y": Number(-40, 40)}
    return Schema("people", columns, **changes)


def table(n, seed, *, unequal=True):
    """Errors grow with x and have long tails; or are normal."""
    rng = np.random.default_rng(seed)
    x, c = rng.standard_normal(n), rng.random(n) < 0.3
    spread = np.sqrt(0.3 + x**2) if unequal else 1.0
    y = 1 + 2 * x - c + spread * rng.standard_normal(n)
    return {"x": x, "c": np.where(c, "b", "a"), "y": y}


def least_squares(data):
    """The usual and White's standard errors, and the two of the error variance over itself."""
    x = np.column_stack([np.ones(len(data["x"])), data["x"], data["c"] == "b"])
    inverse = np.linalg.inv(x.T @ x)
    error = data["y"] - x @ (inverse @ (x.T @ data["y"]))
    usual = np.mean(error**2) * inverse
    white = inverse @ ((x.T * error**2) @ x) @ inverse
    tail = np.mean(error**4) / np.mean(error**2) ** 2
    ends = [np.sqrt(value / len(error)) for value in (2, tail - 1)]
    return np.sqrt(usual.diagonal()), np.sqrt(white.diagonal()), *ends


def published(data, tmp_path, label="", epsilon=60, **changes):
    request = make_request(
        make_schema(**changes),
        target="y", features=["x", "c"], epsilon=epsilon, delta="1e-6", label=label,
    )  # fmt: skip
    path = tmp_path / f"budget{label}.db"
    return publish(request, data, ledger=ledger_for(path)).release


def without(release):
    return replace(release, rounds=replace(release.rounds, residuals=None))


def sds(posterior):
    theta = posterior.theta.reshape(-1, posterior.theta.shape[-1])
    return theta.std(axis=0), np.log(posterior.sigma2).std()


@pytest.mark.parametrize("changes", [{}, {"neighbours": "add_remove_one"}])
def test_intervals_are_as_wide_as_whites(changes, tmp_path):
    data = table(40_000, 1)
    release = published(data, tmp_path, **changes)
    usual, white, of_normal, of_these = least_squares(data)
    theta, sigma2 = sds(fit(without(release), **SIZE))
    assert np.allclose(theta, usual, rtol=0.1)
    assert sigma2 == pytest.approx(of_normal, rel=0.1)
    posterior = fit(release, **SIZE)
    theta, sigma2 = sds(posterior)
    assert white[1] > 1.5 * usual[1]
    assert np.allclose(theta[1:], white[1:], rtol=0.1)
    assert of_these > 1.5 * of_normal
    assert sigma2 == pytest.approx(of_these, rel=0.2)  # the longest tail is cut off
    assert "published residuals say how errors spread" in posterior.info.reason
    again = fit(release, **SIZE)
    assert (again.theta == posterior.theta).all()
    assert (again.sigma2 == posterior.sigma2).all()


def test_normal_errors_keep_their_intervals(tmp_path):
    release = published(table(40_000, 2, unequal=False), tmp_path, epsilon=4)
    assert release.rounds.residuals is not None
    plain, widened = sds(fit(without(release), **SIZE)), sds(fit(release, **SIZE))
    # Noise on residuals widens a little, too; where it matters widths are 1.5 times as large.
    assert np.all(widened[0] < 1.2 * plain[0])
    assert widened[1] < 1.1 * plain[1]


def test_other_regressions_stay_as_they_are(tmp_path):
    release = published(table(40_000, 1), tmp_path)
    for words in (
        {"features": ["x"]},
        {"target": "x", "features": ["y", "c"]},
        {"method": "naive"},
    ):
        one, other = (fit(given, **words, **SIZE) for given in (release, without(release)))
        assert (one.theta == other.theta).all()
        assert "published residuals" not in one.info.reason
        said = "errors are taken for normal" in one.info.reason
        assert said == (words.get("method") != "naive")


def test_features_in_another_order(tmp_path):
    release = published(table(40_000, 1), tmp_path)
    here, there = fit(release, **SIZE), fit(release, features=["c", "x"], **SIZE)
    ratio = there.draws("x").std() / here.draws("x").std()
    assert ratio == pytest.approx(1, abs=0.06)


def test_holders_add_up(tmp_path):
    """Two halves say what the whole does; and one half speaks for both."""
    data = table(60_000, 4)
    parts = [{name: column[k::2] for name, column in data.items()} for k in (0, 1)]
    releases = [published(part, tmp_path, str(k)) for k, part in enumerate(parts)]
    _, white, *_ = least_squares(data)
    for given in (releases, [releases[0], without(releases[1])]):
        theta, _ = sds(fit(given, **SIZE))
        assert np.allclose(theta[1:], white[1:], rtol=0.12)
