"""mask_arms.py: every arm gives the same mask, and the measuring process measures what it says."""

import sys

import numpy as np
import pytest

import workbench  # noqa: F401  (sets MindSpore's environment)

from workbench.errors import UserError
from workbench.model.mask_arms import ARMS, ArmTiming, arms, measure_arms
from workbench.model.masks import additive, causal, discard


@pytest.mark.parametrize("length, past", [(5, 0), (4, 3)])
def test_every_arm_is_the_causal_mask_with_its_past(length, past):
    made = arms(length, past)
    assert tuple(made) == ARMS
    for arm, call in made.items():
        np.testing.assert_array_equal(call().asnumpy(), discard(additive(causal(length, past))), err_msg=arm)
    assert made["held"]() is made["held"]()


def test_the_measuring_process_counts_the_bytes_of_a_call():
    timings = {t.arm: t for t in measure_arms(lengths=(128,), past_share=0.25, calls=2)}
    assert set(timings) == set(ARMS)
    assert all(len(t.microseconds) == 2 and min(t.microseconds) > 0 and t.past == 32 for t in timings.values())
    # Two int32 arrays and a boolean one live at a time; select has another mask beside them.
    assert timings["eager if"].bytes_per_pair == pytest.approx(9, rel=0.1)
    assert timings["select"].peak_bytes > timings["const if"].peak_bytes > 0
    assert timings["held"].peak_bytes == 0


def test_ratios_are_taken_call_by_call():
    slow = ArmTiming("eager if", 8, 2, (10.0, 40.0, 90.0), 90)
    fast = ArmTiming("select", 8, 2, (10.0, 20.0, 30.0), 160)
    assert fast.times_faster_than(slow) == (1.5, 2.0, 2.5)
    assert fast.bytes_per_pair == 2


def test_a_measuring_process_that_fails_is_told(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UserError, match="the measurement failed"):
        measure_arms()
