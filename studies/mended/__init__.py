"""Attacks that broke something once, each as it was carried out; none of them may work again.

A topic is a module with ``SCENARIOS``: names, and functions that take an empty folder and carry out
one attack with the package as it is. A function returns None if the attack failed and otherwise a
sentence that says what broke. It raises `Unavailable` where the machine lacks what the attack needs
(a PostgreSQL server, Java).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

Scenario = Callable[[Path], str | None]


class Unavailable(Exception):  # noqa: N818 - it is no fault
    """The machine lacks something that an attack needs; the message says what."""


def scenarios() -> dict[str, Scenario]:
    """All attacks by name, ``topic: attack``."""
    return {
        f"{topic.name}: {name}": scenario
        for topic in iter_modules(__path__)
        for name, scenario in import_module(f"{__name__}.{topic.name}").SCENARIOS.items()
    }


def carry_out() -> Iterator[tuple[str, str | None, str]]:
    """Carry out every attack: its name, what broke or None, and why it was skipped or ""."""
    for name, scenario in scenarios().items():
        with tempfile.TemporaryDirectory(prefix="attack-") as folder:
            try:
                yield name, scenario(Path(folder)), ""
            except Unavailable as reason:
                yield name, None, str(reason)
