"""Packing against brute force: nothing lost, rows as full as they can be, empty slots used for context."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.packing import pack_rows, widen
from workbench.data.windows import Windows, cut_windows


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 40).flatmap(lambda s: st.tuples(st.just(s), st.lists(st.integers(1, s), max_size=60))))
def test_every_window_is_in_one_row_and_fits(case):
    size, lengths = case
    rows = pack_rows(np.array(lengths, np.int64), size)
    assert sorted(rows.window.tolist()) == list(range(len(lengths)))
    for a, b in zip(rows.first, rows.first[1:]):
        assert 0 < sum(lengths[w] for w in rows.window[a:b]) <= size


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=9))
def test_the_first_row_has_the_longest_window_and_the_best_company(lengths):
    size = 20
    rows = pack_rows(np.array(lengths, np.int64), size)
    first = [lengths[w] for w in rows.window[: rows.first[1]]]
    longest = max(lengths)
    others = list(lengths)
    others.remove(longest)
    sums = {sum(c) for n in range(len(others) + 1) for c in itertools.combinations(others, n)}
    assert first[0] == longest
    assert sum(first) == longest + max(s for s in sums if s <= size - longest)


def test_rows_of_many_short_windows_are_full():
    rng = np.random.default_rng(0)
    for low, high, size in ((2, 60, 128), (10, 90, 128), (1, 2048, 2048)):
        lengths = rng.integers(low, high, 6000)
        assert lengths.sum() / (len(pack_rows(lengths, size)) * size) > 0.99, (low, high, size)


def test_the_same_windows_give_the_same_rows():
    lengths = np.random.default_rng(3).integers(1, 100, 500)
    one, two = pack_rows(lengths, 128), pack_rows(lengths, 128)
    assert one.window.tolist() == two.window.tolist() and one.first.tolist() == two.first.tolist()


def test_no_windows_make_no_rows():
    rows = pack_rows(np.empty(0, np.int64), 16)
    assert len(rows) == 0 and rows.first.tolist() == [0]
    empty = Windows(*(np.empty(0, np.int64) for _ in range(4)))
    assert len(widen(empty, rows, 16, np.empty(0, bool), np.zeros(1, np.int64))) == 0


@pytest.mark.parametrize("seed", range(20))
def test_widening_uses_empty_slots_and_changes_no_target(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 300, 12)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    cuts = rng.random(offsets[-1]) < 0.6
    cuts[offsets[:-1]] = True
    windows = cut_windows(lengths, cuts, 64, 0.25)
    rows = pack_rows(windows.length, 64)
    wide = widen(windows, rows, 64, cuts, offsets)
    assert (wide.start <= windows.start).all()
    for name in ("document", "stop", "loss_from"):
        assert np.array_equal(getattr(wide, name), getattr(windows, name))
    moved = np.flatnonzero(wide.start < windows.start)
    assert cuts[offsets[wide.document[moved]] + wide.start[moved]].all(), "a start inside a character"
    for a, b in zip(rows.first, rows.first[1:]):
        inside = rows.window[a:b]
        free = 64 - wide.length[inside].sum()
        assert free >= 0
        # What is still free could not be used: no window of the row begins in the middle of its
        # document with an allowed cut in reach.
        for w in inside:
            base = offsets[wide.document[w]]
            reach = cuts[base + max(0, wide.start[w] - free) : base + wide.start[w]]
            assert not reach.any()
