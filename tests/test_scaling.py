"""The loss scale as a rule on numbers: against other people's, an independent reference, and invariants."""

from dataclasses import replace

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mindspore import amp

from workbench.config import TrainConfig
from workbench.train.scaling import POLICIES, article, at_floor, dynamic, simulate_limit

POWERS = st.integers(0, 20)


def config(init=1024.0, window=3, **values):
    return TrainConfig(init_loss_scale=init, loss_scale_window=window, **values)


def simulate(overflow, settings, policy=dynamic):
    """The scale where given steps overflow whatever the scale."""
    return simulate_limit(np.where(overflow, 0.0, np.inf), settings, policy)


def reference(overflow, train):
    """The rule with branches and whole numbers: scales used, and what is left of good steps and patience."""
    scale, good, left, used = train.init_loss_scale, 0, train.loss_scale_hysteresis, []
    for bad in overflow:
        used.append(scale)
        if bad:
            good, left = 0, max(left - 1, 0)
            if left == 0:
                scale = max(scale / train.loss_scale_factor, train.min_loss_scale)
        else:
            good += 1
            if good == train.loss_scale_window:
                good, left = 0, train.loss_scale_hysteresis
                scale = min(scale * train.loss_scale_factor, train.max_loss_scale)
    return used


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.booleans(), min_size=1, max_size=100),
    POWERS,
    st.integers(1, 9),
    st.integers(1, 4),
    st.sampled_from([2.0, 4.0, 8.0]),
    st.integers(0, 3),
    st.integers(20, 24),
)
def test_the_scale_is_that_of_the_rule_with_branches(overflow, power, window, hysteresis, factor, floor, ceiling):
    train = config(
        2.0 ** max(power, floor),
        window,
        loss_scale_hysteresis=hysteresis,
        loss_scale_factor=factor,
        min_loss_scale=2.0**floor,
        max_loss_scale=2.0**ceiling,
    )
    trace = simulate(overflow, train)
    assert trace.scale.tolist() == reference(overflow, train)
    assert trace.skipped.tolist() == overflow
    assert np.array_equal(np.log2(trace.scale), np.log2(trace.scale).round()), "a power of two stays one"
    assert trace.scale.min() >= train.min_loss_scale and trace.scale.max() <= train.max_loss_scale


@settings(max_examples=15, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 5))
def test_with_a_hysteresis_of_one_it_is_mindspores_own_scaler(overflow, window):
    train = config(1024.0, window, max_loss_scale=2.0**40)
    scaler, theirs = amp.DynamicLossScaler(1024.0, 2, window), []
    for bad in overflow:
        theirs.append(float(scaler.scale_value.asnumpy()))
        scaler.adjust(ms.Tensor(not bad))
    assert simulate(overflow, train).scale.tolist() == theirs


def test_the_known_sequence_of_grow_and_halve():
    trace = simulate([False, False, False, True, False, False, False, False], config())
    assert trace.scale.tolist() == [1024, 1024, 1024, 2048, 1024, 1024, 1024, 2048]
    assert trace.skipped.tolist() == [False] * 3 + [True] + [False] * 4


def test_a_hundred_overflows_stop_at_the_floor_and_raise_the_alarm():
    train = config(init=65536.0)
    trace = simulate([True] * 100, train)
    assert trace.scale[-1] == 1.0 and trace.scale.min() == 1.0 and trace.skipped.all()
    alarms = [at_floor({"overflow": 1, "loss_scale": scale}, train) for scale in trace.scale]
    assert alarms == [False] * 16 + [True] * 84
    assert not at_floor({"overflow": 0, "loss_scale": 1.0}, train)


def test_growth_stops_at_the_ceiling():
    trace = simulate([False] * 100, config(window=1, max_loss_scale=4096.0))
    assert trace.scale.max() == 4096.0


def test_an_overflow_resets_the_count_of_good_steps():
    overflow = [False, False, True, False, False, False]
    assert simulate(overflow, config()).scale.tolist() == [1024, 1024, 1024, 512, 512, 512]
    assert dynamic(512.0, 2.0, 1.0, 1.0, config()) == (1024.0, 0.0, 1.0, 512.0, 1.0)


def test_hysteresis_lets_the_first_overflows_pass_and_is_full_again_after_growth():
    trace = simulate([True, True, True, False, False, True, True, False], config(window=2, loss_scale_hysteresis=2))
    # The first is forgiven, the next two are not; two good steps grow the scale; then one is forgiven again.
    assert trace.scale.tolist() == [1024, 1024, 512, 256, 256, 512, 512, 256]


def test_a_scale_is_skipped_exactly_when_it_is_above_the_limit():
    limit = np.array([100.0, 5000.0, 1.0, np.inf])
    trace = simulate_limit(limit, config())
    assert np.array_equal(trace.skipped, trace.scale > limit)


def test_a_constant_scale_stays_and_skips():
    trace = simulate([False, True, False], config(), POLICIES["constant"])
    assert trace.scale.tolist() == [1024] * 3 and trace.skipped.tolist() == [False, True, False]


def test_the_articles_policy_unscales_by_another_scale_than_it_used_and_never_skips():
    trace = simulate_limit(np.full(5, np.inf), config(init=256.0), article)
    assert trace.scale.tolist() == [256, 512, 1024, 1024, 1024]
    assert trace.wrong_by.tolist() == [0.5, 0.5, 1.0, 1.0, 1.0]
    assert simulate_limit(np.full(1, np.inf), config(init=4096.0), article).wrong_by[0] == pytest.approx(4.0)
    assert not simulate_limit(np.zeros(3), config(), article).skipped.any()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_computes_with_tensors_what_it_computes_with_numbers(policy):
    train = replace(config(), loss_scale_hysteresis=2)
    rng = np.random.default_rng(0)
    for _ in range(20):
        numbers = (
            2.0 ** rng.integers(0, 24),
            float(rng.integers(0, 3)),
            float(rng.integers(0, 3)),
            float(rng.integers(2)),
        )
        told = POLICIES[policy](*(ms.Tensor(value, ms.float32) for value in numbers), train)
        assert [float(value.asnumpy()) for value in told] == [float(v) for v in POLICIES[policy](*numbers, train)]
