"""Checkpoints: whole or not there, damage named, the oldest removed."""

import numpy as np
import pytest

from workbench.errors import DataError
from workbench.run_folder import RunFolder
from workbench.train.checkpoint import latest_checkpoint, list_checkpoints, load_checkpoint, save_checkpoint

WEIGHTS = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([-0.0, np.inf], np.float32)}
MOMENTS = {"moment1.a": np.ones(3, np.float32)}


@pytest.fixture
def run(tmp_path):
    run = RunFolder.at(tmp_path / "run")
    for step in (1, 2, 3):
        save_checkpoint(run, step, WEIGHTS, MOMENTS, {"position": 16 * step}, keep=2)
    return run


def test_what_is_saved_is_loaded_to_the_bit(run):
    got = latest_checkpoint(run)
    assert got.state["step"] == 3 and got.state["position"] == 48
    for mine, theirs in ((WEIGHTS, got.weights), (MOMENTS, got.optimizer)):
        assert mine.keys() == theirs.keys()
        assert all(mine[n].tobytes() == theirs[n].tobytes() and mine[n].shape == theirs[n].shape for n in mine)


def test_only_the_newest_are_kept_and_nothing_half_written(run):
    assert [p.name for p in list_checkpoints(run)] == ["step_000002", "step_000003"]
    assert sorted(p.name for p in run.checkpoints.iterdir()) == ["step_000002", "step_000003"]


def test_saving_the_same_step_again_replaces_it(run):
    save_checkpoint(run, 3, {"b": np.zeros(1, np.float32)}, MOMENTS, {}, keep=2)
    assert list(latest_checkpoint(run).weights) == ["b"]


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damage_is_named_and_the_newest_good_one_is_used(run, file, damage):
    path = run.checkpoints / "step_000003" / file
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-1] ^= 1
        path.write_bytes(content)
    elif damage == "truncate":
        path.write_bytes(content[:-3])
    else:
        path.unlink()
    with pytest.raises(DataError, match=f"step_000003: {file} is missing or damaged"):
        load_checkpoint(path.parent)
    assert latest_checkpoint(run).state["step"] == 2
    assert run.events("damaged checkpoint")[0]["path"] == "step_000003"


@pytest.mark.parametrize("content", ["", "{", "{}", "[1]"])
def test_a_broken_state_file_is_named(run, content):
    path = run.checkpoints / "step_000003"
    (path / "state.json").write_text(content)
    with pytest.raises(DataError, match="state.json cannot be read"):
        load_checkpoint(path)


def test_no_checkpoint_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match="run 05_pretrain"):
        latest_checkpoint(RunFolder.at(tmp_path))
