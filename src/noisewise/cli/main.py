"""The `noisewise` command.

Exit codes: 0 done, 1 unexpected, 2 bad request or usage, 3 bad schema, 4 data do not fit,
5 budget refused, 6 bad Release, 7 ledger unusable, 8 audit found a violation, 130 interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from noisewise import __version__
from noisewise.cli import analyst, audit, holder, keys, plan, release
from noisewise.core.errors import NoisewiseError

app = typer.Typer(
    name="noisewise",
    no_args_is_help=True,
    suggest_commands=False,  # Click does, and twice is too often
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # paragraphs of docstrings are joined
    help=(
        "Differentially private Bayesian inference with honest uncertainty.\n\n"
        "The holder of sensitive rows declares a schema, sets a budget and publishes a Release. "
        "Only the Release leaves the building."
    ),
    epilog=(
        "Start with: noisewise schema new people.csv --out schema.yaml. Exit codes: 0 done, "
        "2 bad request, 3 bad schema, 4 data do not fit the schema, 5 budget refused, "
        "6 bad Release, 7 ledger unusable, 8 audit found a violation."
    ),
)
app.add_typer(holder.schema_app, name="schema")
for command in release.COMMANDS:
    app.command()(command)
app.add_typer(holder.ledger_app, name="ledger")
app.command()(holder.clean)
for command in analyst.COMMANDS:
    app.command()(command)
app.add_typer(keys.app, name="keys")
federation = typer.Typer(
    no_args_is_help=True, help="Join a Flower federation; only Releases leave your machine."
)
app.add_typer(federation, name="federation")
app.command()(plan.plan)
app.command()(audit.audit)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"noisewise {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Differentially private Bayesian inference with honest uncertainty."""


@federation.command("rehearse")
def _rehearse(policy: Annotated[Path, typer.Argument(help="Your policy file.")]) -> None:
    """Show what your node would answer, and at what price. Spends and sends nothing.

    Exits with 5 if the budget does not pay for all rules together.

    Example: noisewise federation rehearse policy.yaml
    """
    from noisewise.federation.policy import rehearse as run

    done = run(policy)
    for line in done.lines:
        typer.echo(line)
    raise typer.Exit(done.exit_code)


@federation.command(
    "node", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def _node(
    context: typer.Context,
    policy: Annotated[Path, typer.Option("--policy", help="Your policy file.")],
) -> None:
    """Be a node of a Flower federation that answers by your policy and runs no code but its own.

    All other options go to flower-supernode. Needs noisewise's extra "federation".

    Example: noisewise federation node --policy policy.yaml --superlink HOST:PORT
    --root-certificates ca.crt
    """
    from noisewise.federation.supernode import start

    start(policy, context.args)


def main() -> None:
    """Run the command line; every deliberate error is one message and an exit code."""
    try:
        app()
    except NoisewiseError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
