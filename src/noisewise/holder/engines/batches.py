"""Sums over a stream of Arrow record batches, in constant memory.

While one thread sums, another reads ahead (and Arrow decodes on threads of its own). Exact sums do
not depend on who adds them, so there may be several workers; but NumPy's passes over a block take
microseconds, and workers that pass Python's lock to and fro are slower together than one alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from noisewise.holder.engines.base import Result
from noisewise.holder.engines.columns import Reader
from noisewise.holder.plan import Accumulator, Plan, Progress
from noisewise.holder.sums import check_row_count

_BATCH_BYTES = 8 << 20
_MAX_BATCH_ROWS = 1 << 16
_MIN_BATCH_ROWS = 1 << 10


def batch_rows(plan: Plan[Any]) -> int:
    """How many rows to ask for at a time, so that wide tables do not need more memory."""
    rows = _BATCH_BYTES // (8 * len(plan.sources))
    return max(_MIN_BATCH_ROWS, min(_MAX_BATCH_ROWS, rows))


def sum_batches(
    plan: Plan[Result],
    batches: Iterable[Any],
    readers: Sequence[Reader],
    progress: Progress | None = None,
    workers: int = 1,
) -> Result:
    """Sum all batches.

    Parameters
    ----------
    plan : Plan
    batches : iterable of pyarrow.RecordBatch
        With the plan's sources as columns, in order.
    readers : sequence of Reader
        From `column_readers`, one a column.
    progress : callable, optional
    workers : int
        Threads that sum while this one reads.
    """
    accumulators = [plan.accumulator() for _ in range(workers)]
    idle: SimpleQueue[Accumulator[Result]] = SimpleQueue()
    for accumulator in accumulators:
        idle.put(accumulator)

    def work(batch: Any) -> int:
        accumulator = idle.get()
        try:
            accumulator.add(
                [read(column) for read, column in zip(readers, batch.columns, strict=True)]
            )
        finally:
            idle.put(accumulator)
        return int(batch.num_rows)

    seen = done = 0
    waiting: deque[Future[int]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="noisewise-sums") as pool:
        for batch in batches:
            seen += batch.num_rows
            check_row_count(seen)
            waiting.append(pool.submit(work, batch))
            if len(waiting) > 2 * workers:  # bounds the memory that waiting batches hold
                done += waiting.popleft().result()
                if progress is not None:
                    progress(done)
        while waiting:
            done += waiting.popleft().result()
            if progress is not None:
                progress(done)
    total = accumulators[0]
    for accumulator in accumulators[1:]:
        total.merge(accumulator)
    return total.result()
