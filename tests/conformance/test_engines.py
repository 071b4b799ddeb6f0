"""One suite that every engine passes: the same integers as slow, plain Python.

`reference` below is written from the definition of the value map and shares no code with the
engines. `READERS` lists every way in which a table can reach a sum.
"""

from __future__ import annotations

import csv
import math
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path

import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.interpolate import BSpline, CubicSpline

from noisewise.core.design import MAX_ROWS, Ball, Box, Design
from noisewise.core.errors import DataError, RequestError
from noisewise.core.rounds.transform import Shape, Transform
from noisewise.core.schema import Category, Number, Schema
from noisewise.core.statistics import FourthMoments, SecondMoments
from noisewise.core.terms.formula import read_formula
from noisewise.holder import rows as plan_module
from noisewise.holder.engines import batches as batches_module
from noisewise.holder.engines import open_source
from noisewise.holder.engines import pushdown as pushdown_module
from noisewise.holder.engines.files import CsvSource, ParquetSource
from noisewise.holder.engines.frame import FrameSource
from noisewise.holder.requests.network import make_network_request
from noisewise.holder.rows import sums as sums_module
from noisewise.holder.rows import units as units_module
from noisewise.holder.rows.rounds import BallPlan, ResidualPlan, TailPlan
from noisewise.holder.rows.same_rows import check_of, with_check
from noisewise.holder.rows.scores import ScorePlan
from noisewise.holder.rows.sums import SumAccumulator, SumPlan

from .. import postgres, spark

CANARY = "7351.0625"  # a value that no message may show
INJECTION = 'x"; DROP TABLE t; --'


# ---------------------------------------------------------------------------------------------
# The reference


def reference(rows, design, geometry, statistic):
    """The sums of one statistic, from Python values, one row at a time."""
    one = 2 ** {2: 16, 4: 8}[statistic.degree]
    totals = dict.fromkeys(statistic.entries, 0)
    if design.schema.unit_column is None:
        grid = [[one, *reference_row(row, design, one)] for row in rows]
    else:
        grid = [[one, *mean] for mean in reference_means(rows, design, one)]
    for w in grid:
        if isinstance(geometry, Ball):
            radius = math.floor(geometry.radius * one)
            square = sum(x * x for x in w[1:-1])
            if square > radius * radius:
                f = (radius / math.sqrt(square)) * (1 - 2**-50)
                w[1:-1] = [math.trunc(x * f) for x in w[1:-1]]
                assert sum(x * x for x in w[1:-1]) <= radius * radius
        for entry in totals:
            totals[entry] += math.prod(w[index] for index in entry)
    return tuple(totals.values())


def reference_row(row, design, one):
    w = []
    for name in design.sources:
        column, fill = design.schema.columns[name], design.schema.fill.get(name)
        if isinstance(column, Number):
            w.append(reference_number(row[name], column, fill, one))
        else:
            level = reference_level(row[name], column, fill)
            w += [one * (level == other) for other in column.levels if other != column.reference]
    return w


def reference_means(rows, design, one):
    """One row of means for every id, in fractions: numbers to nearest, shares rounded down."""
    owned = {}
    for row in rows:
        owned.setdefault(row[design.schema.unit_column], []).append(row)
    for own in owned.values():
        columns = zip(*(reference_row(row, design, 2**24) for row in own), strict=True)
        halves = [Fraction(0 if column.is_indicator else 1, 2) for column in design.columns]
        yield [
            math.floor(math.floor(Fraction(sum(c), len(own)) + half) * Fraction(one, 2**24) + half)
            for c, half in zip(columns, halves, strict=True)
        ]


def reference_number(value, column, fill, one):
    x = math.nan if value is None else float(value)
    if math.isnan(x):
        x = fill
    centre = column.lower / 2 + column.upper / 2
    half_width = column.upper / 2 - column.lower / 2
    t = (x - centre) * (one / half_width) + 0.5
    if math.isinf(t):
        return one if t > 0 else -one
    return max(-one, min(one, math.floor(t)))


def reference_level(value, column, fill):
    if isinstance(value, str):
        return value if value in column.levels else fill
    if isinstance(value, bool):
        text = "true" if value else "false"
        return text if text in column.levels else fill
    for level in column.levels:
        try:
            if value is not None and float(value) == float(level):
                return level
        except ValueError:
            continue
    return fill


# ---------------------------------------------------------------------------------------------
# The engines


def to_csv(table, path, *, missing=""):
    def cell(value):
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return missing
        if isinstance(value, bool):
            return "true" if value else "false"
        return repr(value) if isinstance(value, float) else str(value)

    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.column_names)
        for row in table.to_pylist():
            writer.writerow([cell(value) for value in row.values()])


def parquet(table, folder):
    path = folder / "rows.parquet"
    pq.write_table(table, path, row_group_size=13)
    return path


def in_database(table, folder):
    path = folder / "rows.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.register("rows", table)
        connection.execute(f"CREATE TABLE {quoted(INJECTION)} AS SELECT * FROM rows")
    return path


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def lent(table):
    connection = duckdb.connect()
    connection.register("rows", table)
    return connection


def in_postgres(table):
    # There is no type of no values.
    types = {f.name: "text" for f in table.schema if pa.types.is_null(f.type) and f.name != "void"}
    postgres.put(table, INJECTION, types)
    return [postgres.server_url()]


def read_csv_file(table, folder, engine):
    to_csv(table, folder / "rows.csv")
    return open_source(folder / "rows.csv", engine=engine)


def plain(column):
    whole = pa.types.is_integer(column.type) and not column.null_count
    return column.to_numpy() if whole else column.to_pylist()


def structured(table):
    arrays = {name: table[name].to_numpy() for name in table.column_names}
    out = np.empty(table.num_rows, dtype=[(name, a.dtype) for name, a in arrays.items()])
    for name, array in arrays.items():
        out[name] = array
    return out


SELECT = f"SELECT * FROM {quoted(INJECTION)}; -- all of it"

READERS = {
    "arrow": lambda t, _: open_source(t),
    "pandas": lambda t, _: open_source(t.to_pandas(types_mapper=pd.ArrowDtype)),
    "pandas-numpy": lambda t, _: open_source(t.to_pandas()),
    "polars": lambda t, _: open_source(pl.from_arrow(t)),
    "polars-lazy": lambda t, _: open_source(pl.from_arrow(t).lazy()),
    "dict": lambda t, _: open_source({n: plain(t[n]) for n in t.column_names}),
    "parquet": lambda t, d: open_source(str(parquet(t, d))),
    "csv": lambda t, d: read_csv_file(t, d, "auto"),
    "duckdb-arrow": lambda t, _: open_source(t, engine="duckdb"),
    "duckdb-parquet": lambda t, d: open_source(parquet(t, d), engine="duckdb"),
    "duckdb-csv": lambda t, d: read_csv_file(t, d, "duckdb"),
    "duckdb-table": lambda t, d: open_source(in_database(t, d), table=INJECTION),
    "duckdb-only-table": lambda t, d: open_source(in_database(t, d)),
    "duckdb-query": lambda t, d: open_source(in_database(t, d), query=SELECT),
    "connection-table": lambda t, _: open_source(lent(t), table="rows"),
    "connection-query": lambda t, _: open_source(
        lent(t), query="SELECT * FROM rows; -- all", query_attested_by="the tests"
    ),
    "relation": lambda t, _: open_source(lent(t).sql("SELECT * FROM rows")),
    "postgres-table": lambda t, _: open_source(*in_postgres(t), table=INJECTION),
    "postgres-stream": lambda t, _: open_source(*in_postgres(t), table=INJECTION, engine="stream"),
    "postgres-connection": lambda t, _: (
        in_postgres(t)
        and open_source(postgres.shared(), query=SELECT.replace("FROM ", "FROM public."))
    ),
    "spark": lambda t, _: open_source(spark.frame(t)),
}
# A category of numbers is compared as text in a CSV file: there, 1.0 is not the level "1".
NOT_CSV = ("csv", "duckdb-csv")

reader = pytest.mark.parametrize("reader", READERS)


def plan_of(schema, features, target, geometry=None, *, fourth=False):
    design = Design(schema, tuple(features), target)
    statistics = (SecondMoments(design), FourthMoments(design))[: 1 + fourth]
    return SumPlan(design, geometry or Box(), statistics)


def assert_exact(source, plan, rows):
    found = source.sums(plan)
    ids = plan.schema.unit_column
    assert found.n == (len(rows) if ids is None else len({row[ids] for row in rows}))
    for statistic in plan.statistics:
        expected = reference(rows, plan.design, plan.geometry, statistic)
        assert found.values[statistic.name] == expected
        assert all(type(value) is int for value in found.values[statistic.name])


# ---------------------------------------------------------------------------------------------
# Awkward tables


@dataclass
class Case:
    table: pa.Table
    columns: dict
    fill: dict
    geometry: Box | Ball = Box()
    skip: tuple = ()

    def plan(self, neighbours="replace_one", *, fourth=False, ids=None):
        schema = Schema("d", self.columns, neighbours, fill=self.fill, unit_column=ids)
        *features, target = self.columns
        return plan_of(schema, features, target, self.geometry, fourth=fourth)


def numbers(values, kind=None):
    return pa.array(values, type=kind or pa.float64())


def with_target(columns, declared, fill=None, **more):
    n = len(next(iter(columns.values())))
    y = numbers([0.25 * (i % 9) - 1 for i in range(n)])
    table = pa.table({**columns, "y": y})
    return Case(table, {**declared, "y": Number(-1, 1)}, fill or {}, **more)


def halves(lower, upper):
    """Values that are exactly half-way between two grid points, and their neighbours."""
    centre, half = (lower + upper) / 2, (upper - lower) / 2
    middle = [centre + half * (k + 0.5) / 2**16 for k in (-65536, -4, -1, 0, 1, 3, 65535)]
    return [v for m in middle for v in (math.nextafter(m, -9e9), m, math.nextafter(m, 9e9))]


EDGES = [-1.0, 1.0, -0.0, 0.0, 5e-324, -5e-324, 1e308, -1.7e308, 0.1, -0.30000000000000004]
INFINITE = [math.inf, -math.inf]
BIG = [2**53 + 1, 2**53 + 3, 2**63 - 1, -(2**63), -(2**53) - 1, 7, 2**62 + 129]
UBIG = [2**64 - 1, 2**53 + 1, 2**63 + 1025, 0, 1, 2**63 - 513, 2**64 - 1025]
WORDS = ["é", "e\u0301", "日本", "o'neil", 'a"b', "; DROP", "É", " é", "NA", "É", "o'neil"]
LEVELS = ("é", "日本", "o'neil", 'a"b', "; DROP", "NA", "É")


def nearest(values):
    return tuple(dict.fromkeys(str(int(float(v))) for v in values))


def integer_case():
    small = {
        f"{sign}{bits}": pa.array(
            (
                [0, 1, 2 ** (bits - 1) - 1, 5, 3, 2, 1]
                if sign == "u"
                else [0, -1, 100, 5, -128, 3, 1]
            ),
            type=getattr(pa, f"{'u' if sign == 'u' else ''}int{bits}")(),
        )
        for sign in "iu"
        for bits in (8, 16, 32)
    }
    i64, u64 = numbers(BIG, pa.int64()), numbers(UBIG, pa.uint64())
    columns = {**small, "i64": i64, "u64": u64, "i64 level": i64, "u64 level": u64}
    declared = {name: Number(-10, 60) for name in small}
    declared["i64"] = Number(2.0**53 - 2e7, 2.0**53 + 2e7)
    declared["u64"] = Number(-(2.0**60), 2.0**64)
    # As levels, neighbouring doubles are told apart: casts must round to nearest.
    declared["i64 level"] = Category(nearest(BIG), "7")
    declared["u64 level"] = Category(nearest(UBIG), "0")
    return with_target(columns, declared, {"i64 level": "7", "u64 level": "0"}, skip=NOT_CSV)


# DuckDB's own casts of these to a double are off by one unit in the last place.
WHOLE = ("-9981837153484694", "-130808335613087964902")


def decimal_case():
    texts = ["0.1", "1.005", "123456789012345.67891", "-0.00001", "99999999999.99999", "2.5"]
    wide = ["0.1", "9007199254740993.0000000001", "-1234567890123456789012345678.0123456789"]
    wide += ["1e-10", "4503599627370496.5000000001", "3"]

    def decimals(texts, digits, scale):
        return pa.array([Decimal(text) for text in texts], type=pa.decimal128(digits, scale))

    columns = {
        "short": decimals(texts, 20, 5),
        "wide": decimals(wide, 38, 10),
        "wide level": decimals(wide, 38, 10),
        "whole level": decimals([*WHOLE, "3", "4", "5", "6"], 38, 0),
        "short level": decimals(["1", "2", "1.5", "1", "9", "2"], 4, 1),
    }
    declared = {
        "short": Number(-1, 3),
        "wide": Number(2.0**52, 2.0**54),
        "wide level": Category(("9007199254740994", "4503599627370497", "3", "0.1"), "3"),
        "whole level": Category((*WHOLE, "3"), "3"),
        "short level": Category(("1", "2", "1.5"), "1"),
    }
    fill = {"wide level": "3", "whole level": "3", "short level": "2"}
    return with_target(columns, declared, fill, skip=NOT_CSV)


def name_case():
    names = [INJECTION, 'say "hi"', "it's", "ünï köde", "a.b", "a", "A", "c0", "w0_1"]
    names += ["select", "*", "^x$", "$1", "?", "\\", "%s", "{x}"]
    rng = np.random.default_rng(5)
    columns = {name: numbers(rng.uniform(-1.2, 1.2, 50)) for name in names}
    # Tables in DuckDB cannot have both "a" and "A"; streaming them cannot tell which is meant.
    skip = tuple(r for r in READERS if r.startswith(("duckdb-t", "duckdb-o", "duckdb-q")))
    skip += ("connection-table", "connection-query", "relation")
    return with_target(columns, dict.fromkeys(names, Number(-1, 1)), skip=skip)


def level_case(geometry):
    n = len(WORDS)
    columns = {
        "text": pa.array(WORDS),
        "large": pa.array(WORDS[::-1], type=pa.large_string()),
        "dict": pa.array([None, *WORDS[1:]]).dictionary_encode(),
        "int": pa.array([1, 2, 3, 4, None, 10, 1, 2, 3, 0, 10], type=pa.int32()),
        "float": numbers([1.0, 2.5, math.nan, -0.0, None, 0.0, 1e300, 2.5, 1, math.inf, 7]),
        "flag": pa.array([True, False, None] * 3 + [True, True]),
        "x": numbers(np.linspace(-1.5, 1.5, n)),
    }
    declared = {
        "text": Category(LEVELS, "é"),
        "large": Category(LEVELS, "NA"),
        "dict": Category(LEVELS, "日本"),
        "int": Category(("1", "2", "10", "ten"), "2"),
        "float": Category(("0", "1", "2.5", "+7e0"), "0"),
        "flag": Category(("true", "false"), "false"),
        "x": Number(-1, 1),
    }
    fill = {
        "text": "日本",
        "large": "NA",
        "dict": "É",
        "int": "ten",
        "float": "+7e0",
        "flag": "true",
    }
    return with_target(columns, declared, fill, geometry=geometry, skip=NOT_CSV)


def null_case():
    rng = np.random.default_rng(11)
    x = rng.uniform(-3, 3, 60).tolist()
    x[3], x[17], x[40], x[41] = None, math.nan, math.inf, None
    constant_but_one = [1.0] * 59 + [math.nan]  # Parquet's statistics say: 1 to 1, no NULL
    columns = {
        "x": numbers(x),
        "f32": pa.array([None if i % 7 == 0 else 0.1 * i for i in range(60)], type=pa.float32()),
        "nan": numbers([math.nan if i == 31 else float(i) for i in range(60)]),
        "one": numbers(constant_but_one),
        "code": numbers(constant_but_one),
        "int": pa.array([None if i % 5 == 0 else i for i in range(60)], type=pa.int16()),
        "void": pa.nulls(60),
        "blank": pa.nulls(60),
        "g": pa.array([["a", "b", None, "zzz", ""][i % 5] for i in range(60)]),
    }
    declared = {
        "x": Number(-2, 2.5),
        "f32": Number(0, 4),
        "nan": Number(0, 60),
        "one": Number(0, 2),
        "code": Category(("1.0", "2.0"), "2.0"),
        "int": Number(0, 40),
        "void": Number(0, 1),
        "blank": Category(("a", "b"), "a"),
        "g": Category(("a", "b", "c"), "a"),
    }
    fill = {"x": 0.3, "f32": 4, "nan": 59.5, "one": 0.1, "code": "2.0", "int": 7, "void": 0.25}
    fill |= {"blank": "b", "g": "c"}
    return with_target(columns, declared, fill)


def ball_case(radius):
    rng = np.random.default_rng(3)
    columns = {f"x{j}": numbers(rng.uniform(-1.5, 1.5, 80)) for j in range(4)}
    columns["g"] = pa.array([["a", "b", "c"][i % 3] for i in range(80)])
    declared = {**{f"x{j}": Number(-1, 1) for j in range(4)}, "g": Category(("a", "b", "c"), "a")}
    return with_target(columns, declared, geometry=Ball(radius))


def many_levels_case():
    """So many that they are summed by level, with gaps to fill, and rows outside the ball."""
    rng = np.random.default_rng(5)
    towns, jobs = tuple(f"t{i:02}" for i in range(23)), tuple(f"j{i}" for i in range(9))
    columns = {
        "town": pa.array([*rng.choice(towns, 68).tolist(), None, "t99"]),
        "x": numbers([None, *rng.uniform(-2, 2, 69)]),
        "job": pa.array([None, *rng.choice(jobs, 69).tolist()]),
        "sex": pa.array(rng.choice(["f", "m"], 70)),
    }
    declared = {
        "town": Category(towns, "t11"),
        "x": Number(-1, 1),
        "job": Category(jobs, "j0"),
        "sex": Category(("f", "m"), "m"),
    }
    fill = {"town": "t03", "x": 0.25, "job": "j0"}
    return with_target(columns, declared, fill, geometry=Ball(1.6))


CASES = {
    "edges": lambda: with_target(
        {
            "x": numbers(EDGES + INFINITE + halves(-1, 1)),
            "z": numbers((EDGES + INFINITE + halves(-3, 4.7))[::-1]),
        },
        {"x": Number(-1, 1), "z": Number(-3, 4.7)},
    ),
    "extreme bounds": lambda: with_target(
        {"x": numbers([*EDGES, *INFINITE]), "z": numbers([*EDGES, *INFINITE])},
        {"x": Number(-1e-60, 2e-59), "z": Number(-1e60, 9e59)},
    ),
    "integers": integer_case,
    "floats": lambda: with_target(
        {
            "f32": pa.array([0.1, -0.7, 1e30, 0.3, 1e-40], type=pa.float32()),
            "flag": pa.array([True, False, True, True, False]),
        },
        {"f32": Number(-0.5, 0.5), "flag": Number(0, 1)},
        skip=NOT_CSV,  # "true" is no number there
    ),
    "decimals": decimal_case,
    "names": name_case,
    "levels": lambda: level_case(Box()),
    "levels in a ball": lambda: level_case(Ball(1.25)),
    "many levels": many_levels_case,
    "missing": null_case,
    "ball 0.01": lambda: ball_case(0.01),
    "ball 0.9": lambda: ball_case(0.9),
    "ball 1.6": lambda: ball_case(1.6),
    "one row": lambda: with_target({"x": numbers([0.3])}, {"x": Number(0, 1)}),
    "no rows": lambda: with_target({"x": numbers([])}, {"x": Number(0, 1)}),
}


@reader
@pytest.mark.parametrize("case", CASES)
def test_engine_gives_the_exact_integers(reader, case, tmp_path):
    case = CASES[case]()
    if reader in case.skip:
        pytest.skip("the table cannot be written that way")
    source = READERS[reader](case.table, tmp_path)
    rows = case.table.to_pylist()
    assert_exact(source, case.plan(), rows)
    assert set(case.columns) <= set(source.column_names())


@reader
@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
def test_both_statistics_come_from_one_pass(reader, neighbours, tmp_path):
    case = ball_case(1.1)
    source = READERS[reader](case.table, tmp_path)
    plan = case.plan(neighbours, fourth=True)
    assert_exact(source, plan, case.table.to_pylist())
    if neighbours == "add_remove_one":
        assert source.sums(plan).values["second_moments"][0] == 80 * 2**32


@reader
def test_rounds_sum_the_same_rows(reader, tmp_path):
    """Moments, far rows, residuals and scores of a round, as one accumulator has them."""
    rng = np.random.default_rng(6)
    codes = rng.integers(12, size=400)
    columns = {"x": rng.normal(0, 0.4, 400), "y": np.abs(rng.normal(0, 2, 400))}
    schema = Schema(
        "d",
        {"x": Number(-1, 1), "c": Category(tuple("abcdefghijkl"), "b"), "y": Number(0, 4)},
    )
    table = pa.table({**columns, "c": np.array(list("abcdefghijkl"))[codes]})
    source = READERS[reader](table, tmp_path)
    linear, counts = (Design(schema, ("x", "c"), "y", family) for family in ("linear", "poisson"))
    transform = Transform.of(np.array([[0.3, 0.1], [0.0, 0.2]]), np.array([0.1, -0.2]))
    shape = Shape(transform, 1280, 900, 2000)
    direction = tuple(rng.integers(-(2**17), 2**17, len(linear.names)).tolist())
    alone = Shape(Transform.of(np.array([[0.3]]), np.array([0.1])), 1280, 900, 1500)
    key = "00ff" * 16
    first = SumPlan(linear, Box(), (SecondMoments(linear),))
    check = check_of(first, source.sums(first), key)  # of the rows, whatever a pass sums
    for one in (
        BallPlan(linear, shape),
        TailPlan(linear, transform),
        ResidualPlan(linear, shape, direction, 3000),
        ScorePlan(counts, alone, direction[1:]),
    ):
        plan = with_check(one, key)
        expected = plan.accumulator()
        expected.add([columns["x"], codes.astype(np.int32), columns["y"]])
        found = source.sums(plan)
        for name, part in vars(expected.result()).items():
            assert np.array_equal(getattr(found, name), part), name
        assert found.check == check


@reader
def test_tables_of_a_graph_that_is_to_be_learned(reader, tmp_path):
    """All columns, pairs and triples, by their columns."""
    rng = np.random.default_rng(5)
    levels = {"a": ("n", "y"), "b": ("u", "v", "w"), "c": ("n", "y")}
    codes = {name: rng.integers(len(own), size=300) for name, own in levels.items()}
    table = pa.table({name: np.array(levels[name])[own] for name, own in codes.items()})
    schema = Schema("d", {name: Category(own, own[0]) for name, own in levels.items()})
    request = make_network_request(schema, network="learn", epsilon=1)
    found = READERS[reader](table, tmp_path).sums(request.plan())
    assert found.n == 300
    assert set(found.tables) >= {("a",), ("a", "b"), ("a", "b", "c")}
    for names, counts in found.tables.items():
        expected = np.zeros([len(levels[name]) for name in names], dtype=int)
        np.add.at(expected, tuple(codes[name] for name in names), 1)
        assert (counts == expected).all(), names


# ---------------------------------------------------------------------------------------------
# Ids: the rows of one person are averaged

IDS = {
    "integers": lambda k: pa.array(k - 3),
    "unsigned": lambda k: pa.array(np.uint64(2**64 - 1) - k.astype(np.uint64)),
    "text": lambda k: pa.array([("ab", "ba", " ab", "é", "e\u0301", "1", "01")[i] for i in k]),
    "words": lambda k: pa.array([f"p{i}" for i in k]).dictionary_encode(),
    "long": lambda k: pa.array(["a" * (40 + 40 * (i // 2)) + "b" * (i % 2) for i in k.tolist()]),
    "digits": lambda k: pa.array([Decimal(10**30 + int(i)) for i in k], type=pa.decimal128(38, 0)),
}


def with_ids(case, kind, people=7):
    """The table several times over, with ids at random."""
    table = pa.concat_tables([case.table] * 3).combine_chunks()
    codes = np.random.default_rng(8).integers(0, people, table.num_rows)
    return table.append_column("who is it", IDS[kind](codes))


def small_shelves(monkeypatch):
    """So that even a small table fills all shelves, and goes through the file."""
    monkeypatch.setattr(units_module, "_MEMORY", 100)
    monkeypatch.setattr(units_module, "_PART_ROWS", 5)


@reader
@pytest.mark.parametrize("shelves", ["few", "file"])
@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("edges", "integers"),
        ("levels", "text"),
        ("levels in a ball", "words"),
        ("missing", "unsigned"),
        ("ball 0.9", "digits"),
        ("one row", "integers"),
        ("edges", "long"),
        ("no rows", "text"),
    ],
)
def test_the_rows_of_one_person_are_averaged(reader, case, kind, shelves, tmp_path, monkeypatch):
    case = CASES[case]()
    if reader in case.skip or (kind in ("unsigned", "digits") and reader == "pandas-numpy"):
        pytest.skip("the table cannot be written that way")
    if shelves == "file":
        if reader == "spark":
            pytest.skip("its shelves are in other processes")
        small_shelves(monkeypatch)
        monkeypatch.setattr(batches_module, "_MAX_BATCH_ROWS", 11)
        monkeypatch.setattr(batches_module, "_MIN_BATCH_ROWS", 11)
    table = with_ids(case, kind)
    plan = case.plan("add_remove_one", fourth=table.num_rows < 200, ids="who is it")
    source = READERS[reader](table, tmp_path)
    source.check(plan)
    assert_exact(source, plan, table.to_pylist())


# Who is who under each rule, by hand: spellings between two semicolons are one person.
_ALONE = "7e0;7'0;7.5;\u0667;-7"
_NUMBERS, _LETTERS = "7|007|+7|7.0| 7|7.;-0|0", "Ab|aB |ab|\u2003ab;é|e\u0301|É;ß|SS"
RULES = {
    "text": f"{_ALONE};{_NUMBERS};{_LETTERS}".replace("|", ";"),
    "integer": f"{_ALONE};{_NUMBERS};" + _LETTERS.replace("|", ";"),
    "fold": f"{_ALONE};7| 7;007;+7;7.0;7.;-0;0;{_LETTERS}",
    "integer, fold": f"{_ALONE};{_NUMBERS};{_LETTERS}",
}
SPELLINGS = {rule: people.split(";") for rule, people in RULES.items()}


@reader
@pytest.mark.parametrize("rule", SPELLINGS)
def test_which_spellings_are_one_person(reader, rule, tmp_path, monkeypatch):
    """The same people in every engine, some of which know blanks and letter case of their own."""
    monkeypatch.setattr(batches_module, "_MAX_BATCH_ROWS", 64)
    monkeypatch.setattr(batches_module, "_MIN_BATCH_ROWS", 64)
    person_of = {text: own for own in SPELLINGS[rule] for text in own.split("|")}
    ids = [text for text in person_of for _ in range(7)]
    assert len(person_of) == len(SPELLINGS["text"])
    rng = np.random.default_rng(3)
    rng.shuffle(ids)
    table = pa.table({"x": rng.normal(size=len(ids)), "y": rng.normal(size=len(ids)), "id": ids})
    kind = "integer" if "integer" in rule else "text"
    columns = {"x": Number(-1, 1), "y": Number(-1, 1)}
    read = {"unit_column": "id", "unit_type": kind, "unit_fold": "fold" in rule}
    plan = plan_of(Schema("d", columns, "add_remove_one", **read), ["x"], "y")
    rows = [{**row, "id": person_of[row["id"]]} for row in table.to_pylist()]
    assert_exact(READERS[reader](table, tmp_path), plan, rows)


@reader
def test_means_do_not_depend_on_the_order_of_rows(reader, tmp_path, monkeypatch):
    small_shelves(monkeypatch)
    case = ball_case(1.1)
    table = with_ids(case, "text")
    plan = case.plan(ids="who is it")
    expected = READERS[reader](table, tmp_path).sums(plan)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(table.num_rows)
        for leftover in tmp_path.iterdir():
            leftover.unlink()
        assert READERS[reader](table.take(order), tmp_path).sums(plan) == expected


@reader
def test_an_id_of_every_row_is_no_averaging(reader, tmp_path):
    """One row a person: the sums of rows as they are, up to the digits of means."""
    case = with_target({"x": numbers(np.linspace(-1, 1, 33))}, {"x": Number(-1, 1)})
    table = case.table.append_column("id", pa.array(range(33)))
    source = READERS[reader](table, tmp_path)
    assert source.sums(case.plan(ids="id")) == source.sums(case.plan())


@reader
@pytest.mark.parametrize("kind", ["integer", "text"])
def test_a_row_without_an_id_is_an_error(reader, kind, tmp_path):
    case = ball_case(1)
    given = [7351, None, *range(78)] if kind == "integer" else ["p7351", "", *"x" * 78]
    if reader == "dict" and kind == "integer":
        given = np.array([7351.0625, math.nan, *range(78)])  # a dict of arrays has no other way
    table = case.table.append_column("id", pa.array(given))
    with pytest.raises(DataError, match=r"missing ids|floating-point") as caught:
        READERS[reader](table, tmp_path).sums(case.plan(ids="id"))
    assert_silent(caught.value, "7351")


@reader
@pytest.mark.parametrize("column", [[0.5] * 80, [True] * 80, [date(2020, 1, 1)] * 80])
def test_what_cannot_be_an_id_is_refused(reader, column, tmp_path):
    if reader in NOT_CSV:
        pytest.skip("the table cannot be written that way")
    case = ball_case(1)
    table = case.table.append_column("id", pa.array(column))
    source = READERS[reader](table, tmp_path)
    with pytest.raises(DataError, match="'id' holds"):
        source.sums(case.plan(ids="id"))
    # Where the type is stored, that is known before anything is charged or read. A floating type in
    # a file may mean that an id is missing, and is told afterwards.
    kept = ("duckdb-", "connection", "relation", "postgres", "spark")
    stored = "parquet" in reader or reader.startswith(kept)
    told_later = reader == "parquet" and column[0] == 0.5
    if stored and reader != "duckdb-arrow" and not told_later:
        with pytest.raises(DataError, match="'id' holds"):
            source.check(case.plan(ids="id"))


@pytest.mark.parametrize("case", ["edges", "levels in a ball", "missing", "decimals"])
@pytest.mark.parametrize("limit", [0, 10**6])
@pytest.mark.parametrize("reader", [r for r in READERS if r.startswith(("duckdb", "postgres-t"))])
def test_pushed_down_or_streamed_is_the_same(reader, limit, case, tmp_path, monkeypatch):
    monkeypatch.setattr(pushdown_module, "PUSHDOWN_LIMIT", limit)
    case = CASES[case]()
    if reader in case.skip:
        pytest.skip("the table cannot be written that way")
    source = READERS[reader](case.table, tmp_path)
    assert_exact(source, case.plan(), case.table.to_pylist())


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_blocks_and_batches_do_not_matter(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(sums_module, "_MAX_BLOCK_ROWS", rows)
    monkeypatch.setattr(sums_module, "_MIN_BLOCK_ROWS", rows)
    monkeypatch.setattr(batches_module, "_MAX_BATCH_ROWS", 3 * rows)
    monkeypatch.setattr(batches_module, "_MIN_BATCH_ROWS", 3 * rows)
    case = null_case()
    plan = case.plan()
    to_csv(case.table, tmp_path / "rows.csv")
    for source in (
        FrameSource(case.table),
        ParquetSource(parquet(case.table, tmp_path)),
        CsvSource(tmp_path / "rows.csv"),
    ):
        assert_exact(source, plan, case.table.to_pylist())


def test_order_of_rows_does_not_matter(tmp_path):
    case = ball_case(0.7)
    plan = case.plan(fourth=True)
    shuffled = case.table.take(np.random.default_rng(1).permutation(80))
    expected = open_source(case.table).sums(plan)
    for engine in ("stream", "duckdb"):
        assert open_source(parquet(shuffled, tmp_path), engine=engine).sums(plan) == expected


def test_large_tables_agree(tmp_path):
    """Many blocks, many batches, several row groups."""
    rng = np.random.default_rng(2)
    n = 300_000
    columns = {f"x{j}": numbers(rng.normal(0, 1, n)) for j in range(6)}
    columns["g"] = pa.array(rng.choice(["a", "b", "c", "d"], n))
    declared = {
        **{f"x{j}": Number(-2, 2 + j) for j in range(6)},
        "g": Category(("a", "b", "c"), "b"),
    }
    case = with_target(columns, declared, {"g": "a"}, geometry=Ball(1.5))
    plan = case.plan(fourth=True)
    pq.write_table(case.table, tmp_path / "t.parquet", row_group_size=70_000)
    seen = []
    expected = open_source(tmp_path / "t.parquet").sums(plan, seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == n
    assert open_source(tmp_path / "t.parquet", engine="duckdb").sums(plan) == expected
    assert open_source(case.table).sums(plan) == expected
    # Chunks of one row each, as appending row by row makes them.
    small = pa.concat_tables([case.table.slice(i, 1) for i in range(500)])
    assert open_source(small).sums(plan) == open_source(case.table.slice(0, 500)).sums(plan)


def test_wide_designs_agree(tmp_path):
    rng = np.random.default_rng(4)
    names = [f"x{j}" for j in range(99)]
    case = with_target(
        {name: numbers(rng.uniform(-2, 2, 40)) for name in names},
        dict.fromkeys(names, Number(-1, 1)),
    )
    plan = case.plan("add_remove_one")
    path = parquet(case.table, tmp_path)
    assert len(plan.statistics[0].entries) == 5151
    for engine in ("stream", "duckdb"):
        assert_exact(open_source(path, engine=engine), plan, case.table.to_pylist())


def test_wide_designs_can_be_pushed_down(tmp_path, monkeypatch):
    monkeypatch.setattr(pushdown_module, "PUSHDOWN_LIMIT", 10**6)
    rng = np.random.default_rng(4)
    names = [f"x{j}" for j in range(60)]
    case = with_target(
        {name: numbers(rng.uniform(-2, 2, 40)) for name in names},
        dict.fromkeys(names, Number(-1, 1)),
    )
    source = open_source(parquet(case.table, tmp_path), engine="duckdb")
    assert_exact(source, case.plan(), case.table.to_pylist())


# ---------------------------------------------------------------------------------------------
# Random tables

finite = st.floats(allow_nan=False, allow_infinity=False, width=64)
cells = st.one_of(st.none(), st.floats(), st.floats(-3, 3), st.sampled_from([-1.0, 1.0, 0.5]))
words = st.one_of(st.none(), st.sampled_from(["a", "b", "ö", "A", ""]), st.text(max_size=3))


@st.composite
def tables(draw):
    n = draw(st.integers(0, 12))
    columns = {
        "x": numbers(draw(st.lists(cells, min_size=n, max_size=n))),
        "z": numbers(draw(st.lists(cells, min_size=n, max_size=n))),
        "g": pa.array(draw(st.lists(words.filter(printable), min_size=n, max_size=n)), pa.string()),
    }
    lower = draw(st.floats(-5, 5))
    upper = lower + draw(st.floats(0.01, 10))
    declared = {
        "x": Number(lower, upper),
        "z": Number(-1, 1),
        "g": Category(("a", "b", "ö"), draw(st.sampled_from(["a", "ö"]))),
    }
    geometry = draw(st.one_of(st.just(Box()), st.builds(Ball, st.floats(2**-8, 3))))
    fill = {"x": draw(st.floats(lower, upper)), "z": 0.125, "g": "b"}
    return with_target(columns, declared, fill, geometry=geometry)


def printable(word):
    # CSV has no way to tell a lone carriage return or NUL from the end of a row.
    return word is None or word.isprintable()


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=tables())
def test_engines_agree_on_random_tables(case, tmp_path_factory):
    folder = tmp_path_factory.mktemp("random")
    plan, rows = case.plan("add_remove_one", fourth=True), case.table.to_pylist()
    names = ["polars", "parquet", "csv", "duckdb-parquet", "duckdb-csv", "relation"]
    for name in names + ["postgres-table"] * postgres.is_running():
        assert_exact(READERS[name](case.table, folder), plan, rows)


# ---------------------------------------------------------------------------------------------
# Limits


def test_sums_are_exact_up_to_the_last_row_and_refuse_one_more():
    """All rows at a corner: every product is ±2**32, the largest that there is."""
    schema = Schema("d", {"x": Number(-1, 1), "z": Number(-1, 1), "y": Number(-1, 1)})
    plan = plan_of(schema, ["x", "z"], "y", fourth=True)
    total = SumAccumulator(plan)
    total.add([np.full(2**16, 9.0), np.full(2**16, -9.0), np.full(2**16, 9.0)])
    while total.n < MAX_ROWS:  # as if the same rows came again
        total.n *= 2
        for part in total._parts:
            part.total *= 2
    sums = total.result()
    assert sums.n == MAX_ROWS
    signs = {0: 1, 1: 1, 2: -1, 3: 1}
    for statistic in plan.statistics:
        expected = tuple(2**62 * math.prod(signs[i] for i in e) for e in statistic.entries)
        assert sums.values[statistic.name] == expected
    one = [np.zeros(1)] * 3
    with pytest.raises(DataError, match="rows"):
        total.add(one)
    assert total.result() == sums


@reader
def test_a_file_with_too_many_rows_is_refused(reader, tmp_path, monkeypatch):
    monkeypatch.setattr(plan_module, "MAX_ROWS", 79)
    case = ball_case(1)
    with pytest.raises(DataError, match="more than") as caught:
        READERS[reader](case.table, tmp_path).sums(case.plan())
    assert_silent(caught.value, "80")


def test_exact_sums_are_not_shown():
    case = ball_case(1)
    assert repr(open_source(case.table).sums(case.plan())) == "Sums()"


# ---------------------------------------------------------------------------------------------
# Errors: clear, and silent about the data


def assert_silent(error, canary=CANARY):
    """Neither the message nor anything attached to the error shows a value from the data."""
    assert canary not in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    assert not any(canary in str(note) for note in getattr(error, "__notes__", []))


XY = {"x": Number(0, 1), "y": Number(0, 1)}
GY = {"g": Category(("a", "b"), "a"), "y": Number(0, 1)}


def simple_plan(columns=None, fill=None):
    columns = columns or XY
    *features, target = columns
    return plan_of(Schema("d", columns, fill=fill or {}), features, target)


def one_column(values, name="x", kind=None):
    return pa.table({name: pa.array(values, type=kind), "y": pa.array([0.5] * len(values))})


@reader
@pytest.mark.parametrize("gap", [None, math.nan])
def test_missing_numbers_need_a_fill(reader, gap, tmp_path):
    table = one_column([0.5, float(CANARY), gap])
    with pytest.raises(DataError, match="column 'x' has missing values") as caught:
        READERS[reader](table, tmp_path).sums(simple_plan())
    assert "fill" in str(caught.value)
    assert_silent(caught.value)


@reader
def test_missing_targets_are_noticed_without_second_moments(reader, tmp_path):
    design = simple_plan().design
    plan = SumPlan(design, Box(), (FourthMoments(design),))
    table = pa.table({"x": [0.5, 0.25], "y": [None, float(CANARY)]})
    with pytest.raises(DataError, match="column 'y' has missing values") as caught:
        READERS[reader](table, tmp_path).sums(plan)
    assert_silent(caught.value)


@reader
@pytest.mark.parametrize("gap", [None, "", CANARY, "A"])
def test_undeclared_levels_need_a_fill(reader, gap, tmp_path):
    table = one_column(["a", "b", gap], "g")
    with pytest.raises(DataError, match="column 'g' has missing values or values that") as caught:
        READERS[reader](table, tmp_path).sums(simple_plan(GY))
    assert_silent(caught.value)


TYPED = [r for r in READERS if "csv" not in r]


@pytest.mark.parametrize("reader", TYPED)
@pytest.mark.parametrize(
    ("values", "kind", "columns", "message"),
    [
        ([CANARY], pa.string(), XY, "holds text"),
        ([CANARY], pa.large_string(), XY, "holds text"),
        ([date(2001, 2, 3)], pa.date32(), XY, "holds dates"),
        ([datetime(2001, 2, 3)], pa.timestamp("us"), XY, "holds dates"),
        ([timedelta(3)], pa.duration("us"), XY, "holds dates"),
        ([[1.5]], pa.list_(pa.float64()), XY, "cannot be"),
        ([b"7"], pa.binary(), XY, "cannot be"),
        ([date(2001, 2, 3)], pa.date32(), GY, "holds dates"),
        ([1.5], pa.float64(), GY, "none of its declared levels"),
        ([True], pa.bool_(), GY, "holds true/false"),
        ([1], pa.int8(), {"g": Category(("1", "01"), "1"), "y": XY["y"]}, "the same number"),
    ],
)
def test_types_that_do_not_fit(reader, values, kind, columns, message, tmp_path):
    name = next(iter(columns))
    source = READERS[reader](one_column(values, name, kind), tmp_path)
    with pytest.raises(DataError, match=message) as caught:
        source.sums(simple_plan(columns))
    assert f"column {name!r}" in str(caught.value)
    assert_silent(caught.value)


@reader
def test_absent_columns(reader, tmp_path):
    table = one_column([float(CANARY)], CANARY)
    with pytest.raises(DataError, match="there is no column 'x'") as caught:
        READERS[reader](table, tmp_path).sums(simple_plan())
    assert_silent(caught.value)


@reader
def test_case_of_names_matters(reader, tmp_path):
    table = one_column([0.5], "X")
    with pytest.raises(DataError, match="there is no column 'x'"):
        READERS[reader](table, tmp_path).sums(simple_plan())


GOOD_CSV = b"g,x,y\na,0.5,1\n"
BROKEN_CSV = {
    "ragged: short": GOOD_CSV + f"b,{CANARY}\n".encode(),
    "ragged: long": GOOD_CSV + f"b,{CANARY},1,2\n".encode(),
    "ragged: surplus empty field": GOOD_CSV + f"b,{CANARY},1,\n".encode(),
    "quote never closed": GOOD_CSV + f'"b,{CANARY},1\n'.encode(),
    "text behind a quote": GOOD_CSV + f'"b"c,{CANARY},1\n'.encode(),
    "quote inside a field": GOOD_CSV + f'b"c,{CANARY},1\n'.encode(),
    "quote at the end of a field": GOOD_CSV + f'b",{CANARY},1\n'.encode(),
    "blank before a quote": GOOD_CSV + f'b, "{CANARY}",1\n'.encode(),
    "invalid bytes": GOOD_CSV + f"b\xff,{CANARY},1\n".encode("latin-1"),
    "invalid bytes elsewhere": f"g,x,y,z\na,{CANARY},1,\xff\n".encode("latin-1"),
    "cut-off character": GOOD_CSV + f"b,{CANARY},1\né".encode()[:-1],
    "UTF-16": f"g,x,y\na,{CANARY},1\n".encode("utf-16"),
    "text in a number": GOOD_CSV + f"b,{CANARY}x,1\n".encode(),
    "underscore in a number": GOOD_CSV + f"b,{CANARY}_0,1\n".encode(),
    "hexadecimal": GOOD_CSV + b"b,0x10,1\n",
    "only blanks": GOOD_CSV + b"b, ,1\n",
    "name twice": b"g,x,y,x\na,0.5,1,2\n",
    "name twice, not ours": f"g,x,y,{CANARY},{CANARY}\na,0.5,1,2,3\n".encode(),
    "semicolons": f"g;x;y\na;{CANARY};1\n".encode(),
    "no header": f"a,{CANARY},1\na,{CANARY},1\n".encode(),
    "empty": b"",
    "only a byte order mark": b"\xef\xbb\xbf",
    "only line ends": b"\n\r\n\n",
    "not a text": bytes(range(256)) * 9,
}


@pytest.mark.parametrize("engine", ["stream", "duckdb"])
@pytest.mark.parametrize("name", BROKEN_CSV)
def test_broken_csv(name, engine, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(BROKEN_CSV[name])
    columns = {"g": Category(("a", "b"), "a"), **XY}
    with pytest.raises(DataError) as caught:
        open_source(path, engine=engine).sums(simple_plan(columns, {"g": "a", "x": 0, "y": 0}))
    assert_silent(caught.value)
    if name.startswith("invalid bytes"):
        assert "UTF-8" in str(caught.value)
    if name in ("text in a number", "underscore in a number", "hexadecimal"):
        assert "column 'x' has fields that are not numbers" in str(caught.value)


@pytest.mark.parametrize("engine", ["stream", "duckdb"])
def test_csv_that_breaks_late(engine, tmp_path):
    path = tmp_path / "rows.csv"
    good = b"g,x,y,z\n" + b"a,0.5,1,?\n" * 250_000  # more than two blocks
    for tail, message in ((b"b,0.5,1,\xff\n", "UTF-8"), (b'b,0.5,1,a"b\n', "quotes")):
        path.write_bytes(good + tail)
        with pytest.raises(DataError, match=message):
            open_source(path, engine=engine).sums(simple_plan())


GOOD_CSVS = {
    "plain": b"g,x,y\na,0.5,1\nb,1e-1,0\n",
    "no final line end": b"g,x,y\na,0.5,1\nb,1e-1,0",
    "windows": b"g,x,y\r\na,0.5,1\r\nb,1e-1,0\r\n",
    "byte order mark": b"\xef\xbb\xbfg,x,y\na,0.5,1\nb,1e-1,0\n",
    "byte order mark and quote": b'\xef\xbb\xbf"g",x,y\na,0.5,1\nb,1e-1,0\n',
    "quoted": b'"g","x","y"\n"a","0.5","1"\n"b","1e-1","0"\n',
    "line end in a field": b'g,note,x,y\na,"one\ntwo, ""three""",0.5,1\nb,"""",1e-1,0\n',
    "other order": b"y,more,x,g\n1,?,0.5,a\n0,?,1e-1,b\n",
    "blanks round numbers": b"g,x,y\na, 0.5\t,1\nb,+1e-1 ,0\n",
    "blank lines": b"\ng,x,y\n\na,0.5,1\n\n\nb,1e-1,0\n\n",
    "unicode elsewhere": "g,ü,x,y\na,日本,0.5,1\nb,é,1e-1,0\n".encode(),
}


@pytest.mark.parametrize("engine", ["stream", "duckdb"])
@pytest.mark.parametrize("name", GOOD_CSVS)
@pytest.mark.parametrize("block", [1 << 20, 3])
def test_good_csv(name, engine, block, tmp_path, monkeypatch):
    if block == 3 and not name.startswith(("plain", "unicode", "byte")):
        block = 40  # a row must fit into two blocks
    monkeypatch.setattr("noisewise.holder.engines.files._BUFFER_BYTES", max(block, 24))
    path = tmp_path / "rows.csv"
    path.write_bytes(GOOD_CSVS[name])
    columns = {"g": Category(("a", "b"), "a"), **XY}
    rows = [{"g": "a", "x": 0.5, "y": 1}, {"g": "b", "x": 0.1, "y": 0}]
    assert_exact(open_source(path, engine=engine), simple_plan(columns), rows)


@pytest.mark.parametrize("engine", ["stream", "duckdb"])
@pytest.mark.parametrize("text", ["g,x,y", "g,x,y\n", "\n\ng,x,y\r\n\r\n"])
def test_csv_with_a_header_only_has_no_rows(text, engine, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(text, newline="")
    assert_exact(open_source(path, engine=engine), simple_plan(), [])


@pytest.mark.parametrize("engine", ["stream", "duckdb"])
def test_csv_tokens_for_missing_numbers(engine, tmp_path):
    tokens = ["", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", '""', '"NA"', "-nan", "NAN"]
    path = tmp_path / "rows.csv"
    path.write_text("g,x,y\n" + "".join(f"NA,{t},1\n" for t in [*tokens, "inf", "-Infinity"]))
    columns = {"g": Category(("NA", "b"), "b"), **XY}
    rows = [{"g": "NA", "x": None, "y": 1} for _ in tokens]
    rows += [{"g": "NA", "x": x, "y": 1} for x in INFINITE]
    assert_exact(open_source(path, engine=engine), simple_plan(columns, {"x": 0.75}), rows)


def test_quotes_are_checked_across_blocks():
    """Every way to cut a file into two blocks gives the same verdict as the csv module's."""
    from noisewise.holder.engines.files import CheckedCsv

    def verdict(data, cut, path):
        path.write_bytes(data)
        with CheckedCsv(path) as file:
            try:
                while file.read(cut):
                    pass
            except DataError:
                return False
        return True

    import tempfile

    good = ['a,"b"\n', '"a","b""c"\n', '"""",""\n', '"a\n,b"\r\n', '"a"']
    bad = ['a"b\n', '"a"b\n', 'a"\n', '""a\n', '"a\n', '"""\n', ' "a"\n', '"a" \n', 'a,""b""\n']
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        for cut in range(1, 9):
            assert all(verdict(f"x,y\n{row}".encode(), cut, path) for row in good)
            assert not any(verdict(f"x,y\n{row}".encode(), cut, path) for row in bad)


@pytest.mark.parametrize("engine", ["auto", "duckdb"])
@pytest.mark.parametrize("name", ["rows.parquet", "rows.duckdb"])
def test_damaged_files(engine, name, tmp_path):
    path = tmp_path / name
    path.write_bytes(CANARY.encode() * 1000)
    with pytest.raises(DataError, match=name) as caught:
        open_source(path, engine=engine, table="t" if "duck" in name else None).sums(simple_plan())
    assert_silent(caught.value)


@pytest.mark.parametrize("engine", ["stream", "duckdb"])
def test_a_file_that_is_damaged_in_the_middle(engine, tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(
        one_column([float(CANARY)] * 5000), path, compression="zstd", use_dictionary=False
    )
    data = bytearray(path.read_bytes())
    data[20:60] = b"\x77" * 40
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"rows\.parquet") as caught:
        open_source(path, engine=engine).sums(simple_plan())
    assert_silent(caught.value)


def test_queries_that_fail_while_running(tmp_path):
    """DuckDB quotes the value that it cannot convert."""
    query = f"SELECT CAST(t AS DOUBLE) AS x, 0.5 AS y FROM (VALUES ('{CANARY}z')) v(t)"
    path = tmp_path / "rows.duckdb"
    duckdb.connect(str(path)).close()
    attested = {"query": query, "query_attested_by": "the tests"}
    for source in (
        open_source(path, **attested),
        open_source(duckdb.connect(), **attested),
        open_source(duckdb.connect().sql(query)),
    ):
        with pytest.raises(DataError) as caught:
            source.sums(simple_plan())
        assert_silent(caught.value)


def test_mixed_columns_are_refused():
    with pytest.raises(DataError, match="'x'"):
        open_source({"x": 0.5, "y": [1.0]}).sums(simple_plan())
    for values in ([1.0, CANARY], [CANARY, 1.0], [{"a": CANARY}, 1], [2**70, 1]):
        for data in (
            {"x": values, "y": [1.0, 2.0]},
            pd.DataFrame({"x": pd.Series(values, dtype=object), "y": [1.0, 2.0]}),
        ):
            with pytest.raises(DataError, match="'x'") as caught:
                open_source(data).sums(simple_plan())
            assert_silent(caught.value)


def test_columns_of_different_length_are_refused():
    with pytest.raises(DataError, match="length"):
        open_source({"x": [1.0, 2.0], "y": [1.0]}).sums(simple_plan())


def test_database_is_opened_read_only_and_only_selected_from(tmp_path):
    path = in_database(one_column([0.5]), tmp_path)
    before = path.read_bytes()
    for query in (
        f"DROP TABLE {quoted(INJECTION)}",
        f"SELECT 1; DROP TABLE {quoted(INJECTION)}",
        "",
        "COPY (SELECT 1) TO 'x'",
        "SELECT 1 -- \udcff",
    ):
        for more in ({}, {"query_attested_by": "the tests"}):
            with pytest.raises(RequestError, match="SELECT"):
                open_source(path, query=query, **more).sums(simple_plan())
    for table in ("nothing", f"{INJECTION}; DROP TABLE x", "t(y) --"):
        with pytest.raises(DataError):
            open_source(path, table=table).sums(simple_plan())
    assert_exact(open_source(path), simple_plan(), [{"x": 0.5, "y": 0.5}])
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "query",
    ["SELECT * FROM t", "FROM t;", "FROM t -- ;", "FROM t; /* ; */ ;", "FROM t WHERE ';'='; '"],
)
def test_queries_may_end_as_they_like(query, tmp_path):
    path = tmp_path / "rows.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 0.5::DOUBLE AS x, 1 AS y")
    rows = [] if "WHERE" in query else [{"x": 0.5, "y": 1}]
    plan = plan_of(Schema("d", XY, "add_remove_one"), ["x"], "y")
    for more in ({}, {"query_attested_by": "the tests"}):
        assert_exact(open_source(path, query=query, **more), plan, rows)
        with duckdb.connect(str(path)) as connection:
            assert_exact(open_source(connection, query=query, **more), plan, rows)


def test_columns_of_the_same_name_are_refused(tmp_path):
    query = "SELECT x, x / 2 AS x, y FROM t"
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT 0.5 AS x, 1 AS y")
    connection.execute(f"ATTACH '{tmp_path / 't.db'}' AS stored")
    connection.execute("CREATE TABLE stored.t AS FROM t")
    connection.execute("DETACH stored")
    frame = pd.DataFrame([[0.5, 0.25, 1.0]], columns=["x", "x", "y"])
    table = pa.Table.from_arrays([pa.array([1.0])] * 3, names=["x", "x", "y"])
    for data, options in (
        (tmp_path / "t.db", {"query": query}),
        (tmp_path / "t.db", {"query": query, "query_attested_by": "the tests"}),
        (connection, {"query": query}),
        (connection.sql(query), {}),
        (frame, {}),
        (table, {}),
    ):
        with pytest.raises(DataError, match="several columns"):
            open_source(data, **options).sums(simple_plan())


def test_collations_do_not_merge_levels(tmp_path):
    path = tmp_path / "rows.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (g VARCHAR COLLATE NOCASE, y DOUBLE)")
        connection.execute("INSERT INTO t VALUES ('A', 1), ('a', 0), ('b', 0.5)")
    columns = {"g": Category(("a", "A", "b"), "b"), "y": Number(0, 1)}
    rows = [{"g": "A", "y": 1}, {"g": "a", "y": 0}, {"g": "b", "y": 0.5}]
    assert_exact(open_source(path), simple_plan(columns), rows)
    connection = duckdb.connect(str(path))
    assert_exact(open_source(connection, table="t"), simple_plan(columns), rows)


def test_types_that_only_duckdb_has(tmp_path):
    path = tmp_path / "rows.duckdb"
    huge = [2**127 - 1, 2**53 + 1, int(WHOLE[1]), 510752807688427266328211074525158422]
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('b', 'a')")
        connection.execute("CREATE TABLE t (g mood, h HUGEINT, u UHUGEINT, k HUGEINT, y DOUBLE)")
        for index, value in enumerate(huge):
            row = [value, 2**127 + abs(value), value, index]
            connection.execute("INSERT INTO t VALUES ('a', ?, ?, ?, ?)", row)
    columns = {
        "g": Category(("a", "b"), "b"),
        "h": Number(2.0**52, 2.0**53 + 6),
        "u": Number(0, 2.0**128),
        "k": Category(nearest(huge), nearest(huge)[0]),
        "y": Number(0, 1),
    }
    rows = [{"g": "a", "h": h, "u": 2**127 + abs(h), "k": h, "y": i} for i, h in enumerate(huge)]
    assert_exact(open_source(path), simple_plan(columns), rows)
    with duckdb.connect(str(path)) as connection:
        assert_exact(open_source(connection, table="t"), simple_plan(columns), rows)


def test_lent_connection_keeps_its_settings():
    connection = lent(one_column([0.5, math.nan]))
    before = connection.sql("SELECT current_setting('disabled_optimizers')").fetchall()
    open_source(connection, table="rows").sums(simple_plan(fill={"x": 0.5}))
    assert connection.sql("SELECT current_setting('disabled_optimizers')").fetchall() == before
    assert connection.sql("SELECT count(*) FROM rows").fetchall() == [(2,)]


@pytest.mark.parametrize("engine", ["stream", "duckdb"])
def test_odd_file_names(engine, tmp_path):
    folder = tmp_path / "g=1"
    folder.mkdir()
    table = one_column([0.5])
    for name in ('it\'s "here"; --.parquet', "ünï.PARQUET"):
        pq.write_table(table, folder / name)
        source = open_source(folder / name, engine=engine)
        assert source.column_names() == ["x", "y"]
        assert_exact(source, simple_plan(), table.to_pylist())
    pq.write_table(table, folder / "a[1].parquet")
    pq.write_table(one_column([0.75]), folder / "a1.parquet")
    assert_exact(open_source(folder / "a[1].parquet"), simple_plan(), table.to_pylist())
    with pytest.raises(RequestError, match="wildcards"):
        open_source(folder / "a[1].parquet", engine="duckdb")


def test_arrays_of_all_sorts():
    rows = [{"x": 0.25, "y": 1.0}, {"x": 1.0, "y": 0.0}]
    masked = np.ma.array([0.25, 9.0], mask=[False, True])
    for data in (
        {"x": np.array([0.25, 1.0], dtype=">f8"), "y": np.array([True, False])},
        {"x": np.array([0.25, 1.0], dtype=np.float16), "y": np.array([1, 0], dtype=">i2")},
        {"x": pl.Series([0.25, 1.0]), "y": pd.Series([1.0, 0.0])},
        {"x": np.array([0.25, 9, 1.0, 9])[::2], "y": (1, 0)},
        {"x": pa.chunked_array([[0.25], [1.0]]), "y": pa.array([1, 0])},
        structured(pa.Table.from_pylist(rows)),
    ):
        assert_exact(open_source(data), simple_plan(), rows)
    plan = simple_plan(fill={"x": 1.0})
    assert_exact(open_source({"x": masked, "y": [1.0, 0.0]}), plan, rows)


def test_lazy_tables_are_not_collected(tmp_path, monkeypatch):
    """Rows are computed batch by batch; what is collected is the schema."""
    monkeypatch.setattr(batches_module, "_MAX_BATCH_ROWS", 64)
    monkeypatch.setattr(batches_module, "_MIN_BATCH_ROWS", 64)
    case = CASES["levels"]()
    table = pa.concat_tables([case.table] * 100)
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=150)
    collected, seen = [], []
    collect = pl.LazyFrame.collect

    def collect_and_tell(self, *args, **more):
        found = collect(self, *args, **more)
        collected.append(found.height)
        return found

    monkeypatch.setattr(pl.LazyFrame, "collect", collect_and_tell)
    lazy = pl.scan_parquet(tmp_path / "t.parquet").filter(pl.col("x") > -9)
    expected = open_source(table).sums(case.plan())
    assert open_source(lazy).sums(case.plan(), seen.append) == expected
    assert open_source(nw.from_native(lazy)).sums(case.plan()) == expected
    assert open_source(lazy, engine="duckdb").sums(case.plan()) == expected
    assert not any(collected)
    assert len(seen) > 10


def dask_frame(table, monkeypatch, _):
    frames = pytest.importorskip("dask.dataframe", reason="Dask is not installed")
    lazy = frames.from_pandas(table.to_pandas(types_mapper=pd.ArrowDtype), npartitions=20)
    compute = type(lazy).compute

    def compute_few(self, **more):
        found = compute(self, **more)
        assert len(found) < 500
        return found

    monkeypatch.setattr(type(lazy), "compute", compute_few)
    return lazy


def ibis_table(table, monkeypatch, folder):
    ibis = pytest.importorskip("ibis", reason="Ibis is not installed")
    with sqlite3.connect(folder / "t.db") as connection:
        connection.execute("CREATE TABLE t (g TEXT, y DOUBLE)")
        rows = zip(*table.to_pydict().values(), strict=True)
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    lazy = ibis.sqlite.connect(folder / "t.db").table("t")
    for name in ("to_pyarrow", "to_pandas", "to_polars", "execute"):
        monkeypatch.setattr(type(lazy), name, None)
    return lazy


@pytest.mark.parametrize("lazy", [dask_frame, ibis_table])
def test_other_lazy_tables_come_in_parts(lazy, tmp_path, monkeypatch):
    monkeypatch.setattr(batches_module, "_MAX_BATCH_ROWS", 64)
    monkeypatch.setattr(batches_module, "_MIN_BATCH_ROWS", 64)
    table = pa.table({"g": ["a", "b", None] * 1000, "y": [None, 0.3, 0.9] * 1000})
    plan = simple_plan(GY, {"g": "b", "y": 0.5})
    seen = []
    source = open_source(lazy(table, monkeypatch, tmp_path))
    assert source.row_count() is None
    assert source.sums(plan, seen.append) == open_source(table).sums(plan)
    assert len(seen) > 10


def test_a_table_in_several_chunks_is_not_copied():
    table = pa.concat_tables([pa.table({"x": np.arange(5e4), "y": np.arange(5e4)})] * 4)
    before = pa.total_allocated_bytes()
    with FrameSource(table).arrow(simple_plan()) as columns:
        assert columns.equals(table)
        assert pa.total_allocated_bytes() == before


def test_errors_of_lazy_tables_are_silent():
    lazy = pl.LazyFrame({"x": ["0.5", f"{CANARY}z"], "y": [0.5, 0.5]})
    lazy = lazy.with_columns(pl.col("x").cast(pl.Float64))
    with pytest.raises(DataError, match="cannot be computed") as caught:
        open_source(lazy).sums(simple_plan())
    assert_silent(caught.value)


def test_pandas_categories_and_objects():
    frame = pd.DataFrame({"g": pd.Categorical(["b", None, "a"]), "y": [1, 0, True]})
    frame["y"] = frame["y"].astype(float)
    rows = [{"g": g, "y": y} for g, y in (("b", 1), (None, 0), ("a", 1))]
    assert_exact(open_source(frame), simple_plan(GY, {"g": "b"}), rows)
    frame["g"] = pd.Categorical([2, 1, 2])
    columns = {"g": Category(("1", "2"), "1"), "y": Number(0, 1)}
    rows = [{"g": g, "y": row["y"]} for g, row in zip((2, 1, 2), rows, strict=True)]
    assert_exact(open_source(frame), simple_plan(columns), rows)


# ---------------------------------------------------------------------------------------------
# Requests


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (7, {}, "int"),
        (None, {}, "NoneType"),
        ([[1, 2]], {}, "list"),
        (np.zeros((3, 2)), {}, "ndarray"),
        ("rows.xlsx", {}, "no known kind"),
        ("nowhere.parquet", {}, "no file"),
        (".", {}, "no known kind"),
        (FrameSource, {}, "type"),
        ({"x": [1.0]}, {"engine": "spark"}, "spark"),
        ({"x": [1.0]}, {"engine": "stream"}, "memory"),
        ({"x": [1.0]}, {"table": "t"}, "only databases"),
        ({"x": [1.0]}, {"table": "t", "query": "SELECT 1"}, "not both"),
        (duckdb.connect, {}, "name the table"),
        (duckdb.connect, {"engine": "stream", "table": "t"}, "not by 'stream'"),
        (lambda: duckdb.connect().sql("SELECT 1"), {"query": "SELECT 1"}, "only databases"),
        ("postgresql://nowhere/db", {}, "name the table"),
        ("postgresql://nowhere/db", {"engine": "duckdb", "table": "t"}, "not by 'duckdb'"),
        ("host=nowhere password=secret", {"table": "t"}, "data: this is of no known kind"),
    ],
)
def test_requests_that_make_no_sense(data, options, message):
    with pytest.raises(RequestError, match=message):
        open_source(data() if callable(data) and data is not FrameSource else data, **options)


def test_database_with_several_tables_needs_a_name(tmp_path):
    path = tmp_path / "rows.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE a AS SELECT 1 AS x; CREATE TABLE b AS SELECT 2 AS x")
    with pytest.raises(RequestError, match="table"):
        open_source(path).sums(simple_plan())


def test_descriptions(tmp_path):
    table = one_column([0.5])
    assert open_source(parquet(table, tmp_path)).description == "rows.parquet (streaming)"
    assert open_source(table).description == "pyarrow Table (in memory)"
    assert open_source(parquet(table, tmp_path), engine="duckdb").row_count() == 1
    assert open_source(table).row_count() == 1
    assert open_source(table, engine="duckdb").description == "pyarrow Table (DuckDB)"
    assert read_csv_file(table, tmp_path, "auto").row_count() is None


def test_importing_the_engines_loads_none_of_them():
    code = (
        "import sys, noisewise.holder.engines\n"
        "names = 'duckdb psycopg pyspark pyarrow pandas polars narwhals'.split()\n"
        "print([m for m in names if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------------------------------------
# Terms of formulas

TERMS_FORMULA = (
    "y ~ x*g + log1p(amount) + bs(x, knots=(0.25, 0.5)) + I(x**2) + ns(amount, knots=(100, 400))"
    " + cut(x, breaks=(0.5,))*g + sqrt(amount):x"
)


def terms_case(n=257, seed=11):
    rng = np.random.default_rng(seed)
    x, amount = rng.uniform(-0.2, 1.2, n), rng.uniform(-50, 1100, n)
    x[:8] = [0, 1, 0.25, 0.5, 0.75, math.nan, math.inf, -math.inf]
    amount[3], amount[9] = math.nan, 0.1
    words = [*rng.choice(["a", "b", "c"], n - 2), None, "none of them"]
    table = pa.table({"x": x, "amount": amount, "g": words, "y": rng.uniform(-1.1, 1.1, n)})
    columns = {
        "x": Number(0, 1),
        "amount": Number(0, 1000),
        "g": Category(("a", "b", "c"), "b"),
        "y": Number(-1, 1),
    }
    schema = Schema("d", columns, fill={"x": 0.75, "amount": 10, "g": "a"})
    return table, schema


@cache
def curves():
    """Natural splines that are 1 at one knot each, with their smallest and largest values."""
    points, fine = np.array([0.0, 100, 400, 1000]), np.linspace(0, 1000, 100_001)
    found = [CubicSpline(points, np.eye(4)[k], bc_type="natural") for k in (1, 2, 3)]
    return [(curve, curve(fine).min(), curve(fine).max()) for curve in found]


def terms_reference(row):
    """The design row on unit scale, from SciPy and `math`, in the order of the formula's terms."""
    missing = row["x"] is None or math.isnan(row["x"])
    x = min(max(0.75 if missing else row["x"], 0.0), 1.0)
    missing = row["amount"] is None or math.isnan(row["amount"])
    amount = min(max(10.0 if missing else row["amount"], 0.0), 1000.0)
    g = row["g"] if row["g"] in ("a", "b", "c") else "a"
    knots = np.r_[[0.0] * 4, 0.25, 0.5, [1.0] * 4]
    spline = BSpline.design_matrix([x], knots, 3).toarray()[0, 1:]
    cardinal = [(2 * curve(amount) - low - high) / (high - low) for curve, low, high in curves()]
    top = math.log1p(1000)
    levels = [float(g == "a"), float(g == "c")]
    late = float(x >= 0.5)
    w = [1.0, 2 * x - 1, *levels, 2 * math.log1p(amount) / top - 1, *spline, 2 * x * x - 1]
    w += [*cardinal, late]
    w += [x * level for level in levels]
    w += [late * level for level in levels]
    w.append(2 * math.sqrt(amount) * x / math.sqrt(1000) - 1)
    return [*w, min(max(row["y"], -1.0), 1.0)]


@reader
def test_terms_have_the_same_integers_in_every_engine(reader, tmp_path):
    table, schema = terms_case()
    target, features = read_formula(TERMS_FORMULA, schema)
    plan = plan_of(schema, features, target)
    assert len(plan.design.terms) == 8
    found = READERS[reader](table, tmp_path).sums(plan)
    first = open_source(table).sums(plan)
    assert found.n == first.n == table.num_rows
    assert found.values == first.values
    # And what they say is right: each value is on the grid within a step or so.
    w = np.array([terms_reference(row) for row in table.to_pylist()])
    names = plan.design.names
    a, b = np.array(plan.statistics[0].entries).T
    sums = np.array(found.values["second_moments"]) / 2**32
    np.testing.assert_allclose(sums, (w.T @ w)[a, b], atol=table.num_rows * 4e-5, err_msg=names)


@pytest.mark.parametrize("rows", [1, 7, 64, 200])
def test_terms_do_not_depend_on_how_rows_are_cut(rows, monkeypatch):
    table, schema = terms_case(n=400)
    plan = plan_of(schema, *reversed(read_formula(TERMS_FORMULA, schema)))
    whole = open_source(table).sums(plan)
    monkeypatch.setattr(batches_module, "_MAX_BATCH_ROWS", rows)
    monkeypatch.setattr(batches_module, "_MIN_BATCH_ROWS", rows)
    assert open_source(table).sums(plan).values == whole.values


@reader
def test_a_missing_value_in_a_term_without_a_fill_is_an_error(reader, tmp_path):
    table, schema = terms_case()
    schema = Schema("d", schema.columns, fill={"x": 0.75, "g": "a"})
    plan = plan_of(schema, ["log1p(amount)", "x"], "y")
    with pytest.raises(DataError, match="'amount' has missing values"):
        READERS[reader](table, tmp_path).sums(plan)
