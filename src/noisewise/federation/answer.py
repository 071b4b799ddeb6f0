"""From a proposal to an answer, on the holder's side. Nothing but the answer leaves.

Flower sends the text of an exception to the server, and texts of exceptions may quote rows. So
`answer` raises nothing: what goes wrong is logged here, and becomes one of the fixed words.
"""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from noisewise.core.errors import NoisewiseError
from noisewise.federation.policy import (
    DEFAULT_REPLY_EVERY,
    NotAllowedError,
    PolicyError,
    read_policy,
)
from noisewise.federation.protocol import (
    Fields,
    Proposal,
    ProposalError,
    Refusal,
    refusal_fields,
    release_fields,
)
from noisewise.holder.ledger import Ledger
from noisewise.holder.publish import publish

LOG = logging.getLogger("noisewise.federation")


def answer(
    proposal: object,
    policy: object,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Fields:
    """Publish what the policy allows, and say so no sooner than the policy says.

    Parameters
    ----------
    proposal : object
        What the server sent, whatever it is.
    policy : object
        Path of the holder's policy file. Never from the server.
    clock, sleep : callable
        For tests.

    Returns
    -------
    dict
        The fields of an answer: a Release, or a refusal.
    """
    start = clock()
    fields = _fields(proposal, policy)
    every = _reply_every(policy)
    if every > 0:
        elapsed = clock() - start
        sleep(math.ceil(elapsed / every) * every - elapsed)
    return fields


def _reply_every(policy: object) -> float:
    try:
        return read_policy(policy).reply_every_seconds  # type: ignore[arg-type]
    except Exception:  # already logged as the reason of the refusal
        return DEFAULT_REPLY_EVERY


def _fields(text: object, path: object) -> Fields:
    try:
        proposal = Proposal.from_text(text)
        if not isinstance(path, str | Path):
            raise PolicyError(
                "this node has no policy; start it with --node-config 'policy=\"policy.yaml\"'"
            )
        policy = read_policy(path)
        request = policy.request_for(proposal)
        with Ledger(policy.ledger, create=False) as ledger:
            published = publish(
                request,
                policy.data,
                ledger=ledger,
                engine=policy.engine,
                table=policy.table,
                query=policy.query,
                purpose="federation",
            )
        fields = release_fields(published.release)
    except ProposalError as error:
        LOG.warning("Refused a proposal that cannot be read: %s", error)
        return refusal_fields(Refusal.BAD_PROPOSAL)
    except NotAllowedError as error:
        LOG.warning("Refused a proposal: %s", error.refusal.value)
        return refusal_fields(error.refusal)
    except NoisewiseError as error:
        LOG.warning("Refused a proposal (%s): %s", type(error).__name__, error)
        return refusal_fields(Refusal.REFUSED)
    except Exception as error:
        # Not the message: one of another library's may quote a value, and logs get passed on.
        where = "".join(traceback.format_tb(error.__traceback__))
        LOG.error("Refused a proposal after an unexpected %s at\n%s", type(error).__name__, where)
        return refusal_fields(Refusal.REFUSED)
    LOG.warning(
        "Answered with Release %s%s",
        published.release.digest,
        " from the ledger, at no cost" if published.repeated else "",
    )
    return fields
