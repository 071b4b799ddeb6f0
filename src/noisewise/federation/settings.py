"""A round on the analyst's side: what is asked for, and what is left in the analyst's folder.

Settings come from the run configuration of the Flower app, which is flat: texts, numbers and truth
values under ``[tool.flwr.app.config]``.

``releases/`` holds the Releases of the last round that counted, and no others, so that fitting the
folder again fits what the report lists. A holder may have published twice between two rounds, and
both Releases in one folder would count its people twice. Those of earlier rounds move to
``earlier/``: they have cost budget, and nothing is deleted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from noisewise.core.document import write_text
from noisewise.core.errors import RequestError
from noisewise.core.privacy import as_loss
from noisewise.core.terms.formula import read_formula
from noisewise.core.yaml_files import read_schema
from noisewise.federation.gather import Outcome
from noisewise.federation.protocol import Proposal


@dataclass(frozen=True)
class Settings:
    """The settings of one round."""

    proposal: Proposal
    out: Path  # folder for Releases, report and posterior
    # How many are expected. The round starts when so many are connected, or after `connect_seconds`
    # with whoever is there.
    holders: int = 1
    minimum_holders: int = 1  # with fewer Releases nothing is fitted
    connect_seconds: float = 60.0
    timeout_seconds: float = 600.0  # how long to wait for answers in all
    # How long to wait for the rest once `minimum_holders` have answered
    grace_seconds: float = 60.0
    # As in `fit`; a negative seed is none
    method: str = "auto"
    chains: int = 4
    draws: int = 1000
    seed: int | None = None


# By the name of a setting; texts that are empty are not given.
_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("schema", "target", "features", "formula", "max-epsilon", "out"), ""),
    **{one.name.replace("_", "-"): one.default for one in fields(Settings)[2:]},
    "seed": -1,
}


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Check a run configuration and read the schema that it names.

    Raises
    ------
    RequestError, SchemaError
    """
    for key in config:
        if key not in _DEFAULTS:
            raise RequestError(f"{key}: unknown setting; there are {', '.join(_DEFAULTS)}")
    words = {**_DEFAULTS, **config}
    regression = ("formula",) if words["formula"] else ("target", "features")
    for key in ("schema", *regression, "out"):
        if not isinstance(words[key], str) or not words[key]:
            raise RequestError(f"{key}: not given; set it in the app's run configuration")
    schema = read_schema(words["schema"])
    if words["formula"]:
        if words["target"] or words["features"]:
            raise RequestError("formula: it names target and features; leave those out")
        target, features = read_formula(words["formula"], schema)
    else:
        target = words["target"]
        features = [name.strip() for name in words["features"].split(",")]
    proposal = Proposal(
        schema,
        target,
        tuple(features),
        None if words["max-epsilon"] == "" else as_loss(words["max-epsilon"], "max-epsilon"),
    )
    holders, minimum = _whole(words, "holders"), _whole(words, "minimum-holders")
    if minimum > holders:
        raise RequestError(f"minimum-holders: {minimum} is more than the {holders} expected")
    seed = words["seed"]
    return Settings(
        proposal=proposal,
        out=Path(words["out"]),
        holders=holders,
        minimum_holders=minimum,
        connect_seconds=_seconds(words, "connect-seconds"),
        timeout_seconds=_seconds(words, "timeout-seconds"),
        grace_seconds=_seconds(words, "grace-seconds"),
        method=str(words["method"]),
        chains=_whole(words, "chains"),
        draws=_whole(words, "draws"),
        seed=None if isinstance(seed, int) and seed < 0 else seed,
    )


def _whole(words: Mapping[str, Any], key: str) -> int:
    value = words[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RequestError(f"{key}: expected a whole number from 1 on, got {value!r}")
    return value


def _seconds(words: Mapping[str, Any], key: str) -> float:
    value = words[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 86_400:
        raise RequestError(f"{key}: expected seconds from 0 to 86400, got {value!r}")
    return float(value)


# --- what is left in the folder -------------------------------------------------------------------

_OURS = re.compile(r"[0-9a-f]{16}\.json")


def write_releases(outcome: Outcome, folder: Path) -> dict[int, str]:
    """One file a Release, named after its digest: names from elsewhere are no file names.

    Files of the round before that are not of this one move to ``earlier`` beside the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = {}
    for node, release in outcome.accepted.items():
        names[node] = f"{release.digest.removeprefix('sha256:')[:16]}.json"
        write_text(folder / names[node], release.to_text())
    earlier = folder.with_name("earlier")
    for file in sorted(folder.iterdir()):
        if _OURS.fullmatch(file.name) and file.name not in names.values():
            earlier.mkdir(exist_ok=True)
            file.replace(earlier / file.name)
    return names


def write_report(
    outcome: Outcome,
    settings: Settings,
    files: dict[int, str],
    *,
    posterior: Path | None = None,
    error: str | None = None,
) -> None:
    """Who is in, who is missing and why, and what came of it, for people and programs.

    Neither posterior nor error: the fit is under way.
    """
    report = {
        "proposal": json.loads(settings.proposal.to_text()),
        "accepted": [
            {
                "node": node,
                "name": outcome.names.get(node),
                "dataset": release.design.schema.dataset,
                "n": release.n,
                "claim": str(release.claim),
                "digest": release.digest,
                "file": f"releases/{files[node]}",
            }
            for node, release in outcome.accepted.items()
        ],
        "missing": [
            {"node": node, "name": outcome.names.get(node), "why": why}
            for node, why in outcome.missing.items()
        ],
        "notes": outcome.notes,
        "posterior": None if posterior is None else posterior.name,
        "error": error,
    }
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    write_text(settings.out / "report.json", text)
