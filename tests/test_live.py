"""The live panel shows what the run folder says, asks through it, and stops when there is nothing to follow."""

import json
import threading
import time

import pytest

from workbench.control import Control, requests
from workbench.following import POINTS
from workbench.run_folder import RunFolder
from workbench.views import live
from workbench.views.live import live_panel


@pytest.fixture
def run(tmp_path):
    return RunFolder.at(tmp_path / "run")


@pytest.fixture
def elsewhere(run):
    """``run`` as a process on another machine has it open, after three steps."""
    (run.path / "control").mkdir(parents=True)
    (run.path / "control" / "open.json").write_text('{"pid": 7, "host": "far", "started": 1, "time": 1.0}')
    run.log_event("start", steps=9, pid=7, host="far")
    log(run, 1, 4)
    return run


def log(run, first, last):
    for step in range(first, last):
        run.log_metrics({"step": step, "steps": 9, "loss": 9.0 / step, "loss_scale": 8.0, "rss_mb": 5.0})


def pressed(panel):
    return {what for what, button in panel.buttons.items() if not button.disabled and button.layout.display != "none"}


def test_no_run_yet(run):
    panel = live_panel(run)
    assert panel.text.startswith("no run in ") and "waiting for notebook 05 with this RUN" in panel.text
    assert pressed(panel) == set() and panel.error == "" and not panel.over


def test_new_lines_are_shown(elsewhere):
    panel = live_panel(elsewhere)
    assert panel.text == "step 3/9 · loss 3 · scale 2^3 · 5 MB" and "training" in panel.status.value
    loss, perplexity, scale, throughput, _ = panel.chart.data
    assert list(loss.x) == [1, 2, 3] and list(loss.y) == [9.0, 4.5, 3.0] and not throughput.x
    log(elsewhere, 4, 6)
    elsewhere.log_event("evaluation", step=5, perplexity=7.25)
    elsewhere.log_event("alarm", step=5, alarm="loss_spike", message="loss 9 <far> above 2")
    panel.update()
    assert list(loss.x) == [1, 2, 3, 4, 5] and (list(perplexity.x), list(perplexity.y)) == ([5], [7.25])
    assert "ppl 7.25" in panel.text and "1 alarm" in panel.text
    assert f"color:{live.RED}" in panel.told.value and "loss 9 &lt;far&gt; above 2" in panel.told.value
    assert panel.picture.data[0].x == (1, 2, 3, 4, 5)


def test_only_curves_that_changed_are_sent(elsewhere, monkeypatch):
    panel, sent = live_panel(elsewhere), []
    monkeypatch.setattr(type(panel.chart), "_send_update_msg", lambda *_, **told: sent.append(told))
    panel.update()
    assert sent == []
    elsewhere.log_event("evaluation", step=3, perplexity=7.0)
    panel.update()
    assert len(sent) == 1 and sent[0]["trace_indexes"] == [1]


def test_a_long_run_is_drawn_with_few_points(run):
    run.log_event("start", steps=9)
    (run.path / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": i, "loss": 50.0 if i == 777 else 2.0}) + "\n" for i in range(1, 5001))
    )
    loss = live_panel(run).chart.data[0]
    assert len(loss.x) <= POINTS and max(loss.y) == 50.0


def test_buttons_leave_requests(elsewhere):
    panel = live_panel(elsewhere)
    assert pressed(panel) == {"pause", "save", "stop"}
    panel.buttons["pause"].click()
    assert requests(elsewhere) == {"pause"} and pressed(panel) == {"continue", "save", "stop"}
    assert "asked to pause" in panel.message.value and "paused" in panel.status.value
    panel.buttons["save"].click()
    panel.buttons["continue"].click()
    panel.buttons["stop"].click()
    assert requests(elsewhere) == {"save", "stop"} and pressed(panel) == set() and "stopping" in panel.status.value


def test_a_click_that_comes_too_late_is_answered(elsewhere):
    panel = live_panel(elsewhere)
    (elsewhere.path / "control" / "open.json").unlink()
    panel.buttons["stop"].click()
    assert "no run is going on" in panel.error and panel.error in panel.message.value
    panel.update()
    assert "died" in panel.status.value and panel.error


def test_a_folder_that_cannot_be_written_is_told(elsewhere, monkeypatch):
    def refuse(run, what):
        raise PermissionError("read-only")

    panel = live_panel(elsewhere)
    monkeypatch.setattr(live, "ask", refuse)
    panel.buttons["stop"].click()
    assert panel.error == "PermissionError: read-only"


def test_what_goes_wrong_in_an_update_is_shown_and_stays(elsewhere):
    panel = live_panel(elsewhere)
    with (elsewhere.path / "metrics.jsonl").open("a") as metrics:
        metrics.write("{<b>\n")
    panel.update()
    log(elsewhere, 4, 5)
    panel.update()
    assert panel.error.startswith("JSONDecodeError") and "JSONDecodeError" in panel.message.value
    assert "step 4/9" in panel.text


def test_the_kernel_that_trains_is_not_steered_by_its_own_panel(run):
    with Control(run):
        run.log_event("start", steps=9)
        panel = live_panel(run)
        assert pressed(panel) == set() and "this kernel is busy training" in panel.message.value


def test_where_nobody_looks_on_it_is_a_picture(elsewhere):
    shown = live_panel(elsewhere)._repr_mimebundle_()
    assert shown["text/plain"].startswith("step 3/9")
    assert [t["name"] for t in shown["application/vnd.plotly.v1+json"]["data"]][:2] == ["loss", "validation perplexity"]


def following(run):
    return [t for t in threading.enumerate() if t.name == f"panel of {run.path}"]


def gone(run):
    deadline = time.monotonic() + 10
    while following(run) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not following(run)


def test_it_follows_until_the_run_ends(elsewhere, monkeypatch):
    monkeypatch.setattr(live, "quiet", lambda: False)
    panel = live_panel(elsewhere, every=0.01)
    assert len(following(elsewhere)) == 1
    (elsewhere.path / "control" / "open.json").unlink()
    elsewhere.log_event("finish", step=9)
    assert gone(elsewhere) and panel.text.startswith("finished at step 9") and "has ended" in panel.message.value
    live_panel(elsewhere)
    assert not following(elsewhere)


def test_closing_it_or_opening_another_ends_it(elsewhere, monkeypatch):
    monkeypatch.setattr(live, "quiet", lambda: False)
    first = live_panel(elsewhere, every=0.01)
    second = live_panel(elsewhere, every=0.01)
    assert first._closed.is_set() and not second._closed.is_set()
    second.close()
    assert gone(elsewhere)
