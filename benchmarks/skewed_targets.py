"""Intervals of the error variance where targets are skewed: real rows, with and without the tail.

    python -m benchmarks.skewed_targets --epsilon 10 --releases 100

Rows of `accuracy_data` are drawn with replacement for every Release, in one round with Laplace
noise, and the truth is the mean squared residual of all rows. For every data set: c, the standard
deviation of the target over its mean distance from the nearer bound; the excess kurtosis of
residuals, and what the fit takes for it (the median over Releases, 0 where it does nothing); how
many 95% intervals of sigma2 held with errors taken for normal and as `fit` has them, and the ratio
of their widths. Both are of the same draws. A large epsilon shows most: noise widens intervals of
both.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks.accuracy_data import PROBLEMS
from noisewise._arrays import FloatArray
from noisewise.analyst.regression import fit as fitting
from noisewise.analyst.regression.residuals import gamma_excess
from studies.honesty.cells import RealCell
from studies.honesty.trial import simulate_release
from studies.report import seed_of

DATA = "randhie,randhie means,spending,affairs,edges,bike,births,log spending,voters"


def cell_of(name: str, epsilon: float) -> RealCell:
    """Real rows on unit scale."""
    problem = PROBLEMS[name]
    rows, (low, high) = problem.matrix(problem.draw(np.random.default_rng())), problem.bounds.T
    return RealCell(name, (rows - (low + high) / 2) / ((high - low) / 2), epsilon)


def line(cell: RealCell, releases: int) -> dict[str, Any]:
    """What one data set has to say."""
    normal: list[FloatArray] = []
    widen, taken = fitting.with_skewed_target, []

    def watched(drawn: Any, observations: Any, *words: Any) -> Any:
        normal.append(drawn.sigma2)
        taken.append(gamma_excess(observations[0]))
        return widen(drawn, observations, *words)

    ends = []
    fitting.with_skewed_target = watched
    for trial in range(releases):
        of_release, of_fit = seed_of("skewed-targets", cell.name, trial).spawn(2)
        release = simulate_release(cell, np.random.default_rng(of_release))
        seed = int(of_fit.generate_state(1)[0])
        found = fitting.fit_regression(release, seed=seed, chains=4, draws=500)
        ends.append([np.quantile(x, [0.025, 0.975]) for x in (normal[-1], found.sigma2)])
    fitting.with_skewed_target = widen
    truth, y = cell.truth, cell.rows[:, -1]
    error = y - cell.rows[:, :-1] @ truth[1:-1] - truth[0]
    low, high = np.moveaxis(np.array(ends), -1, 0)
    held = ((low <= truth[-1]) & (truth[-1] <= high)).mean(axis=0)
    width = np.exp(np.log(high - low).mean(axis=0))
    return {
        "data": f"{cell.name} ({cell.n:,})",
        "c": f"{y.std() / (1 - abs(y.mean())):.2f}",
        "residuals' excess": f"{np.mean(error**4) / truth[-1] ** 2 - 3:.1f}",
        "taken": f"{np.median(taken):.1f}",
        "normal": f"{100 * held[0]:.0f}%",
        "as fitted": f"{100 * held[1]:.0f}%",
        "width": f"{width[1] / width[0]:.2f}",
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--releases", type=int, default=100)
    parser.add_argument("--data", default=DATA)
    given = parser.parse_args()
    for i, name in enumerate(given.data.split(",")):
        row = line(cell_of(name, given.epsilon), given.releases)
        if i == 0:
            print("| " + " | ".join(row) + " |\n" + "|---" * len(row) + "|")
        print("| " + " | ".join(row.values()) + " |", flush=True)


if __name__ == "__main__":
    main()
