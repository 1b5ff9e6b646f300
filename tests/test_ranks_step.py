"""Two ranks under msrun: one rank's training with the double batch, and the same bits on both, overflow included."""

import json
from pathlib import Path

import numpy as np
import pytest
from ranks_step import ARMS, OVERFLOW_AT, TRAIN, batch_of, train

from workbench.device import use_device
from workbench.launching import launch

TESTS = Path(__file__).parent
FLOAT32 = [name for name in ARMS if name != "float16"]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """(folder, what each of two ranks told), from one launch."""
    out = tmp_path_factory.mktemp("ranks")
    launch(
        str(TESTS / "ranks_step.py"), [str(out)], workers=2, timeout=900, environment={"PYTHONPATH": str(TESTS.parent)}
    )
    return out, [json.loads((out / f"told-{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]


@pytest.fixture(scope="module")
def one():
    """(weights, metrics of each step) of a single rank that has all rows."""
    use_device("CPU")
    state, _, history = train(TRAIN)
    return state.arrays()[0], history


@pytest.mark.parametrize("arm", FLOAT32)
def test_two_ranks_equal_one_with_the_double_batch_over_fifty_steps(two, one, arm):
    folder, told = two
    weights, history = one
    theirs = np.load(folder / f"{arm}-0.npz")
    assert set(theirs) == set(weights) and len(history) == 50
    for name in weights:
        assert np.abs(theirs[name] - weights[name]).max() < 1e-6, name
    for ours, alone in zip(told[0][arm]["history"], history):
        assert ours["tokens"] == alone["tokens"], "tokens are those of all ranks"
        for name in ("loss", "lm_loss", "instruction_loss", "fact_loss", "grad_norm"):
            assert ours[name] == pytest.approx(alone[name], abs=2e-6, rel=1e-6), name


def test_the_ranks_had_unequal_numbers_of_targets():
    counts = [(batch_of(i)["labels"] != -100).sum(1).reshape(2, 2).sum(1) for i in range(50)]
    assert all(first > second for first, second in counts[:5]) and np.sum(counts, 0)[0] > 2 * np.sum(counts, 0)[1]


@pytest.mark.parametrize("arm", ARMS)
def test_weights_moments_scale_and_metrics_are_the_same_bits_on_both_ranks(two, arm):
    _, (first, second) = two
    assert first[arm]["digest"] == second[arm]["digest"]
    assert first[arm]["history"] == second[arm]["history"]


@pytest.mark.parametrize("arm", ARMS)
def test_an_overflow_on_one_rank_is_skipped_by_both(two, arm):
    _, (first, second) = two
    assert [s["metrics"]["overflow"] for s in first[arm]["after"]] == [int(i == OVERFLOW_AT) for i in range(4)]
    for i, (here, there) in enumerate(zip(first[arm]["after"], second[arm]["after"])):
        assert here["unchanged"] == there["unchanged"] == (i == OVERFLOW_AT)
        assert here["digest"] == there["digest"]
    scales = [s["metrics"]["loss_scale"] for s in first[arm]["after"]]
    assert scales == [scales[0]] * 2 + [scales[0] / 2] * 2


@pytest.mark.parametrize("arm", ARMS)
def test_the_engine_runs_one_collective_a_bucket(two, arm):
    for told in two[1]:
        planned, run = told["graphs"][arm]
        assert planned == run and planned > 2


def test_half_precision_ends_near_float32(two, one):
    folder, _ = two
    theirs = np.load(folder / "float16-1.npz")
    assert max(np.abs(theirs[n] - one[0][n]).max() for n in one[0]) < 0.01
