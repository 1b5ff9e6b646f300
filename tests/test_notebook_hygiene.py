"""The stored notebooks are what ``workbench refresh`` writes, and comparing them means something.

nbval passes a notebook without outputs, so what is stored is checked here first.
"""

import ast
import json
import re
import subprocess
from pathlib import Path

import nbformat
import pytest
from tiny_notebooks import make_notebook

from workbench.errors import DataError
from workbench.notebook_store import METADATA, stored_text
from workbench.pages import PLOTLY, WIDGET_VIEW
from workbench.parameters import read_parameters

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LIMIT = 300_000  # bytes a notebook
LARGEST = 3_000_000  # bytes any file
IGNORED = {"nbval-ignore-output", "nbval-skip"}
IGNORING = re.compile(r"^\s*#+\s*(NBVAL_IGNORE_OUTPUT|NBVAL_SKIP|PYTEST_VALIDATE_IGNORE_OUTPUT)\s*$", re.M)
IMPORTED = re.compile(r"^(?:import|from) (mindspore|workbench)\b", re.M)
LATE = "mindspore is imported before workbench, which sets the environment that it reads"
NOT_COMPARED = {"image/png", "image/jpeg", WIDGET_VIEW}  # nbval skips these


def problems(text: str, name: str) -> list[str]:
    """What is wrong with a stored notebook, in words; empty when nothing is."""
    found = []
    if not re.fullmatch(r"[0-9]{2}_[a-z0-9]+(_[a-z0-9]+)*\.ipynb", name):
        found.append("the name is not NN_snake.ipynb")
    if len(text.encode("utf-8")) >= LIMIT:
        found.append(f"{len(text.encode('utf-8'))} bytes, the limit is {LIMIT}")
    notebook = nbformat.reads(text, as_version=4)
    if json.loads(text)["metadata"] != METADATA:
        found.append("metadata are not those that are stored")
    if notebook.cells[0].cell_type != "markdown" or not notebook.cells[0].source.startswith("# "):
        found.append("the first cell is not a markdown title")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        found.append("execution counts are not 1 to n")
    imports = [word for cell in code for word in IMPORTED.findall(cell.source)]
    if imports[:1] == ["mindspore"]:
        found.append(LATE)
    found += parameter_problems(notebook, name)
    try:
        if stored_text(notebook, name) != text:
            found.append("not as refresh stores it")
    except DataError as error:  # stderr or an error among the outputs
        found.append(str(error))
    if sum(compared_outputs(cell) for cell in code) < 2:
        found.append("fewer than 2 outputs are compared")
    if not code or not calls(code[-1].source, "write_result"):
        found.append("the last code cell does not call write_result")
    return found


def parameter_problems(notebook: nbformat.NotebookNode, name: str) -> list[str]:
    try:
        parameters = read_parameters(notebook, name)
    except DataError as error:
        return [str(error)]
    found = [f"parameter {p.name} has no comment" for p in parameters if not p.comment]
    if "RUN" not in [p.name for p in parameters]:
        found.append("no parameter RUN")
    return found


def compared_outputs(cell: nbformat.NotebookNode) -> int:
    """How many outputs of a code cell nbval really compares."""
    if IGNORED & set(cell.metadata.get("tags", [])) or IGNORING.search(cell.source):
        return 0
    return sum(o.output_type == "stream" or bool(set(o.get("data", {})) - NOT_COMPARED) for o in cell.outputs)


def calls(source: str, name: str) -> bool:
    """Whether ``source`` has a call of a function or method called ``name``."""
    called = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return any(getattr(f, "attr", getattr(f, "id", None)) == name for f in called)


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 1, "no notebooks/*.ipynb"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_notebook(path):
    assert problems(path.read_text(encoding="utf-8"), path.name) == []


def test_no_file_is_large():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    files = [ROOT / name for name in listed.stdout.decode("utf-8").split("\0") if name]
    assert ROOT / "pyproject.toml" in files
    assert [(str(f), f.stat().st_size) for f in files if f.is_file() and f.stat().st_size > LARGEST] == []


GOOD = 'RUN = "../runs/tutorial"  # path: the run folder\nSTEPS = 600  # training steps'


def tiny(parameters=GOOD, last="RunFolder.at(RUN).write_result('01_a')"):
    """A notebook as refresh stores it, with two outputs that are compared."""
    notebook = make_notebook("print(1)", "x", last, parameters=parameters)
    notebook.cells[2].outputs = [nbformat.v4.new_output("stream", name="stdout", text="1\n")]
    figure = {PLOTLY: {"data": [], "layout": {}}}
    notebook.cells[3].outputs = [nbformat.v4.new_output("display_data", data=figure)]
    return nbformat.reads(stored_text(notebook, "01_a.ipynb"), as_version=4)


def found_in(notebook, name="01_a.ipynb"):
    return problems(nbformat.writes(notebook) + "\n", name)


def test_the_check_passes_what_refresh_stores():
    assert found_in(tiny()) == []


def test_a_stripped_notebook_fails():
    notebook = tiny()
    for cell in notebook.cells[1:]:
        cell.outputs, cell.execution_count = [], None
    found = found_in(notebook)
    assert "execution counts are not 1 to n" in found and "fewer than 2 outputs are compared" in found


def change_metadata(notebook):
    notebook.metadata["widgets"] = {}


def change_count(notebook):
    notebook.cells[3].execution_count = 7


def add_stderr(notebook):
    notebook.cells[2].outputs.append(nbformat.v4.new_output("stream", name="stderr", text="warning"))


def add_widget(notebook):
    notebook.cells[3].outputs[0].data[WIDGET_VIEW] = {"model_id": "m"}


def ignore_by_tag(notebook):
    notebook.cells[2].metadata["tags"] = ["nbval-ignore-output"]


def ignore_by_comment(notebook):
    notebook.cells[3].source = "# NBVAL_IGNORE_OUTPUT\nx"


def only_an_image(notebook):
    notebook.cells[3].outputs = [nbformat.v4.new_output("display_data", data={"image/png": "aaaa"})]


def no_title(notebook):
    notebook.cells[0].source = "Title"


def large(notebook):
    notebook.cells[2].outputs[0].text = "x" * LIMIT


def timed(notebook):
    notebook.cells[2].metadata["execution"] = {"iopub.status.busy": "2026-11-29T10:00:00Z"}


@pytest.mark.parametrize(
    "damage, message",
    [
        (change_metadata, "metadata are not those that are stored"),
        (change_count, "execution counts are not 1 to n"),
        (add_stderr, "01_a.ipynb, code cell 2: wrote to stderr: warning; mend its cause, stderr is not stored"),
        (add_widget, "not as refresh stores it"),
        (ignore_by_tag, "fewer than 2 outputs are compared"),
        (ignore_by_comment, "fewer than 2 outputs are compared"),
        (only_an_image, "fewer than 2 outputs are compared"),
        (no_title, "the first cell is not a markdown title"),
        (large, None),
        (timed, "not as refresh stores it"),
    ],
)
def test_each_kind_of_damage_is_found(damage, message):
    notebook = tiny()
    damage(notebook)
    found = found_in(notebook)
    assert message in found if message else any("the limit is" in f for f in found)


@pytest.mark.parametrize(
    "parameters, last, message",
    [
        ("STEPS = 600  # steps", "write_result()", "no parameter RUN"),
        ('RUN = "r"', "write_result()", "parameter RUN has no comment"),
        (GOOD, "1  # write_result()", "the last code cell does not call write_result"),
        (GOOD, "import mindspore\nimport workbench\nwrite_result()", LATE),
    ],
)
def test_each_missing_part_is_found(parameters, last, message):
    assert found_in(tiny(parameters, last)) == [message]


@pytest.mark.parametrize("name", ["a.ipynb", "1_a.ipynb", "01-a.ipynb", "01_A.ipynb", "01_a b.ipynb", "01_.ipynb"])
def test_names(name):
    assert "the name is not NN_snake.ipynb" in found_in(tiny(), name)
