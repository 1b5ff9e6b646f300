"""One life of a run that is killed: trains, and at a random moment of a given kind sends itself SIGKILL.

    python -m tests.killed_run CONFIG.json FOLDER MOMENT SEED      MOMENT: one of MOMENTS, or never

The process that dies is the one that works, so that a moment can be hit that lasts a millisecond:
between two file operations of a checkpoint, for example. Nobody can catch SIGKILL, whoever sends it.
"""

import json
import os
import random
import signal
import sys
import threading
import time

import numpy as np

from workbench.config import RunConfig
from workbench.evaluate.perplexity import PerplexityMeter
from workbench.run_folder import RunFolder
from workbench.train import course, feeding, loop
from workbench.train.saving import CheckpointWriter

MOMENTS = ("preparing", "step", "writing", "evaluating", "starting", "data", "rewinding")
FAULTS = (320, 800, 1500)  # positions from which a batch of noise is trained on, which the run rolls back from


def noise(position: int, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The drill: at some positions, tokens drawn at random."""
    if not any(fault <= position < fault + len(batch["sample_ids"]) for fault in FAULTS):
        return batch
    draw = np.random.default_rng(position)
    tokens = draw.integers(5, 2000, batch["input_ids"].shape).astype(np.int32)
    return {**batch, "input_ids": tokens, "labels": np.where(batch["labels"] < 0, -100, np.roll(tokens, -1, 1))}


def kill(after: float = 0.0) -> None:
    """SIGKILL to this process in ``after`` seconds; at once without."""
    if after:
        timer = threading.Timer(after, kill)
        timer.daemon = True
        timer.start()
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def arm(moment: str, chance: random.Random) -> None:
    """Arrange that this process is killed at a ``moment``."""
    count = chance.randint(1, 9)

    def at_call(owner, name: str, late: float) -> None:
        """Kill within ``late`` seconds of the ``count``-th call of a function."""
        called, before = [], getattr(owner, name)

        def wrapped(*given, **named):
            called.append(1)
            if len(called) == count:
                kill(chance.uniform(0.0, late))
            return before(*given, **named)

        setattr(owner, name, wrapped)

    if moment == "step":
        at_call(course.TrainStep, "__call__", 0.1)
    elif moment == "evaluating":
        count = chance.randint(1, 2)
        at_call(PerplexityMeter, "measure", 0.3)
    elif moment == "data":
        at_call(feeding, "drop", 0.001)
    elif moment == "preparing":
        count = 1
        at_call(loop, "open_corpus", 3.0)
    elif moment == "starting":
        kill(chance.uniform(0.0, 6.0))
    elif moment == "rewinding":
        count = chance.randint(1, 2)
        at_call(course, "rewind_logs", 0.001)
        # A life that rewinds nothing dies in a later step.
        kill(20.0)
    elif moment == "writing":
        _arm_writing(chance)


def _arm_writing(chance: random.Random) -> None:
    """Kill at one of the file operations of a checkpoint's writing, or within a few milliseconds of it."""
    left = [chance.randint(1, 60)]
    late = chance.choice((0.0, 0.0, 0.002, 0.02))

    def heard(event: str, given) -> None:
        if event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree", "os.listdir"):
            if threading.current_thread().name.startswith("checkpoint"):
                left[0] -= 1
                if left[0] == 0:
                    kill(late)

    sys.addaudithook(heard)
    assert CheckpointWriter  # whose thread has that name


def main() -> None:
    config, folder, moment, seed = sys.argv[1:]
    chance = random.Random(seed)
    with open(config, encoding="utf-8") as text:
        settings = RunConfig.from_dict(json.load(text))
    if moment != "never":
        arm(moment, chance)
    start = time.perf_counter()
    loop.pretrain(settings, RunFolder.at(folder), drill=noise)
    print(f"finished in {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
