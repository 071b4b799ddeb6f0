"""Publish a private regression from the RAND Health Insurance Experiment, end to end.

The data ship with statsmodels: 20,190 person-years of outpatient care. One person stays in the
experiment for up to five years, and what is protected is the person: the schema names the column
that says whose year it is, and everybody's years are averaged. Every bound below comes from the
experiment's code book or from common sense, none from the data.

Run it with ``make demo``. It needs no network.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

FEATURES = ["log_coinsurance", "physical_limitation", "chronic_diseases"]
SCHEMA = """\
dataset: rand_health
columns:
  visits:
    {type: number, lower: 0, upper: 30, label: Visits to a doctor, unit_of_measure: visits a year}
  log_coinsurance: {type: number, lower: 0, upper: 4.62, label: ln(percent paid oneself + 1)}
  physical_limitation: {type: number, lower: 0, upper: 1, label: A physical limitation}
  chronic_diseases: {type: number, lower: 0, upper: 60, label: Number of chronic diseases}
  plan: {type: category, levels: [family, individual], reference: family, label: Insurance plan}
  health:
    {type: category, levels: [excellent, good, fair, poor], reference: excellent, label: Health}
neighbours: replace_one
unit: {column: person}        # a person is in the data for up to five years
missing: error
"""


def write_data(path: Path) -> None:
    """The data set as a holder would have it: a Parquet file with readable columns."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq
    from statsmodels.datasets import randhie

    table = randhie.load_pandas().data
    # The file that this is taken from, row by row, has the person's number, too.
    source = pd.read_csv(Path(randhie.__file__).parent / "src" / "randhie.csv")
    assert (source["mdvis"].to_numpy() == table["mdvis"].to_numpy()).all()
    health = np.select(
        [table[f"hlth{letter}"] == 1 for letter in "gfp"],
        ["good", "fair", "poor"],
        default="excellent",
    )
    columns = {
        "visits": table["mdvis"],
        "log_coinsurance": table["lncoins"],
        "physical_limitation": table["physlm"],
        "chronic_diseases": table["disea"],
        "plan": np.where(table["idp"] == 1, "individual", "family"),
        "health": health,
        "person": source["zper"],
    }
    pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), path)


def run(*words: str) -> None:
    """Show a command as one would type it, then run it."""
    print(f"\n$ noisewise {shlex.join(words)}", flush=True)
    subprocess.run([sys.executable, "-m", "noisewise.cli.main", *words], check=True)


def main() -> None:
    """Write data and schema, set a budget, look before spending, publish, fit, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="folder to write to")
    folder = parser.parse_args().out
    shutil.rmtree(folder, ignore_errors=True)  # a demo starts afresh; a real ledger never does
    folder.mkdir(parents=True)
    write_data(folder / "rand_health.parquet")
    (folder / "schema.yaml").write_text(SCHEMA, encoding="utf-8")
    print(__doc__.split("\n\n")[1])
    print(f"\nThe public schema, {folder / 'schema.yaml'}:\n\n{SCHEMA}", flush=True)
    os.chdir(folder)

    release = [
        *("release", "--data", "rand_health.parquet", "--schema", "schema.yaml"),
        *("--target", "visits", "--features", ",".join(FEATURES)),
        *("--epsilon", "1", "--ledger", "budget.db", "--out", "release.json"),
    ]
    run("schema", "check", "schema.yaml", "--data", "rand_health.parquet")
    run("ledger", "cap", "--ledger", "budget.db", "--dataset", "rand_health", "--epsilon", "2")
    run(*release, "--dry-run")
    run(*release)
    run("ledger", "show", "--ledger", "budget.db")
    size = Path("release.json").stat().st_size
    print(f"\n{folder / 'release.json'} ({size:,} bytes) is all that leaves the building.")

    print("\nThe analyst has that file only.", flush=True)
    run("fit", "release.json", "--seed", "1", "--out", "noise_aware.nc")
    run("fit", "release.json", "--seed", "1", "--method", "naive", "--out", "naive.nc")
    draw_picture()
    print(f"\n{folder / 'intervals.png'} compares both with the regression of all people, which")
    print("only this demo can see. The naive intervals are far too narrow.", flush=True)
    title = "Doctor visits a year in the RAND Health Insurance Experiment"
    run("report", "noise_aware.nc", "--title", title, "--out", "report.html")
    print(f"\nThe report is {Path('report.html').resolve()}: open it in a browser.")


def draw_picture() -> None:
    """Naive against noise-aware intervals, and what least squares finds on the people's means."""
    import numpy as np
    import pyarrow.parquet as pq

    import noisewise as nw
    from noisewise.analyst.posterior.plots import plot

    table = pq.read_table("rand_health.parquet").to_pandas()
    table["visits"] = table["visits"].clip(0, 30)
    means = table.groupby("person")[["visits", *FEATURES]].mean()
    rows = np.column_stack([np.ones(len(means)), means[FEATURES]])
    truth, *_ = np.linalg.lstsq(rows, means["visits"], rcond=None)
    plot(
        {
            "naive": nw.load_posterior("naive.nc"),
            "noise-aware": nw.load_posterior("noise_aware.nc"),
        },
        "intervals.png",
        reference=dict(zip(FEATURES, truth[1:], strict=True)),
        title="Doctor visits a year, epsilon = 1 per person: 95% intervals",
    )


if __name__ == "__main__":
    main()
