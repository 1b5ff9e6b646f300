"""The claim that a mask built with ``ops.Select`` is 4.7 times as fast as with ``if`` and saves 62 % memory.

    S new tokens   past cached ones   K = S + past keys

The claim compares several things at once. Here each is an arm that gives the same boolean (S, K)
mask, True = discard, and differs from the next in one thing:

    eager if      a Python ``if`` on past, one operator at a time
    const if      the same ``if``, compiled; past is a Python number, so each value compiles anew
    tensor if     the same ``if``, compiled; past is a tensor, so the graph branches as it runs
    select        both branches computed, compiled, and ``ops.select`` takes one
    arithmetic    no branch: past is added to the positions, compiled (what ``mask_forms`` does)
    held          the arithmetic mask of an earlier call, kept

``measure_arms`` times them interleaved in a process of its own and reads from the allocator's
record what each call allocates at most at a time. It costs about 15 seconds on two cores. It
measures a CPU; it says nothing about the fusion on Ascend that the claim gives as its reason.
"""

import csv
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Callable

import numpy as np
import mindspore as ms
from mindspore import ops

from workbench.device import use_device
from workbench.errors import UserError

ARMS = ("eager if", "const if", "tensor if", "select", "arithmetic", "held")


@dataclass(frozen=True)
class ArmTiming:
    """One arm at S ``length``: microseconds of each call, and the most bytes that a call allocated at a time."""

    arm: str
    length: int
    past: int
    microseconds: tuple[float, ...]
    peak_bytes: int

    @property
    def bytes_per_pair(self) -> float:
        """``peak_bytes`` for each pair of query and key."""
        return self.peak_bytes / (self.length * (self.length + self.past))

    def times_faster_than(self, other: "ArmTiming") -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile of the other's time over this one's, call by call."""
        return tuple(np.quantile(np.divide(other.microseconds, self.microseconds), (0.25, 0.5, 0.75)).tolist())


def later(queries, keys, past):
    """int32 (S,), (K,) -> boolean (S, K): the key lies after the query, whose position is ``past`` further on."""
    rows = ops.tile(ops.expand_dims(ops.add(queries, past), 1), (1, keys.shape[0]))
    return ops.greater(ops.tile(ops.expand_dims(keys, 0), (queries.shape[0], 1)), rows)


def by_if(queries, keys, past):
    """``past`` > 0 decides whether positions are moved."""
    if past > 0:
        return later(queries, keys, past)
    return later(queries, keys, 0)


def by_select(queries, keys, past):
    """Both masks are computed; ``ops.select`` takes one, by a condition of their shape (quicker than a scalar)."""
    moved, plain = later(queries, keys, past), later(queries, keys, 0)
    return ops.select(ops.tile(ops.greater(ops.reshape(past, (1, 1)), 0), moved.shape), moved, plain)


def arms(length: int, past: int) -> dict[str, Callable]:
    """A function without arguments for each of ``ARMS``, returning the mask as a Tensor."""
    queries = ms.Tensor(np.arange(length, dtype=np.int32))
    keys = ms.Tensor(np.arange(length + past, dtype=np.int32))
    past_tensor = ms.Tensor(past, ms.int32)
    const_if, tensor_if, select, arithmetic = ms.jit(by_if), ms.jit(by_if), ms.jit(by_select), ms.jit(later)
    made = (
        lambda: by_if(queries, keys, past),
        lambda: const_if(queries, keys, past),
        lambda: tensor_if(queries, keys, past_tensor),
        lambda: select(queries, keys, past_tensor),
        lambda: arithmetic(queries, keys, past_tensor),
        lru_cache(lambda: arithmetic(queries, keys, past_tensor)),
    )
    return dict(zip(ARMS, made))


def measure_arms(lengths: tuple[int, ...] = (128, 512), past_share: float = 0.25, calls: int = 30) -> list[ArmTiming]:
    """Every arm at every length, with ``past_share`` * length cached tokens, in a new process.

    Raises UserError, with the last line the process wrote, when it fails.
    """
    with tempfile.TemporaryDirectory(prefix="workbench-masks-") as folder:
        job = json.dumps([[(n, int(n * past_share)) for n in lengths], calls, folder])
        command = [sys.executable, "-m", "workbench.model.mask_arms"]
        done = subprocess.run(command, input=job, capture_output=True, text=True)
        result = Path(folder) / "timings.json"
        if done.returncode or not result.exists():
            said = (done.stderr or done.stdout).strip().splitlines()
            raise UserError(f"the measurement failed (exit {done.returncode}): {said[-1] if said else 'no output'}")
        rows = json.loads(result.read_text())
    return [ArmTiming(**{**row, "microseconds": tuple(row["microseconds"])}) for row in rows]


def _measured_process() -> None:
    """The measuring process: a job on standard input, the timings in the job's folder."""
    sizes, calls, folder = json.load(sys.stdin)
    use_device("CPU")
    made = {(arm, *size): call for size in sizes for arm, call in arms(*size).items()}
    for call in made.values():
        call().asnumpy()  # compiled here
    seconds = {name: [] for name in made}
    for _ in range(calls):
        for name, call in made.items():
            start = time.perf_counter()
            call().asnumpy()
            seconds[name].append(time.perf_counter() - start)
    peaks = _peaks(made, folder)
    timings = [asdict(ArmTiming(*name, [v * 1e6 for v in spent], peaks[name])) for name, spent in seconds.items()]
    (Path(folder) / "timings.json").write_text(json.dumps(timings))


def _peaks(made: dict[tuple, Callable], folder: str) -> dict[tuple, int]:
    """Bytes that one call of each function allocates at most at a time, above what was there before."""
    profiler = ms.profiler.profile(
        activities=[ms.profiler.ProfilerActivity.CPU],
        profile_memory=True,
        on_trace_ready=ms.profiler.tensorboard_trace_handler(folder),
    )
    profiler.start()
    ops.add(ms.Tensor([0.0]), 1.0).asnumpy()  # the record's first line: what is there before
    spans = {}
    for name, call in made.items():
        start = time.time_ns()  # the record's clock
        call().asnumpy()
        spans[name] = (start, time.time_ns())
    profiler.stop()
    with next(Path(folder).rglob("cpu_ms_memory_record_*.txt")).open(newline="") as file:
        rows = [(int(r["Timestamp(ns)"]), int(r["Total Allocated(Byte)"])) for r in csv.DictReader(file)]
    rows.sort()
    peaks = {}
    for name, (start, stop) in spans.items():
        before = [held for at, held in rows if at < start]
        during = [held for at, held in rows if start <= at <= stop]
        peaks[name] = max(during, default=before[-1]) - before[-1]
    return peaks


if __name__ == "__main__":
    _measured_process()
