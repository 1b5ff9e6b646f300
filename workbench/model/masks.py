"""Which key a query may attend to: one definition, in terms of positions and segments.

    Q queries   K keys   S positions of a row   past = K - Q cached keys

``visible`` is the definition, in numpy: True = may attend. Segment 0 is padding: it sees nothing
and nothing sees it. ``Mask`` says which kind. Every other form a kernel wants is derived from it
in ``mask_forms.py``; the two that say what a mask is worth stand here:

    additive(visible)          float32, 0 where visible, MASKED where not, to be added to scores
    discard(additive mask)     the opposite sense, which Ascend's fused attention kernel reads

A dense mask costs Q x K a row: at 128 K positions a boolean one is 16 GiB.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from workbench.errors import DataError, SettingError, unknown_name

# Finite, because a row of -inf alone becomes NaN in softmax. exp(MASKED - max) is exactly 0 in
# float32 for every score a model produces, so a hidden key adds an exact zero.
MASKED = -1e9

Kind = Literal["causal", "sliding", "prefix"]
KINDS = ("causal", "sliding", "prefix")


@dataclass(frozen=True)
class Mask:
    """A kind of mask.

    causal   key position <= query position
    sliding  causal, and fewer than ``window`` positions back (``window`` counts the query itself)
    prefix   causal, or the key is one of the first ``prefix_length`` positions (T5's prefix LM,
             Raffel et al. 2020, section 3.2.1)

    Raises SettingError for an unknown kind, or a window or prefix_length that is missing, below 1
    (below 0 for the prefix) or given to a kind that has none.
    """

    kind: Kind = "causal"
    window: int | None = None
    prefix_length: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown_name("mask kind", self.kind, KINDS)
        for name, kind, least in (("window", "sliding", 1), ("prefix_length", "prefix", 0)):
            value, told = getattr(self, name), f"{name}={getattr(self, name)!r} is not allowed: this kind of mask"
            if self.kind == kind and not (isinstance(value, int) and value >= least):
                raise SettingError(f"{told} needs {name}, a whole number, at least {least}")
            if self.kind != kind and value is not None:
                raise SettingError(f"{told} has no {name}; leave it out")


def visible(
    query_positions: np.ndarray,
    key_positions: np.ndarray,
    query_segments: np.ndarray | None = None,
    key_segments: np.ndarray | None = None,
    mask: Mask = Mask(),
) -> np.ndarray:
    """Boolean (..., Q, K), True where query may attend to key.

    Positions are (..., Q) and (..., K), counted within a document or within a row; both sides the
    same way. Segments have the same shapes (or are both None: a single document, no padding); a
    query sees only keys of its own segment, and segment 0 sees nothing. Raises SettingError when
    only one side has segments.
    """
    if (query_segments is None) != (key_segments is None):
        raise SettingError("query_segments and key_segments: give both or neither")
    query = np.asarray(query_positions)[..., :, None]
    key = np.asarray(key_positions)[..., None, :]
    seen = key <= query
    if mask.kind == "sliding":
        seen = seen & (query - key < mask.window)
    if mask.kind == "prefix":
        seen = seen | (key < mask.prefix_length)
    if query_segments is not None:
        query_segment = np.asarray(query_segments)[..., :, None]
        key_segment = np.asarray(key_segments)[..., None, :]
        seen = seen & (query_segment == key_segment) & (query_segment != 0)
    return seen


def after_past(query_length: int, past: int = 0, mask: Mask = Mask()) -> np.ndarray:
    """Boolean (Q, past + Q) of one document: ``query_length`` new tokens after ``past`` cached ones."""
    return visible(np.arange(past, past + query_length), np.arange(past + query_length), mask=mask)


def causal(query_length: int, past: int = 0) -> np.ndarray:
    """``after_past`` of the causal mask."""
    return after_past(query_length, past)


def packed(segment_ids: np.ndarray, mask: Mask = Mask()) -> np.ndarray:
    """Boolean (..., S, S) of packed rows with ``segment_ids`` (..., S).

    Positions are counted within each document, so that a prefix starts with it. Raises DataError
    where a segment lies in two pieces (segment 0, padding, may).
    """
    segments = np.asarray(segment_ids)
    for row in segments.reshape(-1, segments.shape[-1]):
        starts = row[np.flatnonzero(np.diff(row, prepend=row[0] - 1))]
        starts = starts[starts != 0]
        if len(set(starts.tolist())) < len(starts):
            raise DataError(f"segment_ids {row.tolist()}: a segment lies in two pieces, give each document its own id")
    positions = document_positions(segments)
    return visible(positions, positions, segments, segments, mask)


def document_positions(segment_ids: np.ndarray) -> np.ndarray:
    """int32 (..., S): positions counted from 0 at the first token of each run of equal segments."""
    segments = np.asarray(segment_ids)
    index = np.broadcast_to(np.arange(segments.shape[-1]), segments.shape)
    starts = np.ones(segments.shape, bool)
    starts[..., 1:] = segments[..., 1:] != segments[..., :-1]
    return (index - np.maximum.accumulate(np.where(starts, index, 0), axis=-1)).astype(np.int32)


def additive(mask: np.ndarray) -> np.ndarray:
    """float32 of the same shape: 0 where ``mask`` is True, MASKED where it is False."""
    return np.where(mask, np.float32(0), np.float32(MASKED))


def discard(additive_mask):
    """Boolean of the same shape, True = discard: the sense of ``attn_mask`` in ``ops.flash_attention_score``.

    The one place where the sense is turned; takes the additive form as numpy array or Tensor.
    """
    return additive_mask < 0
