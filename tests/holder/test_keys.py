"""Key files, what is done with them, and that a signature changes nothing else."""

from __future__ import annotations

import os
import stat
from datetime import date

import pytest
import yaml

import noisewise as nw
from noisewise.analyst.trust import read_trust
from noisewise.core.errors import DataError, RequestError
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder import keys
from noisewise.holder.audit_sheet import audit_sheet, sheet_markdown
from noisewise.holder.keys import NeedsPassphraseError, new_key, public_file, read_key
from noisewise.holder.ledger import Ledger
from noisewise.holder.partition import Partition, publish_partition
from noisewise.holder.publish import publish
from noisewise.holder.requests.regression import make_request
from noisewise.holder.series import batch_path, made

from ..ledgers import ledger_for

PASSPHRASE = "several words, at random"
COLUMNS = {"x": Number(-1, 1), "g": Category(("a", "b"), "a"), "y": Number(-1, 1)}
ROWS = {"x": [0.1, 0.2, 0.3, 0.4] * 9, "g": ["a", "b"] * 18, "y": [0.5, 0.1, -0.3, 0.7] * 9}


@pytest.fixture
def key(tmp_path):
    return new_key(tmp_path / "office.key", "Office")


def request(neighbours="replace_one", **words):
    words = {"target": "y", "features": ["x"], "epsilon": 1, "rounds": 1, **words}
    return make_request(Schema("people", COLUMNS, neighbours), **words)


# ---------------------------------------------------------------------------------------------
# Files


def test_a_key_is_read_back(key, tmp_path):
    assert read_key(tmp_path / "office.key") == key
    assert new_key(tmp_path / "other.key").public != key.public
    listed = yaml.safe_load((tmp_path / "office.key.pub").read_text())
    assert listed == {"keys": [{"name": "Office", "key": key.public}]}


def test_the_secret_is_shown_nowhere(key, tmp_path):
    secret = yaml.safe_load((tmp_path / "office.key").read_text())["secret"].partition(":")[2]
    assert len(bytes.fromhex(secret)) == 32
    for shown in (repr(key), str(key), (tmp_path / "office.key.pub").read_text()):
        assert secret not in shown


def test_only_the_owner_can_read_it(key, tmp_path):
    old = os.umask(0)
    try:
        new_key(tmp_path / "careless.key")
    finally:
        os.umask(old)
    for name in ("office.key", "careless.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o604, 0o601])
def test_a_key_that_others_may_read_is_refused(mode, key, tmp_path):
    (tmp_path / "office.key").chmod(mode)
    with pytest.raises(RequestError, match="chmod 600"):
        read_key(tmp_path / "office.key")
    (tmp_path / "office.key").chmod(0o400)
    assert read_key(tmp_path / "office.key") == key


def test_a_key_of_somebody_else_is_refused(key, tmp_path, monkeypatch):
    monkeypatch.setattr(keys.os, "geteuid", lambda: os.stat(tmp_path).st_uid + 4711)
    if os.stat(tmp_path).st_uid == 0:  # the administrator's files are trusted
        os.chown(tmp_path / "office.key", 12345, -1)
    with pytest.raises(RequestError, match="another user"):
        read_key(tmp_path / "office.key")


def test_links_and_pipes_are_refused(key, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "office.key")
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    for name in ("link", "pipe", "folder", "nothing"):
        with pytest.raises(RequestError, match="sign:"):
            read_key(tmp_path / name)


def test_nothing_is_overwritten(key, tmp_path):
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RequestError, match="never overwritten"):
        new_key(tmp_path / "office.key")
    (tmp_path / "half.key.pub").write_text("mine")
    with pytest.raises(RequestError, match="never overwritten"):
        new_key(tmp_path / "half.key")
    assert not (tmp_path / "half.key").exists()
    (tmp_path / "dangling.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RequestError, match="never overwritten"):
        new_key(tmp_path / "dangling.key")
    assert not (tmp_path / "elsewhere").exists()
    assert (
        before.items() <= {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.exists()}.items()
    )


def test_a_link_that_appears_in_between_is_not_followed(tmp_path, monkeypatch):
    """Between the look and the making: O_EXCL decides, not the look."""
    monkeypatch.setattr(keys.Path, "exists", lambda self: False)
    monkeypatch.setattr(keys.Path, "is_symlink", lambda self: False)
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "a.key").symlink_to(tmp_path / "victim")
    with pytest.raises(RequestError, match="cannot write"):
        new_key(tmp_path / "a.key")
    assert (tmp_path / "victim").read_text() == "mine"


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(version=2),
        lambda d: d.update(format="noisewise-release"),
        lambda d: d.update(algorithm="rsa"),
        lambda d: d.update(public=d["public"][:-1] + "0"),
        lambda d: d.update(secret=d["secret"][:-2]),
        lambda d: d.update(secret="hex:zz"),
        lambda d: d.update(secret=5),
        lambda d: d.pop("public"),
    ],
)
@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
def test_damaged_files_are_refused(change, passphrase, tmp_path):
    path = tmp_path / "a.key"
    new_key(path, passphrase=passphrase)
    document = yaml.safe_load(path.read_text())
    change(document)
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(RequestError, match="sign:"):
        read_key(path, passphrase)


@pytest.mark.parametrize(
    "text", ["", "x", "{}", "[1]", "-----BEGIN PRIVATE KEY-----", "a: *b", "\0"]
)
def test_other_files_are_no_keys(text, tmp_path):
    (tmp_path / "a").write_text(text)
    (tmp_path / "a").chmod(0o600)
    with pytest.raises(RequestError, match="no signing key"):
        read_key(tmp_path / "a")


def test_a_passphrase(tmp_path):
    path = tmp_path / "boxed.key"
    key = new_key(path, passphrase=PASSPHRASE)
    assert key._private.private_bytes_raw().hex() not in path.read_text()
    assert read_key(path, PASSPHRASE) == key
    with pytest.raises(NeedsPassphraseError, match="passphrase"):
        read_key(path)
    for wrong in ("", PASSPHRASE + " ", PASSPHRASE.upper()):
        with pytest.raises(RequestError, match="the passphrase is wrong"):
            read_key(path, wrong)
    with pytest.raises(RequestError, match="fewer than 12"):
        new_key(tmp_path / "weak.key", passphrase="short")
    assert not (tmp_path / "weak.key").exists()


def test_one_passphrase_has_another_box_in_every_file(tmp_path):
    texts = []
    for name in ("a", "b"):
        new_key(tmp_path / name, passphrase=PASSPHRASE)
        texts.append(yaml.safe_load((tmp_path / name).read_text()))
    assert texts[0]["salt"] != texts[1]["salt"]
    swapped = {**texts[0], "secret": texts[1]["secret"], "salt": texts[1]["salt"]}
    (tmp_path / "a").write_text(yaml.safe_dump(swapped))
    with pytest.raises(RequestError, match="cannot be used"):
        read_key(tmp_path / "a", PASSPHRASE)


@pytest.mark.parametrize("name", [" ", "a\nb", "x" * 61, "\u200b"])
def test_names_that_cannot_be(name, tmp_path):
    with pytest.raises(RequestError, match="name:"):
        new_key(tmp_path / "a.key", name)
    assert not list(tmp_path.iterdir())


def test_names_with_signs_are_read_back(tmp_path):
    name = "Office: 'north' #1 \\ \"ö\""
    new_key(tmp_path / "a.key", name)
    read = read_trust(public_file(tmp_path / "a.key"))
    assert [one.name for one in read.keys] == [name]


# ---------------------------------------------------------------------------------------------
# Publishing


def test_a_published_release_is_signed_and_the_ledger_keeps_it_unsigned(key, tmp_path):
    out, ledger = tmp_path / "r.json", ledger_for(tmp_path / "budget.db", epsilon=1)
    first = publish(request(), ROWS, ledger=ledger, out=out, sign=tmp_path / "office.key")
    assert nw.load_release(out).signature == first.release.signature
    assert first.release.signature.key == key.public
    # For the same request nothing is charged, with another key or none.
    plain = publish(request(), ROWS, ledger=ledger, out=out)
    assert plain.repeated
    assert plain.release == first.release
    assert plain.release.signature is None
    assert nw.load_release(out).signature is None
    again = publish(request(), ROWS, ledger=ledger, out=out, sign=new_key(tmp_path / "b.key"))
    assert again.repeated
    assert again.release.digest == first.release.digest
    assert again.release.signature.key != key.public
    with Ledger(ledger) as budget:
        [account] = budget.accounts()
        assert len(account.charges) == 1
        sheet = audit_sheet(budget)
    assert sheet["datasets"][0]["releases"][0]["digest"] == first.release.digest
    assert first.release.digest.partition(":")[2] in sheet_markdown(sheet)


def test_a_key_that_cannot_be_used_costs_nothing(key, tmp_path):
    ledger = ledger_for(tmp_path / "budget.db")
    (tmp_path / "office.key").chmod(0o644)
    with pytest.raises(RequestError, match="chmod 600"):
        publish(request(), ROWS, ledger=ledger, sign=tmp_path / "office.key")
    with Ledger(ledger) as budget:
        assert not budget.accounts()[0].charges


def test_the_date_is_that_of_the_beginning_and_no_time(key, tmp_path, monkeypatch):
    """How long sums take depends on the rows; a signature must not say it."""
    days = [date(2026, 10, 5)]
    monkeypatch.setattr("noisewise.holder.publish.today", lambda: days[0])
    ledger, read = ledger_for(tmp_path / "budget.db"), []

    def progress(rows, total):
        read.append(rows)
        days[0] = date(2026, 10, 6)  # the day ends while rows are read

    signed = publish(request(), ROWS, ledger=ledger, sign=key, progress=progress).release
    assert read
    assert signed.signature.date == "2026-10-05"


def test_every_level_of_a_partition_is_signed(key, tmp_path):
    schema = Schema("people", COLUMNS, "add_remove_one")
    words = {"target": "y", "features": ["x"], "epsilon": 1, "rounds": 1}
    parts = Partition(make_request(schema, **words), "g", schema)
    ledger = ledger_for(tmp_path / "budget.db")
    out = tmp_path / "parts"
    found = publish_partition(parts, ROWS, ledger=ledger, out=out, sign=key)
    files = [nw.load_release(path) for path in sorted(out.iterdir())]
    assert [one.signature.key for one in files] == [key.public] * 2
    assert [one.release for one in found.values()] == files
    again = publish_partition(parts, ROWS, ledger=ledger, out=out)
    assert all(one.repeated and one.release.signature is None for one in again.values())


def test_a_series_of_signed_batches_goes_on(key, tmp_path):
    """Files of the folder are known by the digest of the text that the ledger keeps."""
    ledger, folder = ledger_for(tmp_path / "budget.db"), tmp_path / "series"
    for batch, rows in (("one", 36), ("two", 35)):
        asked = request(label=batch, batch=batch, series="monthly")
        data = {name: values[:rows] for name, values in ROWS.items()}
        for sign in (key, key, None, key):
            with Ledger(ledger) as budget, made(folder):
                out = batch_path(folder, batch, asked, asked.charge(), ledger=budget)
                publish(asked, data, ledger=budget, out=out, sign=sign)
    assert len(list(folder.iterdir())) == 2
    other = request(label="one", batch="one", series="monthly", epsilon=2)
    with Ledger(ledger) as budget, pytest.raises(RequestError, match="another Release"):
        batch_path(folder, "one", other, other.charge(), ledger=budget)


def test_rows_that_do_not_fit_leave_nothing_signed(key, tmp_path):
    ledger, out = ledger_for(tmp_path / "budget.db"), tmp_path / "r.json"
    bad = {**ROWS, "x": [None, *ROWS["x"][1:]]}
    with pytest.raises(DataError, match="pending"):
        publish(request(), bad, ledger=ledger, out=out, sign=key)
    assert not out.exists()
    assert publish(request(), ROWS, ledger=ledger, out=out, sign=key).release.signature is not None
