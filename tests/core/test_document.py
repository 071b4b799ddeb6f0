"""Files are written whole or not at all, and what a killed writer left is removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from fractions import Fraction

import pytest

from noisewise.core.document import write_text
from noisewise.core.temporary import private_folder
from noisewise.holder.ledger import Ledger

KILLED = """
import os, signal, sys
from noisewise.core import document

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(document.os, sys.argv[2], die)
document.write_text(sys.argv[1], "half")
"""

WAITING = """
import sys
from noisewise.core import document

def wait(descriptor):
    print("writing", flush=True)
    sys.stdin.readline()

document.os.fsync = wait
document.write_text(sys.argv[1], "of a living process")
"""


def leftovers(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith(".noisewise-"))


@pytest.mark.parametrize("where", ["fdopen", "fsync", "chmod", "replace"])
def test_the_next_run_removes_what_a_killed_one_left(where, tmp_path):
    out = tmp_path / "release.json"
    done = subprocess.run([sys.executable, "-c", KILLED, str(out), where], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(leftovers(tmp_path)) == 1
    assert not out.exists()
    write_text(tmp_path / "other.json", "whole")
    assert os.listdir(tmp_path) == ["other.json"]


def test_a_living_writers_file_stays(tmp_path):
    out = tmp_path / "release.json"
    command = [sys.executable, "-c", WAITING, str(out)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as writer:
        assert writer.stdout.readline() == "writing\n"
        write_text(tmp_path / "other.json", "whole")
        assert len(leftovers(tmp_path)) == 1
        writer.communicate("go on\n")
    assert out.read_text() == "of a living process"
    assert not leftovers(tmp_path)


def test_nothing_but_our_own_pattern_is_touched(tmp_path):
    others = [
        ".noisewise-abc",
        ".noisewise-abcdefgh.json",
        "noisewise-abcdefgh",
        ".noisewise-ABCDEFGH",
    ]
    for name in others:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".noisewise-aaaaaaaa").mkdir()
    (tmp_path / ".noisewise-bbbbbbbb").symlink_to(tmp_path / others[0])
    os.mkfifo(tmp_path / ".noisewise-cccccccc")
    before = set(os.listdir(tmp_path))
    write_text(tmp_path / "release.json", "whole")
    assert before - set(os.listdir(tmp_path)) <= {".noisewise-cccccccc"}
    assert (tmp_path / others[0]).read_text() == "mine"


def test_many_writers_at_once_all_succeed(tmp_path):
    """None takes another's file for a leftover, not even before it is locked."""
    failed = []

    def write(number):
        try:
            for i in range(40):
                write_text(tmp_path / f"{number}.json", f"{number} {i}")
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert sorted(p.read_text() for p in tmp_path.iterdir()) == [f"{n} 39" for n in range(6)]


def test_a_failed_write_leaves_nothing_and_keeps_the_old_file(tmp_path, monkeypatch):
    out = tmp_path / "release.json"
    write_text(out, "old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        write_text(out, "new")
    assert os.listdir(tmp_path) == ["release.json"]
    assert out.read_text() == "old"


FOLDER = """
import os, signal
from noisewise.core.temporary import private_folder

with private_folder() as folder:
    (folder / "rows").write_text("somebody")
    os.kill(os.getpid(), signal.SIGKILL)
"""

LEDGER = """
import os, signal, sys
from fractions import Fraction
from noisewise.holder.ledger import Ledger

os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
Ledger(sys.argv[1]).set_cap("people", Fraction(1), Fraction(0))
"""


def test_the_next_run_removes_a_folder_that_a_killed_one_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stays = tmp_path / "noisewise-abcdefgh1"
    stays.mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", FOLDER], env=environment, check=False)
    [left] = set(tmp_path.iterdir()) - {stays}
    assert (left / "rows").exists()
    with private_folder() as other, private_folder() as folder:
        assert folder.stat().st_mode & 0o077 == 0
        assert set(tmp_path.iterdir()) == {stays, other, folder}
    assert os.listdir(tmp_path) == [stays.name]


def test_the_next_run_removes_a_ledger_that_was_never_finished(tmp_path):
    path = tmp_path / "budget.db"
    subprocess.run([sys.executable, "-c", LEDGER, str(path)], check=False)
    assert len(leftovers(tmp_path)) == 1
    assert not path.exists()
    with Ledger(path) as ledger:
        ledger.set_cap("people", Fraction(1), Fraction(0))
        assert os.listdir(tmp_path) == ["budget.db"]
