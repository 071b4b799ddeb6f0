"""The analyst's side: what a round asks for, who answered, and what is left in a folder.

From nodes: who answered, what counts, who is missing and why. From files with no server at all, or
folders of files that holders put there: `collect`. Neither imports Flower or a wing.

Settings come from the run configuration of the Flower app, which is flat: texts, numbers and truth
values under ``[tool.flwr.app.config]``.

``releases/`` holds the Releases of the last round that counted, and no others, so that fitting the
folder again fits what the report lists. A holder may have published twice between two rounds, and
both Releases in one folder would count its people twice. Those of earlier rounds move to
``earlier/``: they have cost budget, and nothing is deleted. So does the posterior of the round
before, which would pass for this one's.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from noisewise.core.document import write_text
from noisewise.core.errors import NoisewiseError, ReleaseError, RequestError, SignatureError
from noisewise.core.kinds import AnyRelease, load_release
from noisewise.core.kinds.regression import Release
from noisewise.core.privacy import as_loss
from noisewise.core.terms.formula import read_formula
from noisewise.core.yaml_files import read_schema
from noisewise.federation.protocol import (
    REFUSAL_WORDS,
    AnswerError,
    Proposal,
    Refusal,
    name_in,
    read_fields,
)

if TYPE_CHECKING:
    from noisewise.analyst.trust import Trust

PAUSE = 1.0
LONGEST = 500  # characters of what is told about a node

Answer = Mapping[str, Any] | str
"""The fields that a node sent, or words that say why there are none."""

Check = Callable[[Release], None]
"""Raises for a Release that could not be fitted or trusted, whatever the others are."""


class Mail(Protocol):
    """What is needed of Flower's Grid."""

    def get_node_ids(self) -> Iterable[int]:
        """Nodes that are connected."""

    def push_messages(self, messages: Any) -> Iterable[str | None]:
        """Send; returns an id a message, or None for one that could not be sent."""

    def pull_messages(self, message_ids: Any) -> Iterable[Any]:
        """Replies that have arrived to these messages."""


@dataclass(frozen=True)
class Patience:
    """How long to wait, and for how many."""

    timeout: float
    grace: float
    enough: int
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass
class Outcome:
    """What became of a round."""

    accepted: dict[int, Release] = field(default_factory=dict)  # by node
    # Why a node's Release is missing, in words that follow "node 17"
    missing: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what else is worth telling
    names: dict[int, str] = field(default_factory=dict)  # what nodes call themselves, where they do

    def called(self, node: int) -> str:
        """A node in words: two may have one name, so that its number is there too."""
        name = self.names.get(node)
        return f"{name} (node {node})" if name else f"node {node}"

    def lines(self) -> list[str]:
        """The outcome for people."""
        found = [
            f"{self.called(node)}: Release of '{release.design.schema.dataset}', {release.claim}"
            for node, release in self.accepted.items()
        ]
        found += [f"{self.called(node)}: {why}" for node, why in self.missing.items()]
        return found + self.notes


def wait_for_nodes(mail: Mail, expected: int, patience: Patience) -> list[int]:
    """Nodes that are connected, as soon as there are as many as expected, or at the timeout."""
    end = patience.clock() + patience.timeout
    while True:
        nodes = sorted(set(mail.get_node_ids()))
        if len(nodes) >= expected or patience.clock() >= end:
            return nodes
        patience.sleep(PAUSE)


def exchange(
    mail: Mail,
    messages: Mapping[int, Any],
    open_reply: Callable[[Any], Answer],
    proposal: Proposal,
    check: Check,
    patience: Patience,
) -> Outcome:
    """Send one message a node and judge replies until all are in or patience ends.

    `messages` are by node, and `open_reply` takes a reply to its fields, or to words that say why
    it has none. `check` is asked here, and not once all are in, so that a Release that can't be
    fitted is not taken for one of `enough`. Once `enough` Releases are in, the others have the
    `grace` seconds of `patience` left.
    """
    nodes = list(messages)
    ids = list(mail.push_messages([messages[node] for node in nodes]))
    ids += [None] * (len(nodes) - len(ids))
    waiting = {key: node for key, node in zip(ids, nodes, strict=True) if key is not None}
    asked = dict(waiting)
    unsent = (node for key, node in zip(ids, nodes, strict=True) if key is None)
    outcome = Outcome(missing=dict.fromkeys(unsent, "the proposal could not be sent to it"))
    end = patience.clock() + patience.timeout
    unreadable: dict[str, str] = {}
    while waiting:
        for reply in _replies(mail, list(waiting), unreadable):
            key = _reply_to(reply)
            if waiting.pop(key, None) is not None:
                judge(outcome, asked[key], _opened(open_reply, reply), proposal, check)
            elif key in asked:
                again = "answered more than once; its first answer counts"
                outcome.notes.append(f"node {asked[key]} {again}")
            else:
                outcome.notes.append("a reply to a message that was never sent was ignored")
        now = patience.clock()
        if len(outcome.accepted) >= patience.enough:
            end = min(end, now + patience.grace)
        if now >= end:
            break
        if waiting:
            patience.sleep(min(PAUSE, end - now))
    for key, node in waiting.items():
        outcome.missing[node] = unreadable.get(
            key, "did not answer in time; what it may have published waits there"
        )
    return outcome


def _replies(mail: Mail, keys: Sequence[str], unreadable: dict[str, str]) -> list[Any]:
    """What has arrived. If one reply can't be unpacked, the others are fetched without it."""
    try:
        return list(mail.pull_messages(keys))
    except Exception:
        found: list[Any] = []
        for key in keys:
            try:
                found += mail.pull_messages([key])
            except Exception as error:
                unreadable[key] = f"its reply cannot be fetched ({type(error).__name__})"
        return found


def _reply_to(reply: Any) -> str:
    try:
        return str(reply.metadata.reply_to_message_id)
    except Exception:
        return ""


def _opened(open_reply: Callable[[Any], Answer], reply: Any) -> Answer:
    try:
        return open_reply(reply)
    except Exception as error:
        return f"sent something that cannot be opened ({type(error).__name__})"


def _told(why: object) -> str:
    """Words about a node, some of them perhaps its own: short, and fit for a terminal."""
    words = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(why))
    return words if len(words) <= LONGEST else f"{words[:LONGEST]}..."


def judge(outcome: Outcome, node: int, answer: Answer, proposal: Proposal, check: Check) -> None:
    """Enter one answer into the outcome, by itself: nobody's answer concerns another's."""
    try:
        if isinstance(answer, str):
            raise AnswerError(answer)
        name = name_in(answer)
        if name:
            outcome.names[node] = name
        read = read_fields(answer)
        if isinstance(read, Refusal):
            raise AnswerError(REFUSAL_WORDS[read])
        _check_columns(read, proposal)
        for other, release in outcome.accepted.items():
            if release.digest == read.digest:
                raise AnswerError(
                    f"sent the same Release as {outcome.called(other)}; it counts once"
                )
        _check_fit(read, check)
    except AnswerError as error:
        outcome.missing[node] = _told(error)
    except Exception as error:
        # Whatever it was, it must not end the round for all.
        outcome.missing[node] = f"sent something that cannot be read ({type(error).__name__})"
    else:
        outcome.accepted[node] = read


def _check_fit(release: Release, check: Check) -> None:
    try:
        check(release)
    except SignatureError as error:
        raise AnswerError(f"sent a Release that {error}") from None
    except NoisewiseError as error:
        raise AnswerError(f"sent a Release that cannot be fitted: {error}") from None
    except Exception as error:
        # A forged one may hold any numbers.
        dataset = release.design.schema.dataset
        raise AnswerError(
            f"sent a Release of data set {dataset!r} that cannot be fitted "
            f"({type(error).__name__}: {error})"
        ) from None


def _check_columns(release: Release, proposal: Proposal) -> None:
    """A Release counts if it has the model's columns on the proposal's scale."""
    released = release.design.schema.columns
    for name, column in proposal.columns.items():
        if name not in released:
            raise AnswerError(f"sent a Release without the column {name!r}")
        if released[name] != column:
            raise AnswerError(f"declares the column {name!r} with other bounds or levels")


# --- from files -----------------------------------------------------------------------------------


@dataclass
class Collected:
    """What was found."""

    # Of any kind, in the order of the paths given, folders by file name; each Release once
    releases: dict[Path, AnyRelease] = field(default_factory=dict)
    skipped: dict[Path, str] = field(default_factory=dict)  # files that don't count, and why


def collect(paths: Iterable[str | Path], trust: Trust | None = None) -> Collected:
    """Load Releases from files and folders, all of them or those that `trust` allows.

    In a folder, every ``*.json`` that isn't hidden is tried; subfolders are not entered. One that
    is not a valid Release is skipped with the reason, since holders write there independently of
    each other. The same Release twice, wherever it is, counts once: it is the same people.

    Raises
    ------
    ReleaseError
        For a file that was named itself and isn't a valid Release, and for a folder without any.
    SignatureError
        If keys are given, for all Releases that none of them has signed, in folders, too.
    """
    found = Collected()
    first: dict[str, Path] = {}
    refused: list[str] = []

    def add(path: Path) -> None:
        try:
            release = load_release(path)
            if trust is not None:
                trust.name_for(release)
        except SignatureError as error:
            if trust is None:
                raise
            refused.append(f"{path} {str(error).removeprefix(f'{path}: ')}")
        else:
            _add(found, first, path, release)

    for path in map(Path, paths):
        if not path.is_dir():
            add(path)
            continue
        before = len(first)
        for file in sorted(path.glob("*.json")):
            if file.name.startswith("."):
                continue
            if not file.is_file():  # a pipe would be waited for without end
                found.skipped[file] = "not a file"
                continue
            try:
                add(file)
            except ReleaseError as error:
                found.skipped[file] = str(error).removeprefix(f"{file}: ")
            except Exception as error:  # one holder's file must not hide the others'
                found.skipped[file] = f"cannot be read ({type(error).__name__})"
        empty = len(first) == before and not refused
        if empty and not any(file.parent == path for file in found.skipped):
            raise ReleaseError(f"{path}: there is no Release in this folder (*.json)")
    if refused:
        from noisewise.analyst.trust import untrusted

        raise untrusted(refused)
    if not found.releases:
        reasons = "; ".join(f"{file.name}: {why}" for file, why in found.skipped.items())
        raise ReleaseError(f"releases: none is valid. {reasons}" if reasons else "releases: none")
    return found


def _add(found: Collected, first: dict[str, Path], path: Path, release: AnyRelease) -> None:
    if release.digest in first:
        found.skipped[path] = f"the same Release as {first[release.digest]}; it counts once"
        return
    first[release.digest] = path
    found.releases[path] = release


# --- the settings of a round ----------------------------------------------------------------------


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
    trust: str = ""  # a file of public keys, or a folder: other Releases don't count; empty: all do


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
    cap = None if words["max-epsilon"] == "" else as_loss(words["max-epsilon"], "max-epsilon")
    holders, minimum = _whole(words, "holders"), _whole(words, "minimum-holders")
    if minimum > holders:
        raise RequestError(f"minimum-holders: {minimum} is more than the {holders} expected")
    seed = words["seed"]
    return Settings(
        Proposal(schema, target, tuple(features), cap),
        Path(words["out"]),
        holders,
        minimum,
        _seconds(words, "connect-seconds"),
        _seconds(words, "timeout-seconds"),
        _seconds(words, "grace-seconds"),
        method=str(words["method"]),
        chains=_whole(words, "chains"),
        draws=_whole(words, "draws"),
        seed=None if isinstance(seed, int) and seed < 0 else seed,
        trust=str(words["trust"]),
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

    Releases of the round before that are not of this one move to ``earlier`` beside the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = {}
    for node, release in outcome.accepted.items():
        names[node] = f"{release.digest.removeprefix('sha256:')[:16]}.json"
        write_text(folder / names[node], release.to_text())
    for file in sorted(folder.iterdir()):
        if file.name not in names.values() and _is_ours(file):
            put_aside(file, folder.with_name("earlier"))
    return names


def _is_ours(file: Path) -> bool:
    """Whether it is a Release under the name that `write_releases` gave it."""
    if not _OURS.fullmatch(file.name) or not file.is_file():
        return False
    try:
        return load_release(file).digest.startswith(f"sha256:{file.stem}")
    except ReleaseError:
        return False


def put_aside(file: Path, folder: Path) -> None:
    """Move a file, if there is one, to a folder, and never over a file with another content."""
    if not file.exists():
        return
    folder.mkdir(exist_ok=True)
    content, number, target = file.read_bytes(), 1, folder / file.name
    while target.exists() and not (target.is_file() and target.read_bytes() == content):
        number += 1
        target = folder / f"{file.stem}-{number}{file.suffix}"
    file.replace(target)


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
