"""Recompute changes no loss and no gradient, whichever part it is of; and why dropout is not in the blocks."""

import json
import subprocess
import sys
from dataclasses import replace

import mindspore as ms
import numpy as np
import pytest

from workbench.config import ModelConfig
from workbench.data.sources import random_batch
from workbench.errors import SettingError
from workbench.model.transformer import Transformer
from workbench.train.dropping import drop
from workbench.train.losses import joint_loss, target_counts
from workbench.train.memory import KINDS
from workbench.train.micro_batches import INPUTS

DENSE = ModelConfig(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    layer_dropout=0.4,
    task_dropout=0.3,
)
SPARSE = replace(DENSE, num_experts=4, mlp_only_layers=(0,))
# The part of a block whose gradients are plain, because it is recomputed.
PLAIN = {"none": (), "attention": ("self_attn",), "feed_forward": ("mlp",), "block": ("",), "whole": ("",)}


def loss_and_gradients(config, precision, kind, plain=(), compiled=False):
    """Of one batch with dropped layers and tasks; ``plain`` parts of every block have no gradient by hand."""
    batch = drop(random_batch(np.random.default_rng(0), 2, 16, config.vocab_size), config, 3, 5)
    batch["layer_factors"] = np.array([0, 5 / 3], np.float32)
    model = Transformer(config, 1, precision)
    model.recompute(kind)
    for block in model.layers:
        for part in plain:
            for _, cell in (getattr(block, part) if part else block).cells_and_names():
                if hasattr(cell, "by_hand"):
                    cell.by_hand = False
    counts = ms.Tensor(target_counts(batch))

    def loss(a, b, c, d, e, f, g, factors):
        return joint_loss(model, (1.0, 0.3, 0.1), (a, b, c, d, e, f, g), counts, factors)[0] * 128.0

    tensors = tuple(ms.Tensor(np.ascontiguousarray(batch[name])) for name in INPUTS)
    function = ms.value_and_grad(loss, None, model.trainable_params())
    value, gradients = (ms.jit(function) if compiled else function)(*tensors, ms.Tensor(batch["layer_factors"]))
    return [value.asnumpy(), *(g.asnumpy() for g in gradients)]


def test_every_kind_gives_the_same_bits_with_experts_in_float16():
    by_hand = loss_and_gradients(SPARSE, "float16", "none")
    for kind in KINDS[1:]:
        recomputed = loss_and_gradients(SPARSE, "float16", kind)
        kept = loss_and_gradients(SPARSE, "float16", "none", PLAIN[kind])
        for once, twice in zip(kept, recomputed):
            np.testing.assert_array_equal(once, twice, err_msg=kind)
        # Against gradients by hand only the rounding differs, of float16.
        for one, other in zip(by_hand, recomputed):
            np.testing.assert_allclose(other, one, atol=2e-3 * max(np.abs(one).max(), 1e-9), err_msg=kind)


def test_compiled_and_dense_in_float32():
    results = {kind: loss_and_gradients(DENSE, "float32", kind, compiled=True) for kind in KINDS}
    none = results.pop("none")
    for kind, found in results.items():
        assert found[0] == none[0], kind
        for one, other in zip(none, found):
            np.testing.assert_allclose(other, one, atol=1e-6 * max(np.abs(one).max(), 1e-9), err_msg=kind)
    for once, twice in zip(results["block"], results["whole"]):
        np.testing.assert_array_equal(once, twice)


def test_only_what_is_recomputed_loses_its_gradients_by_hand():
    for kind, plain in PLAIN.items():
        model = Transformer(DENSE, 1)
        model.recompute(kind)
        block = model.layers[0]
        assert block.self_attn.by_hand == (plain in ((), ("mlp",))), kind
        assert block.mlp.by_hand == (plain in ((), ("self_attn",))), kind
        assert block.input_layernorm.by_hand == (kind not in ("block", "whole")), kind
        assert model.model.norm.by_hand


def test_a_kind_is_chosen_once():
    model = Transformer(DENSE, 1)
    with pytest.raises(SettingError, match="recompute='layers' is not allowed: one of none, attention"):
        model.recompute("layers")
    model.recompute("attention")
    model.recompute("attention")
    with pytest.raises(SettingError, match="recompute='block' is not allowed: this model has attention already"):
        model.recompute("block")


DROPOUT = """
import json
import workbench
import mindspore as ms
import numpy as np
from mindspore import nn, ops

class Dropped(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(p=0.5)

    def construct(self, x):
        return ops.square(self.dropout(x))

wrong = []
for recomputed in (False, True):
    cell = Dropped()
    cell.set_train()
    if recomputed:
        cell.recompute()

    def loss(x):
        y = cell(x)
        return y.sum(), y

    gradient, (y,) = ms.grad(loss, has_aux=True)(ms.Tensor(np.ones(4096, np.float32)))
    # The gradient of the square of a number that was dropped is zero.
    wrong.append(float(np.mean((y.asnumpy() == 0) != (gradient.asnumpy() == 0))))
print(json.dumps(wrong))
"""


def test_mindspore_draws_dropout_anew_when_it_recomputes(tmp_path):
    """The reason for having no dropout in the blocks. If this fails, MindSpore has mended it.

    In a process of its own: after other work in the same process it was once seen to draw the same again.
    """
    script = tmp_path / "dropped.py"
    script.write_text(DROPOUT, encoding="utf-8")
    said = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
    plain, recomputed = json.loads(said.strip().splitlines()[-1])
    assert plain == 0 and recomputed == pytest.approx(0.5, abs=0.05)
