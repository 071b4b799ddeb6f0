"""Start a Flower SuperNode that runs the holder's own ClientApp, whatever the server sends.

    noisewise federation node --policy policy.yaml --superlink HOST:PORT ...

Flower ships code: whoever may start a run sends an app to every node, and a plain SuperNode
executes it where the rows are. Here the programs that a SuperNode starts for its tasks are
replaced, by a folder that comes first on its PATH: the ClientApp is always the installed
`noisewise.federation.apps`, and every other kind of task ends at once. What the server sent
is neither unpacked nor imported. Signed apps (Flower's ``--trusted-entities``) remain possible.

The programs that a SuperNode starts are no public interface of Flower, so the extra
``noisewise[federation]`` names the versions for which this holds, and `run_pinned` stops where it
does not find what it replaces.
"""

from __future__ import annotations

import os
import shlex
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from noisewise.core.errors import BudgetError
from noisewise.core.temporary import private_folder
from noisewise.federation.policy import PolicyError, read_policy
from noisewise.holder.ledger import Ledger

CLIENT_APP = "flwr-clientapp"
OFF = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
_PROGRAM = '#!/bin/sh\nexec {python} -m noisewise.federation.supernode {what} "$@"\n'


def start(policy: str | Path, arguments: list[str]) -> None:
    """Check the policy and its ledger, then be a SuperNode until stopped.

    The arguments are those of ``flower-supernode``, such as ``["--insecure", "--superlink",
    "127.0.0.1:8000"]``.
    """
    path = Path(policy).resolve()
    checked = read_policy(path)
    with Ledger(checked.ledger, create=False) as ledger:
        # Else the node would refuse every proposal, in front of the server.
        for quote in (
            ledger.preview(checked.charge(request, ledger)) for request in checked.requests
        ):
            if quote.refusal and quote.cap_epsilon is None:
                raise BudgetError(quote.refusal)
    if "'" in str(path) or "\n" in str(path):
        raise PolicyError("policy: Flower takes no path with a quotation mark; rename it")
    for option in ("--node-config", "--isolation", "--allow-runtime-dependency-installation"):
        if any(word.split("=")[0] == option for word in arguments):
            raise PolicyError(f"{option}: decided here, so that nothing but the policy counts")
    for name, value in OFF.items():
        os.environ.setdefault(name, value)
    import_module("noisewise.federation.apps")  # says what to install where Flower is missing
    from flwr.supercore.constant import TASK_TYPE_TO_COMMAND
    from flwr.supernode.cli.flower_supernode import flower_supernode

    with private_folder() as folder:
        _write_programs(folder, list(TASK_TYPE_TO_COMMAND.values()))
        # The interpreter's own folder holds flower-superexec, also where no environment is active.
        own = [str(folder), str(Path(sys.executable).parent)]
        os.environ["PATH"] = os.pathsep.join([*own, os.environ.get("PATH", os.defpath)])
        sys.argv = ["flower-supernode", *arguments, "--node-config", f"policy='{path}'"]
        flower_supernode()


def _write_programs(folder: Path, names: list[str]) -> None:
    if CLIENT_APP not in names:
        raise PolicyError("Flower has changed how it starts apps; install noisewise[federation]")
    for name in names:
        what = "--run-pinned" if name == CLIENT_APP else "--run-nothing"
        program = folder / name
        text = _PROGRAM.format(python=f"{shlex.quote(sys.executable)} -P", what=what)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o700)


def run_pinned() -> None:
    """Be ``flwr-clientapp``, with the installed ClientApp in place of the one that was sent."""
    from flwr.supernode.cli import flwr_clientapp

    def load(*_args: Any, **_kwargs: Any) -> Any:
        from noisewise.federation.apps import client

        return lambda *_which: client

    def nothing(*_args: Any, **_kwargs: Any) -> None:
        """Unpack and install nothing of what was sent."""

    # No public names, hence looked up and checked one by one.
    runtime: Any = import_module("flwr.supernode.runtime.run_clientapp")
    replaced = {
        "get_load_client_app_fn": load,
        "install_from_fab": nothing,
        "install_app_dependencies": nothing,
    }
    for name, replacement in replaced.items():
        if not callable(getattr(runtime, name, None)):
            sys.exit("Flower has changed how it loads apps; install noisewise[federation]")
        setattr(runtime, name, replacement)
    flwr_clientapp()


def main() -> None:
    """Be one of the programs that a SuperNode starts."""
    if sys.argv[1:2] != ["--run-pinned"]:
        sys.exit("This node runs no app but its own.")
    sys.argv = [CLIENT_APP, *sys.argv[2:]]
    run_pinned()


if __name__ == "__main__":
    main()
