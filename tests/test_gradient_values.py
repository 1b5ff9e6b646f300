"""Gradients against float16's limits: counted bit for bit, and in a real float16 backward pass."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import TRAIN, batch_of
from tiny_model import TINY

from workbench.model.transformer import Transformer
from workbench.train.gradient_values import (
    LARGEST,
    SMALLEST_NORMAL,
    SMALLEST_SUBNORMAL,
    Lost,
    gradient_error,
    lost_values,
    model_gradient,
    sizes_by_power,
)
from workbench.views.scaling import gradient_sizes, half_precision_losses


def test_the_limits_are_float16s():
    kind = np.finfo(np.float16)
    assert (SMALLEST_SUBNORMAL, SMALLEST_NORMAL, LARGEST) == tuple(
        map(float, (kind.smallest_subnormal, kind.smallest_normal, kind.max))
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2.0**-25, Lost(1, 0, 0)),  # a tie, rounds to the even neighbour, which is 0
        (2.0**-25 * 1.001, Lost(0, 1, 0)),
        (2.0**-14 * 0.99, Lost(0, 1, 0)),
        (2.0**-14, Lost(0, 0, 0)),
        (65504.0, Lost(0, 0, 0)),
        (65519.99, Lost(0, 0, 0)),
        (-65520.0, Lost(0, 0, 1)),
    ],
)
def test_a_value_at_each_limit(value, expected):
    assert lost_values(np.array([value, 0.0]), 1.0) == expected
    assert lost_values(np.array([value / 4096, 0.0]), 4096.0) == expected


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1e-12, 1e3), min_size=1, max_size=50), st.integers(-20, 30))
def test_underflow_falls_and_overflow_rises_with_the_scale(values, power):
    low, high = (lost_values(np.asarray(values), 2.0**p) for p in (power, power + 1))
    assert high.to_zero <= low.to_zero and high.infinite >= low.infinite


def test_nothing_but_zeros_loses_nothing():
    assert lost_values(np.zeros(3), 1.0) == Lost(0.0, 0.0, 0.0)


def test_sizes_are_counted_by_power_of_two():
    powers, shares = sizes_by_power(np.array([1.0, -1.5, 2.0, 0.25, 0.0, np.inf, 1e-30, 1e30]), -8, 8)
    found = {int(p): s for p, s in zip(powers, shares) if s}
    assert found == pytest.approx({0: 2 / 6, 1: 1 / 6, -2: 1 / 6, -8: 1 / 6, 8: 1 / 6})


@pytest.fixture(scope="module")
def gradient():
    return model_gradient(Transformer(TINY, 0), TRAIN, batch_of(0))


def test_a_gradient_does_not_depend_on_the_scale_in_float32(gradient):
    assert gradient.size == sum(p.size for p in Transformer(TINY, 0).trainable_params())
    assert np.array_equal(gradient, model_gradient(Transformer(TINY, 0), TRAIN, batch_of(0), 2.0**20))


def test_a_float16_backward_pass_is_worst_at_small_scales_and_overflows_at_large_ones(gradient):
    half = Transformer(TINY, 0, "float16")
    errors = [gradient_error(half, TRAIN, batch_of(0), 2.0**power, gradient) for power in (-16, 0, 10, 30)]
    assert errors[0] > 0.5 > 20 * errors[2] and errors[2] <= errors[1] * 1.01 and errors[3] == np.inf
    # The finished gradient, rounded once, says where: not where it is small.
    assert lost_values(gradient, 2.0**-16).to_zero > 0.3 and lost_values(gradient, 2.0**30).infinite > 0.3


def test_the_pictures_tell_the_shares_and_move_with_the_scale(gradient):
    exponents = np.arange(-12, 37, 12)
    lost = [lost_values(gradient, 2.0**e) for e in exponents]
    picture, text = half_precision_losses(exponents, lost, np.array([0.5, np.nan, 0.001, 0.002, np.inf]))
    assert list(picture.data[0].y)[-1] == 0 and list(picture.data[1].y)[0] == 0
    assert "overflows at 2^36" in text and "off by 50.0% at 2^-12, 0.10% at best" in text
    powers, shares = sizes_by_power(gradient)
    still, _ = gradient_sizes(powers, shares, 1.0, lost[1])
    moved, text = gradient_sizes(powers, shares, 2.0**8, replace(lost[1], to_zero=0.125))
    assert np.array_equal(np.asarray(moved.data[0].x) - 8, still.data[0].x)
    assert "scale 2^8: 12.50% of the values round to zero" in text
