"""A run that is stopped, steered, rolled back or refused: beside one that was left alone, to the bit."""

import math
import os
import shutil
import signal
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_model import TINY, tiny_run

from workbench.alarm_config import AlarmConfig
from workbench.control import Asked, Control, ask, requests
from workbench.errors import AlarmStop, DataError, RunStopped
from workbench.evaluate.perplexity import Perplexity
from workbench.run_folder import RunFolder
from workbench.train import course, rollback
from workbench.train.checkpoint import latest_checkpoint, list_checkpoints
from workbench.train.loop import pretrain

STEPS, BATCH = 24, 4
FAULT = 17  # the step that gets noise


@pytest.fixture(scope="module")
def config(tmp_path_factory, samples):
    settings = dict(steps=STEPS, batch_size=BATCH, warmup_steps=2, eval_steps=8, save_steps=5, loss_scale_window=4)
    return tiny_run(tmp_path_factory.mktemp("texts"), samples, **settings)


@pytest.fixture(scope="module")
def alone(config, tmp_path_factory):
    run = RunFolder.at(tmp_path_factory.mktemp("runs") / "alone")
    pretrain(config, run)
    return run


def numbers(run, names=("step", "loss", "grad_norm", "loss_scale", "learning_rate", "tokens", "position")):
    return [[row[name] for name in names] for row in run.metrics()]


def same_state(one, two):
    a, b = latest_checkpoint(one), latest_checkpoint(two)
    for mine, theirs in ((a.weights, b.weights), (a.optimizer, b.optimizer)):
        assert mine.keys() == theirs.keys()
        assert all(np.array_equal(mine[n], theirs[n], equal_nan=True) for n in mine)


def at_position(position, do):
    """A drill that changes nothing and calls ``do`` once, when the batch of ``position`` is made."""

    def drill(first, batch):
        if first == position:
            do()
        return batch

    return drill


def noise(first, batch):
    """A batch of tokens that stand nowhere in the text."""
    if first != (FAULT - 1) * BATCH:
        return batch
    tokens = np.random.default_rng(3).integers(1000, 2000, batch["input_ids"].shape).astype(np.int32)
    return {**batch, "input_ids": tokens, "labels": np.where(batch["labels"] < 0, -100, tokens)}


def test_stopped_by_signals_and_requests_a_run_goes_on_to_the_same_bits(config, alone, tmp_path):
    run = RunFolder.at(tmp_path / "run")
    with pytest.raises(RunStopped, match="stopped by a signal after step .* is saved; the same call goes on"):
        pretrain(config, run, drill=at_position(3 * BATCH, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    first = run.metrics()[-1]["step"]
    assert latest_checkpoint(run).state["step"] == first and run.events()[-1]["by"] == "a signal"
    assert 1 <= first <= 4  # the batch was made at most three steps ahead
    with pytest.raises(RunStopped, match="stopped by the run folder"):
        pretrain(config, run, drill=at_position(12 * BATCH, lambda: ask(run, "stop")))
    second = latest_checkpoint(run).state["step"]
    assert first < second < 14 and [e["step"] for e in run.events("resume")] == [first]
    # As after a crash: two steps were done after the checkpoint, and half a line written.
    for step in (1, 2):
        run.log_metrics({"step": second + step, "loss": 1.0})
    with (run.path / "metrics.jsonl").open("a") as log:
        log.write('{"step": 9')
    trained = pretrain(config, run, drill=at_position(18 * BATCH, lambda: (ask(run, "save"), ask(run, "thaw"))))
    assert len(run.events("thaw")) == 1  # nothing was frozen, so nothing changes
    assert trained.resumed_from == second and trained.changes == ()
    assert numbers(run) == numbers(alone)
    assert [(e["step"], e["perplexity"]) for e in run.events("evaluation")] == [
        (e["step"], e["perplexity"]) for e in alone.events("evaluation")
    ]
    assert [p.value for _, p in trained.perplexities] == [e["perplexity"] for e in alone.events("evaluation")]
    asked = {e["step"] for e in run.events("checkpoint")} - {5, 10, 15, 20, 24, first, second}
    assert len(asked) == 1  # the one that was asked for
    same_state(run, alone)
    assert pretrain(config, run, "always").compile_seconds is None and numbers(run) == numbers(alone)


def test_a_changed_setting_is_refused_and_allowed_on_request_and_remembered(config, tmp_path):
    run = RunFolder.at(tmp_path / "run")
    with pytest.raises(RunStopped):
        pretrain(config, run, drill=at_position(3 * BATCH, lambda: ask(run, "stop")))
    before = [(p.name, p.stat().st_mtime_ns) for p in list_checkpoints(run)], numbers(run)
    faster = replace(config, train=replace(config.train, learning_rate=0.01))
    with pytest.raises(DataError, match="train.learning_rate: 0.003 then, 0.01 now"):
        pretrain(faster, run)
    wider = replace(config, model=replace(TINY, hidden_size=32))
    with pytest.raises(DataError, match="shape"):
        pretrain(wider, run, allow_changes=("hidden_size",))
    assert ([(p.name, p.stat().st_mtime_ns) for p in list_checkpoints(run)], numbers(run)) == before
    trained = pretrain(faster, run, allow_changes=("learning_rate",))
    (change,) = trained.changes
    assert change == {"name": "train.learning_rate", "then": 0.003, "now": 0.01, "allowed": True}
    assert run.events("resume")[0]["changes"] == [change] == latest_checkpoint(run).state["lineage"][0]["changes"]
    assert run.metrics()[9]["learning_rate"] > 0.003


def test_a_rollback_gives_the_run_that_never_had_the_batch(config, tmp_path):
    run, clean = RunFolder.at(tmp_path / "run"), RunFolder.at(tmp_path / "clean")
    spiky = replace(config, alarms=AlarmConfig(loss_spike="rollback", spike_deviations=4.0, spike_nats=0.3))
    trained = pretrain(spiky, run, drill=noise)
    (back,) = run.events("rollback")
    assert (back["alarm"], back["step"], back["from_step"]) == ("loss_spike", 15, FAULT)
    assert back["excluded"] == [(FAULT - 1) * BATCH, FAULT * BATCH]
    corpus = trained.corpus
    texts = [
        corpus.tokenizer.decode(corpus.samples(np.array([s["position"]]))["input_ids"][0]) for s in back["samples"]
    ]
    assert back["samples"] and all(s["text"].rstrip("…")[:20] in t for s, t in zip(back["samples"], texts))
    assert not run.events("alarm")  # it is in the rollback, and its step is not in the log any more
    assert len(list((run.path / "earlier").glob("redone-*"))) == 2

    def without(first, batch):
        if first < (FAULT - 1) * BATCH:
            return batch
        return {**batch, **corpus.samples(np.arange(first + BATCH, first + 2 * BATCH))}

    pretrain(config, clean, drill=without)
    names = ("step", "loss", "grad_norm", "loss_scale", "learning_rate", "tokens")
    assert numbers(run, names) == numbers(clean, names)
    same_state(run, clean)
    positions = [row["position"] for row in run.metrics()]
    assert positions == [BATCH * (s + (s >= FAULT)) for s in range(1, STEPS + 1)]
    assert latest_checkpoint(run).state["data"]["excluded"] == [[(FAULT - 1) * BATCH, FAULT * BATCH]]


def test_killed_in_a_rollback_by_three_after_an_allowed_change(config, tmp_path, monkeypatch):
    alone, run = RunFolder.at(tmp_path / "alone"), RunFolder.at(tmp_path / "run")
    alarms = AlarmConfig(loss_spike="rollback", spike_deviations=4.0, spike_nats=0.3, rollback_checkpoints=3)
    spiky = replace(config, train=replace(config.train, save_total_limit=4), alarms=alarms)
    slower = replace(spiky, train=replace(spiky.train, adam_beta1=0.8))
    with pytest.raises(RunStopped):
        pretrain(spiky, run, drill=at_position(12 * BATCH, lambda: ask(run, "stop")))
    shutil.copytree(run.path, alone.path)
    pretrain(slower, alone, allow_changes=("adam_beta1",), drill=noise)
    (resumed,), (back,) = alone.events("resume"), alone.events("rollback")
    assert back["step"] < resumed["step"] and latest_checkpoint(alone).state["lineage"] == [
        {"step": resumed["step"], "changes": resumed["changes"]}
    ]

    def killed(path, why):
        raise SystemExit

    with monkeypatch.context() as change:
        change.setattr(rollback, "set_aside", killed)
        with pytest.raises(SystemExit):
            pretrain(slower, run, allow_changes=("adam_beta1",), drill=noise)
    trained = pretrain(slower, run, allow_changes=("adam_beta1",), drill=noise)
    assert trained.resumed_from == back["step"] and numbers(run) == numbers(alone)
    (event,) = run.events("rollback")
    assert {k: v for k, v in event.items() if k != "time"} == {k: v for k, v in back.items() if k != "time"}
    same_state(run, alone)


def test_a_rank_that_hears_a_signal_while_all_are_paused_wakes_the_others(tmp_path):
    run = RunFolder.at(tmp_path / "run")
    with Control(run):
        ask(run, "pause")
        second = SimpleNamespace(run=run.of_rank(1), world=2, at=3)
        course.Course._pause(second, SimpleNamespace(poll=lambda: Asked("SIGTERM")), None)
        assert requests(run) == {"pause", "stop"}


def test_a_model_that_is_broken_from_the_start_is_told(config, tmp_path, monkeypatch):
    run = RunFolder.at(tmp_path / "run")
    monkeypatch.setattr(course.PerplexityMeter, "measure", lambda self: Perplexity(math.inf, 1.0, math.inf, 9, 9))
    for policy, told in [("rollback", "no good checkpoint"), ("freeze", "")]:
        alarms = AlarmConfig(perplexity_jump=policy)
        short = replace(config, train=replace(config.train, steps=2), alarms=alarms)
        if told:
            with pytest.raises(AlarmStop, match=told):
                pretrain(short, run, "never")
        else:
            pretrain(short, run, "never")
            assert len({row["learning_rate"] for row in run.metrics()}) == 1
        (alarm,) = run.events("alarm")
        assert (alarm["alarm"], alarm["step"], alarm["samples"]) == ("perplexity_jump", 0, [])


def test_a_batch_above_the_limit_is_not_applied(config, alone, tmp_path):
    run = RunFolder.at(tmp_path / "run")
    pretrain(
        replace(config, alarms=AlarmConfig(loss_spike="skip", spike_deviations=4.0, spike_nats=0.3)), run, drill=noise
    )
    rows = run.metrics()
    assert [row["step"] for row in rows if row["skipped"]] == [FAULT] == [e["step"] for e in run.events("alarm")]
    assert numbers(run)[: FAULT - 1] == numbers(alone)[: FAULT - 1]
    # The schedule stood still with the weights.
    assert rows[FAULT]["learning_rate"] == rows[FAULT - 1]["learning_rate"]
    assert rows[FAULT]["loss"] == pytest.approx(alone.metrics()[FAULT]["loss"], abs=0.3)


def test_an_alarm_that_stops_keeps_what_was_good(config, tmp_path):
    run = RunFolder.at(tmp_path / "run")
    stopping = replace(config, alarms=AlarmConfig(loss_spike="stop", spike_deviations=4.0, spike_nats=0.3))
    with pytest.raises(AlarmStop, match=f"alarm loss_spike at step {FAULT}: .* checkpoints in .* from before"):
        pretrain(stopping, run, drill=noise)
    assert latest_checkpoint(run).state["step"] == 15 and run.metrics()[-1]["step"] == FAULT
    (alarm,) = run.events("alarm")
    assert len(alarm["samples"]) == 3 and all(s["loss"] > 0 and s["text"] for s in alarm["samples"])
    # The same data again, this time rolled back from: a policy may change on the way.
    trained = pretrain(replace(stopping, alarms=replace(stopping.alarms, loss_spike="rollback")), run, drill=noise)
    assert trained.resumed_from == 15 and [c["name"] for c in trained.changes] == ["alarms.loss_spike"]
    assert run.metrics()[-1]["step"] == STEPS and len(run.events("rollback")) == 1
