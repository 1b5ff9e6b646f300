"""Tokens of one source on disk, and samples read out of them.

A store is five arrays in a folder, memory-mapped when it is opened: the tokens of all documents
one after the other, two flags for each token (may it be asked for; may a window be cut before
it), and for each document its bounds, task id and truth. A ``SampleSource`` adds the windows and
rows of one sequence length and turns row numbers into a batch; that is the only place where
inputs, shifted labels, segments and positions are made.

Shapes: N tokens, D documents, B samples of a batch, S sequence_length.
"""

import json
import shutil
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from workbench.data.windows import Ledger, Rows, Windows, cut_windows, make_ledger, pack_rows
from workbench.run_folder import write_json

LOSS, CUT = np.uint8(1), np.uint8(2)  # bits of the token flags
_ARRAYS = ("tokens", "flags", "offsets", "task_ids", "truth")


@dataclass(frozen=True)
class TokenStore:
    """tokens (N,) int32, flags (N,) uint8, offsets (D+1,) int64, task_ids (D,) int32, truth (D,) float32.

    ``truth`` is NaN where a document has no truth label.
    """

    tokens: np.ndarray
    flags: np.ndarray
    offsets: np.ndarray
    task_ids: np.ndarray
    truth: np.ndarray

    @property
    def documents(self) -> int:
        return len(self.offsets) - 1

    def save(self, folder: Path) -> None:
        """Write the arrays as .npy files into ``folder``, which must exist."""
        for name in _ARRAYS:
            np.save(folder / f"{name}.npy", getattr(self, name))

    @classmethod
    def open(cls, folder: Path) -> "TokenStore":
        """Map the arrays of ``folder`` into memory; nothing is read until it is used."""
        return cls(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS))


class StoreWriter:
    """Collects documents of one source in memory and makes a TokenStore of them."""

    def __init__(self) -> None:
        self._tokens: list[np.ndarray] = []
        self._flags: list[np.ndarray] = []
        self._lengths: list[int] = []
        self._tasks: list[int] = []
        self._truth: list[float] = []

    def add(self, tokens: np.ndarray, flags: np.ndarray, task_id: int = 0, truth: float = np.nan) -> None:
        self._tokens.append(tokens)
        self._flags.append(flags)
        self._lengths.append(len(tokens))
        self._tasks.append(task_id)
        self._truth.append(truth)

    def store(self) -> TokenStore:
        return TokenStore(
            np.concatenate([np.empty(0, np.int32), *self._tokens]).astype(np.int32),
            np.concatenate([np.empty(0, np.uint8), *self._flags]).astype(np.uint8),
            np.concatenate([[0], np.cumsum(self._lengths)]).astype(np.int64),
            np.asarray(self._tasks, np.int32),
            np.asarray(self._truth, np.float32),
        )


@dataclass(frozen=True)
class SampleSource:
    """The rows of one store at one sequence length."""

    name: str
    store: TokenStore
    windows: Windows
    rows: Rows
    sequence_length: int
    padding_id: int

    @classmethod
    def cut(cls, name: str, store: TokenStore, sequence_length: int, overlap: float, padding_id: int) -> "SampleSource":
        """Cut ``store`` into windows and pack them; deterministic."""
        cuts = (np.asarray(store.flags) & CUT).astype(bool)
        windows = cut_windows(np.diff(store.offsets), cuts, sequence_length, overlap)
        return cls(name, store, windows, pack_rows(windows, sequence_length), sequence_length, padding_id)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def ledger(self) -> Ledger:
        """What became of every token; raises AssertionError when a sum does not close."""
        loss = (np.asarray(self.store.flags) & LOSS).astype(bool)
        return make_ledger(np.diff(self.store.offsets), loss, self.windows, self.rows, self.sequence_length)

    def pieces(self, row: int) -> list[tuple[int, int, int, int]]:
        """(document, start, stop, loss_from) of each window in a row."""
        w = self.windows
        return [
            (int(w.document[i]), int(w.start[i]), int(w.stop[i]), int(w.loss_from[i]))
            for i in self.rows.window[self.rows.first[row] : self.rows.first[row + 1]]
        ]

    def batch(self, rows: np.ndarray, sample_ids: np.ndarray) -> dict[str, np.ndarray]:
        """The batch of ``rows`` (B,): the contract of every consumer.

        ``input_ids``, ``labels`` (-100 = no loss; already shifted: labels[i] is the token after
        input i), ``segment_ids`` (0 = padding, then 1, 2, ... for each window of the row),
        ``position_ids`` (restart at 0 with each segment), ``task_ids``, ``instruction_labels``
        (the task id at the last input of a task document, else -100): int32 (B, S).
        ``fact_targets``: float32 (B, S), the truth at the last input of a document that has
        one, else -1. ``sample_ids``: (B,) int32, as given.
        """
        shape = (len(rows), self.sequence_length)
        out = {
            "input_ids": np.full(shape, self.padding_id, np.int32),
            "labels": np.full(shape, -100, np.int32),
            "segment_ids": np.zeros(shape, np.int32),
            "position_ids": np.zeros(shape, np.int32),
            "task_ids": np.zeros(shape, np.int32),
            "instruction_labels": np.full(shape, -100, np.int32),
            "fact_targets": np.full(shape, -1.0, np.float32),
            "sample_ids": np.asarray(sample_ids, np.int32),
        }
        tokens, flags, offsets = self.store.tokens, self.store.flags, self.store.offsets
        for b, row in enumerate(np.asarray(rows).tolist()):
            at = 0
            for segment, (document, start, stop, loss_from) in enumerate(self.pieces(row), 1):
                base, n = int(offsets[document]), stop - start
                here = slice(at, at + n)
                out["input_ids"][b, here] = tokens[base + start : base + stop]
                targets = tokens[base + start + 1 : base + stop + 1]
                asked = (flags[base + start + 1 : base + stop + 1] & LOSS) != 0
                asked[: loss_from - start - 1] = False
                out["labels"][b, here] = np.where(asked, targets, -100)
                out["segment_ids"][b, here] = segment
                out["position_ids"][b, here] = np.arange(n)
                task = int(self.store.task_ids[document])
                out["task_ids"][b, here] = task
                ends_document = base + stop + 1 == int(offsets[document + 1])
                if task and ends_document:
                    out["instruction_labels"][b, at + n - 1] = task
                truth = float(self.store.truth[document])
                if truth == truth and ends_document:
                    out["fact_targets"][b, at + n - 1] = truth
                at += n
        return out


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


def save_stores(folder: Path, stores: dict[str, TokenStore], facts: dict) -> None:
    """Write stores and what is known about them; ``folder`` exists only when it is whole.

    Two processes that prepare the same data write beside each other, and the first to finish
    gives its folder the name; the contents are the same, so the other drops its copy.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    for name, store in stores.items():
        (beside / name).mkdir()
        store.save(beside / name)
    write_json(beside / "prepared.json", {**facts, "stores": list(stores)})
    try:
        beside.rename(folder)
    except OSError:
        if not (folder / "prepared.json").is_file():
            raise
        shutil.rmtree(beside)


def open_stores(folder: Path) -> tuple[dict[str, TokenStore], dict] | None:
    """What ``save_stores`` wrote, or None where ``folder`` is not there."""
    if not (folder / "prepared.json").is_file():
        return None
    facts = json.loads((folder / "prepared.json").read_text(encoding="utf-8"))
    return {name: TokenStore.open(folder / name) for name in facts["stores"]}, facts
