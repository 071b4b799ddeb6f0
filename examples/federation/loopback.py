"""A whole Flower federation on this machine's loopback: a SuperLink and one SuperNode a holder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

CONNECTION = "loopback"


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(what: str, done: Callable[[], bool], seconds: float) -> None:
    """Poll until something is so; TimeoutError names what was waited for."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.2)


class Loopback:
    """Starts the processes of a federation, and ends every one of them on exit.

    Parameters
    ----------
    home : Path
        Folder for Flower's files and all logs.
    work : Path
        Where the SuperLink runs: relative paths of the study are relative to it.
    """

    def __init__(self, home: Path, work: Path) -> None:
        self.home, self.work = home, work
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.programs = Path(sys.executable).parent
        self.environment = {
            **os.environ,
            # A SuperLink starts its helpers by name.
            "PATH": f"{self.programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "FLWR_HOME": str(home / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
        }

    def __enter__(self) -> Loopback:
        (self.home / "flwr").mkdir(parents=True, exist_ok=True)
        (self.home / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "127.0.0.1:{self.port}"\ninsecure = true\n',
            encoding="utf-8",
        )
        link = ["--insecure", "--host", "127.0.0.1", "--port", str(self.port)]
        link += ["--disable-runtime-dependency-installation"]
        self.start("superlink", [str(self.programs / "flower-superlink"), *link])
        wait_until("SuperLink", self._listens, 60)
        return self

    def __exit__(self, *_error: object) -> None:
        for name in list(self.processes):
            self.stop(name)

    def node(self, name: str, policy: Path) -> None:
        """Start the SuperNode of a holder."""
        options = ["--policy", str(policy), "--insecure", "--superlink", f"127.0.0.1:{self.port}"]
        options += ["--port", str(free_port())]
        self.start(name, [sys.executable, "-m", "noisewise", "federation", "node", *options])

    def run(self, app: Path, settings: Sequence[str] = ()) -> None:
        """Submit a run; it goes on in the background."""
        command = [str(self.programs / "flwr"), "run", str(app), CONNECTION]
        for setting in settings:
            command += ["--run-config", setting]
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"flwr run failed:\n{done.stdout}\n{done.stderr}")

    def stop(self, name: str, with_signal: int = signal.SIGKILL) -> None:
        """End a process with all that it started; each has a process group of its own."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, with_signal)
        process.wait(timeout=30)

    def log(self, name: str) -> str:
        """What a process has printed so far."""
        return (self.home / f"{name}.log").read_text("utf-8", errors="replace")

    def start(self, name: str, command: list[str]) -> None:
        """Start a process under a name, with its output in a log."""
        with (self.home / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env=self.environment,
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _listens(self) -> bool:
        if self.processes["superlink"].poll() is not None:
            raise RuntimeError(f"the SuperLink ended:\n{self.log('superlink')}")
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
