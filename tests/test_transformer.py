"""transformer.py: what no position may see, what must not change numbers, and what is refused."""

import numpy as np
import pytest

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms
from mindspore import ops

from workbench.config import ModelConfig
from workbench.errors import DataError, SettingError
from workbench.model.masks import document_positions
from workbench.model.batch import check_batch
from workbench.model.transformer import Transformer

SMALL = dict(
    vocab_size=50,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=32,
    num_tasks=5,
)
CONFIG = ModelConfig(**SMALL, initializer_range=0.3)


@pytest.fixture(scope="module")
def model():
    return Transformer(CONFIG, seed=1)


def batch_of(segments, seed=0, tasks=0):
    segments = np.atleast_2d(np.array(segments, np.int32))
    return {
        "input_ids": np.random.default_rng(seed).integers(0, CONFIG.vocab_size, segments.shape).astype(np.int32),
        "position_ids": document_positions(segments),
        "segment_ids": segments,
        "task_ids": np.full(segments.shape, tasks, np.int32),
    }


def tensors(batch):
    return [ms.Tensor(batch[name]) for name in ("input_ids", "position_ids", "segment_ids", "task_ids")]


def logits_of(model, batch):
    return model.logits(model(*tensors(batch))).asnumpy()


def test_names_are_hugging_faces_and_shapes_follow_the_settings(model):
    names = {p.name: p.shape for p in model.get_parameters()}
    layer = {
        "input_layernorm.weight": (16,),
        "self_attn.q_proj.weight": (16, 16),
        "self_attn.k_proj.weight": (8, 16),
        "self_attn.v_proj.weight": (8, 16),
        "self_attn.o_proj.weight": (16, 16),
        "post_attention_layernorm.weight": (16,),
        "mlp.gate_proj.weight": (24, 16),
        "mlp.up_proj.weight": (24, 16),
        "mlp.down_proj.weight": (16, 24),
    }
    expected = {f"model.layers.{i}.{name}": shape for i in (0, 1) for name, shape in layer.items()}
    expected |= {"model.embed_tokens.weight": (50, 16), "model.norm.weight": (16,)}
    expected |= {"task_embedding.weight": (5, 16), "instruction_head.weight": (5, 16), "fact_head.weight": (1, 16)}
    assert names == expected
    untied = Transformer(ModelConfig(**SMALL, tie_word_embeddings=False), seed=1)
    assert {p.name for p in untied.get_parameters()} == set(expected) | {"lm_head.weight"}


def test_weights_are_named_by_the_seed():
    weights = [{p.name: p.asnumpy() for p in Transformer(CONFIG, seed).get_parameters()} for seed in (1, 1, 2)]
    for name, first in weights[0].items():
        np.testing.assert_array_equal(first, weights[1][name])
    assert (weights[0]["model.embed_tokens.weight"] != weights[2]["model.embed_tokens.weight"]).any()


def test_initial_loss_is_that_of_guessing():
    for kind in (
        {},
        {"tie_word_embeddings": False},
        {"norm_type": "layer_norm"},
        {"use_qk_norm": True},
        {"num_experts": 4, "shared_expert_intermediate_size": 32},
    ):
        config = ModelConfig(vocab_size=1000, hidden_size=64, num_hidden_layers=2, **kind)
        rng = np.random.default_rng(0)
        batch = batch_of(np.ones((4, 32)))
        batch["input_ids"] = rng.integers(0, 1000, (4, 32)).astype(np.int32)
        logits = logits_of(Transformer(config, seed=3), batch).reshape(-1, 1000)
        labels = rng.integers(0, 1000, len(logits))
        loss = np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(logits)), labels])
        assert abs(loss / np.log(1000) - 1) < 0.02


def test_no_position_sees_the_future(model):
    batch = batch_of([1] * 10)
    before = logits_of(model, batch)
    for position in (1, 5, 9):
        changed = {name: array.copy() for name, array in batch.items()}
        changed["input_ids"][0, position] = (changed["input_ids"][0, position] + 1) % 50
        after = logits_of(model, changed)
        np.testing.assert_array_equal(after[0, :position], before[0, :position])
        assert (after[0, position:] != before[0, position:]).any(axis=-1).all()


def test_packed_documents_do_not_see_each_other(model):
    batch = batch_of([1, 1, 1, 1, 2, 2, 2, 2, 2, 0])
    before = logits_of(model, batch)
    changed = {name: array.copy() for name, array in batch.items()}
    changed["input_ids"][0, :4] = (changed["input_ids"][0, :4] + 7) % 50
    after = logits_of(model, changed)
    np.testing.assert_array_equal(after[0, 4:], before[0, 4:])
    assert (after[0, :4] != before[0, :4]).any(axis=-1).all()


def test_a_packed_document_is_as_if_alone(model):
    batch = batch_of([1, 1, 1, 1, 2, 2, 2, 2, 2, 0])
    together = logits_of(model, batch)
    for part in (slice(0, 4), slice(4, 9)):
        alone = {name: array[:, part].copy() for name, array in batch.items()}
        np.testing.assert_allclose(logits_of(model, alone)[0], together[0, part], atol=1e-5)


@pytest.mark.parametrize("segments", [[0, 0, 0, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
def test_padding_is_finite_and_changes_nothing(model, segments):
    batch = batch_of([segments, [1] * 5])
    before = logits_of(model, batch)
    assert np.isfinite(before).all()
    padding = np.array(segments) == 0
    batch["input_ids"][0, padding] = (batch["input_ids"][0, padding] + 11) % 50
    after = logits_of(model, batch)
    np.testing.assert_array_equal(after[0, ~padding], before[0, ~padding])
    np.testing.assert_array_equal(after[1], before[1])


def test_compiled_and_pynative_agree_with_their_gradients(model):
    batch = tensors(batch_of([[1, 1, 1, 2, 2, 2, 2, 0], [1, 1, 1, 1, 1, 1, 1, 1]], tasks=2))
    labels = ms.Tensor(np.random.default_rng(5).integers(0, 50, 16).astype(np.int32))
    loss_of = ops.SparseSoftmaxCrossEntropyWithLogits()

    def loss(input_ids, position_ids, segment_ids, task_ids):
        logits = model.logits(model(input_ids, position_ids, segment_ids, task_ids))
        return loss_of(ops.reshape(logits, (-1, 50)), labels)

    weights = model.trainable_params()
    function = ms.value_and_grad(loss, None, weights)
    eager, compiled, again = function(*batch), ms.jit(function)(*batch), function(*batch)
    np.testing.assert_allclose(compiled[0].asnumpy(), eager[0].asnumpy(), atol=1e-5)
    for parameter, one, two, three in zip(weights, eager[1], compiled[1], again[1]):
        np.testing.assert_allclose(two.asnumpy(), one.asnumpy(), atol=1e-5, err_msg=parameter.name)
        np.testing.assert_array_equal(three.asnumpy(), one.asnumpy(), err_msg=parameter.name)
        if "head" not in parameter.name:
            assert np.abs(one.asnumpy()).max() > 0, parameter.name


@pytest.mark.parametrize("compiled", [False, True])
def test_recomputed_blocks_give_the_same_loss_and_gradients(compiled):
    """Bit for bit those of blocks with plain gradients; by hand, the same loss and other rounding."""
    batch = tensors(batch_of([[1, 1, 1, 2, 2, 0]]))
    results = {}
    for way in ("by hand", "plain", "recomputed"):
        model = Transformer(CONFIG, seed=1)
        for block in model.layers:
            if way == "plain":
                block.use_plain_gradients()
            if way == "recomputed":
                block.recompute()

        def loss(input_ids, position_ids, segment_ids, task_ids):
            return ops.square(model.logits(model(input_ids, position_ids, segment_ids, task_ids))).mean()

        function = ms.value_and_grad(loss, None, model.trainable_params())
        value, gradients = (ms.jit(function) if compiled else function)(*batch)
        results[way] = [value.asnumpy(), *(g.asnumpy() for g in gradients)]
    for by_hand, plain, recomputed in zip(*results.values()):
        np.testing.assert_array_equal(recomputed, plain)
        np.testing.assert_allclose(by_hand, plain, atol=2e-6 * max(1, np.abs(plain).max()))
    assert results["by hand"][0] == results["recomputed"][0]


def test_the_task_changes_nothing_at_first_and_task_0_never():
    model = Transformer(CONFIG, seed=1)
    plain, with_task = (logits_of(model, batch_of([1] * 6, tasks=t)) for t in (0, 3))
    np.testing.assert_array_equal(plain, with_task)
    table = model.task_embedding.weight
    table.set_data(ms.Tensor(np.ones(table.shape, np.float32)))
    np.testing.assert_array_equal(logits_of(model, batch_of([1] * 6, tasks=0)), plain)
    assert (logits_of(model, batch_of([1] * 6, tasks=3)) != plain).any()

    def loss(*batch):
        return ops.square(model.logits(model(*batch))).mean()

    for task, row_moves in ((0, False), (3, True)):
        gradient = ms.grad(loss, None, table)(*tensors(batch_of([1] * 6, tasks=task))).asnumpy()
        assert (gradient[task] != 0).any() == row_moves
        assert (np.delete(gradient, task, axis=0) == 0).all()


def test_float16_stays_close_and_keeps_float32_outside():
    batch = batch_of([1] * 8)
    exact, rounded = (logits_of(Transformer(CONFIG, 1, dtype), batch) for dtype in ("float32", "float16"))
    assert rounded.dtype == np.float32
    assert 0 < np.abs(exact - rounded).max() < 0.02 * np.abs(exact).max()
    with pytest.raises(SettingError, match="precision='bfloat16'"):
        Transformer(CONFIG, 1, "bfloat16")
    with pytest.raises(SettingError, match="flash attention needs float16"):
        Transformer(CONFIG, 1, "float32", flash_attention=True)


def test_a_good_batch_passes_and_may_hold_more():
    check_batch({**batch_of([[1, 1, 0], [1, 2, 2]]), "labels": np.zeros((2, 3), np.int32)}, CONFIG)


@pytest.mark.parametrize(
    "name, value, told",
    [
        ("task_ids", np.array([1, 1], np.int32), "task_ids has shape (2,), expected (2, 2)"),
        ("task_ids", np.full((2, 2), 5, np.int32), "task_ids holds 5, allowed are 0 to 4"),
        ("task_ids", np.full((2, 2), -1, np.int32), "task_ids holds -1"),
        ("input_ids", np.full((2, 2), 50, np.int32), "input_ids holds 50, allowed are 0 to 49"),
        ("input_ids", np.zeros(2, np.int32), "input_ids has shape (2,)"),
        ("position_ids", np.full((2, 2), 32, np.int32), "max_position_embeddings"),
        ("position_ids", np.zeros((2, 3), np.int32), "expected (2, 2) like input_ids"),
        ("segment_ids", np.full((2, 2), -2, np.int32), "segment_ids holds -2"),
        ("segment_ids", np.ones((2, 2), np.float32), "segment_ids is float32, expected int32"),
        ("segment_ids", None, "the batch has no segment_ids"),
        ("input_ids", None, "input_ids has shape ()"),
        ("labels", np.full((2, 2), 50, np.int32), "labels holds 50, allowed are 0 to 49, and -100 for no target"),
        ("labels", np.full((2, 2), -1, np.int32), "labels holds -1"),
        ("labels", np.zeros((2, 1), np.int32), "labels has shape (2, 1), expected (2, 2)"),
        ("instruction_labels", np.full((2, 2), 5, np.int32), "instruction_labels holds 5, allowed are 0 to 4"),
        ("fact_targets", np.full((2, 2), 7, np.float32), "fact_targets holds 7.0, allowed are 0 to 1"),
        ("fact_targets", np.full((2, 2), np.nan, np.float32), "fact_targets holds nan"),
    ],
)
def test_a_wrong_batch_is_refused_in_one_line(name, value, told):
    batch = batch_of([[1, 1], [1, 1]])
    if value is None:
        del batch[name]
    else:
        batch[name] = value
    with pytest.raises(DataError) as error:
        check_batch(batch, CONFIG)
    assert told in str(error.value) and "\n" not in str(error.value)
