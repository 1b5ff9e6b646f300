"""silu(gate) * up, as a definition and with a gradient by hand.

    N rows   F intermediate size

Cost by hand: gate and up (N, F) are kept for the backward pass, which computes silu(gate) again;
left to MindSpore, silu(gate) would be a third array. The projections are not here.
"""

from mindspore import nn, ops


def gated(gate, up):
    """silu(gate) * up, (N, F) each (Shazeer 2020, section 2); silu(x) = x sigmoid(x)."""
    return ops.mul(ops.silu(gate), up)


class Gated(nn.Cell):
    """``gated`` with its gradient written by hand."""

    def construct(self, gate, up):
        return ops.mul(ops.mul(gate, ops.Sigmoid()(gate)), up)

    def bprop(self, gate, up, out, dout):
        # Without this the compiler keeps the forward pass's sigmoid.
        gate = ops.depend(gate, dout)
        sigmoid = ops.Sigmoid()(gate)
        silu = ops.mul(gate, sigmoid)
        # silu' = sigmoid (1 + x (1 - sigmoid)) = sigmoid + silu - silu sigmoid
        slope = ops.sub(ops.add(sigmoid, silu), ops.mul(silu, sigmoid))
        return ops.mul(ops.mul(dout, up), slope), ops.mul(dout, silu)
