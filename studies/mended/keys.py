"""Releases in somebody else's name, keys that others can use, and one person under several ids."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import noisewise as nw
from noisewise.analyst.regression.fit import check_release
from noisewise.analyst.trust import read_trust
from noisewise.core.document import digest_of
from noisewise.core.errors import NoisewiseError, ReleaseError
from noisewise.core.kinds import release_from_text
from noisewise.federation.gather import collect
from noisewise.holder.requests.network import make_network_request
from noisewise.holder.schema_files import check_data, merged_ids
from studies.mended import Scenario

COLUMNS = {"age": nw.Number(18, 90), "income": nw.Number(0, 200_000)}
WORDS = {"target": "income", "features": ["age"], "epsilon": 1, "rounds": 1}
ROWS = {"age": [20.0, 35.0, 50.0, 65.0] * 20, "income": [9e3, 3e4, 1e5, 5e4] * 20}


def _published(folder: Path, **changes: Any) -> tuple[Path, Path]:
    """A signed Release's file, and the file with the public key of who signed it."""
    key = folder / "office.key"
    if not key.exists():
        nw.new_key(key, "Office")
    out = folder / f"{changes.get('label', 'release')}.json"
    with nw.Ledger(folder / "budget.db") as ledger:
        ledger.set_cap("people", 100)
        request = nw.make_request(nw.Schema("people", COLUMNS), **{**WORDS, **changes})
        nw.publish(request, ROWS, ledger=ledger, out=out, sign=key)
    return out, folder / "office.key.pub"


def _sealed(document: dict[str, Any]) -> str:
    """The text of an edited document, with the digest that anybody can compute."""
    content = {key: part for key, part in document.items() if key not in ("digest", "signature")}
    return json.dumps({**document, "digest": digest_of(content)})


def _accepted(text: str, trust: Path, folder: Path, what: str) -> str | None:
    """What broke, if `noisewise fit --trust` would fit this."""
    (folder / "forged.json").write_text(text, encoding="utf-8")
    try:
        collect([folder / "forged.json"], read_trust(trust))
    except ReleaseError:  # no other kind of error would be a defence
        return None
    return f"{what} was taken for the office's Release"


def _more_noise(document: dict[str, Any]) -> None:
    """Say that there was ten times the noise: a claim of epsilon 0.1 follows from it."""
    [part] = document["measurements"]
    weak = nw.make_request(nw.Schema("people", COLUMNS), **{**WORDS, "epsilon": "0.1"})
    [mechanism] = weak.mechanisms
    part["noise"] = {**part["noise"], "scale": mechanism.scale}
    part["noise"]["off_diagonal_scale"] = mechanism.scale
    document["privacy"]["claim"]["epsilon"] = document["privacy"]["event"]["epsilon"] = "1/10"


def forged_noise(folder: Path) -> str | None:
    """Claim more noise than there was; with the signature, without it, or with another one."""
    out, trust = _published(folder)
    document = json.loads(out.read_text("utf-8"))
    _more_noise(document)
    unsigned = {key: part for key, part in document.items() if key != "signature"}
    forged = release_from_text(_sealed(unsigned))  # possible as such, or this would show nothing
    check_release(forged, target="income", features=["age"], method="auto")
    if not _accepted(out.read_text("utf-8"), trust, folder, "the genuine one"):
        return "the office's own Release is refused, so this shows nothing: mend the scenario"
    thief = nw.new_key(folder / "thief.key", "Office")
    for what, text in {
        "a forgery under the old signature": _sealed(document),
        "a forgery without a signature": forged.to_text(),
        "a forgery signed by a stranger": thief.sign(forged).to_text(),
    }.items():
        if broken := _accepted(text, trust, folder, what):
            return broken
    return None


def stranger_as_signer(folder: Path) -> str | None:
    """Sign by a key of one's own, and name the office's key in the signature."""
    out, trust = _published(folder)
    document = json.loads(out.read_text("utf-8"))
    thief = nw.new_key(folder / "thief.key", "Office")
    signed = thief.sign(release_from_text(out.read_text("utf-8")))
    value = json.loads(signed.to_text())["signature"]["value"]
    document["signature"]["value"] = value
    return _accepted(json.dumps(document), trust, folder, "a stranger's signature")


def moved_signature(folder: Path) -> str | None:
    """Put the signature of one Release under another of the same publisher's."""
    out, trust = _published(folder)
    other, _ = _published(folder, label="later")
    document = json.loads(other.read_text("utf-8"))
    document["signature"] = json.loads(out.read_text("utf-8"))["signature"]
    return _accepted(json.dumps(document), trust, folder, "a Release with another one's signature")


def other_order(folder: Path) -> str | None:
    """Turn the order of columns round: the digest stays, the tables of a Fourier Release don't."""
    levels = nw.Category(("no", "yes"), "no")
    schema = nw.Schema("people", {"a": levels, "b": levels, "c": levels})
    network = {"a": [], "b": ["a"], "c": ["a"]}
    request = make_network_request(schema, network=network, mechanism="fourier", epsilon=1)
    rows = {"a": ["no"] * 60 + ["yes"] * 40, "b": ["yes"] * 90 + ["no"] * 10, "c": ["no"] * 100}
    key = nw.new_key(folder / "office.key", "Office")
    with nw.Ledger(folder / "budget.db") as ledger:
        ledger.set_cap("people", 100)
        release = nw.publish(request, rows, ledger=ledger, sign=key).release
    document = json.loads(release.to_text())
    columns = document["schema"]["columns"]
    document["schema"]["columns"] = dict(reversed(columns.items()))
    unsigned = {name: part for name, part in document.items() if name != "signature"}
    if release_from_text(json.dumps(unsigned)).digest != release.digest:
        return "the digest knows the order of columns, so this shows nothing: mend the scenario"
    try:
        release_from_text(json.dumps(document))
    except NoisewiseError:
        return None
    return "tables in another order were read under the signature of the first"


def revoked_key(folder: Path) -> str | None:
    """Use a stolen key after it was revoked, with a date from before that."""
    out, trust = _published(folder)
    stolen = nw.read_key(folder / "office.key")
    release = replace(release_from_text(out.read_text("utf-8")), label="made up")
    forged = stolen.sign(release, date(2020, 1, 1))
    listed = trust.read_text("utf-8") + "  revoked: {date: 2026-05-03, reason: stolen}\n"
    (folder / "trust.yaml").write_text(listed, encoding="utf-8")
    if not read_trust(trust).name_for(forged):
        return "the key is not the one that was stolen: mend the scenario"
    return _accepted(forged.to_text(), folder / "trust.yaml", folder, "what a revoked key signed")


def small_order(folder: Path) -> str | None:
    """Have a key trusted under which everybody can sign: the neutral element of the curve."""
    listed = "keys:\n- name: Office\n  key: ed25519:01" + "00" * 31 + "\n"
    (folder / "trust.yaml").write_text(listed, encoding="utf-8")
    try:
        read_trust(folder / "trust.yaml")
    except NoisewiseError:
        return None
    return "a key of small order is trusted"


def open_key(folder: Path) -> str | None:
    """Sign by a key file that everybody can read, or by a link that somebody put in its place."""
    key = folder / "office.key"
    nw.new_key(key)
    nw.new_key(folder / "thief.key")
    (folder / "link.key").symlink_to(folder / "thief.key")
    key.chmod(0o644)
    for path in (key, folder / "link.key"):
        try:
            nw.read_key(path)
        except NoisewiseError:
            continue
        return f"{path.name} was used"
    return None


def overwritten_key(folder: Path) -> str | None:
    """Have a key written over another file, or through a link into one."""
    (folder / "ledger.db").write_text("mine")
    (folder / "new.key").symlink_to(folder / "ledger.db")
    for name in ("ledger.db", "new.key"):
        with suppress(NoisewiseError):
            nw.new_key(folder / name)
    return None if (folder / "ledger.db").read_text() == "mine" else "a file was overwritten"


def key_twice(folder: Path) -> str | None:
    """Give a key of the JSON document twice: one value is signed, and another may be read."""
    out, trust = _published(folder, label="first")
    text = out.read_text("utf-8").replace('"label": "first"', '"label": "x", "label": "first"')
    return _accepted(text, trust, folder, "a document with a key given twice")


def four_spellings(folder: Path) -> str | None:
    """Own a hundred rows of a CSV file, under four spellings of one id."""
    spellings = ("1", "1.0", "01", "+1")
    rows = [f"{70 + i % 20},150000,{spellings[i % 4]}" for i in range(100)]
    rows += [f"30,20000,{who}" for who in range(2, 12)]
    data = folder / "people.csv"
    data.write_text("\n".join(["age,income,id", *rows]) + "\n", encoding="utf-8")
    as_written = nw.Schema("people", COLUMNS, "add_remove_one", unit_column="id")
    people = check_data(as_written, data)
    merged = merged_ids(as_written, data, people)
    if merged.get("type: integer") != 3:
        return "the rehearsal says nothing about ids that are spelled in several ways"
    read = replace(as_written, unit_type="integer")
    sums = [nw.make_request(schema, **WORDS).plan() for schema in (read, as_written)]
    counted = [_people(plan, data) for plan in sums]
    if counted != [11, 14]:
        return f"eleven people, of whom one has four spellings, are {counted[0]}"
    return None


def _people(plan: Any, data: Path) -> int:
    from noisewise.holder.engines import open_source

    return int(open_source(data).sums(plan).n)


SCENARIOS: dict[str, Scenario] = {
    "a forged Release that claims more noise": forged_noise,
    "a stranger's signature in the office's name": stranger_as_signer,
    "a signature moved to another Release": moved_signature,
    "columns in another order under the same digest": other_order,
    "a stolen key after its revocation, dated back": revoked_key,
    "a public key under which everybody can sign": small_order,
    "a key file that others can read, or a link to one": open_key,
    "a key written over another file": overwritten_key,
    "a key of the document given twice": key_twice,
    "one person in four spellings of an id": four_spellings,
}
