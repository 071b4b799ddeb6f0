"""A holder's rehearsal: what would this node answer, at what price? Spends and sends nothing.

    python -m noisewise.federation.rehearse policy.yaml

Run it before joining. With it, a policy that cannot be answered fails on the holder's own screen
and not in front of the server.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ..core.errors import NoisewiseError
from ..holder.fit_check import check_data
from ..holder.ledger import Ledger
from .policy import Policy, read_policy


def rehearse(path: str | Path) -> list[str]:
    """Check a policy with its schema, ledger and data, and describe what it allows.

    Raises
    ------
    NoisewiseError
        With whatever would make the node refuse. Its message is for the holder.
    """
    policy = read_policy(path)
    lines = _prices(policy)
    if policy.query is None:
        names = {name for request in policy.requests for name in request.design.sources}
        schema = policy.schema.restricted_to(tuple(sorted(names)))
        check_data(schema, policy.data, table=policy.table)
        lines.append("The data fit the schema.")
    else:
        lines.append("Data from a query are not checked here.")
    if policy.unfilled:
        lines.append(
            "Without a fill value, a missing value makes this node refuse, which the server sees: "
            + ", ".join(policy.unfilled)
        )
    return lines


def _prices(policy: Policy) -> list[str]:
    lines = []
    with Ledger(policy.ledger, create=False) as ledger:
        for number, request in enumerate(policy.requests, 1):
            quote = ledger.preview(policy.charge(request))
            if quote.already_published:
                state = "published before; costs nothing more"
            elif quote.allowed:
                state = "within the budget"
            else:
                state = "NOT within the budget: it would be refused"
            what = f"{request.design.target} ~ {' + '.join(request.design.features)}"
            lines.append(f"Rule {number}: {what} at {request.claim}, {state}.")
    return lines


def main() -> None:
    """Print the rehearsal, or the error with its exit code."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m noisewise.federation.rehearse policy.yaml")
    try:
        print("\n".join(rehearse(sys.argv[1])))
    except NoisewiseError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
