"""The permutation: a bijection for every size, different for every key, uniform enough."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.order import key_of, permute


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_it_is_a_bijection(n, key):
    assert np.array_equal(np.sort(permute(np.arange(n), n, key)), np.arange(n))


def test_it_is_computed_elementwise_whatever_is_asked_together():
    whole = permute(np.arange(1000), 1000, 5)
    assert [int(permute(i, 1000, 5)) for i in (0, 7, 999)] == whole[[0, 7, 999]].tolist()


def test_keys_give_different_orders_and_the_same_key_the_same():
    orders = {tuple(permute(np.arange(50), 50, key_of(1, epoch)).tolist()) for epoch in range(40)}
    assert len(orders) == 40
    assert np.array_equal(permute(np.arange(50), 50, 3), permute(np.arange(50), 50, 3))


@pytest.mark.parametrize("n", [3, 5, 16, 100])
def test_every_item_goes_to_every_place_about_equally_often(n):
    keys = 4000
    places = np.stack([permute(np.arange(n), n, key_of(9, k)) for k in range(keys)])
    for item in (0, n // 2, n - 1):
        counts = np.bincount(places[:, item], minlength=n)
        # Chi-square with n - 1 degrees of freedom: mean n - 1, deviation sqrt(2 (n - 1)).
        chi2 = float(((counts - keys / n) ** 2 / (keys / n)).sum())
        assert abs(chi2 - (n - 1)) < 6 * np.sqrt(2 * (n - 1))


def test_neighbours_do_not_stay_neighbours():
    places = permute(np.arange(100_000), 100_000, 1)
    assert np.corrcoef(places[:-1], places[1:])[0, 1] == pytest.approx(0, abs=0.02)


def test_huge_ranges_need_no_table():
    n = 10**15
    places = permute(np.array([0, 1, n - 1]), n, 11)
    assert len(set(places.tolist())) == 3 and places.max() < n and places.min() >= 0


def test_the_order_of_key_parts_matters():
    assert key_of(1, 2) != key_of(2, 1) != key_of(1, 2, 0)


def test_an_index_outside_is_an_error():
    with pytest.raises(ValueError, match="outside"):
        permute(10, 10, 0)
