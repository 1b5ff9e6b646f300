"""Two processes under msrun: a kernel's kind of end, a failing rank, a rank that hangs."""

import psutil
import pytest

from workbench.launching import LaunchFailed, launch

# Ends as a notebook's kernel does, without the interpreter's own clean-up.
PROGRAM = """
import os, sys, time
from workbench.device import joined_ranks, use_device
use_device("CPU")
with joined_ranks() as (rank, world):
    import mindspore as ms
    from mindspore import ops
    print("sum", rank, world, ops.AllReduce()(ms.Tensor([rank + 1.0])).asnumpy(), sys.argv[1], flush=True)
    if sys.argv[1] == "fail" and rank == 1:
        raise ValueError("rank 1 cannot go on")
    if sys.argv[1] == "fail":
        ops.AllReduce()(ms.Tensor([1.0])).asnumpy()
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


def test_the_failing_ranks_own_words_are_the_error_and_nobody_is_left(program):
    with pytest.raises(LaunchFailed, match="(?s)a rank failed.*rank 1: ValueError: rank 1 cannot go on"):
        launch(str(program), ["fail"], timeout=300)
    assert not left_over(program)


def test_a_program_that_does_not_end_is_ended(tmp_path):
    path = tmp_path / "hang.py"
    path.write_text("import time\nprint('waiting', flush=True)\ntime.sleep(1000)\n", encoding="utf-8")
    with pytest.raises(LaunchFailed, match="not finished after 8 s"):
        launch(str(path), timeout=8)
    assert not left_over(path)
