"""The joint loss: language modelling, instruction classification, factual consistency.

    total = lm_weight * lm + instruction_weight * instruction + fact_weight * fact

Each part is a sum over its own targets divided by its own count, so a part without targets in
a batch is 0, never NaN. The counts are given from outside: with several ranks or micro-batches
they are the counts of the whole global batch, which makes the loss weigh every token the same
wherever it landed.

    lm           cross entropy of the next token
    instruction  cross entropy of the task type, read at the last input of a task document
    fact         squared error of sigmoid(score) against the truth label, at the same place

A model with experts adds its router's losses with the model's own coefficients.

Shapes: B rows, S positions, N = B*S, V vocabulary, T tasks, D hidden size.
"""

import mindspore as ms
import numpy as np
from mindspore import ops

from workbench.model.head_loss import IGNORED


def target_counts(batch: dict[str, np.ndarray]) -> np.ndarray:
    """float32 (4,): targets of the language model, the instruction head and the fact head; positions that hold a token."""
    return np.asarray(
        [
            (batch["labels"] != IGNORED).sum(),
            (batch["instruction_labels"] != IGNORED).sum(),
            (batch["fact_targets"] >= 0).sum(),
            (batch["segment_ids"] != 0).sum(),
        ],
        np.float32,
    )


def lm_loss_sum(model, hidden, labels):
    """Summed next-token cross entropy: hidden (N, D), labels (N,) int32 with -100 for none -> ().

    In float32 by ``HeadLoss``, which never holds all logits. In float16 that would round the
    gradient of the logits before it is scaled, so there the logits are made, from a hidden state
    of zeros in ignored rows. MindSpore's fused kernel is not used: its sum over N rows was off by
    0.3 at 2,048 rows and 2.6 at 8,192, much where most of them are ignored and taken off again.
    """
    if model.compute_dtype == ms.float32:
        return model.head_loss(hidden, model.head_weight(), labels)[0]
    asked = ops.cast(ops.not_equal(labels, IGNORED), ms.float32)
    rows, size = hidden.shape
    kept = ops.mul(hidden, ops.tile(ops.reshape(asked, (rows, 1)), (1, size)))
    return model.logits_loss(model.logits(kept), labels)[0]


def instruction_loss_sum(logits, labels):
    """Summed cross entropy: logits (N, T), labels (N,) with -100 for none -> ()."""
    asked = ops.cast(ops.not_equal(labels, IGNORED), ms.float32)
    chosen = ops.one_hot(
        ops.maximum(labels, 0), logits.shape[-1], ms.Tensor(1.0, ms.float32), ms.Tensor(0.0, ms.float32)
    )
    picked = ops.ReduceSum()(ops.mul(ops.log_softmax(logits, -1), chosen), -1)
    return -ops.ReduceSum()(ops.mul(picked, asked))


def fact_loss_sum(scores, targets):
    """Summed squared error of sigmoid(scores): (N,) twice, a target below 0 is none -> ()."""
    asked = ops.cast(ops.greater_equal(targets, 0.0), ms.float32)
    error = ops.sub(ops.sigmoid(scores), targets)
    return ops.ReduceSum()(ops.mul(ops.mul(error, error), asked))


def joint_loss(model, weights, batch, counts, layer_factors=None):
    """(total, parts) of a batch of tensors; ``weights`` three floats, ``counts`` (4,) tensor of ``target_counts``.

    ``batch`` is (input_ids, position_ids, segment_ids, task_ids, labels, instruction_labels,
    fact_targets), each (B, S); ``layer_factors`` (layers,), none dropped without them. Parts is one
    array: lm, instruction and fact loss, then row by row what each sparse layer tells (``SparseMoE``).
    The total holds the router's two losses too, averaged over the sparse layers, with the model's
    coefficients. They are means over the batch's own tokens; of a part of a step they count by its
    share of all tokens, so that the parts add up (the balance is then that within each part).
    """
    input_ids, position_ids, segment_ids, task_ids, labels, instruction_labels, fact_targets = batch
    if layer_factors is None:
        layer_factors = model.keep_all
    hidden, router = model.with_router(input_ids, position_ids, segment_ids, task_ids, layer_factors)
    hidden = ops.reshape(hidden, (-1, hidden.shape[-1]))
    counts = ops.maximum(counts, 1.0)
    lm = lm_loss_sum(model, hidden, ops.reshape(labels, (-1,))) / counts[0]
    instruction = (
        instruction_loss_sum(model.instruction_head(hidden), ops.reshape(instruction_labels, (-1,))) / counts[1]
    )
    fact = fact_loss_sum(ops.reshape(model.fact_head(hidden), (-1,)), ops.reshape(fact_targets, (-1,))) / counts[2]
    total = weights[0] * lm + weights[1] * instruction + weights[2] * fact
    parts = ops.stack((lm, instruction, fact))
    if not model.has_experts:
        return total, parts
    config, experts = model.config, model.config.num_experts
    share = ops.ReduceSum()(ops.cast(ops.not_equal(segment_ids, 0), ms.float32)) / counts[3]
    losses = router[:, experts : experts + 2] * share
    balance, z = ops.mean(losses[:, 0]), ops.mean(losses[:, 1])
    total = total + config.router_aux_loss_coef * balance + config.router_z_loss_coef * z
    router = ops.concat((router[:, :experts], losses, router[:, experts + 2 :]), 1)
    return total, ops.concat((parts, ops.reshape(router, (-1,))))
