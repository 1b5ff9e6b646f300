"""A growing log is read once, a rewound one again; curves stay small and keep their spikes."""

import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.control import Control, ask
from workbench.following import Curve, RunWatch, Tail, event_text
from workbench.rewinding import rewind_logs
from workbench.run_folder import RunFolder


def write(file, rows, mode="a"):
    with file.open(mode, encoding="utf-8") as log:
        log.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def numbered(first, last, note=""):
    return [{"step": i, "loss": 1 / i, "note": f"{note}语{i}"} for i in range(first, last)]


def test_only_new_whole_lines(tmp_path):
    log = tmp_path / "m.jsonl"
    tail = Tail(log)
    assert tail.read() == (False, [])
    write(log, numbered(1, 4))
    assert tail.read() == (False, numbered(1, 4))
    with log.open("a") as file:
        file.write('{"step": ')
        file.flush()
        assert tail.read() == (False, [])
        file.write("4}\n")
    assert tail.read() == (False, [{"step": 4}]) and tail.read() == (False, [])


@pytest.mark.parametrize("new_only", [False, True])
def test_a_log_of_any_length_in_pieces(tmp_path, monkeypatch, new_only):
    monkeypatch.setattr("workbench.following._MOST", 100)
    log = tmp_path / "m.jsonl"
    rows = [{"step": i, "text": "长" * size} for i, size in enumerate([1, 500, 2, 3, 4, 5, 900])]
    write(log, rows)
    tail, seen = Tail(log, new_only), []
    while new := tail.read()[1]:
        seen += new
    assert seen == ([] if new_only else rows)
    write(log, [{"step": 99}])
    assert tail.read() == (False, [{"step": 99}])


def replaced(log, rows):
    beside = log.with_name("beside")
    write(beside, rows, "w")
    beside.replace(log)


def truncated(log, rows):
    write(log, rows, "w")


@pytest.mark.parametrize("rewind", [replaced, truncated])
@pytest.mark.parametrize("length", [1, 5, 9, 30])
def test_a_rewound_log_is_read_again(tmp_path, rewind, length):
    log = tmp_path / "m.jsonl"
    write(log, numbered(1, 9))
    tail = Tail(log)
    tail.read()
    rewind(log, numbered(1, length, "again"))
    again, rows = tail.read()
    assert again and rows == numbered(1, length, "again")
    log.unlink()
    assert tail.read() == (length > 1, [])


finite = st.floats(-1e6, 1e6)


@given(st.lists(st.one_of(finite, st.just(float("nan")), st.none()), max_size=300), st.integers(4, 40))
def test_a_curve_keeps_order_extremes_and_the_newest(values, most):
    curve = Curve(most)
    for x, y in enumerate(values):
        curve.add(x, y)
    x, y = curve.points()
    real = [(i, v) for i, v in enumerate(values) if v is not None and v == v]
    assert len(x) <= most + 1 and x == sorted(set(x)) and set(zip(x, y)) <= set(real)
    if real:
        assert (x[-1], y[-1]) == real[-1]
        assert max(y) == max(v for _, v in real) and min(y) == min(v for _, v in real)
    if len(real) <= most // 4 * 2:
        assert list(zip(x, y)) == real


def test_a_curve_that_goes_back():
    curve = Curve()
    for x in (0, 10, 20, 30, 10, 20):
        curve.add(x, float(x))
    assert curve.points() == ([0, 10, 20], [0.0, 10.0, 20.0])


def test_a_long_curve_is_even():
    curve = Curve(100)
    for x in range(40_000):
        curve.add(x, 1e9 if x == 31_415 else x % 7)
    x, y = curve.points()
    assert 31_415 in x and 50 <= len(x) <= 101 and max(b - a for a, b in zip(x, x[1:])) < 2500


@pytest.fixture
def run(tmp_path):
    return RunFolder.at(tmp_path)


def test_the_states_of_a_run(run):
    watched = RunWatch(run)

    def state():
        watched.read()
        return watched.state()[0]

    assert state() == "no run" and "notebook 05" in watched.state()[1]
    with Control(run):
        assert state() == "starting"
        run.log_event("start", steps=9, pid=os.getpid(), host="here")
        run.log_metrics({"step": 1, "loss": 2.0, "rss_mb": 5.0})
        run.log_event("checkpoint", step=1, path="step_000001")
        assert state() == "training" and watched.facts()["state"] == ""
        ask(run, "pause")
        assert state() == "paused"
        ask(run, "stop")
        assert state() == "stopping"
    assert state() == "died"
    assert watched.state()[1] == (
        f"process {os.getpid()} on here failed or was killed after step 1: "
        "the same command starts it again from step_000001"
    )
    with Control(run):
        assert state() == "starting"
        run.log_event("resume", step=1)
        assert state() == "training"
        run.log_event("stop", step=2, by="SIGTERM")
    assert state() == "stopped" and watched.state()[1] == "stopped at step 2 by SIGTERM"
    run.start_logs()
    run.log_event("start", steps=9)
    run.log_event("finish", step=9)
    assert state() == "finished" and watched.row == {} and watched.checkpoint == ""


def test_a_long_log_is_read_in_pieces_when_asked(run, monkeypatch):
    monkeypatch.setattr("workbench.following._MOST", 200)
    write(run.path / "metrics.jsonl", numbered(1, 50))
    watched = RunWatch(run)
    watched.read(whole=False)
    assert watched.unread and 1 < watched.row["step"] < 49
    watched.read()
    assert not watched.unread and watched.row["step"] == 49


def test_a_silent_run_on_another_machine(run):
    run.log_event("start", steps=9)
    (run.path / "control").mkdir()
    (run.path / "control" / "open.json").write_text('{"pid": 7, "host": "far", "started": 1, "time": 1.0}')
    watched = RunWatch(run)
    watched.read()
    assert watched.state()[0] == "training"
    word, said = watched.state(now=time.time() + 1200)
    assert word == "silent" and "20 minutes" in said and "look on far whether process 7 lives" in said


def test_what_is_known(run):
    watched = RunWatch(run)
    run.log_event("start", steps=9)
    run.log_metrics({"step": 1, "loss": 2.0, "loss_scale": 65536.0, "rss_mb": 5.0, "tokens_per_second": None})
    run.log_metrics({"step": 2, "loss": float("nan"), "loss_scale": 32768.0, "rss_mb": 6.0, "tokens_per_second": 9.0})
    run.log_event("alarm", alarm="spike", message="loss 9 is far above 2", step=2)
    run.log_event("evaluation", step=2, perplexity=3.5, low=3, high=4)
    events = watched.read()
    assert [e["kind"] for e in events] == ["start", "alarm", "evaluation"] and watched.read() == []
    assert watched.curves["loss"].points() == ([1], [2.0]) and watched.curves["throughput"].points() == ([2], [9.0])
    assert watched.perplexities.points() == ([2], [3.5])
    facts = watched.facts()
    assert (facts["perplexity"], facts["alarms"], facts["row"]["step"]) == (3.5, 1, 2)
    later = RunWatch(run, new_only=True)
    assert later.read() == [] and later.row == {} and later.alarms == 0


def test_a_rewound_log_tells_nothing_twice(run):
    watched = RunWatch(run)
    for step in (1, 2, 3):
        run.log_metrics({"step": step, "loss": 9.0 - step})
        run.log_event("alarm", alarm="spike", step=step)
    assert len(watched.read()) == 3 and watched.alarms == 3
    rewind_logs(run, 1)
    run.log_event("rollback", step=1, alarm="spike", alarm_message="m", from_step=3)
    run.log_metrics({"step": 2, "loss": 5.0})
    assert [event["kind"] for event in watched.read()] == ["rollback"] and watched.alarms == 2
    assert watched.curves["loss"].points() == ([1, 2], [8.0, 5.0])


@pytest.mark.parametrize(
    "event, text",
    [
        ({"kind": "evaluation", "step": 200, "perplexity": 3.15417}, "step 200: validation perplexity 3.154"),
        ({"kind": "checkpoint", "step": 1200, "path": "step_001200"}, "step 1,200: checkpoint step_001200"),
        ({"kind": "alarm", "step": 7, "alarm": "spike", "message": "m"}, "step 7: alarm: m"),
        ({"kind": "alarm", "step": 7, "alarm": "scale at its floor"}, "step 7: alarm: scale at its floor"),
        ({"kind": "overflow", "step": 7, "loss_scale": 32768.0, "samples": [1] * 99}, "overflow, loss scale now 32768"),
        ({"kind": "start", "steps": 600, "moments": {"a": 1}, "lr": 0.5}, "start, steps 600, lr 0.5"),
    ],
)
def test_events_in_words(event, text):
    assert event_text({"time": 0.0, **event}).endswith(text)
