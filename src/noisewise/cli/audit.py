"""`noisewise audit`: try to find out more than a request claims to give away."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisewise.cli import words
from noisewise.cli.options import JsonOption
from noisewise.core.errors import RequestError

if TYPE_CHECKING:
    from noisewise.holder.requests.base import Publishable

VIOLATED = 8  # exit code


def _as_for(command: str, panel: str | None = None) -> Any:
    """An option that a publishing command explains."""
    return typer.Option(help=f"As for `{command}`.", rich_help_panel=panel)


_RELEASE_WORD = _as_for("release")
_SUMMARY_WORD = _as_for("release-summary", "Block summaries")
_NETWORK_WORD = _as_for("release-network", "Networks")
_SAMPLE_WORD = _as_for("sample-regression", "Draws of coefficients")


def audit(
    schema: Annotated[
        Path | None, typer.Option("--schema", help="Schema file with public bounds.")
    ] = None,
    target: Annotated[str | None, _RELEASE_WORD] = None,
    features: Annotated[str | None, _RELEASE_WORD] = None,
    epsilon: Annotated[str | None, typer.Option(help="The claim.")] = None,
    delta: Annotated[str | None, typer.Option(help="Of Gaussian noise.")] = None,
    rho: Annotated[str | None, typer.Option(help="zCDP instead of epsilon.")] = None,
    mechanism: Annotated[
        str | None, typer.Option(help="laplace, or gaussian; or one of the command's own.")
    ] = None,
    radius: Annotated[float | None, _RELEASE_WORD] = None,
    layout: Annotated[str | None, typer.Option(help="upper or isometric.")] = None,
    fourth_moments: Annotated[str | None, _RELEASE_WORD] = None,
    smallest_eigenvalue: Annotated[str | None, _RELEASE_WORD] = None,
    ask: Annotated[list[str] | None, _SUMMARY_WORD] = None,
    coefficients: Annotated[str | None, _SUMMARY_WORD] = None,
    quantiles: Annotated[str | None, _SUMMARY_WORD] = None,
    bounds: Annotated[list[str] | None, _SUMMARY_WORD] = None,
    base: Annotated[list[str] | None, _SUMMARY_WORD] = None,
    rows: Annotated[int | None, _SUMMARY_WORD] = None,
    blocks: Annotated[int | None, _SUMMARY_WORD] = None,
    partitions: Annotated[int | None, _SUMMARY_WORD] = None,
    posterior: Annotated[str | None, _SUMMARY_WORD] = None,
    g: Annotated[float | None, _SUMMARY_WORD] = None,
    clip: Annotated[float | None, _SUMMARY_WORD] = None,
    p_star: Annotated[float | None, _SUMMARY_WORD] = None,
    graph: Annotated[Path | None, _NETWORK_WORD] = None,
    edges: Annotated[str | None, _NETWORK_WORD] = None,
    naive_bayes: Annotated[str | None, _NETWORK_WORD] = None,
    kind: Annotated[str | None, _NETWORK_WORD] = None,
    draws: Annotated[int | None, _NETWORK_WORD] = None,
    omega: Annotated[str | None, _NETWORK_WORD] = None,
    temper: Annotated[str | None, _NETWORK_WORD] = None,
    points: Annotated[int | None, _NETWORK_WORD] = None,
    concentration: Annotated[str | None, _NETWORK_WORD] = None,
    noise_sd: Annotated[str | None, _SAMPLE_WORD] = None,
    largest_norm: Annotated[str | None, _SAMPLE_WORD] = None,
    prior_precision: Annotated[str | None, _SAMPLE_WORD] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs", min=40, help="Releases of each data set; more see smaller mistakes."
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option("--confidence", help="1 - chance of calling a true claim violated.")
    ] = 0.99,
    as_json: JsonOption = False,
) -> None:
    """Audit the path from rows to a Release for your request, before you trust it with data.

    Two synthetic data sets that differ in one person as much as your schema allows are released
    many times, and the noise is tried on: how well can outputs tell them apart? That bounds
    epsilon from below. A bound above the claim is a bug, and the exit code is 8. A bound below it
    is no proof. Neither your data nor your ledger is opened.

    Give the words that you would give to `release`, `release-summary`, `release-network` or
    `sample-regression`; which of them it is follows from the options.

    Example: noisewise audit --schema schema.yaml --target income --features age,region
    --epsilon 1

    Example: noisewise audit --schema schema.yaml --target income --features age,hours
    --ask "hours < 0" --rows 20000 --epsilon 1

    Example: noisewise audit --schema schema.yaml --naive-bayes disease --epsilon 1

    Example: noisewise audit --schema schema.yaml --target income --features age,region
    --noise-sd 20000 --epsilon 1
    """
    options = dict(locals())  # all of them, so that each is written once
    for name in ("runs", "confidence", "as_json"):
        del options[name]
    _audit(audited_request(**options), runs, confidence, as_json)


def _audit(request: Publishable[Any], runs: int | None, confidence: float, as_json: bool) -> None:
    from noisewise._progress import progress_bar
    from noisewise.audit.request import RUNS, audit_release, challenge_of, chance_of_catching
    from noisewise.cli.audit_findings import document_of, words_of

    request.verify()
    trials, show = runs or RUNS, sys.stderr.isatty()
    challenge = challenge_of(request)
    with progress_bar("releasing", unit="runs", show=show) as report:
        found = audit_release(challenge, runs=trials, confidence=confidence, report=report)
    caught = {
        factor: chance_of_catching(challenge, factor, runs=trials, confidence=confidence)
        for factor in (0.5, 0.25)
    }
    if as_json:
        typer.echo(json.dumps(document_of(found, caught)))
    else:
        for line in words_of(found, caught):
            typer.echo(line)
    if not found.passed:
        raise typer.Exit(VIOLATED)


# --- which request --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Command:
    """A publishing command, as far as its request goes.

    Parameters
    ----------
    name : str
    make : callable
        From a schema and the command's words to a request.
    needs : tuple of str
        Options that must be there.
    marks : tuple of str
        Options that no other command has and one of which is always given.
    knows : tuple of str
        All others.
    """

    name: str
    make: Callable[..., Publishable[Any]]
    needs: tuple[str, ...]
    marks: tuple[str, ...]
    knows: tuple[str, ...]


_RELEASE = _Command(
    "release",
    words.regression_request,
    ("target", "features"),
    (),
    ("epsilon", "delta", "rho", "mechanism", "radius", "layout", "fourth_moments",
     "smallest_eigenvalue"),
)  # fmt: skip
_SUMMARY = _Command(
    "release-summary",
    words.summary_request,
    ("target", "features"),
    ("ask", "coefficients"),
    ("epsilon", "mechanism", "quantiles", "bounds", "base", "rows", "blocks", "partitions",
     "posterior", "g", "clip", "p_star"),
)  # fmt: skip
_NETWORK = _Command(
    "release-network",
    words.network_request,
    (),
    ("graph", "edges", "naive_bayes"),
    ("epsilon", "mechanism", "features", "kind", "draws", "omega", "temper", "points",
     "concentration"),
)  # fmt: skip
_SAMPLE = _Command(
    "sample-regression",
    words.sample_request,
    ("target", "features"),
    ("noise_sd",),
    ("epsilon", "draws", "radius", "largest_norm", "prior_precision"),
)


def audited_request(schema: Path | None, **options: Any) -> Publishable[Any]:
    """The request that these options describe, as its own command would make it.

    Raises
    ------
    RequestError
        If they belong to different commands, or something is missing.
    """
    from noisewise.core.yaml_files import read_schema

    given = {name: value for name, value in options.items() if value is not None}
    command = _command(given)
    if schema is None or not set(command.needs) <= set(given):
        needed = ("schema", *command.needs)
        raise RequestError(
            f"{', '.join(needed)}: an audit needs {'all of them' if needed[1:] else 'one'}, as "
            f"does `noisewise {command.name}`"
        )
    known = {*command.needs, *command.marks, *command.knows}
    for name in given:
        if name not in known:
            raise RequestError(
                f"{name}: {_because(command, given)}, which has no such option; leave it out"
                + _remedy(name)
            )
    return command.make(read_schema(schema), **given)


def _command(given: dict[str, Any]) -> _Command:
    found = [
        (command, name)
        for command in (_SUMMARY, _NETWORK, _SAMPLE)
        for name in command.marks
        if name in given
    ]
    for command, name in found[1:]:
        if command is not found[0][0]:
            raise RequestError(
                f"{name}: belongs to `noisewise {command.name}`, and {_option(found[0][1])} to "
                f"`noisewise {found[0][0].name}`; an audit is of one request, so leave one out"
            )
    return found[0][0] if found else _RELEASE


def _because(command: _Command, given: dict[str, Any]) -> str:
    found = [_option(name) for name in command.marks if name in given]
    return f"this is an audit of `noisewise {command.name}`" + (
        f" because of {found[0]}" if found else ""
    )


def _remedy(name: str) -> str:
    """Which options would make this one known."""
    takers = [c for c in (_SUMMARY, _NETWORK, _SAMPLE) if name in c.knows]
    return "".join(
        f"; for `noisewise {c.name}` add {' or '.join(map(_option, c.marks))}" for c in takers
    )


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
