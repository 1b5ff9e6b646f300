"""Notebooks on several ranks: two real runs under msrun (a good one, one whose kernel is killed), the rest without.

Starts processes.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from tiny_notebooks import write_notebook

from workbench import rank_worker
from workbench.cli import main
from workbench.job_kernel import Rank
from workbench.jobs import Job, JobFailed, execute, plan, say_ended
from workbench.launching import Msrun, Ranks
from workbench.rank_jobs import OnRanks, _Watch
from workbench.rank_worker import job_of_rank, run_rank, state_file
from workbench.run_folder import RunFolder, write_json

PARAMETERS = 'RUN = "../runs/tutorial"  # path: the run folder\nKILLED = -1  # a rank'
START = (
    "import os\nimport mindspore as ms\nfrom mindspore import ops\nfrom workbench.device import joined_ranks\n"
    "with joined_ranks() as (rank, world):\n    print(rank, world, ops.AllReduce()(ms.Tensor([rank + 1.0])).asnumpy())"
)
AGAIN = (
    "if rank == KILLED:\n    os.kill(os.getpid(), 9)\n"
    "with joined_ranks():\n    print(RUN, ops.AllReduce()(ms.Tensor([rank + 1.0])).asnumpy())"
)


def ending(path):
    return nbformat.read(path, as_version=4).metadata.workbench


def printed(path):
    cells = nbformat.read(path, as_version=4).cells
    return "".join(o.text for c in cells for o in c.get("outputs", []) if o.output_type == "stream")


def left_over(name):
    found = []
    for process in psutil.process_iter():
        try:
            found += [process.pid] if name in process.environ() else []
        except psutil.Error:
            continue
    return found


def test_each_rank_runs_it_joined_from_start_to_end(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORKBENCH_TEST_GOOD", "1")
    write_notebook(tmp_path / "01_a.ipynb", START, AGAIN, parameters=PARAMETERS)
    out = tmp_path / "run 空"
    assert main(["run", str(tmp_path / "01_a.ipynb"), "--out", str(out), "--workers", "2"]) == 0
    told = capsys.readouterr()
    assert told.out == f"{out}/report.html\n" and told.err.startswith("1/1 01_a started\n1/1 01_a done in ")
    for rank, folder in enumerate((out, out / "ranks/1")):
        notebook = folder / "notebooks/01_a.ipynb"
        assert printed(notebook) == f"{rank} 2 [3.]\n{folder} [3.]\n"
        assert ending(notebook)["status"] == "done" and ending(notebook)["cells"] == 3
        assert json.loads(state_file(out / "ranks/logs/01_a", rank).read_text())["status"] == "done"
    assert (out / "notebooks/01_a.html").exists() and not list((out / "notebooks").glob("*.log"))
    assert "exit with exception" not in (out / "ranks/logs/01_a/msrun_0.log").read_text()
    assert "Traceback" not in (out / "ranks/logs/01_a/scheduler.log").read_text()
    assert left_over("WORKBENCH_TEST_GOOD") == []


def test_a_rank_that_is_killed_in_a_collective_ends_all_and_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORKBENCH_TEST_KILL", "1")
    write_notebook(tmp_path / "01_a.ipynb", START, AGAIN, parameters=PARAMETERS)
    out = tmp_path / "run"
    command = ["run", str(tmp_path / "01_a.ipynb"), "--out", str(out), "--workers", "2", "-p", "KILLED=1"]
    assert main(command) == 1
    killed, other = out / "ranks/1/notebooks/01_a.ipynb", out / "notebooks/01_a.ipynb"
    cause = "the kernel died: killed, out of memory or crashed in native code"
    told = capsys.readouterr().err.splitlines()
    assert told[-1] == (
        f"workbench: rank 1: {cause} (01_a.ipynb, code cell 3; executed notebook: {killed}); report: {out}/report.html"
    )
    assert (ending(killed)["status"], ending(killed)["problem"]) == ("failed", cause)
    assert (ending(other)["status"], ending(other)["problem"]) == ("stopped", f"stopped because rank 1: {cause}")
    assert printed(other) == "0 2 [3.]\n", "what it had shown is lost"
    assert f"stopped because rank 1: {cause}" in (out / "report.html").read_text(encoding="utf-8")
    assert left_over("WORKBENCH_TEST_KILL") == []


# A stand-in for msrun: starts a "rank" in a session of its own that writes its state and then does as told.
FAKE = """
import json, os, signal, subprocess, sys, time
logs, told = sys.argv[1], json.loads(sys.argv[2])
rank = '''
import json, os, signal, sys, time
logs, number, status, seconds = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
def say(status, problem=""):
    state = dict(pid=os.getpid(), status=status, cell=2, cells=3, problem=problem, time=time.time())
    with open(f"{logs}/.{number}", "w") as beside: json.dump(state, beside)
    os.rename(f"{logs}/.{number}", f"{logs}/rank_{number}.json")
def stop(*_):
    time.sleep(0.5); say("interrupted"); sys.exit(143)
signal.signal(signal.SIGTERM, signal.SIG_IGN if status == "deaf" else stop)
say("running")
time.sleep(seconds)
say(status, "ValueError: so" if status == "failed" else "")
time.sleep(60 if status == "failed" else 0)
'''
ranks = [subprocess.Popen([sys.executable, "-c", rank, logs, str(n), *map(str, how)], start_new_session=True)
         for n, how in enumerate(told)]
for process in ranks:
    process.wait()
"""


def fake(tmp_path, monkeypatch, *told):
    """A job, and the OnRanks that runs it under FAKE; ``told`` is (how it ends, after which seconds) of each rank."""
    source = write_notebook(tmp_path / "01_a.ipynb", "1", parameters=PARAMETERS)
    jobs = plan([source], {}, tmp_path / "run", tmp_path)
    on = OnRanks(jobs, Ranks(len(told)), RunFolder(tmp_path / "run"))
    command = [sys.executable, "-c", FAKE, str(on.logs(jobs[0])), json.dumps(told)]
    monkeypatch.setattr(Ranks, "command", lambda *_: command)
    return jobs[0], on


def test_the_first_ranks_cells_are_followed_and_all_have_to_be_done(tmp_path, monkeypatch):
    job, on = fake(tmp_path, monkeypatch, ("done", 0.5), ("done", 1.5))
    seen, start = [], time.monotonic()
    on(job, lambda *at: seen.append(at))
    assert seen == [(2, 3)] and time.monotonic() - start > 1.5


def test_a_rank_that_fails_is_named_and_the_others_say_why_they_stopped(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_TEST_FAIL", "1")
    monkeypatch.setattr("workbench.rank_jobs.GRACE", 0.5)
    job, on = fake(tmp_path, monkeypatch, ("done", 60), ("failed", 0.2))
    with pytest.raises(JobFailed, match=r"^rank 1: ValueError: so \(01_a.ipynb, code cell 2; .*/ranks/1/notebooks/"):
        on(job, lambda *at: None)
    problem = "stopped because rank 1: ValueError: so"
    assert ending(job.output) == {"cell": 2, "cells": 3, "status": "stopped", "problem": problem, "seconds": None}
    other = job_of_rank(job, on.root, 1).output
    assert ending(other)["status"] == "failed" and ending(other)["problem"] == "ValueError: so"
    assert left_over("WORKBENCH_TEST_FAIL") == []


@pytest.mark.parametrize("deaf", [False, True])
def test_a_signal_gives_time_to_save_and_a_second_one_does_not(tmp_path, monkeypatch, deaf):
    monkeypatch.setenv("WORKBENCH_TEST_STOP", "1")
    job, on = fake(tmp_path, monkeypatch, ("done", 60), ("deaf" if deaf else "done", 60))

    def read(rank):
        file = state_file(on.logs(job), rank)
        return json.loads(file.read_text())["status"] if file.exists() else ""

    def person():
        for seen in (["running", "running"], ["interrupted", "running"])[: 1 + deaf]:
            while [read(0), read(1)] != seen:
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)

    # A shell that starts the tests with "&" hands down an ignored SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sending = threading.Thread(target=person)
    try:
        sending.start()
        with pytest.raises(KeyboardInterrupt):
            on(job, lambda *at: None)
    finally:
        sending.join()
        signal.signal(signal.SIGINT, before)
    assert [read(0), read(1)] == ["interrupted", "running" if deaf else "interrupted"]
    if deaf:
        assert ending(job_of_rank(job, on.root, 1).output)["status"] == "interrupted"
    assert left_over("WORKBENCH_TEST_STOP") == []


class Said:
    """Stands for an Msrun that said something of its workers."""

    def __init__(self, logs, **bad):
        self.logs, self.scheduler_log = logs, logs / "scheduler.log"
        self.bad = {int(pid[1:]): code for pid, code in bad.items()}

    def ended_badly(self):
        return self.bad

    silent_ranks = Msrun.silent_ranks


def test_who_began_a_failure(tmp_path):
    def began(said, *states):
        for rank, state in enumerate(states):
            state_file(tmp_path, rank).unlink(missing_ok=True)
            if state:
                write_json(state_file(tmp_path, rank), {"pid": rank, "problem": "", "time": 0.0, **state})
        watch = _Watch({rank: None for rank in range(len(states))}, said)
        failed = watch.failed_ranks(watch.states())
        return sorted((rank, failed[rank][2]) for rank in failed), min(
            failed, key=lambda rank: failed[rank][:2], default=None
        )

    def failed(problem, at):
        return {"status": "failed", "problem": problem, "time": at}

    going = {"status": "running"}
    assert began(Said(tmp_path), going, going) == ([], None)
    assert began(Said(tmp_path), failed("A", 2.0), failed("B", 1.0), going) == ([(0, "A"), (1, "B")], 1)
    # The rank that died is noticed after the one whose connection to it broke.
    assert began(Said(tmp_path), failed("RuntimeError: peer", 1.0), failed("the kernel died: x", 2.0))[1] == 1
    said = "its process was ended by SIGKILL: killed, or out of memory"
    assert began(Said(tmp_path, p1=-9), going, going) == ([(1, said)], 1)
    # The others' processes end when the scheduler tells them of one that hangs.
    (tmp_path / "scheduler.log").write_text("[ERROR] x] The node: 1 is timed out. It may\nThe node: 9 is timed out.\n")
    ranks, first = began(Said(tmp_path), failed("the kernel died: x", 2.0), going)
    assert first == 1 and [rank for rank, _ in ranks] == [0, 1, 9]
    assert [why.split(":")[0] for _, why in ranks[1:]] == [
        "not heard of for 30 s",
        "not heard of for 30 s, on another machine",
    ]
    (tmp_path / "scheduler.log").unlink()
    (tmp_path / "worker_1.log").write_text("[WARNING] x\nTraceback\nImportError: no numpy\n")
    assert began(Said(tmp_path, p77=1), going, {}) == ([(1, "did not start: ImportError: no numpy")], 1)


def test_a_rank_writes_down_how_it_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_worker.time, "sleep", lambda seconds: None)
    job = job_of_rank(Job(tmp_path / "a.ipynb", tmp_path / "o/a.ipynb", {"RUN": "/x"}), RunFolder(tmp_path), 3)
    assert job.values == {"RUN": f"{tmp_path}/ranks/3"} and job.output == tmp_path / "ranks/3/notebooks/a.ipynb"

    def ended(how):
        def run(job, on_cell, timeout, rank):
            on_cell(2, 5)
            if how:
                raise how

        monkeypatch.setattr(rank_worker, "execute", run)
        code = run_rank(job, tmp_path, Rank(3), None)
        state = json.loads(state_file(tmp_path, 3).read_text())
        return code, state["status"], state["cell"], state["problem"]

    assert ended(None) == (0, "done", 2, "")
    assert ended(JobFailed(job, 4, "no data")) == (1, "failed", 4, "no data")
    assert ended(KeyboardInterrupt()) == (143, "interrupted", 2, "stopped by a signal")


def test_a_torn_notebook_still_says_how_it_ended(tmp_path):
    source = write_notebook(tmp_path / "a.ipynb", "1", parameters=PARAMETERS)
    job = Job(source, tmp_path / "out/a.ipynb", {"KILLED": 7})
    for torn in (None, "", '{"cells": [{'):
        if torn is not None:
            job.output.write_text(torn)
        say_ended(job, "stopped", "because", {"cell": 2, "cells": 2})
        assert ending(job.output)["status"] == "stopped" and ending(job.output)["cell"] == 2
        assert "KILLED = 7" in job.output.read_text()


def test_a_kernel_that_cannot_join_is_told_in_one_line(tmp_path, monkeypatch):
    monkeypatch.delenv("MS_ROLE", raising=False)
    source = write_notebook(tmp_path / "a.ipynb", "open('started', 'w')")
    job = Job(source, tmp_path / "out.ipynb")
    with pytest.raises(JobFailed, match="^the kernel could not join the other ranks: .*as rank 1 but joined as rank 0"):
        execute(job, lambda *at: None, None, Rank(1))
    assert ending(job.output)["status"] == "failed" and not (tmp_path / "started").exists()


def test_a_dry_run_is_what_is_run_on_each_machine(tmp_path, monkeypatch, capsys):
    source = write_notebook(tmp_path / "a b/01_a.ipynb", "1", parameters=PARAMETERS + '\nDEVICE = "CPU"\nX = "it"')
    command = ["run", str(source), "--out", str(tmp_path / "r 1"), "--dry-run", "-p", "X=it's", "-p", "DEVICE=Ascend"]
    many = ["--workers", "16", "--local-workers", "8", "--master-addr", "10.0.0.1", "--msrun", "bind_core=True"]
    assert main([*command, *many]) == 0
    blocks = capsys.readouterr().out.split("\n\n")
    for node, block in enumerate(blocks):
        ran = next(line for line in block.splitlines() if line.startswith("env "))
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        words = subprocess.run(
            ["sh", "-c", f"printf '%s\\n' {ran}"], capture_output=True, text=True
        ).stdout.splitlines()
        assert (
            words[1] == f"PATH={Path(sys.executable).parent}:/usr/bin:/bin" and words[3] == "HCCL_CONNECT_TIMEOUT=600"
        )
        jobs = plan([source], {"X": "it's", "DEVICE": "Ascend"}, tmp_path / "r 1", tmp_path)
        ranks = Ranks(16, 8, node, "10.0.0.1", options=("bind_core=True",))
        assert words[4:] == OnRanks(jobs, ranks, RunFolder(tmp_path / "r 1")).command(jobs[0])
        assert f"--node_rank={node}" in words and "--master_port=8118" in words and "-pX=it's" in words
        assert f"ranks {8 * node} to {8 * node + 7} of 16" in block and "set_env.sh" in block
    assert len(blocks) == 2 and "result in" in blocks[0] and "result in" not in blocks[1]
    assert main(command) == 0
    words = ["run", str(source), "-pDEVICE=Ascend", "-pX=it's", "--out", str(tmp_path / "r 1")]
    assert shlex.split(capsys.readouterr().out)[3:] == words
    assert not (tmp_path / "r 1").exists()
