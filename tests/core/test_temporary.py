"""Private folders and the manifest: nothing is removed that we can't prove to have made.

Every attack puts something of somebody's ("precious") where noisewise made something, or says so in
the manifest. Then everything that removes anything runs, and it must still be there.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from noisewise.cli.main import main
from noisewise.core.temporary import (
    leftovers,
    manifest_path,
    private_folder,
    remove_leftover,
    write_file,
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no manifest")

FOLDER = """
import os, signal
from noisewise.core.temporary import private_folder

with private_folder() as folder:
    (folder / "rows").write_text("somebody")
    (folder / "more").mkdir()
    (folder / "more" / "rows").write_text("somebody")
    print(folder, flush=True)
    {then}
"""
DIES = "os.kill(os.getpid(), signal.SIGKILL)"
WAITS = "input()"
FORKS = """
    child = os.fork()
    if not child:
        raise SystemExit  # runs what is due at the end of the block
    os.waitpid(child, 0)
    assert (folder / "rows").exists()
"""

root_only = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away"
)


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """TMPDIR, and a manifest of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    return (tmp_path / "scratch").resolve()


def left_folder():
    """What a killed process left."""
    command = [sys.executable, "-c", FOLDER.format(then=DIES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    return Path(done.stdout.strip())


def left_file(folder):
    """A hidden file beside an output, likewise, and an output that was there before."""
    code = """
import os, signal, sys
from noisewise.core.temporary import write_file
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
write_file(sys.argv[1], b"new", mode=0o600)
"""
    folder.mkdir()
    (folder / "out").write_text("old")
    subprocess.run([sys.executable, "-c", code, folder / "out"], check=False)
    [hidden] = [path for path in folder.iterdir() if path.name.startswith(".")]
    return hidden


def everything_that_removes():
    """All that could remove something, and what `noisewise clean` would say."""
    with private_folder() as folder:
        write_file(folder / "some", b"file", mode=0o600)
    kept = [one for one in map(remove_leftover, leftovers()) if one is not None]
    done = run("clean", "--yes")
    assert done.exit_code == 0, done.output
    return kept


def run(*words, stdin=None):
    from noisewise.cli.main import app

    return CliRunner().invoke(app, list(words), input=stdin)


def entries():
    return sorted(manifest_path().iterdir())


def change(entry, **fields):
    entry.write_text(json.dumps({**json.loads(entry.read_text()), **fields}))


def place_of(path):
    status, parent = path.lstat(), path.parent.stat()
    return {
        "device": status.st_dev,
        "inode": status.st_ino,
        "parent_device": parent.st_dev,
        "parent_inode": parent.st_ino,
    }


# --- private folders ------------------------------------------------------------------------------


def test_a_private_folder_is_private_and_goes_with_all_that_is_in_it(tmp_path, scratch):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "rows").write_text("mine")
    with private_folder() as folder, private_folder() as other:
        assert folder != other
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(manifest_path().stat().st_mode) == 0o700
        (folder / "deep" / "deeper").mkdir(parents=True)
        (folder / "deep" / "rows").write_text("somebody")
        (folder / "link").symlink_to(tmp_path / "precious")
        (folder / "deep" / "link").symlink_to(tmp_path / "precious" / "rows")
        (folder / "deep" / "dangling").symlink_to(tmp_path / "nothing")
        os.mkfifo(folder / "pipe")
        assert len(entries()) == 2
        assert all("uses it" in one.stays for one in leftovers())
    assert list(scratch.iterdir()) == entries() == []
    assert (tmp_path / "precious" / "rows").read_text() == "mine"


def test_what_a_killed_process_left_stays_until_it_is_cleaned(scratch):
    left = left_folder()
    with private_folder():
        pass
    assert (left / "rows").exists()
    asked = run("clean", stdin="n\n")
    assert str(left) in asked.output
    assert "Remove" in asked.output
    assert (left / "rows").exists()
    assert run("clean", stdin="").exit_code == 1  # nobody there to ask
    assert (left / "rows").exists()
    done = run("clean", "--yes")
    assert "Removed 1 of 1" in done.output
    assert list(scratch.iterdir()) == entries() == []
    assert "Nothing is left" in run("clean").output


def test_a_living_process_keeps_its_folder(scratch):
    command, pipe = [sys.executable, "-c", FOLDER.format(then=WAITS)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        folder = Path(process.stdout.readline().strip())
        [kept] = everything_that_removes()
        assert f"process {process.pid} uses it" in kept.stays
        assert (folder / "rows").exists()
        process.communicate("\n")
    assert list(scratch.iterdir()) == entries() == []


def test_a_forked_child_removes_nothing(scratch):
    command = [sys.executable, "-c", FOLDER.format(then=FORKS)]
    assert subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode == 0
    assert list(scratch.iterdir()) == entries() == []


@pytest.mark.parametrize("how", ["folder", "link"])
def test_a_folder_that_was_swapped_while_in_use_stays(how, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "rows").write_text("mine")
    with private_folder() as folder:
        (folder / "rows").write_text("somebody")
        folder.rename(tmp_path / "moved")
        folder.symlink_to(precious) if how == "link" else precious.rename(folder)
    assert (folder / "rows").read_text() == "mine"
    assert not (tmp_path / "moved" / "rows").exists()  # by its descriptor
    everything_that_removes()
    assert (folder / "rows").read_text() == "mine"


def test_an_empty_folder_that_was_swapped_in_stays():
    with private_folder() as folder:
        folder.rename(folder.with_name("moved"))
        folder.mkdir()
    assert folder.exists()


def test_a_folder_that_cannot_be_removed_is_a_leftover(monkeypatch):
    with monkeypatch.context() as patch, private_folder() as folder:
        patch.setattr(os, "fwalk", lambda *_, **__: (_ for _ in ()).throw(OSError(5, "I/O")))
    [leftover] = leftovers()
    assert leftover.made.path == str(folder)
    assert "is running" in leftover.stays  # this process: it may be in use


WORKER = """
import sys
from noisewise.core.temporary import private_folder, write_file

for number in range(10_000):
    with private_folder() as folder:
        (folder / "rows").write_text("in use")
        write_file(sys.argv[1], b"output", mode=0o600)
        assert (folder / "rows").read_text() == "in use"
"""


def test_running_and_killed_processes_and_clean_at_once(tmp_path, scratch):
    """Two workers are killed, a third one must never miss anything; then no rows are left.

    A kill at the very start or end of a folder can leave it empty, and without proof.
    """
    outputs = [str(tmp_path / f"{number}.json") for number in range(3)]
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, out], stderr=subprocess.PIPE)
        for out in outputs
    ]
    removed = 0
    for step in range(150):
        if step in (50, 100):
            workers[step // 100].kill()
        ours = [one for one in leftovers() if not one.stays]
        removed += sum(remove_leftover(one) is None for one in ours)
        time.sleep(0.01)
    assert workers[2].poll() is None, workers[2].stderr.read()
    for worker in workers:
        worker.kill()
        assert worker.wait() == -signal.SIGKILL
        worker.stderr.close()
    for one in leftovers():
        removed += remove_leftover(one) is None
    left = [path.name for folder in scratch.iterdir() for path in folder.iterdir()]
    assert set(left) <= {".made-by-noisewise"}
    if hasattr(os, "O_TMPFILE"):
        assert not [name for name in os.listdir(tmp_path) if "noisewise-" in name]
    print(f"{removed} leftovers removed")


def test_without_locks_folders_are_private_and_go_all_the_same(monkeypatch, scratch):
    """As on Windows."""
    monkeypatch.setattr("noisewise.core.temporary.fcntl", None)
    with private_folder() as folder:
        (folder / "rows").write_text("somebody")
        assert list(scratch.iterdir()) == [folder]
        assert leftovers() == []
    assert list(scratch.iterdir()) == []


# --- the proof ------------------------------------------------------------------------------------


def precious_folder(path):
    path.mkdir()
    (path / "budget.db").write_text("mine")
    return path


def other_folder(left, tmp_path):
    """Another folder has the name."""
    left.rename(tmp_path / "moved")
    return precious_folder(left)


def same_inode(left, tmp_path):
    """Another folder has the name and, as inodes are used again, all numbers of the entry."""
    shutil.rmtree(left)
    path = precious_folder(left)
    change(entries()[0], **place_of(path))
    return path


def mark_of_another(left, tmp_path):
    """As before, and with a mark: that of another private folder."""
    path = same_inode(left, tmp_path)
    with private_folder() as folder:
        shutil.copy(folder / ".made-by-noisewise", path)
    return path


def mark_that_is_a_link(left, tmp_path):
    """As before, but the mark is somewhere else."""
    path = same_inode(left, tmp_path)
    (tmp_path / "mark").write_text(entries()[0].name)
    (path / ".made-by-noisewise").symlink_to(tmp_path / "mark")
    return path


def a_copy(left, tmp_path):
    """Restored from a backup, say, and used since: the mark is right, the inode is not."""
    shutil.copytree(left, tmp_path / "copy")
    left.rename(tmp_path / "moved")
    (tmp_path / "copy").rename(left)
    (left / "budget.db").write_text("mine")
    return left


def a_link(left, tmp_path):
    """The name is a link to the user's own folder."""
    left.rename(tmp_path / "moved")
    path = precious_folder(tmp_path / "precious")
    left.symlink_to(path)
    change(entries()[0], **place_of(left))
    return path


def another_parent(left, tmp_path):
    """The folder that it was in is another one by now."""
    left.parent.rename(tmp_path / "scratch before")
    left.parent.mkdir()
    return precious_folder(left)


def linked_parent(left, tmp_path):
    """The folder that it was in is a link to one of the user's, which has such a name, too."""
    left.parent.rename(tmp_path / "scratch before")
    (tmp_path / "precious").mkdir()
    left.parent.symlink_to(tmp_path / "precious")
    return precious_folder(tmp_path / "precious" / left.name)


def another_machine(left, tmp_path):
    """A home that is shared: whether the process runs can be seen over there only."""
    change(entries()[0], machine="elsewhere", boot="of another machine")
    (left / "budget.db").write_text("in use")
    return left


def a_running_process(left, tmp_path):
    """The lock was lost, as locks over networks are, but the process runs."""
    entry, status = entries()[0], Path("/proc/self/stat")
    if not status.exists():
        pytest.skip("needs /proc")
    started = status.read_text().rpartition(")")[2].split()[19]
    change(entry, process=os.getpid(), started=started)
    (left / "budget.db").write_text("in use")
    return left


FOLDER_ATTACKS = [
    other_folder,
    same_inode,
    mark_of_another,
    mark_that_is_a_link,
    a_copy,
    a_link,
    another_parent,
    linked_parent,
    another_machine,
    a_running_process,
]


@pytest.mark.parametrize("attack", FOLDER_ATTACKS, ids=lambda one: one.__name__)
def test_a_folder_that_may_not_be_ours_stays(attack, tmp_path):
    precious = attack(left_folder(), tmp_path)
    content = (precious / "budget.db").read_text()
    [kept] = everything_that_removes()
    assert kept.stays
    assert (precious / "budget.db").read_text() == content
    assert kept.stays in run("clean").output


def file_of_another_inode(hidden, tmp_path):
    kept = tmp_path / "so that its inode isn't used again"
    shutil.copy2(hidden, tmp_path / "copy")
    hidden.rename(kept)
    (tmp_path / "copy").rename(hidden)


def second_name(hidden, tmp_path):
    """The same file, but in a folder of the user's, where a link leads by now."""
    hidden.parent.rename(tmp_path / "out before")
    (tmp_path / "precious").mkdir()
    os.link(tmp_path / "out before" / hidden.name, tmp_path / "precious" / hidden.name)
    (tmp_path / "precious" / "out").write_text("old")
    hidden.parent.symlink_to(tmp_path / "precious")


def changed_file(hidden, tmp_path):
    with hidden.open("a") as file:
        file.write("mine")
    status = hidden.stat()
    os.utime(hidden, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def folder_in_its_place(hidden, tmp_path):
    hidden.unlink()
    hidden.mkdir()
    (hidden / "rows").write_text("mine")
    change(entries()[0], **place_of(hidden), changed=None)


FILE_ATTACKS = [file_of_another_inode, second_name, changed_file, folder_in_its_place]


@pytest.mark.parametrize("attack", FILE_ATTACKS, ids=lambda one: one.__name__)
def test_a_file_that_may_not_be_ours_stays(attack, tmp_path):
    hidden = left_file(tmp_path / "out")
    attack(hidden, tmp_path)
    [kept] = everything_that_removes()
    assert kept.stays
    assert hidden.exists()
    assert not hidden.is_dir() or (hidden / "rows").read_text() == "mine"
    assert (tmp_path / "out" / "out").read_text() == "old"


@root_only
def test_root_leaves_what_belongs_to_another_user(tmp_path):
    left, hidden = left_folder(), left_file(tmp_path / "out")
    for path in (left, hidden):
        os.chown(path, 65534, 65534)
    kept = everything_that_removes()
    assert [one.stays for one in kept] == ["it isn't the one that was made"] * 2
    assert hidden.exists()
    assert (left / "rows").exists()


def test_an_earlier_start_of_the_machine_or_another_process_of_its_number_is_no_excuse(tmp_path):
    """Negative control: without the reasons above, it is removed."""
    left, hidden = left_folder(), left_file(tmp_path / "out")
    for entry in entries():
        if entry.name in left.name:
            change(entry, boot="an earlier start", process=os.getpid())
        else:  # in a container, each of which is a machine by its name
            change(entry, process=os.getpid(), started="1", machine="elsewhere")
    assert everything_that_removes() == []
    assert not left.exists()
    assert not hidden.exists()
    assert (tmp_path / "out" / "out").read_text() == "old"


def test_what_is_gone_is_forgotten(tmp_path):
    shutil.rmtree(left_folder())
    left_file(tmp_path / "out").unlink()
    assert len(entries()) == 2
    assert leftovers() == []
    assert entries() == []


# --- the manifest itself --------------------------------------------------------------------------


def linked(state, tmp_path):
    (state / "noisewise").rename(tmp_path / "elsewhere")
    (state / "noisewise").symlink_to(tmp_path / "elsewhere")


def readable(state, tmp_path):
    (state / "noisewise").chmod(0o755)


def writable(state, tmp_path):
    (state / "noisewise").chmod(0o770)


def of_another_user(state, tmp_path):
    os.chown(state / "noisewise", 65534, 65534)


@pytest.mark.parametrize(
    "attack",
    [linked, readable, writable, pytest.param(of_another_user, marks=root_only)],
    ids=lambda one: one.__name__,
)
def test_a_manifest_that_others_may_have_written_proves_nothing(attack, tmp_path, monkeypatch):
    left = left_folder()
    attack(tmp_path / "state", tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OSError, match=r"noisewise"):
        leftovers()
    with private_folder() as folder:  # goes on without
        assert folder.exists()
    monkeypatch.setattr(sys, "argv", ["noisewise", "clean", "--yes"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert (left / "rows").exists()
    assert sorted(tmp_path.rglob("*")) == before


@root_only
def test_root_makes_no_manifest_in_the_home_of_another_user(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(home))
    with private_folder() as folder:
        assert folder.exists()
    assert list(home.iterdir()) == []
    assert leftovers() == []


def test_a_relative_state_folder_is_not_used(tmp_path, monkeypatch):
    """As the specification of XDG_STATE_HOME says: it would be another one in each folder."""
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert manifest_path() == tmp_path / ".local" / "state" / "noisewise"


GARBAGE = [b"", b"{", b"[]", b"{}", b"[" * 60_000, b"\xff\xfe", b"x" * 10**6]


@pytest.mark.parametrize("content", GARBAGE, ids=range(len(GARBAGE)))
def test_entries_that_say_nothing_are_left_alone(content, tmp_path):
    left = left_folder()
    [entry] = entries()
    entry.write_bytes(content)
    assert everything_that_removes() == []
    assert entry.read_bytes() == content
    assert (left / "rows").exists()


def test_what_is_no_entry_is_left_alone(tmp_path):
    with private_folder():
        pass  # makes the manifest
    manifest, precious = manifest_path(), tmp_path / "precious"
    precious.write_text("mine")
    (manifest / "notes").write_text("mine")
    (manifest / ("a" * 32)).symlink_to(precious)
    (manifest / ("b" * 32)).mkdir()
    os.mkfifo(manifest / ("c" * 32), 0o600)
    assert len(entries()) == 4
    assert [one.stays for one in everything_that_removes()] == []
    assert len(entries()) == 4
    assert precious.read_text() == "mine"


def test_no_forged_entry_removes_anything_of_the_users(tmp_path, scratch):
    """Random forgeries: fields of entries point to files and folders that the user has."""
    rng = random.Random(34)
    token = "f" * 32
    places = [
        tmp_path / "state",
        tmp_path / "docs",
        scratch,
        tmp_path / "docs" / f"noisewise-{token}",
    ]
    for place in places:
        place.mkdir(exist_ok=True)
        (place / "budget.db").write_text("mine")
        (place / ".profile").write_text("mine")
    names = ("budget.db", ".profile")
    targets = [*places, *(place / name for place in places for name in names)]
    for name in (f"noisewise-{token}", f".noisewise-{token}", ".noisewise-abcdefgh"):
        (scratch / name).mkdir()
        (scratch / name / "budget.db").write_text("mine")
        targets += [scratch / name, scratch / name / "budget.db"]
    with private_folder():
        pass
    before = sorted(path for path in tmp_path.rglob("*") if manifest_path() not in path.parents)
    removable = {
        **{
            "process": 1,
            "started": "0",
            "boot": "an earlier start",
            "machine": os.uname().nodename,
        },
        **{"changed": None, "time": "now"},
    }
    for _ in range(300):
        target = rng.choice(targets)
        forged = {**removable, "path": str(target), **place_of(target)}
        if rng.random() < 0.5:
            other = rng.choice(targets)
            forged |= {
                "path": str(rng.choice([other, target.parent / f"noisewise-{token}", "/", ".", ""]))
            }
        if rng.random() < 0.3:
            wrong = rng.choice([None, -1, 2**70, "x", [], {}, True, "\0", 1.5])
            forged[rng.choice(list(forged))] = wrong
        entry = manifest_path() / rng.choice([token, "0" * 32])
        entry.write_text(json.dumps(forged))
        entry.chmod(0o600)
        assert all(map(remove_leftover, leftovers()))
        entry.unlink(missing_ok=True)
        now = sorted(path for path in tmp_path.rglob("*") if manifest_path() not in path.parents)
        assert now == before, forged
    assert {path.read_text() for path in before if path.is_file()} == {"mine"}
