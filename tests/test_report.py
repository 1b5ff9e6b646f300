"""The report shows what is in the run folder, whole, escaped, offline and with what failed on top."""

import json
import re

import nbformat
import plotly.graph_objects as go
import pytest
from test_pages import NASTY, Elements
from tiny_notebooks import make_notebook

from workbench.errors import DataError
from workbench.report import format_value, write_report
from workbench.run_folder import Number, RunFolder, write_json


def executed(run, name, **state):
    notebook = make_notebook("1")
    notebook.metadata["workbench"] = {
        "status": "done",
        "cell": 2,
        "cells": 2,
        "problem": "",
        "seconds": 3.21,
        "started": "2026-11-29T10:00:00+0000",
        **state,
    }
    run.notebooks.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, run.notebooks / f"{name}.ipynb")
    (run.notebooks / f"{name}.html").write_text("page")


@pytest.fixture
def run(tmp_path):
    run = RunFolder.at(tmp_path / "demo 一")
    numbers = [
        Number("validation loss", 2.345678, "nats", "50 windows", headline=True),
        Number("tokens", 1234567, headline=True),
        Number("third", 3.0),
    ]
    figures = {"损失 & loss": go.Figure(go.Scatter(y=[1.0, 2.5], name=NASTY)), "norm": go.Figure(go.Bar(y=[3]))}
    run.write_result(
        "05_pretrain",
        title="Pretraining <b>",
        summary=NASTY,
        numbers=numbers,
        figures=figures,
        headline_figure="损失 & loss",
    )
    run.write_result(
        "01_data", title="Data", summary="Nothing lost.", numbers=[Number("lost", 0, "tokens", headline=True)]
    )
    executed(run, "05_pretrain")
    executed(run, "06_chains", status="failed", cell=4, cells=9, problem="ValueError: <x>")
    write_json(run.path / "config.json", {"model": {"hidden_size": 128}, "device": "CPU"})
    return run


def test_everything_in_the_folder_is_shown(run):
    page = write_report(run).read_text(encoding="utf-8")
    text = re.sub(r"<style>.*?</style>|<script>.*?</script>", "", page, flags=re.S)
    for part in (
        "<h1>demo 一</h1>",
        "validation loss",
        "2.346",
        "nats",
        "50 windows",
        "1,234,567",
        "Nothing lost.",
        "损失 &amp; loss",
        "Pretraining &lt;b&gt;",
        "model.hidden_size",
        "128",
        "done in 3.2 s",
        'href="notebooks/05_pretrain.html"',
        'href="notebooks/05_pretrain.ipynb"',
        str(run.path),
    ):
        assert part in text, part
    assert "Not recorded in this run folder." in text  # environment.json is missing here
    assert 'href="notebooks/01_data.html"' not in text  # it has a result and did not run here
    assert (
        text.index('<section id="01_data"')
        < text.index('id="05_pretrain"')
        < text.index("This notebook stored no result.")
    )


def test_headline_numbers_are_on_top(run):
    page = write_report(run).read_text(encoding="utf-8")
    tiles = re.findall(r'<span class="label">(.*?)</span>', page)
    assert tiles == ["lost", "validation loss", "tokens"]


def test_what_failed_is_on_top(run):
    page = write_report(run).read_text(encoding="utf-8")
    alert = page.index('role="alert"')
    assert alert < page.index('class="tiles"')
    assert "<strong>06_chains failed</strong>\nin cell 4 of 9: ValueError: &lt;x&gt;" in page[alert:]
    (run.notebooks / "06_chains.ipynb").unlink()
    assert 'role="alert"' not in write_report(run).read_text(encoding="utf-8")


def test_figures_are_inside_and_nothing_is_loaded(run):
    page = write_report(run).read_text(encoding="utf-8")
    found = Elements(page)
    assert found.addresses == [] and len(found.scripts) == 2
    assert "alert(1)</script>" not in page
    figures = json.loads(re.match(r"const FIGURES = (.*);\n", found.scripts[1])[1])
    assert [f["data"][0]["y"] for f in figures] == [[1.0, 2.5], [1.0, 2.5], [3]]  # the headline figure comes twice
    assert figures[0]["data"][0]["name"] == NASTY
    assert all(page.count(f'id="{f["id"]}"') == 1 for f in figures)
    assert (
        page.index(f'id="{figures[0]["id"]}"')
        < page.index('<section id="01_data"')
        < page.index(f'id="{figures[1]["id"]}"')
    )


def test_without_figures_the_page_is_small(tmp_path):
    run = RunFolder.at(tmp_path)
    assert write_report(run).stat().st_size < 20_000
    assert "No notebook has run in this folder" in run.report.read_text(encoding="utf-8")


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="no such run folder"):
        write_report(RunFolder.at(tmp_path / "no"))


@pytest.mark.parametrize(
    "value, shown",
    [
        (0.123456, "0.1235"),
        (12345.6, "12,346"),
        (999.96, "1000"),
        (1e-7, "1e-07"),
        (0.0, "0"),
        (-2.5, "-2.5"),
        (1e20, "1e+20"),
        (1234567, "1,234,567"),
        (0, "0"),
        (True, "yes"),
        ("nan", "nan"),
        ("困惑度", "困惑度"),
        (float("inf"), "inf"),
    ],
)
def test_values(value, shown):
    assert format_value(value) == shown
