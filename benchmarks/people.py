"""What averaging the rows of people costs: a pass with ids against the same pass without.

Both read the same Parquet file of ten features and a target. With ids, 5 million rows become 2
million people, who have 1 to 10 rows or more, in the order of their ids or in none. The two take
turns in one process, so that a busy machine slows both. What is judged is the least time of the
processor: others can only add to it, by emptying its caches. Memory is the peak of a
process of its own, for 5 million rows and four times as many.

    python benchmarks/people.py            some minutes
    python benchmarks/people.py --quick    4 % of it

Bars: a pass with ids takes at most 3 times the processor's time of one without, and 1 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from release import BOUNDS, NAMES

from noisewise.core.design import Box, Design
from noisewise.core.schema import Number, Schema
from noisewise.core.statistics import SecondMoments
from noisewise.holder.engines import open_source
from noisewise.holder.rows.sums import SumPlan, Sums

ROWS, PEOPLE = 5_000_000, 2_250_000  # ids are drawn at random: 2 million of them have rows
RATIO_BAR, MEMORY_BAR_MB = 3.0, 1024
RESULTS = Path(__file__).parent / "results" / "people.json"


def generate(path: Path, rows: int, people: int, *, in_order: bool, text: bool = False) -> None:
    import duckdb

    who = f"hash(cast(random() * {people} AS BIGINT)) % 1000000000007"
    who = f"'person ' || ({who})" if text else f"({who})::BIGINT"
    columns = [f"{who} AS person"]
    for name, (lower, upper) in BOUNDS.items():
        width = 1.2 * (upper - lower)
        columns.append(f"random() * {width} + {lower - width / 12} AS {name}")
    order = "ORDER BY person" if in_order else ""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1; SELECT setseed(0.5)")
        query = f"SELECT {', '.join(columns)} FROM range({rows}) {order}"
        connection.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")


def ours(path: Path, *, ids: bool) -> Sums:
    columns = {name: Number(*bounds) for name, bounds in BOUNDS.items()}
    schema = Schema("benchmark", columns, unit_column="person" if ids else None)
    design = Design(schema, tuple(NAMES[:-1]), "y")
    return open_source(path).sums(SumPlan(design, Box(), (SecondMoments(design),)))


def measure(path: Path, repeats: int) -> dict[str, object]:
    """Median times that pass, and least ones of the processor, after one round to warm up."""
    times: dict[str, list[float]] = {"ids": [], "none": [], "ids_cpu": [], "none_cpu": []}
    for _ in range(repeats + 1):
        for name in ("ids", "none"):
            start, processor = time.perf_counter(), time.process_time()
            sums = ours(path, ids=name == "ids")
            times[name].append(time.perf_counter() - start)
            times[f"{name}_cpu"].append(time.process_time() - processor)
            if name == "ids":
                people = sums.n
    found = {k: (min if "cpu" in k else statistics.median)(v[1:]) for k, v in times.items()}
    return {"people": people} | found


def in_child(job: str, path: Path, repeats: int) -> dict[str, object]:
    command = [sys.executable, __file__, "--child", job, str(path), str(repeats)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def run(share: float, repeats: int) -> list[dict[str, object]]:
    rows, people = int(ROWS * share), int(PEOPLE * share)
    cases = [("in no order", 1, False, False), ("in order", 1, True, False)]
    cases += [("text, in no order", 1, False, True), ("text, in order", 1, True, True)]
    cases += [("four times as many", 4, False, False)]
    results = []
    with tempfile.TemporaryDirectory(prefix="noisewise-benchmark-") as folder:
        path = Path(folder) / "rows.parquet"
        for what, times, in_order, text in cases:
            generate(path, times * rows, times * people, in_order=in_order, text=text)
            result = {"what": what, "rows": times * rows, **in_child("time", path, repeats)}
            result |= in_child("memory", path, 1)
            result["ratio"] = result["ids"] / result["none"]
            result["ratio_cpu"] = result["ids_cpu"] / result["none_cpu"]
            results.append(result)
            print(
                f"{what:20} {result['rows']:>12,} rows {result['people']:>11,} people "
                f"{result['ids']:>7.2f} s {result['none']:>7.2f} s {result['ratio']:>6.2f} "
                f"(processor {result['ratio_cpu']:.2f}) {result['peak_mb']:>6.0f} MB",
                flush=True,
            )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        job, path, repeats = options.child
        if job == "time":
            print(json.dumps(measure(Path(path), int(repeats))))
        else:
            ours(Path(path), ids=True)
            # Of this program alone; getrusage would count its parent's memory, too.
            peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
            print(json.dumps({"peak_mb": int(peak[1]) / 1024}))
        return
    results = run(0.04 if options.quick else 1.0, options.repeats)
    failed = [
        f"{result['what']}: {name} {result[name]:.2f} is above {bar}"
        for result in results
        for name, bar in (("ratio_cpu", RATIO_BAR), ("peak_mb", MEMORY_BAR_MB))
        if result[name] > bar
    ]
    print("\n".join(failed) or "All bars hold.")
    if not options.quick:
        machine = f"{platform.machine()}, {os.cpu_count()} cores"
        document = {
            "command": " ".join(["python", "benchmarks/people.py", *sys.argv[1:]]),
            "machine": machine,
            "load": os.getloadavg()[1],
            "bars": {"ratio_cpu": RATIO_BAR, "peak_mb": MEMORY_BAR_MB, "failed": failed},
            "results": results,
        }
        RESULTS.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
