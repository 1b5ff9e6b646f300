"""The simulated step: what no schedule can beat, what overlap must not change, and cases done by hand."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import SettingError
from workbench.train.timeline import (
    ARTICLE,
    ASCEND_SETTINGS,
    COMPUTE,
    LINK,
    Layer,
    Link,
    Timeline,
    compare,
    simulate_step,
)
from workbench.views import communication

SECONDS = st.floats(0, 1, allow_subnormal=False)
LAYERS = st.lists(
    st.builds(Layer, SECONDS, SECONDS.map(lambda s: s + 0.01), SECONDS, st.floats(0, 1e9), st.sampled_from([0.0, 1e8])),
    min_size=1,
    max_size=8,
)
LINKS = st.builds(Link, st.floats(0, 0.1), st.floats(1e8, 1e10))


@given(layers=LAYERS, link=LINKS, bucket=st.floats(1, 3e9))
def test_what_holds_for_every_step(layers, link, bucket):
    made = compare(layers, link, bucket)
    computed = sum(x.forward + x.backward + x.recompute for x in layers)
    serial = made["none"]
    assert serial.wall == pytest.approx(serial.work(COMPUTE) + serial.work(LINK)), "without overlap nothing overlaps"
    for name, timeline in made.items():
        assert timeline.work(COMPUTE) == pytest.approx(computed)
        assert timeline.work(LINK) == pytest.approx(serial.work(LINK)), "overlap changes no work"
        longer = max(timeline.work(COMPUTE), timeline.work(LINK))
        assert longer - 1e-9 <= timeline.wall <= serial.wall + 1e-9, name
        assert 0 < timeline.busy <= 1 + 1e-9
        for lane in (COMPUTE, LINK):
            spans = [s for s in timeline.spans if s.lane == lane]
            assert all(a.end <= b.start + 1e-12 for a, b in zip(spans, spans[1:])), "a lane does one thing at a time"


@given(layers=LAYERS, link=LINKS)
def test_a_bucket_is_sent_after_the_backward_passes_of_its_layers(layers, link):
    timeline = simulate_step(layers, link, 1, ("gradients",))
    ends = {s.name: s.end for s in timeline.spans}
    starts = [s.start for s in timeline.spans if s.name.startswith("bucket")]
    sending = [i for i in reversed(range(len(layers))) if layers[i].gradient_bytes]
    for layer, start in zip(sending, starts):
        assert start >= ends[f"backward {layer}"] - 1e-12


def test_three_layers_by_hand():
    layers = [Layer(forward=1, backward=2, gradient_bytes=1)] * 3
    link = Link(latency=0.5, bandwidth=1)  # 1.5 s a layer, 2.5 s for two, 3.5 s for three
    assert simulate_step(layers, link, 1).wall == pytest.approx(9 + 4.5)
    assert simulate_step(layers, link, 3).wall == pytest.approx(9 + 3.5), "one latency for three"
    # Each is sent behind the next backward pass; only the last one is seen.
    assert simulate_step(layers, link, 1, ("gradients",)).wall == pytest.approx(9 + 1.5)
    assert simulate_step(layers, link, 3, ("gradients",)).wall == pytest.approx(9 + 3.5), "one bucket hides nothing"


def test_recompute_hides_the_collective_that_the_backward_pass_waits_for():
    layers = [Layer(forward=1, backward=1, recompute=1, activation_bytes=1)] * 2
    link = Link(latency=0, bandwidth=1)
    none = simulate_step(layers, link, 1)
    assert none.wall == pytest.approx(6 + 4)  # two collectives on the way forward, two back
    hidden = simulate_step(layers, link, 1, ("recompute",))
    assert hidden.wall == pytest.approx(9)  # the one between the two backward passes
    spans = {s.name: s for s in hidden.spans}
    assert spans["recompute 0"].start == spans["activation gradients 1"].start
    assert spans["backward 0"].start == max(spans["recompute 0"].end, spans["activation gradients 1"].end)


def test_wrong_input_is_one_line():
    with pytest.raises(SettingError, match="unknown overlap 'gradient'; did you mean 'gradients'"):
        simulate_step([Layer(1, 1)], Link(0, 1), 1, ("gradient",))
    with pytest.raises(SettingError, match="at least one Layer"):
        simulate_step([], Link(0, 1), 1)


def test_ascends_switches_exist_in_the_installed_engine():
    from mindspore.context import _Context
    from mindspore.parallel.auto_parallel import AutoParallel

    reader = inspect.getsource(_Context._set_speedup_config_path)
    for name in ASCEND_SETTINGS:
        assert name in AutoParallel.transformer_opt.__doc__ and f'"{name}"' in reader


def test_the_picture_has_every_span_and_says_simulation():
    layers = [Layer(0.01, 0.02, 0.01, 4e6, 1e6)] * 3
    made = compare(layers, Link(1e-3, 1e9), 8e6)
    picture, text = communication.step_timeline(made)
    assert sum(len(t.x) for t in picture.data) == sum(len(t.spans) for t in made.values())
    assert "imulation" in picture.layout.title.text and text.startswith("simulation")
    assert "63% → 89%" in text and "+34%" in text and "+41%" in text
    assert ARTICLE["busy with"] / ARTICLE["busy without"] - 1 == pytest.approx(0.41, abs=0.005)


def test_an_empty_timeline_lasts_no_time():
    assert Timeline(()).wall == 0
