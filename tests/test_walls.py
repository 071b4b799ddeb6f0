"""The walls of the architecture, checked on what Python really loads."""

from __future__ import annotations

import ast
import inspect
import json
import os
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import noisewise

ROOT = Path(noisewise.__file__).parent
ROWS_READERS = {"pandas", "polars", "duckdb", "psycopg", "pyspark", "pyarrow", "opendp"}


def modules_of(room):
    package = ROOT / room
    return [
        f"noisewise.{room}",
        *(m.name for m in pkgutil.walk_packages([str(package)], f"noisewise.{room}.")),
    ]


def loaded_by(statement):
    """Top-level names in sys.modules after running a statement in a new interpreter."""
    code = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("room", ["analyst", "core"])
def test_no_reader_of_rows_is_loaded(room):
    loaded = loaded_by("\n".join(f"import {name}" for name in modules_of(room)))
    assert not {name for name in loaded if name.split(".")[0] in ROWS_READERS}
    assert not {name for name in loaded if name.startswith("noisewise.holder")}


def test_the_check_would_notice():
    """Negative control: importing the holder does load the holder."""
    assert "noisewise.holder.ledger" in loaded_by("import noisewise.holder.ledger")


def test_importing_the_package_is_light():
    loaded = loaded_by("import noisewise")
    heavy = ROWS_READERS | {"numpy", "scipy", "numba", "jax", "matplotlib", "arviz", "mpmath"}
    assert not {name for name in loaded if name.split(".")[0] in heavy}


def test_import_and_help_are_fast():
    def spent():
        of_children = os.times()  # processor time: other work on the machine isn't our import time
        return of_children.children_user + of_children.children_system

    def seconds(*arguments):
        best = float("inf")
        for _ in range(3):
            start = spent()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
            best = min(best, spent() - start)
        return best

    start_up = seconds("-c", "pass")
    assert seconds("-c", "import noisewise") - start_up < 0.5
    assert seconds("-m", "noisewise.cli.main", "--help") < 1.0


# ---------------------------------------------------------------------------------------------
# One source of randomness

SOURCE = "noisewise.holder.mechanisms.randomness"
# Whatever hands out random numbers, as a module, a function or a method of any object.
RANDOM = {
    *("random", "secrets", "uuid", "opendp", "urandom", "getrandom", "SystemRandom"),
    *("default_rng", "RandomState", "Generator", "SeedSequence", "PCG64", "rvs", "PRNGKey"),
    *("randbelow", "randbits", "getrandbits", "token_bytes", "token_hex", "token_urlsafe"),
    *("randint", "randrange", "shuffle", "standard_normal"),
    *("uuid1", "uuid4", "RAND_bytes", "RAND_pseudo_bytes", "make_laplace", "make_gaussian"),
}
PLACES = {"/dev/random", "/dev/urandom"}
# Hashes can be made to look random. These files hash what is public, or what the ledger holds.
HASHES = {"hashlib", "hmac", "zlib", "binascii"}
MAY_HASH = (
    *("ledger/", "requests/base.py", "series.py", "networks/fourier.py", "rows/same_rows.py"),
)


def randomness_in(source, may_hash=False):
    """Every mention of a source of random numbers in this text, and every one handed around."""
    words = RANDOM if may_hash else RANDOM | HASHES
    tree = ast.parse(source)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [part for alias in node.names for part in alias.name.split(".")]
            names += ["random" for alias in node.names if alias.name == SOURCE]  # can be renamed
        elif isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            ours = [alias for alias in node.names if alias.name == "randomness"]
            if node.module == SOURCE or any(alias.asname for alias in ours):
                names.append("random")
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
            ours = isinstance(node.value, ast.Name) and node.value.id == "randomness"
            if ours and id(node) not in called:
                names.append("random")
        elif isinstance(node, ast.Name):
            names = [node.id]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # For import_module, getattr and open; sentences are no names.
            names = [node.value] if node.value in PLACES else node.value.split(".")
        elif isinstance(node, ast.arg):
            lowered = node.arg.lower()
            injected = ("random", "rng", "seed", "generator", "entropy")
            names = ["random"] if any(word in lowered for word in injected) else []
        found += [(node.lineno, name) for name in names if name in words | PLACES]
    return found


def test_the_holder_has_one_source_of_randomness():
    for path in sorted((ROOT / "holder").rglob("*.py")):
        name = path.relative_to(ROOT / "holder").as_posix()
        if name == "mechanisms/randomness.py":
            continue
        found = randomness_in(path.read_text("utf-8"), name.startswith(MAY_HASH))
        assert not found, (name, found)


@pytest.mark.parametrize(
    "source",
    [
        "import random",
        "import random as r",
        "from random import Random",
        "import secrets",
        "from secrets import randbits as bits",
        "import os\nx = os.urandom(8)",
        "from os import urandom",
        "from os import getrandom as g",
        "import numpy as np\nx = np.random.normal()",
        "import numpy.random",
        "from numpy import random as r",
        "from numpy.random import default_rng",
        "from scipy import stats\nx = stats.norm.rvs()",
        "import jax.random",
        "from uuid import uuid4",
        "import uuid",
        "import ssl\nx = ssl.RAND_bytes(8)",
        "x = __import__('random')",
        "from importlib import import_module\nr = import_module('numpy.random')",
        "import os\nx = getattr(os, 'urandom')",
        "x = open('/dev/urandom', 'rb')",
        "import opendp.prelude as dp",
        "from opendp.measurements import make_laplace",
        "x = dp.m.make_gaussian(space)",
        "import hashlib\nx = hashlib.sha256(b'time')",
        "from hmac import digest",
        "def draw(cells, random_bits=None): ...",
        "def draw(cells, *, rng): ...",
        "draw = lambda seed: seed",
        "from noisewise.holder.mechanisms import randomness\ndraw(randomness.bits)",
        "from noisewise.holder.mechanisms import randomness\nbits = randomness.bits",
        "from noisewise.holder.mechanisms import randomness as r",
        "from noisewise.holder.mechanisms.randomness import bits",
        "import noisewise.holder.mechanisms.randomness as r",
    ],
)
def test_each_spelling_of_randomness_would_be_noticed(source):
    assert randomness_in(source)


def test_what_is_allowed_is_not_noticed():
    source = "from noisewise.holder.mechanisms import randomness\nx = randomness.bits(8)"
    assert not randomness_in(f'"""No random numbers here."""\n{source}')


def test_the_source_itself_takes_nothing_but_numbers():
    """No function of the module can be given a seed or another generator."""
    from noisewise.holder.mechanisms import randomness

    public = [f for name, f in vars(randomness).items() if name in {"below", "bits", "octets"}]
    assert [list(inspect.signature(f).parameters) for f in public] == [["limit"], *[["count"]] * 2]
    assert all(f.__defaults__ is None for f in public)


def test_the_package_knows_no_studies():
    """They hold code that is deliberately not private; the wheel comes without them."""
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert not [n for n in names if (n or "").split(".")[0] == "studies"], path
    assert not (ROOT / "studies").exists()
    packaging = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text("utf-8"))
    assert packaging["tool"]["setuptools"]["packages"]["find"] == {"where": ["src"]}


def test_public_names_exist_and_are_documented():
    for name in noisewise.__all__:
        value = getattr(noisewise, name)
        if name != "__version__":
            assert inspect.getdoc(value), name
