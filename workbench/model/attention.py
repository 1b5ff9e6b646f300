"""Grouped-query attention with rotary positions, for whole sequences and for cached decoding.

    B rows   S positions   D hidden size   H query heads   K key/value heads   G = H / K
    C head dimension   L cache length   Q new positions   N = B * S

Costs a layer: one (B, H, S, S) array of probabilities kept for the backward pass. What broadcasts
over S x S or over heads is expanded once a step (``AttentionInputs``) and shared by all layers,
because on the CPU a broadcasting operator takes several times a same-shape one. Queries are
grouped instead of keys repeated, so grouped-query attention copies nothing.

Not here: dropout.
"""

import numpy as np
import mindspore as ms
from mindspore import nn, ops

from workbench.config import ModelConfig
from workbench.model.flash import flash_attend, flash_attend_packed
from workbench.model.linear import Linear
from workbench.model.norm import RMSNorm
from workbench.model.rotary import rotate


def attend(query, key, value, mask):
    """softmax(query key^T + mask) value: (M, R, C), (M, T, C), (M, T, C), additive (M, R, T) -> (M, R, C).

    The plain definition (Vaswani et al. 2017, eq. 1), the 1/sqrt(C) already in ``query``. Scores
    and softmax are float32 whatever the type of the operands.
    """
    scores = ops.BatchMatMul(transpose_b=True)(query, key)
    scores = ops.add(ops.cast(scores, ms.float32), mask)
    probabilities = ops.Softmax(-1)(scores)
    return ops.BatchMatMul()(ops.cast(probabilities, value.dtype), value)


class Attend(nn.Cell):
    """``attend`` in float32, with its gradient written by hand; returns (context, probabilities).

    The probabilities are there for the backward pass and to be looked at: their gradient is not
    propagated. With P the probabilities and dO the gradient of the context (Dao et al. 2022,
    appendix B.2), dS = P * (dO V^T - rowsum(dO * O)). The row sum becomes one more column of the
    product, so that nothing is broadcast or reduced over S x S: MindSpore's own softmax gradient
    on the CPU is Mul, ReduceSum, Sub (broadcast), Mul.
    """

    def __init__(self) -> None:
        super().__init__()
        self.product, self.softmax = ops.BatchMatMul(), ops.Softmax(-1)
        self.product_bt, self.product_at = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul(transpose_a=True)
        self.concat, self.row_mean = ops.Concat(-1), ops.ReduceMean(True)

    def construct(self, query, key, value, mask):
        probabilities = self.softmax(ops.add(self.product_bt(query, key), mask))
        return self.product(probabilities, value), probabilities

    def bprop(self, query, key, value, mask, out, dout):
        (context, probabilities), gradient = out, dout[0]
        # The mean and not the sum, because only the former has a fast kernel; -C in the new column
        # of V makes it the sum again.
        row_mean = self.row_mean(ops.mul(gradient, context), -1)
        extended_value = self.concat((value, ops.full_like(value[:, :, :1], -float(value.shape[2]))))
        scores = ops.mul(probabilities, self.product_bt(self.concat((gradient, row_mean)), extended_value))
        return (
            self.product(scores, key),
            self.product_at(scores, query),
            self.product_at(probabilities, gradient),
            ops.zeros_like(mask),
        )


class Attention(nn.Cell):
    """Self-attention of one layer; weights named as in Hugging Face's Llama, Qwen2 and Qwen3."""

    def __init__(
        self,
        config: ModelConfig,
        rng: np.random.Generator,
        compute_dtype: ms.dtype,
        flash_attention: bool = False,
        windowed: bool = False,
    ) -> None:
        super().__init__()
        size, scale, bias = config.hidden_size, config.initializer_range, config.attention_bias
        self.heads, self.groups, self.head_size = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_size,
        )
        width, kv_width = self.heads * self.head_size, self.groups * self.head_size
        self.q_proj = Linear(size, width, scale, rng, compute_dtype, bias)
        self.k_proj = Linear(size, kv_width, scale, rng, compute_dtype, bias)
        self.v_proj = Linear(size, kv_width, scale, rng, compute_dtype, bias)
        self.o_proj = Linear(width, size, scale, rng, compute_dtype, config.attention_output_bias)
        self.use_qk_norm = config.use_qk_norm
        if config.use_qk_norm:
            self.q_norm = RMSNorm(self.head_size, config.rms_norm_eps)
            self.k_norm = RMSNorm(self.head_size, config.rms_norm_eps)
        self.compute_dtype, self.flash_attention, self.windowed = compute_dtype, flash_attention, windowed
        self.attend, self.by_hand = Attend(), True

    def project(self, x, batch, cos_query, sin_query, cos_key, sin_key):
        """x (N, D) -> query (B*K, G*S, C), key and value (B*K, S, C), rotated and scaled."""
        length = x.shape[0] // batch
        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.use_qk_norm:
            query = self.q_norm(ops.reshape(query, (-1, self.head_size)))
            key = self.k_norm(ops.reshape(key, (-1, self.head_size)))
        query = ops.reshape(query, (batch, length, self.heads, self.head_size))
        key = ops.reshape(key, (batch, length, self.groups, self.head_size))
        value = ops.reshape(value, (batch, length, self.groups, self.head_size))
        query = rotate(query, cos_query, sin_query)
        key = rotate(key, cos_key, sin_key)
        # Head h reads key head h // G, so the G queries of a key head lie side by side.
        query = self.by_group(query, batch, self.heads * length // self.groups)
        return query, self.by_group(key, batch, length), self.by_group(value, batch, length)

    def by_group(self, x, batch, rows):
        """(B, S, heads, C) -> (B*K, rows, C) in the compute type."""
        x = ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (batch * self.groups, rows, self.head_size))
        return ops.cast(x, self.compute_dtype)

    def merge(self, context, batch):
        """(B*K, G*S, C) -> (N, H*C)."""
        length = context.shape[1] * self.groups // self.heads
        context = ops.reshape(ops.cast(context, ms.float32), (batch, self.heads, length, self.head_size))
        context = ops.transpose(context, (0, 2, 1, 3))
        return ops.reshape(context, (batch * length, self.heads * self.head_size))

    def construct(self, x, batch, cos_query, sin_query, cos_key, sin_key, mask, seen):
        """x (N, D) -> (N, D).

        mask additive (B*K, G*S, S); with flash attention (B, S, S), and without a window the
        documents' ends (M,) instead (``flash.py``). seen (N, H*C), 0 in rows that see
        nothing and 1 in all others.
        """
        query, key, value = self.project(x, batch, cos_query, sin_query, cos_key, sin_key)
        if self.flash_attention and self.windowed:
            context = flash_attend(query, key, value, mask, self.heads)
        elif self.flash_attention:
            context = flash_attend_packed(query, key, value, mask, self.heads, batch)
        elif self.by_hand and self.compute_dtype == ms.float32:
            context, _ = self.attend(query, key, value, mask)
        else:
            context = attend(query, key, value, mask)
        return self.o_proj(ops.mul(self.merge(context, batch), seen))

    def decode(self, x, batch, cos_query, sin_query, cos_key, sin_key, mask, slots, past_key, past_value):
        """x (B*Q, D) with a cache (B*K, L, C) -> (B*Q, D) and the cache with the new keys in it.

        slots (B*K*Q, 2): where each new key goes, as (row of the cache, position). mask additive
        (B*K, G*Q, L), with flash attention (B, Q, L).
        """
        query, key, value = self.project(x, batch, cos_query, sin_query, cos_key, sin_key)
        past_key = ops.tensor_scatter_update(past_key, slots, key.reshape(-1, self.head_size))
        past_value = ops.tensor_scatter_update(past_value, slots, value.reshape(-1, self.head_size))
        if self.flash_attention:
            context = flash_attend(query, past_key, past_value, mask, self.heads)
        else:
            context = attend(query, past_key, past_value, mask)
        return self.o_proj(self.merge(context, batch)), past_key, past_value
