import json
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from noisewise.core.document import dumps
from noisewise.core.errors import ReleaseError
from noisewise.core.schema import Number
from noisewise.federation.gather import Patience, exchange, put_aside, wait_for_nodes
from noisewise.federation.protocol import MAX_RELEASE, Refusal, refusal_fields, release_fields
from noisewise.holder.requests.regression import make_request
from tests.federation.hospital import COLUMNS, FEATURES, proposal
from tests.releases import release_of


def fields(name="north", n=1000, columns=COLUMNS, features=FEATURES):
    from noisewise.core.schema import Schema

    request = make_request(Schema(name, columns), target="stay", features=features, epsilon=1)
    return release_fields(release_of(request, n=n))


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@dataclass
class Reply:
    answer: object
    metadata: SimpleNamespace


class FakeMail:
    """Nodes that answer at given seconds; `answers` maps a node to (second, answer) pairs."""

    def __init__(self, answers, clock, unsendable=()):
        self.answers, self.clock, self.unsendable = answers, clock, unsendable
        self.delivered = set()

    def get_node_ids(self):
        return [node for node, at in self.answers.items() if at <= self.clock.now]

    def push_messages(self, messages):
        return [None if node in self.unsendable else f"m{node}" for node in messages]

    def pull_messages(self, message_ids):
        for node, replies in self.answers.items():
            for number, (second, answer) in enumerate(replies):
                wanted = f"m{node}" in message_ids and (node, number) not in self.delivered
                if wanted and second <= self.clock.now:
                    self.delivered.add((node, number))
                    yield Reply(answer, SimpleNamespace(reply_to_message_id=f"m{node}"))


def anything(release):
    """The check of an analyst whose method takes whatever comes."""


def play(answers, timeout=100.0, grace=10.0, enough=2, unsendable=(), check=anything):
    clock = Clock()
    patience = Patience(timeout, grace, enough, clock, clock.sleep)
    mail = FakeMail(answers, clock, unsendable)
    messages = {node: node for node in answers}
    outcome = exchange(mail, messages, lambda reply: reply.answer, proposal(), check, patience)
    return outcome, clock.now


def test_all_answers_end_the_round_at_once():
    outcome, seconds = play({1: [(2, fields("a"))], 2: [(5, fields("b"))]}, enough=1)
    assert sorted(outcome.accepted) == [1, 2]
    assert not outcome.missing
    assert seconds <= 6


def test_the_late_have_a_grace_period_after_enough_answers():
    answers = {1: [(2, fields("a"))], 2: [(4, fields("b"))], 3: [(9, fields("c"))], 4: [(60, {})]}
    outcome, seconds = play(answers)
    assert sorted(outcome.accepted) == [1, 2, 3]
    assert "did not answer in time" in outcome.missing[4]
    assert 13 <= seconds <= 15


def test_with_too_few_answers_the_whole_timeout_is_waited():
    outcome, seconds = play({1: [(2, fields("a"))], 2: []})
    assert sorted(outcome.accepted) == [1]
    assert seconds == pytest.approx(100)


@pytest.mark.parametrize("refusal", Refusal)
def test_refusals_are_told_in_words(refusal):
    outcome, _ = play({1: [(1, refusal_fields(refusal))]})
    assert not outcome.accepted
    assert len(outcome.missing[1]) > len("refused")
    assert outcome.lines() == [f"node 1: {outcome.missing[1]}"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({}, "unknown version"),
        ({"version": 1, "status": "release", "release": "{}"}, "not a valid Release"),
        ({"version": 1, "status": "release", "release": "x" * (MAX_RELEASE + 1)}, "more than"),
        ({**fields(), "more": "rows"}, "neither a Release nor a refusal"),
        ("went offline", "went offline"),
        (fields(columns={**COLUMNS, "age": Number(0, 120)}), "'age' with other bounds"),
        (fields(features=["age", "severity"]), "without the column 'emergency'"),
    ],
)
def test_what_does_not_count_leaves_the_others_alone(answer, says):
    outcome, _ = play({1: [(1, answer)], 2: [(1, fields("b"))], 3: [(1, fields("c"))]})
    assert sorted(outcome.accepted) == [2, 3]
    assert says in outcome.missing[1]


class Hostile(dict):
    """Fields that fail when they are looked at."""

    def get(self, key, default=None):
        raise RuntimeError("x" * 10_000 + "\ud800")


def forged(change):
    document = json.loads(fields("a")["release"])
    change(document)
    document.pop("digest")
    return {**fields("a"), "release": dumps(document)}


HOSTILE = {
    "none": None,
    "number": 7,
    "list": [1, 2],
    "bytes": b"\xff\xfe",
    "fields that fail": Hostile(),
    "unhashable words": {"version": 1, "status": ["release"], "release": "{}"},
    "release as bytes": {"version": 1, "status": "release", "release": b"\xff"},
    "words that cannot be written": "went \ud800 off\x1b[2J" + "x" * 10**6,
    "deep": {"version": 1, "status": "release", "release": "[" * 100_000},
    "deep objects": {"version": 1, "status": "release", "release": '{"a":' * 900 + "1" + "}" * 900},
    "huge": {"version": 1, "status": "release", "release": "9" * (MAX_RELEASE - 1)},
    "keys": {"version": 1, "status": "release", "release": '{"\\ud800": 1}'},
    "label": forged(lambda d: d.update(label="\ud800")),
    "software": forged(lambda d: d.update(software="\x1b[2J")),
    "dataset": forged(lambda d: d["schema"].update(dataset="\u202egnp.exe")),
    "list for a name": forged(lambda d: d.update(target=["stay"])),
    "object for a number": forged(lambda d: d["measurements"][0].update(sensitivity={})),
    "numbers for measurements": forged(lambda d: d.update(measurements=[1, 2])),
    "list for a claim": forged(lambda d: d["privacy"].update(claim=[])),
    "object in a geometry": forged(lambda d: d.update(geometry={"kind": {}, "radius": []})),
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=list(HOSTILE))
def test_no_answer_ends_the_round(answer):
    outcome, _ = play({1: [(1, answer)], 2: [(1, fields("b"))], 3: [(1, fields("c"))]})
    assert sorted(outcome.accepted) == [2, 3]
    assert 0 < len(outcome.missing[1]) < 1000
    assert outcome.missing[1].isprintable()
    "\n".join(outcome.lines()).encode("utf-8")


def test_a_reply_that_cannot_be_opened_or_fetched_is_its_nodes_alone():
    clock = Clock()

    class Mail(FakeMail):
        def pull_messages(self, message_ids):
            if "m1" in message_ids:
                raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
            yield from super().pull_messages(message_ids)
            yield SimpleNamespace()  # no reply at all

    def open_reply(reply):
        if reply.answer == "bad":
            raise KeyError("\ud800")
        return reply.answer

    answers = {1: [], 2: [(1, "bad")], 3: [(1, fields("c"))], 4: [(1, fields("d"))]}
    patience = Patience(20, 2, 2, clock, clock.sleep)
    outcome = exchange(
        Mail(answers, clock), {n: n for n in answers}, open_reply, proposal(), anything, patience
    )
    assert sorted(outcome.accepted) == [3, 4]
    assert "cannot be fetched (UnicodeDecodeError)" in outcome.missing[1]
    assert "cannot be opened (KeyError)" in outcome.missing[2]


def test_a_release_that_cannot_be_fitted_counts_as_missing_and_not_as_enough():
    def check(release):
        if release.n < 10:
            raise ReleaseError(f"the Release of data set 'a' has {release.n} rows")
        if release.n > 5000:
            raise FloatingPointError("overflow")

    answers = {
        1: [(1, fields("a", n=3))],
        2: [(1, fields("b", n=6000))],
        3: [(2, fields("c"))],
        4: [(50, fields("d"))],
    }
    outcome, _ = play(answers, enough=2, check=check)
    assert sorted(outcome.accepted) == [3, 4]  # the fourth is waited for: two do not count
    assert outcome.missing[1] == (
        "sent a Release that cannot be fitted: the Release of data set 'a' has 3 rows"
    )
    assert outcome.missing[2] == (
        "sent a Release of data set 'b' that cannot be fitted (FloatingPointError: overflow)"
    )


def test_the_same_release_from_two_nodes_counts_once():
    outcome, _ = play({1: [(1, fields("a"))], 2: [(1, fields("a"))], 3: [(1, fields("b"))]})
    assert sorted(outcome.accepted) == [1, 3]
    assert "same Release as node 1" in outcome.missing[2]


def test_a_second_reply_of_a_node_is_ignored():
    outcome, _ = play({1: [(1, fields("a")), (1, fields("z"))], 2: [(3, fields("b"))]})
    assert outcome.accepted[1].design.schema.dataset == "a"
    assert any("answered more than once" in note for note in outcome.notes)


def test_a_proposal_that_could_not_be_sent_is_told():
    outcome, _ = play({1: [(1, fields("a"))], 2: []}, unsendable=[2], enough=1)
    assert "could not be sent" in outcome.missing[2]


def test_nodes_are_waited_for_but_not_forever():
    clock = Clock()
    patience = Patience(30, 0, 3, clock, clock.sleep)
    mail = FakeMail({1: 0, 2: 10, 3: 50}, clock)
    assert wait_for_nodes(mail, 2, patience) == [1, 2]
    assert clock.now == 10
    assert wait_for_nodes(mail, 3, patience) == [1, 2]
    assert clock.now == 40


def test_nodes_are_called_by_their_names():
    """A name stands beside the number: nobody vouches for it."""
    answers = {
        1: [(1, {**fields("a"), "name": "Hospital north"})],
        2: [(1, {**refusal_fields(Refusal.REFUSED), "name": "Hospital north"})],
        3: [(1, {**fields("c"), "name": "\x1b[2J"})],
        4: [(1, {**fields("d"), "name": "n" * 61})],
        5: [(1, {**fields("e"), "name": 7})],
    }
    outcome, _ = play(answers)
    assert outcome.names == {1: "Hospital north", 2: "Hospital north"}
    told = outcome.lines()
    assert told[0].startswith("Hospital north (node 1): Release of ")
    assert any(line.startswith("Hospital north (node 2): ") for line in told)
    assert sorted(outcome.accepted) == [1, 3, 4, 5]
    assert all(line.isprintable() for line in told)


def test_what_is_put_aside_replaces_nothing(tmp_path):
    earlier, file = tmp_path / "earlier", tmp_path / "posterior.nc"
    put_aside(file, earlier)
    assert not earlier.exists()
    for content in ("first", "second", "third", "second"):
        file.write_text(content)
        put_aside(file, earlier)
        assert not file.exists()
    kept = {path.name: path.read_text() for path in earlier.iterdir()}
    assert kept == {
        "posterior.nc": "first",
        "posterior-2.nc": "second",
        "posterior-3.nc": "third",
    }
