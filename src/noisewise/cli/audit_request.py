"""Which request an audit is of: the options that only one command has tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisewise.cli import words
from noisewise.core.errors import RequestError

if TYPE_CHECKING:
    from noisewise.holder.publishable import Publishable


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
    told_by : tuple of str
        Options that no other command has and one of which is always given.
    knows : tuple of str
        All others.
    """

    name: str
    make: Callable[..., Publishable[Any]]
    needs: tuple[str, ...]
    told_by: tuple[str, ...]
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
    from noisewise.core.schema_file import read_schema

    given = {name: value for name, value in options.items() if value is not None}
    command = _command(given)
    if schema is None or not set(command.needs) <= set(given):
        needed = ("schema", *command.needs)
        raise RequestError(
            f"{', '.join(needed)}: an audit needs {'all of them' if needed[1:] else 'one'}, as "
            f"does `noisewise {command.name}`"
        )
    known = {*command.needs, *command.told_by, *command.knows}
    for name in given:
        if name not in known:
            raise RequestError(
                f"{name}: {_because(command, given)}, which has no such option; leave it out"
                + _remedy(name)
            )
    return command.make(read_schema(schema), **given)


def _command(given: dict[str, Any]) -> _Command:
    told = [
        (command, name)
        for command in (_SUMMARY, _NETWORK, _SAMPLE)
        for name in command.told_by
        if name in given
    ]
    for command, name in told[1:]:
        if command is not told[0][0]:
            raise RequestError(
                f"{name}: belongs to `noisewise {command.name}`, and {_option(told[0][1])} to "
                f"`noisewise {told[0][0].name}`; an audit is of one request, so leave one out"
            )
    return told[0][0] if told else _RELEASE


def _because(command: _Command, given: dict[str, Any]) -> str:
    told = [_option(name) for name in command.told_by if name in given]
    return f"this is an audit of `noisewise {command.name}`" + (
        f" because of {told[0]}" if told else ""
    )


def _remedy(name: str) -> str:
    """Which options would make this one known."""
    takers = [c for c in (_SUMMARY, _NETWORK, _SAMPLE) if name in c.knows]
    return "".join(
        f"; for `noisewise {c.name}` add {' or '.join(map(_option, c.told_by))}" for c in takers
    )


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
