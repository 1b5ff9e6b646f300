"""Ascend's fused attention kernel: nothing of size S x S is kept, and for packed rows no mask is either.

    B rows   S positions   H query heads   K key/value heads   G = H / K   C head dimension
    Q new positions   L cache length   N = B * S   M documents and runs of padding, at most 1024

    flash_attend          a dense mask (B, Q, L): sliding windows, and new tokens after a cache
    flash_attend_packed   packed causal rows, their documents told by where they end

Not run on Ascend. Checked against the signature of ``ops.flash_attention_score`` and, on the CPU,
with a stand-in that computes what the kernel's documentation says. It computes in float16 here.
"""

import mindspore as ms
import numpy as np
from mindspore import ops

from workbench.model.mask_forms import MOST_DOCUMENTS, RIGHT_DOWN_CAUSAL, TILE
from workbench.model.masks import discard


def flash_attend(query, key, value, mask, heads):
    """``attend`` by the kernel: query (B*K, G*Q, C), key and value (B*K, L, C), additive mask (B, Q, L)."""
    batch, new, length = mask.shape
    size, groups = query.shape[-1], key.shape[0] // batch
    context = ops.flash_attention_score(
        ops.reshape(query, (batch, heads, new, size)),
        ops.reshape(key, (batch, groups, length, size)),
        ops.reshape(value, (batch, groups, length, size)),
        heads,
        attn_mask=discard(ops.expand_dims(mask, 1)),
        scalar_value=1.0,
        input_layout="BNSD",
        sparse_mode=1,
    )
    return ops.reshape(context, query.shape)


def flash_attend_packed(query, key, value, ends, heads, batch):
    """The same for packed causal rows, ``ends`` (M,) as ``document_ends`` gives them; no mask of their size is made.

    Rows lie end to end (layout TND). Padding sees padding: the caller zeroes it.
    """
    size, groups, length = query.shape[-1], key.shape[0] // batch, key.shape[1]

    def end_to_end(x, count):
        x = ops.transpose(ops.reshape(x, (batch, count, length, size)), (0, 2, 1, 3))
        return ops.reshape(x, (batch * length, count, size))

    # The kernel reads its 2048 x 2048 tile along the diagonals, however long a document is.
    tile = ms.Tensor(np.triu(np.ones((TILE, TILE), np.uint8), 1))
    context = ops.flash_attention_score(
        end_to_end(query, heads),
        end_to_end(key, groups),
        end_to_end(value, groups),
        heads,
        attn_mask=tile,
        actual_seq_qlen=ends,
        actual_seq_kvlen=ends,
        scalar_value=1.0,
        next_tokens=0,
        input_layout="TND",
        sparse_mode=RIGHT_DOWN_CAUSAL,
    )
    context = ops.transpose(ops.reshape(context, (batch, length, heads, size)), (0, 2, 1, 3))
    return ops.reshape(context, query.shape)


def document_ends(segment_ids):
    """Where each document and run of padding ends when the rows lie end to end: int32 (B, S) -> int64 (M,).

    Filled up with N, the end of the last: sequences of length 0, so that the shape does not depend
    on the documents. Beyond 1024 of them the kernel has no place (``kernel_mask`` refuses that).
    """
    batch, length = segment_ids.shape
    total = batch * length
    following = ops.concat((segment_ids[:, 1:], ops.full_like(segment_ids[:, :1], -1)), 1)
    last = ops.reshape(ops.not_equal(segment_ids, following), (-1,))
    after = ops.range(1, total + 1, 1)
    places = ops.select(last, after, ops.full_like(after, total))
    # Float32 sorts on every device; it holds positions exactly below 2^24.
    ordered, _ = ops.sort(ops.cast(places, ms.float32))
    return ops.cast(ordered[: min(total, MOST_DOCUMENTS)], ms.int64)
