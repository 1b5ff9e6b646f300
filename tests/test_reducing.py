"""Which gradients travel together: every parameter once, in order, within the limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.config import TrainConfig
from workbench.errors import SettingError
from workbench.train.buckets import plan_buckets
from workbench.train.reducing import Reducer, bucket_table, plan_of

ARTICLE = (1024, 65536, 1048576)
SIZES = st.lists(st.one_of(st.integers(1, 3000), st.integers(1, 3_000_000)), max_size=40).map(
    lambda sizes: [(f"p{i}", size) for i, size in enumerate(sizes)]
)


@given(sizes=SIZES, by=st.sampled_from(["bytes", "size_groups", "parameter"]), limit=st.integers(1, 5_000_000))
def test_every_parameter_is_in_exactly_one_bucket(sizes, by, limit):
    plan = plan_buckets(sizes, by, limit, ARTICLE)
    assert sorted(i for b in plan for i in b.indices) == list(range(len(sizes)))
    for bucket in plan:
        assert bucket.names == tuple(sizes[i][0] for i in bucket.indices)
        assert bucket.bytes == 4 * bucket.elements == 4 * sum(sizes[i][1] for i in bucket.indices)


@given(sizes=SIZES, limit=st.integers(1, 5_000_000), itemsize=st.sampled_from([2, 4]))
def test_by_bytes_the_last_parameter_comes_first_and_no_bucket_is_over_the_limit_or_could_have_held_more(
    sizes, limit, itemsize
):
    plan = plan_buckets(sizes, "bytes", limit, ARTICLE, itemsize)
    assert [i for b in plan for i in b.indices] == list(reversed(range(len(sizes))))
    for bucket in plan:
        assert bucket.bytes <= limit or len(bucket.indices) == 1, "only a larger parameter may exceed it, alone"
    for bucket, after in zip(plan, plan[1:]):
        assert bucket.bytes + sizes[after.indices[0]][1] * itemsize > limit


@given(sizes=SIZES)
def test_by_size_groups_each_parameter_is_in_the_smallest_group_that_holds_it(sizes):
    plan = plan_buckets(sizes, "size_groups", 1, ARTICLE)
    groups = [sum(size > bound for bound in ARTICLE) for _, size in sizes]
    assert [{groups[i] for i in b.indices} for b in plan] == [{g} for g in sorted(set(groups))]


def test_sizes_on_the_edges_of_the_articles_groups():
    sizes = [(str(n), n) for n in (1, 1024, 1025, 65536, 65537, 1048576, 1048577, 5_000_000)]
    plan = plan_buckets(sizes, "size_groups", 1, ARTICLE)
    assert [b.names for b in plan] == [
        ("1024", "1"),
        ("65536", "1025"),
        ("1048576", "65537"),
        ("5000000", "1048577"),
    ]


def test_an_oversized_parameter_between_small_ones_has_a_bucket_of_its_own():
    plan = plan_buckets([("a", 2), ("large", 100), ("b", 3), ("c", 4)], "bytes", 40, ARTICLE)
    assert [b.names for b in plan] == [("c", "b"), ("large",), ("a",)]
    assert plan_buckets([], "bytes", 40, ARTICLE) == ()


def test_the_table_names_every_bucket_and_sums_them():
    plan = plan_buckets([("a", 2), ("large", 1000), ("b", 3), ("c", 4)], "bytes", 40, ARTICLE)
    lines = bucket_table(plan).splitlines()
    assert len(lines) == 1 + len(plan) + 1
    assert lines[1].split() == ["1", "2", "7", "28", "c", "…", "b"]
    assert lines[2].split() == ["2", "1", "1,000", "4,000", "large"]
    assert lines[-1].split() == ["all", "4", "1,009", "4,036"]


def test_the_settings_are_those_of_the_config():
    import mindspore as ms
    import numpy as np

    parameters = [ms.Parameter(np.zeros((256, 1024), np.float32), name=f"p{i}") for i in range(5)]
    assert [len(b.indices) for b in plan_of(parameters, TrainConfig(bucket_mb=2.0))] == [2, 2, 1]
    assert len(plan_of(parameters, TrainConfig(bucket_by="parameter"))) == 5


def test_a_rank_that_has_not_joined_is_told_so_instead_of_crashing(monkeypatch):
    monkeypatch.setenv("MS_ROLE", "MS_WORKER")
    monkeypatch.setenv("MS_WORKER_NUM", "2")
    with pytest.raises(SettingError, match="rank 0 of 2.*join_ranks"):
        Reducer([], TrainConfig())
