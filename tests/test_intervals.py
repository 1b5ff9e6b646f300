"""Bootstrap intervals: known values, weights, coverage."""

import numpy as np
import pytest

from workbench.evaluate.intervals import bootstrap


def test_the_mean_and_the_weighted_mean():
    assert bootstrap(np.array([1.0, 2.0, 6.0])).value == 3.0
    assert bootstrap(np.array([1.0, 2.0]), np.array([3.0, 1.0])).value == 1.25
    one = bootstrap(np.array([4.0]))
    assert (one.low, one.value, one.high, one.n) == (4.0, 4.0, 4.0, 1)


def test_it_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(200):
        got = bootstrap(rng.exponential(1.0, 80), seed=trial, resamples=400)
        hits += got.low <= 1.0 <= got.high
    assert 0.88 <= hits / 200 <= 0.99


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(1).normal(size=30)
    assert bootstrap(values) == bootstrap(values)


def test_no_values_is_an_error():
    with pytest.raises(ValueError, match="no values"):
        bootstrap(np.array([]))
