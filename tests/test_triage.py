"""A fault library: run folders with one fault each, and the cause that triage puts first."""

import math
from pathlib import Path

import numpy as np
import pytest

from workbench.config import RunConfig
from workbench.diagnose.findings import SEVERITIES, Finding
from workbench.diagnose.triage import describe, triage
from workbench.errors import DataError
from workbench.run_folder import RunFolder, read_lines

SAMPLES = Path(__file__).parents[1] / "data_samples"
STEPS = 300


def healthy_rows(seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(STEPS)
    loss = 2 + 5.5 * np.exp(-t / 50) + rng.normal(0, 0.05, STEPS)
    norm = (1 + 4 * np.exp(-t / 15)) * np.exp(rng.normal(0, 0.2, STEPS))
    seconds = np.exp(rng.normal(np.log(0.2), 0.1, STEPS))
    rss = 950 - 80 * np.exp(-t / 10) + rng.normal(0, 1, STEPS)
    return [
        {
            "step": i + 1, "steps": STEPS, "loss": loss[i], "lm_loss": loss[i], "grad_norm": norm[i],
            "learning_rate": 1e-3, "loss_scale": 65536.0, "overflow": 0, "tokens": 2048, "rss_mb": rss[i],
            "cpu_percent": 150 + rng.normal(0, 5),
            # The first step compiles; the loop logs no time for it.
            "step_seconds": seconds[i] if i else None, "tokens_per_second": 2048 / seconds[i] if i else None,
        }
        for i in range(STEPS)
    ]  # fmt: skip


def write_run(path, rows, perplexities=(1900.0, 30.0, 12.0, 11.0), finish=True):
    run = RunFolder.at(path)
    run.write_config(RunConfig().as_dict())
    run.log_event("start", steps=STEPS)
    for row in rows:
        run.log_metrics(row)
    for i, value in enumerate(perplexities):
        run.log_event("evaluation", step=100 * i, perplexity=value)
    if finish:
        run.log_event("finish", step=STEPS)
    return run


def change(rows, first, last=STEPS, **values):
    return [{**r, **{k: v(r) for k, v in values.items()}} if first <= r["step"] <= last else r for r in rows]


def oom_log(pid=4321):
    return (
        f"[1.0] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,task=python,pid={pid},uid=0\n"
        f"[1.1] Out of memory: Killed process {pid} (python) total-vm:9kB, anon-rss:8000000kB, file-rss:0kB\n"
    )


TRACEBACK = "Traceback (most recent call last):\n  File 'x'\nKeyError: 'label'\n"
DEVICE = "RuntimeError: Device(id:0) memory isn't enough and alloc failed, kernel name: MatMul, alloc size: 99B."


def starved(row):
    return {**row, "step_seconds": 0.8, "tokens_per_second": 2560.0, "cpu_percent": 40.0}


def killed(rows):
    return rows[:200]


def plus(name, amount):
    """A change that adds ``amount(row)`` to a field."""
    return {name: lambda row: row[name] + amount(row)}


def to(**values):
    """A change that sets fields to fixed values."""
    return {name: (lambda row, value=value: value) for name, value in values.items()}


# name: (change of the rows, arguments of triage, cause, step)
FAULTS = {
    "host oom": (killed, {"exit_code": 137, "kernel_log": oom_log()}, "host out of memory", None),
    "kill -9": (killed, {"exit_code": -9, "kernel_log": oom_log(99), "pid": 4321}, "killed from outside", None),
    "python error": (killed, {"exit_code": 1, "output_tail": TRACEBACK}, "Python error", None),
    "device oom": (killed, {"exit_code": 1, "output_tail": DEVICE}, "device out of memory", None),
    "segfault": (lambda r: [], {"exit_code": 139}, "segmentation fault", None),
    "leak": (lambda r: change(r, 1, **plus("rss_mb", lambda row: row["step"])), {}, "memory leak", 61),
    "starved": (lambda r: r[:149] + [starved(row) for row in r[149:]], {}, "waiting for data", 150),
    "lost steps": (lambda r: r[:100] + r[140:], {}, "steps missing", 100),
    "short batches": (lambda r: change(r, 200, 230, **to(tokens_per_second=2000.0)), {}, "short batches", 200),
    "spike": (lambda r: change(r, 180, 184, **plus("loss", lambda row: 2)), {}, "loss spike", 180),
    "nan": (lambda r: change(r, 222, **to(loss=math.nan, grad_norm=math.nan)), {}, "non-finite loss", 222),
    "divergence": (
        lambda r: change(r, 240, **plus("loss", lambda row: 0.1 * (row["step"] - 240))),
        {},
        "loss divergence",
        None,
    ),
    "overflow storm": (lambda r: change(r, 120, 150, **to(overflow=1)), {}, "overflow storm", 120),
    "scale floor": (lambda r: change(r, 290, **to(overflow=1, loss_scale=1.0)), {}, "loss scale at its floor", 290),
    "cut graph": (lambda r: change(r, 100, **to(grad_norm=0.0)), {}, "dead gradient", 100),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("seed", range(2))
def test_the_first_finding_names_the_fault(tmp_path, name, seed):
    fault, given, cause, step = FAULTS[name]
    run = write_run(tmp_path, fault(healthy_rows(seed)), finish=not given)
    found = triage(run, **given)
    assert found[0].cause == cause, describe(found)
    assert found[0].step == step or step is None
    severities = [SEVERITIES.index(f.severity) for f in found]
    assert severities == sorted(severities) and all(f.next_step for f in found)


def test_a_collapse_of_validation_perplexity(tmp_path):
    found = triage(write_run(tmp_path, healthy_rows(), perplexities=(900.0, 28.6, 132.4)))
    assert (found[0].cause, found[0].step) == ("perplexity collapse", 200)


@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_run_has_only_notes(tmp_path, seed):
    found = triage(write_run(tmp_path, healthy_rows(seed)), exit_code=0)
    assert [(f.cause, f.severity) for f in found] == [("finished", "note"), ("no fault found", "note")]


def test_a_run_killed_for_memory_also_names_the_leak(tmp_path):
    rows = change(healthy_rows(), 1, rss_mb=lambda x: x["rss_mb"] + 20.0 * x["step"])[:250]
    found = triage(write_run(tmp_path, rows, finish=False), exit_code=137, kernel_log=oom_log())
    assert [f.cause for f in found] == ["host out of memory", "memory leak"]


def test_without_an_exit_code_the_events_tell_how_it_ended(tmp_path):
    run = write_run(tmp_path, healthy_rows(), finish=False)
    assert triage(run)[0].cause == "not finished" and "step 300 of 300" in triage(run)[0].evidence[1]
    run.log_event("signal", name="SIGTERM", step=300)
    assert triage(run)[0].cause == "stopped by a signal" and "name=SIGTERM" in triage(run)[0].evidence[0]
    # A later try of the same run counts for itself.
    run.log_event("start", steps=STEPS)
    run.log_event("finish", step=STEPS)
    assert triage(run)[0].cause == "finished"


def test_a_run_that_died_before_its_first_step(tmp_path):
    found = triage(write_run(tmp_path, [], perplexities=(), finish=False))
    assert found[0].cause == "no metrics"


def test_findings_made_elsewhere_take_their_place(tmp_path):
    cut = Finding("gradient cut off", "numerics", "fatal", ("head.weight",), "look")
    assert triage(write_run(tmp_path, healthy_rows()), more=[cut])[0] is cut


def test_the_table_can_be_read(tmp_path):
    text = describe(
        triage(write_run(tmp_path, healthy_rows()[:200], finish=False), exit_code=137, kernel_log=oom_log())
    )
    assert text.splitlines()[1] == "1  fatal    exit           host out of memory"
    assert "7.63 GiB" in text and "next step" in text


def test_a_folder_without_a_run_and_broken_rows_are_refused(tmp_path):
    with pytest.raises(DataError, match="no run in"):
        triage(RunFolder.at(tmp_path / "nothing"))
    run = write_run(tmp_path, [{"loss": 1.0}])
    with pytest.raises(DataError, match="row 1: step=None"):
        triage(run)


def test_the_sick_sample_in_the_order_of_its_documented_faults(tmp_path):
    run = write_run(tmp_path, list(read_lines(SAMPLES / "metrics" / "sick.jsonl")), perplexities=())
    found = triage(run)
    fatal = [(f.cause, f.step) for f in found if f.severity == "fatal"]
    assert [cause for cause, _ in fatal] == ["loss divergence", "loss scale at its floor", "non-finite loss"]
    assert 205 <= fatal[0][1] <= 231 and fatal[2][1] == 262
    warnings = {f.cause: f.step for f in found if f.severity == "warning"}
    assert set(warnings) == {"memory leak", "waiting for data", "loss spike", "overflow storm"}
    assert warnings["loss spike"] == 181 and warnings["overflow storm"] == 231 and warnings["waiting for data"] > 121


def test_the_healthy_sample_has_only_notes(tmp_path):
    run = write_run(tmp_path, list(read_lines(SAMPLES / "metrics" / "healthy.jsonl")), perplexities=())
    assert {f.severity for f in triage(run)} == {"note"}


@pytest.mark.parametrize(
    "log, code, pid, cause",
    [
        ("oom_classic", 137, 4321, "host out of memory"),
        ("oom_modern", 137, 15872, "host out of memory"),
        ("oom_memcg", 137, 77310, "host out of memory"),
        ("oom_journal", 137, 20231, "host out of memory"),
        ("oom_journal", 137, 20232, "killed from outside"),
        ("segfault", 139, 5150, "segmentation fault"),
        ("clean", 137, None, "killed from outside"),
    ],
)
def test_the_sample_kernel_logs(tmp_path, log, code, pid, cause):
    text = (SAMPLES / "kernel_logs" / f"{log}.log").read_text(encoding="utf-8")
    run = write_run(tmp_path, healthy_rows()[:200], finish=False)
    (finding,) = [f for f in triage(run, exit_code=code, kernel_log=text, pid=pid) if f.layer == "exit"]
    assert finding.cause == cause
