"""A progress bar with time left, on the terminal's error stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(
    what: str, *, unit: str, show: bool
) -> Iterator[Callable[[int, int | None], None] | None]:
    """Yield a function of (done, in all or None), or None where no bar is wanted."""
    if not show:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(f"{{task.description}}: {{task.completed:,}} {unit}"),
        BarColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
