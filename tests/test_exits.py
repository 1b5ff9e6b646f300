"""Exit codes: real processes that die, and the evidence that tells equal codes apart."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.diagnose.exits import classify_exit, last_error
from workbench.errors import SettingError

OOM = (
    "[9.1] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,task=python,pid=77,uid=0\n"
    "[9.2] Out of memory: Killed process 77 (python) total-vm:9kB, anon-rss:3145728kB, file-rss:0kB, shmem-rss:0kB\n"
)
MEMCG = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/docker/ab,task_memcg=/docker/ab,task=python,pid=77,uid=0\n"
    "Memory cgroup out of memory: Killed process 77 (python) total-vm:9kB, anon-rss:5kB, file-rss:0kB\n"
)
TRACEBACK = """\
step 3
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
RuntimeError: Sync stream failed

----------------------------------------------------
- C++ Call Stack: (For framework developers)
mindspore/ccsrc/pynative/base.cc:12 Run
"""


@pytest.mark.parametrize(
    "program, code, cause",
    [
        ("pass", 0, "finished"),
        ("import os; os.kill(os.getpid(), 9)", -9, "killed from outside"),
        ("import os; os.kill(os.getpid(), 15)", -15, "asked to stop"),
        ("import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()", -6, "aborted"),
        ("import os; os.kill(os.getpid(), 11)", -11, "segmentation fault"),
        ("1/0", 1, "Python error"),
        ("import sys; sys.exit(2)", 2, "wrong usage"),
        ("import os; os.kill(os.getpid(), 10)", -10, "killed by SIGUSR1"),
        ("import sys; sys.exit(42)", 42, "unknown exit code"),
        ("bytearray(2**62)", 1, "host allocation refused"),
    ],
)
def test_real_processes(program, code, cause):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == code
    finding = classify_exit(done.returncode, output_tail=done.stderr)
    assert finding.cause == cause
    assert finding.severity == {"finished": "note", "asked to stop": "warning"}.get(cause, "fatal")
    if code < 0:  # what a shell would report for the same death
        assert classify_exit(128 - code).cause == cause


def test_137_with_a_record_of_the_pid_is_host_memory_with_its_size():
    finding = classify_exit(137, kernel_log=OOM, pid=77)
    assert finding.cause == "host out of memory"
    assert any("3.00 GiB" in e for e in finding.evidence) and any("machine itself" in e for e in finding.evidence)


def test_137_under_a_container_limit_names_the_cgroup():
    finding = classify_exit(-9, kernel_log=MEMCG)
    assert finding.cause == "host out of memory" and any("/docker/ab" in e for e in finding.evidence)


def test_137_with_a_record_of_another_process_is_not_proof():
    finding = classify_exit(137, kernel_log=OOM, pid=78)
    assert finding.cause == "killed from outside"
    assert any("77 (python)" in e for e in finding.evidence) and "container" in finding.next_step


def test_137_alone_says_where_to_look():
    assert "journalctl" in classify_exit(137).next_step
    clean = classify_exit(137, kernel_log="[1.0] usb 1-1: new device\n")
    assert clean.cause == "killed from outside" and "scheduler" in clean.next_step


def test_cgroup_counter_decides_where_the_kernel_log_is_out_of_reach():
    events = "low 0\nhigh 3\nmax 12\noom 1\noom_kill {}\noom_group_kill 0\n"
    assert classify_exit(137, cgroup_events=events.format(1)).cause == "host out of memory"
    clean = classify_exit(137, cgroup_events=events.format(0))
    assert clean.cause == "killed from outside" and any("oom_kill 0" in e for e in clean.evidence)


def test_msrun_killing_the_other_ranks_is_not_the_cause():
    finding = classify_exit(-9, output_tail="[ERROR] There's worker exits with exception, kill all other workers.")
    assert "another rank failed first" in finding.next_step


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: Device(id:0) memory isn't enough and alloc failed, kernel name: MatMul, alloc size: 99B.",
        "RuntimeError: Memory not enough: current free memory size[5] is smaller than required size[9].",
        "RuntimeError: NPU out of memory. Tried to allocate 22.00 MiB (NPU 0; 60.97 GiB total capacity)",
        "Memory_Allocation_Failure(EL0004): Failed to allocate memory requested by GE module.",
        "Out of memory, Alloc GE memory failed, size: 99",
        "rtMalloc failed, error code 207001",
    ],
)
def test_device_memory_is_told_from_host_memory(line):
    assert classify_exit(1, kernel_log=OOM, output_tail=line + "\nmore\n").cause == "device out of memory"
    # The same line is only a warning of the memory pool where the process was killed or stopped.
    assert classify_exit(137, kernel_log=OOM, output_tail=line).cause == "host out of memory"
    assert classify_exit(143, output_tail=line).cause == "asked to stop"


def test_the_error_is_the_line_after_the_frames_of_the_last_traceback():
    assert last_error(TRACEBACK) == "RuntimeError: Sync stream failed"
    chained = "Traceback (most recent call last):\n  x\nKeyError: 'a'\n\nDuring handling, another:\n\n" + TRACEBACK
    assert last_error(chained) == "RuntimeError: Sync stream failed"
    assert last_error("Traceback (most recent call last):\n  x\nworkbench.errors.DataError: 第 3 行\n") == (
        "workbench.errors.DataError: 第 3 行"
    )
    assert last_error("all is well") is None
    assert "RuntimeError: Sync stream failed" in classify_exit(1, output_tail=TRACEBACK).evidence


def test_code_1_without_a_traceback_is_no_python_error():
    assert classify_exit(1, output_tail="make: *** Error 1").cause == "program error"


def test_segfault_names_the_known_mindspore_cause_and_the_kernel_line():
    log = "[1.0] python[5]: segfault at 0 ip 7f sp 7f error 4 in libmindspore_core.so\n[1.1] java[6]: segfault at 0\n"
    finding = classify_exit(139, kernel_log=log, pid=5)
    assert "init()" in finding.next_step and any("libmindspore_core" in e for e in finding.evidence)


@pytest.mark.parametrize("code", [256, -65, 1.0, "137", True, None])
def test_what_is_no_exit_code_is_refused(code):
    with pytest.raises(SettingError, match="0 to 255"):
        classify_exit(code)


@settings(deadline=None, max_examples=150)
@given(
    st.integers(-64, 255),
    st.text(max_size=200),
    st.text(max_size=60),
    st.text(max_size=200),
    st.none() | st.integers(1, 99),
)
def test_every_code_and_any_text_gives_a_finding(code, log, events, output, pid):
    finding = classify_exit(code, log, events, output, pid)
    assert finding.layer == "exit" and str(code) in finding.evidence[0]
    assert (finding.severity == "note") == (code == 0)
