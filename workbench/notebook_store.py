"""The tutorials' stored outputs: run the notebooks, normalise what came out, store it in place.

What is stored is what nbval compares and what people read in a browser, so it holds nothing that
changes from one run to the next without a reason: no times, machine, widget state or versions.
Costs a run of the notebooks. Does not: hide a difference; an output that is not the same twice
shows up as a difference in git and fails nbval.
"""

import json
from pathlib import Path
from typing import Any, Sequence

import nbformat

from workbench.errors import DataError
from workbench.jobs import Job, read_notebook, run
from workbench.pages import PLOTLY, WIDGET_VIEW
from workbench.parameters import INJECTED_TAG, read_parameters
from workbench.progress import Progress
from workbench.run_folder import RunFolder

METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
TEMPLATE_LIMIT = 2000  # characters; plotly's own template has 7,000, the workbench's a few hundred


def refresh(notebooks: Sequence[Path], timeout: float | None = None) -> list[Path]:
    """Run ``notebooks`` with their default parameters and store their outputs in place.

    They run into the folder their parameter RUN names. Nothing is stored unless all of them ended
    well. Returns the files that changed. Raises DataError and JobFailed.
    """
    jobs, folders = [], set()
    for path in (Path(p).resolve() for p in notebooks):
        defaults = {p.name: p.default for p in read_parameters(read_notebook(path), path.name)}
        if not defaults.get("RUN"):
            raise DataError(f'{path}: no parameter RUN; add RUN = "../runs/tutorial"  # path: the run folder')
        folder = RunFolder.at(path.parent / str(defaults["RUN"]))
        folders.add(folder)
        jobs.append(Job(path, folder.notebooks / path.name))
    if len(folders) != 1:
        raise DataError(
            f"the notebooks have {len(folders)} different RUN defaults, expected one; refresh them one by one"
        )
    folder = folders.pop()
    run(jobs, folder, Progress(folder.path / "metrics.jsonl"), timeout)
    stored = {job.source: stored_text(nbformat.read(job.output, as_version=4), job.source.name) for job in jobs}
    changed = [path for path, text in stored.items() if path.read_text(encoding="utf-8") != text]
    for path in changed:
        path.write_text(stored[path], encoding="utf-8")
    return changed


def stored_text(notebook: nbformat.NotebookNode, name: str) -> str:
    """The executed ``notebook`` as it is stored: the same outputs give the same bytes.

    Raises DataError when a cell wrote to stderr or failed, for such outputs are not stored.
    """
    cells, count = [], 0
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if INJECTED_TAG in tags:
            continue
        kept: dict[str, Any] = {
            "id": cell.id,
            "cell_type": cell.cell_type,
            "metadata": {"tags": tags} if tags else {},
            "source": cell.source,
        }
        if "attachments" in cell:
            kept["attachments"] = cell.attachments
        if cell.cell_type == "code":
            count += 1
            kept["execution_count"] = count
            kept["outputs"] = _outputs(cell, count, f"{name}, code cell {count}")
        cells.append(kept)
    stored = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    node = nbformat.from_dict(stored)
    nbformat.validate(node)
    return nbformat.writes(node) + "\n"


def _outputs(cell: nbformat.NotebookNode, count: int, where: str) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for output in cell.outputs:
        if output.output_type == "error":
            raise DataError(
                f"{where}: {output.ename}: {output.evalue}; an error is not stored, show it with try/except"
            )
        if output.output_type == "stream":
            if output.name != "stdout":
                line = next((part for part in output.text.splitlines() if part.strip()), "")
                raise DataError(f"{where}: wrote to stderr: {line.strip()[:200]}; mend its cause, stderr is not stored")
            if kept and kept[-1]["output_type"] == "stream":
                kept[-1]["text"] += output.text
            else:
                kept.append({"output_type": "stream", "name": "stdout", "text": output.text})
            continue
        data = {mime: value for mime, value in output.data.items() if mime != WIDGET_VIEW}
        if PLOTLY in data:
            data[PLOTLY] = slim_figure(data[PLOTLY])
        if data:
            one = {"output_type": output.output_type, "data": data, "metadata": dict(output.metadata)}
            kept.append({**one, "execution_count": count} if output.output_type == "execute_result" else one)
    return kept


def slim_figure(figure: dict[str, Any]) -> dict[str, Any]:
    """``figure`` without what differs from run to run (trace ids) or machine to machine (config).

    A template longer than TEMPLATE_LIMIT goes too: it is plotly's own, not part of the picture.
    """
    layout = dict(figure.get("layout", {}))
    if len(json.dumps(layout.get("template"))) > TEMPLATE_LIMIT:
        del layout["template"]
    data = [{key: value for key, value in trace.items() if key != "uid"} for trace in figure.get("data", [])]
    return {"data": data, "layout": layout}
