"""The Flower ClientApp of a holder: ``noisewise.federation.client_app:app``.

It answers one kind of message, a query with a proposal. Its only setting is ``policy`` in the
node's own configuration (``flower-supernode --node-config``). It reads nothing of the run's
configuration, which is the server's.
"""

from __future__ import annotations

from noisewise.federation.answer import answer
from noisewise.federation.flower import ClientApp, ConfigRecord, Context, Message, RecordDict
from noisewise.federation.protocol import RECORD

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Answer a proposal with a Release or a refusal."""
    fields = answer(_proposal_in(message), context.node_config.get("policy"))
    return Message(RecordDict({RECORD: ConfigRecord(dict(fields))}), reply_to=message)


def _proposal_in(message: Message) -> object:
    """What the server sent where a proposal belongs, or None."""
    try:
        return message.content.config_records[RECORD]["proposal"]
    except (KeyError, ValueError):
        return None
