"""A real SuperLink and real SuperNodes on loopback; one is killed in the middle of a round."""

import importlib.util
import json
import random
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'noisewise[federation]'")

from noisewise.analyst.posterior.file import load_posterior
from noisewise.core.kinds import load_release
from noisewise.core.schema import Schema
from noisewise.core.yaml_files import write_schema
from noisewise.holder.ledger import Ledger
from tests.federation.hospital import COLUMNS, account, charges, csv_text, make_hospital

EXAMPLE = Path(__file__).parents[2] / "examples" / "federation"
LONG = 180  # generous: a busy machine may be slow, and none of the waiting below uses it up

HOSTILE = """
import os
from pathlib import Path

from flwr.clientapp import ClientApp

Path({marks!r}, os.environ.get("KIND", "pinned")).write_text("ran where the rows are")

app = ClientApp()
"""


@pytest.fixture(scope="module")
def loopback():
    spec = importlib.util.spec_from_file_location("loopback", EXAMPLE / "loopback.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def patients(seed, n):
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        age, severity, emergency = rng.randint(18, 99), rng.randint(0, 10), rng.random() < 0.4
        stay = 1 + 0.05 * age + 0.6 * severity + 2 * emergency + rng.gauss(0, 3)
        rows.append((age, severity, "yes" if emergency else "no", f"{stay:.2f}"))
    return csv_text(rows)


def settings(folder, out, holders, minimum):
    return [
        f"schema='{folder / 'study.yaml'}' out='{out}'",
        f"holders={holders} minimum-holders={minimum} max-epsilon='1'",
        f"connect-seconds={LONG} timeout-seconds={LONG} grace-seconds=3",
        "chains=2 draws=100 seed=1",
    ]


def wait_for_posterior(loopback, federation, out):
    def done():
        if (out / "report.json").exists():
            told = json.loads((out / "report.json").read_text("utf-8"))
            assert told["error"] is None, told
            if told["posterior"]:
                return True
        assert federation.processes["superlink"].poll() is None, federation.log("superlink")
        return False

    try:
        loopback.wait_until("posterior", done, LONG)
    except TimeoutError:
        logs = "\n\n".join(federation.log(path.stem) for path in federation.home.glob("*.log"))
        pytest.fail(f"no posterior within {LONG} s\n{logs}")
    return json.loads((out / "report.json").read_text("utf-8"))


def has_charge(folder):
    try:
        return bool(charges(folder))
    except Exception:  # busy for a moment: the node is writing to it
        return False


def stored_text_digest(folder):
    """The digest that the ledger has on record for its one published Release."""
    with Ledger(folder / "budget.db", create=False) as ledger:
        (charge,) = [c for c in ledger.accounts()[0].charges if c.status == "published"]
    return charge.release_sha256


@pytest.mark.slow
def test_a_posterior_without_the_node_that_was_killed_and_exact_budgets(tmp_path, loopback):
    rows, epsilons = {"north": 900, "south": 700, "west": 500}, {"north": "1", "south": "0.5"}
    policies = {
        name: make_hospital(
            tmp_path / name,
            name=name,
            data=patients(name, n),
            epsilon=epsilons.get(name, "0.75"),
            cap=1,
            # West works, charges and publishes, but would answer only after an hour.
            every=3600 if name == "west" else 0,
        )
        for name, n in rows.items()
    }
    write_schema(Schema("study", COLUMNS), tmp_path / "study.yaml")
    first, second = tmp_path / "first", tmp_path / "second"
    with loopback.Loopback(tmp_path / "home", tmp_path) as federation:
        for name, policy in policies.items():
            federation.node(name, policy)
        federation.run(EXAMPLE / "app", settings(tmp_path, first, holders=3, minimum=2))
        loopback.wait_until("west's charge", lambda: has_charge(tmp_path / "west"), LONG)
        federation.stop("west")
        assert charges(tmp_path / "west") in (["pending"], ["published"])
        after_kill = account(tmp_path / "west").spent_epsilon
        told = wait_for_posterior(loopback, federation, first)

        # The others are in; the killed one is named; nobody paid more than once.
        assert {entry["dataset"] for entry in told["accepted"]} == {"north", "south"}
        (missing,) = [entry["why"].split(";")[0] for entry in told["missing"]]
        assert missing in ("did not answer in time", "went offline")
        posterior = load_posterior(first / "posterior.nc")
        assert sorted(posterior.info.n) == [700, 900]
        assert posterior.info.noise_aware
        assert float(after_kill) == 0.75
        assert charges(tmp_path / "north") == charges(tmp_path / "south") == ["published"]

        # West comes back, and this time the run ships code of its own.
        text = policies["west"].read_text("utf-8").replace("seconds: 3600", "seconds: 0")
        policies["west"].write_text(text, "utf-8")
        federation.node("west", policies["west"])
        plain_node(federation, loopback.free_port())  # the negative control
        connected = [("west", 2), ("plain", 1)]
        loopback.wait_until(
            "nodes",
            lambda: all(federation.log(n).count("Node ID") >= k for n, k in connected),
            LONG,
        )
        app, marks = hostile_app(tmp_path / "app")
        federation.run(app, settings(tmp_path, second, holders=4, minimum=3))
        loopback.wait_until("plain node", (marks / "plain").exists, LONG)
        told = wait_for_posterior(loopback, federation, second)

    assert {entry["dataset"] for entry in told["accepted"]} == {"north", "south", "west"}
    assert sorted(load_posterior(second / "posterior.nc").info.n) == [500, 700, 900]
    assert [mark.name for mark in marks.iterdir()] == ["plain"]  # and not "pinned"
    # Each ledger: one charge, its exact price, and the very Release that crossed.
    prices = {"north": 1, "south": 0.5, "west": 0.75}
    for name, price in prices.items():
        assert charges(tmp_path / name) == ["published"]
        assert float(account(tmp_path / name).spent_epsilon) == price
        (entry,) = [e for e in told["accepted"] if e["dataset"] == name]
        crossed = load_release(second / entry["file"])
        assert crossed.n == rows[name]
        assert stored_text_digest(tmp_path / name) == text_sha256(crossed)
    same = {path.name for path in (first / "releases").iterdir()}
    assert same < {path.name for path in (second / "releases").iterdir()}


def text_sha256(release):
    import hashlib

    return hashlib.sha256(release.to_text().encode("utf-8")).hexdigest()


def hostile_app(folder):
    """The example's app, with a ClientApp of the server's that leaves a mark where it runs."""
    (folder / "hostile").mkdir(parents=True)
    marks = folder.with_name("marks")
    marks.mkdir()
    text = (EXAMPLE / "app" / "pyproject.toml").read_text("utf-8")
    text = text.replace("noisewise.federation.apps:client", "hostile.client:app")
    (folder / "pyproject.toml").write_text(text, "utf-8")
    (folder / "hostile" / "__init__.py").write_text("")
    (folder / "hostile" / "client.py").write_text(HOSTILE.format(marks=str(marks)))
    return folder, marks


def plain_node(federation, port):
    """A SuperNode as Flower ships it, which runs whatever it is sent."""
    federation.environment["KIND"] = "plain"
    command = [str(federation.programs / "flower-supernode"), "--insecure", "--port", str(port)]
    federation.start("plain", [*command, "--superlink", f"127.0.0.1:{federation.port}"])
