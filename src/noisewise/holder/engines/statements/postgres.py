"""Statements for PostgreSQL: read by the server's own parser, after it has resolved every name.

With ``debug_print_rewritten`` the server sends what it has made of a statement that it was asked to
prepare: the tree after parsing, name resolution and rewriting, and before planning. In it a view is
the subquery that it stands for, row-level security is the conditions that it adds, and tables,
functions, operators and types are given by number, so that it doesn't matter what they are called
or where they were found. Nothing is planned or run. It needs no right and works on a standby, and
in a transaction that may not write. (It also goes into the server's log.)

A tree is taken if all its nodes are known. Nodes below a node must be in the fields that are named
here; other fields are numbers and words. What the tables, functions and types with these numbers
are, is asked of the catalogue in the same transaction, in which the statement is then run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg.pq import DiagnosticField, ExecStatus

from noisewise.holder.engines.statements import ROW_WISE, Statement, refusal

_TITLE = b"rewritten parse tree:"
_SHOW = """
SET LOCAL client_min_messages = 'log';
SET LOCAL debug_pretty_print = off;
SET LOCAL debug_print_rewritten = on
"""

# Numbers below this one belong to what comes with the server.
_FIRST_OF_USERS = 16384

_TABLES = f"""
SELECT c.oid::pg_catalog.int8, c.relname::pg_catalog.text, c.relkind::pg_catalog.text,
       c.oid::pg_catalog.int8 OPERATOR(pg_catalog.>=) {_FIRST_OF_USERS}
         AND n.nspname OPERATOR(pg_catalog.<>) 'pg_toast'
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
WHERE c.oid OPERATOR(pg_catalog.=) ANY (%s::pg_catalog.oid[])
"""
_COLUMNS = """
SELECT attrelid::pg_catalog.int8, attnum::pg_catalog.int4, attname::pg_catalog.text
FROM pg_catalog.pg_attribute
WHERE attrelid OPERATOR(pg_catalog.=) ANY (%s::pg_catalog.oid[])
"""
_FUNCTIONS = f"""
SELECT p.oid::pg_catalog.int8, p.proname::pg_catalog.text,
       p.oid::pg_catalog.int8 OPERATOR(pg_catalog.<) {_FIRST_OF_USERS}
         AND n.nspname OPERATOR(pg_catalog.=) 'pg_catalog'
         AND p.provolatile OPERATOR(pg_catalog.=) 'i'
         AND p.prokind OPERATOR(pg_catalog.=) 'f'
         AND NOT p.proretset
FROM pg_catalog.pg_proc AS p
JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace
WHERE p.oid OPERATOR(pg_catalog.=) ANY (%s::pg_catalog.oid[])
"""
_TYPES = f"""
SELECT t.oid::pg_catalog.int8, t.typname::pg_catalog.text,
       t.typtype OPERATOR(pg_catalog.=) ANY ('{{e,d}}')
         OR (t.typtype OPERATOR(pg_catalog.=) 'b'
             AND t.oid::pg_catalog.int8 OPERATOR(pg_catalog.<) {_FIRST_OF_USERS})
FROM pg_catalog.pg_type AS t
WHERE t.oid OPERATOR(pg_catalog.=) ANY (%s::pg_catalog.oid[])
"""
_COLLATIONS = """
SELECT oid::pg_catalog.int8, collisdeterministic FROM pg_catalog.pg_collation
WHERE oid OPERATOR(pg_catalog.=) ANY (%s::pg_catalog.oid[])
"""

# Functions behind = of types of which only the same id is equal
_SAME = frozenset((
    "int2eq", "int4eq", "int8eq", "int24eq", "int28eq", "int42eq", "int48eq", "int82eq",
    "int84eq", "texteq", "uuid_eq",
))  # fmt: skip
# Numbers of types that text may be read as, and that may be written as text: bool, int8, int2,
# int4, text, float4, float8, bpchar, varchar, numeric, uuid. Of others (dates) it depends on
# settings, and on the clock for words such as 'now'.
_IN_TEXT = frozenset((16, 20, 21, 23, 25, 700, 701, 1042, 1043, 1700, 2950))

# Expressions: in which fields there are expressions again
_EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "CONST": (),
    "FUNCEXPR": ("args",),
    "OPEXPR": ("args",),
    "DISTINCTEXPR": ("args",),
    "NULLIFEXPR": ("args",),
    "SCALARARRAYOPEXPR": ("args",),
    "BOOLEXPR": ("args",),
    "CASEEXPR": ("arg", "args", "defresult"),
    "CASEWHEN": ("expr", "result"),
    "CASETESTEXPR": (),
    "COALESCEEXPR": ("args",),
    "MINMAXEXPR": ("args",),
    "NULLTEST": ("arg",),
    "BOOLEANTEST": ("arg",),
    "RELABELTYPE": ("arg",),
    "COERCEVIAIO": ("arg",),
    "ARRAYEXPR": ("elements",),
    "ARRAYCOERCEEXPR": ("arg", "elemexpr"),
}
# Names of nodes before version 16
_FORMERLY = {
    "RTE": "RANGETBLENTRY",
    "CASE": "CASEEXPR",
    "WHEN": "CASEWHEN",
    "COALESCE": "COALESCEEXPR",
    "MINMAX": "MINMAXEXPR",
    "ARRAY": "ARRAYEXPR",
}
# Fields of a SELECT with no bearing on which rows there are, or that are read below; any other
# field must be empty. What stands in some of them has better words than "unknown".
_FREE = frozenset((
    "querySource", "canSetTag", "queryId", "stmt_location", "stmt_len", "commandType",
    "override", "jointree", "targetList", "rtable", "rteperminfos", "hasRowSecurity",
))  # fmt: skip
_CLAUSES = {
    "hasSubLinks": "subquery",
    "hasWindowFuncs": "window",
    "windowClause": "window",
    "hasAggs": "aggregate",
    "groupClause": "aggregate",
    "groupingSets": "aggregate",
    "havingQual": "aggregate",
    "hasGroupRTE": "aggregate",
    "setOperations": "set operation",
    "cteList": "with",
    "hasRecursive": "with",
    "hasDistinctOn": "distinct",
    "distinctClause": "distinct",
    "limitOffset": "limit",
    "limitCount": "limit",
    "sortClause": "order",
    "hasForUpdate": "order",
    "rowMarks": "order",
}
_EMPTY: tuple[Any, ...] = (None, "0", "false", [])
_KINDS_OF_TABLES = {"0": "", "1": "subquery", "2": "", "6": "with"}  # of entries in FROM
_NODES = {
    "SUBLINK": "subquery",
    "WINDOWFUNC": "window",
    "AGGREF": "aggregate",
    "PARAM": "parameter",
}


def read(query: str, connection: Any, execute: Callable[..., Any]) -> Statement:
    """Read a statement of a server, in the transaction in which it will be run.

    `query` is one that the server can prepare, alone and in brackets; `execute` runs SQL on the
    connection.

    Raises
    ------
    RequestError
        It is not of the form that `statements` describes.
    """
    names, tree = _shown(query, connection, execute)
    try:
        (root,) = _parsed(tree)
        return _Reader(execute).statement(query, names, root)
    except (RecursionError, StopIteration, ValueError, LookupError, TypeError, AttributeError):
        pass  # a tree of another shape than any that is known
    raise refusal("unreadable")


def _shown(query: str, connection: Any, execute: Callable[..., Any]) -> tuple[list[str], bytes]:
    """Names of the result's columns, and the tree as the server prints it."""
    server, trees = connection.pgconn, []

    def keep(message: Any) -> None:
        if message.error_field(DiagnosticField.MESSAGE_PRIMARY) == _TITLE:
            trees.append(message.error_field(DiagnosticField.MESSAGE_DETAIL) or b"")

    # The connection's owner need not hear of it.
    before, server.notice_handler = server.notice_handler, keep
    try:
        with connection.transaction(force_rollback=True):
            execute(_SHOW)
            trees.clear()
            done = server.prepare(b"", query.encode())
            shown = list(trees)  # those of later commands are not of interest
            about = server.describe_prepared(b"")
    finally:
        server.notice_handler = before
    if not done.status == about.status == ExecStatus.COMMAND_OK or len(shown) != 1:
        raise refusal("unreadable")
    return [about.fname(i).decode() for i in range(about.nfields)], shown[0]


# --- trees as text --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Node:
    """A node: its name, and its fields as text, nodes, lists of them, or None."""

    name: str
    fields: dict[str, Any]

    def number(self, name: str) -> int:
        return int(self.fields[name])

    def node(self, name: str) -> _Node:
        found = self.fields[name]
        if not isinstance(found, _Node):
            raise ValueError(name)
        return found

    def list(self, name: str) -> list[Any]:
        found = self.fields.get(name)
        if found is None:
            return []
        if not isinstance(found, list):
            raise ValueError(name)
        return found


# The server breaks lines at spaces, which is of no matter, and where it finds none, after 78
# characters. That may take the backslash away from what follows it. Only names with many brackets,
# blanks or backslashes are ever so long.
_CUT = re.compile(rb"(\A|\n).[^ ]{77}\n", re.DOTALL)


def _parsed(tree: bytes) -> Any:
    if _CUT.search(tree):
        raise ValueError("a name was cut in two")
    tokens = _tokens(tree.decode("latin-1"))
    value = _value(next(tokens), tokens)
    if next(tokens, None) is not None:
        raise ValueError("more than one value")
    return value


def _tokens(tree: str) -> Iterator[str]:
    """Brackets and words. A backslash takes away the meaning of what follows, and stays."""
    start = at = 0
    while at < len(tree):
        character = tree[at]
        if character == "\\":
            at += 2
            continue
        if character in " \n\t(){}":
            if start < at:
                yield tree[start:at]
            if character in "(){}":
                yield character
            start = at + 1
        at += 1
    if start < len(tree):
        yield tree[start:]


def _value(token: str, tokens: Iterator[str]) -> Any:
    """The value that begins with this token.

    Each field has exactly one value, whatever that looks like: names that users choose, such as
    ":rtable", are values and never fields.
    """
    if token == "{":
        return _node(tokens)
    if token == "(":
        values: list[Any] = []
        for following in tokens:
            if following == ")":
                return values
            values.append(_value(following, tokens))
        raise ValueError("an open list")
    if token in ")}":
        raise ValueError("a bracket")
    return None if token == "<>" else token


def _node(tokens: Iterator[str]) -> _Node:
    name = next(tokens)
    fields: dict[str, Any] = {}
    for token in tokens:
        if token == "}":
            return _Node(_FORMERLY.get(name, name), fields)
        key = token.removeprefix(":")
        if key in (token, *fields):
            raise ValueError("no name of a field, or the same once more")
        fields[key] = _value(next(tokens), tokens)
        if key == "constvalue" and fields[key] is not None:
            _bytes(tokens)
    raise ValueError("an open node")


def _bytes(tokens: Iterator[str]) -> None:
    """Step over the bytes of a constant: [ 20 0 0 0 97 ]."""
    if next(tokens) != "[":
        raise ValueError("no bytes")
    for token in tokens:
        if token == "]":
            return
        int(token)
    raise ValueError("open bytes")


# --- what a tree says -----------------------------------------------------------------------------


@dataclass
class _Reader:
    """Goes over a tree, and asks the catalogue about what it has met there."""

    execute: Callable[..., Any]
    tables: dict[int, int] = field(default_factory=dict)  # numbers by their place in FROM
    calls: set[int] = field(default_factory=set)  # functions that are called by name
    functions: set[int] = field(default_factory=set)  # those of operators and casts
    types: set[int] = field(default_factory=set)
    collations: set[int] = field(default_factory=set)  # in which ids are compared
    same: set[int] = field(default_factory=set)  # functions that compare ids
    drops_rows: bool = False

    def statement(self, sql: str, names: Sequence[str], query: _Node) -> Statement:
        """Read a whole SELECT."""
        self._check_clauses(query)
        self._check_tables(query.list("rtable"))
        tree = query.node("jointree")
        self._only(tree, "fromlist", "quals")
        places = tree.list("fromlist")
        if len(places) != 1:
            raise refusal("join" if places else "no table")
        order: list[int] = []
        joined = self._from(places[0], order)
        if tree.fields["quals"] is not None:
            self.drops_rows = True
            self._check(tree.node("quals"))
        targets = [target for target in query.list("targetList") if not self._is_hidden(target)]
        for target in targets:
            self._check(target.node("expr"))
        if len(targets) != len(names):
            raise ValueError("names")
        columns = self._catalogue()
        plain = {}
        for name, target in zip(names, targets, strict=True):
            column = target.node("expr")
            if column.name == "VAR" and column.number("varno") == order[0]:
                plain[name] = columns[self._at(column)]
        pairs = tuple((columns[one], columns[other]) for one, other in joined)
        return Statement(sql, plain, self.drops_rows, pairs)

    def _check_clauses(self, query: _Node) -> None:
        if query.name != "QUERY" or query.fields["commandType"] != "1":
            raise ValueError("no SELECT")
        for entry in query.list("rtable"):
            if entry.fields.get("securityQuals") is not None:
                raise refusal("policy")
        for name, kind in _CLAUSES.items():
            if query.fields.get(name) not in _EMPTY:
                raise refusal(kind)
        for name, value in query.fields.items():
            if name == "hasTargetSRFs" and value not in _EMPTY:
                raise refusal("unknown", "a function that returns several rows")
            if name not in _FREE and value not in _EMPTY:
                raise refusal("unknown", name)

    def _check_tables(self, entries: Sequence[_Node]) -> None:
        """Tables, and what joins make of them; `tables` are the former."""
        for place, entry in enumerate(entries, 1):
            if entry.name != "RANGETBLENTRY":
                raise ValueError(entry.name)
            kind = _KINDS_OF_TABLES.get(entry.fields["rtekind"], "not a table")
            shown = _name_of(entry)
            if kind:
                # A view is a subquery by now; one of the statement's own has no number.
                is_view = kind == "subquery" and self._is_view(entry)
                raise refusal("view" if is_view else kind, shown)
            if entry.fields.get("tablesample") is not None:
                raise refusal("sample")
            self._only(entry, "alias", "eref", "joinaliasvars", "join_using_alias")
            if entry.fields["rtekind"] == "0":
                if entry.fields["relkind"] not in ("r", "p"):
                    raise refusal("view", shown)
                self.tables[place] = entry.number("relid")

    @staticmethod
    def _is_view(entry: _Node) -> bool:
        inner = entry.fields.get("subquery")
        tables = inner.list("rtable") if isinstance(inner, _Node) else []
        return entry.fields.get("relkind") == "v" or any(
            table.fields.get("relkind") == "v" for table in tables
        )

    def _from(self, node: _Node, order: list[int]) -> list[tuple[Any, Any]]:
        """Pairs of columns on which tables are joined; `order` takes the places of the tables."""
        if node.name == "RANGETBLREF":
            order.append(node.number("rtindex"))
            return []
        if node.name != "JOINEXPR" or node.fields["jointype"] not in ("0", "1"):
            raise refusal("join")
        joined = self._from(node.node("larg"), order)
        right = node.node("rarg")
        if right.name != "RANGETBLREF" or node.fields["isNatural"] != "false":
            raise refusal("join")
        last = right.number("rtindex")
        self.drops_rows |= node.fields["jointype"] == "0"
        condition = node.fields["quals"]
        if not isinstance(condition, _Node) or condition.name != "OPEXPR":
            raise refusal("join")
        self._check(condition)
        sides = [_without_label(side) for side in condition.list("args")]
        if len(sides) != 2 or any(side.name != "VAR" for side in sides):
            raise refusal("join")
        if sides[0].number("varno") == last:
            sides.reverse()
        if sides[1].number("varno") != last or sides[0].number("varno") not in order:
            raise refusal("join")
        order.append(last)
        self.same.add(condition.number("opfuncid"))
        self.collations.add(condition.number("inputcollid"))
        return [*joined, (self._at(sides[0]), self._at(sides[1]))]

    def _is_hidden(self, target: _Node) -> bool:
        if target.name != "TARGETENTRY":
            raise ValueError(target.name)
        self._only(target, "expr")
        return bool(target.fields["resjunk"] != "false")

    def _at(self, column: _Node) -> tuple[int, int]:
        return self.tables[column.number("varno")], column.number("varattno")

    def _check(self, node: _Node) -> None:
        """Refuse an expression with anything in it that isn't known."""
        if node.name == "VAR":
            self._check_column(node)
            return
        inner = _EXPRESSIONS.get(node.name)
        if inner is None:
            raise refusal(_NODES.get(node.name, "unknown"), node.name.lower())
        self._only(node, *inner)
        for name in ("funcretset", "opretset"):
            if node.fields.get(name, "false") != "false":
                raise refusal("unknown", "a function that returns several rows")
        if node.name == "FUNCEXPR":
            # 1 and 2 are casts
            is_call = node.fields["funcformat"] not in ("1", "2")
            (self.calls if is_call else self.functions).add(node.number("funcid"))
        elif "opno" in node.fields:
            self.functions.add(node.number("opfuncid"))
        elif node.name == "COERCEVIAIO":
            before, after = _type_of(node.node("arg")), node.number("resulttype")
            # What users have made are enumerations and domains, as is asked below.
            if after not in _IN_TEXT or not (before in _IN_TEXT or before >= _FIRST_OF_USERS):
                raise refusal("unknown", "a cast that depends on settings")
        self.types.add(_type_of(node))
        for name in inner:
            found = node.fields[name]
            for child in found if isinstance(found, list) else [found]:
                if child is not None:
                    self._check(child)

    def _check_column(self, node: _Node) -> None:
        self._only(node)
        place, number = node.number("varno"), node.number("varattno")
        if node.fields["varlevelsup"] != "0" or place not in self.tables:
            raise refusal("unknown", "a column of no table")
        if number <= 0:  # ctid, xmin and others, or the whole row
            raise refusal("system column", "ctid, tableoid, the like, or a whole row")
        self.types.add(_type_of(node))

    @staticmethod
    def _only(node: _Node, *inner: str) -> None:
        """Refuse nodes in other fields than these."""
        for name, value in node.fields.items():
            if name not in inner and _has_nodes(value):
                raise refusal("unknown", name)

    def _catalogue(self) -> dict[tuple[int, int], str]:
        """Names of all columns, after a look at all that was met."""

        def ask(statement: str, numbers: set[int]) -> dict[int, Any]:
            rows = self.execute(statement, (list(numbers),)).fetchall()
            found = {row[0]: row[1:] for row in rows}
            if set(found) != numbers:
                raise LookupError("numbers")
            return found

        tables = set(self.tables.values())
        for name, kind, is_users in ask(_TABLES, tables).values():
            if not is_users:
                raise refusal("system", name)
            if kind not in ("r", "p"):
                raise refusal("view", name)
        functions = ask(_FUNCTIONS, self.calls | self.functions)
        for number, (name, looks_at_arguments) in functions.items():
            if not looks_at_arguments or (number in self.calls and name not in ROW_WISE):
                raise refusal("function", name)
        for name, is_known in ask(_TYPES, self.types).values():
            if not is_known:
                raise refusal("type", name)
        collations = ask(_COLLATIONS, self.collations - {0}).values()
        if not ({functions[one][0] for one in self.same} <= _SAME and all(map(any, collations))):
            raise refusal("join type")
        rows = self.execute(_COLUMNS, (list(tables),)).fetchall()
        return {(table, number): name for table, number, name in rows}


def _without_label(node: Any) -> Any:
    """The column in a cast that changes no value, from varchar to text."""
    return node.node("arg") if node.name == "RELABELTYPE" else node


def _has_nodes(value: Any) -> bool:
    if isinstance(value, list):
        return any(_has_nodes(one) for one in value)
    return isinstance(value, _Node)


def _name_of(entry: _Node) -> str:
    """What an entry is called, for a message."""
    name = entry.node("eref").fields.get("aliasname")
    return str(name).encode("latin-1").decode("utf-8", "replace")


_OF_TYPES = (
    "vartype", "consttype", "funcresulttype", "opresulttype", "resulttype", "casetype",
    "coalescetype", "minmaxtype", "array_typeid", "typeId",
)  # fmt: skip


def _type_of(node: _Node) -> int:
    """The number of an expression's type; those without a field for it are true or false."""
    return next((node.number(name) for name in _OF_TYPES if name in node.fields), 16)
