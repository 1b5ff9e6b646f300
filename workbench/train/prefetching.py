"""The next batch made while the current one is computed, and what that gives: measured, not simulated.

    for batch in prefetched(corpus.batches(...)):      the same batches in the same order
    busy_shares(corpus, compute, batch_size=16, steps=50)

Costs one thread and ``depth`` batches of memory. Hides at most as much as computing lasts: a source
that is slower than the step stays the bound. Does not help where making a batch holds Python's lock
throughout and so does the step; MindSpore's compiled functions and numpy's copies give it up.
"""

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, TypeVar

import numpy as np

from workbench.data.pipeline import Corpus

Item = TypeVar("Item")
_END = object()


def prefetched(items: Iterable[Item], depth: int = 2) -> Iterator[Item]:
    """``items``, up to ``depth`` of them made ahead in a thread; what making one raises is raised in its place."""
    source = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as maker:
        ahead = deque(maker.submit(next, source, _END) for _ in range(depth))
        while (item := ahead.popleft().result()) is not _END:
            ahead.append(maker.submit(next, source, _END))
            yield item


@dataclass(frozen=True)
class BusyShare:
    """A loop over batches: ``wall`` and ``compute`` seconds (rounds,) of ``steps`` steps each."""

    name: str
    steps: int
    wall: tuple[float, ...]
    compute: tuple[float, ...]

    @property
    def busy(self) -> float:
        """Share of the time in which a batch is computed, by the median of the rounds."""
        return float(np.median(np.divide(self.compute, self.wall)))

    @property
    def wait(self) -> float:
        """Seconds a step waits for its batch, by the median of the rounds."""
        return float(np.median(np.subtract(self.wall, self.compute))) / self.steps


def busy_shares(
    corpus: Corpus,
    compute: Callable[[dict[str, np.ndarray]], Any],
    batch_size: int,
    steps: int,
    rounds: int = 3,
    source_seconds: float = 0.0,
) -> tuple[BusyShare, ...]:
    """The loop with batches made in it, by ``prefetched``, and by a thread of ``mindspore.dataset``, in turns.

    ``compute`` has to wait for its own results; the first batch of each round is not counted. With
    ``source_seconds`` a batch takes that much longer to make (it sleeps), and the dataset's thread,
    which cannot be slowed from outside, is left out.
    """

    def made(workers: int) -> Iterator[dict[str, np.ndarray]]:
        for batch in corpus.batches(batch_size, steps=steps + 1, workers=workers):
            if source_seconds:
                time.sleep(source_seconds)
            yield batch

    arms = {"in the loop": lambda: made(0), "prefetched": lambda: prefetched(made(0))}
    if not source_seconds:
        arms["mindspore.dataset"] = lambda: made(1)
    told: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, batches in arms.items():
            told[name].append(_timed(batches(), compute))
    return tuple(BusyShare(name, steps, *map(tuple, zip(*seconds))) for name, seconds in told.items())


def _timed(batches: Iterator[dict[str, np.ndarray]], compute: Callable[[dict[str, np.ndarray]], Any]) -> tuple:
    """(wall, compute) seconds of all batches but the first."""
    compute(next(batches))
    computing, start = 0.0, time.perf_counter()
    for batch in batches:
        began = time.perf_counter()
        compute(batch)
        computing += time.perf_counter() - began
    return time.perf_counter() - start, computing
