"""The attacks on the budget work where what mended them is taken away."""

from __future__ import annotations

import pytest

from noisewise.holder import ledger as ledger_module
from noisewise.holder import publish
from noisewise.holder.ledger import accounts
from studies.mended import ledger as attacks


def test_adaptive_sizes_break_the_former_rule(tmp_path, monkeypatch):
    monkeypatch.setattr(accounts.OpenAccount, "next_rule", "accountants")
    assert "times that of the cap" in (attacks.adaptive_sizes(tmp_path) or "")


def test_without_a_fingerprint_two_tables_make_a_release(tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "is_of", lambda *_: True)
    assert attacks.changed_between_passes(tmp_path) == "a release was made of two tables"


def test_without_a_memory_another_file_is_published(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_module, "moved", lambda *_: False)
    broken = attacks.pending_charge_for_another_file(tmp_path)
    assert broken == "it was published about the other file"


@pytest.mark.parametrize("name", attacks.SCENARIOS)
def test_as_it_is_they_fail(name, tmp_path):
    assert attacks.SCENARIOS[name](tmp_path) is None
