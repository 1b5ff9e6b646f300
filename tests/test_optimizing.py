"""AdamW beside CPU torch's on the same gradients, and the parameters that decay."""

import mindspore as ms
import numpy as np
import pytest
import torch

from workbench.config import TrainConfig
from workbench.errors import DataError
from workbench.train.optimizing import AdamW, decays

SHAPES = {"layers.0.up_proj.weight": (24, 16), "norm.weight": (16,), "task_embedding.weight": (4, 16)}
CONFIG = TrainConfig(weight_decay=0.1, adam_beta1=0.9, adam_beta2=0.95, adam_epsilon=1e-8)


def start(seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in SHAPES.items()}


def ours(config, weights):
    optimizer = AdamW(ms.ParameterTuple([ms.Parameter(ms.Tensor(v), name=n) for n, v in weights.items()]), config)

    def update(gradients, factor, rate, updates, apply):
        return optimizer(gradients, factor, rate, updates, apply)

    return optimizer, update


def gradients_of(seed, steps=50):
    rng = np.random.default_rng(seed)
    # Sizes over six decades, and now and then exact zeros, as rare tokens have them.
    for _ in range(steps):
        size = 10.0 ** rng.uniform(-6, 0)
        yield [(rng.normal(0, size, shape) * (rng.random(shape) < 0.8)).astype(np.float32) for shape in SHAPES.values()]


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3])
def test_fifty_steps_are_those_of_torch(epsilon):
    config = TrainConfig(weight_decay=0.1, adam_beta1=0.9, adam_beta2=0.95, adam_epsilon=epsilon)
    optimizer, update = ours(config, start())
    weights = {name: torch.nn.Parameter(torch.from_numpy(v.copy())) for name, v in start().items()}
    groups = [
        {"params": [w for n, w in weights.items() if decays(n, w.ndim) == flag], "weight_decay": 0.1 if flag else 0.0}
        for flag in (True, False)
    ]
    theirs = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=epsilon)
    scale, worst = 1024.0, 0.0
    for step, gradients in enumerate(gradients_of(1)):
        rate = 1e-3 * (step + 1) / 50
        tensors = tuple(ms.Tensor(g * np.float32(scale)) for g in gradients)
        update(
            tensors,
            ms.Tensor(1 / scale, ms.float32),
            ms.Tensor(rate, ms.float32),
            ms.Tensor(float(step)),
            ms.Tensor(1.0),
        )
        for weight, gradient in zip(weights.values(), gradients):
            weight.grad = torch.from_numpy(gradient)
        for group in theirs.param_groups:
            group["lr"] = rate
        theirs.step()
        for parameter, weight in zip(optimizer.weights, weights.values()):
            worst = max(worst, float(np.abs(parameter.asnumpy() - weight.detach().numpy()).max()))
    assert worst < 1e-6
    moved = np.abs(optimizer.weights[0].asnumpy() - start()["layers.0.up_proj.weight"]).max()
    assert moved > 0.01, "nothing was compared"
    for name, weight in weights.items():
        for ours_name, key in (("moment1", "exp_avg"), ("moment2", "exp_avg_sq")):
            expected = theirs.state[weight][key].numpy()
            assert np.allclose(optimizer.moments()[f"{ours_name}.{name}"], expected, rtol=1e-5, atol=1e-9)


def test_a_step_that_is_not_applied_changes_no_bit_whatever_the_gradients():
    optimizer, update = ours(CONFIG, start())
    rate, one = ms.Tensor(1e-3, ms.float32), ms.Tensor(1.0)
    update(tuple(map(ms.Tensor, next(gradients_of(2)))), one, rate, ms.Tensor(0.0), one)
    held = (*optimizer.weights, *optimizer.moment1, *optimizer.moment2)
    before = [p.asnumpy().tobytes() for p in held]
    for bad in (np.inf, np.nan, -np.inf):
        broken = tuple(ms.Tensor(np.full(shape, bad, np.float32)) for shape in SHAPES.values())
        update(broken, ms.Tensor(np.nan, ms.float32), rate, ms.Tensor(1.0), ms.Tensor(0.0))
        assert [p.asnumpy().tobytes() for p in held] == before


def test_moments_go_out_and_come_back_and_wrong_ones_are_named():
    optimizer, update = ours(CONFIG, start())
    one = ms.Tensor(1.0)
    update(tuple(map(ms.Tensor, next(gradients_of(3)))), one, ms.Tensor(1e-3, ms.float32), ms.Tensor(0.0), one)
    other, _ = ours(CONFIG, start())
    other.load(optimizer.moments())
    assert all(np.array_equal(v, other.moments()[n]) for n, v in optimizer.moments().items())
    assert optimizer.resident_bytes() == {"device": 2 * 4 * (24 * 16 + 16 + 64), "host": 0, "disk": 0}
    with pytest.raises(DataError, match="missing moment2.task_embedding.weight"):
        other.load({n: v for n, v in optimizer.moments().items() if n != "moment2.task_embedding.weight"})


def test_only_matrices_decay():
    assert decays("model.layers.0.mlp.up_proj.weight", 2)
    assert not decays("model.norm.weight", 1) and not decays("task_embedding.weight", 2)
