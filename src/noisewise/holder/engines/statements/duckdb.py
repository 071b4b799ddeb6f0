"""Statements for DuckDB: read by its own parser, and written anew with every name resolved.

`json_serialize_sql` hands out what the parser made of a statement, as JSON. A function for each
node that may occur writes it again; a node, or a field of one, that has none is refused. DuckDB
leaves out the fields that have their default value, so that what a later version adds is seen if a
statement uses it.

What runs is the text written here. Columns have their table in front of them, tables their catalog
and schema, and functions `system.main`, where nobody can put another one. So no macro, view, alias
or variable of the database or the connection stands for any of these names, and whatever of a
statement isn't understood here isn't run either.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

import duckdb

from noisewise.core.errors import RequestError
from noisewise.holder.engines.pushdown import identifier, text
from noisewise.holder.engines.statements import ROW_WISE, Statement, refusal

Node = Mapping[str, Any]

_INTEGERS = frozenset((
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT",
    "UINTEGER", "UBIGINT", "UHUGEINT",
))  # fmt: skip
# Types of casts by all their names
_TYPES = {
    **{name: name for name in _INTEGERS},
    **dict.fromkeys(("INT1",), "TINYINT"),
    **dict.fromkeys(("INT2", "SHORT"), "SMALLINT"),
    **dict.fromkeys(("INT", "INT4", "SIGNED"), "INTEGER"),
    **dict.fromkeys(("INT8", "LONG"), "BIGINT"),
    **dict.fromkeys(("FLOAT", "FLOAT4", "REAL"), "FLOAT"),
    **dict.fromkeys(("DOUBLE", "FLOAT8"), "DOUBLE"),
    **dict.fromkeys(("DECIMAL", "NUMERIC", "DEC"), "DECIMAL"),
    **dict.fromkeys(("BOOLEAN", "BOOL", "LOGICAL"), "BOOLEAN"),
    **dict.fromkeys(("VARCHAR", "TEXT", "STRING", "CHAR", "BPCHAR"), "VARCHAR"),
    **dict.fromkeys(("DATE", "TIMESTAMP", "UUID"), None),
}
_OPERATORS = frozenset(("+", "-", "*", "/", "//", "%", "^", "**", "||", "~~", "!~~", "~~*", "!~~*"))
_COMPARISONS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_DISTINCT_FROM": "IS DISTINCT FROM",
    "COMPARE_NOT_DISTINCT_FROM": "IS NOT DISTINCT FROM",
}

# Fields of a SELECT that a statement may not have, and nodes that may not stand in one
_CLAUSES = {
    "group_expressions": "aggregate",
    "group_sets": "aggregate",
    "having": "aggregate",
    "qualify": "window",
    "sample": "sample",
}
_MODIFIERS = {
    "DISTINCT_MODIFIER": "distinct",
    "LIMIT_MODIFIER": "limit",
    "LIMIT_PERCENT_MODIFIER": "limit",
    "ORDER_MODIFIER": "order",
}
_NODES = {
    "SUBQUERY": "subquery",
    "WINDOW": "window",
    "PARAMETER": "parameter",
    "STAR": "star",
    "SET_OPERATION_NODE": "set operation",
    "RECURSIVE_CTE_NODE": "with",
    "CTE_NODE": "with",
    "EMPTY": "no table",
    "TABLE_FUNCTION": "not a table",
    "EXPRESSION_LIST": "not a table",
    "COLUMN_DATA": "not a table",
    "PIVOT": "aggregate",
    "SHOW_REF": "not a table",
}
_PLACES = frozenset(("class", "type", "alias", "query_location", "query_location_length"))


def read(query: str, execute: Callable[[str], list[tuple[Any, ...]]]) -> Statement:
    """Read a statement on the tables of a database; `execute` runs SQL there and returns all rows.

    Raises
    ------
    RequestError
        It is not one SELECT, or not of the form that `statements` describes.
    """
    kind = "unreadable"  # what the parser hands out has another shape than any that is known
    try:
        return _Reader(_Catalogue(execute)).statement(_parsed(query))
    except (LookupError, TypeError, AttributeError, ValueError):
        pass
    except RecursionError:
        kind = "deep"
    raise refusal(kind)


def _parsed(query: str) -> Node:
    """The only statement, as DuckDB's parser reads it. No table is looked at."""
    options = "skip_null := true, skip_empty := true, skip_default := true"
    try:
        with duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"}) as own:
            call = own.execute(f"SELECT json_serialize_sql(?::VARCHAR, {options})", [query])
            (found,) = call.fetchone() or ("",)
        document = json.loads(found)
    except (duckdb.CatalogException, duckdb.BinderException):  # a DuckDB without its JSON functions
        document = None
    except (duckdb.Error, TypeError, ValueError):  # the last ones for half characters
        document = {}
    if document is None:
        raise refusal("unreadable")
    statements = document.get("statements", [])
    if document.get("error", True) or len(statements) != 1:
        raise RequestError("query: expected a single SELECT statement")
    (statement,) = statements
    _only(statement, "node", "named_param_map", named_param_map="parameter")
    return statement["node"]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Table:
    """A stored table of the database."""

    path: tuple[str, str, str]
    columns: Mapping[str, str]  # its columns and their types
    sql: str  # the statement that made it

    @property
    def name(self) -> str:
        return ".".join(identifier(part) for part in self.path)


class _Catalogue:
    """The tables and views of a database."""

    def __init__(self, execute: Callable[[str], list[tuple[Any, ...]]]) -> None:
        self._run = execute

    def table(self, wanted: list[str]) -> _Table:
        """The table of this name, which may have its schema and catalog before it."""
        columns = "database_name, schema_name, internal"
        tables = self._run(f"SELECT {columns}, table_name, sql FROM system.main.duckdb_tables()")
        views = self._run(f"SELECT {columns}, view_name, NULL FROM system.main.duckdb_views()")
        owners = dict(self._run("SELECT database_name, type FROM system.main.duckdb_databases()"))
        shown = ".".join(wanted)
        found = [
            (row, is_view)
            for rows, is_view in ((tables, False), (views, True))
            for row in rows
            if not row[2] and _is_called((row[0], row[1], row[3]), wanted)
        ]
        if not found:
            raise refusal("unknown table", shown)
        if len(found) > 1:
            raise refusal("several tables", shown)
        (((catalog, schema, _, name, sql), is_view),) = found
        if is_view or owners.get(catalog) != "duckdb":
            raise refusal("view", shown)
        # Their expressions may hold macros, and random().
        if "GENERATED ALWAYS" in sql.upper():
            raise refusal("generated", shown)
        path = (catalog, schema, name)
        held = self._run(
            "SELECT database_name, schema_name, table_name, column_name, data_type "
            "FROM system.main.duckdb_columns() ORDER BY column_index"
        )
        return _Table(path, {row[3]: row[4] for row in held if tuple(row[:3]) == path}, sql)

    def same_ids(self, *columns: tuple[_Table, str]) -> bool:
        """Whether values of two columns are equal only if they are the same id."""
        kinds = [table.columns[name] for table, name in columns]
        if all(kind in _INTEGERS for kind in kinds) or kinds == ["UUID", "UUID"]:
            return True
        collated = any("COLLATE" in table.sql.upper() for table, _ in columns)
        if kinds != ["VARCHAR", "VARCHAR"] or collated:
            return False
        settings = dict(self._run("SELECT name, value FROM system.main.duckdb_settings()"))
        return not settings.get("default_collation")


def _is_called(path: tuple[str, str, str], wanted: list[str]) -> bool:
    """Whether DuckDB might mean the table at this path by these words."""
    folded, words = [part.casefold() for part in path], [part.casefold() for part in wanted]
    return words in (folded, folded[1:], folded[2:], [folded[0], folded[2]])


class _Reader:
    """Writes a statement anew. Tables are called t0, t1, ... in the order of FROM."""

    def __init__(self, catalogue: _Catalogue) -> None:
        self._catalogue = catalogue
        self._tables: list[_Table] = []
        self._names: list[str] = []  # what the statement calls them
        self._merged: set[tuple[int, str]] = set()  # columns that USING has merged with others
        self._joined_on: list[tuple[str, str]] = []
        self._drops_rows = False

    def statement(self, node: Node) -> Statement:
        """Read a whole SELECT."""
        if node["type"] != "SELECT_NODE":
            _refuse(node)
        for modifier in node.get("modifiers", ()):
            raise refusal(_MODIFIERS.get(modifier["type"], "limit"))
        if node.get("cte_map", {}).get("map"):
            raise refusal("with")
        if node.get("aggregate_handling") != "STANDARD_HANDLING":
            raise refusal("aggregate")
        fields = ("select_list", "from_table", "where_clause", "cte_map", "aggregate_handling")
        _only(node, *fields, **_CLAUSES)
        tables = self._from(node["from_table"])
        plain: dict[str, str] = {}
        selected = [out for item in node["select_list"] for out in self._selected(item, plain)]
        sql = f"SELECT {', '.join(selected)} FROM {tables}"
        if "where_clause" in node:
            self._drops_rows = True
            sql += f" WHERE {self._value(node['where_clause'])}"
        return Statement(sql, plain, self._drops_rows, tuple(self._joined_on))

    # --- FROM -------------------------------------------------------------------------------------

    def _from(self, node: Node) -> str:
        if node["type"] == "BASE_TABLE":
            return self._table(node)
        if node["type"] != "JOIN":
            _refuse(node)
        kind = node.get("join_type")
        if node.get("ref_type") != "REGULAR" or kind not in ("INNER", "LEFT"):
            raise refusal("join")
        fields = ("left", "right", "condition", "using_columns")
        _only(node, *fields, "join_type", "ref_type", "is_implicit")
        left = self._from(node["left"])
        if node["right"]["type"] != "BASE_TABLE":
            _refuse(node["right"], "join")
        right = self._table(node["right"])
        self._drops_rows |= kind == "INNER"
        return f"{left} {kind} JOIN {right} ON {self._joined(node)}"

    def _table(self, node: Node) -> str:
        fields = ("table_name", "schema_name", "catalog_name", "qualified_name")
        _only(node, *fields, sample="sample")
        path = node.get("qualified_name", {}).get("path")
        table = self._catalogue.table(
            path or _path(node, "catalog_name", "schema_name", "table_name")
        )
        self._names.append(node.get("alias") or table.path[2])
        self._tables.append(table)
        return f"{table.name} AS t{len(self._tables) - 1}"

    def _joined(self, node: Node) -> str:
        """The condition between the last table and one before it."""
        last = len(self._tables) - 1
        using, condition = node.get("using_columns", []), node.get("condition")
        if condition is None and len(using) == 1:
            pair = [self._find(using, range(last)), self._find(using, [last])]
            self._merged.add(pair[1])
        elif condition is not None and condition["type"] == "COMPARE_EQUAL" and not using:
            sides = condition["left"], condition["right"]
            _only(condition, "left", "right")
            if any(side["class"] != "COLUMN_REF" for side in sides):
                raise refusal("join")
            pair = sorted(self._column(side) for side in sides)
        else:
            raise refusal("join")
        (first, name), (second, other) = pair
        if not first < second == last:
            raise refusal("join")
        if not self._catalogue.same_ids((self._tables[first], name), (self._tables[last], other)):
            raise refusal("join type")
        self._joined_on.append((name, other))
        return f"({_written(*pair[0])} = {_written(*pair[1])})"

    # --- columns ----------------------------------------------------------------------------------

    def _selected(self, item: Node, plain: dict[str, str]) -> list[str]:
        """A column of the result, or all that * stands for; `plain` takes those as they are."""
        if item["class"] == "STAR":
            return [_as(_written(*at), at[1], at, plain) for at in self._starred(item)]
        name = item.get("alias")
        if item["class"] != "COLUMN_REF":
            if not name:
                raise refusal("no name")
            return [_as(self._value(item), name, None, plain)]
        at = self._column(item)
        return [_as(_written(*at), name or at[1], at, plain)]

    def _starred(self, item: Node) -> list[tuple[int, str]]:
        wanted = item.get("relation_name")
        if set(item) - _PLACES - {"relation_name"}:
            raise refusal("star")
        places = self._places(wanted) if wanted else range(len(self._tables))
        columns = [(place, name) for place in places for name in self._tables[place].columns]
        return [at for at in columns if wanted or at not in self._merged]

    def _column(self, node: Node) -> tuple[int, str]:
        """The table and the stored name of a column."""
        _only(node, "column_names")
        names = node["column_names"]
        if len(names) > 2:
            raise refusal("unknown column", ".".join(names))
        places = range(len(self._tables)) if len(names) == 1 else self._places(names[0])
        return self._find(names, places)

    def _places(self, called: str) -> list[int]:
        folded = called.casefold()
        found = [i for i, name in enumerate(self._names) if name.casefold() == folded]
        if len(found) > 1:
            raise refusal("several tables", called)
        return found

    def _find(self, names: list[str], places: Any) -> tuple[int, str]:
        folded, shown = names[-1].casefold(), ".".join(names)
        found = [
            (place, name)
            for place in places
            for name in self._tables[place].columns
            if name.casefold() == folded and not (len(names) == 1 and (place, name) in self._merged)
        ]
        if len(found) != 1:
            raise refusal("several columns" if found else "unknown column", shown)
        return found[0]

    # --- expressions ------------------------------------------------------------------------------

    def _value(self, node: Node) -> str:
        """Any expression, in brackets wherever it needs some."""
        write = _WRITERS.get(node["class"])
        if write is None:
            _refuse(node)
        return write(self, node)

    def _values(self, nodes: Any) -> str:
        return ", ".join(self._value(node) for node in nodes)

    def _column_ref(self, node: Node) -> str:
        return _written(*self._column(node))

    def _constant(self, node: Node) -> str:
        _only(node, "literal", "value")
        if "literal" in node:
            return _literal(node["literal"].get("kind"), node["literal"].get("text", ""))
        value = node["value"]
        kind = value.get("type", {})
        return _old_literal(kind.get("id"), value.get("value"), kind.get("type_info", {}))

    def _function(self, node: Node) -> str:
        fields = ("function_name", "schema", "catalog", "qualified_name", "is_operator")
        _only(
            node, *fields, "children", "arguments", "order_bys",
            distinct="aggregate", filter="aggregate", export_state="aggregate",
        )  # fmt: skip
        if set(node.get("order_bys", {})) - {"type"}:
            raise refusal("aggregate")
        path = node.get("qualified_name", {}).get("path")
        path = path or _path(node, "catalog", "schema", "function_name")
        *where, name = (part.casefold() for part in path)
        if where not in ([], ["main"], ["system", "main"]) or not (
            name in ROW_WISE or (name in _OPERATORS and node.get("is_operator", False))
        ):
            raise refusal("function", ".".join(path))
        arguments = node.get("children", ())
        if "arguments" in node:
            if any(set(one) != {"expression"} for one in node["arguments"]):
                raise refusal("function", name)
            arguments = [one["expression"] for one in node["arguments"]]
        values = [self._value(one) for one in arguments]
        if name in _BY_CASE:  # macros of DuckDB's, or made by its parser
            count, form = _BY_CASE[name]
            if len(values) != count:
                raise refusal("function", name)
            return form.format(*values)
        return f"system.main.{identifier(name)}({', '.join(values)})"

    def _cast(self, node: Node) -> str:
        _only(node, "child", "cast_type", "type_expr", "try_cast")
        word = "TRY_CAST" if node.get("try_cast") else "CAST"
        return f"{word}({self._value(node['child'])} AS {_cast_type(node)})"

    def _comparison(self, node: Node) -> str:
        _only(node, "left", "right")
        sign = _COMPARISONS.get(node["type"])
        if sign is None:
            _refuse(node)
        return f"({self._value(node['left'])} {sign} {self._value(node['right'])})"

    def _between(self, node: Node) -> str:
        _only(node, "input", "lower", "upper")
        value, low, high = (self._value(node[name]) for name in ("input", "lower", "upper"))
        return f"({value} BETWEEN {low} AND {high})"

    def _conjunction(self, node: Node) -> str:
        _only(node, "children")
        word = {"CONJUNCTION_AND": " AND ", "CONJUNCTION_OR": " OR "}.get(node["type"])
        if word is None:
            _refuse(node)
        return f"({word.join(self._value(child) for child in node['children'])})"

    def _case(self, node: Node) -> str:
        _only(node, "case_checks", "else_expr")
        checks = node["case_checks"]
        for check in checks:
            _only(check, "when_expr", "then_expr")
        whens = " ".join(
            f"WHEN {self._value(check['when_expr'])} THEN {self._value(check['then_expr'])}"
            for check in checks
        )
        return f"(CASE {whens} ELSE {self._value(node['else_expr'])} END)"

    def _operator(self, node: Node) -> str:
        _only(node, "children")
        children, kind = node["children"], node["type"]
        if kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
            word = "IN" if kind == "COMPARE_IN" else "NOT IN"
            return f"({self._value(children[0])} {word} ({self._values(children[1:])}))"
        if kind == "OPERATOR_COALESCE":
            return f"coalesce({self._values(children)})"
        form = _UNARY.get(kind)
        if form is None or len(children) != 1:
            _refuse(node)
        return form.format(self._value(children[0]))


_UNARY = {
    "OPERATOR_NOT": "(NOT {})",
    "OPERATOR_IS_NULL": "({} IS NULL)",
    "OPERATOR_IS_NOT_NULL": "({} IS NOT NULL)",
}
_BY_CASE = {
    "nullif": (2, "(CASE WHEN ({0} = {1}) THEN NULL ELSE {0} END)"),
    "ifnull": (2, "coalesce({0}, {1})"),
    "if": (3, "(CASE WHEN {0} THEN {1} ELSE {2} END)"),
}
_WRITERS: dict[str, Callable[[_Reader, Node], str]] = {
    "COLUMN_REF": _Reader._column_ref,
    "CONSTANT": _Reader._constant,
    "FUNCTION": _Reader._function,
    "CAST": _Reader._cast,
    "COMPARISON": _Reader._comparison,
    "BETWEEN": _Reader._between,
    "CONJUNCTION": _Reader._conjunction,
    "CASE": _Reader._case,
    "OPERATOR": _Reader._operator,
}


def _only(node: Node, *fields: str, **refused: str) -> None:
    """Refuse a node with other fields than these; `refused` says by which words."""
    for field in node:
        if field in refused:
            raise refusal(refused[field])
        if field not in fields and field not in _PLACES:
            raise refusal("unknown", field.replace("_", " "))


def _refuse(node: Node, otherwise: str = "unknown") -> NoReturn:
    """Refuse a node for what it is."""
    kind = node.get("class", node["type"])
    known = _NODES.get(kind, otherwise)
    raise refusal(known, str(node["type"]).replace("_", " ").lower())


def _path(node: Node, *fields: str) -> list[str]:
    return [node[field] for field in fields if node.get(field)]


def _written(place: int, name: str) -> str:
    return f"t{place}.{identifier(name)}"


def _as(value: str, name: str, at: tuple[int, str] | None, plain: dict[str, str]) -> str:
    if at is not None and at[0] == 0:
        plain[name] = at[1]
    return f"{value} AS {identifier(name)}"


def _literal(kind: Any, said: str) -> str:
    """A constant, as DuckDB 2 hands it out: as text."""
    if kind == "STRING":
        return text(said)
    if kind == "NULL_LITERAL":
        return "NULL"
    if kind == "BOOLEAN" and said in ("true", "false"):
        return said
    number = said.replace("_", "")
    if kind in ("INTEGER", "NUMERIC") and re.fullmatch(_NUMBER, number):
        return f"({number})"
    raise refusal("unknown", "a constant")


_NUMBER = r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"


def _old_literal(kind: Any, value: Any, about: Node) -> str:
    """A constant, as DuckDB 1 hands it out: as a value of a type."""
    if kind == "NULL" and value is None:
        return "NULL"
    if kind == "VARCHAR" and isinstance(value, str):
        return text(value)
    if kind in ("INTEGER", "BIGINT") and type(value) is int:
        return f"({value})"
    if kind == "DECIMAL" and type(value) is int and type(about.get("scale", 0)) is int:
        return f"({Decimal(value).scaleb(-about.get('scale', 0)):f})"
    if kind == "DOUBLE" and isinstance(value, float | int) and math.isfinite(value):
        return f"CAST({text(repr(float(value)))} AS DOUBLE)"
    raise refusal("unknown", "a constant")


def _cast_type(node: Node) -> str:
    if "type_expr" in node:  # DuckDB 2
        found = node["type_expr"]
        _only(found, "type_name", "children", "qualified_name")
        name, sizes = found["type_name"], []
        if [part.casefold() for part in found["qualified_name"]["path"]] != [name.casefold()]:
            raise refusal("type", name)
        for child in found.get("children", ()):
            sizes.append(child.get("literal", {}).get("text"))
    else:
        name, about = node["cast_type"].get("id"), node["cast_type"].get("type_info", {})
        sizes = [about.get("width"), about.get("scale", 0)] if about else []
        if about and (set(about) - {"type", "width", "scale"} or name != "DECIMAL"):
            raise refusal("type", about.get("user_type_name", name))
    known = str(name).upper()
    if known not in _TYPES or not all(re.fullmatch("[0-9]+", str(size)) for size in sizes):
        raise refusal("type", name)
    canonical = _TYPES[known] or known
    if sizes and canonical != "DECIMAL":
        raise refusal("type", f"{name}({sizes[0]})")
    return f"{canonical}({', '.join(map(str, sizes))})" if sizes else canonical
