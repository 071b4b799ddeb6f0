"""Whose signatures a reader trusts: public keys with names, dates and revocations, from files.

A file of public keys is YAML, made by `noisewise keys new` for one key or written by hand::

    keys:
    - name: Office
      key: ed25519:...
      valid_from: 2026-01-01      # these three lines are optional
      valid_until: 2027-12-31
      revoked: {date: 2026-05-03, reason: the laptop was stolen}

**Dates.** The date in a signature is its signer's word. So `valid_until` is for keys that are no
longer used and that nobody else has: older Releases still count, and who has the key could date a
new one back. A key that somebody else may have is revoked, and then none of its signatures counts,
whatever date they have. Of a key that is listed several times every line has to allow it, so that
a revocation counts wherever it is written.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from noisewise.core.document import BaseRelease
from noisewise.core.errors import RequestError, SignatureError
from noisewise.core.signatures import check_date, check_key
from noisewise.core.yaml_files import PlainYamlError, read_yaml

_ENDINGS = (".pub", ".yaml", ".yml")
_MAX_KEYS = 10_000
_MAX_NAME = 60
_REQUIRED, _OPTIONAL = ("name", "key"), ("valid_from", "valid_until", "revoked")


@dataclass(frozen=True)
class TrustedKey:
    """A line of such a file."""

    name: str  # the reader's own word for the owner: what a report says
    key: str
    valid_from: str = ""
    valid_until: str = ""
    revoked: str = ""  # when and why, in words; empty if it isn't

    def refusal(self, dated: str) -> str:
        """Why a signature with this date does not count, in words; empty if it does."""
        if self.revoked:
            return f"is signed by a key of {self.name} that was revoked {self.revoked}"
        if self.valid_from and dated < self.valid_from:
            return f"is dated {dated}, and that key of {self.name} counts from {self.valid_from}"
        if self.valid_until and dated > self.valid_until:
            return f"is dated {dated}, and that key of {self.name} counted to {self.valid_until}"
        return ""


@dataclass(frozen=True)
class Trust:
    """The keys that a reader trusts; `read_trust` reads them."""

    keys: tuple[TrustedKey, ...]

    def name_for(self, release: BaseRelease) -> str:
        """Who signed a Release, by the reader's own name for the key.

        Raises
        ------
        SignatureError
            With words that follow the Release's name: "is not signed".
        """
        signature = release.signature
        if signature is None:
            raise SignatureError("is not signed")
        try:
            signature.check(release.document)
        except SignatureError:
            raise SignatureError("was changed after it was signed") from None
        lines = [line for line in self.keys if line.key == signature.key]
        if not lines:
            raise SignatureError(f"is signed by {signature.key}, which is not a key that you trust")
        for line in lines:
            if refusal := line.refusal(signature.date):
                raise SignatureError(refusal)
        return lines[0].name


def read_trust(given: Trust | str | Path | Iterable[str | Path]) -> Trust:
    """Read files of public keys, or folders of them (names that end in .pub, .yaml or .yml).

    Raises
    ------
    RequestError
        For any file that cannot be read as a whole: it may hold a revocation.
    """
    if isinstance(given, Trust):
        return given
    paths = [given] if isinstance(given, str | Path) else list(given)
    lines = [line for path in map(Path, paths) for file in _files(path) for line in _lines(file)]
    if not lines:
        raise RequestError("trust: no public key was given; name the file that has it")
    return Trust(tuple(lines))


def trusted(
    releases: Iterable[BaseRelease], names: Sequence[str], trust: Trust
) -> list[BaseRelease]:
    """The Releases with the names of their signers, if all of them are signed by trusted keys.

    Raises
    ------
    SignatureError
        With the names of all others.
    """
    found, refused = [], []
    for release, name in zip(releases, names, strict=True):
        try:
            found.append(signed_for(release, trust.name_for(release)))
        except SignatureError as error:
            refused.append(f"{name} {error}")
    if refused:
        raise untrusted(refused)
    return found


def untrusted(refused: Sequence[str]) -> SignatureError:
    """The error about Releases that nobody trusted has signed."""
    return SignatureError(
        f"trust: {'; '.join(refused)}. Leave out what you can't trust, or get the publisher's "
        "public key, by another way than the Release"
    )


def signed_for(release: Any, name: str) -> Any:
    """The Release with a note of whose signature it is; empty takes the note away."""
    if release.signature is None:
        return release
    return replace(release, signature=replace(release.signature, checked_for=name))


# --- files ----------------------------------------------------------------------------------------


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = [file for file in sorted(path.iterdir()) if file.suffix.lower() in _ENDINGS]
    if not files:
        raise RequestError(f"trust: {path} has no files of public keys ({', '.join(_ENDINGS)})")
    _check_writers(path)
    return files


def _lines(path: Path) -> list[TrustedKey]:
    try:
        _check_writers(path)
        document = read_yaml(path)
    except FileNotFoundError:
        raise RequestError(f"trust: there is no file {path}") from None
    except PlainYamlError as error:
        raise RequestError(f"trust: {path}: {error}") from None
    if isinstance(document, dict) and "secret" in document:
        raise RequestError(
            f"trust: {path} is a secret signing key; readers take the public one, {path}.pub. If "
            "anybody else has got this file, make a new key and revoke this one"
        )
    if not isinstance(document, dict) or set(document) != {"keys"}:
        raise RequestError(
            f"trust: {path} is no list of public keys; it has the key 'keys' and nothing else"
        )
    listed = document["keys"]
    if not isinstance(listed, list) or not 1 <= len(listed) <= _MAX_KEYS:
        raise RequestError(f"trust: {path}: keys: expected a list of 1 to {_MAX_KEYS:,} keys")
    found = []
    for number, line in enumerate(listed, 1):
        try:
            found.append(_line(line))
        except RequestError as error:
            raise RequestError(f"trust: {path}: key {number}: {error}") from None
    return found


def _check_writers(path: Path) -> None:
    if os.name == "posix" and path.exists() and path.stat().st_mode & stat.S_IWOTH:
        raise RequestError(
            f"trust: everybody on this machine may write to {path}, and could add a key; "
            "chmod o-w it"
        )


def _line(line: Any) -> TrustedKey:
    if not isinstance(line, dict):
        raise RequestError("expected name and key")
    for key in line:
        if key not in (*_REQUIRED, *_OPTIONAL):
            known = ", ".join((*_REQUIRED, *_OPTIONAL))
            raise RequestError(f"unknown key {str(key)[:40]!r}; the keys are {known}")
    for key in _REQUIRED:
        if key not in line:
            raise RequestError(f"'{key}' is missing; add it")
    dates = {key: check_date(line[key]) for key in _OPTIONAL[:2] if key in line}
    revoked = _revoked(line["revoked"]) if "revoked" in line else ""
    return TrustedKey(_text("name", line["name"]), check_key(line["key"]), **dates, revoked=revoked)


def _revoked(given: Any) -> str:
    if not isinstance(given, dict) or "date" not in given or set(given) - {"date", "reason"}:
        raise RequestError("revoked: expected {date: 2026-05-03, reason: ...}")
    reason = f" ({_text('reason', given['reason'], 200)})" if "reason" in given else ""
    return f"on {check_date(given['date'])}{reason}"


def _text(what: str, given: Any, limit: int = _MAX_NAME) -> str:
    if not isinstance(given, str) or not given.strip() or len(given) > limit:
        raise RequestError(f"{what}: expected text of 1 to {limit} characters")
    if not given.isprintable():
        raise RequestError(f"{what}: it has characters that cannot be shown")
    return given
