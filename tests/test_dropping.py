"""dropping.py: how often, the same for any split over ranks, and that evaluation drops nothing."""

from dataclasses import replace

import numpy as np

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms
import pytest
from mindspore import ops

from workbench.config import ModelConfig
from workbench.data.sources import random_batch
from workbench.model.transformer import Transformer
from workbench.train.dropping import drop, layer_factors
from workbench.train.losses import joint_loss, target_counts
from workbench.train.micro_batches import INPUTS
from tests.tiny_model import TINY

FOUR = replace(TINY, num_hidden_layers=4, layer_dropout=0.25, initializer_range=0.3)


def packed_batch(rows=6, length=12):
    batch = random_batch(np.random.default_rng(0), rows, length, TINY.vocab_size)
    segments = np.tile(np.repeat([1, 2, 3, 0], 3), (rows, 1)).astype(np.int32)
    return {**batch, "segment_ids": segments, "task_ids": np.where(segments > 0, segments + 1, 0).astype(np.int32)}


def test_nothing_is_dropped_unless_asked():
    batch = packed_batch()
    same = drop(batch, TINY, seed=1, position=0)
    assert same.keys() == batch.keys() and all(same[name] is batch[name] for name in batch)


def test_layers_are_left_out_as_often_as_asked_and_the_mean_is_one():
    factors = np.stack([layer_factors(FOUR, seed=3, position=p) for p in range(4000)])
    assert set(np.unique(factors)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((factors == 0).mean() - 0.25) < 0.011  # 3 standard errors of 16,000 draws
    pairs = np.corrcoef((factors == 0).T)
    assert np.abs(pairs - np.eye(4)).max() < 0.06  # layers independently
    np.testing.assert_array_equal(layer_factors(FOUR, 3, 7), factors[7])
    assert (layer_factors(FOUR, 4, 7) != factors[7]).any() or (layer_factors(FOUR, 4, 8) != factors[8]).any()


def test_task_ids_are_dropped_a_document_at_a_time():
    config = replace(TINY, task_dropout=0.3)
    batch, dropped, documents = packed_batch(), 0, 0
    for position in range(0, 3000, 6):
        ids = drop(batch, config, seed=5, position=position)["task_ids"]
        for row, segments in zip(ids, batch["segment_ids"]):
            for segment in (1, 2, 3):
                (kept,) = set(row[segments == segment].tolist())  # one value: whole or not at all
                assert kept in (0, segment + 1)
                dropped, documents = dropped + (kept == 0), documents + 1
            assert (row[segments == 0] == 0).all()
    assert abs(dropped / documents - 0.3) < 0.015  # 3 standard errors of 9,000 documents


def test_two_ranks_drop_what_one_does():
    config = replace(TINY, task_dropout=0.5)
    batch = packed_batch()
    whole = drop(batch, config, seed=5, position=60)["task_ids"]
    halves = [
        drop({name: array[3 * rank : 3 * rank + 3] for name, array in batch.items()}, config, 5, 60 + 3 * rank)
        for rank in (0, 1)
    ]
    np.testing.assert_array_equal(np.concatenate([half["task_ids"] for half in halves]), whole)
    assert (whole != batch["task_ids"]).any()


def losses_of(model, batch, factors):
    tensors = tuple(ms.Tensor(np.ascontiguousarray(batch[name])) for name in INPUTS)
    counts = ms.Tensor(target_counts(batch))

    def loss(factors):
        return joint_loss(model, (1.0, 0.3, 0.1), tensors, counts, factors)[0]

    function = ms.value_and_grad(loss, None, model.trainable_params())
    value, gradients = function(ms.Tensor(np.asarray(factors, np.float32)))
    return [value.asnumpy(), *(g.asnumpy() for g in gradients)]


def test_a_dropped_layer_is_as_if_it_were_not_there():
    model, batch = Transformer(FOUR, seed=1), packed_batch()
    names = [p.name for p in model.trainable_params()]
    got = losses_of(model, batch, [1, 0, 1, 0])
    for name, gradient in zip(names, got[1:]):
        if name.startswith(("model.layers.1.", "model.layers.3.")):
            assert (gradient == 0).all(), name
    two = Transformer(replace(FOUR, num_hidden_layers=2), seed=1)
    for parameter in two.get_parameters():
        source = parameter.name.replace("layers.1.", "layers.2.")
        value = next(p for p in model.get_parameters() if p.name == source)
        ops.assign(parameter, value)
    np.testing.assert_allclose(got[0], losses_of(two, batch, [1, 1])[0], atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_recomputed_layers_drop_the_same_ones(compiled):
    """Loss and gradients bit for bit those without recomputing: the factors are an input, nothing is drawn again."""
    results, batch = [], packed_batch(rows=2)
    tensors = tuple(ms.Tensor(np.ascontiguousarray(batch[name])) for name in INPUTS)
    counts, factors = ms.Tensor(target_counts(batch)), ms.Tensor(layer_factors(FOUR, 3, 4))
    assert 0 < np.count_nonzero(factors.asnumpy()) < 4
    for recomputed in (False, True):
        model = Transformer(FOUR, seed=1)
        for block in model.layers:
            block.recompute() if recomputed else block.use_plain_gradients()

        def loss(a, b, c, d, e, f, g, factors):
            return joint_loss(model, (1.0, 0.3, 0.1), (a, b, c, d, e, f, g), counts, factors)[0]

        function = ms.value_and_grad(loss, None, model.trainable_params())
        value, gradients = (ms.jit(function) if compiled else function)(*tensors, factors)
        results.append([value.asnumpy(), *(g.asnumpy() for g in gradients)])
    for once, twice in zip(*results):
        np.testing.assert_array_equal(once, twice)


def test_evaluation_leaves_nothing_out():
    plain = Transformer(replace(FOUR, layer_dropout=0.0), seed=1)
    dropping = Transformer(FOUR, seed=1)
    batch = packed_batch(rows=2)
    arrays = [ms.Tensor(batch[n]) for n in ("input_ids", "position_ids", "segment_ids", "task_ids")]
    np.testing.assert_array_equal(plain(*arrays).asnumpy(), dropping(*arrays).asnumpy())


def test_wrong_shares_are_refused():
    with pytest.raises(Exception, match="layer_dropout=1.0 is not allowed: at least 0, below 1"):
        ModelConfig(layer_dropout=1)
