"""The one place that imports Flower's public interface, with a remedy where it is missing."""

from __future__ import annotations

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

__all__ = [
    "ClientApp",
    "ConfigRecord",
    "Context",
    "Grid",
    "Message",
    "MessageType",
    "RecordDict",
    "ServerApp",
]
