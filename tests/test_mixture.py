"""Quotas against exact arithmetic; the order of samples against what every rank must see."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.data.mixture import Mixture, Source, quotas
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
    assert "asked 20.00%  realised 20.00% of samples" in tree and "100 drawn, each 3.33 times" in tree


def by_tokens(strategy="base_exhausted"):
    sources = (
        Source("base", 1000, 0.7, 100_000, "abc"),
        Source("tasks", 500, 0.2, 10_000),
        Source("noise", 90, 0.1, 9_000),
    )
    return Mixture(sources, 0, "tokens", strategy)


def test_shares_by_tokens_are_exact_to_one_sample():
    mixture = by_tokens()
    assert mixture.counts[0] == 1000
    tokens = [q * s.tokens / s.samples for q, s in zip(mixture.counts, mixture.sources)]
    for got, source in zip(tokens, mixture.sources):
        assert abs(got - source.share * sum(tokens)) <= max(s.tokens / s.samples for s in mixture.sources)
    shares = mixture.shares()
    assert shares[1]["of_tokens"] == pytest.approx(0.2, abs=1e-3) and shares[1]["of_samples"] > 0.5
    assert "fingerprint abc" in mixture.tree()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 1000), st.integers(1, 300)), min_size=1, max_size=5),
    st.sampled_from(["samples", "tokens"]),
)
def test_an_epoch_ends_where_its_policy_says(parts, unit):
    sources = tuple(Source(str(i), n, w / 1000, n * t) for i, (n, w, t) in enumerate(parts))
    sizes = [s.samples for s in sources]
    base, first, last = (Mixture(sources, 0, unit, f"{name}_exhausted").counts for name in ("base", "first", "all"))
    assert base[0] == sizes[0]
    assert all(c <= n for c, n in zip(first, sizes)) and any(c == n for c, n in zip(first, sizes))
    assert all(c >= n for c, n in zip(last, sizes)) and any(c == n for c, n in zip(last, sizes))


@pytest.mark.parametrize(("base", "shares"), [(57, (0.7, 0.2, 0.1)), (999, (0.7, 0.2, 0.1)), (57, (0.999, 0.0005, 0.0005)),
                                              (3, (0.001, 0.9, 0.099)), (7_000_000, (0.7, 0.2, 0.1))])  # fmt: skip
def test_small_large_and_extreme_mixtures_keep_their_shares(base, shares):
    mixture = Mixture(tuple(Source(n, base, s) for n, s in zip("abc", shares)), 1)
    ideal = [base / shares[0] * s for s in shares]
    assert all(abs(c - i) <= 1 for c, i in zip(mixture.counts, ideal))
    positions = np.linspace(0, mixture.epoch_length - 1, 2000).astype(np.int64)
    _, source, sample = mixture.locate(positions)
    assert (sample < base).all() and (source >= 0).all()


def test_one_position_and_many_are_found_alike():
    mixture = three(base=713, tasks=91, perturbed=33)
    positions = np.arange(0, 5000, 7)
    many = mixture.locate(positions)
    for i, position in enumerate(positions):
        assert [int(part[0]) for part in mixture.locate([position])] == [int(part[i]) for part in many]


def test_an_unknown_policy_is_refused():
    with pytest.raises(SettingError, match="stopping_strategy"):
        Mixture((Source("a", 1, 1.0),), 0, "samples", "never")
