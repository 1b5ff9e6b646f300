"""Quotas against exact arithmetic; the order of samples against what every rank must see."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.mixture import Mixture, Source, quotas, spread
from workbench.errors import SettingError


@pytest.mark.parametrize(
    ("total", "shares", "expected"),
    [
        (10, (0.7, 0.2, 0.1), [7, 2, 1]),
        (57, (0.7, 0.2, 0.1), [40, 11, 6]),  # 39.9, 11.4, 5.7: the largest remainders get the two left over
        (999, (0.7, 0.2, 0.1), [699, 200, 100]),
        (10_000_000, (0.7, 0.2, 0.1), [7_000_000, 2_000_000, 1_000_000]),
        (999, (0.001, 0.999), [1, 998]),
        (0, (1.0, 1.0), [0, 0]),
    ],
)
def test_known_quotas(total, shares, expected):
    assert quotas(total, shares) == expected


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**7), st.lists(st.integers(0, 1000), min_size=1, max_size=6).filter(any))
def test_quotas_sum_up_and_none_is_off_by_one(total, weights):
    got = quotas(total, [w / 1000 for w in weights])
    assert sum(got) == total
    for seats, weight in zip(got, weights):
        assert abs(seats - Fraction(total * weight, sum(weights))) < 1


def test_shares_of_nothing_are_refused():
    with pytest.raises(SettingError, match="shares"):
        quotas(10, [0.0, 0.0])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=4))
def test_spread_uses_every_draw_once_and_keeps_every_prefix_balanced(counts):
    source, draw = spread(counts)
    for s, count in enumerate(counts):
        assert draw[source == s].tolist() == list(range(count))
        so_far = np.cumsum(source == s)
        ideal = (np.arange(len(source)) + 1) * count / len(source)
        assert np.abs(so_far - ideal).max() <= len(counts)


def three(base=700, tasks=500, perturbed=30, seed=3):
    return Mixture((Source("base", base, 0.7), Source("tasks", tasks, 0.2), Source("perturbed", perturbed, 0.1)), seed)


def test_an_epoch_has_every_base_sample_once_and_the_asked_shares():
    mixture = three()
    assert mixture.counts == [700, 200, 100] and mixture.epoch_length == 1000
    for epoch in range(3):
        at, source, sample = mixture.locate(np.arange(1000) + 1000 * epoch)
        assert (at == epoch).all()
        assert sorted(sample[source == 0].tolist()) == list(range(700))


def test_a_large_source_goes_on_where_it_stopped_and_a_small_one_repeats_evenly():
    mixture = three()
    _, source, sample = mixture.locate(np.arange(5000))
    tasks = sample[source == 1]
    assert sorted(tasks[:500].tolist()) == list(range(500)), "no task twice before each was seen once"
    perturbed = np.bincount(sample[source == 2], minlength=30)
    assert perturbed.max() - perturbed.min() <= 1


def test_epochs_are_shuffled_differently():
    mixture = three()
    _, source, first = mixture.locate(np.arange(1000))
    _, _, second = mixture.locate(np.arange(1000, 2000))
    assert (first[source == 0] != second[source == 0]).mean() > 0.9


def test_any_position_is_found_without_walking_there():
    mixture = three()
    far = 10**9 + 7
    one = mixture.locate(np.array([far]))
    many = mixture.locate(np.arange(far - 3, far + 3))
    assert [int(part[0]) for part in one] == [int(part[3]) for part in many]


def test_within_one_per_cent_in_every_thousand():
    mixture = three(base=30_011, tasks=4000, perturbed=900)
    _, source, _ = mixture.locate(np.arange(30_000))
    for s, share in enumerate((0.7, 0.2, 0.1)):
        cumulative = np.concatenate([[0], np.cumsum(source == s)])
        windows = (cumulative[1000:] - cumulative[:-1000]) / 1000
        assert np.abs(windows - share).max() <= 0.01


def test_sources_without_samples_are_left_out_and_an_empty_base_refused():
    mixture = Mixture.without_empty([Source("base", 10, 0.7), Source("tasks", 0, 0.2), Source("noise", 5, 0.1)], 0)
    assert [s.name for s in mixture.sources] == ["base", "noise"]
    assert mixture.counts == [10, 1]
    with pytest.raises(SettingError, match="base"):
        Mixture.without_empty([Source("base", 0, 0.7), Source("tasks", 5, 0.3)], 0)


def test_one_sample_in_all():
    mixture = Mixture.without_empty([Source("base", 1, 0.7), Source("tasks", 1, 0.3)], 0)
    _, source, sample = mixture.locate(np.arange(6))
    assert set(sample.tolist()) == {0} and 0 in source


def test_the_tree_tells_asked_realised_and_repeats():
    tree = three().tree()
    assert "asked 20.00%  realised 20.00%" in tree and "30 samples, 100 drawn an epoch, each 3.33 times" in tree
