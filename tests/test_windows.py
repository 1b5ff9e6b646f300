"""Windows and rows against brute force, on generated documents."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.ledger import Ledger, make_ledger
from workbench.data.packing import pack_rows, widen
from workbench.data.windows import cut_windows
from workbench.errors import SettingError


def build(lengths, sequence_length, overlap, cuts=None, loss=None, overlap_loss=False):
    lengths = np.asarray(lengths, np.int64)
    n = int(lengths.sum())
    cuts = np.ones(n, bool) if cuts is None else np.asarray(cuts, bool)
    loss = np.ones(n, bool) if loss is None else np.asarray(loss, bool)
    windows = cut_windows(lengths, cuts, sequence_length, overlap)
    rows = pack_rows(windows.length, sequence_length)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    if overlap:
        windows = widen(windows, rows, sequence_length, cuts, offsets)
    return lengths, cuts, windows, rows, make_ledger(offsets, loss, windows, rows, sequence_length, overlap_loss)


@st.composite
def corpora(draw):
    lengths = draw(st.lists(st.integers(0, 120), max_size=25))
    n = sum(lengths)
    bits = draw(st.integers(0, 2**31))
    cuts = np.random.default_rng(bits).random(n) < 0.7
    # Characters of at most four tokens: no more than three forbidden cuts in a row, as in real text.
    for i in range(3, n):
        if not cuts[i - 3 : i].any():
            cuts[i] = True
    start = 0
    for length in lengths:
        if length:
            cuts[start] = True
        start += length
    return lengths, cuts, draw(st.integers(16, 40)), draw(st.sampled_from([0.0, 0.1, 0.25, 0.4]))


@settings(max_examples=150, deadline=None)
@given(corpora())
def test_every_token_is_a_target_exactly_once_and_every_window_fits(case):
    lengths, cuts, size, overlap = case
    lengths, cuts, windows, rows, ledger = build(lengths, size, overlap, cuts)
    targeted = [np.zeros(n, int) for n in lengths]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    for document, start, stop, loss_from in zip(windows.document, windows.start, windows.stop, windows.loss_from):
        assert 0 < stop - start <= size
        assert start < loss_from <= stop
        targeted[document][loss_from : stop + 1] += 1
        own = cuts[starts[document] : starts[document + 1]]
        assert own[start], "a window begins inside a character"
        assert stop + 1 == lengths[document] or own[stop + 1], "a window ends inside a character"
    for n, counts in zip(lengths, targeted):
        if n >= 2:
            assert counts[0] == 0 and (counts[1:] == 1).all()
    assert sorted(rows.window.tolist()) == list(range(len(windows.document)))
    for a, b in zip(rows.first, rows.first[1:]):
        assert 0 < windows.length[rows.window[a:b]].sum() <= size
    assert ledger.tokens_in == lengths.sum()


def test_consecutive_windows_overlap_by_the_asked_share():
    _, _, windows, _, ledger = build([1001], 100, 0.25)
    assert windows.start[:4].tolist() == [0, 75, 150, 225]
    assert windows.stop[:4].tolist() == [100, 175, 250, 325]
    assert windows.loss_from[:3].tolist() == [1, 101, 176]
    # Brute force: what a window repeats is what lies before the first target it owns.
    assert ledger.slots_overlap == int((windows.loss_from - 1 - windows.start).sum())


@pytest.mark.parametrize(
    ("lengths", "targets"), [([2, 7, 3], 9), ([12], 11), ([4, 9, 1], 11), ([5, 5], 8), ([0, 0, 1], 0), ([], 0)]
)
def test_lengths_that_break_other_packers(lengths, targets):
    *_, ledger = build(lengths, 16, 0.0)
    assert ledger.targets_with_loss == targets
    assert ledger.first_tokens == sum(n > 1 for n in lengths)
    assert sum(ledger.dropped.values()) == sum(n == 1 for n in lengths)


def test_a_corpus_shorter_than_a_window_is_one_row():
    *_, ledger = build([3, 4], 128, 0.25)
    assert (ledger.rows, ledger.slots_padding) == (1, 128 - 5)


def test_a_document_of_two_and_a_half_windows_keeps_its_tail():
    _, _, windows, _, ledger = build([2 * 64 + 32 + 1], 64, 0.0)
    assert windows.stop[-1] == 2 * 64 + 32 and ledger.targets_with_loss == 2 * 64 + 32


def test_tokens_without_loss_are_counted_apart():
    *_, ledger = build([6, 4], 16, 0.0, loss=[0, 0, 0, 1, 1, 1, 1, 1, 0, 1])
    assert (ledger.targets_with_loss, ledger.targets_without_loss, ledger.first_tokens) == (5, 3, 2)


def test_a_window_lost_after_cutting_is_noticed():
    lengths, _, windows, rows, _ = build([300, 20], 64, 0.25)
    torn = type(rows)(rows.window[:-1], np.minimum(rows.first, len(rows.window) - 1))
    with pytest.raises(AssertionError):
        make_ledger(np.array([0, 300, 320]), np.ones(320, bool), windows, torn, 64)


def test_overlap_with_loss_counts_a_token_as_often_as_it_appears():
    loss = np.random.default_rng(1).random(500) < 0.8
    *_, windows, rows, once = build([450, 50], 64, 0.25, loss=loss)
    *_, often = build([450, 50], 64, 0.25, loss=loss, overlap_loss=True)
    # Brute force over the windows: every target of every window that may be asked for.
    starts = [0, 450]
    asked = sum(
        int(loss[starts[d] + a + 1 : starts[d] + b + 1].sum())
        for d, a, b in zip(windows.document, windows.start, windows.stop)
    )
    assert often.slots_with_loss + often.slots_repeated == asked > once.slots_with_loss
    assert once.slots_repeated == 0 and often.slots_with_loss == once.slots_with_loss


def test_ledgers_of_parts_add_up():
    *_, one = build([300, 1, 20], 64, 0.25)
    *_, two = build([1, 64], 64, 0.25)
    both = (one + two + Ledger()).check()
    assert both.tokens_in == 386 and both.dropped == {"alone in its document": 2} and both.documents == 5


def test_an_overlap_that_leaves_no_room_is_refused():
    with pytest.raises(SettingError, match="lower overlap or raise sequence_length"):
        build([100], 16, 0.9)
