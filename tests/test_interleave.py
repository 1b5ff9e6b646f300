"""The computed interleaving against sorting all draws by their exact times."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.interleave import draw_at


def sorted_draws(counts):
    draws = [(Fraction(2 * j + 1, 2 * count), s, j) for s, count in enumerate(counts) for j in range(count)]
    return [(s, j) for _, s, j in sorted(draws)]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=6).filter(any))
def test_it_is_the_order_of_exact_times(counts):
    expected = sorted_draws(counts)
    source, draw = draw_at(np.arange(sum(counts)), counts)
    assert list(zip(source.tolist(), draw.tolist())) == expected
    for position in range(0, sum(counts), 5):  # few positions go another way
        one = draw_at(np.array([position]), counts)
        assert (int(one[0][0]), int(one[1][0])) == expected[position]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=4))
def test_every_prefix_is_balanced(counts):
    source, _ = draw_at(np.arange(sum(counts)), counts)
    for s, count in enumerate(counts):
        ideal = (np.arange(len(source)) + 1) * count / len(source)
        assert np.abs(np.cumsum(source == s) - ideal).max() <= len(counts)


def test_a_billion_draws_are_computed_not_listed():
    counts = [700_000_000, 200_000_000, 100_000_000]
    at = 10**9 - 1000
    source, draw = draw_at(np.arange(at, at + 1000), counts)
    assert np.bincount(source).tolist() == [700, 200, 100]
    assert draw[source == 0].tolist() == list(range(counts[0] - 700, counts[0]))
