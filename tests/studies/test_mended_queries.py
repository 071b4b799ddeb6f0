"""Attacks by queries work where somebody answers for the query: it is the check that stops them."""

from __future__ import annotations

import pytest

from studies.mended.queries import ATTACKS, Attack, carried_out


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_works_if_it_is_attested(name, tmp_path):
    assert carried_out(tmp_path, ATTACKS[name], attested_by="the tests") is not None


def test_an_honest_query_is_published_and_is_no_attack(tmp_path):
    honest = Attack("SELECT salary AS c, id * 0 AS y FROM people WHERE salary > 1000")
    for folder in (tmp_path / "rows", tmp_path / "ids"):
        folder.mkdir()
    assert carried_out(tmp_path / "rows", honest) is None
    assert (tmp_path / "rows" / "high.duckdb").exists()  # both were published
    by_id = "SELECT p.id, v.salary AS c, 0 AS y FROM people AS p JOIN visits AS v ON p.id = v.id"
    assert carried_out(tmp_path / "ids", Attack(by_id, by_id=True)) is None
    assert (tmp_path / "ids" / "high.duckdb").exists()
