"""Logs after a crash: no step twice, none missing, whatever the last line looks like."""

import json

from hypothesis import given
from hypothesis import strategies as st

from workbench.rewinding import rewind_logs
from workbench.run_folder import RunFolder


def logged(run, steps, half=""):
    for step in range(1, steps + 1):
        run.log_metrics({"step": step, "loss": 1.0 / step, "text": "中文"})
        if step % 5 == 0:
            run.log_event("evaluation", step=step)
    run.log_event("signal", name="SIGTERM")
    with (run.path / "metrics.jsonl").open("a") as log:
        log.write(half)


@given(
    steps=st.integers(0, 30),
    to=st.integers(0, 35),
    half=st.sampled_from(["", '{"step": 3', '{"st', "{", "\0\0\0\n", "[1, 2\n"]),
)
def test_what_is_later_goes_aside_and_the_rest_stays_to_the_byte(tmp_path_factory, steps, to, half):
    run = RunFolder.at(tmp_path_factory.mktemp("run"))
    logged(run, steps, half)
    before = (run.path / "metrics.jsonl").read_bytes()
    events = run.events()
    taken = rewind_logs(run, to)
    after = (run.path / "metrics.jsonl").read_bytes()
    assert [r["step"] for r in run.metrics()] == list(range(1, min(steps, to) + 1)) and before.startswith(after)
    assert taken == max(0, steps - to) + bool(half)
    assert run.events() == [e for e in events if e.get("step", 0) <= to] and run.events()[-1]["kind"] == "signal"
    if taken:
        aside = (run.path / "earlier" / "redone-metrics.jsonl").read_bytes()
        assert aside.rstrip(b"\n") == before[len(after) :].rstrip(b"\n")


def test_logging_at_100_resuming_at_80_and_again(tmp_path):
    run = RunFolder.at(tmp_path)
    logged(run, 100)
    assert rewind_logs(run, 80) == 20
    for step in range(81, 91):
        run.log_metrics({"step": step})
    assert [r["step"] for r in run.metrics()] == list(range(1, 91))
    assert rewind_logs(run, 85) == 5 and rewind_logs(run, 85) == 0
    lines = (tmp_path / "earlier" / "redone-metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [*range(81, 101), *range(86, 91)]


def test_that_it_was_resumed_and_rolled_back_stays_true(tmp_path):
    run = RunFolder.at(tmp_path)
    for kind, step in [("resume", 20), ("rollback", 18), ("alarm", 22), ("evaluation", 15)]:
        run.log_event(kind, step=step)
    rewind_logs(run, 15)
    assert [e["kind"] for e in run.events()] == ["resume", "rollback", "evaluation"]
