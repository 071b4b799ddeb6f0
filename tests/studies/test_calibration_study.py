"""Studies resume, never mix, do not depend on the number of jobs, and run by one command."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from noisewise.core.errors import RequestError
from studies import experiments
from studies.__main__ import app, find
from studies.__main__ import experiments as experiments_by_name
from studies.bs2019.fig3 import figure_cells, paper_model
from studies.calibration.grid import cells as grid_cells
from studies.calibration.trial import Cell
from studies.experiments import cell_path, load_trials, run_cell, run_study
from studies.methods import Sampler
from studies.tables import markdown_table, read_table, summarise, write_table

DOCS = Path(__file__).parents[2] / "docs"
METHODS = (Sampler("non_private", draws=50), Sampler("naive", draws=50))


def cheap(trials=6, **changes):
    cell = Cell("cheap", paper_model(20, 1.0, fourth=False), METHODS, trials=trials, ranked=50)
    return replace(cell, **changes)


def without_time(records):
    records = json.loads(json.dumps(records))
    for record in records:
        for outcome in record["methods"].values():
            del outcome["seconds"]
    return records


def test_an_interrupted_cell_goes_on_where_it_stopped(tmp_path, monkeypatch):
    whole = run_cell(cheap(), tmp_path / "whole")

    ran = []
    real = experiments.run_trial

    def interrupted(cell, trial):
        if len(ran) == 4:
            raise KeyboardInterrupt
        ran.append(trial)
        return real(cell, trial)

    monkeypatch.setattr(experiments, "run_trial", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_cell(cheap(), tmp_path / "part")
    path = cell_path(cheap(), tmp_path / "part")
    with path.open("a") as file:
        file.write('{"trial":4,"truth":[0.1')  # a line that was being written
    assert [r["trial"] for r in load_trials(cheap(), tmp_path / "part")] == [0, 1, 2, 3]

    monkeypatch.setattr(
        experiments, "run_trial", lambda cell, trial: ran.append(trial) or real(cell, trial)
    )
    records = run_cell(cheap(), tmp_path / "part")
    assert ran == [0, 1, 2, 3, 4, 5]
    assert without_time(records) == without_time(whole)
    assert all(json.loads(line) for line in path.read_text().splitlines())

    longer = run_cell(cheap(8), tmp_path / "part")
    assert ran == [*range(8)]
    assert without_time(longer)[:6] == without_time(whole)
    assert run_cell(cheap(3), tmp_path / "part") == longer[:3]


@pytest.mark.parametrize(
    "stale",
    [
        cheap(ranked=40),
        cheap(model=paper_model(21, 1.0, fourth=False)),
        cheap(methods=METHODS[:1]),
        cheap(methods=(METHODS[0], Sampler("naive", draws=51))),
    ],
)
def test_stale_trials_are_never_mixed_in(tmp_path, stale):
    run_cell(stale, tmp_path)
    before = cell_path(stale, tmp_path).read_bytes()
    with pytest.raises(RequestError, match="never mixed"):
        run_study([cheap()], tmp_path)
    assert cell_path(stale, tmp_path).read_bytes() == before


def test_trials_of_other_code_are_stale(tmp_path, monkeypatch):
    run_cell(cheap(), tmp_path)
    monkeypatch.setattr(experiments, "code_digest", lambda: "other")
    with pytest.raises(RequestError, match="other code"):
        run_cell(cheap(), tmp_path)
    assert len(load_trials(cheap(), tmp_path, check=False)) == 6


def test_records_do_not_depend_on_the_number_of_jobs(tmp_path):
    one = run_cell(cheap(), tmp_path / "one", n_jobs=1)
    two = run_cell(cheap(), tmp_path / "two", n_jobs=2)
    threads = run_cell(cheap(), tmp_path / "threads", n_jobs=2, backend="threading")
    assert without_time(one) == without_time(two) == without_time(threads)


def test_a_table_survives_its_file(tmp_path):
    rows = summarise(cheap(), run_cell(cheap(), tmp_path))
    assert [(r["method"], r["parameter"]) for r in rows] == [
        (method, parameter)
        for method in ("non_private", "naive")
        for parameter in ("intercept", "slope", "sigma2")
    ]
    write_table(rows, tmp_path / "table.csv")
    assert read_table(tmp_path / "table.csv") == rows
    with (tmp_path / "table.csv").open() as file:
        assert {"ks", "ks_error", "p_value", "coverage_50", "mmd2"} <= set(next(csv.reader(file)))


def test_the_documented_table_is_the_committed_one():
    table = markdown_table(read_table(DOCS / "results" / "calibration.csv"))
    assert table in (DOCS / "calibration.md").read_text("utf-8")


def test_a_readable_table_puts_slopes_together_and_says_what_failed():
    row = {"cell": "c", "method": "m", "trials": 10, "failed": 0, "coverage_95": 0.9}
    rows = [
        {**row, "parameter": "slope_1", "p_value": 0.004},
        {**row, "parameter": "slope_2", "p_value": 0.3, "coverage_95": 0.95},
        {**row, "parameter": "sigma2", "p_value": 0.5, "failed": 2},
        {"cell": "c", "method": "broken", "trials": 0, "failed": 10, "parameter": "sigma2"},
    ]
    lines = markdown_table(rows).splitlines()
    assert lines[0] == "| cell | trials | parameter | m | broken |"
    assert lines[2] == "| c | 10 | slopes | **0.008**, 0.900–0.950 |  |"
    assert lines[3] == "| c | 10 | sigma2 | 0.50, 0.900 (2 failed) | failed |"


def test_full_experiments_are_the_announced_ones():
    figure, grid = figure_cells(False), grid_cells(False)
    assert len(figure) == 12
    assert all(cell.trials >= 300 for cell in figure + grid)
    for cells in (figure, grid, figure_cells(True), grid_cells(True)):
        assert len({cell.name for cell in cells}) == len(cells)
        assert len({cell.entropy for cell in cells}) == len(cells)
    assert max(cell.trials for cell in grid) == 1000
    # The figure's cells are cells of the grid: one run serves both.
    assert {cell.name for cell in figure} <= {cell.name for cell in grid}


def invoke(*words):
    return CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)


def test_list_names_every_experiment():
    shown = invoke("list").stdout
    assert all(name in shown for name in experiments_by_name())


@pytest.mark.long
def test_one_command_draws_all_panels(tmp_path):
    shown = invoke("run", "bs2019-fig3", "--quick", "--trials", 2, "--out", tmp_path)
    assert shown.exit_code == 0, shown.output
    assert (tmp_path / "bs2019-fig3.png").stat().st_size > 20_000
    rows = read_table(tmp_path / "bs2019-fig3.csv")
    assert len(rows) == 6 * 7 * 3
    assert not any(row["failed"] for row in rows)
    facts = json.loads((tmp_path / "bs2019-fig3.json").read_text())
    assert facts["command"] == "python -m studies run bs2019-fig3 --quick --trials 2"
    assert facts["noisewise"]

    again = invoke("collect", "bs2019-fig3", "--quick", "--from", tmp_path, "--out", tmp_path / "c")
    assert again.exit_code == 0
    assert read_table(tmp_path / "c" / "bs2019-fig3.csv") == rows


def test_rank_pictures_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr("studies.calibration.grid.QUICK_METHODS", METHODS)
    cells = [cheap(), cheap(name="broad", model=grid_cells(True)[-1].model)]
    results = run_study(cells, tmp_path)
    rows = [row for cell in cells for row in summarise(cell, results[cell.name])]
    paths = find("calibration").draw(cells, results, rows, tmp_path)
    assert paths
    assert all(path.stat().st_size > 5_000 for path in paths)


def test_bad_words_are_refused(tmp_path):
    with pytest.raises(RequestError, match="bs2019-fig3"):
        invoke("run", "bs2019-fig5", "--out", tmp_path)
    with pytest.raises(RequestError, match="backend"):
        invoke("run", "calibration", "--backend", "carrier-pigeon", "--out", tmp_path)
    with pytest.raises(RequestError, match="no trials"):
        invoke("collect", "calibration", "--from", tmp_path, "--out", tmp_path)
