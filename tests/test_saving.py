"""Checkpoints in the background: the same bytes, one at a time, no error lost, no kill and no full disk that harms."""

import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import threading
import traceback
import weakref
from pathlib import Path

import numpy as np
import psutil
import pytest

from workbench.errors import DataError, StorageError
from workbench.run_folder import RunFolder
from workbench.train import saving
from workbench.train.checkpoint import clear_half_written, latest_checkpoint, list_checkpoints, save_checkpoint
from workbench.train.saving import CheckpointWriter

KB = 1024


def content(step, kilobytes=300):
    return {"w": np.full(kilobytes * KB // 12, step, np.float32)}, {"m": np.zeros(kilobytes * KB // 6, np.float32)}, {}


@pytest.fixture
def run(tmp_path):
    return RunFolder.at(tmp_path / "run")


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 4 MB."""
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", tmp_path], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no disk can be mounted here: {made.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


@pytest.fixture
def gate(monkeypatch):
    """The first write waits at (begun, go); ``gate.log`` is what writers did."""
    write = saving.write_checkpoint

    class Gate:
        begun, go, log = threading.Event(), threading.Event(), []

    def waiting(run, step, *rest):
        Gate.log.append(("begin", step))
        Gate.begun.set()
        assert Gate.go.wait(60)
        path = write(run, step, *rest)
        Gate.log.append(("end", step))
        return path

    monkeypatch.setattr(saving, "write_checkpoint", waiting)
    yield Gate
    Gate.go.set()


def names(run):
    return sorted(p.name for p in run.checkpoints.iterdir())


def test_the_thread_writes_the_bytes_that_the_caller_would(run, tmp_path):
    other, told = RunFolder.at(tmp_path / "other"), []
    with CheckpointWriter(run, 2, lambda *facts: told.append(facts)) as writer:
        assert writer.wait() is None
        for step in (1, 2, 3):
            writer.save(step, *content(step))
            save_checkpoint(other, step, *content(step), keep=2)
        assert writer.wait() == run.checkpoints / "step_000003"
    assert names(run) == names(other) == ["step_000002", "step_000003"]
    for folder in list_checkpoints(run):
        for file in folder.iterdir():
            assert file.read_bytes() == (other.checkpoints / folder.name / file.name).read_bytes()
    assert [(step, path.name) for step, path, _ in told] == [(s, f"step_{s:06d}") for s in (1, 2, 3)]
    assert all(seconds > 0 for *_, seconds in told)


def test_one_is_in_flight_at_most_and_the_next_waits(run, gate):
    threading.Thread(target=lambda: (gate.begun.wait(), gate.go.set())).start()
    with CheckpointWriter(run, 2) as writer:
        for step in (1, 2):
            assert writer.save(step, *content(step)) >= 0
        assert gate.log[:2] == [("begin", 1), ("end", 1)]
    assert gate.log == [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]


def test_the_snapshot_is_let_go_once_it_is_written(run):
    arrays, moments, state = content(1)
    alive = weakref.ref(arrays["w"])
    with CheckpointWriter(run, 2) as writer:
        writer.save(1, arrays, moments, state)
        del arrays, moments
        writer.wait()
        # The thread drops its last reference just after it has told the result.
        writer.save(2, *content(2))
        writer.wait()
        assert alive() is None


def test_what_a_state_gives_shares_no_memory_with_what_steps_change():
    from step_runs import CONFIG, TRAIN, Transformer, TrainState

    state = TrainState.fresh(Transformer(CONFIG, seed=0), TRAIN)
    changed = [*state.parameters, *state.optimizer.moment1, *state.optimizer.moment2, state.scalars]
    given = [array for arrays in state.arrays() for array in arrays.values()]
    assert len(given) == len(changed)
    assert not any(np.shares_memory(a, p.asnumpy()) for a in given for p in changed)


def test_an_error_is_raised_by_the_next_call_and_once(run):
    with CheckpointWriter(run, 2) as writer:
        writer.save(1, *content(1))
        writer.save(1, *content(1))
        with pytest.raises(DataError, match="step_000001 is there already"):
            writer.save(2, *content(2))
        assert writer.wait() == run.checkpoints / "step_000001"
    assert names(run) == ["step_000001"], "what the refused call was given was written"


def test_leaving_raises_what_writing_raised_but_never_hides_the_first_error(run):
    save_checkpoint(run, 1, *content(1), keep=2)
    with pytest.raises(DataError, match="step_000001 is there already"), CheckpointWriter(run, 2) as writer:
        writer.save(1, *content(1))
    with pytest.raises(KeyError, match="first") as first, CheckpointWriter(run, 2) as writer:
        writer.save(1, *content(1))
        raise KeyError("first")
    assert "Besides, checkpoint" in first.value.__notes__[0] and "there already" in first.value.__notes__[0]


def test_an_error_of_the_callback_is_raised_and_the_checkpoint_stays(run):
    def fail(step, path, seconds):
        raise RuntimeError("told")

    with pytest.raises(RuntimeError, match="told"), CheckpointWriter(run, 2, fail) as writer:
        writer.save(1, *content(1))
    assert latest_checkpoint(run).state["step"] == 1


def test_what_is_in_flight_when_an_error_leaves_the_block_is_finished(run, gate):
    with pytest.raises(KeyError), CheckpointWriter(run, 2) as writer:
        writer.save(1, *content(1))
        gate.begun.wait()
        threading.Thread(target=gate.go.set).start()
        raise KeyError
    assert latest_checkpoint(run).state["step"] == 1


def test_waiting_can_be_interrupted_and_goes_on_after(run, gate):
    main = threading.get_ident()

    def interrupt():
        functions = set()
        while "result" not in functions:
            functions = {frame.name for frame in traceback.extract_stack(sys._current_frames()[main])}
        signal.pthread_kill(main, signal.SIGINT)

    with CheckpointWriter(run, 2) as writer:
        writer.save(1, *content(1))
        with pytest.raises(KeyboardInterrupt):
            threading.Thread(target=interrupt).start()
            writer.wait()
        gate.go.set()
        assert writer.wait() == run.checkpoints / "step_000001"


def test_a_full_disk_leaves_the_last_good_one_and_takes_no_room(small_disk):
    """Full at each place where a checkpoint of 1.2 MB can find it so."""
    run, filler = RunFolder.at(small_disk), small_disk / "filler"
    for step in (1, 2):
        save_checkpoint(run, step, *content(step, 1200), keep=2)
    for left in range(0, 1210, 90):
        filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - left * KB))
        free = shutil.disk_usage(small_disk).free
        with pytest.raises(StorageError) as raised, CheckpointWriter(run, 2) as writer:
            writer.save(3, *content(3, 1200))
        told = str(raised.value)
        assert "checkpoint step_000003 could not be written" in told and "\n" not in told
        assert f"No space left on device (1.2 MB needed, {free / 1e6:.1f} MB free); step_000002 is whole" in told
        assert shutil.disk_usage(small_disk).free == free
        assert names(run) == ["step_000001", "step_000002"]
        assert latest_checkpoint(run).state["step"] == 2
        filler.unlink()
    with CheckpointWriter(run, 2) as writer:
        writer.save(3, *content(3, 1200))
    assert names(run) == ["step_000002", "step_000003"]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_file_that_may_not_grow_is_the_same_without_a_disk_of_its_own(run, damaged):
    for step in (1, 2):
        save_checkpoint(run, step, *content(step), keep=2)
    if damaged:
        (run.checkpoints / "step_000002" / "model.safetensors").write_bytes(b"")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150 * KB, limits[1]))
    try:
        with pytest.raises(StorageError, match=rf"File too large .*; step_00000{1 if damaged else 2} is whole; mend"):
            save_checkpoint(run, 3, *content(3), keep=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(run) == ["step_000001", "step_000002"]


@pytest.mark.parametrize(
    "harm, said",
    [
        (lambda run: run.checkpoints.write_text(""), "Not a directory .* there is no earlier one"),
        (lambda run: run.path.rename(run.path.with_name("gone")).with_name("run").touch(), "Not a directory"),
    ],
)
def test_a_folder_that_is_none_is_told(run, harm, said):
    run.log_event("start")
    harm(run)
    with pytest.raises(StorageError, match=f"step_000001 could not be written to .*: {said}"):
        save_checkpoint(run, 1, *content(1), keep=2)


def test_a_folder_that_vanishes_meanwhile_is_told(run, monkeypatch):
    from workbench.train import checkpoint as module

    monkeypatch.setattr(module, "write_json", lambda *_: shutil.rmtree(run.path))
    with pytest.raises(StorageError, match="No such file or directory .* nothing free.*there is no earlier one"):
        save_checkpoint(run, 1, *content(1), keep=2)


def test_old_ones_that_cannot_be_removed_are_told_and_the_new_one_stays(run, monkeypatch):
    save_checkpoint(run, 1, *content(1), keep=1)
    with monkeypatch.context() as patched, pytest.raises(StorageError, match="step_000002 is written; make"):
        patched.setattr(shutil, "rmtree", lambda path, **_: os.rmdir(path))
        save_checkpoint(run, 2, *content(2), keep=1)
    assert latest_checkpoint(run).state["step"] == 2 and len(list_checkpoints(run)) == 1


def test_only_what_dead_processes_left_is_cleared(run):
    host, own = platform.node(), psutil.Process()
    start = int(own.create_time())
    dead = [f".step_000001.{host}.{own.pid}.{start - 100}", f".old-step_000001.{host}.{2**22 + 1}.{start}"]
    dead += [".step_000002.other.host.1.5"]
    alive = [f".step_000003.{host}.{own.pid}.{start}", ".step_000004.other.host.1.5", ".step_000005.odd", "step_x"]
    for name in (*dead, *alive):
        (run.checkpoints / name).mkdir(parents=True)
        (run.checkpoints / name / "model.safetensors").touch()
    for path in (run.checkpoints / dead[2], run.checkpoints / dead[2] / "model.safetensors"):
        os.utime(path, (1e9, 1e9))
    assert sorted(clear_half_written(run)) == sorted(dead)
    assert names(run) == sorted(alive)
    assert clear_half_written(RunFolder.at(run.path / "none")) == []


def test_killed_writers_leave_a_whole_newest_checkpoint(run):
    """Starts 30 processes that are killed at random moments, and one for each file operation of a checkpoint."""
    command = [sys.executable, str(Path(__file__).with_name("killed_writers.py")), str(run.path), "30", "6"]
    top = str(Path(__file__).parents[1])
    ended = subprocess.run(command, env=os.environ | {"PYTHONPATH": top}, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert not told["mindspore"], "reading and writing checkpoints needs no MindSpore"
    assert told["half_written"] > 0 and told["operations"] > 20 and told["half_written_at_operations"] > 10
