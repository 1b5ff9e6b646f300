"""One step over micro-batches is the step over the whole batch, and nothing compiles twice."""

import gc
from dataclasses import replace

import numpy as np
import pytest
from mindspore.graph.api import ms_compile_cache
from step_runs import CONFIG, batch_of, difference, fresh, run, with_parts

from workbench.errors import DataError

ROWS, LENGTH = 4, 16


def uneven(seed, rows=ROWS):
    """Rows with 3, 16, 1 and 0 targets: an average of averages would be another loss."""
    batch = batch_of(seed, rows, LENGTH)
    rng = np.random.default_rng(seed)
    batch["labels"] = rng.integers(0, 64, (rows, LENGTH)).astype(np.int32)
    for row, kept in enumerate([3, 16, 1, 0][:rows]):
        batch["labels"][row, kept:] = -100
    batch["instruction_labels"][1:] = -100
    return batch


def trained(parts, steps=3, config=CONFIG, batches=None, **changed):
    return run(with_parts(parts, **changed), batches or [uneven(i) for i in range(steps)], config=config)


@pytest.mark.parametrize("parts", [2, 4])
def test_parts_weigh_every_token_the_same(parts):
    whole, expected, _ = trained(1)
    state, history, _ = trained(parts)
    for a, b in zip(expected, history):
        for name in ("loss", "lm_loss", "instruction_loss", "fact_loss", "grad_norm"):
            assert a[name] == pytest.approx(b[name], abs=2e-6), name
        assert a["tokens"] == b["tokens"] == 20
    assert difference(whole, state) < 1e-6


def test_experts_count_every_token_once():
    """Of the two parts one is mostly padding; its router's losses count by its tokens."""
    sparse, batch = replace(CONFIG, num_experts=4, moe_intermediate_size=16), uneven(0)
    batch["segment_ids"][2:, 4:] = 0
    batch["instruction_labels"][2:], batch["fact_targets"][2:] = -100, -1
    _, expected, _ = trained(1, config=sparse, batches=[batch])
    _, history, _ = trained(2, config=sparse, batches=[batch])
    assert np.allclose(expected[0]["expert_load"], history[0]["expert_load"], atol=1e-4)
    assert history[0]["z_loss"] == pytest.approx(expected[0]["z_loss"], rel=1e-4)
    assert history[0]["lm_loss"] == pytest.approx(expected[0]["lm_loss"], abs=2e-6)


@pytest.mark.parametrize("parts", [1, 2])
def test_an_overflow_in_one_part_skips_the_whole_step_and_leaves_nothing_behind(parts):
    constant = {"warmup_steps": 0, "lr_scheduler_type": "constant"}
    plain, _, _ = trained(parts, batches=[uneven(0), uneven(2)], **constant)
    bad = uneven(1) | {"loss_factor": np.inf}
    arrays, history, state = trained(parts, batches=[uneven(0), bad, uneven(2)], **constant)
    assert [m["overflow"] for m in history] == [0, 1, 0] and state.numbers()["overflows"] == 1
    assert difference(arrays, plain) == 0.0


def test_an_interrupted_step_leaves_nothing_to_the_next():
    state, step = fresh(with_parts(2), shape=(ROWS, LENGTH))
    step(state, uneven(0))
    before, run = state.arrays(), step._run

    def stopped(cut, shared, rate, own):
        def parts():
            yield cut[0]
            raise KeyboardInterrupt

        return run(parts(), shared, rate, own)

    step._run = stopped
    with pytest.raises(KeyboardInterrupt):
        step(state, uneven(1))
    step._run = run
    told = step(state, uneven(2))[1]
    after = state.arrays()
    state.load(*before)
    assert step(state, uneven(2))[1] == told
    for once, again in zip(after, state.arrays()):
        assert all(once[name].tobytes() == again[name].tobytes() for name in once)


@pytest.mark.parametrize(("parts", "functions"), [(1, 1), (2, 3)])
def test_each_function_is_compiled_once_whatever_the_batch_the_scale_and_the_rate(parts, functions):
    batches = [uneven(0), {n: v[:2, :7] for n, v in uneven(1).items()}, uneven(2) | {"loss_factor": np.inf}, uneven(3)]
    gc.collect()  # functions of other tests, which would otherwise leave the cache meanwhile
    before = len(ms_compile_cache)
    state, history, _ = trained(parts, batches=batches * 2, loss_scale_window=1)
    assert len(ms_compile_cache) - before == functions
    assert len({m["loss_scale"] for m in history}) > 2 and len({m["learning_rate"] for m in history}) > 2


def test_a_smaller_batch_is_filled_up_and_a_larger_one_refused():
    short = {name: values[:3, :9] for name, values in uneven(1).items()}
    alone, _, _ = trained(1, batches=[uneven(0)])
    arrays, history, state = trained(1, batches=[uneven(0), short])
    other, once = fresh(shape=(3, 9))  # compiled for the short one
    other.load(*alone)
    _, metrics = once(other, short)
    assert metrics["loss"] == pytest.approx(history[1]["loss"], abs=1e-6)
    assert metrics["tokens"] == history[1]["tokens"] == 13
    assert difference(arrays, other.arrays()) < 1e-6
    state, step = fresh(shape=(ROWS, LENGTH))
    with pytest.raises(DataError, match="5 x 16 positions does not fit"):
        step(state, uneven(3, rows=5))
