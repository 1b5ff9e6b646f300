"""The double-buffered loop against every order it allows, and its measurement."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import SettingError
from workbench.train.staging import ARMS, Staging, measure_staging, visit
from workbench.views.offload import staging_bars


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=24), st.booleans())
def test_every_visitor_is_worked_on_alone_in_its_buffer_and_goes_home(sizes, with_link):
    """Buffers as the optimizer hands them out: two a size, taken in turn; a buffer is never filled while in use."""
    buffers = [(size, sizes[:i].count(size) % 2) for i, size in enumerate(sizes)]
    homes, held, lock = list(range(100, 100 + len(sizes))), {}, threading.Lock()

    def bring(i):
        with lock:
            assert buffers[i] not in held, "filled before it was emptied"
            held[buffers[i]] = [i, homes[i]]

    def work(i):
        with lock:
            assert held[buffers[i]][0] == i
            held[buffers[i]][1] += 1000

    def carry_home(i):
        with lock:
            owner, homes[i] = held.pop(buffers[i])
            assert owner == i

    if with_link:
        with ThreadPoolExecutor(1) as link:
            visit(link, len(sizes), bring, work, carry_home)
    else:
        visit(None, len(sizes), bring, work, carry_home)
    assert homes == list(range(1100, 1100 + len(sizes))) and not held


def test_with_a_link_the_next_is_brought_while_one_is_worked_on():
    second_is_there = threading.Event()

    def bring(i):
        if i == 1:
            second_is_there.set()

    def work(i):
        assert second_is_there.wait(30), "the second came only after the first was done"

    with ThreadPoolExecutor(1) as link:
        visit(link, 2, bring, work, lambda i: None)


@pytest.mark.parametrize("failing", ["bring", "work", "carry_home"])
def test_what_is_raised_on_the_way_is_raised_to_the_caller(failing):
    def fail(i):
        if i == 2:
            raise OSError(28, "No space left on device")

    tasks = [fail if name == failing else lambda i: None for name in ("bring", "work", "carry_home")]
    with ThreadPoolExecutor(1) as link, pytest.raises(OSError, match="No space left"):
        visit(link, 5, *tasks)


def test_a_measurement_has_every_arm_and_every_repeat():
    measured = measure_staging(megabytes=1, repeats=3)
    assert measured.megabytes == 1.0 and measured.seconds.keys() == ARMS.keys()
    assert all(len(found) == 3 and min(found) > 0 for found in measured.seconds.values())
    for wrong in ({"megabytes": 0.5}, {"repeats": 0}):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            measure_staging(**wrong)


def test_the_picture_tells_the_median_and_the_article():
    seconds = {arm: (0.010, 0.020, 0.040) for arm in ARMS} | {"fresh": (0.060, 0.060, 0.060)}
    measured = Staging(64.0, seconds)
    assert np.allclose(measured.milliseconds("disk"), (20, 15, 30))
    picture, text = staging_bars(measured)
    assert list(picture.data[0].x) == [60, 20, 20, 20, 20, 20] and list(picture.data[1].x) == [12.4, 3.1]
    assert "new memory 60.0 ms (3.0 x)" in text and "1.00 x" in text and "4.0 x" in text
