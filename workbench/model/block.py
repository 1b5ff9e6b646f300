"""One decoder layer: attention and a feed-forward network, each on a normed input and added to the stream.

    N rows x positions   D hidden size   H query heads   C head dimension   E experts

A layer can be left out of a training step (layer dropout, Huang et al. 2016, section 3): what it
adds is multiplied by 0, or by 1/(1 - p) so that nothing has to be scaled in evaluation. There is no
branch and no random number in the compiled step: the factors are an input (``train/dropping.py``),
so a recomputed layer sees the same ones. A layer left out is computed all the same.
"""

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from workbench.config import ModelConfig
from workbench.model.attention import Attention
from workbench.model.experts import SparseMoE
from workbench.model.feed_forward import SwiGLU
from workbench.model.norm import make_norm


class Block(nn.Cell):
    """Layer number ``layer`` of ``config``; its ``mlp`` is a ``SparseMoE`` where the layer is sparse."""

    def __init__(
        self, config: ModelConfig, layer: int, rng: np.random.Generator, compute_dtype: ms.dtype, flash_attention: bool
    ) -> None:
        super().__init__()
        self.input_layernorm = make_norm(config)
        self.self_attn = Attention(config, rng, compute_dtype, flash_attention, config.window_of(layer))
        self.post_attention_layernorm = make_norm(config)
        self.sparse, self.drops = config.is_sparse(layer), config.layer_dropout > 0
        if self.sparse:
            self.mlp = SparseMoE(config, rng, compute_dtype)
        else:
            size, inner, scale = config.hidden_size, config.intermediate_size, config.initializer_range
            self.mlp = SwiGLU(size, inner, scale, rng, compute_dtype, config.mlp_bias)

    def construct(
        self, x, batch, cos_query, sin_query, cos_key, sin_key, mask, seen, position_ids, segment_ids, real, keep
    ):
        """x (N, D) -> (N, D), from a sparse layer with the router's numbers (E + 3,) beside it.

        real (N,), 1 for tokens and 0 for padding; keep (), the factor of layer dropout; the rest as
        in ``Attention``. One argument for each array: a recomputed cell takes no tuple of arrays.
        """
        normed = self.input_layernorm(x)
        added = self.self_attn(
            normed, batch, cos_query, sin_query, cos_key, sin_key, mask, seen, position_ids, segment_ids
        )
        x = ops.add(x, self.kept(added, keep))
        normed = self.post_attention_layernorm(x)
        if self.sparse:
            added, router = self.mlp(normed, real)
            return ops.add(x, self.kept(added, keep)), router
        return ops.add(x, self.kept(self.mlp(normed), keep))

    def kept(self, added, keep):
        return ops.mul(added, keep) if self.drops else added

    def use_plain_gradients(self) -> None:
        """Let MindSpore derive every gradient that is written by hand; same values, other rounding."""
        _use_plain_gradients(self)

    def recompute_part(self, kind: str) -> None:
        """Recompute ``kind`` of this block: attention, feed_forward, or all of it (block).

        What is recomputed, and for ``whole`` everything, goes back to plain gradients: compiled,
        MindSpore 2.10 keeps what a cell with its own ``bprop`` returned, recomputed or not, and
        where that meets the residual stream the graph gets a cycle. The rest keeps its gradients by
        hand. Peak of the allocator, 6 layers, hidden 256, 8 x 256 positions: 162 MB for block, of
        493 MB for none and 322 MB if the gradients by hand stayed (2026-11-29, one run each).
        """
        part = {"attention": self.self_attn, "feed_forward": self.mlp}.get(kind, self)
        _use_plain_gradients(part)
        if kind == "block":
            super().recompute()
        elif part is not self:
            part.recompute()

    def recompute(self) -> None:
        """Recompute all of this block, see ``recompute_part``."""
        self.recompute_part("block")

    def decode(self, x, batch, cos_query, sin_query, cos_key, sin_key, mask, slots, past_key, past_value):
        """x (B*Q, D) after a cache, as ``Attention.decode``. Experts take all that comes, whatever the capacity."""
        normed = self.input_layernorm(x)
        attended, past_key, past_value = self.self_attn.decode(
            normed, batch, cos_query, sin_query, cos_key, sin_key, mask, slots, past_key, past_value
        )
        x = ops.add(x, attended)
        normed = self.post_attention_layernorm(x)
        if self.sparse:
            return ops.add(x, self.mlp.every(normed)), past_key, past_value
        return ops.add(x, self.mlp(normed)), past_key, past_value


def _use_plain_gradients(part: nn.Cell) -> None:
    for _, cell in part.cells_and_names():
        if hasattr(cell, "by_hand"):
            cell.by_hand = False
