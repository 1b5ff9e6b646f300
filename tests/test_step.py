"""The compiled step: AdamW against CPU torch, overflow, scale, clipping, recompute."""

from dataclasses import replace

import mindspore as ms
import numpy as np
import pytest
import torch
from tiny_model import TINY

from workbench.config import TrainConfig
from workbench.errors import DataError
from workbench.model.transformer import Transformer
from workbench.train.losses import joint_loss, target_counts
from workbench.train.micro_batches import INPUTS
from workbench.train.optimizing import decays
from workbench.train.scaling import at_floor
from workbench.train.schedule import learning_rate_at
from workbench.train.state import TrainState
from workbench.train.step import TrainStep

CONFIG = replace(TINY, num_hidden_layers=2)
TRAIN = TrainConfig(steps=20, warmup_steps=3, learning_rate=3e-3, max_grad_norm=0.5, weight_decay=0.1)


def batch_of(seed, rows=2, length=16):
    rng = np.random.default_rng(seed)
    shape = (rows, length)
    return {
        "input_ids": rng.integers(0, 64, shape).astype(np.int32),
        "labels": np.where(rng.random(shape) < 0.8, rng.integers(0, 64, shape), -100).astype(np.int32),
        "segment_ids": np.ones(shape, np.int32),
        "position_ids": np.tile(np.arange(length, dtype=np.int32), (rows, 1)),
        "task_ids": np.full(shape, 2, np.int32),
        "instruction_labels": np.where(np.arange(length) == length - 1, 2, -100) * np.ones((rows, 1), np.int32),
        "fact_targets": np.where(np.arange(length) == length - 1, 1.0, -1.0).astype(np.float32)
        * np.ones((rows, 1), np.float32),
    }


def run(train, steps=3, seed=0, first_batch=0):
    model = Transformer(CONFIG, seed=seed, compute_dtype=train.precision)
    state, step = TrainState.fresh(model, train), TrainStep(model, train)
    history = []
    for i in range(steps):
        state, metrics = step(state, batch_of(first_batch + i), learning_rate_at(i, train))
        history.append(metrics)
    return state, history


def test_twenty_steps_equal_torch_adamw_on_the_same_gradients():
    """Gradients come from an uncompiled model that follows torch's weights; everything after is torch's."""
    state, history = run(TRAIN, steps=20)
    model = Transformer(CONFIG, seed=0)
    names = [p.name for p in model.trainable_params()]
    weights = {p.name: torch.nn.Parameter(torch.from_numpy(p.asnumpy().copy())) for p in model.trainable_params()}
    groups = [
        {"params": [w for n, w in weights.items() if decays(n, w.ndim) == flag], "weight_decay": 0.1 if flag else 0.0}
        for flag in (True, False)
    ]
    optimizer = torch.optim.AdamW(groups, betas=(TRAIN.adam_beta1, TRAIN.adam_beta2), eps=TRAIN.adam_epsilon)
    parameters = ms.ParameterTuple(model.trainable_params())

    def loss(*tensors):
        return joint_loss(model, (1.0, 0.3, 0.1), tensors[:-1], tensors[-1])[0]

    gradient = ms.value_and_grad(loss, None, weights=parameters)
    for i in range(20):
        batch = batch_of(i)
        value, grads = gradient(*(ms.Tensor(batch[n]) for n in INPUTS), ms.Tensor(target_counts(batch)))
        assert float(value.asnumpy()) == pytest.approx(history[i]["loss"], abs=2e-5)
        for name, grad in zip(names, grads):
            weights[name].grad = torch.from_numpy(grad.asnumpy().copy())
        norm = torch.nn.utils.clip_grad_norm_(list(weights.values()), TRAIN.max_grad_norm)
        assert float(norm) == pytest.approx(history[i]["grad_norm"], rel=1e-4)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(i, TRAIN)
        optimizer.step()
        for parameter in parameters:
            parameter.set_data(ms.Tensor(weights[parameter.name].detach().numpy().copy()))
    ours, _ = state.arrays()
    worst = max(float(np.abs(ours[n] - w.detach().numpy()).max()) for n, w in weights.items())
    assert worst < 2e-5


@pytest.mark.parametrize(("precision", "scale"), [("float32", 2.0**125), ("float16", 2.0**60)])
def test_an_overflow_leaves_weights_moments_and_counters_bit_identical(precision, scale):
    train = replace(TRAIN, precision=precision, loss_scale_window=1000, max_loss_scale=2.0**126)
    model = Transformer(CONFIG, seed=0, compute_dtype=precision)
    state, step = TrainState.fresh(model, train), TrainStep(model, train)
    state, first = step(state, batch_of(0), 1e-3)
    assert first["overflow"] == 0
    weights, optimizer = state.arrays()
    optimizer["scalars"][1] = scale
    state.load(weights, optimizer)
    before = state.arrays()
    state, metrics = step(state, batch_of(1), 1e-3)
    after = state.arrays()
    assert metrics["overflow"] == 1
    for old, new in zip(before, after):
        for name in old:
            if name != "scalars":
                assert old[name].tobytes() == new[name].tobytes(), name
    updates, scale, good, overflows = after[1]["scalars"][:4]
    assert (updates, good, overflows) == (1, 0, 1)
    assert scale == before[1]["scalars"][1] / 2
    assert before[1]["scalars"][6] == after[1]["scalars"][6] == 1, "the schedule waits"


def test_training_goes_on_after_overflows_until_the_scale_fits():
    train = replace(TRAIN, precision="float16", init_loss_scale=2.0**24, loss_scale_window=1000)
    model = Transformer(CONFIG, seed=0, compute_dtype="float16")
    state, step = TrainState.fresh(model, train), TrainStep(model, train)
    history = []
    for i in range(20):
        state, metrics = step(state, batch_of(i), 1e-3)
        history.append(metrics)
    overflows = [m["overflow"] for m in history]
    assert sum(overflows) == state.scalars.asnumpy()[3] and overflows[-1] == 0
    assert sorted(overflows, reverse=True) == overflows, "once the scale fits it goes on fitting"
    assert all(np.isfinite(a).all() for part in state.arrays() for a in part.values())


def test_the_update_is_the_same_at_scale_1_and_65536_growth_step_included():
    states = [
        run(replace(TRAIN, init_loss_scale=scale, loss_scale_window=2), steps=4)[0].arrays()[0]
        for scale in (1.0, 65536.0)
    ]
    for name in states[0]:
        assert states[0][name].tobytes() == states[1][name].tobytes(), name


def test_a_checkpoint_in_the_middle_of_a_growth_interval_continues_the_same():
    """Scale, good steps and used-up patience are in the state: two overflows, then growth after five good steps."""
    train = replace(TRAIN, init_loss_scale=1024.0, loss_scale_window=5, loss_scale_hysteresis=2)
    batches = [batch_of(i) | {"loss_factor": np.inf if i in (0, 4) else 1.0} for i in range(12)]

    def history(state, step, batches):
        return [step(state, batch)[1] for batch in batches]

    def fresh(seed):
        model = Transformer(CONFIG, seed)
        return TrainState.fresh(model, train), TrainStep(model, train)

    state, step = fresh(0)
    whole = history(state, step, batches)
    assert [m["loss_scale"] for m in whole] == [1024] * 5 + [512] * 5 + [1024] * 2
    for stop in (3, 7):  # patience 1 of 2 left; patience used up and 2 of 5 good steps
        again, _ = fresh(0)
        again.load(*started(step, state, fresh(0)[0], batches[:stop]))
        other, other_step = fresh(9)
        other.load(*again.arrays())
        np.testing.assert_equal(history(other, other_step, batches[stop:]), whole[stop:])  # NaN equals NaN


def started(step, state, first, batches):
    """The arrays after ``batches`` from the state ``first``, by a step that is compiled for ``state``."""
    state.load(*first.arrays())
    for batch in batches:
        step(state, batch)
    return state.arrays()


def test_a_hundred_overflows_in_a_row_stop_at_the_floor_and_training_goes_on():
    train = replace(TRAIN, loss_scale_window=1000)
    model = Transformer(CONFIG, seed=0)
    state, step = TrainState.fresh(model, train), TrainStep(model, train)
    before = state.arrays()
    history = [step(state, batch_of(0) | {"loss_factor": np.inf})[1] for _ in range(100)]
    assert [at_floor(m, train) for m in history] == [False] * 16 + [True] * 84
    numbers = state.numbers()
    assert numbers["loss_scale"] == 1 and numbers["overflows"] == numbers["overflows_in_row"] == 100
    for name, weight in state.arrays()[0].items():
        assert weight.tobytes() == before[0][name].tobytes(), name
    _, metrics = step(state, batch_of(0))
    assert metrics["overflow"] == 0 and state.numbers()["overflows_in_row"] == 0 and state.numbers()["updates"] == 1


def test_clipping_bounds_the_update_and_sees_unscaled_gradients():
    _, history = run(replace(TRAIN, max_grad_norm=1e9), steps=1)
    state, clipped = run(replace(TRAIN, max_grad_norm=0.01), steps=1)
    assert history[0]["grad_norm"] == pytest.approx(clipped[0]["grad_norm"], rel=1e-6)
    assert history[0]["grad_norm"] > 0.5 and history[0]["loss_scale"] == 65536
    first = [m for name, m in state.optimizer.moments().items() if name.startswith("moment1.")]
    applied = np.sqrt(sum(np.square(m).sum() for m in first)) / (1 - TRAIN.adam_beta1)
    assert applied == pytest.approx(0.01, rel=1e-4)


def test_recompute_changes_neither_losses_nor_weights():
    plain_state, plain = run(TRAIN, steps=4)
    state, history = run(replace(TRAIN, recompute="block"), steps=4)
    for a, b in zip(plain, history):
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-6)
    for name, weight in plain_state.arrays()[0].items():
        assert np.abs(weight - state.arrays()[0][name]).max() < 1e-6, name


def test_the_state_goes_out_and_comes_back():
    state, _ = run(TRAIN, steps=2)
    weights, optimizer = state.arrays()
    fresh = TrainState.fresh(Transformer(CONFIG, seed=9), TRAIN)
    fresh.load(weights, optimizer)
    for a, b in zip((weights, optimizer), fresh.arrays()):
        assert a.keys() == b.keys() and all(np.array_equal(a[n], b[n]) for n in a)


def test_what_the_step_would_misread_is_refused_before_it():
    model = Transformer(CONFIG, seed=0)
    step, state, batch = TrainStep(model, TRAIN), TrainState.fresh(model, TRAIN), batch_of(0)
    with pytest.raises(DataError, match=r"layer_factors has shape \(3,\), expected \(2,\)"):
        step(state, batch | {"layer_factors": np.ones(3)}, 1e-3)
    batch["input_ids"][0, 0] = 64
    with pytest.raises(DataError, match="input_ids holds 64"):
        step(state, batch, 1e-3)
