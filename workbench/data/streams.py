"""Bytes of a file, plain, .gz or .zst, as chunks and as lines, in flat memory.

The size in memory is that of a chunk, or of the longest line. Reads both kinds of compression to
their checksummed end: a file that was cut off is an error (``Unreadable``) after all that could
be read, never a shorter file. Does not guess: the ending of the name says what the file is.
"""

import zlib
from pathlib import Path
from typing import Iterator

import zstandard

_CHUNK = 1 << 20
_COMPRESSED_CHUNK = 1 << 12  # text seldom, and gzip never, unpacks to more than a thousand times its size


class Unreadable(Exception):
    """The rest of the file cannot be read; the message begins with the kind of fault."""


def chunks(path: Path) -> Iterator[bytes]:
    """The (decompressed) content of ``path``, in parts that are not empty. Raises Unreadable."""
    try:
        with path.open("rb") as file:
            if path.suffix.lower() == ".gz":
                yield from _inflate(file, "gz", lambda: zlib.decompressobj(wbits=31))
            elif path.suffix.lower() == ".zst":
                yield from _inflate(file, "zst", lambda: zstandard.ZstdDecompressor().decompressobj())
            else:
                while chunk := file.read(_CHUNK):
                    yield chunk
    except OSError as error:
        raise Unreadable(f"unreadable file: {error.strerror or error}") from error


def lines(path: Path) -> Iterator[bytes]:
    """The lines of ``path`` with their line feeds; the last may have none. Raises Unreadable.

    What a broken file holds after its last line feed is not given out: it is not a whole line.
    """
    rest: list[bytes] = []
    for chunk in chunks(path):
        first, *others = chunk.split(b"\n")
        rest.append(first)
        for part in others:
            yield b"".join(rest) + b"\n"
            rest = [part]
    if last := b"".join(rest):
        yield last


def _inflate(file, kind: str, make) -> Iterator[bytes]:
    """Decompress ``file``, which may be several members one after the other (as ``cat a.gz b.gz`` makes)."""
    member, started, finished = None, False, 0
    try:
        while data := file.read(_COMPRESSED_CHUNK):
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
