"""Experts by themselves on a small task: how their load develops, and what they cost beside a dense layer.

    T tokens of a batch   D hidden size   E experts   L layers

Two questions that need no language model: does the load-balancing loss keep the experts in use, and
is a sparse layer faster than a dense one with as many weights. Costs a compilation of some seconds
each. What it says about load holds for its inputs; watch ``expert_load`` of the run that matters.
"""

import time
from dataclasses import replace

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from workbench.config import ModelConfig
from workbench.errors import DataError
from workbench.model.compute import dense_twin
from workbench.model.experts import SparseMoE
from workbench.model.feed_forward import SwiGLU


class Stack(nn.Cell):
    """Sparse layers on a residual stream: x, target (T, D) -> loss, mean square error, stats (L, E + 3)."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.layers = nn.CellList([SparseMoE(config, rng, ms.float32) for _ in range(config.num_hidden_layers)])

    def construct(self, x, target, seen, weight):
        found = ()
        for layer in self.layers:
            y, stats = layer(x, seen)
            x = ops.add(x, y)
            found = found + (stats,)
        stats = ops.stack(found)
        error = ops.ReduceMean()(ops.square(ops.sub(x, target)))
        return ops.add(error, ops.mul(ops.ReduceMean()(stats[:, -3]), weight)), error, stats


class RoutingTrial:
    """A stack that learns to turn the vector of a token into that of the next one.

    ``table`` (V, D) are the vectors that ids stand for. ``offset`` times a random direction is added
    to all inputs: hidden states of trained models have much in common, and a router sees that first.
    Raises DataError for fewer than ``tokens`` + 2 ids.
    """

    def __init__(self, config: ModelConfig, ids: np.ndarray, tokens: int = 512, offset: float = 3.0, seed: int = 0):
        if len(ids) < tokens + 2:
            raise DataError(
                f"the text has {len(ids):,} tokens, the trial needs at least {tokens + 2:,}: give more text"
            )
        rng = np.random.default_rng(seed)
        self.config, self.ids, self.tokens, self.seed = config, ids, tokens, seed
        self.table = rng.normal(size=(config.vocab_size, config.hidden_size)).astype(np.float32)
        self.common = (offset * rng.normal(size=config.hidden_size)).astype(np.float32)
        self.stack = Stack(config, seed)
        self.weights = self.stack.trainable_params()
        self.seen = ms.Tensor(np.ones(tokens, np.float32))
        self.gradient = ms.jit(ms.value_and_grad(self.stack, None, self.weights, has_aux=True))

    def inputs(self, start: int) -> ms.Tensor:
        """Tokens ``start`` to ``start + T``, (T, D)."""
        return ms.Tensor(self.table[self.ids[start : start + self.tokens]] + self.common)

    def step(self, number: int, start: int, balance: float) -> tuple[dict, tuple]:
        """A metric row, as training writes it, and the gradients; changes nothing."""
        target = ms.Tensor(self.table[self.ids[start + 1 : start + self.tokens + 1]])
        weight = ms.Tensor(balance, ms.float32)
        (_, error, stats), gradients = self.gradient(self.inputs(start), target, self.seen, weight)
        stats = stats.asnumpy()
        counts = stats[:, : self.config.num_experts]
        return {
            "step": number,
            "loss": float(error),
            "aux_loss": float(stats[:, -3].mean()),
            "z_loss": float(stats[:, -2].mean()),
            "dropped_assignments": int(stats[:, -1].sum()),
            "expert_load": (counts / counts.sum(1, keepdims=True)).tolist(),
        }, gradients

    def train(self, steps: int, balance: float, learning_rate: float = 0.003) -> list[dict]:
        """The rows of ``steps`` steps of Adam from where the weights are."""
        optimizer, places, rows = nn.Adam(self.weights, learning_rate), np.random.default_rng(self.seed), []
        for number in range(1, steps + 1):
            start = int(places.integers(0, len(self.ids) - self.tokens - 1))
            row, gradients = self.step(number, start, balance)
            optimizer(gradients)
            rows.append(row)
        return rows


class _Squares(nn.Cell):
    """A scalar of what a layer answers, sparse or dense."""

    def __init__(self, layer: nn.Cell, sparse: bool) -> None:
        super().__init__()
        self.layer, self.sparse = layer, sparse

    def construct(self, x, seen):
        y = self.layer(x, seen)[0] if self.sparse else self.layer(x)
        return ops.ReduceSum()(ops.square(y))


def against_dense(config: ModelConfig, tokens: int, factor: float, rounds: int = 7) -> dict[str, np.ndarray]:
    """Seconds of each arm in each round, forward and backward, compiled, the arms in turns.

    Arms: "dense" (``compute.dense_twin``), "capacity" with ``factor``, "dropless".
    """
    rng = np.random.default_rng(0)
    layers = {
        "dense": SwiGLU(config.hidden_size, dense_twin(config).intermediate_size, 0.02, rng, ms.float32),
        "capacity": SparseMoE(replace(config, expert_capacity_factor=factor), rng, ms.float32),
        "dropless": SparseMoE(replace(config, expert_capacity_factor=0.0), rng, ms.float32),
    }
    x = ms.Tensor(rng.normal(size=(tokens, config.hidden_size)).astype(np.float32))
    seen = ms.Tensor(np.ones(tokens, np.float32))
    functions = {}
    for name, layer in layers.items():
        cell = _Squares(layer, name != "dense")
        functions[name] = ms.jit(ms.value_and_grad(cell, 0, cell.trainable_params()))
    seconds = {name: [] for name in layers}
    for number in range(-2, rounds):  # the first two compile and warm up
        for name, function in functions.items():
            began = time.perf_counter()
            for gradient in function(x, seen)[1][1]:
                gradient.asnumpy()
            if number >= 0:
                seconds[name].append(time.perf_counter() - began)
    return {name: np.array(values) for name, values in seconds.items()}
