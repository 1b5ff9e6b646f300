"""swiglu.py against torch in float64."""

import numpy as np
import pytest
import torch

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms
from mindspore import ops

from workbench.model.swiglu import Gated, gated


@pytest.mark.parametrize("compiled", [True, False], ids=["jit", "pynative"])
def test_value_and_gradients_are_torchs(compiled):
    rng = np.random.default_rng(0)
    gate, up, gradient = (rng.normal(size=(7, 5)).astype(np.float32) * 4 for _ in range(3))
    gate[0] = [-100, 100, 0, 30, -30]
    exact = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in (gate, up)]
    expected = torch.nn.functional.silu(exact[0]) * exact[1]
    (expected * torch.tensor(gradient.astype(np.float64))).sum().backward()
    weight = ms.Tensor(gradient)
    for function in (Gated(), gated):

        def weighted(gate, up):
            result = function(gate, up)
            return ops.ReduceSum()(ops.mul(result, weight)), result

        derive = ms.value_and_grad(weighted, (0, 1), has_aux=True)
        (_, result), gradients = (ms.jit(derive) if compiled else derive)(ms.Tensor(gate), ms.Tensor(up))
        np.testing.assert_allclose(result.asnumpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-5)
        for got, want in zip(gradients, exact, strict=True):
            np.testing.assert_allclose(got.asnumpy(), want.grad.numpy(), rtol=1e-5, atol=1e-5)
