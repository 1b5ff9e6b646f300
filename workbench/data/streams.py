"""Bytes of a file, plain, .gz or .zst, as chunks, blocks, lines and records, in flat memory.

    chunks(path)            whatever comes, as it comes
    blocks(path, longest)   at most ``longest`` bytes each, cut at line ends
    lines(path, longest)    line by line; one that is longer than ``longest`` in pieces
    records(path, longest)  line by line; one that is longer than ``longest`` only named, not held

The size in memory is that of a chunk and ``longest``, however large the file and whatever is in it.
Reads both kinds of compression to their checksummed end: a file that was cut off is an error
(``Unreadable``) after all that could be read, never a shorter file. Does not guess: the ending of
the name says what the file is.

A cut that is not at a line end lies between two characters of UTF-8 and never between CR and LF.
``on_read`` is called with the number of bytes that were read from the disk, each time some were.
"""

import zlib
from pathlib import Path
from typing import Callable, Iterator, NamedTuple

import zstandard

_CHUNK = 1 << 20
# Where all bytes are the same gzip packs 1 kB, zstandard 32 kB into one: 4 and 16 MB at most from so much.
_COMPRESSED_CHUNK = {"gz": 1 << 12, "zst": 1 << 9}
OnRead = Callable[[int], None]


class Unreadable(Exception):
    """The rest of the file cannot be read; the message begins with the kind of fault."""


class TooLong(NamedTuple):
    """A line that was left out: its ``size`` in bytes with the line end, and how it begins."""

    size: int
    begins: bytes


def chunks(path: Path, on_read: OnRead = lambda size: None) -> Iterator[bytes]:
    """The (decompressed) content of ``path``, in parts that are not empty. Raises Unreadable."""
    try:
        with path.open("rb") as file:
            if path.suffix.lower() == ".gz":
                yield from _inflate(file, "gz", lambda: zlib.decompressobj(wbits=31), on_read)
            elif path.suffix.lower() == ".zst":
                yield from _inflate(file, "zst", lambda: zstandard.ZstdDecompressor().decompressobj(), on_read)
            else:
                while chunk := file.read(_CHUNK):
                    on_read(len(chunk))
                    yield chunk
    except OSError as error:
        raise Unreadable(f"unreadable file: {error.strerror or error}") from error


def blocks(path: Path, longest: int, on_read: OnRead = lambda size: None) -> Iterator[tuple[bytes, bool]]:
    """(block, whether more follows): at most ``longest`` bytes each, of 8 or more, and together the content.

    Each ends after the last line feed that it has room for, and in the middle of a line where
    there is none. Raises Unreadable; what was not yet a block is not given out then.
    """
    held, size = [], 0
    for chunk in chunks(path, on_read):
        held.append(chunk)
        size += len(chunk)
        if size > longest:
            data, held = b"".join(held), []
            while len(data) > longest:
                end = data.rfind(b"\n", 0, longest) + 1 or _between_characters(data, longest)
                block, data = data[:end], data[end:]
                yield block, True
            held, size = [data], len(data)
    if size:
        yield b"".join(held), False


def lines(path: Path, longest: int, on_read: OnRead = lambda size: None) -> Iterator[bytes]:
    """The lines of ``path`` with their line feeds; the last may have none. Raises Unreadable.

    A line of more than ``longest`` bytes (8 or more) comes in pieces of at most that many, of which
    only the last has a line feed. What a broken file holds after its last line feed is not given
    out, but for pieces: it is not a whole line.
    """
    rest: list[bytes] = []
    size = 0
    for chunk in chunks(path, on_read):
        first, *others = chunk.split(b"\n")
        rest.append(first)
        size += len(first)
        for part in others:
            line = b"".join(rest) + b"\n"
            if size < longest:
                yield line
            else:
                yield from _pieces(line, longest)
            rest, size = [part], len(part)
        if size > longest:
            *pieces, last = _pieces(b"".join(rest), longest)
            yield from pieces
            rest, size = [last], len(last)
    if last := b"".join(rest):
        yield last


def records(path: Path, longest: int, on_read: OnRead = lambda size: None) -> Iterator[bytes | TooLong]:
    """The lines of ``path`` as ``lines`` gives them, and TooLong in place of those of more than ``longest`` bytes."""
    held, size = b"", 0  # the first piece of the line, and its length so far
    for piece in lines(path, longest, on_read):
        if size:
            held, size = held[:4096], size + len(piece)
            if piece.endswith(b"\n"):
                yield TooLong(size, held)
                held, size = b"", 0
        elif piece.endswith(b"\n"):
            yield piece
        else:
            held, size = piece, len(piece)
    if size:
        yield held if size == len(held) else TooLong(size, held)


def _pieces(line: bytes, longest: int) -> list[bytes]:
    pieces, at = [], 0
    while len(line) - at > longest:
        end = _between_characters(line, at + longest)
        pieces.append(line[at:end])
        at = end
    return [*pieces, line[at:]]


def _between_characters(data: bytes, at: int) -> int:
    """``at``, or as little before it as it takes not to cut a character of UTF-8 or a CR LF in two."""
    if data[at - 1 : at + 1] == b"\r\n":
        return at - 1
    for end in range(at, at - 4, -1):
        if data[end] & 0xC0 != 0x80:
            return end
    return at  # not UTF-8 anyway


def _inflate(file, kind: str, make, on_read: OnRead) -> Iterator[bytes]:
    """Decompress ``file``, which may be several members one after the other (as ``cat a.gz b.gz`` makes)."""
    member, started, finished = None, False, 0
    try:
        while data := file.read(_COMPRESSED_CHUNK[kind]):
            on_read(len(data))
            while data:
                if member is None:
                    if kind == "gz" and finished:
                        data = data.lstrip(b"\0")  # padding after the last member, as tape archives have
                        if not data:
                            break
                    member, started = make(), True
                if out := member.decompress(data):
                    yield out
                data = member.unused_data if member.eof else b""
                if member.eof:
                    member, finished = None, finished + 1
    except (zlib.error, zstandard.ZstdError) as error:
        raise Unreadable(f"broken {kind}: {str(error).splitlines()[0]}") from error
    if started and member is not None:
        raise Unreadable(f"truncated {kind}: the file ends in the middle of the compressed data")
