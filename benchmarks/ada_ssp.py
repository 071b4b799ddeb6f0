"""Is the smallest eigenvalue worth its share of the budget? Prediction errors of adaSSP.

Three features and an intercept, simulated people, epsilon = 1 (delta = 1e-6 for Gaussian noise).
Releases are published through the door that everybody uses; the error is the root mean square error
of predictions for 4,000 new people, the median over releases. Predicting without any noise leaves
about 10,000; always predicting the middle of the target's bounds leaves about 40,000.

    python benchmarks/ada_ssp.py            # 40 releases a cell, about two minutes
"""

from __future__ import annotations

import argparse
import tempfile

import numpy as np

from noisewise.analyst.regression.papers.ada_ssp import ada_ssp
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import make_request

COLUMNS = {
    "age": Number(18, 90),
    "hours": Number(0, 60),
    "region": Category(("north", "south"), "north"),
    "income": Number(0, 200_000),
}
PLANS = {
    "laplace, second moments only": {},
    "laplace, a twentieth": {"smallest_eigenvalue": "0.05"},
    "laplace, a fifth": {"smallest_eigenvalue": "0.2"},
    "gaussian, second moments only": {"delta": "1e-6", "rounds": 1},
    "gaussian, a fifth": {"delta": "1e-6", "smallest_eigenvalue": "0.2"},
    "gaussian, a third, the papers' formula": {"delta": "1e-6", "smallest_eigenvalue": "1/3"},
}


def people(n, rng):
    """People whose income depends on the rest by a known law."""
    age, hours, south = rng.uniform(18, 90, n), rng.uniform(0, 60, n), rng.random(n) < 0.4
    mean = 20_000 + 400 * age + 900 * hours - 8_000 * south
    income = np.clip(mean + rng.normal(0, 10_000, n), 0, 200_000)
    return {
        "age": age,
        "hours": hours,
        "region": np.where(south, "south", "north"),
        "income": income,
    }


def cell(n, holders, name, releases, rng):
    """Median error and median penalty."""
    words, new = PLANS[name], people(4000, rng)
    errors, penalties = [], []
    for _ in range(releases):
        published = []
        for _ in range(holders):
            with tempfile.TemporaryDirectory() as folder:
                request = make_request(
                    Schema("simulated", COLUMNS),
                    target="income",
                    features=["age", "hours", "region"],
                    epsilon=1,
                    **words,
                )
                ledger = f"{folder}/ledger.db"
                Ledger(ledger).set_cap("simulated", 1)
                published.append(publish(request, people(n, rng), ledger=ledger).release)
        estimate = ada_ssp(published, rule="paper" if "formula" in name else "noise")
        errors.append(np.sqrt(np.mean((estimate.predict(new) - new["income"]) ** 2)))
        penalties.append(estimate.penalty)
    return np.median(errors), np.median(penalties)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--releases", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1, help="of the people; noise has none")
    options = parser.parse_args()
    print(f"{'n':>6} {'holders':>7}  {'error':>8} {'lambda':>7}  plan")
    for n, holders in ((200, 1), (1000, 1), (5000, 1), (1000, 3)):
        for name in PLANS:
            rng = np.random.default_rng([options.seed, n, holders])  # the same people for all
            error, penalty = cell(n, holders, name, options.releases, rng)
            print(f"{n:>6} {holders:>7}  {error:>8,.0f} {penalty:>7.1f}  {name}", flush=True)


if __name__ == "__main__":
    main()
