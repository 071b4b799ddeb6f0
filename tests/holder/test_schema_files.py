"""A schema to fill in has nothing of anybody's row in it, header or not."""

from __future__ import annotations

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from noisewise.cli.main import app
from noisewise.core.errors import DataError
from noisewise.holder.schema_files import column_kinds, schema_template

ROWS = "age,region,born,income\n34,north,1990-02-03,100\n51,south,1973-05-17,200\n"


def test_names_and_kinds_and_nothing_else(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(ROWS, encoding="utf-8")
    assert column_kinds(path) == [
        *(("age", "number"), ("region", "category"), ("born", "other"), ("income", "number"))
    ]
    text = schema_template(path, "people")
    assert not any(cell in text for cell in ("34", "north", "1990", "100"))


@pytest.mark.parametrize(
    "first",
    [
        *("34", "-3.5", "1e5", "1 234", "'1,234.50'", "$ 1,200", "12 %", "(3.2)", "٣٤", "1_000"),
        *("1990-02-03", "3.2.1990", "2/3/90", "1990-02-03T10:11:12Z", "10:11", "3 Feb 1990"),
        *("Feb 3, 1990", "03-FEB-90", "2020-07", "2020"),
        *("", "  ", "NA", "nan", "NULL", "true", "inf"),
        *("jo@example.org", "6f1e2c3a-0000-4000-8000-1234567890ab"),
        "region",  # the second column's name
        "north",  # a value that its own column has again
    ],
)
def test_a_first_line_that_may_be_somebodys_is_refused(first, tmp_path):
    path, out = tmp_path / "people.csv", tmp_path / "schema.yaml"
    cell = f'"{first.strip(chr(39))}"'
    path.write_text(f"{cell},region\nnorth,1\nsouth,2\n", encoding="utf-8")
    said = CliRunner().invoke(app, ["schema", "new", str(path), "--out", str(out)])
    assert isinstance(said.exception, DataError), said.output
    assert not out.exists()
    assert "before the first row" in str(said.exception)
    shown = str(said.exception).replace(path.name, "").replace("age,region,income", "")
    if first.strip() and first != "2020":
        assert first.strip("'") not in shown.replace("called 2020", "")


def test_a_file_of_rows_alone_is_refused(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(ROWS.split("\n", 1)[1], encoding="utf-8")
    with pytest.raises(DataError, match="no header"):
        schema_template(path, "people")


@pytest.mark.parametrize("name", ["y2020", "x1", "1st visit", "may", "nancy", "to", "Straße", "e5"])
def test_ordinary_names_pass(name, tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(f"{name},region\n1,north\n2,south\n", encoding="utf-8")
    assert column_kinds(path)[0] == (name, "number")


def test_the_index_of_pandas_is_no_column(tmp_path):
    path = tmp_path / "p.parquet"
    pd.DataFrame({"age": [51, 34], "index_level": [1, 2]}, index=[7, 3]).to_parquet(path)
    assert "__index_level_0__" in pq.read_schema(path).names
    assert column_kinds(path) == [("age", "number"), ("index_level", "number")]


def test_other_files_that_took_a_row_for_names(tmp_path):
    pq.write_table(pa.table({"34": [51], "north": ["south"]}), tmp_path / "p.parquet")
    with pytest.raises(DataError, match="no header"):
        column_kinds(tmp_path / "p.parquet")
    with duckdb.connect(str(tmp_path / "p.duckdb")) as connection:
        connection.execute('CREATE TABLE people AS SELECT 51 AS "34", 1 AS other')
    with pytest.raises(DataError, match="no header"):
        column_kinds(tmp_path / "p.duckdb", table="people")
