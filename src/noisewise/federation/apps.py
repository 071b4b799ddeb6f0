"""The Flower apps: ``noisewise.federation.apps:client`` of a holder, ``:server`` of an analyst.

The client answers one kind of message, a query with a proposal. Its only setting is ``policy`` in
the node's own configuration (``flower-supernode --node-config``). It reads nothing of the run's
configuration, which is the server's.

The server sends one proposal to every node, waits, and fits a posterior to the Releases that came
and can be fitted. Files in the folder ``out``: ``releases/*.json``, ``report.json`` and
``posterior.nc``.

This is the one place that imports Flower's public interface. Each app loads its own wing only.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from noisewise.core.design import Design
from noisewise.core.document import write_text
from noisewise.core.errors import NoisewiseError, RequestError
from noisewise.core.kinds.regression import Release
from noisewise.core.privacy import as_loss
from noisewise.core.terms.formula import read_formula
from noisewise.core.yaml_files import read_schema
from noisewise.federation.gather import Answer, Check, Outcome, Patience, exchange, wait_for_nodes
from noisewise.federation.protocol import RECORD, Proposal

try:
    from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ModuleNotFoundError as error:
    if error.name is None or error.name.split(".")[0] != "flwr":
        raise
    raise ModuleNotFoundError(
        "Flower is not installed. Federation over a network needs it: "
        "pip install 'noisewise[federation]'. To fit a folder of Release files you don't need it.",
        name="flwr",
    ) from None

LOG = logging.getLogger("flwr")  # what Flower shows to whoever started the run

client = ClientApp()
server = ServerApp()


@client.query()
def query(message: Message, context: Context) -> Message:
    """Answer a proposal with a Release or a refusal."""
    from noisewise.federation.policy import answer

    fields = answer(_proposal_in(message), context.node_config.get("policy"))
    return Message(RecordDict({RECORD: ConfigRecord(dict(fields))}), reply_to=message)


def _proposal_in(message: Message) -> object:
    """What the server sent where a proposal belongs, or None."""
    try:
        return message.content.config_records[RECORD]["proposal"]
    except (KeyError, ValueError):
        return None


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


class NoPosteriorError(NoisewiseError):
    """The fit failed, although every Release by itself can be fitted."""

    exit_code = 6


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run one round and fit what came of it."""
    settings = read_settings(context.run_config)
    check_settings(settings)
    outcome = ask(grid, settings)
    for line in outcome.lines():
        LOG.info("%s", line)
    releases = write_releases(outcome, settings.out / "releases")
    posterior = settings.out / "posterior.nc"
    posterior.unlink(missing_ok=True)  # an earlier round's would pass for this one's
    write_report(outcome, settings, releases)
    try:
        check_enough(outcome, settings)
        fit_releases(outcome, settings, posterior)
    except Exception as error:
        posterior.unlink(missing_ok=True)
        write_report(outcome, settings, releases, error=str(error) or type(error).__name__)
        raise
    write_report(outcome, settings, releases, posterior=posterior)
    LOG.info("Wrote %s", posterior)


def check_settings(settings: Settings) -> None:
    """Refuse what no fit would take, before any holder is asked to spend something on it."""
    from noisewise.analyst.regression.fit import check_fit

    proposal = settings.proposal
    check_fit(
        Design(proposal.schema, proposal.features, proposal.target),
        prior=None,
        method=settings.method,
        chains=settings.chains,
        draws=settings.draws,
    )


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
    outcome = exchange(
        grid, messages, open_reply, settings.proposal, release_check(settings), patience
    )
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


def release_check(settings: Settings) -> Check:
    """Whether a Release by itself can be fitted as the settings say."""
    from noisewise.analyst.regression.fit import check_release

    def check(release: Release) -> None:
        check_release(
            release,
            target=settings.proposal.target,
            features=list(settings.proposal.features),
            method=settings.method,
        )

    return check


def check_enough(outcome: Outcome, settings: Settings) -> None:
    """Refuse to fit fewer holders than the analyst wants."""
    if len(outcome.accepted) < settings.minimum_holders:
        raise TooFewHoldersError(
            f"{len(outcome.accepted)} of at least {settings.minimum_holders} holders sent a "
            "Release that can be fitted, so nothing was fitted. " + "; ".join(outcome.lines())
        )


def fit_releases(outcome: Outcome, settings: Settings, path: Path) -> None:
    """Fit in the order of the digests, so that a seed gives the same posterior in every round.

    Raises
    ------
    NoPosteriorError
    """
    from noisewise.analyst.fit import fit

    nodes = sorted(outcome.accepted, key=lambda node: outcome.accepted[node].digest)
    try:
        posterior = fit(
            [outcome.accepted[node] for node in nodes],
            target=settings.proposal.target,
            features=list(settings.proposal.features),
            method=settings.method,
            chains=settings.chains,
            draws=settings.draws,
            seed=settings.seed,
            names=[outcome.called(node) for node in nodes],
        )
    except Exception as error:
        # Of any type: what a made-up Release does to a sampler is for the report too.
        raise NoPosteriorError(
            f"{len(nodes)} Releases came, and no posterior could be fitted to them "
            f"({type(error).__name__}): {error}"
        ) from error
    posterior.save(path)
    for line in str(posterior.summary()).splitlines():
        LOG.info("%s", line)
    for warning in posterior.info.warnings:
        LOG.warning("%s", warning)


# --- settings of the server -----------------------------------------------------------------------

# A round on the analyst's side: what is asked for, and what is left in the analyst's folder.
#
# Settings come from the run configuration of the Flower app, which is flat: texts, numbers and
# truth values under ``[tool.flwr.app.config]``.
#
# ``releases/`` holds the Releases of the last round that counted, and no others, so that fitting
# the folder again fits what the report lists. A holder may have published twice between two rounds,
# and both Releases in one folder would count its people twice. Those of earlier rounds move to
# ``earlier/``: they have cost budget, and nothing is deleted.


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
