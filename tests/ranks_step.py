"""What each rank does for ``test_ranks_step.py``: train the arms, write what came out as JSON and arrays."""

import hashlib
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import mindspore as ms
import numpy as np
from tiny_model import TINY

from workbench.config import TrainConfig
from workbench.device import joined_ranks, use_device
from workbench.model.transformer import Transformer
from workbench.train.reducing import Reducer
from workbench.train.state import TrainState
from workbench.train.step import TrainStep

STEPS, ROWS, LENGTH = 50, 4, 8
OVERFLOW_AT = 1  # of the steps that follow, on rank 1 only
TRAIN = TrainConfig(
    learning_rate=2e-3, lr_scheduler_type="constant", warmup_steps=5, max_grad_norm=0.5, bucket_mb=0.005,
    bucket_size_groups=(64, 300),
)  # fmt: skip
ARMS = {
    "bytes": TRAIN,
    "size_groups": replace(TRAIN, bucket_by="size_groups"),
    "parameter, accumulated": replace(TRAIN, bucket_by="parameter", gradient_accumulation_steps=2),
    "float16": replace(TRAIN, precision="float16", init_loss_scale=1024.0),
}


def batch_of(seed: int) -> dict[str, np.ndarray]:
    """A global batch whose first rows have many targets and whose last have few: ranks have unequal counts."""
    rng = np.random.default_rng(seed)
    shape = (ROWS, LENGTH)
    kept = rng.random(shape) < np.linspace(0.95, 0.1, ROWS)[:, None]
    told = (np.arange(LENGTH) == LENGTH - 1) & (rng.random((ROWS, 1)) < 0.6)
    return {
        "input_ids": rng.integers(0, 64, shape).astype(np.int32),
        "labels": np.where(kept, rng.integers(0, 64, shape), -100).astype(np.int32),
        "segment_ids": np.ones(shape, np.int32),
        "position_ids": np.tile(np.arange(LENGTH, dtype=np.int32), (ROWS, 1)),
        "task_ids": np.full(shape, 2, np.int32),
        "instruction_labels": np.where(told, 2, -100).astype(np.int32),
        "fact_targets": np.where(told, 1.0, -1.0).astype(np.float32),
    }


def train(config: TrainConfig, rank: int = 0, world: int = 1):
    """(state, step, metrics of each step) after ``STEPS`` on this rank's rows."""
    model = Transformer(TINY, seed=0, compute_dtype=config.precision)
    state, step = TrainState.fresh(model, config), TrainStep(model, config)
    history = []
    for i in range(STEPS):
        state, metrics = step(state, rows_of(batch_of(i), rank, world))
        history.append(metrics)
    return state, step, history


def rows_of(batch: dict[str, np.ndarray], rank: int, world: int) -> dict[str, np.ndarray]:
    each = ROWS // world
    return {name: values[rank * each : (rank + 1) * each] for name, values in batch.items()}


def digest(state: TrainState, scalars: bool = True) -> str:
    """One hash of all weights and moments, and of the scalars if asked for."""
    made = hashlib.blake2b(digest_size=16)
    for arrays in state.arrays():
        for name in sorted(arrays):
            if scalars or name != "scalars":
                made.update(arrays[name].tobytes())
    return made.hexdigest()


def after_an_overflow(state: TrainState, step: TrainStep, rank: int, world: int) -> list[dict]:
    """Four more steps; in one of them the gradients of rank 1, and only its, are infinite."""
    told = []
    for i in range(4):
        before = digest(state, scalars=False)
        fault = {"loss_factor": np.inf} if i == OVERFLOW_AT and rank == 1 else {}
        state, metrics = step(state, rows_of(batch_of(90 + i), rank, world) | fault)
        unchanged = before == digest(state, scalars=False)
        told.append({"metrics": metrics, "unchanged": unchanged, "digest": digest(state)})
    return told


def collectives_in_the_graph(config: TrainConfig, folder: Path) -> tuple[int, int]:
    """(buckets planned, AllReduce nodes in the graph that the engine builds from a ``Reducer``)."""
    parameters = ms.ParameterTuple(Transformer(TINY, seed=0).trainable_params())
    reducer = Reducer(parameters, config)
    ms.set_context(save_graphs=1, save_graphs_path=str(folder))
    # Mutable: gradients of equal values would be one constant otherwise, and reduced once.
    ms.jit(reducer.construct)(ms.mutable(tuple(p + 0.0 for p in parameters)))[0].asnumpy()
    ms.set_context(save_graphs=0)
    [graph] = folder.rglob("graph_build_*.ir")
    return len(reducer.plan), len(re.findall(r"= AllReduce\(", graph.read_text(encoding="utf-8")))


def main(out: Path) -> None:
    use_device("CPU")
    with joined_ranks() as (rank, world):
        told: dict = {"graphs": {}}
        for name, config in ARMS.items():
            state, step, history = train(config, rank, world)
            np.savez(out / f"{name}-{rank}.npz", **state.arrays()[0])
            told[name] = {"history": history, "digest": digest(state)}
            told[name]["after"] = after_an_overflow(state, step, rank, world)
            told["graphs"][name] = collectives_in_the_graph(config, out / f"graphs-{rank}-{name}")
        (out / f"told-{rank}.json").write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
