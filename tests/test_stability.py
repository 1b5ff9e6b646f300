"""Faults in real float16 training: schedules, what each policy makes of them, and how it is counted."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest
from tiny_model import TINY

from workbench.alarm_config import AlarmConfig
from workbench.config import DataConfig, RunConfig, TrainConfig
from workbench.device import use_device
from workbench.errors import SettingError
from workbench.run_folder import RunFolder
from workbench.train.loop import pretrain
from workbench.train.scaling import POLICIES
from workbench.train.stability import (
    DRILL,
    FAULT_KINDS,
    Course,
    FaultDrill,
    fault_schedule,
    measure_stability,
    stability,
    wilson,
)
from workbench.views.scaling import losses_with_faults

STEPS = 40
ARMS = (("dynamic", "dynamic", 1024.0), ("article", "article", 1024.0), ("too large", "dynamic", 2.0**30))


def test_the_schedules_of_faults():
    counts = {kind: int(fault_schedule(kind, 1000, 0.02, seed=1).sum()) for kind in FAULT_KINDS}
    assert counts.pop("random") == pytest.approx(20, abs=14)
    assert counts == {"none": 0, "single": 1, "burst": 20, "periodic": 20}
    assert np.flatnonzero(fault_schedule("burst", 30, 0.1)).tolist() == [10, 11, 12]
    assert np.flatnonzero(fault_schedule("periodic", 10, 0.25)).tolist() == [3, 7]
    assert np.array_equal(fault_schedule("random", 99, seed=3), fault_schedule("random", 99, seed=3))
    with pytest.raises(SettingError, match="fault schedule 'often' is not allowed: none, single"):
        fault_schedule("often", 10)
    with pytest.raises(SettingError, match="share=0 of steps"):
        fault_schedule("random", 10, 0)


@pytest.fixture(scope="module")
def measured():
    use_device("CPU")
    drills = {name: FaultDrill(name, DRILL) for name in ("dynamic", "article")}
    return drills, measure_stability(drills, STEPS, 2, "periodic", 0.1, ARMS)


def test_dynamic_skips_every_fault_and_goes_on_learning(measured):
    found, courses = measured[1]["dynamic"]
    for course in courses:
        assert np.array_equal(course.applied, ~course.fault) and course.finite.all()
        assert np.isfinite(course.loss).all() and course.loss[-8:].mean() < course.loss[:8].mean() - 0.3
        assert course.scale[-1] == 1024.0 / 2 ** course.fault[:-1].sum()
    assert (found.alive.value, found.applied.value) == (1.0, 0.9)
    assert (found.survived, found.faults, found.steps) == (8, 8, 80)


def test_the_articles_policy_applies_everything_and_loses_the_weights_at_the_first_fault(measured):
    found, courses = measured[1]["article"]
    for course in courses:
        first = int(np.flatnonzero(course.fault)[0])
        assert course.applied.all() and course.finite[:first].all() and not course.finite[first:].any()
        assert np.isnan(course.loss[first + 1 :]).all()
    assert (found.survived, found.faults) == (0, 2) and found.alive.value == pytest.approx(9 / STEPS)
    assert "faults survived 0 of 2" in str(found)
    picture, text = losses_with_faults({"article": courses[0]})
    assert list(picture.data[1].x) == [10] and "skipped, parameters not finite after step 10" in text


def test_a_scale_that_is_too_large_overflows_for_real_until_it_fits(measured):
    _, courses = measured[1]["too large"]
    skipped = ~courses[0].applied
    assert skipped[:5].all() and not skipped[-4:-1].any() and courses[0].finite.all()
    assert np.array_equal(courses[0].trace.skipped, skipped)


def test_a_drill_begins_anew_with_every_run(measured):
    drill = measured[0]["dynamic"]
    one, two = (drill(fault_schedule("none", 3), seed=5) for _ in range(2))
    assert np.array_equal(one.loss, two.loss) and not np.array_equal(one.loss, drill(one.fault, seed=6).loss)
    with pytest.raises(SettingError, match="policy 'mine' is not allowed: dynamic, constant, article"):
        FaultDrill("mine", DRILL)
    assert set(POLICIES) == {"dynamic", "constant", "article"}


def test_shares_count_a_fault_only_where_there_was_something_to_lose():
    fault = np.array([False, True, False, True])
    lost = Course(fault, np.ones(4), np.ones(4), np.ones(4, bool), np.array([True, False, False, False]))
    kept = Course(fault, np.ones(4), np.ones(4), ~fault, np.ones(4, bool))
    found = stability("x", [lost, kept])
    assert (found.survived, found.faults) == (2, 3)
    assert found.alive.value == pytest.approx((0.25 + 1) / 2) and found.applied.value == pytest.approx((0.25 + 0.5) / 2)


@pytest.mark.parametrize(("hits", "n"), [(0, 7), (7, 7), (97, 97), (3, 40), (1234, 10_000)])
def test_the_interval_is_scipys(hits, n):
    theirs = binomtest(hits, n).proportion_ci(method="wilson")
    assert wilson(hits, n) == pytest.approx((theirs.low, theirs.high), abs=1e-6)
    assert np.isnan(wilson(0, 0)).all()


def test_a_run_whose_scale_cannot_fit_raises_one_alarm_and_holds_the_learning_rate(tmp_path, samples):
    """float16 at a scale of 2^60, which is also the floor: every step overflows."""
    texts = tmp_path / "a.jsonl"
    texts.write_text("\n".join(json.dumps({"text": f"Sentence {i} is about {i % 7} cats."}) for i in range(200)))
    train = TrainConfig(steps=4, batch_size=2, warmup_steps=3, precision="float16")
    stuck = replace(train, init_loss_scale=2.0**60, min_loss_scale=2.0**60, max_loss_scale=2.0**60)
    data = DataConfig(data=str(texts), tasks="", tokenizer=str(samples / "tokenizer"), sequence_length=16)
    run = RunFolder.at(tmp_path / "run")
    pretrain(RunConfig(data=data, model=TINY, train=stuck, alarms=AlarmConfig(scale_floor="freeze")), run)
    assert [m["overflow"] for m in run.metrics()] == [1] * 4
    (alarm,), (freeze,) = run.events("alarm"), run.events("freeze")
    assert (alarm["alarm"], alarm["step"], alarm["policy"]) == ("scale_floor", 1, "freeze") and "1.15292e+18" in alarm[
        "message"
    ]
    # The warm-up would go on rising for three steps.
    rates = [m["learning_rate"] for m in run.metrics()]
    assert freeze["step"] == 1 and set(rates) == {freeze["learning_rate"]} and rates[0] < train.learning_rate
    assert len(run.events("overflow")) == 4
