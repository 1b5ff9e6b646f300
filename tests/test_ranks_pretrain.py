"""A whole run on two ranks of this machine is the run on one."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from tiny_model import TINY

from workbench.config import DataConfig, RunConfig, TrainConfig
from workbench.run_folder import RunFolder
from workbench.train.checkpoint import latest_checkpoint
from workbench.train.loop import pretrain
from workbench.train.ranked import pretrain_on_ranks


@pytest.fixture(scope="module")
def runs(tmp_path_factory, samples):
    """(one rank, two ranks, the second rank's own folder)."""
    top = tmp_path_factory.mktemp("ranks")
    rows = [json.dumps({"text": f"Sentence {i} is about {i % 7} cats. 第{i}句。"}) for i in range(200)]
    (top / "a.jsonl").write_text("\n".join(rows), encoding="utf-8")
    config = RunConfig(
        data=DataConfig(
            data=str(top / "a.jsonl"),
            tasks=str(samples / "tasks.jsonl"),
            tokenizer=str(samples / "tokenizer"),
            sequence_length=32,
        ),
        model=replace(TINY, task_dropout=0.3, layer_dropout=0.3, num_hidden_layers=2),
        train=TrainConfig(
            steps=8, batch_size=4, warmup_steps=2, eval_steps=4, save_steps=4, optimizer_sharding="zero1"
        ),
    )
    two = RunFolder.at(top / "two")
    pretrain_on_ranks(config, two)
    one = RunFolder.at(top / "one")
    pretrain(config, one)
    return one, two, RunFolder.at(top / "two" / "ranks" / "1")


def test_the_first_rank_tells_the_losses_of_all(runs):
    one, two, second = (run.metrics() for run in runs)
    assert len(one) == len(two) == len(second) == 8
    for row in two:  # a mean over a rank's own targets; NaN where it has none
        assert len(row["rank_losses"]) == 2 and np.nanmin(row["rank_losses"]) <= row["lm_loss"] * (1 + 1e-6)
        assert np.nanmax(row["rank_losses"]) >= row["lm_loss"] * (1 - 1e-6)
    for name in ("loss", "lm_loss", "instruction_loss", "grad_norm", "tokens", "learning_rate", "position"):
        assert [r[name] for r in two] == pytest.approx([r[name] for r in one], abs=2e-6, rel=1e-5), name
        assert [r[name] for r in second] == [r[name] for r in two], name


def test_the_checkpoint_is_the_one_ranks_whatever_held_the_moments(runs):
    one, two = (latest_checkpoint(run) for run in runs[:2])
    assert one.weights.keys() == two.weights.keys() and one.optimizer.keys() == two.optimizer.keys()
    for mine, theirs in ((one.weights, two.weights), (one.optimizer, two.optimizer)):
        assert max(float(np.abs(mine[n] - theirs[n]).max()) for n in mine) < 2e-6
    assert runs[2].checkpoints == runs[1].checkpoints and not (runs[2].path / "checkpoints").exists()


def test_what_two_ranks_began_one_goes_on_with(runs, tmp_path):
    """From the two ranks' step 4, as if they had been killed in step 6; the same samples in the same order."""
    one, two, _ = runs
    shutil.copytree(two.path, tmp_path / "went on")
    run = RunFolder.at(tmp_path / "went on")
    shutil.rmtree(run.checkpoints / "step_000008")
    log = run.path / "metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:6]) + '{"step": 7, "lo')
    events = run.path / "events.jsonl"
    events.write_text("".join(line for line in events.read_text().splitlines(keepends=True) if "finish" not in line))
    trained = pretrain(RunConfig.from_dict(run.config()), run)
    assert trained.resumed_from == 4
    (ranks,) = (c for c in trained.changes if c["name"] == "ranks")
    assert (ranks["then"], ranks["now"], ranks["allowed"]) == (2, 1, False)
    rows, whole = run.metrics(), one.metrics()
    assert [r["step"] for r in rows] == list(range(1, 9))
    for name in ("loss", "grad_norm", "tokens", "position"):
        assert [r[name] for r in rows] == pytest.approx([r[name] for r in whole], abs=2e-6, rel=1e-5), name


def test_each_rank_says_what_it_holds(runs):
    one, two, second = (run.events("start")[0] for run in runs)
    assert (one["ranks"], two["ranks"], second["ranks"]) == (1, 2, 2)
    assert two["moments"]["device"] == second["moments"]["device"] < 0.55 * one["moments"]["device"]
