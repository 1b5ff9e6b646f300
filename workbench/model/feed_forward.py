"""The dense feed-forward network of a block, which is also the expert that every token visits.

    N rows   D hidden size   F inner size

Costs 6 N D F floating point operations forward and keeps two (N, F) arrays for the backward
pass. One activation only, silu; no dropout.
"""

import numpy as np
from mindspore import nn

from workbench.model.linear import Linear
from workbench.model.native.cells import Kernels, NativeGated
from workbench.model.swiglu import Gated, gated


class SwiGLU(nn.Cell):
    """(silu(x gate) * (x up)) down: (N, D) -> (N, D) (Shazeer 2020, section 2)."""

    def __init__(
        self, size: int, inner: int, scale: float, rng: np.random.Generator, compute_dtype, bias: bool = False
    ) -> None:
        super().__init__()
        self.gate_proj = Linear(size, inner, scale, rng, compute_dtype, bias)
        self.up_proj = Linear(size, inner, scale, rng, compute_dtype, bias)
        self.down_proj = Linear(inner, size, scale, rng, compute_dtype, bias)
        self.gated, self.by_hand = Gated(), True

    def use_kernels(self, kernels: Kernels) -> None:
        self.gated = NativeGated(kernels)

    def construct(self, x):
        gate, up = self.gate_proj(x), self.up_proj(x)
        return self.down_proj(self.gated(gate, up) if self.by_hand else gated(gate, up))
