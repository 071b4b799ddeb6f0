"""Three hospitals, one posterior: python examples/federation/run.py

Simulates patients, gives every hospital a budget, starts a SuperLink and three SuperNodes on this
machine, runs the study, and shows the posterior. In reality every hospital starts its own node.
"""

from __future__ import annotations

import csv
import json
import random
import tempfile
from fractions import Fraction
from pathlib import Path

from loopback import Loopback, wait_until

import noisewise as nw

HERE = Path(__file__).parent
HOSPITALS = {"north": 3000, "south": 2000, "west": 1500}


def simulate(path: Path, n: int) -> None:
    """Write patients whose stay is 1 + 0.05 age + 0.6 severity + 2 emergency, give or take 3."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["age", "severity", "emergency", "stay"])
        for _ in range(n):
            age, severity = random.triangular(18, 100, 65), random.triangular(0, 10, 4)
            emergency = random.random() < 0.4
            stay = 1 + 0.05 * age + 0.6 * severity + 2 * emergency + random.gauss(0, 3)
            rows.writerow([f"{age:.0f}", f"{severity:.1f}", "yes" if emergency else "no", stay])


def is_over(report: Path) -> bool:
    """Whether there is a posterior, or a reason why there is none."""
    told = json.loads(report.read_text("utf-8"))
    return bool(told["posterior"] or told["error"])


def main() -> None:
    """Prepare, run and show."""
    for name, n in HOSPITALS.items():
        folder = HERE / "hospitals" / name
        if not (folder / "patients.csv").exists():
            simulate(folder / "patients.csv", n)
        with nw.Ledger(folder / "budget.db") as ledger:
            ledger.set_cap(f"hospital-{name}", Fraction(2), Fraction("1e-5"))

    results = HERE / "results"
    report = results / "report.json"
    report.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as home, Loopback(Path(home), HERE) as federation:
        for name in HOSPITALS:
            federation.node(name, HERE / "hospitals" / name / "policy.yaml")
        federation.run(HERE / "app")
        print("The study runs; this takes about half a minute.")
        wait_until("report", report.exists, 240)
        wait_until("posterior", lambda: is_over(report), 240)
    told = json.loads(report.read_text("utf-8"))
    for entry in told["accepted"]:
        print(f"{entry['dataset']}: {entry['n']} rows, {entry['claim']}")
    for entry in told["missing"]:
        print(f"node {entry['node']}: {entry['why']}")
    if told["error"]:
        print(told["error"])
    else:
        print(nw.load_posterior(results / "posterior.nc").summary())


if __name__ == "__main__":
    main()
