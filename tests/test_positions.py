"""Which samples a step gets: brute force, and any cut of a run into two."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.train.positions import batches_from, merged, next_positions

ranges = st.lists(st.tuples(st.integers(0, 80), st.integers(0, 80)), max_size=5).map(tuple)


def corpus():
    """A corpus whose samples are their positions."""

    def batches(batch_size, position, steps, rank, ranks):
        each = batch_size // ranks
        for step in range(steps):
            yield np.arange(each) + position + step * batch_size + rank * each

    return SimpleNamespace(batches=batches, samples=lambda positions: positions)


@given(ranges)
def test_merged_ranges_hold_the_same_positions_and_lie_apart(given_ranges):
    out = merged(given_ranges)
    assert {p for a, b in out for p in range(a, b)} == {p for a, b in given_ranges for p in range(a, b)}
    assert all(a < b for a, b in out) and all(b < c for (_, b), (c, _) in zip(out, out[1:]))


@given(ranges, st.integers(0, 90), st.integers(0, 30))
def test_the_next_positions_are_those_of_counting(given_ranges, position, count):
    gone = {p for a, b in given_ranges for p in range(a, b)}
    counted = [p for p in range(position, position + count + 200) if p not in gone][:count]
    assert next_positions(position, count, merged(given_ranges)).tolist() == counted


@given(
    ranges,
    st.integers(0, 20),
    st.integers(1, 12),
    st.integers(0, 12),
    st.sampled_from([(4, 1), (4, 2), (8, 4), (6, 3)]),
)
def test_steps_take_each_allowed_position_once_on_any_number_of_ranks_from_any_step_on(
    given_ranges, position, steps, cut, sizes
):
    (batch_size, world), excluded = sizes, merged(given_ranges)
    whole = list(batches_from(corpus(), batch_size, position, steps, excluded))
    taken = np.concatenate([batch for _, _, batch in whole])
    assert taken.tolist() == next_positions(position, steps * batch_size, excluded).tolist()
    assert all(first == batch[0] and after == batch[-1] + 1 for first, after, batch in whole)
    by_rank = [list(batches_from(corpus(), batch_size, position, steps, excluded, r, world)) for r in range(world)]
    for step, (first, after, batch) in enumerate(whole):
        assert np.concatenate([rank[step][2] for rank in by_rank]).tolist() == batch.tolist()
        assert {rank[step][:2] for rank in by_rank} == {(first, after)}
    cut = min(cut, steps)
    middle = whole[cut - 1][1] if cut else position
    rest = list(batches_from(corpus(), batch_size, middle, steps - cut, excluded))
    assert [b.tolist() for _, _, b in rest] == [b.tolist() for _, _, b in whole[cut:]]
