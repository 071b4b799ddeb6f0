"""A Release judged by itself is judged as it would be in company."""

from __future__ import annotations

import pytest

from noisewise.analyst.regression import methods as one_release
from noisewise.analyst.regression.fit import check_release, fit_regression
from noisewise.analyst.regression.methods import METHODS
from noisewise.core.errors import NoisewiseError

from ..releases import example_request, release_of

SAMPLED = [name for name in METHODS if name != "individual"]  # with JAX, which takes long
# Sums a row, on unit scale: of 1, age, two indicators and income.
A_ROW = {(0, 0): 1, (0, 2): 0.3, (0, 3): 0.3, (1, 1): 0.4, (2, 2): 0.3, (3, 3): 0.3, (4, 4): 0.4}


def release(n=1000, times=1.0, **words):
    """Of n rows that are as unremarkable as can be; `times` multiplies their sums."""
    request = example_request(**words)
    unit = 1 << 32
    sums = [round(times * n * A_ROW.get(e, 0) * unit) for e in request.statistics[0].entries]
    # A further measurement, of fourth moments, takes as many of the values as it needs.
    return release_of(request, n, [*sums, *[0] * 100])


COMPANION = release(delta=1e-6, fourth_moments=0.25)
CASES = {
    "sound": release(delta=1e-6),
    "sound with fourth moments": COMPANION,
    "Laplace noise": release(),
    "few rows": release(n=2, delta=1e-6),
    "rows for some": release(n=12, delta=1e-6),
    "private n": release(neighbours="add_remove_one", delta=1e-6),
    "forged": release(times=100, delta=1e-6),
}


def refusal(attempt):
    try:
        attempt()
    except NoisewiseError as error:
        return str(error)
    return None


def check(given, method="auto"):
    check_release(given, target="income", features=["age"], method=method)


def test_every_method_is_asked():
    assert set(one_release._CHECKS) == set(METHODS)


@pytest.mark.parametrize("method", SAMPLED)
@pytest.mark.parametrize("case", [name for name in CASES if name != "sound with fourth moments"])
def test_alone_as_in_company(case, method):
    """The check refuses just those Releases that stop a fit with others."""
    given = CASES[case]
    fit = refusal(
        lambda: fit_regression(
            [COMPANION, given], features=["age"], method=method, chains=1, draws=4, seed=1
        )
    )
    alone = refusal(lambda: check(given, method))
    assert (alone is None) == (fit is None), (alone, fit)


@pytest.mark.parametrize(
    ("case", "method", "says"),
    [
        ("few rows", "auto", "2 rows and 2 columns"),
        ("few rows", "gibbs_update", "n = 2 rows"),
        ("rows for some", "normal_x", "n = 12 rows, too few"),
        ("forged", "auto", "damaged, forged or miscomputed"),
        ("Laplace noise", "bs_distributed", "Gaussian noise"),
        ("Laplace noise", "fixed_s", "Gaussian noise"),
        ("private n", "gibbs_update", "private"),
        ("private n", "individual", "private"),
    ],
)
def test_the_reason_is_told(case, method, says):
    assert says in (refusal(lambda: check(CASES[case], method)) or "")


@pytest.mark.parametrize("method", ["auto", *METHODS])
@pytest.mark.parametrize("case", ["sound", "sound with fourth moments"])
def test_every_method_takes_a_sound_release(case, method):
    check(CASES[case], method)


def test_more_rows_than_individual_takes_are_too_many():
    given = release(n=5001, delta=1e-6)
    assert "5,001 rows" in (refusal(lambda: check(given, "individual")) or "")
