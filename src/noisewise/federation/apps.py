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

import logging
from pathlib import Path

from noisewise.core.design import Design
from noisewise.core.errors import NoisewiseError
from noisewise.core.kinds.regression import Release
from noisewise.core.temporary import private_folder, write_file
from noisewise.federation.gather import (
    Answer,
    Check,
    Outcome,
    Patience,
    Settings,
    exchange,
    put_aside,
    read_settings,
    wait_for_nodes,
    write_releases,
    write_report,
)
from noisewise.federation.protocol import RECORD

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
    put_aside(posterior, settings.out / "earlier")
    write_report(outcome, settings, releases)
    try:
        check_enough(outcome, settings)
        fit_releases(outcome, settings, posterior)
    except Exception as error:
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
    if settings.trust:
        from noisewise.analyst.trust import read_trust

        read_trust(settings.trust)


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
    """Whether a Release by itself can be trusted and fitted as the settings say."""
    from noisewise.analyst.regression.fit import check_release
    from noisewise.analyst.trust import read_trust

    trust = read_trust(settings.trust) if settings.trust else None

    def check(release: Release) -> None:
        if trust is not None:
            trust.name_for(release)
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
            trust=settings.trust or None,
        )
    except Exception as error:
        # Of any type: what a made-up Release does to a sampler is for the report too.
        raise NoPosteriorError(
            f"{len(nodes)} Releases came, and no posterior could be fitted to them "
            f"({type(error).__name__}): {error}"
        ) from error
    with private_folder() as folder:
        posterior.save(folder / path.name)
        write_file(path, (folder / path.name).read_bytes(), mode=0o644)
    for line in str(posterior.summary()).splitlines():
        LOG.info("%s", line)
    for warning in posterior.info.warnings:
        LOG.warning("%s", warning)
