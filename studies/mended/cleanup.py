"""Cleanup once went by names: a ledger in a folder that looked like a leftover was removed.

Each attack puts files of the holder's (``budget.db``) where cleanup once looked, or says in the
list of temporary files that they are leftovers. Then everything runs that removes something: a
rehearsal with DuckDB, a release, a new ledger, and ``noisewise clean --yes``.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from typer.testing import CliRunner

from noisewise.cli.main import app
from noisewise.core.schema import Number, Schema
from noisewise.core.temporary import manifest_path, private_folder
from noisewise.core.yaml_files import write_schema
from noisewise.federation.gather import Outcome, write_releases
from noisewise.holder.ledger import Ledger
from studies.mended import Unavailable

NOBODY = 65534
HEX = "0123456789abcdef" * 2  # as long as the names of temporary files are today
# Folders with eight letters after the dash were taken for leftovers.
FOLDERS = [f"noisewise-{name}" for name in ("releases", "settings", "projects", "abcd_123", HEX)]
FILES = [".noisewise-abcdefgh", f".noisewise-{HEX}"]
MARK = ".made-by-noisewise"


@contextmanager
def _holder(folder: Path) -> Iterator[Path]:
    """TMPDIR, the list of temporary files, rows and a schema in a folder; gives TMPDIR."""
    scratch = folder / "tmp"
    scratch.mkdir()
    lines = ["x,y", *(f"{i % 7 / 7},{i % 11 / 11}" for i in range(300))]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    numbers = {name: Number(0, 1) for name in "xy"}
    write_schema(Schema("people", numbers, "replace_one"), folder / "schema.yaml")
    words = {"TMPDIR": str(scratch), "XDG_STATE_HOME": str(folder / "state")}
    with mock.patch.dict(os.environ, words), mock.patch.object(tempfile, "tempdir", str(scratch)):
        yield scratch


def _run(*words: str | Path) -> None:
    """A command; a refusal is as good as any other end."""
    CliRunner().invoke(app, [str(word) for word in words])


def _clean_all(folder: Path, out: Path) -> None:
    """Everything that removes something; outputs and a new ledger go to `out`."""
    schema, rows = folder / "schema.yaml", folder / "rows.csv"
    _run("schema", "check", schema, "--data", rows, "--engine", "duckdb")
    ledger = out / "new.db"
    _run("ledger", "cap", "--ledger", ledger, "--dataset", "people", "--epsilon", "9")
    asked = ["--target", "y", "--features", "x", "--epsilon", "1", "--ledger", ledger]
    for name in ("new.json", "new.json"):  # the second time it replaces a file
        _run("release", "--data", rows, "--schema", schema, *asked, "--out", out / name)
    _run("clean", "--yes")
    if not (out / "new.json").exists():
        raise RuntimeError("the release failed without an attack")


def _keep(folder: Path) -> Callable[[], bool]:
    """Put a ledger with a spent budget into a folder; whether it is still there."""
    folder.mkdir(exist_ok=True)
    with Ledger(folder / "budget.db") as ledger:
        ledger.set_cap("people", 1)
    content = (folder / "budget.db").read_bytes()

    def is_there() -> bool:
        path = folder / "budget.db"
        return path.exists() and path.read_bytes() == content

    return is_there


def _entry(target: Path, **other: Any) -> None:
    """Say in the list of temporary files that a killed process left this."""
    with private_folder():
        pass  # makes the list
    status, parent = target.lstat(), target.parent.stat()
    entry = {
        "path": str(target),
        "device": status.st_dev,
        "inode": status.st_ino,
        "parent_device": parent.st_dev,
        "parent_inode": parent.st_ino,
        "changed": None,
        "process": 2**22 + 1,
        "started": "1",
        "boot": "an earlier start of the machine",
        "machine": platform.node(),
        "time": "2026-01-01T00:00:00+00:00",
    }
    written = manifest_path() / HEX
    written.write_text(json.dumps({**entry, **other}), encoding="utf-8")
    written.chmod(0o600)


# --- attacks --------------------------------------------------------------------------------------


def folders_in_tmpdir(folder: Path) -> str | None:
    """The ledger is in $TMPDIR/noisewise-releases, and a rehearsal costs nothing."""
    with _holder(folder) as scratch:
        kept = {name: _keep(scratch / name) for name in FOLDERS}
        out = folder / "out"
        out.mkdir()
        _clean_all(folder, out)
        gone = [name for name, is_there in kept.items() if not is_there()]
    return f"the ledgers in {', '.join(gone)} are gone" if gone else None


def hidden_files(folder: Path) -> str | None:
    """Hidden files beside outputs and ledgers, whose names look like leftovers."""
    with _holder(folder):
        out = folder / "out"
        out.mkdir()
        for name in FILES:
            (out / name).write_text("mine", encoding="utf-8")
        _clean_all(folder, out)
        gone = [name for name in FILES if not (out / name).exists()]
    return f"{', '.join(gone)} are gone" if gone else None


def other_users(folder: Path) -> str | None:
    """Root releases, and other users have folders with such names in the shared TMPDIR."""
    if os.name == "nt" or os.geteuid() != 0:
        raise Unavailable("only root can make files of other users")
    with _holder(folder) as scratch:
        kept = {}
        for name in FOLDERS:
            kept[name] = _keep(scratch / name)
            for path in (scratch / name, scratch / name / "budget.db"):
                os.chown(path, NOBODY, NOBODY)
        out = folder / "out"
        out.mkdir()
        _entry(scratch / f"noisewise-{HEX}")  # and one is said to be ours
        (scratch / f"noisewise-{HEX}" / MARK).write_text(HEX, encoding="utf-8")
        os.chown(scratch / f"noisewise-{HEX}" / MARK, NOBODY, NOBODY)
        _clean_all(folder, out)
        gone = [name for name, is_there in kept.items() if not is_there()]
    return f"{', '.join(gone)} of another user are gone" if gone else None


def forged_entries(folder: Path) -> str | None:
    """Entries with the right numbers of files and folders that noisewise never made."""
    with _holder(folder) as scratch:
        out, broken = folder / "out", []
        out.mkdir()
        named = scratch / f"noisewise-{HEX}"
        targets = [scratch / "noisewise-releases", named, out]
        kept = {str(path): _keep(path) for path in targets}
        files = [path / name for path in targets for name in ("budget.db", ".profile")]
        for path in targets:
            (path / ".profile").write_text("mine", encoding="utf-8")
        for target in [*targets, *files]:
            _entry(target)
            _run("clean", "--yes")
            # The same numbers under the name that a leftover would have
            _entry(target, path=str(target.parent / f".noisewise-{HEX}"))
            _run("clean", "--yes")
        _clean_all(folder, out)
        broken += [name for name, is_there in kept.items() if not is_there()]
        broken += [str(path) for path in files if not path.exists()]
    return f"{', '.join(broken)}: gone" if broken else None


def list_of_somebody_else(folder: Path) -> str | None:
    """The list is a link, or others can write to it, and says of a ledger's folder what it must."""
    with _holder(folder) as scratch:
        out, state, broken = folder / "out", folder / "state" / "noisewise", []
        out.mkdir()
        ledgers = scratch / f"noisewise-{HEX}"
        is_there = _keep(ledgers)
        (ledgers / MARK).write_text(HEX, encoding="utf-8")  # say it was copied there
        _entry(ledgers)
        for how in ("a link", "open to a group", "of another user"):
            if how == "a link":
                state.rename(folder / "elsewhere")
                state.symlink_to(folder / "elsewhere")
            elif how == "open to a group":
                state.unlink()
                (folder / "elsewhere").rename(state)
                state.chmod(0o770)
            elif os.geteuid() == 0:
                state.chmod(0o700)
                os.chown(state, NOBODY, NOBODY)
            _clean_all(folder, out)
            if not is_there():
                broken.append(how)
    return f"a list that is {', '.join(broken)} was believed" if broken else None


def swapped_folder(folder: Path) -> str | None:
    """The private folder is replaced by a link, or by the ledger's folder, while it is in use."""
    with _holder(folder) as scratch:
        ledgers, broken = folder / "ledgers", []
        is_there = _keep(ledgers)
        with private_folder() as used:
            used.rename(scratch / "first")
            used.symlink_to(ledgers)
        if not is_there():
            broken.append("through a link")
        with private_folder() as used:
            used.rename(scratch / "second")
            ledgers.rename(used)
        if not (used / "budget.db").exists():
            broken.append("by its name")
    return f"the ledger was removed {' and '.join(broken)}" if broken else None


def running_process(folder: Path) -> str | None:
    """`noisewise clean --yes` while another process works in its temporary folder."""
    code = (
        "from noisewise.core.temporary import private_folder\n"
        "with private_folder() as folder:\n"
        "    (folder / 'rows').write_text('in use')\n"
        "    print(folder, flush=True)\n"
        "    input()\n"
        "    assert (folder / 'rows').read_text() == 'in use'\n"
    )
    with _holder(folder):
        pipe, command = subprocess.PIPE, [sys.executable, "-c", code]
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdout is not None
            used = Path(process.stdout.readline().strip())
            out = folder / "out"
            out.mkdir()
            _clean_all(folder, out)
            removed = not (used / "rows").exists()
            process.communicate("\n")
    return "a running process lost its folder" if removed else None


def rounds_of_a_federation(folder: Path) -> str | None:
    """A file of the analyst's own has a name like those of a round's Releases."""
    releases = folder / "releases"
    releases.mkdir()
    own = releases / f"{HEX[:16]}.json"
    own.write_text("mine", encoding="utf-8")
    write_releases(Outcome(), releases)
    return None if own.exists() else "it was moved away"


SCENARIOS = {
    "a ledger in a folder of TMPDIR": folders_in_tmpdir,
    "hidden files beside outputs and ledgers": hidden_files,
    "folders of other users, as root": other_users,
    "forged entries in the list": forged_entries,
    "a list that others can write to": list_of_somebody_else,
    "a folder swapped while it is in use": swapped_folder,
    "a process that is running": running_process,
    "a file among the Releases of a round": rounds_of_a_federation,
}
