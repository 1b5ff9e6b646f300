"""The body of the model: token embeddings, the blocks one after the other, the final norm.

    N rows x positions   D hidden size   V vocabulary   E experts   M sparse layers

A cell of its own because that is what Hugging Face calls ``model.``, and because recompute "whole"
needs all blocks as one cell. What the blocks share is made outside (``transformer.py``).
"""

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from workbench.config import ModelConfig
from workbench.model.block import Block
from workbench.model.linear import Embedding
from workbench.model.norm import make_norm


class Decoder(nn.Cell):
    """Embeddings, blocks and the final norm; ``model.`` in Hugging Face's names."""

    def __init__(
        self, config: ModelConfig, rng: np.random.Generator, compute_dtype: ms.dtype, flash_attention: bool
    ) -> None:
        super().__init__()
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, config.initializer_range, rng)
        self.layers = nn.CellList(
            [Block(config, i, rng, compute_dtype, flash_attention) for i in range(config.num_hidden_layers)]
        )
        self.norm = make_norm(config)
        self.sparse_of = tuple(config.is_sparse(layer) for layer in range(config.num_hidden_layers))
        windows = [config.window_of(layer) for layer in range(config.num_hidden_layers)]
        self.mask_of = tuple(sorted(set(windows)).index(w) for w in windows)

    def construct(
        self,
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
    ):
        """All blocks, without embeddings and norm: x (N, D) -> (N, D), with experts the router's (M, E + 3) beside it.

        ``masks`` holds one for each window that occurs, the smallest first; the rest as in ``Block``.
        """
        told = ()
        for index, block in enumerate(self.layers):
            out = block(
                x,
                batch,
                cos_query,
                sin_query,
                cos_key,
                sin_key,
                masks[self.mask_of[index]],
                seen,
                position_ids,
                segment_ids,
                real,
                layer_factors[index],
            )
            if self.sparse_of[index]:
                x = out[0]
                told = told + (out[1],)
            else:
                x = out
        return (x, ops.stack(told)) if told else x
