"""A real Spark for tests, started once a process.

It starts when first asked for: in this process's Java with two threads, or as a cluster of two
workers with processes of their own. Where pyspark or Java is missing, tests that need it are
skipped and say why.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

_SOURCE = Path(__file__).parent.parent / "src"
_BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"  # compile quickly, not well
_running: dict[bool, object] = {}


def why_not() -> str:
    """Why Spark can't run here, or nothing."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "pyspark is not installed (pip install 'noisewise[spark]')"
    return "" if shutil.which("java") else "Java was not found (apt-get install openjdk-17-jre)"


def session(*, cluster: bool | None = None):
    """The session of all tests; skips the test where there is none.

    `cluster` is whether workers are processes of their own; by default whatever runs will do.
    """
    if why_not():
        pytest.skip(f"no Spark: {why_not()}")
    if cluster is None:
        cluster = next(iter(_running), False)
    if cluster not in _running:
        for other in _running.values():
            other.stop()
        _running.clear()
        _running[cluster] = _started("local-cluster[2,1,600]" if cluster else "local[2]")
    return _running[cluster]


def _started(master: str):
    from pyspark.sql import SparkSession

    folder = tempfile.mkdtemp(prefix="nw-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # Workers find the package as an installed one would be found.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_SOURCE), os.environ.get("PYTHONPATH", "")])
    settings = {
        "spark.master": master,
        "spark.executor.memory": "600m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": f"{folder}/tables",
        "spark.driver.extraJavaOptions": _BRIEF,
        "spark.executor.extraJavaOptions": _BRIEF,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "3",
    }
    builder = SparkSession.builder.appName("noisewise tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    atexit.register(found.stop)
    return found


def frame(table: pa.Table):
    """The table as a frame of Spark, which has neither unsigned integers nor dictionaries.

    It has two partitions.
    """
    columns = []
    for column in table.columns:
        kind = column.type
        if pa.types.is_dictionary(kind):
            columns.append(column.cast(kind.value_type))
        elif pa.types.is_unsigned_integer(kind):
            wider = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}
            columns.append(pc.cast(column, wider[kind.bit_width]))
        else:
            columns.append(column)
    names = [f"c{i}" for i in range(len(columns))]
    made = session().createDataFrame(pa.Table.from_arrays(columns, names=names))
    return made.toDF(*table.column_names)
