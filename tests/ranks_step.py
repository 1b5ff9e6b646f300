"""What each rank does for ``test_ranks_step.py``: train the arms, write what came out as JSON and arrays."""

import hashlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from tiny_model import TINY

from workbench.config import TrainConfig
from workbench.device import joined_ranks, use_device

STEPS, ROWS, LENGTH = 50, 4, 16
MODEL = replace(TINY, num_hidden_layers=2)
TRAIN = TrainConfig(
    learning_rate=2e-3, lr_scheduler_type="constant", warmup_steps=5, max_grad_norm=0.5, bucket_mb=0.008,
    bucket_size_groups=(64, 600),
)  # fmt: skip
ARMS = {
    "bytes": TRAIN,
    "size_groups": replace(TRAIN, bucket_by="size_groups"),
    "parameter": replace(TRAIN, bucket_by="parameter"),
    "accumulated": replace(TRAIN, gradient_accumulation_steps=2),
    "float16": replace(TRAIN, precision="float16", init_loss_scale=1024.0),
}


def batch_of(seed: int) -> dict[str, np.ndarray]:
    """A global batch; its first rows have many targets, its last few, so that ranks have unequal counts."""
    rng = np.random.default_rng(seed)
    shape = (ROWS, LENGTH)
    kept = rng.random(shape) < np.linspace(0.95, 0.1, ROWS)[:, None]
    last = np.arange(LENGTH) == LENGTH - 1
    told = rng.random((ROWS, 1)) < 0.6
    return {
        "input_ids": rng.integers(0, 64, shape).astype(np.int32),
        "labels": np.where(kept, rng.integers(0, 64, shape), -100).astype(np.int32),
        "segment_ids": np.ones(shape, np.int32),
        "position_ids": np.tile(np.arange(LENGTH, dtype=np.int32), (ROWS, 1)),
        "task_ids": np.full(shape, 2, np.int32),
        "instruction_labels": np.where(last & told, 2, -100).astype(np.int32),
        "fact_targets": np.where(last & told, 1.0, -1.0).astype(np.float32),
    }


def rows_of(batch: dict[str, np.ndarray], rank: int, world: int) -> dict[str, np.ndarray]:
    each = ROWS // world
    return {name: values[rank * each : (rank + 1) * each] for name, values in batch.items()}


def digest(state) -> str:
    """One hash of all weights, moments and scalars."""
    made = hashlib.blake2b(digest_size=16)
    for arrays in state.arrays():
        for name in sorted(arrays):
            made.update(arrays[name].tobytes())
    return made.hexdigest()


def train(config: TrainConfig, rank: int = 0, world: int = 1):
    from workbench.model.transformer import Transformer
    from workbench.train.state import TrainState
    from workbench.train.step import TrainStep

    model = Transformer(MODEL, seed=0, compute_dtype=config.precision)
    state, step = TrainState.fresh(model, config), TrainStep(model, config)
    history = []
    for i in range(STEPS):
        state, metrics = step(state, rows_of(batch_of(i), rank, world))
        history.append(metrics)
    return state, step, history


def main(out: Path) -> None:
    use_device("CPU")
    with joined_ranks() as (rank, world):
        told = {}
        for name, config in ARMS.items():
            graphs = out / f"graphs-{name}-{rank}"
            os.environ["MS_DEV_SAVE_GRAPHS"], os.environ["MS_DEV_SAVE_GRAPHS_PATH"] = "1", str(graphs)
            state, step, history = train(config, rank, world)
            weights, _ = state.arrays()
            np.savez(out / f"{name}-{rank}.npz", **weights)
            told[name] = {"history": history, "digest": digest(state)}
            overflowed = []
            for i in range(4):
                before = digest_of_values(state)
                extra = {"loss_factor": np.inf} if i == 1 and rank == 1 else {}
                state, metrics = step(state, rows_of(batch_of(90 + i), rank, world) | extra)
                same = before == digest_of_values(state)
                overflowed.append({"metrics": metrics, "unchanged": same, "digest": digest(state)})
            told[name]["overflow"] = overflowed
        (out / f"told-{rank}.json").write_text(json.dumps(told), encoding="utf-8")


def digest_of_values(state) -> str:
    """As ``digest``, without the scalars, of which an overflow may change the scale's."""
    weights, moments = state.arrays()
    made = hashlib.blake2b(digest_size=16)
    for arrays in (weights, moments):
        for name in sorted(set(arrays) - {"scalars"}):
            made.update(arrays[name].tobytes())
    return made.hexdigest()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
