"""Whose Releases are fitted: lists of keys, what they refuse, and what posteriors say of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

import noisewise as nw
from noisewise.analyst.report import render
from noisewise.analyst.report.words import signatures_in_words
from noisewise.analyst.trust import Trust, TrustedKey, read_trust
from noisewise.core.errors import RequestError, SignatureError
from noisewise.core.kinds import load_release
from noisewise.federation.gather import collect
from noisewise.holder.keys import _key_of, new_key

from ..conformance.test_releases import draws_release, network_release, summary_release

OFFICE, OTHER, THIEF = (_key_of(bytes([i]) * 32) for i in range(3))
FAST = {"chains": 1, "draws": 50, "seed": 1}


RELEASE = load_release(Path(__file__).parents[1] / "data/written_by_0_1/releases/gaussian.json")


def release(label=""):
    return replace(RELEASE, label=label)


def listed(folder, text, name="trust.yaml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def line(key, name="Office", more=""):
    return f"- name: {name}\n  key: {key.public}\n{more}"


@pytest.fixture
def trust(tmp_path):
    return listed(tmp_path, f"keys:\n{line(OFFICE)}{line(OTHER, 'Other')}")


# ---------------------------------------------------------------------------------------------
# What is fitted


def test_only_what_trusted_keys_have_signed_is_fitted(trust):
    signed = OFFICE.sign(release("a"))
    posterior = nw.fit(signed, trust=trust, **FAST)
    assert posterior.signatures == (f"signed by Office (checked: {OFFICE.public})",)
    with pytest.raises(SignatureError) as caught:
        nw.fit([signed, release("b"), THIEF.sign(release("c"))], trust=trust, **FAST)
    said = str(caught.value)
    assert "Release 2 is not signed" in said
    assert f"Release 3 is signed by {THIEF.public}, which is not a key that you trust" in said
    assert "Release 1" not in said


def test_names_of_files_are_said(trust, tmp_path):
    paths = []
    for name, made in (("a", OFFICE.sign(release("a"))), ("b", release("b"))):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(made.to_text(), encoding="utf-8")
    with pytest.raises(SignatureError, match=r"trust: b\.json is not signed\."):
        nw.fit(paths, trust=trust, **FAST)


def test_a_release_that_was_changed_in_memory_is_refused(trust):
    changed = replace(OFFICE.sign(release("a")), label="b")
    with pytest.raises(SignatureError, match="Release 1 was changed after it was signed"):
        nw.fit(changed, trust=trust, **FAST)


def test_without_keys_everything_is_as_before_and_said():
    plain, signed = release(), OFFICE.sign(release())
    posteriors = [nw.fit(one, **FAST) for one in (plain, signed)]
    assert posteriors[0].signatures == ("unsigned",)
    assert posteriors[1].signatures == (f"signed by key {OFFICE.public} (not checked)",)
    assert (posteriors[0].theta == posteriors[1].theta).all()


@pytest.mark.parametrize("made", [release, network_release, summary_release, draws_release])
@pytest.mark.parametrize("how", ["unsigned", "not checked", "checked"])
def test_every_kind_of_posterior_keeps_it_in_files_and_pages(made, how, trust, tmp_path):
    given = made() if how == "unsigned" else OFFICE.sign(made())
    options = {} if made in (summary_release, draws_release) else FAST
    posterior = nw.fit(given, **options, **({"trust": trust} if how == "checked" else {}))
    [said] = posterior.signatures
    assert said.startswith("unsigned" if how == "unsigned" else "signed by ")
    assert ("(checked: " in said) == (how == "checked")
    assert ("(not checked)" in said) == (how == "not checked")
    posterior.save(tmp_path / "p.nc")
    read = nw.load_posterior(tmp_path / "p.nc")
    assert read.signatures == (said,)
    assert f"The released file is {said}." in render(read)
    assert read.to_dict()["signatures"] == [said]


def test_files_from_before_say_nothing():
    assert signatures_in_words(()) == []


def test_sentences_for_several_files():
    assert signatures_in_words(["unsigned"] * 3) == ["All 3 released files are unsigned."]
    assert signatures_in_words(["unsigned", "signed by A", "unsigned"]) == [
        "Files 1 and 3 are unsigned.",
        "File 2 is signed by A.",
    ]


def test_of_one_holder(trust):
    both = [OFFICE.sign(release("a")), OTHER.sign(release("b"))]
    posterior = nw.fit(both, trust=trust, varying=True, names=["a", "b"], **FAST)
    assert posterior.of_holder("b").signatures == (posterior.signatures[1],)


# ---------------------------------------------------------------------------------------------
# Dates and revocations


def why(text, tmp_path, *, on=date(2026, 6, 1), key=OFFICE):
    keys = read_trust(listed(tmp_path, text))
    try:
        return keys.name_for(key.sign(release(), on))
    except SignatureError as error:
        return str(error)


def test_a_revoked_key_counts_for_nothing_whatever_the_date(tmp_path):
    """Who has the key can date a signature back."""
    revoked = "  revoked: {date: 2026-05-03, reason: the laptop was stolen}\n"
    text = f"keys:\n{line(OFFICE, more=revoked)}"
    for day in (date(2020, 1, 1), date(2026, 5, 2), date(2026, 5, 4)):
        said = why(text, tmp_path, on=day)
        assert said == (
            "is signed by a key of Office that was revoked on 2026-05-03 (the laptop was stolen)"
        )


@pytest.mark.parametrize("order", [1, -1])
def test_a_revocation_counts_wherever_it_is_written(order, tmp_path):
    folder = tmp_path / "keys"
    folder.mkdir()
    names = ["a.pub", "z.yaml"][::order]
    listed(folder, f"keys:\n{line(OFFICE)}", names[0])
    listed(
        folder, f"keys:\n{line(OFFICE, 'Old office', '  revoked: {date: 2026-05-03}')}", names[1]
    )
    with pytest.raises(SignatureError, match="revoked on 2026-05-03"):
        read_trust(folder).name_for(OFFICE.sign(release()))


def test_keys_count_from_a_day_to_a_day(tmp_path):
    text = "keys:\n" + line(OFFICE, more="  valid_from: 2026-02-01\n  valid_until: 2026-03-31\n")
    for day, allowed in (("01-31", False), ("02-01", True), ("03-31", True), ("04-01", False)):
        said = why(text, tmp_path, on=date.fromisoformat(f"2026-{day}"))
        assert (said == "Office") == allowed, said
        assert allowed or f"is dated 2026-{day}" in said


def test_a_key_goes_and_another_one_comes(tmp_path):
    text = "keys:\n" + line(OFFICE, more="  valid_until: 2026-05-31\n")
    text += line(OTHER, "Office", "  valid_from: 2026-06-01\n")
    assert why(text, tmp_path, on=date(2026, 5, 31)) == "Office"
    assert why(text, tmp_path, on=date(2026, 6, 1), key=OTHER) == "Office"
    assert "counted to" in why(text, tmp_path, on=date(2026, 6, 1))
    assert "not a key that you trust" in why(text, tmp_path, key=THIEF)


# ---------------------------------------------------------------------------------------------
# Files of keys


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no list of public keys"),
        ("keys: []", "1 to 10,000"),
        ("keys: {}", "1 to 10,000"),
        ("[]", "no list of public keys"),
        (f"keys:\n{line(OFFICE)}more: 1", "nothing else"),
        ("keys:\n- Office", "expected name and key"),
        ("keys:\n- name: Office", "'key' is missing"),
        (f"keys:\n- key: {OFFICE.public}", "'name' is missing"),
        (f"keys:\n{line(OFFICE, '7')}", "name: expected text"),
        ("keys:\n" + line(OFFICE, '"a\\nb"'), "cannot be shown"),
        (f"keys:\n{line(OFFICE)}  name: Twice", "given twice"),
        (f"keys:\n{line(OFFICE)}  algorithm: none", "unknown key 'algorithm'"),
        (f"keys:\n{line(OFFICE)}  revoked: true", "revoked: expected"),
        (f"keys:\n{line(OFFICE)}  revoked: {{reason: x}}", "revoked: expected"),
        (f"keys:\n{line(OFFICE)}  revoked: {{date: soon}}", "year-month-day"),
        (f"keys:\n{line(OFFICE)}  valid_until: 2026", "year-month-day"),
        (f"keys:\n{line(OFFICE)}".replace("ed25519", "rsa"), "ed25519"),
        ("keys:\n- name: Office\n  key: 0123", "ed25519"),
        ("keys: &a\n- *a", "aliases"),
        ("keys:\n- name: Nobody\n  key: ed25519:01" + "00" * 31, "only its owner"),
    ],
)
def test_lists_that_are_none(text, words, tmp_path):
    with pytest.raises(RequestError, match=words):
        read_trust(listed(tmp_path, text))


def test_one_bad_file_in_a_folder_is_no_smaller_list(tmp_path):
    """It may be the one with a revocation."""
    folder = tmp_path / "keys"
    folder.mkdir()
    listed(folder, f"keys:\n{line(OFFICE)}", "a.pub")
    listed(folder, "keys: [", "revoked.yaml")
    with pytest.raises(RequestError, match=r"revoked\.yaml"):
        read_trust(folder)
    (folder / "revoked.yaml").unlink()
    listed(folder, "not a list, and not taken for one", "README.txt")
    assert len(read_trust(folder).keys) == 1
    (tmp_path / "nothing").mkdir()
    with pytest.raises(RequestError, match="no files of public keys"):
        read_trust(tmp_path / "nothing")
    with pytest.raises(RequestError, match="no file"):
        read_trust(tmp_path / "absent.pub")
    with pytest.raises(RequestError, match="no public key"):
        read_trust([])


def test_a_secret_key_is_not_taken_for_a_public_one(tmp_path):
    new_key(tmp_path / "office.key", "Office")
    with pytest.raises(RequestError, match=r"secret signing key.*office\.key\.pub"):
        read_trust(tmp_path / "office.key")
    assert len(read_trust(tmp_path / "office.key.pub").keys) == 1
    assert len(read_trust(tmp_path).keys) == 1  # of a folder, only the public files


def test_lists_that_everybody_may_write_are_refused(trust, tmp_path):
    trust.chmod(0o646)
    with pytest.raises(RequestError, match="could add a key"):
        read_trust(trust)
    trust.chmod(0o644)
    tmp_path.chmod(0o777)
    with pytest.raises(RequestError, match="could add a key"):
        read_trust(tmp_path)


def test_several_lists(tmp_path, trust):
    more = listed(tmp_path, f"keys:\n{line(THIEF, 'Third')}", "more.yaml")
    keys = read_trust([trust, str(more)])
    assert read_trust(keys) is keys
    assert keys.name_for(THIEF.sign(release())) == "Third"


# ---------------------------------------------------------------------------------------------
# Folders of Releases


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "releases"
    folder.mkdir()
    (folder / "a.json").write_text(OFFICE.sign(release("a")).to_text(), encoding="utf-8")
    return folder


def test_a_folder_with_anything_unsigned_is_refused(folder, trust):
    keys = read_trust(trust)
    assert list(collect([folder], keys).releases) == [folder / "a.json"]
    (folder / "b.json").write_text(release("b").to_text(), encoding="utf-8")
    (folder / "c.json").write_text(THIEF.sign(release("c")).to_text(), encoding="utf-8")
    text = OFFICE.sign(release("d")).to_text()
    other = replace(release("d"), label="e")
    text = text.replace('"d"', '"e"').replace(release("d").digest, other.digest)
    (folder / "d.json").write_text(text, encoding="utf-8")
    (folder / "notes.json").write_text("{}")  # no Release: left out, as without keys
    with pytest.raises(SignatureError) as caught:
        collect([folder], keys)
    said = str(caught.value)
    assert all(f"{name}.json" in said for name in "bcd")
    assert "a.json" not in said
    assert "notes" not in said
    found = collect([folder])
    assert [path.name for path in found.releases] == ["a.json", "b.json", "c.json"]
    assert "does not match" in found.skipped[folder / "d.json"]


def test_an_unsigned_copy_is_not_vouched_for_by_the_signed_one(folder, trust):
    """They have one digest and count once: which of them is looked at must not matter."""
    (folder / "0.json").write_text(release("a").to_text(), encoding="utf-8")
    with pytest.raises(SignatureError, match=r"0\.json is not signed"):
        collect([folder], read_trust(trust))


def test_a_trust_made_in_python():
    keys = Trust((TrustedKey("Me", OFFICE.public),))
    assert keys.name_for(OFFICE.sign(release())) == "Me"
