"""Notebooks of a few cells, written for the tests that run or check notebooks."""

from pathlib import Path

import nbformat

PARAMETERS = 'RUN = "../runs/tutorial"  # path: the run folder\nSTEPS = 600  # training steps\nNAME = "x"  # a label'


def make_notebook(*code: str, parameters: str | None = PARAMETERS) -> nbformat.NotebookNode:
    """A title, the parameters cell (unless None) and a code cell for each of ``code``."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells.append(nbformat.v4.new_markdown_cell("# A tiny notebook 小"))
    if parameters is not None:
        cell = nbformat.v4.new_code_cell(parameters)
        cell.metadata["tags"] = ["parameters"]
        notebook.cells.append(cell)
    notebook.cells += [nbformat.v4.new_code_cell(source) for source in code]
    return notebook


def write_notebook(path: Path, *code: str, parameters: str | None = PARAMETERS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(make_notebook(*code, parameters=parameters), path)
    return path
