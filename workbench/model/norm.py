"""Normalisation of rows: root mean square and layer norm, each with its plain definition beside it.

    N rows   D size of a row (the hidden size, or one head's)

Both compute in float32 whatever float type comes in, and return that type: in float16 the square
of 256 is already infinite, and the gradient of 1/sqrt(variance + epsilon) is not finite for rows
of small variance unless epsilon is above 6e-4. The RMS norm has a gradient by hand, which the CPU
runs faster and which keeps two (N, D) arrays for the backward pass; the layer norm is MindSpore's
fused kernel. Weights are float32. Not here: norms over other axes than the last.
"""

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from workbench.config import ModelConfig
from workbench.model.native.cells import Kernels, NativeNormalize


def rms_norm(x, weight, epsilon):
    """x / sqrt(mean(x^2) + epsilon) * weight over the last axis, (N, D) (Zhang & Sennrich 2019, eq. 4)."""
    mean = ops.ReduceMean(True)(ops.square(x), -1)
    return ops.mul(ops.mul(x, ops.rsqrt(mean + epsilon)), weight)


class Normalize(nn.Cell):
    """``rms_norm`` of x (N, D) with its gradient written by hand; returns (result, normalised x, 1/rms).

    Only the result's gradient is propagated. What has one value a row or a column is tiled before
    it meets a whole array, because broadcasting operators are slow on the CPU.
    """

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.tile, self.mean, self.sum = ops.Tile(), ops.ReduceMean(True), ops.ReduceSum(False)

    def construct(self, x, weight):
        rows, size = x.shape
        inverse_rms = self.tile(ops.rsqrt(ops.add(self.mean(ops.mul(x, x), -1), self.epsilon)), (1, size))
        normalised = ops.mul(x, inverse_rms)
        result = ops.mul(normalised, self.tile(ops.expand_dims(weight, 0), (rows, 1)))
        return result, normalised, inverse_rms

    def bprop(self, x, weight, out, dout):
        rows, size = x.shape
        (_, normalised, inverse_rms), gradient = out, dout[0]
        scaled = ops.mul(gradient, self.tile(ops.expand_dims(weight, 0), (rows, 1)))
        along = self.tile(self.mean(ops.mul(scaled, normalised), -1), (1, size))
        return (
            ops.mul(inverse_rms, ops.sub(scaled, ops.mul(normalised, along))),
            self.sum(ops.mul(gradient, normalised), 0),
        )


class RMSNorm(nn.Cell):
    """``rms_norm`` of x (N, D) of any float type, with a weight that starts at 1."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(np.ones(size, np.float32)), name="weight")
        self.epsilon, self.by_hand = epsilon, True
        self.normalize = Normalize(epsilon)

    def use_kernels(self, kernels: Kernels) -> None:
        self.normalize = NativeNormalize(self.epsilon, kernels)

    def construct(self, x):
        exact = ops.cast(x, ms.float32)
        if self.by_hand:
            result = self.normalize(exact, self.weight)[0]
        else:
            result = rms_norm(exact, self.weight, self.epsilon)
        return ops.cast(result, x.dtype)


def layer_norm(x, weight, bias, epsilon):
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis, (N, D) (Ba et al. 2016, eq. 4)."""
    mean = ops.ReduceMean(True)
    centred = ops.sub(x, mean(x, -1))
    return ops.add(ops.mul(ops.mul(centred, ops.rsqrt(mean(ops.square(centred), -1) + epsilon)), weight), bias)


class LayerNorm(nn.Cell):
    """``layer_norm`` of x (N, D) of any float type, with a weight that starts at 1 and a bias that starts at 0."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(np.ones(size, np.float32)), name="weight")
        self.bias = ms.Parameter(ms.Tensor(np.zeros(size, np.float32)), name="bias")
        self.kernel = ops.LayerNorm(begin_norm_axis=-1, begin_params_axis=-1, epsilon=epsilon)

    def construct(self, x):
        return ops.cast(self.kernel(ops.cast(x, ms.float32), self.weight, self.bias)[0], x.dtype)


def make_norm(config: ModelConfig, size: int | None = None) -> nn.Cell:
    """The norm that ``config.norm_type`` names, over rows of ``size`` (default: the hidden size)."""
    kind = {"rms_norm": RMSNorm, "layer_norm": LayerNorm}[config.norm_type]
    return kind(config.hidden_size if size is None else size, config.rms_norm_eps)
