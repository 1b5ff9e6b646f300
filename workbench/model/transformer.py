"""The decoder: embeddings, blocks, heads; for whole rows and for new tokens after a cache.

    B rows   S positions   D hidden size   V vocabulary   N = B * S
    H query heads   K key/value heads   C head dimension   L cache length   Q new positions
    E experts   M sparse layers

Parameter names are those of Hugging Face's ``LlamaForCausalLM`` where it has the parameter, so
weights are exchanged by name (``exchange.py``). All weights are drawn from normal(0,
initializer_range), biases are 0 and the norms are 1, as in GPT-2 (Radford et al. 2019, section 2.3,
without its scaling by depth) and ``transformers.LlamaConfig``. The same seed gives every rank the
same weights. The first loss is about ln V + D * initializer_range^2 / 2, half the variance of the
logits: within 2 % of ln V up to a hidden size of about 700 at 0.02.

No dropout of activations: a recomputed block would draw another mask (and one-epoch pretraining
uses none). Layers and task ids can be dropped, see ``train/dropping.py``. The loss is not computed here.
"""

from dataclasses import replace

import numpy as np
import mindspore as ms
from mindspore import nn, ops

from workbench.config import RECOMPUTE, ModelConfig, require
from workbench.device import DEVICES
from workbench.model.decoder import Decoder
from workbench.model.flash import document_ends
from workbench.model.head_loss import HeadLoss, LogitsLoss
from workbench.model.linear import Linear, TaskAwareEmbedding, linear
from workbench.model.mask_forms import additive_mask
from workbench.model.masks import Mask
from workbench.model.native import use_kernels
from workbench.model.native.chunks import NativeHeadLoss
from workbench.model.native.cells import Kernels
from workbench.model.precision import check_precision
from workbench.model.rotary import rotary_table


def _count(stop):
    """int32 0 to ``stop`` - 1; ``ops.arange`` takes 0.7 s longer to compile, each time it occurs."""
    return ops.cast(ops.range(0, stop, 1), ms.int32)


class Transformer(nn.Cell):
    """The model. ``seed`` names the initial weights, ``compute_dtype`` the type of matrix products.

    ``compute_dtype`` is a precision of ``precision.py``, which lists what is computed in it; every
    matrix product returns float32. ``flash_attention`` takes Ascend's fused kernel
    (``device.flash_attention``), which knows no float32. ``kernels`` "native" asks for those of
    ``model/native``; the attributes ``kernels`` and ``kernels_said`` are what was got, and why.
    Raises SettingError for a type that the device in use cannot compute in, for another name, and
    for native kernels on another device than the CPU.
    """

    def __init__(
        self,
        config: ModelConfig,
        seed: int,
        compute_dtype: str = "float32",
        flash_attention: bool = False,
        kernels: str = "stock",
    ) -> None:
        super().__init__()
        check_precision(
            compute_dtype, replace(DEVICES[ms.get_context("device_target")], flash_attention=flash_attention)
        )
        self.config, self.flash_attention = config, flash_attention
        self.compute_dtype = getattr(ms, compute_dtype)
        rng = np.random.default_rng(seed)
        size, scale = config.hidden_size, config.initializer_range
        self.model = Decoder(config, rng, self.compute_dtype, flash_attention)
        if not config.tie_word_embeddings:
            self.lm_head = Linear(size, config.vocab_size, scale, rng, self.compute_dtype)
        self.task_embedding = TaskAwareEmbedding(config.num_tasks, size)
        self.instruction_head = Linear(size, config.num_tasks, scale, rng, ms.float32)
        self.fact_head = Linear(size, 1, scale, rng, ms.float32)
        cos, sin = rotary_table(config)
        self.cos, self.sin = ms.Tensor(cos), ms.Tensor(sin)
        self.head_matmul, self.head_loss, self.logits_loss = ops.MatMul(transpose_b=True), HeadLoss(), LogitsLoss()
        self.keep_all = ms.Tensor(np.ones(config.num_hidden_layers, np.float32))
        self.has_experts = bool(config.sparse_layers)
        # One mask for each window that occurs, built once a pass and shared by its layers.
        windows = sorted({config.window_of(layer) for layer in range(config.num_hidden_layers)})
        self.masks = tuple(Mask("sliding", window=w) if w else Mask() for w in windows)
        self.recomputed = "none"
        self.kernels, self.kernels_said = use_kernels(self, kernels)

    def use_kernels(self, kernels: Kernels) -> None:
        self.head_loss = NativeHeadLoss(self.head_loss.chunk, kernels)

    @property
    def layers(self) -> nn.CellList:
        """The blocks, in order."""
        return self.model.layers

    def recompute(self, kind: str = "block") -> None:
        """What the backward pass computes again instead of keeping it; before the first step, and once.

        kind: none, attention or feed_forward (of every block), block (every block), or whole (all
        blocks as one, which keeps them all at once while it goes back; there for comparison).
        Losses and gradients stay. Raises SettingError for another kind, and for a second one.
        """
        require(kind in RECOMPUTE, "recompute", kind, f"one of {', '.join(RECOMPUTE)}")
        require(self.recomputed in ("none", kind), "recompute", kind, f"this model has {self.recomputed} already")
        if kind != self.recomputed:
            self.recomputed = kind
            for block in self.layers:
                block.recompute_part(kind)
            if kind == "whole":
                self.model.recompute()

    def construct(self, input_ids, position_ids, segment_ids, task_ids):
        """int32 (B, S) each -> final hidden states float32 (B, S, D). A row of segment 0 is finite."""
        return self.with_router(input_ids, position_ids, segment_ids, task_ids, self.keep_all)[0]

    def with_router(self, input_ids, position_ids, segment_ids, task_ids, layer_factors):
        """As ``construct``, and what the sparse layers tell: float32 (M, E + 3), or one 0 where there are none.

        layer_factors float32 (layers,), what each layer's addition is multiplied by in training.
        """
        batch, length = input_ids.shape
        x = self.embed(input_ids, task_ids)
        cos_query, sin_query, cos_key, sin_key = self.rotary(position_ids)
        plain = False
        for block in self.model.layers:
            plain = plain or not block.self_attn.by_hand
        masks = ()
        for kind in self.masks:
            if self.flash_attention and kind.window is None:
                masks = masks + (document_ends(segment_ids),)
            elif not self.flash_attention and not plain:
                masks = masks + (segment_ids,)  # each layer masks a chunk at a time
            else:
                mask = additive_mask(position_ids, position_ids, segment_ids, segment_ids, kind)
                masks = masks + (self.for_heads(mask),)
        # A padding position sees no key at all; the softmax of its row means nothing.
        real = ops.cast(ops.not_equal(ops.reshape(segment_ids, (-1,)), 0), ms.float32)
        width = self.config.num_attention_heads * self.config.head_size
        seen = ops.tile(ops.expand_dims(real, 1), (1, width))
        out = self.model(
            x,
            batch,
            cos_query,
            sin_query,
            cos_key,
            sin_key,
            seen,
            position_ids,
            segment_ids,
            real,
            layer_factors,
            *masks,
        )
        x, told = out if self.has_experts else (out, ops.zeros((1,), ms.float32))
        hidden = ops.reshape(self.model.norm(x), (batch, length, self.config.hidden_size))
        return hidden, told

    def logits(self, hidden):
        """Hidden states (..., D) -> logits (..., V), float32."""
        shape = hidden.shape
        hidden = ops.reshape(hidden, (-1, shape[-1]))
        logits = linear(self.head_matmul, hidden, self.head_weight(), self.compute_dtype)
        return ops.reshape(logits, shape[:-1] + (self.config.vocab_size,))

    def head_weight(self):
        """The output head (V, D): the embedding itself where they are tied."""
        return self.model.embed_tokens.weight if self.config.tie_word_embeddings else self.lm_head.weight

    def embed(self, input_ids, task_ids):
        """(B, S) twice -> (N, D)."""
        tokens = self.model.embed_tokens(ops.reshape(input_ids, (-1,)))
        return ops.add(tokens, self.task_embedding(ops.reshape(task_ids, (-1,))))

    def for_heads(self, mask):
        """(B, Q, L) -> (B*K, G*Q, L), the same for every head, as ``Attention.project`` lays them out; flash: as it is."""
        if self.flash_attention:
            return mask
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
        slots_of = ops.tile(ops.expand_dims(_count(cache[0].shape[1]), 0), (batch, 1))
        new_rows, old_rows = ops.ones_like(position_ids), ops.ones_like(slots_of)
        masks = ()
        for kind in self.masks:
            mask = additive_mask(position_ids, slots_of, new_rows, old_rows, kind)
            masks = masks + (self.for_heads(mask),)
        rows = ops.tile(ops.expand_dims(_count(batch * groups), 1), (1, new))
        columns = ops.tile(ops.expand_dims(position_ids, 1), (1, groups, 1))
        slots = ops.stack((rows.reshape(-1), columns.reshape(-1).astype(rows.dtype)), 1)
        filled = ()
        for index, block in enumerate(self.model.layers):
            past_key, past_value = cache[2 * index], cache[2 * index + 1]
            x, key, value = block.decode(
                x,
                batch,
                cos_query,
                sin_query,
                cos_key,
                sin_key,
                masks[self.model.mask_of[index]],
                slots,
                past_key,
                past_value,
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
        rows = _count(batch) * new + last
        hidden = ops.gather(ops.reshape(hidden, (batch * new, self.config.hidden_size)), rows, 0)
        return self.logits(hidden), cache
