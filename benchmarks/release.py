"""What exactness costs: our integer statistics against plain float sums, engine by engine.

Both sides read the same Parquet file, clip the same columns and sum the same 78 products. The
peer's sums are doubles: they are off by roundings, and differ from run to run where an engine sums
in parallel. Ours are exact integers, the same from every engine, and missing values are looked
for on the way. Times are medians; the two sides take turns in one process, so that a busy machine
slows both. Memory is the peak of a process of its own that does nothing but our sums.

    python benchmarks/release.py            5 and 20 million rows, a few minutes
    python benchmarks/release.py --quick    0.2 and 0.4 million rows
    python benchmarks/release.py --postgres postgresql:///bench
                                            0.5 and 2 million rows, in a table of that server's
    python benchmarks/release.py --spark    1 and 5 million rows, by Spark on two cores
    python benchmarks/release.py --growth   1 to 50 million rows, 10 to 200 columns, by streaming

Bars: the default engines (streaming for files, memory for data frames) take at most 2 times as
long as their peers, PostgreSQL and Spark at most 4 times as long as their own float sums, and
reading needs at most 1 GB, however many rows there are. Of Spark that is the driver's Python; its
Java has a limit of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np

from noisewise.core.design import Box, Design
from noisewise.core.schema import Number, Schema
from noisewise.core.statistics import SecondMoments
from noisewise.holder.engines import is_server, open_source
from noisewise.holder.rows.sums import SumPlan

BOUNDS: dict[str, tuple[float, float]] = {}
NAMES: list[str] = []
PAIRS: list[tuple[str, str]] = []


def declare(features: int) -> None:
    """How wide the table is, in this process."""
    BOUNDS.clear()
    BOUNDS.update({f"x{j}": (-1.0, 2.0 * j + 1) for j in range(features)} | {"y": (0.0, 100.0)})
    NAMES[:] = BOUNDS
    PAIRS[:] = [(a, b) for i, a in enumerate(NAMES) for b in NAMES[i:]]


declare(10)
DEFAULTS = ("stream", "memory", "csv")
RATIO_BAR = 2.0
ELSEWHERE_BAR = 4.0  # of PostgreSQL and Spark
MEMORY_BAR_MB = 1024
CSV_ROWS = 1_000_000
RESULTS = Path(__file__).parent / "results" / "release.json"
BATCH_ROWS = 1 << 16


def plan() -> SumPlan:
    columns = {name: Number(*bounds) for name, bounds in BOUNDS.items()}
    design = Design(Schema("benchmark", columns), tuple(NAMES[:-1]), "y")
    return SumPlan(design, Box(), (SecondMoments(design),))


def generate(path: Path, rows: int) -> None:
    """Uniform columns of which about a sixth of the values are out of bounds."""
    import duckdb

    columns = []
    for name, (lower, upper) in BOUNDS.items():
        width = 1.2 * (upper - lower)
        columns.append(f"random() * {width} + {lower - width / 12} AS {name}")
    how = "HEADER" if path.suffix == ".csv" else "FORMAT parquet"
    with duckdb.connect() as connection:
        connection.execute("SELECT setseed(0.5)")
        query = f"SELECT {', '.join(columns)} FROM range({rows})"
        connection.execute(f"COPY ({query}) TO '{path}' ({how})")


# ---------------------------------------------------------------------------------------------
# The peers: the same engine, plain float sums of clipped values


def float_duckdb(path: Path) -> float:
    import duckdb

    clipped = ", ".join(f"least(greatest({n}, {a}), {b}) AS {n}" for n, (a, b) in BOUNDS.items())
    sums = [f"sum({a} * {b})" for a, b in PAIRS] + [f"sum({name})" for name in NAMES]
    with duckdb.connect() as connection:
        row = connection.execute(
            f"WITH r AS (SELECT {clipped} FROM '{path}') SELECT count(*), {', '.join(sums)} FROM r"
        ).fetchone()
    return float(row[-1])


POSTGRES_TABLE = "noisewise_benchmark"


def load_postgres(url: str, path: Path) -> None:
    """The file's rows as a table, with the digits that make the same doubles."""
    import psycopg
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    columns = ", ".join(f"{name} double precision" for name in NAMES)
    with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {POSTGRES_TABLE}")
        cursor.execute(f"CREATE UNLOGGED TABLE {POSTGRES_TABLE} ({columns})")
        with pq.ParquetFile(path) as file:
            statement = f"COPY {POSTGRES_TABLE} FROM STDIN (FORMAT csv)"
            with cursor.copy(statement) as copy:
                for batch in file.iter_batches(BATCH_ROWS):
                    text = io.BytesIO()
                    pa_csv.write_csv(batch, text, pa_csv.WriteOptions(include_header=False))
                    copy.write(text.getvalue())
        cursor.execute(f"VACUUM ANALYZE {POSTGRES_TABLE}")


def float_postgres(url: str) -> float:
    """With a fence, as ours has: without, clipping is repeated for each sum, and takes longer."""
    import psycopg

    clipped = ", ".join(f"least(greatest({n}, {a}), {b}) AS {n}" for n, (a, b) in BOUNDS.items())
    sums = [f"sum({a} * {b})" for a, b in PAIRS] + [f"sum({name})" for name in NAMES]
    with psycopg.connect(url) as connection:
        row = connection.execute(
            f"WITH r AS (SELECT {clipped} FROM {POSTGRES_TABLE} OFFSET 0) "
            f"SELECT count(*), {', '.join(sums)} FROM r"
        ).fetchone()
    return float(row[-1])


def spark_session():
    from noisewise.holder.engines.spark import start_session

    settings = {"spark.master": "local[2]", "spark.ui.enabled": "false"}
    return start_session({**settings, "spark.driver.host": "127.0.0.1"})


def float_spark(path: Path) -> float:
    clipped = [f"least(greatest({n}, {a}D), {b}D) AS {n}" for n, (a, b) in BOUNDS.items()]
    sums = [f"sum({a} * {b})" for a, b in PAIRS] + [f"sum({name})" for name in NAMES]
    frame = spark_session().read.parquet(str(path)).selectExpr(*clipped)
    return float(frame.selectExpr("count(*)", *sums).collect()[0][-1])


def _float_gram(batches) -> float:
    total = np.zeros((len(NAMES) + 1, len(NAMES) + 1))
    for batch in batches:
        w = np.empty((len(NAMES) + 1, batch.num_rows))
        w[0] = 1
        for j, (name, bounds) in enumerate(BOUNDS.items(), start=1):
            np.clip(batch[name].to_numpy(zero_copy_only=False), *bounds, out=w[j])
        total += w @ w.T
    return float(total[0, -1])


def float_stream(path: Path) -> float:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
        return _float_gram(file.iter_batches(BATCH_ROWS))


def float_memory(table) -> float:
    return _float_gram(table.to_batches(BATCH_ROWS))


def float_csv(path: Path) -> float:
    import pyarrow.csv as pa_csv

    return _float_gram(pa_csv.open_csv(path))


def float_polars(path: Path) -> float:
    import polars as pl

    frame = pl.scan_parquet(path).with_columns(
        pl.col(name).clip(*bounds) for name, bounds in BOUNDS.items()
    )
    sums = [(pl.col(a) * pl.col(b)).sum().alias(f"{a}*{b}") for a, b in PAIRS]
    sums += [pl.col(name).sum() for name in NAMES]
    return float(frame.select(*sums, pl.len()).collect(engine="streaming")["y"][0])


# ---------------------------------------------------------------------------------------------
# Measuring, in a process of its own


def ours(data, engine: str):
    table = POSTGRES_TABLE if str(data).startswith("postgres") else None
    return open_source(data, engine=engine, table=table).sums(plan())


def sides(what: str, path: str | Path) -> tuple[Callable[[], object], Callable[[], object]]:
    """Our call and the peer's."""
    if what == "memory":
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        return lambda: ours(table, "memory"), lambda: float_memory(table)
    if what.startswith("postgres"):
        engine = "stream" if what == "postgres-stream" else "postgres"
        return lambda: ours(str(path), engine), lambda: float_postgres(str(path))
    if what == "spark":
        spark_session()
        return lambda: ours(f"spark:{path}", "spark"), lambda: float_spark(path)
    engine = "stream" if what in ("csv", "polars") else what
    peers = {
        "stream": float_stream,
        "duckdb": float_duckdb,
        "csv": float_csv,
        "polars": float_polars,
    }
    return lambda: ours(path, engine), lambda: peers[what](path)


def measure(what: str, path: str | Path, repeats: int) -> dict[str, object]:
    """Median times of both sides, taking turns after one round to warm up."""
    our_side, peer_side = sides(what, path)
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    for _ in range(repeats + 1):
        for name, side in (("ours", our_side), ("peer", peer_side)):
            start = time.perf_counter()
            result = side()
            times[name].append(time.perf_counter() - start)
            if name == "ours":
                exact = result
    text = json.dumps([exact.n, exact.values["second_moments"]])
    return {
        "ours_seconds": statistics.median(times["ours"][1:]),
        "peer_seconds": statistics.median(times["peer"][1:]),
        "digest": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


def peak_memory(what: str, path: str | Path) -> dict[str, object]:
    sides(what, path)[0]()
    # Not `ru_maxrss`, which on Linux starts with what the process that started this one needed.
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (one for one in status.read_text().splitlines() if one.startswith("VmHWM"))
        return {"peak_mb": int(line.split()[1]) / 1024}
    return {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def in_child(*arguments: str) -> dict[str, object]:
    command = [sys.executable, __file__, "--child", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


# ---------------------------------------------------------------------------------------------
# The report

LABELS = {
    "stream": "Parquet, stream (default)",
    "duckdb": "Parquet, DuckDB",
    "memory": "Arrow table, memory (default)",
    "csv": "CSV, stream (default)",
    "polars": "Parquet, stream against Polars",
    "postgres": "PostgreSQL, in the database",
    "postgres-stream": "PostgreSQL, streamed",
    "spark": "Parquet, Spark",
}


def run(sizes: list[int], csv_rows: int, repeats: int) -> list[dict[str, object]]:
    results = []
    with tempfile.TemporaryDirectory(prefix="noisewise-benchmark-") as folder:
        for rows in sizes:
            path = Path(folder) / f"{rows}.parquet"
            generate(path, rows)
            whats = ["stream", "duckdb", "polars"]
            if rows == sizes[0]:
                whats.append("memory")
            results += [_one(what, path, rows, repeats) for what in whats]
            path.unlink()
        path = Path(folder) / "rows.csv"
        generate(path, csv_rows)
        results.append(_one("csv", path, csv_rows, repeats))
    return results


def run_postgres(url: str, sizes: list[int], repeats: int) -> list[dict[str, object]]:
    results = []
    with tempfile.TemporaryDirectory(prefix="noisewise-benchmark-") as folder:
        for rows in sizes:
            path = Path(folder) / f"{rows}.parquet"
            generate(path, rows)
            load_postgres(url, path)
            results += [_one(w, url, rows, repeats) for w in ("postgres", "postgres-stream")]
            results.append(_one("stream", path, rows, repeats))  # must be the same integers
    return results


def run_spark(sizes: list[int], repeats: int) -> list[dict[str, object]]:
    results = []
    with tempfile.TemporaryDirectory(prefix="noisewise-benchmark-") as folder:
        for rows in sizes:
            path = Path(folder) / f"{rows}.parquet"
            generate(path, rows)
            results += [_one(what, path, rows, repeats) for what in ("spark", "stream")]
    return results


def run_growth(rows: list[int], features: list[int], repeats: int) -> list[dict[str, object]]:
    """Many rows of ten features, then a tenth of a million rows of many."""
    results = []
    sizes = [(size, 10) for size in rows] + [(rows[0] // 10, width) for width in features]
    with tempfile.TemporaryDirectory(prefix="noisewise-benchmark-") as folder:
        for size, width in sizes:
            path = Path(folder) / f"{size}-{width}.parquet"
            declare(width)
            generate(path, size)
            results.append(_one("stream", path, size, repeats))
            path.unlink()
    return results


def _one(what: str, path: str | Path, rows: int, repeats: int) -> dict[str, object]:
    width = str(len(NAMES) - 1)
    result = {"what": what, "rows": rows, "columns": len(NAMES)}
    result |= in_child("time", what, str(path), str(repeats), width)
    result["ratio"] = result["ours_seconds"] / result["peer_seconds"]
    if what in ("stream", "duckdb", "csv", "spark") or what.startswith("postgres"):
        result |= in_child("memory", what, str(path), "1", width)
    print(
        f"{LABELS[what]:32} {rows:>12,} {len(NAMES):>4} {result['ours_seconds']:>8.2f} s "
        f"{result['peer_seconds']:>8.2f} s {result['ratio']:>7.2f} "
        f"{result.get('peak_mb', float('nan')):>9.0f} MB",
        flush=True,
    )
    return result


def failures(results: list[dict[str, object]]) -> list[str]:
    failed = []
    for result in results:
        where = f"{LABELS[result['what']]} at {result['rows']:,} rows"
        elsewhere = ("postgres", "spark")
        bar = ELSEWHERE_BAR if result["what"] in elsewhere else RATIO_BAR
        if result["what"] in (*DEFAULTS, *elsewhere) and result["ratio"] > bar:
            failed.append(f"{where}: ratio {result['ratio']:.2f} is above {bar}")
        if result.get("peak_mb", 0) > MEMORY_BAR_MB:
            failed.append(f"{where}: {result['peak_mb']:.0f} MB is above {MEMORY_BAR_MB}")
    for size in {(result["rows"], result["columns"]) for result in results}:
        same = [r for r in results if (r["rows"], r["columns"]) == size and r["what"] != "csv"]
        if len({result["digest"] for result in same}) > 1:
            failed.append(f"the engines differ at {size[0]:,} rows")
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, help=f"by default {RESULTS.name}, if not --quick")
    parser.add_argument("--postgres", metavar="URL", help="only this server")
    parser.add_argument("--spark", action="store_true", help="only Spark")
    parser.add_argument("--growth", action="store_true", help="only streaming, by rows and columns")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        job, what, path, repeats, features = options.child
        declare(int(features))
        where = path if is_server(path) else Path(path)
        done = measure(what, where, int(repeats)) if job == "time" else peak_memory(what, where)
        print(json.dumps(done))
        return
    sizes = [200_000, 400_000] if options.quick else [5_000_000, 20_000_000]
    if options.postgres and not options.quick:
        sizes = [500_000, 2_000_000]
    if options.spark and not options.quick:
        sizes = [1_000_000, 5_000_000]
    print(f"{'':32} {'rows':>12} {'':>4} {'ours':>10} {'float':>10} {'ratio':>7} {'peak':>12}")
    if options.postgres:
        results = run_postgres(options.postgres, sizes, options.repeats)
    elif options.spark:
        results = run_spark(sizes, options.repeats)
    elif options.growth:
        rows = sizes if options.quick else [1_000_000, 5_000_000, 20_000_000, 50_000_000]
        results = run_growth(rows, [10, 50, 100, 200], options.repeats)
    else:
        results = run(sizes, sizes[0] // 5 if options.quick else CSV_ROWS, options.repeats)
    failed = failures(results)
    print("\n".join(failed) or "All bars hold, and all engines gave the same integers.")
    which = [name for name in ("postgres", "spark", "growth") if getattr(options, name)]
    default = RESULTS.with_stem("_".join(["release", *which]))
    output = options.output or (None if options.quick else default)
    if output:
        write(output, results, failed)
    if failed and not options.quick:
        raise SystemExit(1)


def write(output: Path, results: list[dict[str, object]], failed: list[str]) -> None:
    packages = ("noisewise", "numpy", "pyarrow", "duckdb", "polars")
    output.parent.mkdir(exist_ok=True)
    document = {
        "command": " ".join(  # without the server's address, which may hold a password
            "postgresql:///..." if is_server(word) else word
            for word in ["python", "benchmarks/release.py", *sys.argv[1:]]
        ),
        "versions": {"python": platform.python_version()} | {p: version(p) for p in packages},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "bars": {"ratio": RATIO_BAR, "peak_mb": MEMORY_BAR_MB, "failed": failed},
        "results": results,
    }
    output.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
