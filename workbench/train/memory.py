"""Memory of a training step as the allocator saw it, each configuration in its own process.

    trace = measure_memory(model_config, train_config, sequence_length=128)
    trace.peak_mb, trace.allocated_mb over trace.seconds
    arms = recompute_arms(model_config, train_config, 128, rounds=3)      kind -> Arm

MindSpore's memory calls return 0 on a CPU, and the resident size of a process lies for compiled
functions (kernels keep index lists outside the allocator), so the profiler's record of every
allocation is read instead. Weights and moments are not in it: they lie in the arrays of their
tensors (``state_mb``), and between two steps the allocator holds next to nothing. What it holds
within a step is computed from the settings in ``budget.py``.

A compiled model is never freed within a process, hence one process a measurement; it costs an
import, a compilation and a few steps, about ten seconds. Peaks are the same from run to run; times
are not, so the arms take turns and each gets the median of its rounds.
"""

import csv
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Sequence

import numpy as np

from workbench.config import RECOMPUTE, ModelConfig, TrainConfig
from workbench.errors import SettingError, UserError
from workbench.train.budget import parameter_count

KINDS = RECOMPUTE
_STEPS, _TIMED = 3, 7  # steps under the profiler, and after it without


@dataclass(frozen=True)
class MemoryTrace:
    """The allocator over three profiled steps: (n,) seconds from its first event, (n,) MiB; ``peak_mb`` over all.

    ``state_mb`` is what weights and moments take besides, ``step_seconds`` the steps timed without
    the profiler, in order.
    """

    peak_mb: float
    seconds: np.ndarray
    allocated_mb: np.ndarray
    state_mb: float
    step_seconds: tuple[float, ...]


@dataclass(frozen=True)
class Arm:
    """One configuration in several processes: the median peak and step, and what each process gave."""

    peaks_mb: tuple[float, ...]
    step_seconds: tuple[float, ...]  # the median step of each process

    @property
    def peak_mb(self) -> float:
        return median(self.peaks_mb)

    @property
    def seconds(self) -> float:
        return median(self.step_seconds)


def recompute_arms(
    model: ModelConfig, train: TrainConfig, sequence_length: int, rounds: int = 3, kinds: Sequence[str] = KINDS
) -> tuple[dict[str, Arm], dict[str, MemoryTrace]]:
    """Every kind of recompute in ``rounds`` processes of its own, taking turns; and each kind's last trace.

    A single round says nothing about time, so there two processes run at once.

    Raises SettingError for no round, and what ``measure_memory`` raises.
    """
    if rounds < 1:
        raise SettingError(f"rounds={rounds} is not allowed: at least 1")
    jobs = [kind for _ in range(rounds) for kind in kinds]
    with ThreadPoolExecutor(2 if rounds == 1 else 1) as pool:
        found = pool.map(lambda kind: measure_memory(model, replace(train, recompute=kind), sequence_length), jobs)
    traces: dict[str, list[MemoryTrace]] = {kind: [] for kind in kinds}
    for kind, trace in zip(jobs, found):
        traces[kind].append(trace)
    arms = {
        kind: Arm(tuple(t.peak_mb for t in found), tuple(median(t.step_seconds) for t in found))
        for kind, found in traces.items()
    }
    return arms, {kind: found[-1] for kind, found in traces.items()}


def measure_memory(model: ModelConfig, train: TrainConfig, sequence_length: int) -> MemoryTrace:
    """Run a few steps in a new process and read the allocator's record.

    Raises UserError, with the last line the process wrote, when it fails.
    """
    with tempfile.TemporaryDirectory(prefix="workbench-memory-") as folder:
        job = json.dumps([asdict(model), asdict(train), sequence_length, folder])
        done = subprocess.run(
            [sys.executable, "-m", "workbench.train.memory"], input=job, capture_output=True, text=True
        )
        records = sorted(Path(folder).rglob("cpu_ms_memory_record_*.txt"))
        if done.returncode or not records:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise UserError(
                f"the memory measurement failed (exit {done.returncode}): {said[-1] if said else 'no output'}"
            )
        with records[0].open(newline="") as file:
            rows = list(csv.DictReader(file))
        step_seconds = tuple(json.loads((Path(folder) / "step_seconds.json").read_text()))
    moments = np.asarray([int(r["Timestamp(ns)"]) for r in rows], np.int64)
    allocated = np.asarray([int(r["Total Allocated(Byte)"]) for r in rows], np.float64) / 2**20
    order = np.argsort(moments, kind="stable")
    moments, allocated = moments[order], allocated[order]
    state = parameter_count(model) * 12 / 2**20
    return MemoryTrace(float(allocated.max()), (moments - moments[0]) / 1e9, allocated, state, step_seconds)


def _measured_process() -> None:
    """The measuring process: a job on standard input, the record and the times in the job's folder."""
    import mindspore as ms

    from workbench.data.sources import random_batch
    from workbench.device import use_device
    from workbench.model.transformer import Transformer
    from workbench.train.state import TrainState
    from workbench.train.step import TrainStep

    model_values, train_values, length, folder = json.load(sys.stdin)
    config, train = ModelConfig(**model_values), TrainConfig(**train_values)
    use_device("CPU")
    model = Transformer(config, train.seed, train.precision, kernels=train.kernels)
    state, step = TrainState.fresh(model, train), TrainStep(model, train)
    batch = random_batch(np.random.default_rng(0), train.batch_size, length, config.vocab_size)
    profiler = ms.profiler.profile(
        activities=[ms.profiler.ProfilerActivity.CPU],
        profile_memory=True,
        on_trace_ready=ms.profiler.tensorboard_trace_handler(folder),
    )
    profiler.start()
    for _ in range(_STEPS):
        state, _ = step(state, batch, train.learning_rate)
    profiler.stop()
    times = []
    for _ in range(_TIMED):
        start = time.perf_counter()
        state, _ = step(state, batch, train.learning_rate)
        times.append(time.perf_counter() - start)
    (Path(folder) / "step_seconds.json").write_text(json.dumps(times))


if __name__ == "__main__":
    _measured_process()
