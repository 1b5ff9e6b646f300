"""The native kernels as MindSpore operators, and cells with their gradients.

    N rows   D size of a row   B batch   S positions   H heads   C head dimension   V vocabulary

What each computes is said in ``kernels.cpp``. For the backward pass the cells keep what their stock
counterparts in ``norm.py``, ``swiglu.py`` and ``rotary.py`` keep, the norm one (N, D) array instead
of three. Operands are float32; in float16 the model casts before and after, as for the stock operators.
"""

from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn, ops


def _swapped(shape):
    return [shape[0], shape[2], shape[1], shape[3]]


# {kernel: (number of results, their shapes from those of the operands)}
_RESULTS = {
    "rms_norm": (2, lambda x, weight, epsilon: (x, x[:1])),
    "rms_norm_gradient": (2, lambda x, weight, inverse_rms, gradient: (x, weight)),
    "gated": (1, lambda gate, up: gate),
    "gated_gradient": (2, lambda gate, up, gradient: (gate, gate)),
    "rotate": (1, lambda x, cos, sin: _swapped(x)),
    "rotate_gradient": (1, lambda gradient, cos, sin: cos),
    "swap": (1, _swapped),
    "masked_softmax": (1, lambda scores, *places: scores),
    "softmax_gradient": (1, lambda probabilities, gradient: probabilities),
    "cross_entropy": (2, lambda logits, labels: (labels, logits)),
}


class Kernels:
    """An operator for each kernel of the shared library at ``path``, as attributes: ``kernels.rotate(x, cos, sin)``.

    Float operands are float32 and integers int32, else MindSpore raises RuntimeError as it runs.
    """

    def __init__(self, path: Path) -> None:
        for name, (count, shapes) in _RESULTS.items():
            types = (ms.float32,) * count if count > 1 else ms.float32
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
