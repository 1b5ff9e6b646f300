"""What nbval lets pass and what not, through notebooks/conftest.py."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nbval.plugin import IPyNbCell
from tiny_notebooks import make_notebook

from workbench.notebook_store import METADATA
from workbench.pages import PLOTLY

CONFTEST = Path(__file__).parent.parent / "notebooks" / "conftest.py"


@pytest.fixture(scope="module")
def compare():
    original = IPyNbCell.sanitize
    spec = importlib.util.spec_from_file_location("notebooks_conftest", CONFTEST)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    IPyNbCell.sanitize = original  # this process also collects tests of its own
    return module


@pytest.mark.parametrize(
    "stored, now, same",
    [
        ("loss 2.3456789", "loss 2.3456790", True),
        ("loss 2.34", "loss 2.35", False),
        ("loss 2.34", "loss 2.340", True),
        ("1.9999999999", "2.0000000001", True),
        ("1e-3 x", "1.0000000001e-3 x", True),
        ("1234567 tokens", "1234568 tokens", False),
        ("3 of 4", "3 of 5", False),
        ("loss nan", "loss 1.0", False),
        ("loss nan", "loss nan", True),
        ("-0.5", "0.5", False),
        ("损失 2.5", "损失  2.5", False),
        ("损失 2.5", "损害 2.5", False),
        ("1.0 2.0", "1.0", False),
    ],
)
def test_text(compare, stored, now, same):
    assert (compare.Text(stored) == compare.Text(now)) is same
    assert (compare.Text(stored) != compare.Text(now)) is not same


@pytest.mark.parametrize(
    "now, difference",
    [
        ({"data": [{"y": [1, 2.5000000001, None]}], "layout": {}}, None),
        ({"data": [{"y": [1, 2.5, None], "uid": "b"}], "layout": {"template": {}}, "config": {}}, None),
        ({"data": [{"y": [1, 2.525, None]}], "layout": {}}, "figure.data[0].y[1]: stored 2.5, now 2.525"),
        ({"data": [{"y": [2, 2.5, None]}], "layout": {}}, "figure.data[0].y[0]: stored 1, now 2"),
        ({"data": [{"y": [1, 2.5]}], "layout": {}}, "figure.data[0].y: stored 3 items, now 2"),
        ({"data": [{"y": [1, 2.5, 0.0]}], "layout": {}}, "figure.data[0].y[2]: stored None, now 0.0"),
        ({"data": [{"x": [1, 2.5, None]}], "layout": {}}, "figure.data[0]: ['x', 'y'] in only one of them"),
        ({"data": [{"y": [True, 2.5, None]}], "layout": {}}, "figure.data[0].y[0]: stored 1, now True"),
        ({"data": [{"y": [1, 2.5, None]}], "layout": {"title": "t"}}, "figure.layout: ['title'] in only one of them"),
    ],
)
def test_figures(compare, now, difference):
    stored = compare.Figure({"data": [{"y": [1, 2.5, None], "uid": "a"}], "layout": {}})
    assert compare.first_difference(stored.json, compare.Figure(now).json) == difference
    assert (stored == compare.Figure(now)) is (difference is None)
    if difference:
        assert difference in compare.pytest_assertrepr_compare(None, "==", stored, compare.Figure(now))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.floats(min_value=1e-6, max_value=1e6), st.sampled_from([1e-2, 1e-4, 1e-5, -1e-2]))
def test_a_change_above_the_tolerance_always_fails(compare, number, change):
    assert compare.same_value(number, number * (1 + 1e-8))
    assert not compare.same_value(number, number * (1 + change))
    assert not compare.same_text(f"x {number!r} y", f"x {number * (1 + change)!r} y")


def stored_notebook(path, loss, point):
    """A notebook whose code gives 2.5 and a figure through 2.5, stored with ``loss`` and ``point``."""
    figure = '{"data": [{"type": "scatter", "y": [1.0] * 499 + [2.5]}], "layout": {}}'
    notebook = make_notebook(
        "import os\nprint('loss', 2.5, os.environ['WORKBENCH_PROGRESS'])",
        f"from IPython.display import display\ndisplay({{'{PLOTLY}': {figure}}}, raw=True)",
    )
    notebook.metadata = nbformat.from_dict(METADATA)
    for count, cell in enumerate(notebook.cells[1:], 1):
        cell.execution_count = count
    notebook.cells[2].outputs = [nbformat.v4.new_output("stream", name="stdout", text=f"loss {loss} log\n")]
    data = {PLOTLY: {"data": [{"type": "scatter", "y": [1.0] * 499 + [point]}], "layout": {}}}
    notebook.cells[3].outputs = [nbformat.v4.new_output("display_data", data=data)]
    nbformat.write(notebook, path)


def test_nbval_uses_it(tmp_path, monkeypatch):
    # With CI set, pytest's own diff of these two figures takes most of a minute.
    monkeypatch.setenv("CI", "true")
    shutil.copy(CONFTEST, tmp_path / "conftest.py")
    stored_notebook(tmp_path / "01_same.ipynb", 2.5000000001, 2.5000000001)
    stored_notebook(tmp_path / "02_differs.ipynb", 2.51, 2.525)
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--nbval",
            "--nbval-current-env",
            "--nbval-cell-timeout=60",
            "--color=no",
            "-p",
            "no:cacheprovider",
            ".",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "2 failed, 4 passed" in ended.stdout, ended.stdout
    assert "figure.data[0].y[499]: stored 2.525, now 2.5" in ended.stdout
    assert "loss 2.51 log" in ended.stdout
