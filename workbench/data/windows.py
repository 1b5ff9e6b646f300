"""Documents of any length into samples of one length, with every token accounted for.

A document is cut into overlapping windows, the windows are packed into rows, and a ledger
proves that nothing was lost:

    document   [b t t t t t t t t t t t t t e]      b begin, e end of text
    window 0   [b t t t t t t t]t                   inputs, and the last target
    window 1             [. . t t t t t t t]e       . repeats for context, without loss
    rows       every window of full length alone; shorter ones share a row, each with
               its own segment id and positions that restart at 0

Windows start where a document starts (so right behind an end of text) and then every
``sequence_length * (1 - overlap)`` tokens. The tail of a document and whole short documents
become short windows; nothing is dropped for being short. A window never begins or ends inside
a character: the edge moves to the nearest allowed cut before it.

Every token but the first of its document is a target exactly once over all windows. Rows are
filled best-fit decreasing (Johnson 1973, "Near-optimal bin packing algorithms"), a cost of
O(log S) a window. All of it is deterministic; shuffling is the business of ``order``.

Shapes: N tokens in all, D documents, P windows, R rows, S = sequence_length.
"""

from bisect import bisect_left, insort
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from workbench.errors import SettingError


@dataclass(frozen=True)
class Windows:
    """P windows over documents: ``inputs = t[start:stop]``, ``targets = t[start+1:stop+1]``.

    ``loss_from`` is the first target index that this window owns; targets before it repeat an
    earlier window's and carry no loss. All arrays are int64 of shape (P,), indices count from
    the document's first token.
    """

    document: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    loss_from: np.ndarray

    @property
    def length(self) -> np.ndarray:
        return self.stop - self.start


@dataclass(frozen=True)
class Rows:
    """R packed rows: row r holds windows ``window[first[r]:first[r+1]]`` in that order."""

    window: np.ndarray
    first: np.ndarray

    def __len__(self) -> int:
        return len(self.first) - 1


@dataclass(frozen=True)
class Ledger:
    """Where every token and every slot went; ``check`` raises unless both sums close."""

    documents: int
    tokens_in: int  # tokens of the documents, begin and end of text included
    targets_with_loss: int
    targets_without_loss: int  # a prompt, for instance: read, never asked for
    first_tokens: int  # nothing comes before them, so nothing predicts them
    windows: int
    rows: int
    slots: int  # rows * sequence_length
    slots_with_loss: int
    slots_without_loss: int  # inputs whose target carries no loss by choice
    slots_overlap: int  # inputs whose target another window owns
    slots_padding: int

    @property
    def utilisation(self) -> float:
        """Share of slots that hold a token."""
        return 1 - self.slots_padding / self.slots if self.slots else 0.0

    def check(self) -> "Ledger":
        """Return self; raise AssertionError, a defect of this file, when a token is unaccounted for."""
        tokens = self.targets_with_loss + self.targets_without_loss + self.first_tokens
        if tokens != self.tokens_in:
            raise AssertionError(f"token ledger does not close: {self.tokens_in} in, {tokens} accounted for")
        slots = self.slots_with_loss + self.slots_without_loss + self.slots_overlap + self.slots_padding
        if slots != self.slots:
            raise AssertionError(f"slot ledger does not close: {self.slots} slots, {slots} accounted for")
        if (self.slots_with_loss, self.slots_without_loss) != (self.targets_with_loss, self.targets_without_loss):
            raise AssertionError("a target is owned by no window, or by two")
        return self

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "utilisation": self.utilisation}


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
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    out: list[tuple[int, int, int, int]] = []
    for document, n in enumerate(lengths.tolist()):
        if n < 2:
            continue
        if n <= sequence_length + 1:
            out.append((document, 0, n - 1, 1))
            continue
        allowed = cuts[offsets[document] : offsets[document + 1]]
        start, owned = 0, 1
        while owned < n:
            end = start + sequence_length + 1  # the first target that no longer fits
            if end >= n:
                end = n
            else:
                end = _cut_at_or_before(allowed, end, owned)
            out.append((document, start, end - 1, owned))
            owned = end
            start = _cut_at_or_before(allowed, max(0, end - 1 - context), 0)
    table = np.array(out, dtype=np.int64).reshape(-1, 4)
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


def pack_rows(windows: Windows, sequence_length: int) -> Rows:
    """Pack windows into rows of ``sequence_length`` slots, best fit in decreasing length."""
    lengths = windows.length
    rows: list[list[int]] = []
    room: list[list[int]] = [[] for _ in range(sequence_length + 1)]  # rows by their free slots
    open_sizes: list[int] = []  # the sizes in `room` that are not empty, ascending
    for window in np.argsort(-lengths, kind="stable").tolist():
        need = int(lengths[window])
        at = bisect_left(open_sizes, need)
        if at == len(open_sizes):
            row, free = len(rows), sequence_length
            rows.append([])
        else:
            free = open_sizes[at]
            row = room[free].pop()
            if not room[free]:
                open_sizes.pop(at)
        rows[row].append(window)
        free -= need
        if free > 0:
            if not room[free]:
                insort(open_sizes, free)
            room[free].append(row)
    first = np.concatenate([[0], np.cumsum([len(r) for r in rows], dtype=np.int64)]).astype(np.int64)
    flat = np.array([w for r in rows for w in r], dtype=np.int64)
    return Rows(flat, first)


def make_ledger(lengths: np.ndarray, loss: np.ndarray, windows: Windows, rows: Rows, sequence_length: int) -> Ledger:
    """Count what became of every token and slot. ``loss`` (N,) bool: may the token be asked for?

    The counts of owned targets come from the windows themselves, not from the documents, so
    that a window that is missing or cut twice shows up as a sum that does not close.
    """
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    before = np.concatenate([[0], np.cumsum(loss, dtype=np.int64)])  # loss tokens before index i
    base = offsets[windows.document]
    packed = rows.window
    owned = (windows.stop + 1 - windows.loss_from)[packed]
    with_loss = (before[base + windows.stop + 1] - before[base + windows.loss_from])[packed]
    firsts = offsets[:-1][lengths > 0]
    slots = len(rows) * sequence_length
    targets = loss.astype(bool).copy()
    targets[firsts] = False
    targets_with_loss = int(targets.sum())
    return Ledger(
        documents=len(lengths),
        tokens_in=int(lengths.sum()),
        targets_with_loss=targets_with_loss,
        targets_without_loss=int(lengths.sum()) - len(firsts) - targets_with_loss,
        first_tokens=len(firsts),
        windows=len(windows.document),
        rows=len(rows),
        slots=slots,
        slots_with_loss=int(with_loss.sum()),
        slots_without_loss=int((owned - with_loss).sum()),
        slots_overlap=int((windows.length[packed] - owned).sum()),
        slots_padding=slots - int(windows.length[packed].sum()),
    ).check()
