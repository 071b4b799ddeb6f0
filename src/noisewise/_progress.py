"""A progress bar with time left, on the terminal's error stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text

PATIENCE = 3.0  # seconds without a sign of progress before the reason is given


@contextmanager
def progress_bar(
    what: str, *, unit: str, show: bool, at_first: str = ""
) -> Iterator[Callable[[int, int | None], None] | None]:
    """Yield a function of (done, in all or None), or None where no bar is wanted.

    `at_first` says what may be going on if nothing is done for a while.
    """
    if not show:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    class Words(TextColumn):
        def render(self, task: Task) -> Text:
            if at_first and not task.completed and (task.elapsed or 0.0) > PATIENCE:
                self.text_format = at_first
            else:
                self.text_format = f"{{task.description}}: {{task.completed:,}} {unit}"
            return super().render(task)

    columns = (Words(""), BarColumn(), TimeRemainingColumn(elapsed_when_finished=True))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
