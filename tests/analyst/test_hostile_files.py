"""Posterior files may come from anybody: what is read of them, and what is refused."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

import noisewise as nw
from noisewise.analyst.posterior import file, hdf5
from noisewise.analyst.posterior.base import Fit, typed
from noisewise.cli.main import app
from noisewise.core.errors import NoisewiseError, ReleaseError, RequestError
from studies import attacks
from studies.mended import Unavailable, files

CHANGES = {
    f"{group}: {name}": change
    for group, changes in files.HOSTILE.items()
    for name, change in changes.items()
}
# Why a change is refused: the check that it is there for, not another one by chance.
KIND = "an object of a kind that noisewise does not write"
TYPE = "of a type that noisewise does not write"
STORED, LINK = "stored in a way that noisewise does not use", "a link that noisewise does not write"
FILTER, LARGE = "a filter that noisewise does not use", "its arrays would take"
SHAPE, TWICE = "a shape that noisewise does not write", "two parts of it lead to the same place"
FIT = "the draws do not fit the model"
REASONS = {
    "an array is another file": KIND,
    "an axis is another file": KIND,
    "an array is put together from another file": STORED,
    "a group is in another file": LINK,
    "an array is in another file": LINK,
    "a soft link": LINK,
    "a filter among plug-ins": FILTER,
    "a pipe": "there is no regular file",
    "a device": "there is no regular file",
    "a group in itself": KIND,  # an object with two links counts them
    "an array under two names": KIND,
    "a group that leads to the whole": TWICE,
    "an array that leads to its group": TWICE,
    "two names for one place": TWICE,
    "chunks that were never written": LARGE,
    "very many chunks that were never written": SHAPE,
    "a bomb": LARGE,
    "a chunk that is larger than it says": "a chunk is larger than its array says",
    "a chunk that is much larger than it says": "a chunk is too long",
    "arrays that share their bytes": LARGE,
    "a file with a hole": SHAPE,
    "very many groups": "it describes more than noisewise writes",
    "texts": FIT,  # not read, as the names along axes aren't
    "short texts": TYPE,
    "structures": TYPE,
    "references": TYPE,
    "regions of other arrays": TYPE,
    "lists": TYPE,
    "words": TYPE,
    "arrays in arrays": TYPE,
    "opaque bytes": TYPE,
    "numbers of another byte order": TYPE,
    "another filter": FILTER,
    "a filter with checksums": FILTER,
    "a filter with scales": FILTER,
    "another shape": FIT,
    "no axes": FIT,
    "no draws": FIT,
    "draws that are no numbers": "not all finite numbers",
    "no group of draws": "or damaged",
    "no error variance": FIT,
    "the newest format": STORED,
    "nothing": "or damaged",
    "deep brackets": "not valid JSON",
    "deep objects": "not valid JSON",
    "deep brackets in their place": "or damaged",
    "a number": "no attribute 'noisewise'",
    "several texts": "no attribute 'noisewise'",
    "a warning that steers the terminal": "characters that cannot be shown",
    "warnings that are no texts": "warnings: not as `fit` writes it",
    "rows that are no number": "n: not as `fit` writes it",
    "a claim too many": "different numbers of Releases",
    "an enormous seed": "seed: not as `fit` writes it",
    "a target that isn't there": "target must be text of at most",
    "one that begins later": "it is not HDF5",
    "one that is cut off": "it has been cut off",
    "an empty one": "it is not HDF5",
    "the beginning of one": "it is not HDF5",
    "one of zeros": "it begins in another way",
}


@pytest.fixture(scope="module")
def genuine(tmp_path_factory):
    return files.genuine(tmp_path_factory.mktemp("genuine") / "post.nc")


@pytest.fixture
def path(genuine, tmp_path):
    """A copy, to be changed."""
    copy = tmp_path / "post.nc"
    copy.write_bytes(genuine.read_bytes())
    return copy


def test_what_is_not_changed_is_read(path):
    assert nw.load_posterior(path).info.claims == ("epsilon = 1",)


@pytest.mark.parametrize("name", CHANGES)
def test_hostile_files_are_refused_for_the_right_reason(name, path):
    try:
        CHANGES[name](path)
    except Unavailable as reason:
        pytest.skip(str(reason))
    with pytest.raises(ReleaseError) as refused:
        nw.load_posterior(path)
    message = str(refused.value)
    assert message.startswith(f"{path}: ")
    assert REASONS[name.split(": ", 1)[1]] in message
    assert len(message) < 400
    assert message.isprintable()


def test_the_library_would_follow_it(path):
    """Negative control: the file does what it is meant to do, if one lets it."""
    files.external_storage(path)
    with h5py.File(path) as opened:
        assert opened[files.THETA][...].tobytes() in files.SECRET


WATCHED = """
import sys
from noisewise.analyst.posterior.file import load_posterior
from noisewise.core.errors import ReleaseError
def read(path):
    try:
        load_posterior(path)
    except ReleaseError:
        pass
read(sys.argv[1])  # what is imported has been imported
opened = []
sys.addaudithook(
    lambda event, given: opened.append((event, given[0]))
    if event in ("open", "os.open", "import", "ctypes.dlopen", "subprocess.Popen", "socket.connect")
    else None
)
for path in sys.argv[2:]:
    read(path)
libraries = {"h5py", "h5netcdf", "netCDF4", "xarray", "tables"} & set(sys.modules)
named = {str(what) for _, what in opened if not isinstance(what, int)}  # a number: it is open
print(sorted(named - set(sys.argv)), libraries)
"""


def test_reading_opens_that_file_and_no_library(genuine, tmp_path):
    paths = []
    for number, change in enumerate(files.HOSTILE["files that lead to other files"].values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        paths.append(files.genuine(folder / "post.nc"))
        try:
            change(paths[-1])
        except Unavailable as reason:
            print(reason)
    command = [sys.executable, "-c", WATCHED, str(genuine), str(genuine), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[] set()\n"


@pytest.mark.parametrize(
    "words",
    [
        ["show"],
        ["show", "--json"],
        ["report", "--out", "page.html"],
        ["export", "--to", "csv", "--out", "draws.csv"],
        ["plot", "--out", "a.png"],
    ],
)
def test_every_command_refuses_in_one_line(words, path, tmp_path, monkeypatch):
    files.external_storage(path)
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, [words[0], str(path), *words[1:]])
    assert isinstance(ended.exception, ReleaseError)  # `main` makes it a line and exit code 6
    assert KIND in str(ended.exception)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["post.nc", "secret.txt"]


# --- what is genuine is read bit for bit ----------------------------------------------------------


def groups_of(rng):
    """Arrays of all types and shapes that a file may have, in groups of up to 300 arrays."""
    kinds = ["<f8", "<f4", "i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "?"]
    found = file.Groups()
    for number in range(rng.choice([1, 2, 5])):
        arrays = {}
        for _ in range(rng.choice([1, 3, 9, 40, 300])):
            shape = [rng.choice([1, 2, 3, 7, 30]) for _ in range(rng.randint(1, 5))]
            size = int(np.prod(shape))
            if size > 20_000:
                shape, size = [2, 3001], 6002
            bits = np.frombuffer(rng.randbytes(8 * size), "<u8")
            kind = rng.choice(kinds)
            values = (
                bits % 2 == 0 if kind == "?" else bits.astype(kind) if rng.random() < 0.8 else 0
            )
            name = "".join(rng.choice("abcü_") for _ in range(rng.choice([5, 20, 200])))
            arrays[f"{name}{len(arrays)}"] = np.broadcast_to(values, size).reshape(shape)
        found[f"group_{number}"] = file.dataset(arrays, leading=())
    return found


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_written_is_read_as_the_library_reads_it(seed, tmp_path):
    rng = random.Random(seed)
    groups, path = groups_of(rng), tmp_path / "a.nc"
    words = {"text": "ü" * rng.choice([0, 1, 10_000]), "number": float("nan")}
    file.write(path, "regression", words, groups)
    with hdf5.Reader(path) as reader:
        found, marker = reader.arrays(), reader.text("noisewise")
    with h5py.File(path) as opened:
        assert marker == opened.attrs["noisewise"]
    assert found.keys() == groups.keys()
    for name, group in groups.items():
        assert found[name].keys() == group.arrays.keys()
        for each, (_, values) in group.arrays.items():
            assert found[name][each].dtype == values.dtype
            np.testing.assert_array_equal(found[name][each], values)


def test_the_checksum_is_the_published_one():
    """Values from the driver programs of its author's file."""
    assert hdf5.lookup3(b"") == 0xDEADBEEF
    assert hdf5.lookup3(b"Four score and seven years ago") == 0x17770551


def test_filters_may_be_left_out_of_a_chunk(path):
    """The library stores a chunk as it is if deflate would make it longer."""
    rng = np.random.default_rng(1)
    values = rng.integers(0, 2**63, (2, 600, 3)).view("<f8")
    values[~np.isfinite(values)] = 1.0
    with files.opened(path) as opened:
        del opened[files.THETA]
        made = opened.create_dataset(files.THETA, values.shape, "<f8", chunks=(2, 400, 2))
        del opened[files.THETA]
        words = {"chunks": (2, 400, 2), "compression": "gzip", "shuffle": True}
        made = opened.create_dataset(files.THETA, values.shape, "<f8", **words)
        made[...] = values
        raw = np.zeros((2, 400, 2))
        raw[:, :200, :1] = values[:, 400:, 2:]
        made.id.write_direct_chunk((0, 400, 2), raw.tobytes(), filter_mask=3)
    with hdf5.Reader(path) as reader:
        np.testing.assert_array_equal(reader.arrays()["posterior"]["theta"], values)


# --- accidents ------------------------------------------------------------------------------------


def test_a_few_damaged_files(tmp_path):
    """`python -m studies attacks` tries thousands."""
    found = attacks.damaged_posteriors(60, random.Random(1), tmp_path)
    assert not found.breaks
    assert any("refused" in end for end in found.ends)
    assert any("read" in end for end in found.ends)


def test_the_campaign_notices(tmp_path, monkeypatch):
    """Negative control: without the check of types, such a file ends in another error."""
    monkeypatch.setattr(Fit, "read", classmethod(lambda cls, words: cls(**words)))
    monkeypatch.setattr(attacks, "_posteriors", lambda base: [files.genuine(base / "a.nc")])
    monkeypatch.setattr(attacks, "_change", lambda whole, rng: whole["info"].update(n=[{}]))
    monkeypatch.setattr(
        attacks.random.Random, "choice", lambda self, of: "words" if "words" in of else of[0]
    )
    assert attacks.damaged_posteriors(1, random.Random(1), tmp_path).breaks


@pytest.mark.parametrize("reads", [1, 3, 10, 30, 50])
@pytest.mark.parametrize("end", [b"", b"\xff" * 50_000])
def test_a_file_that_changes_while_it_is_read(reads, end, path, monkeypatch):
    """It may become anything; what comes is an error, or numbers of the right shape."""
    fill, left = hdf5._File.fill, [reads]

    def changed(self, room, address):
        left[0] -= 1
        if not left[0]:
            path.write_bytes(path.read_bytes()[:3000] + end)
        fill(self, room, address)

    monkeypatch.setattr(hdf5._File, "fill", changed)
    try:
        found = nw.load_posterior(path)
    except ReleaseError as error:
        assert "post.nc" in str(error)
    else:
        assert found.theta.shape == (2, 600, 3)
    assert left[0] <= 0


def test_a_file_that_nobody_may_read(path, monkeypatch):
    def refuses(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(hdf5.os, "open", refuses)
    with pytest.raises(ReleaseError, match="cannot be read: Permission denied; check the path"):
        nw.load_posterior(path)


# --- limits ---------------------------------------------------------------------------------------


def test_files_of_the_largest_allowed_size_are_read(path, monkeypatch):
    with hdf5.Reader(path) as reader:
        total = sum(values.nbytes for values in reader.arrays()["posterior"].values())
    for most in (total, total - 1):
        monkeypatch.setattr(hdf5, "MAX_ARRAYS", most)
        if most == total:
            nw.load_posterior(path)
        else:
            with pytest.raises(ReleaseError, match="its arrays would take"):
                nw.load_posterior(path)


def test_chunks_count_whole(path):
    """A chunk that reaches beyond its array is inflated whole."""
    with files.opened(path) as opened:
        opened.create_dataset("posterior/more", data=np.ones((3, 3)), chunks=(2, 2))
    with hdf5.Reader(path) as reader:
        assert reader.groups["posterior"]["more"].nbytes == 8 * 4 * 4


def test_what_could_not_be_read_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5, "MAX_ARRAYS", 1000)
    with pytest.raises(RequestError, match=r"out: the draws take .* fewer draws or chains"):
        files.genuine(tmp_path / "post.nc")
    assert not list(tmp_path.iterdir())


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (str, "a", "a"),
        (int, 3, 3),
        (float, 3, 3),
        (float, 1.5, 1.5),
        (bool, True, True),
        (int | None, None, None),
        (tuple[int | None, ...], [1, None], (1, None)),
        (tuple[float, float], [1.0, 2], (1.0, 2)),
        (tuple[float, float] | None, [1.0, 2.0], (1.0, 2.0)),
        (tuple[tuple[float, ...], ...], [[1.0], []], ((1.0,), ())),
    ],
)
def test_json_becomes_what_it_was(kind, value, read):
    assert typed(value, kind, "a") == read


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((str, value) for value in (1, None, ["a"])),
        *((int, value) for value in (True, 1.0, "1", 2**63, -(10**400))),
        *((float, value) for value in (True, "1", 10**400)),
        *((bool, value) for value in (1, None)),
        *((tuple[int, ...], value) for value in (1, [1.5], {"a": 1}, "12", [[1]])),
        *((tuple[float, float], value) for value in ([1.0], [1.0, 2.0, 3.0], [1.0, None])),
        (int | None, "a"),
    ],
)
def test_json_of_another_type_is_refused(kind, value):
    with pytest.raises(ReleaseError, match="where: not as `fit` writes it"):
        typed(value, kind, "where")


def test_markers_keep_their_numbers(path):
    """Diagnostics may be NaN or infinite, and a Release is text of several lines."""
    whole = files.document(path)
    whole["info"] |= {"prior_pull": {"age": float("nan")}, "prior_error_sd": [0.5, float("inf")]}
    files.mark(path, json.dumps(whole))
    info = nw.load_posterior(path).info
    assert np.isnan(info.prior_pull["age"])
    assert info.prior_error_sd == (0.5, float("inf"))


@pytest.mark.parametrize("text", ['{"format": 1, "format": 2}', "[]", '"a"', "NaN", "{} {}"])
def test_markers_that_are_no_documents(text, path):
    files.mark(path, text)
    with pytest.raises(NoisewiseError, match="or damaged"):
        nw.load_posterior(path)


def test_every_limit_is_documented():
    page = (Path(__file__).parents[2] / "docs/limits.md").read_text("utf-8")
    assert f"{hdf5.MAX_ARRAYS >> 30} GiB" in page
    assert f"{hdf5.ALWAYS >> 20} MiB" in page
    assert f"{hdf5.MAX_RATIO} times" in page
