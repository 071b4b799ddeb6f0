"""The Flower ServerApp of an analyst: ``noisewise.federation.server_app:app``.

It sends one proposal to every node, waits, and fits a posterior to the Releases that came. Files
in the folder ``out``: ``releases/*.json``, ``report.json`` and ``posterior.nc``.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from ..core.errors import NoisewiseError
from .flower import ConfigRecord, Context, Grid, Message, MessageType, RecordDict, ServerApp
from .gather import Answer, Outcome, Patience, exchange, wait_for_nodes
from .protocol import RECORD
from .settings import Settings, read_settings

LOG = logging.getLogger("flwr")  # what Flower shows to whoever started the run

app = ServerApp()

# Flower's own error codes. Its reasons are texts from the nodes: not repeated here.
_ERRORS = {
    1: "could not load the ClientApp; is noisewise installed there?",
    2: "its ClientApp failed; its own log says why",
    3: "its reply got lost",
    4: "did not answer in time; what it may have published waits there",
    5: "went offline",
    7: "does not trust this app",
    8: "its ClientApp crashed; its own log says why",
}


class TooFewHoldersError(NoisewiseError):
    """Fewer Releases than the analyst wants to fit."""

    exit_code = 6


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one round and fit what came of it."""
    settings = read_settings(context.run_config)
    outcome = ask(grid, settings)
    for line in outcome.lines():
        LOG.info("%s", line)
    releases = write_releases(outcome, settings.out / "releases")
    posterior = settings.out / "posterior.nc"
    posterior.unlink(missing_ok=True)  # an earlier round's would pass for this one's
    write_report(outcome, settings, releases, None)
    if len(outcome.accepted) < settings.minimum_holders:
        raise TooFewHoldersError(
            f"{len(outcome.accepted)} of at least {settings.minimum_holders} holders sent a "
            "Release, so nothing was fitted. " + "; ".join(outcome.lines())
        )
    fit_releases(outcome, settings, posterior)
    write_report(outcome, settings, releases, posterior)
    LOG.info("Wrote %s", posterior)


def ask(grid: Grid, settings: Settings) -> Outcome:
    """Send the proposal to every connected node and judge the answers."""
    connect = Patience(settings.connect_seconds, 0.0, settings.holders)
    nodes = wait_for_nodes(grid, settings.holders, connect)
    text = settings.proposal.to_text()
    messages = {
        node: Message(
            RecordDict({RECORD: ConfigRecord({"proposal": text})}),
            node,
            MessageType.QUERY,
            ttl=settings.timeout_seconds,
        )
        for node in nodes
    }
    patience = Patience(settings.timeout_seconds, settings.grace_seconds, settings.minimum_holders)
    outcome = exchange(grid, messages, open_reply, settings.proposal, patience)
    if len(nodes) < settings.holders:
        absent = settings.holders - len(nodes)
        outcome.notes.append(f"{absent} of {settings.holders} expected holders never connected")
    return outcome


def open_reply(reply: Message) -> Answer:
    """The fields of a reply, or why it has none."""
    if reply.has_error():
        return _ERRORS.get(reply.error.code, f"failed with Flower's error {reply.error.code}")
    content = reply.content
    if list(content) != [RECORD] or list(content.config_records) != [RECORD]:
        return "sent something other than an answer"
    return content.config_records[RECORD]


def write_releases(outcome: Outcome, folder: Path) -> dict[int, str]:
    """One file a Release, named after its digest: names from elsewhere are no file names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {}
    for node, release in outcome.accepted.items():
        names[node] = f"{release.digest.removeprefix('sha256:')[:16]}.json"
        (folder / names[node]).write_text(release.to_text(), encoding="utf-8")
    return names


def write_report(
    outcome: Outcome, settings: Settings, files: dict[int, str], posterior: Path | None
) -> None:
    """Who is in, who is missing and why, for people and programs."""
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
    }
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    beside = settings.out / ".report.json"
    beside.write_text(text, encoding="utf-8")
    beside.replace(settings.out / "report.json")  # readers see all of it or none


def fit_releases(outcome: Outcome, settings: Settings, path: Path) -> None:
    """Fit in the order of the digests, so that a seed gives the same posterior in every round."""
    from ..analyst.fit import fit

    posterior = fit(
        sorted(outcome.accepted.values(), key=lambda release: release.digest),
        target=settings.proposal.target,
        features=list(settings.proposal.features),
        method=settings.method,
        chains=settings.chains,
        draws=settings.draws,
        seed=settings.seed,
    )
    posterior.save(path)
    for line in str(posterior.summary()).splitlines():
        LOG.info("%s", line)
    for warning in posterior.info.warnings:
        LOG.warning("%s", warning)
