"""Parallel composition, by enumerating every output of a small stream.

Each batch publishes its count with two-sided geometric noise. For all neighbouring streams the
largest log ratio over all outputs is the privacy loss, exactly. The ledger's claim for disjoint
batches must cover it, and nearly be it; for people in two batches it must not, which is why those
add up.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from fractions import Fraction

import pytest

from noisewise.core.privacy import PureEvent
from noisewise.holder.ledger import Charge, Ledger

OUTPUTS = range(-8, 10)  # beyond the counts, ratios repeat


def log_mass(count, output, epsilon):
    """Two-sided geometric noise, up to a constant."""
    return -epsilon * abs(output - count)


def worst_loss(streams, neighbour_of, epsilons):
    """Largest log ratio over neighbouring streams and outputs of all batches together."""
    worst = 0.0
    for stream in streams:
        for other in neighbour_of(stream):
            loss = 0.0
            for a, b, epsilon in zip(stream, other, epsilons, strict=True):
                # Noise is independent between batches, so the worst outputs are found one by one.
                loss += max(
                    log_mass(sum(a), o, epsilon) - log_mass(sum(b), o, epsilon) for o in OUTPUTS
                )
            worst = max(worst, loss)
    return worst


def all_streams(sizes):
    """Every stream of batches of these sizes; a row is 0 or 1."""
    return itertools.product(*(itertools.product((0, 1), repeat=size) for size in sizes))


def one_row_replaced(stream):
    for j, batch in enumerate(stream):
        for i, row in enumerate(batch):
            changed = (*batch[:i], 1 - row, *batch[i + 1 :])
            yield (*stream[:j], changed, *stream[j + 1 :])


def first_rows_replaced(stream):
    """One person owns the first row of every batch: what --disjoint declares not to happen."""
    yield tuple((1 - batch[0], *batch[1:]) for batch in stream)


def spent(tmp_path, epsilons, disjoint):
    with Ledger(tmp_path / f"{disjoint}.db") as ledger:
        ledger.set_cap("stream", Fraction(100), Fraction(0))
        for j, epsilon in enumerate(epsilons):
            key = hashlib.sha256(str(j).encode()).hexdigest()
            amount = Fraction(str(epsilon))
            ledger.commit(
                ledger.reserve(
                    Charge(
                        dataset="stream",
                        request_key=key,
                        unit="replace_one/1",
                        event=PureEvent(amount),
                        epsilon=amount,
                        delta=Fraction(0),
                        summary=f"batch {j}",
                        batch=f"b{j}" if disjoint else None,
                    )
                ),
                "text",
            )
        (account,) = ledger.accounts()
        return float(account.spent_epsilon)


@pytest.mark.parametrize("epsilons", [(0.5, 0.5), (0.2, 0.7, 0.4)])
def test_the_ledger_claims_what_the_worst_neighbour_loses(tmp_path, epsilons):
    sizes = (2,) * len(epsilons)
    loss = worst_loss(all_streams(sizes), one_row_replaced, epsilons)
    assert spent(tmp_path, epsilons, disjoint=True) == pytest.approx(loss)
    # Negative control: whoever is in all batches loses the sum; only the plain account covers it.
    shared = worst_loss(all_streams(sizes), first_rows_replaced, epsilons)
    assert shared > loss * 1.3
    assert spent(tmp_path, epsilons, disjoint=False) == pytest.approx(shared)
    assert math.isclose(shared, sum(epsilons))
