"""Files to documents: what can be read streams out, what cannot is set aside with its place and reason.

    find_files("corpus/")                        .txt .md .html .htm .jsonl, each also .gz or .zst; .parquet
    read_documents("corpus/", on_reject=aside)   Document after Document, in the files' order

A .txt, .md or .html file is one document (``paragraphs=True``: each paragraph of .txt and .md), a
line of .jsonl or a row of .parquet is one document. Nothing is lost: ``Reading`` counts what came
in, and in = documents + rejected. A blank line of .jsonl is nothing, not a document.

Costs memory for one document, line or batch of rows. Line ends and all characters stay as they
are, but for a byte order mark at the beginning; ``cleaning`` owns the rest. Guesses no encodings:
text is UTF-8.
"""

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence

from workbench.data.files import find_files, kind_of
from workbench.data.streams import Unreadable, chunks, lines
from workbench.errors import DataError, SettingError

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_ROWS = 512  # of parquet, in memory at once


@dataclass(frozen=True)
class Document:
    """One text: ``line`` is where it begins in ``source`` (1-based line or row; 0 = the whole file)."""

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
    """Counts of one reading; ``seen = documents + rejected`` is true at every moment."""

    seen: int = 0
    documents: int = 0
    characters: int = 0
    bytes: int = 0  # of the documents' text in UTF-8
    rejected: Counter = field(default_factory=Counter)  # by kind


class Quarantine:
    """Writes what is rejected to a .jsonl, a line each; pass it as ``on_reject``.

    ``with Quarantine(path) as aside: ...``; the file is begun anew and is empty when nothing was.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self.count = Path(path), 0

    def __enter__(self) -> "Quarantine":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("w", encoding="utf-8", errors="backslashreplace")
        return self

    def __call__(self, rejected: Rejected) -> None:
        self._file.write(json.dumps(asdict(rejected), ensure_ascii=False) + "\n")
        self._file.flush()
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read_documents(
    patterns: str | Path | Sequence[str | Path],
    *,
    text_field: str = "text",
    paragraphs: bool | None = None,
    on_reject: Callable[[Rejected], None] | None = None,
    strict: bool = False,
    reading: Reading | None = None,
) -> Iterator[Document]:
    """Every document of the files that ``patterns`` name (see ``find_files``), one at a time.

    ``on_reject`` gets what cannot be read; it must be given unless ``strict``, with which the
    first fault raises DataError. ``reading`` is counted up as the documents go by. Raises
    DataError where no file is found, at once.
    """
    if on_reject is None and not strict:
        raise SettingError("on_reject is missing: give a function that takes what is rejected, or strict=True")
    files = find_files(patterns)
    counts = Reading() if reading is None else reading

    def documents() -> Iterator[Document]:
        for path in files:
            for line, found in _read_file(path, text_field, bool(paragraphs)):
                counts.seen += 1
                if isinstance(found, tuple):
                    text, meta = found
                    counts.documents += 1
                    counts.characters += len(text)
                    counts.bytes += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
                    yield Document(text, str(path), line, meta)
                    continue
                rejected = Rejected(str(path), line, found)
                counts.rejected[rejected.kind] += 1
                if strict:
                    place = f"{path}:{line}" if line else str(path)
                    raise DataError(f"{place}: {found}; mend it, or read without strict=True to set it aside")
                on_reject(rejected)

    return documents()


# What the readers give: the line, and either (text, meta) or the reason for rejecting it.
_Found = Iterator[tuple[int, tuple[str, dict] | str]]


def _read_file(path: Path, text_field: str, paragraphs: bool) -> _Found:
    kind = kind_of(path)
    if kind == ".jsonl":
        return _read_jsonl(path, text_field)
    if kind == ".parquet":
        return _read_parquet(path, text_field)
    if paragraphs and kind in (".txt", ".md"):
        return _read_paragraphs(path)
    return _read_whole(path)


def _read_whole(path: Path) -> _Found:
    parts, offset = [], 0
    try:
        for chunk in chunks(path):
            if fault := _not_text(chunk, offset, not parts):
                yield 0, fault
                return
            parts.append(chunk)
            offset += len(chunk)
    except Unreadable as error:
        yield 0, str(error)
        return
    yield 0, _text_of(b"".join(parts).removeprefix(_BOM), "empty file")


def _read_paragraphs(path: Path) -> _Found:
    offset, content, number, start, block, found = 0, 0, 0, 0, [], False
    try:
        for number, line in enumerate(lines(path), 1):
            if fault := _not_text(line, offset, number == 1):
                yield start or number, fault  # with the paragraph it is in; a binary file has no more
                return
            offset += len(line)
            line = line.removeprefix(_BOM) if number == 1 else line
            content += len(line)
            if line.strip():
                start = start or number
                block.append(line)
            elif block:
                yield start, _paragraph(block)
                start, block, found = 0, [], True
    except Unreadable as error:
        yield start or number + 1, str(error)
        return
    if block:
        yield start, _paragraph(block)
    elif not found:
        yield 0, "empty text: only white space" if content else "empty file"


def _paragraph(block: list[bytes]) -> tuple[str, dict] | str:
    whole = b"".join(block)
    return _text_of(whole.removesuffix(b"\n").removesuffix(b"\r"), "empty text")


def _read_jsonl(path: Path, text_field: str) -> _Found:
    number, found = 0, False
    try:
        for number, line in enumerate(lines(path), 1):
            line = line.removeprefix(_BOM) if number == 1 else line
            if number == 1 and not line.lstrip().startswith(b"{") and (fault := _not_text(line, 0, True)):
                yield 0, fault  # of the whole file
                return
            if line.strip():
                found = True
                yield number, _json_line(line, text_field)
    except Unreadable as error:
        yield number + 1, str(error)
        return
    if not found:
        yield 0, "empty file" if number == 0 else "empty file: only blank lines"


def _json_line(line: bytes, text_field: str) -> tuple[str, dict] | str:
    if b"\0" in line:
        return f"binary: NUL at byte {line.index(0)} of the line"
    try:
        text = line.decode("utf-8")
        fields = json.loads(text)
    except UnicodeDecodeError as error:
        return f"invalid UTF-8: byte {error.start} of the line is 0x{line[error.start]:02x}"
    except json.JSONDecodeError as error:
        return f"broken JSON: {error.msg} at column {error.colno}"
    except (RecursionError, ValueError) as error:  # thousands of nested brackets; a number of thousands of digits
        return f"broken JSON: {error}"
    if not isinstance(fields, dict):
        return f"not a JSON object: {type(fields).__name__}"
    if text.count(json.dumps(text_field, ensure_ascii=False)) > 1:
        # JSON would silently take the last of two fields with one name.
        pairs = json.loads(text, object_pairs_hook=list)
        if [name for name, _ in pairs].count(text_field) > 1:
            return f"duplicate field: {text_field!r} is there more than once"
    return _fields_to_text(fields, text_field)


def _read_parquet(path: Path, text_field: str) -> _Found:
    import pyarrow
    import pyarrow.parquet

    row = 0
    try:
        if path.stat().st_size == 0:
            yield 0, "empty file"
            return
        with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
            names = file.schema_arrow.names
            if text_field not in names:
                yield 0, _missing(text_field, names)
                return
            if names.count(text_field) > 1:
                yield 0, f"duplicate field: {text_field!r} is there more than once"
                return
            if file.metadata.num_rows == 0:
                yield 0, "empty file: no rows"
            for batch in file.iter_batches(batch_size=_ROWS, use_threads=False):
                for index in range(batch.num_rows):
                    row += 1
                    try:
                        fields = {name: column[index].as_py() for name, column in zip(names, batch.columns)}
                    except UnicodeDecodeError as error:
                        yield row, f"invalid UTF-8: byte {error.start} of a field"
                        continue
                    yield row, _fields_to_text(fields, text_field)
    except (pyarrow.ArrowException, OSError) as error:
        yield row and row + 1, f"unreadable parquet: {str(error).splitlines()[0] if str(error) else 'no reason given'}"


def _fields_to_text(fields: dict[str, Any], text_field: str) -> tuple[str, dict] | str:
    if text_field not in fields:
        return _missing(text_field, list(fields))
    text = fields.pop(text_field)
    if not isinstance(text, str):
        return f"text is not a string: {text_field!r} is {'null' if text is None else type(text).__name__}"
    return (text, fields) if text.strip() else "empty text"


def _missing(text_field: str, names: list[str]) -> str:
    near = get_close_matches(text_field, names, n=1, cutoff=0.5)
    there = f"the nearest is {near[0]!r}" if near else f"there are {', '.join(map(repr, names[:8])) or 'none'}"
    return f"missing field: no {text_field!r}, {there}; set text_field"


def _not_text(data: bytes, offset: int, first: bool) -> str:
    """Why ``data``, at byte ``offset`` of a file, cannot be text at all; "" if it can."""
    if first and data.startswith(_UTF16):
        return "invalid UTF-8: the file begins with the mark of UTF-16; save it as UTF-8"
    at = data.find(0)
    return f"binary: NUL at byte {offset + at}" if at >= 0 else ""


def _text_of(data: bytes, if_nothing: str) -> tuple[str, dict] | str:
    if not data:
        return if_nothing
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"invalid UTF-8: byte {error.start} is 0x{data[error.start]:02x}"
    return (text, {}) if text.strip() else "empty text: only white space"
