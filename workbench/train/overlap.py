"""What overlap buys: small models trained on the same text cut with different overlaps, at equal unique tokens.

A run of one epoch sees each token of the text as a target exactly once, whatever the overlap; more
overlap means more rows, so more computation, for the same targets. So overlap is compared twice:
with the same text, and, by giving a run without overlap more epochs, with the same computation.

One model is compiled once and set back to fresh weights for each run; the held-out text is always
cut the same way. Costs about (epochs of all arms) x (seeds) passes over the text.
"""

import math
from dataclasses import dataclass, replace
from typing import Callable, Sequence

import numpy as np

from workbench.config import ModelConfig, TrainConfig
from workbench.data.layout import make_layout
from workbench.data.order import key_of, permute
from workbench.data.sources import SampleSource
from workbench.evaluate.perplexity import PerplexityMeter
from workbench.model.transformer import Transformer
from workbench.train.schedule import learning_rate_at
from workbench.train.state import TrainState
from workbench.train.step import TrainStep

EVALUATIONS = 6  # a run, evenly spaced in unique tokens


@dataclass(frozen=True)
class OverlapRun:
    """One run: ``losses`` (EVALUATIONS,) of held-out text in nats, evenly spaced over its targets."""

    overlap: float
    epochs: float
    seed: int
    steps: int
    slots: int  # positions computed
    losses: tuple[float, ...]

    @property
    def wobble(self) -> float:
        """Standard deviation of the perplexity over the last half of the evaluations."""
        return float(np.std(np.exp(self.losses[len(self.losses) // 2 :])))


def overlap_sweep(
    source: SampleSource,
    validation: SampleSource,
    sequence_length: int,
    arms: Sequence[tuple[float, float]],
    seeds: Sequence[int],
    model: ModelConfig,
    train: TrainConfig,
    watch: Callable[[int, int], None] | None = None,
) -> list[OverlapRun]:
    """A run for each arm (overlap, epochs) and seed. ``train`` gives rates and batch size; steps follow from the text.

    Both sources are cut anew at ``sequence_length``, the validation text with an overlap of a half.
    """
    held_out = _cut(validation, sequence_length, 0.5)
    network = Transformer(model, seeds[0], train.precision, kernels=train.kernels)
    state, step = TrainState.fresh(network, train), TrainStep(network, train)
    meter = PerplexityMeter(network, held_out, train.batch_size)
    _, zero = state.arrays()
    runs = []
    for overlap, epochs in arms:
        cut = _cut(source, sequence_length, overlap)
        for seed in seeds:
            fresh = Transformer(model, seed, train.precision)
            weights = {p.name: p.asnumpy().copy() for p in fresh.trainable_params()}
            state.load(weights, zero)
            passes = [permute(np.arange(len(cut)), len(cut), key_of(seed, e)) for e in range(math.ceil(epochs))]
            order = np.concatenate(passes)[: round(epochs * len(cut))]
            steps, losses = _run(cut, order, epochs, state, step, meter, train)
            slots = steps * train.batch_size * sequence_length
            runs.append(OverlapRun(overlap, epochs, seed, steps, slots, losses))
            if watch is not None:
                watch(len(runs), len(arms) * len(seeds))
    return runs


def slots_of(source: SampleSource, sequence_length: int, overlap: float) -> int:
    """Positions that one epoch computes at an overlap."""
    return _cut(source, sequence_length, overlap).ledger.slots


def _run(
    cut: SampleSource,
    order: np.ndarray,
    epochs: float,
    state: TrainState,
    step: TrainStep,
    meter: PerplexityMeter,
    train: TrainConfig,
) -> tuple[int, tuple[float, ...]]:
    batch_size = train.batch_size
    steps = -(-len(order) // batch_size)
    rates = replace(train, steps=steps, warmup_steps=min(train.warmup_steps, steps // 4))
    unique, losses = 0, []
    due = np.linspace(0, cut.ledger.targets_with_loss * epochs, EVALUATIONS + 1)[1:]
    for at in range(steps):
        rows = np.resize(order[at * batch_size : (at + 1) * batch_size], batch_size)
        batch = cut.batch(rows, rows)
        batch["labels"][
            len(order) - at * batch_size :
        ] = -100  # the last batch is filled up with rows that do not count
        state, metrics = step(state, batch, learning_rate_at(at, rates))
        unique += metrics["tokens"]
        while len(losses) < EVALUATIONS and unique >= due[len(losses)]:
            losses.append(meter.measure().loss)
    while len(losses) < EVALUATIONS:  # a part of an epoch holds a few targets more or less than its share
        losses.append(meter.measure().loss)
    return steps, tuple(losses)


def _cut(source: SampleSource, sequence_length: int, overlap: float) -> SampleSource:
    return replace(source, layout=make_layout(source.store, sequence_length, overlap))
