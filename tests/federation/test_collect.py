import json
import os
import subprocess
import sys

import pytest

from noisewise.core.errors import ReleaseError
from noisewise.core.kinds import load_release
from noisewise.federation.gather import collect
from tests.releases import example_request, release_of


def write(path, label=""):
    release = release_of(example_request(label=label))
    path.write_text(release.to_text(), encoding="utf-8")
    return release


def test_a_folder_of_releases(tmp_path):
    b, a = write(tmp_path / "b.json", "b"), write(tmp_path / "a.json", "a")
    write(tmp_path / ".hidden.json", "hidden")
    (tmp_path / "notes.txt").write_text("not a Release")
    (tmp_path / "deeper").mkdir()
    write(tmp_path / "deeper" / "c.json", "c")
    found = collect([tmp_path])
    assert list(found.releases.items()) == [(tmp_path / "a.json", a), (tmp_path / "b.json", b)]
    assert not found.skipped


def test_copies_count_once_wherever_they_are(tmp_path):
    (tmp_path / "one").mkdir()
    write(tmp_path / "one" / "a.json")
    write(tmp_path / "one" / "copy.json")
    write(tmp_path / "elsewhere.json")
    found = collect([tmp_path / "one", tmp_path / "elsewhere.json"])
    assert list(found.releases) == [tmp_path / "one" / "a.json"]
    assert len(found.skipped) == 2
    assert all("counts once" in why for why in found.skipped.values())


def test_what_is_malformed_in_a_folder_is_told_and_left_out(tmp_path):
    write(tmp_path / "good.json")
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "cut.json").write_text((tmp_path / "good.json").read_text("utf-8")[:-50])
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    found = collect([tmp_path])
    assert list(found.releases) == [tmp_path / "good.json"]
    assert {path.name for path in found.skipped} == {"bad.json", "cut.json", "bytes.json"}
    assert "not UTF-8" in found.skipped[tmp_path / "bytes.json"]


def test_whatever_lies_in_a_folder_the_others_are_found(tmp_path, monkeypatch):
    good = write(tmp_path / "good.json")
    text = good.to_text()
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "half.json").write_text(text.replace('"label": ""', '"label": "\\ud800"'))
    (tmp_path / "types.json").write_text(json.dumps({"format": ["noisewise-release"]}))
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "strange.json").write_text("strange")

    def load(path):
        if path.name == "strange.json":
            raise KeyError("whatever")
        return load_release(path)

    monkeypatch.setattr("noisewise.federation.gather.load_release", load)
    found = collect([tmp_path])
    assert list(found.releases) == [tmp_path / "good.json"]
    assert len(found.skipped) == 6


def test_a_malformed_file_that_was_named_is_an_error(tmp_path):
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ReleaseError, match=r"bad\.json"):
        collect([tmp_path / "bad.json"])


def test_nothing_at_all_is_an_error(tmp_path):
    with pytest.raises(ReleaseError, match="no Release in this folder"):
        collect([tmp_path])
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ReleaseError, match=r"none is valid. bad\.json"):
        collect([tmp_path])
    with pytest.raises(ReleaseError):
        collect([])


def test_an_empty_folder_beside_a_full_one_is_an_error_too(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "empty").mkdir()
    write(tmp_path / "full" / "a.json")
    with pytest.raises(ReleaseError, match="empty"):
        collect([tmp_path / "full", tmp_path / "empty"])


def test_it_loads_neither_flower_nor_a_wing():
    code = (
        "import sys, noisewise.federation.gather\n"
        "bad = [m for m in sys.modules if m.split('.')[0] == 'flwr'\n"
        "       or m.startswith(('noisewise.holder', 'noisewise.analyst'))]\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
