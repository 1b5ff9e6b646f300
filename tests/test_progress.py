"""A log gets two plain lines a notebook, a terminal one live line that follows the metrics."""

import io
import json

import pytest

from workbench.progress import Progress, clock, last_row, status_line


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
    assert status_line("a", 1, 1, 1, 1, 0, row).endswith("step 5/10 · loss nan · 5,123 tokens/s · 1:01:15 left")
    assert "left" not in status_line("a", 1, 1, 1, 1, 0, {"seconds_left": "inf", "loss": None})


def test_clock():
    assert [clock(s) for s in (0, 59.9, 60, 3599, 3600)] == ["0:00", "0:59", "1:00", "59:59", "1:00:00"]


@pytest.mark.parametrize("size", [1, 100, 5000, 20000])
def test_last_whole_row_whatever_its_length(tmp_path, size):
    log = tmp_path / "m.jsonl"
    assert last_row(log) == {}
    log.write_text('{"step": 1')
    assert last_row(log) == {}
    rows = [{"step": i, "text": "语" * size} for i in range(3)]
    text = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)
    for tail in ("", '{"step": 3, "te'):
        log.write_text(text + tail, encoding="utf-8")
        assert last_row(log) == rows[-1]
    log.write_text(json.dumps(rows[0], ensure_ascii=False) + "\n", encoding="utf-8")
    assert last_row(log) == rows[0]
