"""The run folder while it is written, after it died, and when a run starts in it again."""

import json
import math
import resource

import numpy as np
import plotly.graph_objects as go
import pytest

from workbench.errors import DataError, StorageError
from workbench.run_folder import Number, RunFolder


@pytest.fixture
def run(tmp_path):
    return RunFolder.at(tmp_path / "runs" / "一")


def test_metrics_come_back_as_they_were_non_finite_ones_too(run):
    run.log_metrics({"step": np.int64(1), "loss": np.float32(1.5), "name": "好"})
    run.log_metrics({"step": 2, "loss": math.nan, "norm": math.inf})
    one, two = run.metrics()
    assert one == {"step": 1, "loss": 1.5, "name": "好"}
    assert math.isnan(two["loss"]) and two["norm"] == math.inf
    for line in (run.path / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_a_line_that_is_still_being_written_is_not_read(run):
    run.log_metrics({"step": 1})
    with (run.path / "metrics.jsonl").open("a") as log:
        log.write('{"step": 2')
    assert run.metrics() == [{"step": 1}]


def test_a_new_run_sets_the_old_logs_aside_and_loses_none(run):
    for step in (1, 2, 3):
        run.log_metrics({"step": step})
        run.log_event("start")
        run.start_logs()
    assert run.metrics() == [] and run.events() == []
    kept = sorted((run.path / "earlier").glob("*metrics.jsonl"))
    assert sorted(json.loads(f.read_text())["step"] for f in kept) == [1, 2, 3]


def test_events_have_a_kind_and_a_time(run):
    run.log_event("overflow", step=3)
    run.log_event("finish", step=9)
    assert [e["step"] for e in run.events("overflow")] == [3]
    assert all(e["time"] > 1.7e9 for e in run.events())


def test_config_and_environment(run):
    run.write_config({"train": {"steps": 5}})
    assert run.config() == {"train": {"steps": 5}}
    environment = json.loads((run.path / "environment.json").read_text())
    assert environment["packages"]["mindspore"].startswith("2.10") and environment["cores"] >= 1


def test_a_folder_without_a_run_says_so(run):
    with pytest.raises(DataError, match="no run in .*run 05_pretrain"):
        run.config()


def test_results_are_kept_in_the_notebooks_order(run):
    picture = go.Figure(go.Scatter(x=[1], y=[2]))
    for name in ("02_b", "01_a"):
        run.write_result(name, title=name, summary="s", numbers=[Number("n", 1.5, "nats")], figures={"c": picture})
    results = run.all_results()
    assert [r["notebook"] for r in results] == ["01_a", "02_b"]
    assert results[0]["numbers"] == [{"name": "n", "value": 1.5, "unit": "nats", "note": "", "headline": False}]
    assert results[0]["figures"][0]["figure"]["data"][0]["y"] == [2]


def test_a_full_disk_leaves_no_half_line(run):
    run.log_event("start")
    log = run.path / "events.jsonl"
    whole = log.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 20, limits[1]))
    try:
        with pytest.raises(StorageError, match="events.jsonl cannot be written"):
            run.log_event("stop", by="x" * 100)
        assert log.read_bytes() == whole
        with pytest.raises(StorageError):
            run.log_event("stop", by="x" * 20_000)
        assert log.read_bytes() == whole
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    run.log_event("stop")
    assert [e["kind"] for e in run.events()] == ["start", "stop"]


def test_what_is_not_finite_comes_back_as_a_number_in_lists_too(tmp_path):
    run = RunFolder.at(tmp_path)
    run.log_metrics({"loss": float("inf"), "rank_losses": [1.5, float("nan")], "note": "nan-ish"})
    (row,) = run.metrics()
    assert row["loss"] == float("inf") and row["rank_losses"][0] == 1.5 and row["note"] == "nan-ish"
    assert row["rank_losses"][1] != row["rank_losses"][1]
