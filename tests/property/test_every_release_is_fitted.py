"""Every Release that `publish` makes is fitted, whatever noise, levels and terms it has.

A Release that is paid for and then refused is the worst of answers. Tables have two categories of 2
to 5 levels with shares down to .01, so that cells of both are often empty, and noise that hides
everything or next to nothing.
"""

from __future__ import annotations

import numpy as np
import pytest

import noisewise as nw
from noisewise.analyst.regression.exact.density import CollapsedPosterior
from noisewise.analyst.regression.exact.sampler import init
from noisewise.analyst.regression.fit import default_job
from noisewise.core.errors import ReleaseError

TERMS = (
    "a*b",
    "a + b",
    "a*b + x",
    "a*b*c",
    "(a + b + c)**2",
    "a*x + b",
    "a*b + a*x",
    "a + cut(x, breaks=(3, 6)) + b",
    "a*b + I(x**2) + x",
    "b*log(x + 1)",
    "a*b + bs(x, knots=(2, 5))",
    "ns(x, knots=(2, 5)) + a + b",
)
NOISE = ({}, {"delta": "1e-6"}, {"delta": "1e-6", "rounds": 10})


def case(number):
    """A table and what is asked of it; nothing about it is chosen but by the number."""
    rng = np.random.default_rng([20, number])
    sizes = rng.integers(2, 6, size=2)
    rare, n = rng.choice([0.01, 0.05, 0.2]), int(rng.choice([1_500, 5_000, 20_000]))
    codes = []
    for size in (*sizes, 2):
        p = np.full(size, (1 - rare) / (size - 1))
        p[rng.integers(size)] = rare
        codes.append(rng.choice(size, n, p=p))
    if rng.random() < 0.5:  # some cells empty for another reason
        codes[1] = np.where(rng.random(n) < 0.7, codes[0] % sizes[1], codes[1])
    x = rng.gamma(2.0, 1.0, n).clip(0.0, 10.0)
    y = 1 + 0.5 * x + 0.3 * codes[0] * codes[1] - 0.2 * codes[2] + rng.normal(0.0, 1.0, n)
    rows = {k: np.array(list("pqrst"))[c] for k, c in zip("abc", codes, strict=True)}
    rows |= {"x": x, "y": y.clip(-10.0, 20.0)}
    columns = {
        k: nw.Category(tuple("pqrst"[:size]), "p")
        for k, size in zip("abc", (*map(int, sizes), 2), strict=True)
    }
    columns |= {"x": nw.Number(0, 10), "y": nw.Number(-10, 20)}
    neighbours = str(rng.choice(["replace_one", "add_remove_one"]))
    words = dict(NOISE[rng.integers(len(NOISE))])
    if neighbours == "add_remove_one" and n == 1_500:
        words.pop("rounds", None)
    words = {"rounds": 1, "epsilon": str(rng.choice(["0.1", "1", "10"])), **words}
    return rows, nw.Schema("d", columns, neighbours), words


def publish(folder, number, terms):
    rows, schema, words = case(number)
    request = nw.make_request(schema, formula=f"y ~ {terms}", **words)
    folder.mkdir()
    ledger = nw.Ledger(folder / "ledger.db")
    ledger.set_cap("d", epsilon=words["epsilon"], delta=words.get("delta", 0))
    return nw.publish(request, rows, ledger=ledger).release


def posterior_of(release):
    _, job, _ = default_job(release)
    return CollapsedPosterior(job.observations, job.regression_prior, job.covariate_prior)


@pytest.mark.parametrize("terms", TERMS)
def test_every_release_has_a_start(tmp_path, terms):
    """All chains start at the first try: no point is impossible, so nothing is searched for."""
    for number in range(8):
        posterior = posterior_of(publish(tmp_path / str(number), number, terms))
        for chain in range(4):
            x = np.random.default_rng(chain).standard_normal(posterior.ndim)
            assert np.isfinite(posterior.logp_and_gradient(x)[0]), (terms, number)
            init(posterior, np.random.default_rng(chain))


def test_a_posterior_without_support_has_no_start(tmp_path):
    """The control: the search refuses what is impossible everywhere."""
    posterior = posterior_of(publish(tmp_path / "0", 0, "a + b"))
    posterior.arrays.centre[0] = 1e9  # the log odds of a level: its share is 1, to every digit
    with pytest.raises(ReleaseError, match="no possible statistics"):
        init(posterior, np.random.default_rng(0))


def check_fit(release, where):
    fitted = nw.fit(release, seed=1, chains=2, draws=200)
    rows = dict(fitted.summary().rows)
    ends = np.array([(row.lower, row.upper) for row in rows.values()])
    assert np.isfinite(ends).all(), where
    assert (ends[:, 0] < ends[:, 1]).all(), where
    worst = max(row.rhat for row in rows.values())
    # Where noise hides a level, chains may need longer than this; then it is said.
    assert worst < 1.05 or any("chains" in text for text in fitted.warnings), (where, worst)
    return worst


@pytest.mark.parametrize(("terms", "number"), [("a*b", 0), ("a*b + x", 3), ("(a + b + c)**2", 5)])
def test_releases_are_fitted(tmp_path, terms, number):
    check_fit(publish(tmp_path / "one", number, terms), (terms, number))


@pytest.mark.long
@pytest.mark.parametrize("terms", TERMS)
def test_releases_of_many_tables_are_fitted(tmp_path, terms):
    worst = [
        check_fit(publish(tmp_path / str(number), number, terms), (terms, number))
        for number in range(20, 40)
    ]
    assert np.median(worst) < 1.03
