"""A log gets a plain line now and then, a terminal one live line that follows the run; each fits its width."""

import io
import json
import time

import pytest

from workbench.progress import Progress, clock, status_line, step_line


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_log_has_two_whole_lines(tmp_path):
    stream = io.StringIO()
    with Progress(tmp_path / "metrics.jsonl", stream).notebook("01_a", 1, 2) as on_cell:
        on_cell(1, 3)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "1/2 01_a started" and lines[1].startswith("1/2 01_a done in ") and len(lines) == 2
    assert "\r" not in stream.getvalue() and "\x1b" not in stream.getvalue()


def test_a_failure_says_where(tmp_path):
    stream = io.StringIO()
    with pytest.raises(KeyError):
        with Progress(tmp_path / "m", stream).notebook("01_a", 1, 1) as on_cell:
            on_cell(2, 3)
            raise KeyError
    assert "1/1 01_a stopped in cell 2 after " in stream.getvalue()


def test_live_line_shows_only_what_this_notebook_logs(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text(json.dumps({"step": 599, "loss": 1.0}) + "\n")
    old, new = Terminal(), Terminal()
    with Progress(metrics, old).notebook("06_b", 6, 8) as on_cell:
        on_cell(3, 12)
    assert "step" not in old.getvalue()
    with Progress(metrics, new).notebook("05_a", 5, 8) as on_cell:
        on_cell(3, 12)
        with metrics.open("a") as log:
            log.write(json.dumps({"step": 7, "steps": 600, "loss": 3.14159}) + "\n")
    assert "5/8 05_a · cell 3/12 · 0:00 · step 7/600 · loss 3.142" in new.getvalue()


def test_a_dumb_terminal_is_a_log(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert not Progress(tmp_path / "m", Terminal()).live


def test_status_line_shows_what_is_there():
    line = status_line("05_a", 1, 2, cell=3, cells=4, seconds=61, row={})
    assert line == "1/2 05_a · cell 3/4 · 1:01"
    assert status_line("05_a", 1, 2, cell=0, cells=0, seconds=1, row={}) == "1/2 05_a · kernel starts · 0:01"
    row = {"step": 5, "steps": 10, "loss": "nan", "tokens_per_second": 5123.4, "seconds_left": 3675, "scale": None}
    assert status_line("a", 1, 1, 1, 1, 0, row).endswith("step 5/10 · loss nan · 5,123 tok/s · 1:01:15 left")
    assert "left" not in status_line("a", 1, 1, 1, 1, 0, {"seconds_left": "inf", "loss": None})


def test_clock():
    assert [clock(s) for s in (0, 59.9, 60, 3599, 3600)] == ["0:00", "0:59", "1:00", "59:59", "1:00:00"]


ROW = {
    **{"step": 12_000, "steps": 60_000, "loss": 3.14159, "grad_norm": 0.6912, "loss_scale": 65536.0},
    **{"tokens_per_second": 5123.4, "rss_mb": 1042.3, "learning_rate": 3e-4, "seconds_left": 3675.0, "overflow": 0},
}


def test_the_usual_line_fits_100_columns():
    line = step_line(ROW, perplexity=28.61, width=100)
    assert line == "step 12000/60000 · loss 3.142 · 5,123 tok/s · scale 2^16 · norm 0.691 · 1042 MB · 1:01:15 left"
    short = {**ROW, "step": 120, "steps": 600, "seconds_left": 75.0}
    assert step_line(short, 2.27, width=100).endswith(
        " · ppl 2.27 · 5,123 tok/s · scale 2^16 · norm 0.691 · 1042 MB · 1:15 left"
    )
    whole = step_line(ROW, 28.61, 2, "paused")
    assert whole.startswith("paused · step 12000/60000 · ") and "lr 0.0003" in whole and "2 alarms" in whole
    assert "scale 1000" in step_line({"loss_scale": 1000.0}) and "1 alarm ·" in step_line(ROW, alarms=1)


@pytest.mark.parametrize("width", range(1, 140, 3))
def test_a_narrow_line_leaves_out_the_least_important(width):
    line = step_line(ROW, 28.61, 2, "paused", width)
    assert line.startswith("paused · step 12000/60000 · loss 3.142") and (len(line) <= width or width < 38)
    order = ["lr ", "ppl", "MB", "scale", "norm", "tok/s", "left", "alarms"]
    shown = [part in line for part in order]
    assert shown == sorted(shown)


def test_a_line_of_nothing():
    assert step_line({}) == "" and step_line({"step": None, "loss": None, "expert_load": [[1.0]]}) == ""


def test_a_log_gets_a_line_now_and_then_while_it_trains(tmp_path):
    metrics, stream = tmp_path / "metrics.jsonl", io.StringIO()
    metrics.write_text(json.dumps({"step": 599, "loss": 1.0}) + "\n")
    with Progress(metrics, stream, every=0.02).notebook("05_a", 1, 1) as on_cell:
        on_cell(3, 12)
        time.sleep(0.1)
        with metrics.open("a") as log:
            log.write(json.dumps(ROW) + "\n")
        deadline = time.monotonic() + 10
        while "step" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)  # nothing new: nothing more is said
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3 and "step 599" not in stream.getvalue()
    assert lines[1].startswith("1/1 05_a · cell 3/12 · 0:00 · ") and "step 12000/60000 · loss 3.142" in lines[1]
