"""norm.py against float64 torch."""

import numpy as np
import pytest
import torch

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms

from workbench.model.norm import Normalize, RMSNorm, rms_norm


def test_hand_written_norm_is_the_norm():
    """``Normalize`` and ``rms_norm``: values and gradients against float64 torch."""
    rng = np.random.default_rng(0)
    x, weight, outer = rng.normal(size=(7, 12)), rng.normal(size=12), rng.normal(size=(7, 12))
    exact = [torch.tensor(a, requires_grad=True) for a in (x, weight)]
    expected = torch.nn.functional.rms_norm(exact[0], (12,), exact[1], eps=1e-5)
    (expected * torch.tensor(outer)).sum().backward()
    inputs = [ms.Tensor(a.astype(np.float32)) for a in (x, weight)]
    scale, cell = ms.Tensor(outer.astype(np.float32)), Normalize(1e-5)
    for function in (lambda a, b: cell(a, b)[0], lambda a, b: rms_norm(a, b, 1e-5)):
        np.testing.assert_allclose(function(*inputs).asnumpy(), expected.detach().numpy(), atol=1e-5)
        gradients = ms.grad(lambda a, b: (function(a, b) * scale).sum(), (0, 1))(*inputs)
        for got, want in zip(gradients, exact):
            np.testing.assert_allclose(got.asnumpy(), want.grad.numpy(), atol=1e-5)


@pytest.mark.parametrize("by_hand", [True, False])
def test_the_cell_starts_with_weights_of_one_and_survives_zeros(by_hand):
    cell = RMSNorm(4, 1e-5)
    cell.by_hand = by_hand
    x = np.array([[3.0, 3.0, -3.0, 3.0], [0.0, 0.0, 0.0, 0.0]], np.float32)
    np.testing.assert_allclose(cell(ms.Tensor(x)).asnumpy(), np.sign(x), atol=1e-5)
    gradient = ms.grad(lambda a: cell(a).sum())(ms.Tensor(x)).asnumpy()
    assert np.isfinite(gradient).all()
