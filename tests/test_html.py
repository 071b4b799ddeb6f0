"""What notebooks show of ledgers and plans; the conformance suite has posteriors and Releases."""

from __future__ import annotations

from noisewise import _html
from noisewise.holder.ledger import Ledger
from noisewise.planning.result import Plan, PlanRow
from tests.ledgers import ledger_for


def test_texts_add_no_tags():
    shown = _html.table(("<a>", "b"), [("<script>", "1 & 2")], "x < y")
    for text in ("&lt;a&gt;", "&lt;script&gt;", "1 &amp; 2", "x &lt; y"):
        assert text in shown
    assert "<script>" not in shown + _html.paragraphs(["<script>"])


def test_a_ledger_shows_every_budget(tmp_path):
    with Ledger(ledger_for(tmp_path / "budget.db", "people <b>")) as ledger:
        ledger.set_cap("others", epsilon=2)
        shown = ledger._repr_html_()
    assert "people &lt;b&gt;" in shown
    assert shown.count("<tr>") == 3
    assert "<td>2</td>" in shown


def test_a_plan_shows_its_widths():
    row = PlanRow("laplace", 1.0, 0.0, "age <b>", 0.5, 1.25, 1.0, 1.5, 0.75, 0.4)
    shown = Plan(1000, 0.95, 20, (row,))._repr_html_()
    for text in ("age &lt;b&gt;", "1.25", "1 to 1.5", "0.75", "40%", "1,000 rows"):
        assert text in shown
