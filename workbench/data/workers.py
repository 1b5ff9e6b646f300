"""Blocks of documents through the stages, in order, on as many cores as there are.

With one worker the stages run here, and the tokenizer's own threads use the cores; with more, each
block goes to a process of its own, which is quicker for large inputs because cleaning, hashing and
everything else in Python then run side by side too. The results come back in the order of the
blocks and are the same either way. At most two blocks a worker are on their way at once, so memory
does not grow with the input.

The processes are forked, which takes no time, where this process has no other thread and has not
loaded MindSpore (the command line); else they are spawned, since a fork among threads can hang.
"""

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Callable, Iterable, Iterator, Sequence

from workbench.data.stages import Block, Stages, StageSpec
from workbench.errors import DataError

Run = Callable[[str, Iterable[tuple[Sequence[Any], Any]]], Iterator[tuple[Block, Any]]]
_stages: Stages  # of this worker process


class WorkerDied(DataError):
    """A worker process ended by itself; what was prepared before is kept."""


@contextmanager
def stage_runner(spec: StageSpec, workers: int) -> Iterator[Run]:
    """Yields ``run(stage, batches)`` for pairs (batch, note); it gives (block, note) in the same order.

    ``stage`` is the name of a method of ``Stages``.
    """
    if workers == 1:
        stages = Stages(spec)
        yield lambda stage, batches: ((getattr(stages, stage)(batch), note) for batch, note in batches)
        return
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread a process: the processes are what is parallel
    forked = sys.platform == "linux" and "mindspore" not in sys.modules and threading.active_count() == 1
    given = Stages(spec) if forked else spec
    context = multiprocessing.get_context("fork" if forked else "spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(given,))
    try:
        pool.submit(int).result()  # starts the processes before anything else is loaded
        yield lambda stage, batches: _in_order(pool, stage, batches, 2 * workers)
    except BrokenProcessPool as error:
        raise WorkerDied(
            f"a worker process died while {workers} were preparing data, most often for want of memory; "
            "set workers to a smaller number, what was done so far is kept"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        if before is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = before


def _in_order(pool: ProcessPoolExecutor, stage: str, batches: Iterable, most: int) -> Iterator[tuple[Block, Any]]:
    waiting: deque[tuple[Future, Any]] = deque()
    for batch, note in batches:
        waiting.append((pool.submit(_work, stage, batch), note))
        if len(waiting) >= most:
            future, done_note = waiting.popleft()
            yield future.result(), done_note
    while waiting:
        future, done_note = waiting.popleft()
        yield future.result(), done_note


def _start(given: StageSpec | Stages) -> None:
    global _stages
    # Ctrl-C reaches the whole group; the parent stops and ends the workers. Its own handler for
    # SIGTERM, which a forked worker has inherited, is not for them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _stages = given if isinstance(given, Stages) else Stages(given)
    gc.freeze()  # what is there stays: no need to look through the vocabulary for garbage again and again
    gc.set_threshold(100_000)


def _work(stage: str, batch: Sequence[Any]) -> Block:
    return getattr(_stages, stage)(batch)
