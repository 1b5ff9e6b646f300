"""experts.py against transformers' sparse blocks, against its own definition, and alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import MixtralConfig, Qwen2MoeConfig
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock, load_balancing_loss_func
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeSparseMoeBlock

import workbench  # noqa: F401  (sets MindSpore's environment)
import mindspore as ms
from mindspore import nn

from workbench.config import ModelConfig
from workbench.model import experts as room
from workbench.model.experts import SparseMoE, block_count, block_rows, capacity, load_balancing_loss, moe_by_loop

SIZE, INNER = 16, 20


def config(**changes) -> ModelConfig:
    return ModelConfig(
        **{
            "hidden_size": SIZE,
            "intermediate_size": INNER,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "initializer_range": 0.5,
            **changes,
        }
    )


class Scored(nn.Cell):
    """A scalar of everything that a gradient can come from."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def construct(self, x, seen, outer):
        y, stats = self.cell(x, seen)
        return (y * outer).sum() + 0.3 * stats[-3] + 0.1 * stats[-2], y, stats


class Residual(nn.Cell):
    """As a block holds it; returns two arrays, as a block must."""

    def __init__(self, moe):
        super().__init__()
        self.mlp = moe

    def construct(self, x, seen):
        y, stats = self.mlp(x, seen)
        return x + y, stats


def tensors(tokens, seed=0, padding=0):
    rng = np.random.default_rng(seed)
    x, outer = (rng.normal(size=(tokens, SIZE)).astype(np.float32) for _ in range(2))
    seen = np.ones(tokens, np.float32)
    seen[tokens - padding :] = 0
    return ms.Tensor(x), ms.Tensor(seen), ms.Tensor(outer)


def gradients(cell, arrays, compiled=True):
    """value, y, stats and the gradients by name, ``x`` among them."""
    scored = Scored(cell)
    parameters = scored.trainable_params()
    function = ms.value_and_grad(scored, 0, parameters, has_aux=True)
    (value, y, stats), (to_x, to_weights) = (ms.jit(function) if compiled else function)(*arrays)
    named = {p.name.removeprefix("cell."): g.asnumpy() for p, g in zip(parameters, to_weights)}
    return float(value), y.asnumpy(), stats.asnumpy(), {"x": to_x.asnumpy(), **named}


def peer(kind: str, normalised: bool):
    """transformers' block and our settings for the same."""
    shape = {"hidden_size": SIZE, "num_experts_per_tok": 2, "experts_implementation": "eager"}
    if kind == "mixtral":
        return MixtralSparseMoeBlock(MixtralConfig(intermediate_size=INNER, num_local_experts=4, **shape)), config()
    shared = 8
    block = Qwen2MoeSparseMoeBlock(
        Qwen2MoeConfig(
            moe_intermediate_size=INNER,
            shared_expert_intermediate_size=shared,
            num_experts=4,
            norm_topk_prob=normalised,
            **shape,
        )
    )
    return block, config(shared_expert_intermediate_size=shared, norm_topk_prob=normalised)


@pytest.mark.parametrize(
    "kind, normalised, compiled", [("mixtral", True, True), ("qwen2", False, True), ("qwen2", True, False)]
)
def test_values_and_gradients_are_those_of_transformers(kind, normalised, compiled):
    block, settings_ = peer(kind, normalised)
    ours = SparseMoE(settings_, np.random.default_rng(0), ms.float32)
    arrays = tensors(9)
    value = {p.name: torch.tensor(p.asnumpy()) for p in ours.get_parameters()}
    value["experts.gate_up_proj"] = torch.cat([value.pop("experts.gate_proj"), value.pop("experts.up_proj")], 1)
    block.load_state_dict(value)
    x, _, outer = (torch.tensor(a.asnumpy()) for a in arrays)
    x.requires_grad_()
    logits = torch.nn.functional.linear(x, block.gate.weight)
    expected = block(x[None])
    expected = (expected[0] if isinstance(expected, tuple) else expected)[0]
    balance = load_balancing_loss_func((logits,), 4, 2)
    z = torch.logsumexp(logits, -1).square().mean()
    ((expected * outer).sum() + 0.3 * balance + 0.1 * z).backward()

    _, y, stats, got = gradients(ours, arrays, compiled)
    np.testing.assert_allclose(y, expected.detach().numpy(), atol=2e-5)
    np.testing.assert_allclose(stats[-3:], [balance.item(), z.item(), 0], rtol=1e-5)
    want = {name: p.grad.numpy() for name, p in block.named_parameters()} | {"x": x.grad.numpy()}
    joined = np.concatenate([got.pop("experts.gate_proj"), got.pop("experts.up_proj")], 1)
    got["experts.gate_up_proj"] = joined
    assert set(got) == set(want)
    for name, gradient in want.items():
        np.testing.assert_allclose(got[name], gradient, atol=5e-5, err_msg=name)


@settings(max_examples=12, deadline=None)
@given(
    tokens=st.integers(1, 24),
    experts=st.integers(1, 5),
    each=st.integers(1, 3),
    factor=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    padding=st.integers(0, 4),
    seed=st.integers(0, 99),
)
def test_any_shape_is_the_loop(tokens, experts, each, factor, padding, seed):
    each, padding = min(each, experts), min(padding, tokens)
    settings_ = config(num_experts=experts, num_experts_per_tok=each, expert_capacity_factor=factor)
    moe = SparseMoE(settings_, np.random.default_rng(seed), ms.float32)
    x, seen, _ = tensors(tokens, seed, padding)
    y, stats = (a.asnumpy() for a in moe(x, seen))
    np.testing.assert_allclose(y, moe_by_loop(moe, x, seen).asnumpy(), atol=1e-4)
    assert not y[tokens - padding :].any()
    counts = stats[:experts]
    assert counts.sum() == each * (tokens - padding)
    room_ = capacity(settings_, tokens) if factor else tokens
    assert stats[-1] == np.maximum(counts - room_, 0).sum()


@pytest.mark.parametrize("factor", [0.0, 0.6])
def test_gradients_are_those_of_the_loop(factor):
    moe = SparseMoE(config(expert_capacity_factor=factor), np.random.default_rng(3), ms.float32)
    x, seen, outer = tensors(21, seed=3, padding=2)
    weights = moe.trainable_params()
    loop = ms.grad(lambda a: (moe_by_loop(moe, a, seen) * outer).sum(), 0, weights)(x)
    function = ms.grad(weighted_sum(moe), 0, weights)
    fast = (ms.jit(function) if factor else function)(x, seen, outer)
    if factor:
        assert float(moe(x, seen)[1][-1]) > 0, "nothing was dropped"
    for got, want in zip((fast[0], *fast[1]), (loop[0], *loop[1])):
        np.testing.assert_allclose(got.asnumpy(), want.asnumpy(), atol=5e-5)


def weighted_sum(moe):
    """sum(y * outer) as a function that ``jit`` can read."""

    def scored(x, seen, outer):
        return (moe(x, seen)[0] * outer).sum()

    return scored


def force(moe, expert):
    """A router that sends positive inputs to ``expert`` whatever they are."""
    weight = np.zeros(moe.gate.weight.shape, np.float32)
    weight[expert] = 1
    moe.gate.weight.set_data(ms.Tensor(weight))


@pytest.mark.parametrize("factor", [0.0, 1.0])
def test_everyone_to_one_expert(factor):
    moe = SparseMoE(config(num_experts_per_tok=1, expert_capacity_factor=factor), np.random.default_rng(0), ms.float32)
    force(moe, 2)
    x, seen, _ = tensors(40)
    x = ms.Tensor(np.abs(x.asnumpy()))
    y, stats = (a.asnumpy() for a in moe(x, seen))
    assert stats[:4].tolist() == [0, 0, 40, 0]
    assert stats[4] > 3.5, "the loss of a collapsed router is E, of an even one 1"
    if factor:
        assert stats[-1] == 30 and y[:10].any(-1).all() and not y[10:].any(), "the first tokens are served"
    np.testing.assert_allclose(y, moe_by_loop(moe, x, seen).asnumpy(), atol=1e-4)


@pytest.mark.parametrize("factor", [0.0, 0.5])
def test_padding_takes_nothing_from_tokens(factor):
    """Padding before the tokens, with the largest values: the tokens' results are unchanged to the bit."""
    moe = SparseMoE(config(expert_capacity_factor=factor), np.random.default_rng(0), ms.float32)
    x, _, _ = tensors(16)
    seen = np.repeat([0, 1], 8).astype(np.float32)
    changed = x.asnumpy().copy()
    changed[:8] = 1e4
    before, after = (moe(a, ms.Tensor(seen)) for a in (x, ms.Tensor(changed)))
    np.testing.assert_array_equal(before[0].asnumpy(), after[0].asnumpy())
    np.testing.assert_array_equal(before[1].asnumpy(), after[1].asnumpy())
    nothing = moe(x, ms.Tensor(np.zeros(16, np.float32)))
    assert not nothing[0].asnumpy().any() and not nothing[1].asnumpy().any()


def test_the_balancing_loss_with_a_mask_is_that_of_transformers():
    rng = np.random.default_rng(0)
    logits, mask = rng.normal(size=(30, 6)).astype(np.float32) * 3, (rng.random(30) < 0.7).astype(np.float32)
    expected = load_balancing_loss_func((torch.tensor(logits),), 6, 3, attention_mask=torch.tensor(mask)[None])
    probabilities, _, chosen = room.route(ms.Tensor(logits), 3, True)
    counts, _ = room.assign(chosen, ms.Tensor(mask), 6)
    got = load_balancing_loss(probabilities, counts, ms.Tensor(mask))
    assert float(got) == pytest.approx(float(expected), rel=1e-5)


def test_inside_a_recomputed_cell_nothing_changes():
    moe = SparseMoE(config(), np.random.default_rng(0), ms.float32)
    arrays = tensors(17, padding=3)
    plain = gradients(Residual(moe), arrays, compiled=False)
    again = Residual(moe)
    again.recompute()
    recomputed = gradients(again, arrays)
    np.testing.assert_allclose(recomputed[1], plain[1], atol=1e-5)
    np.testing.assert_allclose(recomputed[2], plain[2], rtol=1e-6)
    assert set(plain[3]) == {"x", *(f"mlp.{n}" for n in ("gate.weight", *STACKED))}
    for name, gradient in plain[3].items():
        np.testing.assert_allclose(recomputed[3][name], gradient, atol=2e-5, err_msg=name)


STACKED = ("experts.gate_proj", "experts.up_proj", "experts.down_proj")


@pytest.mark.parametrize("factor", [0.0, 1.0])
def test_half_precision_is_near_and_an_empty_slot_is_no_one_s_input(factor):
    """A token whose product overflows in one expert must not reach the gradients of the others."""
    arrays = tensors(11)
    settings_ = config(expert_capacity_factor=factor)
    exact, half = (
        gradients(SparseMoE(settings_, np.random.default_rng(0), kind), arrays, compiled)
        for kind, compiled in ((ms.float32, False), (ms.float16, factor == 0))
    )
    assert half[1].dtype == np.float32
    np.testing.assert_allclose(half[1], exact[1], atol=0.02 * np.abs(exact[1]).max())
    for name, gradient in exact[3].items():
        np.testing.assert_allclose(half[3][name], gradient, atol=0.02 * np.abs(gradient).max(), err_msg=name)
    moe = SparseMoE(config(num_experts_per_tok=1, expert_capacity_factor=factor), np.random.default_rng(0), ms.float16)
    force(moe, 0)
    x = np.abs(arrays[0].asnumpy())
    x[0] = 6e4
    to_experts = gradients(moe, (ms.Tensor(x), *arrays[1:]), compiled=False)[3]
    assert all(np.isfinite(to_experts[name][1:]).all() for name in STACKED)


@settings(max_examples=200, deadline=None)
@given(counts=st.lists(st.integers(0, 60), min_size=1, max_size=9), rows=st.integers(1, 20))
def test_the_blocks_always_suffice_and_in_the_worst_case_all_are_used(counts, rows):
    experts, assignments = len(counts), sum(counts)
    enough = block_count(experts, assignments, rows)
    assert sum(-(-n // rows) for n in counts) <= enough
    used = min(experts, assignments)
    worst = [1] * used
    if used:
        worst[0] += assignments - used
        assert sum(-(-n // rows) for n in worst) == enough


def test_the_work_follows_the_assignments_and_not_the_experts():
    """Slots an assignment, for a step and for a decoded token, with few experts and with many."""
    for experts in (8, 64, 128):
        for assignments in (1, 8, 16 * experts, 512 * experts):
            rows = block_rows(experts, assignments)
            slots = block_count(experts, assignments, rows) * rows
            most = 1 if assignments <= experts else 2.4 if assignments < 100 * experts else 1.3
            assert assignments <= slots <= most * assignments, (experts, assignments, rows)
