"""The joint loss against numpy in float64, with its parts masked, empty and mixed."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import ops
from tiny_model import TINY

from workbench.model.transformer import Transformer
from workbench.train.losses import (
    fact_loss_sum,
    instruction_loss_sum,
    joint_loss,
    lm_loss_sum,
    target_counts,
)

CONFIG = TINY


@pytest.fixture(scope="module")
def model():
    return Transformer(CONFIG, seed=0)


def cross_entropy(logits, labels):
    logits = logits.astype(np.float64)
    top = logits.max(-1, keepdims=True)
    log_sum = np.log(np.exp(logits - top).sum(-1)) + top[:, 0]
    return sum(log_sum[i] - logits[i, label] for i, label in enumerate(labels) if label != -100)


@pytest.mark.parametrize("asked", [0, 1, 17, 40])
def test_next_token_loss_counts_asked_rows_only(model, asked):
    rng = np.random.default_rng(asked)
    hidden = rng.normal(size=(40, 16)).astype(np.float32) * 3
    labels = rng.integers(0, 64, 40).astype(np.int32)
    labels[rng.permutation(40)[asked:]] = -100
    logits = hidden.astype(np.float64) @ model.model.embed_tokens.weight.asnumpy().astype(np.float64).T
    got = float(lm_loss_sum(model, ms.Tensor(hidden), ms.Tensor(labels)).asnumpy())
    assert got == pytest.approx(cross_entropy(logits, labels), rel=1e-5, abs=2e-4)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("asked", [0, 1, 300])
def test_half_precision_counts_one_label_among_many_rows_rightly(asked, compiled):
    """Values and both gradients against the same rounded operands in float64."""
    model = Transformer(CONFIG, seed=0, compute_dtype="float16")
    rng = np.random.default_rng(asked)
    hidden = rng.normal(size=(2048, 16)).astype(np.float16).astype(np.float32)
    labels = rng.integers(0, 64, 2048).astype(np.int32)
    labels[rng.permutation(2048)[asked:]] = -100
    weight = model.model.embed_tokens.weight
    ops.assign(weight, ms.Tensor(rng.normal(size=(64, 16)).astype(np.float16).astype(np.float32)))

    def loss(x, targets):
        return lm_loss_sum(model, x, targets)

    function = ms.value_and_grad(loss, 0, [weight])
    value, (of_hidden, of_weight) = (ms.jit(function) if compiled else function)(ms.Tensor(hidden), ms.Tensor(labels))
    exact, head = hidden.astype(np.float64), weight.asnumpy().astype(np.float64)
    logits = exact @ head.T
    assert float(value.asnumpy()) == pytest.approx(cross_entropy(logits, labels), rel=2e-3, abs=1e-6)
    slope = np.exp(logits - logits.max(1, keepdims=True))
    slope /= slope.sum(1, keepdims=True)
    slope[np.arange(2048), np.maximum(labels, 0)] -= 1
    slope[labels == -100] = 0
    for got, want in ((of_hidden, slope @ head), (of_weight[0], slope.T @ exact)):
        np.testing.assert_allclose(got.asnumpy(), want, atol=4e-3 * max(1, np.abs(want).max()))


def test_ignored_rows_have_no_gradient(model):
    rng = np.random.default_rng(1)
    hidden = ms.Tensor(rng.normal(size=(8, 16)).astype(np.float32))
    labels = ms.Tensor(np.array([1, -100, 3, -100, 5, 6, -100, 8], np.int32))
    gradient = ms.grad(lambda h: lm_loss_sum(model, h, labels))(hidden).asnumpy()
    assert (gradient[[1, 3, 6]] == 0).all() and (np.abs(gradient[[0, 2, 4]]).max(-1) > 0).all()


def test_instruction_and_fact_losses(model):
    rng = np.random.default_rng(2)
    logits, scores = rng.normal(size=(9, 16)).astype(np.float32), rng.normal(size=9).astype(np.float32)
    labels = np.array([3, -100, 0, -100, 15, 2, -100, -100, 1], np.int32)
    truth = np.array([1, -1, 0, 0.5, -1, -1, 1, 0, -1], np.float32)
    assert float(instruction_loss_sum(ms.Tensor(logits), ms.Tensor(labels)).asnumpy()) == pytest.approx(
        cross_entropy(logits, labels), rel=1e-5
    )
    probability = 1 / (1 + np.exp(-scores.astype(np.float64)))
    expected = ((probability - truth)[truth >= 0] ** 2).sum()
    assert float(fact_loss_sum(ms.Tensor(scores), ms.Tensor(truth)).asnumpy()) == pytest.approx(expected, rel=1e-5)


def batch_of(rng, rows=2, length=12):
    shape = (rows, length)
    return {
        "input_ids": rng.integers(0, 64, shape).astype(np.int32),
        "position_ids": np.tile(np.arange(length, dtype=np.int32), (rows, 1)),
        "segment_ids": np.ones(shape, np.int32),
        "task_ids": np.zeros(shape, np.int32),
        "labels": np.where(rng.random(shape) < 0.6, rng.integers(0, 64, shape), -100).astype(np.int32),
        "instruction_labels": np.where(rng.random(shape) < 0.2, 2, -100).astype(np.int32),
        "fact_targets": np.where(rng.random(shape) < 0.2, 1.0, -1.0).astype(np.float32),
    }


def parts(model, batch, counts, weights=(1.0, 0.3, 0.1)):
    tensors = tuple(ms.Tensor(batch[n]) for n in batch)
    total, three = joint_loss(model, weights, tensors, ms.Tensor(counts))
    return float(total.asnumpy()), three.asnumpy().astype(float)


def test_the_total_is_the_weighted_sum_of_the_parts(model):
    batch = batch_of(np.random.default_rng(3))
    total, three = parts(model, batch, target_counts(batch))
    assert total == pytest.approx(three @ [1.0, 0.3, 0.1], rel=1e-6)
    assert parts(model, batch, target_counts(batch), (0.0, 1.0, 0.0))[0] == pytest.approx(three[1], rel=1e-6)


def test_parts_without_targets_are_zero_and_not_nan(model):
    batch = batch_of(np.random.default_rng(4))
    for name, empty in (("labels", -100), ("instruction_labels", -100), ("fact_targets", -1.0)):
        batch[name] = np.full_like(batch[name], empty)
    total, three = parts(model, batch, target_counts(batch))
    assert total == pytest.approx(0, abs=1e-4) and three == pytest.approx([0, 0, 0], abs=1e-4)


def test_micro_batches_of_3_and_97_tokens_equal_one_batch_of_100(model):
    rng = np.random.default_rng(5)
    whole = batch_of(rng, rows=2, length=97)
    whole["labels"] = rng.integers(0, 64, (2, 97)).astype(np.int32)
    whole["labels"][0, 3:] = -100
    counts = target_counts(whole)
    assert counts[0] == 100
    halves = [{n: a[i : i + 1] for n, a in whole.items()} for i in (0, 1)]
    together = sum(parts(model, half, counts)[1][0] for half in halves)
    assert together == pytest.approx(parts(model, whole, counts)[1][0], rel=1e-5)
