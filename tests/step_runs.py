"""Small training runs for tests, each kind of step compiled once a process and set back before it is used again."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
from tiny_model import TINY

from workbench.config import TrainConfig
from workbench.model.transformer import Transformer
from workbench.train.state import TrainState
from workbench.train.step import TrainStep

CONFIG = TINY
TRAIN = TrainConfig(steps=20, warmup_steps=3, learning_rate=3e-3, max_grad_norm=0.5, weight_decay=0.1)


def batch_of(seed, rows=2, length=16):
    rng = np.random.default_rng(seed)
    shape = (rows, length)
    return {
        "input_ids": rng.integers(0, 64, shape).astype(np.int32),
        "labels": np.where(rng.random(shape) < 0.8, rng.integers(0, 64, shape), -100).astype(np.int32),
        "segment_ids": np.ones(shape, np.int32),
        "position_ids": np.tile(np.arange(length, dtype=np.int32), (rows, 1)),
        "task_ids": np.full(shape, 2, np.int32),
        "instruction_labels": np.where(np.arange(length) == length - 1, 2, -100) * np.ones((rows, 1), np.int32),
        "fact_targets": np.where(np.arange(length) == length - 1, 1.0, -1.0).astype(np.float32)
        * np.ones((rows, 1), np.float32),
    }


@lru_cache(maxsize=None)
def _made(train, config, shape):
    model = Transformer(config, seed=0, compute_dtype=train.precision)
    state = TrainState.fresh(model, train)
    return state, TrainStep(model, train), state.arrays()


def fresh(train=TRAIN, config=CONFIG, shape=(2, 16)):
    """(state, step) before the first step; ``shape`` is that of the first batch."""
    state, step, first = _made(train, config, shape)
    state.load(*first)
    return state, step


def run(train=TRAIN, batches=None, steps=3, config=CONFIG, rate=None):
    """(state's arrays, history of metrics, state) after ``batches``, or ``steps`` random ones."""
    batches = [batch_of(i) for i in range(steps)] if batches is None else batches
    state, step = fresh(train, config, batches[0]["input_ids"].shape)
    history = [step(state, batch, rate)[1] for batch in batches]
    return state.arrays(), history, state


def difference(one, other):
    """The largest difference of any weight of two states' arrays."""
    return max(float(np.abs(one[0][n] - other[0][n]).max()) for n in one[0])


def with_parts(parts, **changed):
    return replace(TRAIN, gradient_accumulation_steps=parts, **changed)
