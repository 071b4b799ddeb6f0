"""Both Flower apps in one process, with every message that leaves a holder under inspection."""

import json
import shutil
from fractions import Fraction

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'noisewise[federation]'")

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from noisewise.analyst.posterior.file import load_posterior
from noisewise.core.document import dumps
from noisewise.core.errors import RequestError
from noisewise.core.kinds import load_release
from noisewise.core.schema import Schema
from noisewise.core.yaml_files import write_schema
from noisewise.federation import apps
from noisewise.federation.gather import collect
from noisewise.federation.policy import PolicyError, answer, rehearse
from noisewise.federation.protocol import RECORD
from noisewise.holder.keys import new_key
from noisewise.holder.ledger import Ledger
from tests.federation.hospital import (
    COLUMNS,
    ROWS,
    account,
    assert_only_a_release_or_a_refusal,
    charges,
    csv_text,
    make_hospital,
    proposal,
)
from tests.federation.test_answer import ASKED, BAD_DATA

AUTO = {"method": "auto", "chains": 2}


def context(run_config=None, **node_config):
    return Context(
        run_id=1,
        node_id=1,
        node_config={key: str(value) for key, value in node_config.items()},
        state=RecordDict(),
        run_config=run_config or {},
    )


@pytest.fixture(autouse=True)
def _as_a_task_of_flower():
    """Messages can be made inside Flower's processes only; those set this identity first."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


def ask(policy, content=ASKED, kind="query"):
    if not isinstance(content, RecordDict):
        content = RecordDict({RECORD: ConfigRecord({"proposal": content})})
    return apps.client(Message(content, 7, kind), context(policy=policy))


def inspected(reply):
    """The fields of a reply, once everything in it is known to be an answer and nothing else."""
    assert not reply.has_error()
    assert list(reply.content) == [RECORD]
    assert list(reply.content.config_records) == [RECORD]
    assert not reply.content.array_records
    assert not reply.content.metric_records
    fields = dict(reply.content.config_records[RECORD])
    assert_only_a_release_or_a_refusal(fields)
    return fields


def test_a_release_crosses_and_nothing_else(tmp_path):
    fields = inspected(ask(make_hospital(tmp_path)))
    assert fields["status"] == "release"


def test_all_bad_data_look_alike_from_outside(tmp_path):
    """Byte for byte the same content, whatever is wrong with the rows or the budget."""
    policies = [
        make_hospital(tmp_path / str(number), data=data)
        for number, data in enumerate(BAD_DATA.values())
    ]
    policies.append(make_hospital(tmp_path / "spent", cap="0.5"))
    policies.append(make_hospital(tmp_path / "no-ledger", cap=None))
    replies = [ask(policy) for policy in policies]
    assert {json.dumps(inspected(reply)) for reply in replies} == {
        '{"version": 1, "status": "refused", "code": "refused"}'
    }
    assert len({reply.content.object_id for reply in replies}) == 1
    # The frame around the content tells them apart no better.
    assert len({(r.metadata.message_type, r.metadata.group_id) for r in replies}) == 1


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"other": ConfigRecord({"proposal": ASKED})}),
        RecordDict({RECORD: ConfigRecord({"policy": "/etc/passwd"})}),
        RecordDict({RECORD: MetricRecord({"proposal": 1})}),
        "nonsense",
        b"bytes",
        3,
    ],
)
def test_rubbish_from_the_server_is_a_bad_proposal(tmp_path, content):
    assert inspected(ask(make_hospital(tmp_path), content))["code"] == "bad_proposal"
    assert charges(tmp_path) == []


def test_the_server_cannot_name_the_policy(tmp_path, monkeypatch):
    """Settings of the run are the server's, and the ClientApp looks at none of them."""
    monkeypatch.setattr("noisewise.federation.policy.DEFAULT_REPLY_EVERY", 0)
    policy = make_hospital(tmp_path)
    message = Message(RecordDict({RECORD: ConfigRecord({"proposal": ASKED})}), 7, "query")
    reply = apps.client(message, context(run_config={"policy": str(policy)}))
    assert inspected(reply)["code"] == "refused"
    assert charges(tmp_path) == []


def test_other_kinds_of_messages_never_reach_the_data(tmp_path):
    """Flower reports this error to the server; its text is the server's own word."""
    policy = make_hospital(tmp_path)
    for kind in ("train", "evaluate", "query.rows"):
        with pytest.raises(ValueError, match=r"No \w+ function registered") as caught:
            ask(policy, kind=kind)
        assert str(tmp_path) not in str(caught.value)
    assert charges(tmp_path) == []


class Grid:
    """Delivers to ClientApps in this process and keeps every reply; `None` is a dead node."""

    def __init__(self, policies):
        self.policies, self.replies = policies, []

    def get_node_ids(self):
        return list(self.policies)

    def push_messages(self, messages):
        self.sent = {f"m{m.metadata.dst_node_id}": m for m in messages}
        return list(self.sent)

    def pull_messages(self, message_ids):
        replies = []
        for key in message_ids:
            message = self.sent.pop(key, None)
            if message is None:
                continue
            message.metadata.__dict__["_message_id"] = key
            policy = self.policies[message.metadata.dst_node_id]
            if callable(policy):
                replies.append(Message(policy(), reply_to=message))
            elif policy is not None:
                replies.append(apps.client(message, context(policy=policy)))
        self.replies += replies
        return replies


@pytest.fixture
def config(tmp_path):
    write_schema(Schema("study", COLUMNS), tmp_path / "study.yaml")
    return {
        "schema": str(tmp_path / "study.yaml"),
        "target": "stay",
        "features": "age,severity,emergency",
        "out": str(tmp_path / "out"),
        "holders": 3,
        "minimum-holders": 2,
        "connect-seconds": 0,
        "timeout-seconds": 2,
        "grace-seconds": 0,
        "method": "naive",  # quick; the posterior itself is the analyst's tests' business
        "draws": 100,
        "seed": 1,
    }


def test_a_round_with_every_kind_of_trouble(tmp_path, config):
    nodes = {
        1: make_hospital(tmp_path / "a", name="a"),
        2: make_hospital(tmp_path / "b", name="b", epsilon="0.5"),
        3: make_hospital(tmp_path / "c", name="c", data=BAD_DATA["a missing value"]),
        4: tmp_path / "a" / "policy.yaml",  # the same holder, connected twice
        5: lambda: Error(2, "<class 'ValueError'>:<'63 is not a region'>"),
        6: lambda: RecordDict({"rows": ArrayRecord()}),
        7: None,
    }
    grid = Grid(nodes)
    apps.main(grid, context(config))
    for reply in grid.replies:
        if reply.metadata.src_node_id not in (5, 6):
            inspected(reply)
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert [entry["dataset"] for entry in report["accepted"]] == ["a", "b"]
    missing = {entry["node"]: entry["why"] for entry in report["missing"]}
    assert sorted(missing) == [3, 4, 5, 6, 7]
    assert "only its own log" in missing[3]
    assert "same Release as node 1" in missing[4]
    assert missing[5] == "its ClientApp failed; its own log says why"
    assert "something other than an answer" in missing[6]
    assert "in time" in missing[7]
    posterior = load_posterior(tmp_path / "out" / report["posterior"])
    assert posterior.info.n == (200, 200)
    files = collect([tmp_path / "out" / "releases"]).releases
    assert sorted(r.digest for r in files.values()) == sorted(posterior.info.digests)
    assert account(tmp_path / "a").spent_epsilon == 1
    assert account(tmp_path / "c").spent_epsilon == 1  # its charge is pending


def test_another_round_costs_nothing_and_gives_the_same_posterior(tmp_path, config):
    nodes = {n: make_hospital(tmp_path / str(n), name=f"h{n}") for n in (1, 2)}
    draws = []
    for order in ((1, 2), (2, 1)):
        apps.main(Grid({n: nodes[n] for n in order}), context(config))
        draws.append(load_posterior(tmp_path / "out" / "posterior.nc").theta)
    assert (draws[0] == draws[1]).all()
    assert [account(tmp_path / str(n)).spent_epsilon for n in (1, 2)] == [1, 1]
    assert len(list((tmp_path / "out" / "releases").iterdir())) == 2


def test_too_few_holders_are_told_and_nothing_is_fitted(tmp_path, config):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "posterior.nc").write_text("of an earlier round")
    grid = Grid({1: make_hospital(tmp_path / "a"), 2: make_hospital(tmp_path / "b", cap="0.1")})
    with pytest.raises(apps.TooFewHoldersError, match="1 of at least 2") as caught:
        apps.main(grid, context(config))
    assert "node 2: refused" in str(caught.value)
    assert "1 of 3 expected holders never connected" in str(caught.value)
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert report["posterior"] is None
    assert not (tmp_path / "out" / "posterior.nc").exists()
    aside = tmp_path / "out" / "earlier" / "posterior.nc"
    assert aside.read_text() == "of an earlier round"
    file = tmp_path / "out" / report["accepted"][0]["file"]
    assert load_release(file).digest == report["accepted"][0]["digest"]


def report(tmp_path):
    return json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))


def forged(policy, **changes):
    """A node whose owner edits its Release by hand, and lets it stand for another data set."""

    def reply():
        document = json.loads(answer(ASKED, str(policy))["release"])
        del document["digest"]
        document["schema"]["dataset"] = "forged"
        document["n"] = changes.get("n", document["n"])
        if "values" in changes:
            values = document["measurements"][0]["values"]
            document["measurements"][0]["values"] = [changes["values"]] * len(values)
        fields = {"version": 1, "status": "release", "release": dumps(document)}
        return RecordDict({RECORD: ConfigRecord(fields)})

    return reply


def unfit(tmp_path, kind):
    """A node whose Release is valid as a document and cannot be fitted."""
    if kind == "few rows":
        return make_hospital(tmp_path / "c", name="small", data=csv_text(ROWS[:3]))
    policy = make_hospital(tmp_path / "c", name="c")
    return forged(policy, n=1) if kind == "forged n" else forged(policy, values=2**62)


@pytest.mark.parametrize(
    ("kind", "method", "says"),
    [
        ("few rows", "auto", "data set 'small' has 3 rows and 4 columns"),
        ("few rows", "gibbs_update", "data set 'small'"),
        ("forged n", "auto", "data set 'forged'"),  # whether noise explains it or not
        ("forged values", "naive", "data set 'forged' cannot come from rows"),
        ("forged values", "auto", "data set 'forged' cannot come from rows"),
    ],
)
def test_a_release_that_cannot_be_fitted_does_not_stop_the_others(
    tmp_path, config, monkeypatch, kind, method, says
):
    fitted = []
    monkeypatch.setattr(apps, "fit_releases", lambda outcome, *_: fitted.append(outcome))
    nodes = {n: make_hospital(tmp_path / str(n), name=f"h{n}") for n in (1, 2)}
    apps.main(Grid({9: unfit(tmp_path, kind), **nodes}), context({**config, "method": method}))
    (outcome,) = fitted
    assert sorted(outcome.accepted) == [1, 2]
    assert list(outcome.missing) == [9]
    told = report(tmp_path)
    assert [entry["dataset"] for entry in told["accepted"]] == ["h1", "h2"]
    assert told["missing"] == [{"node": 9, "name": None, "why": outcome.missing[9]}]
    assert "sent a Release that cannot be fitted" in outcome.missing[9]
    assert says in outcome.missing[9]
    assert len(list((tmp_path / "out" / "releases").iterdir())) == 2


def test_the_rest_is_fitted(tmp_path, config):
    nodes = {n: make_hospital(tmp_path / str(n), name=f"h{n}") for n in (1, 2)}
    apps.main(Grid({9: unfit(tmp_path, "few rows"), **nodes}), context(config | AUTO))
    posterior = load_posterior(tmp_path / "out" / report(tmp_path)["posterior"])
    assert posterior.info.datasets in (("h1", "h2"), ("h2", "h1"))
    assert report(tmp_path)["error"] is None


def test_noise_that_the_method_does_not_take_is_the_holders_own_matter(tmp_path, config):
    """Two holders with Gaussian noise, one with Laplace noise, and a method for Gaussian noise."""
    rule = "- {target: stay, features: [age, severity, emergency], epsilon: 1, delta: 1e-6, "
    rule += "rounds: 1}"
    nodes = {}
    for n in (1, 2):
        nodes[n] = make_hospital(tmp_path / str(n), name=f"h{n}", rules=rule)
        with Ledger(tmp_path / str(n) / "budget.db") as ledger:
            ledger.set_cap(f"h{n}", Fraction(2), Fraction("1e-5"))
    nodes[3] = make_hospital(tmp_path / "3", name="laplace")
    apps.main(Grid(nodes), context(config | {"method": "fixed_s_fast"}))
    told = report(tmp_path)
    assert told["posterior"] == "posterior.nc"
    assert [entry["dataset"] for entry in told["accepted"]] == ["h1", "h2"]
    ((node, why),) = [(entry["node"], entry["why"]) for entry in told["missing"]]
    assert node == 3
    assert "'laplace' added Laplace noise" in why


def test_with_too_few_that_can_be_fitted_the_report_says_why(tmp_path, config):
    nodes = {9: unfit(tmp_path, "forged values"), 1: make_hospital(tmp_path / "1", name="h1")}
    with pytest.raises(apps.TooFewHoldersError, match="1 of at least 2 holders"):
        apps.main(Grid(nodes), context(config | AUTO))
    told = report(tmp_path)
    assert told["posterior"] is None
    assert "1 of at least 2 holders" in told["error"]
    assert "node 9: sent a Release that cannot be fitted" in told["error"]


def test_a_fit_that_fails_is_in_the_report(tmp_path, config, monkeypatch):
    """Whatever it fails with, and with no posterior left behind."""
    nodes = {n: make_hospital(tmp_path / str(n), name=f"h{n}") for n in (1, 2)}
    named = []

    def fail(releases, *, names, **_options):
        named.extend(names)
        raise FloatingPointError(f"{names[0]} is beyond all bounds")

    monkeypatch.setattr("noisewise.analyst.fit.fit", fail)
    with pytest.raises(apps.NoPosteriorError, match="FloatingPointError"):
        apps.main(Grid(nodes), context(config))
    assert sorted(named) == ["node 1", "node 2"]
    told = report(tmp_path)
    assert told["posterior"] is None
    assert "FloatingPointError" in told["error"]
    assert f"{named[0]} is beyond all bounds" in told["error"]
    assert not (tmp_path / "out" / "posterior.nc").exists()


def test_nodes_that_contradict_each_other_are_named(tmp_path, config):
    """The order in which Releases are fitted is that of their digests, which tells nobody."""
    rows = [(age, severity, emergency, 39) for age, severity, emergency, _ in ROWS * 400]
    nodes = {
        1: make_hospital(tmp_path / "1", name="h1", data=csv_text(ROWS * 400)),
        2: make_hospital(tmp_path / "2", name="h2", data=csv_text(rows)),
    }
    with pytest.raises(apps.NoPosteriorError, match=r"node 2 \(data set 'h2'\).*contradict"):
        apps.main(Grid(nodes), context(config | AUTO))


def test_a_word_that_no_fit_would_take_costs_nobody_anything(tmp_path, config):
    nodes = {n: make_hospital(tmp_path / str(n), name=f"h{n}") for n in (1, 2)}
    for wrong in ({"method": "magic"}, {"draws": 10**9}):
        with pytest.raises(RequestError, match=next(iter(wrong))):
            apps.main(Grid(nodes), context(config | wrong))
    assert charges(tmp_path / "1") == []


def test_the_folder_holds_the_releases_of_the_last_round_only(tmp_path, config):
    """A holder that published anew in between would count twice in a folder of both."""
    nodes = {n: make_hospital(tmp_path / str(n), name=f"h{n}") for n in (1, 2)}
    apps.main(Grid(nodes), context(config))
    releases = tmp_path / "out" / "releases"
    before = {path.name for path in releases.iterdir()}
    (releases / "by-hand.json").write_text("somebody's own, under a name of their own")
    (releases / f"{'0' * 16}.json").write_text("somebody's own, under a name like ours")
    own = {"by-hand.json", f"{'0' * 16}.json"}
    text = nodes[1].read_text("utf-8")
    nodes[1].write_text(text.replace("epsilon: 1}", "epsilon: 1, label: 2026-Q4}"), "utf-8")
    apps.main(Grid(nodes), context(config))
    listed = {entry["file"].removeprefix("releases/") for entry in report(tmp_path)["accepted"]}
    assert {path.name for path in releases.iterdir()} == listed | own
    assert sorted(r.label for r in collect([releases]).releases.values()) == ["", "2026-Q4"]
    earlier = {path.name for path in (tmp_path / "out" / "earlier").iterdir()}
    assert earlier == (before - listed) | {"posterior.nc"}
    assert len(earlier) == 2
    # Back to the first label: its stored Release comes again, and the other one moves.
    nodes[1].write_text(text, "utf-8")
    apps.main(Grid(nodes), context(config))
    assert {path.name for path in releases.iterdir()} == before | own


def test_holders_that_declare_columns_differently_spend_nothing(tmp_path, config):
    folder = tmp_path / "other"
    policy = make_hospital(folder, name="other")
    text = (folder / "schema.yaml").read_text("utf-8")
    (folder / "schema.yaml").write_text(text.replace("upper: 100", "upper: 99"), "utf-8")
    fields = inspected(ask(policy, proposal().to_text()))
    assert fields["code"] == "schema_differs"
    assert charges(folder) == []


def test_only_signed_releases_count_where_keys_are_given(tmp_path, config):
    """The holder's policy names its key, the analyst's settings the folder of public ones."""
    keys = tmp_path / "keys"
    keys.mkdir()
    nodes = {}
    for node, name in enumerate("abcd", 1):
        nodes[node] = make_hospital(tmp_path / name, name=name)
        if name in "abc":
            new_key(tmp_path / name / "own.key", f"Hospital {name}")
            with nodes[node].open("a", encoding="utf-8") as policy:
                policy.write("sign: own.key\n")
        if name in "ab":
            shutil.copy(tmp_path / name / "own.key.pub", keys / f"{name}.pub")
    grid = Grid(nodes)
    apps.main(grid, context({**config, "holders": 4, "trust": str(keys)}))
    answers = [inspected(reply) for reply in grid.replies]
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert [entry["dataset"] for entry in report["accepted"]] == ["a", "b"]
    missing = {entry["node"]: entry["why"] for entry in report["missing"]}
    assert "which is not a key that you trust" in missing[3]
    assert missing[4] == "sent a Release that is not signed"
    posterior = load_posterior(tmp_path / "out" / "posterior.nc")
    assert {said.partition(" (")[0] for said in posterior.signatures} == {
        "signed by Hospital a",
        "signed by Hospital b",
    }
    files = [load_release(path) for path in (tmp_path / "out" / "releases").iterdir()]
    assert all(one.signature is not None for one in files)
    # Asked again on the same day, a holder says the same, to the last byte.
    assert inspected(ask(nodes[1])) == answers[0]
    assert charges(tmp_path / "a") == ["published"]


def test_a_list_of_keys_that_cannot_be_read_ends_the_round_before_it_costs(tmp_path, config):
    grid = Grid({1: make_hospital(tmp_path / "a", name="a")})
    with pytest.raises(RequestError, match="trust: there is no file"):
        apps.main(grid, context({**config, "trust": str(tmp_path / "absent")}))
    assert charges(tmp_path / "a") == []


def test_a_node_with_a_key_that_others_may_read_spends_nothing(tmp_path):
    policy = make_hospital(tmp_path)
    new_key(tmp_path / "own.key")
    with policy.open("a", encoding="utf-8") as file:
        file.write("sign: own.key\n")
    assert "Releases are signed by ed25519:" in rehearse(policy).lines[0]
    (tmp_path / "own.key").chmod(0o644)
    with pytest.raises(PolicyError, match="chmod 600"):
        rehearse(policy)
    assert inspected(ask(policy))["code"] == "refused"
    assert charges(tmp_path) == []
