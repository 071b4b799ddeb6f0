"""YAML files that people write, schemas among them: the safe subset, less what surprises them."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from noisewise.core.errors import NoisewiseError, SchemaError
from noisewise.core.schema import Schema

MAX_BYTES = 4_000_000


class PlainYamlError(NoisewiseError):
    """What is wrong with a YAML text, in one line."""


class _PlainLoader(yaml.SafeLoader):
    """YAML's safe subset, less what surprises people.

    ``no`` and ``off`` are country codes and levels, not truth values; dates and codes with a
    leading zero stay text; an alias can make a small file enormous; a key given twice is a mistake.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise PlainYamlError("YAML aliases (*name) are not supported; write it out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        mapping: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float | bool) and key is not None:
                raise PlainYamlError("a key is neither text nor a number")
            if key in mapping:
                raise PlainYamlError(f"the key {key!r} is given twice; keep one of them")
            mapping[key] = self.construct_object(value_node, deep=True)
        return mapping


_PlainLoader.yaml_implicit_resolvers = {
    first: [rule for rule in resolvers if rule[0].endswith((":null", ":merge", ":value"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
# Decimal numbers only. YAML 1.1 reads 0100 as 64, 12:30 as 750 and 1e6 as text; a code such as
# 02139 stays text.
_PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")
)
_PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$"
        r"|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
    ),
    list("-+.0123456789"),
)
_PlainLoader.add_constructor("tag:yaml.org,2002:map", _PlainLoader.construct_mapping)


def parse_yaml(text: str) -> Any:
    """YAML text to plain Python, with every failure turned into one PlainYamlError."""
    if len(text) > MAX_BYTES:
        raise PlainYamlError(f"larger than {MAX_BYTES:,} characters; is it the right file?")
    try:
        return yaml.load(text, Loader=_PlainLoader)
    except PlainYamlError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise PlainYamlError(f"not valid YAML{place}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError, TypeError) as error:
        detail = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise PlainYamlError(f"not valid YAML: {detail}") from None


def read_yaml(path: str | Path) -> Any:
    """Read a YAML file; PlainYamlError if it can't be read, FileNotFoundError if it isn't there."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise PlainYamlError(f"larger than {MAX_BYTES:,} bytes")
        return parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except UnicodeDecodeError:
        raise PlainYamlError("not UTF-8 text") from None
    except OSError as error:
        raise PlainYamlError(f"cannot be read: {error.strerror}") from None


# --- schemas --------------------------------------------------------------------------------------


def read_schema(path: str | Path) -> Schema:
    """Read and validate a schema file."""
    try:
        return Schema.from_dict(read_yaml(path))
    except FileNotFoundError:
        raise SchemaError(
            f"schema: there is no file {path}; make one with 'noisewise schema new'"
        ) from None
    except (PlainYamlError, SchemaError) as error:
        raise SchemaError(f"{path}: {error}") from None


def schema_text(schema: Schema) -> str:
    """The schema as YAML text that `read_schema` reads back to the same schema."""
    return yaml.dump(
        schema.to_dict(), Dumper=_FlatDumper, sort_keys=False, allow_unicode=True, width=1_000
    )


class _FlatDumper(yaml.SafeDumper):
    """One line a column, and quotes round whatever the loader would not read as text."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    try:
        plain = parse_yaml(value) == value
    except PlainYamlError:
        plain = False
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else "'")


_FlatDumper.add_representer(str, _text)


def _mapping(dumper: yaml.SafeDumper, value: dict[str, Any]) -> yaml.Node:
    node = dumper.represent_mapping("tag:yaml.org,2002:map", value.items())
    node.flow_style = "type" in value
    return node


_FlatDumper.add_representer(dict, _mapping)


def write_schema(schema: Schema, path: str | Path) -> None:
    """Write the schema to a file."""
    Path(path).write_text(schema_text(schema), encoding="utf-8")
