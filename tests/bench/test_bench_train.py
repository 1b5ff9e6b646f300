"""The training benchmark: all arms compute the same steps, the peaks are told, the wait for data is measured."""

import json

import pytest

from tests.bench import model_worker, rounds, train
from workbench.errors import DataError
from workbench.model.native import native_kernels

JOB = {"shape": rounds.TINY, "rows": 2, "length": 16, "threads": 1, "steps": 3}


def test_arms_agree_over_ten_steps_and_tell_their_allocators_peak():
    chosen = train.arms(compile_too=False, native=native_kernels()[0] is not None)
    told = rounds.run(train.WORKER, chosen, JOB, 1, 7)
    assert rounds.largest_difference(told, train.EARLY_TOLERANCE) < 1e-5
    losses = [arm["losses"] + arm["rounds"][0]["losses"] for arm in told.values()]
    assert len(losses) == len(chosen) and all(len(values) == 10 and values[-1] < values[0] for values in losses)
    assert all(0 <= arm["peak_allocator_mb"] < 100 for arm in told.values())
    held = 4 * sum(w.nbytes for w in model_worker.weights(rounds.TINY).values()) / 2**20  # gradients, moments too
    assert held < told["torch eager"]["peak_allocator_mb"] < 10 * held


def test_the_wait_for_data_is_seconds_of_real_steps():
    told = train.data_wait(JOB)
    assert len(told["wait_seconds"]) == len(told["compute_seconds"]) == JOB["steps"]
    assert 0 < told["share"] < 1


def test_only_the_first_steps_are_held_to_the_narrow_bound():
    told = {name: {"losses": [1.0], "rounds": [{"losses": [1.0, last]}]} for name, last in (("a", 1.0), ("b", 1.01))}
    assert rounds.largest_difference(told, 1e-5, 2) == 0
    with pytest.raises(DataError, match="more than 0.001"):
        rounds.largest_difference(told, train.TOLERANCE)


def test_a_left_out_arm_has_a_reason(monkeypatch):
    monkeypatch.setenv("CXX", "nowhere-to-be-found")
    given = rounds.arguments("x", "", ["--out", "x.json"])
    assert "C++ compiler" in json.dumps(rounds.without_compile(given))
