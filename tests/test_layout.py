"""Layouts: blocks add up, the kept one is the one in memory, and nothing half-written is left."""

import numpy as np
import pytest

from workbench.data import layout as module
from workbench.data.layout import layout_name, make_layout, open_layout
from workbench.data.store import CUT, LOSS, Entry, TokenStore

ARRAYS = ("windows", "document", "begin", "length", "context", "rows")


@pytest.fixture
def store():
    rng = np.random.default_rng(0)
    return TokenStore.of(
        [Entry(rng.integers(0, 99, n).astype(np.int32), np.full(n, CUT | LOSS)) for n in rng.integers(1, 200, 120)]
    )


def test_the_kept_layout_is_the_one_in_memory(store, tmp_path):
    memory = make_layout(store, 64, 0.25)
    folder = tmp_path / layout_name(64, 0.25, False) / "base"
    for _ in range(2):
        kept = open_layout(folder, store, 64, 0.25)
        assert kept.ledger == memory.ledger
        assert all(np.array_equal(getattr(kept, name), getattr(memory, name)) for name in ARRAYS)
    assert [p.name for p in folder.parent.iterdir()] == ["base"], "something half-written is left"


def test_blocks_add_up_to_the_whole(store, monkeypatch):
    whole = make_layout(store, 64, 0.25)
    monkeypatch.setattr(module, "BLOCK", 700)
    parts = make_layout(store, 64, 0.25)
    for name in ("documents", "tokens_in", "targets_with_loss", "first_tokens", "dropped"):
        assert getattr(parts.ledger, name) == getattr(whole.ledger, name)
    assert (np.diff(parts.rows) > 0).all() and parts.rows[-1] == len(parts.document)
    # Every token of every document but the first is some window's own target once.
    owned = np.zeros(len(store.tokens), int)
    for begin, length, context in zip(parts.begin, parts.length, parts.context):
        owned[begin + context + 1 : begin + length + 1] += 1
    first = np.zeros(len(store.tokens), bool)
    first[store.offsets[:-1]] = True
    assert (owned[~first] == 1).all() and (owned[first] == 0).all()


def test_a_document_larger_than_a_block_is_a_block(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 100)
    store = TokenStore.of([Entry(np.zeros(n, np.int32), np.full(n, CUT | LOSS)) for n in (3, 1000, 3)])
    assert make_layout(store, 32, 0.0).ledger.targets_with_loss == 2 + 999 + 2


def test_names_tell_layouts_apart():
    names = {layout_name(s, o, b) for s in (64, 128) for o in (0.0, 0.25) for b in (True, False)}
    assert len(names) == 8


def test_a_layout_that_cannot_be_leaves_nothing(store, tmp_path):
    with pytest.raises(ValueError, match="lower overlap"):
        open_layout(tmp_path / "l" / "base", store, 16, 0.9)
    assert not list((tmp_path / "l").iterdir())
