"""Memory of a training step as the allocator saw it, each configuration in its own process.

    trace = measure_memory(model_config, train_config, sequence_length=128)
    trace.peak_mb, trace.allocated_mb over trace.seconds

MindSpore's memory calls return 0 on a CPU, and the resident size of a process lies for compiled
functions (kernels keep index lists outside the allocator), so the profiler's record of every
allocation is read instead. A compiled model is never freed within a process, hence one process
a measurement; it costs an import, a compilation and a few profiled steps, about ten seconds.

``parts`` is what the configuration alone says; what is left of the peak are activations and the
work space of kernels, which only a measurement tells.
"""

import csv
import json
import math
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from workbench.config import ModelConfig, TrainConfig
from workbench.errors import UserError
from workbench.model.tensor_names import own_tensors, tensors_of

_STEPS = 3


@dataclass(frozen=True)
class MemoryTrace:
    """The allocator over the profiled steps, compilation left out: (n,) seconds and (n,) MiB; ``peak_mb`` over all."""

    peak_mb: float
    seconds: np.ndarray
    allocated_mb: np.ndarray
    parts_mb: dict[str, float]

    @property
    def activations_mb(self) -> float:
        """What the peak holds besides parameters, gradients and optimizer state."""
        return self.peak_mb - sum(self.parts_mb.values())


def parameter_count(model: ModelConfig) -> int:
    """Parameters of ``Transformer(model)``, heads and task embedding included."""
    shapes = [tensor.shape for tensor in tensors_of(model, "llama").values()] + list(own_tensors(model).values())
    biases = (2 * model.num_hidden_layers + 1) * model.hidden_size if model.norm_type == "layer_norm" else 0
    return sum(math.prod(shape) for shape in shapes) + biases


def parts(model: ModelConfig) -> dict[str, float]:
    """MiB of parameters, gradients and the two AdamW moments, all float32."""
    mb = parameter_count(model) * 4 / 2**20
    return {"parameters": mb, "gradients": mb, "optimizer": 2 * mb}


def measure_memory(model: ModelConfig, train: TrainConfig, sequence_length: int) -> MemoryTrace:
    """Run three profiled steps in a new process and read the allocator's record.

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
    time = np.asarray([int(r["Timestamp(ns)"]) for r in rows], np.int64)
    allocated = np.asarray([int(r["Total Allocated(Byte)"]) for r in rows], np.float64) / 2**20
    order = np.argsort(time, kind="stable")
    time, allocated = time[order], allocated[order]
    # The longest pause is the compilation; the picture begins behind it.
    quiet = np.argmax(np.diff(time)) + 1 if len(time) > 1 else 0
    shown = slice(quiet, None)
    return MemoryTrace(float(allocated.max()), (time[shown] - time[quiet]) / 1e9, allocated[shown], parts(model))


def _measured_process() -> None:
    """The measuring process: a job on standard input, the profiler's record in the job's folder."""
    import mindspore as ms

    from workbench.data.sources import random_batch
    from workbench.device import use_device
    from workbench.model.transformer import Transformer
    from workbench.train.state import TrainState
    from workbench.train.step import TrainStep

    model_values, train_values, length, folder = json.load(sys.stdin)
    config, train = ModelConfig(**model_values), TrainConfig(**train_values)
    use_device("CPU")
    model = Transformer(config, train.seed, train.precision)
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


if __name__ == "__main__":
    _measured_process()
