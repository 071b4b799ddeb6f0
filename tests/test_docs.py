"""Every code block of the documentation works as pasted, and the site builds without a network."""

from __future__ import annotations

import csv
import doctest
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import noisewise as nw

from .doc_pages import LANGUAGES, ROOT, blocks, commands, parse_command, run, run_command

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
TUTORIALS = DOCS / "tutorials"


def people(n, seed):
    rng = np.random.default_rng(seed)
    age, region = rng.uniform(18, 90, n), rng.choice(["north", "south", "east"], n)
    return {
        "age": age,
        "region": region,
        "hours": rng.uniform(0, 60, n),
        "income": 20_000 + 1_000 * age + 10_000 * rng.standard_normal(n),
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that the pages speak of: rows for holders, Releases for analysts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("files")
    rows = people(3000, 9)
    for name in ("people", "september"):
        pq.write_table(pa.table(people(40_000, 8)), folder / f"{name}.parquet")
    with (folder / "people.csv").open("w", newline="") as file:
        csv.writer(file).writerows([list(rows), *zip(*rows.values(), strict=True)])
    (folder / "new.csv").write_text("age,region\n40,south\n50,north\n")
    schema = nw.Schema(
        "people",
        {
            "age": nw.Number(18, 90),
            "region": nw.Category(("north", "south", "east"), "north"),
            "income": nw.Number(0, 200_000),
        },
    )
    (folder / "releases").mkdir()
    (folder / "keys").mkdir()
    key = nw.new_key(folder / "keys" / "publisher", "Publisher")
    sizes = {"a": 2000, "b": 1000, "release": 3000, "small": 25, "other_holder": 1500, "c": 1200}
    with nw.Ledger(folder / "holders.db") as ledger:
        ledger.set_cap("people", 100, 0)
        for seed, (name, n) in enumerate(sizes.items()):
            request = nw.make_request(
                schema, target="income", features=["age", "region"], epsilon=5, label=name
            )
            out = folder / f"{name}.json"
            nw.publish(request, people(n, seed), ledger=ledger, out=out, sign=key)
    for name in ("a", "b"):
        shutil.copy(folder / f"{name}.json", folder / "releases")
    return folder


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder to do what a page says in; settings that a page changes are put back."""
    monkeypatch.chdir(tmp_path)
    jax = sys.modules.get("jax") or (
        importlib.util.find_spec("jax") and importlib.import_module("jax")
    )
    precise = jax.config.jax_enable_x64 if jax else None
    yield tmp_path
    if jax:
        jax.config.update("jax_enable_x64", precise)


def needs(page):
    """Skip a page whose code needs an extra that isn't installed."""
    text = page.read_text(encoding="utf-8")
    for module, extra in {"numpyro": "numpyro", "sklearn": "sklearn", "flwr": "federation"}.items():
        if re.search(rf"^(import|from) (noisewise\.)?{module}\b", text, flags=re.M):
            pytest.importorskip(module, reason=f"the extra {extra} is not installed")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_does_what_it_says(page, workplace, files):
    if not any(block.language != "text" for block in blocks(page)):
        return
    needs(page)
    if page.parent != TUTORIALS:  # tutorials start in an empty folder
        shutil.copytree(files, workplace, dirs_exist_ok=True)
    elif page.name == "analyst.md":
        for name in ("release.json", "other_holder.json"):
            shutil.copy(files / name, workplace)
    if page.name == "methods.md":
        run(TUTORIALS / "holder.md", {})  # it speaks of that schema
    run(page, {"data_frame": people(500, 9)})


# Examples in the commands' own help that take long, or a server: they are parsed, not run.
LONG = ("audit", "plan", "federation")
EXAMPLE_SCHEMA = """\
dataset: people
columns:
  age: {type: number, lower: 18, upper: 90}
  hours: {type: number, lower: 0, upper: 80}
  region: {type: category, levels: [north, south, east], reference: north}
  disease: {type: category, levels: ["no", "yes"], reference: "no"}
  income: {type: number, lower: 0, upper: 200000}
"""


def test_the_examples_of_the_commands(workplace, files, monkeypatch):
    """Every example of the page of commands, in an order in which files are there when needed."""
    monkeypatch.setenv(
        "XDG_STATE_HOME", str(workplace / "state")
    )  # nothing was left by killed runs
    import pyarrow as pa
    import pyarrow.parquet as pq

    reference = load_hook().reference()
    found = [
        words
        for text in re.findall(r"```sh\n(.*?)```", reference, flags=re.S)
        for words in commands(text)
    ]
    assert len(found) >= 15
    rows = people(20_000, 3)
    sick = np.random.default_rng(4).random(20_000) < 0.2
    pq.write_table(pa.table(rows | {"disease": np.where(sick, "yes", "no")}), "people.parquet")
    for name in ("people.csv", "new.csv", "a.json", "b.json", "c.json"):
        shutil.copy(files / name, workplace)
    shutil.copytree(files / "keys", workplace / "keys")
    order = ["schema", "ledger", "release", "release-summary", "release-network"]
    found.sort(key=lambda words: order.index(words[1]) if words[1] in order else len(order))
    for words in found:
        if words[1] in LONG:
            parse_command(words)
            continue
        if words[1] not in ("schema", "ledger"):  # later rows have more columns than the CSV file
            kept = "category" if words[1] == "release-network" else "type"  # nodes are categories
            lines = EXAMPLE_SCHEMA.splitlines()
            Path("schema.yaml").write_text(
                "\n".join([*lines[:2], *(line for line in lines[2:] if kept in line)])
            )
        run_command(words, "the page of commands")
        if words[1:3] == ["ledger", "cap"]:
            run_command([*words[:-4], "--epsilon", "30", "--delta", "1e-5"], "a larger cap")


def load_hook():
    """The hook of the site that writes the page of commands."""
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    spec = importlib.util.spec_from_file_location("hook", DOCS / "_site" / "cli_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "path",
    [p for p in sorted((ROOT / "src").rglob("*.py")) if ">>> " in p.read_text("utf-8")],
    ids=lambda path: path.stem,
)
def test_the_examples_in_docstrings(path, workplace):
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    if "sklearn" in name:
        pytest.importorskip("sklearn", reason="the extra sklearn is not installed")
    outcome = doctest.testmod(importlib.import_module(name))
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_the_prior_file_is_the_prior_of_the_page(workplace):
    from noisewise.analyst.regression.original_units import read_prior

    written = [block.text for block in blocks(DOCS / "analyst.md") if block.language == "yaml"]
    (text,) = [text for text in written if "coefficients" in text]
    Path("prior.yaml").write_text(text)
    expected = nw.CoefficientPrior({"age": (0, 500)}, error_sd=(5_000, 40_000))
    assert read_prior("prior.yaml") == expected


def test_a_broken_page_is_noticed(workplace):
    """Negative control: wrong code, a wrong option and an unlabelled block all fail."""
    page = ROOT / "tests" / "no-such-page.md"
    for text in ("```python\n1 / 0\n```", "```sh\nnoisewise fit --no-such\n```", "```\nx\n```"):

        class Page:
            @staticmethod
            def read_text(encoding, text=text):
                return text

            relative_to = page.relative_to

        with pytest.raises((ZeroDivisionError, AssertionError)):
            run(Page(), {})


def test_there_is_code_to_run():
    found = [block for page in PAGES for block in blocks(page)]
    counts = {language: sum(b.language == language for b in found) for language in LANGUAGES}
    assert counts["python"] >= 10
    assert counts["sh"] >= 15


def test_pages_link_to_files_that_exist():
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in target:
                generated = (page.parent / target).resolve() == DOCS / "reference" / "commands.md"
                assert generated or (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in sorted(DOCS.rglob("*.md")):
        if page.parent != DOCS / "results":
            assert str(page.relative_to(DOCS)) in text, page


def test_the_site_builds_without_a_network(tmp_path):
    """Strict: a broken link or a name that isn't there fails the build (but not with --quiet)."""
    pytest.importorskip("mkdocstrings", reason="the extra docs is not installed")
    dead = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, **dead, "NO_MKDOCS_2_WARNING": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "reference" / "commands.html").read_text(encoding="utf-8")
    assert "noisewise report" in page
    for path in (tmp_path / "site").rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"?(https?:)", html)
        assert not fetched, path
