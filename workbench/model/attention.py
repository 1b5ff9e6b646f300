"""Grouped-query attention with rotary positions, for whole sequences and for cached decoding.

    B rows   S positions   D hidden size   H query heads   K key/value heads   G = H / K
    C head dimension   L cache length   Q new positions   N = B * S

Costs a layer: projections, and what ``attend.py`` says; nothing of size S x S is kept for the
backward pass, unless the layer is recomputed, which takes the plain definition. What is the same for
all layers (rotary tables, masks) is expanded once a pass and handed in, because on the CPU a
broadcasting operator takes several times a same-shape one. Queries are grouped instead of keys
repeated, so grouped-query attention copies nothing.

Not here: dropout.
"""

import numpy as np
import mindspore as ms
from mindspore import nn, ops

from workbench.config import ModelConfig
from workbench.model.attend import LeanAttend, attend
from workbench.model.flash import flash_attend, flash_attend_packed
from workbench.model.linear import Linear
from workbench.model.native.chunks import NativeAttend
from workbench.model.native.cells import Kernels, NativeRotate, NativeSwap
from workbench.model.norm import RMSNorm
from workbench.model.rotary import rotate


class Attention(nn.Cell):
    """Self-attention of one layer; weights named as in Hugging Face's Llama, Qwen2 and Qwen3."""

    def __init__(
        self,
        config: ModelConfig,
        rng: np.random.Generator,
        compute_dtype: ms.dtype,
        flash_attention: bool = False,
        window: int = 0,
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
        self.compute_dtype, self.flash_attention, self.windowed = compute_dtype, flash_attention, window > 0
        self.attend, self.by_hand, self.native = LeanAttend(self.heads, self.groups, window), True, False

    def use_kernels(self, kernels: Kernels) -> None:
        lean, self.native = self.attend, True
        self.attend = NativeAttend(lean.heads, lean.groups, lean.window, lean.chunk, kernels)
        self.rotate_native, self.swap_native = NativeRotate(kernels), NativeSwap(kernels)

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
        query = self.rotated(query, cos_query, sin_query)
        key = self.rotated(key, cos_key, sin_key)
        value = self.swapped(value)
        # Head h reads key head h // G, so the G queries of a key head lie side by side.
        query = self.by_group(query, batch, self.heads * length // self.groups)
        return query, self.by_group(key, batch, length), self.by_group(value, batch, length)

    def by_group(self, x, batch, rows):
        """(B, heads, S, C) -> (B*K, rows, C) in the compute type."""
        return ops.cast(ops.reshape(x, (batch * self.groups, rows, self.head_size)), self.compute_dtype)

    def rotated(self, x, cos, sin):
        """(B, S, heads, C) -> (B, heads, S, C)."""
        if self.native and self.by_hand:
            return self.rotate_native(x, cos, sin)
        return ops.transpose(rotate(x, cos, sin), (0, 2, 1, 3))

    def swapped(self, x):
        """The second and third axis of four change places."""
        if self.native and self.by_hand:
            return self.swap_native(x)
        return ops.transpose(x, (0, 2, 1, 3))

    def merge(self, context, batch):
        """(B*K, G*S, C) -> (N, H*C)."""
        length = context.shape[1] * self.groups // self.heads
        context = ops.reshape(ops.cast(context, ms.float32), (batch, self.heads, length, self.head_size))
        return ops.reshape(self.swapped(context), (batch * length, self.heads * self.head_size))

    def construct(self, x, batch, cos_query, sin_query, cos_key, sin_key, mask, seen, position_ids, segment_ids):
        """x (N, D) -> (N, D); position_ids and segment_ids int32 (B, S).

        mask and seen are read by the plain definition and by flash attention: mask additive (B*K,
        G*S, S), with flash (B, S, S) or, without a window, the documents' ends (M,); seen (N, H*C),
        0 in rows that see nothing and 1 in all others.
        """
        query, key, value = self.project(x, batch, cos_query, sin_query, cos_key, sin_key)
        if self.flash_attention and self.windowed:
            context = flash_attend(query, key, value, mask, self.heads)
        elif self.flash_attention:
            context = flash_attend_packed(query, key, value, mask, self.heads, batch)
        elif self.by_hand:
            context = self.attend(query, key, value, position_ids, segment_ids)
            return self.o_proj(self.merge(context, batch))
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
