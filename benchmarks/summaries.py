"""One release of block summaries through `publish`, ledger and file included.

A Parquet file of unbounded columns is streamed, every row is put into one of 1,000 blocks in 30
partitions, all 30,000 regressions are fitted from exact integer sums, noise is added, and the
Release is written. The peer does the blocks' sums the obvious way: float64 products in memory,
NumPy's random blocks, one `bincount` a product and partition, one batched solve; it publishes
nothing, and its sums depend on the order of rows. Times are medians of processor seconds (and of
seconds on the clock, which a busy machine stretches); both sides take turns. Memory is the peak of
a process of its own that does one release; four times as many rows must not need more.

    python benchmarks/summaries.py            1 and 4 million rows, some minutes
    python benchmarks/summaries.py --quick    0.1 and 0.4 million rows

Bars, with 1 million rows: 5 processor seconds for one covariate and 15 for five, at most twice the
peer's, and below 1 GB at either size.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

import noisewise as nw
from noisewise.core.schema import Schema, Unbounded
from noisewise.holder.requests.summary import make_summary_request

BLOCKS, PARTITIONS = 1000, 30
SECONDS_BAR = {1: 5.0, 5: 15.0}
MEMORY_BAR_MB, RATIO_BAR = 1024, 2.0
RESULTS = Path(__file__).parent / "results" / "summaries.json"
MECHANISMS = ("sign", "location_scale", "stouffer")


def write_rows(path: Path, rows: int, covariates: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng([rows, covariates])
    x = rng.standard_normal((rows, covariates))
    columns = {f"x{j + 1}": x[:, j] for j in range(covariates)}
    columns["y"] = 1 + 2 * x[:, 0] + rng.standard_normal(rows)
    pq.write_table(pa.table(columns), path)


def request_for(mechanism: str, rows: int, covariates: int, label: str):
    names = [f"x{j + 1}" for j in range(covariates)]
    schema = Schema("benchmark", {name: Unbounded() for name in (*names, "y")})
    asked = {"coefficients": ["x1"]} if mechanism == "location_scale" else {"questions": ["x1 < 2"]}
    return make_summary_request(
        schema,
        target="y",
        features=names,
        mechanism=mechanism,
        epsilon=1,
        rows=rows,
        blocks=BLOCKS,
        partitions=PARTITIONS,
        label=label,
        **asked,
    )


def release(
    mechanism: str, path: Path, rows: int, covariates: int, folder: Path
) -> tuple[float, float]:
    """Processor seconds and seconds of one release."""
    request = request_for(mechanism, rows, covariates, f"{mechanism} {time.time_ns()}")
    with nw.Ledger(folder / "budget.db") as ledger:
        ledger.set_cap("benchmark", 100_000, 0)
        clock, start = time.perf_counter(), time.process_time()
        published = nw.publish(request, path, ledger=ledger, out=folder / f"{time.time_ns()}.json")
        seconds = time.process_time() - start, time.perf_counter() - clock
    assert published.release.n == rows
    return seconds


def peer(path: Path, covariates: int) -> tuple[float, float]:
    """Seconds of the obvious way, without exactness, noise, ledger or file."""
    import pyarrow.parquet as pq

    clock, start = time.perf_counter(), time.process_time()
    table = pq.read_table(path)
    w = np.column_stack([np.ones(table.num_rows), *(column.to_numpy() for column in table)])
    rng, K = np.random.default_rng(), covariates + 2
    products = [w[:, a] * w[:, b] for a in range(K) for b in range(a, K)]
    signs = 0
    for _ in range(PARTITIONS):
        block = rng.integers(0, BLOCKS, len(w))
        sums = np.array([np.bincount(block, product, BLOCKS) for product in products])
        gram = np.empty((BLOCKS, K, K))
        gram[:, *np.triu_indices(K)] = sums.T
        gram[:, *np.triu_indices(K)[::-1]] = sums.T
        estimates = np.linalg.solve(gram[:, :-1, :-1], gram[:, :-1, -1:])[:, 1, 0]
        signs += np.sign(2 - estimates).sum()
    return time.process_time() - start, time.perf_counter() - clock


def measure(path: Path, rows: int, covariates: int, repeats: int) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for mechanism in MECHANISMS:  # load what is loaded lazily
            release(mechanism, path, rows, covariates, folder)
        times: dict[str, list[tuple[float, float]]] = {m: [] for m in (*MECHANISMS, "peer")}
        for _ in range(repeats):
            for mechanism in MECHANISMS:
                times[mechanism].append(release(mechanism, path, rows, covariates, folder))
            times["peer"].append(peer(path, covariates))
    medians = {
        name: [round(statistics.median(each), 3) for each in zip(*values, strict=True)]
        for name, values in times.items()
    }
    return [
        {
            "rows": rows,
            "covariates": covariates,
            "mechanism": mechanism,
            "blocks": BLOCKS,
            "partitions": PARTITIONS,
            "cpu_seconds": medians[mechanism][0],
            "seconds": medians[mechanism][1],
            "peer_cpu_seconds": medians["peer"][0],
            "peer_seconds": medians["peer"][1],
        }
        for mechanism in MECHANISMS
    ]


def memory_of(path: Path, rows: int, covariates: int) -> dict[str, object]:
    """Peak memory and processor seconds of a process that does one release and nothing else."""
    words = [sys.executable, __file__, "--child", str(path), str(rows), str(covariates)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return {"rows": rows, "covariates": covariates} | json.loads(done.stdout.splitlines()[-1])


def child(path: str, rows: str, covariates: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        release("sign", Path(path), int(rows), int(covariates), Path(folder))
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = round(used.ru_utime + used.ru_stime, 2)
    print(json.dumps({"peak_mb": round(used.ru_maxrss / 1024), "process_cpu_seconds": seconds}))


def failures(times: list[dict[str, object]], memory: list[dict[str, object]]) -> list[str]:
    failed = []
    for row in times:
        where = f"{row['mechanism']}, {row['rows']:,} rows, {row['covariates']} covariate(s)"
        bar, seconds = SECONDS_BAR[row["covariates"]], row["cpu_seconds"]
        if seconds > bar:
            failed.append(f"{where}: {seconds} s is above {bar} s")
        if seconds > RATIO_BAR * row["peer_cpu_seconds"]:
            failed.append(f"{where}: above {RATIO_BAR:g} times the peer's time")
    failed += [
        f"{m['peak_mb']} MB is too much: {m}" for m in memory if m["peak_mb"] > MEMORY_BAR_MB
    ]
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, help=f"by default {RESULTS.name}, if not --quick")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    rows = 100_000 if options.quick else 1_000_000
    times, memory = [], []
    with tempfile.TemporaryDirectory() as name:
        for covariates in (1, 5):
            path = Path(name) / f"{covariates}.parquet"
            write_rows(path, rows, covariates)
            times += measure(path, rows, covariates, options.repeats)
            memory.append(memory_of(path, rows, covariates))
            write_rows(path, 4 * rows, covariates)
            memory.append(memory_of(path, 4 * rows, covariates))
    for row in (*times, *memory):
        print(json.dumps(row))
    failed = failures(times, memory)
    print("\n".join(failed) or "All bars hold.")
    output = options.output or (None if options.quick else RESULTS)
    if output:
        write(output, times, memory, failed)
    if failed and not options.quick:
        raise SystemExit(1)


def write(output: Path, times, memory, failed: list[str]) -> None:
    packages = ("noisewise", "numpy", "numba", "pyarrow", "opendp")
    document = {
        "command": " ".join(["python", "benchmarks/summaries.py", *sys.argv[1:]]),
        "versions": {"python": platform.python_version()} | {p: version(p) for p in packages},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "bars": {
            "cpu_seconds_at_1_million": SECONDS_BAR,
            "ratio": RATIO_BAR,
            "peak_mb": MEMORY_BAR_MB,
            "failed": failed,
        },
        "times": times,
        "memory": memory,
    }
    output.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
