"""Code in the documentation works as pasted."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import noisewise as nw

DOCS = Path(__file__).parent.parent / "docs"


def blocks(page, language):
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.M | re.S)


def people(n, seed):
    rng = np.random.default_rng(seed)
    age, region = rng.uniform(18, 90, n), rng.choice(["north", "south", "east"], n)
    return {
        "age": age,
        "region": region,
        "income": 20_000 + 1_000 * age + 10_000 * rng.standard_normal(n),
    }


@pytest.fixture
def releases(tmp_path, monkeypatch):
    """The files that the pages speak of."""
    monkeypatch.chdir(tmp_path)
    schema = nw.Schema(
        "people",
        {
            "age": nw.Number(18, 90),
            "region": nw.Category(("north", "south", "east"), "north"),
            "income": nw.Number(0, 200_000),
        },
    )
    with nw.Ledger("holders.db") as ledger:
        ledger.set_cap("people", 100, 0)
        for seed, (name, n) in enumerate(
            {"a": 2000, "b": 1000, "release": 3000, "small": 25}.items()
        ):
            request = nw.make_request(
                schema, target="income", features=["age", "region"], epsilon=5, label=name
            )
            nw.publish(request, people(n, seed), ledger=ledger, out=f"{name}.json")
    return tmp_path


def test_the_analysts_page(releases, capsys):
    jax = pytest.importorskip("jax", reason="the extra numpyro is not installed")
    found = blocks("analyst.md", "python")
    assert len(found) >= 3
    (prior,) = blocks("analyst.md", "yaml")
    Path("prior.yaml").write_text(prior)
    space = {}
    precise = jax.config.jax_enable_x64
    try:
        for block in found:
            exec(compile(block, "docs/analyst.md", "exec"), space)
    finally:
        jax.config.update("jax_enable_x64", precise)
    assert "intercept" in capsys.readouterr().out
    from noisewise.analyst.coefficient_prior import read_prior

    assert read_prior("prior.yaml") == space["prior"]


def test_the_holders_page(releases):
    (block,) = blocks("holder.md", "python")
    space = {"data_frame": people(500, 9)}
    exec(compile(block, "docs/holder.md", "exec"), space)
    assert space["published"].release.n == 500
