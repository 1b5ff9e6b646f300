"""A run is followed from another terminal until it ends, and asked from there. Starts processes."""

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fake_writer import train

from workbench.cli import main
from workbench.control import Control, requests
from workbench.run_folder import RunFolder
from workbench.watching import watch

TESTS = Path(__file__).parent


@pytest.fixture
def run(tmp_path):
    return RunFolder.at(tmp_path)


def test_a_pipe_gets_events_and_a_line_now_and_then(run):
    writer, out = threading.Thread(target=train, args=(run, 40, 0.005)), io.StringIO()
    writer.start()
    assert watch(run, out, every=0.05, tick=0.01) == 0
    writer.join()
    lines = out.getvalue().splitlines()
    assert "\x1b" not in out.getvalue() and lines[-1] == "finished at step 40"
    assert lines[-2].startswith("step 40/40 · loss ")
    assert sum("step 20: validation perplexity" in line for line in lines) == 1
    assert sum(line.startswith("step ") for line in lines) >= 2


def test_what_was_before_is_not_told_again(run):
    train(run, 40, 0)
    out = io.StringIO()
    assert watch(run, out) == 0
    assert [line[:12] for line in out.getvalue().splitlines()] == ["step 40/40 ·", "finished at "]


def test_a_run_that_died_is_said_to_be_dead(run, capsys):
    run.log_event("start", steps=9, pid=7, host="here")
    assert main(["watch", str(run.path)]) == 1
    assert "process 7 on here failed or was killed after step 0" in capsys.readouterr().out


def test_mistakes(run, capsys):
    assert main(["watch", str(run.path / "no")]) == 2
    assert "no such run folder; give the RUN" in capsys.readouterr().err
    assert main(["ask", str(run.path), "stop"]) == 2
    assert "no run is going on in" in capsys.readouterr().err
    assert main(["ask", str(run.path), "halt"]) == 2
    with Control(run):
        assert main(["ask", str(run.path), "pause"]) == 0 and requests(run) == {"pause"}
    assert capsys.readouterr().out == ""


def test_leaving_does_not_stop_the_run(run):
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    with Control(run) as control:
        run.log_event("start", steps=9)
        run.log_metrics({"step": 1, "loss": 2.0})
        process = subprocess.Popen(
            [sys.executable, "-m", "workbench.cli", "watch", str(run.path)],
            **{"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True},
        )
        assert process.stdout.readline() == "step 1 · loss 2\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20) == ("", "workbench: no longer watching; the run goes on\n")
        assert process.returncode == 130 and not control.poll().stop
