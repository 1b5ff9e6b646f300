"""The picture of the drills: a small one for each fault, and a line with every delay."""

import json

import pytest

from workbench.alarm_config import POLICIES, AlarmConfig
from workbench.train.alarm_drills import DRILLS, clean_trace, raised
from workbench.views import alarms as views

CLEAN = clean_trace(1)


def tried(*names):
    hurt = {name: DRILLS[name].inject(CLEAN, 300) for name in names}
    return {name: (DRILLS[name], trace, raised(trace, AlarmConfig())) for name, trace in hurt.items()}


def test_each_fault_has_its_picture_and_its_delay():
    picture, text = views.drills(CLEAN, tried("loss spike", "NaN loss", "ranks apart", "full disk"), 300)
    assert text == "steps from fault to alarm: loss spike +0; NaN loss +2; ranks apart +9; full disk +1"
    stored = json.dumps(json.loads(picture.to_json()))
    assert len(stored) < 40_000 and "bdata" not in stored
    assert [line["x0"] for line in json.loads(picture.to_json())["layout"]["shapes"]] == [300, 300, 300, 302] + [
        300,
        309,
        300,
        301,
    ]
    # With and without the fault: the same until it begins.
    clean, hurt = picture.data[0], picture.data[1]
    assert len(clean.x) == len(hurt.x) and max(hurt.y) > max(clean.y)
    assert [y for x, y in zip(hurt.x, hurt.y) if x < 300] == [y for x, y in zip(clean.x, clean.y) if x < 300]


def test_a_fault_that_was_not_found_says_so():
    (name, (drill, trace, _)), *_ = tried("leak").items()
    assert views.drills(CLEAN, {name: (drill, trace, [])}, 300)[1] == "steps from fault to alarm: leak not found"


@pytest.mark.parametrize("kind", POLICIES)
def test_everything_that_is_watched_can_be_drawn(kind):
    names = [name for name, drill in DRILLS.items() if drill.kind == kind]
    picture, _ = views.drills(CLEAN, tried(*names), 300)
    assert all(len(trace.x) for trace in picture.data)
