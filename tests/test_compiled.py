"""Caches of compiled code: a change in any file that is compiled in puts them out of date."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import noisewise
from noisewise import _compiled

ROOMS = (
    "analyst.regression",
    "analyst.regression.exact",
    "analyst.regression.papers",
    "analyst.network",
    "holder.blocks",
)


def compiled_functions():
    """Every compiled function, with the place where it is defined."""
    for room in ROOMS:
        package = importlib.import_module(f"noisewise.{room}")
        for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            module = importlib.import_module(found.name)
            for name, value in vars(module).items():
                if hasattr(value, "py_func") and value.py_func.__module__ == module.__name__:
                    yield f"{found.name}.{name}", value


def source(function):
    return Path(function.py_func.__code__.co_filename).resolve()


def test_a_cache_follows_whatever_its_function_calls():
    """Numba itself looks at a function's own file only."""
    seen = dict(compiled_functions())
    assert len(seen) > 100
    for name, function in seen.items():
        stamp = function._cache._cache_file._source_stamp[1]
        assert stamp == _compiled.sources_digest(source(function)), name
        files = _compiled.sources(source(function))
        assert source(function) in files, name
        for called in function.py_func.__globals__.values():
            used = getattr(getattr(called, "py_func", None), "__name__", "")
            if used in function.py_func.__code__.co_names:
                assert source(called) in files, (name, used)


def test_the_digest_follows_imports_however_far(tmp_path, monkeypatch):
    monkeypatch.setattr(_compiled, "_PACKAGE", tmp_path)
    (tmp_path / "room").mkdir()
    (tmp_path / "a.py").write_text("from noisewise.room import b\n@compiled\n")
    (tmp_path / "room" / "b.py").write_text("from noisewise.c import (\n    x,\n)\n")
    (tmp_path / "c.py").write_text("@compiled\n")
    (tmp_path / "other.py").write_text("@compiled\n")
    found = {path.name for path in _compiled.sources(tmp_path / "a.py")}
    assert found == {"a.py", "c.py"}  # b has no compiled functions, but imports them


def test_nothing_else_is_compiled_in_the_wings():
    for room in ("analyst", "holder", "core"):
        for path in (Path(noisewise.__file__).parent / room).rglob("*.py"):
            assert "njit" not in path.read_text("utf-8"), path


class Two(NamedTuple):
    double: Any
    add: Any


@_compiled.compiled
def double(x: float) -> float:
    return 2.0 * x


@_compiled.compiled
def triple(x: float) -> float:
    return 3.0 * x


@_compiled.compiled
def add(x: float, y: float) -> float:
    if y < 0.0:
        raise ValueError("negative")
    return x + y


@_compiled.compiled
def both(parts: Two, x: float, y: float) -> float:
    return parts.add(parts.double(x), y)


def test_parts_are_called_by_address_with_their_errors():
    """The same function with other parts is not compiled again, and errors come through."""
    examples = Two((1.0,), (1.0, 1.0))
    call = _compiled.call_with
    assert call(both, Two(double, add), examples, 3.0, 1.0) == 7.0
    assert call(both, Two(triple, add), examples, 3.0, 1.0) == 10.0
    assert call(both, Two(double, add), examples, 3.0, 1.0) == 7.0
    assert len(both.signatures) == 1
    with pytest.raises(ValueError, match="negative"):
        call(both, Two(double, add), examples, 3.0, -1.0)
