"""Collectives timed on two ranks: every arm with the number of collectives of its plan; the fit on known numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.train.communication import ArmTimes, CommunicationTimes, fit, measure_collectives
from workbench.train.buckets import plan_buckets
from workbench.views import communication

SIZES = [("a", 70_000), ("b", 500), ("c", 2000), ("d", 30), ("e", 2000)]


@pytest.fixture(scope="module")
def times():
    return measure_collectives(SIZES, repeats=3, bucket_mb=(0.01,), timeout=600)


def test_every_arm_was_timed_as_planned_in_turns(times):
    assert {a.name: a.collectives for a in times.arms} == {
        "per parameter": 5, "size groups": 3, "one bucket": 1, "0.01 MiB": 3,
    }  # fmt: skip
    for arm in times.arms:
        assert len(arm.seconds) == 3 and min(arm.seconds) > 0 and arm.bytes == 4 * 74_530
        assert arm.quartiles[0] <= arm.median <= arm.quartiles[1]
    sizes = [size for size, _ in times.curve]
    assert sizes == sorted(sizes) and sizes[0] == 4096 and sizes[-1] == 2**24
    assert times.bandwidth > 0 and times.saved("per parameter") == 0


def test_the_text_and_the_pictures_tell_our_numbers_beside_the_articles(times):
    lines = times.table().splitlines()
    assert len(lines) == 1 + 4 + 2 and "article: -41%" in next(x for x in lines if x.startswith("size groups"))
    picture, text = communication.bucketing(times)
    assert len(picture.data[0].x) == 4 and "2 ranks, 3 rounds" in text and "-41%" in text and "+28%" in text
    picture, text = communication.collective_curve(times)
    assert len(picture.data[0].x) == len(times.curve) and text.startswith("one AllReduce: ")


@given(latency=st.floats(1e-5, 1e-1), bandwidth=st.floats(1e6, 1e11))
def test_the_fit_finds_the_line_it_was_given(latency, bandwidth):
    found = fit([(4**n, latency + 4**n / bandwidth) for n in range(6, 13)])
    assert found == (pytest.approx(latency, rel=1e-3), pytest.approx(bandwidth, rel=1e-3))


def test_a_plan_is_predicted_and_a_saving_is_a_share_of_the_median():
    arms = (ArmTimes("per parameter", 2, 8, (0.2, 0.1, 0.3)), ArmTimes("one bucket", 1, 8, (0.05, 0.9, 0.05)))
    times = CommunicationTimes(2, 3, arms, (), latency=0.5, bandwidth=100.0)
    assert times.saved("one bucket") == pytest.approx(0.75)
    plan = plan_buckets([("a", 25), ("b", 50)], "parameter", 1, ())
    assert times.predicted(plan) == pytest.approx(2 * 0.5 + 300 / 100)
