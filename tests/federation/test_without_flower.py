"""Flower is optional: without it there is a remedy, and everything else works."""

import subprocess
import sys

import pytest

BLOCKED = "import sys; sys.modules['flwr'] = None\n"


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_error_has_the_remedy():
    done = python(f"{BLOCKED}import noisewise.federation.apps")
    assert done.returncode == 1
    assert "pip install 'noisewise[federation]'" in done.stderr.splitlines()[-1]


def test_the_rest_works():
    names = ("protocol", "policy", "gather", "supernode")
    done = python(BLOCKED + "\n".join(f"import noisewise.federation.{name}" for name in names))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("room", ["core", "holder", "analyst"])
def test_no_other_room_loads_this_one(room):
    code = (
        "import importlib, pkgutil, sys, noisewise\n"
        f"package = importlib.import_module('noisewise.{room}')\n"
        "for m in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "    importlib.import_module(m.name)\n"
        "sys.exit(any(m.startswith('noisewise.federation') for m in sys.modules))"
    )
    assert python(code).returncode == 0
