"""The native kernels as MindSpore operators, and cells with their gradients.

    N rows   D size of a row   B batch   S positions   H heads   C head dimension   V vocabulary

What each computes is said in ``kernels.cpp``; the cells keep the same arrays for the backward pass
as their stock counterparts in ``norm.py``, ``swiglu.py`` and ``rotary.py``, or fewer. All operands are float32; in
float16 the model casts before and after, as it does for the stock operators.
"""

from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn, ops


def _swapped(shape):
    return [shape[0], shape[2], shape[1], shape[3]]


# {kernel: shapes of its results from those of its operands}
_RESULTS = {
    "rms_norm": lambda x, weight, epsilon: (x, x[:1]),
    "rms_norm_gradient": lambda x, weight, inverse_rms, gradient: (x, weight),
    "gated": lambda gate, up: gate,
    "gated_gradient": lambda gate, up, gradient: (gate, gate),
    "rotate": lambda x, cos, sin: _swapped(x),
    "rotate_gradient": lambda gradient, cos, sin: cos,
    "swap": _swapped,
    "masked_softmax": lambda scores, *places: scores,
    "softmax_gradient": lambda probabilities, gradient: probabilities,
    "cross_entropy": lambda logits, labels: (labels, logits),
}


class Kernels:
    """An operator for each kernel of the shared library at ``path``, as attributes: ``kernels.rotate(x, cos, sin)``."""

    def __init__(self, path: Path) -> None:
        for name, shapes in _RESULTS.items():
            several = name in ("rms_norm", "rms_norm_gradient", "gated_gradient", "cross_entropy")
            types = (ms.float32, ms.float32) if several else ms.float32
            setattr(self, name, ops.Custom(f"{path}:{name}", shapes, types, func_type="aot"))


class NativeNormalize(nn.Cell):
    """``rms_norm`` of x (N, D) and weight (D,); returns (result, 1/rms (N,)), only the result is differentiable."""

    def __init__(self, epsilon: float, kernels: Kernels) -> None:
        super().__init__()
        self.epsilon = ms.Tensor(np.array([epsilon], np.float32))
        self.kernel, self.gradient = kernels.rms_norm, kernels.rms_norm_gradient

    def construct(self, x, weight):
        return self.kernel(x, weight, self.epsilon)

    def bprop(self, x, weight, out, dout):
        return self.gradient(x, weight, out[1], dout[0])


class NativeGated(nn.Cell):
    """silu(gate) * up, (N, F) each."""

    def __init__(self, kernels: Kernels) -> None:
        super().__init__()
        self.kernel, self.gradient = kernels.gated, kernels.gated_gradient

    def construct(self, gate, up):
        return self.kernel(gate, up)

    def bprop(self, gate, up, out, dout):
        return self.gradient(gate, up, dout)


class NativeRotate(nn.Cell):
    """``rotate`` of x (B, S, H, C) by cos and sin of that shape, heads first: (B, H, S, C)."""

    def __init__(self, kernels: Kernels) -> None:
        super().__init__()
        self.kernel, self.gradient = kernels.rotate, kernels.rotate_gradient

    def construct(self, x, cos, sin):
        return self.kernel(x, cos, sin)

    def bprop(self, x, cos, sin, out, dout):
        return self.gradient(dout, cos, sin), ops.zeros_like(cos), ops.zeros_like(sin)


class NativeSwap(nn.Cell):
    """x (B, X, Y, C) -> (B, Y, X, C)."""

    def __init__(self, kernels: Kernels) -> None:
        super().__init__()
        self.kernel = kernels.swap

    def construct(self, x):
        return self.kernel(x)

    def bprop(self, x, out, dout):
        return (self.kernel(dout),)
