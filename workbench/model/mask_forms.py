"""The forms of a mask that kernels want, each derived from the definition in ``masks.py``.

    B rows   Q queries   K keys   S positions of a row   past = K - Q cached keys

    additive_mask(...)    float32 (B, Q, K) as MindSpore operators, for the inside of a compiled step
    compiled_mask(mask)   the same as a compiled function of its own
    kernel_mask(...)      what Ascend's fused kernel takes: a 2048 x 2048 tile in place of Q x K where it can
    expand(kernel_mask)   what that means, as a dense boolean mask
    chunks(...)           the queries in pieces, and the keys that each piece can see at all

The additive form costs 4 bytes for every pair of query and key, and about 13 while it is built (the
allocator's record, 512 positions with segments); a step builds it once for all layers. A chunk's
mask costs that for its own keys only.

Not run on Ascend: ``kernel_mask`` follows the documentation of ``ops.flash_attention_score``
(MindSpore 2.10) and, for the corner from which a band or a prefix is counted, which it leaves out,
CANN's page on sparse modes. The kernel's mode 6, a compressed prefix, is "not implemented" there.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Callable

import numpy as np
import mindspore as ms
from mindspore import ops

from workbench.errors import DataError, SettingError
from workbench.model.masks import MASKED, Mask, additive, after_past, discard, packed

TILE, MOST_DOCUMENTS, ENDLESS = 2048, 1024, 2**31 - 1
ALL, LEFT_UP_CAUSAL, RIGHT_DOWN_CAUSAL, BAND, PREFIX = 1, 2, 3, 4, 5

# For a Cell whose construct and bprop both build a mask. It does not compile with ``ops.tile``, which
# makes an object a call, nor with ``if query_segments is not None`` in ``additive_mask`` itself.
_tile = ops.Tile()


def additive_mask(query_positions, key_positions, query_segments=None, key_segments=None, mask: Mask = Mask()):
    """``additive(visible(...))`` as MindSpore operators: int32 (B, Q), (B, K) twice -> float32 (B, Q, K).

    Equal to it bit for bit. Without segments there is one document a row and no padding.
    """
    seen = _seen_by_position(query_positions, key_positions, mask)
    seen = _within_segment(seen, query_segments, key_segments)
    # One is taken off first, because 0 * MASKED would be -0.
    return ops.mul(ops.sub(ops.cast(seen, ms.float32), 1.0), -MASKED)


def _seen_by_position(query, key, mask):
    # Tiled first and compared afterwards: comparing with broadcasting is slow on the CPU. What
    # differs between kinds is computed on (B, Q): the last key seen and the one before the first.
    seen = ops.less_equal(_for_queries(key, query), _for_keys(_last_seen(query, mask), key))
    if mask.kind == "sliding":
        before = ops.sub(query, mask.window)
        seen = ops.logical_and(seen, ops.greater(_for_queries(key, query), _for_keys(before, key)))
    return seen


def _last_seen(query, mask):
    if mask.kind == "prefix":
        return ops.maximum(query, mask.prefix_length - 1)
    return query


def _within_segment(seen, query, key):
    if query is None:
        return seen
    # A padding query becomes segment -1, which no key has.
    own = ops.sub(query, ops.cast(ops.equal(query, 0), query.dtype))
    return ops.logical_and(seen, ops.equal(_for_keys(own, key), _for_queries(key, query)))


def _for_queries(x, query):
    return _tile(ops.expand_dims(x, 1), (1, query.shape[1], 1))


def _for_keys(x, key):
    return _tile(ops.expand_dims(x, 2), (1, 1, key.shape[1]))


@lru_cache(maxsize=None)
def compiled_mask(mask: Mask = Mask()) -> Callable:
    """``additive_mask`` of this kind as a compiled function of the four arrays: compiled once a shape.

    For a mask outside a compiled step. The same ``mask`` gives the same function.
    """

    def build(query_positions, key_positions, query_segments=None, key_segments=None):
        return additive_mask(query_positions, key_positions, query_segments, key_segments, mask)

    return ms.jit(build)


@dataclass(frozen=True, eq=False)
class KernelMask:
    """The arguments of ``ops.flash_attention_score`` that say what is hidden, by their names there.

    ``attn_mask`` is uint8, 1 = discard: the (2048, 2048) tile for modes 2 to 4, else dense (B, 1, Q, K).
    With ``input_layout`` "TND" the rows of a batch lie end to end, and ``actual_seq_qlen`` and
    ``actual_seq_kvlen`` are the ends of the documents in them.
    """

    sparse_mode: int
    attn_mask: np.ndarray
    pre_tokens: int = ENDLESS
    next_tokens: int = ENDLESS
    prefix: tuple[int, ...] | None = None
    actual_seq_qlen: tuple[int, ...] | None = None
    actual_seq_kvlen: tuple[int, ...] | None = None
    input_layout: str = "BNSD"


def kernel_mask(mask: Mask, query_length: int, key_length: int, segment_ids: np.ndarray | None = None) -> KernelMask:
    """The kernel's form of ``mask`` for the last ``query_length`` of ``key_length`` positions.

    Without ``segment_ids`` a row is one document: mode 3, 4 or 5, for any past; of the prefix's
    (1, 1, Q, K) mask and its one ``prefix`` a batch takes one copy a row. Packed rows (``segment_ids``
    (K,) or (B, K)) that are causal and have no past become mode 3 in layout TND, a sequence for each
    document and each run of padding; padding then sees earlier padding, so its output is to be
    zeroed. The kernel takes no other kind there: they become a dense mask (mode 1).

    Raises SettingError for lengths below 1 or more queries than keys, DataError for segment_ids of
    another length, with a segment in two pieces, or with more than 1024 documents for TND.
    """
    if not 1 <= query_length <= key_length:
        raise SettingError(f"query_length={query_length}, key_length={key_length}: 1 <= query_length <= key_length")
    past = key_length - query_length
    if segment_ids is not None:
        return _packed_kernel_mask(mask, query_length, key_length, np.atleast_2d(segment_ids))
    if mask.kind == "causal":
        return KernelMask(RIGHT_DOWN_CAUSAL, _upper_triangle(), next_tokens=0)
    if mask.kind == "sliding":
        return KernelMask(BAND, _upper_triangle(), pre_tokens=mask.window - 1, next_tokens=0)
    # The kernel asks for at least K - Q, which causal queries see anyhow.
    prefix = min(max(mask.prefix_length, past), key_length)
    return KernelMask(PREFIX, _dense(after_past(query_length, past, mask)), prefix=(prefix,))


def _packed_kernel_mask(mask: Mask, query_length: int, key_length: int, segments: np.ndarray) -> KernelMask:
    if segments.shape[-1] != key_length:
        raise DataError(f"segment_ids have {segments.shape[-1]} positions a row, expected key_length={key_length}")
    seen = packed(segments, mask)
    if mask.kind != "causal" or query_length < key_length:
        return KernelMask(ALL, _dense(seen[:, -query_length:]))
    last = np.ones(segments.shape, bool)
    last[:, :-1] = segments[:, 1:] != segments[:, :-1]
    ends = tuple((np.flatnonzero(last) + 1).tolist())
    if len(ends) > MOST_DOCUMENTS:
        raise DataError(f"{len(ends)} documents in a batch, the kernel takes {MOST_DOCUMENTS}: use a smaller batch")
    return KernelMask(
        RIGHT_DOWN_CAUSAL,
        _upper_triangle(),
        next_tokens=0,
        actual_seq_qlen=ends,
        actual_seq_kvlen=ends,
        input_layout="TND",
    )


def _dense(seen: np.ndarray) -> np.ndarray:
    return discard(additive(seen)).astype(np.uint8).reshape(-1, 1, *seen.shape[-2:])


@lru_cache(maxsize=None)
def _upper_triangle() -> np.ndarray:
    tile = np.triu(np.ones((TILE, TILE), np.uint8), 1)
    tile.flags.writeable = False
    return tile


def expand(kernel: KernelMask, query_length: int, key_length: int) -> np.ndarray:
    """What the documentation says ``kernel`` shows: boolean (B, Q, K), True = may attend.

    In layout TND, B is 1 and Q and K are all positions of the batch. Raises SettingError for a
    sparse mode other than 1 to 5.
    """
    if kernel.input_layout != "TND":
        return _expand_sequence(kernel, query_length, key_length)
    seen = np.zeros((1, query_length, key_length), bool)
    queries = np.concatenate([[0], kernel.actual_seq_qlen])
    keys = np.concatenate([[0], kernel.actual_seq_kvlen])
    for q, q_end, k, k_end in zip(queries[:-1], queries[1:], keys[:-1], keys[1:]):
        seen[:, q:q_end, k:k_end] = _expand_sequence(kernel, q_end - q, k_end - k)
    return seen


def _expand_sequence(kernel: KernelMask, query_length: int, key_length: int) -> np.ndarray:
    if kernel.sparse_mode not in (ALL, LEFT_UP_CAUSAL, RIGHT_DOWN_CAUSAL, BAND, PREFIX):
        raise SettingError(f"sparse_mode={kernel.sparse_mode} is not allowed: 1 to 5")
    if kernel.sparse_mode == ALL:
        return kernel.attn_mask[:, 0] == 0
    # How far a key lies ahead of the query, counted from the corner that the mode names.
    corner = 0 if kernel.sparse_mode == LEFT_UP_CAUSAL else key_length - query_length
    ahead = np.arange(key_length)[None, :] - np.arange(query_length)[:, None] - corner
    if kernel.sparse_mode == PREFIX:
        prefix = np.asarray(kernel.prefix)[:, None, None]
        return ((ahead <= 0) | (np.arange(key_length) < prefix)) & (kernel.attn_mask[:, 0] == 0)
    shift = kernel.next_tokens if kernel.sparse_mode == BAND else 0
    # The tile is read along its diagonals: above the main one lie the keys ahead.
    diagonal = np.clip(ahead - shift, 1 - TILE, TILE - 1)
    seen = kernel.attn_mask[np.maximum(-diagonal, 0), np.maximum(diagonal, 0)] == 0
    if kernel.sparse_mode == BAND:
        seen = seen & (-ahead <= kernel.pre_tokens)
    return seen[None]


@dataclass(frozen=True)
class Chunk:
    """Some queries of 0 to Q, and the keys of 0 to K outside which they see nothing."""

    queries: slice
    keys: slice


def chunks(query_length: int, past: int, size: int, mask: Mask = Mask(), documents: bool = False) -> list[Chunk]:
    """The queries in pieces of ``size`` (the last may be shorter), each with the keys it can see.

    The range of keys is the smallest for a row of one document: a causal chunk has none after its
    last query, a sliding one none before its first query's window. It also holds for packed rows,
    where documents only hide more, except that a prefix is counted within a document: ``documents``
    says that there may be several, and keeps the keys that a prefix of any of them could show.

    Raises SettingError for a length or size below 1 or a past below 0.
    """
    for name, value, least in (("query_length", query_length, 1), ("past", past, 0), ("size", size, 1)):
        if value < least:
            raise SettingError(f"{name}={value} is not allowed: at least {least}")
    made = []
    for start in range(0, query_length, size):
        stop = min(start + size, query_length)
        first, end = 0, past + stop
        if mask.kind == "sliding":
            first = max(past + start - mask.window + 1, 0)
        if mask.kind == "prefix":
            begins = past + stop - 1 if documents else 0
            end = min(max(end, begins + mask.prefix_length), past + query_length)
        made.append(Chunk(slice(start, stop), slice(first, end)))
    return made
