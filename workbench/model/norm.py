"""Root mean square normalisation: the definition, and a gradient by hand that the CPU runs faster.

    N rows   D hidden size

Cost by hand: two (N, D) arrays kept for the backward pass. Always float32; no mean is subtracted
and there is no bias.
"""

import mindspore as ms
import numpy as np
from mindspore import nn, ops


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
    """``rms_norm`` with a weight that starts at 1."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(np.ones(size, np.float32)), name="weight")
        self.epsilon, self.by_hand = epsilon, True
        self.normalize = Normalize(epsilon)

    def construct(self, x):
        if self.by_hand:
            return self.normalize(x, self.weight)[0]
        return rms_norm(x, self.weight, self.epsilon)
