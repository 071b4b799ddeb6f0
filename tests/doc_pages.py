"""Read Markdown pages, and do what their code blocks say.

A block is ``python`` (run, one namespace a page), ``sh`` (commands, run one by one), ``yaml`` (a
file, recognised by its keys, read by the code that reads such files) or ``text`` (nothing to run).
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import yaml
from typer.testing import CliRunner

ROOT = Path(__file__).parent.parent
LANGUAGES = ("python", "sh", "yaml", "text")

# What a reader writes who is told to fill in the bounds.
SCHEMA = """\
dataset: people
columns:
  age: {type: number, lower: 18, upper: 90}
  region: {type: category, levels: [north, south, east], reference: north}
  income: {type: number, lower: 0, upper: 200000}
"""


class Block(NamedTuple):
    language: str
    text: str
    line: int


def blocks(page):
    """The fenced blocks of a page, in order; also those that are indented in lists."""
    found, opened = [], None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = re.match(r"\s*(```+)\s*(\S*)", line)
        if fence and opened is None:
            opened = (fence[2], number, [])
        elif fence and fence[2] == "":
            language, start, lines = opened
            found.append(Block(language, "\n".join(lines) + "\n", start))
            opened = None
        elif opened is not None:
            opened[2].append(line)
    assert opened is None, f"{page}: a block is not closed"
    return found


def commands(text):
    """The words of every command in a shell block; comments go."""
    joined = re.sub(r"\\\n\s*", " ", text)
    return [words for line in joined.splitlines() if (words := shlex.split(line, comments=True))]


def run(page, space):
    """Do everything that a page says, in the current folder; `space` is for its Python code."""
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        assert block.language in LANGUAGES, f"{where}: label this block {' or '.join(LANGUAGES)}"
        if block.language == "python":
            exec(compile(block.text, where, "exec"), space)
        elif block.language == "yaml":
            keep_file(block.text, where)
        elif block.language == "sh":
            for words in commands(block.text):
                run_command(words, where)


def keep_file(text, where):
    """Write a file that a page shows under the name it has there, and read it as users would."""
    from noisewise.analyst.regression.original_units import read_prior
    from noisewise.analyst.trust import read_trust
    from noisewise.core.yaml_files import read_schema
    from noisewise.holder.requests.file import read_asked

    keys = set(yaml.safe_load(text))
    if "dataset" in keys:
        Path("schema.yaml").write_text(text)
        read_schema("schema.yaml")
    elif keys & {"coefficients", "error_sd"}:
        Path("prior.yaml").write_text(text)
        read_prior("prior.yaml")
    elif "release" in keys:
        Path("request.yaml").write_text(text)
        read_asked("request.yaml")
    elif "keys" in keys:
        Path("trust.yaml").write_text(text)
        read_trust("trust.yaml")
    elif "rules" in keys:
        Path("policy.yaml").write_text(text)  # its own tests read policies of all kinds
    else:
        raise AssertionError(f"{where}: what kind of file is this? keys {sorted(keys)}")


def run_command(words, where):
    """Run a command of ours; of others, see that what they name exists."""
    from noisewise.cli.main import app

    while re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words = words[1:]
    match words:
        case ["noisewise", "federation", *_]:
            parse_command(words)  # it would wait for a server
        case ["noisewise", *arguments]:
            done = CliRunner().invoke(app, arguments)
            told = f"{where}: {shlex.join(words)}\n{done.output}\n{done.exception}"
            assert done.exit_code == 0, told
            if arguments[:2] == ["schema", "new"]:
                Path(arguments[arguments.index("--out") + 1]).write_text(SCHEMA)
        case ["pip", "install", *names]:
            for name in [name for name in names if name != "."]:
                extra = re.fullmatch(r"noisewise(?:\[(.+)\])?", name)
                assert extra, where
                assert extra[1] is None or set(extra[1].split(",")) <= set(extras()), where
        case ["make", target]:
            makefile = (ROOT / "Makefile").read_text()
            assert re.search(rf"^{re.escape(target)}:", makefile, flags=re.M), where
        case ["python", "-m", module, *_]:
            assert importlib.util.find_spec(module), where
        case ["python", script, *_]:
            compile((ROOT / script).read_text(), script, "exec")
        case ["source", _]:
            pass
        case [program, *_]:
            beside = Path(sys.executable).with_name(program)
            assert beside.exists() or shutil.which(program), f"{where}: {program} is not installed"


def parse_command(words):
    """See that a command of ours would accept these words, without running it."""
    import typer

    from noisewise.cli.main import app

    command, (name, *rest) = typer.main.get_command(app), words
    while hasattr(command, "commands"):
        name, *rest = rest
        command = command.commands[name]
    command.make_context(name, list(rest))


def extras():
    """Names of the package's extras."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]["optional-dependencies"]
