"""A real Spark for tests: two workers in processes of their own, started once a process.

It starts when first asked for. Where pyspark or Java is missing, tests that need it are skipped and
say why.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
import pytest

SOURCE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")


def why_not() -> str:
    """Why Spark can't run here, or nothing."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "pyspark is not installed (pip install 'noisewise[spark]')"
    return "" if shutil.which("java") else "Java was not found (apt-get install openjdk-17-jre)"


def session():
    """The session of all tests; skips the test where there is none."""
    if why_not():
        pytest.skip(f"no Spark: {why_not()}")
    return _session()


@cache
def _session():
    from pyspark.sql import SparkSession

    folder = tempfile.mkdtemp(prefix="nw-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # Workers are in processes of their own, and find the package as an installed one would be.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")])
    settings = {
        "spark.master": "local-cluster[2,1,600]",
        "spark.executor.memory": "600m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": f"{folder}/tables",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "3",
        "spark.task.maxFailures": "3",
    }
    builder = SparkSession.builder.appName("noisewise tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    atexit.register(found.stop)
    return found


def frame(table: pa.Table, partitions: int = 2):
    """The table as a frame of Spark, which has neither unsigned integers nor dictionaries."""
    columns = []
    for column in table.columns:
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
        elif pa.types.is_unsigned_integer(kind):
            wider = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}
            column = pc.cast(column, wider[kind.bit_width])
        columns.append(column)
    names = [f"c{i}" for i in range(len(columns))]
    made = session().createDataFrame(pa.Table.from_arrays(columns, names=names))
    return made.repartition(partitions).toDF(*table.column_names)
