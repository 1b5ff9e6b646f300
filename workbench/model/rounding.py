"""bfloat16 as a CPU can show it: a float32 model whose products round as bfloat16's do. A simulation.

    model = Transformer(config, seed)          float32
    round_products(model)                      before its first call

MindSpore has no bfloat16 product on the CPU, but casts there and back. With both operands rounded,
the sums in float32 and the result rounded, a product is what the hardware's is, and so are the two
products of its gradient, because a cast passes the gradient through the same casts. Rounded are all
projections, the output head, and of attention query, key, value and context; its scores and
probabilities are not, which a bfloat16 kernel would round once more.

For studies only: slower than float32, whole sequences of dense models only. It is not a ``precision``
of a run.
"""

import mindspore as ms
from mindspore import nn, ops

from workbench.errors import SettingError
from workbench.model.head_loss import IGNORED, LogitsLoss
from workbench.model.linear import Linear
from workbench.model.transformer import Transformer


def rounded(x):
    """``x`` to the nearest bfloat16, ties to even, as float32; its gradient is rounded in the same way."""
    return ops.cast(ops.cast(x, ms.bfloat16), ms.float32)


class RoundedProduct(nn.Cell):
    """x (N, in), weight (out, in) -> (N, out), rounded before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.product = ops.MatMul(transpose_b=True)

    def construct(self, x, weight):
        return rounded(self.product(rounded(x), rounded(weight)))


class RoundedAttend(nn.Cell):
    """``LeanAttend`` on rounded query, key and value, its result rounded."""

    def __init__(self, attend: nn.Cell) -> None:
        super().__init__()
        self.attend = attend

    def construct(self, query, key, value, position_ids, segment_ids):
        return rounded(self.attend(rounded(query), rounded(key), rounded(value), position_ids, segment_ids))


class RoundedHeadLoss(nn.Cell):
    """As ``HeadLoss``, with all logits at once; only its first result, the sum (), is real."""

    def __init__(self) -> None:
        super().__init__()
        self.product, self.loss = RoundedProduct(), LogitsLoss()

    def construct(self, hidden, weight, labels):
        rows, size = hidden.shape
        asked = ops.cast(ops.not_equal(labels, IGNORED), ms.float32)
        kept = ops.mul(hidden, ops.tile(ops.reshape(asked, (rows, 1)), (1, size)))
        return self.loss(self.product(kept, weight), labels)[0], hidden, weight


def round_products(model: Transformer) -> None:
    """Let every product of ``model`` round as bfloat16's, but for the two small heads, which stay float32.

    Raises SettingError for a model that is not float32, has experts or is recomputed.
    """
    plain = any(not block.self_attn.by_hand for block in model.layers)
    if model.compute_dtype != ms.float32 or model.has_experts or plain:
        raise SettingError("simulated bfloat16 takes a float32 model without experts, before recompute is set")
    for block in model.layers:
        for _, cell in block.cells_and_names():
            if isinstance(cell, Linear):
                cell.matmul = RoundedProduct()
        block.self_attn.attend = RoundedAttend(block.self_attn.attend)
    model.head_matmul, model.head_loss = RoundedProduct(), RoundedHeadLoss()
