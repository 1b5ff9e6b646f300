"""Notebooks as jobs: everything is checked first, then they run in order, each in its own kernel.

1. ``plan`` reads every notebook and every value, and refuses what is wrong before anything starts.
2. ``execute`` runs one job with papermill in a kernel of this Python, in the notebook's folder.
3. ``run`` does all jobs; the executed notebooks, their pages and the report are in the run folder
   whether it ended well, failed or was stopped.

Costs: a kernel start a notebook, then what the notebook costs. Does not: resume inside a notebook
(checkpoints do that), start several ranks (``workbench.rank_jobs`` does, and each runs ``execute``
here), or forward a signal to anything but the kernel.
"""

import logging
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import nbformat
import papermill
from nbclient.exceptions import CellTimeoutError, DeadKernelError

from workbench.check_cells import try_checks
from workbench.errors import DataError, RunStopped, SettingError, StorageError, unknown_name
from workbench.job_kernel import AtCell, JoinFailed, Rank, kernel_of_this_python
from workbench.launching import last_lines
from workbench.pages import write_pages
from workbench.parameters import INJECTED_TAG, TAG, Value, absolute, read_parameters
from workbench.progress import Progress
from workbench.report import write_report
from workbench.run_folder import RunFolder, environment, write_json

# What papermill would say of a dead kernel or a timeout, this module says.
logging.getLogger("papermill").addHandler(logging.NullHandler())

OUTPUT_SECONDS = 60  # papermill gives up when a cell has ended and its output is not there after this

OnCell = Callable[[int, int], None]  # (code cell, code cells), both counted from 1
Execute = Callable[["Job", OnCell, float | None], None]  # (job, on_cell, timeout)


@dataclass(frozen=True)
class Job:
    """One notebook to run: ``source`` with ``values`` set, executed into ``output`` (absolute paths)."""

    source: Path
    output: Path
    values: Mapping[str, Value] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        """What the kernel's process said outside of cells; kept if that is more than MindSpore's notes."""
        return self.output.with_suffix(".log")


class JobFailed(Exception):
    """A job did not come to its end; the message is one line. Cells are counted among the code cells, from 1."""

    def __init__(self, job: Job, cell: int, problem: str) -> None:
        self.job, self.cell, self.problem = job, cell, problem
        super().__init__(f"{problem} ({job.source.name}, code cell {cell}; executed notebook: {job.output})")


class JobStopped(JobFailed):
    """A run in the notebook was asked to stop, through its folder; it saved, and the same job goes on from there."""


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """The notebook in ``path`` (nbformat 4). Raises DataError when there is none."""
    if not path.is_file():
        raise DataError(f"{path}: no such notebook; give the path of a .ipynb file")
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except Exception as error:  # nbformat raises many kinds for what is not a notebook
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
        raise DataError(f"{path}: not a notebook ({reason}); give the path of a .ipynb file") from None
    if any(INJECTED_TAG in c.metadata.get("tags", []) for c in notebook.cells):
        raise DataError(f"{path}: this is the output of an earlier run; run the notebook it was made from")
    return notebook


def plan(notebooks: Sequence[Path], given: Mapping[str, str], out: Path, cwd: Path) -> tuple[Job, ...]:
    """The jobs that run ``notebooks`` with the ``given`` values into the run folder ``out``.

    A value goes to every notebook that has a parameter of that name, converted by that notebook's
    default. ``RUN`` is set to ``out`` where it is a parameter. Nothing is written.
    Raises SettingError and DataError.
    """
    if "RUN" in given:
        raise SettingError(f"parameter RUN: the run folder is given with --out; use --out {given['RUN'] or 'FOLDER'}")
    out = Path(absolute(str(out), cwd))
    if out.exists() and not out.is_dir():
        raise SettingError(f"--out {out}: this is a file, expected a folder (it is made when it is missing)")
    sources = [Path(absolute(str(path), cwd)) for path in notebooks]
    read = [read_notebook(source) for source in sources]
    parameters = [read_parameters(notebook, source.name) for notebook, source in zip(read, sources)]
    known = {p.name for of_one in parameters for p in of_one} - {"RUN"}
    for name in given:
        if name not in known:
            raise unknown_name("parameter", name, known)
    jobs: list[Job] = []
    for source, notebook, of_one in zip(sources, read, parameters):
        values = {p.name: p.value(given[p.name], cwd) for p in of_one if p.name in given}
        if any(p.name == "RUN" for p in of_one):
            values["RUN"] = str(out)
        output = RunFolder(out).notebooks / source.name
        if output == source:
            raise SettingError(f"{source}: would be overwritten by its own output; give another --out")
        if output in [job.output for job in jobs]:
            raise SettingError(
                f"{source}: a second notebook called {source.name}; their outputs would overwrite each other"
            )
        try_checks(notebook, values, source.name)
        jobs.append(Job(source, output, values))
    return tuple(jobs)


def run(
    jobs: Sequence[Job],
    folder: RunFolder,
    progress: Progress,
    timeout: float | None = None,
    how: Execute | None = None,
) -> None:
    """Run ``jobs`` in order; the first that fails ends it. ``timeout``: seconds a cell may take.

    ``how`` runs one of them; ``execute`` when not given.

    Pages and report are written in any case. Raises SettingError when the folder cannot be made,
    StorageError when pages and report cannot be written, JobFailed and KeyboardInterrupt.
    """
    try:
        folder.notebooks.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"--out {folder.path}: cannot be made ({error.strerror}); give another folder") from None
    if not (folder.path / "environment.json").exists():  # a trained run keeps the one it was trained in
        write_json(folder.path / "environment.json", environment())
    try:
        for number, job in enumerate(jobs, 1):
            with progress.notebook(job.source.stem, number, len(jobs)) as on_cell:
                (how or execute)(job, on_cell, timeout)
    finally:
        failure = sys.exception()
        try:
            write_pages(folder.notebooks)
            write_report(folder)
        except OSError as error:
            told = f"pages and report cannot be written to {folder.path} ({error.strerror}): make room, then "
            told += f"workbench report {folder.path}"
            if isinstance(failure, JobFailed):  # a full disk: what ended the job matters more
                raise JobFailed(failure.job, failure.cell, f"{failure.problem}; {told}") from error
            raise StorageError(told) from error


def execute(job: Job, on_cell: OnCell, timeout: float | None = None, rank: Rank | None = None) -> None:
    """Run one job; its output says how it ended in ``metadata.workbench``. Raises JobFailed.

    ``rank``: what the kernel joins the others as, from its first cell to its end.
    """
    notebook = read_notebook(job.source)
    _inject(notebook, job.values)
    cells = [i for i, c in enumerate(notebook.cells) if c.cell_type == "code" and INJECTED_TAG not in _tags(c)]
    at = {"cell": 1, "cells": len(cells), "started": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    start = time.monotonic()
    at_cell = AtCell()

    def started(cell: nbformat.NotebookNode, cell_index: int) -> None:
        if cell_index in cells:
            at["cell"] = cells.index(cell_index) + 1
            on_cell(at["cell"], at["cells"])

    def ended(status: str, problem: str = "") -> None:
        if not _said(job.log):
            job.log.unlink()
        done = nbformat.read(job.output, as_version=4)
        done.metadata.pop("widgets", None)  # the state of one plotly widget alone is 5 MB
        done.metadata["papermill"] = {**done.metadata.get("papermill", {}), "input_path": str(job.source)}
        _write(
            done,
            job.output,
            {**at, "status": status, "problem": problem, "seconds": round(time.monotonic() - start, 1)},
        )

    def failed(problem: str) -> JobFailed:
        ended("failed", problem)
        return JobFailed(job, at["cell"], problem)

    _write(notebook, job.output, {**at, "status": "unfinished", "problem": "", "seconds": None})
    # papermill takes braces in a path as the names of parameters to fill in
    path = str(job.output).replace("{", "{{").replace("}", "}}")
    try:
        with job.log.open("w") as log:
            done = papermill.execute_notebook(
                path,
                path,
                kernel_name="python3",
                language="python",
                kernel_manager_class=kernel_of_this_python(log, at_cell, rank),
                cwd=str(job.source.parent),
                progress_bar=False,
                execution_timeout=timeout,
                iopub_timeout=OUTPUT_SECONDS,
                autosave_cell_every=10,
                coalesce_streams=True,
                on_cell_start=started,
                on_cell_execute=lambda cell, cell_index: at_cell.begins(),
                on_cell_executed=lambda cell, cell_index, execute_reply: at_cell.ended(execute_reply),
            )
    except papermill.PapermillExecutionError as error:
        if error.ename == RunStopped.__name__:
            ended("stopped", _problem(error))
            raise JobStopped(job, at["cell"], _problem(error)) from None
        raise failed(_problem(error)) from None
    except CellTimeoutError as error:
        if "Timeout waiting for IOPub output" in str(error):
            late = f"the output of the cell was not there {OUTPUT_SECONDS} s after its end; show less in it"
            raise failed(late) from None
        raise failed(f"not finished after {timeout:g} s; give more time with --timeout") from None
    except JoinFailed as error:
        raise failed(f"the kernel could not join the other ranks: {error}") from None
    except DeadKernelError:
        last_words = f", see {job.log}" if _said(job.log) else ""
        raise failed(f"the kernel died: killed, out of memory or crashed in native code{last_words}") from None
    except KeyboardInterrupt:
        ended("interrupted", "stopped by a signal")
        raise
    left = [
        c
        for c in done.cells
        if c.cell_type == "code" and c.source.strip() and c.execution_count is None and "skip-execution" not in _tags(c)
    ]
    exits = [o for c in done.cells for o in c.get("outputs", []) if o.output_type == "error"]
    if left or exits:
        # papermill takes sys.exit(0) for success
        cause = exits[0].ename if exits else "the kernel"
        raise failed(f"{cause} ended the notebook early" + (f", {len(left)} code cells did not run" if left else ""))
    ended("done")


def device_of(job: Job) -> str:
    """The device ``job`` computes on: its DEVICE, given or the notebook's own, and CPU where there is none."""
    parameters = read_parameters(read_notebook(job.source), job.source.name)
    return str({"DEVICE": "CPU", **{p.name: p.default for p in parameters}, **job.values}["DEVICE"])


def say_ended(job: Job, status: str, problem: str, at: Mapping[str, Any]) -> None:
    """Say in the output of ``job`` how it ended, for a process that could not; what it had saved of cells is kept."""
    try:
        notebook = nbformat.read(job.output, as_version=4)
    except (OSError, ValueError):  # it was ended before it wrote, or while papermill wrote
        notebook = read_notebook(job.source)
        _inject(notebook, job.values)
    notebook.metadata.pop("widgets", None)
    before = {"cell": 1, "cells": 0, "seconds": None, **notebook.metadata.get("workbench", {})}
    job.output.parent.mkdir(parents=True, exist_ok=True)
    _write(notebook, job.output, {**before, **at, "status": status, "problem": problem})


def _inject(notebook: nbformat.NotebookNode, values: Mapping[str, Value]) -> None:
    """Put ``values`` into a cell after the parameters cell.

    Ours and not papermill's, which writes every non-ASCII character as an escape.
    """
    if values:
        lines = [f"{name} = {value!r}" for name, value in values.items()]
        cell = nbformat.v4.new_code_cell("# Given on the command line\n" + "\n".join(lines))
        cell.metadata["tags"] = [INJECTED_TAG]
        at = next(i for i, c in enumerate(notebook.cells) if TAG in _tags(c))
        notebook.cells.insert(at + 1, cell)


def _problem(error: papermill.PapermillExecutionError) -> str:
    """The error of a cell in one line; one that renders as a single line is a UserError, shown as it is."""
    line = next((part for part in str(error.evalue).splitlines() if part.strip()), "").strip()
    if list(error.traceback) == [f"{error.ename}: {error.evalue}"]:
        return line
    return f"{error.ename}: {line[:300]}" if line else str(error.ename)


def _write(notebook: nbformat.NotebookNode, path: Path, state: Mapping[str, Any]) -> None:
    """Write beside and rename: another process may look at it, or end this one, at any moment."""
    notebook.metadata["workbench"] = dict(state)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    nbformat.write(notebook, beside)
    beside.replace(path)


def _said(log: Path) -> bool:
    return bool(last_lines(log.read_text(encoding="utf-8", errors="replace")))


def _tags(cell: nbformat.NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])
