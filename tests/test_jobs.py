"""Nothing starts when something is wrong; what starts ends as success only if every cell ran."""

import errno
import io
import json
import os
import signal
import subprocess
import sys

import nbformat
import pytest
from nbclient.exceptions import CellTimeoutError
from tiny_notebooks import write_notebook

from workbench import jobs
from workbench.errors import DataError, SettingError, StorageError
from workbench.progress import Progress
from workbench.run_folder import RunFolder


def run(out, *paths, given=None, timeout=60):
    folder = RunFolder.at(out)
    planned = jobs.plan(paths, given or {}, folder.path, out.parent)
    jobs.run(planned, folder, Progress(folder.path / "metrics.jsonl", io.StringIO()), timeout)
    return [nbformat.read(job.output, as_version=4) for job in planned]


def printed(notebook):
    return "".join(o.text for c in notebook.cells for o in c.get("outputs", []) if o.output_type == "stream")


def test_every_notebook_gets_its_own_values(tmp_path):
    first = write_notebook(
        tmp_path / "nb/01_a.ipynb", parameters='RUN = ""  # run\nSTEPS = 1.5\nDATA = ""  # path: text'
    )
    second = write_notebook(tmp_path / "nb/02_b.ipynb", parameters="STEPS = 1")
    one, two = jobs.plan([first, second], {"STEPS": "7", "DATA": "a b/*.txt"}, tmp_path / "run", tmp_path)
    assert one == jobs.Job(
        first,
        tmp_path / "run/notebooks/01_a.ipynb",
        {"STEPS": 7.0, "DATA": f"{tmp_path}/a b/*.txt", "RUN": f"{tmp_path}/run"},
    )
    assert two == jobs.Job(second, tmp_path / "run/notebooks/02_b.ipynb", {"STEPS": 7})
    assert not (tmp_path / "run").exists()


def test_mistakes_are_found_before_anything_starts(tmp_path):
    good = write_notebook(tmp_path / "01_a.ipynb", "open('started', 'w')")
    (tmp_path / "text.ipynb").write_text("hello")
    (tmp_path / "list.ipynb").write_text("[]")
    (tmp_path / "file").write_text("x")
    bare = write_notebook(tmp_path / "02_b.ipynb", "1", parameters=None)
    derived = write_notebook(tmp_path / "03_c.ipynb", "1", parameters="A = 1\nB = A")
    same = write_notebook(tmp_path / "other/01_a.ipynb", "1")
    for paths, given, message in (
        ([good], {"STEP": "1"}, r"unknown parameter 'STEP'; did you mean 'STEPS'\? \(known: NAME, STEPS\)"),
        ([good], {"STEPS": "2.5"}, "parameter STEPS: '2.5' is a float, expected int like 600"),
        ([good], {"RUN": "x"}, "parameter RUN: the run folder is given with --out; use --out x"),
        ([good, tmp_path / "no.ipynb"], {}, "no.ipynb: no such notebook"),
        ([good, tmp_path], {}, "no such notebook"),
        ([tmp_path / "text.ipynb"], {}, "text.ipynb: not a notebook"),
        ([tmp_path / "list.ipynb"], {}, "list.ipynb: not a notebook"),
        ([good, bare], {}, "02_b.ipynb: 0 cells tagged 'parameters'"),
        ([good, derived], {}, "'B = A' is not NAME = LITERAL"),
        ([good, same], {}, "a second notebook called 01_a.ipynb"),
    ):
        with pytest.raises((SettingError, DataError), match=message) as refused:
            run(tmp_path / "run", *paths, given=given)
        assert "\n" not in str(refused.value)
    with pytest.raises(SettingError, match="this is a file, expected a folder"):
        run(tmp_path / "file", good)
    with pytest.raises(SettingError, match="cannot be made"):
        run(tmp_path / "file" / "run", good)
    assert not (tmp_path / "run").exists() and not (tmp_path / "started").exists()


def test_a_job_runs_in_this_python_with_its_values(tmp_path, monkeypatch):
    wrong = tmp_path / "jupyter/kernels/python3"
    wrong.mkdir(parents=True)
    spec = {"argv": ["/bin/false", "{connection_file}"], "display_name": "other", "language": "python"}
    (wrong / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    source = write_notebook(
        tmp_path / "nb/01_a.ipynb",
        "import json, os, sys",
        "print(json.dumps([RUN, STEPS, NAME, os.getcwd(), sys.executable, os.environ['WORKBENCH_PROGRESS']]))",
        "print('你好')",
        "import ipywidgets; ipywidgets.IntSlider()",
    )
    before = source.read_bytes()
    out = tmp_path / "run {braces} 空"
    (notebook,) = run(out, source, given={"STEPS": "7", "NAME": "a='\"\\x 语"})
    values, greeting = printed(notebook).splitlines()
    assert json.loads(values) == [str(out), 7, "a='\"\\x 语", str(source.parent), sys.executable, "log"]
    assert greeting == "你好"
    injected = [c.source for c in notebook.cells if "injected-parameters" in c.metadata.get("tags", [])]
    assert len(injected) == 1 and "语" in injected[0]
    assert "widgets" not in notebook.metadata
    assert notebook.metadata.workbench["status"] == "done" and notebook.metadata.workbench["cells"] == 5
    assert source.read_bytes() == before
    made = {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()}
    assert made == {
        "environment.json",
        "report.html",
        "notebooks/01_a.ipynb",
        "notebooks/01_a.html",
        "notebooks/plotly.min.js",
    }
    with pytest.raises(DataError, match="output of an earlier run"):
        run(tmp_path / "again", out / "notebooks/01_a.ipynb")


@pytest.mark.parametrize(
    "code, cell, problem",
    [
        (["1", "raise OSError('disk\\nfull')", "1"], 3, "OSError: disk"),
        (
            ["from workbench.errors import DataError\nraise DataError('x: no such file; give y')"],
            2,
            "x: no such file; give y",
        ),
        (["import sys; sys.exit(0)", "1", "2"], 2, "SystemExit ended the notebook early, 2 code cells did not run"),
        (["import sys; sys.exit(3)"], 2, "SystemExit: 3"),
        (
            ["1", "import ctypes; ctypes.string_at(0)"],
            3,
            "the kernel died: killed, out of memory or crashed in native code, see ",
        ),
        (["import threading; threading.Event().wait()"], 2, "not finished after 2 s; give more time with --timeout"),
    ],
    ids=["error", "user-error", "exit-0", "exit-3", "kernel-dies", "timeout"],
)
def test_a_failed_cell_ends_the_run_and_is_named(tmp_path, code, cell, problem):
    first = write_notebook(tmp_path / "nb/01_a.ipynb", *code)
    second = write_notebook(tmp_path / "nb/02_b.ipynb", "open('second', 'w')")
    with pytest.raises(jobs.JobFailed) as failure:
        run(tmp_path / "run", first, second, given={"STEPS": "1"}, timeout=2 if "timeout" in problem else 60)
    output = tmp_path / "run/notebooks/01_a.ipynb"
    assert failure.value.cell == cell and failure.value.problem.startswith(problem)
    assert str(failure.value).endswith(f"(01_a.ipynb, code cell {cell}; executed notebook: {output})")
    assert "\n" not in str(failure.value)
    state = nbformat.read(output, as_version=4).metadata.workbench
    assert state["status"] == "failed" and state["cell"] == cell and state["problem"] == failure.value.problem
    assert not (tmp_path / "nb/second").exists()
    report = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert "01_a failed" in report and "02_b" not in report
    assert (tmp_path / "run/notebooks/01_a.html").exists()
    if "died" in problem:
        assert "Segmentation fault" in output.with_suffix(".log").read_text()


def test_output_that_comes_late_is_told_as_that(tmp_path, monkeypatch):
    def slow(*_, iopub_timeout, execution_timeout, **__):
        assert (iopub_timeout, execution_timeout) == (60, None)
        raise CellTimeoutError.error_from_timeout_and_cell(
            "Timeout waiting for IOPub output", 60, nbformat.v4.new_code_cell("x")
        )

    monkeypatch.setattr(jobs.papermill, "execute_notebook", slow)
    with pytest.raises(jobs.JobFailed, match="the output of the cell was not there 60 s after its end"):
        run(tmp_path / "run", write_notebook(tmp_path / "nb/01_a.ipynb", "1"), timeout=None)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_lets_the_kernel_save_and_leaves_a_report(tmp_path, number, code):
    write_notebook(
        tmp_path / "01_a.ipynb",
        # The signal is sent inside the try: the kernel may be interrupted before kill has returned.
        f"import os, threading\ntry:\n    os.kill(os.getppid(), {int(number)})\n"
        "    threading.Event().wait()\nexcept KeyboardInterrupt:\n    open('saved', 'w').write(str(os.getpid()))",
    )
    ended = subprocess.run(
        [sys.executable, "-m", "workbench.cli", "run", "01_a.ipynb", "--out", "run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        # A shell that starts the tests with "&" hands down an ignored SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr and ended.stderr.endswith("workbench: stopped\n")
    assert "01_a interrupted" in (tmp_path / "run/report.html").read_text(encoding="utf-8")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "saved").read_text()), 0)


def test_a_full_disk_does_not_hide_why_the_job_failed(tmp_path, monkeypatch):
    def full(folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(jobs, "write_pages", full)
    good, bad = write_notebook(tmp_path / "01_a.ipynb", "1"), write_notebook(tmp_path / "02_b.ipynb", "1 / 0")
    with pytest.raises(jobs.JobFailed, match="^ZeroDivisionError: .*No space left on device.*workbench report"):
        run(tmp_path / "bad", bad)
    with pytest.raises(StorageError, match="pages and report cannot be written to .*: make room"):
        run(tmp_path / "good", good)
