"""One file to what it holds: for each kind of file a reader that gives text after text, fault after fault.

    read_file(path, text_field="text", paragraphs=False, on_read=count)   →  Found, Found, ...

Sizes in memory: a .txt or .md of more than ``PART`` bytes comes in parts of at most that, cut at
line ends and only in longer lines elsewhere; a paragraph likewise. A page of .html is one text and
may have ``LONGEST`` bytes, as may a line of .jsonl. Of .parquet, rows of about ``_BATCH`` bytes.

What a text costs (decoding, JSON) is spent when ``Found.make`` is called, so that to pass over
what was read before, after an interruption, costs little. Does not count and does not report.
"""

import json
from collections import Counter
from difflib import get_close_matches
from functools import cache, partial
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

from workbench.data.files import kind_of
from workbench.data.streams import OnRead, TooLong, Unreadable, blocks, chunks, lines, records

PART = 8 << 20  # bytes of text
LONGEST = 64 << 20  # bytes of a line of .jsonl, or of a page
_BATCH = 8 << 20  # bytes of .parquet as text, in memory at once
_ROWS = 512  # at most, of a batch
_BUFFER = 1 << 20  # bytes of .parquet read at once; pyarrow's default holds a whole column of a row group
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")

Made = tuple[str, dict] | str  # (text, the other fields), or the reason for rejecting it


class Found(NamedTuple):
    """Something at ``line``, of which ``make()`` makes (text, fields) or the reason for rejecting it."""

    line: int
    make: Callable[[], Made]
    part: bool = False  # of a text that was longer than PART


_Reader = Iterator[Found]


def read_file(path: Path, text_field: str | None, paragraphs: bool, on_read: OnRead) -> _Reader:
    """All that ``path`` holds, in order; the same at every reading of the same file.

    ``text_field`` None takes rows of fields without a text. ``on_read`` gets the numbers of bytes
    that were read from the disk; for .parquet the share of the size that the rows are.
    """
    kind = kind_of(path)
    if kind == ".jsonl":
        return _read_jsonl(path, text_field, on_read)
    if kind == ".parquet":
        return _read_parquet(path, text_field, on_read)
    if text_field is None:
        return iter([_fault(0, f"no fields: a {kind} file is text alone; give .jsonl or .parquet, or set text_field")])
    if kind not in (".txt", ".md"):
        return _read_page(path, on_read)
    return (_read_paragraphs if paragraphs else _read_text)(path, on_read)


def _fault(line: int, reason: str) -> Found:
    return Found(line, lambda: reason)


def _read_text(path: Path, on_read: OnRead) -> _Reader:
    line, offset = 1, 0
    try:
        for block, more in blocks(path, PART, on_read):
            part = more or offset > 0
            if fault := _not_text(block, offset):
                yield _fault(line if offset else 0, fault)  # a binary file has no more
                return
            yield Found(line if part else 0, partial(_part_of_file, block, offset), part)
            line, offset = line + block.count(b"\n"), offset + len(block)
    except Unreadable as error:
        yield _fault(line if offset else 0, str(error))
        return
    if not offset:
        yield _fault(0, "empty file")


def _read_page(path: Path, on_read: OnRead) -> _Reader:
    parts, size = [], 0
    try:
        for chunk in chunks(path, on_read):
            if fault := _not_text(chunk, size):
                yield _fault(0, fault)
                return
            parts.append(chunk)
            size += len(chunk)
            if size > LONGEST:
                yield _fault(0, f"too long: a page is not cut and may have {LONGEST:,} bytes; split it")
                return
    except Unreadable as error:
        yield _fault(0, str(error))
        return
    yield Found(0, partial(_part_of_file, b"".join(parts), 0))


def _read_paragraphs(path: Path, on_read: OnRead) -> _Reader:
    number, offset, content, found = 1, 0, 0, False
    block, size, start, cut, at_start = [], 0, 0, False, True
    try:
        for piece in lines(path, PART, on_read):
            if fault := _not_text(piece, offset):
                yield _fault(start or number, fault)  # with the paragraph it is in; a binary file has no more
                return
            first, offset = not offset, offset + len(piece)
            piece = piece.removeprefix(_BOM) if first else piece
            content += len(piece)
            if piece.strip() or (block and not at_start):
                if size + len(piece) > PART:
                    yield Found(start, partial(_text_of, b"".join(block)), True)
                    block, size, start, cut = [], 0, 0, True
                start, size = start or number, size + len(piece)
                block.append(piece)
            elif block:
                yield Found(start, partial(_paragraph, block), cut)
                block, size, start, cut, found = [], 0, 0, False, True
            at_start = piece.endswith(b"\n")
            number += at_start
    except Unreadable as error:
        yield _fault(start or number, str(error))
        return
    if block:
        yield Found(start, partial(_paragraph, block), cut)
    elif not found:
        yield _fault(0, "empty text: only white space" if content else "empty file")


def _paragraph(block: list[bytes]) -> Made:
    whole = b"".join(block)
    return _text_of(whole.removesuffix(b"\n").removesuffix(b"\r"))


def _read_jsonl(path: Path, text_field: str | None, on_read: OnRead) -> _Reader:
    number, found = 0, False
    try:
        for number, line in enumerate(records(path, LONGEST, on_read), 1):
            size, line = line if isinstance(line, TooLong) else (0, line)
            line = line.removeprefix(_BOM) if number == 1 else line
            if number == 1 and not line.lstrip().startswith(b"{") and (fault := _not_text(line, 0)):
                yield _fault(0, fault)  # of the whole file
                return
            if size:
                found = True
                yield _fault(number, f"too long: the line has {size:,} bytes, of at most {LONGEST:,}")
            elif line.strip():
                found = True
                yield Found(number, partial(_json_line, line, text_field))
    except Unreadable as error:
        yield _fault(number + 1, str(error))
        return
    if not found:
        yield _fault(0, "empty file" if number == 0 else "empty file: only blank lines")


def _json_line(line: bytes, text_field: str | None) -> Made:
    if b"\0" in line:
        return f"binary: NUL at byte {line.index(0)} of the line"
    names: list[str] = []

    def fields_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names[:] = (name for name, _ in pairs)  # the last call is for the whole line
        return dict(pairs)

    try:
        text = line.decode("utf-8")
        fields = json.loads(text, object_pairs_hook=fields_of if text_field is None else None)
    except UnicodeDecodeError as error:
        return f"invalid UTF-8: byte {error.start} of the line is 0x{line[error.start]:02x}"
    except json.JSONDecodeError as error:
        return f"broken JSON: {error.msg} at column {error.colno}"
    except (RecursionError, ValueError) as error:  # thousands of nested brackets; a number of thousands of digits
        return f"broken JSON: {error}"
    if not isinstance(fields, dict):
        return f"not a JSON object: {type(fields).__name__}"
    # JSON would silently take the last of two fields with one name.
    if text_field is not None and text.count(_quoted(text_field)) > 1:
        json.loads(text, object_pairs_hook=fields_of)
    return (names and _duplicate(names, text_field)) or _text_and_fields(fields, text_field)


@cache
def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _read_parquet(path: Path, text_field: str | None, on_read: OnRead) -> _Reader:
    import pyarrow
    import pyarrow.parquet

    row = read = 0
    try:
        size = path.stat().st_size
        if size == 0:
            yield _fault(0, "empty file")
            return
        with pyarrow.parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
            names, rows = file.schema_arrow.names, file.metadata.num_rows
            missing = "" if text_field is None or text_field in names else _missing(text_field, names)
            if fault := missing or _duplicate(names, text_field):
                yield _fault(0, fault)
                return
            if rows == 0:
                yield _fault(0, "empty file: no rows")
            for batch in _batches(file):
                for index in range(batch.num_rows):
                    row += 1
                    on_read(size * row // rows - read)
                    read = size * row // rows
                    yield Found(row, partial(_parquet_row, names, batch.columns, index, text_field))
    except (pyarrow.ArrowException, OSError) as error:
        yield _fault(row and row + 1, f"unreadable parquet: {_one_line(error)}")


def _batches(file) -> Iterator[Any]:
    """Row group by row group, so that one that is broken takes no rows of the one before with it."""
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        fits = int(_BATCH * group.num_rows / max(group.total_byte_size, 1))
        yield from file.iter_batches(max(1, min(_ROWS, fits)), row_groups=[number], use_threads=False)


def _parquet_row(names: list[str], columns: list, index: int, text_field: str | None) -> Made:
    import pyarrow

    try:
        fields = {name: column[index].as_py() for name, column in zip(names, columns)}
    except UnicodeDecodeError as error:
        return f"invalid UTF-8: byte {error.start} of a field"
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:  # a date that Python has no value for
        return f"unreadable field: {_one_line(error)}"
    return _text_and_fields(fields, text_field)


def _text_and_fields(fields: dict[str, Any], text_field: str | None) -> Made:
    if text_field is None:
        return "", fields
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


def _duplicate(names: list[str], text_field: str | None) -> str:
    """Why two of the ``names`` of a row cannot be the same; where there is a text field, only it counts."""
    twice = [name for name, count in Counter(names).items() if count > 1 and text_field in (None, name)]
    return f"duplicate field: {twice[0]!r} is there more than once" if twice else ""


def _one_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else "no reason given"


def _not_text(data: bytes, offset: int) -> str:
    """Why ``data``, at byte ``offset`` of a file, cannot be text at all; "" if it can."""
    if offset == 0 and data.startswith(_UTF16):
        return "invalid UTF-8: the file begins with the mark of UTF-16; save it as UTF-8"
    at = data.find(0)
    return f"binary: NUL at byte {offset + at}" if at >= 0 else ""


def _part_of_file(data: bytes, offset: int) -> Made:
    """The text of ``data``, which begins at byte ``offset`` of its file."""
    if offset == 0 and data.startswith(_BOM):
        data, offset = data.removeprefix(_BOM), len(_BOM)
    return _text_of(data, offset) if data else "empty file"


def _text_of(data: bytes, offset: int = 0) -> Made:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"invalid UTF-8: byte {offset + error.start} is 0x{data[error.start]:02x}"
    return (text, {}) if text.strip() else "empty text: only white space"
