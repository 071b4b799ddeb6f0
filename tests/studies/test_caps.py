"""Caps hold when sizes of charges depend on earlier answers: by exact trees of all answers."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from studies import caps
from studies.caps import CAPS, FIRST, RULES, attack


@pytest.mark.parametrize(("epsilon", "delta"), CAPS)
@pytest.mark.parametrize("first", FIRST, ids=str)
def test_the_filter_holds(epsilon, delta, first):
    adaptive, planned = attack(RULES["filter"], epsilon, delta, first)
    assert planned <= adaptive * (1 + 1e-9) <= 1


@pytest.mark.parametrize(("epsilon", "delta"), CAPS)
def test_the_former_rule_does_not(epsilon, delta):
    """Its caps hold for sizes that were planned, and are exceeded by adaptive ones."""
    found = [attack(RULES["former"], epsilon, delta, first) for first in FIRST]
    assert max(planned for _, planned in found) == pytest.approx(1, abs=1e-4)
    assert max(adaptive for adaptive, _ in found) > 2.5


def test_the_delta_has_to_be_divided():
    """The filter's own certificates, each with all of the delta, are no filter."""
    epsilon, delta = CAPS[0]
    assert attack(RULES["undivided"], epsilon, delta, (0, 0.0, 0.1))[0] > 1.5


def test_the_tree_adds_up():
    """By hand: one response, then another of a size that depends on it."""
    first = caps._answers((1, 0.5, 0.0))
    assert first[1] == pytest.approx([1 / (1 + math.exp(0.5)), 1 / (1 + math.exp(-0.5))])
    assert first[0] == pytest.approx([-0.5, 0.5])
    (found,) = caps._delta_of((1, 0.7, 0.0), caps.np.array([0.2]))
    assert found == pytest.approx((1 - math.exp(0.2 - 0.7)) / (1 + math.exp(-0.7)))


def test_a_quick_run_writes_both_tables(tmp_path):
    facts, table, readable = caps.EXPERIMENT.run(
        tmp_path, caps.Options(True, None, "python -m studies run caps --quick")
    )
    assert facts.exists()
    assert "former" in table.read_text().splitlines()[0]
    text = readable.read_text()
    assert "| 10 laplace |" in text
    assert "undivided" in text
    rows = caps.rows_of(True)
    sizes = {row["charges"]: row for row in rows if row["table"] == "price"}
    # Ten charges of one kind cost hardly more than by the former rule.
    for kind in ("laplace", "gaussian"):
        row = sizes[f"10 {kind}"]
        assert 0.98 * row["former"] < row["filter"] <= row["former"]
    assert Fraction(sizes["5 laplace + 5 rounds"]["filter"]) > 0
