"""`noisewise keys`: keys that sign Releases, and whose signature a Release has."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noisewise.cli.options import PASSPHRASE, Option, option, with_options
from noisewise.core.errors import RequestError

if TYPE_CHECKING:
    from noisewise.holder.keys import SigningKey

app = typer.Typer(no_args_is_help=True, help="Sign Releases, and check who signed them.")
KeyArgument = Annotated[Path, typer.Argument(help="The key file.")]


@app.command("new")
@with_options(
    option("out", Path, "Where to write the key.", default=Path("signing.key")),
    option("name", str, "What readers call you.", shown="name of the file"),
    option("passphrase", bool, "Ask for a passphrase that protects the key.", default=False),
    option("passphrase_file", Path, "Take the passphrase from this file."),
)
def new(out: Path, name: str | None, passphrase: bool, passphrase_file: Path | None) -> None:
    """Make a key for signing Releases. Nothing that exists is overwritten.

    The key goes into a file that only you can read, and its public part into a second one, which
    readers of your Releases need. Give it to them by a way on which nobody can exchange it, such as
    your office's own web page.

    Example: noisewise keys new --out office.key --name "Office of Statistics"
    """
    from noisewise.holder.keys import new_key, public_file

    words = None if passphrase_file is None else _first_line(passphrase_file)
    if passphrase and words is None:
        words = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=True, err=True)
    key = new_key(out, name or "", passphrase=words)
    typer.echo(
        f"Wrote {out}, which is secret, and {public_file(out)}, for readers:\n  {key.public}"
    )


@app.command("show")
@with_options(option("name", str, "What readers call you.", shown="name of the file"), PASSPHRASE)
def show(key: KeyArgument, name: str | None, passphrase_file: Path | None) -> None:
    """Print the public part of a key, as in the file for readers.

    Example: noisewise keys show office.key --name "Office of Statistics"
    """
    from noisewise.holder.keys import public_text

    typer.echo(public_text(key_from(key, passphrase_file), name or key.stem), nl=False)


@app.command("sign")
@with_options(
    option("key", Path, "The key, made by: noisewise keys new.", default=Option.empty),
    option("out", Path, "Where to write the signed Release.", shown="the same file"),
    PASSPHRASE,
)
def sign(
    release: Annotated[Path, typer.Argument(help="Release file.")],
    key: Path,
    out: Path | None,
    passphrase_file: Path | None,
) -> None:
    """Sign a Release that exists, in place of any signature that it has.

    For keys that are kept on another machine than the data, and for a new key after an old one was
    revoked. Sign what you published yourself: compare the digest with your audit sheet.

    Example: noisewise keys sign release.json --key office.key
    """
    from noisewise.core.document import write_text
    from noisewise.core.kinds import load_release
    from noisewise.holder.publish import check_writable

    target = out or release
    given, signer = load_release(release), key_from(key, passphrase_file)
    check_writable(target)
    try:
        write_text(target, signer.sign(given).to_text())
    except OSError as error:
        raise RequestError(f"out: cannot write {target}: {error.strerror}") from None
    typer.echo(f"Signed {target}: data set '{given.schema.dataset}', {given.claim}, {given.digest}")


@app.command("verify")
@with_options(
    option(
        "trust",
        list[Path],
        "File of public keys, or a folder of them; repeatable.",
        default=Option.empty,
    )
)
def verify(
    releases: Annotated[list[Path], typer.Argument(help="Release files.")], trust: list[Path]
) -> None:
    """Check that Releases are signed by keys that you trust, and unchanged. Exits with 6 if not.

    Example: noisewise keys verify release.json --trust office.key.pub
    """
    from noisewise.analyst.trust import read_trust, trusted
    from noisewise.core.kinds import load_release
    from noisewise.core.signatures import in_words

    keys = read_trust(trust)
    found = trusted(list(map(load_release, releases)), list(map(str, releases)), keys)
    for path, release in zip(releases, found, strict=True):
        assert release.signature is not None
        dated = release.signature.date
        typer.echo(f"{path}: {in_words(release.signature)}; the signer dates it {dated}.")


def key_from(path: Path, passphrase_file: Path | None) -> SigningKey:
    """The key of a file; asks for its passphrase if there is somebody to ask."""
    from noisewise.holder.keys import NeedsPassphraseError, read_key

    try:
        return read_key(path, None if passphrase_file is None else _first_line(passphrase_file))
    except NeedsPassphraseError:
        if not sys.stdin.isatty():
            raise
    return read_key(path, typer.prompt(f"Passphrase of {path}", hide_input=True, err=True))


def _first_line(path: Path) -> str:
    from noisewise.holder.keys import secret_text

    return secret_text(path, "passphrase_file").partition("\n")[0].rstrip("\r")
