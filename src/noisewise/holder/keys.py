"""Keys for signing Releases: made, kept in files that only their owner can read, and used.

A key file is YAML with a closed set of keys: the public key, and the secret one, either as it is or
in a box (ChaCha20-Poly1305) that a passphrase opens. The passphrase goes through scrypt with 128 MB
of memory and a salt of the file's own, so the box's key is used once, and its nonce may be zero.

The file is opened without following a link and looked at once it is open, so that nobody can put
another one in its place between the two. It is made with O_EXCL, which never follows a link and
never overwrites.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeVar

from noisewise.core.document import BaseRelease
from noisewise.core.errors import RequestError
from noisewise.core.signatures import Signature, check_key, signed_bytes
from noisewise.core.yaml_files import PlainYamlError, parse_yaml
from noisewise.holder.mechanisms import randomness

Kind = TypeVar("Kind", bound=BaseRelease)

_FORMAT = "noisewise-signing-key"
_VERSION = 1
_MAX_BYTES = 10_000
_LEAST_PASSPHRASE = 12  # characters
_NONCE = bytes(12)


@dataclass(frozen=True)
class SigningKey:
    """A secret key that signs Releases; see `read_key` and `new_key`."""

    public: str  # ed25519: and 64 hexadecimal digits
    _private: Any = field(repr=False, compare=False)

    def sign(self, release: Kind, on: date | None = None) -> Kind:
        """The same Release with a signature, in place of any that it had.

        Parameters
        ----------
        release : Release of any kind
        on : date, optional
            The date in the signature; today (UTC) by default.
        """
        dated = (today() if on is None else on).isoformat()
        value = self._private.sign(signed_bytes(release.document, self.public, dated))
        return replace(release, signature=Signature(self.public, dated, value.hex()))


def signing_key(given: SigningKey | str | Path) -> SigningKey:
    """A key as it is, or read from its file."""
    return given if isinstance(given, SigningKey) else read_key(given)


def today() -> date:
    """The date in UTC."""
    return datetime.now(UTC).date()


def new_key(path: str | Path, name: str = "", *, passphrase: str | None = None) -> SigningKey:
    """Make a key and write it to a file, with the public key beside it (``path`` + ``.pub``).

    Parameters
    ----------
    path : path
        Neither this file nor the public one may exist.
    name : str
        What readers call the owner, in the public file; the file's name by default.
    passphrase : str, optional
        At least 12 characters; the key can't be used without it.
    """
    path = Path(path)
    public_path = public_file(path)
    for file in (path, public_path):
        if file.exists() or file.is_symlink():
            raise RequestError(f"out: {file} exists; a key is never overwritten, choose a new name")
    if passphrase is not None and len(passphrase) < _LEAST_PASSPHRASE:
        raise RequestError(
            f"passphrase: it has fewer than {_LEAST_PASSPHRASE} characters; six random words do"
        )
    text = public_text(key := _key_of(randomness.octets(32)), name or path.stem)
    _create(path, _key_text(key, passphrase), 0o600)
    _create(public_path, text, 0o644)  # if that fails, `keys show` prints it
    return key


def read_key(path: str | Path, passphrase: str | None = None) -> SigningKey:
    """Read a key that `new_key` wrote.

    Raises
    ------
    RequestError
        If others can read the file, if it is a link, or if it needs a (or another) passphrase.
    """
    text = secret_text(path, "sign")
    try:
        document = parse_yaml(text)
    except PlainYamlError:
        document = None
    keys = {"format", "version", "public", "secret"}
    boxed = isinstance(document, dict) and "salt" in document
    if not isinstance(document, dict) or set(document) != keys | ({"salt"} if boxed else set()):
        raise RequestError(f"sign: {path} is no signing key; make one by: noisewise keys new")
    if (document["format"], document["version"]) != (_FORMAT, _VERSION):
        raise RequestError(f"sign: {path} is a key of a kind that is not known here")
    if boxed and passphrase is None:
        raise NeedsPassphraseError(
            f"sign: {path} needs its passphrase; give --passphrase-file, or in Python read_key(path"
            ", passphrase)"
        )
    try:
        public = check_key(document["public"])
        secret = _octets(document["secret"])
        if boxed:
            secret = _unboxed(secret, passphrase or "", _octets(document["salt"]), public)
        key = _key_of(secret)
    except (RequestError, ValueError, TypeError):
        key = None
    if key is None or key.public != public:
        why = "the passphrase is wrong, or the file is damaged" if boxed else "it is damaged"
        raise RequestError(f"sign: {path} cannot be used: {why}")
    return key


class NeedsPassphraseError(RequestError):
    """A key file that can't be used without a passphrase."""


def public_file(path: Path) -> Path:
    """Where the public key of a key file is."""
    return path.with_name(f"{path.name}.pub")


def public_text(key: SigningKey, name: str) -> str:
    """The public key as a list of one, which `fit --trust` reads."""
    if not name.strip() or len(name) > 60 or not name.isprintable():
        raise RequestError("name: expected printable text of 1 to 60 characters")
    return (
        "# Public key of a publisher of Releases. It is no secret, but it must reach readers by a\n"
        "# way on which nobody can exchange it.\n"
        f"keys:\n- name: {json.dumps(name, ensure_ascii=False)}\n  key: {key.public}\n"
    )


def secret_text(path: str | Path, argument: str) -> str:
    """The text of a file with a secret, if only its owner can read it."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        if Path(path).is_symlink():  # where the system has no O_NOFOLLOW
            raise RequestError(f"{argument}: {path} is a link; name the file itself")
        descriptor = os.open(path, flags)
    except OSError as error:
        raise RequestError(f"{argument}: cannot read {path}: {error.strerror}") from None
    try:
        _check_owner(os.fstat(descriptor), path, argument)
        octets = os.read(descriptor, _MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    try:
        if len(octets) <= _MAX_BYTES:
            return octets.decode("utf-8")
    except UnicodeDecodeError:
        pass
    raise RequestError(f"{argument}: {path} is not a short text")


def _check_owner(about: os.stat_result, path: str | Path, argument: str) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise RequestError(f"{argument}: {path} is not a file")
    if os.name != "posix":
        return
    if about.st_mode & 0o077:
        raise RequestError(
            f"{argument}: others on this machine may read {path} or write to it (mode "
            f"{about.st_mode & 0o777:o}); chmod 600 it. If somebody may have read it, make a new "
            "key and tell readers to revoke this one"
        )
    if about.st_uid not in (os.geteuid(), 0):
        raise RequestError(f"{argument}: {path} belongs to another user")


def _create(path: Path, text: str, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        with os.fdopen(os.open(path, flags, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RequestError(f"out: cannot write {path}: {error.strerror}") from None


def _key_text(key: SigningKey, passphrase: str | None) -> str:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    secret: bytes = key._private.private_bytes_raw()
    lines = [
        "# Whoever has this file can sign in your name. Keep it to yourself.",
        f"format: {_FORMAT}",
        f"version: {_VERSION}",
        f"public: {key.public}",
    ]
    if passphrase is not None:
        salt = randomness.octets(16)
        box = ChaCha20Poly1305(_stretched(passphrase, salt))
        secret = box.encrypt(_NONCE, secret, key.public.encode())
        lines.append(f"salt: hex:{salt.hex()}")
    return "\n".join([*lines, f"secret: hex:{secret.hex()}\n"])


def _unboxed(box: bytes, passphrase: str, salt: bytes, public: str) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        cipher = ChaCha20Poly1305(_stretched(passphrase, salt))
        return cipher.decrypt(_NONCE, box, public.encode())
    except InvalidTag:
        raise ValueError from None


def _stretched(passphrase: str, salt: bytes) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=32, n=1 << 17, r=8, p=1).derive(passphrase.encode("utf-8"))


def _octets(text: Any) -> bytes:
    head, _, digits = str(text).partition(":")
    if head != "hex":
        raise ValueError
    return bytes.fromhex(digits)


def _key_of(secret: bytes) -> SigningKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.from_private_bytes(secret)
    public = f"ed25519:{private.public_key().public_bytes_raw().hex()}"
    return SigningKey(public, private)
