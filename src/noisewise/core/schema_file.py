"""Schemas as YAML files that a person can edit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from noisewise.core.errors import SchemaError
from noisewise.core.plain_yaml import PlainYamlError, parse_yaml, read_yaml
from noisewise.core.schema import Schema


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
