"""Stored outputs are the same bytes for the same outputs, and hold nothing of the machine or the hour."""

import json

import nbformat
import pytest
from tiny_notebooks import make_notebook, write_notebook

from workbench.errors import DataError
from workbench.jobs import JobFailed
from workbench.notebook_store import METADATA, TEMPLATE_LIMIT, refresh, slim_figure, stored_text
from workbench.pages import PLOTLY, WIDGET_VIEW

SHOW = """
from IPython.display import display
data = [{"type": "bar", "y": [1, 2.5], "uid": "9816c7a4"}]
figure = {"data": data, "layout": {"template": {"layout": {}}}, "config": {"a": 1}}
display({"application/vnd.plotly.v1+json": figure, "text/plain": "损失 2.5"}, raw=True)
"""


def executed():
    notebook = make_notebook("print(1)", "x")
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"name": "other", "display_name": "Other"},
            "language_info": {"name": "python", "version": "3.11.7"},
            "papermill": {"duration": 3},
            "widgets": {"state": {}},
            "workbench": {"status": "done"},
        }
    )
    for cell in notebook.cells:
        cell.metadata["papermill"] = {"duration": 1.5}
        cell.metadata["execution"] = {"iopub.status.busy": "2026-11-29T10:00:00Z"}
    injected = nbformat.v4.new_code_cell("STEPS = 7", metadata={"tags": ["injected-parameters"]}, execution_count=2)
    notebook.cells.insert(2, injected)
    one, two = notebook.cells[3:]
    one.execution_count, two.execution_count = 3, 9
    one.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text) for text in ("损失 ", "1\n")]
    two.outputs = [
        nbformat.v4.new_output(
            "execute_result", data={WIDGET_VIEW: {"model_id": "m"}, "text/plain": "<panel>"}, execution_count=9
        ),
        nbformat.v4.new_output("display_data", data={WIDGET_VIEW: {"model_id": "n"}}),
    ]
    return notebook


def test_only_what_is_compared_or_read_is_stored():
    text = stored_text(executed(), "01_a.ipynb")
    stored = nbformat.reads(text, as_version=4)
    assert json.loads(text)["metadata"] == METADATA
    code = [c for c in stored.cells if c.cell_type == "code"]
    assert [c.execution_count for c in code] == [1, 2, 3]
    assert [dict(c.metadata) for c in stored.cells] == [{}, {"tags": ["parameters"]}, {}, {}]
    assert [o.text for o in code[1].outputs] == ["损失 1\n"] and "损失" in text
    assert [dict(o.data) for o in code[2].outputs] == [{"text/plain": "<panel>"}] and code[2].outputs[
        0
    ].execution_count == 3
    assert text.endswith("}\n") and not text.endswith("\n\n")
    assert stored_text(stored, "01_a.ipynb") == text


def test_figures_lose_only_what_changes_by_itself():
    long = {"x": "y" * TEMPLATE_LIMIT}
    figure = {
        "data": [{"y": [1], "uid": "a"}],
        "layout": {"title": "t", "template": {"a": 1}},
        "config": {"plotlyServerURL": "u"},
    }
    assert slim_figure(figure) == {"data": [{"y": [1]}], "layout": {"title": "t", "template": {"a": 1}}}
    figure["layout"]["template"] = long
    assert slim_figure(figure) == {"data": [{"y": [1]}], "layout": {"title": "t"}}
    assert figure["layout"]["template"] is long and figure["data"][0]["uid"] == "a"


@pytest.mark.parametrize(
    "output, message",
    [
        (
            nbformat.v4.new_output("stream", name="stderr", text="\nUserWarning: x\n"),
            "code cell 2: wrote to stderr: UserWarning: x",
        ),
        (nbformat.v4.new_output("error", ename="ValueError", evalue="bad"), "code cell 2: ValueError: bad"),
    ],
)
def test_errors_and_warnings_are_not_stored(output, message):
    notebook = make_notebook("1")
    notebook.cells[2].outputs = [output]
    with pytest.raises(DataError, match=message):
        stored_text(notebook, "01_a.ipynb")


def test_refresh_stores_in_place_and_the_second_time_changes_nothing(tmp_path):
    path = write_notebook(tmp_path / "notebooks/01_a.ipynb", SHOW, "print(STEPS, RUN)")
    assert refresh([path]) == [path]
    first = path.read_bytes()
    stored = nbformat.reads(first.decode(), as_version=4)
    assert stored.cells[3].outputs[0].text == "600 ../runs/tutorial\n"
    assert stored.cells[2].outputs[0].data[PLOTLY] == {
        "data": [{"type": "bar", "y": [1, 2.5]}],
        "layout": {"template": {"layout": {}}},
    }
    assert (tmp_path / "runs/tutorial/report.html").is_file()
    assert refresh([path]) == [] and path.read_bytes() == first


def test_a_failed_refresh_changes_nothing(tmp_path):
    good = write_notebook(tmp_path / "notebooks/01_a.ipynb", "print(1)")
    bad = write_notebook(tmp_path / "notebooks/02_b.ipynb", "1/0")
    before = good.read_bytes(), bad.read_bytes()
    with pytest.raises(JobFailed, match="ZeroDivisionError"):
        refresh([good, bad])
    assert (good.read_bytes(), bad.read_bytes()) == before
    none = write_notebook(tmp_path / "notebooks/03_c.ipynb", parameters="A = 1")
    with pytest.raises(DataError, match="no parameter RUN"):
        refresh([none])
    other = write_notebook(tmp_path / "notebooks/04_d.ipynb", parameters='RUN = "x"')
    with pytest.raises(DataError, match="2 different RUN defaults"):
        refresh([good, other])
