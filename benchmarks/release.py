"""What exactness costs: our integer statistics against plain float sums, engine by engine.

Both sides read the same rows, clip the same columns and sum the same 78 products. The
peer's sums are doubles: they are off by roundings, and differ from run to run where an engine sums
in parallel. Ours are exact integers, the same from every engine, and missing values are looked
for on the way. The two sides take turns in one process, so that a busy machine slows both.

Times are medians of processor time, of this process and all that work for it: Spark's Java and its
workers, and PostgreSQL's server if it runs on this machine (if not, they are by the clock). Memory
is the peak of a process of its own that does nothing but our sums.

    python benchmarks/release.py            1 and 5 million rows, a few minutes
    python benchmarks/release.py --spark --postgres postgresql:///bench
                                            the same with Spark on two cores, and in a table of that
                                            server's
    python benchmarks/release.py --growth   1 to 50 million rows, 10 to 200 columns, by streaming

With `--quick` there are few rows. Bars: streaming for files, memory for data frames, and DuckDB
take at most 2 times as long as their own float sums, PostgreSQL and Spark at most 4 times, and
reading needs at most 1 GB, however many rows there are. Of Spark that is the driver's Python; its
Java has a limit of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import math
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
from importlib.util import find_spec
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
BARS = {"stream": 2.0, "memory": 2.0, "csv": 2.0, "duckdb": 2.0, "postgres": 4.0, "spark": 4.0}
MEMORY_BAR_MB = 1024
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


def load_postgres(url: str, path: Path | None) -> None:
    """The file's rows as a table, with the digits that make the same doubles; None removes it."""
    import psycopg
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    columns = ", ".join(f"{name} double precision" for name in NAMES)
    with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {POSTGRES_TABLE}")
        if path is None:
            return
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


def processor_seconds(*roots: int) -> float:
    """Of these processes and all below them, also of those that have ended."""
    children: dict[int, list[int]] = {}
    seconds: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            children.setdefault(int(fields[1]), []).append(pid)
            seconds[pid] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    waiting, total = list(roots), 0.0
    while waiting:
        pid = waiting.pop()
        total += seconds.get(pid, 0.0)
        waiting += children.get(pid, [])
    return total


def server_process(url: str) -> int | None:
    """The process that starts all others of a PostgreSQL server, if it is on this machine."""
    import psycopg

    with psycopg.connect(url) as connection:
        stat = Path(f"/proc/{connection.info.backend_pid}/stat")
        words = stat.read_text() if stat.exists() else ""
    return int(words.rpartition(")")[2].split()[1]) if "(postgres)" in words else None


def processor_clock(what: str, path: str | Path) -> Callable[[], float]:
    """Tells the processor time of all that work for an engine."""
    if what == "spark":
        return lambda: processor_seconds(os.getpid())
    if not what.startswith("postgres"):
        return time.process_time
    server = server_process(str(path))
    if server is None:
        return time.perf_counter

    def told() -> float:
        time.sleep(0.3)  # until the server has seen its process end
        return processor_seconds(os.getpid(), server)

    return told


def measure(what: str, path: str | Path, repeats: int) -> dict[str, object]:
    """Median times of both sides, taking turns after one round to warm up."""
    our_side, peer_side = sides(what, path)
    used = processor_clock(what, path)
    times: dict[str, list[float]] = {"ours": [], "peer": [], "ours wall": [], "peer wall": []}
    for _ in range(repeats + 1):
        for name, side in (("ours", our_side), ("peer", peer_side)):
            before, start = used(), time.perf_counter()
            result = side()
            times[f"{name} wall"].append(time.perf_counter() - start)
            times[name].append(used() - before)
            if name == "ours":
                exact = result
    text = json.dumps([exact.n, exact.values["second_moments"]])
    medians = {name: statistics.median(those[1:]) for name, those in times.items()}
    return {
        "ours_seconds": medians["ours"],
        "peer_seconds": medians["peer"],
        "ours_by_the_clock": medians["ours wall"],
        "peer_by_the_clock": medians["peer wall"],
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
    # Threads of BLAS that wait for one another would be counted as work, of the peer above all.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
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


def run(sizes: list[int], repeats: int, *, url: str | None, spark: bool) -> list[dict[str, object]]:
    results = []
    with tempfile.TemporaryDirectory(prefix="noisewise-benchmark-") as folder:
        for rows in sizes:
            path = Path(folder) / f"{rows}.parquet"
            generate(path, rows)
            whats = ["stream", "duckdb", "polars", "memory", *(["spark"] if spark else [])]
            results += [_one(what, path, rows, repeats) for what in whats]
            if url is not None:
                load_postgres(url, path)
                results += [_one(w, url, rows, repeats) for w in ("postgres", "postgres-stream")]
            path.unlink()
        path = Path(folder) / "rows.csv"
        generate(path, sizes[0])
        results.append(_one("csv", path, sizes[0], repeats))
    if url is not None:
        load_postgres(url, None)
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
    if what not in ("memory", "polars"):
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
        bar = BARS.get(result["what"], math.inf)
        if result["ratio"] > bar:
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
    parser.add_argument("--postgres", metavar="URL", help="with this server")
    parser.add_argument("--spark", action="store_true", help="with Spark")
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
    print(f"{'':32} {'rows':>12} {'':>4} {'ours':>10} {'float':>10} {'ratio':>7} {'peak':>12}")
    if options.growth:
        rows = (
            [200_000, 400_000] if options.quick else [1_000_000, 5_000_000, 20_000_000, 50_000_000]
        )
        results = run_growth(rows, [10, 50, 100, 200], options.repeats)
    else:
        sizes = [200_000, 400_000] if options.quick else [1_000_000, 5_000_000]
        results = run(sizes, options.repeats, url=options.postgres, spark=options.spark)
    failed = failures(results)
    print("\n".join(failed) or "All bars hold, and all engines gave the same integers.")
    default = RESULTS.with_stem("release_growth") if options.growth else RESULTS
    output = options.output or (None if options.quick else default)
    if output:
        write(output, results, failed)
    if failed and not options.quick:
        raise SystemExit(1)


def write(output: Path, results: list[dict[str, object]], failed: list[str]) -> None:
    packages = ("noisewise", "numpy", "pyarrow", "duckdb", "polars", "psycopg", "pyspark")
    words = ["python", "benchmarks/release.py", *sys.argv[1:]]
    output.parent.mkdir(exist_ok=True)
    document = {
        "command": " ".join(  # without the server's address, which may hold a password, and paths
            "postgresql:///..." if is_server(word) else word
            for word, before in zip(words, ["", *words], strict=False)
            if "--output" not in (word, before)
        ),
        "versions": {"python": platform.python_version()}
        | {package: version(package) for package in packages if find_spec(package)},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "bars": {"ratio": BARS, "peak_mb": MEMORY_BAR_MB, "failed": failed},
        "results": results,
    }
    output.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
