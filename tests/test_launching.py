"""Two processes under msrun: a kernel's kind of end, a failing rank, a rank that hangs; and what ranks there can be.

Starts processes.
"""

import signal
import sys
import time

import psutil
import pytest

from workbench import rank_worker
from workbench.errors import SettingError
from workbench.launching import LaunchFailed, Msrun, Ranks, launch

# Ends as a notebook's kernel does, without the interpreter's own clean-up.
PROGRAM = """
import os, sys, time
from workbench.device import joined_ranks, use_device
use_device("CPU")
with joined_ranks() as (rank, world):
    import mindspore as ms
    from mindspore import ops
    print("sum", rank, world, ops.AllReduce()(ms.Tensor([rank + 1.0])).asnumpy(), sys.argv[1], flush=True)
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def left_over(path):
    return [p.pid for p in psutil.process_iter(["cmdline"]) if str(path) in (p.info["cmdline"] or [])]


def test_ranks_join_sum_leave_and_are_read_back_in_order(program):
    said = launch(str(program), ["well"], timeout=300)
    for rank, text in enumerate(said):
        assert f"sum {rank} 2 [3.] well" in text
    assert not left_over(program)


def test_the_failing_ranks_own_words_are_the_error_and_nobody_is_left(tmp_path):
    path = tmp_path / "fail.py"
    path.write_text(
        "import os, time\n"
        "if os.environ['RANK_ID'] == '1':\n    raise ValueError('rank 1 cannot go on')\n"
        "time.sleep(1000)\n"
    )
    with pytest.raises(LaunchFailed, match="(?s)a rank failed.*rank 1: ValueError: rank 1 cannot go on"):
        launch(str(path), timeout=300)
    assert not left_over(path)


def test_a_program_that_does_not_end_is_ended(tmp_path):
    path = tmp_path / "hang.py"
    path.write_text("import time\ntime.sleep(1000)\n", encoding="utf-8")
    with pytest.raises(LaunchFailed, match="not finished after 3 s"):
        launch(str(path), timeout=3)
    assert not left_over(path)


def test_the_end_of_a_launch_reaches_what_left_its_parents(tmp_path):
    tree = (
        "import subprocess, sys, time\n"
        "inner = 'import os, time; os.fork() or time.sleep(100); time.sleep(100)'\n"
        "subprocess.Popen([sys.executable, '-c', inner], start_new_session=True)\n"
    )
    with Msrun([sys.executable, "-c", tree], tmp_path) as msrun:
        msrun.process.wait()
        while len(msrun.processes()) < 2:
            time.sleep(0.05)
    assert msrun.processes() == []


@pytest.mark.parametrize(
    "given, message",
    [
        ({"workers": 3, "local_workers": 2}, "every machine runs the same number"),
        ({"workers": 4, "local_workers": 2}, "need --master-addr"),
        (
            {"workers": 4, "local_workers": 2, "master_addr": "a", "node_rank": 2},
            "there are 2 machines, counted from 0",
        ),
        ({"workers": 2, "options": ("bind_cor=True",)}, "did you mean 'bind_core'"),
        ({"workers": 2, "options": ("bind_core",)}, "expected bind_core=VALUE"),
    ],
)
def test_ranks_that_cannot_be_are_refused(given, message):
    with pytest.raises(SettingError, match=message):
        Ranks(**given)


def test_a_rank_is_stopped_once():
    before = signal.signal(signal.SIGTERM, rank_worker._stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # a scheduler's, and the launcher's that passes it on: while it saves
    finally:
        signal.signal(signal.SIGTERM, before)
