"""MkDocs hook: the page of commands, written from the commands themselves."""

from __future__ import annotations

from typing import Any

import click
import typer
from mkdocs.structure.files import File, Files

PAGE = "reference/commands.md"
HEAD = "# Commands\n\nWritten from the commands' own help.\n\n"


def on_files(files: Files, config: Any) -> Files:
    """Add the generated page to the site."""
    files.append(File.generated(config, PAGE, content=reference()))
    return files


def reference() -> str:
    """The whole page as Markdown."""
    from noisewise.cli import main

    codes = (main.__doc__ or "").split("\n\n")[1]
    return HEAD + codes + "\n" + "".join(_sections(typer.main.get_command(main.app), "noisewise"))


def _sections(command: Any, name: str) -> list[str]:
    if isinstance(command, click.Group):
        children = command.commands.items()
        return [part for sub, child in children for part in _sections(child, f"{name} {sub}")]
    return [f"\n## `{name}`\n\n{_help(command)}\n\n{_parameters(command)}"]


def _help(command: Any) -> str:
    text = (command.help or "").replace("\f", "")
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    shown = []
    for paragraph in paragraphs:
        if paragraph.startswith("Example: "):
            shown.append(f"Example:\n\n```sh\n{paragraph.removeprefix('Example: ')}\n```")
        else:
            shown.append(paragraph)
    return "\n\n".join(shown)


def _parameters(command: Any) -> str:
    rows = []
    for parameter in command.params:
        if parameter.name == "help":
            continue
        is_argument = parameter.param_type_name == "argument"
        name = parameter.name.upper() if is_argument else ", ".join(parameter.opts)
        told = " ".join((getattr(parameter, "help", None) or "").split())
        default = parameter.default
        # Typer marks "no default" with values of its own, which are no defaults to a reader.
        plain = isinstance(default, str | int | float) and not isinstance(default, bool)
        if parameter.required:
            told += " **Required.**"
        elif (plain and default != "") or hasattr(default, "__fspath__"):
            told += f" Default: `{default}`."
        rows.append(f"| `{name}` | {told.strip().replace('|', chr(92) + '|')} |")
    return "\n".join(["| argument or option | what it does |", "|---|---|", *rows, ""])
