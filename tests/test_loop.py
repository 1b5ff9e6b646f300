"""A whole small run: what it leaves in its folder, and that what it saved is what it trained."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tiny_model import TINY, tiny_run

from workbench.config import RunConfig
from workbench.errors import DataError, SettingError
from workbench.evaluate.perplexity import PerplexityMeter
from workbench.run_folder import RunFolder
from workbench.train.checkpoint import list_checkpoints
from workbench.train.loop import load_model, pretrain

STEPS = 12


@pytest.fixture(scope="module")
def config(tmp_path_factory, samples):
    settings = dict(steps=STEPS, batch_size=4, warmup_steps=2, eval_steps=5, save_steps=4, save_total_limit=2)
    return tiny_run(tmp_path_factory.mktemp("texts"), samples, **settings)


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    run = RunFolder.at(tmp_path_factory.mktemp("runs") / "一")
    return run, pretrain(config, run)


def test_every_step_has_one_line_and_the_loss_falls(finished):
    run, _ = finished
    rows = run.metrics()
    assert [r["step"] for r in rows] == list(range(1, STEPS + 1))
    assert [r["position"] for r in rows] == [4 * s for s in range(1, STEPS + 1)]
    assert rows[0]["lm_loss"] == pytest.approx(math.log(2048), rel=0.02) and rows[-1]["lm_loss"] < rows[0]["lm_loss"]
    assert rows[0]["step_seconds"] is None and all(r["step_seconds"] > 0 for r in rows[1:])


def test_events_tell_the_course_of_the_run(finished):
    run, trained = finished
    assert [e["step"] for e in run.events("evaluation")] == [0, 5, 10, 12] == [s for s, _ in trained.perplexities]
    assert [e["step"] for e in run.events("checkpoint")] == [4, 8, 12]
    assert run.events()[0]["kind"] == "start" and run.events()[-1]["kind"] == "finish"
    assert RunConfig.from_dict(run.config()) == trained.config


def test_the_newest_checkpoint_is_the_trained_model(finished):
    run, trained = finished
    assert [p.name for p in list_checkpoints(run)] == [
        "step_000008",
        "step_000012",
    ] and trained.checkpoint.name == "step_000012"
    model, checkpoint = load_model(run)
    assert trained.corpus.resume(checkpoint.state["data"]) == 4 * STEPS
    for mine, theirs in zip(trained.model.trainable_params(), model.trainable_params(), strict=True):
        assert np.array_equal(mine.asnumpy(), theirs.asnumpy()), mine.name
    again = PerplexityMeter(model, trained.corpus.validation, max_rows=128).measure()
    assert again.loss == pytest.approx(trained.perplexities[-1][1].loss, abs=1e-6)


def test_what_cannot_work_is_refused_before_anything_is_written(config, tmp_path):
    run = RunFolder.at(tmp_path / "run")
    with pytest.raises(SettingError, match="max_position_embeddings=16 is below sequence_length=32"):
        pretrain(replace(config, model=replace(TINY, max_position_embeddings=16)), run)
    with pytest.raises(DataError, match="no usable checkpoint"):
        load_model(run)
    assert not (run.path / "config.json").exists()


def test_a_shorter_run_in_the_same_folder_is_not_mistaken_for_the_longer_one_before(config, tmp_path):
    run = RunFolder.at(tmp_path / "again")
    for steps in (3, 2):
        short = replace(config, train=replace(config.train, steps=steps, save_steps=1))
        trained = pretrain(short, run)
    _, checkpoint = load_model(run)
    assert checkpoint.state["step"] == 2 and checkpoint.path == trained.checkpoint
    assert sorted(p.name for p in (run.path / "earlier").glob("*-checkpoints/*")) == ["step_000002", "step_000003"]
