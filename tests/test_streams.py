"""Chunks and lines against Python's own gzip and against the bytes that were written."""

import gzip
import io

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.data import streams

PACK = {"": lambda b: b, ".gz": gzip.compress, ".zst": zstandard.compress}


@settings(deadline=None, max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300), ending=st.sampled_from(list(PACK)), size=st.integers(1, 7))
def test_lines_are_the_lines(tmp_path, monkeypatch, data, ending, size):
    monkeypatch.setattr(streams, "_CHUNK", size)
    monkeypatch.setattr(streams, "_COMPRESSED_CHUNK", size)
    file = tmp_path / f"a{ending}"
    file.write_bytes(PACK[ending](data))
    assert list(streams.lines(file)) == list(io.BytesIO(data))
    assert b"".join(streams.lines(file)) == b"".join(streams.chunks(file)) == data


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_members_one_after_the_other(tmp_path, ending):
    file = tmp_path / f"a{ending}"
    file.write_bytes(PACK[ending](b"one\n") + PACK[ending](b"") + PACK[ending](b"two\n"))
    assert list(streams.lines(file)) == [b"one\n", b"two\n"]


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
            list(streams.lines(file))


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
