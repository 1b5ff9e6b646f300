"""``LeanAttend`` and ``HeadLoss`` with the native kernels: same chunks and products, fewer operators between them.

    B rows   S positions   H query heads   K key/value heads   G = H / K   C head dimension
    n queries of a chunk   m keys they may see   M = B * K   N rows of hidden size D   V vocabulary

No mask is ever built: the softmax looks at positions and segments itself and leaves zeros in the
rows of segment 0, so that neither their context nor any gradient of theirs has to be zeroed. The
loss's kernel gives the gradient of the logits with the label taken off.
"""

import mindspore as ms
import numpy as np
from mindspore import ops

from workbench.model.attend import LeanAttend, pieces
from workbench.model.head_loss import HeadLoss
from workbench.model.native.cells import Kernels


class NativeAttend(LeanAttend):
    """``LeanAttend`` of the same arguments, with its softmax and the softmax's gradient as kernels."""

    def __init__(self, heads: int, groups: int, window: int, chunk: int, kernels: Kernels) -> None:
        super().__init__(heads, groups, window, chunk)
        self.keys_seen = ms.Tensor(np.array([window], np.int32))
        self.masked_softmax, self.softmax_gradient = kernels.masked_softmax, kernels.softmax_gradient

    def construct(self, query, key, value, position_ids, segment_ids):
        length, contexts = segment_ids.shape[1], ()
        for start, stop, first in pieces(length, self.chunk, self.window):
            own, keys = self.cut(query, length, start, stop), self.rows(key, first, stop)
            probabilities = self.probabilities(own, keys, position_ids, segment_ids, start, first, stop)
            context = self.product(ops.cast(probabilities, value.dtype), self.rows(value, first, stop))
            contexts += (self.heads_apart(context),)
            query = ops.depend(query, context)
        return ops.reshape(self.join(contexts), query.shape)

    def bprop(self, query, key, value, position_ids, segment_ids, out, dout):
        length, query_gradients = segment_ids.shape[1], ()
        key_gradient, value_gradient = ops.zeros_like(key), ops.zeros_like(value)
        # As in ``LeanAttend``: otherwise the forward pass's products are kept for here.
        query, key = ops.depend(query, dout), ops.depend(key, dout)
        for start, stop, first in pieces(length, self.chunk, self.window):
            own, keys = self.cut(query, length, start, stop), self.rows(key, first, stop)
            gradient = self.cut(dout, length, start, stop)
            probabilities = self.probabilities(own, keys, position_ids, segment_ids, start, first, stop)
            scores = self.product_bt(gradient, self.rows(value, first, stop))
            scores = self.softmax_gradient(probabilities, ops.cast(scores, ms.float32))
            scores = ops.cast(scores, query.dtype)
            query_gradients += (self.heads_apart(self.product(scores, keys)),)
            key_gradient = self.add_rows(key_gradient, self.product_at(scores, own), first, stop)
            probabilities = ops.cast(probabilities, value.dtype)
            value_gradient = self.add_rows(value_gradient, self.product_at(probabilities, gradient), first, stop)
            query, dout = ops.depend(query, key_gradient), ops.depend(dout, value_gradient)
        return (
            ops.reshape(self.join(query_gradients), query.shape),
            key_gradient,
            value_gradient,
            ops.zeros_like(position_ids),
            ops.zeros_like(segment_ids),
        )

    def probabilities(self, query, key, position_ids, segment_ids, start, first, stop):
        """(M, G*n, C), (M, m, C) -> float32 (M, G*n, m)."""
        return self.masked_softmax(
            ops.cast(self.product_bt(query, key), ms.float32),
            self.rows(position_ids, start, stop),
            self.rows(position_ids, first, stop),
            self.rows(segment_ids, start, stop),
            self.rows(segment_ids, first, stop),
            self.keys_seen,
        )


class NativeHeadLoss(HeadLoss):
    """``HeadLoss`` in float32; any label below 0 is none. Inside MindSpore a label of V or more is a RuntimeError."""

    def __init__(self, chunk: int, kernels: Kernels) -> None:
        super().__init__(chunk)
        self.cross_entropy = kernels.cross_entropy

    def construct(self, hidden, weight, labels):
        rows, size = hidden.shape
        total, hidden_gradients, weight_gradient = 0.0, (), 0.0
        for start in range(0, rows, self.chunk):
            count = self.chunk if start + self.chunk <= rows else rows - start
            # Otherwise the logits of several chunks may exist at once.
            own = self.slice(ops.depend(hidden, weight_gradient), (start, 0), (count, size))
            losses, gradient = self.cross_entropy(self.by_rows(own, weight), self.slice(labels, (start,), (count,)))
            total = total + self.sum(losses)
            hidden_gradients += (self.product(gradient, weight),)
            weight_gradient = ops.add(self.by_columns(own, gradient), weight_gradient)
        return total, self.join(hidden_gradients), ops.transpose(weight_gradient, (1, 0))
