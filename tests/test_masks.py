"""masks.py against loops, against each other, and at the edges."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms

from workbench.errors import DataError, SettingError
from workbench.model.masks import (
    MASKED,
    Mask,
    additive,
    after_past,
    causal,
    discard,
    document_positions,
    packed,
    visible,
)


def by_loops(query_positions, key_positions, query_segments, key_segments, rule):
    """The definition again, one pair at a time."""
    mask = np.zeros((len(query_positions), len(key_positions)), bool)
    for i, j in itertools.product(range(len(query_positions)), range(len(key_positions))):
        same = query_segments[i] == key_segments[j] and query_segments[i] > 0
        mask[i, j] = same and rule(query_positions[i], key_positions[j])
    return mask


RULES = [
    (Mask(), lambda q, k: k <= q),
    (Mask("sliding", window=1), lambda q, k: k == q),
    (Mask("sliding", window=2), lambda q, k: k in (q, q - 1)),
    (Mask("prefix", prefix_length=0), lambda q, k: k <= q),
    (Mask("prefix", prefix_length=2), lambda q, k: k <= q or k in (0, 1)),
]


@pytest.mark.parametrize("mask, rule", RULES)
def test_every_small_row_of_segments(mask, rule):
    """All segment rows up to 4 long over {0, 1, 2}, positions in the row, every kind."""
    for length in range(1, 5):
        for segments in itertools.product(range(3), repeat=length):
            positions = np.arange(length)
            expected = by_loops(positions, positions, segments, segments, rule)
            got = visible(positions, positions, np.array(segments), np.array(segments), mask)
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("mask, rule", RULES)
def test_every_small_query_and_past(mask, rule):
    for new, past in itertools.product(range(1, 5), range(5)):
        queries, keys = np.arange(past, past + new), np.arange(past + new)
        expected = by_loops(queries, keys, [1] * new, [1] * (past + new), rule)
        np.testing.assert_array_equal(visible(queries, keys, mask=mask), expected)
        np.testing.assert_array_equal(after_past(new, past, mask), expected)
        if mask == Mask():
            np.testing.assert_array_equal(causal(new, past), expected)


@pytest.mark.parametrize("mask, rule", RULES)
def test_every_small_row_of_segments_after_every_past(mask, rule):
    """The last queries of every packed row: document and position in it, for queries and keys."""
    for length in range(1, 5):
        for segments, past in itertools.product(itertools.product(range(3), repeat=length), range(length)):
            positions = document_positions(np.array(segments))
            queries, own = positions[past:], np.array(segments)[past:]
            expected = by_loops(queries, positions, own, segments, rule)
            np.testing.assert_array_equal(visible(queries, positions, own, np.array(segments), mask), expected)


@pytest.mark.parametrize("past", [0, 3, 7])
@pytest.mark.parametrize("new", [1, 4])
def test_a_chunk_after_a_past_is_the_last_rows_of_the_whole(past, new):
    np.testing.assert_array_equal(causal(new, past), causal(past + new)[past:])


def rows_of_documents(max_length=9):
    """Padding, then documents numbered from 1, then padding."""
    sizes = st.lists(st.integers(1, 4), min_size=1, max_size=3)
    return st.tuples(st.integers(0, 2), sizes, st.integers(0, 2)).map(
        lambda parts: [0] * parts[0] + [i + 1 for i, n in enumerate(parts[1]) for _ in range(n)] + [0] * parts[2]
    )


@settings(deadline=None, max_examples=40)
@given(rows_of_documents())
def test_packed_documents_are_as_if_alone(row):
    for mask, _ in RULES:
        seen = packed(np.array(row), mask)
        alone = np.zeros_like(seen)
        for segment in set(row) - {0}:
            where = np.flatnonzero(np.array(row) == segment)
            alone[np.ix_(where, where)] = after_past(len(where), mask=mask)
        np.testing.assert_array_equal(seen, alone)


def test_document_positions_start_anew():
    got = document_positions(np.array([[0, 0, 1, 1, 1, 2], [3, 3, 4, 0, 0, 0]]))
    np.testing.assert_array_equal(got, [[0, 1, 0, 1, 2, 0], [0, 1, 0, 0, 1, 2]])


def test_additive_is_finite_and_hides_exactly():
    mask = additive(np.array([True, False]))
    assert mask.dtype == np.float32 and np.isfinite(mask).all() and mask[0] == 0
    # A hidden score of 1000 beside a visible one of -1000 still gets a probability of exactly 0.
    scores = np.array([-1000, 1000], np.float32) + mask
    weights = np.exp(scores - scores.max())
    assert weights[1] == 0 and weights[0] == 1
    assert mask[1] == np.float32(MASKED)


def test_discard_is_the_opposite_sense():
    expected = [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    np.testing.assert_array_equal(discard(additive(causal(3))), expected)
    assert discard(additive(causal(3))).dtype == bool
    np.testing.assert_array_equal(discard(ms.Tensor(additive(causal(3)))).asnumpy(), expected)


@pytest.mark.parametrize(
    "options, told",
    [
        ({"kind": "casual"}, "did you mean 'causal'"),
        ({"kind": "sliding"}, "window=None"),
        ({"kind": "sliding", "window": 0}, "at least 1"),
        ({"kind": "sliding", "window": 2.5}, "a whole number"),
        ({"kind": "prefix", "prefix_length": -1}, "prefix_length=-1"),
        ({"kind": "causal", "window": 4}, "leave it out"),
    ],
)
def test_wrong_options_are_refused_in_one_line(options, told):
    with pytest.raises(SettingError) as error:
        Mask(**options)
    assert told in str(error.value) and "\n" not in str(error.value)


def test_segments_on_one_side_only_are_refused():
    with pytest.raises(SettingError, match="give both or neither"):
        visible(np.arange(3), np.arange(3), query_segments=np.ones(3, int))


def test_a_segment_in_two_pieces_is_refused():
    with pytest.raises(DataError, match="two pieces"):
        packed(np.array([1, 2, 1]))
    assert packed(np.array([0, 1, 0, 2, 0])).sum() == 2
