"""Parallel composition, by enumerating every output of a small stream.

Each batch publishes its count with two-sided geometric noise. For all neighbouring streams the
largest log ratio over all outputs is the privacy loss, exactly. The ledger's claim for disjoint
batches must cover it, and nearly be it; for people in two batches it must not, which is why those
add up. Two series divide the same people in two ways: there, all ways to do so are tried.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisewise.core.composition import epsilon_of
from noisewise.core.privacy import ComposedEvent, GaussianEvent, PureEvent
from noisewise.core.privacy_filter import Borne, epsilon_spent
from noisewise.holder.ledger import Charge, Ledger
from noisewise.holder.ledger import accounts as exposure
from noisewise.holder.ledger.accounts import total_epsilon

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


def charge(number, event, series=None, batch=None, delta=Fraction(0)):
    amount = Fraction(epsilon_of([event], delta))
    return Charge(
        dataset="stream",
        request_key=hashlib.sha256(str(number).encode()).hexdigest(),
        unit="replace_one/1",
        event=event,
        epsilon=amount,
        delta=delta,
        summary=f"charge {number}",
        batch=batch,
        series=series,
    )


def spent_by(path, charges):
    with Ledger(path) as ledger:
        ledger.set_cap("stream", Fraction(100), Fraction(0))
        for one in charges:
            ledger.commit(ledger.reserve(one), "text")
        (account,) = ledger.accounts()
        return account.spent_epsilon


def spent(tmp_path, epsilons, disjoint):
    events = [PureEvent(Fraction(str(epsilon))) for epsilon in epsilons]
    series = "s" if disjoint else None
    charges = [charge(j, event, series, f"b{j}") for j, event in enumerate(events)]
    return float(spent_by(tmp_path / f"{disjoint}.db", charges))


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


# --- two series of the same people ---------------------------------------------------------------

BATCHES = (None, "b0", "b1")  # None: in no batch of the series
# (series, batch, epsilon) of every release; without a series it is of everybody.
RELEASES = [
    (None, None, 0.3),
    ("months", "b0", 0.5),
    ("months", "b1", 0.2),
    ("months", "b1", 0.4),
    ("weeks", "b0", 0.7),
    ("weeks", "b1", 0.1),
]


def takes_part(place, series, batch):
    """Whether a person at this place, a batch of each series, is among the rows of a release."""
    return series is None or place[series] == batch


def worst_loss_of(places):
    """Largest log ratio of all releases together when one person's answer changes."""
    worst = 0.0
    for answers in itertools.product((0, 1), repeat=len(places)):
        for person in range(len(places)):
            other = [*answers[:person], 1 - answers[person], *answers[person + 1 :]]
            loss = 0.0
            for series, batch, epsilon in RELEASES:
                rows = [i for i, place in enumerate(places) if takes_part(place, series, batch)]
                a, b = sum(answers[i] for i in rows), sum(other[i] for i in rows)
                loss += max(log_mass(a, o, epsilon) - log_mass(b, o, epsilon) for o in OUTPUTS)
            worst = max(worst, loss)
    return worst


def test_two_series_over_all_ways_to_spread_three_people(tmp_path):
    places = [
        {"months": month, "weeks": week} for month, week in itertools.product(BATCHES, repeat=2)
    ]
    spreads = list(itertools.combinations_with_replacement(places, 3))
    assert len(spreads) == 165
    losses = [worst_loss_of(spread) for spread in spreads]
    charges = [
        charge(j, PureEvent(Fraction(str(epsilon))), series, batch)
        for j, (series, batch, epsilon) in enumerate(RELEASES)
    ]
    claimed = spent_by(tmp_path / "ledger.db", charges)
    assert claimed == Fraction("1.6")  # 0.3 + (0.2 + 0.4) + 0.7
    assert float(claimed) == pytest.approx(max(losses))  # covered, and attained by somebody
    # Negative control: taking all batches of the data set for disjoint, whatever their series,
    # counts too little. It did, once.
    merged = [
        charge(j, one.event, one.series and "all", one.series and f"{one.series} {one.batch}")
        for j, one in enumerate(charges)
    ]
    assert float(spent_by(tmp_path / "merged.db", merged)) < max(losses) - 0.5


@pytest.mark.parametrize("rule", ["accountants", "filter"])
def test_the_ledger_counts_the_worst_person_of_any_stream(rule):
    """Random charges, and all places that a person can have, without any cleverness."""
    amounts = st.sampled_from(["1/10", "1/7", "1/3", "1/2"])
    leaf = st.one_of(
        st.builds(lambda e: PureEvent(Fraction(e)), amounts),
        st.builds(GaussianEvent, st.sampled_from([4.0, 5.0, 9.0]), st.sampled_from([0.0, 1e-9])),
    )
    event = leaf | st.builds(lambda a, b: ComposedEvent((a, b)), leaf, leaf)
    place = st.tuples(st.sampled_from(["s", "t", "u"]), st.sampled_from(["1", "2", "3"]))
    everybody = st.just((None, None))
    delta = Fraction(1, 10**5)

    def by_brute_force(charges):
        names = sorted({one.series for one in charges if one.series})
        worst = Fraction(0)
        for chosen in itertools.product((None, "1", "2", "3"), repeat=len(names)):
            at = dict(zip(names, chosen, strict=True))
            borne = [
                one.event for one in charges if one.series is None or at[one.series] == one.batch
            ]
            if borne:
                of_all = Borne(len(borne), tuple(borne))
                spent = epsilon_spent(of_all, delta) if rule == "filter" else None
                worst = max(worst, Fraction(epsilon_of(borne, delta) if spent is None else spent))
        return worst

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.tuples(event, place | everybody), min_size=1, max_size=7))
    def check(drawn):
        charges = [
            charge(j, event, series, batch, delta)
            for j, (event, (series, batch)) in enumerate(drawn)
        ]
        counted = Fraction(total_epsilon(exposure.exposures(charges), delta, rule))
        expected = by_brute_force(charges)
        # Accountants search to ten digits, and not from the same events in the same order.
        assert abs(counted - expected) <= expected * Fraction(1, 10**6)

    check()


def test_too_many_choices_count_more_and_never_less(monkeypatch):
    """Batches that don't cover each other, in so many series that their choices are merged."""
    profiles = [("1/2",), ("1/3", "1/3"), ("1/5", "1/5", "1/5")]
    charges = [
        charge(f"{s} {b} {e}", PureEvent(Fraction(epsilon)), f"s{s}", f"b{b}")
        for s in range(4)
        for b, profile in enumerate(profiles)
        for e, epsilon in enumerate(profile)
    ]
    exact = 4 * Fraction(2, 3)
    monkeypatch.setattr(exposure, "MOST_CASES", 3**4)
    assert len(exposure.exposures(charges)) == 81
    assert total_epsilon(exposure.exposures(charges), Fraction(0), "filter") == exact
    monkeypatch.setattr(exposure, "MOST_CASES", 10)
    cases = exposure.exposures(charges)
    assert len(cases) == 9
    merged = Fraction(1, 2) + Fraction(1, 3) + Fraction(1, 5)
    assert total_epsilon(cases, Fraction(0), "filter") == exact + 2 * (merged - Fraction(2, 3))
    # A single series is never merged, so it costs what it did before there were several.
    alone = [one for one in charges if one.series == "s0"]
    monkeypatch.setattr(exposure, "MOST_CASES", 1)
    assert len(exposure.exposures(alone)) == 3


@given(
    st.lists(
        st.lists(
            st.builds(PureEvent, st.fractions(Fraction(1, 9), 1, max_denominator=9))
            | st.builds(GaussianEvent, st.floats(1, 9), st.floats(0, 0.5)),
            max_size=4,
        ),
        min_size=2,
        max_size=2,
    )
)
def test_the_entrywise_maximum_covers_both(pair):
    a, b = map(exposure.Exposure.of, pair)
    joined = a.joined(b)
    assert joined == b.joined(a)
    assert joined.charges == max(len(one) for one in pair)
    assert joined.covers(a)
    assert joined.covers(b)
    assert a.covers(b) == (joined == a)
    for part in (a, b):  # entry by entry, from the definition
        assert all(x >= y for x, y in zip(joined.pure, part.pure, strict=False))
        assert len(joined.pure) >= len(part.pure)
        assert all(
            x[0] <= y[0] and x[1] >= y[1]
            for x, y in zip(joined.gaussian, part.gaussian, strict=False)
        )
        assert len(joined.gaussian) >= len(part.gaussian)
