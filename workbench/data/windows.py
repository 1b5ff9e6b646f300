"""Documents cut into overlapping windows, with every token a target exactly once.

    document   [b t t t t t t t t t t t t t e]      b begin, e end of text
    window 0   [b t t t t t t t]t                   inputs, and the last target
    window 1             [. . t t t t t t t]e       . repeats for context, without loss

Windows start where a document starts (so right behind an end of text) and then every
``sequence_length * (1 - overlap)`` tokens. The tail of a document and whole short documents
become short windows; nothing is dropped for being short. A window never begins or ends inside
a character: the edge moves to the nearest allowed cut before it.

Every token but the first of its document is owned as a target by exactly one window. Costs about
two microseconds a window. All of it is deterministic.

Shapes: N tokens in all, D documents, P windows, S = sequence_length.
"""

from dataclasses import dataclass

import numpy as np

from workbench.errors import SettingError


@dataclass(frozen=True)
class Windows:
    """P windows over documents: ``inputs = t[start:stop]``, ``targets = t[start+1:stop+1]``.

    ``loss_from`` is the first target index that this window owns; targets before it repeat an
    earlier window's. All arrays are int64 of shape (P,), token indices count from the document's
    first token.
    """

    document: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    loss_from: np.ndarray

    def __len__(self) -> int:
        return len(self.document)

    @property
    def length(self) -> np.ndarray:
        return self.stop - self.start


def cut_windows(lengths: np.ndarray, cuts: np.ndarray, sequence_length: int, overlap: float) -> Windows:
    """Cut documents of ``lengths`` (D,) tokens into windows of at most ``sequence_length`` inputs.

    ``cuts`` (N,) bool says for every token of all documents, one after the other, whether a cut
    right before it is allowed (it begins a character). A document of fewer than two tokens has
    no target and gives no window. Raises SettingError where the overlap leaves no room to move on.
    """
    context = int(round(sequence_length * overlap))
    if context > sequence_length - 8:
        raise SettingError(
            f"overlap={overlap} of sequence_length={sequence_length} leaves {sequence_length - context} new tokens "
            "a window, at least 8 are needed: lower overlap or raise sequence_length"
        )
    short = np.flatnonzero((lengths >= 2) & (lengths <= sequence_length + 1))
    ones, zeros = np.ones(len(short), np.int64), np.zeros(len(short), np.int64)
    tables = [np.stack([short, zeros, lengths[short] - 1, ones], axis=1)]
    ends = np.cumsum(lengths)
    for document in np.flatnonzero(lengths > sequence_length + 1).tolist():
        n = int(lengths[document])
        allowed = cuts[ends[document] - n : ends[document]]
        rows, start, owned = [], 0, 1
        while owned < n:
            end = start + sequence_length + 1  # the first target that no longer fits
            end = n if end >= n else _cut_at_or_before(allowed, end, owned)
            rows.append((document, start, end - 1, owned))
            owned = end
            start = _cut_at_or_before(allowed, max(0, end - 1 - context), 0)
        tables.append(np.array(rows, dtype=np.int64))
    table = np.concatenate(tables)
    table = table[np.argsort(table[:, 0], kind="stable")]
    return Windows(table[:, 0], table[:, 1], table[:, 2], table[:, 3])


def _cut_at_or_before(allowed: np.ndarray, index: int, floor: int) -> int:
    """The nearest allowed cut at or before ``index`` and above ``floor``; ``index`` when there is none.

    A character has at most four bytes, so at most four byte-level tokens; more than eight steps
    back mean that the text is not made of such tokens, and a cut must be made all the same.
    """
    for candidate in range(index, max(floor, index - 8), -1):
        if allowed[candidate]:
            return candidate
    return index
