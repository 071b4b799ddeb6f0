"""The audit sheet of a ledger: what was promised to whom, at what cost, and what it rests on.

The items are those that NIST SP 800-226 (Guidelines for Evaluating Differential Privacy Guarantees,
2025, https://doi.org/10.6028/NIST.SP.800-226) asks for, from the top of its pyramid to the bottom:
parameters and unit of privacy, mechanisms and bounds, assumptions, trust model, side channels, and
the exposure of the data as they are collected.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from noisewise._version import __version__
from noisewise.core.errors import ReleaseError, RequestError
from noisewise.core.kinds import release_from_text
from noisewise.core.schema import averages
from noisewise.holder.ledger import Account, ChargeRecord, Ledger

FORMAT = "noisewise-audit-sheet"
TITLE = "# Privacy audit sheet"
_BEGINNINGS = (TITLE.encode(), f'{{\n "format": "{FORMAT}"'.encode())

_NEIGHBOURS = {
    "replace_one": "the values of one unit are replaced; how many rows there are is public",
    "add_remove_one": "one unit is added or removed; how many rows there are is private",
}
_ADDED = (
    " Of the batches of a series that is declared disjoint the costliest counts; different series "
    "are added."
)
_COMPOSITION = {
    "filter": (
        "All charges that count pass a privacy filter for the cap, which holds whatever their "
        "sizes and kinds depend on: pure epsilons are added exactly, with Gaussian noise one of "
        "ten bounds that share the cap's delta has to hold, and what is spent is the least cap of "
        "this delta that all of them fit into, rounded up." + _ADDED
    ),
    "accountants": (
        "All charges that count are composed at the cap's delta: pure epsilons are added exactly, "
        "and with Gaussian noise the smallest of three proven bounds counts, rounded up." + _ADDED
    ),
}
_ASSUMPTIONS = (
    "Nobody owns more rows than the privacy unit says, or, where rows are averaged by ids, has two "
    "ids; noisewise cannot see who owns a row.",
    "Bounds, levels and fill values were chosen without looking at the data.",
    "Each row of a query's result depends on the rows of one unit alone. noisewise checks that on "
    "the statement, except for releases where somebody answers for it (attested), and for those of "
    "versions that did not check.",
    "The ledger is the only one for these people, and no older copy of it was put back.",
)
_PLANNED = (
    "The sizes of charges were not chosen in the light of earlier Releases; what is asked may be."
)
_CAP = "The cap was decided, and raised if it was, without looking at Releases."
_SERIES = "Nobody is in two batches of the series "
_TRUST = (
    "Central model: the holder sees the rows, runs noisewise and keeps the ledger. Whoever gets "
    "a Release is not trusted, whatever else they know, and however many they are."
)
_SIDE_CHANNELS = (
    "Noise is drawn on integers from a secure generator and takes no seed, so no floating-point "
    "digits leak.",
    "Run time depends on the number of rows, and a little on the data: let no outsider time it.",
    "Whether a release failed may depend on the data: do not publish that it did.",
)
_EXPOSURE = (
    "The rows stay with the holder as they were collected, and this sheet says nothing about how "
    "they are stored and who may read them. The ledger holds charges and published Releases, no "
    "exact statistic. What was published cannot be taken back."
)


def audit_sheet(ledger: Ledger) -> dict[str, Any]:
    """Return the sheet as plain JSON types; exact numbers are text.

    Purposes and user names are in it: it is for the holder and those who check the holder.
    """
    texts = ledger.published()
    return {
        "format": FORMAT,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "software": f"noisewise {__version__}",
        "datasets": [_dataset(account, texts) for account in ledger.accounts()],
        "trust_model": _TRUST,
        "side_channels": list(_SIDE_CHANNELS),
        "exposure": _EXPOSURE,
    }


def _dataset(account: Account, texts: dict[int, str]) -> dict[str, Any]:
    numbers = account.to_json()
    series = sorted({one.charge.series for one in account.charges if one.charge.series})
    rule = account.rule or "accountants"
    assumed = (*_ASSUMPTIONS, _CAP if rule == "filter" else _PLANNED)
    return {
        "dataset": account.dataset,
        "privacy_unit": _unit(account.unit),
        "total": {
            **{key: numbers[key] for key in ("cap_epsilon", "cap_delta")},
            **{key: numbers[key] for key in ("spent_epsilon", "remaining_epsilon")},
            "remaining_gaussian": numbers["remaining_gaussian"],
            "rule": account.rule,
            "composition": _COMPOSITION[rule],
        },
        "releases": [_release(record, texts.get(record.charge_id)) for record in account.charges],
        "assumptions": [*assumed, *(f"{_SERIES}{name!r}." for name in series)],
    }


def _unit(unit: str | None) -> dict[str, Any] | None:
    if unit is None:
        return None
    neighbours, _, rows = unit.partition("/")
    meaning = _NEIGHBOURS.get(neighbours, "")
    if averages(unit):
        meaning = meaning.replace("how many rows", "how many people")
    return {"neighbours": neighbours, "meaning": meaning, "max_rows_per_unit": rows}


def _release(record: ChargeRecord, text: str | None) -> dict[str, Any]:
    charge = record.to_json()
    found: dict[str, Any] = {**charge, "counts": record.counts}
    if text is not None:
        try:
            release = release_from_text(text)
        except ReleaseError as error:
            return {**found, "unreadable": str(error)}
        document = release.document
        schema = document["schema"]
        found["digest"] = release.digest
        found["bounds"] = {"columns": schema["columns"], "missing": schema["missing"]}
        skip = ("format_version", "schema", "privacy", "label")
        found["mechanism"] = _without_values(
            {key: value for key, value in document.items() if key not in skip}
        )
    return found


def _without_values(part: Any) -> Any:
    """Leave out what was published: the sheet says how, not what."""
    if isinstance(part, dict):
        kept = {key: value for key, value in part.items() if key not in ("values", "draws")}
        return {key: _without_values(value) for key, value in kept.items()}
    return [_without_values(one) for one in part] if isinstance(part, list) else part


def write_sheet(path: Path, text: str) -> None:
    """Write the text, over an earlier sheet if need be, but never over anything else."""
    try:
        if path.exists() and not path.read_bytes().startswith(_BEGINNINGS):
            raise RequestError(f"out: {path} exists and is no audit sheet; choose another name")
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RequestError(f"out: cannot write {path}: {error.strerror}") from None


# --- markdown -------------------------------------------------------------------------------------


def sheet_markdown(sheet: dict[str, Any]) -> str:
    """Return the sheet as Markdown; whatever somebody else has written is escaped."""
    lines = [TITLE, "", f"Made {sheet['made_at']} by {_escaped(sheet['software'])}.", ""]
    for one in sheet["datasets"]:
        lines += _dataset_lines(one)
    lines += ["## Trust model", "", sheet["trust_model"], "", "## Side channels", ""]
    lines += [f"- {one}" for one in sheet["side_channels"]]
    lines += ["", "## Exposure", "", sheet["exposure"]]
    return "\n".join(lines) + "\n"


def _dataset_lines(one: dict[str, Any]) -> list[str]:
    unit, total = one["privacy_unit"], one["total"]
    lines = [f"## Data set {_escaped(one['dataset'])}", ""]
    if unit is None:
        lines += ["- Privacy unit: nothing was charged yet"]
    else:
        rows = f"the rows of one person, at most {unit['max_rows_per_unit']}"
        if averages(f"/{unit['max_rows_per_unit']}"):
            rows = "one person, averaged over all their rows, which have one id"
        lines += [
            f"- Privacy unit: {rows}",
            f"- Neighbours: {_escaped(unit['neighbours'])} ({unit['meaning']})",
        ]
    if total["cap_epsilon"] is None:
        lines += [f"- Total: epsilon {total['spent_epsilon']} spent; no cap is set"]
    else:
        lines += [
            f"- Total: epsilon {total['spent_epsilon']} spent of {total['cap_epsilon']} at delta "
            f"{total['cap_delta']}; {total['remaining_epsilon']} left without a delta, "
            f"{total['remaining_gaussian']} with Gaussian noise"
        ]
    lines += [f"- Composition: {total['composition']}", "", "### Releases", ""]
    for record in one["releases"]:
        lines += _release_lines(record)
    if not one["releases"]:
        lines += ["None.", ""]
    return [*lines, "### Assumptions", "", *(f"- {_escaped(a)}" for a in one["assumptions"]), ""]


def _release_lines(record: dict[str, Any]) -> list[str]:
    counts = "" if record["counts"] else ", does not count"
    rows = {
        "What": record["summary"],
        "Status": record["status"] + counts,
        "Asked": f"{record['reserved_at']} by {record['user'] or 'unknown'}",
        "Purpose": record["purpose"] or "not given",
        "Attested": _attested(record["attested_by"]),
        "Settled": record["settled_at"] or "not yet",
        "Series, batch": ", ".join(filter(None, (record["series"], record["batch"]))),
        "Epsilon, delta": f"{record['epsilon']}, {record['delta']}",
        "Privacy event": _flat(record["event"]),
        "Mechanism": _flat(record.get("mechanism", record.get("unreadable", "not published"))),
        "Bounds": _flat(record.get("bounds", "")),
        "Digest in the Release": record.get("digest", ""),
        "SHA-256 of the Release, unsigned": record["release_sha256"] or "",
    }
    table = [f"| {key} | {_escaped(value)} |" for key, value in rows.items() if value]
    return [f"Charge {record['charge_id']}:", "", "| item | value |", "|---|---|", *table, ""]


def _attested(name: str) -> str:
    """Return what somebody answers for, or nothing."""
    words = "that each row that was read depends on the rows of one unit alone, which noisewise "
    return f"by {name}: {words}did not check" if name else ""


def _flat(value: Any) -> str:
    """Return a structure on one line, without the quotes that only a parser needs."""
    return (
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False).replace('"', "")
    )


def _escaped(text: object) -> str:
    """Return text that Markdown, and HTML in it, takes for plain text on one line."""
    line = "".join(c if c.isprintable() else " " for c in str(text))
    return re.sub(r"([\\`*_\[\]|~$:@])", r"\\\1", escape(line, quote=False))
