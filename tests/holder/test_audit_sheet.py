"""Who asked for what and why, and the sheet that says what was promised."""

from __future__ import annotations

import getpass
import json

import pytest
from typer.testing import CliRunner

from noisewise.cli.main import app
from noisewise.core.errors import RequestError
from noisewise.core.kinds import release_from_text
from noisewise.core.kinds.network.graph import Network
from noisewise.core.schema import Category, Schema
from noisewise.holder.audit_sheet import audit_sheet, sheet_markdown
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish
from noisewise.holder.requests.network import make_network_request

from .test_publish import people, request

NASTY = "<script>x</script> | a `b` *c* _d_ [e](https://f) $g$ \\"


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "budget.db") as opened:
        opened.set_cap("people", 5, "1e-5")
        yield opened


def test_purpose_user_and_time_are_kept_and_never_published(ledger, monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    release = publish(request(), people(), ledger=ledger, purpose="yearly report").release
    (record,) = ledger.accounts()[0].charges
    assert (record.user, record.purpose) == ("ada", "yearly report")
    assert record.to_json()["purpose"] == "yearly report"
    assert "yearly" not in release.to_text()
    assert "ada" not in json.loads(release.to_text())["software"]
    # Neither is part of which request it is.
    monkeypatch.setattr(getpass, "getuser", lambda: "bob")
    again = publish(request(), people(), ledger=ledger, purpose="curiosity")
    assert again.repeated
    assert len(ledger.accounts()[0].charges) == 1


def no_name():
    raise OSError("no user name")


@pytest.mark.parametrize("getuser", [no_name, lambda: "a\nb"])
def test_a_user_without_a_usable_name(ledger, monkeypatch, getuser):
    monkeypatch.setattr(getpass, "getuser", getuser)
    publish(request(), people(), ledger=ledger)
    assert ledger.accounts()[0].charges[0].user == "unknown"


@pytest.mark.parametrize("purpose", ["two\nlines", "x" * 501, "\ud800"])
def test_a_purpose_that_cannot_be_kept(ledger, purpose):
    with pytest.raises(RequestError, match="purpose"):
        publish(request(), people(), ledger=ledger, purpose=purpose)
    assert ledger.accounts()[0].charges == ()


def test_entries_from_before_purposes_are_read(ledger):
    """They have neither field; all else is as it is today."""
    from noisewise.holder.ledger.accounts import charge_to_json

    with ledger._file.transaction(write=True) as book:
        book.append("reserve", charge_to_json(request().charge()))
    (record,) = ledger.accounts()[0].charges
    assert (record.user, record.purpose, record.status) == ("", "", "pending")
    assert "unknown" in sheet_markdown(audit_sheet(ledger))


def several(ledger):
    """A published regression, one with Gaussian noise, a network, and an unfinished request."""
    publish(request(), people(), ledger=ledger, purpose="yearly report")
    publish(request(delta="1e-6", label="more"), people(), ledger=ledger, purpose=NASTY)
    schema = Schema("people", {"region": Category(("north", "south", "east"), "north")})
    network = make_network_request(schema, network=Network.make(schema, {"region": []}), epsilon=1)
    publish(network, people(), ledger=ledger)
    ledger.reserve(request(label="unfinished").charge(), purpose="later")


def test_the_sheet_says_what_was_promised(ledger):
    several(ledger)
    sheet = audit_sheet(ledger)
    (data,) = sheet["datasets"]
    assert data["privacy_unit"]["neighbours"] == "replace_one"
    assert data["privacy_unit"]["max_rows_per_unit"] == "1"
    total = data["total"]
    assert (total["cap_epsilon"], total["cap_delta"]) == ("5", "0.00001")
    (account,) = ledger.accounts()
    assert total["spent_epsilon"] == account.to_json()["spent_epsilon"]
    laplace, gaussian, network, pending = data["releases"]
    assert [one["epsilon"] for one in data["releases"]] == ["1"] * 4
    assert gaussian["delta"] == "0.000001"
    (noise,) = laplace["mechanism"]["measurements"]
    assert noise["noise"]["family"] == "discrete_laplace"
    assert gaussian["mechanism"]["measurements"][0]["noise"]["family"] == "discrete_gaussian"
    assert network["mechanism"]["mechanism"] == "laplace"
    assert laplace["bounds"]["columns"]["age"] == {"type": "number", "lower": 18, "upper": 90}
    assert (pending["status"], pending["purpose"]) == ("pending", "later")
    assert "mechanism" not in pending
    for item in ("trust_model", "side_channels", "exposure"):
        assert sheet[item]
    assert data["assumptions"]


def test_the_sheet_repeats_nothing_that_was_published(ledger):
    several(ledger)
    text = json.dumps(audit_sheet(ledger)) + sheet_markdown(audit_sheet(ledger))
    for published in ledger.published().values():
        release = release_from_text(published)
        values = getattr(release, "measurements", ())
        assert not any(str(one) in text for m in values for one in m.values if abs(one) > 10**6)
    assert '"values"' not in text


def test_what_people_wrote_is_plain_text_in_markdown(ledger):
    several(ledger)
    text = sheet_markdown(audit_sheet(ledger))
    assert "<script>" not in text
    (line,) = [one for one in text.splitlines() if "script" in one]
    assert line.startswith("| Purpose | &lt;script&gt;")
    assert line.replace("\\\\", "").replace("\\|", "").count("|") == 3  # two cells, as ever
    for mark in "`*_[]$":
        assert line.replace("\\\\", "").replace("\\" + mark, "").count(mark) == 0
    assert "https\\://f" in line
    assert "yearly report" in text


def test_export_by_suffix_and_never_over_another_file(ledger, tmp_path):
    several(ledger)

    def export(name, *words):
        out = ["--out", str(tmp_path / name)]
        run = CliRunner().invoke(
            app, ["ledger", "export", "--ledger", str(tmp_path / "budget.db"), *out, *words]
        )
        return run.exception

    for _ in range(2):  # a newer sheet replaces an older one
        assert export("sheet.md") is None
        assert export("sheet.json") is None
    assert (tmp_path / "sheet.md").read_text().startswith("# Privacy audit sheet")
    document = json.loads((tmp_path / "sheet.json").read_text())
    assert document["datasets"][0]["dataset"] == "people"
    assert export("sheet.txt", "--json") is None
    assert json.loads((tmp_path / "sheet.txt").read_text())["format"] == document["format"]
    before = (tmp_path / "budget.db").read_bytes()
    assert "no audit sheet" in str(export("budget.db"))
    assert (tmp_path / "budget.db").read_bytes() == before
    assert "cannot write" in str(export("nowhere/sheet.md"))


def test_show_says_who_and_why(ledger, tmp_path, monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    monkeypatch.setenv("COLUMNS", "200")
    several(ledger)
    show = CliRunner().invoke(app, ["ledger", "show", "--ledger", str(tmp_path / "budget.db")])
    (line,) = [one for one in show.output.splitlines() if "yearly report" in one]
    assert "ada" in line
    assert NASTY[:18] in show.output
