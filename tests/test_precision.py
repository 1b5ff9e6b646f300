"""The list of types is what the running model does, and what a device cannot compute is refused in one line."""

from dataclasses import replace

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import nn, ops
from step_runs import TRAIN, batch_of
from tiny_model import TINY

from workbench.config import RunConfig, TrainConfig
from workbench.device import DEVICES, use_device
from workbench.errors import SettingError
from workbench.model.attend import LeanAttend
from workbench.model.experts import Experts, SparseMoE
from workbench.model.feed_forward import SwiGLU
from workbench.model.linear import Embedding, Linear, TaskAwareEmbedding
from workbench.model.norm import RMSNorm
from workbench.model.precision import PRECISIONS, check_precision, needs_loss_scale, precision_table
from workbench.model.rounding import RoundedProduct, round_products, rounded
from workbench.model.transformer import Transformer
from workbench.run_folder import RunFolder
from workbench.train.loop import pretrain
from workbench.train.losses import joint_loss, target_counts
from workbench.train.micro_batches import INPUTS
from workbench.train.state import TrainState
from workbench.train.step import TrainStep

SPARSE = replace(TINY, num_hidden_layers=2, num_experts=4, moe_intermediate_size=16, decoder_sparse_step=2)


class Watched(nn.Cell):
    """An operator that notes the float types of what it is given and gives."""

    def __init__(self, operator, part, seen):
        super().__init__()
        self.operator, self.part, self.seen = operator, part, seen

    def construct(self, *given):
        result = self.operator(*given)
        note(self.seen, self.part, (*given, *(result if isinstance(result, tuple) else (result,))))
        return result


def note(seen, part, arrays):
    seen.setdefault(part, set()).update(str(a.dtype).lower() for a in arrays if a.dtype != ms.int32)


def watch(model, seen):
    """Put a ``Watched`` around every product and every float32 part of ``model``."""

    def around(owner, name, part):
        setattr(owner, name, Watched(getattr(owner, name), part, seen))

    for name, cell in list(model.cells_and_names()):
        if isinstance(cell, Linear):
            small = "task and fact heads" if name.endswith("_head") else "router" if name.endswith("mlp.gate") else None
            around(cell, "matmul", small or "projections")
        elif isinstance(cell, LeanAttend):
            around(cell, "softmax", "masks and softmax")
            for product in ("product", "product_bt", "product_at"):
                around(cell, product, "attention products")
        elif isinstance(cell, Experts):
            around(cell, "matmul", "experts' products")

    def hook(part):
        return lambda cell, given, result: note(
            seen, part, (*given, *(result if isinstance(result, tuple) else (result,)))
        )

    parts = {RMSNorm: "norms", Embedding: "embeddings", TaskAwareEmbedding: "embeddings", SparseMoE: "residual stream"}
    for _, cell in list(model.cells_and_names()):
        if type(cell) in parts:
            cell.register_forward_hook(hook(parts[type(cell)]))
        elif isinstance(cell, SwiGLU):
            around(cell, "gated", "silu and gate")
    for block in model.layers:
        block.input_layernorm.register_forward_hook(hook("residual stream"))
    around(model, "logits_loss", "logits and loss")
    around(model, "head_matmul", "output head")
    seen["rotary tables"] = {str(model.cos.dtype).lower(), str(model.sin.dtype).lower()}


@pytest.mark.parametrize("config", [TINY, SPARSE], ids=["dense", "experts"])
def test_every_row_of_the_table_is_what_the_model_does(config):
    model, seen = Transformer(config, 0, "float16"), {}
    watch(model, seen)
    parameters = ms.ParameterTuple(model.trainable_params())
    batch = batch_of(0)

    def loss(*tensors):
        return joint_loss(model, (1.0, 0.3, 0.1), tensors[:-1], tensors[-1])[0]

    gradient = ms.value_and_grad(loss, None, weights=parameters)
    value, gradients = gradient(*(ms.Tensor(batch[n]) for n in INPUTS), ms.Tensor(target_counts(batch)))
    seen["logits and loss"].add(str(value.dtype).lower())
    seen["parameters"] = {str(p.dtype).lower() for p in parameters}
    seen["gradients"] = {str(g.dtype).lower() for g in gradients}
    state = TrainState.fresh(model, TRAIN)
    _, optimizer = state.arrays()
    seen["loss scale"] = {optimizer.pop("scalars").dtype.name}
    seen["moments"] = {a.dtype.name for a in optimizer.values()}
    plain = Transformer(config, 0, "float16")
    _, cache = plain.decode(*cached(plain))
    seen["key/value cache"] = {str(a.dtype).lower() for a in cache}
    assert seen == {row.part: {row.dtype} for row in precision_table("float16", config)}
    assert all(row.why for row in precision_table("float16", config))


def cached(model):
    """Two new tokens after an empty cache of four."""
    ids = ms.Tensor(np.array([[1, 2]], np.int32))
    positions, none = ms.Tensor(np.array([[0, 1]], np.int32)), ms.Tensor(np.zeros((1, 2), np.int32))
    shape = (model.config.num_key_value_heads, 4, model.config.head_size)
    empty = tuple(ops.zeros(shape, model.compute_dtype) for _ in range(2 * model.config.num_hidden_layers))
    return ids, positions, none, empty


def test_the_table_names_the_precision_only_where_it_is_used():
    for name in PRECISIONS:
        kinds = {row.dtype for row in precision_table(name, TINY)}
        assert kinds == {name, "float32"} and needs_loss_scale(name) == (name == "float16")
    with pytest.raises(SettingError, match="unknown precision 'fp16'.*float16"):
        precision_table("fp16", TINY)


def test_what_a_device_cannot_compute_is_refused_in_one_line(tmp_path):
    use_device("CPU")
    with pytest.raises(SettingError) as refused:
        Transformer(TINY, 0, "bfloat16")
    told = "precision='bfloat16' cannot be computed on CPU: set precision to float32 or float16, or device to Ascend"
    assert str(refused.value) == told
    config = RunConfig(train=TrainConfig(precision="bfloat16"))
    config = replace(config, data=replace(config.data, data="no/such/file", tokenizer="no/such/folder"))
    with pytest.raises(SettingError, match="cannot be computed on CPU"):
        pretrain(config, RunFolder.at(tmp_path / "run"))
    assert not (tmp_path / "run" / "data").exists()


def test_ascend_takes_both_half_precisions_and_its_kernel_no_float32():
    for name in ("float16", "bfloat16"):
        check_precision(name, DEVICES["Ascend"])
    with pytest.raises(SettingError, match="flash attention needs float16 or bfloat16"):
        check_precision("float32", DEVICES["Ascend"])


def losses(precision, steps=30, rounding=False, seed=0):
    model = Transformer(TINY, seed, precision)
    if rounding:
        round_products(model)
    train = replace(TRAIN, precision=precision, init_loss_scale=4096.0, warmup_steps=0, lr_scheduler_type="constant")
    state, step = TrainState.fresh(model, train), TrainStep(model, train)
    told = []
    for at in range(steps):
        state, metrics = step(state, batch_of(at % 4))
        told.append(metrics["loss"])
        assert metrics["overflow"] == 0
    return np.asarray(told)


def test_half_precision_ends_near_float32_on_the_same_data():
    exact, half, simulated = losses("float32"), losses("float16"), losses("float32", rounding=True)
    assert exact[-4:].mean() < exact[:4].mean() - 0.5, "nothing was learned, so nothing is compared"
    assert np.abs(half - exact).max() < 0.01 and np.abs(half[-4:] - exact[-4:]).mean() < 0.004
    # Three bits less: further away, and not the same.
    assert np.abs(half - exact).max() < np.abs(simulated - exact).max() < 0.1


@pytest.mark.parametrize("compiled", [False, True])
def test_simulated_products_and_gradients_are_torchs_bfloat16_to_the_bit(compiled):
    rng = np.random.default_rng(0)
    x, w, above = (rng.normal(size=s).astype(np.float32) for s in ((6, 32), (8, 32), (6, 8)))
    product = RoundedProduct()

    def loss(x, w, above):
        return ops.ReduceSum()(ops.mul(product(x, w), above))

    function = ms.value_and_grad(loss, (0, 1))
    function = ms.jit(function) if compiled else function
    _, (of_x, of_w) = function(ms.Tensor(x), ms.Tensor(w), ms.Tensor(above))
    tx, tw = torch.tensor(x, requires_grad=True), torch.tensor(w, requires_grad=True)
    ((tx.bfloat16() @ tw.bfloat16().T).float() * torch.tensor(above)).sum().backward()
    assert np.array_equal(of_x.asnumpy(), tx.grad.numpy()) and np.array_equal(of_w.asnumpy(), tw.grad.numpy())
    values = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 / 3, 1e38, -1e-39], np.float32)
    assert np.array_equal(rounded(ms.Tensor(values)).asnumpy(), torch.tensor(values).bfloat16().float().numpy())


def test_the_simulation_takes_plain_float32_models_only():
    for model in (Transformer(TINY, 0, "float16"), Transformer(SPARSE, 0)):
        with pytest.raises(SettingError, match="takes a float32 model without experts"):
            round_products(model)
