"""Commands of the federation: what a holder runs to join one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def add_to(app: typer.Typer) -> None:
    """Attach the federation's commands to the root command."""
    federation = typer.Typer(
        no_args_is_help=True, help="Join a Flower federation; only Releases leave your machine."
    )
    federation.command("rehearse")(rehearse)
    federation.command("node", context_settings=_PASS_ON)(node)
    app.add_typer(federation, name="federation")


def rehearse(policy: Annotated[Path, typer.Argument(help="Your policy file.")]) -> None:
    """Show what your node would answer, and at what price. Spends and sends nothing.

    Exits with 5 if the budget does not pay for all rules together.

    Example: noisewise federation rehearse policy.yaml
    """
    from noisewise.federation.rehearse import rehearse as run

    done = run(policy)
    for line in done.lines:
        typer.echo(line)
    raise typer.Exit(done.exit_code)


def node(
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
