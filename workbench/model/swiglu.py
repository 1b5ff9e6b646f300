"""silu(gate) * up, as a definition and with a gradient by hand.

    N rows   F intermediate size

Cost by hand: gate and up (N, F) are kept for the backward pass, which computes silu(gate) again;
left to MindSpore, silu(gate) would be a third array. The projections are not here.
"""

from mindspore import nn, ops
from mindspore.ops.auto_generate import SiLU, SiLUGrad


def gated(gate, up):
    """silu(gate) * up, (N, F) each (Shazeer 2020, section 2); silu(x) = x sigmoid(x)."""
    return ops.mul(ops.silu(gate), up)


class Gated(nn.Cell):
    """``gated`` with its gradient written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.silu, self.silu_gradient = SiLU(), SiLUGrad()

    def construct(self, gate, up):
        return ops.mul(self.silu(gate), up)

    def bprop(self, gate, up, out, dout):
        # Without this the compiler keeps the forward pass's silu(gate).
        gate = ops.depend(gate, dout)
        return self.silu_gradient(ops.mul(dout, up), gate), ops.mul(dout, self.silu(gate))
