"""Tokens of one source on disk: what the pipeline made of the documents, ready to be read at random.

    tokens, flags     one entry a token; flags say whether it may be asked for (LOSS) and whether a
                      window may be cut before it (CUT)
    offsets           where each document begins
    task_ids, truth, domains                one entry a document
    documents.jsonl   the clean text of each document in its parts, and where it came from; a person
                      can read it, and tokenising it again gives the same tokens

Opening maps the arrays into memory and reads none of them. Does not know windows or rows.

Shapes: N tokens, D documents.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np

from workbench.data.arrays import ArrayWriter, open_arrays
from workbench.data.documents import Document

LOSS, CUT = np.uint8(1), np.uint8(2)  # bits of the token flags
_ARRAYS = {
    "tokens": "i4",
    "flags": "u1",
    "offsets": "i8",
    "task_ids": "i4",
    "truth": "f4",
    "domains": "i4",
    "records": "i8",
}
_RECORDS = "documents.jsonl"


@dataclass(frozen=True)
class Entry:
    """One document on its way into a store; ``truth`` is NaN where nothing is known of it.

    ``record`` is what is kept of its text (see ``TokenStore.record``).
    """

    tokens: np.ndarray
    flags: np.ndarray
    task_type: str = ""
    truth: float = float("nan")
    domain: str = ""
    record: bytes = b"{}"


@dataclass(frozen=True)
class TokenStore:
    """tokens (N,) int32, flags (N,) uint8, offsets (D+1,) int64, task_ids and domains (D,) int32, truth (D,) float32.

    ``records`` (D+1,) int64 are the places of the lines in ``file`` (None for a store in memory).
    """

    tokens: np.ndarray
    flags: np.ndarray
    offsets: np.ndarray
    task_ids: np.ndarray
    truth: np.ndarray
    domains: np.ndarray
    records: np.ndarray
    file: Path | None = None

    @property
    def documents(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def has_labels(self) -> bool:
        """Whether any document has a task or a truth label."""
        return bool(np.any(self.task_ids)) or not bool(np.all(np.isnan(self.truth)))

    def record(self, document: int) -> dict[str, Any]:
        """What is kept of a document: ``parts``, ``loss``, ``control``, ``source``, ``line``, ``meta``, ..."""
        if self.file is None:
            raise ValueError("a store in memory keeps no records")
        with self.file.open("rb") as lines:
            lines.seek(int(self.records[document]))
            return json.loads(lines.read(int(self.records[document + 1] - self.records[document])))

    def document(self, document: int) -> Document:
        """The clean text of a document, and where it came from."""
        kept = self.record(document)
        return Document("".join(kept["parts"]), kept["source"], kept["line"], kept.get("meta", {}))

    @classmethod
    def open(cls, folder: Path) -> "TokenStore":
        """Map the arrays of ``folder`` into memory; nothing is read until it is used."""
        return cls(**open_arrays(folder, _ARRAYS), file=folder / _RECORDS)

    @classmethod
    def of(cls, entries: Sequence[Entry], task_ids: Mapping[str, int] = {}) -> "TokenStore":
        """A store in memory; a task type that ``task_ids`` does not name is id 0."""
        return cls(
            np.concatenate([np.empty(0, np.int32), *(e.tokens for e in entries)]).astype(np.int32),
            np.concatenate([np.empty(0, np.uint8), *(e.flags for e in entries)]).astype(np.uint8),
            np.concatenate([[0], np.cumsum([len(e.tokens) for e in entries])]).astype(np.int64),
            np.asarray([task_ids.get(e.task_type, 0) for e in entries], np.int32),
            np.asarray([e.truth for e in entries], np.float32),
            np.zeros(len(entries), np.int32),
            np.zeros(len(entries) + 1, np.int64),
        )


class StoreWriter:
    """Appends documents to a store in ``folder``; ``lengths`` (of an earlier ``sync``) continues there."""

    def __init__(self, folder: Path, lengths: Mapping[str, int] | None = None) -> None:
        self._arrays = ArrayWriter(folder, {**_ARRAYS, _RECORDS: "u1"}, lengths)
        done = {"tokens": 0, _RECORDS: 0} if lengths is None else lengths
        self._tokens, self._bytes = done["tokens"], done[_RECORDS]
        if lengths is None:
            self._arrays.append(offsets=np.zeros(1, np.int64), records=np.zeros(1, np.int64))

    def add(self, entries: Sequence[Entry], task_ids: Sequence[int], domains: Sequence[int]) -> None:
        """Append ``entries`` with the numbers of their task types and domains."""
        if not entries:
            return
        ends = self._tokens + np.cumsum([len(e.tokens) for e in entries])
        places = self._bytes + np.cumsum([len(e.record) for e in entries])
        self._arrays.append(
            tokens=np.concatenate([e.tokens for e in entries]),
            flags=np.concatenate([e.flags for e in entries]),
            offsets=ends,
            task_ids=np.asarray(task_ids, np.int32),
            truth=np.asarray([e.truth for e in entries], np.float32),
            domains=np.asarray(domains, np.int32),
            records=places,
            **{_RECORDS: np.frombuffer(b"".join(e.record for e in entries), np.uint8)},
        )
        self._tokens, self._bytes = int(ends[-1]), int(places[-1])

    def sync(self) -> dict[str, int]:
        """Make durable what was added; returns what ``lengths`` takes."""
        return self._arrays.sync()

    def close(self) -> None:
        self._arrays.close()
