"""A LLaMA-like decoder with a task-aware embedding and two small heads.

    B rows   S positions   D hidden size   H query heads   K key/value heads   C head dimension
    F intermediate size   V vocabulary   T tasks   N = B * S

    hidden = model(input_ids, position_ids, segment_ids, task_ids)     (B, S, D)
    logits = model.logits(hidden)                                      (B, S, V)
    model.instruction_head(rows), model.fact_head(rows)                (N, D) -> (N, T), (N, 1)

Parameter names are those of Hugging Face's ``LlamaForCausalLM`` where it has the parameter, so
weights are exchanged by name. All weights are drawn from normal(0, initializer_range) and the
norms are 1, as in GPT-2 (Radford et al. 2019, section 2.3, without its scaling by depth) and
``transformers.LlamaConfig``. The same seed gives every rank the same weights.

No dropout: a recomputed block would draw another mask (and one-epoch pretraining uses none).
The loss is not computed here; the sequence mask is causal within each segment, no other kind.
"""

import numpy as np
import mindspore as ms
from mindspore import nn, ops

from workbench.config import ModelConfig, require
from workbench.errors import DataError
from workbench.model.attention import Attention, Linear, linear, rotary_table
from workbench.model.masks import cached_causal_mask, packed_causal_mask
from workbench.model.norm import RMSNorm


class SwiGLU(nn.Cell):
    """(silu(x gate) * (x up)) down (Shazeer 2020, section 2)."""

    def __init__(self, config: ModelConfig, rng: np.random.Generator, compute_dtype) -> None:
        super().__init__()
        size, inner, scale = config.hidden_size, config.intermediate_size, config.initializer_range
        self.gate_proj = Linear(size, inner, scale, rng, compute_dtype)
        self.up_proj = Linear(size, inner, scale, rng, compute_dtype)
        self.down_proj = Linear(inner, size, scale, rng, compute_dtype)

    def construct(self, x):
        return self.down_proj(ops.mul(ops.silu(self.gate_proj(x)), self.up_proj(x)))


class Block(nn.Cell):
    """One decoder layer: attention and SwiGLU, each on a normed input and added to the stream."""

    def __init__(self, config: ModelConfig, rng: np.random.Generator, compute_dtype, flash_attention: bool) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, rng, compute_dtype, flash_attention)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = SwiGLU(config, rng, compute_dtype)

    def construct(self, x, batch, cos_query, sin_query, cos_key, sin_key, mask, seen):
        """x (N, D) -> (N, D); the rest as in ``Attention``.

        One argument for each array: a recomputed cell takes no tuple of arrays.
        """
        normed = self.input_layernorm(x)
        x = ops.add(x, self.self_attn(normed, batch, cos_query, sin_query, cos_key, sin_key, mask, seen))
        return ops.add(x, self.mlp(self.post_attention_layernorm(x)))

    def use_plain_gradients(self) -> None:
        """Let MindSpore derive the gradients of norm and attention; same values, other rounding."""
        for cell in (self.input_layernorm, self.self_attn, self.post_attention_layernorm):
            cell.by_hand = False

    def recompute(self, **options) -> None:
        """Recompute this block in the backward pass instead of keeping its activations.

        It goes back to plain gradients: compiled, MindSpore 2.10 keeps what a cell with its own
        ``bprop`` returned, recomputed or not, and where that meets the residual stream the graph
        gets a cycle. Peak of the allocator, 6 layers, hidden 256, 8 x 256 positions: 162 MB, of 493
        MB without recomputing and 322 MB if the gradients by hand stayed (2026-11-29, one run each).
        """
        self.use_plain_gradients()
        super().recompute(**options)

    def decode(self, x, batch, cos_query, sin_query, cos_key, sin_key, mask, slots, past_key, past_value):
        normed = self.input_layernorm(x)
        attended, past_key, past_value = self.self_attn.decode(
            normed, batch, cos_query, sin_query, cos_key, sin_key, mask, slots, past_key, past_value
        )
        x = ops.add(x, attended)
        return ops.add(x, self.mlp(self.post_attention_layernorm(x))), past_key, past_value


class Embedding(nn.Cell):
    """A table (rows, D), normal(0, scale)."""

    def __init__(self, rows: int, size: int, scale: float, rng: np.random.Generator) -> None:
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(rng.normal(0.0, scale, (rows, size)).astype(np.float32)), name="weight")

    def construct(self, ids):
        return ops.gather(self.weight, ids, 0)


class TaskAwareEmbedding(nn.Cell):
    """What a task adds to the token embeddings: (N,) task ids -> (N, D).

    Zero at the start, so that the logits of step 0 do not depend on the task. Row 0 means no task
    and stays zero: it is masked out, so its gradient is exactly zero.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        shape = (config.num_tasks, config.hidden_size)
        self.weight = ms.Parameter(ms.Tensor(np.zeros(shape, np.float32)), name="weight")
        real = np.ones(shape, np.float32)
        real[0] = 0
        self.real = ms.Tensor(real)

    def construct(self, task_ids):
        return ops.gather(ops.mul(self.weight, self.real), task_ids, 0)


class Decoder(nn.Cell):
    """Embeddings, blocks and the final norm; ``model.`` in Hugging Face's names."""

    def __init__(self, config: ModelConfig, rng: np.random.Generator, compute_dtype, flash_attention: bool) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, config.initializer_range, rng)
        self.layers = nn.CellList(
            [Block(config, rng, compute_dtype, flash_attention) for _ in range(config.num_hidden_layers)]
        )
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class Transformer(nn.Cell):
    """The model. ``seed`` names the initial weights, ``compute_dtype`` the type of matrix products.

    ``compute_dtype`` is "float32" or "float16"; parameters, norms and softmax are float32 in both,
    and every matrix product returns float32. ``flash_attention`` takes Ascend's fused kernel
    (``device.flash_attention``), which computes in float16. Raises SettingError for another type.
    """

    def __init__(
        self, config: ModelConfig, seed: int, compute_dtype: str = "float32", flash_attention: bool = False
    ) -> None:
        super().__init__()
        require(compute_dtype in ("float32", "float16"), "precision", compute_dtype, "float32 or float16")
        fits = not flash_attention or compute_dtype == "float16"
        require(fits, "precision", compute_dtype, "flash attention needs float16")
        self.config, self.flash_attention = config, flash_attention
        self.compute_dtype = getattr(ms, compute_dtype)
        rng = np.random.default_rng(seed)
        size, scale = config.hidden_size, config.initializer_range
        self.model = Decoder(config, rng, self.compute_dtype, flash_attention)
        if not config.tie_word_embeddings:
            self.lm_head = Linear(size, config.vocab_size, scale, rng, self.compute_dtype)
        self.task_embedding = TaskAwareEmbedding(config)
        self.instruction_head = Linear(size, config.num_tasks, scale, rng, ms.float32)
        self.fact_head = Linear(size, 1, scale, rng, ms.float32)
        cos, sin = rotary_table(config)
        self.cos, self.sin = ms.Tensor(cos), ms.Tensor(sin)
        self.head_matmul = ops.MatMul()

    @property
    def layers(self) -> nn.CellList:
        """The blocks, in order; ``for block in model.layers: block.recompute()`` before the first step."""
        return self.model.layers

    def construct(self, input_ids, position_ids, segment_ids, task_ids):
        """int32 (B, S) each -> final hidden states float32 (B, S, D). A row of segment 0 is finite."""
        batch, length = input_ids.shape
        config = self.config
        x = self.embed(input_ids, task_ids)
        cos_query, sin_query, cos_key, sin_key = self.rotary(position_ids)
        mask = packed_causal_mask(segment_ids)
        if not self.flash_attention:
            mask = self.for_heads(mask)
        # A padding position sees no key at all; the softmax of its row means nothing.
        seen = ops.cast(ops.not_equal(ops.reshape(segment_ids, (-1, 1)), 0), ms.float32)
        seen = ops.tile(seen, (1, config.hidden_size))
        for block in self.model.layers:
            x = block(x, batch, cos_query, sin_query, cos_key, sin_key, mask, seen)
        return ops.reshape(self.model.norm(x), (batch, length, config.hidden_size))

    def logits(self, hidden):
        """Hidden states (..., D) -> logits (..., V), float32."""
        shape = hidden.shape
        weight = self.model.embed_tokens.weight if self.config.tie_word_embeddings else self.lm_head.weight
        logits = linear(self.head_matmul, ops.reshape(hidden, (-1, shape[-1])), weight, self.compute_dtype)
        return ops.reshape(logits, shape[:-1] + (self.config.vocab_size,))

    def embed(self, input_ids, task_ids):
        """(B, S) twice -> (N, D)."""
        tokens = self.model.embed_tokens(ops.reshape(input_ids, (-1,)))
        return ops.add(tokens, self.task_embedding(ops.reshape(task_ids, (-1,))))

    def for_heads(self, mask):
        """(B, Q, L) -> (B*K, G*Q, L), the same for every head, laid out as ``Attention.project`` does."""
        batch, new, length = mask.shape
        heads, groups = self.config.num_attention_heads, self.config.num_key_value_heads
        mask = ops.tile(ops.expand_dims(mask, 1), (1, heads, 1, 1))
        return ops.reshape(mask, (batch * groups, heads // groups * new, length))

    def rotary(self, position_ids):
        """(B, S) -> cos and sin for queries (B, S, H, C), scaled by 1/sqrt(C), and for keys (B, S, K, C)."""
        config = self.config
        cos = ops.expand_dims(ops.gather(self.cos, position_ids, 0), 2)
        sin = ops.expand_dims(ops.gather(self.sin, position_ids, 0), 2)
        scale = config.head_size**-0.5
        heads, groups = (1, 1, config.num_attention_heads, 1), (1, 1, config.num_key_value_heads, 1)
        return ops.tile(cos * scale, heads), ops.tile(sin * scale, heads), ops.tile(cos, groups), ops.tile(sin, groups)

    def decode(self, input_ids, position_ids, task_ids, cache):
        """New tokens after a cache: int32 (B, Q) each -> hidden (B, Q, D), cache.

        ``cache`` is a tuple of 2 * num_hidden_layers arrays (B*K, L, C), key and value of each
        layer; slot p holds position p. A token sees every slot up to its own position, so slots
        are filled in order, a row at its own pace.
        """
        batch, new = input_ids.shape
        config = self.config
        groups = config.num_key_value_heads
        x = self.embed(input_ids, task_ids)
        cos_query, sin_query, cos_key, sin_key = self.rotary(position_ids)
        mask = self.for_heads(cached_causal_mask(position_ids, cache[0].shape[1]))
        rows = ops.tile(ops.expand_dims(ops.arange(batch * groups), 1), (1, new))
        columns = ops.tile(ops.expand_dims(position_ids, 1), (1, groups, 1))
        slots = ops.stack((rows.reshape(-1), columns.reshape(-1).astype(rows.dtype)), 1)
        filled = ()
        for index, block in enumerate(self.model.layers):
            past_key, past_value = cache[2 * index], cache[2 * index + 1]
            x, key, value = block.decode(
                x, batch, cos_query, sin_query, cos_key, sin_key, mask, slots, past_key, past_value
            )
            filled = filled + (key, value)
        return ops.reshape(self.model.norm(x), (batch, new, config.hidden_size)), filled

    @ms.jit
    def next_logits(self, input_ids, position_ids, last, task_ids, *cache):
        """``decode``, and float32 logits (B, V) of row b's new token number ``last[b]``, compiled.

        The arrays of the cache are arguments of their own: a tuple of arrays is a constant to
        ``jit``, which would compile anew for every token.
        """
        batch, new = input_ids.shape
        hidden, cache = self.decode(input_ids, position_ids, task_ids, cache)
        rows = ops.arange(batch).astype(ms.int32) * new + last
        hidden = ops.gather(ops.reshape(hidden, (batch * new, self.config.hidden_size)), rows, 0)
        return self.logits(hidden), cache


def check_batch(batch: dict[str, np.ndarray], config: ModelConfig) -> None:
    """Refuse a batch that the compiled step would misread or die on. Raises DataError."""
    shape = np.shape(batch.get("input_ids"))
    if len(shape) != 2:
        raise DataError(f"input_ids has shape {shape}, expected (batch, sequence_length)")
    limits = {
        "input_ids": (config.vocab_size, "vocab_size"),
        "position_ids": (config.max_position_embeddings, "max_position_embeddings"),
        "segment_ids": (2**31 - 1, "int32"),
        "task_ids": (config.num_tasks, "num_tasks"),
    }
    for name, (limit, setting) in limits.items():
        if name not in batch:
            raise DataError(f"the batch has no {name}; it needs {', '.join(limits)}")
        values = np.asarray(batch[name])
        if values.shape != shape:
            raise DataError(f"{name} has shape {values.shape}, expected {shape} like input_ids")
        if values.dtype != np.int32:
            raise DataError(f"{name} is {values.dtype}, expected int32")
        if values.size and not (0 <= values.min() and values.max() < limit):
            wrong = values.max() if values.max() >= limit else values.min()
            raise DataError(f"{name} holds {wrong}, allowed are 0 to {limit - 1}: change the data or {setting}")
