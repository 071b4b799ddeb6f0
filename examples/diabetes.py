"""Small data, strong noise: where naive intervals lie and noise-aware ones are honestly wide.

442 people with diabetes (scikit-learn's copy of the data of Efron et al. 2004, in original units):
how does the disease's progress within a year go with age, body mass index and blood pressure? The
bounds are what a physician would write down without seeing the data.

With so few people the privacy noise is as large as the signal. The first Release is the one that a
holder would publish. Then the demo does what no holder may do: it publishes the same thing again
and again, to count how often each kind of interval holds what least squares finds on the rows.

Run it with ``make diabetes``. It needs no network.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes

import noisewise as nw

FEATURES = ["age", "bmi", "bp"]
SCHEMA = nw.Schema(
    "diabetes",
    {
        "age": nw.Number(18, 90),  # adults
        "bmi": nw.Number(15, 50),  # from severe underweight to severe obesity
        "bp": nw.Number(60, 140),  # mean arterial pressure in mmHg
        "progress": nw.Number(0, 400),  # the study's score of progression
    },
)


def people() -> dict[str, Any]:
    """The rows, in original units."""
    table = load_diabetes(scaled=False, as_frame=True).frame
    return {name: table[name].to_numpy() for name in FEATURES} | {
        "progress": table["target"].to_numpy()
    }


def least_squares(rows: dict[str, Any]) -> dict[str, float]:
    """Slopes of the regression on all the rows, clipped as the holder clips them."""
    clipped = {
        name: np.clip(values, SCHEMA.columns[name].lower, SCHEMA.columns[name].upper)
        for name, values in rows.items()
    }
    design = np.column_stack([np.ones(len(rows["age"])), *(clipped[name] for name in FEATURES)])
    found, *_ = np.linalg.lstsq(design, clipped["progress"], rcond=None)
    return dict(zip(FEATURES, found[1:], strict=True))


def main() -> None:
    """Publish, fit and report once; then repeat to count how often intervals are right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo-output/diabetes"))
    parser.add_argument("--repeat", type=int, default=10, help="Releases to count over")
    parser.add_argument("--epsilon", type=float, default=1.0)
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)  # a demo starts afresh; a real ledger never does
    options.out.mkdir(parents=True)
    print(__doc__.split("\n\n")[1], "\n")

    rows = people()
    truth = least_squares(rows)
    posteriors = []
    with nw.Ledger(options.out / "budget.db") as ledger:
        ledger.set_cap("diabetes", options.epsilon * options.repeat, 0)
        for number in range(options.repeat):
            request = nw.make_request(
                SCHEMA,
                target="progress",
                features=FEATURES,
                epsilon=options.epsilon,
                label=f"repetition {number}",  # a new label is a new Release, and is charged
            )
            release = nw.publish(request, rows, ledger=ledger).release
            posteriors.append(nw.fit(release, seed=number, chains=2))
            if number == 0:
                show(posteriors[0], truth, options.out)
    count(posteriors, truth)


def show(posterior: nw.Posterior, truth: dict[str, float], folder: Path) -> None:
    """One Release as an analyst sees it, beside the truth that only this demo knows."""
    from noisewise.analyst.report import write_report

    print(posterior.comparison())
    print("\nLeast squares on the rows:", ", ".join(f"{k} {v:.3g}" for k, v in truth.items()))
    path = folder / "report.html"
    write_report(posterior, path, title="Progress of diabetes within a year, 442 people")
    print(f"The report is {path.resolve()}.\n", flush=True)


def count(posteriors: list[nw.Posterior], truth: dict[str, float]) -> None:
    """How many of the 95% intervals hold what least squares finds on the rows."""
    total = len(posteriors) * len(truth)
    naive = aware = 0
    for posterior in posteriors:
        for name, row in posterior.comparison().rows.items():
            if name in truth:
                naive += row.naive_lower <= truth[name] <= row.naive_upper
                aware += row.lower <= truth[name] <= row.upper
    print(f"Over {len(posteriors)} Releases, the 95% intervals of the slopes hold that of the rows")
    print(f"  naive        {naive:3} of {total} times")
    print(f"  noise-aware  {aware:3} of {total} times")


if __name__ == "__main__":
    main()
