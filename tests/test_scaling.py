"""The dynamic loss scale as a rule on numbers: known sequences and invariants."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.config import TrainConfig
from workbench.train.scaling import article, dynamic, simulate_limit


def config(init=1024.0, window=3, **values):
    return TrainConfig(init_loss_scale=init, loss_scale_window=window, **values)


def simulate(overflow, settings):
    """The scale where given steps overflow whatever the scale."""
    return simulate_limit(np.where(overflow, 0.0, np.inf), settings)


def test_the_known_sequence_of_grow_and_halve():
    # MindSpore's own DynamicLossScaler(1024, 2, 3) on finite 1110 1111 goes this way.
    trace = simulate([False, False, False, True, False, False, False, False], config())
    assert trace.scale.tolist() == [1024, 1024, 1024, 2048, 1024, 1024, 1024, 2048]
    assert trace.skipped.tolist() == [False] * 3 + [True] + [False] * 4


def test_a_hundred_overflows_stop_at_the_floor():
    trace = simulate([True] * 100, config(init=65536.0))
    assert trace.scale[-1] == 1.0 and trace.scale.min() == 1.0 and trace.skipped.all()


def test_growth_stops_at_the_ceiling():
    trace = simulate([False] * 100, config(window=1, max_loss_scale=4096.0))
    assert trace.scale.max() == 4096.0


def test_an_overflow_resets_the_count_of_good_steps():
    overflow = [False, False, True, False, False, False]
    assert simulate(overflow, config()).scale.tolist() == [1024, 1024, 1024, 512, 512, 512]
    assert dynamic(512.0, 2.0, 1.0, 1.0, config()) == (1024.0, 0.0, 1.0, 512.0, 1.0)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), max_size=80), st.integers(0, 20), st.integers(1, 9))
def test_the_scale_stays_a_power_of_two_within_its_bounds(overflow, power, window):
    trace = simulate(overflow, config(init=2.0**power, window=window, max_loss_scale=2.0**20))
    exponents = np.log2(trace.scale)
    assert np.array_equal(exponents, exponents.round())
    assert (trace.scale >= 1).all() and (trace.scale <= 2.0**20).all()
    assert trace.skipped.tolist() == overflow


def test_a_scale_is_skipped_exactly_when_it_is_above_the_limit():
    limit = np.array([100.0, 5000.0, 1.0, np.inf])
    trace = simulate_limit(limit, config())
    assert np.array_equal(trace.skipped, trace.scale > limit)


def test_the_articles_policy_unscales_by_another_scale_than_it_used_and_never_skips():
    trace = simulate_limit(np.full(5, np.inf), config(init=256.0), article)
    assert trace.scale.tolist() == [256, 512, 1024, 1024, 1024]
    assert trace.wrong_by.tolist() == [0.5, 0.5, 1.0, 1.0, 1.0]
    assert simulate_limit(np.full(1, np.inf), config(init=4096.0), article).wrong_by[0] == pytest.approx(4.0)
    assert not simulate_limit(np.zeros(3), config(), article).skipped.any()


def test_hysteresis_lets_the_first_overflows_pass_and_is_full_again_after_growth():
    trace = simulate([True, True, True, False, False, True, True, False], config(window=2, loss_scale_hysteresis=2))
    # The first is forgiven, the next two are not; two good steps grow the scale; then one is forgiven again.
    assert trace.scale.tolist() == [1024, 1024, 512, 256, 256, 512, 512, 256]
