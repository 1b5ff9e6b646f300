"""Output head and next-token loss in one, without ever holding all logits.

    N rows   D hidden size   V vocabulary   n rows of a chunk

    head_loss    the definition: logits (N, V), log softmax, the label's entry
    HeadLoss     the same sum and gradients, n rows at a time
    LogitsLoss   the same sum from logits that are there, for float16 (``train/losses.py``)

``HeadLoss`` computes the gradients together with the loss, so the backward pass only multiplies
them by what comes from above (the idea of Liger Kernel's fused linear cross entropy, Hsu et al.
2024, section 3.2). Peak: logits and probabilities of one chunk (2 n V), and the gradients (N D and
V D) from the forward pass on. Without a backward pass two thirds of the products are wasted:
evaluate with the definition.
"""

import mindspore as ms
from mindspore import nn, ops

from workbench.errors import SettingError

IGNORED = -100


def head_loss(hidden, weight, labels):
    """Summed cross entropy of hidden (N, D) @ weight (V, D)^T against labels (N,) int32, -100 for none -> ()."""
    logits = ops.MatMul(transpose_b=True)(hidden, weight)
    asked = ops.cast(ops.not_equal(labels, IGNORED), ms.float32)
    chosen = ops.GatherD()(ops.log_softmax(logits, -1), 1, ops.reshape(ops.maximum(labels, 0), (-1, 1)))
    return -ops.ReduceSum()(ops.mul(ops.reshape(chosen, (-1,)), asked))


def row_losses(logits, probabilities, label):
    """Cross entropy of each row: logits (n, V), their softmax, label (n, 1) -> (n,)."""
    # log of the sum of exponentials, from the largest logit and its probability, which is never
    # near 0; the label's own probability may be.
    place, value = ops.ArgMaxWithValue(1)(logits)
    largest = ops.GatherD()(probabilities, 1, ops.reshape(place, label.shape))
    normaliser = ops.sub(ops.reshape(value, label.shape), ops.log(largest))
    return ops.reshape(ops.sub(normaliser, ops.GatherD()(logits, 1, label)), (-1,))


class LogitsLoss(nn.Cell):
    """Summed cross entropy of logits (N, V) against labels (N,) int32, -100 for none -> (sum (), probabilities (N, V)).

    The gradient of an ignored row is that of label 0: who calls zeroes the row's hidden state, on
    both ways. Only the sum is differentiable. Keeps the probabilities for the backward pass.
    """

    def __init__(self) -> None:
        super().__init__()
        self.softmax, self.sum = ops.Softmax(-1), ops.ReduceSum()

    def construct(self, logits, labels):
        probabilities = self.softmax(logits)
        losses = row_losses(logits, probabilities, ops.reshape(ops.maximum(labels, 0), (-1, 1)))
        return self.sum(ops.mul(losses, ops.cast(ops.not_equal(labels, IGNORED), ms.float32))), probabilities

    def bprop(self, logits, labels, out, dout):
        rows = ops.range(0, labels.shape[0], 1)
        places = ops.stack((ops.cast(rows, ms.int32), ops.maximum(labels, 0)), 1)
        own = ops.cast(ops.ones_like(labels), ms.float32)
        return ops.mul(ops.tensor_scatter_sub(out[1], places, own), dout[0]), ops.zeros_like(labels)


class HeadLoss(nn.Cell):
    """``head_loss`` as (sum (), its gradient for hidden (N, D), for weight (V, D)); only the sum is differentiable.

    Products are computed in ``compute_dtype``, everything else in float32. A product in float16
    takes probabilities as they are, before any loss scale: those below 6e-8 become 0.
    """

    def __init__(self, chunk: int = 512, compute_dtype=ms.float32) -> None:
        """``chunk`` rows at once. Raises SettingError for a chunk below 1."""
        super().__init__()
        if chunk < 1:
            raise SettingError(f"chunk={chunk} is not allowed: at least 1")
        self.chunk, self.compute_dtype = chunk, compute_dtype
        self.by_rows, self.product = ops.MatMul(transpose_b=True), ops.MatMul()
        self.by_columns = ops.MatMul(transpose_a=True)
        self.softmax, self.sum, self.slice = ops.Softmax(-1), ops.ReduceSum(), ops.Slice()
        self.tile, self.join = ops.Tile(), ops.Concat(0)

    def construct(self, hidden, weight, labels):
        rows, size = hidden.shape
        asked = ops.cast(ops.not_equal(labels, IGNORED), ms.float32)
        labels = ops.maximum(labels, 0)
        asked_wide = self.tile(ops.reshape(asked, (rows, 1)), (1, size))
        # A row of zeros gives the weight no gradient.
        kept = ops.mul(hidden, asked_wide)
        head = ops.cast(weight, self.compute_dtype)
        total, hidden_gradients, weight_gradient = 0.0, (), 0.0
        for start in range(0, rows, self.chunk):
            count = self.chunk if start + self.chunk <= rows else rows - start
            # Otherwise the logits of several chunks may exist at once.
            own = self.slice(ops.depend(kept, weight_gradient), (start, 0), (count, size))
            own = ops.cast(own, self.compute_dtype)
            label = ops.reshape(self.slice(labels, (start,), (count,)), (count, 1))
            logits = ops.cast(self.by_rows(own, head), ms.float32)
            probabilities = self.softmax(logits)
            losses = row_losses(logits, probabilities, label)
            total = total + self.sum(ops.mul(losses, self.slice(asked, (start,), (count,))))
            # d loss / d logits is probabilities - one-hot; the one-hot part is taken off below, where
            # it costs (N, D) and not (N, V).
            probabilities = ops.cast(probabilities, self.compute_dtype)
            hidden_gradients += (ops.cast(self.product(probabilities, head), ms.float32),)
            # (D, V) because this product is faster than the one that gives (V, D).
            weight_gradient = ops.add(ops.cast(self.by_columns(own, probabilities), ms.float32), weight_gradient)
        hidden_gradient = ops.sub(self.join(hidden_gradients), ops.gather(weight, labels, 0))
        weight_gradient = ops.tensor_scatter_sub(
            ops.transpose(weight_gradient, (1, 0)), ops.reshape(labels, (rows, 1)), kept
        )
        return total, ops.mul(hidden_gradient, asked_wide), weight_gradient

    def bprop(self, hidden, weight, labels, out, dout):
        return ops.mul(out[1], dout[0]), ops.mul(out[2], dout[0]), ops.zeros_like(labels)
