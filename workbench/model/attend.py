"""Attention proper: softmax(query key^T + mask) value, as a definition and in a form that keeps no scores.

    B rows   S positions   H query heads   K key/value heads   G = H / K   C head dimension
    n queries of a chunk   m keys they may see   M = B * K   R = G * S, query heads of a key head side by side

    attend       the definition, with a dense mask (M, R, S)
    LeanAttend   the same values and gradients from positions and segments, in chunks of queries

``LeanAttend`` keeps query, key, value and context for the backward pass, and no scores. Compiled, the
masks without heads (B, S, S / 2 on average) are made once a step and shared by all layers; the
program, and the time to compile it, grow with layers x chunks. Keys behind a chunk, and those before
a sliding window, are never multiplied. Not here: rotary positions, projections, the 1/sqrt(C), dropout, a cache.
"""

import mindspore as ms
from mindspore import nn, ops

from workbench.errors import SettingError
from workbench.model.mask_forms import additive_mask
from workbench.model.masks import Mask


def attend(query, key, value, mask):
    """softmax(query key^T + mask) value: (M, R, C), (M, S, C), (M, S, C), additive (M, R, S) -> (M, R, C).

    The plain definition (Vaswani et al. 2017, eq. 1), the 1/sqrt(C) already in ``query``. Scores
    and softmax are float32 whatever the type of the operands.
    """
    scores = ops.BatchMatMul(transpose_b=True)(query, key)
    scores = ops.add(ops.cast(scores, ms.float32), mask)
    probabilities = ops.Softmax(-1)(scores)
    return ops.BatchMatMul()(ops.cast(probabilities, value.dtype), value)


@ops.constexpr
def pieces(length: int, chunk: int, window: int) -> tuple[tuple[int, int, int], ...]:
    """(first query, end of queries, first key) of every chunk; its keys end where its queries do."""
    return tuple(
        (start, min(start + chunk, length), max(0, start - window + 1) if window else 0)
        for start in range(0, length, chunk)
    )


class LeanAttend(nn.Cell):
    """``attend`` over packed causal rows, its gradient by hand, scores recomputed in the backward pass.

    lean(query (M, R, C), key (M, S, C), value (M, S, C), position_ids (B, S), segment_ids (B, S)) -> (M, R, C)

    Positions and segments are int32; a document's positions grow along the row. A position of
    segment 0 gives and receives zeros. Dao et al. 2022: the backward pass in chunks of appendix
    B.4, with D of B.2 as one more column of a product, so that nothing is broadcast or reduced
    over S x S (MindSpore's own softmax gradient on the CPU is Mul, ReduceSum, Sub, Mul). Products
    are computed in the type of ``query``, masks and softmax in float32.
    """

    def __init__(self, heads: int, groups: int, window: int = 0, chunk: int = 128) -> None:
        """``heads`` H, ``groups`` K, ``window`` keys a position sees (0: all), ``chunk`` queries at once.

        Raises SettingError where heads is no multiple of groups, chunk below 1 or window below 0.
        """
        super().__init__()
        if groups < 1 or heads % groups:
            raise SettingError(f"heads={heads} is not allowed with groups={groups}: a multiple of it")
        if chunk < 1:
            raise SettingError(f"chunk={chunk} is not allowed: at least 1")
        if window < 0:
            raise SettingError(f"window={window} is not allowed: 0 (all) or more")
        self.heads, self.groups, self.window, self.chunk = heads, groups, window, chunk
        self.mask = Mask("sliding", window=window) if window else Mask()
        self.product, self.softmax, self.tile = ops.BatchMatMul(), ops.Softmax(-1), ops.Tile()
        self.product_bt, self.product_at = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul(transpose_a=True)
        self.concat, self.join, self.slice = ops.Concat(-1), ops.Concat(1), ops.Slice()
        self.row_mean = ops.ReduceMean(True)

    def construct(self, query, key, value, position_ids, segment_ids):
        length, contexts = segment_ids.shape[1], ()
        for start, stop, first in pieces(length, self.chunk, self.window):
            own = self.cut(query, length, start, stop)
            probabilities = self.probabilities(
                own, self.rows(key, first, stop), position_ids, segment_ids, start, first, stop
            )
            context = self.product(ops.cast(probabilities, value.dtype), self.rows(value, first, stop))
            contexts += (self.heads_apart(context),)
            # One chunk after the other; otherwise the arrays of several exist at once.
            query = ops.depend(query, context)
        return ops.mul(ops.reshape(self.join(contexts), query.shape), self.seen(segment_ids, query))

    def bprop(self, query, key, value, position_ids, segment_ids, out, dout):
        length, size = segment_ids.shape[1], value.shape[2]
        gradient = ops.mul(dout, self.seen(segment_ids, query))
        # The mean and not the sum, because only the former has a fast kernel; -C in the new column
        # of V makes it the sum again.
        row_mean = self.row_mean(ops.mul(gradient, out), -1)
        extended_value = self.concat((value, ops.full_like(self.rows(row_mean, 0, length), -float(size))))
        # Without this the compiler finds the forward pass's products here again and keeps them.
        query, key = ops.depend(query, gradient), ops.depend(key, gradient)
        extended_gradient = self.concat((gradient, row_mean))
        query_gradients = ()
        key_gradient, value_gradient = ops.zeros_like(key), ops.zeros_like(value)
        for start, stop, first in pieces(length, self.chunk, self.window):
            own, keys = self.cut(query, length, start, stop), self.rows(key, first, stop)
            probabilities = self.probabilities(own, keys, position_ids, segment_ids, start, first, stop)
            inner = self.product_bt(
                self.cut(extended_gradient, length, start, stop), self.rows(extended_value, first, stop)
            )
            scores = ops.cast(ops.mul(probabilities, ops.cast(inner, ms.float32)), query.dtype)
            query_gradients += (self.heads_apart(self.product(scores, keys)),)
            key_gradient = self.add_rows(key_gradient, self.product_at(scores, own), first, stop)
            probabilities = ops.cast(probabilities, value.dtype)
            own_gradient = self.cut(gradient, length, start, stop)
            value_gradient = self.add_rows(value_gradient, self.product_at(probabilities, own_gradient), first, stop)
            query = ops.depend(query, key_gradient)
            extended_gradient = ops.depend(extended_gradient, value_gradient)
        return (
            ops.reshape(self.join(query_gradients), query.shape),
            key_gradient,
            value_gradient,
            ops.zeros_like(position_ids),
            ops.zeros_like(segment_ids),
        )

    def probabilities(self, query, key, position_ids, segment_ids, start, first, stop):
        """(M, G*n, C), (M, m, C) -> float32 (M, G*n, m)."""
        mask = additive_mask(
            self.rows(position_ids, start, stop),
            self.rows(position_ids, first, stop),
            self.rows(segment_ids, start, stop),
            self.rows(segment_ids, first, stop),
            self.mask,
        )
        # The compiler computes a mask once for all layers; ``depend`` keeps its copies for all
        # heads from living as long.
        mask = self.tile(ops.expand_dims(ops.depend(mask, query), 1), (1, self.heads, 1, 1))
        scores = ops.cast(self.product_bt(query, key), ms.float32)
        return self.softmax(ops.add(scores, ops.reshape(mask, scores.shape)))

    def rows(self, x, start, stop):
        """Rows ``start`` to ``stop`` of the second axis."""
        # x[:, start:stop] takes a slow kernel where it is all of x (62 ms instead of 0.03).
        return self.slice(x, (0, start) + (0,) * (x.ndim - 2), (x.shape[0], stop - start) + x.shape[2:])

    def cut(self, x, length, start, stop):
        """Positions ``start`` to ``stop`` of x (M, G*S, .) -> (M, G*n, .)."""
        part = self.rows(ops.reshape(x, (-1, length, x.shape[2])), start, stop)
        return ops.reshape(part, (x.shape[0], -1, x.shape[2]))

    def add_rows(self, total, part, first, stop):
        """``part`` (M, m, C) added to rows ``first`` to ``stop`` of ``total`` (M, S, C)."""
        length, sums = total.shape[1], (ops.add(self.rows(total, first, stop), part),)
        if first > 0:
            sums = (self.rows(total, 0, first),) + sums
        if stop < length:
            sums += (self.rows(total, stop, length),)
        return self.join(sums)

    def heads_apart(self, x):
        """(M, G*n, C) -> (M*G, n, C)."""
        return ops.reshape(x, (x.shape[0] * (self.heads // self.groups), -1, x.shape[2]))

    def seen(self, segment_ids, like):
        """(M, R, C) in the type of ``like``: 0 in the rows of segment 0, which see nothing, and 1 in all others."""
        batch, length = segment_ids.shape
        seen = ops.cast(ops.not_equal(segment_ids, 0), like.dtype)
        seen = self.tile(ops.reshape(seen, (batch, 1, length, 1)), (1, self.heads, 1, like.shape[2]))
        return ops.reshape(seen, like.shape)
