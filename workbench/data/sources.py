"""Rows of a store as batches: the only place where inputs, shifted labels, segments and positions are made.

A batch is collated whole, with some thirty array operations for all its windows together. Tried
and slower: a row at a time (three times), scattering tokens into padded rows instead of treating
padding as a piece (1.4 times), several batches at once (no gain, the arrays leave the cache).

Costs, measured 2026-11-30 on one core of a shared machine, store in memory: one row of 256 in 25 to 47
microseconds, 32 rows in 400, which is 20 million positions a second.

Shapes: B rows of a batch, S sequence_length, P windows in them, T tokens in them.
"""

from dataclasses import dataclass

import numpy as np

from workbench.data.layout import Layout
from workbench.data.ledger import Ledger
from workbench.data.store import LOSS, TokenStore


_NO_LOSS = np.int32(-100)
_INTEGERS = ("input_ids", "labels", "segment_ids", "position_ids", "task_ids", "instruction_labels")
COLUMNS = (*_INTEGERS, "fact_targets", "sample_ids")


@dataclass(frozen=True)
class SampleSource:
    """The rows of one store at one sequence length, by number."""

    name: str
    store: TokenStore
    layout: Layout
    padding_id: int

    def __len__(self) -> int:
        return len(self.layout)

    @property
    def ledger(self) -> Ledger:
        """What became of every token; its sums were checked when the layout was made."""
        return self.layout.ledger

    def pieces(self, row: int) -> list[tuple[int, int, int, int]]:
        """(document, start, stop, loss_from) of each window in a row, counted from its document's first token."""
        lay, out = self.layout, []
        for begin, length, context, document in lay.windows[lay.rows[row] : lay.rows[row + 1]].tolist():
            start = begin - int(self.store.offsets[document])
            out.append((document, start, start + length, start + context + 1))
        return out

    def batch(self, rows: np.ndarray, sample_ids: np.ndarray) -> dict[str, np.ndarray]:
        """The batch of ``rows`` (B,), numbered by ``sample_ids`` (B,); see ``as_batch``."""
        return as_batch(self.block(rows), sample_ids)

    def block(self, rows: np.ndarray) -> np.ndarray:
        """``rows`` (B,) as one array (7, B, S) int32, the form in which batches travel."""
        if len(rows) == 1:
            return self._one(int(rows[0]))
        pieces = self.pieces_of(np.asarray(rows))
        begin, length = pieces[:, 0], pieces[:, 1]
        before = np.cumsum(length) - length
        # Token i of the batch is token i + (begin - before) of the store, for the piece it is in.
        read = np.repeat(begin - before, length)
        read += np.arange(len(read))
        inputs = self.store.tokens.take(read, mode="clip")  # what padding reads is thrown away
        read += 1
        flags = self.store.flags.take(read, mode="clip")
        targets = np.empty_like(inputs)
        targets[:-1] = inputs[1:]
        held = np.flatnonzero(pieces[:, 4])
        ends = (before + length)[held] - 1  # the one target that a window does not read itself
        targets[ends] = self.store.tokens[(begin + length)[held]]
        return collate(self, pieces, inputs, targets, flags)

    def _one(self, row: int) -> np.ndarray:
        """The block of one row, window by window: a third of the time that ``collate`` takes for it."""
        lay, store = self.layout, self.store
        flat, truths = _empty((1, lay.sequence_length), self.padding_id)
        at = 0
        windows = lay.windows[lay.rows[row] : lay.rows[row + 1]].tolist()
        for segment, (begin, length, context, document) in enumerate(windows, 1):
            end = begin + length
            here = slice(at, at + end - begin)
            flat[0, here], flat[2, here], flat[3, here] = store.tokens[begin:end], segment, np.arange(end - begin)
            asked = (store.flags[begin + 1 : end + 1] & LOSS) != 0
            if not lay.overlap_loss:
                asked[:context] = False
            np.copyto(flat[1, here], store.tokens[begin + 1 : end + 1], where=asked)
            at = here.stop
            if not store.has_labels:
                continue
            task, truth = int(store.task_ids[document]), float(store.truth[document])
            flat[4, here] = task
            if end + 1 == store.offsets[document + 1]:  # the window ends its document
                flat[5, at - 1] = task or _NO_LOSS
                truths[at - 1] = truth if truth == truth else -1.0
        return flat.reshape(7, 1, lay.sequence_length)

    def pieces_of(self, rows: np.ndarray) -> np.ndarray:
        """(P + B, 5) the windows of ``rows`` (B,), each row followed by its padding (of length 0, where it is full).

        Columns as in ``Layout.windows``, and the number in the row, from 1; padding has number 0 and
        a context that no position reaches.
        """
        lay = self.layout
        first = lay.rows[rows]
        count = lay.rows[rows + 1] - first
        windows = lay.windows[np.repeat(first, count) + _ranges(count)]
        ends = np.cumsum(count)
        pieces = np.zeros((len(windows) + len(rows), 5), np.int64)
        pad = ends + np.arange(len(rows))
        held = np.ones(len(pieces), bool)
        held[pad] = False
        pieces[held, :4] = windows
        pieces[held, 4] = _ranges(count) + 1
        total = np.concatenate([[0], np.cumsum(windows[:, 1])])
        pieces[pad, 1] = lay.sequence_length - (total[ends] - total[ends - count])
        pieces[pad, 2] = lay.sequence_length
        return pieces


def collate(
    source: SampleSource, pieces: np.ndarray, inputs: np.ndarray, targets: np.ndarray, flags: np.ndarray
) -> np.ndarray:
    """The block (7, B, S) of ``pieces`` (see ``pieces_of``), given the tokens they read.

    ``inputs``, ``targets`` and ``flags`` (B*S,) are the tokens read, those after them, and the flags
    of the latter; where there is padding they may hold anything.
    """
    lay, store = source.layout, source.store
    begin, length, context, document, number = pieces.T
    flat, truths = _empty((1, len(inputs)), source.padding_id)
    # np.repeat spreads a value of each piece over its tokens; indexing would take three times as long.
    within = flat[3]
    within += np.arange(len(inputs), dtype=np.int32)
    before = np.cumsum(length) - length
    within -= np.repeat(before.astype(np.int32), length)
    asked = (flags & LOSS).view(bool)
    unasked = np.where(number > 0, 0, context) if lay.overlap_loss else context
    asked &= within >= np.repeat(unasked.astype(np.int32), length)
    np.copyto(flat[1], targets, where=asked)
    flat[0], flat[2] = inputs, np.repeat(number.astype(np.int32), length)
    for start, size in zip(before[number == 0].tolist(), length[number == 0].tolist()):
        if size:
            flat[0, start : start + size], within[start : start + size] = source.padding_id, 0
    if store.has_labels:
        task, truth = store.task_ids[document], store.truth[document]
        held = number > 0
        last = held & (begin + length + 1 == store.offsets[document + 1])  # the piece ends its document
        flat[4] = np.repeat(np.where(held, task, 0), length)
        here = last & (task > 0)
        flat[5][(before + length - 1)[here]] = task[here]
        known = last & ~np.isnan(truth)
        truths[(before + length - 1)[known]] = truth[known]
    return flat.reshape(7, -1, lay.sequence_length)


def as_batch(block: np.ndarray, sample_ids: np.ndarray) -> dict[str, np.ndarray]:
    """``block`` (7, B, S) by name, without a copy: the contract of every consumer.

    ``input_ids``, ``labels`` (-100 = no loss; already shifted: labels[i] is the token after
    input i), ``segment_ids`` (0 = padding, then 1, 2, ... for each window of the row),
    ``position_ids`` (restart at 0 with each segment), ``task_ids``, ``instruction_labels``
    (the task id at the last input of a task document, else -100): int32 (B, S).
    ``fact_targets``: float32 (B, S), the truth at the last input of a document that has
    one, else -1. ``sample_ids``: (B,) int32, as given.
    """
    batch = dict(zip(_INTEGERS, block))
    batch["fact_targets"] = block[6].view(np.float32)
    batch["sample_ids"] = np.asarray(sample_ids, np.int32)
    return batch


def _empty(shape: tuple[int, int], padding_id: int) -> tuple[np.ndarray, np.ndarray]:
    """A block of padding as (7, B*S), and its truths (B*S,) float32, which are the bits of its last part."""
    flat = np.zeros((7, shape[0] * shape[1]), np.int32)
    truths = flat[6].view(np.float32)
    flat[0] = padding_id
    flat[1] = flat[5] = _NO_LOSS
    truths[:] = -1.0
    return flat, truths


def _ranges(counts: np.ndarray) -> np.ndarray:
    """0, 1, ..., counts[0]-1, 0, 1, ..., counts[1]-1, ..."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def random_batch(rng: np.random.Generator, rows: int, length: int, vocab_size: int) -> dict[str, np.ndarray]:
    """A batch of random tokens without padding, tasks or truth, for measurements of cost alone.

    Names, shapes and types as in ``SampleSource.batch``; every position has a target.
    """
    shape = (rows, length)
    tokens = rng.integers(0, vocab_size, (rows, length + 1)).astype(np.int32)
    return {
        "input_ids": tokens[:, :-1].copy(),
        "labels": tokens[:, 1:].copy(),
        "segment_ids": np.ones(shape, np.int32),
        "position_ids": np.tile(np.arange(length, dtype=np.int32), (rows, 1)),
        "task_ids": np.zeros(shape, np.int32),
        "instruction_labels": np.full(shape, -100, np.int32),
        "fact_targets": np.full(shape, -1.0, np.float32),
        "sample_ids": np.arange(rows, dtype=np.int32),
    }
