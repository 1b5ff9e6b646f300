"""Experts inside the model and the step: losses, metrics, recomputing, decoding, and a mask built once."""

from dataclasses import replace

import numpy as np
import pytest
from tiny_model import TINY

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms

from workbench.config import TrainConfig
from workbench.data.sources import random_batch
from workbench.model import transformer
from workbench.model.generate import generate
from workbench.model.transformer import Transformer
from workbench.train.losses import joint_loss, target_counts
from workbench.train.micro_batches import INPUTS
from workbench.train.state import TrainState
from workbench.train.step import TrainStep

SPARSE = replace(TINY, num_hidden_layers=3, num_experts=4, mlp_only_layers=(1,), initializer_range=0.2)


def tensors_of(batch):
    return tuple(ms.Tensor(np.ascontiguousarray(batch[name])) for name in INPUTS)


@pytest.fixture(scope="module")
def batch():
    return random_batch(np.random.default_rng(0), 3, 10, SPARSE.vocab_size)


def test_the_total_is_its_parts_with_the_models_coefficients(batch):
    config = replace(SPARSE, router_aux_loss_coef=0.5, router_z_loss_coef=0.25)
    model, counts = Transformer(config, seed=1), ms.Tensor(target_counts(batch))
    total, parts = (out.asnumpy() for out in joint_loss(model, (1.0, 0.3, 0.1), tensors_of(batch), counts))
    layers = parts[3:].reshape(2, 4 + 3)
    expected = parts[0] + 0.3 * parts[1] + 0.1 * parts[2] + 0.5 * layers[:, 4].mean() + 0.25 * layers[:, 5].mean()
    assert total == pytest.approx(expected, rel=1e-6)
    assert (layers[:, :4].sum(1) == 3 * 10 * 2).all()  # two experts a token


@pytest.mark.parametrize("recompute", ["none", "block"])
def test_a_step_tells_the_load_of_each_sparse_layer(batch, recompute):
    train = TrainConfig(recompute=recompute, init_loss_scale=1.0)
    model = Transformer(SPARSE, seed=1)
    before = {p.name: p.asnumpy().copy() for p in model.trainable_params()}
    state, step = TrainState.fresh(model, train), TrainStep(model, train)
    _, first = step(state, batch, 1e-2)
    _, second = step(state, batch, 1e-2)
    load = np.array(first["expert_load"])
    assert load.shape == (2, 4) and load.sum(1) == pytest.approx([1, 1], abs=1e-3)
    assert first["aux_loss"] > 0 and first["z_loss"] > 0 and first["dropped_assignments"] == 0
    assert second["lm_loss"] < first["lm_loss"]
    for parameter in model.trainable_params():
        if ".mlp." in parameter.name:
            assert (parameter.asnumpy() != before[parameter.name]).any(), parameter.name


def test_a_capacity_drops_in_training_and_the_metrics_say_so(batch):
    model = Transformer(replace(SPARSE, expert_capacity_factor=0.5), seed=1)
    train = TrainConfig()
    _, metrics = TrainStep(model, train)(TrainState.fresh(model, train), batch, 1e-3)
    assert 0 < metrics["dropped_assignments"] < 2 * 3 * 10 * 2


@pytest.mark.parametrize("factor", [0.0, 0.5])
def test_cached_text_is_uncached_text_and_depends_on_no_neighbour(factor):
    """Also with a capacity: decoding serves every token."""
    model = Transformer(replace(SPARSE, expert_capacity_factor=factor), seed=1)
    dropless = Transformer(SPARSE, seed=1)
    prompts = [[5, 6, 7], [11], [9, 1, 2, 3, 4, 5, 6, 7]]
    expected = []
    for prompt in prompts:
        row = list(prompt)
        for _ in range(4):
            ids = np.array([row], np.int32)
            arrays = (ids, np.arange(len(row), dtype=np.int32)[None], np.ones_like(ids), np.zeros_like(ids))
            hidden = dropless(*(ms.Tensor(array) for array in arrays))
            row.append(int(dropless.logits(hidden).asnumpy()[0, -1].argmax()))
        expected.append(row[len(prompt) :])
    assert generate(model, prompts, 4) == expected


def test_a_dense_mask_is_built_once_a_pass_whatever_the_number_of_layers(monkeypatch, batch):
    calls = []

    def counted(*arguments):
        calls.append(arguments[-1])
        return additive_mask(*arguments)

    additive_mask = transformer.additive_mask
    monkeypatch.setattr(transformer, "additive_mask", counted)
    for layers, windows, expected in ((1, {}, 1), (5, {}, 1), (5, dict(sliding_window=3, max_window_layers=2), 2)):
        calls.clear()
        model = Transformer(replace(TINY, num_hidden_layers=layers, **windows), seed=0)
        for block in model.layers:
            block.use_plain_gradients()
        model(*tensors_of(batch)[:4])
        assert len(calls) == expected


def test_a_sliding_layer_sees_its_window_and_no_more():
    """With one windowed layer, a token further back than the window moves nothing; through two layers it does."""
    ids = np.arange(12, dtype=np.int32)[None]
    fixed = (np.arange(12, dtype=np.int32)[None], np.ones_like(ids), np.zeros_like(ids))
    other = ids.copy()
    other[0, 2] = 40
    for layers, reach in ((1, 3), (2, 5)):  # window 3: two positions back a layer
        model = Transformer(replace(TINY, num_hidden_layers=layers, sliding_window=3, initializer_range=0.3), seed=0)
        one, two = (model(*(ms.Tensor(a) for a in (x, *fixed))).asnumpy()[0] for x in (ids, other))
        moved = np.flatnonzero(np.abs(one - two).max(-1))
        assert moved.tolist() == list(range(2, 2 + reach))
