"""No error of ours quotes a cell, whatever the door that the rows come in by.

A canary stands in one cell. Whatever is raised, Python's own print of it must not show the canary:
neither the message nor an error that it was raised from.
"""

from __future__ import annotations

import datetime
import traceback
import warnings
from decimal import Decimal
from functools import partial

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from noisewise.analyst.fit import fit
from noisewise.analyst.network.fit import fit_network
from noisewise.cli.main import app
from noisewise.core.kinds.network.graph import Network
from noisewise.core.schema import Category, Number, Schema
from noisewise.holder.engines import open_source
from noisewise.holder.requests.network import make_network_request
from noisewise.holder.requests.regression import make_request
from noisewise.holder.schema_files import check_data, schema_template
from noisewise.sklearn import PrivateBayesianRegressor, PrivateNaiveBayes

from ..analyst.report_examples import network_release
from ..releases import example_request, release_of

WORD = "".join(["Zanz", "ibar"])  # no line of source, which a traceback shows, has it as a whole
NUMBER = int("8" * 4 + "3" * 4 + "7" * 4)
DAY = datetime.date(1903, 7, 19)

SCHEMA = Schema(
    "people",
    {"age": Number(18, 90), "region": Category(("north", "south"), "north"), "y": Number(0, 1)},
)
REQUEST = make_request(SCHEMA, target="y", features=["age", "region"], epsilon=1)
NETWORK_SCHEMA = Schema(
    "people", {"region": Category(("north", "south"), "north"), "ill": Category(("0", "1"), "0")}
)
NETWORK = make_network_request(
    NETWORK_SCHEMA, network=Network.make(NETWORK_SCHEMA, {"ill": ["region"]}), epsilon=1
)


class Odd:
    """An object that shows the canary when it is printed."""

    def __repr__(self):
        return WORD


CELLS = {
    "word": WORD,
    "bytes": WORD.encode(),
    "number": NUMBER,
    "decimal": Decimal(NUMBER) / 7,
    "huge": int(f"{NUMBER}" * 40),
    "complex": complex(NUMBER, 1),
    "date": DAY,
    "list": [WORD, NUMBER],
    "dict": {WORD: NUMBER},
    "object": Odd(),
    "invalid": WORD + "\ud800",
}


def printed(call):
    """What Python prints if the call fails or warns; empty if it does neither."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            call()
        except Exception as error:
            said = "".join(traceback.format_exception(error))
        else:
            said = ""
    return said + "".join(str(warning.message) for warning in warned)


def assert_quiet(call, fails=True):
    said = printed(call)
    assert said or not fails, "it should fail"
    for canary in (WORD, str(NUMBER)[:8], str(NUMBER)[-6:], "1903", f"{float(NUMBER):.3e}"[:5]):
        assert canary not in said, said


def summed(data, engine, request):
    return open_source(data, engine=engine).sums(request.plan())


def rows_with(cell, column):
    rows = {"age": [30, 40, 50], "region": ["north", "south", "north"], "y": [0.1, 0.2, 0.3]}
    rows["ill"] = ["0", "1", "1"]
    rows[column] = [rows[column][0], cell, rows[column][2]]
    return rows


def as_objects(rows):
    made = {name: np.empty(3, dtype=object) for name in rows}
    for name, values in rows.items():
        for i, value in enumerate(values):
            made[name][i] = value
    return made


def relation(rows):
    table = pa.table({name: [str(value) for value in cells] for name, cells in rows.items()})
    connection = duckdb.connect()
    connection.register("rows", table)
    return connection.table("rows")


TABLES = {
    "dict of lists": lambda rows: rows,
    "dict of objects": as_objects,
    "pandas": lambda rows: pd.DataFrame(as_objects(rows)),
    "pandas text": lambda rows: pd.DataFrame(as_objects(rows)).astype(str),
    "pandas category": lambda rows: pd.DataFrame(as_objects(rows)).astype("category"),
    "polars": lambda rows: pl.DataFrame(rows, strict=False),
    "polars objects": lambda rows: pl.DataFrame(
        {n: pl.Series(n, v, dtype=pl.Object) for n, v in rows.items()}
    ),
    "polars lazy": lambda rows: (
        pl.DataFrame(rows, strict=False)
        .lazy()
        .with_columns(pl.col("age").cast(pl.Float64, strict=True))
    ),
    "arrow": pa.table,
    "arrow text": lambda rows: pa.table({n: [str(v) for v in c] for n, c in rows.items()}),
    "relation": relation,
    "lazy relation": lambda rows: relation(rows).project("age::DOUBLE AS age, region, y, ill"),
}


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("table", TABLES)
def test_tables_in_memory(table, cell):
    for column, wanted in (("age", REQUEST), ("region", REQUEST), ("ill", NETWORK)):
        try:
            data = TABLES[table](rows_with(CELLS[cell], column))
        except Exception:
            continue  # a library refuses to hold such a cell: no door of ours was reached
        for engine in ("auto", "duckdb"):
            assert_quiet(partial(summed, data, engine, wanted), fails=False)


@pytest.mark.parametrize("table", ["dict of lists", "pandas", "polars", "relation"])
def test_the_canary_reaches_the_door(table):
    """Control: these tables do fail at the door."""
    data = TABLES[table](rows_with(WORD, "age"))
    assert printed(lambda: open_source(data).sums(REQUEST.plan()))


@pytest.mark.parametrize("engine", ["auto", "duckdb"])
@pytest.mark.parametrize(
    "lines",
    [
        ["age,region,y", f"{WORD},north,0.1"],
        ["age,region,y", f"30,{WORD},0.1"],
        ["age,region,y", f"30,north,0.1,{WORD}"],
        ["age,region,y", f'30,no"rth{WORD},0.1'],
        ["age,region,y", f'30,"{WORD}'],
        ["age,region,y", f"30,{WORD}\udcff,0.1"],
        [f"{NUMBER},{WORD},0.1", "30,north,0.1"],
        [f"{WORD},{WORD},0.1", "30,north,0.1"],
        [f'age,"{WORD}', "30,north,0.1"],
        [f"{WORD}\udcff,region,y", "30,north,0.1"],
    ],
)
def test_csv_files(lines, engine, tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogateescape")
    assert_quiet(lambda: open_source(path, engine=engine).sums(REQUEST.plan()))
    assert_quiet(lambda: check_data(SCHEMA, path))
    if lines[0] != "age,region,y":
        assert_quiet(lambda: schema_template(path, "people"))


@pytest.mark.parametrize("engine", ["auto", "duckdb"])
@pytest.mark.parametrize("column", ["age", "region"])
def test_parquet_files(column, engine, tmp_path):
    path = tmp_path / "people.parquet"
    rows = {n: [str(v) for v in c] for n, c in rows_with(WORD, column).items()}
    pq.write_table(pa.table(rows), path)
    assert_quiet(lambda: open_source(path, engine=engine).sums(REQUEST.plan()))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT cast(age AS DOUBLE) AS age, region, 0.5 AS y FROM rows",
        "SELECT age::INT / 0 AS age, region, 0.5 AS y FROM rows",
        "SELECT error(age) AS age, region, 0.5 AS y FROM rows",
        "SELECT strptime(age, '%Y') AS age, region, 0.5 AS y FROM rows",
    ],
)
def test_queries(query):
    connection = duckdb.connect()
    connection.register("given", pa.table({"age": ["30", WORD], "region": ["north", "south"]}))
    connection.execute("CREATE TABLE rows AS FROM given")
    for more in ({}, {"query_attested_by": "the tests"}):
        source = open_source(connection, query=query, **more)
        assert_quiet(lambda source=source: source.sums(REQUEST.plan()))


# ---------------------------------------------------------------------------------------------
# Estimators

WORDS = {"epsilon": 1, "draws": 50, "chains": 1, "random_state": 1}
NUMBERS = np.linspace(0, 1, 60).reshape(30, 2)


@pytest.fixture(scope="module")
def regressor():
    model = PrivateBayesianRegressor(bounds=(0, 1), y_bounds=(0, 1), **WORDS)
    return model.fit(NUMBERS, NUMBERS[:, 0])


@pytest.fixture(scope="module")
def classifier():
    levels = (NUMBERS > 0.5).astype(int)
    return PrivateNaiveBayes(levels=[0, 1], classes=[0, 1], **WORDS).fit(levels, levels[:, 0])


def spoiled(values, cell):
    made = values.astype(object)
    made[(3, *[0] * (values.ndim - 1))] = cell
    return made


SHAPES = {
    "array": lambda x: x,
    "lists": lambda x: x.tolist(),
    "frame": lambda x: pd.DataFrame(x, columns=["a", "b"]),
    "polars": lambda x: pl.DataFrame({"a": list(x[:, 0]), "b": list(x[:, 1])}, strict=False),
    "row": lambda x: x[3],
    "cell": lambda x: x[3, 0],
    "cube": lambda x: x[None],
    "text": lambda x: x.astype(str),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("shape", SHAPES)
def test_estimators(shape, cell, regressor, classifier):
    try:
        x = SHAPES[shape](spoiled(NUMBERS, CELLS[cell]))
    except Exception:
        return
    y = NUMBERS[:, 0]
    fresh = PrivateBayesianRegressor(bounds=(0, 1), y_bounds=(0, 1), **WORDS)
    naive = PrivateNaiveBayes(levels=[0, 1], classes=[0, 1], **WORDS)
    number = isinstance(CELLS[cell], int | Decimal) and shape not in ("row", "cell", "cube")
    fails = not number and (shape, cell) not in (("polars", "date"), ("lists", "bytes"))
    assert_quiet(lambda: fresh.fit(x, y), fails)
    assert_quiet(lambda: naive.fit(x, (y > 0.5).astype(int)), fails)
    assert_quiet(lambda: regressor.predict(x), fails)
    assert_quiet(lambda: classifier.predict(x), fails)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cell", CELLS)
def test_targets_of_estimators(cell):
    y = spoiled(NUMBERS[:, 0], CELLS[cell])
    fresh = PrivateBayesianRegressor(bounds=(0, 1), y_bounds=(0, 1), **WORDS)
    categories = PrivateBayesianRegressor(
        bounds={"a": Category(("0", "1"), "0"), "b": (0, 1)}, y_bounds=(0, 1), **WORDS
    )
    naive = PrivateNaiveBayes(levels=[0, 1], classes=[0, 1], **WORDS)
    frame = pd.DataFrame({"a": ["0"] * 30, "b": NUMBERS[:, 1]})
    for given in (y, y.tolist(), pd.Series(y), y[:, None], y[:4]):
        assert_quiet(lambda g=given: fresh.fit(NUMBERS, g), fails=False)
        assert_quiet(lambda g=given: categories.fit(frame, g), fails=False)
        assert_quiet(lambda g=given: naive.fit((NUMBERS > 0.5).astype(int), g))
    frame["b"] = spoiled(NUMBERS[:, 1], CELLS[cell])
    assert_quiet(lambda: categories.fit(frame, NUMBERS[:, 0]), fails=False)
    frame["b"], frame["a"] = NUMBERS[:, 1], spoiled(NUMBERS[:, 0], CELLS[cell])
    assert_quiet(lambda: categories.fit(frame, NUMBERS[:, 0]), fails=False)


# ---------------------------------------------------------------------------------------------
# Rows to predict


@pytest.fixture(scope="module")
def posterior():
    return fit(release_of(example_request()), chains=1, draws=50, seed=1)


@pytest.fixture(scope="module")
def network_posterior():
    return fit_network(network_release(), method="plugin", chains=1, draws=20, seed=1)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("column", ["age", "region"])
def test_rows_to_predict(cell, column, posterior):
    rows = {"age": [30, 40], "region": ["north", "east"]}
    rows[column][1] = CELLS[cell]
    fails = not (column == "age" and isinstance(CELLS[cell], int | Decimal))
    assert_quiet(lambda: posterior.predict(rows), fails)
    assert_quiet(lambda: posterior.predict(as_lengths(rows)), fails)


def as_lengths(rows):
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in rows.items()})


@pytest.mark.parametrize("cell", CELLS)
def test_rows_to_classify(cell, network_posterior):
    first, second, *_ = network_posterior.nodes
    level = network_posterior.network.levels(second)[0]
    rows = {second: [level, CELLS[cell]]}
    assert_quiet(lambda: network_posterior.predict(rows, target=first))


def test_files_of_rows_to_predict(posterior, tmp_path):
    saved, new = tmp_path / "post.nc", tmp_path / "new.csv"
    posterior.save(saved)
    for line in (f"{WORD},north", f"30,{WORD}", f'30,"{WORD}', f"30,north,{WORD}", f"{NUMBER}"):
        new.write_text(f"age,region\n30,north\n{line}\n", encoding="utf-8")
        said = CliRunner().invoke(app, ["predict", str(saved), str(new)])
        text = said.output + repr(said.exception)
        assert WORD not in text
        assert str(NUMBER) not in text
