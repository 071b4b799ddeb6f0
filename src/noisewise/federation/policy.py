"""The holder's side: which proposals are answered, with which Release, at what price.

Every rule of a policy is one Release, fully determined by the policy file. A proposal picks a rule;
it cannot change one. So whatever a server asks, however often, a holder spends at most the sum of
its rules, each once, and never more than the cap in its ledger.

Nothing but the answer leaves. Flower sends the text of an exception to the server, and texts of
exceptions may quote rows. So `answer` raises nothing: what goes wrong is logged here, and becomes
one of the fixed words.
"""

from __future__ import annotations

import inspect
import logging
import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noisewise.core.errors import BudgetError, NoisewiseError
from noisewise.core.schema import Schema
from noisewise.core.yaml_files import PlainYamlError, read_schema, read_yaml
from noisewise.federation.protocol import (
    MAX_HOLDER_NAME,
    MAX_RELEASE,
    Fields,
    Proposal,
    ProposalError,
    Refusal,
    is_name,
    refusal_fields,
    release_fields,
)
from noisewise.holder.engines import is_server
from noisewise.holder.keys import SigningKey, read_key
from noisewise.holder.ledger import Charge, Ledger, Quote
from noisewise.holder.publish import as_charged, publish
from noisewise.holder.requests.file import read_asked
from noisewise.holder.requests.regression import Request, make_request
from noisewise.holder.requests.rounds import RoundsRequest
from noisewise.holder.schema_files import check_data

LOG = logging.getLogger("noisewise.federation")
MAX_WAIT = 3600.0
DEFAULT_REPLY_EVERY = 5.0

_REQUIRED = ("data", "schema", "ledger", "rules")
_SOURCE = ("engine", "table", "query", "query_attested_by")
_OPTIONAL = ("name", *_SOURCE, "reply_every_seconds", "sign")
# The regression, the price and the noise of a rule, in the words of `make_request`.
_RULE = tuple(name for name in inspect.signature(make_request).parameters if name != "schema")


class PolicyError(NoisewiseError):
    """The policy file is missing, malformed or contradicts the schema."""

    exit_code = 2


class NotAllowedError(NoisewiseError):
    """The policy does not answer a proposal; `refusal` is what may be said about it."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.value)
        self.refusal = refusal


@dataclass(frozen=True)
class Policy:
    """A policy file, checked."""

    data: Path | str  # a file, or the address of a PostgreSQL server
    ledger: Path  # the ledger must exist and hold a cap for the schema's data set
    schema: Schema
    requests: tuple[Request | RoundsRequest, ...]  # one a rule, in the order of the file
    engine: str = "auto"
    # As in `publish`
    table: str | None = None
    query: str | None = None
    query_attested_by: str | None = None  # by the holder: no proposal can say so
    # Answers leave at multiples of this after the proposal came, so that the time they take says
    # little about the rows. 0 answers at once.
    reply_every_seconds: float = DEFAULT_REPLY_EVERY
    # What the analyst may call this holder; sent with every answer. Empty: its node's number.
    name: str = ""
    sign: SigningKey | None = None  # signs every Release; its file has no passphrase

    def request_for(self, proposal: Proposal) -> Request | RoundsRequest:
        """The first rule that covers the proposal.

        A Release of more columns than are asked for covers it too: every regression among its
        columns can be fitted from it. So asking for one subset after the other costs a holder
        nothing beyond its rules.

        Raises
        ------
        NotAllowedError
            With a refusal that depends on the proposal, the policy and the schema only.
        """
        covering = [r for r in self.requests if set(proposal.names) <= set(r.design.regressed)]
        if not covering:
            raise NotAllowedError(Refusal.NOT_ALLOWED)
        if any(self.schema.columns.get(n) != column for n, column in proposal.columns.items()):
            raise NotAllowedError(Refusal.SCHEMA_DIFFERS)
        cap = proposal.max_epsilon
        for request in covering:
            if cap is None or self.charge(request).epsilon <= cap:
                return request
        raise NotAllowedError(Refusal.NOT_ALLOWED)

    @property
    def source(self) -> dict[str, Any]:
        """How the rows are read."""
        return {name: getattr(self, name) for name in _SOURCE}

    def charge(self, request: Request | RoundsRequest, ledger: Ledger | None = None) -> Charge:
        """What a ledger is asked for by a rule; a given one may know its words already."""
        where = {"table": self.table, "query": self.query}
        known = request if ledger is None else as_charged(request, ledger, **where)
        return known.charge(**where)


def read_policy(path: str | Path) -> Policy:
    """Read and check a policy file; paths in it are relative to its folder.

    Raises
    ------
    PolicyError
        With the file and the remedy.
    """
    path = Path(path)
    try:
        return _parse(read_yaml(path), path.parent)
    except FileNotFoundError:
        raise PolicyError(f"policy: there is no file {path}; see docs/federation.md") from None
    except (PlainYamlError, NoisewiseError) as error:
        raise PolicyError(f"{path}: {error}") from None


def _parse(document: Any, folder: Path) -> Policy:
    given = _keys(document, "policy", _REQUIRED, _OPTIONAL)
    schema = read_schema(folder / _text(given, "schema"))
    rules = given["rules"]
    if not isinstance(rules, list) or not rules:
        raise PolicyError("rules: expected a list with at least one rule")
    seconds = given.get("reply_every_seconds", DEFAULT_REPLY_EVERY)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise PolicyError(f"reply_every_seconds: expected a number, got {seconds!r}")
    if not 0 <= seconds <= MAX_WAIT:
        raise PolicyError(f"reply_every_seconds: expected 0 to {MAX_WAIT:g}, got {seconds:g}")
    if "name" in given and not is_name(_text(given, "name")):
        raise PolicyError(f"name: expected printable text of at most {MAX_HOLDER_NAME} characters")
    data = _text(given, "data")
    return Policy(
        data=data if is_server(data) else folder / data,
        ledger=folder / _text(given, "ledger"),
        schema=schema,
        requests=tuple(_request(schema, rule, n, folder) for n, rule in enumerate(rules, 1)),
        reply_every_seconds=float(seconds),
        sign=read_key(folder / _text(given, "sign")) if "sign" in given else None,
        **{key: _text(given, key) for key in (*_SOURCE, "name") if key in given},
    )


def _request(schema: Schema, rule: Any, number: int, folder: Path) -> Request | RoundsRequest:
    where = f"rule {number}"
    if isinstance(rule, dict) and "request" in rule:
        rule = _from_file(rule, where, folder)
    by_formula = isinstance(rule, dict) and "formula" in rule
    needed = ("formula",) if by_formula else ("target", "features")
    given = _keys(rule, where, needed, tuple(name for name in _RULE if name not in needed))
    if by_formula:
        _text(given, "formula")
    else:
        _check_columns(schema, given, where)
    if "series" in given:
        raise PolicyError(
            f"{where}: series: all rules of a policy read the same rows, so none of them is a "
            "batch that nobody else is in, and their costs add up; leave series and batch out. For "
            "disjoint batches give each its own data set and policy"
        )
    words = {**given, "label": _text(given, "label") if "label" in given else ""}
    try:
        request = make_request(schema, **words)
        if isinstance(request, Request):
            _ = request.mechanisms  # a price that cannot be calibrated is noticed here
        elif request.longest() > MAX_RELEASE:
            raise PolicyError(
                f"{where}: a Release of so many columns in rounds may be too long to be sent; "
                "state 'rounds: 1', or leave columns out"
            )
    except PolicyError:
        raise
    except NoisewiseError as error:
        raise PolicyError(f"{where}: {error}") from None
    return request


def _check_columns(schema: Schema, given: Mapping[str, Any], where: str) -> None:
    features = given["features"]
    if not isinstance(features, list) or not all(isinstance(name, str) for name in features):
        raise PolicyError(f"{where}: features must be a list of column names")
    for name in (*features, _text(given, "target")):
        if name not in schema.columns:
            raise PolicyError(
                f"{where}: the schema does not declare the column {name!r}; terms go into a formula"
            )


def _from_file(rule: dict[str, Any], where: str, folder: Path) -> dict[str, Any]:
    """A rule that names a request file: what the file says, unless the rule says otherwise.

    The schema is the policy's, whichever the file names.
    """
    own = {key: value for key, value in rule.items() if key != "request"}
    try:
        found = read_asked(folder / _text(rule, "request"))
        if found.kind != "regression":
            raise PolicyError(
                f"request: a federation takes regressions, and it asks for {found.kind}"
            )
        return dict(found.changed(own).words)
    except NoisewiseError as error:
        raise PolicyError(f"{where}: {error}") from None


def _keys(
    document: Any, where: str, required: tuple[str, ...], optional: tuple[str, ...]
) -> Mapping[str, Any]:
    if not isinstance(document, dict):
        raise PolicyError(f"{where}: expected keys and values, got {type(document).__name__}")
    for key in document:
        if key not in (*required, *optional):
            known = ", ".join((*required, *optional))
            raise PolicyError(f"{where}: unknown key {key!r}; the keys are {known}")
    for key in required:
        if key not in document:
            raise PolicyError(f"{where}: '{key}' is missing; add it")
    return document


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document[key]
    if not isinstance(value, str) or not value:
        raise PolicyError(f"{key}: expected text, got {value!r}; put it in quotes if it is one")
    return value


# --- from a proposal to an answer -----------------------------------------------------------------


def answer(
    proposal: object,
    policy: object,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Fields:
    """Publish what the policy allows, and say so no sooner than the policy says.

    The proposal is what the server sent, whatever it is; the policy is the path of the holder's own
    file, never from the server. `clock` and `sleep` are for tests. Returns the fields of an answer:
    a Release, or a refusal.
    """
    start = clock()
    fields = _fields(proposal, policy)
    every, name = _reply_every_and_name(policy)
    if name:
        fields = {**fields, "name": name}
    if every > 0:
        elapsed = clock() - start
        sleep(math.ceil(elapsed / every) * every - elapsed)
    return fields


def _reply_every_and_name(policy: object) -> tuple[float, str]:
    try:
        read = read_policy(policy)  # type: ignore[arg-type]
    except Exception:  # already logged as the reason of the refusal
        return DEFAULT_REPLY_EVERY, ""
    return read.reply_every_seconds, read.name


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
            how: dict[str, Any] = {**policy.source, "purpose": "federation", "sign": policy.sign}
            published = publish(request, policy.data, ledger=ledger, **how)
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


# --- a rehearsal: what would this node answer, at what price? Spends and sends nothing ------------
# With it, a policy that cannot be answered fails on the holder's own screen and not in front of the
# server.


@dataclass(frozen=True)
class Rehearsal:
    """What a rehearsal found."""

    lines: Sequence[str]  # for the holder
    within_budget: bool  # whether the budget pays for all rules together

    @property
    def exit_code(self) -> int:
        """For the command line, as of ``noisewise release --dry-run``."""
        return 0 if self.within_budget else BudgetError.exit_code


def rehearse(path: str | Path) -> Rehearsal:
    """Check a policy with its schema, ledger and data, and describe what it allows.

    Raises
    ------
    NoisewiseError
        With whatever would make the node refuse, a spent budget aside. Its message is for the
        holder.
    """
    policy = read_policy(path)
    lines, allowed, new = [], True, []
    if policy.sign is not None:
        lines.append(f"Releases are signed by {policy.sign.public}.")
    above: list[Charge] = []
    with Ledger(policy.ledger, create=False) as ledger:
        for number, request in enumerate(policy.requests, 1):
            charge = policy.charge(request, ledger)
            # A server may ask for all rules, so each is paid from what those above it leave.
            alone, together = ledger.preview(charge), ledger.preview(charge, after=above)
            if alone.refusal and alone.cap_epsilon is None:
                raise BudgetError(alone.refusal)
            above += [charge] if together.allowed else []
            new += [] if alone.already_published else [request]
            allowed &= together.allowed
            what = f"{request.design.target} ~ {' + '.join(request.design.features)}"
            state = _state(alone, together)
            lines.append(f"Rule {number}: {what} at {request.claim}, {state}.")
    # Of the number of rows is asked what `publish` would ask.
    names = {name for request in policy.requests for name in request.design.sources}
    schema = policy.schema.restricted_to(tuple(sorted(names)))
    n = check_data(schema, policy.data, **policy.source)
    for request in new:
        request.check_rows(n)
    lines.append("The data fit the schema and the rules.")
    unfilled = sorted(names - set(policy.schema.fill))
    if unfilled:
        lines.append(
            "Without a fill value, a missing value makes this node refuse, which the server sees: "
            + ", ".join(unfilled)
        )
    return Rehearsal(lines, allowed)


def _state(alone: Quote, together: Quote) -> str:
    """What the ledger says to a rule by itself, and after the rules above it."""
    if alone.already_published:
        return "published before; costs nothing more"
    if together.allowed:
        return "within the budget"
    if alone.allowed:
        return (
            "NOT within the budget together with the rules above: whichever is asked for last "
            "would be refused; raise the cap, or leave a rule out"
        )
    return "NOT within the budget: it would be refused; raise the cap, or ask for less"
