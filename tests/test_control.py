"""A run obeys requests in its folder and signals, and nothing that was asked of another run. Starts processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest

from workbench import control as module
from workbench.control import Asked, Control, ask, opened_by, requests
from workbench.errors import SettingError
from workbench.run_folder import RunFolder

LOOP = """
import sys, time
from pathlib import Path
import workbench.control
from workbench.control import Control
workbench.control.SAME_SECONDS = 0.0 if "each" in sys.argv else 1.0
from workbench.run_folder import RunFolder
with Control(RunFolder.at(sys.argv[1])) as control:
    print("open", flush=True)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        asked = control.poll()
        if asked.stop and "stop" in sys.argv:
            print("stopped by", asked.stop, flush=True)
            break
        if asked.stop:
            print("noted", flush=True)
            while True:
                time.sleep(0.01)
        time.sleep(0.005)
"""


@pytest.fixture
def run(tmp_path):
    return RunFolder.at(tmp_path / "run 空")


def started(run, *how):
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP, str(run.path), *how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "open\n"
    return process


def test_each_request_is_told_until_it_is_served(run):
    with Control(run) as control:
        assert control.poll() == Asked()
        ask(run, "save")
        assert control.poll() == Asked(save=True) and control.poll().save
        control.done("save")
        ask(run, "pause")
        ask(run, "pause")
        assert control.poll() == Asked(paused=True)
        assert json.loads((run.path / "control" / "pause.json").read_text())["by"].endswith(socket.gethostname())
        ask(run, "stop")
        assert control.poll() == Asked("the run folder", paused=True) and requests(run) == {"stop", "pause"}
        ask(run, "continue")
        ask(run, "continue")
        assert not control.poll().paused
        control.done("stop")
        control.done("stop")
        assert control.poll() == Asked()


def test_a_word_that_is_no_request(run):
    with Control(run):
        with pytest.raises(SettingError, match="stop, save, thaw, pause or continue, not 'halt'"):
            ask(run, "halt")


def test_no_request_outlives_its_run(run):
    with pytest.raises(SettingError, match="no run is going on in .* nothing to stop"):
        ask(run, "stop")
    with pytest.raises(KeyError):
        with Control(run):
            ask(run, "stop")
            raise KeyError
    assert requests(run) == set() and opened_by(run) is None
    with Control(run) as control:
        assert control.poll() == Asked()


def test_requests_to_a_killed_run_do_not_reach_the_next(run):
    process = started(run)
    with pytest.raises(SettingError, match=f"process {process.pid} is training into .*run 空"):
        Control(run).__enter__()
    ask(run, "stop")
    process.kill()
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.005)
    with pytest.raises(SettingError, match="no run is going on"):
        ask(run, "stop")
    process.communicate()
    with Control(run) as control:
        assert control.poll() == Asked()


@pytest.mark.parametrize("change, counts", [({}, True), ({"started": 1.0}, False), ({"host": "elsewhere"}, True)])
def test_who_has_it_open(run, change, counts):
    with Control(run):
        file = run.path / "control" / "open.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
        assert (opened_by(run) is not None) == counts


def test_a_run_that_died_on_another_machine_is_taken_over(run):
    (run.path / "control").mkdir(parents=True)
    (run.path / "control" / "open.json").write_text('{"pid": 1, "host": "elsewhere", "started": 1, "time": 1.0}')
    with Control(run):
        assert opened_by(run)["pid"] == os.getpid()


def test_paused_until_continued_or_asked_for_more(run):
    with Control(run) as control:
        ask(run, "pause")
        for what, expected in [("save", Asked("", True, True)), ("stop", Asked("the run folder", False, True))]:
            later = threading.Timer(0.05, ask, (run, what))
            later.start()
            assert control.wait_while_paused(tick=0.01) == expected
            control.done(what)
            later.join()
        later = threading.Timer(0.05, ask, (run, "continue"))
        later.start()
        assert control.wait_while_paused(tick=0.01) == Asked()
        later.join()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_is_noted(run, number):
    process = started(run, "stop")
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (out, err, process.returncode) == (f"stopped by {signal.Signals(number).name}\n", "", 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_stops_at_once(run, number):
    process = started(run, "each")
    process.send_signal(number)
    assert process.stdout.readline() == "noted\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert err.strip().endswith("KeyboardInterrupt") and opened_by(run) is None and requests(run) == set()


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_signals_close_together_are_one_request(run, monkeypatch, second):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with Control(run) as control:
        signal.raise_signal(signal.SIGTERM)
        now[0] += 0.5
        signal.raise_signal(second)
        assert control.poll().stop == "SIGTERM"
        now[0] += 0.6
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        # The third is not Python's to hear.
        assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)] == [signal.SIG_DFL] * 2


def test_handlers_are_put_back(run):
    mine = lambda number, frame: None  # noqa: E731
    before = {number: signal.signal(number, mine) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with pytest.raises(KeyError):
            with Control(run):
                assert signal.getsignal(signal.SIGTERM) != mine
                raise KeyError
        assert [signal.getsignal(number) for number in before] == [mine, mine]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_in_another_thread_requests_work_and_signals_stay(run):
    before, seen = signal.getsignal(signal.SIGINT), []

    def work():
        with Control(run) as control:
            ask(run, "stop")
            seen.extend([control.poll().stop, signal.getsignal(signal.SIGINT)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == ["the run folder", before] and signal.getsignal(signal.SIGINT) == before


def test_a_fork_dies_of_a_signal(run):
    with Control(run) as control:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.write(writing, b"r")  # what comes before this is dropped by Python's own fork handling
            time.sleep(20)
            os._exit(0)
        os.read(reading, 1)
        os.kill(child, signal.SIGTERM)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM
        assert control.poll() == Asked()


CELL = """
import time
import workbench.control
from workbench.control import Control
from workbench.run_folder import RunFolder
workbench.control.SAME_SECONDS = 0.0
with Control(RunFolder.at({run!r})) as control:
    print("open", flush=True)
    while not control.poll().stop:
        time.sleep(0.005)
    print(control.poll().stop, flush=True)
    time.sleep({linger})
    raise RuntimeError("stopped after its step")
"""


def test_interrupting_a_cell_of_a_kernel(run):
    from ipykernel.kernelspec import RESOURCES, get_kernel_dict
    from jupyter_client import KernelManager
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

    class ThisPython(KernelSpecManager):
        def get_kernel_spec(self, kernel_name):
            return KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())

    manager = KernelManager(kernel_spec_manager=ThisPython(), transport_encryption="auto")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        for linger, interrupts, error in [(0, 1, "RuntimeError"), (30, 2, "KeyboardInterrupt")]:
            sent, heard, errors = client.execute(CELL.format(run=str(run.path), linger=linger)), [], []
            while True:
                message = client.get_iopub_msg(timeout=20)
                content = message["content"]
                if message["parent_header"].get("msg_id") != sent:
                    continue
                if content.get("execution_state") == "idle":
                    break
                errors += [content["ename"]] if message["msg_type"] == "error" else []
                if message["msg_type"] == "stream" and content["text"].strip():
                    heard += content["text"].split()
                    if len(heard) <= interrupts:  # after "open", and in the second round after "SIGINT"
                        manager.interrupt_kernel()
            assert (heard, errors) == (["open", "SIGINT"], [error])
            assert opened_by(run) is None
        client.execute_interactive("1 + 1", timeout=20)  # the kernel is as it was
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
