"""Spark: partial sums on the workers, where the rows are, joined on the driver.

Every task adds up the rows of its partition with the same accumulator as every other engine
(`mapInArrow` hands it Arrow batches), and returns one row: the accumulator's integers, or the words
of an error. NumPy evaluates the value map of `holder.rows.values` on the worker.

**No row is counted twice.** Partial sums are the *result* of a task. Of a task that fails, is
killed or runs twice (speculation) Spark keeps the result of one complete attempt, and an attempt
begins with an empty accumulator. (Spark's own accumulators count again what is tried again.)
Results carry the number of their partition, and the driver refuses one that comes twice.

**Where rows have ids**, Spark first brings together the rows of each id (it moves rows to
partitions by the hash of the id), so that every unit is averaged by one task. Ids are equal where
their integers or bytes are, and then so are their hashes. Where the schema merges spellings,
workers first put the one spelling into the place of each id, and only then rows are moved: Spark's
own functions for letter case and blanks have other rules.

**What goes where.** Workers get the plan, which is public. The driver gets integers: sums, or for
models that are fitted to blocks of rows, the rows themselves.

**No value in a message.** Spark writes exceptions of tasks to its logs. So errors that are known to
quote nothing (noisewise's own) come back as a result, and are raised by the driver; any other is
replaced, in the worker, by one with fixed words. What Spark reports on the driver is replaced too.

**Nobody's functions.** A session may have temporary functions with the names of built-in ones, and
a catalogue permanent ones. Nothing here calls a function by name: columns are taken by position,
cast, and handed to Python. The functions of a view that is stored in the catalogue are somebody
else's: it is refused unless somebody answers for it by name. A frame, and a temporary view, are the
caller's own code: what they compute is not looked into.

**What workers need** is Spark's own Python side (NumPy, PyArrow) and this package's code, and Numba
for ids and block summaries. Before anything is charged, a small job tells whether they have it: the
same version, the same integers from awkward values, and the plan's own sums of no rows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from noisewise._version import __version__
from noisewise.core.errors import DataError, NoisewiseError, RequestError
from noisewise.core.schema import Category
from noisewise.holder.engines.base import Answer, Columns, Kind, Result, sealed, unattested
from noisewise.holder.engines.batches import column_readers, octets_of, spelling_of
from noisewise.holder.rows import Plan, Progress
from noisewise.holder.rows.units import in_one_spelling

PREFIX = "spark:"

_KINDS = {
    **dict.fromkeys(("byte", "short", "integer", "long", "float", "double"), Kind.NUMBER),
    "decimal": Kind.DECIMAL,
    "boolean": Kind.TRUTH,
    **dict.fromkeys(("string", "char", "varchar"), Kind.TEXT),
    "void": Kind.NOTHING,
}

# What a task returns. The integers are 64-bit, little-endian.
_PARTIAL = "part bigint, problem string, state binary"
# States that are larger than this are joined by a few tasks before the driver gets them.
_LARGE = 64 << 10
_JOINING_TASKS = 16

_READ_FAILURE = (
    "data: Spark could not read or add up the rows; its own log says why. A worker may have run "
    "out of memory, a cast in the frame may fail on a row, or the exact sums may be larger than "
    "spark.driver.maxResultSize"
)
_NO_TABLE = (
    "data: Spark finds no such table or path, or may not read it; try spark.table or "
    "spark.read.parquet with the same name in pyspark"
)
_NO_WORKERS = (
    "data: Spark's workers could not run noisewise; they need Python of the driver's version with "
    f"NumPy, PyArrow and noisewise {__version__} (see docs/engines.md), and memory for a task"
)


class SparkSource:
    """A Spark data frame, or a table or path that Spark reads.

    Of texts, "spark:" and the name of a table or view, or a path of Parquet or ORC files (which has
    a slash in it, or ends in .parquet or .orc). `attested_by` is who answers for a view.
    """

    def __init__(self, data: Any, *, attested_by: str | None = None) -> None:
        frame, is_view = sealed(lambda: _opened(data), _NO_TABLE, Exception)
        if frame.isStreaming:
            raise RequestError("data: a streaming frame of Spark has no end; write it to a table")
        self._frame = frame
        self._is_refused = is_view and attested_by is None
        self.description = "Spark"

    def column_names(self) -> list[str]:
        """From Spark's catalogue or the files' footers."""
        return self._columns().names

    def column_kinds(self) -> list[tuple[str, Kind]]:
        """Names and kinds. Reads no rows."""
        held = self._columns()
        return list(zip(held.names, held.kinds, strict=True))

    def _columns(self) -> Columns:
        fields = _sealed(lambda: list(self._frame.schema.fields))
        types = [field.dataType.typeName() for field in fields]
        return Columns([field.name for field in fields], types, [_kind(one) for one in types])

    def row_count(self) -> int | None:
        """Not asked for: to count rows may take as long as to sum them."""
        return None

    def check(self, plan: Plan[Any]) -> None:
        """Ids by Spark's own type, and whether workers have what the plan needs."""
        self._check_view()
        self._columns().check_ids(plan)
        _check_workers(self._frame.sparkSession, plan)

    def sums(self, plan: Plan[Result], progress: Progress | None = None) -> Result:
        """Sum on the workers, and join here."""
        self._check_view()
        held = self._columns()
        indices = held.checked(plan)
        kinds = [held.kinds[index] for index in indices]
        rows = _sealed(lambda: self._partial_sums(plan, indices, kinds).collect())
        total = plan.accumulator()
        _join(total, [(row.part, row.problem, row.state) for row in rows])
        if progress is not None:
            progress(total.n)
        return total.result()

    def _check_view(self) -> None:
        if self._is_refused:
            raise RequestError(
                unattested("data: it is a view, which may put one person into many rows")
            )

    def _partial_sums(self, plan: Plan[Any], indices: Sequence[int], kinds: Sequence[Kind]) -> Any:
        """A frame with one row for each partition."""
        from pyspark.sql.functions import col

        # By position: for Spark "x" and "X" are the same, and a point or a backtick has a meaning.
        names = [f"c{index}" for index in range(len(self._frame.columns))]
        selected = []
        for name, index, kind in zip(plan.sources, indices, kinds, strict=True):
            value = col(f"c{index}")
            if kind is Kind.NOTHING:
                is_text = isinstance(plan.schema.columns.get(name), Category)
                value = value.cast("string" if is_text else "double")
            selected.append(value.alias(f"c{index}"))
        frame = self._frame.toDF(*names).select(*selected)
        ids = plan.schema.unit_column
        if ids in plan.sources:
            place = plan.sources.index(ids)
            name = f"c{indices[place]}"
            rule = spelling_of(plan.schema)
            if any(rule.values()) and kinds[place] is Kind.TEXT:
                # As bytes, which Spark takes for text without looking at them.
                types = [f"{n} {'binary' if n == name else t}" for n, t in frame.dtypes]
                frame = frame.mapInArrow(partial(spell, rule, place), ", ".join(types))
                texts = [col(n).cast("string").alias(n) if n == name else n for n in frame.columns]
                frame = frame.select(*texts)
            # Spark may join such partitions, but divides none: no id is in two of them.
            frame = frame.repartition(name)
        partials = frame.mapInArrow(partial(add_up, plan, __version__), _PARTIAL)
        if plan.accumulator().state().nbytes > _LARGE:
            partials = partials.repartition(_JOINING_TASKS, "part")
            partials = partials.mapInArrow(partial(join_states, plan), _PARTIAL)
        return partials


def start_session(settings: Mapping[str, str]) -> Any:
    """Start Spark with these settings, or change those of the session that runs."""
    from pyspark.sql import SparkSession

    def start() -> Any:
        builder = SparkSession.builder.appName("noisewise")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        for name, value in settings.items():
            builder = builder.config(name, value)
        if settings.get("spark.master", "local").startswith("local"):
            # Workers on this machine run this Python, and not whatever python3 is.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return builder.getOrCreate()

    message = "data: Spark does not start; it needs Java 17, and settings that it knows"
    return sealed(start, message, Exception)


def _opened(data: Any) -> tuple[Any, bool]:
    """The frame, and whether it is a view of the catalogue's."""
    if not isinstance(data, str):
        return data, False
    name = data[len(PREFIX) :]
    ending = name.rpartition(".")[2].casefold()
    if ending in ("csv", "json", "txt", "gz", "xml", "avro"):
        raise RequestError(
            "data: Spark would have to guess the types of such a file; write it to a table or to "
            "Parquet, or give a frame from Python"
        )
    session = start_session({})
    if ending == "orc":
        return session.read.orc(name), False
    if ending in ("parquet", "pq") or "/" in name:
        return session.read.parquet(name), False
    return session.table(name), session.catalog.getTable(name).tableType == "VIEW"


def _kind(name: str) -> Kind:
    if name.startswith(("date", "time")) or "interval" in name:
        return Kind.TIME
    return _KINDS.get(name, Kind.OTHER)


def _sealed(call: Callable[[], Answer]) -> Answer:
    return sealed(call, _READ_FAILURE, Exception)


def _check_workers(session: Any, plan: Plan[Any]) -> None:
    """A job of one task for each core, without rows: it must give the integers of this process."""

    def run() -> list[Any]:
        job = session.range(1).mapInArrow(partial(look_around, plan, __version__), _PARTIAL)
        return list(job.collect())

    expected = _fingerprint() + _octets(plan.accumulator())
    for row in sealed(run, _NO_WORKERS, Exception):
        if row.problem:
            raise RequestError(row.problem)
        if bytes(row.state) != expected:
            raise RequestError(
                "data: Spark's workers compute other integers than this machine from test values; "
                "install the same NumPy on both"
            )


def _fingerprint() -> bytes:
    """What the value map makes of awkward values, and their sums."""
    from noisewise.core.design import Ball, Box
    from noisewise.holder.engines.pushdown import by_numpy

    found = [by_numpy(geometry)[1:] for geometry in (Box(), Ball(0.9))]
    return str([(rows, sums.n, sorted(sums.values.items())) for rows, sums in found]).encode()


def _join(total: Any, partials: Sequence[tuple[int, str, bytes | None]]) -> None:
    """Add partial sums; the first problem that comes along is raised."""
    seen: set[int] = set()
    for part, problem, state in partials:
        if problem:
            raise DataError(problem)
        if part in seen:
            raise DataError("data: Spark returned a partition twice; nothing was published")
        seen.add(part)
        if state is not None:
            total.join(np.frombuffer(state, dtype="<i8"))


# --- what runs on workers. Spark sends these functions by name, and plans by value ----------------


def look_around(plan: Plan[Any], version: str, batches: Iterator[Any]) -> Iterator[Any]:
    """See whether this worker is like the driver, and has what the plan needs."""
    for _ in batches:
        pass
    problem, state = _other_version(version), None
    try:
        if not problem:
            state = _fingerprint() + _octets(plan.accumulator())
    except ImportError as error:
        problem = (
            f"data: a worker of Spark can't import {error.name}, which this request needs there; "
            "docs/engines.md says how to bring it to the workers"
        )
    yield _partial(0, problem, state)


def spell(rule: Mapping[str, bool], place: int, batches: Iterator[Any]) -> Iterator[Any]:
    """Put the one spelling of each id in its place, as bytes."""
    for batch in batches:
        made = None
        try:
            ids = in_one_spelling(octets_of(batch.column(place)), **rule).cast(pa.binary())
            made = batch.set_column(
                place, pa.field(batch.schema.field(place).name, pa.binary()), ids
            )
        except Exception:  # it may quote values
            pass
        if made is None:
            raise RuntimeError("noisewise: a worker could not read ids")
        yield made


def add_up(plan: Plan[Any], version: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Add up the rows of one partition."""
    from pyspark import TaskContext

    context = TaskContext.get()
    problem, state, failed = _other_version(version), None, False
    try:
        if not problem:
            state = _state_of(plan, batches)
    except NoisewiseError as error:
        problem = str(error)
    except Exception:
        failed = True
    if failed:  # Spark logs it and tries again; the error itself may quote values
        raise RuntimeError("noisewise: a worker could not add up its rows")
    for _ in batches:  # after a problem: Spark expects its rows to be taken
        pass
    yield _partial(0 if context is None else context.partitionId(), problem, state)


def join_states(plan: Plan[Any], batches: Iterator[Any]) -> Iterator[Any]:
    """Join the partial sums of several partitions; which ones is kept."""
    total, seen, problem = plan.accumulator(), [], ""
    for batch in batches:
        for row in batch.to_pylist():
            seen.append(row["part"])
            problem = problem or row["problem"]
            try:
                if not problem:
                    total.join(np.frombuffer(row["state"], dtype="<i8"))
            except NoisewiseError as error:  # too many rows
                problem = str(error)
    for place, part in enumerate(seen):
        last = place == len(seen) - 1
        yield _partial(part, problem, _octets(total) if last and not problem else None)


def _state_of(plan: Plan[Any], batches: Iterator[Any]) -> bytes:
    accumulator, readers = plan.accumulator(), None
    for batch in batches:
        if readers is None:
            readers = column_readers(plan, batch.schema.types)
        accumulator.add([read(column) for read, column in zip(readers, batch.columns, strict=True)])
    return _octets(accumulator)


def _octets(accumulator: Any) -> bytes:
    octets: bytes = accumulator.state().astype("<i8").tobytes()
    return octets


def _partial(part: int, problem: str, state: bytes | None) -> Any:
    kinds = {"part": pa.int64(), "problem": pa.string(), "state": pa.binary()}
    values = ([part], [problem], [state])
    arrays = [pa.array(v, type=kind) for v, kind in zip(values, kinds.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(kinds))


def _other_version(version: str) -> str:
    if version == __version__:
        return ""
    return (
        f"data: a worker of Spark has noisewise {__version__}, and the driver {version}; install "
        "the same version on both"
    )
