"""The ledger: where every token of the documents and every slot of the rows went.

    tokens in = with loss + without loss + first of a document + dropped (reason → tokens)
    slots     = with loss + without loss + overlap context + overlap with loss + padding

``make_ledger`` counts from the windows themselves, not from the documents, so that a window that
is missing or cut twice shows up as a sum that does not close; ``check`` then raises. Ledgers of
parts of a corpus add up to the ledger of the whole.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from workbench.data.packing import Rows
from workbench.data.windows import Windows


@dataclass(frozen=True)
class Ledger:
    """Counts of tokens and slots; ``check`` raises unless both sums close."""

    documents: int = 0
    tokens_in: int = 0  # tokens of the documents, begin and end of text included
    targets_with_loss: int = 0
    targets_without_loss: int = 0  # a prompt, for instance: read, never asked for
    first_tokens: int = 0  # nothing comes before them, so nothing predicts them
    dropped: dict[str, int] = field(default_factory=dict)  # reason → tokens
    windows: int = 0
    rows: int = 0
    slots: int = 0  # rows * sequence_length
    slots_with_loss: int = 0
    slots_without_loss: int = 0  # inputs whose target carries no loss by choice
    slots_overlap: int = 0  # inputs whose target another window owns
    slots_repeated: int = 0  # the same with loss, where it was asked for as often as a token appears
    slots_padding: int = 0

    @property
    def utilisation(self) -> float:
        """Share of slots that hold a token."""
        return 1 - self.slots_padding / self.slots if self.slots else 0.0

    def __add__(self, other: "Ledger") -> "Ledger":
        sums = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, value in sums.items():
            more = getattr(other, name)
            sums[name] = dict(Counter(value) + Counter(more)) if isinstance(value, dict) else value + more
        return Ledger(**sums)

    def check(self) -> "Ledger":
        """Return self; raise AssertionError, a defect of the workbench, when a token is unaccounted for."""
        tokens = self.targets_with_loss + self.targets_without_loss + self.first_tokens + sum(self.dropped.values())
        if tokens != self.tokens_in:
            raise AssertionError(f"token ledger does not close: {self.tokens_in} in, {tokens} accounted for")
        held = self.slots_with_loss + self.slots_without_loss + self.slots_overlap + self.slots_repeated
        if held + self.slots_padding != self.slots:
            raise AssertionError(f"slot ledger does not close: {self.slots} slots, {held + self.slots_padding} found")
        if (self.slots_with_loss, self.slots_without_loss) != (self.targets_with_loss, self.targets_without_loss):
            raise AssertionError("a target is owned by no window, or by two")
        return self

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "utilisation": round(self.utilisation, 6)}


def make_ledger(
    offsets: np.ndarray,
    loss: np.ndarray,
    windows: Windows,
    rows: Rows,
    sequence_length: int,
    overlap_loss: bool = False,
) -> Ledger:
    """Count what became of every token and slot of documents ``offsets[d]`` to ``offsets[d+1]``.

    ``loss`` (N,) bool, N = offsets[-1] - offsets[0]: may the token be asked for? ``overlap_loss``
    says that the targets a window repeats carry their loss again.
    """
    lengths = np.diff(offsets)
    before = np.concatenate([[0], np.cumsum(loss, dtype=np.int64)])  # loss tokens before index i
    base = (offsets[windows.document] - offsets[0])[rows.window]
    start, stop, owned_from = (a[rows.window] for a in (windows.start, windows.stop, windows.loss_from))
    owned = stop + 1 - owned_from
    with_loss = before[base + stop + 1] - before[base + owned_from]
    repeated = before[base + owned_from] - before[base + start + 1] if overlap_loss else np.zeros_like(owned)
    # Tokens that are targets: all but the first of each document that has a second one.
    more = lengths >= 2
    firsts = (offsets[:-1] - offsets[0])[more]
    targets_with_loss = int(loss[_inside(offsets, more)].sum()) - int(loss[firsts].sum())
    alone = int((lengths == 1).sum())
    slots = len(rows) * sequence_length
    return Ledger(
        documents=len(lengths),
        tokens_in=int(lengths.sum()),
        targets_with_loss=targets_with_loss,
        targets_without_loss=int(lengths[more].sum()) - len(firsts) - targets_with_loss,
        first_tokens=len(firsts),
        dropped={"alone in its document": alone} if alone else {},
        windows=len(windows),
        rows=len(rows),
        slots=slots,
        slots_with_loss=int(with_loss.sum()),
        slots_without_loss=int((owned - with_loss).sum()),
        slots_overlap=int((stop - start - owned - repeated).sum()),
        slots_repeated=int(repeated.sum()),
        slots_padding=slots - int((stop - start).sum()),
    ).check()


def _inside(offsets: np.ndarray, wanted: np.ndarray) -> np.ndarray | slice:
    """Index of the tokens of the wanted documents, among those of all."""
    return slice(None) if wanted.all() else np.repeat(wanted, np.diff(offsets))
