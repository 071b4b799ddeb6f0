"""Fingerprints of batches: a batch of a series whose rows were published before is refused.

A series costs what its costliest batch costs, on the holder's word that nobody is in two of them.
Nobody can check that from sums. But the same rows under two names, the slip that turns the budget
of one release into that of twenty, have the same exact sums (`holder.content`), and that is found.

A fingerprint is an HMAC-SHA256 of each text about the rows, with a random key of its own that is
kept beside it. Both stay in the ledger: whoever can read the ledger could test guesses about the
sums of a batch with it, and nobody else can do anything. It finds slips. Somebody who changes one
row gets past it, and so do rows that two batches share in part.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from noisewise.core.errors import DataError
from noisewise.holder.ledger.accounts import OpenAccount
from noisewise.holder.ledger.charges import Charge
from noisewise.holder.mechanisms import randomness


def fingerprint(content: Mapping[str, str]) -> dict[str, Any]:
    """Return what the ledger keeps of the texts."""
    key = randomness.octets(32).hex()
    return {"key": key, "texts": {name: _mac(key, name, content[name]) for name in content}}


def is_of(kept: Mapping[str, Any], content: Mapping[str, str]) -> bool:
    """Whether all texts that both have are the same, and there is one."""
    common = kept["texts"].keys() & content.keys()
    return bool(common) and all(
        hmac.compare_digest(kept["texts"][name], _mac(kept["key"], name, content[name]))
        for name in common
    )


def check_content(account: OpenAccount, charge: Charge, content: Mapping[str, str]) -> None:
    """Refuse rows that are in another batch of the same series.

    The same batch may be published again, by another request: charges of one batch add up.
    """
    for record in account.live():
        other = record.charge
        if other.series != charge.series or other.batch == charge.batch:
            continue
        if record.fingerprint is not None and is_of(record.fingerprint, content):
            raise DataError(
                f"batch: the rows of {charge.batch!r} are those of batch {other.batch!r} of the "
                f"series {charge.series!r}: all their sums are the same. Whoever is in both bears "
                "two losses, and a series counts one. Nothing was published, and the charge stays "
                "pending: if these are the wrong rows, the same request completes with the right "
                "ones at no further cost. If they are other people who agree by chance, as small "
                "batches of yes/no columns may, publish them without a series (the cost is added), "
                "or in another series of their own"
            )


def _mac(key: str, name: str, text: str) -> str:
    return hmac.new(bytes.fromhex(key), f"{name} {text}".encode(), "sha256").hexdigest()
