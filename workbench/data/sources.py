"""Rows of a store as batches: the only place where inputs, shifted labels, segments and positions are made.

A batch is collated whole, with a handful of array operations for all its windows together.

Costs, measured 2026-11-30 on one core of a shared machine: MEASURE

Shapes: B rows of a batch, S sequence_length, P windows in them, T tokens in them.
"""

from dataclasses import dataclass

import numpy as np

from workbench.data.layout import Layout
from workbench.data.ledger import Ledger
from workbench.data.store import LOSS, TokenStore


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
        for p in range(int(lay.rows[row]), int(lay.rows[row + 1])):
            document = int(lay.document[p])
            start = int(lay.begin[p]) - int(self.store.offsets[document])
            out.append((document, start, start + int(lay.length[p]), start + int(lay.context[p]) + 1))
        return out

    def batch(self, rows: np.ndarray, sample_ids: np.ndarray) -> dict[str, np.ndarray]:
        """The batch of ``rows`` (B,): the contract of every consumer.

        ``input_ids``, ``labels`` (-100 = no loss; already shifted: labels[i] is the token after
        input i), ``segment_ids`` (0 = padding, then 1, 2, ... for each window of the row),
        ``position_ids`` (restart at 0 with each segment), ``task_ids``, ``instruction_labels``
        (the task id at the last input of a task document, else -100): int32 (B, S).
        ``fact_targets``: float32 (B, S), the truth at the last input of a document that has
        one, else -1. ``sample_ids``: (B,) int32, as given.
        """
        windows, where = self.windows_of(np.asarray(rows))
        begin = self.layout.begin[windows]
        length = self.layout.length[windows].astype(np.int64)
        within = _ranges(length)
        read = np.repeat(begin, length) + within
        return collate(
            self,
            windows,
            where,
            within,
            self.store.tokens[read],
            self.store.tokens[read + 1],
            self.store.flags[read + 1],
            (len(rows), self.layout.sequence_length),
            sample_ids,
        )

    def windows_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(P,) the windows of ``rows``, and (B+1,) where each row's begin among them."""
        first = self.layout.rows[rows]
        count = self.layout.rows[rows + 1] - first
        return np.repeat(first, count) + _ranges(count), np.concatenate([[0], np.cumsum(count)])


def collate(
    source: SampleSource,
    windows: np.ndarray,
    row_starts: np.ndarray,
    within: np.ndarray,
    inputs: np.ndarray,
    targets: np.ndarray,
    flags: np.ndarray,
    shape: tuple[int, int],
    sample_ids: np.ndarray,
) -> dict[str, np.ndarray]:
    """The batch of ``windows`` (P,), given the tokens they read.

    ``row_starts`` (B+1,) says which windows are in which row; ``within`` (T,) is the position in
    the window, ``inputs``, ``targets`` and ``flags`` (T,) the tokens read, those after them, and
    the flags of the latter.
    """
    lay, store = source.layout, source.store
    length = lay.length[windows].astype(np.int64)
    document = lay.document[windows]
    in_row = np.diff(row_starts)
    before = np.cumsum(length) - length  # tokens of the windows before, over all rows
    row = np.repeat(np.arange(shape[0]), in_row)
    at = row * shape[1] + before - before[row_starts[:-1]][row]  # the window's first slot in the flat batch
    slot = np.repeat(at, length) + within
    asked = (flags & LOSS) != 0
    if not lay.overlap_loss:
        asked &= within >= np.repeat(lay.context[windows], length)
    out = {
        "input_ids": np.full(shape, source.padding_id, np.int32),
        "labels": np.full(shape, -100, np.int32),
        "segment_ids": np.zeros(shape, np.int32),
        "position_ids": np.zeros(shape, np.int32),
        "task_ids": np.zeros(shape, np.int32),
        "instruction_labels": np.full(shape, -100, np.int32),
        "fact_targets": np.full(shape, -1.0, np.float32),
        "sample_ids": np.asarray(sample_ids, np.int32),
    }
    flat = {name: array.reshape(-1) for name, array in out.items()}
    flat["input_ids"][slot] = inputs
    flat["labels"][slot] = np.where(asked, targets, np.int32(-100))
    flat["segment_ids"][slot] = np.repeat(_ranges(in_row).astype(np.int32) + 1, length)
    flat["position_ids"][slot] = within
    task, truth = store.task_ids[document], store.truth[document]
    last = lay.begin[windows] + length + 1 == store.offsets[document + 1]  # the window ends its document
    if task.any():
        flat["task_ids"][slot] = np.repeat(task, length)
        here = last & (task > 0)
        flat["instruction_labels"][(at + length - 1)[here]] = task[here]
    known = last & ~np.isnan(truth)
    if known.any():
        flat["fact_targets"][(at + length - 1)[known]] = truth[known]
    return out


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
