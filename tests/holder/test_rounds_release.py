"""Releases in rounds: from rows to a file and back, with one charge, and through kills."""

from __future__ import annotations

import copy
import json
import os
import signal
from fractions import Fraction
from importlib import resources

import jsonschema
import numpy as np
import pytest

from noisewise.core.composition import satisfies
from noisewise.core.document import digest_of
from noisewise.core.errors import DataError, ReleaseError, RequestError
from noisewise.core.kinds.regression import Release, observed_moments
from noisewise.core.kinds.rounds import spent
from noisewise.core.privacy import GaussianEvent
from noisewise.core.rounds.estimate import least_squares, mean_and_covariance
from noisewise.core.rounds.plan import CountTail, Explore, Finish, Spread
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.ledger import Ledger
from noisewise.holder.mechanisms.gaussian import GaussianMechanism
from noisewise.holder.partition import Partition
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import Request, make_request
from noisewise.holder.requests.rounds import Begun, RoundsRequest

from ..ledgers import ledger_for

JSON_SCHEMA = json.loads(
    resources.files("noisewise.core.kinds").joinpath("release.schema.json").read_text("utf-8")
)
ROWS = 20_000


def make_schema(**changes):
    columns = {
        "age": Number(0, 200),
        "region": Category(("n", "s", "w"), "n"),
        "hours": Number(-100, 100),
        "income": Number(-500, 1500),
    }
    return Schema("people", columns, **changes)


def table(n=ROWS, seed=1):
    rng = np.random.default_rng(seed)
    age, hours = rng.normal(45, 9, n), rng.normal(38, 4, n)
    region = rng.choice(["n", "s", "w"], p=[0.6, 0.37, 0.03], size=n)
    income = 5 * age + 3 * hours + 20 * (region == "w") + rng.normal(0, 30, n)
    return {"age": age, "region": region, "hours": hours, "income": income}


def asked(schema=None, **words):
    given = {"epsilon": 1, "delta": "1e-6", "rounds": "auto", **words}
    features = ["age", "region", "hours"]
    return make_request(schema or make_schema(), target="income", features=features, **given)


def slopes(release):
    """Least squares of the first measurement and the last round, on unit scale."""
    design, rounds = release.design, release.rounds
    n = release.n
    last = rounds.last.observed(design)
    base = last.map.copy()
    base[0] /= base[0, 0]
    back = np.linalg.inv(base)
    first = observed_moments(release.second_moments, design)
    _, covariance = mean_and_covariance(back @ least_squares([first, last], base, n) @ back.T)
    return np.linalg.solve(covariance[:-1, :-1], covariance[:-1, -1])


def ols(data):
    n = len(data["age"])
    x = np.column_stack(
        [
            np.ones(n),
            data["age"] / 100,
            data["region"] == "s",
            data["region"] == "w",
            data["hours"] / 100,
        ]
    )
    y = data["income"] / 1000
    inverse = np.linalg.inv(x.T @ x)
    coefficients = inverse @ x.T @ y
    residual = y - x @ coefficients
    return coefficients[1:], np.sqrt(np.diag(inverse) * (residual @ residual) / n)[1:]


@pytest.fixture(scope="module", params=[1, 6], ids=["without residuals", "with residuals"])
def published(request, tmp_path_factory):
    return published_at(request.param, tmp_path_factory)


@pytest.fixture(scope="module")
def with_residuals(tmp_path_factory):
    return published_at(6, tmp_path_factory)


def published_at(epsilon, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rounds")
    ledger = ledger_for(folder / "budget.db")
    request = asked(epsilon=epsilon)
    release = publish(request, table(), ledger=ledger, out=folder / "release.json").release
    return request, release, ledger, folder / "release.json"


# --- what is published ----------------------------------------------------------------------------


def test_a_release_in_rounds_is_read_back_whole(published):
    request, release, _, path = published
    assert isinstance(request, RoundsRequest)
    text = path.read_text("utf-8")
    assert Release.from_text(text) == release
    jsonschema.validate(json.loads(text), JSON_SCHEMA)
    assert len(text.encode()) <= request.longest()
    assert release.n == ROWS
    assert release.rounds is not None
    assert 1 <= len(release.rounds.explored) <= 8
    assert (release.rounds.residuals is None) == (request.claim.epsilon == 1)


def test_the_noise_of_all_rounds_is_what_was_charged(published):
    _, release, ledger, _ = published
    first = release.second_moments
    own = (first.sensitivity, first.scale, first.scale, len(first.values))
    squares, slack = spent([own, *release.rounds.noises])
    allowed = 1 / Fraction(release.event.noise_multiplier) ** 2
    assert squares <= allowed
    assert squares >= allowed * (1 - Fraction(1, 10**6))  # nothing is left unused
    assert slack <= release.event.slack
    assert satisfies([release.event], release.claim)
    with Ledger(ledger) as budget:
        (account,) = budget.accounts()
        (charge,) = account.charges
    assert charge.charge.event == release.event
    assert charge.status == "published"


def test_the_same_request_costs_nothing_and_reads_nothing(published):
    request, release, ledger, _ = published
    again = publish(request, {name: [] for name in table()}, ledger=ledger)
    assert again.repeated
    assert again.release == release


def test_rounds_find_the_slopes(tmp_path):
    """All of it, with the holder's noise: one round in the bounds is off by far more."""
    ledger, data = ledger_for(tmp_path / "budget.db"), table()
    truth, se = ols(data)
    errors = []
    for k in range(6):
        release = publish(asked(label=str(k)), data, ledger=ledger).release
        errors.append((slopes(release) - truth) / se)
    # The median, because once in a thousand Releases or so noise makes a direction look found that
    # is not: exploring ends early, and the last round has more noise, which the posterior knows.
    assert np.median(np.sqrt(np.mean(np.square(errors), axis=1))) < 2.5


@pytest.mark.parametrize("changes", [{"neighbours": "add_remove_one"}, {"max_rows_per_unit": 2}])
def test_other_units(changes, tmp_path):
    schema = make_schema(**changes)
    data = table()
    release = publish(asked(schema), data, ledger=ledger_for(tmp_path / "budget.db")).release
    assert Release.from_text(release.to_text()) == release
    assert (release.n is None) == ("neighbours" in changes)
    truth, se = ols(data)
    # 2.3 in the mean with two rows a unit, most of it from one slope: six times that is never seen.
    assert np.sqrt(np.mean(np.square((slopes(release) - truth) / se))) < 14


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_engines_sum_the_same(engine):
    from noisewise.holder.engines import open_source

    request, data = asked(epsilon=40), table(3000)
    sums = open_source(data).sums(request.plan())
    kept = [_text(request.begin(sums.n, sums))]
    for _ in range(12):
        step = request.next_step(kept)
        plan = request.step_plan(step)
        here = open_source(data).sums(plan)
        there = open_source(data, engine=engine).sums(plan)
        assert here.n == there.n == 3000
        if isinstance(step, CountTail):
            assert here.counts == there.counts
        else:
            assert (here.inside == there.inside).all()
            assert (here.outside == there.outside).all()
        if isinstance(step, Spread):
            break
        kept.append(_text(request.draw(kept, step, here)))
    assert isinstance(step, Spread)


def _text(drawn):
    assert isinstance(drawn, str)
    return drawn


# --- when there are none --------------------------------------------------------------------------


def test_few_rows_make_an_ordinary_release(tmp_path):
    request = asked()
    needed = request.setting.rows_needed()
    few = publish(request, table(needed - 1), ledger=ledger_for(tmp_path / "few.db")).release
    assert few.rounds is None
    assert Release.from_text(few.to_text()) == few
    # Its noise is that of a request without rounds, but for the slack of the rounds.
    (plain,) = asked(rounds=1).mechanisms
    assert plain.scale <= few.second_moments.scale <= plain.scale * (1 + 1e-6)
    enough = publish(request, table(needed), ledger=ledger_for(tmp_path / "enough.db")).release
    assert enough.rounds is not None


def test_few_rows_whose_number_is_private(tmp_path):
    """Only the first measurement tells; the last round clips nothing and has no tail."""
    request = asked(make_schema(neighbours="add_remove_one"))
    release = publish(request, table(50), ledger=ledger_for(tmp_path / "budget.db")).release
    assert release.rounds.explored == ()
    assert release.rounds.tail is None
    assert release.rounds.rows_beyond(release.design, 50) == (0, 0)
    assert Release.from_text(release.to_text()) == release


def test_one_round_is_the_plain_request():
    assert asked(rounds=1) == asked(rounds="1")
    assert asked(rounds="3") == asked(rounds=3)
    assert isinstance(asked(rounds=1), Request)
    assert len({asked(rounds=r).key for r in (1, "auto", 2, 3)}) == 4


def test_gaussian_noise_has_rounds_by_default():
    assert asked(rounds=None) == asked(rounds="auto")
    assert asked(rounds=None).key == asked(rounds="auto").key
    for words in (
        {"epsilon": 1, "delta": None},
        {"radius": 1.0},
        {"layout": "isometric"},
        {"fourth_moments": "0.2"},
        {"smallest_eigenvalue": "0.2"},
        {"batch": "2026-01", "series": "monthly"},
    ):
        assert isinstance(asked(rounds=None, **words), Request)


def test_many_columns_and_tiny_budgets_have_one_round_by_default():
    for words in ({"epsilon": "0.0009"}, {"epsilon": None, "delta": None, "rho": "1e-7"}):
        assert isinstance(asked(rounds=None, **words), Request)
        assert isinstance(asked(rounds="auto", **words), RoundsRequest)
    for count, kind in ((79, RoundsRequest), (80, Request)):
        names = [f"x{j}" for j in range(count)]
        schema = Schema("people", {name: Number(-1, 1) for name in (*names, "y")})
        words = {"target": "y", "features": names, "epsilon": 1, "delta": "1e-6"}
        assert isinstance(make_request(schema, **words), kind)


def test_words_that_were_charged_for_one_round_are_not_charged_again(tmp_path):
    """Before rounds were the default the same words asked for one."""
    ledger, rows = ledger_for(tmp_path / "budget.db"), table(5000)
    with Ledger(ledger) as budget:
        before = publish(asked(rounds=1), rows, ledger=budget).release
        spent = budget.accounts()
        again = publish(asked(rounds=None), rows, ledger=budget)
        assert again.release == before
        assert again.repeated
        assert budget.accounts() == spent
        new = publish(asked(rounds="auto"), rows, ledger=budget)
        assert new.release.rounds is not None
        assert publish(asked(rounds=None), rows, ledger=budget).release == new.release
    other = ledger_for(tmp_path / "other.db")
    first = publish(asked(rounds=None), rows, ledger=other).release
    assert first.rounds is not None
    publish(asked(rounds=1), rows, ledger=other)
    assert publish(asked(rounds=None), rows, ledger=other).release == first  # its own charge counts


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"rounds": 11}, "from 2 to 10"),
        ({"rounds": 0}, "from 2 to 10"),
        ({"rounds": True}, "whole number"),
        ({"rounds": "some"}, "'auto' or a whole number"),
        ({"delta": None}, "gaussian mechanism"),
        ({"radius": 1.0}, "radius: it does not go with rounds"),
        ({"layout": "isometric"}, "layout: it does not go with rounds"),
        ({"fourth_moments": 0.2}, "fourth_moments: it does not go"),
        ({"smallest_eigenvalue": 0.2}, "smallest_eigenvalue: it does not go"),
        ({"delta": "0.3"}, "no protection"),
        ({"epsilon": "1e-9", "delta": "1e-200"}, "epsilon"),
    ],
)
def test_requests_that_make_no_sense(words, message):
    with pytest.raises(RequestError, match=message):
        asked(**words)


@pytest.mark.parametrize("words", [{"rho": "0.02"}, {"epsilon": "0.05"}, {"epsilon": 80}])
def test_any_claim_can_be_met(words, tmp_path):
    if "rho" in words:
        words = {**words, "epsilon": None, "delta": None}
    request = asked(rounds=3, **words)
    assert satisfies([request.event], request.claim)
    ledger = ledger_for(tmp_path / "budget.db")
    release = publish(request, table(2000), ledger=ledger).release
    assert Release.from_text(release.to_text()) == release


# --- forgeries ------------------------------------------------------------------------------------


def forged(release, change):
    document = copy.deepcopy(release.document)
    change(document)
    document["digest"] = digest_of(document)
    return json.dumps(document)


def _halved(noise):
    for name in ("scale", "off_diagonal_scale"):
        if name in noise:
            noise[name] //= 2


FORGERIES = {
    "last round's noise": lambda d: _halved(d["rounds"]["last"]["noise"]),
    "explored noise": lambda d: _halved(d["rounds"]["explored"][0]["noise"]),
    "tail's noise": lambda d: _halved(d["rounds"]["tail"]["noise"]),
    "first noise": lambda d: _halved(d["measurements"][0]["noise"]),
    "off-diagonal": lambda d: d["rounds"]["last"]["noise"].update(off_diagonal_scale=1 << 21),
    "sensitivity": lambda d: d["rounds"]["last"].update(sensitivity=5),
    "tail's sensitivity": lambda d: d["rounds"]["tail"].update(sensitivity=5),
    "first sensitivity": lambda d: d["measurements"][0].update(sensitivity=5),
    "radius": lambda d: d["rounds"]["last"].update(radius=20_000),
    "weight": lambda d: d["rounds"]["last"].update(weight=30_000),
    "no weight": lambda d: d["rounds"]["last"].update(weight=0),
    "huge radius": lambda d: d["rounds"]["last"].update(radius=65_536),
    "more units": lambda d: d["schema"].update(max_rows_per_unit=2),
    "explored twice": lambda d: d["rounds"]["explored"].append(d["rounds"]["explored"][0]),
    "tail left out": lambda d: d["rounds"].update(tail=None),
    "values": lambda d: d["rounds"]["last"]["values"][0].append(3),
    "a matrix more": lambda d: d["rounds"]["last"]["values"].append([]),
    "other coordinates": lambda d: d["rounds"]["tail"]["transform"]["offset"].reverse(),
    "edges": lambda d: d["rounds"]["tail"]["edges"].reverse(),
    "singular": lambda d: d["rounds"]["last"]["transform"]["matrix"].__setitem__(0, [0, 0, 0]),
    "huge matrix": lambda d: d["rounds"]["last"]["transform"]["matrix"][0].__setitem__(0, 1 << 40),
    "shift": lambda d: d["rounds"]["last"]["transform"]["shift"].__setitem__(0, -3),
    "ragged": lambda d: d["rounds"]["last"]["transform"]["matrix"][0].append(1),
    "family": lambda d: d["rounds"]["last"]["noise"].update(family="discrete_laplace"),
    "unknown key": lambda d: d["rounds"].update(more=1),
    "no rounds": lambda d: d.pop("rounds"),
    "event": lambda d: d["privacy"]["event"].update(noise_multiplier=9.0),
    "slack": lambda d: d["privacy"]["event"].update(slack=1e-20),
    "claim": lambda d: d["privacy"]["claim"].update(epsilon="0.5"),
    "not a list": lambda d: d["rounds"].update(explored={}),
    "text": lambda d: d["rounds"]["last"].update(radius="3000"),
    "residuals' noise": lambda d: _halved(d["rounds"]["residuals"]["noise"]),
    "residuals' sensitivity": lambda d: d["rounds"]["residuals"].update(sensitivity=5),
    "residuals' radius": lambda d: d["rounds"]["residuals"].update(radius=65_536),
    "residuals' values": lambda d: d["rounds"]["residuals"]["values"].pop(),
    "huge direction": lambda d: d["rounds"]["residuals"]["direction"].__setitem__(0, 1 << 23),
    "no target": lambda d: d["rounds"]["residuals"].update(
        direction=[0] * len(d["rounds"]["residuals"]["direction"])
    ),
    "short direction": lambda d: d["rounds"]["residuals"]["direction"].pop(0),
    "no residuals": lambda d: d["rounds"].update(residuals=None),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_rounds_are_refused(with_residuals, name):
    _, release, _, _ = with_residuals
    with pytest.raises(ReleaseError):
        Release.from_text(forged(release, FORGERIES[name]))


def test_other_noisy_values_are_read(published):
    """The control: an edit that leaves the claim alone passes."""
    _, release, _, _ = published

    def change(document):
        document["rounds"]["last"]["values"][0][3] += 12345
        document["rounds"]["tail"]["values"][0] -= 1 << 40

    assert Release.from_text(forged(release, change)).rounds != release.rounds


# --- kills and repetitions ------------------------------------------------------------------------


class Draws:
    """Counts the draws of noise, and stops the run before one of them."""

    def __init__(self, monkeypatch, stop=None):
        self.count, self.stop = 0, stop
        real = GaussianMechanism.add_noise

        def counted(mechanism, sums):
            self.count += 1
            if self.count == self.stop:
                raise KeyboardInterrupt
            return real(mechanism, sums)

        monkeypatch.setattr(GaussianMechanism, "add_noise", counted)


@pytest.mark.parametrize("stop", [1, 2, 3])  # first, tail and last are always drawn
def test_a_stopped_run_goes_on_from_the_rounds_that_are_kept(stop, tmp_path, monkeypatch):
    ledger, request, data = ledger_for(tmp_path / "budget.db"), asked(rounds=4), table()
    with monkeypatch.context() as patch:
        Draws(patch, stop)
        with pytest.raises(KeyboardInterrupt):
            publish(request, data, ledger=ledger)
    with Ledger(ledger) as budget:
        before = budget.accounts()[0]
        kept = before.charges[0].kept
    assert before.charges[0].status == "pending"
    assert len(kept) == stop - 1
    with monkeypatch.context() as patch:
        draws = Draws(patch)
        release = publish(request, data, ledger=ledger).release
    drawn = 1 + len(release.rounds.explored) + 1 + 1  # first, explored, tail, last
    assert draws.count == drawn - len(kept)
    if kept:
        begun = Begun.of(kept)
        assert begun.first == release.second_moments
        assert begun.explored == release.rounds.explored[: len(begun.explored)]
        assert begun.tail in (None, release.rounds.tail)
    with Ledger(ledger) as budget:
        after = budget.accounts()[0]
    assert after.spent_epsilon == before.spent_epsilon
    assert [one.status for one in after.charges] == ["published"]


def test_killed_between_any_two_rounds(tmp_path):
    """A real signal: right after each part is on disk, and the part is in what is published."""
    request, data = asked(rounds=4, epsilon=6), table()
    stages = 0
    for stage in range(12):
        path = ledger_for(tmp_path / f"{stage}.db")
        child = os.fork()
        if child == 0:
            real = Ledger.keep
            done = [0]

            def keep(self, *given, real=real, done=done, stage=stage):
                kept = real(self, *given)
                if done[0] == stage:
                    os.kill(os.getpid(), signal.SIGKILL)
                done[0] += 1
                return kept

            Ledger.keep = keep
            publish(request, data, ledger=path)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            break
        stages += 1
        with Ledger(path) as budget:
            (charge,) = budget.accounts()[0].charges
        assert charge.status == "pending"
        assert len(charge.kept) == stage + 1
        release = publish(request, data, ledger=path).release
        begun = Begun.of(charge.kept)
        assert release.second_moments == begun.first
        assert release.rounds.explored[: len(begun.explored)] == begun.explored
        if begun.tail is not None:
            assert release.rounds.tail == begun.tail
        if begun.last is not None:
            assert release.rounds.last == begun.last
        assert release.rounds.residuals is not None
    assert stages >= 4  # the first measurement, a round, the tail and the last round


def test_two_runs_at_once_publish_one_release(tmp_path):
    """The second finds the first one's rounds, forgets its own draws, and returns its Release."""
    request, data = asked(rounds=3), table(5000)
    path = ledger_for(tmp_path / "budget.db")
    from noisewise.holder.engines import open_source

    sums = open_source(data).sums(request.plan())
    with Ledger(path) as budget:
        mine = budget.reserve(request.charge())
        own = request.begin(sums.n, sums)
        other = publish(request, data, ledger=path).release
        kept = budget.keep(mine, 0, own).kept
        assert own not in kept
        assert Begun.of(kept).first == other.second_moments


def test_other_rows_in_a_later_run_are_noticed(tmp_path, monkeypatch):
    ledger, request = ledger_for(tmp_path / "budget.db"), asked(rounds=3)
    with monkeypatch.context() as patch:
        Draws(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            publish(request, table(), ledger=ledger)
    with pytest.raises(DataError, match="rows are not those that the first pass") as error:
        publish(request, table(ROWS - 1), ledger=ledger)
    assert "stays pending" in str(error.value)
    assert publish(request, table(), ledger=ledger).release.n == ROWS


def test_what_is_drawn_follows_from_what_is_published(published):
    """The transforms of a Release are those that anybody computes from its values."""
    request, release, _, _ = published
    first = json.dumps({"n": release.n, "second_moments": release.second_moments.to_json()})
    kept = [first]
    for one in release.rounds.explored:
        step = request.next_step(kept)
        assert isinstance(step, Explore)
        assert step.shape == one.shape
        kept.append(json.dumps({"explored": one.to_json()}))
    step = request.next_step(kept)
    assert isinstance(step, CountTail)
    assert step.transform == release.rounds.tail.transform
    kept.append(json.dumps({"tail": release.rounds.tail.to_json()}))
    step = request.next_step(kept)
    assert isinstance(step, Finish)
    assert step.shape == release.rounds.last.shape
    spread = release.rounds.residuals
    assert bool(step.residual_share) == (spread is not None)
    if spread is not None:
        kept.append(json.dumps({"last": release.rounds.last.to_json()}))
        step = request.next_step(kept)
        assert step == Spread(release.rounds.last.shape, spread.direction, spread.radius)


def test_the_event_is_one_gaussian(published):
    request, release, _, _ = published
    assert isinstance(release.event, GaussianEvent)
    assert release.event == request.event == request.charge().event


def test_batches_of_a_series_have_no_rounds(tmp_path):
    """Rows of a refused batch would be in rounds that the batch publishes with its own rows."""
    with pytest.raises(RequestError, match="batches of a series can't be made in rounds"):
        asked(batch="may", rounds=3, series="monthly")
    ledger = ledger_for(tmp_path / "budget.db")
    publish(asked(batch="may", rounds=3), table(), ledger=ledger)  # whose cost is added to others'


def test_the_last_round_is_in_the_coordinates_of_the_histogram(tmp_path, monkeypatch):
    """As they were kept: a machine that resumes may work them out with another last digit."""
    ledger = ledger_for(tmp_path / "budget.db")
    real = RoundsRequest.draw

    def stopped_at_the_last(request, kept, step, result):
        if isinstance(step, Finish):
            raise KeyboardInterrupt
        return real(request, kept, step, result)

    with monkeypatch.context() as patch:
        patch.setattr(RoundsRequest, "draw", stopped_at_the_last)
        with pytest.raises(KeyboardInterrupt):
            publish(asked(rounds=4), table(), ledger=ledger)
    monkeypatch.setattr(
        "noisewise.core.rounds.plan._looked_at",
        lambda *given: pytest.fail("the coordinates were worked out again"),
    )
    release = publish(asked(rounds=4), table(), ledger=ledger).release
    assert release.rounds.tail.transform == release.rounds.last.shape.transform


def test_a_partition_has_no_rounds():
    schema = make_schema(neighbours="add_remove_one")
    request = make_request(
        schema, target="income", features=["age"], epsilon=1, delta="1e-6", rounds="auto"
    )
    with pytest.raises(RequestError, match="does not go with rounds"):
        Partition(request, "region", schema)
