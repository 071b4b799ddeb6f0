"""Files are written whole or not at all, whatever happens to the writer."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from fractions import Fraction

import pytest

from noisewise.core.document import write_text
from noisewise.core.temporary import leftovers, remove_leftover, write_file
from noisewise.holder.ledger import Ledger

# A writer that is killed at a call, on a system with files without a name or on one without them.
KILLED = """
import os, signal, sys
from noisewise.core.document import write_text

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

out, where, system = sys.argv[1:]
if system == "named":
    del os.O_TMPFILE
setattr(os, where, die)
write_text(out, "new")
"""

WAITING = """
import os, sys
from noisewise.core.document import write_text

def wait(descriptor):
    print("writing", flush=True)
    sys.stdin.readline()

del os.O_TMPFILE
os.fsync = wait
write_text(sys.argv[1], "of a living process")
"""

LEDGER = """
import os, signal, sys
from fractions import Fraction
from noisewise.holder.ledger import Ledger

os.link = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
Ledger(sys.argv[1]).set_cap("people", Fraction(1), Fraction(0))
"""

unnamed_files = pytest.mark.skipif(
    not hasattr(os, "O_TMPFILE"), reason="the system has no files without a name"
)


@pytest.fixture(autouse=True)
def _own_manifest(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def hidden(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith("."))


def killed(out, where, system):
    done = subprocess.run([sys.executable, "-c", KILLED, str(out), where, system], check=False)
    assert done.returncode == -signal.SIGKILL


@unnamed_files
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("where", ["fsync", "fchmod", "link"])
def test_a_killed_writer_of_a_file_without_a_name_leaves_nothing(where, old, folder):
    out = folder / "release.json"
    if old:
        out.write_text("old")
    killed(out, where, "unnamed")
    assert os.listdir(folder) == (["release.json"] if old else [])
    assert not old or out.read_text() == "old"


@pytest.mark.parametrize(
    ("where", "system"),
    [
        pytest.param("replace", "unnamed", marks=unnamed_files),
        ("fsync", "named"),
        ("fchmod", "named"),
        ("replace", "named"),
    ],
)
def test_what_a_killed_writer_leaves_stays_and_is_named(where, system, folder):
    out = folder / "release.json"
    out.write_text("old")
    killed(out, where, system)
    [left] = hidden(folder)
    assert out.read_text() == "old"
    write_text(folder / "other.json", "whole")
    write_text(out, "whole")
    assert hidden(folder) == [left]  # nobody sweeps
    [leftover] = leftovers()
    assert (leftover.made.path, leftover.stays) == (str(folder.resolve() / left), "")
    assert remove_leftover(leftover) is None
    assert (hidden(folder), leftovers()) == ([], [])


def test_a_living_writers_file_is_no_leftover(folder):
    out = folder / "release.json"
    command, pipe = [sys.executable, "-c", WAITING, str(out)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as writer:
        assert writer.stdout.readline() == "writing\n"
        [leftover] = leftovers()
        assert "uses it" in leftover.stays
        assert remove_leftover(leftover) is not None
        assert len(hidden(folder)) == 1
        writer.communicate("go on\n")
    assert out.read_text() == "of a living process"
    assert (hidden(folder), leftovers()) == ([], [])


def test_files_with_names_like_ours_are_left_alone(folder):
    names = [".noisewise-abcdefgh", "noisewise-abcdefgh", f".noisewise-{'0' * 32}"]
    for name in names:
        (folder / name).write_text("mine")
    write_text(folder / "release.json", "whole")
    with Ledger(folder / "budget.db") as ledger:
        ledger.set_cap("people", Fraction(1), Fraction(0))
    assert [(folder / name).read_text() for name in names] == ["mine"] * 3
    assert leftovers() == []


@pytest.mark.parametrize("new", [False, True])
def test_many_writers_at_once(folder, new):
    """All succeed and the last one counts, or exactly one does."""
    ends = []

    def write(number):
        try:
            for i in range(40):
                name = "one.json" if new else f"{number % 3}.json"
                write_file(folder / name, f"{number} {i}".encode() * 999, mode=0o600, new=new)
            ends.append("done")
        except OSError as error:
            ends.append(type(error).__name__)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends == ["FileExistsError"] * 6 if new else ends == ["done"] * 6
    for path in folder.iterdir():
        text = path.read_text()
        first = text[: len(text) // 999]
        assert text == first * 999
        assert first.endswith(" 0" if new else " 39")


def test_a_failed_write_leaves_nothing_and_keeps_the_old_file(folder, monkeypatch):
    out = folder / "release.json"
    write_text(out, "old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        write_text(out, "new")
    assert os.listdir(folder) == ["release.json"]
    assert out.read_text() == "old"
    assert leftovers() == []


def test_a_full_disk_leaves_nothing(folder, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        write_text(folder / "release.json", "new")
    assert os.listdir(folder) == []
    assert leftovers() == []


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_a_new_file_is_closed_before_it_has_its_name(folder, monkeypatch):
    """Closing any descriptor of a ledger would drop the locks that SQLite has in this process."""
    link, seen = os.link, []

    def watched(source, target, **named):
        link(source, target, **named)
        if os.fspath(target).endswith("budget.db"):
            inode = (folder / "budget.db").stat().st_ino
            opened = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
            seen.extend(
                one for one in opened if os.path.exists(one) and os.stat(one).st_ino == inode
            )
            seen.append("looked")

    monkeypatch.setattr(os, "link", watched)
    write_file(folder / "budget.db", b"ledger", mode=0o600, new=True)
    assert seen == ["looked"]


@pytest.mark.parametrize("missing", ["O_TMPFILE", "proc", "manifest", "locks"])
def test_what_the_system_lacks_is_done_without(missing, folder, tmp_path, monkeypatch):
    link = os.link

    def refused(source, *more, **named):
        if str(source).startswith("/proc"):
            raise FileNotFoundError(source)
        link(source, *more, **named)

    if missing == "O_TMPFILE":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif missing == "proc":
        monkeypatch.setattr(os, "link", refused)
    elif missing == "locks":  # as on Windows
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
        monkeypatch.setattr("noisewise.core.temporary.fcntl", None)
    else:
        (tmp_path / "file").write_text("not a folder")
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    for text in ("first", "second"):
        write_text(folder / "a", text)
        assert (folder / "a").read_text() == text
    write_file(folder / "b", b"new", mode=0o600, new=True)
    with pytest.raises(FileExistsError):
        write_file(folder / "b", b"newer", mode=0o600, new=True)
    assert (folder / "b").read_text() == "new"
    assert sorted(os.listdir(folder)) == ["a", "b"]
    modes = [stat.S_IMODE((folder / name).stat().st_mode) for name in "ab"]
    assert modes == [0o644, 0o600]


def test_a_ledger_that_was_never_finished_is_not_there(folder):
    path = folder / "budget.db"
    done = subprocess.run([sys.executable, "-c", LEDGER, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not path.exists()
    with Ledger(path) as ledger:
        ledger.set_cap("people", Fraction(1), Fraction(0))
        assert not ledger.accounts()[0].charges
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
