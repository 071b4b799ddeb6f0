"""The study of blocks that fit models: its table, and what was committed."""

from __future__ import annotations

from studies import block_models

from .test_zhang2016 import committed


def test_the_table_counts_what_holds():
    records = [
        {
            "trial": k,
            "blocks": 130,
            "all rows": [0.7 + 0.01 * k, 0.9 + 0.01 * k],
            "mean": [0.5, 1.0],
            "noise ignored": [0.81, 0.9] if k % 2 else [0.7, 0.9],
        }
        for k in range(4)
    ]
    rows = block_models.table_of({"logistic": records})
    assert [row["held"] for row in rows] == [1.0, 1.0, 0.5]
    assert "| logistic | 0.8 | 4 | 0.150 | 1.000" in block_models.markdown(rows)


def test_what_the_committed_models_show():
    """Every model holds its level, and taking released numbers for exact doesn't."""
    rows = committed("block-models.csv")
    assert {row["model"] for row in rows} == set(block_models.CASES)
    for row in rows:
        if row["method"] == "mean":
            assert row["held"] > 0.9 - 3 * row["held_error"], row
    ignored = [row["held"] for row in rows if row["method"] == "noise ignored"]
    assert sum(ignored) / len(ignored) < 0.8
