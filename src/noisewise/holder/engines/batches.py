"""Sums over a stream of Arrow record batches, on all cores, in constant memory.

Exact sums do not depend on who adds them, so batches go to whichever worker is free.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from ..sums import Progress, SumAccumulator, SumPlan, Sums, check_row_count
from .columns import Reader

_BATCH_BYTES = 8 << 20
_MAX_BATCH_ROWS = 1 << 16
_MIN_BATCH_ROWS = 1 << 10
_MAX_WORKERS = 4
_ACCUMULATOR_BYTES = 256 << 20


def batch_rows(plan: SumPlan) -> int:
    """How many rows to ask for at a time, so that wide tables do not need more memory."""
    rows = _BATCH_BYTES // (8 * len(plan.design.sources))
    return max(_MIN_BATCH_ROWS, min(_MAX_BATCH_ROWS, rows))


def sum_batches(
    plan: SumPlan,
    batches: Iterable[Any],
    readers: Sequence[Reader],
    progress: Progress | None = None,
    workers: int | None = None,
) -> Sums:
    """Sum all batches.

    Parameters
    ----------
    plan : SumPlan
    batches : iterable of pyarrow.RecordBatch
        With the sources of the plan's design as columns, in order.
    readers : sequence of Reader
        From `column_readers`, one a column.
    progress : callable, optional
    workers : int, optional
        Threads that sum while this one reads; by default one a core, at most four, and fewer if
        the fourth moments of many features would need much memory.
    """
    first = SumAccumulator(plan)
    affordable = max(1, _ACCUMULATOR_BYTES // first.nbytes)
    workers = workers or min(_MAX_WORKERS, os.cpu_count() or 1, affordable)
    accumulators = [first, *(SumAccumulator(plan) for _ in range(workers - 1))]
    idle: SimpleQueue[SumAccumulator] = SimpleQueue()
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
    for accumulator in accumulators[1:]:
        first.merge(accumulator)
    return first.result()
