"""The model benchmark's own arithmetic, and both frameworks' workers on the tiny shape."""

import json

import pytest

from tests.bench import model, model_worker, rounds
from workbench.errors import DataError, SettingError

JOB = {"rows": 2, "length": 16, "threads": 1}


def arm(losses, *rounds):
    return {"losses": [losses[0]], "rounds": [{"seconds": s, "losses": [loss]} for s, loss in zip(rounds, losses[1:])]}


def test_ratios_are_of_medians_with_the_spread_of_rounds():
    told = {"ours": arm([1, 1, 1], [1.0, 1.0, 9.0], [2.0]), "torch eager": arm([1, 1, 1], [2.0], [3.0, 3.0, 1.0])}
    by_round = rounds.medians(told)
    assert by_round == {"ours": [1.0, 2.0], "torch eager": [2.0, 3.0]}
    expected = {"of_medians": 1.667, "lowest": 1.5, "median": 1.75, "highest": 2.0}
    assert rounds.ratios(by_round) == {"torch eager": expected}


@pytest.mark.parametrize("other", [1.001, float("nan")])
def test_arms_that_compute_something_else_are_refused(other):
    with pytest.raises(DataError, match="the arms differ"):
        rounds.largest_difference({"ours": arm([1.0, 1.0], [1.0]), "torch eager": arm([1.0, other], [1.0])})


def test_impossible_counts_are_refused():
    with pytest.raises(SettingError, match="--steps 0"):
        rounds.arguments("x", "", ["--out", "x.json", "--steps", "0"])


def test_a_worker_that_dies_is_named(tmp_path):
    (tmp_path / "job.json").write_text(json.dumps({}))
    with pytest.raises(DataError, match="torch eager ended with 1.*shape"):
        rounds.Worker("torch eager", model.WORKER, "eager", {}, tmp_path / "job.json", 1).ask()


def test_weights_are_the_same_in_every_process_and_named_as_transformers_does():
    from transformers import LlamaConfig, LlamaForCausalLM

    given = model_worker.weights(rounds.TINY)
    names = {name: tuple(p.shape) for name, p in LlamaForCausalLM(LlamaConfig(**rounds.TINY)).named_parameters()}
    assert {name: values.shape for name, values in given.items()} == names
    assert (given["lm_head.weight"] == model_worker.weights(rounds.TINY)["lm_head.weight"]).all()


def test_losses_of_ours_and_of_torch_agree(tmp_path):
    told = rounds.run(model.WORKER, model.arms(switch=False, compile_too=False), {"shape": rounds.TINY} | JOB, 1, 1)
    assert rounds.largest_difference(told) < 1e-5
    assert "peak_allocator_mb" in told["ours"]
