"""Columns: what is left out, what is kept, what is refused."""

import math

import numpy as np
import pytest

from workbench.diagnose.columns import column, last_of_each_step, median, spread, trailing
from workbench.errors import DataError


def test_rows_without_the_field_are_left_out_and_non_finite_values_stay():
    rows = [{"step": 1, "loss": 2.0}, {"step": 2}, {"step": 3, "loss": math.nan}, {"step": 4, "loss": None}]
    steps, values = column(rows, "loss")
    assert steps.tolist() == [1, 3] and values[0] == 2.0 and math.isnan(values[1])


def test_the_later_row_of_a_step_wins_and_steps_are_in_order():
    rows = [{"step": 2, "loss": 1}, {"step": 1, "loss": 5}, {"step": 2, "loss": 9}]
    assert last_of_each_step(rows) == [{"step": 1, "loss": 5}, {"step": 2, "loss": 9}]


@pytest.mark.parametrize("step", [None, "3", 1.5, True])
def test_a_row_without_a_whole_step_is_refused(step):
    with pytest.raises(DataError, match="row 1"):
        last_of_each_step([{"step": step}])


def test_a_value_that_is_no_number_is_named():
    with pytest.raises(DataError, match="step 7: loss='high'"):
        column([{"step": 7, "loss": "high"}], "loss")


def test_the_spread_is_that_of_a_normal_sample_and_ignores_outliers():
    values = np.random.default_rng(0).normal(3.0, 2.0, 20001)
    values[:200] = 1e9
    assert abs(median(values) - 3.0) < 0.1 and abs(spread(values) - 2.0) < 0.1


@pytest.mark.parametrize("size", [0, 1, 4, 5, 6, 7, 40, 9000])
def test_trailing_sees_what_was_before_each_row_and_nothing_else(size):
    values = np.random.default_rng(size).normal(size=size)
    found = trailing(values, 6, 4, median)
    wanted = [np.median(values[max(0, i - 6) : i]) if i >= 4 else np.nan for i in range(size)]
    assert np.array_equal(found, wanted, equal_nan=True) if size else found.size == 0
