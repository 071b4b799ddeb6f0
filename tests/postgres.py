"""A real PostgreSQL server for tests: its own folder, a socket in it, an ordinary user.

It starts when first asked for, once a process, and ends with it. Where no server is installed, or
none starts, tests that need one are skipped and say why.
"""

from __future__ import annotations

import atexit
import glob
import itertools
import math
import os
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest

_USER = "nobody"  # the server refuses to run as root
_numbers = itertools.count()


def server_url() -> str:
    """The address of the server; skips the test where there is none."""
    url, why = _server()
    if not url:
        pytest.skip(f"no PostgreSQL server: {why}")
    return url


def is_running() -> bool:
    """Whether there is one."""
    return bool(_server()[0])


def _binaries() -> Path | None:
    found = sorted(
        glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda p: int(p.split("/")[4])
    )
    found += [path for path in [shutil.which("initdb")] if path]
    return Path(found[-1]).resolve().parent if found else None


@cache
def _server() -> tuple[str, str]:
    try:
        import psycopg
    except ImportError:
        return "", "psycopg is not installed (pip install 'noisewise[postgres]')"
    binaries = _binaries()
    if binaries is None:
        return "", "initdb was not found (apt-get install postgresql)"
    folder = Path(tempfile.mkdtemp(prefix="nw-pg-"))  # short: a socket's path has 107 bytes at most
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # It must not outlive the tests, also if they are killed.
    before = ["setpriv", "--pdeathsig", "INT"] if shutil.which("setpriv") else []
    if os.geteuid() == 0:
        if not before:
            return "", "it cannot run as root, and there is no setpriv"
        before += [f"--reuid={_USER}", "--regid=nogroup", "--clear-groups"]
        shutil.chown(folder, _USER)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    made = [str(binaries / "initdb"), "-D", str(folder / "data"), "-U", "holder", "-A", "trust"]
    made += ["--no-sync", "--no-instructions", "-E", "UTF8", "--locale=C.UTF-8"]
    done = subprocess.run(
        [*before, *made], capture_output=True, text=True, env=environment, cwd=folder, check=False
    )
    if done.returncode:
        return "", f"initdb failed: {done.stderr.strip()[-300:]}"
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(folder),
        "fsync": "off",
        "synchronous_commit": "off",
        "shared_buffers": "32MB",
        "max_connections": "20",
        "log_statement": "all",  # what a server writes down is looked at
    }
    command = [*before, str(binaries / "postgres"), "-D", str(folder / "data")]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log, env=environment, cwd=folder)
    atexit.register(_stop, process)
    url = f"postgresql://holder@/postgres?host={quote(str(folder), safe='')}"
    for _ in range(200):
        try:
            psycopg.connect(url).close()
            return url, ""
        except psycopg.OperationalError:
            time.sleep(0.05)
    return "", "it did not start"


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()


# ---------------------------------------------------------------------------------------------
# Tables


def connect():
    import psycopg

    return psycopg.connect(server_url(), autocommit=True)


@cache
def _shared():
    return connect()


def shared():
    """One connection for all, which sources must leave as it was."""
    from psycopg.pq import TransactionStatus

    server_url()
    assert _shared().info.transaction_status == TransactionStatus.IDLE
    return _shared()


def _type(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_dictionary(kind):
        return _type(kind.value_type)
    if types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if types.is_list(kind):
        return f"{_type(kind.value_type)}[]"
    names = {
        **dict.fromkeys(("int8", "uint8", "int16"), "smallint"),
        **dict.fromkeys(("uint16", "int32"), "integer"),
        **dict.fromkeys(("uint32", "int64"), "bigint"),
        "uint64": "numeric(20,0)",
        "float": "real",
        "double": "double precision",
        "bool": "boolean",
        "null": "double precision",
        **dict.fromkeys(("string", "large_string"), "text"),
        **dict.fromkeys(("binary", "large_binary"), "bytea"),
        "date32[day]": "date",
        "timestamp[us]": "timestamp",
        "duration[us]": "interval",
    }
    return names[str(kind)]


def put(table: pa.Table, name: str | None = None, types: dict[str, str] | None = None) -> str:
    """Make a table of the server's; returns its name, by default a new one."""
    from psycopg import sql

    name = f"t{next(_numbers)}" if name is None else name
    columns = {f.name: (types or {}).get(f.name, _type(f.type)) for f in table.schema}
    listed = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(kind))
        for column, kind in columns.items()
    )
    target = sql.Identifier(name)
    with shared().cursor() as cursor:
        cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(target))
        cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(target, listed))
        with cursor.copy(sql.SQL("COPY {} FROM STDIN").format(target)) as copy:
            for row in table.to_pylist():
                copy.write_row([_cell(value) for value in row.values()])
    return name


def _cell(value):
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    return value
