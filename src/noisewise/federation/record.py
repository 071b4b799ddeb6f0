"""What a round leaves in the analyst's folder: its Releases, and the report about them.

``releases/`` holds the Releases of the last round that counted, and no others, so that fitting the
folder again fits what the report lists. A holder may have published twice between two rounds, and
both Releases in one folder would count its people twice. Those of earlier rounds move to
``earlier/``: they have cost budget, and nothing is deleted.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from noisewise.core.document import write_text
from noisewise.federation.gather import Outcome
from noisewise.federation.settings import Settings

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
                "dataset": release.design.schema.dataset,
                "n": release.n,
                "claim": str(release.claim),
                "digest": release.digest,
                "file": f"releases/{files[node]}",
            }
            for node, release in outcome.accepted.items()
        ],
        "missing": [{"node": node, "why": why} for node, why in outcome.missing.items()],
        "notes": outcome.notes,
        "posterior": None if posterior is None else posterior.name,
        "error": error,
    }
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    write_text(settings.out / "report.json", text)
