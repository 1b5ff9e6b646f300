"""Kills processes that write checkpoints, at random moments and at each of their file operations.

    python killed_writers.py RUN KILLS SEED

After every kill the newest checkpoint has to load, hold what was written and be no older than the last
one that its writer reported; what is half-written has to be cleared, and not while its writer lives.
Prints one JSON object. Imports no MindSpore, so that children can be forked and cost milliseconds.
"""

import json
import os
import random
import signal
import sys
import time
import traceback

import numpy as np

from workbench.run_folder import RunFolder
from workbench.train.checkpoint import (
    clear_half_written,
    latest_checkpoint,
    list_checkpoints,
    remove_old,
    save_checkpoint,
)
from workbench.train.saving import CheckpointWriter

OPERATIONS = (
    "open",
    "os.mkdir",
    "os.chmod",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.scandir",
    "fsync",
)  # fsync: ours


def content(step):
    rng = np.random.default_rng(step)
    weights, moments = {"w": rng.random(50_000, np.float32)}, {"m": rng.random(100_000, np.float32)}
    return weights, moments, {"perplexity": float(rng.integers(2, 9)), "position": 16 * step}


def check(run, reported):
    """Of a run whose writer is dead: the newest step, how many half-written folders there were."""
    left = [p.name for p in run.checkpoints.iterdir() if p.name.startswith(".")]
    newest = latest_checkpoint(run)
    step = newest.state["step"]
    weights, moments, state = content(step)
    assert step >= reported, f"step {reported} was reported, {step} is the newest"
    assert newest.state == state | {"step": step}
    assert (newest.weights["w"] == weights["w"]).all() and (newest.optimizer["m"] == moments["m"]).all()
    assert not run.events("damaged checkpoint")
    assert sorted(clear_half_written(run)) == sorted(left)
    assert {p.name for p in run.checkpoints.iterdir()} == {p.name for p in list_checkpoints(run)}
    return step, len(left)


def forked(work):
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


def dead(child):
    """Wait until the child is dead, and leave it a zombie."""
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)


def at_random_moments(run, kills, rng):
    newest, half = 1, 0
    for _ in range(kills):
        reading, writing = os.pipe()

        def work(first=newest + 1):
            told = lambda step, path, seconds: os.write(writing, step.to_bytes(4, "big"))  # noqa: E731
            with CheckpointWriter(run, 2, told) as writer:
                for step in range(first, first + 1000):
                    writer.save(step, *content(step))

        child = forked(work)
        os.close(writing)
        os.read(reading, 4 * rng.randrange(2))  # from its start on, or from its first checkpoint on
        time.sleep(rng.uniform(0, 0.04))
        assert clear_half_written(run) == [], "taken from a process that lives"
        os.kill(child, signal.SIGKILL)
        dead(child)
        told = os.read(reading, 1 << 16)
        os.close(reading)
        newest, left = check(run, max(newest, int.from_bytes(told[-4:], "big")))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        half += left > 0
    return half


def at_each_operation(run):
    """One checkpoint over and over, its writer killed at its 1st, 2nd, 3rd ... file operation, until it gets through."""
    newest, at, half = latest_checkpoint(run).state["step"], 0, 0
    while True:
        at += 1

        def work(step=newest + 1, left=at):
            def count(event="fsync", arguments=()):
                nonlocal left
                if event in OPERATIONS:
                    left -= 1
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)

            flush = os.fsync
            os.fsync = lambda descriptor: (count(), flush(descriptor))
            sys.addaudithook(count)
            save_checkpoint(run, step, *content(step), keep=1)

        child = forked(work)
        dead(child)
        newest, left = check(run, newest)
        # Else the writers that are killed at a removal leave ever more to remove, and none gets through.
        remove_old(run, keep=1)
        half += left > 0
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended == 0:
            return at - 1, half
        assert ended == -signal.SIGKILL, ended


if __name__ == "__main__":
    run, kills, seed = RunFolder.at(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    run.log_event("start")
    save_checkpoint(run, 1, *content(1), keep=2)
    half = at_random_moments(run, kills, random.Random(seed))
    newest = latest_checkpoint(run).state["step"]
    operations, half_operations = at_each_operation(run)
    told = {"half_written": half, "operations": operations, "half_written_at_operations": half_operations}
    print(json.dumps(told | {"mindspore": "mindspore" in sys.modules}))
