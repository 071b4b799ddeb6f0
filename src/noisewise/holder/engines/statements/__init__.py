"""Whether each row of a query's result depends on the rows of one unit alone.

A sensitivity says how far the sums move if the rows of one unit are replaced. That is about the
rows that are summed, and protects people only if one person can't be in the rows of many. So the
statement of a ``--query`` is read by the engine's own parser (`statements.duckdb`,
`statements.postgres`) and must be of this form; whatever isn't known to be is refused:

    SELECT f1, f2, ... FROM table [[LEFT] JOIN table ON id = id ...] [WHERE w]

The tables are stored tables. The f and w are made of their columns, of constants, and of functions
on a list (`ROW_WISE`), whose value follows from their arguments. There is no row number, no clock,
no chance, no setting that a row could change, no other row. A column is called id here if it has
the name of the schema's unit column. Joins need such a column on both sides, and the result hands
on that of the first table as it is, under its own name.

**Claim.** Let D and D' be databases that differ only in the rows of one unit u, in any of their
tables: one that the schema's `neighbours` allow. Then the results R and R' of the statement differ
only in the rows of u, and they are neighbours as the schema declares them.

**Proof.** *Without ids* there is one table T, and R is the union, as a multiset, of the F(r) over
the rows r of T, where F(r) holds the row (f1(r), f2(r), ...) if w(r) is true, and nothing
otherwise. F depends on nothing but r. The rows of T that aren't u's are the same in D and D', and
so is the union of their F. The at most `max_rows_per_unit` rows of u give at most as
many rows. If units are added or removed, R' is R with those added or removed. If units are
replaced, there is no WHERE (`Statement.check`): u's rows are as many in R as in T, hence as many in
R' as in R.

*With ids* a row of R is made of one row of each table, where a LEFT JOIN that finds nothing
stands in with NULLs. By induction along FROM all these rows have the id of the first one: a table
that is joined is compared with one before it by id = id, which NULL never equals, on types where
only the same id is equal. So a row of R with the id v, which it shows, depends on rows with the id
v only, and on whether a table has any. For v other than u these are the same in D and D'. The rows
of R with the id u are those of the unit u, and are averaged into one, however many they are. If
units are replaced, neither WHERE nor an inner join drops a row of the first table, so that R has
the people of the first table, and as many as R'. ∎

Two things are left. That a statement *fails* on a row (a cast, a division) is an exact answer about
that row; it is paid for, and docs/limits.md says so. And what the rows of the stored tables are
remains the holder's promise: that a row is one person's, and that a column with the name of the
schema's unit column says whose.

Where a statement is refused, somebody may answer for it by name (`--query-attested-by`). It then
runs as it was written, unchecked, and the ledger keeps the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from noisewise.core.errors import RequestError
from noisewise.core.schema import Schema

__all__ = ["ROW_WISE", "Statement", "refusal"]

# Functions whose value follows from their arguments alone, in every engine that has them. Of those
# with several forms, all forms are: `age` isn't here, since DuckDB's takes one date from today's.
ROW_WISE = frozenset((
    "abs", "sign", "ceil", "ceiling", "floor", "round", "trunc", "mod", "sqrt", "cbrt", "exp",
    "ln", "log", "log2", "log10", "pow", "power", "greatest", "least", "sin", "cos", "tan",
    "asin", "acos", "atan", "atan2", "radians", "degrees", "isnan", "isinf", "isfinite",
    "lower", "upper", "length", "char_length", "character_length", "strlen", "trim", "btrim",
    "ltrim", "rtrim", "lpad", "rpad", "left", "right", "substr", "substring", "concat",
    "replace", "translate", "reverse", "repeat", "position", "strpos", "instr", "contains",
    "starts_with", "ends_with", "prefix", "suffix", "ascii", "chr", "md5", "regexp_matches",
    "regexp_full_match", "regexp_replace", "regexp_extract", "regexp_like", "like_escape",
    "not_like_escape", "ilike_escape", "not_ilike_escape", "date_part", "datepart", "extract",
    "date_trunc", "date_diff", "datediff", "make_date", "year", "month", "day", "quarter",
    "week", "dayofweek", "isodow", "dayofyear", "hour", "minute", "second", "nullif",
    "ifnull", "if",
))  # fmt: skip

_REFUSALS = {
    "subquery": (
        "a subquery can bring anybody's rows into a row",
        "join its table on the column of ids, or take it out",
    ),
    "with": ("WITH holds a subquery", "name the tables after FROM"),
    "window": ("a window function (OVER) looks at other rows", "take it out"),
    "aggregate": (
        "GROUP BY, HAVING and aggregates put rows of several people together",
        "take them out; noisewise sums the rows itself",
    ),
    "set operation": (
        "UNION, INTERSECT and EXCEPT repeat rows or compare them with each other",
        "give one SELECT",
    ),
    "distinct": ("DISTINCT compares rows with each other", "take it out"),
    "limit": ("which rows LIMIT and OFFSET leave depends on the other rows", "use WHERE"),
    "order": (
        "ORDER BY and FOR UPDATE have no place in a query whose rows are summed",
        "take it out",
    ),
    "sample": ("a sample is drawn by chance, and from all rows", "take it out"),
    "no table": ("it names no table after FROM", "give SELECT ... FROM a table of the database"),
    "not a table": (
        "what stands after FROM is not a stored table but a function, a list of values or a file",
        "put the rows into a table of the database",
    ),
    "unknown table": (
        "the database has no table {}",
        "check the name, and write catalog.schema.table where it is not clear",
    ),
    "several tables": ("there are several tables {}", "write catalog.schema.table"),
    "view": (
        "{} is no ordinary table, and what it reads is not looked into",
        "name the tables themselves, or copy its rows into a table",
    ),
    "system": ("{} is a table of the database's own", "name a table of yours"),
    "policy": (
        "row-level security decides which rows of a table this role sees, perhaps by other rows",
        "use a role that the policies do not apply to, or copy the rows into a table",
    ),
    "generated": (
        "table {} has generated columns, whose expressions are not looked into",
        "copy its rows into a table without",
    ),
    "join": (
        "tables are joined by [LEFT] JOIN, each ON or USING the column of ids alone",
        "write FROM a JOIN b ON a.id = b.id, further conditions after WHERE, and AS for names",
    ),
    "join type": (
        "ids are joined if both are whole numbers, both text with the default collation, or both "
        "UUIDs; others might be equal without being the same",
        "make the columns the same type",
    ),
    "system column": ("{} is not a stored column of a table", "take it out"),
    "unknown column": (
        "its tables have no column {}",
        "check the name (write column, or table.column)",
    ),
    "several columns": ("several of its tables have a column {}", "write table.column"),
    "star": (
        "* is taken only alone or as table.*, without EXCLUDE, REPLACE or COLUMNS",
        "name the columns",
    ),
    "no name": ("a column of the result has no name", "name it by AS"),
    "function": (
        "the function {} is not among those that look at one row alone",
        "docs/engines.md has the list",
    ),
    "type": ("it uses the type {}", "use numbers, text, true/false values and dates"),
    "parameter": ("it has parameters", "write the values themselves"),
    "unknown": ("it holds {}, which is not known to look at one row alone", "take it out"),
    "deep": ("it is nested too deeply", "make it simpler"),
    "unreadable": (
        "the database does not show how it reads the statement",
        "name a table in place of a query",
    ),
    "ids": (
        "the column {0} of the result must be the column {0} of the first table as it is, since it "
        "says whose row it is",
        "select it without an expression, and call it that in the table",
    ),
    "join by ids": (
        "a join repeats rows, which only rows averaged by person allow",
        "join on the schema's unit column ({}) on both sides, or read one table",
    ),
    "public n": (
        "under replace_one the number of rows is published as it is, and WHERE or JOIN make it an "
        "exact answer about the rows that they drop",
        "take WHERE out (and write LEFT JOIN), or declare 'neighbours: add_remove_one'",
    ),
}


# What to mend, and not to answer for
_SLIPS = ("unknown table", "several tables", "unknown column", "several columns", "no name", "deep")

_ATTESTATION = (
    "A query is taken if each row of its result depends on the rows of one unit alone. If somebody "
    "has made sure of that, they can answer for it by name: --query-attested-by NAME (in Python "
    "query_attested_by=), which the ledger keeps"
)


def refusal(kind: str, name: str = "") -> RequestError:
    """Return the error for a statement that may put other people's rows into a row.

    `name` is what the statement itself calls the culprit, and never a value of the data.
    """
    what, remedy = (text.format(repr(name)) for text in _REFUSALS[kind])
    message = f"query: {what}; {remedy}"
    return RequestError(message if kind in _SLIPS else f"{message}. {_ATTESTATION}")


@dataclass(frozen=True)
class Statement:
    """A statement that was read, and found to be of the form above."""

    # What to run: with every name resolved, or the text as it was given
    sql: str
    # Columns of the result that are a column of the first table as it is, with its name there
    plain: Mapping[str, str]
    drops_rows: bool  # has a WHERE or an inner join
    joined_on: tuple[tuple[str, str], ...] = ()  # the names of both columns of every join

    def check(self, schema: Schema) -> None:
        """Refuse what this schema's units don't allow: the conditions of the proof on ids and n."""
        unit = schema.unit_column
        if unit is not None and self.plain.get(unit) != unit:
            raise refusal("ids", unit)
        if any(pair != (unit, unit) for pair in self.joined_on):
            raise refusal("join by ids", unit or "unit: {column: ...}")
        if self.drops_rows and schema.n_is_public:
            raise refusal("public n")
