"""Chunks and lines against Python's own gzip and against the bytes that were written."""

import gzip
import io

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.data import streams

PACK = {"": lambda b: b, ".gz": gzip.compress, ".zst": zstandard.compress}
ANY = 1 << 20  # longer than every line here
PROPERTY = settings(
    deadline=None, max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
# Texts in which cutting is hard: characters of one to four bytes, all kinds of line ends, long lines.
HARD = st.lists(st.sampled_from(["a", "é", "中", "😀", "\n", "\r\n", "\r", "abcdefgh", "中文字"]), max_size=40).map(
    "".join
)


@PROPERTY
@given(data=st.binary(max_size=300), ending=st.sampled_from(list(PACK)), size=st.integers(1, 7))
def test_lines_are_the_lines(tmp_path, monkeypatch, data, ending, size):
    file = write(tmp_path, monkeypatch, data, ending, size)
    assert list(streams.lines(file, ANY)) == list(streams.records(file, ANY)) == list(io.BytesIO(data))
    assert b"".join(streams.lines(file, ANY)) == b"".join(streams.chunks(file)) == data


def write(tmp_path, monkeypatch, data: bytes, ending: str, size: int):
    """A packed file that is read ``size`` bytes at a time."""
    monkeypatch.setattr(streams, "_CHUNK", size)
    monkeypatch.setattr(streams, "_COMPRESSED_CHUNK", {"gz": size, "zst": size})
    file = tmp_path / f"a{ending}"
    file.write_bytes(PACK[ending](data))
    return file


@PROPERTY
@given(text=HARD, ending=st.sampled_from(list(PACK)), size=st.integers(1, 40), longest=st.integers(8, 24))
def test_blocks_and_pieces_are_the_content_cut_between_characters(tmp_path, monkeypatch, text, ending, size, longest):
    data = text.encode()
    file = write(tmp_path, monkeypatch, data, ending, size)
    read = []
    blocks = list(streams.blocks(file, longest, read.append))
    assert sum(read) == file.stat().st_size
    pieces = list(streams.lines(file, longest))
    for parts in ([block for block, _ in blocks], pieces):
        assert b"".join(parts) == data
        assert all(0 < len(part) <= longest for part in parts)
        assert "".join(part.decode() for part in parts) == text
        assert not any(a.endswith(b"\r") and b.startswith(b"\n") for a, b in zip(parts, parts[1:]))
    assert [more for _, more in blocks] == [True] * (len(blocks) - 1) + [False] * (blocks != [])
    for (block, _), (following, _) in zip(blocks, blocks[1:]):
        assert b"\n" not in block or block.endswith(b"\n")  # cut at a line end where it has one
        assert len(block) + len(following) > longest - 4 or b"\n" in following  # and no smaller than need be
    assert not any(b"\n" in piece[:-1] for piece in pieces)


@PROPERTY
@given(data=st.binary(max_size=200), size=st.integers(1, 40), longest=st.integers(8, 24))
def test_any_bytes_are_cut_somewhere(tmp_path, monkeypatch, data, size, longest):
    file = write(tmp_path, monkeypatch, data, "", size)
    assert b"".join(block for block, _ in streams.blocks(file, longest)) == data
    assert b"".join(streams.lines(file, longest)) == data
    wanted = [line if len(line) <= longest else len(line) for line in io.BytesIO(data)]
    assert [r.size if isinstance(r, streams.TooLong) else r for r in streams.records(file, longest)] == wanted


def test_a_long_line_is_named_with_its_size_and_its_beginning(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"one\n" + b"x" * 9000 + b"\ntwo\n" + b"y" * 5000)
    assert list(streams.records(file, 4999)) == [
        b"one\n", streams.TooLong(9001, b"x" * 4096), b"two\n", streams.TooLong(5000, b"y" * 4096),
    ]  # fmt: skip
    assert len(list(streams.records(file, 9001))) == 4
    assert b"y" * 5000 in list(streams.records(file, 5000))


def test_a_small_file_that_unpacks_to_much_comes_in_bounded_chunks(tmp_path):
    for ending, most in ((".gz", 5_000_000), (".zst", 20_000_000)):
        (tmp_path / f"a{ending}").write_bytes(PACK[ending](bytes(60_000_000)))
        sizes = [len(chunk) for chunk in streams.chunks(tmp_path / f"a{ending}")]
        assert sum(sizes) == 60_000_000 and max(sizes) < most


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_members_one_after_the_other(tmp_path, ending):
    file = tmp_path / f"a{ending}"
    file.write_bytes(PACK[ending](b"one\n") + PACK[ending](b"") + PACK[ending](b"two\n"))
    assert list(streams.lines(file, ANY)) == [b"one\n", b"two\n"]


def test_gzip_padding_is_not_data(tmp_path):
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(b"one\n") + b"\0" * 1000)
    assert b"".join(streams.chunks(file)) == b"one\n" == gzip.open(file).read()


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_cut_off_anywhere_is_an_error_after_what_can_be_read(tmp_path, ending):
    packed = PACK[ending](b"".join(b"line %d %d\n" % (i, i * 7919 % 104729) for i in range(300)))
    for length in range(1, len(packed), 97):
        file = tmp_path / f"a{ending}"
        file.write_bytes(packed[:length])
        with pytest.raises(streams.Unreadable, match="truncated"):
            list(streams.lines(file, ANY))


def test_damage_and_absence(tmp_path):
    (tmp_path / "a.gz").write_bytes(b"not gzip at all")
    (tmp_path / "a.zst").write_bytes(b"not zstandard at all")
    broken = bytearray(gzip.compress(b"some text that is long enough" * 10))
    broken[-6] ^= 255  # the checksum
    (tmp_path / "b.gz").write_bytes(bytes(broken))
    faults = {"a.gz": "broken gz", "a.zst": "broken zst", "b.gz": "broken gz", "no.txt": "unreadable file"}
    for name, reason in faults.items():
        with pytest.raises(streams.Unreadable, match=reason):
            list(streams.chunks(tmp_path / name))
    (tmp_path / "zero.gz").write_bytes(b"")
    assert list(streams.chunks(tmp_path / "zero.gz")) == []
