"""One compiled training step: loss, scaled backward pass, overflow check, clip, AdamW, new scale.

    state = TrainState.fresh(model, config)
    step = TrainStep(model, config)
    state, metrics = step(state, batch, learning_rate)

The whole step is one compiled function; it is compiled at the first call (``compile_seconds``)
and again only for another batch shape. The learning rate and the loss scale are tensors, so
changing them never recompiles. The state is MindSpore parameters updated in place: the state
given in is the state that comes out.

On overflow (a gradient norm that is not finite; a norm beyond 1.8e19 counts as one) nothing but
the loss scale changes. One rank; reducing over several ranks is not part of this file yet.
"""

import time
from dataclasses import dataclass
from typing import Any, Mapping

import mindspore as ms
import numpy as np
from mindspore import ops

from workbench.config import TrainConfig
from workbench.model.batch import check_batch
from workbench.model.transformer import Transformer
from workbench.model.weights import set_weights
from workbench.train.losses import joint_loss, target_counts
from workbench.train.optimizing import decays
from workbench.train.scaling import next_scale

INPUTS = ("input_ids", "position_ids", "segment_ids", "task_ids", "labels", "instruction_labels", "fact_targets")
_METRICS = ("loss", "lm_loss", "instruction_loss", "fact_loss", "grad_norm", "loss_scale", "finite")


@dataclass(frozen=True)
class TrainState:
    """Everything that a step changes, as MindSpore parameters, besides the model's own.

    ``moment1`` and ``moment2`` are in the order of ``parameters``. ``scalars`` (4,): updates
    done, loss scale, good steps in a row, overflows so far.
    """

    parameters: ms.ParameterTuple
    moment1: ms.ParameterTuple
    moment2: ms.ParameterTuple
    scalars: ms.Parameter

    @classmethod
    def fresh(cls, model: Transformer, config: TrainConfig) -> "TrainState":
        """The state before the first step: moments of zero, the initial loss scale."""
        parameters = ms.ParameterTuple(model.trainable_params())
        return cls(
            parameters,
            parameters.clone("moment1", init="zeros"),
            parameters.clone("moment2", init="zeros"),
            ms.Parameter(ms.Tensor([0.0, config.init_loss_scale, 0.0, 0.0], ms.float32), name="scalars"),
        )

    def arrays(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """(weights by name, optimizer arrays by name), copies on the host."""
        weights = {p.name: p.asnumpy().copy() for p in self.parameters}
        optimizer = {p.name: p.asnumpy().copy() for p in (*self.moment1, *self.moment2, self.scalars)}
        return weights, optimizer

    def load(self, weights: Mapping[str, np.ndarray], optimizer: Mapping[str, np.ndarray]) -> None:
        """Write the arrays of another state into this one. Raises DataError for names or shapes that differ."""
        set_weights(self.parameters, weights)
        set_weights((*self.moment1, *self.moment2, self.scalars), optimizer)


class TrainStep:
    """``step(state, batch, learning_rate) -> state, metrics``; see the top of the file."""

    def __init__(self, model: Transformer, config: TrainConfig) -> None:
        self.model, self.config = model, config
        self.compile_seconds: float | None = None
        model.recompute(config.recompute)
        self._state: TrainState | None = None

    def __call__(
        self, state: TrainState, batch: Mapping[str, np.ndarray], learning_rate: float
    ) -> tuple[TrainState, dict[str, Any]]:
        """One step on a batch (see ``SampleSource.batch``); metrics as Python numbers.

        Metrics: loss (weighted total), lm_loss, instruction_loss, fact_loss (means over their
        targets), grad_norm (unscaled, before clipping), loss_scale (the one used), overflow (0
        or 1), tokens (targets with loss); with experts also those of ``expert_metrics``. The batch may
        hold ``layer_factors`` (layers,), see ``dropping.py``. Raises DataError for ids outside the model's tables.
        """
        check_batch(batch, self.model.config, self.model.flash_attention)
        first = state is not self._state
        if first:
            self._state, self._compiled = state, _compile(self.model, state, self.config)
        counts = target_counts(batch)
        tensors = tuple(ms.Tensor(np.ascontiguousarray(batch[name])) for name in INPUTS)
        factors = batch.get("layer_factors", np.ones(self.model.config.num_hidden_layers, np.float32))
        start = time.perf_counter()
        out = self._compiled(*tensors, ms.Tensor(factors), ms.Tensor(counts), ms.Tensor(learning_rate, ms.float32))
        told = out.asnumpy().astype(float)
        values = dict(zip(_METRICS, told.tolist()))
        if first:
            self.compile_seconds = time.perf_counter() - start
        values["overflow"] = int(values.pop("finite") == 0)
        values["tokens"] = int(counts[0])
        if self.model.has_experts:
            values |= expert_metrics(told[len(_METRICS) :].reshape(len(self.model.config.sparse_layers), -1))
        return state, values


def expert_metrics(told: np.ndarray) -> dict[str, Any]:
    """What the sparse layers told, (M, E + 3) as ``SparseMoE`` gives it, as metrics.

    expert_load (a list of E shares for each layer, each layer's sum is 1), aux_loss and z_loss
    (means over the layers, before their coefficients), dropped_assignments (over all layers).
    """
    counts, losses = told[:, :-3], told[:, -3:]
    load = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return {
        "expert_load": load.round(4).tolist(),
        "aux_loss": float(losses[:, 0].mean()),
        "z_loss": float(losses[:, 1].mean()),
        "dropped_assignments": int(losses[:, 2].sum()),
    }


def _compile(model: Transformer, state: TrainState, config: TrainConfig):
    """The step as one jitted function of (7 batch tensors, layer factors, counts (3,), learning rate ()) -> metrics (7 + ...,)."""
    weights = (config.lm_weight, config.instruction_weight, config.fact_weight)
    beta1, beta2, epsilon = config.adam_beta1, config.adam_beta2, config.adam_epsilon
    decay = tuple(config.weight_decay if decays(p.name, p.ndim) else 0.0 for p in state.parameters)
    parameters, moment1, moment2, scalars = state.parameters, state.moment1, state.moment2, state.scalars
    adam = ops.AdamWeightDecay()
    count = len(parameters)

    def scaled_loss(a, b, c, d, e, f, g, factors, counts, scale):
        total, parts = joint_loss(model, weights, (a, b, c, d, e, f, g), counts, factors)
        return total * scale, total, parts

    gradient = ms.value_and_grad(scaled_loss, None, weights=parameters, has_aux=True)

    def step(a, b, c, d, e, f, g, factors, counts, learning_rate):
        updates, scale, good, overflows = scalars[0], scalars[1], scalars[2], scalars[3]
        (_, total, parts), grads = gradient(a, b, c, d, e, f, g, factors, counts, scale)
        squares = 0.0
        for grad in grads:
            squares = squares + ops.ReduceSum()(ops.square(grad))
        norm = ops.sqrt(squares) / scale
        finite = ops.isfinite(norm)
        ok = ops.cast(finite, ms.float32)
        # Skipping without a branch (a branch and recompute together do not compile): with betas
        # of 1, a rate of 0 and gradients of 0 the kernel writes back what it read.
        overflow = ops.logical_not(finite)
        kept1, kept2 = beta1 * ok + (1.0 - ok), beta2 * ok + (1.0 - ok)
        # Unscaling and clipping are one factor; exact for a scale that is a power of two.
        factor = config.max_grad_norm / ops.maximum(norm, config.max_grad_norm) / scale
        t = updates + 1.0
        correction1, correction2 = 1.0 - ops.pow(beta1, t), ops.sqrt(1.0 - ops.pow(beta2, t))
        rate = learning_rate * ok * correction2 / correction1
        for i in range(count):
            adam(
                parameters[i],
                moment1[i],
                moment2[i],
                rate,
                kept1,
                kept2,
                epsilon * correction2,
                decay[i] * correction1 / correction2,
                ops.masked_fill(grads[i] * factor, overflow, 0.0),
            )
        new_scale, new_good = next_scale(scale, good, ok, config)
        ops.assign(scalars, ops.stack((updates + ok, new_scale, new_good, overflows + 1.0 - ok)))
        return ops.concat((ops.stack((total, parts[0], parts[1], parts[2], norm, scale, ok)), parts[3:]))

    return ms.jit(step)
