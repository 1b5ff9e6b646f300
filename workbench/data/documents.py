"""Files to documents: what can be read streams out, what cannot is set aside with its place and reason.

    find_files("corpus/")                        .txt .md .html .htm .jsonl, each also .gz or .zst; .parquet
    read_documents("corpus/", on_reject=aside)   Document after Document, in the files' order

A .txt, .md or .html file is one document (``paragraphs=True``: each paragraph of .txt and .md), a
line of .jsonl or a row of .parquet is one document. Nothing is lost: ``Reading`` counts what came
in, and in = documents + rejected. A blank line of .jsonl is nothing, not a document.

Costs memory for one document, line or batch of rows, and none of these grows with the file: a .txt
or .md (or a paragraph) of more than 8 MiB is given in parts, cut at line ends and only inside longer
lines elsewhere, which joined are the file. An invalid byte rejects its part, with the part's line
and the byte's place in the file, and the parts after it are read; a file that is no longer than a
part is rejected whole. A page of .html is never cut: above 64 MiB it is rejected as too long, as is
a line of .jsonl; the lines after it are read.

Line ends and all characters stay as they are, but for a byte order mark at the beginning;
``cleaning`` owns the rest. Guesses no encodings: text is UTF-8. ``readers`` has each kind of file.
"""

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence

from workbench.data.files import find_files
from workbench.data.readers import read_file
from workbench.errors import DataError, SettingError


@dataclass(frozen=True)
class Document:
    """One text: ``line`` is where it begins in ``source`` (1-based line or row; 0 = the whole file).

    Where rows were asked for without a text (``text_field=None``), ``text`` is "" and all is in ``meta``.
    """

    text: str
    source: str
    line: int
    meta: Mapping[str, Any]  # the other fields of a .jsonl line or .parquet row


@dataclass(frozen=True)
class Rejected:
    """What could not become a document; ``reason`` is the kind of fault, a colon and the details."""

    source: str
    line: int
    reason: str

    @property
    def kind(self) -> str:
        """The reason without its details, to count by."""
        return self.reason.partition(":")[0]


@dataclass
class Reading:
    """Counts of one reading; ``seen = documents + rejected`` is true at every moment.

    ``position`` is the ``start`` with which another reading of the same files goes on after the
    last item (document or rejection) that was given out. ``file_bytes`` counts what was read from
    the disk, compressed bytes where the file is compressed and of .parquet the rows' share, with
    the files before ``start``; at the end it is the sum of the files' sizes.
    """

    seen: int = 0
    documents: int = 0
    parts: int = 0  # of the documents, those that are a part of a longer text
    characters: int = 0
    bytes: int = 0  # of the documents' text in UTF-8
    file_bytes: int = 0
    position: tuple[int, int] = (0, 0)
    rejected: Counter = field(default_factory=Counter)  # by kind


def read_documents(
    patterns: str | Path | Sequence[str | Path],
    *,
    text_field: str | None = "text",
    paragraphs: bool = False,
    start: tuple[int, int] = (0, 0),
    on_reject: Callable[[Rejected], None] | None = None,
    strict: bool = False,
    reading: Reading | None = None,
) -> Iterator[Document]:
    """Every document of the files that ``patterns`` name (see ``find_files``), one at a time.

    ``text_field`` None takes rows of .jsonl and .parquet as they are, all fields in ``meta``.
    ``on_reject`` gets what cannot be read; it must be given unless ``strict``, with which the
    first fault raises DataError. ``reading`` is counted up as the documents go by.

    ``start`` = (file, items), from an earlier ``reading.position``: leaves out the files before
    index ``file`` and the first ``items`` documents and rejections of that one, uncounted. They are
    read again from the disk, but not decoded.

    Raises DataError at once where no file is found or ``start`` is behind the last file, and on the
    way where the file at ``start`` holds less than ``items``: it is not the one it was.
    """
    if on_reject is None and not strict:
        raise SettingError("on_reject is missing: give a function that takes what is rejected, or strict=True")
    files = find_files(patterns)
    first, left_out = start
    if not (0 <= first <= len(files) and left_out >= 0):
        raise DataError(f"start=({first}, {left_out}) does not fit: there are {len(files)} files; begin at (0, 0)")
    counts = Reading() if reading is None else reading
    counts.position = (first, left_out)

    def on_read(size: int) -> None:
        counts.file_bytes += size

    def documents() -> Iterator[Document]:
        done = sum(map(_size, files[:first]))
        for index, path in enumerate(files[first:], first):
            skip, item = left_out if index == first else 0, 0
            counts.file_bytes = done
            for item, found in enumerate(read_file(path, text_field, paragraphs, on_read), 1):
                if item <= skip:
                    continue
                made = found.make()
                counts.seen += 1
                counts.position = (index, item)
                if isinstance(made, str):
                    _reject(Rejected(str(path), found.line, made), counts, None if strict else on_reject)
                    continue
                text, meta = made
                counts.documents += 1
                counts.parts += found.part
                counts.characters += len(text)
                counts.bytes += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
                yield Document(text, str(path), found.line, meta)
            if item < skip:
                raise DataError(
                    f"start=({first}, {left_out}) does not fit: {path} holds {item} documents and rejections, "
                    "it is not the file it was; begin at (0, 0)"
                )
            done += _size(path)
            counts.position, counts.file_bytes = (index + 1, 0), done

    return documents()


def _reject(rejected: Rejected, counts: Reading, on_reject: Callable[[Rejected], None] | None) -> None:
    counts.rejected[rejected.kind] += 1
    if on_reject is None:
        place = f"{rejected.source}:{rejected.line}" if rejected.line else rejected.source
        raise DataError(f"{place}: {rejected.reason}; mend it, or read without strict=True to set it aside")
    on_reject(rejected)


def _size(path: Path) -> int:
    return path.stat().st_size if os.path.exists(path) else 0  # the reader has reported one that is gone
