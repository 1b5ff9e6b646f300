"""The compiled step: AdamW against CPU torch, overflow, scale, clipping, recompute."""

from dataclasses import replace

import mindspore as ms
import numpy as np
import pytest
import torch
from step_runs import CONFIG, TRAIN, batch_of, difference, fresh, run

from workbench.errors import DataError, SettingError
from workbench.model.transformer import Transformer
from workbench.train.losses import joint_loss, target_counts
from workbench.train.micro_batches import INPUTS
from workbench.train.optimizing import decays
from workbench.train.scaling import at_floor
from workbench.train.schedule import learning_rate_at
from workbench.train.state import TrainState
from workbench.train.step import TrainStep


def test_nine_steps_equal_torch_adamw_on_the_same_gradients():
    """Gradients come from an uncompiled model that follows torch's weights; everything after is torch's."""
    ours, history, _ = run(steps=9)
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
    for i in range(9):
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
    worst = max(float(np.abs(ours[0][n] - w.detach().numpy()).max()) for n, w in weights.items())
    assert worst < 2e-5


@pytest.mark.parametrize(("precision", "scale"), [("float32", 2.0**125), ("float16", 2.0**60)])
def test_an_overflow_leaves_weights_moments_and_counters_bit_identical(precision, scale):
    train = replace(TRAIN, precision=precision, loss_scale_window=1000, max_loss_scale=2.0**126)
    state, step = fresh(train)
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
    arrays, history, state = run(train, steps=20, rate=1e-3)
    overflows = [m["overflow"] for m in history]
    assert sum(overflows) == state.numbers()["overflows"] and overflows[-1] == 0
    assert overflows[0] == 1 and not any(overflows[10:]), "once the scale fits it goes on fitting"
    assert all(np.isfinite(a).all() for part in arrays for a in part.values())


def test_the_update_is_the_same_at_scale_1_and_65536_growth_step_included():
    train = replace(TRAIN, loss_scale_window=2)
    states = []
    for scale in (1.0, 65536.0):
        state, step = fresh(train)
        weights, optimizer = state.arrays()
        optimizer["scalars"][1] = scale
        state.load(weights, optimizer)
        scales = [step(state, batch_of(i))[1]["loss_scale"] for i in range(4)]
        assert scales == [scale, scale, 2 * scale, 2 * scale]
        states.append(state.arrays()[0])
    for name in states[0]:
        assert states[0][name].tobytes() == states[1][name].tobytes(), name


def test_a_checkpoint_in_the_middle_of_a_growth_interval_continues_the_same():
    """Scale, good steps and used-up patience are in the state: two overflows, then growth after five good steps."""
    train = replace(TRAIN, init_loss_scale=1024.0, loss_scale_window=5, loss_scale_hysteresis=2)
    batches = [batch_of(i) | {"loss_factor": np.inf if i in (0, 4) else 1.0} for i in range(12)]

    def history(state, step, batches):
        return [step(state, batch)[1] for batch in batches]

    state, step = fresh(train)
    whole = history(state, step, batches)
    assert [m["loss_scale"] for m in whole] == [1024] * 5 + [512] * 5 + [1024] * 2
    model = Transformer(CONFIG, seed=9)
    other, other_step = TrainState.fresh(model, train), TrainStep(model, train)
    for stop in (3, 7):  # patience 1 of 2 left; patience used up and 2 of 5 good steps
        state, step = fresh(train)
        history(state, step, batches[:stop])
        other.load(*state.arrays())
        np.testing.assert_equal(history(other, other_step, batches[stop:]), whole[stop:])  # NaN equals NaN


def test_a_hundred_overflows_in_a_row_stop_at_the_floor_and_training_goes_on():
    train = TRAIN
    state, step = fresh(train)
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
    _, history, _ = run(steps=1)
    _, clipped, state = run(replace(TRAIN, max_grad_norm=0.01), steps=1)
    assert history[0]["grad_norm"] == pytest.approx(clipped[0]["grad_norm"], rel=1e-6)
    assert history[0]["grad_norm"] > 0.5 and history[0]["loss_scale"] == 65536
    first = [m for name, m in state.optimizer.moments().items() if name.startswith("moment1.")]
    applied = np.sqrt(sum(np.square(m).sum() for m in first)) / (1 - TRAIN.adam_beta1)
    assert applied == pytest.approx(0.01, rel=1e-4)


def test_recompute_changes_neither_losses_nor_weights():
    plain_arrays, plain, _ = run(steps=4)
    arrays, history, _ = run(replace(TRAIN, recompute="block"), steps=4)
    for a, b in zip(plain, history):
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-6)
    assert difference(plain_arrays, arrays) < 1e-6


def test_the_state_goes_out_and_comes_back():
    arrays, _, _ = run(steps=2)
    other = TrainState.fresh(Transformer(CONFIG, seed=9), TRAIN)
    other.load(*arrays)
    for a, b in zip(arrays, other.arrays()):
        assert a.keys() == b.keys() and all(np.array_equal(a[n], b[n]) for n in a)


def test_what_the_step_would_misread_is_refused_before_it():
    (state, step), batch = fresh(), batch_of(0)
    with pytest.raises(DataError, match=r"layer_factors has shape \(3,\), expected \(1,\)"):
        step(state, batch | {"layer_factors": np.ones(3)}, 1e-3)
    with pytest.raises(SettingError, match="made of another model"):
        step(TrainState.fresh(Transformer(CONFIG, seed=0), TRAIN), batch)
    for policy in ("dynamic", lambda *_: (1.0, 2.0)):
        with pytest.raises(SettingError, match="five numbers"):
            TrainStep(Transformer(CONFIG, seed=0), TRAIN, policy)
    with pytest.raises(DataError, match="no layer dropout"):
        step(state, batch | {"layer_factors": np.zeros(1)}, 1e-3)
    batch["input_ids"][0, 0] = 64
    with pytest.raises(DataError, match="input_ids holds 64"):
        step(state, batch, 1e-3)
