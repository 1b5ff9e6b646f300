"""Stores on disk: what comes back, what a continued writer leaves, what an empty one is."""

import json

import numpy as np
import pytest

from workbench.data.store import CUT, LOSS, Entry, StoreWriter, TokenStore

ENTRIES = [
    Entry(np.arange(100, 140, dtype=np.int32), np.full(40, CUT | LOSS), record=b'{"parts": ["\xe5\xad\x97"]}\n'),
    Entry(np.array([1, 0, 2], np.int32), np.full(3, CUT), "sum", 1.0, "school", b'{"parts": ["b"]}\n'),
    Entry(np.array([7, 2], np.int32), np.full(2, LOSS), "", 0.0, "school", b'{"parts": ["c"]}\n'),
]
IDS, DOMAINS = [0, 3, 0], [0, 1, 1]


def write(folder, entries=ENTRIES, ids=IDS, domains=DOMAINS):
    writer = StoreWriter(folder)
    writer.add(entries, ids, domains)
    writer.close()
    return TokenStore.open(folder)


def test_a_store_comes_back_as_it_was_written(tmp_path):
    store, memory = write(tmp_path / "s"), TokenStore.of(ENTRIES, {"sum": 3})
    for name in ("tokens", "flags", "offsets", "task_ids", "truth"):
        assert np.array_equal(getattr(store, name), getattr(memory, name), equal_nan=name == "truth"), name
    assert store.domains.tolist() == DOMAINS and store.documents == 3
    assert store.record(0) == {"parts": ["字"]} and store.record(2) == {"parts": ["c"]}
    assert [json.loads(line) for line in store.file.read_text(encoding="utf-8").splitlines()] == [
        store.record(d) for d in range(3)
    ]


def test_the_arrays_are_mapped_and_cannot_be_changed(tmp_path):
    store = write(tmp_path / "s")
    assert isinstance(store.tokens.base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        store.tokens[0] = 1


def test_a_writer_continues_where_it_was_made_durable(tmp_path):
    writer = StoreWriter(tmp_path / "s")
    writer.add(ENTRIES[:1], IDS[:1], DOMAINS[:1])
    lengths = writer.sync()
    writer.add(ENTRIES[1:], IDS[1:], DOMAINS[1:])
    writer.close()  # the process dies here, and some of what came after the sync is on disk
    again = StoreWriter(tmp_path / "s", json.loads(json.dumps(lengths)))
    again.add(ENTRIES[1:], IDS[1:], DOMAINS[1:])
    again.close()
    write(tmp_path / "whole")
    for file in (tmp_path / "whole").iterdir():
        assert file.read_bytes() == (tmp_path / "s" / file.name).read_bytes(), file.name


def test_an_empty_store_is_a_store(tmp_path):
    store = write(tmp_path / "s", [], [], [])
    assert store.documents == 0 and len(store.tokens) == 0


def test_a_store_in_memory_has_no_records():
    with pytest.raises(ValueError, match="no records"):
        TokenStore.of(ENTRIES).record(0)
