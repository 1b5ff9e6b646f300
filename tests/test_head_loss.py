"""head_loss.py against torch in float64: sums and gradients, ignored rows, extreme logits, memory."""

import numpy as np
import pytest
import torch
from peak_memory import peak_mb

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms

from workbench.errors import SettingError
from workbench.model.head_loss import HeadLoss, head_loss

ROWS, SIZE, VOCABULARY = 11, 6, 13


def problem(ignored, scale=1.0, seed=0):
    """hidden (11, 6), weight (13, 6), labels with repeats and ``ignored`` rows of -100."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, VOCABULARY, ROWS).astype(np.int32)
    labels[:2] = labels[3]
    labels[rng.permutation(ROWS)[:ignored]] = -100
    hidden, weight = rng.normal(size=(ROWS, SIZE)) * scale, rng.normal(size=(VOCABULARY, SIZE))
    return hidden.astype(np.float32), weight.astype(np.float32), labels


def by_torch(hidden, weight, labels, factor=1.0):
    """(sum, its gradients times ``factor``) in float64."""
    hidden, weight = (torch.tensor(a.astype(np.float64), requires_grad=True) for a in (hidden, weight))
    total = torch.nn.functional.cross_entropy(
        hidden @ weight.T, torch.tensor(labels.astype(np.int64)), ignore_index=-100, reduction="sum"
    )
    (total * factor).backward()
    return total.item(), (hidden.grad.numpy(), weight.grad.numpy())


def results(function, hidden, weight, labels, factor=1.0, compiled=True):
    targets, scale = ms.Tensor(labels), ms.Tensor(factor, ms.float32)

    def scaled(hidden, weight):
        total = function(hidden, weight, targets)
        return total * scale, total

    derive = ms.value_and_grad(scaled, (0, 1), has_aux=True)
    (_, total), gradients = (ms.jit(derive) if compiled else derive)(ms.Tensor(hidden), ms.Tensor(weight))
    return float(total.asnumpy()), [g.asnumpy() for g in gradients]


def fused(cell):
    def total(hidden, weight, labels):
        return cell(hidden, weight, labels)[0]

    return total


@pytest.mark.parametrize("ignored, chunk, compiled", [(0, 4, True), (3, 11, True), (11, 5, True), (3, 2, False)])
def test_sum_and_gradients_are_torchs(ignored, chunk, compiled):
    arrays = problem(ignored)
    expected, expected_gradients = by_torch(*arrays, factor=0.5)
    for function in (fused(HeadLoss(chunk)), head_loss):
        total, gradients = results(function, *arrays, factor=0.5, compiled=compiled)
        assert total == pytest.approx(expected, rel=1e-5, abs=1e-6)
        for got, want in zip(gradients, expected_gradients, strict=True):
            np.testing.assert_allclose(got, want, atol=1e-5)
    ignored_rows = results(fused(HeadLoss(chunk)), *arrays, compiled=compiled)[1][0][arrays[2] == -100]
    assert (ignored_rows == 0).all()


def test_a_label_whose_probability_underflows_has_its_exact_loss():
    hidden, weight, labels = problem(2, scale=300.0)
    expected, expected_gradients = by_torch(hidden, weight, labels)
    total, gradients = results(fused(HeadLoss(4)), hidden, weight, labels)
    assert expected > 90 * ROWS
    assert total == pytest.approx(expected, rel=1e-5)
    for got, want in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(got, want, atol=3e-3, rtol=1e-4)


def test_same_values_on_every_call():
    arrays = [ms.Tensor(a) for a in problem(2)]
    cell = HeadLoss(4)
    first, second = (tuple(x.asnumpy() for x in cell(*arrays)) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_half_precision_stays_close():
    arrays = problem(3)
    expected, expected_gradients = by_torch(*arrays)
    total, gradients = results(fused(HeadLoss(4, ms.float16)), *arrays)
    assert total == pytest.approx(expected, rel=5e-3)
    for got, want in zip(gradients, expected_gradients, strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, atol=2e-2)


def test_a_chunk_of_nothing_is_refused():
    with pytest.raises(SettingError, match="chunk=0"):
        HeadLoss(0)


HEAD_ALONE = """
import workbench, mindspore as ms, numpy as np
from workbench.model.head_loss import HeadLoss, head_loss

rng = np.random.default_rng(0)
hidden, weight = (ms.Tensor(rng.normal(size=(rows, 16)).astype(np.float32)) for rows in (1024, 2048))
labels = ms.Tensor(rng.integers(0, 2048, 1024).astype(np.int32))
cell = HeadLoss(128)

def plain(hidden, weight):
    return head_loss(hidden, weight, labels)

def fused(hidden, weight):
    return cell(hidden, weight, labels)[0]

ms.jit(ms.grad(FORM, (0, 1)))(hidden, weight)[0].asnumpy()
"""


def test_logits_are_never_there_as_a_whole(tmp_path):
    """1024 rows and 2048 entries: all logits are 8 MiB."""
    plain, fused = (peak_mb(HEAD_ALONE.replace("FORM", form), tmp_path) for form in ("plain", "fused"))
    assert plain >= 2 * 8
    assert fused < 8
