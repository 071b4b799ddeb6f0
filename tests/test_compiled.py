"""Caches of compiled code: a change in any file that is compiled in puts them out of date."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

import noisewise
from noisewise._compiled import Family
from noisewise.analyst.networks import compiled as networks
from noisewise.analyst.regression.exact import compiled as collapsed
from noisewise.analyst.regression.papers import gibbs_compiled as gibbs
from noisewise.analyst.regression.papers import given_s_compiled as given_s
from noisewise.holder.blocks import compiled as blocks

FAMILIES = {m._family.digest: m._family for m in (collapsed, gibbs, networks, given_s, blocks)}
ROOMS = (
    "analyst",
    "analyst.regression.exact",
    "analyst.regression.papers",
    "analyst.networks",
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


def test_a_family_covers_whatever_its_functions_call():
    """Numba itself looks at a function's own file only."""
    seen = dict(compiled_functions())
    assert len(seen) > 100
    for name, function in seen.items():
        family = FAMILIES[function._cache._cache_file._source_stamp[1]]
        assert source(function) in family.files, name
        for called in function.py_func.__globals__.values():
            used = getattr(getattr(called, "py_func", None), "__name__", "")
            if used in function.py_func.__code__.co_names:
                assert source(called) in family.files, (name, used)


def test_the_digest_follows_every_file(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(name)
    (tmp_path / "room").mkdir()
    home = str(tmp_path / "room" / "home.py")
    before = Family(home, "../*.py").digest
    assert Family(home, "../*.py").digest == before
    (tmp_path / "b.py").write_text("changed")
    assert Family(home, "../*.py").digest != before
    with pytest.raises(FileNotFoundError, match=r"c\.py"):
        Family(home, "../c.py")


def test_nothing_else_is_compiled_in_the_wings():
    for room in ("analyst", "holder", "core"):
        for path in (Path(noisewise.__file__).parent / room).rglob("*.py"):
            assert "njit" not in path.read_text("utf-8"), path
