"""One compiled training step: loss, scaled backward pass, overflow vote, clip, AdamW, new scale.

    state = TrainState.fresh(model, config)
    step = TrainStep(model, config)
    state, metrics = step(state, batch)

The step is a chain of four functions, compiled together:

    backward   a part of the batch → its share of the loss, gradients of (loss * scale)
    reduce     over the ranks; a gradient that is not finite on one rank is so on all, which is the
               vote: every rank skips or none
    judge      norm, finite?, within the limits?, the policy's next scale, one factor that unscales and clips
    update     AdamW in place; outside of the compiled function where the moments are not on the device

With accumulation the first is compiled by itself and adds to buffers, the rest is another function.
Targets are counted over all parts and ranks before the first backward pass, so each token weighs the
same wherever it landed. Compiled at the first call (``compile_seconds``) and never again: learning
rate, scale and counts are tensors, smaller batches are filled up (``micro_batches.py``).

On overflow (a gradient norm that is not finite; a norm beyond 1.8e19 counts as one) nothing but
the scale's own numbers changes. On a loss or norm above its limit nothing changes but those of a good step.
"""

import time
from typing import Any, Mapping

import mindspore as ms
import numpy as np
from mindspore import ops

from workbench.config import TrainConfig
from workbench.device import check_joined, ranks
from workbench.errors import DataError, SettingError
from workbench.model.batch import check_batch
from workbench.model.transformer import Transformer
from workbench.train.losses import joint_loss, target_counts
from workbench.train.micro_batches import micro_batches, part_shape
from workbench.train.scaling import dynamic
from workbench.train.schedule import learning_rate_at
from workbench.train.state import TrainState

_LOSSES = ("loss", "tokens", "lm_loss", "instruction_loss", "fact_loss")
_JUDGED = ("grad_norm", "loss_scale", "within", "finite")
NO_LIMITS = (float("inf"), float("inf"))


class TrainStep:
    """``step(state, batch) -> state, metrics``; see the top of the file. ``policy`` as in ``scaling.py``."""

    def __init__(self, model: Transformer, config: TrainConfig, policy=dynamic) -> None:
        self.model, self.config, self.policy = model, config, policy
        try:
            _, _, _, _, _ = policy(1.0, 0.0, 1.0, 1.0, config)
        except (TypeError, ValueError) as error:
            raise SettingError(
                f"policy={policy!r} is not allowed: a function that returns five numbers, such as those of scaling.py"
            ) from error
        self.compile_seconds: float | None = None
        self.parts = config.gradient_accumulation_steps
        model.recompute(config.recompute)
        self._state: TrainState | None = None

    def __call__(
        self,
        state: TrainState,
        batch: Mapping[str, np.ndarray],
        learning_rate: float | None = None,
        limits: tuple[float, float] = NO_LIMITS,
        votes: tuple[float, ...] = (),
    ) -> tuple[TrainState, dict[str, Any]]:
        """One step on this rank's rows of a batch (see ``SampleSource.batch``); metrics as Python numbers.

        Metrics: loss (weighted total), lm_loss, instruction_loss, fact_loss (means over their
        targets), tokens (targets with loss), grad_norm (unscaled, before clipping), all of them over
        all ranks; loss_scale (the one used), learning_rate (the schedule's, unless one is given),
        overflow (0 or 1), skipped (0 or 1); with experts also those of ``expert_metrics``; on several
        ranks rank_losses (lm_loss of each rank's rows). ``limits``: a step is skipped, its update not
        made, when its loss or gradient norm is above its limit or is no number; infinity allows all.
        ``votes``: numbers of this rank, as many in every step; metrics["votes"] has their sums over
        the ranks. The batch may hold
        ``layer_factors`` (layers,), see ``dropping.py``, and ``loss_factor``, a number that the loss
        is multiplied by behind everybody's back, for fault drills. A batch without any target is a
        step with gradients of zero: momentum and decay still move the weights. Raises DataError for ids outside
        the model's tables and for a batch larger than the first, SettingError for another model's state.
        """
        check_batch(batch, self.model.config, self.model.flash_attention)
        factors = self._layer_factors(batch)
        first = state is not self._state
        if first:
            if any(ours is not theirs for ours, theirs in zip(self.model.trainable_params(), state.parameters)):
                raise SettingError("this state was made of another model: use TrainState.fresh(model, config)")
            self._state, self._shape = state, part_shape(batch, self.parts)
            self._run = _compiled(self.model, state, self.config, self.policy)
        rate = self._rate(state) if learning_rate is None else learning_rate
        shared = (
            ms.Tensor(factors),
            ms.Tensor(float(batch.get("loss_factor", 1.0)), ms.float32),
            ms.Tensor(target_counts(batch)),
        )
        cut = micro_batches(batch, self.parts, self._shape)
        tokens = float(target_counts(batch)[0])
        own = ms.Tensor(np.array((*limits, tokens, *votes), np.float32))
        start = time.perf_counter()
        told = self._run([tuple(map(ms.Tensor, part)) for part in cut], shared, ms.Tensor(rate, ms.float32), own)
        if first:
            self.compile_seconds = time.perf_counter() - start
        return state, self._metrics(told, rate, len(votes))

    def _layer_factors(self, batch: Mapping[str, np.ndarray]) -> np.ndarray:
        layers = self.model.config.num_hidden_layers
        factors = np.asarray(batch.get("layer_factors", np.ones(layers)), np.float32)
        if factors.shape != (layers,):
            raise DataError(f"layer_factors has shape {factors.shape}, expected ({layers},): one for each layer")
        if not self.model.config.layer_dropout and (factors != 1).any():
            raise DataError("layer_factors are given, but the model has no layer dropout: set layer_dropout above 0")
        return factors

    def _rate(self, state: TrainState) -> float:
        return learning_rate_at(int(state.numbers()["schedule_step"]), self.config)

    def _metrics(self, told: np.ndarray, rate: float, votes: int) -> dict[str, Any]:
        world, names = ranks()[1], _JUDGED + _LOSSES
        sizes = (len(names), _router_size(self.model), votes, *((world, world) if world > 1 else ()))
        first, router, votes_told, *by_rank = np.split(told, np.cumsum(sizes)[:-1])
        values = dict(zip(names, first.tolist()))
        values["overflow"] = int(values.pop("finite") == 0)
        values["skipped"] = int(values.pop("within") == 0 and not values["overflow"])
        values["learning_rate"], values["tokens"] = rate, round(values["tokens"])
        if self.model.has_experts:
            values |= expert_metrics(router.reshape(len(self.model.config.sparse_layers), -1))
        if votes:
            values["votes"] = votes_told.tolist()
        if by_rank:
            shares, tokens = by_rank
            # A rank's share of the mean over all targets, as the mean over its own; NaN without any.
            own = np.divide(shares * values["tokens"], tokens, out=np.full(world, np.nan), where=tokens > 0)
            values["rank_losses"] = own.tolist()
        return values


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


def _compiled(model: Transformer, state: TrainState, config: TrainConfig, policy):
    """A function of (parts, shared inputs, learning rate, own) -> float array, cut up in ``TrainStep._metrics``.

    ``own``: both limits, the rank's targets, its votes.
    """
    weights = (config.lm_weight, config.instruction_weight, config.fact_weight)
    parameters, optimizer, scalars = state.parameters, state.optimizer, state.scalars
    parts, world = config.gradient_accumulation_steps, ranks()[1]
    check_joined()
    all_reduce = ops.AllReduce() if world > 1 else None
    slot = ms.Tensor(np.eye(world, dtype=np.float32)[ranks()[0]])

    def summed(x):
        return all_reduce(x) if world > 1 else x

    def scaled_loss(a, b, c, d, e, f, g, factors, loss_factor, counts, scale):
        total, told = joint_loss(model, weights, (a, b, c, d, e, f, g), counts, factors)
        # The count is of all parts and ranks already; what they tell is added up.
        return total * (scale * loss_factor), ops.concat((ops.stack((total, counts[0] / (parts * world))), told))

    gradient = ms.value_and_grad(scaled_loss, None, weights=parameters, has_aux=True)

    def finish(gradients, losses, learning_rate, own):
        """Reduce, judge, update: what is told, and what the optimizer leaves to ``finished``."""
        updates, scale, good, overflows = scalars[0], scalars[1], scalars[2], scalars[3]
        patience, in_row, schedule_step, frozen = scalars[4], scalars[5], scalars[6], scalars[7]
        gradients = optimizer.reduced(gradients)
        scaled_norm = ops.sqrt(optimizer.square_sum(gradients))
        finite = ops.cast(ops.isfinite(scaled_norm), ms.float32)
        next_scale, good, patience, divisor, applied = policy(scale, good, patience, finite, config)
        norm = scaled_norm / divisor
        told = (losses, own[3:]) + ((slot * losses[2], slot * own[2]) if world > 1 else ())
        told = summed(ops.concat(told))
        within = within_limit(told[0], own[0]) * within_limit(norm, own[1])
        applied = applied * within
        # Unscaling and clipping are one factor; exact for a scale that is a power of two.
        factor = config.max_grad_norm / ops.maximum(norm, config.max_grad_norm) / divisor
        left = optimizer(gradients, factor, learning_rate, updates, applied)
        numbers = (updates + applied, next_scale, good, overflows + 1.0 - finite, patience)
        numbers += ((in_row + 1.0) * (1.0 - finite), schedule_step + (1.0 - frozen) * applied, frozen)
        ops.assign(scalars, ops.stack(numbers))
        return (ops.concat((ops.stack((norm, scale, within, finite)), told)),) + left

    def finished(told, *left):
        if optimizer.on_host:
            optimizer.apply(left)
        return told.asnumpy().astype(float)

    if parts == 1:

        def whole(a, b, c, d, e, f, g, factors, loss_factor, counts, learning_rate, own):
            (_, losses), gradients = gradient(a, b, c, d, e, f, g, factors, loss_factor, summed(counts), scalars[1])
            return finish(gradients, losses, learning_rate, own)

        compiled = ms.jit(whole)
        return lambda cut, shared, rate, own: finished(*compiled(*cut[0], *shared, rate, own))

    buffers = parameters.clone("accumulated", init="zeros")
    told = ms.Parameter(ms.Tensor(np.zeros(len(_LOSSES) + _router_size(model), np.float32)), name="accumulated_losses")

    def accumulate(a, b, c, d, e, f, g, factors, loss_factor, counts):
        (_, losses), gradients = gradient(a, b, c, d, e, f, g, factors, loss_factor, summed(counts), scalars[1])
        for buffer, own in zip(buffers, gradients):
            ops.assign_add(buffer, own)
        ops.assign_add(told, losses)
        return losses

    def close(learning_rate, own):
        return finish(buffers, told, learning_rate, own)

    def clear():
        # Set and not multiplied by 0, which would keep an overflow's NaN.
        for buffer in buffers:
            ops.assign(buffer, ops.zeros_like(buffer))
        ops.assign(told, ops.zeros_like(told))

    add, end, empty = ms.jit(accumulate), ms.jit(close), ms.jit(clear)

    def run(cut, shared, rate, own):
        empty()  # and not after the step, which may have been interrupted
        for part in cut:
            add(*part, *shared)
        return finished(*end(rate, own))

    return run


def within_limit(value, limit):
    """1.0 where ``value`` is not above ``limit`` (both () tensors), or the limit is infinite; else, and for NaN, 0.0."""
    return ops.maximum(ops.cast(value <= limit, ms.float32), 1.0 - ops.cast(ops.isfinite(limit), ms.float32))


def _router_size(model: Transformer) -> int:
    return len(model.config.sparse_layers) * (model.config.num_experts + 3)
