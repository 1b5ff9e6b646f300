"""Batches made ahead: the same, in order, errors in their place; and the busy share of a slow source."""

import threading
import time

import numpy as np
import pytest

from workbench.train.prefetching import busy_shares, prefetched
from workbench.views import communication


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_the_same_items_in_the_same_order(count, depth):
    assert list(prefetched(range(count), depth)) == list(range(count))


def test_at_most_depth_items_are_ahead_and_they_are_made_meanwhile():
    made, two_ahead = [], threading.Event()

    def source():
        for i in range(10):
            made.append(i)
            if i == 2:
                two_ahead.set()
            yield i

    items = prefetched(source(), 2)
    assert next(items) == 0
    assert two_ahead.wait(10), "the third is made while the first is in use"
    assert made == [0, 1, 2]
    items.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("prefetch")]


def test_an_error_comes_where_the_item_would_have_been():
    def source():
        yield 1
        yield 2
        raise ValueError("the third is broken")

    items = prefetched(source())
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(ValueError, match="third"):
        next(items)
    assert list(items) == []


class Source:
    """As much of a corpus as is asked for."""

    def batches(self, batch_size, *, steps, workers=0):
        return ({"input_ids": np.full((batch_size, 4), i)} for i in range(steps))


def test_every_arm_sees_every_batch_and_the_slow_source_is_hidden_by_a_thread():
    seen = []

    def compute(batch):
        seen.append(int(batch["input_ids"][0, 0]))
        time.sleep(0.02)

    shares = busy_shares(Source(), compute, batch_size=2, steps=10, rounds=1, source_seconds=0.01)
    assert [s.name for s in shares] == ["in the loop", "prefetched"] and seen == [*range(11)] * 2
    for share in shares:
        assert 0 < share.busy < 1 and share.steps == 10
        assert share.wait == pytest.approx((share.wall[0] - share.compute[0]) / 10)
    assert len(busy_shares(Source(), lambda batch: None, 2, 3)) == 3
    picture, text = communication.prefetch(shares)
    assert list(picture.data[0].x) == ["in the loop", "prefetched"] and text.startswith("10 steps, 1 rounds, busy: ")
