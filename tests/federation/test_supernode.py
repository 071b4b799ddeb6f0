"""The node that runs its own code only; `test_loopback` shows it against a hostile app."""

import subprocess
import sys

import pytest

from noisewise.core.errors import LedgerError
from noisewise.federation import supernode
from noisewise.federation.policy import PolicyError
from tests.federation.hospital import make_hospital

FLOWERS_PROGRAMS = ["flwr-clientapp", "flwr-agentapp", "flwr-serverapp", "flwr-model"]


def test_every_program_that_flower_starts_is_replaced(tmp_path):
    supernode._write_programs(tmp_path, FLOWERS_PROGRAMS)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FLOWERS_PROGRAMS)
    for path in tmp_path.iterdir():
        pinned = "--run-pinned" in path.read_text("utf-8")
        assert pinned == (path.name == "flwr-clientapp")
    done = subprocess.run(
        [tmp_path / "flwr-agentapp", "--token", "x"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "no app but its own" in done.stderr


def test_a_flower_that_starts_apps_in_another_way_is_refused(tmp_path):
    with pytest.raises(PolicyError, match="Flower has changed"):
        supernode._write_programs(tmp_path, ["flwr-agentapp"])


@pytest.mark.parametrize(
    "option",
    ["--node-config", "--isolation=process", "--allow-runtime-dependency-installation"],
)
def test_options_that_would_open_the_node_are_refused(tmp_path, option):
    with pytest.raises(PolicyError, match=option.split("=")[0]):
        supernode.start(make_hospital(tmp_path), ["--insecure", option])


def test_a_bad_policy_stops_it_at_once(tmp_path):
    command = [sys.executable, "-m", "noisewise", "federation", "node", "--insecure"]
    command += ["--policy", str(tmp_path / "nowhere.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: policy: there is no file")


def test_a_missing_ledger_stops_it_at_once(tmp_path):
    """As it stops a rehearsal; the node would refuse every proposal."""
    policy = make_hospital(tmp_path, cap=None)
    with pytest.raises(LedgerError, match="There is no ledger"):
        supernode.start(policy, ["--insecure"])
    assert not (tmp_path / "budget.db").exists()
    command = [sys.executable, "-m", "noisewise", "federation", "node", "--insecure"]
    done = subprocess.run(
        [*command, "--policy", str(policy)], capture_output=True, text=True, check=False
    )
    assert done.returncode == LedgerError.exit_code
    assert done.stderr.startswith("error: There is no ledger")


def test_a_damaged_ledger_stops_it_at_once(tmp_path):
    policy = make_hospital(tmp_path)
    (tmp_path / "budget.db").write_bytes(b"")
    with pytest.raises(LedgerError, match="empty"):
        supernode.start(policy, ["--insecure"])


def test_a_flower_that_loads_apps_in_another_way_is_refused():
    pytest.importorskip("flwr", reason="needs Flower: pip install 'noisewise[federation]'")
    code = (
        "import sys, flwr.supernode.runtime.run_clientapp as module\n"
        "del module.get_load_client_app_fn\n"
        "from noisewise.federation.supernode import run_pinned\n"
        "sys.argv = ['flwr-clientapp', '--token', 'x']\n"
        "run_pinned()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Flower has changed" in done.stderr
